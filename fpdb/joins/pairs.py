"""From near fingerprints to pairs of documents: groups of equal ones are expanded lazily."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Column, Marks, Places, Rows, gathered, portions, run_starts, spans, unique
from fpdb.documents.catalog import View
from fpdb.documents.lookup import Search
from fpdb.documents.similarity import Known, jaccard, known_documents
from fpdb.joins.join import NearPairs, near_pairs
from fpdb.models import Group, Key, Pair
from fpdb.tables.batch import find_ids
from fpdb.tables.bits import Fingerprints, as_words, of_words, to_ints

# Fingerprints as one array that sorts as their numbers do: uint64, or 16 bytes of 128 bits.
Scalars = NDArray[Any]
# Returns the documents that represent all of a group, whose ids come in slices.
Representatives = Callable[[Iterator[Column]], Column]

# Rows of the home table read at once.
_ROWS = 1 << 19
# Documents of a group that are held at once; larger groups are read in slices.
_GROUP = 64
_SLICE = 256
# Smaller groups are expanded without looking for representatives.
_FEW = 8
# Pairs of documents that are made at once.
_PAIRS = 1 << 15


class Groups(NamedTuple):
    """Fingerprints that several documents share: the first of these, and how many there are."""

    words: Rows
    firsts: Column
    sizes: Places

    def chosen(self, which: Any) -> "Groups":
        """Return some of the groups."""
        return Groups([word[which] for word in self.words], self.firsts[which], self.sizes[which])


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
    if not search.least:
        for block in _near_documents(view, search.k):
            yield from _with_keys(view, block)
        return
    bits = view.index.plan.bits
    for found in verified_pairs(view, search):
        keys = found.known.keys
        columns = (column.tolist() for column in found[1:])
        for a, b, distance, share in zip(*columns, strict=True):
            yield Pair(keys[a], keys[b], distance, 1 - distance / bits, share)


def find_groups(view: View, search: Search) -> Iterator[Pair | Group]:
    """Yield all groups, then the near pairs of the first documents of each fingerprint."""
    expansion = _Expansion(view)
    for groups in stored_groups(view):
        expansion.learn(groups)
        keys = keys_of(view, groups.firsts)
        numbers = to_ints(of_words(groups.words), view.index.plan.bits)
        for key, size, number in zip(keys, groups.sizes.tolist(), numbers, strict=True):
            yield Group(key, size, number)
    for near in near_pairs(view, search.k):
        yield from _with_keys(view, expansion.of_firsts(near))


def verified_pairs(
    view: View, search: Search, representatives: Representatives | None = None
) -> Iterator[VerifiedPairs]:
    """Yield the pairs of documents within k that are similar enough, block by block.

    With `representatives`, only these are paired in place of all documents of a large group.
    """
    for block in _near_documents(view, search.k, representatives):
        known = known_documents(view, unique(np.concatenate([block.first, block.second])))
        own, other = (known.ids.searchsorted(ids) for ids in (block.first, block.second))
        shares = jaccard(known.side, own, known.side, other)
        kept = (shares >= search.least).nonzero()[0]
        if len(kept):
            yield VerifiedPairs(known, own[kept], other[kept], block.distances[kept], shares[kept])


def _near_documents(
    view: View, k: int, representatives: Representatives | None = None
) -> Iterator[IdPairs]:
    expansion = _Expansion(view, representatives)
    for groups in stored_groups(view):
        expansion.learn(groups)
        zeros = np.zeros(len(groups.sizes), np.uint8)
        yield from expansion.expand(NearPairs(groups.words, groups.words, zeros))
    for near in near_pairs(view, k):
        yield from expansion.expand(near)


def stored_groups(view: View) -> Iterator[Groups]:
    """Scan the home table, and yield the fingerprints that several documents share."""
    kept: Groups | None = None  # the last one, which may continue in the next chunk
    for *words, ids in home_rows(view):
        starts = run_starts(*words)
        sizes = np.diff(np.append(starts, len(ids)))
        groups = Groups([word[starts] for word in words], ids[starts], sizes)
        if kept is not None:
            if all(last[0] == word[0] for last, word in zip(kept.words, words, strict=True)):
                groups.firsts[0] = kept.firsts[0]
                groups.sizes[0] += kept.sizes[0]
            elif kept.sizes[0] > 1:
                yield kept
        kept = groups.chosen(slice(-1, None))
        several = (groups.sizes[:-1] > 1).nonzero()[0]
        if len(several):
            yield groups.chosen(several)
    if kept is not None and kept.sizes[0] > 1:
        yield kept


def home_rows(view: View) -> Iterator[Rows]:
    """Yield the rows of the home table in chunks, fingerprints and ids."""
    return gathered(view.index.home.scan(view.txn), _ROWS)


def to_scalars(words: Rows) -> Scalars:
    """Combine columns of words into one array that sorts as the fingerprints do."""
    if len(words) == 1:
        return words[0]
    return np.stack(words, axis=-1).astype(">u8").view("S16").reshape(-1)


def to_fingerprints(scalars: Scalars) -> Fingerprints:
    """Return the array of fingerprints as it is handed out: uint64[n] or uint64[n, 2]."""
    if scalars.dtype == np.uint64:
        return scalars
    return scalars.view(">u8").reshape(-1, 2).astype(np.uint64)


def keys_of(view: View, ids: Column) -> list[Key]:
    """Return the keys of documents."""
    if view.catalog.kind == "integer":
        return list(ids.tolist())
    return [view.catalog.named(view.txn, number).key for number in ids.tolist()]


def _with_keys(view: View, block: IdPairs) -> Iterator[Pair]:
    """Look up the keys of pairs, each once."""
    ids = unique(np.concatenate([block.first, block.second]))
    keys = keys_of(view, ids)
    bits = view.index.plan.bits
    own, other = ids.searchsorted(block.first).tolist(), ids.searchsorted(block.second).tolist()
    for a, b, distance in zip(own, other, block.distances.tolist(), strict=True):
        yield Pair(keys[a], keys[b], distance, 1 - distance / bits)


class _Expansion:
    """Turns pairs of fingerprints into pairs of the documents that have them.

    Large groups are read in slices. With `representatives`, a group with more than a few
    documents is replaced by those that represent it, if they aren't too many themselves.
    """

    def __init__(self, view: View, representatives: Representatives | None = None) -> None:
        self._view = view
        self._representatives = representatives
        self._chosen: dict[Any, Column] = {}  # by fingerprint
        # Large groups: their fingerprints in order, and the first document of each.
        self._large: Scalars = np.empty(0, "S16" if view.index.plan.bits > 64 else np.uint64)
        self._firsts = np.empty(0, np.uint64)

    def learn(self, groups: Groups) -> None:
        """Remember the large groups, and find who represents them; they come in order."""
        scalars = to_scalars(groups.words)
        large = groups.sizes > _GROUP
        if self._representatives is not None:
            for at in (groups.sizes > _FEW).nonzero()[0].tolist():
                chosen = self._representatives(self._slices([int(w[at]) for w in groups.words]))
                large[at] = len(chosen) > _GROUP
                if not large[at]:
                    self._chosen[scalars[at].item()] = chosen
        if large.any():
            self._large = np.concatenate([self._large, scalars[large]])
            self._firsts = np.concatenate([self._firsts, groups.firsts[large]])

    def of_firsts(self, near: NearPairs) -> IdPairs:
        """Pair the first documents of each two fingerprints."""
        first, second = to_scalars(near.first), to_scalars(near.second)
        scalars = unique(np.concatenate([first, second]))
        ids, starts, _ = self._ids(scalars)
        large, places = self._find_large(scalars)
        firsts = np.empty(len(scalars), np.uint64)
        firsts[~large] = ids[starts[~large]]
        firsts[large] = self._firsts[places[large]]
        own, other = (firsts[scalars.searchsorted(side)] for side in (first, second))
        return IdPairs(np.minimum(own, other), np.maximum(own, other), near.distances)

    def expand(self, near: NearPairs) -> Iterator[IdPairs]:
        """Pair all documents of each two fingerprints; two that share one are paired once."""
        first, second = to_scalars(near.first), to_scalars(near.second)
        scalars = unique(np.concatenate([first, second]))
        ids, starts, counts = self._ids(scalars)
        own, other = scalars.searchsorted(first), scalars.searchsorted(second)
        products = counts[own] * counts[other]
        small = products.nonzero()[0]
        for portion in portions(products[small], _PAIRS):
            some = small[portion]
            total = products[some]
            each = np.repeat(np.arange(len(some)), total)
            rank = spans(np.zeros_like(total), total)
            above, below = np.divmod(rank, counts[other[some]][each])
            a, b = ids[starts[own[some]][each] + above], ids[starts[other[some]][each] + below]
            yield _ordered(a, b, near.distances[some][each])
        for place in (products == 0).nonzero()[0].tolist():
            yield from self._cross(
                [int(word[place]) for word in near.first],
                [int(word[place]) for word in near.second],
                int(near.distances[place]),
            )

    def _find_large(self, scalars: Scalars) -> tuple[Marks, Places]:
        """Mark the fingerprints that have a large group, and return the places of these."""
        if not len(self._large):
            return np.zeros(len(scalars), np.bool_), np.zeros(len(scalars), np.int64)
        places = np.minimum(self._large.searchsorted(scalars), len(self._large) - 1)
        return self._large[places] == scalars, places

    def _ids(self, scalars: Scalars) -> tuple[Column, Places, Places]:
        """Return the ids of distinct fingerprints, where those of each start, and their counts.

        Those with a large group have none.
        """
        large, _ = self._find_large(scalars)
        chosen = [self._chosen.get(value) for value in scalars.tolist()] if self._chosen else []
        known = np.zeros(len(scalars), np.bool_)
        known[: len(chosen)] = [ids is not None for ids in chosen]
        read = (~large & ~known).nonzero()[0]
        bounds, ids = find_ids(
            self._view.txn, self._view.index, as_words(to_fingerprints(scalars[read]))
        )
        starts, counts = np.zeros(len(scalars), np.int64), np.zeros(len(scalars), np.int64)
        starts[read], counts[read] = bounds[:-1], np.diff(bounds)
        if known.any():
            represented = [ids for ids in chosen if ids is not None]
            sizes = np.array(list(map(len, represented)))
            starts[known], counts[known] = len(ids) + np.cumsum(sizes) - sizes, sizes
            ids = np.concatenate([ids, *represented])
        return ids, starts, counts

    def _cross(self, own: list[int], other: list[int], distance: int) -> Iterator[IdPairs]:
        """Pair the documents of two fingerprints slice by slice."""
        for above in self._slices(own):
            for below in self._slices(other):
                a, b = np.repeat(above, len(below)), np.tile(below, len(above))
                block = _ordered(a, b, np.full(len(a), distance, np.uint8))
                if len(block.first):
                    yield block

    def _slices(self, words: list[int]) -> Iterator[Column]:
        """Yield the ids of the documents with a fingerprint in slices."""
        home = self._view.index.home
        for rows in home.scan(self._view.txn, home.key(*words, 0)):
            start, stop = 0, len(rows[0])
            for column, word in zip(rows, words, strict=False):
                within = column[start:stop]
                stop = start + int(within.searchsorted(np.uint64(word), "right"))
                start += int(within.searchsorted(np.uint64(word)))
            for at in range(start, stop, _SLICE):
                yield rows[-1][at : min(at + _SLICE, stop)]
            if stop < len(rows[0]):
                return


def _ordered(a: Column, b: Column, distances: NDArray[np.uint8]) -> IdPairs:
    """Put the smaller id first; keep one of both orders of documents with equal fingerprints."""
    once = (distances > 0) | (a < b)
    return IdPairs(np.minimum(a, b)[once], np.maximum(a, b)[once], distances[once])
