"""Compare texts: two, many pairs, or a file of texts with one."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.options import (
    BitsOption,
    JsonOption,
    MaxBytesOption,
    RecipeOption,
    choose_recipe,
    require,
)
from fpdb.errors import InputError
from fpdb.io import read_lines, read_text
from fpdb.models import LARGEST_TEXT, Comparison

# What every two texts have; not all have shingles.
_COLUMNS = [field.name for field in dataclasses.fields(Comparison)[:7]]


@dataclasses.dataclass(frozen=True)
class _Judge:
    """Decides whether a comparison counts as a match, if there is a k."""

    k: int | None
    below: bool

    def verdict(self, found: Comparison) -> str | None:
        if self.k is None:
            return None
        if found.short:
            return "duplicate" if found.equal else "short"
        close = found.distance < self.k if self.below else found.distance <= self.k
        return "duplicate" if close else "different"


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
    bits: BitsOption = None,
    k: Annotated[
        int | None,
        typer.Option("--k", "-k", metavar="K", min=0, help="Print whether the distance is in k."),
    ] = None,
    below: Annotated[
        bool, typer.Option("--below", help="With -k: the distance must be below k.")
    ] = False,
    header: Annotated[
        bool, typer.Option("--header", help="With --pairs or --rank: print column names first.")
    ] = False,
    as_json: JsonOption = False,
    max_bytes: MaxBytesOption = LARGEST_TEXT,
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
    require(pairs or rank or not header, "--header needs --pairs or --rank")
    chosen, judge = choose_recipe(recipe, bits, max_bytes), _Judge(k, below)
    sides = [read_text(path, max_bytes).text for path in files or ()] + (texts or [])
    if not (pairs or rank):
        _report(chosen, judge, fpdb.compare(chosen, sides[0], sides[1]), as_json)
        return
    if header and not as_json:
        render.row(*_COLUMNS, "verdict", "a", "b")
    if pairs:
        rows = _read_pairs(pairs, max_bytes)
        compared: Iterable[tuple[Comparison, str, str]] = (
            (fpdb.compare(chosen, left, right), left, right) for left, right in rows
        )
    else:
        others = (line.text for line in read_lines(rank or "", max_bytes))
        ranked = [(fpdb.compare(chosen, sides[0], other), sides[0], other) for other in others]
        compared = sorted(ranked, key=lambda entry: (entry[0].distance, -entry[0].jaccard))
    for found, left, right in compared:
        _line(judge, found, left, right, as_json)


def _read_pairs(path: str, max_bytes: int) -> Iterator[tuple[str, str]]:
    for line in read_lines(path, max_bytes):
        columns = line.text.split("\t")
        if len(columns) != 2:
            raise InputError(
                f"{line.source}: found {len(columns) - 1} tabs, expected 1",
                hint="put one tab between the two texts",
            )
        yield columns[0], columns[1]


def _line(judge: _Judge, found: Comparison, left: str, right: str, as_json: bool) -> None:
    verdict = judge.verdict(found)
    if as_json:
        render.record(dataclasses.asdict(found) | {"verdict": verdict, "a": left, "b": right})
        return
    render.row(
        found.distance,
        f"{found.similarity:.2%}".rstrip("%"),
        *(f"{getattr(found, column):.4f}" for column in _COLUMNS[2:]),
        verdict or "-",
        left,
        right,
    )


def _report(recipe: fpdb.Recipe, judge: _Judge, found: Comparison, as_json: bool) -> None:
    verdict = judge.verdict(found)
    if as_json:
        render.record(dataclasses.asdict(found) | {"verdict": verdict})
        return
    entries = {
        "recipe": f"{recipe.name} ({recipe.id})",
        "distance": f"{found.distance} of {recipe.bits} bits",
        "similarity": f"{found.similarity:.2%}",
        "angle": f"{found.angle:.2f} degrees, estimated",
        "cosine": f"{found.cosine_estimate:.4f} estimated, {found.cosine:.4f} exact",
        "Jaccard": f"{found.jaccard:.4f} exact",
    }
    if found.shingle_jaccard is not None:
        entries["shingles"] = (
            f"Jaccard {found.sketch_jaccard:.4f} ± {found.sketch_error:.4f} estimated, "
            f"{found.shingle_jaccard:.4f} exact"
        )
    entries["value ratio"] = repr(found.value_ratio)
    if verdict:
        entries["verdict"] = verdict
    render.report(entries)
    if found.short:
        render.note("short: a text has too few features, so only equal texts count as duplicates")
