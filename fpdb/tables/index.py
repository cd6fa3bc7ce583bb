"""The permutation tables of a database: find fingerprints near another, insert and remove them."""

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.storage import ReadTransaction, WriteTransaction
from fpdb.storage.columns import Column, Rows, number_at, raw_column, rows_of, unpack_rows
from fpdb.tables.bits import Fingerprints, Permutation, Steps, distinct, order, to_ints
from fpdb.tables.pages import Pages, seek
from fpdb.tables.plan import Plan

_WORD_BITS = 64
_WORD = (1 << _WORD_BITS) - 1
# Behind every key that begins with the bytes before it.
_BEHIND = b"\xff" * 9
# So many hits are taken one by one, with the ids that stand beside them.
_FEW = 64
_UINT64 = np.dtype(np.uint64)


class Nearby(NamedTuple):
    """Distinct fingerprints with their distances; not complete if the budget ended the search.

    `ids` has the documents of those that stand on pages which had to be read anyway.
    """

    distances: dict[int, int]
    complete: bool
    ids: dict[int, list[int]]


class _Route(NamedTuple):
    """The probes of one table, made ready: masks stand where they change the permuted bits."""

    table: Pages
    permutation: Permutation
    below: int  # the bits behind the prefix
    masks: tuple[int, ...]


class _Lane(NamedTuple):
    """What a single query needs of a route, with nothing left to look up."""

    name: str
    columns: int
    behind: int  # the bits of a page's key behind the fingerprint
    steps: Steps
    below: int
    masks: tuple[int, ...]


class _Hits(NamedTuple):
    """The candidates of one query that are near, in what was read for it."""

    places: NDArray[np.intp]
    changes: Rows
    distances: NDArray[np.uint8]
    ends: list[int]
    pages: list[memoryview]


class Index:
    """The tables of a plan. The home table carries ids, the others distinct fingerprints."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        words = 2 if plan.bits == 128 else 1
        self._words = words
        names = [f"table-{number:02d}" for number in range(len(plan.tables))]
        self.home = Pages(names[0], words + 1, words + 1)
        self.further = [Pages(name, words, words) for name in names[1:]]
        self.routes = lru_cache(maxsize=None)(self._find_routes)
        self.lanes = lru_cache(maxsize=None)(self._find_lanes)

    @property
    def names(self) -> list[str]:
        """The names of all tables."""
        return [table.name for table in (self.home, *self.further)]

    def update(
        self,
        txn: WriteTransaction,
        insert: tuple[Fingerprints, Column],
        remove: tuple[Fingerprints, Column],
    ) -> None:
        """Remove and insert fingerprints with the ids of their documents, in all tables."""
        self.home.splice(txn, self._home_rows(*insert), self._home_rows(*remove))
        gone = distinct(remove[0])
        if len(gone):
            left = [not self._is_home(txn, number) for number in self.numbers(gone)]
            gone = gone[np.array(left, np.bool_)]
        come = distinct(insert[0])
        for table, pages in zip(self.plan.tables[1:], self.further, strict=True):
            pages.splice(
                txn, self._rows(table.permutation, come), self._rows(table.permutation, gone)
            )

    def holds(
        self, txn: ReadTransaction, fingerprints: Fingerprints, ids: Column
    ) -> NDArray[np.bool_]:
        """Say of each document whether it is stored with this fingerprint."""
        sequence = order(fingerprints, ids)
        rows = [*self.words(fingerprints[sequence]), ids[sequence]]
        found = np.empty(len(ids), np.bool_)
        found[sequence] = self.home.holds(txn, rows)
        return found

    def _home_rows(self, fingerprints: Fingerprints, ids: Column) -> Rows:
        sequence = order(fingerprints, ids)
        return [*self.words(fingerprints[sequence]), ids[sequence]]

    def _rows(self, permutation: Permutation, fingerprints: Fingerprints) -> Rows:
        permuted = permutation.apply(fingerprints)
        return self.words(permuted[order(permuted)])

    def words(self, fingerprints: Fingerprints) -> Rows:
        """Take an array of fingerprints apart into its columns."""
        if self._words == 1:
            return [fingerprints]
        return [np.ascontiguousarray(fingerprints[:, word]) for word in range(2)]

    def numbers(self, fingerprints: Fingerprints) -> list[int]:
        """Give an array of fingerprints as whole numbers."""
        return to_ints(fingerprints, self.plan.bits)

    def _home_key(self, fingerprint: int, number: int = 0) -> bytes:
        return fingerprint.to_bytes(8 * self._words, "big") + number.to_bytes(8, "big")

    def _is_home(self, txn: ReadTransaction, fingerprint: int) -> bool:
        return next(iter(self.ids(txn, fingerprint)), None) is not None

    def ids(self, txn: ReadTransaction, fingerprint: int, after: int = 0) -> Iterable[int]:
        """Give the ids of the documents with a fingerprint, in their order, from one on."""
        if self._words == 1 and not after:
            # Most fingerprints have one document, which a short cut finds.
            cursor = txn.kept_cursor(self.home.name)
            beyond = fingerprint.to_bytes(8, "big") + _BEHIND
            if not (cursor.prev() if cursor.set_range(beyond) else cursor.last()):
                return ()
            page = cursor.value()
            column, _ = raw_column(page, self.home.columns)
            numbers = column.cast("Q")
            row = bisect_right(numbers, fingerprint) - 1
            if row < 0 or numbers[row] != fingerprint:
                return ()
            if row > 0 and numbers[row - 1] != fingerprint:
                return (number_at(page, self.home.columns, row),)
        return self._all_ids(txn, fingerprint, after)

    def _all_ids(self, txn: ReadTransaction, fingerprint: int, after: int) -> Iterator[int]:
        own = [np.uint64(word) for word in self._split(fingerprint)]
        cursor = txn.raw.cursor(txn.databases[self.home.name])
        found = seek(cursor, self._home_key(fingerprint, after))
        while found:
            rows = unpack_rows(cursor.value(), self.home.columns)
            start, stop = 0, len(rows[0])
            for column, word in zip(rows, own, strict=False):
                within = column[start:stop]
                stop = start + int(within.searchsorted(word, "right"))
                start += int(within.searchsorted(word))
            numbers = rows[-1][start:stop]
            yield from (numbers[numbers >= after] if after else numbers).tolist()
            found = stop == len(rows[0]) and cursor.next()

    def locate(self, txn: ReadTransaction, high: int, number: int) -> int | None:
        """Find the fingerprint of a document whose 32 highest bits are known.

        It looks at whole pages, and a run of equal fingerprints, however long, is one step.
        """
        below = self.plan.bits - 32
        candidate, end = high << below, (high + 1) << below
        with txn.cursor(self.home.name) as cursor:
            while candidate < end and seek(cursor, self._home_key(candidate, number)):
                rows = unpack_rows(cursor.value(), self.home.columns)
                for at in (rows[-1] == number).nonzero()[0].tolist():
                    fingerprint = _row(rows[:-1], at)
                    if fingerprint >> below == high:
                        return fingerprint
                last = _row(rows[:-1], -1)
                if last > candidate:
                    candidate = last
                elif cursor.next():
                    rows = unpack_rows(cursor.value(), self.home.columns)
                    candidate = max(candidate + 1, _row(rows[:-1], 0))
                else:
                    return None
        return None

    def near(  # noqa: PLR0912, PLR0915 - calls in the loop would take a quarter of the time
        self, txn: ReadTransaction, fingerprint: int, k: int, budget: int
    ) -> Nearby:
        """Find all distinct fingerprints within k, reading about `budget` candidates at most."""
        narrow, width = self._words == 1, 8 * self._words
        parts: list[memoryview] = []
        rests: list[memoryview] = []  # the second words
        pages: list[memoryview] = []
        own: list[tuple[int, int]] = []  # for each table, the permuted query and its candidates
        ends: list[int] = []  # where the candidates of each table end
        kept = txn.cursors
        room = budget
        for name, columns, behind, (still, left, right), below, masks in self.lanes(k):
            permuted = fingerprint & still
            for mask, by in left:
                permuted |= (fingerprint & mask) << by
            for mask, by in right:
                permuted |= (fingerprint & mask) >> by
            if len(masks) == 1:
                highs = [permuted | below]
            else:
                highs = sorted([(permuted ^ mask) | below for mask in masks])
            cursor = kept.get(name) or txn.kept_cursor(name)
            before = room
            newest = last = -1  # the last page that an earlier prefix read, and that any did
            for high in highs:
                # From the last page whose key isn't behind the prefix back to the first with it.
                beyond = high.to_bytes(width, "big") + _BEHIND
                there = cursor.prev() if cursor.set_range(beyond) else cursor.last()
                low = high - below << behind
                while there:
                    key, page = cursor.item()
                    first = int.from_bytes(key, "big")
                    if first <= newest:
                        break
                    if first > last:  # noqa: PLR1730 - max() takes as long as a probe's seek
                        last = first
                    if narrow:
                        part, count = raw_column(page, columns)
                    else:
                        high_words, low_words = unpack_rows(page, columns, 2)
                        part, count = high_words.data, len(low_words)
                        rests.append(low_words.data)
                    parts.append(part)
                    pages.append(page)
                    room -= count
                    if first <= low or room < 0:
                        break
                    there = cursor.prev()
                newest = last
                if room < 0:
                    break
            own.append((permuted, before - room))
            ends.append(budget - room)
            if room < 0:
                break
        nearby = Nearby({}, room >= 0, {})
        if pages:
            changes, distances = _compare(parts, rests, own)
            if distances.item(distances.argmin()) <= k:
                hits = (distances <= k).nonzero()[0]
                self._collect(fingerprint, k, _Hits(hits, changes, distances, ends, pages), nearby)
        if room < 0 and self._is_home(txn, fingerprint):
            nearby.distances[fingerprint] = 0
        return nearby

    def _collect(self, fingerprint: int, k: int, found: _Hits, nearby: Nearby) -> None:
        """Turn the candidates within k into fingerprints, with their ids where those stand by."""
        hits, changes, distances, ends, pages = found
        routes = self.routes(k)
        # All rows with a probed prefix were read, and the home table's have the ids beside them.
        home = ends[0] if nearby.complete and routes[0].table is self.home else 0
        if len(hits) > _FEW:
            # Of a run of equal fingerprints one is enough, and its ids are read page by page.
            fresh = np.ones(len(hits), np.bool_)
            fresh[1:] = np.diff(hits) > 1
            for column in changes:
                fresh[1:] |= np.diff(column[hits]) != 0
            hits, home = hits[fresh], 0
        for hit in hits.tolist():
            route = routes[bisect_right(ends, hit)]
            change = changes[0].item(hit)
            if len(changes) == 2:
                change = change << _WORD_BITS | changes[1].item(hit)
            near = fingerprint ^ route.permutation.invert_one(change)
            nearby.distances[near] = distances.item(hit)
            if hit < home and change & ~route.below in route.masks:
                insort(nearby.ids.setdefault(near, []), self._id_at(pages, hit))

    def _id_at(self, pages: list[memoryview], row: int) -> int:
        """Read the id beside a row of the home pages."""
        for page in pages:
            count = rows_of(page)
            if row < count:
                return number_at(page, self.home.columns, row)
            row -= count
        raise IndexError(row)

    def _split(self, fingerprint: int) -> tuple[int, ...]:
        return (fingerprint,) if self._words == 1 else (fingerprint >> 64, fingerprint & _WORD)

    def _find_routes(self, k: int) -> list[_Route]:
        routes = []
        for probes in self.plan.probes(k):
            table = self.plan.tables[probes.table]
            shift = self.plan.bits - table.prefix
            # Probes in the order of a table's keys visit each page once.
            masks = tuple(mask << shift for mask in probes.masks)
            pages = (self.home, *self.further)[probes.table]
            routes.append(_Route(pages, table.permutation, (1 << shift) - 1, masks))
        return routes

    def _find_lanes(self, k: int) -> list[_Lane]:
        return [
            _Lane(
                table.name,
                table.columns,
                8 * table.key_width - 64 * self._words,
                permutation.steps,
                below,
                masks,
            )
            for table, permutation, below, masks in self.routes(k)
        ]


def _compare(
    parts: list[memoryview], rests: list[memoryview], own: list[tuple[int, int]]
) -> tuple[Rows, NDArray[np.uint8]]:
    """Find in which bits the candidates of each table differ from its query, and in how many."""
    if not rests:
        column = np.frombuffer(b"".join(parts), _UINT64)
        # Bytes are repeated faster than numbers in an array.
        queries = b"".join([query.to_bytes(8, "little") * count for query, count in own])
        change = column ^ np.frombuffer(queries, _UINT64)
        return [change], np.bitwise_count(change)
    counts = [count for _, count in own]
    high = np.array([query >> _WORD_BITS for query, _ in own], np.uint64).repeat(counts)
    low = np.array([query & _WORD for query, _ in own], np.uint64).repeat(counts)
    high ^= np.frombuffer(b"".join(parts), np.uint64)
    low ^= np.frombuffer(b"".join(rests), np.uint64)
    return [high, low], np.bitwise_count(high) + np.bitwise_count(low)


def _row(columns: Rows, at: int) -> int:
    return _joined([int(column[at]) for column in columns])


def _joined(words: Sequence[int]) -> int:
    return words[0] if len(words) == 1 else words[0] << 64 | words[1]
