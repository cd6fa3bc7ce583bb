"""Fingerprint texts."""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import PurePath
from typing import Annotated

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.inputs import FilesArgument, choose_reading
from fpdb.cli.options import (
    Base,
    BitsOption,
    JobsOption,
    JsonOption,
    QuietOption,
    RecipeOption,
    bundled,
    choose_recipe,
)
from fpdb.cli.output import format_fingerprint
from fpdb.errors import InputError
from fpdb.fingerprint import to_int
from fpdb.io import SUFFIXES, BadRecord, Record, read_records
from fpdb.processes import mapped

_LABEL = 60
_BATCH = 256


@bundled(
    "base key_field text_field input_format html html_text max_html max_bytes",
    reading=choose_reading,
)
def fingerprint(
    reading: fpdb.Reading,
    files: FilesArgument = None,
    texts: Annotated[
        list[str] | None, typer.Option("--text", "-t", metavar="TEXT", help="A text.")
    ] = None,
    recipe: RecipeOption = "web",
    bits: BitsOption = None,
    jobs: JobsOption = 1,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Fingerprint files and texts.

    Example:
      fpdb fingerprint page.txt
      fpdb fingerprint --text "A text that is long enough to have a fingerprint of its own"
      fpdb fingerprint titles.txt --format lines --recipe char-4

    Each line holds a fingerprint, or the word short, and where the text came from.
    """
    chosen = choose_recipe(recipe, bits, reading.max_bytes)
    records = _read(files or ([] if texts else ["-"]), texts or [], reading)
    short = replaced = 0
    blocks = iter(lambda: list(islice(records, _BATCH)), [])
    for block, batch in mapped(partial(_fingerprint, chosen), blocks, jobs):
        for index, record in enumerate(block):
            is_short = bool(batch.short[index])
            number = to_int(batch.fingerprints[index])
            short += is_short
            replaced += record.replaced
            _print(
                record,
                number,
                is_short,
                int(batch.features[index]),
                chosen,
                Base(reading.base),
                as_json,
            )
    if short and not quiet:
        render.note(f"short texts: {short} (fewer than {chosen.grams.minimum} distinct features)")
    if replaced and not quiet:
        render.note(f"texts with invalid UTF-8, replaced by U+FFFD: {replaced}")


def _read(paths: Iterable[str], texts: Iterable[str], reading: fpdb.Reading) -> Iterator[Record]:
    """Yield the texts that are given and those of files; a bad record is an InputError."""
    for text in texts:
        yield Record(text if len(text) <= _LABEL else text[: _LABEL - 1] + "…", None, text)
    # The base is that of the output, and there is no key to require.
    reading = dataclasses.replace(reading, base="hex", keyed=False)
    for path in paths:
        form = reading.format or _default_format(path)
        for record in read_records(path, dataclasses.replace(reading, format=form)):
            if isinstance(record, BadRecord):
                raise InputError(
                    f"{record.source}: {record.reason}",
                    hint="remove it, or choose another --format, --text-field or --max-bytes",
                )
            yield record


def _default_format(path: str) -> str | None:
    """Return "text" for standard input and for files without a known suffix."""
    suffix = PurePath(path.removesuffix(".gz").removesuffix(".zst")).suffix.lower()
    return None if suffix in SUFFIXES or os.path.isdir(path) else "text"


def _fingerprint(recipe: fpdb.Recipe, records: Sequence[Record]) -> fpdb.models.Batch:
    return recipe.batch(record.text or "" for record in records)


def _print(
    record: Record,
    number: int,
    short: bool,
    features: int,
    recipe: fpdb.Recipe,
    base: Base,
    as_json: bool,
) -> None:
    source = record.source if record.key is None else record.key
    digits = format_fingerprint(number, recipe.bits, base)
    if not as_json:
        render.row("short" if short else digits, source)
        return
    shown = number if base is Base.DECIMAL else digits
    render.record(
        {
            "source": source,
            "fingerprint": None if short else shown,
            "features": features,
            "short": short,
        }
    )
