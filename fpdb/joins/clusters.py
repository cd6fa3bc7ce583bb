"""Clusters: the documents that pairs connect, found over fingerprints and kept in order."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.documents import Catalog, Verifier
from fpdb.joins.copies import Standing
from fpdb.joins.join import near_pairs
from fpdb.joins.pairs import (
    Numbers,
    distinct,
    find_runs,
    home_rows,
    joined_words,
    keys_of,
    numbers_of,
    verified,
    words_of,
)
from fpdb.models import Cluster
from fpdb.storage import ReadTransaction
from fpdb.storage.columns import Column
from fpdb.tables import Index
from fpdb.tables.bits import Fingerprints, to_array

Places = NDArray[np.int64]

# Connections held before they are replaced by one for each fingerprint.
_CONNECTIONS = 1 << 20


class Members(NamedTuple):
    """The ids and fingerprints of the documents of a cluster, the one to keep first."""

    ids: Column
    fingerprints: Fingerprints


def clusters(
    txn: ReadTransaction,
    index: Index,
    catalog: Catalog,
    k: int,
    *,
    keep: str,
    verifier: Verifier | None = None,
) -> Iterator[Cluster]:
    """Give the clusters by the keys of their documents."""
    for found in members(txn, index, catalog, k, keep=keep, verifier=verifier):
        first, *others = keys_of(txn, catalog, found.ids)
        yield Cluster(first, tuple(others))


def members(
    txn: ReadTransaction,
    index: Index,
    catalog: Catalog,
    k: int,
    *,
    keep: str,
    verifier: Verifier | None = None,
) -> Iterator[Members]:
    """Give the clusters in the order of their first documents, each in the order of ids.

    `keep` is first, the one with the smallest id, or longest, the one with the longest text.
    """
    if verifier is None:
        nodes, labels = _connected(txn, index, k)
        ids, places = _documents(txn, index, nodes)
    else:
        ids, labels = _verified(txn, index, k, verifier)
        nodes, places = _fingerprints(txn, index, catalog, ids), np.arange(len(ids))
    own = labels[places]
    order = np.lexsort((ids, own))
    ids, places, own = ids[order], places[order], own[order]
    starts = np.append(True, own[1:] != own[:-1]).nonzero()[0] if len(own) else own
    stops = np.append(starts[1:], len(own))
    for cluster in np.argsort(ids[starts]).tolist():
        start, stop = int(starts[cluster]), int(stops[cluster])
        chosen = np.arange(start, stop)
        if keep == "longest":
            lengths = [catalog.characters(txn, number) for number in ids[start:stop].tolist()]
            longest = lengths.index(max(lengths))
            chosen[: longest + 1] = np.roll(chosen[: longest + 1], 1)
        yield Members(ids[chosen], joined_words(words_of(nodes[places[chosen]])))


def _connected(txn: ReadTransaction, index: Index, k: int) -> tuple[Numbers, Places]:
    """Find the fingerprints of clusters, sorted, and for each which cluster it is in."""
    forest = _Forest()
    for runs in find_runs(txn, index):
        numbers = numbers_of(runs.words)
        forest.connect(numbers, numbers)
    for near in near_pairs(txn, index, k):
        forest.connect(numbers_of(near.first), numbers_of(near.second))
    return forest.trees()


def _verified(
    txn: ReadTransaction, index: Index, k: int, verifier: Verifier
) -> tuple[Column, Places]:
    """Find the documents of clusters, sorted by id, and for each which cluster it is in."""
    forest = _Forest()
    standing = Standing(txn, index, verifier, forest.connect)
    for found in verified(txn, index, k, verifier, standing):
        forest.connect(found.known.ids[found.first], found.known.ids[found.second])
    return forest.trees()


def _fingerprints(txn: ReadTransaction, index: Index, catalog: Catalog, ids: Column) -> Numbers:
    """Look up the fingerprints of documents."""
    stored = (catalog.load(txn, number) for number in ids.tolist())
    numbers = [document.fingerprint or 0 for document in stored if document is not None]
    return numbers_of(index.words(to_array(numbers, index.plan.bits)))


class _Forest:
    """Fingerprints, or ids, and what connects them, in memory that grows with these only."""

    def __init__(self) -> None:
        self._parts: list[tuple[Numbers, Numbers]] = []
        self._size = 0
        self._most = _CONNECTIONS

    def connect(self, first: Numbers, second: Numbers) -> None:
        """Put fingerprints into one tree, pair by pair."""
        self._parts.append((first, second))
        self._size += len(first)
        if self._size > self._most:
            nodes, labels = self.trees()
            # Each is connected with one of its tree, and all else is forgotten.
            self._parts = [(nodes, nodes[labels])]
            self._size = len(nodes)
            self._most = max(_CONNECTIONS, 2 * self._size)

    def trees(self) -> tuple[Numbers, Places]:
        """Give the fingerprints, sorted, and for each the place of the lowest in its tree."""
        if not self._parts:
            return np.empty(0, np.uint64), np.empty(0, np.int64)
        first, second = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        nodes = distinct(np.concatenate([first, second]))
        return nodes, _components(len(nodes), nodes.searchsorted(first), nodes.searchsorted(second))


def _components(count: int, first: Places, second: Places) -> Places:
    """Find for each node the lowest one that edges connect it with."""
    parents = np.arange(count)
    while True:
        # Every parent is a root here. A root that meets a lower one is hung below it.
        one, other = parents[first], parents[second]
        apart = one != other
        if not apart.any():
            return parents
        first, second = first[apart], second[apart]
        one, other = one[apart], other[apart]
        np.minimum.at(parents, np.maximum(one, other), np.minimum(one, other))
        while True:
            higher = parents[parents]
            if np.array_equal(higher, parents):
                break
            parents = higher


def _documents(txn: ReadTransaction, index: Index, nodes: Numbers) -> tuple[Column, Places]:
    """Find the documents that have one of some fingerprints, and which one."""
    ids: list[Column] = [np.empty(0, np.uint64)]
    found: list[Places] = [np.empty(0, np.int64)]
    if len(nodes):
        for *words, own in home_rows(txn, index):
            numbers = numbers_of(words)
            places = np.minimum(nodes.searchsorted(numbers), len(nodes) - 1)
            there = nodes[places] == numbers
            ids.append(own[there])
            found.append(places[there])
    return np.concatenate(ids), np.concatenate(found)
