"""Records as the bytes that they are in a file, from where chosen ones are copied.

They are unchanged, but for texts that lose a part, and fields that may be added at the end of each.
A record of text is the lines from its first one on, whose number its reader has found.
"""

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from typing import IO, Any, NamedTuple

import numpy as np

from fpdb.arrays import Marks, Places
from fpdb.errors import InputError
from fpdb.io import arrow, streams
from fpdb.io.annotations import FIELDS, Annotation, annotated_object, annotated_row
from fpdb.io.edits import Edit, edited_object, edited_row
from fpdb.io.encodings import UTF8, restored
from fpdb.io.files import Source
from fpdb.io.streams import Line, StreamError
from fpdb.io.tables import header_reason, legible, numbered, rows_of, separator_of
from fpdb.threads import overlapped

_MARK = b"\xef\xbb\xbf"  # the byte order mark
[_RETURN] = b"\r"
# Bytes that are written at once.
_TOGETHER = 1 << 18
# The formats whose records can be copied.
COPIED = ("jsonl", "tsv", "lines", "csv", "parquet")


class TableHead:
    """What a file has before its rows: a line, a schema, or nothing."""

    def __init__(self, source: Source) -> None:
        """Read it; raise InputError if the columns can't be used."""
        self.line = b""
        self.delimiter = ""
        self.schema: Any = None
        self.codec = ""
        self.names: tuple[str, ...] = ()
        self.is_missing = False  # from an empty file, which has no records
        reason = ""
        with streams.named(source.path):
            if source.format.by_path:
                self.schema, self.codec = arrow.file_schema(source.path)
                self.names = tuple(self.schema.names)
                reason = header_reason(self.names, source.reading)
            elif source.format.is_table:
                line, row, self.delimiter = _first_row(source)
                if not numbered(source.reading):
                    self.line, self.is_missing = line, not line
                    if isinstance(row, str):
                        reason = row
                    elif line:
                        self.names = tuple(map(str.strip, row))
                        reason = header_reason(self.names, source.reading)
        if reason:
            raise InputError(
                f"{source.path}: the header {reason}",
                hint="name columns that it has, or number them if there is no header",
            )

    def fits(self, other: "TableHead") -> bool:
        """Return whether rows of a file with this header may be in one with the other header."""
        if self.schema is not None:
            return bool(other.schema and self.schema.equals(other.schema))
        one, another = (line.removeprefix(_MARK).rstrip() for line in (self.line, other.line))
        return self.is_missing or one == another

    def column_of(self, names: Sequence[str]) -> int:
        """Return the place of the first column of some that is there."""
        if not self.names:
            return int(names[0]) - 1
        return next(self.names.index(name) for name in names if name in self.names)

    def annotated(self, *, numbered_keys: bool) -> "TableHead":
        """Return the header of a copy whose records have the fields of an annotation too."""
        head = copy.copy(self)
        if self.schema is not None:
            head.schema = arrow.annotated_schema(self.schema, numbered_keys=numbered_keys)
        elif self.line:
            head.line = annotated_row(self.line, FIELDS, self.delimiter, quoted=False)
        return head


class Edits(NamedTuple):
    """Marks of the rows of a file whose texts change, numbers of all, and the change of a text."""

    marks: Marks
    numbers: Places
    change: Callable[[int, str], str]

    def of(self, row: int) -> Edit:
        return partial(self.change, int(self.numbers[row]))


class MarkedRows(NamedTuple):
    """A file with the numbers of the lines or rows where its records begin, and marks of some.

    Each of these is annotated, if there is something to add; some have other texts.
    """

    source: Source
    firsts: Places
    marks: Marks
    added: Iterator[Annotation] | None = None
    edits: Edits | None = None


def _first_row(source: Source) -> tuple[bytes, list[str] | str, str]:
    """Return the bytes of the first row, its fields, or why it has none, and its separator."""
    held: list[bytes] = []

    def lines() -> Iterator[Line]:
        for data, starts, ends in _blocks(source, several=False):
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
                held.append(line := data[start:end])
                plain = line if len(held) > 1 else line.removeprefix(_MARK)
                yield len(held), *streams.decode_line(plain.removesuffix(b"\n"))

    mark, every = separator_of(source.form, lines(), source.reading)
    reading = dataclasses.replace(source.reading, delimiter=mark)
    for number, row, replaced in rows_of(source.form, every, reading):
        # Empty lines before the row belong to none.
        return b"".join(held[number - 1 :]), legible(row, replaced=replaced), mark
    return b"", [], mark


def write_rows(file: IO[bytes], path: str, header: TableHead, parts: Sequence[MarkedRows]) -> None:
    """Write those rows of files that are marked, packed as the suffix of the path says.

    A source with a problem ends where that is. Rows are in the encoding of the sources, or in UTF-8
    if these have several. Raise InputError if one has too few lines.
    """
    if header.schema is not None:
        batches = chain.from_iterable(_marked_batches(part, header.schema) for part in parts)
        arrow.write_batches(file, header.schema, header.codec, batches)
        return
    names = {part.source.reading.encoding or UTF8 for part in parts}
    name = names.pop() if len(names) == 1 else UTF8
    with streams.packed(file, path) as target:

        def write(pieces: Sequence[bytes | memoryview]) -> None:
            try:
                target.write(restored(b"".join(pieces), name))
            except UnicodeEncodeError as error:  # of an annotation
                raise InputError(
                    f"{path} is in {name}, which lacks {error.object[error.start]!r} of a key",
                    hint="convert all files to UTF-8",
                ) from None

        overlapped(write, _marked_pieces(header, parts))


def _marked_batches(part: MarkedRows, schema: Any) -> Iterator[Any]:
    """Yield the marked rows of a Parquet file, some together."""
    source, edits, done = part.source, part.edits, 0
    [rows] = part.marks.nonzero()
    with _tolerant(source):
        for batch in arrow.marked_batches(source.path, part.marks, source.watch):
            changed_batch = batch
            if edits:
                part_rows = rows[done : done + batch.num_rows]
                places = edits.marks[part_rows].nonzero()[0].tolist()
                changes = {place: edits.of(part_rows[place]) for place in places}
                changed_batch = arrow.edited(batch, source.reading.names_of_text, changes)
                done += batch.num_rows
            if part.added:
                changed_batch = arrow.annotated_batch(changed_batch, part.added, schema)
            yield changed_batch


def _marked_pieces(
    header: TableHead, parts: Sequence[MarkedRows]
) -> Iterator[Sequence[bytes | memoryview]]:
    """Yield a header, and the lines of the marked rows of files, some pieces at a time."""
    last: bytes | memoryview = header.line
    yield [last]
    for part in parts:
        for pieces in _marked_lines(part, header):
            # Only the last line of a file may have no end.
            yield [b"\n", *pieces] if last and last[-1:] != b"\n" else pieces
            last = pieces[-1]


def _marked_lines(part: MarkedRows, header: TableHead) -> Iterator[list[bytes | memoryview]]:
    """Yield the lines of the marked rows, some together."""
    held, size = list[bytes | memoryview](), 0
    for row, pieces in groupby(_pieces(part), itemgetter(0)):
        lines: list[bytes | memoryview] = [line for _, line in pieces]
        held += lines if row < 0 else [_rewritten(b"".join(lines), row, part, header)]
        size += sum(map(len, lines))
        if size >= _TOGETHER:
            yield held
            held, size = [], 0
    if held:
        yield held


def _pieces(part: MarkedRows) -> Iterator[tuple[int, memoryview]]:
    """Yield the marked rows that change with their places, and others together.

    Of these, the place is negative.
    """
    for view, starts, ends, rows in _lines_of(part):
        change = np.full(len(rows), part.added is not None)
        if part.edits:
            change |= part.edits.marks[rows]
        [cuts] = ((starts[1:] != ends[:-1]) | change[1:] | change[:-1]).nonzero()
        firsts = np.append(0, cuts + 1)
        columns = np.where(change, rows, ~rows)[firsts], starts[firsts], ends[np.append(cuts, -1)]
        for row, start, end in zip(*(column.tolist() for column in columns), strict=True):
            yield row, view[start:end]


def _rewritten(record: bytes, row: int, part: MarkedRows, header: TableHead) -> bytes:
    """Return a record with another text, or with the next annotation."""
    source, edits, reading = part.source, part.edits, part.source.reading
    names, delimiter = reading.names_of_text, reading.delimiter or ""
    if edits and edits.marks[row]:
        edit = edits.of(row)
        if source.form == "jsonl":
            record = edited_object(record, names, edit)
        else:
            record = edited_row(record, header.column_of(names), delimiter, edit)
    if part.added is None:
        return record
    if source.form == "jsonl":
        place = f"{source.name}:{part.firsts[row]}"
        return annotated_object(record, next(part.added), place)
    return annotated_row(record, next(part.added), delimiter, quoted=source.form == "csv")


def _lines_of(part: MarkedRows) -> Iterator[tuple[memoryview, Places, Places, Places]]:
    """Yield bytes, where those of their lines start and end that are of marked rows, and these.

    A row of CSV goes on to the next one; empty lines between the two belong to none.
    """
    source, firsts, marks = part[:3]
    several = source.form == "csv"
    before = 0
    # What is before the first row, at -1, belongs to none.
    bounds, wanted = np.append(firsts, 0), np.append(marks, False)
    with _tolerant(source):
        for data, starts, ends in _blocks(source, several=several):
            numbers = np.arange(before + 1, before + 1 + len(starts))
            rows = firsts.searchsorted(numbers, "right") - 1
            chosen = wanted[rows]
            if several:
                [filled] = (~_empty(data, starts, ends)).nonzero()
                next_filled = filled[filled.searchsorted(np.arange(len(rows)))]
                chosen &= rows == rows[next_filled]
            else:
                chosen &= bounds[rows] == numbers
            if not before and data.startswith(_MARK):
                starts[0] = len(_MARK)
            before += len(starts)
            if chosen.any():
                yield memoryview(data), starts[chosen], ends[chosen], rows[chosen]
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
    are_empty: Marks = sizes == 1
    [two] = (sizes == 2).nonzero()
    are_empty[two] = np.frombuffer(data, np.uint8)[starts[two]] == _RETURN
    return are_empty


@contextlib.contextmanager
def _tolerant(source: Source) -> Iterator[None]:
    with streams.named(source.path):
        try:
            yield
        except StreamError:
            if not source.problem:
                raise


def changed(path: str) -> InputError:
    """Return the error that a file has changed since it was read before."""
    return InputError(
        f"{path} isn't what it was when it was read first", hint="let nobody write to it meanwhile"
    )
