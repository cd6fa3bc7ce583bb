"""Read the pages of a table that have rows in ranges, each once, and none between them.

The ranges are of first words; they are sorted and don't overlap.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import numpy as np

from fpdb import kernels
from fpdb.arrays import Column, Places, Rows
from fpdb.storage import Cursor, ReadTransaction
from fpdb.tables.pages import Pages, out_of_order, read_words, seek

# Rows of a block: few enough to stay in the cache of one core.
_ROWS = 1 << 16
# What a kernel finds until it is taken.
_TAKEN = 1 << 16


def blocks(
    txn: ReadTransaction, table: Pages, lows: Column, highs: Column, wanted: int
) -> Iterator[tuple[Rows, int]]:
    """Yield all rows whose first words are in ranges, and some others, with the longest page.

    The ranges are sorted and don't overlap; the first `wanted` columns of the rows are read.
    """
    if not len(lows):
        return
    # Where most pages are needed, reading on is faster than a seek to where the next range begins.
    read = _in_turn if txn.entries(table.name) <= len(lows) else _sought
    columns: list[list[memoryview]] = [[] for _ in range(wanted)]
    size = longest = 0
    with txn.cursor(table.name) as cursor:
        for page, count in read(cursor, table, lows, highs, wanted):
            for parts, part in zip(columns, page):  # noqa: B905 - a check would take a tenth
                parts.append(part)
                size += part.nbytes
            longest = max(longest, count)
            if size >= 8 * wanted * _ROWS:
                yield _rows_of(columns), longest
                columns = [[] for _ in range(wanted)]
                size = 0
    if size:
        yield _rows_of(columns), longest


def _rows_of(columns: list[list[memoryview]]) -> Rows:
    # Bytes are joined faster than arrays.
    return [np.frombuffer(b"".join(parts), np.uint64) for parts in columns]


def _in_turn(
    cursor: Cursor, table: Pages, lows: Column, highs: Column, wanted: int
) -> Iterator[tuple[list[memoryview], int]]:
    """Read all pages from the first range to the last."""
    end, columns, seed = int(highs[-1]), table.columns, table.seed
    number = int.from_bytes
    if not seek(cursor, int(lows[0]).to_bytes(8, "big")):
        return
    last = -1
    for key, page in cursor.iternext():
        first = number(key)
        if first <= last:
            raise out_of_order(table.name)
        last = first
        parts, count = read_words(page, columns, seed ^ first, wanted)
        if int.from_bytes(parts[0][:8], "little") > end:
            return
        yield parts, count


def _sought(
    cursor: Cursor, table: Pages, lows: Column, highs: Column, wanted: int
) -> Iterator[tuple[list[memoryview], int]]:
    """Read the pages that have ranges; of each page, from the first range to the last."""
    starts, ends, columns, seed = lows.tolist(), highs.tolist(), table.columns, table.seed
    keys = lows.astype(">u8").tobytes()
    set_range, step_back, item = cursor.set_range, cursor.prev, cursor.item
    number = int.from_bytes
    done = 0
    while done < len(starts):
        # The page before the first key that isn't lower; a check whether it is needed takes longer.
        if set_range(keys[8 * done : 8 * done + 8]):
            there = step_back() or cursor.first()
        else:
            there = cursor.last()
        while there:
            key, value = item()
            page, count = read_words(value, columns, seed ^ number(key), wanted)
            words = page[0].cast("Q")  # faster to search than an array
            low, last = starts[done], words[-1]
            if low <= last:
                # Ranges that end before the last row have been read to their ends.
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


def search_pages(
    txn: ReadTransaction, table: Pages, ranges: int, search: "kernels.pages.Ranges"
) -> Iterator[tuple[Places, Column]]:
    """Have a kernel read the pages of its ranges, and yield what it finds, some at a time."""
    # Where most pages are needed, reading on is faster than a seek to where the next range begins.
    in_turn = txn.entries(table.name) <= ranges
    with txn.cursor(table.name) as cursor:
        reader = table.reader(cursor)
        done: bool | None = False
        while done is False:
            done = search.search(reader, in_turn, _TAKEN)
            found, beside = search.taken()
            yield np.frombuffer(found, np.int64), np.frombuffer(beside, np.uint64)
        if done is None:
            table.rows_at(cursor)  # this raises an error, unless the page is empty or misplaced
            raise out_of_order(table.name)
