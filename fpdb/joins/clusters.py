"""Clusters: the documents that pairs connect, and which of them stays."""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np

from fpdb.arrays import Column, Marks, Places, Rows, joined, ranked, run_starts
from fpdb.documents.catalog import View
from fpdb.documents.lookup import Search
from fpdb.documents.similarity import Shares, Side, jaccard
from fpdb.errors import InputError
from fpdb.fingerprint.sketches import has_sketch, least_estimate, mix
from fpdb.joins.join import near_pairs
from fpdb.joins.pairs import (
    NO_IDS,
    JoinedTexts,
    StoredTexts,
    keys_of,
    shared_rows,
    side_of_stored,
    similar_pairs,
)
from fpdb.models import Cluster
from fpdb.progress import tracked
from fpdb.storage.format import Stored
from fpdb.storage.origin import fields_of
from fpdb.tables.bits import as_words, distances

# Connections held before they are replaced by one for each document.
_CONNECTIONS = 1 << 20
# Documents that are read at once.
_READ = 1 << 16
_NEWEST = "newest:"


def newest_field(keep: str) -> str:
    """Return the field of "newest:FIELD", and nothing for "first" and "longest".

    Raises:
        InputError: It is none of these.
    """
    field = keep.removeprefix(_NEWEST) if str(keep).startswith(_NEWEST) else ""
    if keep not in ("first", "longest") and not field:
        raise InputError(
            f"found keep {keep!r}, expected first, longest or newest:FIELD",
            hint="newest:date keeps the one with the latest date",
        )
    return field


def require_dated(field: str, *, dated: object) -> None:
    """Raise InputError unless a record had a date or a number."""
    if not dated:
        raise InputError(
            f"no record has a date or a number in {field!r}",
            hint="name the field of the date, or keep the first record",
        )


def time_of(name: str, value: object) -> float:
    """Return a date or a number as a number; one that is missing is before all others."""
    if value in (None, ""):
        return -math.inf
    if isinstance(value, int | float):
        return float(value)
    with contextlib.suppress(ValueError, OverflowError):
        return float(str(value))
    with contextlib.suppress(ValueError, OverflowError):
        found = datetime.fromisoformat(str(value).strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    raise InputError(
        f"{name} is {str(value)[:40]!r}, expected a number, or a date such as 2026-11-23"
    )


@dataclass(frozen=True, eq=False)
class Clustering:
    """All clusters at once, in columns with a row for each document.

    `ids` are sorted. `firsts` has the place of the first document of the cluster, and `originals`
    that of the first one with the same text. `least` is the least similarity of the pairs that a
    document is in, estimated, 1 if there is none. Documents with the same text, or the same sketch
    and fingerprint, are compared once. `shares` counts the pairs of different texts by their
    similarity in percent, rounded down. Where bits are compared, no document has the text of
    another one, and nothing is counted.
    """

    ids: Column
    firsts: Places
    originals: Places
    least: Shares
    shares: Places


def find_clusters(
    view: View, search: Search, jobs: int = 1, *, keep: str, tight: bool = False
) -> Iterator[Cluster]:
    """Yield the clusters in the order of their first documents, each in the order of ids.

    The one that `keep` names comes first: "first" is that with the smallest id, "longest" that
    with the longest text, "newest:FIELD" that with the latest date in a field of its metadata.
    `tight` divides clusters: of what isn't near the first one, the next to keep is the first.
    """
    field, dated = newest_field(keep), False
    ids, labels = (
        _near(view, search.k, jobs)
        if search.similarity is None
        else _similar(StoredTexts(view), search.similarity, jobs)[:2]
    )
    order = np.argsort(labels, kind="stable")
    starts = [*run_starts(labels[order]).tolist(), len(ids)]
    for start, stop in tracked(pairwise(starts), "list", "cluster", len(starts) - 1):
        numbers = ids[order[start:stop]]
        values, left = np.zeros(len(numbers)), np.arange(len(numbers))
        if keep != "first":
            named = (view.catalog.named(view.txn, number) for number in numbers.tolist())
            values = np.array([_value(document, field) for document in named])
            dated = dated or bool(values.max() > -math.inf)
        side = side_of_stored(view, numbers) if tight else None
        while len(left) > 1:
            best = left[values[left].argmax()]
            near = left >= 0 if side is None else _are_near(side, best, left, search)
            first, *others = keys_of(view, numbers[[best, *left[near & (left != best)]]])
            left = left[~near]
            if others:
                yield Cluster(first, tuple(others))
    if field and len(ids):
        require_dated(field, dated=dated)


def _value(document: Stored, field: str) -> float:
    """Return what the document to keep has most of: time, or characters."""
    if not field:
        return document.characters
    return time_of(field, fields_of(document.meta).get(field))


def _are_near(side: Side, best: int, left: Places, search: Search) -> Marks:
    """Mark the documents that match one of them, and that one."""
    every = np.full_like(left, best)
    if search.similarity is None:
        width = 64 * (1 if side.fingerprints.ndim == 1 else 2)
        apart = distances(side.fingerprints[left], side.fingerprints[every], width)
        return np.asarray(apart <= search.k)
    shares = jaccard(side, every, side, left)
    return np.asarray((shares >= least_estimate(search.similarity)) | (left == best))


def _near(view: View, k: int, jobs: int) -> tuple[Column, Places]:
    """Return the documents of clusters, sorted, and for each the place of the first of its own.

    Fingerprints are connected, so copies take no more time than other documents.
    """
    forest = _Forest(view.index.home.columns - 1)
    for *words, _ in shared_rows(view, view.index.home):
        starts = run_starts(*words)
        shared = [word[starts] for word in words]
        forest.connect(shared, shared)
    for *words, _ in near_pairs(view, k, jobs):
        forest.connect(words[: len(words) // 2], words[len(words) // 2 :])
    fingerprints, trees = forest.trees()
    bounds, ids = view.index.home.last_numbers(view.txn, fingerprints)
    order = np.argsort(ids)
    first = np.empty(len(trees), np.int64)
    trees = np.repeat(trees, np.diff(bounds))[order]
    first[trees[::-1]] = np.arange(len(trees))[::-1]
    return ids[order], first[trees]


def find_clustering(view: View, search: Search, jobs: int = 1) -> Iterator[Clustering]:
    """Yield the clusters, as columns: all at once."""
    if search.similarity is not None:
        yield clustering_of(StoredTexts(view), search.similarity, jobs)
        return
    ids, firsts = _near(view, search.k, jobs)
    yield Clustering(ids, firsts, np.arange(len(ids)), np.ones(len(ids)), _PairTally().shares)


def clustering_of(texts: JoinedTexts, similarity: float, jobs: int = 1) -> Clustering:
    """Return the clusters of texts, with the texts that their documents share."""
    pairs = _PairTally()
    ids, firsts, copies = _similar(texts, similarity, jobs, pairs.add)
    parts = range(0, max(len(ids), 1), _READ)
    digests = np.concatenate([texts.side(ids[at : at + _READ]).digests for at in parts])
    own = np.arange(len(ids))
    same = _first_of_each([firsts.astype(np.uint64), *digests.T])
    originals = np.where(digests.any(axis=1), same, own)
    edited = originals == own
    pairs.shares[-1] += int(edited[ids.searchsorted(copies)].sum())
    least = np.ones(len(ids))
    for some, shares in pairs.reduced():
        least[ids.searchsorted(some)] = shares
    return Clustering(ids, firsts, originals, least, pairs.shares)


def _first_equal(side: Side) -> Places:
    """Return for each document the first one that has its fingerprint and sketch.

    Of a document without a sketch, the digest of the text counts.
    """
    sketched = has_sketch(side.sketches)
    unsketched = np.where(sketched[:, np.newaxis], np.uint64(0), side.digests)
    columns = [*as_words(side.fingerprints), *side.sketches.view(np.uint64).T, *unsketched.T]
    hashed = np.zeros(len(sketched), np.uint64)
    for column in columns:
        hashed = mix(hashed ^ column)
    first = _first_of_each([hashed])
    # Two that differ may have one hash, by chance.
    same = np.logical_and.reduce([column[first] == column for column in columns])
    return np.where(same & (sketched | unsketched.any(axis=1)), first, np.arange(len(first)))


def _first_of_each(rows: Rows) -> Places:
    """Return for each row the first one that equals it."""
    distinct, names = ranked(rows)
    first = np.full(len(distinct[0]), len(names))
    np.minimum.at(first, names, np.arange(len(names)))
    return first[names]


class _PairTally:
    """Counts pairs by similarity, and finds the least of each document."""

    def __init__(self) -> None:
        self.shares = np.zeros(101, np.int64)
        self._held: list[tuple[Column, Shares]] = []
        self._size = 0
        self._most = _CONNECTIONS

    def add(self, first: Column, second: Column, shares: Shares) -> None:
        percents = np.floor(shares * 100 + 1e-9).astype(np.int64)
        self.shares += np.bincount(percents, minlength=101)
        self._held += [(first, shares), (second, shares)]
        self._size += 2 * len(first)
        if self._size > self._most:
            self._held = self.reduced()
            self._size = len(self._held[0][0])
            self._most = max(_CONNECTIONS, 2 * self._size)

    def reduced(self) -> list[tuple[Column, Shares]]:
        """Return the documents, sorted, with the least similarity of each; or nothing."""
        if not self._held:
            return []
        ids, shares = (np.concatenate(column) for column in zip(*self._held, strict=True))
        order = np.argsort(ids, kind="stable")
        starts = run_starts(ids[order])
        return [(ids[order][starts], np.minimum.reduceat(shares[order], starts))]


def _similar(
    texts: JoinedTexts,
    similarity: float,
    jobs: int,
    on_pairs: Callable[[Column, Column, Shares], object] = lambda *_: None,
) -> tuple[Column, Places, Column]:
    """Return what `_near` does, of the documents that similar pairs connect, and the copies.

    Copies have the same fingerprint and sketch as an earlier document, and so are near the same
    documents: they aren't compared.
    """
    forest = _Forest(1)
    copies = [NO_IDS]
    for ids, side in texts.sharing():
        originals = ids[_first_equal(side)]
        copied = originals != ids
        forest.connect([originals[copied]], [ids[copied]])
        copies.append(ids[copied])
    copied_ids = np.sort(np.concatenate(copies))
    for found in similar_pairs(texts, similarity, jobs, copied_ids):
        forest.connect([found.first], [found.second])
        on_pairs(found.first, found.second, found.shares)
    [ids], trees = forest.trees()
    return ids, trees, copied_ids


class _Forest:
    """Rows, of ids or fingerprints, and what connects them, in memory that grows with the rows."""

    def __init__(self, columns: int) -> None:
        self._parts: list[tuple[Rows, Rows]] = [([NO_IDS] * columns, [NO_IDS] * columns)]
        self._size = 0
        self._most = _CONNECTIONS

    def connect(self, first: Rows, second: Rows) -> None:
        """Put rows into one tree, pair by pair."""
        self._parts.append((first, second))
        self._size += len(first[0])
        if self._size > self._most:
            rows, trees = self.trees()
            # One connection for each row is enough.
            self._parts = [(rows, [column[trees] for column in rows])]
            self._size = len(trees)
            self._most = max(_CONNECTIONS, 2 * self._size)

    def trees(self) -> tuple[Rows, Places]:
        """Return the rows, sorted, and for each the place of the lowest one in its tree."""
        first, second = (joined(side) for side in zip(*self._parts, strict=True))
        rows, names = ranked(joined([first, second]))
        own, other = np.split(names, 2)
        return rows, _components(len(rows[0]), own, other)


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
