"""Measure how well recipes find near-duplicates."""

import dataclasses
import re
from collections.abc import Iterator
from typing import Annotated, Any

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.inputs import BadRecords, StrictOption, choose_reading
from fpdb.cli.options import (
    JsonOption,
    QuietOption,
    SimilarityOption,
    bundled,
    choose_recipe,
    require,
)
from fpdb.errors import InputError
from fpdb.ingest import Bad
from fpdb.io import BadRecord, read_pairs, read_records

_TRUTH = "Truth"
_RANGE = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?")
_COLUMNS = (
    "recipe",
    "verified",
    "k",
    "equal",
    "reported",
    "right",
    "wrong",
    "found",
    "precision",
    "recall",
    "f1",
)


def _threshold(name: str, help_text: str) -> Any:
    """Return an option that is a similarity."""
    return typer.Option(name, metavar="J", help=help_text, rich_help_panel=_TRUTH)


@bundled(
    "key_field text_field input_format html html_text max_html max_bytes",
    reading=choose_reading,
)
def evaluate(
    documents: Annotated[
        str, typer.Argument(metavar="FILE|DIR|-", help="The documents; - is standard input.")
    ],
    reading: fpdb.Reading,
    pairs: Annotated[
        str | None,
        typer.Argument(
            metavar="PAIRS",
            help="A TSV or CSV file of known pairs: key, key, similarity or 1 or 0.",
        ),
    ] = None,
    recipes: Annotated[
        list[str] | None,
        typer.Option(
            "--recipe",
            "-r",
            metavar="NAME|FILE.toml",
            help="A recipe to evaluate, default web; several are compared.",
        ),
    ] = None,
    k: Annotated[
        str,
        typer.Option("--k", "-k", metavar="K", help="The distances, e.g. 3, 0-12 or 0,3,7."),
    ] = "0-12",
    similarity: SimilarityOption = None,
    strict: StrictOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    truth_from: Annotated[
        float, _threshold("--truth-from", "Least similarity of pairs to find.")
    ] = 0.8,
    right_from: Annotated[
        float, _threshold("--right-from", "Least similarity of pairs that are right to report.")
    ] = 0.7,
    wrong_below: Annotated[
        float, _threshold("--wrong-below", "Reported pairs below this similarity are wrong.")
    ] = 0.5,
    listed_only: Annotated[
        bool,
        typer.Option(
            "--listed-only", help="Count only the pairs in PAIRS.", rich_help_panel=_TRUTH
        ),
    ] = False,
) -> None:
    """Measure quality on your own documents.

    Example:
      fpdb eval pages.jsonl
      fpdb eval pages.jsonl --similarity 0.8 -k 3,7
      fpdb eval pages.jsonl pairs.tsv --recipe web --recipe my.toml -k 3,6

    Recall is the share of true pairs within k. Precision is the share of right pairs among right
    and wrong ones within k. Without PAIRS, the truth is the exact similarity of all documents.
    """
    require(documents != "-" or pairs != "-", "only one of DOCUMENTS and PAIRS can be -")
    bad = BadRecords()
    found = fpdb.evaluate(
        _read(documents, reading, bad, strict=strict),
        None if pairs is None else read_pairs(pairs, reading.max_bytes),
        recipes=[choose_recipe(name) for name in recipes or ["web"]],
        k=_parse_distances(k),
        min_jaccard=similarity,
        thresholds=fpdb.Thresholds(truth_from, right_from, wrong_below),
        listed_only=listed_only,
    )
    if as_json:
        render.record(_plain(found))
    else:
        render.row(*_COLUMNS)
        for quality in found.recipes:
            _print_rows(quality, quality.ratings, "-")
            _print_rows(quality, quality.verified, f"{similarity:g}" if similarity else "-")
    if not quiet:
        _summarise(found)
    if bad.count:
        render.note(f"bad records: {bad.count:,}")


def _parse_distances(given: str) -> list[int]:
    """Parse distances such as 3, 0-12 or 0,3,6-8."""
    found: set[int] = set()
    for part in str(given).split(","):
        match = _RANGE.fullmatch(part.strip())
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise typer.BadParameter(f"found {given!r}, expected distances, e.g. 3, 0-12 or 0,3,7")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return sorted(found)


def _read(
    path: str, reading: fpdb.Reading, bad: BadRecords, *, strict: bool
) -> Iterator[fpdb.Document]:
    records = read_records(path, reading)
    for record in records:
        if not isinstance(record, BadRecord):
            # Known pairs are read from a table, where every key is a text.
            yield fpdb.Document(str(record.key), record.text)
        elif strict:
            raise InputError(
                f"{record.source}: {record.reason}", hint="leave --strict out to skip it"
            )
        else:
            bad(Bad(record.source, record.reason))


def _print_rows(
    quality: fpdb.models.RecipeQuality, ratings: tuple[fpdb.models.Rating, ...], verified: str
) -> None:
    for rating in ratings:
        shares = ("-" if share is None else f"{share:.4f}" for share in rating[-3:])
        render.row(quality.recipe, verified, *rating[:-3], *shares)


def _summarise(found: fpdb.models.Evaluation) -> None:
    """Print what was measured."""
    limits = found.thresholds
    truth = "exact similarity of the texts" if found.exact else "the listed pairs"
    render.note(
        f"{found.documents:,} documents, true pairs {found.true:,} (similarity from "
        f"{limits.truth_from:g}; truth: {truth}), left out: pairs of equal texts {found.equal:,}"
    )
    render.note(
        f"right: similarity from {limits.right_from:g}; wrong: below {limits.wrong_below:g}; "
        "others aren't counted"
    )
    sketched = found.min_jaccard is not None
    if sketched:
        render.note(f"verified: sketches estimate a similarity of {found.min_jaccard:g} or more")
    for quality in found.recipes:
        sketchless = f", without a sketch {quality.unsketched:,}" if sketched else ""
        render.note(f"{quality.recipe}: texts too short {quality.short:,}{sketchless}")


def _plain(found: fpdb.models.Evaluation) -> dict[str, Any]:
    """Return an evaluation as plain data."""
    plain = dataclasses.asdict(found)
    for quality in plain["recipes"]:
        for kind in ("ratings", "verified"):
            quality[kind] = [rating._asdict() for rating in quality[kind]]
    return plain
