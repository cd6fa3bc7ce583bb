"""Pairs of documents: with near fingerprints, with similar texts, and with parts in both."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
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
    following,
    gathered,
    in_runs,
    joined,
    portions,
    ranked,
    run_starts,
)
from fpdb.documents.catalog import View
from fpdb.documents.lookup import Search
from fpdb.documents.similarity import Alike, KnownTexts, alike, decided
from fpdb.errors import DamagedError, IncompleteWarning
from fpdb.fingerprint.sketches import WINDOW, doubtful_estimates, least_estimate, unpack_passages
from fpdb.joins.join import NearPairs, complete_buckets, near_pairs
from fpdb.models import Key, Pair, PartPair
from fpdb.progress import tracked
from fpdb.storage.block import TextColumns
from fpdb.storage.format import Stored
from fpdb.tables.bands import Bands, sorted_rows
from fpdb.tables.passages import MOST_OF_A_PASSAGE
from fpdb.tables.sorted_pages import NumberPages
from fpdb.threads import mapped

# Rows of the home table read at once.
_ROWS = 1 << 19
# Pairs of fingerprints whose documents are looked up at once.
_NEAR = 1 << 18
# Pairs of documents that are made and compared at once.
_PAIRS = 1 << 15
# Pairs of documents that agree in a band, which are held to find those that agree in several.
_HELD = 1 << 22
# The next documents that each one of a crowd meets, which shares a band and so boilerplate.
MOST_MET = 1_000
# Pairs that share a passage, of a range of first documents, that are held at once; and those whose
# documents are read together.
_HELD_PARTS, _READ_PARTS = 1 << 23, 1 << 14
_BUCKETS = 1 << 16  # of ids
_SPACING = (WINDOW + 1) / 2  # words for each number, on average
NO_IDS: Column = np.empty(0, np.uint64)


class StoredTexts:
    """The texts of a database, which bands find."""

    def __init__(self, view: View) -> None:
        if view.index.bands is None:
            raise DamagedError("a database without bands was queried for similar texts")
        self.shape, self.bits = view.index.bands.shape, view.index.plan.bits
        self._pages, self._view = view.index.bands.pages, view

    def rows(self) -> Iterator[Rows]:
        """Yield the rows of the bands, numbers and ids, sorted; equal numbers in one block."""
        return shared_rows(self._view, self._pages)

    def sharing(self) -> Iterator[tuple[Column, TextColumns]]:
        """Yield the documents that share a fingerprint; all of one fingerprint in one block."""
        for *_, shared_ids in shared_rows(self._view, self._view.index.home):
            ids = self._view.catalog.recorded(self._view.txn, shared_ids)
            yield ids, self.columns(ids)

    def columns(self, ids: Column) -> TextColumns:
        """Return the columns of texts, given their ids, which are best sorted."""
        return self._view.catalog.texts(self._view.txn, ids)

    def documents(self, ids: Column) -> list[Stored]:
        return stored_of(self._view, ids)


class TextsInColumns:
    """Texts in columns, by their places."""

    def __init__(self, columns: TextColumns, shape: Bands, compared: Places) -> None:
        self.shape, self.bits = shape, 64 * columns.fingerprints.ndim
        self._columns, self._ids = columns, compared.astype(np.uint64)

    def rows(self) -> Iterator[Rows]:
        """Yield the rows of the bands, numbers and places, sorted."""
        texts = self.columns(self._ids)
        numbers, marks = self.shape.columns(texts.sketches, texts.digests)
        yield sorted_rows([numbers[marks], self._ids[marks.nonzero()[0]]])

    def sharing(self) -> Iterator[tuple[Column, TextColumns]]:
        """Yield all texts, as some may share a fingerprint."""
        yield self._ids, self.columns(self._ids)

    def columns(self, ids: Column) -> TextColumns:
        return self._columns[ids.astype(np.int64)]

    def documents(self, ids: Column) -> list[Stored]:
        """Return texts as documents that go by their places and digests."""
        digests = map(bytes, self.columns(ids).digests)
        return [
            Stored(at, at, 0, 0, digest) for at, digest in zip(ids.tolist(), digests, strict=True)
        ]


JoinedTexts = StoredTexts | TextsInColumns


class _Meeting(NamedTuple):
    """Pairs of documents that agree in bands, as places among the ids.

    Pairs found by a number from `low` to `high` count; all others are met elsewhere.
    """

    low: np.uint64
    high: np.uint64
    ids: Column
    texts: TextColumns
    first: Places
    second: Places


def find_pairs(view: View, search: Search, jobs: int = 1) -> Iterator[Pair]:
    """Yield all pairs of documents near each other, each once."""
    near: Iterator[Sequence[NDArray[Any]]]
    if search.similarity is None:
        near = _near_documents(view, search.k, jobs)
    else:
        similar = similar_pairs(StoredTexts(view), search.similarity, jobs, known=search.known)
        near = ([*pairs[:2], pairs.distances, pairs.shares, pairs.sure] for pairs in similar)
    for first, second, *columns in near:
        [ids], names = ranked([np.concatenate([first, second])])
        keys = keys_of(view, ids)
        sides = (half.tolist() for half in np.split(names, 2))
        for one, two, *values in zip(*sides, *(column.tolist() for column in columns), strict=True):
            yield Pair(keys[one], keys[two], *values)


def similar_pairs(
    texts: JoinedTexts,
    similarity: float,
    jobs: int = 1,
    copies: Column = NO_IDS,
    known: KnownTexts | None = None,
) -> Iterator[Alike]:
    """Yield the pairs of similar texts, but no pairs of `copies`, which are sorted ids.

    Texts that agree in a band are compared, each pair once: in the first of its bands that isn't
    crowded, or else in the first of all. With several `jobs`, this thread reads, and others
    compare, so that all is of one moment; this one compares the texts that are known.
    """
    least = doubtful_estimates(similarity)[0] if known else least_estimate(similarity)
    crowds = np.concatenate([NO_IDS, *(_crowded(numbers) for numbers, _ in texts.rows())])

    def compare(met: _Meeting) -> Alike:
        columns, ids = met.texts, met.ids
        pairs = alike(columns, met.first, columns, met.second, least=least, bits=texts.bits)
        rows = texts.shape.columns(columns.sketches, columns.digests)
        chosen = _meeting_at(rows, crowds, pairs.first, pairs.second)
        pairs = pairs.only((chosen >= met.low) & (chosen <= met.high))
        return pairs._replace(first=ids[pairs.first], second=ids[pairs.second])

    compared = (pairs for _, pairs in mapped(compare, _meetings_of(texts, copies), jobs))
    if known is None:
        return compared
    return (_decided(pairs, texts, similarity, known) for pairs in compared)


def _decided(pairs: Alike, texts: JoinedTexts, similarity: float, known: KnownTexts) -> Alike:
    """Return the pairs that are similar by their texts, as far as these are known."""
    [ids], names = ranked([np.concatenate([pairs.first, pairs.second])])
    places = known.places(texts.documents(ids))
    exact = known.shares(*np.split(places[names], 2))
    are_similar, shares, sure = decided(pairs.shares, pairs.sure, exact, similarity)
    return pairs._replace(shares=shares, sure=sure).only(are_similar)


def _meetings_of(texts: JoinedTexts, copies: Column) -> Iterator[_Meeting]:
    """Yield the pairs that agree in a band with what they are compared by, some at once."""
    for low, high, pairs in _candidates(_agreeing(texts, copies)):
        for start in _starts(len(pairs[0]), _PAIRS):
            [ids], names = ranked([np.concatenate([ids[start : start + _PAIRS] for ids in pairs])])
            yield _Meeting(low, high, ids, texts.columns(ids), *np.split(names, 2))


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


def _meeting_at(
    rows: tuple[Column, Marks], crowds: Column, first: Places, second: Places
) -> Column:
    """Return the number by which each pair is found: of its first band without a crowd, if any."""
    numbers, marks = rows
    crowded = among(numbers.reshape(-1), crowds).reshape(numbers.shape)
    same = (numbers[first] == numbers[second]) & marks[first]
    usual = same & ~crowded[first]
    band = np.where(usual.any(axis=1), usual.argmax(axis=1), same.argmax(axis=1))
    chosen: Column = numbers[first, band]
    return chosen


def _crowded(numbers: Column) -> Column:
    starts = run_starts(numbers)
    return numbers[starts[np.diff(starts, append=len(numbers)) > MOST_MET]]


def _agreeing(texts: JoinedTexts, copies: Column) -> Iterator[Rows]:
    """Yield the numbers of bands and the pairs of texts that agree in them."""
    largest = 0
    for numbers, ids in texts.rows():
        left = ~among(ids, copies)
        after, _ = in_runs(numbers[left])
        largest = max(largest, int(after.max(initial=0)))
        yield from _meetings(numbers[left], ids[left], np.minimum(after, MOST_MET))
    if largest > MOST_MET:
        warnings.warn(
            f"some pairs may be missing: {largest + 1:,} documents agree in a band of their "
            f"sketches, and each was compared with {MOST_MET:,} of them",
            IncompleteWarning,
            stacklevel=3,
        )


def _meetings(numbers: Column, ids: Column, counts: Places) -> Iterator[Rows]:
    """Yield pairs of sorted rows with one number: each row, and so many of those after it."""
    for part in portions(counts, _PAIRS):
        above, below = following(counts[part])
        if len(above):
            yield [numbers[part][above], ids[part][above], ids[part.start :][below]]


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
    if view.catalog.kind == "integer":
        return list(ids.tolist())
    keys = view.catalog.keys_of(view.txn, ids)
    if None in keys:
        raise DamagedError(f"the document {ids[keys.index(None)]} isn't there")
    return [key for key in keys if key is not None]


def stored_of(view: View, ids: Column) -> list[Stored]:
    return [view.catalog.named(view.txn, number) for number in ids.tolist()]


def _expand(view: View, near: NearPairs) -> Iterator[list[NDArray[Any]]]:
    """Pair the documents of each two fingerprints; two that share one are paired once."""
    *words, distances = near
    sides = words[: len(words) // 2], words[len(words) // 2 :]
    fingerprints, names = ranked(joined(sides))
    firsts, seconds = np.split(names, 2)
    bounds, ids = view.index.home.last_numbers(view.txn, fingerprints)
    counts = np.diff(bounds)
    products = counts[firsts] * counts[seconds]
    ends = np.cumsum(products)
    for start in _starts(int(ends[-1]), _PAIRS):
        pairs = np.arange(start, min(start + _PAIRS, int(ends[-1])))
        rows = ends.searchsorted(pairs, "right")
        one, two = firsts[rows], seconds[rows]
        above, below = np.divmod(pairs - (ends - products)[rows], counts[two])
        a, b = ids[bounds[one] + above], ids[bounds[two] + below]
        apart = distances[rows]
        once = (apart > 0) | (a < b)
        if once.any():
            yield [np.minimum(a, b)[once], np.maximum(a, b)[once], apart[once]]


def find_part_pairs(view: View, least: float) -> Iterator[PartPair]:
    """Yield pairs of which one document shares so much of its numbers with the other.

    The first one has the smaller id, and the pairs are in the order of these. The table is read
    again for each part of the pairs that fits into memory.
    """
    [table] = filter(None, [view.index.passages])
    with view.txn.cursor("documents") as cursor:
        last = int.from_bytes(cursor.key()) if cursor.last() else 0
    width = last // _BUCKETS + 1
    pairs_of, skipped = np.zeros(_BUCKETS, np.int64), 0
    for numbers, ids in shared_rows(view, table.pages):
        left, crowds = _meeting(numbers)
        skipped += crowds
        places = (ids // np.uint64(width)).astype(np.int64)
        pairs_of += np.bincount(places, left, _BUCKETS).astype(np.int64)
    if skipped:
        warnings.warn(
            f"some pairs may be missing: {skipped:,} passages are in more than "
            f"{MOST_OF_A_PASSAGE:,} documents each, and lead to none",
            IncompleteWarning,
            stacklevel=4,
        )
    for portion in portions(pairs_of, _HELD_PARTS):
        bounds = portion.start * width, portion.stop * width - 1
        if pairs_of[portion].any():
            yield from _compared_parts(view, _agreeing_parts(view, table.pages, *bounds), least)


def _meeting(numbers: Column) -> tuple[Places, int]:
    """Return how many rows each row meets, those after it, and how many runs are crowds.

    In a crowd it is none.
    """
    left, sizes = in_runs(numbers)
    crowded = sizes > MOST_OF_A_PASSAGE
    crowds = int(np.count_nonzero(crowded & (left == 0)))
    return np.where(crowded, 0, left), crowds


def _agreeing_parts(view: View, pages: NumberPages, low: int, high: int) -> Rows:
    """Return the distinct pairs whose first ids are in a range, and that agree in a row."""
    parts: list[Rows] = [[NO_IDS, NO_IDS]]
    for numbers, ids in shared_rows(view, pages):
        inside = (ids >= np.uint64(low)) & (ids <= np.uint64(high))
        parts += [pair for _, *pair in _meetings(numbers, ids, _meeting(numbers)[0] * inside)]
    return ranked(joined(parts))[0]


def _compared_parts(view: View, pairs: Rows, least: float) -> Iterator[PartPair]:
    """Yield the pairs whose documents share enough of their whole numbers."""
    for start in range(0, len(pairs[0]), _READ_PARTS):
        [ids], names = ranked(
            [np.concatenate([column[start : start + _READ_PARTS] for column in pairs])]
        )
        documents = stored_of(view, ids)
        numbers = [unpack_passages(stored.passages) for stored in documents]
        for one, two in zip(*(half.tolist() for half in np.split(names, 2)), strict=True):
            common = len(np.intersect1d(numbers[one], numbers[two], assume_unique=True))
            share, other_share = common / len(numbers[one]), common / len(numbers[two])
            if common and max(share, other_share) >= least:
                keys = documents[one].key, documents[two].key
                yield PartPair(*keys, round(common * _SPACING), share, other_share)
