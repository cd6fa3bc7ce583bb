"""Read the pages of a table on which sorted ranges lie, each once, in blocks of bounded size."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.storage import Cursor, ReadTransaction
from fpdb.storage.columns import Column, Rows, raw_column, unpack_rows
from fpdb.tables.pages import Pages, seek

Places = NDArray[np.int64]

# Rows that are held at once: few enough to stay in the cache of one core.
_ROWS = 1 << 16
# Pairs that are made at once.
_PAIRS = 1 << 15


Parts = list[memoryview]


class Block(NamedTuple):
    """Rows of a table in their order, and how many rows its longest page has."""

    rows: Rows
    longest: int


def blocks(
    txn: ReadTransaction, table: Pages, lows: Column, highs: Column, wanted: int
) -> Iterator[Block]:
    """Give all rows with first words in ranges, which don't overlap, and some others.

    Of the columns as many are given as are wanted.
    """
    if not len(lows):
        return
    # Where most pages are needed, to read on is faster than to look where the next range begins.
    read = _in_turn if txn.entries(table.name) <= len(lows) else _sought
    columns: list[Parts] = [[] for _ in range(wanted)]
    size = longest = 0
    with txn.cursor(table.name) as cursor:
        for page, count in read(cursor, table, lows, highs, wanted):
            for parts, part in zip(columns, page):  # noqa: B905 - a check would take a tenth
                parts.append(part)
                size += part.nbytes
            longest = max(longest, count)
            if size >= 8 * wanted * _ROWS:
                yield Block(_joined(columns), longest)
                columns = [[] for _ in range(wanted)]
                size = 0
    if size:
        yield Block(_joined(columns), longest)


def _joined(columns: list[Parts]) -> Rows:
    # Bytes are joined faster than arrays.
    return [np.frombuffer(b"".join(parts), np.uint64) for parts in columns]


def _in_turn(
    cursor: Cursor, table: Pages, lows: Column, highs: Column, wanted: int
) -> Iterator[tuple[Parts, int]]:
    """Read all pages from the first range to the last."""
    end, columns = int(highs[-1]), table.columns
    if not seek(cursor, int(lows[0]).to_bytes(8, "big")):
        return
    for page in cursor.iternext(keys=False, values=True):
        parts, count = _read(page, columns, wanted)
        if int.from_bytes(parts[0][:8], "little") > end:
            return
        yield parts, count


def _sought(
    cursor: Cursor, table: Pages, lows: Column, highs: Column, wanted: int
) -> Iterator[tuple[Parts, int]]:
    """Read the pages on which ranges lie; of each page, from the first range to the last."""
    starts, ends, columns = lows.tolist(), highs.tolist(), table.columns
    keys = lows.astype(">u8").tobytes()
    set_range, step_back, value = cursor.set_range, cursor.prev, cursor.value
    done = 0
    while done < len(starts):
        # The page before the first key that isn't lower; to see whether it is needed takes longer.
        if set_range(keys[8 * done : 8 * done + 8]):
            there = step_back() or cursor.first()
        else:
            there = cursor.last()
        while there:
            page, count = _read(value(), columns, wanted)
            words = page[0].cast("Q")  # faster to search than an array
            low, last = starts[done], words[-1]
            if low <= last:
                # What ends before the last row has been read whole.
                done = bisect_left(ends, last, done)
                beyond = done == len(ends) or starts[done] > last
                top = bisect_left(words, low)
                bottom = bisect_right(words, ends[done - 1], top) if beyond else count
                yield [part[8 * top : 8 * bottom] for part in page], count
                if beyond:
                    break
            there = cursor.next()
        if not there:
            return


def _read(page: memoryview, columns: int, wanted: int) -> tuple[Parts, int]:
    if wanted == 1:
        column, count = raw_column(page, columns)
        return [column], count
    rows = unpack_rows(page, columns, wanted)
    return [row.data.cast("B") for row in rows], len(rows[0])


def pairs(starts: Places, counts: Places) -> Iterator[tuple[Places, Places]]:
    """Give pairs of a range's place and a row in it, in chunks of bounded size."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    for begin in range(0, total, _PAIRS):
        end = min(begin + _PAIRS, total)
        first = int(ends.searchsorted(begin, "right"))
        last = int(ends.searchsorted(end)) + 1
        some = counts[first:last].copy()
        offsets = starts[first:last] - (ends[first:last] - some)  # from pair to row
        some[-1] -= ends[last - 1] - end
        some[0] -= begin - (ends[first] - counts[first])
        rows = np.arange(begin, end) + np.repeat(offsets, some)
        yield np.repeat(np.arange(first, last), some), rows
