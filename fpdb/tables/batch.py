"""Find the fingerprints near many others at once: sorted per table, compared as arrays.

Queries whose ranges are the same are a group. The first of every group meet the rows of a block in
one pass over it, then all the second ones, and so on; when a pass would meet few rows, the rest is
compared pair by pair. So no loop runs over queries or candidates.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.errors import InputError
from fpdb.storage import Cursor, ReadTransaction
from fpdb.storage.columns import Column, Rows, raw_column, unpack_rows
from fpdb.tables.bits import Fingerprints, order, to_array
from fpdb.tables.index import Index
from fpdb.tables.pages import Pages, seek

Places = NDArray[np.int64]

# Rows that are held at once: few enough to stay in the cache of one core.
_ROWS = 1 << 16
# Pairs that are made at once.
_PAIRS = 1 << 15


Parts = list[memoryview]


class Block(NamedTuple):
    """Rows of a table in their order, and how many rows its longest page has."""

    rows: Rows
    longest: int


def blocks(
    txn: ReadTransaction, table: Pages, lows: Column, highs: Column, wanted: int
) -> Iterator[Block]:
    """Give all rows with first words in ranges, which don't overlap, and some others.

    Of the columns as many are given as are wanted.
    """
    if not len(lows):
        return
    # Where most pages are needed, to read on is faster than to look where the next range begins.
    read = _in_turn if txn.entries(table.name) <= len(lows) else _sought
    columns: list[Parts] = [[] for _ in range(wanted)]
    size = longest = 0
    with txn.cursor(table.name) as cursor:
        for page, count in read(cursor, table, lows, highs, wanted):
            for parts, part in zip(columns, page):  # noqa: B905 - a check would take a tenth
                parts.append(part)
                size += part.nbytes
            longest = max(longest, count)
            if size >= 8 * wanted * _ROWS:
                yield Block(_joined_parts(columns), longest)
                columns = [[] for _ in range(wanted)]
                size = 0
    if size:
        yield Block(_joined_parts(columns), longest)


def _joined_parts(columns: list[Parts]) -> Rows:
    # Bytes are joined faster than arrays.
    return [np.frombuffer(b"".join(parts), np.uint64) for parts in columns]


def _in_turn(
    cursor: Cursor, table: Pages, lows: Column, highs: Column, wanted: int
) -> Iterator[tuple[Parts, int]]:
    """Read all pages from the first range to the last."""
    end, columns = int(highs[-1]), table.columns
    if not seek(cursor, int(lows[0]).to_bytes(8, "big")):
        return
    for page in cursor.iternext(keys=False, values=True):
        parts, count = _read(page, columns, wanted)
        if int.from_bytes(parts[0][:8], "little") > end:
            return
        yield parts, count


def _sought(
    cursor: Cursor, table: Pages, lows: Column, highs: Column, wanted: int
) -> Iterator[tuple[Parts, int]]:
    """Read the pages on which ranges lie; of each page, from the first range to the last."""
    starts, ends, columns = lows.tolist(), highs.tolist(), table.columns
    keys = lows.astype(">u8").tobytes()
    set_range, step_back, value = cursor.set_range, cursor.prev, cursor.value
    done = 0
    while done < len(starts):
        # The page before the first key that isn't lower; to see whether it is needed takes longer.
        if set_range(keys[8 * done : 8 * done + 8]):
            there = step_back() or cursor.first()
        else:
            there = cursor.last()
        while there:
            page, count = _read(value(), columns, wanted)
            words = page[0].cast("Q")  # faster to search than an array
            low, last = starts[done], words[-1]
            if low <= last:
                # What ends before the last row has been read whole.
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


def _read(page: memoryview, columns: int, wanted: int) -> tuple[Parts, int]:
    if wanted == 1:
        column, count = raw_column(page, columns)
        return [column], count
    rows = unpack_rows(page, columns, wanted)
    return [row.data.cast("B") for row in rows], len(rows[0])


def pairs(starts: Places, counts: Places) -> Iterator[tuple[Places, Places]]:
    """Give pairs of a range's place and a row in it, in chunks of bounded size."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    for begin in range(0, total, _PAIRS):
        end = min(begin + _PAIRS, total)
        first = int(ends.searchsorted(begin, "right"))
        last = int(ends.searchsorted(end)) + 1
        some = counts[first:last].copy()
        offsets = starts[first:last] - (ends[first:last] - some)  # from pair to row
        some[-1] -= ends[last - 1] - end
        some[0] -= begin - (ends[first] - counts[first])
        rows = np.arange(begin, end) + np.repeat(offsets, some)
        yield np.repeat(np.arange(first, last), some), rows


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
    for table, *_, permutation, _, below, masks in index.routes(k):
        permuted = index.words(permutation.apply(fingerprints))
        behind = 64 * (len(permuted) - 1)  # a prefix never reaches into a second word
        longest = 0
        for some in _portions([mask >> behind for mask in masks], len(fingerprints)):
            probe = _probe(permuted, some, below >> behind)
            for block in blocks(txn, table, probe.lows, probe.highs, len(permuted)):
                longest = max(longest, block.longest)
                for queries, changes, distances in _within(probe, block, k, read, budget):
                    array = changes[0] if len(changes) == 1 else np.stack(changes, axis=-1)
                    back = index.words(permutation.inverse.apply(array))
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
