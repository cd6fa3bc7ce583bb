"""The options that say how files are read, the same in every command, and what they turn into."""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.options import BaseOption, parse_bytes
from fpdb.io.records import BadRecord
from fpdb.models import LARGEST_TEXT

_FIELDS = "Fields"
_INPUT = "Input"
_SHOWN, _ALIKE = 100, 5
# Texts with tags are no accident from this number on, if they are half of all texts.
_MUCH_MARKUP = 20

InputFormat = Literal["jsonl", "tsv", "csv", "parquet", "arrow", "lines", "text", "html", "warc"]
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
    base: BaseOption = "hex",
    input_format: Annotated[
        InputFormat | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="jsonl, tsv, csv, parquet, arrow, lines, text, html or warc; default by suffix.",
            rich_help_panel=_INPUT,
        ),
    ] = None,
    html: Annotated[
        Literal["auto", "main", "page", "none"],
        typer.Option(
            "--html",
            help="main, page: all texts are HTML, take the main content or all; "
            "auto: main content of .html and archives.",
            rich_help_panel=_INPUT,
        ),
    ] = "auto",
    max_bytes: Annotated[
        int,
        typer.Option(
            "--max-bytes",
            metavar="BYTES",
            parser=parse_bytes,
            show_default="2M",
            help="Largest text or HTML page to accept.",
            rich_help_panel=_INPUT,
        ),
    ] = LARGEST_TEXT,
) -> fpdb.Reading:
    """Return how files are read, by the options that say so."""
    return fpdb.Reading(
        format=input_format,
        key_field=key_field,
        text_field=text_field or (),
        meta_field=meta_field or (),
        fingerprint_field=fingerprint_field,
        base=base,
        html=html,
        max_bytes=max_bytes,
    )


class MarkupWarning:
    """Warns once if most texts have tags."""

    def __init__(self, *, quiet: bool) -> None:
        self._given = quiet

    def __call__(self, markup: int, read: int) -> None:
        """Take the number of texts with tags, and that of all records."""
        if not self._given and markup >= max(_MUCH_MARKUP, read / 2):
            self._given = True
            render.warn(
                "most texts have tags, which count as words; --html main takes the main content "
                "of HTML, --html page all of it, --html none ends this warning"
            )


class BadRecords:
    """Prints the first records that can't be used, a few of each reason, and counts all of them."""

    def __init__(self) -> None:
        self.count = self._shown = 0
        self._reasons: Counter[str] = Counter()

    def __call__(self, bad: BadRecord) -> None:
        """Take a record that can't be used."""
        self.count += 1
        if self._shown > _SHOWN:
            return
        self._reasons[bad.reason] += 1
        alike = self._reasons[bad.reason]
        if alike > _ALIKE + 1:
            return
        self._shown += 1
        if self._shown > _SHOWN:
            render.note("further bad records are only counted")
        elif alike > _ALIKE:
            render.note(f"further ones like this are only counted: {bad.reason}")
        else:
            render.note(f"{bad.source}: {bad.reason}")

    def settle(self, good: int) -> None:
        """End the command with exit code 4, or with an error if no record was good."""
        if self.count and good:
            raise typer.Exit(render.ExitCode.BAD_RECORDS)
        if self.count:
            none = "the record can't" if self.count == 1 else f"none of {self.count:,} records can"
            raise fpdb.InputError(
                f"{none} be used",
                hint="the reasons are above; --format, --key-field and --text-field say what a "
                "record is",
            )


def note_terminal(paths: Sequence[str]) -> None:
    """Print what a command waits for if it reads what is typed on a terminal."""
    if "-" in paths and sys.stdin is not None and sys.stdin.isatty():
        render.note("type or paste a text; Ctrl-D on an empty line ends it")
