"""Pairs of documents: of those that share a fingerprint, and of those with near fingerprints."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Column, Places, Rows, among, differs, gathered, joined, ranked, run_starts
from fpdb.documents.catalog import View
from fpdb.documents.lookup import Search
from fpdb.documents.similarity import Known, jaccard, known_documents
from fpdb.joins.join import NearPairs, complete_buckets, near_pairs
from fpdb.models import Key, Pair
from fpdb.tables.batch import find_ids

# Rows of the home table read at once.
_ROWS = 1 << 19
# Pairs of fingerprints whose documents are looked up at once.
_NEAR = 1 << 18
# Pairs of documents that are made at once.
_PAIRS = 1 << 15
NO_IDS: Column = np.empty(0, np.uint64)


class IdPairs(NamedTuple):
    """Pairs of documents by their ids, the smaller one first."""

    first: Column
    second: Column
    distances: NDArray[np.uint8]


class VerifiedPairs(NamedTuple):
    """Pairs that are similar enough, as places in what is known of their documents."""

    known: Known
    first: Places
    second: Places
    distances: NDArray[np.uint8]
    jaccard: NDArray[np.float64]


def find_pairs(view: View, search: Search) -> Iterator[Pair]:
    """Yield all pairs of documents within k, each once: those of equal fingerprints first."""
    bits = view.index.plan.bits
    if not search.least:
        for block in near_documents(view, search.k):
            [ids], names = ranked([np.concatenate([block.first, block.second])])
            keys = keys_of(view, ids)
            first, second = np.split(names, 2)
            columns = (first.tolist(), second.tolist(), block.distances.tolist())
            for a, b, distance in zip(*columns, strict=True):
                yield Pair(keys[a], keys[b], distance, 1 - distance / bits)
        return
    for found in verified_pairs(view, search):
        keys = found.known.keys
        verified = (column.tolist() for column in found[1:])
        for a, b, distance, share in zip(*verified, strict=True):
            yield Pair(keys[a], keys[b], distance, 1 - distance / bits, share)


def verified_pairs(view: View, search: Search, copies: Column = NO_IDS) -> Iterator[VerifiedPairs]:
    """Yield the pairs of documents within k that are similar enough, block by block."""
    for block in near_documents(view, search.k, copies):
        [ids], names = ranked([np.concatenate([block.first, block.second])])
        known = known_documents(view, ids)
        own, other = np.split(names, 2)
        shares = jaccard(known.side, own, known.side, other)
        kept = (shares >= search.least).nonzero()[0]
        if len(kept):
            yield VerifiedPairs(known, own[kept], other[kept], block.distances[kept], shares[kept])


def near_documents(view: View, k: int, copies: Column = NO_IDS) -> Iterator[IdPairs]:
    """Yield all pairs of documents within k, except those of `copies`, which are sorted ids."""
    for *words, _ in shared_rows(view):
        starts = run_starts(*words)
        distinct = [word[starts] for word in words]
        equal: NearPairs = [*distinct, *distinct, np.zeros(len(starts), np.uint8)]
        yield from _expand(view, equal, copies)
    for near in gathered(near_pairs(view, k), _NEAR):
        yield from _expand(view, near, copies)


def shared_rows(view: View) -> Iterator[Rows]:
    """Yield the rows of the home table whose fingerprint several documents have."""
    for rows in complete_buckets(gathered(view.index.home.scan(view.txn), _ROWS), 0):
        shared = ~differs(*rows[:-1])
        shared[:-1] |= shared[1:]
        if shared.any():
            yield [column[shared] for column in rows]


def keys_of(view: View, ids: Column) -> list[Key]:
    """Return the keys of documents."""
    if view.catalog.kind == "integer":
        return list(ids.tolist())
    return [view.catalog.named(view.txn, number).key for number in ids.tolist()]


def _expand(view: View, near: NearPairs, copies: Column) -> Iterator[IdPairs]:
    """Pair the documents of each two fingerprints; two that share one are paired once."""
    *words, distances = near
    sides = words[: len(words) // 2], words[len(words) // 2 :]
    fingerprints, names = ranked(joined(sides))
    own, other = np.split(names, 2)
    bounds, ids = find_ids(view.txn, view.index, fingerprints)
    if len(copies):
        kept = ~among(ids, copies)
        ids, bounds = ids[kept], np.append(0, np.cumsum(kept))[bounds]
    counts = np.diff(bounds)
    products = counts[own] * counts[other]
    ends = np.cumsum(products)
    for start in range(0, int(ends[-1]), _PAIRS):
        pairs = np.arange(start, min(start + _PAIRS, int(ends[-1])))
        each = ends.searchsorted(pairs, "right")
        one, two = own[each], other[each]
        above, below = np.divmod(pairs - (ends - products)[each], counts[two])
        a, b = ids[bounds[one] + above], ids[bounds[two] + below]
        apart = distances[each]
        once = (apart > 0) | (a < b)
        if once.any():
            yield IdPairs(np.minimum(a, b)[once], np.maximum(a, b)[once], apart[once])
