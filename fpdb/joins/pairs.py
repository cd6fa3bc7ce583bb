"""Pairs of documents: of those that share a fingerprint, and of those with near fingerprints."""

import warnings
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import (
    Column,
    Marks,
    Places,
    Rows,
    among,
    differs,
    gathered,
    joined,
    portions,
    ranked,
    run_starts,
    spans,
)
from fpdb.documents.catalog import View
from fpdb.documents.lookup import Search
from fpdb.documents.similarity import Known, Shares, Side, jaccard
from fpdb.errors import DamagedError, IncompleteWarning
from fpdb.fingerprint.sketches import least_estimate
from fpdb.joins.join import NearPairs, complete_buckets, near_pairs
from fpdb.models import Key, Pair
from fpdb.progress import tracked
from fpdb.storage.format import unpack_record
from fpdb.tables.bands import Bands
from fpdb.tables.bits import distances
from fpdb.tables.sorted_pages import NumberPages
from fpdb.threads import mapped

# Rows of the home table read at once.
_ROWS = 1 << 19
# Pairs of fingerprints whose documents are looked up at once.
_NEAR = 1 << 18
# Pairs of documents that are made at once.
_PAIRS = 1 << 15
# Bytes of documents that are compared at once, with their metadata, if all are about as large.
_BYTES = 1 << 25
# Pairs of documents that agree in a band, which are held to find those that agree in several.
_HELD = 1 << 22
# The next documents that each one of a crowd meets, which shares a band and so boilerplate.
MOST_MET = 1_000
NO_IDS: Column = np.empty(0, np.uint64)


class SimilarPairs(NamedTuple):
    """Pairs of documents that are similar enough: their ids and keys, and how near they are."""

    first: Column
    second: Column
    keys: list[tuple[Key, Key]]
    distances: NDArray[np.uint8]
    shares: Shares


class _Meeting(NamedTuple):
    """Pairs of documents that agree in bands, as places among the ids, with packed documents.

    Those are to be found by numbers from `low` to `high`; others are met elsewhere.
    """

    low: np.uint64
    high: np.uint64
    ids: Column
    records: list[bytes]
    own: Places
    other: Places


def find_pairs(view: View, search: Search, jobs: int = 1) -> Iterator[Pair]:
    """Yield all pairs of documents near each other, each once."""
    if search.similarity is None:
        for *sides, apart in _near_documents(view, search.k, jobs):
            [ids], names = ranked([np.concatenate(sides)])
            keys = keys_of(view, ids)
            first, second = np.split(names, 2)
            for a, b, distance in zip(first.tolist(), second.tolist(), apart.tolist(), strict=True):
                yield Pair(keys[a], keys[b], distance, None)
        return
    for found in similar_pairs(view, search.similarity, jobs):
        rows = (found.keys, found.distances.tolist(), found.shares.tolist())
        for (key, other), distance, share in zip(*rows, strict=True):
            yield Pair(key, other, distance, share)


def similar_pairs(
    view: View, similarity: float, jobs: int = 1, copies: Column = NO_IDS
) -> Iterator[SimilarPairs]:
    """Yield the pairs of similar documents except those of `copies`, which are sorted ids.

    Those are compared that agree in a band, each pair once: where the first of its bands is read
    that isn't crowded, or else the first of all. With several `jobs`, others compare what this
    thread reads, so that all is of one moment.
    """
    bands = view.index.bands
    if bands is None:
        raise DamagedError("a database without bands was queried for similar texts")
    shape, bits, least = bands.shape, view.index.plan.bits, least_estimate(similarity)
    crowds = _crowds(view, bands.pages)

    def compare(met: _Meeting) -> SimilarPairs:
        records = zip(met.records, met.ids.tolist(), strict=True)
        known = Known.of([unpack_record(*record, bits) for record in records], bits)
        rows = shape.columns(known.side.sketches, known.side.digests)
        chosen = _meeting_at(rows, crowds, met.own, met.other)
        shares = jaccard(known.side, met.own, known.side, met.other)
        kept = (chosen >= met.low) & (chosen <= met.high) & (shares >= least)
        own, other = met.own[kept], met.other[kept]
        numbers, keys = known.side.fingerprints, known.keys
        return SimilarPairs(
            met.ids[own],
            met.ids[other],
            [(keys[a], keys[b]) for a, b in zip(own.tolist(), other.tolist(), strict=True)],
            distances(numbers[own], numbers[other], bits),
            shares[kept],
        )

    for _, found in mapped(compare, _meetings_of(view, bands.pages, copies), jobs):
        if len(found.keys):
            yield found


def _meetings_of(view: View, pages: NumberPages, copies: Column) -> Iterator[_Meeting]:
    """Yield the pairs that agree in a band with their documents, a bounded part at once."""
    size = view.txn.bytes_of("documents") // max(view.txn.entries("documents"), 1)
    most = max(1, min(_PAIRS, _BYTES // max(2 * size, 1)))
    for low, high, pairs in _candidates(_agreeing(view, pages, copies)):
        for start in _starts(len(pairs[0]), most):
            [ids], names = ranked([np.concatenate([ids[start : start + most] for ids in pairs])])
            yield _Meeting(low, high, ids, view.catalog.packed(view.txn, ids), *np.split(names, 2))


def _starts(count: int, size: int) -> Iterable[int]:
    """Return where each part of some pairs begins, as a step."""
    starts = range(0, count, size)
    return tracked(starts, "compare pairs", "pair", count, lambda start: min(size, count - start))


def _candidates(parts: Iterator[Rows]) -> Iterator[tuple[np.uint64, np.uint64, Rows]]:
    """Yield ranges of the numbers of bands, and the distinct pairs that agree there."""
    held: list[Rows] = []
    size = 0
    for part in parts:
        held.append(part)
        size += len(part[0])
        if size >= _HELD:
            rows = joined(held)
            # A number isn't in two ranges, unless it alone is a whole one.
            cut = int(rows[0].searchsorted(rows[0][-1])) or size
            yield rows[0][0], rows[0][cut - 1], ranked([column[:cut] for column in rows[1:]])[0]
            held, size = [[column[cut:] for column in rows]], size - cut
    if size:
        numbers, *pairs = joined(held)
        yield numbers[0], numbers[-1], ranked(pairs)[0]


def similar_among(
    side: Side, shape: Bands, similarity: float
) -> Iterator[tuple[Places, Places, Shares]]:
    """Yield the pairs that a database with these bands and texts would have, by their places."""
    columns, marks = shape.columns(side.sketches, side.digests)
    numbers, places = columns[marks], marks.nonzero()[0].astype(np.uint64)
    order = np.lexsort((places, numbers))
    numbers, places = numbers[order], places[order]
    least, crowds = least_estimate(similarity), _crowded(numbers)
    _warn_of_crowds(int(np.diff(run_starts(numbers), append=len(numbers)).max(initial=0)))
    for low, high, pairs in _candidates(_meetings(numbers, places)):
        for start in _starts(len(pairs[0]), _PAIRS):
            own, other = (ids[start : start + _PAIRS].astype(np.int64) for ids in pairs)
            chosen = _meeting_at((columns, marks), crowds, own, other)
            shares = jaccard(side, own, side, other)
            [kept] = ((chosen >= low) & (chosen <= high) & (shares >= least)).nonzero()
            yield own[kept], other[kept], shares[kept]


def _meeting_at(rows: tuple[Column, Marks], crowds: Column, own: Places, other: Places) -> Column:
    """Return the number by which each pair is found: of its first band without a crowd, if any."""
    numbers, marks = rows
    crowded = among(numbers.reshape(-1), crowds).reshape(numbers.shape)
    same = (numbers[own] == numbers[other]) & marks[own]
    usual = same & ~crowded[own]
    band = np.where(usual.any(axis=1), usual.argmax(axis=1), same.argmax(axis=1))
    chosen: Column = numbers[own, band]
    return chosen


def _crowds(view: View, pages: NumberPages) -> Column:
    """Return the numbers of bands under which very many documents are, sorted."""
    scan = pages.scan(view.txn, columns=1)
    read = tracked(scan, "read the bands", "page", view.txn.entries(pages.name))
    columns = gathered(read, _ROWS)
    found = [_crowded(numbers) for [numbers] in complete_buckets(columns, 0)]
    return np.concatenate([NO_IDS, *found])


def _crowded(numbers: Column) -> Column:
    starts = run_starts(numbers)
    return numbers[starts[np.diff(starts, append=len(numbers)) > MOST_MET]]


def _agreeing(view: View, pages: NumberPages, copies: Column) -> Iterator[Rows]:
    """Yield the numbers of bands and the pairs of documents that agree in them."""
    largest = 0
    for rows in shared_rows(view, pages):
        numbers, ids = rows
        if len(copies):
            kept = ~among(ids, copies)
            numbers, ids = numbers[kept], ids[kept]
        counts = np.diff(run_starts(numbers), append=len(numbers))
        largest = max(largest, int(counts.max(initial=0)))
        yield from _meetings(numbers, ids)
    _warn_of_crowds(largest)


def _warn_of_crowds(largest: int) -> None:
    if largest > MOST_MET + 1:
        warnings.warn(
            f"some pairs may be missing: {largest:,} documents agree in a band of their sketches, "
            f"and each was compared with {MOST_MET:,} of them",
            IncompleteWarning,
            stacklevel=3,
        )


def _meetings(numbers: Column, ids: Column) -> Iterator[Rows]:
    """Yield the pairs of rows with the same number.

    In a run, each row meets the next ones, as many as are left; of a crowd, only some.
    """
    starts = run_starts(numbers)
    counts = np.diff(starts, append=len(numbers))
    left = np.repeat(starts + counts, counts) - np.arange(len(numbers)) - 1
    meeting = np.minimum(left, MOST_MET)
    for some in portions(meeting, _PAIRS):
        above = np.repeat(np.arange(some.start, some.stop), meeting[some])
        below = spans(np.arange(some.start, some.stop) + 1, meeting[some])
        if len(above):
            yield [numbers[above], ids[above], ids[below]]


def _near_documents(view: View, k: int, jobs: int) -> Iterator[list[NDArray[Any]]]:
    """Yield all pairs of documents within k: the smaller ids, the larger ones, the distances."""
    for *words, _ in shared_rows(view, view.index.home):
        starts = run_starts(*words)
        distinct = [word[starts] for word in words]
        equal: NearPairs = [*distinct, *distinct, np.zeros(len(starts), np.uint8)]
        yield from _expand(view, equal)
    for near in gathered(near_pairs(view, k, jobs), _NEAR):
        yield from _expand(view, near)


def shared_rows(view: View, pages: NumberPages) -> Iterator[Rows]:
    """Yield the rows of the home table, or of the bands, that several documents have but for ids.

    Equal ones come in one block.
    """
    read = tracked(pages.scan(view.txn), "compare", "page", view.txn.entries(pages.name))
    for rows in complete_buckets(gathered(read, _ROWS), 0):
        shared = ~differs(*rows[:-1])
        shared[:-1] |= shared[1:]
        if shared.any():
            yield [column[shared] for column in rows]


def keys_of(view: View, ids: Column) -> list[Key]:
    """Return the keys of documents."""
    if view.catalog.kind == "integer":
        return list(ids.tolist())
    return [view.catalog.named(view.txn, number).key for number in ids.tolist()]


def _expand(view: View, near: NearPairs) -> Iterator[list[NDArray[Any]]]:
    """Pair the documents of each two fingerprints; two that share one are paired once."""
    *words, distances = near
    sides = words[: len(words) // 2], words[len(words) // 2 :]
    fingerprints, names = ranked(joined(sides))
    own, other = np.split(names, 2)
    bounds, ids = view.index.home.last_numbers(view.txn, fingerprints)
    counts = np.diff(bounds)
    products = counts[own] * counts[other]
    ends = np.cumsum(products)
    for start in _starts(int(ends[-1]), _PAIRS):
        pairs = np.arange(start, min(start + _PAIRS, int(ends[-1])))
        each = ends.searchsorted(pairs, "right")
        one, two = own[each], other[each]
        above, below = np.divmod(pairs - (ends - products)[each], counts[two])
        a, b = ids[bounds[one] + above], ids[bounds[two] + below]
        apart = distances[each]
        once = (apart > 0) | (a < b)
        if once.any():
            yield [np.minimum(a, b)[once], np.maximum(a, b)[once], apart[once]]
