"""The permutation tables of a database: find fingerprints near another, insert and remove them."""

from collections.abc import Iterator
from itertools import chain, islice
from math import inf
from typing import NamedTuple

import numpy as np

from fpdb import kernels
from fpdb.arrays import Column, Marks, Rows, Strings, differs
from fpdb.errors import PlanError
from fpdb.storage import ReadTransaction, WriteTransaction
from fpdb.storage.block import Block
from fpdb.tables.bands import BandTable, NumberTable
from fpdb.tables.bits import (
    Fingerprints,
    Permutation,
    as_words,
    distances,
    distinct,
    of_words,
    order,
    to_array,
    to_ints,
)
from fpdb.tables.groups import GroupTables
from fpdb.tables.levels import NumberLevels
from fpdb.tables.passages import PassageTable
from fpdb.tables.plan import Plan
from fpdb.tables.sorted_pages import NumberPages, changed_rows, seek

# Of a fingerprint, by which the home table has few pages for that of an id.
HIGH_BITS = 24
# Up to this many hits are taken with the ids that are stored beside them.
_FEW = 64


class Nearby(NamedTuple):
    """Distinct fingerprints with their distances; not complete if the budget ended the search.

    `ids` has the documents of those whose pages in the home table were read anyway.
    """

    distances: dict[int, int]
    complete: bool
    ids: dict[int, list[int]]


class Route(NamedTuple):
    """A table that a query reads, and which of its prefixes."""

    table: NumberLevels
    permutation: Permutation
    below: int  # a mask of the bits after the prefix
    masks: tuple[int, ...]  # as changes of the permuted fingerprint


class Index:
    """The tables of a plan, those of numbers of texts, and those of groups of some similarity.

    Further tables than the home table have distinct fingerprints, the others ids of documents.
    """

    def __init__(self, plan: Plan, *, passages: bool = False, groups: float | None = None) -> None:
        self.plan = plan
        self._words = words = 2 if plan.bits == 128 else 1
        self.home = NumberLevels("table-00", words + 1, words + 1)
        self.further = [
            NumberLevels(f"table-{number:02d}", words, words)
            for number in range(1, len(plan.tables))
        ]
        self.tables = [self.home, *self.further]
        self.bands = BandTable(plan.bands) if plan.bands else None
        self.passages = PassageTable() if passages else None
        self.groups = None if groups is None else GroupTables(groups)
        self.of_texts: list[NumberTable] = [
            table for table in (self.bands, self.passages) if table is not None
        ]
        self._routes: dict[int, list[Route]] = {}
        self._reads: dict[int, tuple[float, float]] = {}
        self._searches: dict[int, kernels.number_pages.NearSearch] = {}

    @property
    def names(self) -> list[str]:
        return [name for pages in self.pages for name in pages.names]

    @property
    def pages(self) -> list[NumberLevels]:
        of_texts = (table.pages for table in self.of_texts)
        return [*self.tables, *of_texts, *(self.groups.pages if self.groups else ())]

    def routes(self, k: int) -> list[Route]:
        """Return the route of a query within k through each table that it reads."""
        if k not in self._routes:
            routes = []
            for number, masks in self.plan.probes(k):
                table = self.plan.tables[number]
                shift = self.plan.bits - table.prefix
                changes = tuple(mask << shift for mask in masks)
                routes.append(
                    Route(self.tables[number], table.permutation, (1 << shift) - 1, changes)
                )
            self._routes[k] = routes
        return self._routes[k]

    def reads(self, k: int) -> tuple[float, float]:
        """Return the probes of a query within k, and the share of all rows that they read.

        There is no end of probes, which read all rows, where they are too many.
        """
        if k not in self._reads:
            try:
                self._reads[k] = self.plan.reads(k)
            except PlanError:
                self._reads[k] = inf, 1.0
        return self._reads[k]

    def numbers(self, documents: Block) -> list[Strings]:
        """Return the numbers of each document in each table of numbers."""
        return [table.made(documents) for table in self.of_texts]

    def rows(self, documents: Block) -> list[Rows]:
        """Return fingerprints with the ids of their documents, and the rows of numbers of texts."""
        numbers = documents.packed.numbers if documents.packed else self.numbers(documents)
        ids, printed = documents.ids, ~documents.short
        rows = [[column.data, np.repeat(ids, column.sizes)] for column in numbers]
        return [[documents.fingerprints[printed], ids[printed]], *rows]

    def update(
        self, txn: WriteTransaction, insert: list[Rows], remove: list[Rows] | None = None
    ) -> None:
        """Remove and insert the rows of documents, in any order, in all tables."""
        coming, going = home_rows(*insert[0]), self.home.empty()
        come, gone = insert[0][0], insert[0][0][:0]
        for place, numbers in enumerate(self.of_texts[: len(insert) - 1], 1):
            numbers.update(txn, insert[place], remove[place] if remove else None)
        if remove:
            coming, going = changed_rows(coming, home_rows(*remove[0]))
            come, gone = of_words(coming[:-1]), distinct(of_words(going[:-1]))
        self.home.splice(txn, coming, going)
        come = distinct(come)
        if len(gone):  # a fingerprint stays while any document has it
            bounds, _ = self.home.last_numbers(txn, as_words(gone), 0)
            gone = gone[np.diff(bounds) == 0]
        for table, pages in zip(self.plan.tables[1:], self.further, strict=True):
            lost = _sorted(table.permutation, gone) if len(gone) else pages.empty()
            pages.splice(txn, _sorted(table.permutation, come), lost)

    def holds(self, txn: ReadTransaction, fingerprints: Fingerprints, ids: Column) -> Marks:
        """Mark the documents that are stored with this fingerprint."""
        marks = np.empty(len(ids), np.bool_)
        marks[order(fingerprints, ids)] = self.home.holds(txn, home_rows(fingerprints, ids))
        return marks

    def _words_of(self, fingerprint: int) -> tuple[int, ...]:
        return divmod(fingerprint, 1 << 64)[-self._words :]

    def ids(self, txn: ReadTransaction, fingerprint: int, most: int) -> Iterator[int]:
        """Return the ids of the documents with a fingerprint, sorted; of more than N, N + 1."""
        if self._words == 1:
            runs = self.home.runs(txn, [fingerprint], most)
            return chain.from_iterable(ids for _, ids in runs)
        return islice(self.home.run(txn, *self._words_of(fingerprint)), most + 1)

    def locate(self, txn: ReadTransaction, high: int, number: int) -> int | None:
        """Find the fingerprint of a document, given its highest bits and the id.

        A page is one step, and so is a run of equal fingerprints, however long.
        """
        located = (self._locate(txn, pages, high, number) for pages in self.home.levels(txn))
        return next((fingerprint for fingerprint in located if fingerprint is not None), None)

    def _locate(
        self, txn: ReadTransaction, pages: NumberPages, high: int, number: int
    ) -> int | None:
        below = self.plan.bits - HIGH_BITS
        candidate, end = high << below, (high + 1) << below
        with txn.cursor(pages.name) as cursor:
            while candidate < end and seek(cursor, pages.key(*self._words_of(candidate), number)):
                rows = pages.rows_at(cursor)
                for at in (rows[-1] == number).nonzero()[0].tolist():
                    fingerprint = _fingerprint_at(rows, at)
                    if fingerprint >> below == high:
                        return fingerprint
                last = _fingerprint_at(rows, -1)
                if last > candidate:
                    candidate = last
                elif cursor.next():
                    rows = pages.rows_at(cursor)
                    candidate = max(candidate + 1, _fingerprint_at(rows, 0))
                else:
                    return None
        return None

    def near(self, txn: ReadTransaction, fingerprint: int, k: int, budget: int) -> Nearby:
        """Find all distinct fingerprints within k, reading at most about `budget` candidates.

        If they are more, no table reads more than its share until the others have theirs.
        """
        if kernels.enabled:
            search = self._searches.get(k) or self._search(k)
            readers = txn.readers.get(search) or txn.readers.setdefault(
                search, self._readers(txn, k)
            )
            answer = search.near(readers, fingerprint, budget)
            if answer is not None:
                return Nearby(answer[0], complete=True, ids=answer[1])
        near: dict[int, int] = {}
        unread = [(route, self._pages(txn, route, fingerprint)) for route in self.routes(k)]
        while unread and budget >= 0:
            share = budget // len(unread)
            for route, pages in unread.copy():
                room = share
                while room >= 0 and (rows := next(pages, None)):
                    near |= self._near_rows(rows, route.permutation, fingerprint, k)
                    room -= len(rows[0])
                if room >= 0:
                    unread.remove((route, pages))
                budget -= share - room
        if unread and next(self.ids(txn, fingerprint, 0), None) is not None:
            near[fingerprint] = 0
        return Nearby(near, complete=not unread, ids={})

    def _readers(
        self, txn: ReadTransaction, k: int
    ) -> "list[list[kernels.number_pages.PageCursor]]":
        """Return cursors over the tables that a query within k reads."""
        tables = (route.table.levels(txn) for route in self.routes(k))
        return [
            [pages.reader(txn.shared_cursor(pages.name)) for pages in table] for table in tables
        ]

    def _search(self, k: int) -> "kernels.number_pages.NearSearch":
        """Return the kernel that does what `near` does, for one k."""
        routes = self.routes(k)
        behind = 64 * (self._words - 1)  # a prefix never reaches into a second word
        probes = [
            kernels.number_pages.Probes(
                route.permutation.moves,
                route.permutation.inverse.moves,
                np.array([mask >> behind for mask in route.masks], np.uint64),
                route.below >> behind,
            )
            for route in routes
        ]
        home = routes[0].table is self.home
        search = kernels.number_pages.NearSearch(probes, self._words, k, _FEW, home)
        self._searches[k] = search
        return search

    def _pages(self, txn: ReadTransaction, route: Route, fingerprint: int) -> Iterator[Rows]:
        """Yield the words of the pages that have rows with a probed prefix, each page once."""
        permuted = route.permutation.apply_one(fingerprint)
        for table in route.table.levels(txn):
            last = b""
            for low in sorted((permuted ^ mask) & ~route.below for mask in route.masks):
                first, end = (
                    table.key(*self._words_of(bound)) for bound in (low, low | route.below)
                )
                for key, value in table.between(txn, first, end):
                    if key > last:
                        yield table.unpack(value, table.seed_at(key), self._words)
                        last = key

    def _near_rows(
        self, rows: Rows, permutation: Permutation, fingerprint: int, k: int
    ) -> dict[int, int]:
        """Return the fingerprints within k among those of a page, with their distances."""
        fresh = differs(*rows)
        stored = permutation.inverse.apply(of_words([word[fresh] for word in rows]))
        apart = distances(stored, to_array([fingerprint], self.plan.bits), self.plan.bits)
        near = apart <= k
        return dict(zip(to_ints(stored[near]), apart[near].tolist(), strict=True))


def home_rows(fingerprints: Fingerprints, ids: Column) -> Rows:
    """Return the rows of documents in the home table, sorted."""
    sequence = order(fingerprints, ids)
    return [*as_words(fingerprints[sequence]), ids[sequence]]


def _sorted(permutation: Permutation, fingerprints: Fingerprints) -> Rows:
    return as_words(distinct(permutation.apply(fingerprints)))


def _fingerprint_at(rows: Rows, at: int) -> int:
    number = int(rows[0][at])
    return number if len(rows) == 2 else number << 64 | int(rows[1][at])
