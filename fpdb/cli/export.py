"""The command that writes all documents out."""

from typing import Annotated

import typer

import fpdb
from fpdb.cli import databases, render
from fpdb.cli.options import DatabaseArgument, PrefixOption
from fpdb.cli.output import Form, NoCsvGuardOption, Output, OutputOption, key_type
from fpdb.cli.values import as_dict

_COLUMNS = ("key", "fingerprint", "added", "meta")


def export(
    path: DatabaseArgument,
    output: OutputOption = "-",
    form: Annotated[
        Form | None,
        typer.Option("--format", help="What to write, if the suffix doesn't tell it; or jsonl."),
    ] = None,
    prefix: PrefixOption = None,
    no_csv_guard: NoCsvGuardOption = False,
) -> None:
    """Write the stored documents out: key, fingerprint, time of adding and metadata.

    JSON lines keep everything and can be ingested again with --fingerprint fingerprint, except
    for short texts, which have none, and for sketches, which only `compact` and `backup` copy. So
    can Parquet, whose fingerprints are numbers if they fit.
    In TSV and CSV, characters that aren't printable are escaped. Metadata are JSON in all but JSON
    lines. In CSV a cell that a spreadsheet would take for a formula begins with an apostrophe.

    \b
    Example:
      fpdb export crawl.fpdb --output crawl.jsonl
      fpdb export crawl.fpdb --output crawl.parquet
      fpdb export crawl.fpdb --format csv --prefix https://example.com/
    """
    count = 0
    target = Output(output, form, Form.JSONL, guard=not no_csv_guard)
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
