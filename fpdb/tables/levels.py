"""Keep new rows of a large table in few pages of their own, and move them to the others by and by.

A batch of new rows touches nearly all pages of a large table. The recent pages are few, so many of
its rows come to each. A transaction moves as many recent pages to the others as it has added,
going round, so that the rows which have gathered since come to each of the others together. No
transaction has to move all of them.
"""

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from math import isqrt

import numpy as np

from fpdb.arrays import Column, Marks, Places, Rows, differs
from fpdb.storage import ReadTransaction, WriteTransaction
from fpdb.storage.text_pages import TextEntry
from fpdb.tables.sorted_pages import NumberPages, R, SortedPages, TextPages

# A table in which a document has N rows has recent pages from N times as many pages on, so that
# they are at most a tenth.
_LEAST = 100
# More new rows for each recent page are many for each of the other pages, too.
_MANY = 256


class Levels(SortedPages[R]):
    """Sorted pages in two sub-databases; a row on a recent page replaces one with its key."""

    recent: SortedPages[R]
    _width: int  # about so many rows are of a document

    @property
    def names(self) -> list[str]:
        """The names of the sub-databases."""
        return [self.name, self.recent.name]

    def scan(
        self, txn: ReadTransaction, first: bytes = b"", columns: int | None = None
    ) -> Iterator[R]:
        if not txn.entries(self.recent.name):
            return super().scan(txn, first, columns)
        return self.merged(super().scan(txn, first), self.recent.scan(txn, first))

    def merged(self, pages: Iterable[R], recent: Iterable[R]) -> Iterator[R]:
        """Yield the rows of pages with those of recent ones, which are read as they are needed."""
        following, new = iter(recent), self.empty()
        page = next(following, None)
        for rows in filter(self._count, pages):
            last, parts = self._key_at(rows, self._count(rows) - 1), [new]
            while page is not None and self.first_key(page) <= last:
                parts.append(page)
                page = next(following, None)
            new = self._joined(parts)
            count, key_at = self._count(new), partial(self._key_at, new)
            end = bisect_right(range(count), last, key=key_at)
            yield self._spliced(rows, self._part(new, 0, end), self.empty())
            new = self._part(new, end, count)
        if self._count(new):
            yield new
        if page is not None:
            yield page
        yield from following

    def splice(self, txn: WriteTransaction, insert: R, remove: R) -> None:
        recent, nothing = self.recent, self.empty()
        most, held = self._most_recent(txn), txn.entries(self.recent.name)
        if self._count(insert) <= most * _MANY:
            recent.splice(txn, insert, remove)
            if self._count(remove):
                super().splice(txn, nothing, remove)
        else:
            for rows in (insert, remove) if held else ():
                recent.splice(txn, nothing, rows)
            super().splice(txn, insert, remove)
        if (held or most) and txn.entries(recent.name) > most:
            super().splice(txn, self._excess(txn, most), nothing)

    def _most_recent(self, txn: ReadTransaction) -> int:
        """Return how many recent pages there may be: none of a small table.

        With as many, a batch of a thousand documents writes about as many of them as of others.
        """
        pages = txn.entries(self.name)
        return isqrt(pages * self._width) if pages >= _LEAST * self._width else 0

    def insert(self, txn: WriteTransaction, blocks: Iterable[R]) -> None:
        if txn.entries(self.recent.name):
            for block in blocks:
                self.splice(txn, block, self.empty())
        else:
            super().insert(txn, blocks)

    def _excess(self, txn: WriteTransaction, most: int) -> R:
        """Return the rows of recent pages that are more than N, and take these off, in turn."""
        name = self.recent.name
        excess, place = txn.entries(name) - most, name.encode()
        taken: dict[bytes, R] = {}
        with txn.cursor(name) as cursor:
            there = cursor.set_range(txn.get("counters", place) or b"") or cursor.first()
            while there and len(taken) < excess:
                taken[bytes(cursor.key())] = self.recent.rows_at(cursor)
                there = cursor.next() or cursor.first()
            after = bytes(cursor.key()) if there else b""
        # A copy, even of one page: pages that are deleted may be overwritten.
        rows = self._joined([self.empty(), *(taken[key] for key in sorted(taken))])
        for key in taken:
            txn.delete(name, key)
        txn.put("counters", place, after)
        return rows


class NumberLevels(Levels[Rows], NumberPages):
    """Pages of rows of numbers, and recent ones."""

    recent: NumberPages

    def __init__(self, name: str, keys: int, columns: int, width: int = 1) -> None:
        """Name the pages of a table, in which a document has about N rows."""
        super().__init__(name, keys, columns)
        self.recent = NumberPages(f"{name}-recent", keys, columns)
        self._width = width

    def levels(self, txn: ReadTransaction) -> list[NumberPages]:
        """Return the pages of each sub-database that has rows."""
        return [self, self.recent] if txn.entries(self.recent.name) else [self]

    def scan(
        self, txn: ReadTransaction, first: bytes = b"", columns: int | None = None
    ) -> Iterator[Rows]:
        return (rows[:columns] for rows in super().scan(txn, first, columns))

    def merge(self, txn: WriteTransaction, blocks: Iterable[Rows], count: int) -> None:
        if txn.entries(self.recent.name) and count > self._most_recent(txn) * _MANY:
            NumberPages.splice(self, txn, self._excess(txn, 0), self.empty())
        super().merge(txn, blocks, count)

    def holds(self, txn: ReadTransaction, rows: Rows) -> Marks:
        marks = super().holds(txn, rows)
        return marks | self.recent.holds(txn, rows) if txn.entries(self.recent.name) else marks

    def runs(
        self, txn: ReadTransaction, numbers: Sequence[int], most: int
    ) -> Iterator[tuple[int, list[int]]]:
        if not txn.entries(self.recent.name):
            yield from super().runs(txn, numbers, most)
            return
        recent = dict(self.recent.runs(txn, numbers, most))
        runs = dict(super().runs(txn, numbers, most))
        for number in numbers:
            last = sorted({*runs.get(number, ()), *recent.get(number, ())})
            if last:
                yield number, last[: most + 1]

    def run(self, txn: ReadTransaction, *first: int) -> Iterator[int]:
        numbers = heapq.merge(super().run(txn, *first), self.recent.run(txn, *first))
        return (number for number, _ in groupby(numbers))

    def last_numbers(
        self, txn: ReadTransaction, words: Rows, most: int | None = None
    ) -> tuple[Places, Column]:
        bounds, numbers = super().last_numbers(txn, words, most)
        if not txn.entries(self.recent.name):
            return bounds, numbers
        recent_bounds, recent = self.recent.last_numbers(txn, words, most)
        places = np.arange(len(words[0]) + 1)
        owners = [np.repeat(places[:-1], np.diff(ends)) for ends in (bounds, recent_bounds)]
        owner, last = np.concatenate(owners), np.concatenate([numbers, recent])
        sequence = np.lexsort((last, owner))
        sequence = sequence[differs(owner[sequence], last[sequence])]
        owner, last = owner[sequence], last[sequence]
        if most is not None:
            taken = np.arange(len(owner)) - owner.searchsorted(owner) <= most
            owner, last = owner[taken], last[taken]
        return owner.searchsorted(places), last

    def find(self, txn: ReadTransaction, keys: Rows) -> Rows:
        rows = super().find(txn, keys)
        if not txn.entries(self.recent.name):
            return rows
        return self._spliced(rows, self.recent.find(txn, keys), self.empty())


class TextLevels(Levels[list[TextEntry]], TextPages):
    """Pages of texts, and recent ones."""

    recent: TextPages
    _width = 1

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.recent = TextPages(f"{name}-recent")

    def find(self, txn: ReadTransaction, texts: list[bytes]) -> list[int | None]:
        numbers = super().find(txn, texts)
        if not txn.entries(self.recent.name):
            return numbers
        recent = self.recent.find(txn, texts)
        return [old if new is None else new for old, new in zip(numbers, recent, strict=True)]
