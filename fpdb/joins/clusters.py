"""Clusters: the documents that pairs connect, found over fingerprints and yielded in order."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from fpdb.arrays import Column, Places, joined, run_starts, unique
from fpdb.documents.catalog import View
from fpdb.documents.lookup import Search
from fpdb.joins.join import near_pairs
from fpdb.joins.pairs import (
    Scalars,
    home_rows,
    keys_of,
    stored_groups,
    to_scalars,
    verified_pairs,
)
from fpdb.models import Cluster

# Connections held before they are replaced by one for each node.
_CONNECTIONS = 1 << 20


def find_clusters(view: View, search: Search, *, keep: str) -> Iterator[Cluster]:
    """Yield the clusters in the order of their first documents, each in the order of ids.

    `keep` is "first", the document with the smallest id, or "longest", the one with the longest
    text: it comes first.
    """
    if not search.least:
        nodes, labels = _connected_fingerprints(view, search.k)
        ids, places = _documents_of(view, nodes)
    else:
        ids, labels = _connected_documents(view, search)
        places = np.arange(len(ids))
    own = labels[places]
    order = np.lexsort((ids, own))
    ids, own = ids[order], own[order]
    starts = run_starts(own)
    stops = np.append(starts[1:], len(own))
    for cluster in np.argsort(ids[starts]).tolist():
        start, stop = int(starts[cluster]), int(stops[cluster])
        numbers = ids[start:stop].tolist()
        if keep == "longest":
            named = (view.catalog.named(view.txn, number) for number in numbers)
            lengths = [document.characters for document in named]
            numbers.insert(0, numbers.pop(lengths.index(max(lengths))))
        first, *others = keys_of(view, np.array(numbers, np.uint64))
        yield Cluster(first, tuple(others))


def _connected_fingerprints(view: View, k: int) -> tuple[Scalars, Places]:
    """Return the fingerprints of clusters, sorted, and a label of the cluster of each."""
    forest = _Forest()
    for groups in stored_groups(view):
        scalars = to_scalars(groups.words)
        forest.connect(scalars, scalars)
    for near in near_pairs(view, k):
        forest.connect(to_scalars(near.first), to_scalars(near.second))
    return forest.trees()


def _connected_documents(view: View, search: Search) -> tuple[Column, Places]:
    """Return the ids of documents in clusters, sorted, and a label of the cluster of each."""
    forest = _Forest()
    representatives = partial(_representatives, view, forest)
    for found in verified_pairs(view, search, representatives):
        forest.connect(found.known.ids[found.first], found.known.ids[found.second])
    return forest.trees()


def _representatives(view: View, forest: "_Forest", slices: Iterator[Column]) -> Column:
    """Return one document for each sketch in a group, and connect the copies with it.

    Copies are similar to the same documents, so they needn't be compared one by one. Of a document
    without a sketch, the digest of the text counts.
    """
    first: dict[bytes, int] = {}
    for ids in slices:
        copies: list[int] = []
        originals: list[int] = []
        for number in ids.tolist():
            stored = view.catalog.named(view.txn, number)
            likeness = stored.sketch or stored.digest
            original = first.setdefault(likeness, number)
            if original != number and likeness:
                copies.append(number)
                originals.append(original)
        forest.connect(np.array(copies, np.uint64), np.array(originals, np.uint64))
    return np.array(sorted(first.values()), np.uint64)


def _documents_of(view: View, nodes: Scalars) -> tuple[Column, Places]:
    """Return the ids of the documents that have one of some fingerprints, and which one."""
    ids: list[Column] = [np.empty(0, np.uint64)]
    found: list[Places] = [np.empty(0, np.int64)]
    if len(nodes):
        for *words, own in home_rows(view):
            scalars = to_scalars(words)
            places = np.minimum(nodes.searchsorted(scalars), len(nodes) - 1)
            there = nodes[places] == scalars
            ids.append(own[there])
            found.append(places[there])
    return np.concatenate(ids), np.concatenate(found)


class _Forest:
    """Nodes (fingerprints or ids) and what connects them, in memory that grows with nodes only."""

    def __init__(self) -> None:
        self._parts: list[tuple[Scalars, Scalars]] = []
        self._size = 0
        self._most = _CONNECTIONS

    def connect(self, first: Scalars, second: Scalars) -> None:
        """Put nodes into one tree, pair by pair."""
        self._parts.append((first, second))
        self._size += len(first)
        if self._size > self._most:
            nodes, labels = self.trees()
            # One connection for each node is enough.
            self._parts = [(nodes, nodes[labels])]
            self._size = len(nodes)
            self._most = max(_CONNECTIONS, 2 * self._size)

    def trees(self) -> tuple[Scalars, Places]:
        """Return the nodes, sorted, and for each the place of the lowest one in its tree."""
        if not self._parts:
            return np.empty(0, np.uint64), np.empty(0, np.int64)
        first, second = joined(self._parts)
        nodes = unique(np.concatenate([first, second]))
        return nodes, _components(len(nodes), nodes.searchsorted(first), nodes.searchsorted(second))


def _components(count: int, first: Places, second: Places) -> Places:
    """Find for each node the lowest one that edges connect it with."""
    parents = np.arange(count)
    while True:
        # Every parent is a root here. Of two roots that meet, the higher becomes a child.
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
