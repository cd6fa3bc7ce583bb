"""Files, directories and standard input as records: the formats, and the parts for workers.

Independent lines are only cut here, and so are the names of text files; workers make records
of them. Other formats must be read from their beginning on, so their parts hold the records.
"""

import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import PurePath
from typing import Any, TypeVar

from fpdb.errors import InputError
from fpdb.io import arrow, streams, tables
from fpdb.io.html import Found, Page, finished, marked, require_html
from fpdb.io.records import BadRecord, Reading, Record, UnfitError, picker
from fpdb.io.streams import Line, Progress, StreamError, TooLong
from fpdb.io.warc import Passing, read_pages
from fpdb.models import PORTABLE

# Can be pickled, and returns the records when it is called.
Part = Callable[[], Iterable[Record | BadRecord]]
# The line, or 0 for the complete file; the fields, or the reason why there are none; whether bytes
# were replaced.
Row = tuple[int, dict[str, Any] | str, bool]
Each = TypeVar("Each")

PART = 1000
PART_BYTES = 1 << 22
# What a slow source gave is used after this time.
_PART_SECONDS = 1.0
_ANY = Reading()


@dataclass(frozen=True)
class Format:
    """How the records of a file are found.

    `by_line` if each line can be read by itself, `by_path` if only a file on the disk can be read,
    because it is read from its end, `is_document` if a file is one document.
    """

    rows: "Callable[[Source], Iterator[Row]] | None" = None
    has_fields: bool = False
    is_table: bool = False
    by_line: bool = False
    by_path: bool = False
    is_document: bool = False


@dataclass(frozen=True)
class Source:
    """A file that is read, the name that its texts go by, and how it is read.

    Instead of the file there may be some `lines` that were cut from it, from line `first` on.
    """

    path: str
    name: str
    reading: Reading
    cut: Sequence[bytes | TooLong] | None = None
    first: int = 1
    progress: Progress | None = None

    def chunks(self) -> Iterator[bytes]:
        """Read the file, decompressed."""
        return streams.chunks(self.path, self.progress)

    def lines(self) -> Iterator[Line]:
        """Read the file line by line."""
        if self.cut is not None:
            return streams.decoded(self.cut, self.first)
        return streams.decoded(streams.raw_lines(self.chunks(), self.reading.max_bytes))


def read_records(
    path: str, reading: Reading = _ANY, *, progress: Progress | None = None
) -> Iterator[Record | BadRecord]:
    """Read the records of a file, of all files of a directory, or of standard input ("-").

    A path that can't be read, an unknown format, and columns that can't be there, are an InputError
    at once. All else is a BadRecord: one for each record, one for the rest of a damaged file.
    `progress` is called with the numbers of bytes that were read.
    """
    chosen = check_path(path, reading)
    bounded = _bounded(reading)
    if chosen is None:
        entries = ((entry, _choose(entry, bounded)) for entry in walk(path))
        return _read_entries(bounded, entries, progress)
    return read_source(Source(path, path, bounded, progress=progress), chosen)


def read_parts(
    path: str,
    reading: Reading = _ANY,
    *,
    size: int = PART,
    progress: Progress | None = None,
    passing: Passing | None = None,
) -> Iterator[Part]:
    """Cut a file, a directory or standard input into parts of at most `size` records.

    The parts, one after the other, hold the records of `read_records`, and errors are the same.
    `passing` is called for the records of web archives.
    """
    chosen = check_path(path, reading)
    cutter = _Cutter(_bounded(reading), size, progress, passing)
    return cutter.folder(path) if chosen is None else cutter.file(path, path, chosen)


def check_path(path: str, reading: Reading) -> Format | None:
    """Return the format of a file, or None for a directory; raise InputError if none fits."""
    try:
        streams.check(path)
    except StreamError as error:
        raise InputError(f"{path} {error}", hint=error.hint) from None
    if reading.html == "html":
        require_html()
    folder = path != "-" and os.path.isdir(path)
    chosen = _format_of(path, reading, "text" if folder else None)
    if chosen is FORMATS["warc"] or (reading.html == "auto" and chosen is FORMATS["html"]):
        require_html()
    _check(path, chosen, reading)
    if folder:
        return None
    if reading.has_fields and not chosen.has_fields:
        raise InputError(
            f"{path}: fields are given, but each text is all there is",
            hint="leave the fields out, or give the format of records: jsonl, tsv, csv, parquet",
        )
    return chosen


def _check(path: str, chosen: Format, reading: Reading) -> None:
    """Raise InputError if a file with this format can't be read so."""
    if chosen.is_table:
        tables.check_columns(reading)
    if chosen.by_path:
        arrow.require()
        if path == "-" or streams.unpacked_name(path) != path:
            raise InputError(
                f"{path}: Parquet and Arrow are read from files, found a stream",
                hint="save it to a file, unpacked: they are packed inside",
            )


def _bounded(reading: Reading) -> Reading:
    return replace(reading, max_bytes=min(reading.max_bytes, sys.maxsize // 2))


def _format_of(path: str, reading: Reading, default: str | None = None) -> Format:
    """Choose the format that is given, or the one of the suffix, or the default."""
    given = reading.format
    if given is not None and given not in FORMATS:
        raise InputError(f"found the format {given!r}, expected one of {', '.join(FORMATS)}")
    suffix = PurePath(streams.unpacked_name(path)).suffix.lower()
    name = given or SUFFIXES.get(suffix, "jsonl" if path == "-" else default)
    if name is None:
        raise InputError(
            f"{path}: found the suffix {suffix!r}, expected one of {', '.join(SUFFIXES)}",
            hint=f"say which format it has: {', '.join(FORMATS)}",
        )
    # All texts are HTML, or none is.
    name = {("html", "text"): "html", ("none", "html"): "text"}.get((reading.html, name), name)
    return FORMATS[name]


class _Cutter:
    """Cuts one file after the other into parts."""

    def __init__(
        self, reading: Reading, size: int, progress: Progress | None, passing: Passing | None
    ) -> None:
        self._reading = reading
        self._size = size
        self._progress = progress
        self._passing = passing

    def file(self, path: str, name: str, chosen: Format) -> Iterator[Part]:
        """Cut a file."""
        source = Source(path, name, self._reading, progress=self._progress)
        if not chosen.by_line:
            records = _found(source, chosen, self._passing)
            for group in _groups(records, self._size, _length):
                yield partial(finished, group, self._reading)
            return
        number = 1
        bare = replace(source, progress=None)
        try:
            lines = streams.raw_lines(source.chunks(), self._reading.max_bytes)
            for block in _groups(lines, self._size, _bytes):
                yield partial(read_source, replace(bare, cut=block, first=number), chosen)
                number += len(block)
        except StreamError as error:
            yield partial(tuple, [BadRecord(path, str(error))])

    def folder(self, path: str) -> Iterator[Part]:
        """Cut all files of a directory."""
        entries = ((entry, _choose(entry, self._reading)) for entry in walk(path))
        for together, some in groupby(entries, lambda pair: _is_small(pair[1])):
            if not together:
                for entry, chosen in some:
                    if isinstance(chosen, Format):
                        yield from self.file(entry.path, entry.name, chosen)
                continue
            for group in _groups(some, self._size, _weight):
                yield partial(_read_entries, self._reading, group)
                if self._progress:
                    self._progress(sum(entry.size for entry, _ in group))


def _choose(entry: "Entry", reading: Reading) -> Format | BadRecord:
    """Return the format of a file in a directory, or why it can't be read."""
    if entry.problem:
        return BadRecord(entry.path, entry.problem)
    chosen = _format_of(entry.name, reading, "text")
    try:
        _check(entry.path, chosen, reading)
    except InputError as error:
        return BadRecord(entry.path, str(error))
    return chosen


def _read_entries(
    reading: Reading,
    entries: "Iterable[tuple[Entry, Format | BadRecord]]",
    progress: Progress | None = None,
) -> Iterator[Record | BadRecord]:
    for entry, chosen in entries:
        if isinstance(chosen, BadRecord):
            yield chosen
        else:
            source = Source(entry.path, entry.name, reading, progress=progress)
            yield from read_source(source, chosen)


def read_source(source: Source, chosen: Format) -> Iterator[Record | BadRecord]:
    """Yield the records of a file."""
    return finished(_found(source, chosen), source.reading)


def _found(source: Source, chosen: Format, passing: Passing | None = None) -> Iterator[Found]:
    """Yield what a file holds; the texts of pages are still to be found."""
    path, reading = source.path, source.reading
    try:
        if chosen is FORMATS["warc"]:
            chunks = streams.raw_chunks(path, source.progress)
            yield from read_pages(path, chunks, reading, passing)
            return
        if chosen is FORMATS["html"]:
            yield _page(source)
            return
        pick = picker(reading if chosen.has_fields else _ANY)
        for number, fields, replaced in chosen.rows(source) if chosen.rows else ():
            place = f"{path}:{number}" if number else path
            found: Record | BadRecord
            try:
                if isinstance(fields, str):
                    found = BadRecord(place, fields)
                else:
                    found = pick(place, fields, replaced)
            except UnfitError as error:
                found = BadRecord(place, str(error))
            except RecursionError:
                found = BadRecord(place, "is nested too deeply")
            yield marked(found, reading)
        if chosen.by_path and source.progress:
            source.progress(os.path.getsize(path))
    except StreamError as error:
        yield BadRecord(path, str(error))


def _page(source: Source) -> Page | BadRecord:
    """Take a file as a page of HTML."""
    largest = source.reading.max_html
    data = streams.joined(source.chunks(), largest)
    if data is None:
        return BadRecord(source.path, f"holds more than {largest:,} bytes of HTML")
    return Page(source.path, source.name, bytes(data))


def _is_small(chosen: Format | BadRecord) -> bool:
    return not isinstance(chosen, Format) or chosen.is_document


def _weight(pair: "tuple[Entry, Format | BadRecord]") -> int:
    # What is compressed may have any size, so it is a part of its own.
    entry = pair[0]
    packed = streams.unpacked_name(entry.path) != entry.path
    return PART_BYTES if packed else entry.size


def _length(item: Found) -> int:
    if isinstance(item, Page):
        return len(item.data)
    return len(item.text or "") if isinstance(item, Record) else 0


def _bytes(line: bytes | TooLong) -> int:
    return 0 if isinstance(line, TooLong) else len(line)


def _groups(
    items: Iterable[Each], size: int, weight: Callable[[Each], int]
) -> Iterator[list[Each]]:
    """Put items together, up to a number, a weight and a time; those before an error count too."""
    group: list[Each] = []
    room, due = PART_BYTES, time.monotonic() + _PART_SECONDS
    try:
        for item in items:
            group.append(item)
            room -= weight(item)
            if len(group) == size or room <= 0 or time.monotonic() > due:
                yield group
                group, room = [], PART_BYTES
                due = time.monotonic() + _PART_SECONDS
    except StreamError:
        if group:
            yield group
        raise
    if group:
        yield group


def _jsonl(source: Source) -> Iterator[Row]:
    loads = json.loads
    for number, line, replaced in source.lines():
        if isinstance(line, TooLong):
            yield number, f"holds more than {source.reading.max_bytes} bytes in one line", replaced
            continue
        if not line or line.isspace():
            continue
        found: dict[str, Any] | str
        try:
            found = loads(line)
        except RecursionError:
            found = "is nested too deeply"
        except json.JSONDecodeError as error:
            found = f"is no JSON: {error.msg} at column {error.colno}"
        except ValueError:
            found = "holds a number with too many digits"
        else:
            if type(found) is not dict:
                found = "is JSON, but no object"
            elif number == 1 and PORTABLE in found:
                found = "is the portable form of a database, expected a document: use fpdb load"
        yield number, found, replaced


def _table(rows: tables.Splitter, source: Source) -> Iterator[Row]:
    reading = source.reading
    return tables.named(rows(source.lines(), reading.max_bytes), reading)


def _lines(source: Source) -> Iterator[Row]:
    for number, line, replaced in source.lines():
        if isinstance(line, TooLong):
            yield number, f"holds more than {source.reading.max_bytes} bytes in one line", replaced
        elif text := line.rstrip("\r"):
            yield number, {"key": f"{source.name}:{number}", "text": text}, replaced


def _text(source: Source) -> Iterator[Row]:
    largest = source.reading.max_bytes
    data = streams.joined(source.chunks(), largest)
    if data is None:
        yield 0, f"holds more than {largest} bytes in one text", False
    else:
        text, replaced = streams.decode(data)
        yield 0, {"key": source.name, "text": text}, replaced


def _parquet(source: Source) -> Iterator[Row]:
    return arrow.parquet_rows(source.path, source.reading)


def _arrow(source: Source) -> Iterator[Row]:
    return arrow.arrow_rows(source.path, source.reading)


FORMATS = {
    "jsonl": Format(_jsonl, has_fields=True, by_line=True),
    "tsv": Format(partial(_table, tables.tsv_rows), has_fields=True, is_table=True),
    "csv": Format(partial(_table, tables.csv_rows), has_fields=True, is_table=True),
    "parquet": Format(_parquet, has_fields=True, by_path=True),
    "arrow": Format(_arrow, has_fields=True, by_path=True),
    "lines": Format(_lines, by_line=True),
    "text": Format(_text, is_document=True),
    "html": Format(is_document=True),
    "warc": Format(),
}
SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".tsv": "tsv",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".warc": "warc",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a directory: its path, its name below the directory, its size, or its problem.

    Its `identity`, the device and the inode, stays when it is moved.
    """

    path: str
    name: str
    size: int = 0
    problem: str = ""
    identity: tuple[int, int] = (0, 0)


def walk(root: str) -> Iterator[Entry]:
    """Yield all regular files, sorted, but no hidden ones, and none that a link leads out to.

    A link that leads to a file of the same directory counts as a file, one to a folder doesn't:
    its files are found where they are.
    """
    real = os.path.join(os.path.realpath(root), "")
    # A stack of its own, because a tree may be deeper than Python's.
    pending = [Entry(root, "")]
    while pending:
        entry = pending.pop()
        try:
            linked = entry.name and os.path.islink(entry.path)
            if linked and not os.path.join(os.path.realpath(entry.path), "").startswith(real):
                yield Entry(entry.path, entry.name, 0, "is a link that leads out of the directory")
                continue
            status = os.stat(entry.path)
            if stat.S_ISREG(status.st_mode):
                identity = (status.st_dev, status.st_ino)
                yield Entry(entry.path, entry.name, status.st_size, "", identity)
            elif stat.S_ISDIR(status.st_mode) and not linked:
                names = sorted(os.listdir(entry.path), reverse=True)
                pending += [
                    Entry(os.path.join(entry.path, name), f"{entry.name}/{name}".lstrip("/"))
                    for name in names
                    if not name.startswith(".")
                ]
        except OSError as error:
            yield Entry(entry.path, entry.name, 0, f"can't be read: {error.strerror}")


def size_of(path: str) -> int | None:
    """Return the bytes of a file, or of all files of a directory, as `progress` counts them.

    Return None if only reading would show how many there are.
    """
    if path == "-":
        return None
    try:
        if os.path.isdir(path):
            return sum(entry.size for entry in walk(path))
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
