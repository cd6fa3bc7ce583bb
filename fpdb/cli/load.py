"""Load ready fingerprints, or an exported database."""

import dataclasses
from typing import Annotated, Any, Literal

import typer

import fpdb
from fpdb.cli import options, render
from fpdb.cli.inputs import BadRecords, ProgressLine, StrictOption, choose_reading
from fpdb.cli.options import bundled, option


@bundled("key_field fingerprint_field base", reading=choose_reading)
def load(
    path: options.DatabaseArgument,
    source: Annotated[
        str, typer.Argument(metavar="FILE|-", help="What to load; - is standard input.")
    ],
    reading: fpdb.Reading,
    recipe: options.AnyRecipeOption = None,
    k: options.NewKOption = None,
    key_type: options.KeyTypeOption = None,
    strict: StrictOption = False,
    form: Annotated[
        Literal["portable", "jsonl", "tsv", "csv", "parquet", "arrow"] | None,
        option("--format FORMAT", "portable, jsonl, tsv, csv, parquet or arrow; else by suffix."),
    ] = None,
) -> None:
    """Load fingerprints or an exported database.

    Example:
      fpdb load crawl.fpdb prints.tsv --key-field 1 --fingerprint-field 4 --base decimal

    A new database appears once everything is in it. Without --recipe, its
    fingerprints count as made by another program, and texts are refused.
    """
    new: dict[str, Any] = {"recipe": recipe, "k": k, "keys": key_type}
    progress, bad = ProgressLine("fingerprint"), BadRecords()
    render.now.left = "a new database isn't there, an old one is intact; run it again"
    counts = fpdb.load(
        path,
        source,
        dataclasses.replace(reading, format=form),
        strict=strict,
        on_bad=bad,
        on_progress=progress,
        **{name: value for name, value in new.items() if value is not None},
    )
    progress.summarise()
    bad.settle(counts.read - counts.bad)
