"""The permutation tables of a database: find fingerprints near another, insert and remove them."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.storage import ReadTransaction, WriteTransaction
from fpdb.storage.columns import Column, Rows, unpack_rows
from fpdb.tables.bits import Fingerprints, Permutation, distinct, order, to_ints
from fpdb.tables.pages import Pages, seek
from fpdb.tables.plan import Plan

_WORD_BITS = 64
_WORD = (1 << _WORD_BITS) - 1


class Nearby(NamedTuple):
    """Distinct fingerprints with their distances; not complete if the budget ended the search."""

    distances: dict[int, int]
    complete: bool


class _Route(NamedTuple):
    """The probes of one table, made ready: masks stand where they change the permuted bits."""

    table: Pages
    permutation: Permutation
    below: int  # the bits behind the prefix
    masks: tuple[int, ...]


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
        return next(self.ids(txn, fingerprint), None) is not None

    def ids(self, txn: ReadTransaction, fingerprint: int, after: int = 0) -> Iterator[int]:
        """Give the ids of the documents with a fingerprint, in their order, from one on."""
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

    def near(self, txn: ReadTransaction, fingerprint: int, k: int, budget: int) -> Nearby:
        """Find all distinct fingerprints within k, reading about `budget` candidates at most."""
        pages: list[Rows] = []
        sizes: list[int] = []
        queries: list[int] = []
        routes = self.routes(k)
        for table, permutation, below, masks in routes:
            permuted = permutation.apply_one(fingerprint)
            if len(masks) == 1:
                highs = [permuted | below]
            else:
                highs = sorted([(permuted ^ mask) | below for mask in masks])
            queries.append(permuted)
            sizes.append(self._gather(txn, table, highs, below, budget, pages))
            budget -= sizes[-1]
            if budget < 0:
                break
        found: dict[int, int] = {}
        if pages:
            changes, distances = self._compare(pages, sizes, queries)
            hits = (distances <= k).nonzero()[0].tolist()
            ends = list(accumulate(sizes))
            for hit in hits:
                change = _joined([int(column[hit]) for column in changes])
                permutation = routes[bisect_right(ends, hit)].permutation
                found[fingerprint ^ permutation.invert_one(change)] = int(distances[hit])
        if budget < 0 and self._is_home(txn, fingerprint):
            found[fingerprint] = 0
        return Nearby(found, complete=budget >= 0)

    def _gather(  # noqa: PLR0917 - names would cost a microsecond of thirty
        self,
        txn: ReadTransaction,
        table: Pages,
        highs: list[int],
        below: int,
        budget: int,
        pages: list[Rows],
    ) -> int:
        """Read the pages that hold the probed prefixes of a table, and count the candidates."""
        words, width = self._words, 8 * self._words
        cursor = txn.raw.cursor(txn.databases[table.name])
        read = 0
        last = -1  # everything up to here was read
        for high in highs:
            if last >= high:
                continue
            low = max(high - below, last + 1)
            key = low.to_bytes(width, "big") + bytes(table.key_width - width)
            # The page before the first key behind it; a page too many is read where it is a key.
            if cursor.set_range(key):
                cursor.prev() or cursor.first()
            elif not cursor.last():
                return read
            while True:
                rows = unpack_rows(cursor.value(), table.columns, words)
                pages.append(rows)
                read += len(rows[0])
                last = int(rows[0][-1]) if words == 1 else _joined([int(c[-1]) for c in rows])
                if last > high or read > budget or not cursor.next():
                    break
                if int.from_bytes(cursor.key()[:width], "big") > high:
                    break
        return read

    def _compare(
        self, pages: list[Rows], sizes: list[int], queries: list[int]
    ) -> tuple[Rows, NDArray[np.uint8]]:
        """Find in which bits the rows of each table differ from its query, and in how many."""
        changes = []
        for word in range(self._words):
            shift = _WORD_BITS * (self._words - 1 - word)
            own = np.array([query >> shift & _WORD for query in queries], np.uint64)
            column = np.concatenate([rows[word] for rows in pages])
            column ^= own.repeat(sizes)
            changes.append(column)
        distances: NDArray[np.uint8] = np.bitwise_count(changes[0])
        return changes, distances if self._words == 1 else distances + np.bitwise_count(changes[1])

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


def _row(columns: Rows, at: int) -> int:
    return _joined([int(column[at]) for column in columns])


def _joined(words: Sequence[int]) -> int:
    return words[0] if len(words) == 1 else words[0] << 64 | words[1]
