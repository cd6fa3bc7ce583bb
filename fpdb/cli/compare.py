"""Compare texts: two, many pairs, or a file of texts with one."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.options import JsonOption, RecipeOption, choose_recipe, require
from fpdb.errors import InputError
from fpdb.io.streams import read_lines, read_text
from fpdb.models import Comparison


def compare(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE", help="Two files, or one to --rank.")
    ] = None,
    texts: Annotated[
        list[str] | None,
        typer.Option("--text", "-t", metavar="TEXT", help="A text, in place of a file."),
    ] = None,
    pairs: Annotated[
        str | None,
        typer.Option("--pairs", metavar="FILE", help="Compare the two columns of a TSV file."),
    ] = None,
    rank: Annotated[
        str | None,
        typer.Option("--rank", metavar="FILE", help="Rank the lines of a file by similarity."),
    ] = None,
    recipe: RecipeOption = "web",
    k: Annotated[
        int | None,
        typer.Option("--k", "-k", metavar="K", min=0, help="Print whether the distance is in k."),
    ] = None,
    below: Annotated[
        bool, typer.Option("--below", help="With -k: the distance must be below k.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare two files or texts.

    Example:
      fpdb compare essay.txt copy.txt
      fpdb compare --text "the cat sat on the mat and purred at the dog" \\
                   --text "the cat sat on a mat and purred at the dog" -k 3
      fpdb compare --pairs submissions.tsv --recipe ascii-mt -k 3 --below
      fpdb compare --text "有哪些养猫必须知道的冷知识" --rank titles.txt --recipe tagged-title
    """
    given = len(files or ()) + len(texts or ())
    require(
        not (pairs and rank) and given == (0 if pairs else 1 if rank else 2),
        "give two files or texts, or --pairs FILE, or one and --rank FILE",
    )
    require(k is not None or not below, "--below needs -k")
    chosen = choose_recipe(recipe)
    largest = k - 1 if k is not None and below else k
    sides = [read_text(path) for path in files or ()] + (texts or [])
    if not (pairs or rank):
        found = fpdb.compare(chosen, *sides)
        verdict = _verdict(found, largest)
        if as_json:
            render.record(dataclasses.asdict(found) | {"verdict": verdict})
        else:
            _report(chosen, found, verdict)
        return
    if pairs:
        compared: Iterable[tuple[Comparison, str, str]] = (
            (fpdb.compare(chosen, *both), *both) for both in _read_pairs(pairs)
        )
    else:
        others = read_lines(rank or "")
        ranked = [(fpdb.compare(chosen, sides[0], other), sides[0], other) for other in others]
        compared = sorted(ranked, key=lambda entry: (entry[0].distance, -entry[0].jaccard))
    for found, left, right in compared:
        verdict = _verdict(found, largest)
        if as_json:
            both = {"verdict": verdict, "a": left, "b": right}
            render.record(dataclasses.asdict(found) | both)
            continue
        exact = (found.cosine_estimate, found.cosine, found.jaccard)
        shares = [f"{each:.4f}" for each in (found.angle, *exact)]
        # The ratio of two values of 128 bits may be tiny, so no digit of it is left out.
        shares += [repr(found.value_ratio), verdict or "-"]
        render.row(found.distance, f"{found.percent:.2f}", *shares, left, right)


def _verdict(found: Comparison, k: int | None) -> str | None:
    if k is None:
        return None
    if found.short:
        return "duplicate" if found.equal else "short"
    return "duplicate" if found.distance <= k else "different"


def _read_pairs(path: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), 1):
        left, *rest = line.split("\t")
        if len(rest) != 1:
            raise InputError(
                f"{path}:{number}: found {len(rest)} tabs, expected 1",
                hint="put one tab between the two texts",
            )
        yield left, rest[0]


def _report(recipe: fpdb.Recipe, found: Comparison, verdict: str | None) -> None:
    entries = {
        "recipe": f"{recipe.name} ({recipe.id})",
        "distance": f"{found.distance} of {recipe.bits} bits",
        "similarity": f"{found.percent:.2f}%",
        "angle": f"{found.angle:.2f} degrees, estimated",
        "cosine": f"{found.cosine_estimate:.4f} estimated, {found.cosine:.4f} exact",
        "Jaccard": f"{found.jaccard:.4f} exact",
    }
    if found.shingle_jaccard is not None:
        entries["shingles"] = (
            f"Jaccard {found.sketch_jaccard:.4f} ± {found.sketch_error:.4f} estimated, "
            f"{found.shingle_jaccard:.4f} exact"
        )
        entries["containment"] = f"{found.containment:.4f} of the smaller set, exact"
    entries["value ratio"] = repr(found.value_ratio)
    if verdict:
        entries["verdict"] = verdict
    render.report(entries)
    if found.short:
        render.note("short: a text has too few features, so only equal texts count as duplicates")
