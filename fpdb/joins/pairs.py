"""From near fingerprints to pairs of documents: runs of equal ones are expanded lazily."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.documents import Catalog, Known, Verifier
from fpdb.joins.join import Near, near_pairs
from fpdb.models import Group, Key, Pair
from fpdb.storage import ReadTransaction
from fpdb.storage.columns import Column, Rows, unpack_rows
from fpdb.tables import Index
from fpdb.tables.batch import ids_of
from fpdb.tables.bits import Fingerprints, to_ints
from fpdb.tables.pages import seek

Places = NDArray[np.int64]
# Fingerprints as one array that sorts as their numbers do: uint64, or 16 bytes of 128 bits.
Numbers = NDArray[Any]

# Rows of the home table read at once.
_ROWS = 1 << 19
# Documents with one fingerprint that are held at once; more are read slice by slice.
_RUN = 64
_SLICE = 256
# Pairs of documents that are made at once.
_PAIRS = 1 << 15


class Runs(NamedTuple):
    """Fingerprints that several documents have: the first of them, and how many there are."""

    words: Rows
    firsts: Column
    sizes: Places


class _Block(NamedTuple):
    """Pairs of documents by their ids, the smaller one first."""

    first: Column
    second: Column
    distances: NDArray[np.uint8]


class Verified(NamedTuple):
    """Pairs that are similar enough, as places in what is known of their documents."""

    known: Known
    first: Places
    second: Places
    distances: NDArray[np.uint8]
    jaccard: NDArray[np.float64]


def pairs(
    txn: ReadTransaction, index: Index, catalog: Catalog, k: int, verifier: Verifier | None
) -> Iterator[Pair]:
    """Give all pairs of documents within k, each once: equal fingerprints first, then near ones."""
    if verifier is None:
        for block in _near_blocks(txn, index, k):
            yield from _shown(txn, index, catalog, block)
        return
    bits = index.plan.bits
    for found in verified(txn, index, k, verifier):
        keys = found.known.keys
        columns = (column.tolist() for column in found[1:])
        for a, b, distance, jaccard in zip(*columns, strict=True):
            yield Pair(keys[a], keys[b], distance, 1 - distance / bits, jaccard)


def verified(
    txn: ReadTransaction,
    index: Index,
    k: int,
    verifier: Verifier,
    expansion: "Expansion | None" = None,
) -> Iterator[Verified]:
    """Give the pairs of documents within k that are similar enough, block by block."""
    for block in _near_blocks(txn, index, k, expansion):
        known = verifier.known(txn, distinct(np.concatenate([block.first, block.second])))
        own, other = (known.ids.searchsorted(ids) for ids in (block.first, block.second))
        jaccard = verifier.jaccard(known.side, own, known.side, other)
        kept = (jaccard >= verifier.least).nonzero()[0]
        if len(kept):
            yield Verified(known, own[kept], other[kept], block.distances[kept], jaccard[kept])


def _near_blocks(
    txn: ReadTransaction, index: Index, k: int, expansion: "Expansion | None" = None
) -> Iterator[_Block]:
    expansion = Expansion(txn, index) if expansion is None else expansion
    for runs in find_runs(txn, index):
        expansion.learn(runs)
        yield from expansion.expand(_self_pairs(runs))
    for near in near_pairs(txn, index, k):
        yield from expansion.expand(near)


def grouped(txn: ReadTransaction, index: Index, catalog: Catalog, k: int) -> Iterator[Pair | Group]:
    """Give a group for each run of equal fingerprints, then the pairs of first documents."""
    expansion = Expansion(txn, index)
    for runs in find_runs(txn, index):
        expansion.learn(runs)
        keys = keys_of(txn, catalog, runs.firsts)
        numbers = to_ints(joined_words(runs.words), index.plan.bits)
        for key, size, number in zip(keys, runs.sizes.tolist(), numbers, strict=True):
            yield Group(key, size, number)
    for near in near_pairs(txn, index, k):
        yield from _shown(txn, index, catalog, expansion.of_firsts(near))


def find_runs(txn: ReadTransaction, index: Index) -> Iterator[Runs]:
    """Read the home table, and give its runs of two and more equal fingerprints."""
    kept: Runs | None = None  # the last run, which may go on
    for *words, ids in home_rows(txn, index):
        starts = np.append(0, changes(words).nonzero()[0] + 1)
        sizes = np.diff(np.append(starts, len(ids)))
        runs = Runs([word[starts] for word in words], ids[starts], sizes)
        if kept is not None:
            if all(last[0] == word[0] for last, word in zip(kept.words, words, strict=True)):
                runs.firsts[0] = kept.firsts[0]
                runs.sizes[0] += kept.sizes[0]
            elif kept.sizes[0] > 1:
                yield kept
        kept = chosen_runs(runs, slice(-1, None))
        several = (runs.sizes > 1).nonzero()[0]
        several = several[several < len(starts) - 1]
        if len(several):
            yield chosen_runs(runs, several)
    if kept is not None and kept.sizes[0] > 1:
        yield kept


def home_rows(txn: ReadTransaction, index: Index) -> Iterator[Rows]:
    """Read the home table in chunks of fingerprints and ids."""
    parts: list[Rows] = []
    size = 0
    for rows in index.home.scan(txn):
        parts.append(rows)
        size += len(rows[0])
        if size >= _ROWS:
            yield [np.concatenate(columns) for columns in zip(*parts, strict=True)]
            parts, size = [], 0
    if parts:
        yield [np.concatenate(columns) for columns in zip(*parts, strict=True)]


def changes(words: Rows) -> NDArray[np.bool_]:
    """Tell of each fingerprint but the first whether it differs from the one before."""
    changed: NDArray[np.bool_] = words[0][1:] != words[0][:-1]
    for word in words[1:]:
        changed |= word[1:] != word[:-1]
    return changed


def numbers_of(words: Rows) -> Numbers:
    """Make one array of fingerprints that sorts as they do."""
    if len(words) == 1:
        return words[0]
    return np.stack(words, axis=-1).astype(">u8").view("S16").reshape(-1)


def words_of(numbers: Numbers) -> Rows:
    """Take the array apart into columns of words again."""
    if numbers.dtype == np.uint64:
        return [numbers]
    both = numbers.view(">u8").reshape(-1, 2)
    return [both[:, word].astype(np.uint64) for word in range(2)]


def joined_words(words: Rows) -> Fingerprints:
    """Make of columns an array of fingerprints as it is handed out."""
    return words[0] if len(words) == 1 else np.stack(words, axis=-1)


def distinct(numbers: Numbers) -> Numbers:
    """Sort fingerprints and keep each once."""
    ordered = np.sort(numbers)
    fresh = np.ones(len(ordered), np.bool_)
    fresh[1:] = ordered[1:] != ordered[:-1]
    return ordered[fresh]


def keys_of(txn: ReadTransaction, catalog: Catalog, ids: Column) -> list[Key]:
    """Give the keys of documents."""
    if catalog.kind == "integer":
        return list(ids.tolist())
    return [catalog.key_and_meta(txn, number)[0] for number in ids.tolist()]


class Expansion:
    """Turns pairs of fingerprints into pairs of the documents that have them."""

    def __init__(self, txn: ReadTransaction, index: Index) -> None:
        self._txn = txn
        self._index = index
        self._large: list[Runs] = []
        self._known: tuple[Numbers, Column] | None = None

    def learn(self, runs: Runs) -> None:
        """Remember the runs that are too large to be read at once; they come in order."""
        large = runs.sizes > _RUN
        if large.any():
            self._large.append(chosen_runs(runs, large))
            self._known = None

    def _large_runs(self) -> tuple[Numbers, Column]:
        """Give the fingerprints of large runs, and their first documents."""
        if self._known is None:
            words = [np.concatenate(c) for c in zip(*(r.words for r in self._large), strict=True)]
            firsts = np.concatenate([runs.firsts for runs in self._large])
            self._known = numbers_of(words), firsts
        return self._known

    def _find(self, numbers: Numbers) -> tuple[NDArray[np.bool_], Places]:
        """Tell which fingerprints have a large run, and its place."""
        if not self._large:
            return np.zeros(len(numbers), np.bool_), np.zeros(len(numbers), np.int64)
        known, _ = self._large_runs()
        places = np.minimum(known.searchsorted(numbers), len(known) - 1)
        return known[places] == numbers, places

    def ids(self, numbers: Numbers) -> tuple[Column, Places, Places]:
        """Give the ids of distinct fingerprints, one after the other: where each begins, how many.

        Those with a large run have none.
        """
        large, _ = self._find(numbers)
        small = (~large).nonzero()[0]
        bounds, ids = ids_of(self._txn, self._index, words_of(numbers[small]))
        counts = np.zeros(len(numbers), np.int64)
        counts[small] = np.diff(bounds)
        return ids, np.cumsum(counts) - counts, counts

    def of_firsts(self, near: Near) -> _Block:
        """Pair the first documents of each two fingerprints."""
        first, second = numbers_of(near.first), numbers_of(near.second)
        known = distinct(np.concatenate([first, second]))
        ids, starts, _ = self.ids(known)
        large, places = self._find(known)
        firsts = np.empty(len(known), np.uint64)
        firsts[~large] = ids[starts[~large]]
        if large.any():
            firsts[large] = self._large_runs()[1][places[large]]
        own, other = (firsts[known.searchsorted(numbers)] for numbers in (first, second))
        return _Block(np.minimum(own, other), np.maximum(own, other), near.distances)

    def expand(self, near: Near) -> Iterator[_Block]:
        """Pair all documents of each two fingerprints; of one and the same, each two once."""
        first, second = numbers_of(near.first), numbers_of(near.second)
        known = distinct(np.concatenate([first, second]))
        ids, starts, counts = self.ids(known)
        own, other = known.searchsorted(first), known.searchsorted(second)
        products = counts[own] * counts[other]
        small = products.nonzero()[0]
        ends = np.cumsum(products[small])
        done = 0
        while done < len(small):
            before = int(ends[done - 1]) if done else 0
            stop = max(done + 1, int(ends.searchsorted(before + _PAIRS, "right")))
            some = small[done:stop]
            total = products[some]
            each = np.repeat(np.arange(len(some)), total)
            rank = np.arange(len(each)) - np.repeat(np.cumsum(total) - total, total)
            above, below = np.divmod(rank, counts[other[some]][each])
            a, b = ids[starts[own[some]][each] + above], ids[starts[other[some]][each] + below]
            yield _ordered(a, b, near.distances[some][each])
            done = stop
        for place in (products == 0).nonzero()[0].tolist():
            yield from self._cross(
                [int(word[place]) for word in near.first],
                [int(word[place]) for word in near.second],
                int(near.distances[place]),
            )

    def _cross(self, own: list[int], other: list[int], distance: int) -> Iterator[_Block]:
        """Pair the documents of two fingerprints slice by slice."""
        for above in self.slices(own):
            for below in self.slices(other):
                a, b = np.repeat(above, len(below)), np.tile(below, len(above))
                block = _ordered(a, b, np.full(len(a), distance, np.uint8))
                if len(block.first):
                    yield block

    def slices(self, words: list[int]) -> Iterator[Column]:
        """Read the ids of the documents with a fingerprint, some at a time."""
        home = self._index.home
        with self._txn.cursor(home.name) as cursor:
            there = seek(cursor, home.key(*words, 0))
            while there:
                rows = unpack_rows(cursor.value(), home.columns)
                start, stop = 0, len(rows[0])
                for column, word in zip(rows, words, strict=False):
                    within = column[start:stop]
                    stop = start + int(within.searchsorted(np.uint64(word), "right"))
                    start += int(within.searchsorted(np.uint64(word)))
                for at in range(start, stop, _SLICE):
                    yield rows[-1][at : min(at + _SLICE, stop)]
                there = stop == len(rows[0]) and cursor.next()


def _ordered(a: Column, b: Column, distances: NDArray[np.uint8]) -> _Block:
    """Put the smaller id first; of two documents with one fingerprint keep one of both ways."""
    once = (distances > 0) | (a < b)
    return _Block(np.minimum(a, b)[once], np.maximum(a, b)[once], distances[once])


def _self_pairs(runs: Runs) -> Near:
    return Near(runs.words, runs.words, np.zeros(len(runs.sizes), np.uint8))


def chosen_runs(runs: Runs, which: Any) -> Runs:
    """Choose some runs."""
    return Runs([word[which] for word in runs.words], runs.firsts[which], runs.sizes[which])


def _shown(txn: ReadTransaction, index: Index, catalog: Catalog, block: _Block) -> Iterator[Pair]:
    """Look up the keys of pairs, each once."""
    ids = distinct(np.concatenate([block.first, block.second]))
    keys = keys_of(txn, catalog, ids)
    bits = index.plan.bits
    own, other = ids.searchsorted(block.first).tolist(), ids.searchsorted(block.second).tolist()
    for a, b, distance in zip(own, other, block.distances.tolist(), strict=True):
        yield Pair(keys[a], keys[b], distance, 1 - distance / bits)
