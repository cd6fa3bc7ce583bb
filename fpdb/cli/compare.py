"""The command that compares texts: two, many pairs, or a file of texts against one."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from fpdb.cli import render
from fpdb.cli.options import (
    BitsOption,
    JsonOption,
    MaxBytesOption,
    RecipeOption,
    choose_recipe,
)
from fpdb.errors import InputError
from fpdb.fingerprint import Recipe
from fpdb.fingerprint import compare as compare_texts
from fpdb.io import read_lines, read_text
from fpdb.models import LARGEST_TEXT, Comparison

# What every two texts have; not all have shingles.
_COLUMNS = [field.name for field in dataclasses.fields(Comparison)[:7]]


@dataclasses.dataclass(frozen=True)
class _Judge:
    """Says whether a comparison counts as a match; without k it says nothing."""

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
    first: Annotated[str | None, typer.Argument(metavar="A", help="A text.")] = None,
    second: Annotated[str | None, typer.Argument(metavar="B", help="Another text.")] = None,
    files: Annotated[bool, typer.Option("--files", help="A and B name files.")] = False,
    pairs: Annotated[
        str | None,
        typer.Option("--pairs", metavar="FILE", help="Compare the two columns of a TSV file."),
    ] = None,
    rank: Annotated[
        str | None,
        typer.Option("--rank", metavar="FILE", help="Rank the lines of a file against A."),
    ] = None,
    recipe: RecipeOption = "web",
    bits: BitsOption = None,
    k: Annotated[
        int | None, typer.Option("-k", min=0, help="Say whether the distance is at most k.")
    ] = None,
    below: Annotated[
        bool, typer.Option("--below", help="With -k: the distance must be below k.")
    ] = False,
    header: Annotated[
        bool, typer.Option("--header", help="With --pairs or --rank: name the columns first.")
    ] = False,
    as_json: JsonOption = False,
    max_bytes: MaxBytesOption = LARGEST_TEXT,
) -> None:
    """Compare two texts: what their fingerprints estimate, and what their features say exactly.

    With --pairs, every line of a TSV file (or - for standard input) holds two texts; with --rank,
    every line of a file is compared with A and the most similar come first. The verdict on texts
    that are too short is short, unless their features are equal.

    \b
    Example:
      fpdb compare "the cat sat on the mat" "the cat sat on a mat" -k 3
      fpdb compare --pairs submissions.tsv --recipe ascii-mt -k 3 --below
      fpdb compare "有哪些养猫必须知道的冷知识" --rank titles.txt --recipe tagged-title
    """
    given = (first is not None, second is not None)
    if given != ((False, False) if pairs else (True, not rank)) or (pairs and rank):
        raise typer.BadParameter("give A and B, or --pairs FILE, or A and --rank FILE")
    if below and k is None:
        raise typer.BadParameter("--below needs -k")
    if header and not (pairs or rank):
        raise typer.BadParameter("--header needs --pairs or --rank")
    if files and (pairs or rank):
        raise typer.BadParameter("--files needs A and B")
    chosen, judge = choose_recipe(recipe, bits, max_bytes), _Judge(k, below)
    if first is not None and second is not None:
        if files:
            first, second = (read_text(path, max_bytes).text for path in (first, second))
        _report(chosen, judge, compare_texts(chosen, first, second), as_json)
        return
    if header and not as_json:
        render.row(*_COLUMNS, "verdict", "a", "b")
    if pairs:
        rows = _read_pairs(pairs, max_bytes)
        compared: Iterable[tuple[Comparison, str, str]] = (
            (compare_texts(chosen, left, right), left, right) for left, right in rows
        )
    else:
        assert rank is not None and first is not None  # noqa: PT018, S101
        others = (line.text for line in read_lines(rank, max_bytes))
        ranked = [(compare_texts(chosen, first, other), first, other) for other in others]
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


def _report(recipe: Recipe, judge: _Judge, found: Comparison, as_json: bool) -> None:
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
