"""Find the fingerprints near many others at once: sorted per table, each page read once."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fpdb import kernels
from fpdb.arrays import Column, Marks, Places, Rows, differs, joined, portions, ranked, spans
from fpdb.errors import InputError
from fpdb.storage import ReadTransaction
from fpdb.tables.bits import (
    Distances,
    Fingerprints,
    as_words,
    distances,
    of_words,
    order,
    to_array,
    to_ints,
)
from fpdb.tables.index import Index, Route

# Pairs of a query and a row that are made at once.
_PAIRS = 1 << 16
# Near fingerprints that are held for many queries.
_HELD = 1 << 22
# Ranges that are looked up together.
_PROBED = 1 << 22
_NO_LIMIT = 1 << 62
# Hits that are returned at once: beyond these, their arrays take gigabytes.
MOST_HITS = 1 << 27


class Hits(NamedTuple):
    """Matches as columns: the place of the query, the id of the document, the distance.

    They are sorted by query, distance and id. `complete` has a mark for each query, which is False
    if a budget ended its search.
    """

    queries: Places
    ids: Column
    distances: Distances
    complete: Marks


class _CrowdedError(Exception):
    """Many queries together have more near fingerprints than are held."""


class _NearRows(NamedTuple):
    """Fingerprints near queries, as columns: the query's place, the words, the distance."""

    queries: Places
    words: Rows
    distances: Distances

    def chosen(self, marks: Marks) -> "_NearRows":
        words = [word[marks] for word in self.words]
        return _NearRows(self.queries[marks], words, self.distances[marks])


@dataclass(frozen=True)
class Together:
    """The answers to many queries; equal ones share theirs.

    Query i has the answer `which[i]`, which are the rows of `near` from `bounds[which[i]]` on. The
    documents of a row are the ids of the run `runs[row]`.
    """

    which: Places
    bounds: Places
    near: _NearRows
    complete: Marks
    runs: Places
    run_bounds: Places
    ids: Column

    def __iter__(self) -> Iterator[tuple[list[tuple[int, list[int]]], bool]]:
        """Yield the distances with ids of each query, the nearest first, and if it is complete."""
        distances, runs = self.near.distances.tolist(), self.runs.tolist()
        bounds, run_bounds = self.bounds.tolist(), self.run_bounds.tolist()
        for which in self.which.tolist():
            rows = slice(bounds[which], bounds[which + 1])
            nearest = [
                (apart, self.ids[run_bounds[run] : run_bounds[run + 1]].tolist())
                for apart, run in zip(distances[rows], runs[rows], strict=True)
            ]
            yield nearest, bool(self.complete[which])

    def hits(self, limit: int | None, most: int) -> Hits:
        """Return matches as columns; of each query the nearest ones, at most `limit`.

        A query with more than `most` isn't complete, unless it needs no more than its limit.
        """
        queries, distances = self.near.queries, self.near.distances
        counts = np.diff(self.run_bounds)[self.runs]
        before = _before(counts, queries)
        limit = _NO_LIMIT if limit is None else limit
        # Of equal distances all are needed to find the lowest ids.
        heads = np.where(differs(queries, distances), np.arange(len(queries)), 0)
        counts[before[np.maximum.accumulate(heads)] >= limit] = 0
        complete = self.complete & (np.bincount(queries, counts, len(self.complete)) <= most)
        counts = np.clip(counts, 0, np.clip(most - before, 0, limit))
        sizes = np.bincount(queries, counts, len(complete)).astype(np.int64).clip(max=limit)
        check_size(int(sizes[self.which].sum()))
        queries, distances = np.repeat(queries, counts), np.repeat(distances, counts)
        ids = self.ids[spans(self.run_bounds[self.runs], counts)]
        sequence = np.lexsort((ids, distances, queries))
        sequence = sequence[_before(np.ones_like(queries), queries) < limit]
        firsts = np.cumsum(sizes) - sizes
        asked = sizes[self.which]
        sequence = sequence[spans(firsts[self.which], asked)]
        places = np.repeat(np.arange(len(asked)), asked)
        return Hits(places, ids[sequence], distances[sequence], complete[self.which])


def near_many(
    txn: ReadTransaction,
    index: Index,
    fingerprints: Fingerprints,
    k: int,
    *,
    limit: int | None = None,
    budget: int,
    most: int,
) -> Hits:
    """Find all documents within k of each fingerprint, in the order of query, distance and id."""
    parts: list[Hits] = []
    for together in find_together(txn, index, fingerprints, k, budget=budget, most=most):
        part, done = together.hits(limit, most), sum(len(part.complete) for part in parts)
        parts.append(part._replace(queries=part.queries + done))
        check_size(sum(len(part.ids) for part in parts))
    return Hits(*joined(parts))


def find_together(
    txn: ReadTransaction,
    index: Index,
    fingerprints: Fingerprints,
    k: int,
    *,
    budget: int,
    most: int,
) -> Iterator[Together]:
    """Find the documents near each of many fingerprints, in any order and with repetitions.

    Mostly all are answered together, but crowded ones in several parts. A query reads at most
    `budget` candidates; of a fingerprint at most `most` + 1 ids are read.
    """
    words, which = ranked(as_words(fingerprints))
    try:
        near, complete = _near_distinct(txn, index, of_words(words), k, budget)
    except _CrowdedError:
        half = len(fingerprints) // 2
        for part in (fingerprints[:half], fingerprints[half:]):
            yield from find_together(txn, index, part, k, budget=budget, most=most)
        return
    bounds = near.queries.searchsorted(np.arange(len(complete) + 1))
    words, runs = ranked(near.words)
    run_bounds, ids = index.home.last_numbers(txn, words, most)
    yield Together(which, bounds, near, complete, runs, run_bounds, ids)


def _before(counts: Places, queries: Places) -> Places:
    """Sum the counts of the earlier rows of the same query, for each row."""
    before = np.cumsum(counts) - counts
    return before - before[queries.searchsorted(queries)]


def check_size(hits: int) -> None:
    """Raise InputError if there are more hits than are returned at once."""
    if hits > MOST_HITS:
        raise InputError(
            f"the answer has {hits:,} hits, at most {MOST_HITS:,} are given at once",
            hint="query with fewer fingerprints at a time, or give a limit",
        )


class _Probe(NamedTuple):
    """Queries in the order of their ranges, in groups with the same range.

    `bounds` has the first query of each group, and the end; `words` are those of the queries.
    """

    lows: Column
    highs: Column
    bounds: Places
    words: Rows
    queries: Places


def _near_distinct(
    txn: ReadTransaction, index: Index, fingerprints: Fingerprints, k: int, budget: int
) -> tuple[_NearRows, Marks]:
    """Find all distinct fingerprints within k of each query, and mark the complete ones.

    The queries are sorted and distinct. One that may exceed its budget is run alone, and so are all
    without kernels.
    """
    query_words = as_words(fingerprints)
    read = np.zeros(len(fingerprints), np.int64)
    several = len(fingerprints) > 1
    spare = 0  # how many rows a query run alone reads at most outside of its ranges
    pieces: list[_NearRows] = []
    for route in index.routes(k) if kernels.enabled else ():
        table, longest = route.table, 0
        for probe in _probes(as_words(route.permutation.apply(fingerprints)), route):
            held = _HELD if several else _NO_LIMIT
            for pages in table.levels(txn):
                search = kernels.number_pages.RangeSearch(*probe, read, budget, k, held)
                try:
                    for queries, *changes in pages.searched(txn, len(probe.lows), search):
                        pieces.append(_near_rows(query_words, index, route, queries, changes))
                        if several and sum(len(part.queries) for part in pieces) > _HELD:
                            raise _CrowdedError
                except OverflowError:
                    raise _CrowdedError from None
                longest = max(longest, search.longest)
        spare += longest * sum(
            min(3 * len(route.masks), txn.entries(pages.name)) for pages in table.levels(txn)
        )
    complete = np.ones(len(fingerprints), np.bool_)
    alone = read + spare > budget if kernels.enabled else complete.copy()
    parts = [part.chosen(~alone[part.queries]) for part in pieces]
    for query in alone.nonzero()[0].tolist():
        [fingerprint] = to_ints(fingerprints[query : query + 1])
        nearby = index.near(txn, fingerprint, k, budget)
        complete[query] = nearby.complete
        words = as_words(to_array(nearby.distances, index.plan.bits))
        apart = np.array([*nearby.distances.values()], np.uint8)
        parts.append(_NearRows(np.full(len(apart), query), words, apart))
    return _sorted(parts, len(query_words)), complete


def _near_rows(
    query_words: Rows, index: Index, route: Route, queries: Places, changes: Rows
) -> _NearRows:
    """Return the rows of a table near queries, given the bits in which they differ there."""
    back = route.permutation.inverse.apply(of_words(changes))
    words = [
        word[queries] ^ change for word, change in zip(query_words, as_words(back), strict=True)
    ]
    return _NearRows(queries, words, distances(back, np.zeros_like(back), index.plan.bits))


def near_among(
    index: Index, fingerprints: Fingerprints, k: int
) -> tuple[Places, Places, Distances] | None:
    """Return the places of all pairs within k among distinct, sorted fingerprints, and distances.

    Each pair is there in both orders, and each fingerprint with itself. They are found as in tables
    that hold nothing else. Nothing is returned if they are too many to be held.
    """
    query_words = as_words(fingerprints)
    parts: list[_NearRows] = []
    held = 0
    for route in index.routes(k):
        permuted = route.permutation.apply(fingerprints)
        rows = permuted[order(permuted)]
        heads = as_words(rows)[0]
        for probe in _probes(as_words(permuted), route):
            sizes = np.diff(probe.bounds)
            starts = np.repeat(heads.searchsorted(probe.lows), sizes)
            counts = np.repeat(heads.searchsorted(probe.highs, "right"), sizes) - starts
            for portion in portions(counts, _PAIRS):
                asking = np.repeat(np.arange(portion.start, portion.stop), counts[portion])
                queries = probe.queries[asking]
                changes = permuted[queries] ^ rows[spans(starts[portion], counts[portion])]
                near = distances(changes, np.zeros_like(changes), index.plan.bits) <= k
                parts.append(
                    _near_rows(query_words, index, route, queries[near], as_words(changes[near]))
                )
                held += len(parts[-1].queries)
                if held > _HELD:
                    return None
    near_rows = _sorted(parts, len(query_words))
    _, places = ranked(near_rows.words)  # each is there, at least with itself
    return near_rows.queries, places, near_rows.distances


def _probes(permuted: Rows, route: Route) -> Iterator[_Probe]:
    """Yield the probes of queries, some masks at a time: pages are read once for each.

    A range is never wider than the first word.
    """
    behind = 64 * (len(permuted) - 1)
    free = np.uint64(route.below >> behind)
    count = max(len(permuted[0]), 1)
    portion = max(_PROBED // count, 1)
    masks = [mask >> behind for mask in route.masks]
    for start in range(0, len(masks), portion):
        flips = np.array(masks[start : start + portion], np.uint64)
        lows = ((permuted[0] & ~free) ^ flips[:, np.newaxis]).reshape(-1)
        sequence = np.argsort(lows)
        lows = lows[sequence]
        [heads] = differs(lows).nonzero()
        lows = lows[heads]
        queries = sequence % count
        words = [word[queries] for word in permuted]
        yield _Probe(lows, lows | free, np.append(heads, len(sequence)), words, queries)


def _sorted(parts: list[_NearRows], words: int) -> _NearRows:
    """Sort rows, of which several tables may have the same, and drop repetitions."""
    none = _NearRows(np.empty(0, np.int64), [np.empty(0, np.uint64)] * words, np.empty(0, np.uint8))
    parts = parts or [none]
    queries, *columns, distances = joined(
        [part.queries, *part.words, part.distances] for part in parts
    )
    sequence = np.lexsort((*columns[::-1], distances, queries))
    columns = [column[sequence] for column in columns]
    near = _NearRows(queries[sequence], columns, distances[sequence])
    return near.chosen(differs(near.queries, *columns))
