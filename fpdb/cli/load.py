"""Load ready fingerprints, or an exported database."""

import dataclasses
from enum import StrEnum
from typing import Annotated

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.create import is_there, note_created
from fpdb.cli.ingest import ProgressLine
from fpdb.cli.inputs import BadRecords, StrictOption, choose_reading
from fpdb.cli.options import (
    MEMORY,
    AnyRecipeOption,
    CapacityOption,
    DatabaseArgument,
    KeyTypeOption,
    MemoryOption,
    QuietOption,
    bundled,
    choose_recipe,
    hinting_at_order,
    open_readonly,
)


class LoadFormat(StrEnum):
    """The formats of ready fingerprints."""

    PORTABLE = "portable"
    JSONL = "jsonl"
    TSV = "tsv"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"


@bundled("key_field fingerprint_field base", reading=choose_reading)
def load(
    path: DatabaseArgument,
    source: Annotated[
        str, typer.Argument(metavar="FILE|-", help="What to load; - is standard input.")
    ],
    reading: fpdb.Reading,
    recipe: AnyRecipeOption = None,
    capacity: CapacityOption = None,
    key_type: KeyTypeOption = None,
    memory: MemoryOption = MEMORY,
    strict: StrictOption = False,
    quiet: QuietOption = False,
    form: Annotated[
        LoadFormat | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="portable, jsonl, tsv, csv, parquet or arrow; default by the suffix.",
        ),
    ] = None,
    keys: Annotated[
        str | None,
        typer.Option(
            "--keys",
            metavar="FILE",
            help="The keys of an array's rows: an array, or a key a line.",
            rich_help_panel="Arrays",
        ),
    ] = None,
    first_key: Annotated[
        int | None,
        typer.Option(
            "--first-key",
            min=0,
            max=2**64 - 1,
            metavar="N",
            help="Number the rows of an array from N.",
            rich_help_panel="Arrays",
        ),
    ] = None,
) -> None:
    """Load fingerprints or an exported database.

    Example:
      fpdb load crawl.fpdb prints.parquet
      fpdb load crawl.fpdb prints.tsv --key-field 1 --fingerprint-field 4 --base decimal
      fpdb load crawl.fpdb prints.npy --keys keys.txt
      fpdb load copy.fpdb crawl.fpdb.jsonl.gz

    A new database appears when everything is in it.
    """
    new = {"recipe": recipe and choose_recipe(recipe), "capacity": capacity, "keys": key_type}
    created = not is_there(path)
    progress = ProgressLine(quiet=quiet, unit="fingerprints")
    with (
        render.interruptible("a new database isn't there, an old one is intact; run it again"),
        hinting_at_order(path),
    ):
        fpdb.load(
            path,
            source,
            dataclasses.replace(reading, format=form),
            key_file=keys,
            first_key=first_key,
            memory=memory,
            strict=strict,
            on_bad=BadRecords(),
            on_progress=progress,
            **{name: value for name, value in new.items() if value is not None},
        )
    if created and not quiet:
        with open_readonly(path) as database:
            note_created(database)
    progress.summarise()
