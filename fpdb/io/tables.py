"""Rows of TSV and CSV, and the columns that a header line names or that are numbered."""

import csv
from collections import Counter, deque
from collections.abc import Iterator

from fpdb.errors import InputError
from fpdb.io.fields import Fields, lacking, shorten
from fpdb.io.streams import TooLong

Line = tuple[int, str | TooLong, bool]
Row = tuple[int, list[str] | str, bool]  # a string is the reason why there is no row
Found = tuple[int, dict[str, str] | str, bool]

# A line of nothing but tabs must not become millions of named columns.
_MOST = 4096
_NUMBERS = tuple(str(number) for number in range(1, _MOST + 1))
_EXCESS = "holds more than {} bytes in one record"


def check_columns(fields: Fields) -> None:
    """Raise InputError if no table could have such columns."""
    if fields.headed:
        return
    if not fields.numbered:
        raise InputError(
            "found columns by name, but no header line that names them",
            hint='number the columns: Fields(key="1", text=("2",))',
        )
    if (fields.keyed and fields.key is None) or not (fields.text or fields.fingerprint):
        raise InputError(
            "numbered columns need a key, and a text or a fingerprint",
            hint='number them all: Fields(key="1", text=("2",))',
        )


def named(rows: Iterator[Row], fields: Fields) -> Iterator[Found]:
    """Give the columns of each row their names; a header line that won't do ends the table."""
    names, first = _NUMBERS, fields.headed
    for number, row, replaced in rows:
        if first:
            first = False
            if fields.numbered:
                continue
            columns = () if isinstance(row, str) else tuple(name.strip() for name in row)
            reason = row if isinstance(row, str) else header_reason(columns, fields)
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


def header_reason(names: tuple[str, ...], fields: Fields) -> str:
    """Say why a table with such columns won't do, if it won't."""
    if len(names) > _MOST:
        return f"has {len(names)} columns, expected at most {_MOST}"
    if twice := Counter(names) - Counter(set(names)):
        return f"names two columns {shorten(min(twice))}"
    wanted = fields.required() + [("metadata", (name,)) for name in fields.meta if name != "*"]
    for what, choice in wanted:
        if not set(choice) & set(names):
            return f"won't do; is it one? {lacking(what, choice, names)}"
    return ""


def tsv_rows(lines: Iterator[Line], largest: int) -> Iterator[Row]:
    """Split lines at their tabs; nothing is quoted."""
    for number, line, replaced in lines:
        if isinstance(line, TooLong):
            yield number, _EXCESS.format(largest), replaced
        elif line := line.rstrip("\r\n"):
            yield number, line.split("\t"), replaced


def csv_rows(lines: Iterator[Line], largest: int) -> Iterator[Row]:
    """Read rows whose fields may be quoted, and may then hold line ends."""
    # The module knows but one limit for all of its readers, so it is never lowered here.
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
    """Hands lines to csv.reader, and remembers those of the record that is being read.

    After a record that is no CSV the next line begins a new one. But the lines of a record that
    is only too long never do: whoever wrote its text could forge records with them.
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
        self._size += len(line)
        # A line by itself is within the limit, its end left aside.
        if self._size > self._largest and len(self._taken) > 1:
            raise OverflowError
        self.replaced |= taken[2]
        return line

    def put_back(self) -> None:
        """Read the lines again that follow the first."""
        self._again.extendleft(reversed(self._taken[1:]))

    def skip(self) -> None:
        """Pass over the rest of a record: it ends where its quotes are paired."""
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
