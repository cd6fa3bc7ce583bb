"""Write a command's data: lines, JSON lines, CSV or Parquet, to standard output or to a file."""

import contextlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import PurePath
from typing import Annotated, Any

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.options import Base, JsonOption, require
from fpdb.io import TableWriter

_PANEL = "Output"


class OutputFormat(StrEnum):
    """How data are written."""

    JSONL = "jsonl"
    TSV = "tsv"
    CSV = "csv"
    PARQUET = "parquet"


OutputOption = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE|-",
        help="Where to write; the suffix chooses the format.",
        rich_help_panel=_PANEL,
    ),
]
NoCsvGuardOption = Annotated[
    bool,
    typer.Option(
        "--no-csv-guard",
        help="Don't escape cells of CSV that look like formulas.",
        rich_help_panel=_PANEL,
    ),
]


class Output:
    """Where data go, and in which format; JSON lines and tab-separated ones are printed."""

    def __init__(
        self,
        output: OutputOption = "-",
        output_format: Annotated[
            OutputFormat | None,
            typer.Option(
                "--output-format",
                metavar="FORMAT",
                help="jsonl, tsv, csv or parquet; default by the suffix.",
                rich_help_panel=_PANEL,
            ),
        ] = None,
        as_json: JsonOption = False,
        no_csv_guard: NoCsvGuardOption = False,
    ) -> None:
        require(
            not as_json or output_format in (None, OutputFormat.JSONL),
            "--json is a format of its own",
        )
        self.path = output
        named = OutputFormat.JSONL if as_json else output_format or format_of_suffix(output)
        self.form = named or OutputFormat.TSV
        self._guard = not no_csv_guard
        require(
            output != "-" or self.form is not OutputFormat.PARQUET, "Parquet needs --output FILE"
        )
        self._writer: TableWriter | None = None

    @contextlib.contextmanager
    def opened(self, columns: Mapping[str, str]) -> Iterator[None]:
        """Open the output for a block that writes; a file appears, complete, when it ends.

        Args:
            columns: The name of each column, and the Arrow type of its values.
        """
        if self.form is OutputFormat.PARQUET:
            with render.drafted(self.path) as file, TableWriter(file, columns) as writer:
                self._writer = writer
                yield
            return
        with render.into(self.path):
            if self.form is OutputFormat.CSV:
                render.cells(list(columns), guard=False)
            yield

    def write(
        self, plain: Mapping[str, Any], cells: tuple[object, ...], shown: tuple[object, ...]
    ) -> None:
        """Write one result, in the form that fits the format.

        Args:
            plain: What JSON lines hold.
            cells: The cells of CSV or Parquet, one for each column.
            shown: The fields of a tab-separated line.
        """
        if self.form is OutputFormat.JSONL:
            render.record(plain)
        elif self.form is OutputFormat.TSV:
            render.row(*shown)
        elif self._writer:
            self._writer.add(cells)
        else:
            render.cells(["" if cell is None else cell for cell in cells], guard=self._guard)


def format_of_suffix(path: str) -> OutputFormat | None:
    """Return the format that the suffix of a path names."""
    suffix = PurePath(path).suffix.lower().removeprefix(".")
    return OutputFormat(suffix) if suffix in set(OutputFormat) else None


def key_column(database: fpdb.Database) -> str:
    """Return the Arrow type of a column of keys."""
    return "uint64" if database.keys == "integer" else "string"


def format_fingerprint(fingerprint: int, bits: int, base: Base = Base.HEX) -> str:
    """Return a fingerprint as digits."""
    return f"{fingerprint:0{bits // 4}x}" if base is Base.HEX else str(fingerprint)


def format_time(seconds: int) -> str:
    """Return a time as ISO 8601, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def near_dict(near: fpdb.Match | fpdb.Pair) -> dict[str, Any]:
    """Return a match or a pair as plain data; its Jaccard similarity only if it was computed."""
    plain = near._asdict()
    if near.jaccard is None:
        del plain["jaccard"]
    return plain


def jaccard_cells(near: fpdb.Match | fpdb.Pair) -> tuple[str, ...]:
    """Return the column of the Jaccard similarity, if it was computed."""
    return () if near.jaccard is None else (f"{near.jaccard:.4f}",)


def document_dict(document: fpdb.Document, bits: int) -> dict[str, Any]:
    """Return a stored document as plain data."""
    number = document.fingerprint
    return {
        "key": document.key,
        "id": document.id,
        "fingerprint": None if number is None else format_fingerprint(number, bits),
        "short": document.short,
        "added": format_time(document.added or 0),
        "meta": document.meta,
    } | ({} if document.sketch is None else {"sketch": document.sketch.hex()})
