"""Write all documents out, for another machine or for other programs."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.options import DatabaseArgument, PrefixOption, QuietOption, open_readonly
from fpdb.cli.output import (
    NoCsvGuardOption,
    Output,
    OutputFormat,
    OutputOption,
    document_dict,
    format_of_suffix,
    key_column,
)
from fpdb.errors import MissingExtraError

_PORTABLE_SUFFIX = ".fpdb.jsonl"
_COLUMNS = ("key", "fingerprint", "added", "meta")


class ExportFormat(StrEnum):
    """How documents are written: as other data are, or in the portable form."""

    PORTABLE = "portable"
    JSONL = "jsonl"
    TSV = "tsv"
    CSV = "csv"
    PARQUET = "parquet"


def export(
    path: DatabaseArgument,
    output: OutputOption = "-",
    form: Annotated[
        ExportFormat | None,
        typer.Option(
            "--output-format",
            metavar="FORMAT",
            help="portable (suffix .fpdb.jsonl), jsonl, tsv, csv or parquet.",
            rich_help_panel="Output",
        ),
    ] = None,
    prefix: PrefixOption = None,
    no_csv_guard: NoCsvGuardOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write documents out.

    Example:
      fpdb export crawl.fpdb --output crawl.fpdb.jsonl.gz
      fpdb export crawl.fpdb --output-format portable | ssh b fpdb load c.fpdb - --format portable
      fpdb export crawl.fpdb --output crawl.parquet
      fpdb export crawl.fpdb --output-format csv --prefix https://example.com/
    """
    if form is ExportFormat.PORTABLE or (form is None and _has_portable_suffix(output)):
        count = _write_portable(path, output, prefix or "")
    else:
        chosen = OutputFormat(form) if form else format_of_suffix(output) or OutputFormat.JSONL
        target = Output(output, chosen, no_csv_guard=no_csv_guard)
        count = _write_documents(path, target, prefix or "")
    if output != "-" and not quiet:
        render.note(f"{output}: {count:,} documents")


def _has_portable_suffix(path: str) -> bool:
    return path.lower().removesuffix(".gz").removesuffix(".zst").endswith(_PORTABLE_SUFFIX)


def _write_portable(path: Path, output: str, prefix: str) -> int:
    """Write the portable form of a database, compressed if the suffix says so."""
    with (
        open_readonly(path) as database,
        render.binary(output) as raw,
        _compressed(raw, output.lower()) as file,
    ):
        return database.dump(file, prefix=prefix)


@contextmanager
def _compressed(file: IO[bytes], name: str) -> Iterator[IO[bytes]]:
    """Open a file for a block to write to through the compressor that its suffix names."""
    if name.endswith(".gz"):
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6) as packed:
            yield packed  # type: ignore[misc]
    elif name.endswith(".zst"):
        try:
            import zstandard
        except ImportError:
            raise MissingExtraError(
                "zstd is written by the package zstandard, which isn't installed",
                hint="pip install 'fpdb[zstd]'",
            ) from None
        with zstandard.ZstdCompressor().stream_writer(file, closefd=False) as packed:
            yield packed
    else:
        yield file


def _write_documents(path: Path, target: Output, prefix: str) -> int:
    """Write the documents of a database for other programs; return their number."""
    count = 0
    with open_readonly(path) as database:
        bits = database.plan.bits
        # Arrow has no numbers of 128 bits.
        number = "uint64" if bits <= 64 and target.form is OutputFormat.PARQUET else "string"
        types = (key_column(database), number, "time", "string")
        with target.opened(dict(zip(_COLUMNS, types, strict=True))):
            if target.form is OutputFormat.TSV:
                render.row(*_COLUMNS)
            for document in database.scan(prefix=prefix):
                count += 1
                _write_document(document, bits, target, as_number=number == "uint64")
    return count


def _write_document(document: fpdb.Document, bits: int, target: Output, *, as_number: bool) -> None:
    plain = document_dict(document, bits)
    del plain["id"]
    key, number, added = plain["key"], plain["fingerprint"], plain["added"]
    meta = render.as_json(plain["meta"])
    shown = (key, number or "short", added, meta)
    cells: tuple[object, ...] = shown
    if target.form is OutputFormat.PARQUET:
        number = document.fingerprint if as_number else number
        cells = (key, number, document.added, None if document.meta is None else meta)
    target.write(plain, cells, shown)
