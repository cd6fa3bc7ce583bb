"""Rows of TSV and CSV: split, with their columns named or numbered."""

import contextlib
import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from fpdb.errors import InputError
from fpdb.io import streams
from fpdb.io.encodings import few_replaced
from fpdb.io.records import Reading, expected_field, lacking, shorten
from fpdb.io.streams import Line, StreamError, TooLong

# A string is the reason why there is no row.
Cells = tuple[int, list[str] | str, bool]
# The line, or 0 for the complete file; the fields, or the reason why there are none; whether bytes
# were replaced.
Named = tuple[int, Mapping[str, Any] | str, bool]


@dataclass
class FieldColumns:
    """Rows by their numbers: lists of the values of each field, and unusual rows by themselves.

    These are by their places: their fields, or the reason why there are none, and whether bytes
    were replaced. Instead of columns there may be the fields of each row.
    """

    numbers: Sequence[int]
    columns: dict[str, list[Any]]
    unusual: dict[int, tuple[Mapping[str, Any] | str, bool]]
    fields: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def of_rows(cls, rows: Iterable[Named]) -> "FieldColumns":
        rows = list(rows)
        unusual = {
            place: (row, replaced)
            for place, (_, row, replaced) in enumerate(rows)
            if replaced or isinstance(row, str)
        }
        fields = [{} if isinstance(row, str) else row for _, row, _ in rows]
        return cls([number for number, _, _ in rows], {}, unusual, fields)

    def row(self, place: int) -> tuple[Mapping[str, Any] | str, bool]:
        return self.unusual.get(place) or (self.usual(place), False)

    def usual(self, place: int) -> Mapping[str, Any]:
        """Return the fields of a row that isn't unusual."""
        if self.fields:
            return self.fields[place]
        return {name: values[place] for name, values in self.columns.items()}

    def rows(self) -> Iterator[Named]:
        for place, number in enumerate(self.numbers):
            yield number, *self.row(place)

    def first_of(self, names: Sequence[str]) -> list[Any]:
        """Return for each row the first value that is there, of some fields."""
        values: list[Any] = [None] * len(self.numbers)
        for place, name in enumerate(names):
            if None not in values:
                break
            column = self._column(name)
            if place and column:
                pairs = zip(values, column, strict=True)
                values = [other if value is None else value for value, other in pairs]
            else:
                values = list(column or values)
        return values

    def _column(self, name: str) -> Sequence[Any] | None:
        if self.fields:
            return [row.get(name) for row in self.fields]
        return self.columns.get(name)


# Rows and characters that become columns together.
_BLOCK_ROWS, _BLOCK_CHARACTERS = 1000, 1 << 22
# A line of nothing but tabs must not become millions of named columns.
_MOST = 4096
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_NUMBERS = tuple(str(number) for number in range(1, _MOST + 1))
_SEPARATOR = re.compile(r"[;,|\t]")
# Of these, the first is usual.
_SEPARATORS = (",", ";", "\t", "|")
_EXCESS = "holds more than {} bytes in one record"
# As pandas and the module csv write texts with line ends.
_OPEN = (
    "opens a quote that it doesn't close: a line is a record, so was a quoted text cut at its line "
    "end? Save it as CSV or as JSON lines"
)


def numbered(reading: Reading) -> bool:
    """Return whether the fields are columns by their numbers."""
    return bool(reading.given) and all(map(_NUMBER.fullmatch, reading.given))


def check_columns(reading: Reading) -> None:
    """Raise InputError if a table whose columns are numbered lacks the numbers of some."""
    has_key = reading.key_field is not None or not reading.keyed
    has_text = reading.texts or reading.fingerprint_field
    if numbered(reading) and not (has_key and has_text):
        raise InputError(
            "numbered columns need a key, and a text or a fingerprint",
            hint='number them all: key_field="1", text_field="2"',
        )


def named_columns(
    rows: Iterator[Cells], reading: Reading, most: int = _BLOCK_ROWS
) -> Iterator[FieldColumns]:
    """Yield rows as columns with names, N at a time; raise StreamError at a wrong header."""
    names = _NUMBERS if numbered(reading) else ()
    held, room = list[Cells](), _BLOCK_CHARACTERS
    for number, row, replaced in rows:
        if not names:
            names = _header(row, reading, replaced=replaced)
            continue
        held.append((number, row, replaced))
        room -= 0 if isinstance(row, str) else sum(map(len, row))
        if len(held) == most or room < 0:
            yield _columns(held, names)
            held, room = [], _BLOCK_CHARACTERS
    if held:
        yield _columns(held, names)


def _header(row: list[str] | str, reading: Reading, *, replaced: bool) -> tuple[str, ...]:
    head = legible(row, replaced=replaced)
    names = () if isinstance(head, str) else tuple(name.strip() for name in head)
    if not (reason := head if isinstance(head, str) else header_reason(names, reading)):
        return names
    if len(names) == 1 and (mark := _SEPARATOR.search(names[0])):
        reason = (
            f"has one column, {shorten(names[0])}: separated by {mark[0]!r}? "
            "The format csv has any of these, tsv has tabs"
        )
    elif reason.endswith(" names another"):
        reason += ", or its number if this is no header"
    raise StreamError(f"the header line {reason}")


def legible(row: list[str] | str, *, replaced: bool) -> list[str] | str:
    """Return a header, or the reason why there is none."""
    broken = replaced and not (isinstance(row, str) or few_replaced("".join(row)))
    return streams.NOT_DECODED if broken else row


def _columns(rows: Sequence[Cells], names: tuple[str, ...]) -> FieldColumns:
    usual: list[Any] = []
    unusual: dict[int, tuple[Mapping[str, Any] | str, bool]] = {}
    width, numbers = len(names), names is _NUMBERS
    for place, (_, row, replaced) in enumerate(rows):
        if len(row) == width and not replaced and not isinstance(row, str):
            usual.append(row)
            continue
        fields: Mapping[str, Any] | str
        if isinstance(row, str):
            fields = row
        elif len(row) == width or (numbers and len(row) < _MOST):
            fields = dict(zip(names, row, strict=False))
        else:
            expected = f"at most {_MOST}" if numbers else width
            fields = f"found {len(row)} columns, expected {expected}"
        unusual[place] = fields, replaced
        if not numbers:
            usual.append([None] * width)
    values = map(list, zip(*usual, strict=True))
    columns = dict(zip(names, values, strict=False))
    return FieldColumns([number for number, _, _ in rows], columns, unusual)


def header_reason(names: tuple[str, ...], reading: Reading) -> str:
    """Return why a table with such columns can't be used; empty if it can."""
    if len(names) > _MOST:
        return f"has {len(names)} columns, expected at most {_MOST}"
    if twice := Counter(names) - Counter(set(names)):
        return f"names two columns {shorten(min(twice))}"
    there = dict.fromkeys(names, "")
    for what, choice in reading.required():
        if not there.keys() & set(choice):
            return f"lacks a column: {lacking(what, choice, there)}"
    for name in reading.kept:
        if name != "*" and name not in there:
            return f"lacks a column: {expected_field([name], there)}"
    return ""


def tsv_rows(lines: Iterator[Line], largest: int, delimiter: str = "\t") -> Iterator[Cells]:
    """Split lines at tabs or another sign; nothing is quoted, so an open quote is refused."""
    for number, line, replaced in lines:
        if isinstance(line, TooLong):
            yield number, _EXCESS.format(largest), replaced
        elif line := line.rstrip("\r"):
            row = line.split(delimiter)
            cut = '"' in line and any(cell.startswith('"') and cell.count('"') % 2 for cell in row)
            yield number, _OPEN if cut else row, replaced


def rows_of(form: str, lines: Iterator[Line], reading: Reading) -> Iterator[Cells]:
    """Read the rows of TSV, CSV or lines; those of CSV by the separator that is given or found."""
    mark, lines = separator_of(form, lines, reading)
    return (csv_rows if form == "csv" else tsv_rows)(lines, reading.max_bytes, mark)


def separator_of(form: str, lines: Iterator[Line], reading: Reading) -> tuple[str, Iterator[Line]]:
    """Return the separator that is given or found, and all lines, though some show it."""
    if form != "csv" or reading.delimiter:
        return reading.delimiter or ("," if form == "csv" else "\t"), lines
    held: list[Line] = []
    head: str | TooLong = ""
    for line in lines:
        held.append(line)
        head = line[1]
        if isinstance(head, TooLong) or head.strip():
            break
    mark = "," if isinstance(head, TooLong) else _separator(head, reading)
    return mark, chain(held, lines)


def _separator(head: str, reading: Reading) -> str:
    """Return the separator of a header that gives it the wanted fields, or else most columns."""
    widths = dict.fromkeys(_SEPARATORS, 0)
    least = max((int(name) for name in reading.given if _NUMBER.fullmatch(name)), default=0)
    for mark in _SEPARATORS:
        with contextlib.suppress(csv.Error, StopIteration):
            names = tuple(name.strip() for name in next(csv.reader([head], delimiter=mark)))
            widths[mark] = len(names)
            if len(names) >= least if numbered(reading) else not header_reason(names, reading):
                return mark
    return max(widths, key=widths.__getitem__)


def csv_rows(lines: Iterator[Line], largest: int, delimiter: str = ",") -> Iterator[Cells]:
    """Read rows whose fields may be quoted, and may then hold line ends."""
    # The module has one limit for all of its readers, so it is never lowered here.
    csv.field_size_limit(max(csv.field_size_limit(), largest))
    feed = _Feed(lines, largest)
    reader = csv.reader(feed, delimiter=delimiter, strict=True)
    while True:
        feed.begin()
        try:
            row: list[str] | str = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            row = f"is no CSV: {error}"
        if feed.exceeded:
            row = _EXCESS.format(largest)
        if isinstance(row, str) and (more := feed.last - feed.first):
            plural = "s" * (more > 1)
            row += f"; so {more:,} more line{plural}, to line {feed.last:,}, weren't read"
        if row:
            yield feed.first, row, feed.replaced


class _Feed:
    """Passes lines to csv.reader, and remembers where the record begins that is being read.

    Of a record that is too long, only the quotes that pair those before are passed on. So the
    record ends where it does, and the author of its text can't forge records with its lines.
    """

    def __init__(self, lines: Iterator[Line], largest: int) -> None:
        self._lines = lines
        self._largest = largest
        self.last = 0

    def begin(self) -> None:
        self.first = 0
        self.replaced = self.exceeded = False
        self._size = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while True:
            self.last, line, replaced = next(self._lines)
            self.first = self.first or self.last
            self.replaced |= replaced
            if isinstance(line, TooLong):
                self.exceeded = True
                quotes = line.quotes
            else:
                self._size += len(line) + 1
                # A line by itself is within the limit, its end left aside.
                self.exceeded |= self._size > self._largest and self.last > self.first
                if not self.exceeded:
                    return f"{line}\n"
                quotes = line.count('"')
            # Only a quote ends a record of several lines.
            if quotes % 2 or self.last == self.first:
                return '"' * (quotes % 2)
