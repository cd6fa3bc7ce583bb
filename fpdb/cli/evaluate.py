"""The command that measures how well recipes find near-duplicates."""

import dataclasses
import re
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from fpdb.cli import render
from fpdb.cli.databases import require
from fpdb.cli.options import JsonOption, MaxBytesOption, choose_recipe
from fpdb.cli.outcome import BadRecords
from fpdb.cli.sources import (
    Base,
    HeaderOption,
    RecordFormatOption,
    StrictOption,
    make_fields,
)
from fpdb.ingest import Bad
from fpdb.io import BadRecord, Fields, read_pairs, read_records
from fpdb.models import LARGEST_TEXT, Document, Evaluation, Rating, RecipeQuality, Thresholds

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


def _ks(given: str) -> list[int]:
    """Parse distances such as 3, 0-12 or 0,3,6-8."""
    found: set[int] = set()
    for part in str(given).split(","):
        match = _RANGE.fullmatch(part.strip())
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise typer.BadParameter(f"{given!r} is no range of distances such as 3, 0-12 or 0,3,7")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return sorted(found)


def evaluate(
    documents: Annotated[
        str, typer.Argument(metavar="DOCUMENTS", help="A file or folder of records, or -.")
    ],
    pairs: Annotated[
        str | None,
        typer.Argument(
            metavar="PAIRS",
            help="A TSV or CSV file: key, key, and a Jaccard similarity such as 0.85 or a label "
            "(1, true, duplicate; 0, false, different). Default: the exact similarity of all.",
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
        str, typer.Option("--k", "-k", metavar="K", help="The distances, as 3, 0-12 or 0,3,7.")
    ] = "0-12",
    min_jaccard: Annotated[
        float | None,
        typer.Option(
            "--min-jaccard",
            metavar="J",
            help="Rate also the pairs whose sketches estimate such a similarity.",
        ),
    ] = None,
    truth_from: Annotated[
        float, typer.Option("--truth-from", metavar="J", help="Pairs from here are to be found.")
    ] = 0.8,
    right_from: Annotated[
        float, typer.Option("--right-from", metavar="J", help="Reported pairs from here are right.")
    ] = 0.7,
    wrong_below: Annotated[
        float,
        typer.Option("--wrong-below", metavar="J", help="Reported pairs below this are wrong."),
    ] = 0.5,
    listed_only: Annotated[
        bool,
        typer.Option("--listed-only", help="Count the listed pairs and no others."),
    ] = False,
    form: RecordFormatOption = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="F", help="The field or column of the key.")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option("--text", metavar="F", help="The field of the text; several are joined."),
    ] = None,
    header: HeaderOption = None,
    strict: StrictOption = False,
    as_json: JsonOption = False,
    max_bytes: MaxBytesOption = LARGEST_TEXT,
) -> None:
    """Measure precision and recall of recipes for each k, on documents of your own.

    Recall is the share of the true pairs that are within k. Precision is the share of right pairs
    among the right and wrong ones within k; pairs between --wrong-below and --right-from are
    neither. Pairs of equal texts are counted in a column of their own, and left out of both.

    PAIRS says which documents are alike; pairs that it doesn't list count as different. Without
    it, every two documents are compared: the truth is the Jaccard similarity of their shingles, 3
    words or 5 Chinese characters, after the first recipe has cleaned the texts.

    The lines with - in the column verified are those of the fingerprints alone, the others those
    of fingerprints and sketches.

    \b
    Example:
      fpdb eval pages.jsonl --min-jaccard 0.8
      fpdb eval pages.jsonl pairs.tsv --recipe web --recipe my.toml -k 3,6
    """
    import fpdb

    require(documents != "-" or pairs != "-", "only one of DOCUMENTS and PAIRS can be -")
    ks = _ks(k)
    chosen = [choose_recipe(name) for name in recipes or ["web"]]
    fields = make_fields(key, text, None, None, Base.HEX, header)
    bad = BadRecords(strict=strict)
    found = fpdb.evaluate(
        _documents(documents, form, fields, max_bytes, bad),
        None if pairs is None else read_pairs(pairs, max_bytes),
        recipes=chosen,
        k=ks,
        min_jaccard=min_jaccard,
        thresholds=Thresholds(truth_from, right_from, wrong_below),
        listed_only=listed_only,
    )
    if as_json:
        render.record(_plain(found))
    else:
        render.row(*_COLUMNS)
        for quality in found.recipes:
            _rows(quality, quality.ratings, "-")
            _rows(quality, quality.verified, f"{min_jaccard:g}" if min_jaccard else "-")
    for line in _summary(found):
        render.note(line)
    for quality in found.recipes:
        sketchless = f", without a sketch {quality.unsketched:,}" if min_jaccard else ""
        render.note(f"{quality.recipe}: texts too short {quality.short:,}{sketchless}")
    if bad.count:
        render.note(f"bad records {bad.count:,}")


def _documents(
    path: str, form: str | None, fields: Fields, max_bytes: int, bad: BadRecords
) -> Iterator[Document]:
    for record in read_records(path, format=form, fields=fields, max_bytes=max_bytes):
        if isinstance(record, BadRecord):
            bad(Bad(record.source, record.reason))
        else:
            # Pairs are written in a table, where a number is a text like any other.
            yield Document(str(record.key), record.text)


def _rows(quality: RecipeQuality, ratings: tuple[Rating, ...], verified: str) -> None:
    for rating in ratings:
        shares = ("-" if share is None else f"{share:.4f}" for share in rating[-3:])
        render.row(quality.recipe, verified, *rating[:-3], *shares)


def _summary(found: Evaluation) -> Iterator[str]:
    """Describe in two lines what was measured."""
    limits = found.thresholds
    truth = "exact Jaccard similarity of shingles" if found.exact else "the listed pairs"
    yield (
        f"{found.documents:,} documents, {found.true:,} true pairs (similarity from "
        f"{limits.truth_from:g}); truth: {truth}; "
        f"{found.equal:,} pairs of equal texts are left out."
    )
    verified = ""
    if found.min_jaccard is not None:
        verified = f" Verified: sketches estimate a similarity of at least {found.min_jaccard:g}."
    yield (
        f"Right: from {limits.right_from:g}; wrong: below {limits.wrong_below:g}; pairs between "
        f"are neither.{verified}"
    )


def _plain(found: Evaluation) -> dict[str, Any]:
    plain = dataclasses.asdict(found)
    for quality in plain["recipes"]:
        for kind in ("ratings", "verified"):
            quality[kind] = [rating._asdict() for rating in quality[kind]]
    return plain
