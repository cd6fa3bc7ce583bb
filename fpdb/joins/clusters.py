"""Clusters: the documents that pairs connect, and which of them stays."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import Any

import numpy as np

from fpdb.arrays import Column, Marks, Places, Rows, among, joined, ranked, run_starts, unique
from fpdb.documents.catalog import View
from fpdb.documents.lookup import Search
from fpdb.documents.similarity import Alike, KnownTexts, Shares, decided, equal_texts, jaccard
from fpdb.fingerprint.sketches import doubtful_estimates, has_sketch, least_estimate, mix
from fpdb.joins.join import near_pairs
from fpdb.joins.pairs import (
    NO_IDS,
    JoinedTexts,
    StoredTexts,
    keys_of,
    shared_rows,
    similar_pairs,
)
from fpdb.joins.preference import Preference
from fpdb.models import Cluster
from fpdb.progress import tracked
from fpdb.storage.block import Block, TextColumns
from fpdb.storage.format import Stored
from fpdb.storage.origin import fields_of
from fpdb.tables.bits import Fingerprints, as_words, distances, of_words

# Connections held before they are replaced by one for each document.
_CONNECTIONS = 1 << 20
# Documents that are read at once.
_READ = 1 << 16
# Marks the pairs of documents, by their places, that match.
_Matcher = Callable[[Places, Places], Marks]


@dataclass(frozen=True, eq=False)
class Clustering:
    """All clusters at once, in columns with a row for each document.

    `ids` are sorted. `firsts` has the place of the document of the cluster that all resemble, and
    `originals` that of the first one with the same text. `least` is how similar a document is to
    that of `firsts`, estimated unless both texts are known. Documents with the same text, or the
    same sketch and fingerprint, are compared once. `shares` counts the pairs of different texts by
    their similarity in percent, rounded down; that of some is `estimated` although texts are known,
    which is None if none are. Where bits are compared, no document has the text of another one, and
    nothing is counted.
    """

    ids: Column
    firsts: Places
    originals: Places
    least: Shares
    shares: Places
    estimated: int | None = None


def finder_of_clusters(keep: str, *, chains: bool = False) -> Callable[..., Iterator[Cluster]]:
    """Return what finds clusters, or raise InputError if `keep` is none of a document."""
    Preference.of(keep)
    return partial(find_clusters, keep=keep, chains=chains)


def find_clusters(
    view: View, search: Search, jobs: int = 1, *, keep: str, chains: bool = False
) -> Iterator[Cluster]:
    """Yield clusters, each in the order of ids, but the document that `keep` names first.

    Of those with the same value, that is the one with the smallest id. All others resemble it: of
    the documents that pairs connect and that don't, the next to keep is the first of another
    cluster. With `chains`, all that pairs connect are one cluster.
    """
    preference = Preference.of(keep)
    texts, known = StoredTexts(view) if search.similarity else None, search.known
    ids, labels, prints = (
        _near(view, search.k, jobs)
        if texts is None
        else _similar(texts, search.similarity or 0.0, jobs, known=known)
    )
    values = np.zeros(len(ids))
    if keep != "first":
        # All are read before the first cluster is yielded, since an error comes first.
        listed = tracked(ids.tolist(), "read", "document", len(ids))
        for place, number in enumerate(listed):
            values[place] = _value(view.catalog.named(view.txn, number), preference)
        if len(ids):
            preference.check(values, "document of a cluster")
    for rows in tracked(_whole_groups(labels), "list", "document", len(ids), len):
        numbers, near = ids[rows], None
        if not chains:
            if texts is None:
                near = _by_bits(prints[rows], search.k)
            else:
                places = None if known is None else _places(texts, numbers, known)
                [sorted_ids], ranks = ranked([numbers])
                columns = texts.columns(sorted_ids)[ranks]
                near = _ComparedGroup(columns, search.similarity or 0.0, known, places).near
        firsts = _divided(labels[rows], values[rows], near)
        order = np.lexsort((firsts != np.arange(len(rows)), firsts))
        keys = keys_of(view, numbers[order])
        for start, stop in pairwise([*run_starts(firsts[order]).tolist(), len(rows)]):
            if stop - start > 1:
                yield Cluster(keys[start], tuple(keys[start + 1 : stop]))


def _value(document: Stored, preference: Preference) -> float:
    """Return the value of which the document to keep has most."""
    if not preference.field:
        return document.characters
    return preference.value(fields_of(document.meta).get(preference.field))


def _whole_groups(labels: Places) -> list[Places]:
    """Return the rows, group by group, in parts of many groups or of a large one."""
    order = np.argsort(labels, kind="stable")
    starts = run_starts(labels[order])
    return np.split(order, starts[run_starts(starts // _READ)][1:])


def _by_bits(prints: Fingerprints, k: int) -> _Matcher:
    bits = 64 * prints.ndim
    return lambda one, other: distances(prints[one], prints[other], bits) <= k


def _places(texts: JoinedTexts, ids: Column, known: KnownTexts) -> Places:
    """Return where the texts of documents are among the known ones."""
    starts = range(0, max(len(ids), 1), _READ)
    parts = (texts.documents(ids[start : start + _READ]) for start in starts)
    return np.concatenate([known.places(part) for part in parts])


@dataclass(frozen=True, eq=False)
class _ComparedGroup:
    """The texts of a group, in places among the known ones if there are any.

    Those that are marked to stay match none before them.
    """

    texts: TextColumns
    similarity: float
    known: KnownTexts | None = None
    places: Places | None = None
    stay: Marks | None = None

    def near(self, one: Places, other: Places) -> Marks:
        alike, _ = self.compared(one, other)
        return alike if self.stay is None else alike & ~self.stay[other]

    def compared(self, one: Places, other: Places) -> tuple[Marks, Shares]:
        """Mark the pairs that are similar, and return how similar all are."""
        texts, similarity, known, places = self.texts, self.similarity, self.known, self.places
        shares = jaccard(texts, one, texts, other)
        if known is None or places is None:
            return shares >= least_estimate(similarity), shares
        alike = np.zeros(len(shares), np.bool_)
        [left] = (shares >= doubtful_estimates(similarity)[0]).nonzero()
        one, other = one[left], other[left]
        equal = equal_texts(texts, one, texts, other)
        exact = known.shares(places[one], places[other])
        alike[left], shares[left], _ = decided(shares[left], equal, exact, similarity)
        return alike, shares


def _divided(labels: Places, values: Shares, near: _Matcher | None) -> Places:
    """Return for each document the place of the one that stays for it, in the group of its label.

    The one with the largest value stays, and the first one of these, for all that are near it; of
    the others, again the one with the largest value stays. If nothing says what is near, all of a
    group are.
    """
    left = np.lexsort((-values, labels))
    firsts = np.arange(len(left))
    while len(left):
        starts = run_starts(labels[left])
        best = np.repeat(left[starts], np.diff(starts, append=len(left)))
        settled = (best == left) | (near is None or near(best, left))
        firsts[left[settled]] = best[settled]
        left = left[~settled]
    return firsts


def _near(view: View, k: int, jobs: int) -> tuple[Column, Places, Fingerprints]:
    """Return the documents that pairs connect, sorted, each with the first one, and fingerprints.

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
    rows = np.repeat(np.arange(len(trees)), np.diff(bounds))[order]
    trees = trees[rows]
    first[trees[::-1]] = np.arange(len(trees))[::-1]
    return ids[order], first[trees], of_words(fingerprints)[rows]


def find_clustering(view: View, search: Search, jobs: int = 1) -> Iterator[Clustering]:
    """Yield the clusters, as columns: all at once."""
    if search.similarity is not None:
        yield clustering_of(StoredTexts(view), search.similarity, jobs, known=search.known)
        return
    ids, labels, prints = _near(view, search.k, jobs)
    firsts = _divided(labels, np.zeros(len(ids)), _by_bits(prints, search.k))
    ids, firsts = _several(ids, firsts)
    none = np.zeros(101, np.int64)
    yield Clustering(ids, firsts, np.arange(len(ids)), np.ones(len(ids)), none)


def clustering_of(
    texts: JoinedTexts,
    similarity: float,
    jobs: int = 1,
    stays: Marks | None = None,
    known: KnownTexts | None = None,
) -> Clustering:
    """Return the clusters of texts, with the texts that their documents share.

    Those that stay, if any are marked by their ids, are each the first of a cluster.
    """
    counts, estimated = np.zeros(101, np.int64), 0

    def count(pairs: Alike) -> None:
        nonlocal estimated
        percents = np.floor(pairs.shares * 100 + 1e-9).astype(np.int64)
        counts[:] += np.bincount(percents, minlength=101)
        estimated += int(np.count_nonzero(~pairs.sure))

    ids, labels, copies = _similar(texts, similarity, jobs, count, known)
    firsts, least = np.arange(len(ids)), np.ones(len(ids))
    digests = np.zeros((len(ids), 2), np.uint64)
    for rows in map(np.sort, _whole_groups(labels)):
        columns, places = texts.columns(ids[rows]), np.arange(len(rows))
        stay = places < 0 if stays is None else stays[ids[rows].astype(np.int64)]
        at = None if known is None else _places(texts, ids[rows], known)
        group = _ComparedGroup(columns, similarity, known, at, stay)
        best = _divided(labels[rows], stay.astype(np.float64), group.near)
        firsts[rows], digests[rows] = rows[best], columns.digests
        least[rows] = np.where(best == places, 1.0, group.compared(best, places)[1])
    ids, firsts, least, digests = _several(ids, firsts, least, digests)
    originals = _first_of_digest(digests, firsts.astype(np.uint64))
    edited = originals == np.arange(len(ids))
    counts[-1] += np.count_nonzero(edited & among(ids, copies))
    return Clustering(ids, firsts, originals, least, counts, None if known is None else estimated)


def find_groups(view: View) -> Iterator[Clustering]:
    """Yield the groups that the database keeps, as columns; the first of each is its keeper."""
    [tables] = filter(None, [view.index.groups])
    keepers, members = joined([tables.members.empty(), *tables.members.scan(view.txn)])
    ids = unique(np.concatenate([keepers, members]))
    read = (view.catalog.named(view.txn, number) for number in ids.tolist())
    blocks = iter(lambda: list(islice(read, _READ)), [])
    none = Block.of([], view.index.plan.bits).columns
    columns = joined([none, *(Block.of(block, view.index.plan.bits).columns for block in blocks)])
    texts, places = TextColumns(*columns), np.arange(len(ids))
    firsts = places.copy()
    firsts[ids.searchsorted(members)] = ids.searchsorted(keepers)
    least = jaccard(texts, places, texts, firsts)
    originals = _first_of_digest(texts.digests, firsts.astype(np.uint64))
    edited = least[(originals == places) & (firsts != places)]
    counts = np.bincount(np.floor(edited * 100 + 1e-9).astype(np.int64), minlength=101)
    yield Clustering(ids, firsts, originals, least, counts)


def _several(ids: Column, firsts: Places, *columns: Any) -> list[Any]:
    """Return the columns of documents, given the first of each one's cluster, without lone ones."""
    several = np.bincount(firsts, minlength=len(ids))[firsts] > 1
    places = np.cumsum(several) - 1
    return [ids[several], places[firsts[several]], *(column[several] for column in columns)]


def _first_equal(texts: TextColumns) -> Places:
    """Return for each document the first one that has its fingerprint and sketch.

    Of a document without a sketch, the digest of the text counts.
    """
    sketched = has_sketch(texts.sketches)
    unsketched = np.where(sketched[:, np.newaxis], np.uint64(0), texts.digests)
    columns = [*as_words(texts.fingerprints), *texts.sketches.view(np.uint64).T, *unsketched.T]
    hashed = np.zeros(len(sketched), np.uint64)
    for column in columns:
        hashed = mix(hashed ^ column)
    first = _first_of_each([hashed])
    # Two that differ may have one hash, by chance.
    same = np.logical_and.reduce([column[first] == column for column in columns])
    return np.where(same & (sketched | unsketched.any(axis=1)), first, np.arange(len(first)))


def _first_of_digest(digests: Column, *columns: Column) -> Places:
    """Return for each document the first one with its text, and with equal columns."""
    first = _first_of_each([*columns, *digests.T])
    return np.where(digests.any(axis=1), first, np.arange(len(first)))


def _first_of_each(rows: Rows) -> Places:
    """Return for each row the first one that equals it."""
    distinct, names = ranked(rows)
    first = np.full(len(distinct[0]), len(names))
    np.minimum.at(first, names, np.arange(len(names)))
    return first[names]


def _similar(
    texts: JoinedTexts,
    similarity: float,
    jobs: int,
    on_pairs: Callable[[Alike], object] = lambda _: None,
    known: KnownTexts | None = None,
) -> tuple[Column, Places, Column]:
    """Return what `_near` does, of the documents that similar pairs connect, and the copies.

    Copies have the same fingerprint and sketch as an earlier document, and so are near the same
    documents: they aren't compared. Where equal sketches don't show that, known texts have to.
    """
    forest = _Forest(1)
    by_digest = known is not None and doubtful_estimates(similarity)[1] >= 1
    copies = [NO_IDS]
    for ids, columns in texts.sharing():
        originals = ids[_first_of_digest(columns.digests) if by_digest else _first_equal(columns)]
        copied = originals != ids
        forest.connect([originals[copied]], [ids[copied]])
        copies.append(ids[copied])
    copied_ids = np.sort(np.concatenate(copies))
    for pairs in similar_pairs(texts, similarity, jobs, copied_ids, known):
        forest.connect([pairs.first], [pairs.second])
        on_pairs(pairs)
    [ids], trees = forest.trees()
    return ids, trees, copied_ids


class _Forest:
    """Rows, of ids or fingerprints, and their connections, in memory that grows with the rows."""

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
        one, other = np.split(names, 2)
        return rows, _components(len(rows[0]), one, other)


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
