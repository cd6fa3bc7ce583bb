"""What ingest and query read: the options that name fields, and the records that can't be used."""

from enum import StrEnum
from typing import Annotated

import typer

from fpdb.cli.values import parse_bytes
from fpdb.io import Fields


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
