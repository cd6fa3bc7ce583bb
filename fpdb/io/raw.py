"""Records as the bytes that they are in a file, of which those that stay are copied unchanged.

A record of text is the lines from its first one on, whose number its reader has found.
"""

import contextlib
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import IO, Any

import numpy as np

from fpdb.arrays import Marks, Places
from fpdb.errors import InputError
from fpdb.io import arrow, streams
from fpdb.io.encodings import UTF8, few_replaced, restored
from fpdb.io.files import Source
from fpdb.io.streams import Line, StreamError
from fpdb.io.tables import header_reason, numbered, rows_of
from fpdb.threads import overlapped

_MARK = b"\xef\xbb\xbf"  # the byte order mark
[_RETURN] = b"\r"
# The formats whose records can be copied.
COPIED = ("jsonl", "tsv", "lines", "csv", "parquet")


class TableHead:
    """What a file has before its rows: a line, a schema, or nothing."""

    def __init__(self, source: Source) -> None:
        """Read it; raise InputError if the columns can't be used."""
        self.line = b""
        self.schema: Any = None
        self.codec = ""
        reason = ""
        with streams.named(source.path):
            if source.format.by_path:
                self.schema, self.codec = arrow.file_schema(source.path)
                reason = header_reason(tuple(self.schema.names), source.reading)
            elif source.format.is_table and not numbered(source.reading):
                self.line, row = _first_row(source)
                names = () if isinstance(row, str) else tuple(name.strip() for name in row)
                reason = row if isinstance(row, str) else header_reason(names, source.reading)
        if reason:
            raise InputError(
                f"{source.path}: the header {reason}",
                hint="name the columns of key and text, or number them if there is no header",
            )

    def fits(self, other: "TableHead") -> bool:
        """Return whether rows of files with these headers may be in one file."""
        if self.schema is not None:
            return bool(self.schema.equals(other.schema))
        one, another = (each.removeprefix(_MARK).rstrip() for each in (self.line, other.line))
        return one == another


def _first_row(source: Source) -> tuple[bytes, list[str] | str]:
    """Return the bytes of the first row, and its fields, or why it has none."""
    held: list[bytes] = []

    def lines() -> Iterator[Line]:
        for data, starts, ends in _blocks(source, several=False):
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
                held.append(line := data[start:end])
                plain = line if len(held) > 1 else line.removeprefix(_MARK)
                yield len(held), *streams.decode_line(plain.removesuffix(b"\n"))

    for number, row, damaged in rows_of(source.form, lines(), source.reading):
        broken = damaged and not (isinstance(row, str) or few_replaced("".join(row)))
        # Empty lines before the row belong to none.
        return b"".join(held[number - 1 :]), streams.NOT_DECODED if broken else row
    return b"", []


def write_rows(
    file: IO[bytes], path: str, header: TableHead, parts: Sequence[tuple[Source, Places, Marks]]
) -> None:
    """Write those rows of files that are marked, packed as the suffix of the path says.

    The rows of a file begin in the lines with some numbers. A source with a problem ends where that
    is. They are in the encoding of the sources, or in UTF-8 if these have several. Raise InputError
    if one has too few lines.
    """
    if header.schema is not None:

        def batches() -> Iterator[Any]:
            for source, _, marks in parts:
                with streams.named(source.path), _tolerant(source):
                    yield from arrow.marked_batches(source.path, marks, source.watch)

        arrow.write_batches(file, header.schema, header.codec, batches())
        return
    names = {source.reading.encoding or UTF8 for source, _, _ in parts}
    name = names.pop() if len(names) == 1 else UTF8
    with streams.packed(file, path) as target:

        def write(pieces: Sequence[bytes | memoryview]) -> None:
            target.write(restored(b"".join(pieces), name))

        overlapped(write, _marked_pieces(header, parts))


def _marked_pieces(
    header: TableHead, parts: Sequence[tuple[Source, Places, Marks]]
) -> Iterator[Sequence[bytes | memoryview]]:
    """Yield a header, and the lines of the marked rows of files, some pieces at a time."""
    last: bytes | memoryview = header.line
    yield [last]
    for source, firsts, marks in parts:
        for pieces in _marked_lines(source, firsts, marks):
            # Only the last line of a file may have no end.
            yield [b"\n", *pieces] if last and last[-1:] != b"\n" else pieces
            last = pieces[-1]


def _marked_lines(source: Source, firsts: Places, marks: Marks) -> Iterator[list[memoryview]]:
    """Yield the lines of the marked rows, those of a chunk together.

    A row of CSV goes on to the next one; empty lines between the two belong to none.
    """
    several = source.form == "csv"
    before = 0
    # What is before the first row, at -1, belongs to none.
    bounds, wanted = np.append(firsts, 0), np.append(marks, False)
    with streams.named(source.path), _tolerant(source):
        for data, starts, ends in _blocks(source, several=several):
            numbers = np.arange(before + 1, before + 1 + len(starts))
            rows = firsts.searchsorted(numbers, "right") - 1
            kept = wanted[rows]
            if several:
                [filled] = (~_empty(data, starts, ends)).nonzero()
                next_filled = filled[filled.searchsorted(np.arange(len(rows)))]
                kept &= rows == rows[next_filled]
            else:
                kept &= bounds[rows] == numbers
            if not before and data.startswith(_MARK):
                starts[0] = len(_MARK)
            before += len(starts)
            edges = np.diff(kept.astype(np.int8), prepend=0, append=0)
            [runs], [stops] = (edges == 1).nonzero(), (edges == -1).nonzero()
            slices = zip(starts[runs].tolist(), ends[stops - 1].tolist(), strict=True)
            view = memoryview(data)
            if pieces := [view[start:end] for start, end in slices]:
                yield pieces
    if len(firsts) and before < firsts[-1]:
        raise changed(source.path)


def _blocks(source: Source, *, several: bool) -> Iterator[tuple[bytes, Places, Places]]:
    """Yield bytes, with where each of their lines starts and ends.

    If a row may have several lines, a block doesn't end with an empty one.
    """
    held: list[bytes] = []
    for chunk in chain(source.chunks(), [b""]):
        held.append(chunk)
        if chunk and b"\n" not in chunk:
            continue
        data = b"".join(held)
        held = []
        ends = streams.line_ends(data)
        if not chunk and len(data) > (ends[-1] if len(ends) else 0):
            ends = np.append(ends, len(data))
        starts = np.append(0, ends[:-1])[: len(ends)]
        if several:
            [filled] = (~_empty(data, starts, ends)).nonzero()
            count = int(filled[-1]) + 1 if len(filled) else 0
            starts, ends = starts[:count], ends[:count]
        if len(ends):
            yield data, starts, ends
        held.append(data[ends[-1] if len(ends) else 0 :])


def _empty(data: bytes, starts: Places, ends: Places) -> Marks:
    """Mark the lines that have nothing but their ends."""
    sizes = ends - starts
    found: Marks = sizes == 1
    [two] = (sizes == 2).nonzero()
    found[two] = np.frombuffer(data, np.uint8)[starts[two]] == _RETURN
    return found


@contextlib.contextmanager
def _tolerant(source: Source) -> Iterator[None]:
    try:
        yield
    except StreamError:
        if not source.problem:
            raise


def changed(path: str) -> InputError:
    """Return the error that a file isn't what was read before."""
    return InputError(
        f"{path} isn't what it was when it was read first", hint="let nobody write to it meanwhile"
    )
