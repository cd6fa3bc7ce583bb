"""Find the fingerprints near many others at once: sorted per table, compared as arrays.

Queries whose ranges are the same are a group. The first of every group meet the rows of a block in
one pass over it, then all the second ones, and so on; when a pass would meet few rows, the rest is
compared pair by pair. So no loop runs over queries or candidates.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.storage import ReadTransaction
from fpdb.storage.columns import Column, Rows
from fpdb.tables.bits import Fingerprints, to_array
from fpdb.tables.blocks import Block, Places, blocks, pairs
from fpdb.tables.index import Index

Distances = NDArray[np.uint8]
Marks = NDArray[np.bool_]
_Found = tuple[Places, Rows, Distances]

# A pass over a block pays if this part of its rows are candidates, and so many at least.
_PART = 4
_LEAST = 1 << 12
# Near fingerprints that are held for many queries.
_HELD = 1 << 22
# Ranges that are sought together.
_PROBED = 1 << 22


class Near(NamedTuple):
    """Fingerprints near queries, as columns, sorted by query, distance and fingerprint."""

    queries: Places
    words: Rows
    distances: Distances


class _Probe(NamedTuple):
    """Queries in the order of their ranges: the words to compare, and where each query stands.

    `bounds` has the first query of each group, and the end; `lows` and `highs` are its range.
    """

    words: Rows
    queries: Places
    bounds: Places
    lows: Column
    highs: Column


def near_each(
    txn: ReadTransaction, index: Index, fingerprints: Fingerprints, k: int, budget: int | None
) -> tuple[Near, Marks]:
    """Find all distinct fingerprints within k of each query, and mark what is complete.

    The queries are sorted and distinct. One that may exceed its budget is asked for itself.
    """
    own = index.words(fingerprints)
    read = np.zeros(len(fingerprints), np.int64)
    spare = 0  # how many rows a query for itself reads at most outside of its ranges
    haul = _Haul(len(own), alone=len(fingerprints) == 1)
    for table, permutation, below, masks in index.routes(k):
        permuted = index.words(permutation.apply(fingerprints))
        behind = 64 * (len(permuted) - 1)  # a prefix never reaches into a second word
        longest = 0
        for some in _portions([mask >> behind for mask in masks], len(fingerprints)):
            probe = _probe(permuted, some, below >> behind)
            for block in blocks(txn, table, probe.lows, probe.highs, len(permuted)):
                longest = max(longest, block.longest)
                for queries, changes, distances in _within(probe, block, k, read, budget):
                    array = changes[0] if len(changes) == 1 else np.stack(changes, axis=-1)
                    back = index.words(permutation.invert(array))
                    words = [word[queries] ^ change for word, change in zip(own, back, strict=True)]
                    haul.add((queries, words, distances))
        spare += longest * min(3 * len(masks), txn.entries(table.name))
    complete = np.ones(len(fingerprints), np.bool_)
    found = haul.parts
    if budget is not None and (over := read + spare > budget).any():
        found = [_chosen(part, ~over[part[0]]) for part in found]
        for query in over.nonzero()[0].tolist():
            [fingerprint] = index.numbers(fingerprints[query : query + 1])
            nearby = index.near(txn, fingerprint, k, budget)
            complete[query] = nearby.complete
            array = to_array(nearby.distances, index.plan.bits)
            distances = np.array([*nearby.distances.values()], np.uint8)
            found.append((np.full(len(array), query), index.words(array), distances))
    return _sorted(found, len(own)), complete


class CrowdedError(Exception):
    """Many queries together have more near fingerprints than are held; fewer will do."""


class _Haul:
    """What was found so far; repetitions are left out from time to time."""

    def __init__(self, words: int, *, alone: bool) -> None:
        self.parts: list[_Found] = []
        self._words = words
        self._alone = alone
        self._size = 0
        self._limit = _HELD

    def add(self, part: _Found) -> None:
        """Keep some more."""
        self.parts.append(part)
        self._size += len(part[0])
        if self._size > self._limit:
            near = _sorted(self.parts, self._words)
            self.parts, self._size = [(near.queries, near.words, near.distances)], len(near.queries)
            if self._size > _HELD and not self._alone:
                raise CrowdedError
            self._limit = max(_HELD, 2 * self._size)


def _portions(masks: list[int], queries: int) -> Iterator[list[int]]:
    """Cut masks into portions that are probed together, so that pages are read once for each."""
    size = max(_PROBED // max(queries, 1), 1)
    for start in range(0, len(masks), size):
        yield masks[start : start + size]


def _probe(permuted: Rows, masks: list[int], below: int) -> _Probe:
    """Sort queries by the ranges of their probes, which are never wider than the first word."""
    free = np.uint64(below)
    lows = ((permuted[0] & ~free) ^ np.array(masks, np.uint64)[:, np.newaxis]).reshape(-1)
    order = np.argsort(lows)
    lows = lows[order]
    [heads] = differing([lows]).nonzero()
    lows = lows[heads]
    queries = order % max(len(permuted[0]), 1)
    words = [word[queries] for word in permuted]
    return _Probe(words, queries, np.append(heads, len(order)), lows, lows | free)


def _within(
    probe: _Probe, block: Block, k: int, read: Places, budget: int | None
) -> Iterator[_Found]:
    """Compare a block's rows with the queries in whose ranges they lie.

    Gives queries, the bits in which rows within k differ from them, and the distances.
    """
    rows = block.rows
    first = int(probe.highs.searchsorted(rows[0][0]))
    last = int(probe.lows.searchsorted(rows[0][-1], "right"))
    if first >= last:
        return
    top, bottom = probe.bounds[first], probe.bounds[last]
    queries, words = probe.queries[top:bottom], [word[top:bottom] for word in probe.words]
    members = np.diff(probe.bounds[first : last + 1])
    lows, highs = probe.lows[first:last], probe.highs[first:last]
    starts = rows[0].searchsorted(lows)
    counts = rows[0].searchsorted(highs, "right") - starts
    if budget is not None:
        np.add.at(read, queries, np.repeat(counts, members))  # one may be there with several probes
        kept = read[queries] <= budget
        if not kept.all():
            heads = probe.bounds[first:last] - top
            members = np.add.reduceat(kept, heads, dtype=np.int64)
            queries, words = queries[kept], [word[kept] for word in words]
    fresh = differing(rows)
    if not fresh.all():  # of the documents with one fingerprint, one is enough
        rows = [row[fresh] for row in rows]
        starts = rows[0].searchsorted(lows)
        counts = rows[0].searchsorted(highs, "right") - starts
    heads = np.cumsum(members) - members
    done = 0  # how many queries of each group have met the rows
    while True:
        [active] = ((members > done) & (counts > 0)).nonzero()
        meeting = int(counts[active].sum())
        if meeting < max(len(rows[0]) // _PART, _LEAST):
            break
        end = int(starts[active[-1]] + counts[active[-1]])
        asking = heads[active] + done
        hits, changes, distances = _pass(
            rows, [word[asking] for word in words], k, starts[active], end
        )
        if len(hits):
            yield queries[asking[hits]], changes, distances
        done += 1
    left = np.maximum(members - done, 0)
    if meeting:
        group = np.repeat(np.arange(len(left)), left)
        asking = np.arange(len(group)) + np.repeat(heads + done - (np.cumsum(left) - left), left)
        for some, places in pairs(starts[group], counts[group]):
            at = asking[some]
            changes = [word[at] ^ row[places] for word, row in zip(words, rows, strict=True)]
            distances = _count(changes)
            [hits] = (distances <= k).nonzero()
            if len(hits):
                yield queries[at[hits]], [change[hits] for change in changes], distances[hits]


def _pass(rows: Rows, words: Rows, k: int, starts: Places, end: int) -> _Found:
    """Compare each row with the last query whose range began before it.

    Rows between two ranges are compared too: to leave them out would take longer, and what is near
    is near.
    """
    begin = int(starts[0])
    lengths = np.diff(starts, append=end)
    changes = []
    for word, row in zip(words, rows, strict=True):
        change = np.repeat(word, lengths)
        change ^= row[begin:end]
        changes.append(change)
    distances = _count(changes)
    [hits] = (distances <= k).nonzero()
    places = starts.searchsorted(hits + begin, "right") - 1
    return places, [change[hits] for change in changes], distances[hits]


def _count(changes: Rows) -> Distances:
    distances: Distances = np.bitwise_count(changes[0])
    return distances if len(changes) == 1 else distances + np.bitwise_count(changes[1])


def differing(rows: Sequence[NDArray[Any]]) -> Marks:
    """Mark the rows that differ from the one before."""
    fresh = np.ones(len(rows[0]), np.bool_)
    np.not_equal(rows[0][1:], rows[0][:-1], out=fresh[1:])
    for row in rows[1:]:
        fresh[1:] |= row[1:] != row[:-1]
    return fresh


def _sorted(found: list[_Found], words: int) -> Near:
    """Sort what several tables may have found, and leave out repetitions."""
    if not found:
        return Near(np.empty(0, np.int64), [np.empty(0, np.uint64)] * words, np.empty(0, np.uint8))
    queries = np.concatenate([part[0] for part in found])
    columns = [np.concatenate(parts) for parts in zip(*(part[1] for part in found), strict=True)]
    distances = np.concatenate([part[2] for part in found])
    order = np.lexsort((*columns[::-1], distances, queries))
    queries, distances = queries[order], distances[order]
    columns = [column[order] for column in columns]
    fresh = differing([queries, *columns])
    return Near(queries[fresh], [column[fresh] for column in columns], distances[fresh])


def _chosen(found: _Found, marks: Marks) -> _Found:
    return found[0][marks], [column[marks] for column in found[1]], found[2][marks]
