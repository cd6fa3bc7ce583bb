"""The self-join of the tables: all pairs of distinct fingerprints within k, each once, streamed.

A pass reads a table in chunks of whole buckets, in which all fingerprints hold some bits alike.
What is too large to compare all with all is cut again: within k, two fingerprints that differ in
few of the other bits agree in at least one block of them. A pair is given in the first pass and
the first cut that finds it, which its own bits tell, so that no pair has to be remembered.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.joins.groups import Groups, groups_of, near_in_groups
from fpdb.joins.layouts import Layout, between, layout_of, led_by, mask_of, permute, sort_rows
from fpdb.storage import ReadTransaction
from fpdb.storage.columns import Rows, unpack_rows
from fpdb.tables import Index
from fpdb.tables.pages import Pages

# Rows of a table held at once, if no bucket has more.
_CHUNK = 1 << 20
# Rows gathered at once from a table that isn't sorted by the bits in question.
_GATHERED = 1 << 22
_HISTOGRAM_BITS = 16
# Nanoseconds to sort a row by other bits and find its group, and to compare two.
_SORT = 60.0
_COMPARE = 0.85
# Rows of a group that tell how its bits are spread, and how much less a cut must leave to compare.
_SAMPLE = 100
_WORTH = 0.7


class Near(NamedTuple):
    """Pairs of distinct fingerprints as columns of words, with their distances."""

    first: Rows
    second: Rows
    distances: NDArray[np.uint8]


class _Path(NamedTuple):
    """Where a search has got to: how bits stand, how many in front are held alike, what was seen.

    A pair that is equal in all bits of a seen mask was found on an earlier path.
    """

    layout: Layout
    held: int
    seen: tuple[int, ...]
    whole: bool  # whether these are buckets of a table, and not of a cut


class _Pass(NamedTuple):
    """Buckets of a table: its bits `start` to `stop` are held alike."""

    table: int
    start: int
    stop: int


def near_pairs(txn: ReadTransaction, index: Index, k: int) -> Iterator[Near]:
    """Give all pairs of distinct fingerprints within k, each once, in no particular order."""
    if k == 0:
        return
    bits = index.plan.bits
    seen: tuple[int, ...] = ()
    for bucket in _passes(index, k):
        layout = layout_of(index.plan.tables[bucket.table].permutation)
        front = layout[bucket.start : bucket.stop]
        held = mask_of(front, bits)
        if any(mask & ~held == 0 for mask in seen):
            continue  # what is equal in more bits was found already
        path = _Path(led_by(front, layout), len(front), seen, whole=True)
        search = _Search(bits, k)
        for rows in _chunks(txn, index, bucket):
            yield from search.near(rows, path)
        seen = (*seen, held)


def _passes(index: Index, k: int) -> Iterator[_Pass]:
    """Find buckets such that two fingerprints within k are in one of them together.

    A table that is probed with r bits flipped holds one of r + 1 pieces of its prefix unflipped.
    """
    for probes in index.plan.probes(k):
        prefix = index.plan.tables[probes.table].prefix
        pieces = max(mask.bit_count() for mask in probes.masks) + 1
        if pieces > prefix:
            # Whatever differs in every bit of the prefix is sought, so it says nothing.
            yield _Pass(probes.table, 0, 0)
            continue
        cuts = [prefix * piece // pieces for piece in range(pieces + 1)]
        for start, stop in pairwise(cuts):
            yield _Pass(probes.table, start, stop)


def _chunks(txn: ReadTransaction, index: Index, bucket: _Pass) -> Iterator[Rows]:
    """Read whole buckets, sorted by the bits that they hold alike."""
    pages = (index.home, *index.further)[bucket.table]
    words = len(index.words(np.empty((0, 2), np.uint64)))
    width = min(index.plan.bits, 64)
    if bucket.start == 0:
        yield from _whole(_distinct(txn, pages, words), width - bucket.stop)
    else:
        layout = layout_of(index.plan.tables[bucket.table].permutation)
        led = led_by(layout[bucket.start : bucket.stop], layout)
        permutation = between(layout, led, index.plan.bits)
        for rows in _gathered(txn, pages, words, width, bucket):
            yield sort_rows(permute(rows, permutation))


def _distinct(txn: ReadTransaction, pages: Pages, words: int) -> Iterator[Rows]:
    """Read the fingerprints of a table in chunks, each fingerprint once."""
    parts: list[Rows] = []
    size = 0
    last: list[int] = []
    with txn.cursor(pages.name) as cursor:
        there = cursor.first()
        while there:
            parts.append(unpack_rows(cursor.value(), pages.columns, words))
            size += len(parts[-1][0])
            there = cursor.next()
            if size >= _CHUNK or not there:
                rows = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
                if pages.columns > words:
                    rows = _fresh(rows, last)
                    last = [int(column[-1]) for column in rows] if len(rows[0]) else last
                if len(rows[0]):
                    yield rows
                parts, size = [], 0


def _fresh(rows: Rows, last: list[int]) -> Rows:
    """Keep the first row of each run of equal ones; `last` came before them."""
    fresh = np.zeros(len(rows[0]), np.bool_)
    fresh[0] = not last or last != [int(column[0]) for column in rows]
    for column in rows:
        fresh[1:] |= column[1:] != column[:-1]
    return [column[fresh] for column in rows]


def _whole(chunks: Iterator[Rows], shift: int) -> Iterator[Rows]:
    """Cut chunks where the bits above `shift` change."""
    if shift >= 64:
        parts = list(chunks)
        if parts:
            yield _concatenated(parts)
        return
    below = np.uint64(shift)
    kept: list[Rows] = []  # rows of one bucket, which may go on in the next chunk
    for rows in chunks:
        high = rows[0] >> below
        if kept and kept[-1][0][-1] >> below != high[0]:
            yield _concatenated(kept)
            kept = []
        cut = int(high.searchsorted(high[-1]))
        if cut:
            yield _concatenated([*kept, [column[:cut] for column in rows]])
            kept = []
        kept.append([column[cut:] for column in rows])
    if kept:
        yield _concatenated(kept)


def _gathered(
    txn: ReadTransaction, pages: Pages, words: int, width: int, bucket: _Pass
) -> Iterator[Rows]:
    """Collect buckets of bits inside the rows, as many as fit, in one reading of the table each."""
    below = np.uint64(width - bucket.stop)
    mask = np.uint64((1 << bucket.stop - bucket.start) - 1)
    coarse = np.uint64(max(bucket.stop - bucket.start - _HISTOGRAM_BITS, 0))
    counts = np.zeros(1 << min(bucket.stop - bucket.start, _HISTOGRAM_BITS), np.int64)
    for rows in _distinct(txn, pages, words):
        values = (rows[0] >> below & mask) >> coarse
        counts += np.bincount(values.view(np.int64), minlength=len(counts))
    ends = np.cumsum(counts)
    first = 0
    while first < len(counts):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(ends.searchsorted(before + _GATHERED, "right")))
        parts = []
        for rows in _distinct(txn, pages, words):
            values = (rows[0] >> below & mask) >> coarse
            chosen = values - np.uint64(first) < np.uint64(last - first)
            parts.append([column[chosen] for column in rows])
        if parts:
            yield _concatenated(parts)
        first = last


def _concatenated(parts: list[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    return [np.concatenate(columns) for columns in zip(*parts, strict=True)]


class _Search:
    """Finds what is near in rows that are sorted by the bits they hold alike."""

    def __init__(self, bits: int, k: int) -> None:
        self._bits = bits
        self._k = k
        self._width = min(bits, 64)

    def near(self, rows: Rows, path: _Path) -> Iterator[Near]:
        """Give the pairs of rows with the same held bits that no earlier path has found."""
        groups = groups_of(rows, self._width - path.held)
        if not len(groups.sizes):
            return
        blocks, limit = self._cut(path, int(groups.sizes.max()))
        if limit < 0:
            return
        large = groups.sizes > limit
        for above, below, distances in near_in_groups(rows, groups.chosen(~large), self._k):
            yield from self._unseen(rows, above, below, distances, path)
        if large.any():
            yield from self._near_in_large(rows, groups.chosen(large), path, blocks)

    def _near_in_large(
        self, rows: Rows, groups: Groups, path: _Path, blocks: tuple[Layout, ...]
    ) -> Iterator[Near]:
        """Cut large groups again, all of them together if they are those of a table.

        What a cut has left as large isn't evenly spread, and each group is cut by its own bits.
        """
        groups = groups.chosen(self._wanted(rows, groups, path))
        if path.whole and len(groups.sizes):
            places = groups.places()
            yield from self._deeper([column[places] for column in rows], path, blocks)
            return
        for start, size in zip(groups.starts.tolist(), groups.sizes.tolist(), strict=True):
            own = [column[start : start + size] for column in rows]
            blocks = self._cut_by_sample(path, own)
            if blocks:
                yield from self._deeper(own, path, blocks)
                continue
            group = Groups(np.zeros(1, np.int64), np.array([size]))
            for above, below, distances in near_in_groups(own, group, self._k):
                yield from self._unseen(own, above, below, distances, path)

    def _wanted(self, rows: Rows, groups: Groups, path: _Path) -> NDArray[np.bool_]:
        """Tell which groups have rows that differ in each seen mask; others bring nothing new."""
        places = groups.places()
        first = np.cumsum(groups.sizes) - groups.sizes
        changes = [
            np.bitwise_or.reduceat(
                column[places] ^ np.repeat(column[groups.starts], groups.sizes), first
            )
            for column in rows
        ]
        wanted = np.ones(len(groups.sizes), np.bool_)
        here = between(tuple(range(self._bits)), path.layout, self._bits)
        for mask in path.seen:
            wanted &= self._differ(changes, here.apply_one(mask))
        return wanted

    def _deeper(self, rows: Rows, path: _Path, blocks: tuple[Layout, ...]) -> Iterator[Near]:
        """Sort rows by each of some blocks in turn, and find what agrees in one of them."""
        held, seen = path.layout[: path.held], path.seen
        for block in blocks:
            layout = led_by((*held, *block), path.layout)
            permuted = permute(rows, between(path.layout, layout, self._bits))
            deeper = _Path(layout, path.held + len(block), seen, whole=False)
            yield from self.near(sort_rows(permuted), deeper)
            seen = (*seen, mask_of(block, self._bits))

    def _unseen(
        self,
        rows: Rows,
        above: NDArray[np.int64],
        below: NDArray[np.int64],
        distances: NDArray[np.uint8],
        path: _Path,
    ) -> Iterator[Near]:
        """Put the bits of pairs back, and drop those that an earlier path has found."""
        back = between(path.layout, tuple(range(self._bits)), self._bits)
        first = permute([column[above] for column in rows], back)
        second = permute([column[below] for column in rows], back)
        changes = [one ^ other for one, other in zip(first, second, strict=True)]
        fresh = np.ones(len(distances), np.bool_)
        for mask in path.seen:
            fresh &= self._differ(changes, mask)
        if fresh.any():
            first, second = ([word[fresh] for word in words] for words in (first, second))
            yield Near(first, second, distances[fresh])

    def _cut(self, path: _Path, size: int) -> tuple[tuple[Layout, ...], float]:
        """Find the blocks that evenly spread groups are cut by, and the size from which it pays.

        The size is negative if no pair is wanted any more.
        """
        best: tuple[float, tuple[Layout, ...]] = float("inf"), ()
        cuts = self._cuts(path, path.layout)
        for blocks in cuts or ():
            each = min(size / 2 ** len(blocks[0]) * _COMPARE / 2, len(blocks) * _SORT)
            best = min(best, (len(blocks) * (_SORT + each), blocks))
        return best[1], -1 if cuts is None else 2 * best[0] / _COMPARE

    def _cut_by_sample(self, path: _Path, rows: Rows) -> tuple[Layout, ...]:
        """Find the blocks that one group is cut by, nothing if that wouldn't pay.

        A sample tells which bits differ at all, and how many pairs agree in a block. A cut is made
        only if it leaves clearly less to compare, so that all cuts together cost no more
        than to compare all rows with each other, whatever the fingerprints are.
        """
        size = len(rows[0])
        places = np.linspace(0, size - 1, min(size, _SAMPLE)).astype(np.int64)
        back = between(path.layout, tuple(range(self._bits)), self._bits)
        words = permute([column[places] for column in rows], back)
        above, below = np.triu_indices(len(places), 1)
        changes = [word[above] ^ word[below] for word in words]
        differing = 0
        for change in changes:
            differing = differing << 64 | int(np.bitwise_or.reduce(change))
        bits = tuple(bit for bit in path.layout if differing >> (self._bits - 1 - bit) & 1)
        compare = size * _COMPARE / 2
        best: tuple[float, tuple[Layout, ...]] = compare * _WORTH, ()
        for blocks in self._cuts(path, bits) or ():
            agreeing = sum(
                1 - self._differ(changes, mask_of(block, self._bits)).mean() for block in blocks
            )
            best = min(best, (len(blocks) * _SORT + agreeing * compare, blocks))
        return best[1]

    def _cuts(self, path: _Path, bits: Layout) -> list[tuple[Layout, ...]] | None:
        """List the ways to cut some bits such that every pair still wanted agrees in a block.

        Such a pair differs somewhere in each seen mask. So of bits outside some seen masks that
        share none, fewer than k can differ, and fewer blocks will do. There are none, and no way,
        if that takes more than k bits.
        """
        held, left = mask_of(path.layout[: path.held], self._bits), self._k
        taken, longest = held, self._width - path.held
        cuts = []
        for mask in (0, *(mask & ~held for mask in path.seen)):
            if mask & taken:
                continue
            taken |= mask
            left -= 1 if mask else 0
            if left < 0:
                return None
            free = [bit for bit in bits if not taken >> (self._bits - 1 - bit) & 1]
            if longest > 0 and len(free) > left:
                cuts.append(_blocks(free, left + 1, longest))
        return cuts

    def _differ(self, changes: Rows, mask: int) -> NDArray[np.bool_]:
        """Tell which pairs differ somewhere in a mask."""
        parts = (mask,) if len(changes) == 1 else (mask >> 64, mask & (1 << 64) - 1)
        differs = np.zeros(len(changes[0]), np.bool_)
        for change, part in zip(changes, parts, strict=True):
            differs |= change & np.uint64(part) != 0
        return differs


def _blocks(bits: list[int], count: int, longest: int) -> tuple[Layout, ...]:
    cuts = [len(bits) * block // count for block in range(count + 1)]
    return tuple(tuple(bits[start:stop][:longest]) for start, stop in pairwise(cuts))
