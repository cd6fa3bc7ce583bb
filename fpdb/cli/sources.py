"""What ingest and query read: the options that name fields, and the records that can't be used."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

import typer

from fpdb.cli import render
from fpdb.cli.values import parse_bytes
from fpdb.errors import InputError
from fpdb.io import Fields, Idle, Markup, Part, Passing, Progress, read_parts

_SHOWN = 100


class RecordFormat(StrEnum):
    """The formats of records."""

    JSONL = "jsonl"
    TSV = "tsv"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"
    LINES = "lines"
    TEXT = "text"
    HTML = "html"
    WARC = "warc"


class MarkupKind(StrEnum):
    """What is read as HTML."""

    AUTO = "auto"
    HTML = "html"
    NONE = "none"


class HtmlPart(StrEnum):
    """What of a page is its text."""

    MAIN = "main"
    PAGE = "page"


class Base(StrEnum):
    """How fingerprints in quotes, in tables and on the command line are written."""

    HEX = "hex"
    DECIMAL = "decimal"


RecordFormatOption = Annotated[
    RecordFormat | None,
    typer.Option("--format", help="The format, if the suffix doesn't tell it."),
]
HeaderOption = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether the first line of a table names its columns; "
        "it does unless the fields are numbers.",
    ),
]
BaseOption = Annotated[
    Base, typer.Option("--fingerprint-base", help="How fingerprints in texts are written.")
]
MarkupOption = Annotated[
    MarkupKind,
    typer.Option(
        "--markup",
        help="What is HTML: auto takes .html files and archives, html all texts, none nothing.",
    ),
]
HtmlTextOption = Annotated[
    HtmlPart,
    typer.Option("--html-text", help="What to take of HTML: its main content, or all of the page."),
]
MaxHtmlOption = Annotated[
    int,
    typer.Option(
        "--max-html",
        metavar="BYTES",
        parser=parse_bytes,
        show_default="2M",
        help="The largest HTML page to take, as 4M.",
    ),
]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="Stop at the first bad record, with exit code 3.")
]


def make_fields(
    key: str | None,
    text: list[str] | None,
    meta: list[str] | None,
    fingerprint: str | None,
    base: Base,
    header: bool | None,
    *,
    keyed: bool = True,
) -> Fields:
    """Say which fields mean what."""
    return Fields(
        key=key,
        text=tuple(text or ()),
        meta=tuple(meta or ()),
        fingerprint=fingerprint,
        fingerprint_base=base.value,
        header=header,
        keyed=keyed,
    )


def make_markup(kind: MarkupKind, part: HtmlPart, largest: int) -> Markup:
    """Say what is HTML, and what of it is taken."""
    return Markup(kind.value, part.value, largest)


class Rejects:
    """The records that can't be used: said, at first one by one, and counted; or fatal."""

    def __init__(self, *, strict: bool) -> None:
        self.count = 0
        self.strict = strict

    def add(self, source: str, reason: str, hint: str = "") -> None:
        """Take note of a bad record."""
        self.count += 1
        if self.strict:
            raise InputError(f"{source}: {reason}", hint=hint or "leave --strict out to skip it")
        if self.count <= _SHOWN:
            render.note(f"{source}: {reason}")
        elif self.count == _SHOWN + 1:
            render.note("further bad records are only counted")


def open_parts(
    paths: list[str],
    form: RecordFormat | None,
    fields: Fields,
    max_bytes: int,
    *,
    markup: Markup,
    size: int,
    progress: Progress | None = None,
    idle: Idle | None = None,
    passing: Passing | None = None,
) -> Iterator[Part]:
    """Check all paths, and then cut what is in them into parts of so many records."""
    opened = [
        read_parts(
            path,
            format=form,
            fields=fields,
            max_bytes=max_bytes,
            markup=markup,
            size=size,
            progress=progress,
            idle=idle,
            passing=passing,
        )
        for path in paths
    ]
    return (part for parts in opened for part in parts)
