"""The options that say how files are read, the same in every command, and what they turn into."""

from enum import StrEnum
from typing import Annotated, Any

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.options import Base, parse_bytes
from fpdb.ingest import Bad
from fpdb.io import LARGEST_HTML
from fpdb.models import LARGEST_TEXT

_FIELDS = "Fields"
_INPUT = "Input"
_SHOWN = 100


class InputFormat(StrEnum):
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


class HtmlKind(StrEnum):
    """What is read as HTML."""

    AUTO = "auto"
    HTML = "html"
    NONE = "none"


class HtmlPart(StrEnum):
    """What of a page is its text."""

    MAIN = "main"
    PAGE = "page"


FilesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE|DIR|-", help="What to read; default standard input."),
]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="Stop at the first bad record, with exit code 3.")
]


def _field(name: str, help_text: str) -> Any:
    """Return an option that names a field."""
    return typer.Option(name, metavar="F", help=help_text, rich_help_panel=_FIELDS)


def _limit(name: str, help_text: str) -> Any:
    """Return an option that limits what is read."""
    return typer.Option(
        name,
        metavar="BYTES",
        parser=parse_bytes,
        show_default="2M",
        help=help_text,
        rich_help_panel=_INPUT,
    )


def choose_reading(
    key_field: Annotated[
        str | None, _field("--key-field", "Field of the key; default key, id or url.")
    ] = None,
    text_field: Annotated[
        list[str] | None, _field("--text-field", "Field of the text; several are joined.")
    ] = None,
    meta_field: Annotated[
        list[str] | None, _field("--meta-field", "Field to keep as metadata; '*': all others.")
    ] = None,
    fingerprint_field: Annotated[
        str | None, _field("--fingerprint-field", "Field of a ready fingerprint.")
    ] = None,
    base: Annotated[
        Base, typer.Option("--base", help="Digits of fingerprints.", rich_help_panel=_FIELDS)
    ] = Base.HEX,
    input_format: Annotated[
        InputFormat | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help=f"{', '.join(InputFormat)}; default by the suffix.",
            rich_help_panel=_INPUT,
        ),
    ] = None,
    html: Annotated[
        HtmlKind,
        typer.Option("--html", help="What is HTML; auto: .html, archives.", rich_help_panel=_INPUT),
    ] = HtmlKind.AUTO,
    html_text: Annotated[
        HtmlPart,
        typer.Option("--html-text", help="Main content, or all of a page.", rich_help_panel=_INPUT),
    ] = HtmlPart.MAIN,
    max_html: Annotated[int, _limit("--max-html", "Largest HTML page to accept.")] = LARGEST_HTML,
    max_bytes: Annotated[int, _limit("--max-bytes", "Largest text to accept.")] = LARGEST_TEXT,
) -> fpdb.Reading:
    """Return how files are read, by the options that say so."""
    return fpdb.Reading(
        format=input_format,
        key_field=key_field,
        text_field=text_field or (),
        meta_field=meta_field or (),
        fingerprint_field=fingerprint_field,
        base=base.value,
        html=html.value,
        html_text=html_text.value,
        max_html=max_html,
        max_bytes=max_bytes,
    )


class BadRecords:
    """Prints the first records that can't be used, and counts all of them."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, bad: Bad) -> None:
        """Take a record that can't be used."""
        self.count += 1
        if self.count <= _SHOWN:
            render.note(f"{bad.source}: {bad.reason}")
        elif self.count == _SHOWN + 1:
            render.note("further bad records are only counted")
