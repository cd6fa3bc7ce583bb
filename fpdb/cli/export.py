"""The command that writes all documents out."""

from enum import StrEnum
from typing import Annotated

import typer

import fpdb
from fpdb.cli import databases, portable, render
from fpdb.cli.options import DatabaseArgument, PrefixOption
from fpdb.cli.output import Form, NoCsvGuardOption, Output, OutputOption, key_type
from fpdb.cli.values import as_dict


class ExportForm(StrEnum):
    """How documents are written: as other data are, or in the portable form."""

    PORTABLE = "portable"
    JSONL = "jsonl"
    TSV = "tsv"
    CSV = "csv"
    PARQUET = "parquet"


_COLUMNS = ("key", "fingerprint", "added", "meta")


def export(
    path: DatabaseArgument,
    output: OutputOption = "-",
    form: Annotated[
        ExportForm | None,
        typer.Option("--format", help="What to write, if the suffix doesn't tell it; or jsonl."),
    ] = None,
    prefix: PrefixOption = None,
    no_csv_guard: NoCsvGuardOption = False,
) -> None:
    """Write the stored documents out, for another machine or for other programs.

    The portable form loses nothing: `ingest` makes the same database of it, on a machine of any
    kind and with a later fpdb. It begins with the recipe and ends with a checksum. The suffix
    .fpdb.jsonl tells it; with .gz or .zst behind it, it is packed. The secret of a recipe isn't in
    it.

    The other forms are for reading: key, fingerprint, time of adding and metadata. JSON lines and
    Parquet, whose fingerprints are numbers if they fit, can be ingested with --fingerprint
    fingerprint, though not the short texts, which have none.
    In TSV and CSV, characters that aren't printable are escaped. Metadata are JSON in all but JSON
    lines. In CSV a cell that a spreadsheet would take for a formula begins with an apostrophe.

    \b
    Example:
      fpdb export crawl.fpdb --output crawl.fpdb.jsonl.gz
      fpdb export crawl.fpdb --format portable | ssh other fpdb ingest crawl.fpdb -
      fpdb export crawl.fpdb --output crawl.jsonl
      fpdb export crawl.fpdb --output crawl.parquet
      fpdb export crawl.fpdb --format csv --prefix https://example.com/
    """
    if form is ExportForm.PORTABLE or (form is None and portable.told(output)):
        _note(output, portable.write(path, output, prefix))
        return
    count = 0
    given = Form(form) if form else None
    target = Output(output, given, Form.JSONL, guard=not no_csv_guard)
    with databases.open_readonly(path) as database:
        bits = database.plan.bits
        # Arrow has no numbers of 128 bits.
        number = "uint64" if bits <= 64 and target.form is Form.PARQUET else "string"
        types = (key_type(database.keys), number, "time", "string")
        with target.opened(dict(zip(_COLUMNS, types, strict=True))):
            if target.form is Form.TSV:
                render.row(*_COLUMNS)
            for document in database.scan(prefix=prefix or ""):
                count += 1
                _write(document, bits, target, as_number=number == "uint64")
    _note(output, count)


def _note(output: str, count: int) -> None:
    if output != "-":
        render.note(f"{output}: {count:,} documents")


def _write(document: fpdb.Document, bits: int, target: Output, *, as_number: bool) -> None:
    plain = as_dict(document, bits)
    if target.form is Form.JSONL:
        del plain["id"]
        render.record(plain)
        return
    key, number, meta = plain["key"], plain["fingerprint"], render.as_json(plain["meta"])
    if target.form is Form.PARQUET:
        shown = document.fingerprint if as_number else number
        target.add(key, shown, document.added, None if document.meta is None else meta)
    elif target.form is Form.CSV:
        target.add(key, number or "short", plain["added"], meta)
    else:
        render.row(key, number or "short", plain["added"], meta)
