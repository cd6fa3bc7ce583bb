"""Join all fingerprints: find every pair of distinct fingerprints within k, each once, streamed.

A pass reads a table in chunks of complete buckets; the fingerprints of a bucket agree in some bits.
A bucket that is too large to compare all with all is split: two fingerprints within k that differ
in few of the other bits agree in at least one block of them. A pair is yielded in the first pass
and the first block that find it, which its own bits show, so no pair has to be remembered.

The bits of all rows of a pass are in the order of its table, and so are the masks.

The inner loop is `_near_in_buckets`, which compares all rows of each bucket with each other;
`near_rows` runs it on an array that is in no table.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import (
    Marks,
    Places,
    Rows,
    differs,
    gathered,
    joined,
    portions,
    spans,
)
from fpdb.documents.catalog import View
from fpdb.progress import tracked
from fpdb.storage import ReadTransaction
from fpdb.tables import Permutation
from fpdb.tables.bits import Distances, as_words, of_words
from fpdb.tables.sorted_pages import NumberPages
from fpdb.threads import count_jobs, mapped

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
# Rows of large buckets that are split together, and of a bucket that is split by itself, because
# its bits may be spread in another way.
_TOGETHER = 1 << 17
_CROWD = 1 << 13
# Rows sampled to see how their bits are spread, and the share of comparisons that a split may
# leave at most.
_SAMPLE = 100
_WORTH = 0.7
# Words compared at once: with the results beside them they fit into an L2 cache.
_TILE = 1 << 15
# Pairs collected before they are yielded.
_PAIRS = 1 << 16
# Pairs that a thread returns together.
_HELD = 1 << 22
# How much larger than the smallest the largest bucket of a tile may be.
_SLACK = 1.06


class _RowRuns(NamedTuple):
    """Runs of rows: where each starts, and how many rows it has."""

    starts: Places
    sizes: Places

    def chosen(self, mask: Marks | slice) -> "_RowRuns":
        return _RowRuns(self.starts[mask], self.sizes[mask])


class _BucketRows(NamedTuple):
    """Rows of a table, sorted by the bits of the mask `held`.

    Pairs that agree in all bits of a mask in `seen` are found elsewhere. `permutation` is that of
    the table.
    """

    rows: Rows
    held: int
    seen: tuple[int, ...]
    permutation: Permutation


def near_pairs(view: View, k: int, jobs: int = 1) -> Iterator[NearPairs]:
    """Yield all pairs of distinct fingerprints within k, each once, in no particular order.

    With several `jobs`, this thread reads the tables and others compare the rows.
    """
    parts = _parts(view, k) if k else iter(())
    if count_jobs(jobs) == 1:
        for part in parts:
            yield from _near(part, k)
        return

    def few_near(part: _BucketRows) -> list[NearPairs] | None:
        """Return the pairs of a part, or None if they are too many to hold."""
        held: list[NearPairs] = []
        size = 0
        for pairs in _near(part, k):
            held.append(pairs)
            size += len(pairs[-1])
            if size > _HELD:
                return None
        return held

    for part, held in mapped(few_near, parts, jobs):
        yield from _near(part, k) if held is None else held


def _parts(view: View, k: int) -> Iterator[_BucketRows]:
    """Yield rows such that two fingerprints within k are in one bucket of at least one part.

    If a table is probed with r bits flipped, one of r + 1 pieces of its prefix isn't flipped.
    """
    index, words = view.index, view.index.home.columns - 1
    seen: list[int] = []  # masks of fingerprints as they are
    for probes in index.plan.probes(k):
        table, pages = index.plan.tables[probes.table], (index.home, *index.further)[probes.table]
        permutation, bits = table.permutation, index.plan.bits
        pieces = max(mask.bit_count() for mask in probes.masks) + 1
        if pieces > table.prefix:  # pairs that differ in every bit of the prefix are wanted too
            pieces, prefix = 1, 0
        else:
            prefix = table.prefix
        cuts = [prefix * piece // pieces for piece in range(pieces + 1)]
        for start, stop in pairwise(cuts):
            held = (1 << stop - start) - 1 << bits - stop
            mask = permutation.inverse.apply_one(held)
            if any(not earlier & ~mask for earlier in seen):
                continue  # a pair that agrees in more bits was found already
            chunks = (
                _gathered(view.txn, pages, words, min(bits, 64) - stop, stop - start)
                if start
                else complete_buckets(_distinct(view.txn, pages, words), min(bits, 64) - stop)
            )
            for rows in chunks:
                part = _sorted(rows, held) if start else rows
                yield _BucketRows(part, held, tuple(map(permutation.apply_one, seen)), permutation)
            seen.append(mask)


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
    bucket: list[Rows] = []  # rows of one bucket, which may continue in the next chunk
    for rows in chunks:
        high = rows[0] >> below
        if bucket and bucket[-1][0][-1] >> below != high[0]:
            yield joined(bucket)
            bucket = []
        cut = int(high.searchsorted(high[-1]))
        if cut:
            yield joined([*bucket, [column[:cut] for column in rows]])
            bucket = []
        bucket.append([column[cut:] for column in rows])
    if bucket:
        yield joined(bucket)


def _gathered(
    txn: ReadTransaction, pages: NumberPages, words: int, shift: int, width: int
) -> Iterator[Rows]:
    """Collect buckets of inner bits, as many as fit in memory for each scan of the table.

    Rows of a bucket agree in `width` bits above `shift`.
    """
    coarse = min(width, _HISTOGRAM_BITS)
    below, mask = np.uint64(shift + width - coarse), np.uint64((1 << coarse) - 1)
    counts = np.zeros(1 << coarse, np.int64)
    for rows in _distinct(txn, pages, words):
        values = rows[0] >> below & mask
        counts += np.bincount(values.view(np.int64), minlength=len(counts))
    for portion in portions(counts, _GATHERED):
        parts = []
        for rows in _distinct(txn, pages, words):
            values = rows[0] >> below & mask
            chosen = values - np.uint64(portion.start) < np.uint64(portion.stop - portion.start)
            parts.append([column[chosen] for column in rows])
        if parts:
            yield joined(parts)


def _near(part: _BucketRows, k: int) -> Iterator[NearPairs]:
    back, count = part.permutation.inverse, len(part.rows)
    for *words, distances in _near_in(part.rows, part.held, part.seen, k):
        sides = (back.apply(of_words(side)) for side in (words[:count], words[count:]))
        yield [*(word for side in sides for word in as_words(side)), distances]


def _near_in(rows: Rows, held: int, seen: tuple[int, ...], k: int) -> Iterator[NearPairs]:
    """Yield the near pairs of rows sorted by `held` that agree there, but in no mask of `seen`.

    Small buckets are compared. Large ones are split, many at once, unless that wouldn't pay.
    """
    fresh = np.append(differs(*_masked(rows, held)), True)
    edges = (fresh[1:] != fresh[:-1]).nonzero()[0]  # rows of their own are in no bucket
    buckets = _RowRuns(edges[::2], edges[1::2] - edges[::2] + 1)
    large = buckets.sizes > 2 * (k + 1) * _SORT / _COMPARE
    yield from _compared(rows, buckets.chosen(~large), seen, k)
    buckets = buckets.chosen(large)
    shares = np.where(buckets.sizes > _CROWD, _TOGETHER, buckets.sizes)
    for portion in portions(shares, _TOGETHER):
        few = buckets.chosen(portion)
        places = spans(*few)
        columns = [column[places] for column in rows]
        blocks = _blocks(columns, held, seen, k, int(few.sizes.max()))
        if blocks is None:
            yield from _compared(rows, few, seen, k)
            continue
        earlier = seen
        for block in blocks:
            yield from _near_in(_sorted(columns, held | block), held | block, earlier, k)
            earlier = (*earlier, block)


def _compared(rows: Rows, buckets: _RowRuns, seen: tuple[int, ...], k: int) -> Iterator[NearPairs]:
    """Compare all rows of each bucket, and yield the near pairs that agree in no mask seen."""
    for above, below, distances in _near_in_buckets(rows, buckets, k):
        first, second = ([column[side] for column in rows] for side in (above, below))
        changes = [one ^ other for one, other in zip(first, second, strict=True)]
        fresh = np.ones(len(distances), np.bool_)
        for mask in seen:
            fresh &= _differ(changes, mask)
        if fresh.any():
            yield [column[fresh] for column in (*first, *second, distances)]


def _blocks(
    rows: Rows, held: int, seen: tuple[int, ...], k: int, size: int
) -> tuple[int, ...] | None:
    """Return blocks of bits such that every wanted pair in a bucket agrees in one of them.

    A wanted pair differs somewhere in each mask seen. So of the bits outside some disjoint masks
    fewer than k can differ, and fewer blocks will do; none if no pair is wanted. The result is None
    if it wouldn't pay to split buckets of this size. A sample shows how many pairs agree in a
    block. Only splits that leave clearly fewer comparisons are taken, so that all together cost no
    more than to compare all rows with each other, whatever the fingerprints are.
    """
    differing = 0
    for column in rows:
        differing = differing << 64 | int(np.bitwise_or.reduce(column ^ column[0]))
    differing &= ~held
    places = np.linspace(0, len(rows[0]) - 1, min(len(rows[0]), _SAMPLE)).astype(np.int64)
    above, below = np.triu_indices(len(places), 1)
    changes = [column[places[above]] ^ column[places[below]] for column in rows]
    compare = size * _COMPARE / 2
    least, best = compare * _WORTH, None
    taken, left = 0, k
    for mask in (0, *seen):
        bits = mask & differing & ~held
        if mask and not bits:
            return ()
        if bits & taken:
            continue
        taken |= bits
        left -= bool(mask)
        if left < 0:
            return ()
        blocks = _cut(differing & ~taken, left + 1)
        agreeing = sum(1 - _differ(changes, block).mean() for block in blocks)
        cost = len(blocks) * _SORT + agreeing * compare
        if all(blocks) and cost < least:
            least, best = cost, blocks
    return best


def _cut(mask: int, count: int) -> tuple[int, ...]:
    bits = [1 << bit for bit in range(mask.bit_length()) if mask >> bit & 1]
    cuts = [len(bits) * block // count for block in range(count + 1)]
    return tuple(sum(bits[start:stop]) for start, stop in pairwise(cuts))


def _masked(rows: Rows, mask: int) -> Rows:
    """Return rows with only the bits of a mask."""
    parts = (mask >> 64 * word & (1 << 64) - 1 for word in reversed(range(len(rows))))
    return [column & np.uint64(part) for column, part in zip(rows, parts, strict=True)]


def _differ(changes: Rows, mask: int) -> Marks:
    """Mark the pairs that differ somewhere in a mask."""
    differing: Marks = np.logical_or.reduce([part != 0 for part in _masked(changes, mask)])
    return differing


def _sorted(rows: Rows, mask: int) -> Rows:
    keys = _masked(rows, mask)
    order = np.argsort(keys[0]) if len(keys) == 1 else np.lexsort(keys[::-1])
    return [column[order] for column in rows]


# The dense comparison. Buckets of about the same size are put side by side as the columns of one
# array, a tile. Its upper rows against its lower rows, at every shift, are all pairs of every
# bucket, each once, without an index in the innermost loop.


def near_rows(rows: Rows, k: int) -> Iterator[Sequence[NDArray[Any]]]:
    """Yield three columns: the places of all pairs of rows within k, and their distances."""
    if len(rows[0]):
        yield from _near_in_buckets(
            rows, _RowRuns(np.zeros(1, np.int64), np.array([len(rows[0])])), k
        )


def _near_in_buckets(rows: Rows, buckets: _RowRuns, k: int) -> Iterator[Sequence[NDArray[Any]]]:
    """Yield the pairs of places in the same bucket whose rows are within k, and their distances."""
    pairs = (part for tile in _tiles(buckets) for part in _near_in_tile(rows, tile, k))
    yield from gathered(pairs, _PAIRS)


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
        inside = at + shift < sizes[bucket]
        if inside.any():
            upper = starts[bucket[inside]] + at[inside]
            yield upper, upper + shift, near[hits[inside]]
