"""Cut what is to be read into parts, each of which any process can make records of.

Lines that stand alone are only cut here, and so are the names of text files. Other formats must be
read from their beginning on, so their parts hold the records themselves.
"""

import io
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import TypeVar

from fpdb.io import folders, streams
from fpdb.io.fields import BadRecord, Fields, Record
from fpdb.io.formats import Format, Source
from fpdb.io.markup import Found, Markup, Page, finished
from fpdb.io.records import Reader, open_path
from fpdb.io.streams import Idle, Progress, StreamError, TooLong
from fpdb.io.warc import Passing
from fpdb.models import LARGEST_TEXT

# Can be pickled, and gives the records when it is called.
Part = Callable[[], Iterable[Record | BadRecord]]
Each = TypeVar("Each")

PART = 1000
PART_BYTES = 1 << 22
# A slow source must not keep what it gave from being used.
_PART_SECONDS = 1.0


def read_parts(
    path: str,
    *,
    format: str | None = None,  # noqa: A002
    fields: Fields | None = None,
    max_bytes: int = LARGEST_TEXT,
    markup: Markup | None = None,
    size: int = PART,
    progress: Progress | None = None,
    idle: Idle | None = None,
    passing: Passing | None = None,
) -> Iterator[Part]:
    """Cut a file, a directory or standard input into parts of at most `size` records.

    Takes what `read_records` takes, and the parts one after the other give the same records.
    `idle` is called before each read that may have to wait, with the number of the file.
    `passing` is asked and told what of an archive is passed over.
    """
    reader, chosen = open_path(path, format, fields or Fields(), max_bytes, markup or Markup())
    cutter = _Cutter(reader, size, progress, idle, passing)
    return cutter.folder(path, format) if chosen is None else cutter.file(path, path, chosen)


class _Cutter:
    def __init__(
        self,
        reader: Reader,
        size: int,
        progress: Progress | None,
        idle: Idle | None,
        passing: Passing | None,
    ) -> None:
        self._reader = reader
        self._size = size
        self._progress = progress
        self._idle = idle
        self._passing = passing

    def file(self, path: str, name: str, chosen: Format) -> Iterator[Part]:
        reader = self._reader
        if not chosen.by_line:
            records = reader.unfinished(
                path,
                name,
                chosen,
                progress=self._progress,
                idle=self._idle,
                passing=self._passing,
            )
            for group in _groups(records, self._size, _length):
                yield partial(finished, group, reader.markup)
            return
        number = 1
        try:
            with streams.opened(path, self._progress, self._idle) as stream:
                lines = streams.raw_lines(stream, reader.largest)
                for block in _groups(lines, self._size, _bytes):
                    taken = Source(io.BytesIO(), name, reader.fields, reader.largest, block, number)
                    yield partial(reader.found, path, chosen, taken)
                    number += len(block)
        except StreamError as error:
            yield partial(tuple, [BadRecord(path, str(error))])

    def folder(self, path: str, given: str | None) -> Iterator[Part]:
        entries = ((entry, self._reader.choose(entry, given)) for entry in folders.walk(path))
        for whole, some in groupby(entries, lambda pair: not _has_records(pair[1])):
            if not whole:
                for entry, chosen in some:
                    if isinstance(chosen, Format):
                        yield from self.file(entry.path, entry.name, chosen)
                continue
            for group in _groups(some, self._size, lambda pair: _weight(pair[0])):
                yield partial(_of_texts, self._reader, group)
                if self._progress:
                    self._progress(sum(entry.size for entry, _ in group))


def _has_records(chosen: Format | BadRecord) -> bool:
    return isinstance(chosen, Format) and not chosen.whole


def _weight(entry: folders.Entry) -> int:
    # What is packed may be any size, so it is a part of its own.
    packed = streams.unpacked_name(entry.path) != entry.path
    return PART_BYTES if packed else entry.size


def _length(item: Found) -> int:
    if isinstance(item, Page):
        return len(item.data)
    return len(item.text or "") if isinstance(item, Record) else 0


def _bytes(line: bytes | TooLong) -> int:
    return 0 if isinstance(line, TooLong) else len(line)


def _of_texts(
    reader: Reader, entries: Sequence[tuple[folders.Entry, Format | BadRecord]]
) -> Iterator[Record | BadRecord]:
    for entry, chosen in entries:
        if isinstance(chosen, BadRecord):
            yield chosen
        else:
            yield from reader.file(entry.path, entry.name, chosen)


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
