"""Keep rows of numbers sorted in pages: find, insert and remove, touching each page once."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from fpdb.storage import Cursor, ReadTransaction, WriteTransaction
from fpdb.storage.columns import (
    LARGEST,
    Rows,
    Shape,
    pack_rows,
    rows_that_fit,
    shape_of,
    unpack_rows,
    with_rows,
)

# A page below a quarter joins one beside it if both then leave room for some more.
_SMALL = LARGEST // 4
_ROOMY = LARGEST * 3 // 4
# Rows of so many pages that come to one page fill pages as a load does.
_FLOOD = 4
# So few rows are put between the bytes of a page; more are merged as arrays.
_FEW = 16


class Pages:
    """One sub-database of sorted pages; the first columns of a row are its key."""

    def __init__(self, name: str, keys: int, columns: int) -> None:
        self.name = name
        self.columns = columns
        self._keys = keys
        self.key_width = 8 * keys

    def empty(self) -> Rows:
        """Give rows without any row."""
        return [np.empty(0, np.uint64)] * self.columns

    def key(self, *numbers: int) -> bytes:
        """Write the key of a row so that its bytes sort as its numbers."""
        return b"".join([number.to_bytes(8, "big") for number in numbers])

    def scan(self, txn: ReadTransaction, first: bytes | None = None) -> Iterator[Rows]:
        """Read all pages, or those from the one on that the key belongs to, in their order."""
        with txn.cursor(self.name) as cursor:
            found = seek(cursor, first) if first else cursor.first()
            while found:
                yield unpack_rows(cursor.value(), self.columns)
                found = cursor.next()

    def page_of(self, txn: ReadTransaction, first: int) -> tuple[Rows, int | None]:
        """Give the page that a row belongs to, and where the next page begins."""
        with txn.cursor(self.name) as cursor:
            if not seek(cursor, self.key(first)):
                return self.empty(), None
            rows = unpack_rows(cursor.value(), self.columns)
            return rows, int.from_bytes(cursor.key()[:8], "big") if cursor.next() else None

    def fill(self, txn: WriteTransaction, blocks: Iterable[Rows]) -> None:
        """Put sorted rows behind all that are there, page by page, each as full as can be."""
        rows = self.empty()
        for block in blocks:
            rest = rows
            rows = [np.concatenate(pair) for pair in zip(rest, block, strict=True)]
            start = 0
            for piece, shape in _pieces(rows):
                start += len(piece[0])
                if start == len(rows[0]):  # what comes next may still fit on this page
                    start -= len(piece[0])
                    break
                txn.append(self.name, self.first_key(piece), pack_rows(piece, shape))
            rows = [column[start:] for column in rows]
        for piece, shape in _pieces(rows):
            txn.append(self.name, self.first_key(piece), pack_rows(piece, shape))

    def holds(self, txn: ReadTransaction, rows: Rows) -> NDArray[np.bool_]:
        """Say of each of the rows, which are sorted by their key, whether its key is there."""
        wanted = rows[: self._keys]
        found = np.zeros(len(wanted[0]), np.bool_)
        keys = self._row_keys(rows)
        at = 0
        with txn.cursor(self.name) as cursor:
            while at < len(keys):
                old, upper = self._neighbours(cursor, keys[at])
                if old is None:
                    break
                stored = unpack_rows(cursor.value(), self.columns)[: self._keys]
                stop = len(keys) if upper is None else bisect_left(keys, upper, at)
                found[at:stop] = _among([column[at:stop] for column in wanted], stored)
                at = stop
        return found

    def splice(self, txn: WriteTransaction, insert: Rows, remove: Rows) -> None:
        """Remove rows and insert others, each sorted by its key and without repetitions.

        A row whose key is there already replaces the old one; a missing one is removed in peace.
        """
        coming, going = self._row_keys(insert), self._row_keys(remove)
        numbers = [column.tolist() for column in insert]
        come = go = 0
        with txn.cursor(self.name) as cursor:
            while come < len(coming) or go < len(going):
                key = min(coming[come : come + 1] + going[go : go + 1])
                old, upper = self._neighbours(cursor, key)
                to_come = len(coming) if upper is None else bisect_left(coming, upper, come)
                to_go = len(going) if upper is None else bisect_left(going, upper, go)
                if old and to_go == go and to_come - come <= _FEW:
                    few = [column[come:to_come] for column in numbers]
                    if self._insert(txn, old, cursor.value(), few):
                        come = to_come
                        continue
                rows = unpack_rows(cursor.value(), self.columns) if old else self.empty()
                before = len(rows[0])
                if to_go > go:
                    rows = self._without(rows, [column[go:to_go] for column in remove])
                if to_come > come:
                    rows = self._with(rows, [column[come:to_come] for column in insert])
                # Rows that are nothing but keys can only change in number, or by a removal.
                if to_go > go or len(rows[0]) > before or self._keys < self.columns:
                    self._store(txn, rows, old, upper)
                come, go = to_come, to_go

    def _insert(
        self, txn: WriteTransaction, key: bytes, page: memoryview, rows: list[list[int]]
    ) -> bool:
        """Put a few rows between the bytes of a page, if that is all there is to do."""
        grown = with_rows(page, self.columns, rows) if len(page) >= _SMALL else None
        if grown is None:
            return False
        txn.put(self.name, key, grown)
        return True

    def _row_keys(self, rows: Rows) -> list[bytes]:
        width = 8 * self._keys
        packed = np.stack(rows[: self._keys], axis=-1).astype(">u8").tobytes()
        return [packed[start : start + width] for start in range(0, len(packed), width)]

    def _neighbours(self, cursor: Cursor, key: bytes) -> tuple[bytes | None, bytes | None]:
        """Go to the page that a key belongs to; give the key of this page and of the next."""
        if not cursor.set_range(key):
            return (bytes(cursor.key()), None) if cursor.last() else (None, None)
        upper = bytes(cursor.key())
        if upper != key and cursor.prev():
            return bytes(cursor.key()), upper
        # The key is that of a page, or comes before all of them.
        after = bytes(cursor.key()) if cursor.set_key(upper) and cursor.next() else None
        cursor.set_key(upper)
        return upper, after

    def _store(
        self, txn: WriteTransaction, rows: Rows, old: bytes | None, upper: bytes | None
    ) -> None:
        """Write what a page has become: nothing, itself, itself with one beside it, or several."""
        if not len(rows[0]):
            if old:
                txn.delete(self.name, old)
            return
        shape = shape_of(rows)
        if shape.size < _SMALL:
            for other in self._beside(txn, old, upper):
                both, joined = self._join(txn, rows, other)
                if joined.size <= _ROOMY:
                    txn.delete(self.name, other)
                    rows, shape = both, joined
                    break
        first = self.first_key(rows)
        if old and old != first:
            txn.delete(self.name, old)
        if shape.size <= LARGEST:
            txn.put(self.name, first, pack_rows(rows, shape))
            return
        # A page that overflows is halved, so that both have room; a flood fills pages.
        flooded = shape.size > _FLOOD * LARGEST
        for piece, own in _pieces(rows) if flooded else _halves(rows, shape):
            txn.put(self.name, self.first_key(piece), pack_rows(piece, own))

    def _beside(
        self, txn: WriteTransaction, old: bytes | None, upper: bytes | None
    ) -> Iterator[bytes]:
        """Give the keys of the next page and of the one before."""
        if upper is not None:
            yield upper
        with txn.cursor(self.name) as cursor:
            if old and cursor.set_key(old) and cursor.prev():
                yield bytes(cursor.key())

    def _join(self, txn: WriteTransaction, rows: Rows, other: bytes) -> tuple[Rows, Shape]:
        value = txn.get(self.name, other)
        parts = [rows, unpack_rows(value, self.columns) if value is not None else self.empty()]
        if other < self.first_key(rows):
            parts.reverse()
        both = [np.concatenate(pair) for pair in zip(*parts, strict=True)]
        return both, shape_of(both)

    def first_key(self, rows: Rows) -> bytes:
        """Give the key under which a page with these rows is kept."""
        if self._keys == 1:
            return int(rows[0][0]).to_bytes(8, "big")
        return self.key(*[int(column[0]) for column in rows[: self._keys]])

    def _with(self, rows: Rows, added: Rows) -> Rows:
        if len(added[0]) == 1:
            at = int(rows[0].searchsorted(added[0][0]))
            if at == len(rows[0]) or rows[0][at] != added[0][0]:
                return [
                    np.concatenate((column[:at], more, column[at:]))
                    for column, more in zip(rows, added, strict=True)
                ]
        # What comes first in a stable order stays: the added row of two with the same key.
        joined = [np.concatenate(pair) for pair in zip(added, rows, strict=True)]
        order = np.lexsort(joined[: self._keys][::-1])
        joined = [column[order] for column in joined]
        fresh = np.zeros(len(order), np.bool_)
        fresh[:1] = True
        for column in joined[: self._keys]:
            fresh[1:] |= column[1:] != column[:-1]
        return [column[fresh] for column in joined]

    def _without(self, rows: Rows, dropped: Rows) -> Rows:
        if self._keys == 1:
            keep = np.isin(rows[0], dropped[0], invert=True)
        else:
            gone = set(zip(*(column.tolist() for column in dropped[: self._keys]), strict=True))
            keys = zip(*(column.tolist() for column in rows[: self._keys]), strict=True)
            keep = np.fromiter((key not in gone for key in keys), np.bool_, len(rows[0]))
        return [column[keep] for column in rows]


def seek(cursor: Cursor, key: bytes) -> bool:
    """Go to the page that a key belongs to, or to the first of all; say whether there is one."""
    if not cursor.set_range(key):
        return bool(cursor.last())
    if cursor.key() != key and not cursor.prev():
        cursor.first()
    return True


def _among(rows: Rows, stored: Rows) -> NDArray[np.bool_]:
    """Say of each row whether it is among those of a page; both are sorted."""
    if len(rows) == 1:
        at = stored[0].searchsorted(rows[0])
        at[at == len(stored[0])] = 0
        same: NDArray[np.bool_] = stored[0][at] == rows[0]
        return same
    both = [np.concatenate(pair) for pair in zip(stored, rows, strict=True)]
    order = np.lexsort(both[::-1])  # stable: a stored row stands before its equal
    repeated = np.ones(len(order), np.bool_)
    repeated[0] = False
    for column in both:
        repeated[1:] &= column[order][1:] == column[order][:-1]
    found = np.zeros(len(order), np.bool_)
    found[order[repeated]] = True
    return found[len(stored[0]) :]


def _pieces(rows: Rows) -> Iterator[tuple[Rows, Shape]]:
    """Cut rows into pieces that each fill a page."""
    start, count = 0, 1
    while start < len(rows[0]):
        for _ in range(3):  # a page that takes more rows may need wider columns
            piece = [column[start : start + count] for column in rows]
            shape = shape_of(piece)
            if shape.size <= LARGEST and (len(piece[0]) < count or rows_that_fit(shape) <= count):
                break
            count = max(rows_that_fit(shape), 1)
        while shape.size > LARGEST:
            count -= 1
            piece = [column[start : start + count] for column in rows]
            shape = shape_of(piece)
        yield piece, shape
        start += len(piece[0])


def _halves(rows: Rows, shape: Shape) -> Iterator[tuple[Rows, Shape]]:
    """Halve rows until each part fits on a page."""
    if shape.size <= LARGEST:
        yield rows, shape
        return
    half = len(rows[0]) // 2
    for part in ([column[:half] for column in rows], [column[half:] for column in rows]):
        yield from _halves(part, shape_of(part))
