"""Records as the bytes that they are in a file, of which those that stay are copied unchanged.

The readers of records find the rows, so that the Nth row here is the Nth record there.
"""

import contextlib
from collections.abc import Iterable, Iterator
from typing import IO, Any

from fpdb.arrays import Marks
from fpdb.errors import InputError
from fpdb.io import arrow, streams
from fpdb.io.files import Source
from fpdb.io.streams import Line, StreamError, TooLong
from fpdb.io.tables import Cells, csv_rows, header_reason, numbered, tsv_rows

_MARK = b"\xef\xbb\xbf"  # the byte order mark
_TOGETHER = 1 << 20  # bytes that are written at a time


def _json_rows(lines: Iterator[Line], _: int) -> Iterator[Cells]:
    for number, line, replaced in lines:
        if isinstance(line, TooLong) or (line and not line.isspace()):
            yield number, "", replaced


_ROWS = {"jsonl": _json_rows, "tsv": tsv_rows, "lines": tsv_rows, "csv": csv_rows}
# The formats whose records can be copied.
COPIED = (*_ROWS, "parquet", "arrow")


class TableHead:
    """What a file has before its rows: a line, a schema, or nothing."""

    def __init__(self, source: Source) -> None:
        """Read it; raise InputError if the columns can't be used."""
        self.line = b""
        self.form = source.form
        self.schema: Any = None
        self.packing = ""
        reason = ""
        with streams.named(source.path):
            if source.format.by_path:
                self.schema, self.packing = arrow.file_schema(source.form, source.path)
                reason = header_reason(tuple(self.schema.names), source.reading)
            elif _has_header(source):
                for _, self.line, row in _raw(source):
                    names = () if isinstance(row, str) else tuple(name.strip() for name in row)
                    reason = row if isinstance(row, str) else header_reason(names, source.reading)
                    break
        if reason:
            raise InputError(
                f"{source.path}: the header {reason}", hint="name the columns of key and text"
            )

    def fits(self, other: "TableHead") -> bool:
        """Return whether rows of files with these headers may be in one file."""
        if self.schema is not None:
            return bool(self.schema.equals(other.schema))
        one, another = (each.removeprefix(_MARK).rstrip() for each in (self.line, other.line))
        return one == another


def _has_header(source: Source) -> bool:
    return source.format.is_table and not numbered(source.reading)


def _raw(source: Source) -> Iterator[tuple[int, bytes, list[str] | str]]:
    """Yield the first line of each row, its bytes, and its fields or why it has none."""
    held: list[bytes] = []
    rows = _ROWS[source.form](_held(source, held), source.reading.max_bytes)
    before = 0
    for number, row, _ in rows:
        # Empty lines before the row belong to none.
        data = b"".join(held[number - before - 1 :])
        before += len(held)
        held.clear()
        yield number, data, row


def _held(source: Source, held: list[bytes]) -> Iterator[Line]:
    """Decode the lines of a file as its reader does, and append the bytes of each to a list."""
    largest = source.reading.max_bytes
    for number, line in enumerate(_whole_lines(source.chunks()), 1):
        held.append(line)
        plain = line.removesuffix(b"\n")
        if number == 1:
            plain = plain.removeprefix(_MARK)
        if len(plain) > largest and len(plain.removesuffix(b"\r")) > largest:
            yield number, TooLong(plain.count(b'"')), False
        else:
            yield number, *streams.decode_line(plain)


def _whole_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Cut bytes into lines of any length, with their line feeds."""
    begun: list[bytes] = []
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        begun.append(first)
        if others:
            yield b"".join(begun) + b"\n"
            begun = [others.pop()]
            for line in others:
                yield line + b"\n"
    if last := b"".join(begun):
        yield last


def write_rows(
    file: IO[bytes], path: str, header: TableHead, parts: Iterable[tuple[Source, Marks]]
) -> None:
    """Write those rows of files that are marked, packed as the suffix of the path says.

    A source with a problem ends where that is. Raise InputError if one has another number of rows.
    """
    if header.schema is not None:
        batches = _marked_batches(parts)
        arrow.write_batches(file, header.form, header.schema, header.packing, batches)
        return
    with streams.packed(file, path) as target:
        held, size = [header.line], 0
        for row in _marked_rows(parts):
            # Only the last line of a file may have no end.
            if held[-1] and not held[-1].endswith(b"\n"):
                held[-1] += b"\n"
            if size > _TOGETHER:
                target.write(b"".join(held))
                held, size = [], 0
            held.append(row)
            size += len(row)
        target.write(b"".join(held))


def _marked_batches(parts: Iterable[tuple[Source, Marks]]) -> Iterator[Any]:
    for source, marks in parts:
        with streams.named(source.path), _tolerant(source):
            yield from arrow.marked_batches(source.form, source.path, marks, source.progress)


def _marked_rows(parts: Iterable[tuple[Source, Marks]]) -> Iterator[bytes]:
    for source, marks in parts:
        rows = _raw(source)
        number = 0
        with streams.named(source.path), _tolerant(source):
            if _has_header(source):
                next(rows, None)
            for number, (first, row, _) in enumerate(rows, 1):
                if number > len(marks):
                    break
                if marks[number - 1]:
                    yield row.removeprefix(_MARK) if first == 1 else row
        if number != len(marks):
            raise changed(source.path)


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
