"""Rows of the survivors, in which records find their candidates.

A row has a word of a hash, by which they meet, and the place of a document.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fpdb import kernels
from fpdb.arrays import Column, Marks, Places, differs, portions, spans
from fpdb.fingerprint.sketches import low_bits_apart, mix
from fpdb.joins.columns import GrowingColumn, Room

# Pairs that are compared at once: their sketches fit into a cache.
PAIRS = 1 << 15
# Pairs that the kernel has room for, for each row that asks.
_MOST_MET = 2
# Rows that a document meets, from which on each document among them is compared only once.
_MANY_MET = 1 << 10
# Rows that are merged at once.
_MERGED = 1 << 20
# The kernel's.
HEAD_ROWS = 64
# Numbers that are mixed at once.
_MIXED = 1 << 15
# A row is a word: the upper bits of a hash, and the place of a document. With more bits for places,
# many documents of a large corpus are compared that have only these bits in common.
PLACE = np.uint64((1 << 30) - 1)


class LowBits(NamedTuple):
    """The lowest bits of the bins of a block, those of kept documents, and how many may differ."""

    block: Column
    keepers: Column
    apart: int


class _SortedRows(GrowingColumn):
    """Sorted rows, of which there is a copy of some, to be searched first: it stays in a cache."""

    heads: Column

    def merge(self, other: Column) -> None:
        """Add rows that are sorted, from the last ones on: so no other place is needed for them."""
        start, left = len(self), len(other)
        self.add(other)
        rows = self.values
        while left and start:
            stop, end = start, left
            start = max(stop - _MERGED, 0)
            left = int(other.searchsorted(rows[start])) if start else 0
            part = np.concatenate([rows[start:stop], other[left:end]])
            part.sort(kind="stable")  # which finds both runs, and merges them
            rows[start + left : stop + end] = part
        self.heads = rows[::HEAD_ROWS].copy()


class KeptRows:
    """The rows of kept documents in sorted parts, each at most a quarter as large as the last."""

    def __init__(
        self, room: Room, most: int, most_compared: int | None = None, rows_each: int = 1
    ) -> None:
        self._room, self._most, self._most_compared = room, most, most_compared
        self._rows_each = rows_each
        self._parts: list[_SortedRows] = []

    def add(self, rows: Column) -> None:
        """Add rows that are sorted."""
        parts = self._parts
        if len(rows):
            parts.append(_SortedRows(self._room, np.uint64, searched=True))
            parts[-1].merge(rows)
        while len(parts) > 1 and len(parts[-2]) < 4 * len(parts[-1]):
            last = parts.pop()
            parts[-1].merge(last.values)
            last.clear()

    def near(
        self, asked: Column, crowded: Marks, low: LowBits | None
    ) -> Iterator[tuple[Places, Places]]:
        """Yield pairs: a document that asks, and a kept one with one of its numbers.

        With low bits, only some that may be similar. Marks those that aren't compared with all of
        them, because they are too many.
        """
        fast = None if low is None else self._near_by_kernel(asked, low)
        if fast is not None:
            yield from fast
            return
        owners = row_places(asked)
        meetings = [meeting(asked, part.values, part.heads) for part in self._parts]
        left = np.full(len(asked), self._most)
        for _, counts in meetings:
            crowded[owners[counts > left]] = True
            np.minimum(counts, left, out=counts)
            left -= counts
        many = min(_MANY_MET, self._most_compared or _MANY_MET)
        [rows] = (np.bincount(owners, self._most - left, len(crowded)) > many)[owners].nonzero()
        rows = rows[owners[rows].argsort(kind="stable")]
        for run in np.split(rows, differs(owners[rows]).nonzero()[0][1:]) if len(rows) else ():
            yield self._chosen(int(owners[run[0]]), run, meetings, crowded)
        for part, (starts, counts) in zip(self._parts, meetings, strict=True):
            counts[rows] = 0
            for portion in portions(counts, PAIRS):
                yield _pairs(part.values, owners[portion], starts[portion], counts[portion], low)

    def _near_by_kernel(self, asked: Column, low: LowBits) -> list[tuple[Places, Places]] | None:
        """Return the pairs of each part; None without kernels, or if there may be too many."""
        if not kernels.enabled or not self._parts:
            return None
        most = self._most_compared or self._most
        crowd = min(self._most, most // self._rows_each) // len(self._parts)
        pairs = []
        for part in self._parts:
            askers, met = (np.empty(_MOST_MET * len(asked), np.int64) for _ in range(2))
            count = kernels.number_pages.near_rows(
                part.values, part.heads, asked, PLACE, crowd, *low, askers, met
            )
            if count is None:
                return None
            pairs.append((askers[:count].copy(), met[:count].copy()))
        return pairs

    def _chosen(
        self, place: int, rows: Places, meetings: Sequence[tuple[Places, Places]], crowded: Marks
    ) -> tuple[Places, Places]:
        """Return the pairs of a document with many, each once: the pairs that agree most often."""
        runs = [
            part.values[start : start + count]
            for part, (starts, counts) in zip(self._parts, meetings, strict=True)
            for start, count in zip(starts[rows].tolist(), counts[rows].tolist(), strict=True)
        ]
        often = np.bincount(row_places(np.concatenate(runs)))
        [ids] = often.nonzero()
        if self._most_compared is not None and len(ids) > self._most_compared:
            crowded[place] = True
            seldom = -often[ids].astype(np.int16)  # which are sorted by counting
            ids = ids[seldom.argsort(kind="stable")[: self._most_compared]]
        return np.full(len(ids), place), ids


def meeting(asked: Column, rows: Column, heads: Column) -> tuple[Places, Places]:
    """Return where the rows with each number begin, and how many these are; all are sorted."""
    if not kernels.enabled:
        numbers = asked & ~PLACE
        starts = rows.searchsorted(numbers)
        return starts, rows.searchsorted(numbers | PLACE, "right") - starts
    starts, counts = (np.empty(len(asked), np.int64) for _ in range(2))
    kernels.number_pages.meeting(rows, heads, asked, PLACE, starts, counts)
    return starts, counts


def _pairs(
    rows: Column, owners: Places, starts: Places, counts: Places, low: LowBits | None
) -> tuple[Places, Places]:
    """Return each owner with the places of its rows; with low bits, if they may be alike."""
    askers, met = np.repeat(owners, counts), row_places(rows[spans(starts, counts)])
    if low:
        near = low_bits_apart(low.block, askers, low.keepers, met) <= low.apart
        askers, met = askers[near], met[near]
    return askers, met


def number_rows(numbers: Column, places: Places) -> Column:
    """Return sorted rows: a hash of each number, and the place of its document."""
    rows = places.astype(np.uint64)
    for start in range(0, len(rows), _MIXED):  # which stay in a cache
        part = slice(start, start + _MIXED)
        rows[part] |= mix(numbers[part]) & ~PLACE
    rows.sort()
    return rows


def row_places(rows: Column) -> Places:
    return (rows & PLACE).view(np.int64)


def repeated(rows: Column) -> Marks:
    """Mark the sorted rows whose number another one has."""
    first = np.append(differs(rows & ~PLACE), True)
    marks: Marks = ~(first[:-1] & first[1:])
    return marks


def only(rows: Column, marks: Marks) -> Column:
    return rows[marks[row_places(rows)]]
