"""Clusters: the documents that pairs connect."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from fpdb.arrays import Column, Places, joined, run_starts, unique
from fpdb.documents.catalog import View
from fpdb.documents.lookup import Search
from fpdb.joins.pairs import NO_IDS, keys_of, near_documents, shared_rows, verified_pairs
from fpdb.models import Cluster

# Connections held before they are replaced by one for each document.
_CONNECTIONS = 1 << 20


def find_clusters(view: View, search: Search, *, keep: str) -> Iterator[Cluster]:
    """Yield the clusters in the order of their first documents, each in the order of ids.

    `keep` is "first", the document with the smallest id, or "longest", the one with the longest
    text: it comes first.
    """
    forest = _Forest()
    copies = _connect_copies(view, search, forest)
    if not search.least:
        for near in near_documents(view, search.k, copies):
            forest.connect(near.first, near.second)
    else:
        for found in verified_pairs(view, search, copies):
            forest.connect(found.known.ids[found.first], found.known.ids[found.second])
    ids, labels = forest.trees()
    order = np.argsort(labels, kind="stable")
    starts = [*run_starts(labels[order]).tolist(), len(ids)]
    for start, stop in pairwise(starts):
        numbers = ids[order[start:stop]].tolist()
        if keep == "longest":
            named = (view.catalog.named(view.txn, number) for number in numbers)
            lengths = [document.characters for document in named]
            numbers.insert(0, numbers.pop(lengths.index(max(lengths))))
        first, *others = keys_of(view, np.array(numbers, np.uint64))
        yield Cluster(first, tuple(others))


def _connect_copies(view: View, search: Search, forest: "_Forest") -> Column:
    """Connect documents of the same fingerprint, and if pairs are verified, of the same sketch.

    Each is connected with the first one of its kind. The ids of the others are returned, sorted:
    they are near the same documents, so they needn't be compared.
    """
    copies = [NO_IDS]
    for *words, ids in shared_rows(view):
        starts = run_starts(*words)
        originals = np.repeat(ids[starts], np.diff(starts, append=len(ids)))
        if search.least:
            originals = _first_alike(view, ids, originals)
        copied = originals != ids
        forest.connect(originals[copied], ids[copied])
        copies.append(ids[copied])
    return np.sort(np.concatenate(copies))


def _first_alike(view: View, ids: Column, groups: Column) -> Column:
    """Return for each document the first one of its group that has the same sketch.

    Of a document without a sketch, the digest of the text counts.
    """
    found: list[int] = []
    first: dict[bytes, int] = {}
    current = None
    for number, group in zip(ids.tolist(), groups.tolist(), strict=True):
        if group != current:
            current, first = group, {}
        stored = view.catalog.named(view.txn, number)
        likeness = stored.sketch or stored.digest
        found.append(first.setdefault(likeness, number) if likeness else number)
    return np.array(found, np.uint64)


class _Forest:
    """Ids and what connects them, in memory that grows with the ids only."""

    def __init__(self) -> None:
        self._parts = [(NO_IDS, NO_IDS)]
        self._size = 0
        self._most = _CONNECTIONS

    def connect(self, first: Column, second: Column) -> None:
        """Put ids into one tree, pair by pair."""
        self._parts.append((first, second))
        self._size += len(first)
        if self._size > self._most:
            ids, labels = self.trees()
            # One connection for each id is enough.
            self._parts = [(ids, ids[labels])]
            self._size = len(ids)
            self._most = max(_CONNECTIONS, 2 * self._size)

    def trees(self) -> tuple[Column, Places]:
        """Return the ids, sorted, and for each the place of the lowest one in its tree."""
        first, second = joined(self._parts)
        ids = unique(np.concatenate([first, second]))
        return ids, _components(len(ids), ids.searchsorted(first), ids.searchsorted(second))


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
