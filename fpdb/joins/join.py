"""Join all fingerprints: find every pair of distinct fingerprints within k, each once, streamed.

A pass reads a table in chunks of complete buckets; the fingerprints of a bucket agree in some bits.
A bucket that is too large to compare all with all is split again: two fingerprints within k that
differ in few of the other bits agree in at least one block of them. A pair is yielded in the first
pass and the first split that find it, which its own bits tell, so no pair has to be remembered.

The kernel is `_near_in_buckets`, which compares all rows of each bucket with each other;
`near_rows` runs it on an array that is in no table.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Marks, Places, Rows, differs, gathered, joined, portions, spans
from fpdb.documents.catalog import View
from fpdb.progress import tracked
from fpdb.storage import ReadTransaction
from fpdb.tables import Index, Permutation
from fpdb.tables.bits import Distances
from fpdb.tables.sorted_pages import NumberPages
from fpdb.threads import count_jobs, mapped

# The order of bits: which bit of a fingerprint, 0 the highest, is in which place.
Layout = tuple[int, ...]
# Pairs of fingerprints as columns: the words of the first, those of the second, the distances.
NearPairs = Sequence[NDArray[Any]]

# Rows of a table held at once, if no bucket has more.
_CHUNK = 1 << 20
# Rows collected at once from a table that isn't sorted by the bits in question.
_GATHERED = 1 << 22
_HISTOGRAM_BITS = 16
# Nanoseconds to sort a row by other bits and find its bucket, and to compare two rows.
_SORT = 60.0
_COMPARE = 0.85
# Rows of a bucket sampled to see how its bits are spread, and the share of comparisons that a
# split may leave at most.
_SAMPLE = 100
_WORTH = 0.7
# Words compared at once: with the results beside them they fit into an L2 cache.
_TILE = 1 << 15
# Pairs collected before they are yielded.
_PAIRS = 1 << 16
# Pairs that another process returns together.
_HELD = 1 << 22
# How much larger than the smallest the largest bucket of a tile may be.
_SLACK = 1.06


class _RowRuns(NamedTuple):
    """Runs of rows: where each starts, and how many rows it has."""

    starts: Places
    sizes: Places

    def chosen(self, mask: Marks | slice) -> "_RowRuns":
        """Return the buckets that a mask or a slice selects."""
        return _RowRuns(self.starts[mask], self.sizes[mask])

    def places(self) -> Places:
        """Return the places of all rows, bucket after bucket."""
        return spans(self.starts, self.sizes)


class _Pass(NamedTuple):
    """A way to divide a table into buckets: rows agree in the bits from `start` to `stop`."""

    table: int
    start: int
    stop: int


class _Path(NamedTuple):
    """The state of a search: the order of bits, how many leading ones agree, what was searched.

    A pair that agrees in all bits of a mask in `seen` was found on an earlier path.
    """

    layout: Layout
    held: int
    seen: tuple[int, ...]
    of_table: bool  # whether these are buckets of a table, not of a split


def near_pairs(view: View, k: int, jobs: int = 1) -> Iterator[NearPairs]:
    """Yield all pairs of distinct fingerprints within k, each once, in no particular order.

    With several `jobs`, this process reads the tables and others compare the rows.
    """
    search = _JoinSearch(view.index.plan.bits, k)
    if count_jobs(jobs) == 1:
        for rows, path in _buckets(view, k):
            yield from search.near(rows, path)
        return
    for (rows, path), found in mapped(search.some_near, _buckets(view, k), jobs):
        yield from search.near(rows, path) if found is None else found


def _buckets(view: View, k: int) -> Iterator[tuple[Rows, _Path]]:
    """Yield the rows in which near pairs are to be found, and the way that led to them."""
    if k == 0:
        return
    index = view.index
    bits = index.plan.bits
    seen: tuple[int, ...] = ()
    for bucket in _passes(index, k):
        layout = _layout_of(index.plan.tables[bucket.table].permutation)
        front = layout[bucket.start : bucket.stop]
        held = _mask_of(front, bits)
        if any(mask & ~held == 0 for mask in seen):
            continue  # a pair that agrees in more bits was found already
        path = _Path(_led_by(front, layout), len(front), seen, of_table=True)
        for rows in _chunks(view.txn, index, bucket):
            yield rows, path
        seen = (*seen, held)


def _passes(index: Index, k: int) -> Iterator[_Pass]:
    """Yield passes such that two fingerprints within k share a bucket in at least one.

    If a table is probed with r bits flipped, one of r + 1 pieces of its prefix isn't flipped.
    """
    for probes in index.plan.probes(k):
        prefix = index.plan.tables[probes.table].prefix
        pieces = max(mask.bit_count() for mask in probes.masks) + 1
        if pieces > prefix:
            # Fingerprints that differ in every bit of the prefix are wanted too.
            yield _Pass(probes.table, 0, 0)
            continue
        cuts = [prefix * piece // pieces for piece in range(pieces + 1)]
        for start, stop in pairwise(cuts):
            yield _Pass(probes.table, start, stop)


def _chunks(txn: ReadTransaction, index: Index, bucket: _Pass) -> Iterator[Rows]:
    """Yield complete buckets, sorted by the bits in which they agree."""
    pages = (index.home, *index.further)[bucket.table]
    words = index.home.columns - 1
    width = min(index.plan.bits, 64)
    if bucket.start == 0:
        yield from complete_buckets(_distinct(txn, pages, words), width - bucket.stop)
    else:
        layout = _layout_of(index.plan.tables[bucket.table].permutation)
        led = _led_by(layout[bucket.start : bucket.stop], layout)
        permutation = _between(layout, led, index.plan.bits)
        for rows in _gathered(txn, pages, words, width, bucket):
            yield _sort_rows(_permute(rows, permutation))


def _distinct(txn: ReadTransaction, pages: NumberPages, words: int) -> Iterator[Rows]:
    """Yield the fingerprints of a table in chunks, each fingerprint once."""
    last: list[int] = []
    scan = pages.scan(txn, columns=words)
    read = tracked(scan, f"compare in {pages.name}", "page", txn.entries(pages.name))
    for rows in gathered(read, _CHUNK):
        if pages.columns > words and len(rows[0]):
            fresh = differs(*rows)
            fresh[0] = last != [int(column[0]) for column in rows]
            last = [int(column[-1]) for column in rows]
            rows = [column[fresh] for column in rows]  # noqa: PLW2901
        if len(rows[0]):
            yield rows


def complete_buckets(chunks: Iterator[Rows], shift: int) -> Iterator[Rows]:
    """Cut chunks where the bits above `shift` change."""
    if shift >= 64:  # one bucket
        parts = list(chunks)
        if parts:
            yield joined(parts)
        return
    below = np.uint64(shift)
    kept: list[Rows] = []  # rows of one bucket, which may continue in the next chunk
    for rows in chunks:
        high = rows[0] >> below
        if kept and kept[-1][0][-1] >> below != high[0]:
            yield joined(kept)
            kept = []
        cut = int(high.searchsorted(high[-1]))
        if cut:
            yield joined([*kept, [column[:cut] for column in rows]])
            kept = []
        kept.append([column[cut:] for column in rows])
    if kept:
        yield joined(kept)


def _gathered(
    txn: ReadTransaction, pages: NumberPages, words: int, width: int, bucket: _Pass
) -> Iterator[Rows]:
    """Collect buckets of inner bits, as many as fit in memory for each scan of the table."""
    below = np.uint64(width - bucket.stop)
    mask = np.uint64((1 << bucket.stop - bucket.start) - 1)
    coarse = np.uint64(max(bucket.stop - bucket.start - _HISTOGRAM_BITS, 0))
    counts = np.zeros(1 << min(bucket.stop - bucket.start, _HISTOGRAM_BITS), np.int64)
    for rows in _distinct(txn, pages, words):
        values = (rows[0] >> below & mask) >> coarse
        counts += np.bincount(values.view(np.int64), minlength=len(counts))
    for some in portions(counts, _GATHERED):
        parts = []
        for rows in _distinct(txn, pages, words):
            values = (rows[0] >> below & mask) >> coarse
            chosen = values - np.uint64(some.start) < np.uint64(some.stop - some.start)
            parts.append([column[chosen] for column in rows])
        if parts:
            yield joined(parts)


class _JoinSearch:
    """Finds the near pairs among rows that are sorted by the leading bits in which they agree."""

    def __init__(self, bits: int, k: int) -> None:
        self._bits = bits
        self._k = k
        self._width = min(bits, 64)

    def some_near(self, bucket: tuple[Rows, _Path]) -> list[NearPairs] | None:
        """Return what `near` yields, in any process, or None if there is too much to hold."""
        held: list[NearPairs] = []
        size = 0
        for pairs in self.near(*bucket):
            held.append(pairs)
            size += len(pairs[-1])
            if size > _HELD:
                return None
        return held

    def near(self, rows: Rows, path: _Path) -> Iterator[NearPairs]:
        """Yield the near pairs within each bucket that no earlier path has found."""
        buckets = _buckets_of(rows, self._width - path.held)
        if not len(buckets.sizes) or self._splits(path, path.layout) is None:
            return
        large = buckets.sizes > 2 * (self._k + 1) * _SORT / _COMPARE
        yield from self._compare(rows, buckets.chosen(~large), path)
        if large.any():
            yield from self._near_in_large(rows, buckets.chosen(large), path)

    def _near_in_large(self, rows: Rows, buckets: _RowRuns, path: _Path) -> Iterator[NearPairs]:
        """Split large buckets again, all of them together if they are those of a table.

        A bucket that is still large after a split isn't evenly spread, so it is split by itself.
        """
        buckets = buckets.chosen(self._wanted(rows, buckets, path))
        step = max(len(buckets.sizes), 1) if path.of_table else 1
        for start in range(0, len(buckets.sizes), step):
            some = buckets.chosen(slice(start, start + step))
            places = some.places()
            own = [column[places] for column in rows]
            blocks = self._split(path, own, int(some.sizes.max()))
            if blocks:
                yield from self._deeper(own, path, blocks)
            else:
                yield from self._compare(rows, some, path)

    def _wanted(self, rows: Rows, buckets: _RowRuns, path: _Path) -> Marks:
        """Mark the buckets whose rows differ in each mask seen; others yield nothing new."""
        places = buckets.places()
        first = np.cumsum(buckets.sizes) - buckets.sizes
        changes = [
            np.bitwise_or.reduceat(
                column[places] ^ np.repeat(column[buckets.starts], buckets.sizes), first
            )
            for column in rows
        ]
        wanted = np.ones(len(buckets.sizes), np.bool_)
        here = _between(tuple(range(self._bits)), path.layout, self._bits)
        for mask in path.seen:
            wanted &= _differ(changes, here.apply_one(mask))
        return wanted

    def _deeper(self, rows: Rows, path: _Path, blocks: tuple[Layout, ...]) -> Iterator[NearPairs]:
        """Sort rows by each block in turn, and find near pairs that agree in it."""
        held, seen = path.layout[: path.held], path.seen
        for block in blocks:
            layout = _led_by((*held, *block), path.layout)
            permuted = _permute(rows, _between(path.layout, layout, self._bits))
            deeper = _Path(layout, path.held + len(block), seen, of_table=False)
            yield from self.near(_sort_rows(permuted), deeper)
            seen = (*seen, _mask_of(block, self._bits))

    def _compare(self, rows: Rows, buckets: _RowRuns, path: _Path) -> Iterator[NearPairs]:
        """Compare all rows of each bucket; drop pairs that an earlier path has found."""
        back = _between(path.layout, tuple(range(self._bits)), self._bits)
        for above, below, distances in _near_in_buckets(rows, buckets, self._k):
            first = _permute([column[above] for column in rows], back)
            second = _permute([column[below] for column in rows], back)
            changes = [one ^ other for one, other in zip(first, second, strict=True)]
            fresh = np.ones(len(distances), np.bool_)
            for mask in path.seen:
                fresh &= _differ(changes, mask)
            if fresh.any():
                first, second = ([word[fresh] for word in words] for words in (first, second))
                yield [*first, *second, distances[fresh]]

    def _split(self, path: _Path, rows: Rows, size: int) -> tuple[Layout, ...]:
        """Return the blocks that split buckets of about a size, none if that wouldn't pay.

        A sample shows which bits differ at all, and how many pairs agree in a block. A bucket is
        split only if that leaves clearly fewer comparisons, so that all splits together cost no
        more than to compare all rows with each other, whatever the fingerprints are.
        """
        count = len(rows[0])
        places = np.linspace(0, count - 1, min(count, _SAMPLE)).astype(np.int64)
        back = _between(path.layout, tuple(range(self._bits)), self._bits)
        words = _permute([column[places] for column in rows], back)
        above, below = np.triu_indices(len(places), 1)
        changes = [word[above] ^ word[below] for word in words]
        differing = 0
        for change in changes:
            differing = differing << 64 | int(np.bitwise_or.reduce(change))
        bits = tuple(bit for bit in path.layout if differing >> (self._bits - 1 - bit) & 1)
        compare = size * _COMPARE / 2
        best: tuple[float, tuple[Layout, ...]] = compare * _WORTH, ()
        for blocks in self._splits(path, bits) or ():
            agreeing = sum(
                1 - _differ(changes, _mask_of(block, self._bits)).mean() for block in blocks
            )
            best = min(best, (len(blocks) * _SORT + agreeing * compare, blocks))
        return best[1]

    def _splits(self, path: _Path, bits: Layout) -> list[tuple[Layout, ...]] | None:
        """List the ways to cut some bits into blocks such that every wanted pair agrees in one.

        A wanted pair differs somewhere in each mask seen. So of the bits outside some disjoint
        masks fewer than k can differ, and fewer blocks will do. If more than k masks are disjoint,
        no pair is wanted, and the result is None.
        """
        held, left = _mask_of(path.layout[: path.held], self._bits), self._k
        taken, longest = held, self._width - path.held
        splits = []
        for mask in (0, *(mask & ~held for mask in path.seen)):
            if mask & taken:
                continue
            taken |= mask
            left -= 1 if mask else 0
            if left < 0:
                return None
            free = [bit for bit in bits if not taken >> (self._bits - 1 - bit) & 1]
            if longest > 0 and len(free) > left:
                splits.append(_blocks(free, left + 1, longest))
        return splits


def _differ(changes: Rows, mask: int) -> Marks:
    """Mark the pairs that differ somewhere in a mask."""
    parts = (mask,) if len(changes) == 1 else (mask >> 64, mask & (1 << 64) - 1)
    differs = np.zeros(len(changes[0]), np.bool_)
    for change, part in zip(changes, parts, strict=True):
        differs |= change & np.uint64(part) != 0
    return differs


def _blocks(bits: list[int], count: int, longest: int) -> tuple[Layout, ...]:
    cuts = [len(bits) * block // count for block in range(count + 1)]
    return tuple(tuple(bits[start:stop][:longest]) for start, stop in pairwise(cuts))


def _sort_rows(rows: Rows) -> Rows:
    """Sort rows by their first word."""
    if len(rows) == 1:
        return [np.sort(rows[0])]
    order = np.argsort(rows[0])
    return [column[order] for column in rows]


def _permute(rows: Rows, permutation: Permutation) -> Rows:
    """Permute the bits of all rows."""
    if permutation.identity:
        return rows
    if len(rows) == 1:
        return [permutation.apply(rows[0])]
    both = permutation.apply(np.stack(rows, axis=-1))
    return [np.ascontiguousarray(both[:, word]) for word in range(2)]


@lru_cache(maxsize=256)
def _layout_of(permutation: Permutation) -> Layout:
    """Return the order in which a permutation puts the bits."""
    return tuple(
        bit for start, length in permutation.blocks for bit in range(start, start + length)
    )


def _led_by(front: Layout, layout: Layout) -> Layout:
    """Move some bits to the front; the others keep their order."""
    moved = set(front)
    return (*front, *(bit for bit in layout if bit not in moved))


def _mask_of(layout: Layout, bits: int) -> int:
    """Return the mask of some bits of a fingerprint."""
    return sum(1 << bits - 1 - bit for bit in layout)


@lru_cache(maxsize=256)
def _between(current: Layout, wanted: Layout, bits: int) -> Permutation:
    """Return the permutation that takes rows from one layout to another."""
    place = {bit: at for at, bit in enumerate(current)}
    blocks: list[tuple[int, int]] = []
    for bit in wanted:
        at = place[bit]
        if blocks and sum(blocks[-1]) == at:
            blocks[-1] = (blocks[-1][0], blocks[-1][1] + 1)
        else:
            blocks.append((at, 1))
    return Permutation(bits, tuple(blocks))


# The dense comparison. Buckets of about the same size are put side by side as the columns of one
# array, a tile. Its upper rows against its lower rows, at every shift, are all pairs of every
# bucket, each once, without an index in the innermost loop.


def _buckets_of(rows: Rows, shift: int) -> _RowRuns:
    """Find the runs of at least two rows whose first words agree above the `shift` lowest bits."""
    count = len(rows[0])
    high = rows[0] >> np.uint64(shift)
    same = np.zeros(count + 1, np.bool_)
    np.equal(high[1:], high[:-1], out=same[1:count])
    edges = (same[1:] != same[:-1]).nonzero()[0]
    starts, lasts = edges[::2], edges[1::2]
    return _RowRuns(starts, lasts - starts + 1)


def near_rows(rows: Rows, k: int) -> Iterator[Sequence[NDArray[Any]]]:
    """Yield three columns: the places of all pairs of rows within k, and their distances."""
    yield from _near_in_buckets(rows, _buckets_of(rows, 64), k)


def _near_in_buckets(rows: Rows, buckets: _RowRuns, k: int) -> Iterator[Sequence[NDArray[Any]]]:
    """Yield the pairs of places in the same bucket whose rows are within k, and their distances."""
    found = (part for tile in _tiles(buckets) for part in _near_in_tile(rows, tile, k))
    yield from gathered(found, _PAIRS)


def _tiles(buckets: _RowRuns) -> Iterator[_RowRuns]:
    """Yield buckets of about the same size together, as many as a tile takes."""
    largest = buckets.sizes.max(initial=0)
    # numpy sorts 16-bit numbers by radix, without comparisons.
    narrow = buckets.sizes.astype(np.uint16) if largest < 1 << 16 else buckets.sizes
    order = np.argsort(narrow, kind="stable")
    starts, sizes = buckets.starts[order], buckets.sizes[order]
    done = 0
    while done < len(sizes):
        least = int(sizes[done])
        stop = int(sizes.searchsorted(int(least * _SLACK), "right"))
        stop = max(done + 1, min(stop, done + _TILE // least))
        yield _RowRuns(starts[done:stop], sizes[done:stop])
        done = stop


def _near_in_tile(
    rows: Rows, buckets: _RowRuns, k: int
) -> Iterator[tuple[Places, Places, Distances]]:
    starts, sizes = buckets
    height, width = int(sizes[-1]), len(sizes)
    if width == 1:
        begin = int(starts[0])
        words = [column[begin : begin + height] for column in rows]
    else:
        places = starts + np.arange(height)[:, np.newaxis]
        # Below its own rows a smaller bucket has rows of others; their matches are dropped.
        words = [column.take(places, mode="clip").reshape(-1) for column in rows]
    # A single bucket may be larger than the cache, so each step is bounded too.
    steps: Iterable[int] = range(0, width * height, _TILE)
    if height > _TILE:
        steps = tracked(steps, "compare fingerprints", "fingerprint", height, lambda _: _TILE)
    for first in steps:
        last = min(first + _TILE, width * height)
        yield from _shifted(words, first, last, buckets, k)


def _shifted(
    words: Rows, first: int, last: int, buckets: _RowRuns, k: int
) -> Iterator[tuple[Places, Places, Distances]]:
    """Compare the words from first to last with those below them in the tile, shift by shift."""
    starts, sizes = buckets
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
        at, bucket = np.divmod(hits + first, width)
        own = at + shift < sizes[bucket]
        if own.any():
            upper = starts[bucket[own]] + at[own]
            yield upper, upper + shift, near[hits[own]]
