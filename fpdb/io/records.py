"""Read records from files, directories or standard input; a bad one never ends the stream."""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from fpdb.errors import InputError
from fpdb.io import folders, streams
from fpdb.io.fields import BadRecord, Fields, Pick, Record, UnfitError, picker
from fpdb.io.formats import Format, Source, format_of
from fpdb.io.streams import LARGEST_TEXT, Progress, StreamError
from fpdb.io.tables import check_columns

_DEFAULT = Fields()


def read_records(
    path: str,
    *,
    format: str | None = None,  # noqa: A002
    fields: Fields = _DEFAULT,
    max_bytes: int = LARGEST_TEXT,
    progress: Progress | None = None,
) -> Iterator[Record | BadRecord]:
    """Read the records of a file, of all files of a directory, or of standard input ("-").

    The format is told by the suffix, with .gz and .zst read through; standard input is JSONL
    unless `format` says otherwise, and is unpacked if it begins like gzip or zstd. A record of
    more than `max_bytes` is a bad one. `progress` is told how many bytes were read.

    A path that can't be read, an unknown format, and columns that can't be, are an InputError at
    once. All else is a BadRecord: one for each record, one for the rest of a broken file.
    """
    if max_bytes < 1:
        raise InputError(f"found max_bytes {max_bytes}, expected 1 or more")
    largest = min(max_bytes, sys.maxsize // 2)
    try:
        streams.check(path)
    except StreamError as error:
        raise InputError(f"{path} {error}", hint=error.hint) from None
    chosen = format_of(path, format, "text" if os.path.isdir(path) else None)
    if chosen.is_table:
        check_columns(fields)
    reader = _Reader(fields, largest, progress)
    if os.path.isdir(path):
        return reader.folder(path, format)
    if replace(fields, keyed=True) != _DEFAULT and not chosen.has_fields:
        raise InputError(
            f"{path}: fields are given, but each text is all there is",
            hint="leave the fields out, or give the format: jsonl, tsv or csv",
        )
    return reader.file(path, path, chosen)


@dataclass(frozen=True)
class _Reader:
    """Reads one file after the other in the same way."""

    fields: Fields
    largest: int
    progress: Progress | None

    def folder(self, path: str, given: str | None) -> Iterator[Record | BadRecord]:
        for entry in folders.walk(path):
            if entry.problem:
                yield BadRecord(entry.path, entry.problem)
                continue
            chosen = format_of(entry.name, given, "text")
            try:
                if chosen.is_table:
                    check_columns(self.fields)
            except InputError as error:
                yield BadRecord(entry.path, str(error))
            else:
                yield from self.file(entry.path, entry.name, chosen)

    def file(self, path: str, name: str, chosen: Format) -> Iterator[Record | BadRecord]:
        pick = picker(self.fields if chosen.has_fields else _DEFAULT)
        try:
            with streams.opened(path, self.progress) as stream:
                source = Source(stream, name, self.fields, self.largest)
                for number, found, replaced in chosen.find(source):
                    yield _record(pick, f"{path}:{number}" if number else path, found, replaced)
        except StreamError as error:
            yield BadRecord(path, str(error))


def _record(
    pick: Pick,
    source: str,
    found: dict[str, Any] | str,
    replaced: bool,  # noqa: FBT001
) -> Record | BadRecord:
    if isinstance(found, str):
        return BadRecord(source, found)
    try:
        return pick(source, found, replaced)
    except UnfitError as error:
        return BadRecord(source, str(error))
    except RecursionError:
        return BadRecord(source, "is nested too deeply")
