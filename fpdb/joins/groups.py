"""Compare all rows of each group with each other, as dense arrays that stay in the cache.

Groups of about the same size stand side by side as the columns of one array. Its upper rows
against its lower ones, at every shift, are all pairs of every group, each once, without an index
in the innermost loop.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.storage.columns import Rows

Places = NDArray[np.int64]

# Numbers of one word compared at once: with the results beside them they fit into a L2 cache.
_TILE = 1 << 15
# Pairs gathered before they are handed on.
_PAIRS = 1 << 16
# How much larger than the smallest the largest group of an array may be.
_SLACK = 1.06


class Groups(NamedTuple):
    """Runs of rows: where each begins, and how many rows it has."""

    starts: Places
    sizes: Places

    def chosen(self, mask: NDArray[np.bool_]) -> "Groups":
        """Those groups that a mask chooses."""
        return Groups(self.starts[mask], self.sizes[mask])

    def places(self) -> Places:
        """Where all rows of the groups are."""
        before = np.cumsum(self.sizes) - self.sizes
        shifts: Places = np.repeat(self.starts - before, self.sizes)
        return shifts + np.arange(len(shifts))


def groups_of(rows: Rows, shift: int) -> Groups:
    """Find the runs of two rows and more whose first words agree above the lowest `shift` bits."""
    count = len(rows[0])
    if count < 2:
        return Groups(np.empty(0, np.int64), np.empty(0, np.int64))
    if shift >= 64:
        return Groups(np.zeros(1, np.int64), np.array([count]))
    high = rows[0] >> np.uint64(shift)
    same = np.zeros(count + 1, np.bool_)
    np.equal(high[1:], high[:-1], out=same[1:count])
    edges = (same[1:] != same[:-1]).nonzero()[0]
    starts, lasts = edges[::2], edges[1::2]
    return Groups(starts, lasts - starts + 1)


def near_in_groups(
    rows: Rows, groups: Groups, k: int
) -> Iterator[tuple[Places, Places, NDArray[np.uint8]]]:
    """Give the pairs of places in the same group whose rows are within k, with their distances."""
    largest = groups.sizes.max(initial=0)
    # numpy sorts short numbers by their digits, which takes no comparisons.
    short = groups.sizes.astype(np.uint16) if largest < 1 << 16 else groups.sizes
    order = np.argsort(short, kind="stable")
    starts, sizes = groups.starts[order], groups.sizes[order]
    found: list[tuple[Places, Places, NDArray[np.uint8]]] = []
    count = done = 0
    while done < len(sizes):
        least = int(sizes[done])
        stop = int(sizes.searchsorted(int(least * _SLACK), "right"))
        stop = max(done + 1, min(stop, done + _TILE // least))
        for part in _near_in_tile(rows, Groups(starts[done:stop], sizes[done:stop]), k):
            found.append(part)
            count += len(part[0])
            if count >= _PAIRS:
                yield _joined(found)
                found, count = [], 0
        done = stop
    if found:
        yield _joined(found)


def _near_in_tile(
    rows: Rows, groups: Groups, k: int
) -> Iterator[tuple[Places, Places, NDArray[np.uint8]]]:
    starts, sizes = groups
    height, width = int(sizes[-1]), len(sizes)
    if width == 1:
        begin = int(starts[0])
        words = [column[begin : begin + height] for column in rows]
    else:
        places = starts + np.arange(height)[:, np.newaxis]
        # A smaller group has rows of its neighbours below its own; what they match is left out.
        words = [column.take(places, mode="clip").reshape(-1) for column in rows]
    for first in range(0, width * height, _TILE):
        # What is compared at once is bounded too when a single group is larger than the cache.
        last = min(first + _TILE, width * height)
        yield from _shifted(words, first, last, groups, k)


def _shifted(
    words: Rows, first: int, last: int, groups: Groups, k: int
) -> Iterator[tuple[Places, Places, NDArray[np.uint8]]]:
    """Compare numbers first to last, row above row, with those that stand below them."""
    starts, sizes = groups
    width, end = len(sizes), len(words[0])
    changes = np.empty(last - first, np.uint64)
    counts = np.empty(last - first, np.uint8)
    more = np.empty(last - first, np.uint8)
    for shift in range(1, end // width - first // width):
        by = shift * width
        size = min(last, end - by) - first
        if size <= 0:
            return
        change, near = changes[:size], counts[:size]
        np.bitwise_xor(words[0][first : first + size], words[0][first + by :][:size], out=change)
        np.bitwise_count(change, out=near)
        for word in words[1:]:
            np.bitwise_xor(word[first : first + size], word[first + by :][:size], out=change)
            np.bitwise_count(change, out=more[:size])
            near += more[:size]
        if near.min() > k:
            continue
        hits = (near <= k).nonzero()[0]
        at, group = np.divmod(hits + first, width)
        own = at + shift < sizes[group]
        if own.any():
            upper = starts[group[own]] + at[own]
            yield upper, upper + shift, near[hits[own]]


def _joined(
    found: list[tuple[Places, Places, NDArray[np.uint8]]],
) -> tuple[Places, Places, NDArray[np.uint8]]:
    above, below, distances = (np.concatenate(column) for column in zip(*found, strict=True))
    return above, below, distances
