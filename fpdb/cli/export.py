"""The command that writes all documents out."""

from enum import StrEnum
from typing import Annotated

import typer

import fpdb
from fpdb.cli import databases, render
from fpdb.cli.options import DatabaseArgument, PrefixOption
from fpdb.cli.values import as_dict

_COLUMNS = ("key", "fingerprint", "added", "meta")


class ExportFormat(StrEnum):
    """How documents are written."""

    JSONL = "jsonl"
    TSV = "tsv"
    CSV = "csv"


def export(
    path: DatabaseArgument,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE|-", help="Where to; - is standard output."),
    ] = "-",
    form: Annotated[
        ExportFormat, typer.Option("--format", help="What to write.")
    ] = ExportFormat.JSONL,
    prefix: PrefixOption = None,
    no_csv_guard: Annotated[
        bool,
        typer.Option("--no-csv-guard", help="Leave cells of CSV that look like formulas alone."),
    ] = False,
) -> None:
    """Write the stored documents out: key, fingerprint, time of adding and metadata.

    JSON lines keep everything and can be ingested again with --fingerprint fingerprint, except
    for short texts, which have none, and for sketches, which only `compact` and `backup` copy. In
    TSV and CSV, characters that aren't printable are escaped, metadata are JSON, and in CSV a
    cell that a spreadsheet would take for a formula begins with an apostrophe.

    \b
    Example:
      fpdb export crawl.fpdb --output crawl.jsonl
      fpdb export crawl.fpdb --format csv --prefix https://example.com/
    """
    count = 0
    with databases.open_readonly(path) as database, render.into(output):
        bits = database.plan.bits
        if form is not ExportFormat.JSONL:
            _write_cells(_COLUMNS, form, guard=False)
        for document in database.scan(prefix=prefix or ""):
            count += 1
            _write(document, bits, form, guard=not no_csv_guard)
    if output != "-":
        render.note(f"{output}: {count:,} documents")


def _write(document: fpdb.Document, bits: int, form: ExportFormat, *, guard: bool) -> None:
    plain = as_dict(document, bits)
    if form is ExportFormat.JSONL:
        del plain["id"]
        render.record(plain)
        return
    meta = render.as_json(plain["meta"])
    cells = (plain["key"], plain["fingerprint"] or "short", plain["added"], meta)
    _write_cells(cells, form, guard=guard)


def _write_cells(cells: tuple[object, ...], form: ExportFormat, *, guard: bool) -> None:
    if form is ExportFormat.CSV:
        render.cells(cells, guard=guard)
    else:
        render.row(*cells)
