"""Where a command's data go: lines, JSON lines, CSV or Parquet, to standard output or to a file."""

import contextlib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import PurePath
from typing import Annotated

import typer

from fpdb.cli import render
from fpdb.cli.databases import require
from fpdb.io import TableWriter


class Form(StrEnum):
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
        help="Where to; - is standard output. The suffix tells the format.",
    ),
]
OutputFormatOption = Annotated[
    Form | None,
    typer.Option("--output-format", help="What to write, if the suffix doesn't tell it."),
]
NoCsvGuardOption = Annotated[
    bool,
    typer.Option("--no-csv-guard", help="Leave cells of CSV that look like formulas alone."),
]


class Output:
    """Where the data go, and in which form; JSON lines and tab-separated ones are printed."""

    def __init__(
        self, path: str, form: Form | None, default: Form, *, as_json: bool = False, guard: bool
    ) -> None:
        require(not as_json or form in (None, Form.JSONL), "--json is a format of its own")
        suffix = PurePath(path).suffix.lower().removeprefix(".")
        told = Form(suffix) if suffix in set(Form) else default
        self.path = path
        self.form = Form.JSONL if as_json else form or told
        self._guard = guard
        require(path != "-" or self.form is not Form.PARQUET, "Parquet needs --output FILE")
        self._writer: TableWriter | None = None

    @property
    def cells(self) -> bool:
        """Whether rows of cells are to be added, each under the name of its column."""
        return self.form in (Form.CSV, Form.PARQUET)

    @contextlib.contextmanager
    def opened(self, columns: Mapping[str, str]) -> Iterator[None]:
        """Take the data during a block; a file appears, whole, when it ends.

        The columns have the types that Arrow knows by these names.
        """
        if self.form is Form.PARQUET:
            with render.drafted(self.path) as file, TableWriter(file, columns) as writer:
                self._writer = writer
                yield
            return
        with render.into(self.path):
            if self.form is Form.CSV:
                render.cells(list(columns), guard=False)
            yield

    def add(self, *cells: object) -> None:
        """Add a row of cells."""
        if self._writer:
            self._writer.add(cells)
        else:
            render.cells(["" if cell is None else cell for cell in cells], guard=self._guard)


def key_type(keys: str) -> str:
    """Give the type of a column of keys."""
    return "uint64" if keys == "integer" else "string"
