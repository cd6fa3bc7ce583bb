"""Keep rows sorted in pages: find, insert and remove, touching each page once.

The tree is one; rows are numbers, or texts that each lead to a number.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice, pairwise
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from fpdb import kernels
from fpdb.arrays import Column, Marks, Places, Rows, among, differs, joined
from fpdb.errors import DamagedError
from fpdb.storage import Cursor, ReadTransaction, WriteTransaction
from fpdb.storage.format import seed_of
from fpdb.storage.number_pages import LARGEST, pack_rows, summed, unpack_rows
from fpdb.storage.text_pages import TextEntry, find_texts, pack_texts, unpack_texts
from fpdb.tables.bits import order

# If a page would become more than this many, they are filled as in a load.
_FLOOD = 4
# Up to this many rows are put between the bytes of a page; more are merged as arrays.
_FEW = 256
# If this many rows come to a page, on average, they are merged with this many pages at a time.
_MANY = 24
_MERGED = 32
# Numbers that a kernel looks up together.
_AT_ONCE = 1 << 10
# Rows that a kernel finds until they are taken.
_TAKEN = 1 << 16
_NO_LIMIT = 1 << 62

R = TypeVar("R", bound=Sequence[Any])


class SortedPages(ABC, Generic[R]):
    """One sub-database of sorted pages of rows, each under the key of its first row."""

    # Whether rows often come in their order, so that those after all others fill pages.
    _in_order = False

    def __init__(self, name: str, pack: Callable[[R, int], tuple[bytearray, int]]) -> None:
        self.name = name
        self.seed = seed_of(name)
        # Packs rows, from one on, into a page that lacks its checksum, as many as fit; returns it
        # and the place after the last.
        self._packed = pack

    @abstractmethod
    def empty(self) -> R:
        """Return no rows."""

    @abstractmethod
    def keys(self, rows: R) -> list[bytes]:
        """Return the keys of sorted rows as bytes, which sort as the rows."""

    @abstractmethod
    def unpack(self, value: bytes | memoryview, seed: int, columns: int | None = None) -> R:
        """Return the rows of a page, with all columns or the first N, or raise DamagedError."""

    @abstractmethod
    def _count(self, rows: R) -> int: ...

    @abstractmethod
    def _same(self, rows: R, stored: R) -> bool: ...

    @abstractmethod
    def _part(self, rows: R, start: int, stop: int) -> R: ...

    @abstractmethod
    def _joined(self, parts: Sequence[R]) -> R: ...

    @abstractmethod
    def _spliced(self, rows: R, insert: R, remove: R) -> R:
        """Remove the rows with some keys, and merge others, which replace those with their keys."""

    @abstractmethod
    def _inserting(self, txn: WriteTransaction, cursor: Cursor, insert: R) -> Callable[[int], int]:
        """Return a kernel that puts rows, from one on, between those of their pages.

        It returns the first row that is left, for a page that must be packed anew.
        """

    def seed_at(self, key: bytes | memoryview) -> int:
        """Return the seed of the checksum of the page with a key."""
        return self.seed ^ int.from_bytes(key[-8:])

    def rows_at(self, cursor: Cursor) -> R:
        key, value = cursor.item()
        return self.unpack(value, self.seed_at(key))

    def first_key(self, rows: R) -> bytes:
        """Return the key of the page that has these rows."""
        return self.keys(self._part(rows, 0, 1))[0]

    def _key_at(self, rows: R, place: int) -> bytes:
        return self.first_key(self._part(rows, place, place + 1))

    def between(
        self, txn: ReadTransaction, first: bytes = b"", last: bytes | None = None
    ) -> Iterator[tuple[bytes, memoryview]]:
        """Yield the keys and values of the pages that have all rows from a key to a last one.

        Keys that begin with the last one are not after it.
        """
        with txn.cursor(self.name) as cursor:
            there = seek(cursor, first) if first else cursor.first()
            before = b""
            while there:
                view, value = cursor.item()
                key = bytes(view)
                if last is not None and key[: len(last)] > last:
                    return
                if key <= before:
                    raise out_of_order(self.name)
                before = key
                yield key, value
                there = cursor.next()

    def scan(
        self, txn: ReadTransaction, first: bytes = b"", columns: int | None = None
    ) -> Iterator[R]:
        """Yield the rows of all pages in their order, or from the page on that a key belongs to."""
        for key, value in self.between(txn, first):
            yield self.unpack(value, self.seed_at(key), columns)

    def fill(self, txn: WriteTransaction, blocks: Iterable[R]) -> None:
        """Append sorted rows after all that are stored, page by page, each as full as possible."""
        tail = self.empty()
        for block in blocks:
            rows, done = self._joined([tail, block]), 0
            for piece, page in self._full(rows):
                tail = piece
                done += self._count(piece)
                if done < self._count(rows):
                    self._append(txn, piece, page)
        for piece, page in self._full(tail):
            self._append(txn, piece, page)

    def _append(self, txn: WriteTransaction, rows: R, page: bytearray) -> None:
        key = self.first_key(rows)
        txn.append(self.name, key, summed(page, self.seed_at(key)))

    def insert(self, txn: WriteTransaction, blocks: Iterable[R]) -> None:
        """Insert blocks of sorted rows, or fill an empty table with them, one after the other."""
        if not txn.entries(self.name):
            self.fill(txn, blocks)
            return
        for block in blocks:
            self.splice(txn, block, self.empty())

    def splice(self, txn: WriteTransaction, insert: R, remove: R) -> None:
        """Remove rows and insert others, each sorted by its key and without repetitions.

        A row whose key is stored already replaces the old one; removing a missing row is a no-op.
        Each page is written once.
        """
        come = go = 0
        last_come, last_go = self._count(insert), self._count(remove)
        with txn.cursor(self.name) as cursor:
            put = None
            if kernels.enabled and last_come and not last_go:
                put = self._inserting(txn, cursor, insert)
                come = put(0)
                if come == last_come:
                    return
            coming, going = self.keys(insert), self.keys(remove)
            while come < last_come or go < last_go:
                old, upper = page_and_next(
                    cursor, min(coming[come : come + 1] + going[go : go + 1])
                )
                to_come, to_go = last_come, last_go
                if upper is not None:
                    to_come = bisect_left(coming, upper, come)
                    to_go = bisect_left(going, upper, go)
                stored = self.rows_at(cursor) if old else self.empty()
                new = self._part(insert, come, to_come)
                rows = self._spliced(stored, new, self._part(remove, go, to_go))
                if not self._same(rows, stored):
                    at_end = self._in_order and upper is None
                    at_end = at_end and self._same(self._part(rows, 0, self._count(stored)), stored)
                    self._store(txn, cursor, rows, old, at_end=at_end)
                come, go = to_come, to_go
                if put and come < last_come:
                    come = put(come)

    def _store(
        self, txn: WriteTransaction, cursor: Cursor, rows: R, old: bytes | None, *, at_end: bool
    ) -> None:
        """Write the new rows of a page: as none, as one, joined with the one before, or split.

        Rows that come after all others fill pages; others leave them room for some more.
        """
        gone = {old} if old else set()
        count = self._count(rows)
        page, fit = self._packed(rows, 0) if count else (bytearray(), 0)
        pieces = [(rows, page)] if count else []
        if at_end or count > _FLOOD * fit:
            pieces = list(self._full(rows))
        elif fit < count or (pieces and 4 * len(page) < LARGEST):
            before = self._page_before(cursor, old) if old else None
            union = self._joined([before[1], rows]) if before else rows
            if fit < count:  # with the page before, so that pages are fuller than halves
                parts = 2 if 8 * self._count(union) <= 14 * fit else 3
                while not (pieces := self._cut(union, parts)):
                    parts += 1
            elif before and (one := self._cut(union, 1)) and 4 * len(one[0][1]) <= 3 * LARGEST:
                pieces = one
            else:
                before = None
            gone |= {before[0]} if before else set()
        keys = [self.first_key(piece) for piece, _ in pieces]
        for key in gone.difference(keys):
            txn.delete(self.name, key)
        for key, (_, page) in zip(keys, pieces, strict=True):
            txn.put(self.name, key, summed(page, self.seed_at(key)))

    def _page_before(self, cursor: Cursor, key: bytes) -> tuple[bytes, R] | None:
        if not cursor.set_key(key) or not cursor.prev():
            return None
        return bytes(cursor.key()), self.rows_at(cursor)

    def _cut(self, rows: R, parts: int) -> list[tuple[R, bytearray]]:
        """Cut rows evenly into pages; return none if one of them would overflow."""
        ends = [self._count(rows) * part // parts for part in range(parts + 1)]
        cut = [self._part(rows, low, high) for low, high in pairwise(ends)]
        pages = [self._packed(part, 0) for part in cut]
        if any(fit < self._count(part) for part, (_, fit) in zip(cut, pages, strict=True)):
            return []
        return [(part, page) for part, (page, _) in zip(cut, pages, strict=True)]

    def _full(self, rows: R) -> Iterator[tuple[R, bytearray]]:
        """Cut rows into pages that are as full as possible."""
        first = 0
        while first < self._count(rows):
            page, after = self._packed(rows, first)
            yield self._part(rows, first, after), page
            first = after


class NumberPages(SortedPages[Rows]):
    """Pages of rows of numbers, in columns; the first columns of a row are its key."""

    def __init__(self, name: str, keys: int, columns: int) -> None:
        super().__init__(name, pack_rows)
        self.columns = columns
        self._keys = keys
        self.key_width = 8 * keys

    def empty(self) -> Rows:
        """Return columns without any row."""
        return [np.empty(0, np.uint64)] * self.columns

    def keys(self, rows: Rows) -> list[bytes]:
        """Return the keys of rows as bytes, which sort as their numbers."""
        table = np.stack(rows[: self._keys], axis=-1).astype(">u8")
        keys: list[bytes] = table.view(f"V{self.key_width}")[:, 0].tolist()
        return keys

    def key(self, *numbers: int) -> bytes:
        """Return the key of a row as bytes, or its beginning."""
        return b"".join([number.to_bytes(8, "big") for number in numbers])

    def first_key(self, rows: Rows) -> bytes:
        """Return the key of the page that has these rows, a tenth as slowly as those of many."""
        return self._key_at(rows, 0)

    def unpack(self, value: bytes | memoryview, seed: int, columns: int | None = None) -> Rows:
        """Return all columns of a page or the first N, or raise DamagedError."""
        return unpack_rows(value, self.columns, seed, columns)

    def merge(self, txn: WriteTransaction, blocks: Iterable[Rows], count: int) -> None:
        """Insert N rows in blocks, which are sorted and follow one another; pages become full."""
        many = self._are_many(txn, count)
        following = (block for block in blocks if self._count(block))
        for block in following:
            if (last := self._page_before_all(txn, block)) is not None:
                rows = joined([last, block])  # a copy: the page that is deleted may be overwritten
                if self._count(last):
                    txn.delete(self.name, self.first_key(last))
                self.fill(txn, chain([rows], following))
            elif many:
                self._refill(txn, block)
            else:
                self.splice(txn, block, self.empty())

    def _page_before_all(self, txn: ReadTransaction, rows: Rows) -> Rows | None:
        """Return the last page, or no rows, if some sorted rows come after all that are stored."""
        with txn.cursor(self.name) as cursor:
            last = self.rows_at(cursor) if cursor.last() else self.empty()
        return last if not len(last[0]) or self._key_at(last, -1) < self.first_key(rows) else None

    def splice(self, txn: WriteTransaction, insert: Rows, remove: Rows) -> None:
        """Remove rows and insert others; if many come to all pages, these are filled anew."""
        few = self._count(remove) or self._count(insert) <= _MERGED * _MANY
        if few or not self._are_many(txn, self._count(insert)):
            super().splice(txn, insert, remove)
        else:
            self._refill(txn, insert)

    def _are_many(self, txn: ReadTransaction, count: int) -> bool:
        """Return whether so many rows are inserted that pages are better filled anew."""
        pages = txn.entries(self.name)
        return pages >= _MERGED and count > pages * _MANY

    def _refill(self, txn: WriteTransaction, insert: Rows) -> None:
        """Insert sorted rows, and fill the pages that they belong to anew, many at a time."""
        first, count, none = 0, self._count(insert), self.empty()
        with txn.cursor(self.name) as cursor:
            while first < count:
                old: list[bytes] = []
                parts: list[Rows] = [none]
                there = seek(cursor, self._key_at(insert, first))
                while there and len(old) < _MERGED:
                    old.append(bytes(cursor.key()))
                    parts.append(self.rows_at(cursor))
                    there = cursor.next()
                after = count
                if there:
                    upper, at = bytes(cursor.key()), partial(self._key_at, insert)
                    after = bisect_left(range(count), upper, first, key=at)
                    if after == first:
                        raise out_of_order(self.name)
                rows = self._spliced(joined(parts), self._part(insert, first, after), none)
                pieces = self._filled(rows)
                for key in set(old).difference(pieces):
                    txn.delete(self.name, key)
                for key, page in pieces.items():
                    txn.put(self.name, key, summed(page, self.seed_at(key)))
                first = after

    def _filled(self, rows: Rows) -> dict[bytes, bytearray]:
        """Return what `_full` does by the keys of the pages, which are made together."""
        starts, pages, after = list[int](), list[bytearray](), 0
        while after < self._count(rows):
            starts.append(after)
            page, after = self._packed(rows, after)
            pages.append(page)
        keys = self.keys([column[starts] for column in rows[: self._keys]])
        return dict(zip(keys, pages, strict=True))

    def _key_at(self, rows: Rows, place: int) -> bytes:
        return self.key(*(int(column[place]) for column in rows[: self._keys]))

    def _count(self, rows: Rows) -> int:
        return len(rows[0])

    def _same(self, rows: Rows, stored: Rows) -> bool:
        return all(map(np.array_equal, rows, stored))

    def _part(self, rows: Rows, start: int, stop: int) -> Rows:
        return [column[start:stop] for column in rows]

    def _joined(self, parts: Sequence[Rows]) -> Rows:
        return joined(parts) if parts else self.empty()

    def _spliced(self, rows: Rows, insert: Rows, remove: Rows) -> Rows:
        if self._count(remove):
            keep = ~_among(rows[: self._keys], remove[: self._keys])
            rows = [column[keep] for column in rows]
        if not self._count(insert):
            return rows
        if kernels.enabled and self._count(rows):
            data, count = kernels.number_pages.merged(rows, insert, self._keys)
            columns = np.frombuffer(data, np.uint64).reshape(self.columns, -1)
            return list(columns[:, :count])
        union = joined([insert, rows])  # the sort is stable: of equal keys the new row is first
        sequence = order(*union[: self._keys])
        union = [column[sequence] for column in union]
        fresh = differs(*union[: self._keys])
        return [column[fresh] for column in union]

    def reader(self, cursor: Cursor) -> "kernels.number_pages.PageCursor":
        """Return a cursor of this sub-database as kernels take it."""
        return kernels.number_pages.PageCursor(cursor, xxh3_64_intdigest, self.columns, self.seed)

    def _inserting(
        self, txn: WriteTransaction, cursor: Cursor, insert: Rows
    ) -> Callable[[int], int]:
        new = kernels.number_pages.RowsToInsert(np.stack(insert), LARGEST)
        put = partial(txn.put, self.name)
        return partial(new.insert, self.reader(cursor), put, self._keys, _FEW)

    def runs(
        self, txn: ReadTransaction, numbers: Sequence[int], most: int
    ) -> Iterator[tuple[int, list[int]]]:
        """Yield the sorted numbers that rows begin with, and the last numbers of these rows.

        More than N of them may be cut after N + 1. The cursor is the one that the transaction
        keeps: take all before anything else is read.
        """
        for start in range(0, len(numbers), _AT_ONCE):
            batch = numbers[start : start + _AT_ONCE]
            runs = None
            if kernels.enabled:
                reader = txn.readers.get(self) or txn.readers.setdefault(
                    self, self.reader(txn.shared_cursor(self.name))
                )
                runs = kernels.number_pages.runs(reader, batch)
            for number, last in [(number, None) for number in batch] if runs is None else runs:
                ids = list(islice(self._run(txn, number), most + 1)) if last is None else last
                if ids:
                    yield number, ids

    def run(self, txn: ReadTransaction, *first: int) -> Iterator[int]:
        """Yield the last numbers of the rows that begin with some numbers."""
        return self._run(txn, *first)

    def _run(self, txn: ReadTransaction, *first: int) -> Iterator[int]:
        key = self.key(*first)
        for page_key, value in self.between(txn, key, key):
            rows = self.unpack(value, self.seed_at(page_key))
            same = [column == number for column, number in zip(rows, first, strict=False)]
            yield from rows[-1][np.logical_and.reduce(same)].tolist()

    def last_numbers(
        self, txn: ReadTransaction, words: Rows, most: int | None = None
    ) -> tuple[Places, Column]:
        """Return the last numbers of the rows that begin with each of some distinct, sorted words.

        They are in one array; the first one returned has where those of each begin. Of more than N,
        only N + 1 are read.
        """
        count = len(words[0])
        limit = _NO_LIMIT if most is None else most + 1
        owners, numbers = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
        if kernels.enabled:
            heads = differs(words[0]).nonzero()[0]
            firsts, bounds = words[0][heads], np.append(heads, count)
            search = kernels.number_pages.IdSearch(
                firsts, firsts, bounds, words, np.arange(count), np.zeros(count, np.int64), limit
            )
            for places, ids, *_ in self.searched(txn, len(firsts), search):
                owners.append(places)
                numbers.append(ids)
        else:
            for place, row in enumerate(zip(*(word.tolist() for word in words), strict=True)):
                numbers.append(np.array(list(islice(self._run(txn, *row), limit)), np.uint64))
                owners.append(np.full(len(numbers[-1]), place))
        owner, last = np.concatenate(owners), np.concatenate(numbers)
        if len(words) > 1:  # rows with the same first word may take turns
            sequence = np.argsort(owner, kind="stable")
            owner, last = owner[sequence], last[sequence]
        return owner.searchsorted(np.arange(count + 1)), last

    def searched(
        self, txn: ReadTransaction, ranges: int, search: "kernels.number_pages.Ranges"
    ) -> Iterator[list[NDArray[Any]]]:
        """Have a kernel read the pages of its N ranges; yield the columns that it finds, in parts.

        The first one has places of queries. It is for the pages of one sub-database.
        """
        # Where most pages are needed, reading on is faster than seeking the next range.
        in_turn = txn.entries(self.name) <= ranges
        with txn.cursor(self.name) as cursor:
            reader = self.reader(cursor)
            done: bool | None = False
            while done is False:
                done = search.search(reader, in_turn, _TAKEN)
                queries, *columns = search.taken()
                yield [
                    np.frombuffer(queries, np.int64),
                    *(np.frombuffer(column, np.uint64) for column in columns),
                ]
            if done is None:
                self.rows_at(cursor)  # this raises an error, unless the page is empty or misplaced
                raise out_of_order(self.name)

    def find(self, txn: ReadTransaction, keys: Rows) -> Rows:
        """Return the stored rows with some keys, which are sorted and distinct."""
        wanted = self.keys(keys)
        parts = [self.empty()]
        at = 0
        with txn.cursor(self.name) as cursor:
            while at < len(wanted):
                old, upper = page_and_next(cursor, wanted[at])
                if old is None:
                    break
                stop = len(wanted) if upper is None else bisect_left(wanted, upper, at)
                rows = self.rows_at(cursor)
                marks = _among(rows[: self._keys], [column[at:stop] for column in keys])
                parts.append([column[marks] for column in rows])
                at = stop
        return joined(parts)

    def holds(self, txn: ReadTransaction, rows: Rows) -> Marks:
        """Mark those rows, which are sorted by their key, whose key is stored."""
        wanted = rows[: self._keys]
        if self._count(rows) and self._page_before_all(txn, rows):
            return np.zeros(self._count(rows), np.bool_)
        return _among(wanted, self.find(txn, wanted)[: self._keys])


class TextPages(SortedPages[list[TextEntry]]):
    """Pages of texts, each with the number that it leads to."""

    _in_order = True

    def __init__(self, name: str) -> None:
        super().__init__(name, pack_texts)

    def empty(self) -> list[TextEntry]:
        """Return no entries."""
        return []

    def keys(self, rows: list[TextEntry]) -> list[bytes]:
        return [text for text, _ in rows]

    def unpack(
        self, value: bytes | memoryview, seed: int, _: int | None = None, /
    ) -> list[TextEntry]:
        """Return the entries of a page, or raise DamagedError."""
        return unpack_texts(value, seed)

    def find(self, txn: ReadTransaction, texts: list[bytes]) -> list[int | None]:
        """Return the number that each of some sorted texts leads to; None if it isn't there."""
        cursor = txn.shared_cursor(self.name)
        numbers: list[int | None] = []
        while len(numbers) < len(texts) and seek(cursor, texts[len(numbers)]):
            key, page = cursor.item()
            numbers += find_texts(page, self.seed_at(key), texts, len(numbers))
            if len(numbers) < len(texts):  # those before the next page are on none
                stop = len(texts)
                if cursor.next():
                    stop = bisect_left(texts, bytes(cursor.key()), len(numbers))
                numbers += [None] * (stop - len(numbers))
        return numbers or [None] * len(texts)

    def _count(self, rows: list[TextEntry]) -> int:
        return len(rows)

    def _same(self, rows: list[TextEntry], stored: list[TextEntry]) -> bool:
        return rows == stored

    def _part(self, rows: list[TextEntry], start: int, stop: int) -> list[TextEntry]:
        return rows[start:stop]

    def _joined(self, parts: Sequence[list[TextEntry]]) -> list[TextEntry]:
        return list(chain.from_iterable(parts))

    def _spliced(
        self, rows: list[TextEntry], insert: list[TextEntry], remove: list[TextEntry]
    ) -> list[TextEntry]:
        entries = dict(rows)
        for text, _ in remove:
            entries.pop(text, None)
        entries.update(insert)
        return sorted(entries.items())

    def _inserting(
        self, txn: WriteTransaction, cursor: Cursor, insert: list[TextEntry]
    ) -> Callable[[int], int]:
        texts = [text for text, _ in insert]

        def put(first: int) -> int:
            while first < len(insert):
                old, upper = page_and_next(cursor, texts[first])
                if old is None or old > texts[first]:  # a new first key of its page
                    break
                after = len(insert) if upper is None else bisect_left(texts, upper, first)
                page, seed = cursor.value(), self.seed_at(old)
                digest = xxh3_64_intdigest(page[4:], seed)
                grown = kernels.text_pages.inserted(page, digest, insert, first, after)
                if grown is None:
                    break
                txn.put(self.name, old, summed(grown, seed))
                first = after
            return first

        return put


def out_of_order(name: str) -> DamagedError:
    """Return the error of a scan that meets a key after a higher one."""
    return DamagedError(f"the entries of {name} aren't in order", hint="run `fpdb check`")


def seek(cursor: Cursor, key: bytes) -> bool:
    """Go to the page that a key belongs to, or to the first one; return whether there is any."""
    if not cursor.set_range(key):
        return bool(cursor.last())
    if cursor.key() != key and not cursor.prev():
        cursor.first()
    return True


def page_and_next(cursor: Cursor, key: bytes) -> tuple[bytes | None, bytes | None]:
    """Go to the page that a key belongs to; return the keys of this page and of the next."""
    if not seek(cursor, key):
        return None, None
    lower = bytes(cursor.key())
    upper = bytes(cursor.key()) if cursor.next() else None
    cursor.set_key(lower)
    return lower, upper


def changed_rows(insert: Rows, remove: Rows) -> tuple[Rows, Rows]:
    """Return rows to insert and to remove, both sorted, without those that stay where they are."""
    if not len(insert[0]) or not len(remove[0]):
        return insert, remove
    come, go = ~_among(insert, remove), ~_among(remove, insert)
    return [column[come] for column in insert], [column[go] for column in remove]


def _among(rows: Rows, known: Rows) -> Marks:
    """Mark the rows that are among others; both are sorted, without repetitions."""
    if len(rows) == 1:
        return among(rows[0], known[0])
    union = joined([known, rows])
    sequence = order(*union)  # stable: a known row comes before its equal
    marks = np.zeros(len(sequence), np.bool_)
    marks[sequence] = ~differs(*[column[sequence] for column in union])
    return marks[len(known[0]) :]
