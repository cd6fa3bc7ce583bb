"""Rows of TSV and CSV: split, with their columns named or numbered; and tables of known pairs."""

import csv
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any

from fpdb.errors import InputError
from fpdb.io import streams
from fpdb.io.records import Reading, lacking, shorten
from fpdb.io.streams import Line, StreamError, TooLong
from fpdb.models import LARGEST_TEXT

# A string is the reason why there is no row.
Cells = tuple[int, list[str] | str, bool]
Splitter = Callable[[Iterator[Line], int], Iterator[Cells]]
Named = tuple[int, dict[str, Any] | str, bool]

# A line of nothing but tabs must not become millions of named columns.
_MOST = 4096
_NUMBERS = tuple(str(number) for number in range(1, _MOST + 1))
_EXCESS = "holds more than {} bytes in one record"
_LABELS = {
    "1": True,
    "true": True,
    "duplicate": True,
    "0": False,
    "false": False,
    "different": False,
}
_SHARE = re.compile(r"[01]?\.[0-9]{1,20}|[0-9](?:\.[0-9]{1,20})?e-?[0-9]{1,3}")


def check_columns(reading: Reading) -> None:
    """Raise InputError if no table could have such columns."""
    if reading.headed:
        return
    if not reading.numbered:
        raise InputError(
            "found columns by name, but no header line that names them",
            hint='number the columns: key_field="1", text_field="2"',
        )
    if (reading.keyed and reading.key_field is None) or not (
        reading.texts or reading.fingerprint_field
    ):
        raise InputError(
            "numbered columns need a key, and a text or a fingerprint",
            hint='number them all: key_field="1", text_field="2"',
        )


def named(rows: Iterator[Cells], reading: Reading) -> Iterator[Named]:
    """Yield each row with the names of its columns; an unusable header line ends the table."""
    names, first = _NUMBERS, reading.headed
    for number, row, replaced in rows:
        if first:
            first = False
            if reading.numbered:
                continue
            columns = () if isinstance(row, str) else tuple(name.strip() for name in row)
            reason = row if isinstance(row, str) else header_reason(columns, reading)
            if reason:
                yield number, f"the header line {reason}", replaced
                return
            names = columns
        elif isinstance(row, str):
            yield number, row, replaced
        elif len(row) == len(names) or (names is _NUMBERS and len(row) < _MOST):
            yield number, dict(zip(names, row, strict=False)), replaced
        else:
            expected = f"at most {_MOST}" if names is _NUMBERS else len(names)
            yield number, f"found {len(row)} columns, expected {expected}", replaced


def header_reason(names: tuple[str, ...], reading: Reading) -> str:
    """Return why a table with such columns can't be used; empty if it can."""
    if len(names) > _MOST:
        return f"has {len(names)} columns, expected at most {_MOST}"
    if twice := Counter(names) - Counter(set(names)):
        return f"names two columns {shorten(min(twice))}"
    wanted = reading.required() + [("metadata", (name,)) for name in reading.kept if name != "*"]
    for what, choice in wanted:
        if not set(choice) & set(names):
            return f"can't be used; is it one? {lacking(what, choice, names)}"
    return ""


def tsv_rows(lines: Iterator[Line], largest: int) -> Iterator[Cells]:
    """Split lines at their tabs; nothing is quoted."""
    for number, line, replaced in lines:
        if isinstance(line, TooLong):
            yield number, _EXCESS.format(largest), replaced
        elif line := line.rstrip("\r"):
            yield number, line.split("\t"), replaced


def csv_rows(lines: Iterator[Line], largest: int) -> Iterator[Cells]:
    """Read rows whose fields may be quoted, and may then hold line ends."""
    # The module has one limit for all of its readers, so it is never lowered here.
    csv.field_size_limit(max(csv.field_size_limit(), largest))
    feed = _Feed(lines, largest)
    reader = csv.reader(feed, strict=True)
    while True:
        feed.begin()
        try:
            row: list[str] | str = next(reader)
        except StopIteration:
            return
        except OverflowError:
            feed.skip()
            row = _EXCESS.format(largest)
        except csv.Error as error:
            if feed.exhausted:
                row = "a quote opens and never closes; the lines after it are lost"
            elif "limit" in str(error):  # somebody else lowered it meanwhile
                feed.skip()
                row = _EXCESS.format(csv.field_size_limit())
            else:
                feed.put_back()
                row = f"is no CSV: {error}"
        if row:
            yield feed.number, row, feed.replaced


class _Feed:
    """Passes lines to csv.reader, and remembers those of the record that is being read.

    After a record that is no CSV the next line begins a new one. But the lines of a record that
    is only too long never do: the author of its text could forge records with them.
    """

    def __init__(self, lines: Iterator[Line], largest: int) -> None:
        self._lines = lines
        self._largest = largest
        self._again: deque[Line] = deque()
        self.begin()

    def begin(self) -> None:
        self._taken: list[Line] = []
        self._size = 0
        self.replaced = False
        self.exhausted = False

    @property
    def number(self) -> int:
        return self._taken[0][0]

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        taken = self._take()
        if taken is None:
            self.exhausted = True
            raise StopIteration
        line = taken[1]
        if isinstance(line, TooLong):
            raise OverflowError
        self._size += len(line) + 1
        # A line by itself is within the limit, its end left aside.
        if self._size > self._largest and len(self._taken) > 1:
            raise OverflowError
        self.replaced |= taken[2]
        return f"{line}\n"

    def put_back(self) -> None:
        """Read the lines again that follow the first."""
        self._again.extendleft(reversed(self._taken[1:]))

    def skip(self) -> None:
        """Skip the rest of a record: it ends where its quotes are paired."""
        quotes = sum(map(_quotes, self._taken))
        del self._taken[1:]
        while quotes % 2 and (taken := self._take()):
            quotes += _quotes(taken)
            self._taken.pop()

    def _take(self) -> Line | None:
        taken = self._again.popleft() if self._again else next(self._lines, None)
        if taken is not None:
            self._taken.append(taken)
        return taken


def _quotes(line: Line) -> int:
    return line[1].quotes if isinstance(line[1], TooLong) else line[1].count('"')


def read_pairs(path: str, largest: int = LARGEST_TEXT) -> Iterator[tuple[str, str, float | bool]]:
    """Yield the rows of a TSV or CSV file of pairs: two keys, and a similarity or a label.

    The third column holds a Jaccard similarity with a decimal point, or a label: 1, true or
    duplicate, and 0, false or different. The first row may name the columns instead. Standard
    input ("-") is TSV.
    """
    rows_of = csv_rows if PurePath(streams.unpacked_name(path)).suffix == ".csv" else tsv_rows
    try:
        streams.check(path)
        lines = streams.decoded(streams.raw_lines(streams.chunks(path), largest))
        for place, (number, row, _) in enumerate(rows_of(lines, largest)):
            pair = _pair(row)
            if isinstance(pair, str) and (place or isinstance(row, str) or len(row) != 3):
                raise InputError(
                    f"{path}:{number}: {pair}",
                    hint="give key, key and a similarity such as 0.85, or 1 and 0",
                )
            if not isinstance(pair, str):
                yield pair
    except StreamError as error:
        raise InputError(f"{path} {error}", hint=error.hint) from None


def _pair(row: list[str] | str) -> tuple[str, str, float | bool] | str:
    """Return the pair of a row, or the reason why it has none."""
    if isinstance(row, str):
        return row
    if len(row) != 3:
        return f"found {len(row)} columns, expected 3"
    one, other, written = row
    word = written.strip().lower()
    if word in _LABELS:
        return one, other, _LABELS[word]
    if _SHARE.fullmatch(word) and 0 <= float(word) <= 1:
        return one, other, float(word)
    return f"found {written[:40]!r}, expected a similarity from 0.0 to 1.0, or a label"
