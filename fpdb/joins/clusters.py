"""Clusters: the documents that pairs connect, found over fingerprints and yielded in order."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from fpdb.arrays import Column, Places, joined, run_starts, unique
from fpdb.documents.catalog import View
from fpdb.documents.similarity import Verifier
from fpdb.joins.join import near_pairs
from fpdb.joins.pairs import (
    Scalars,
    home_rows,
    keys_of,
    stored_groups,
    to_fingerprints,
    to_scalars,
    verified_pairs,
)
from fpdb.models import Cluster
from fpdb.tables.bits import Fingerprints, as_words, to_array

# Connections held before they are replaced by one for each node.
_CONNECTIONS = 1 << 20


class Members(NamedTuple):
    """The ids and fingerprints of the documents of a cluster, the one to keep first."""

    ids: Column
    fingerprints: Fingerprints


def find_clusters(
    view: View, k: int, *, keep: str, verifier: Verifier | None = None
) -> Iterator[Cluster]:
    """Yield the clusters by the keys of their documents."""
    for found in find_members(view, k, keep=keep, verifier=verifier):
        first, *others = keys_of(view, found.ids)
        yield Cluster(first, tuple(others))


def find_members(
    view: View, k: int, *, keep: str, verifier: Verifier | None = None
) -> Iterator[Members]:
    """Yield the clusters in the order of their first documents, each in the order of ids.

    `keep` is "first", the document with the smallest id, or "longest", the one with the longest
    text.
    """
    if verifier is None:
        nodes, labels = _connected_fingerprints(view, k)
        ids, places = _documents_of(view, nodes)
    else:
        ids, labels = _connected_documents(view, k, verifier)
        nodes, places = _fingerprints_of(view, ids), np.arange(len(ids))
    own = labels[places]
    order = np.lexsort((ids, own))
    ids, places, own = ids[order], places[order], own[order]
    starts = run_starts(own)
    stops = np.append(starts[1:], len(own))
    for cluster in np.argsort(ids[starts]).tolist():
        start, stop = int(starts[cluster]), int(stops[cluster])
        chosen = np.arange(start, stop)
        if keep == "longest":
            lengths = [
                view.catalog.named(view.txn, number).characters
                for number in ids[start:stop].tolist()
            ]
            longest = lengths.index(max(lengths))
            chosen[: longest + 1] = np.roll(chosen[: longest + 1], 1)
        yield Members(ids[chosen], to_fingerprints(nodes[places[chosen]]))


def _connected_fingerprints(view: View, k: int) -> tuple[Scalars, Places]:
    """Return the fingerprints of clusters, sorted, and a label of the cluster of each."""
    forest = _Forest()
    for groups in stored_groups(view):
        scalars = to_scalars(groups.words)
        forest.connect(scalars, scalars)
    for near in near_pairs(view, k):
        forest.connect(to_scalars(near.first), to_scalars(near.second))
    return forest.trees()


def _connected_documents(view: View, k: int, verifier: Verifier) -> tuple[Column, Places]:
    """Return the ids of documents in clusters, sorted, and a label of the cluster of each."""
    forest = _Forest()
    representatives = partial(_representatives, view, verifier, forest)
    for found in verified_pairs(view, k, verifier, representatives):
        forest.connect(found.known.ids[found.first], found.known.ids[found.second])
    return forest.trees()


def _representatives(
    view: View, verifier: Verifier, forest: "_Forest", slices: Iterator[Column]
) -> Column:
    """Return one document for each sketch or text in a group, and connect the copies with it.

    Copies are similar to the same documents, so they needn't be compared one by one.
    """
    first: dict[bytes, int] = {}
    for ids in slices:
        copies: list[int] = []
        originals: list[int] = []
        likenesses = verifier.likeness(view.txn, ids)
        for number, likeness in zip(ids.tolist(), likenesses, strict=True):
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


def _fingerprints_of(view: View, ids: Column) -> Scalars:
    """Look up the fingerprints of documents."""
    stored = (view.catalog.load(view.txn, number) for number in ids.tolist())
    numbers = [document.fingerprint or 0 for document in stored if document is not None]
    return to_scalars(as_words(to_array(numbers, view.index.plan.bits)))


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
