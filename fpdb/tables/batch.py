"""Find the fingerprints near many others at once: sorted per table, compared as arrays.

Queries whose ranges are the same are a group. The first of every group meet the rows of a block in
one pass over it, then all the second ones, and so on; when a pass would meet few rows, the rest is
compared pair by pair. So no loop runs over queries or candidates.
"""

from collections.abc import Iterable, Iterator, Sequence
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
    Permutation,
    as_words,
    of_words,
    order,
    to_array,
)
from fpdb.tables.index import Index
from fpdb.tables.pages import Pages
from fpdb.tables.ranges import blocks, search_pages

# Pairs of a query and a row that are made at once.
_PAIRS = 1 << 15
# A pass over a block pays if this part of its rows are candidates, and at least this many.
_PART = 4
_LEAST = 1 << 12
# Near fingerprints that are held for many queries.
_HELD = 1 << 22
_NO_BUDGET = 1 << 62
# Ranges that are looked up together.
_PROBED = 1 << 22
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
        """Return the marked rows."""
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
            found = [
                (apart, self.ids[run_bounds[run] : run_bounds[run + 1]].tolist())
                for apart, run in zip(distances[rows], runs[rows], strict=True)
            ]
            yield found, bool(self.complete[which])

    def hits(self, limit: int | None, most: int) -> Hits:
        """Return matches as columns; of each query the nearest ones, at most `limit`.

        A query with more than `most` isn't complete, unless it needs no more than its limit.
        """
        queries, distances = self.near.queries, self.near.distances
        counts = np.diff(self.run_bounds)[self.runs]
        before = _before(counts, queries)
        complete = self.complete.copy()
        if limit is not None:
            # Of equal distances all are needed to find the lowest ids.
            heads = np.where(differs(queries, distances), np.arange(len(queries)), 0)
            counts[before[np.maximum.accumulate(heads)] >= limit] = 0
        complete &= np.bincount(queries, counts, len(complete)) <= most
        counts = np.clip(counts, 0, np.maximum(most - before, 0))
        if limit is not None:
            counts = np.minimum(counts, limit)
        sizes = np.bincount(queries, counts, len(complete)).astype(np.int64)
        if limit is not None:
            sizes = np.minimum(sizes, limit)
        _check_size(int(sizes[self.which].sum()))
        queries, distances = np.repeat(queries, counts), np.repeat(distances, counts)
        ids = self.ids[spans(self.run_bounds[self.runs], counts)]
        sequence = np.lexsort((ids, distances, queries))
        if limit is not None:
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
    done = 0
    for found in find_together(txn, index, fingerprints, k, budget=budget, most=most):
        part = found.hits(limit, most)
        parts.append(part._replace(queries=part.queries + done))
        done += len(part.complete)
        _check_size(sum(len(part.ids) for part in parts))
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
    """Find what is near each of many fingerprints, in any order and with repetitions.

    Mostly all are answered together, but crowded ones in several parts. A query reads at most
    `budget` candidates; of a fingerprint at most `most` + 1 ids are read.
    """
    sequence = order(fingerprints)
    arranged = fingerprints[sequence]
    fresh = differs(*as_words(arranged))
    try:
        near, complete = _near_each(txn, index, arranged[fresh], k, budget)
    except _CrowdedError:
        half = len(fingerprints) // 2
        for part in (fingerprints[:half], fingerprints[half:]):
            yield from find_together(txn, index, part, k, budget=budget, most=most)
        return
    which = np.empty(len(fresh), np.int64)
    which[sequence] = np.cumsum(fresh) - 1
    bounds = near.queries.searchsorted(np.arange(len(complete) + 1))
    words, runs = ranked(near.words)
    run_bounds, ids = find_ids(txn, index.home, words, most)
    yield Together(which, bounds, near, complete, runs, run_bounds, ids)


def find_ids(
    txn: ReadTransaction, table: Pages, words: Rows, most: int | None = None
) -> tuple[Places, Column]:
    """Return where the ids of each fingerprint begin, and all ids; they are sorted and distinct.

    The table has ids in its last column: it is the home table, or that of the bands.
    """
    count = len(words[0])
    owners, ids = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
    got = np.zeros(count, np.int64)
    if kernels.enabled and len(words) == 1:
        each = _NO_BUDGET if most is None else most + 1
        search = kernels.pages.IdSearch(words[0], words[0], got, each)
        for places, numbers in search_pages(txn, table, count, search):
            owners.append(places)
            ids.append(numbers)
        words = [word[:0] for word in words]
    firsts = words[0][differs(words[0])]
    for rows, _ in blocks(txn, table, firsts, firsts, table.columns):
        first = int(words[0].searchsorted(rows[0][0]))
        last = int(words[0].searchsorted(rows[0][-1], "right"))
        starts = rows[0].searchsorted(words[0][first:last])
        counts = rows[0].searchsorted(words[0][first:last], "right") - starts
        if len(words) == 1 and most is not None:
            counts = np.minimum(counts, most + 1 - got[first:last])
            got[first:last] += counts
        for some, places in _pairs(starts, counts):
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
    """Sum the counts of the earlier rows of the same query, for each row."""
    before = np.cumsum(counts) - counts
    return before - before[queries.searchsorted(queries)]


def _check_size(hits: int) -> None:
    if hits > MOST_HITS:
        raise InputError(
            f"the answer has {hits:,} hits, at most {MOST_HITS:,} are given at once",
            hint="query with fewer fingerprints at a time, or give a limit",
        )


class _Probe(NamedTuple):
    """Queries in the order of their ranges: the words to compare, and the place of each query.

    `bounds` has the first query of each group, and the end; `lows` and `highs` are its range.
    """

    words: Rows
    queries: Places
    bounds: Places
    lows: Column
    highs: Column


def _near_each(
    txn: ReadTransaction, index: Index, fingerprints: Fingerprints, k: int, budget: int
) -> tuple[_NearRows, Marks]:
    """Find all distinct fingerprints within k of each query, and mark the complete ones.

    The queries are sorted and distinct. One that may exceed its budget is run alone.
    """
    own = as_words(fingerprints)
    read = np.zeros(len(fingerprints), np.int64)
    spare = 0  # how many rows a query run alone reads at most outside of its ranges
    found = _Held(len(fingerprints))
    for table, *_, permutation, _, below, masks in index.routes(k):
        permuted = as_words(permutation.apply(fingerprints))
        longest = 0
        for probe in _probes(permuted, masks, below):
            if kernels.enabled and len(permuted) == 1:
                search = kernels.pages.RangeSearch(
                    *(probe.lows, probe.highs, probe.bounds, probe.words[0], probe.queries),
                    *(read, budget, k, 1 << 62 if len(fingerprints) == 1 else _HELD),
                )
                found.add(own, permutation, _searched(txn, table, probe, search))
                longest = max(longest, search.longest)
                continue
            for rows, page in blocks(txn, table, probe.lows, probe.highs, len(permuted)):
                longest = max(longest, page)
                found.add(own, permutation, _within(probe, rows, k, read, budget))
        spare += longest * min(3 * len(masks), txn.entries(table.name))
    complete = np.ones(len(fingerprints), np.bool_)
    parts = found.parts
    if (over := read + spare > budget).any():
        parts = [part.chosen(~over[part.queries]) for part in parts]
        for query in over.nonzero()[0].tolist():
            [fingerprint] = index.numbers(fingerprints[query : query + 1])
            nearby = index.near(txn, fingerprint, k, budget)
            complete[query] = nearby.complete
            words = as_words(to_array(nearby.distances, index.plan.bits))
            distances = np.array([*nearby.distances.values()], np.uint8)
            parts.append(_NearRows(np.full(len(distances), query), words, distances))
    return _sorted(parts, len(own)), complete


class _Held:
    """Near fingerprints that were found so far, of which tables find the same ones again."""

    def __init__(self, queries: int) -> None:
        self.parts: list[_NearRows] = []
        self._queries = queries
        self._size, self._limit = 0, _HELD

    def add(self, own: Rows, permutation: Permutation, near: Iterable[_NearRows]) -> None:
        """Add what was found in a table, as the bits in which it differs there.

        Raises:
            _CrowdedError: It is too much, and there are several queries.
        """
        for queries, changes, distances in near:
            back = as_words(permutation.inverse.apply(of_words(changes)))
            words = [word[queries] ^ change for word, change in zip(own, back, strict=True)]
            self.parts.append(_NearRows(queries, words, distances))
            self._size += len(queries)
            if self._size > self._limit:
                self.parts = [_sorted(self.parts, len(own))]
                self._size = len(self.parts[0].queries)
                if self._size > _HELD and self._queries > 1:
                    raise _CrowdedError
                self._limit = max(_HELD, 2 * self._size)


def near_among(
    index: Index, fingerprints: Fingerprints, k: int
) -> tuple[Places, Places, Distances] | None:
    """Return the places of all pairs within k among distinct, sorted fingerprints, and distances.

    Each pair is there in both orders, and each fingerprint with itself. They are found as in tables
    that hold nothing else. Nothing is returned if they are too many to be held.
    """
    own = as_words(fingerprints)
    found = _Held(len(fingerprints))
    read = np.zeros(len(fingerprints), np.int64)
    try:
        for route in index.routes(k):
            permuted = route.permutation.apply(fingerprints)
            rows = as_words(permuted[order(permuted)])
            for probe in _probes(as_words(permuted), route.masks, route.below):
                found.add(own, route.permutation, _within(probe, rows, k, read, _NO_BUDGET))
    except _CrowdedError:
        return None
    near = _sorted(found.parts, len(own))
    _, places = ranked(near.words)  # each is there, at least with itself
    return near.queries, places, near.distances


def _searched(
    txn: ReadTransaction, table: Pages, probe: _Probe, search: "kernels.pages.RangeSearch"
) -> Iterator[_NearRows]:
    """Do what `_within` does for all rows in the ranges of a table, by a kernel."""
    try:
        for queries, changes in search_pages(txn, table, len(probe.lows), search):
            yield _NearRows(queries, [changes], np.bitwise_count(changes))
    except OverflowError:
        raise _CrowdedError from None


def _probes(permuted: Rows, masks: Sequence[int], below: int) -> Iterator[_Probe]:
    """Yield the probes of queries, some masks at a time: pages are read once for each."""
    behind = 64 * (len(permuted) - 1)  # a prefix never reaches into a second word
    portion = max(_PROBED // max(len(permuted[0]), 1), 1)
    for start in range(0, len(masks), portion):
        some = [mask >> behind for mask in masks[start : start + portion]]
        yield _probe(permuted, some, below >> behind)


def _probe(permuted: Rows, masks: list[int], below: int) -> _Probe:
    """Sort queries by the ranges of their probes, which are never wider than the first word."""
    free = np.uint64(below)
    lows = ((permuted[0] & ~free) ^ np.array(masks, np.uint64)[:, np.newaxis]).reshape(-1)
    sequence = np.argsort(lows)
    lows = lows[sequence]
    [heads] = differs(lows).nonzero()
    lows = lows[heads]
    queries = sequence % max(len(permuted[0]), 1)
    words = [word[queries] for word in permuted]
    return _Probe(words, queries, np.append(heads, len(sequence)), lows, lows | free)


def _within(probe: _Probe, rows: Rows, k: int, read: Places, budget: int) -> Iterator[_NearRows]:
    """Compare rows with the queries in whose ranges they are.

    Yield queries, the bits in which rows within k differ from them, and the distances.
    """
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
    np.add.at(read, queries, np.repeat(counts, members))  # one may be there with several probes
    kept = read[queries] <= budget
    if not kept.all():
        heads = probe.bounds[first:last] - top
        members = np.add.reduceat(kept, heads, dtype=np.int64)
        queries, words = queries[kept], [word[kept] for word in words]
    fresh = differs(*rows)
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
            yield _NearRows(queries[asking[hits]], changes, distances)
        done += 1
    left = np.maximum(members - done, 0)
    if meeting:
        group = np.repeat(np.arange(len(left)), left)
        asking = spans(heads + done, left)
        for some, places in _pairs(starts[group], counts[group]):
            at = asking[some]
            changes = [word[at] ^ row[places] for word, row in zip(words, rows, strict=True)]
            hits, changes, distances = _near_changes(changes, k)
            if len(hits):
                yield _NearRows(queries[at[hits]], changes, distances)


def _pass(rows: Rows, words: Rows, k: int, starts: Places, end: int) -> _NearRows:
    """Compare each row with the last query whose range began before it.

    Rows between two ranges are compared too: leaving them out would take longer, and near is near.
    """
    begin = int(starts[0])
    lengths = np.diff(starts, append=end)
    changes = []
    for word, row in zip(words, rows, strict=True):
        change = np.repeat(word, lengths)
        change ^= row[begin:end]
        changes.append(change)
    hits, changes, distances = _near_changes(changes, k)
    return _NearRows(starts.searchsorted(hits + begin, "right") - 1, changes, distances)


def _near_changes(changes: Rows, k: int) -> tuple[Places, Rows, Distances]:
    """Return the places with at most k changed bits, their changes, and how many bits those are."""
    distances = np.bitwise_count(changes[0])
    if len(changes) > 1:
        distances += np.bitwise_count(changes[1])
    [hits] = (distances <= k).nonzero()
    return hits, [change[hits] for change in changes], distances[hits]


def _sorted(found: list[_NearRows], words: int) -> _NearRows:
    """Sort what several tables may have found, and drop repetitions."""
    none = _NearRows(np.empty(0, np.int64), [np.empty(0, np.uint64)] * words, np.empty(0, np.uint8))
    parts = found or [none]
    queries, *columns, distances = joined(
        [part.queries, *part.words, part.distances] for part in parts
    )
    sequence = np.lexsort((*columns[::-1], distances, queries))
    columns = [column[sequence] for column in columns]
    near = _NearRows(queries[sequence], columns, distances[sequence])
    return near.chosen(differs(near.queries, *columns))


def _pairs(starts: Places, counts: Places) -> Iterator[tuple[Places, Places]]:
    """Yield pairs of a range's place and a row in it, in chunks of some ranges each."""
    for some in portions(counts, _PAIRS):
        ranges = np.arange(some.start, some.stop)
        yield np.repeat(ranges, counts[some]), spans(starts[some], counts[some])
