"""From the fingerprints near many queries to documents, which many queries may share."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.errors import InputError
from fpdb.storage import ReadTransaction
from fpdb.storage.columns import Column, Rows
from fpdb.tables.batch import CrowdedError, Distances, Marks, Near, differing, near_each
from fpdb.tables.bits import Fingerprints, order
from fpdb.tables.blocks import Places, blocks, pairs
from fpdb.tables.index import Index

# Hits that are given at once: beyond these, their arrays take gigabytes.
MOST_HITS = 1 << 27


class Hits(NamedTuple):
    """Matches as columns: the place of the query, the id of the document, the distance.

    They are sorted by these, the distance before the id. `complete` has a mark for each query,
    which is False if a budget ended its search.
    """

    queries: Places
    ids: Column
    distances: NDArray[np.uint8]
    complete: NDArray[np.bool_]


@dataclass(frozen=True)
class Together:
    """What is near many queries; equal ones share it.

    Query i asks for `which[i]`; what is near that stands in `near` from `bounds[which[i]]` on; the
    documents of a row there are the ids of the run `runs[row]`.
    """

    which: Places
    bounds: Places
    near: Near
    complete: Marks
    runs: Places
    run_bounds: Places
    ids: Column

    def near_one(self, place: int) -> tuple[list[tuple[int, list[int]]], bool]:
        """Give distances with ids, the nearest first, and whether that is complete."""
        which = self.which[place]
        start, stop = self.bounds[which : which + 2].tolist()
        found = []
        for apart, run in zip(
            self.near.distances[start:stop].tolist(), self.runs[start:stop].tolist(), strict=True
        ):
            first, last = self.run_bounds[run : run + 2].tolist()
            found.append((apart, self.ids[first:last].tolist()))
        return found, bool(self.complete[which])

    def hits(self, limit: int | None, most: int | None) -> Hits:
        """Give matches as columns; of each query so many at most, the nearest.

        A query with more than `most` isn't complete, but one that needs no more than its limit is.
        """
        queries, distances = self.near.queries, self.near.distances
        counts = np.diff(self.run_bounds)[self.runs]
        before = _before(counts, queries)
        complete = self.complete.copy()
        if limit is not None:
            # Of equal distances all are needed to find the lowest ids.
            needed = _at_level(before, queries, distances) < limit
            counts = np.where(needed, counts, 0)
        if most is not None:
            complete &= np.bincount(queries, counts, len(complete)) <= most
            counts = np.clip(counts, 0, np.maximum(most - before, 0))
        if limit is not None:
            counts = np.minimum(counts, limit)
        sizes = np.bincount(queries, counts, len(complete)).astype(np.int64)
        if limit is not None:
            sizes = np.minimum(sizes, limit)
        _require_room(int(sizes[self.which].sum()))
        queries, distances = np.repeat(queries, counts), np.repeat(distances, counts)
        ids = self.ids[_spans(self.run_bounds[self.runs], counts)]
        sequence = np.lexsort((ids, distances, queries))
        if limit is not None:
            sequence = sequence[_before(np.ones_like(queries), queries) < limit]
        firsts = np.cumsum(sizes) - sizes
        asked = sizes[self.which]
        sequence = sequence[_spans(firsts[self.which], asked)]
        places = np.repeat(np.arange(len(asked)), asked)
        return Hits(places, ids[sequence], distances[sequence], complete[self.which])


def find_together(
    txn: ReadTransaction,
    index: Index,
    fingerprints: Fingerprints,
    k: int,
    *,
    budget: int | None = None,
    most: int | None = None,
) -> Together:
    """Find what is near each of many fingerprints, in any order and as often as they come.

    A query reads `budget` candidates at most; of a fingerprint at most one id more than `most` is
    looked up.
    """
    sequence = order(fingerprints)
    arranged = fingerprints[sequence]
    fresh = differing(index.words(arranged))
    which = np.empty(len(fresh), np.int64)
    which[sequence] = np.cumsum(fresh) - 1
    near, complete = near_each(txn, index, arranged[fresh], k, budget)
    bounds = near.queries.searchsorted(np.arange(len(complete) + 1))
    sequence = np.lexsort(near.words[::-1])
    words = [word[sequence] for word in near.words]
    fresh = differing(words)
    runs = np.empty(len(fresh), np.int64)
    runs[sequence] = np.cumsum(fresh) - 1
    run_bounds, ids = ids_of(txn, index, [word[fresh] for word in words], most)
    return Together(which, bounds, near, complete, runs, run_bounds, ids)


def near_many(
    txn: ReadTransaction,
    index: Index,
    fingerprints: Fingerprints,
    k: int,
    *,
    limit: int | None = None,
    budget: int | None = None,
    most: int | None = None,
) -> Hits:
    """Find all documents within k of each fingerprint, in the order of query, distance and id."""
    try:
        found = find_together(txn, index, fingerprints, k, budget=budget, most=most)
    except CrowdedError:
        half = len(fingerprints) // 2
        parts = [
            near_many(txn, index, part, k, limit=limit, budget=budget, most=most)
            for part in (fingerprints[:half], fingerprints[half:])
        ]
        parts[1] = parts[1]._replace(queries=parts[1].queries + half)
        _require_room(sum(len(part.ids) for part in parts))
        return Hits(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    return found.hits(limit, most)


def ids_of(
    txn: ReadTransaction, index: Index, words: Rows, most: int | None = None
) -> tuple[Places, Column]:
    """Find the ids of sorted, distinct fingerprints: where the run of each begins, and all ids."""
    count = len(words[0])
    owners, ids = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
    got = np.zeros(count, np.int64)
    firsts = words[0][differing(words[:1])]
    for rows, _ in blocks(txn, index.home, firsts, firsts, index.home.columns) if count else ():
        first = int(words[0].searchsorted(rows[0][0]))
        last = int(words[0].searchsorted(rows[0][-1], "right"))
        starts = rows[0].searchsorted(words[0][first:last])
        counts = rows[0].searchsorted(words[0][first:last], "right") - starts
        if len(words) == 1 and most is not None:
            counts = np.minimum(counts, most + 1 - got[first:last])
            got[first:last] += counts
        for some, places in pairs(starts, counts):
            asking, numbers = some + first, rows[-1][places]
            if len(words) > 1:
                same = words[1][asking] == rows[1][places]
                asking, numbers = asking[same], numbers[same]
                if most is not None:
                    rank = np.arange(len(asking)) - asking.searchsorted(asking)
                    kept = got[asking] + rank <= most
                    asking, numbers = asking[kept], numbers[kept]
                    got += np.bincount(asking, minlength=count)
            owners.append(asking)
            ids.append(numbers)
    owner, numbers = np.concatenate(owners), np.concatenate(ids)
    if len(words) > 1:  # fingerprints with the same first word may take turns
        sequence = np.argsort(owner, kind="stable")
        owner, numbers = owner[sequence], numbers[sequence]
    return owner.searchsorted(np.arange(count + 1)), numbers


def _before(counts: Places, queries: Places) -> Places:
    """Count what comes before each row, of rows of the same query."""
    before = np.cumsum(counts) - counts
    return before - before[queries.searchsorted(queries)]


def _at_level(before: Places, queries: Places, distances: Distances) -> Places:
    """Give what comes before the first row with the same query and distance."""
    heads = np.where(differing([queries, distances]), np.arange(len(queries)), 0)
    return before[np.maximum.accumulate(heads)]


def _spans(starts: Places, counts: Places) -> Places:
    """Give the places of many runs, one behind the other."""
    shifts = starts[: len(counts)] - (np.cumsum(counts) - counts)
    places: Places = np.arange(int(counts.sum())) + np.repeat(shifts, counts)
    return places


def _require_room(hits: int) -> None:
    if hits > MOST_HITS:
        raise InputError(
            f"the answer has {hits:,} hits, at most {MOST_HITS:,} are given at once",
            hint="ask for fewer fingerprints at a time, or give a limit",
        )
