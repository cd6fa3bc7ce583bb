"""Keep rows of numbers sorted in pages: find, insert and remove, touching each page once."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import pairwise

import numpy as np
from xxhash import xxh3_64_intdigest

from fpdb import kernels
from fpdb.arrays import Marks, Rows, among, differs, joined
from fpdb.errors import DamagedError
from fpdb.storage import Cursor, ReadTransaction, WriteTransaction
from fpdb.storage.columns import (
    LARGEST,
    NewRows,
    Shape,
    merged,
    pack_rows,
    pack_unsummed,
    page_or_size,
    raw_column,
    rows_of,
    rows_that_fit,
    shape_of,
    summed,
    unpack_rows,
)
from fpdb.storage.format import seed_of

# A page below a quarter is joined with the one before if both then leave room for some more.
_SMALL = LARGEST // 4
_ROOMY = LARGEST * 3 // 4
# Two pages share their rows, instead of becoming three, if both then fill at most this.
_SHARED = LARGEST * 7 // 8
# If a page would become this many, they are filled as in a load.
_FLOOD = 4
# A page that could hold no more than an Nth more is full enough: to find the last row takes time.
_NEARLY = 64
# Up to this many rows are put between the bytes of a page; more are merged as arrays.
_FEW = 64


class Pages:
    """One sub-database of sorted pages; the first columns of a row are its key."""

    def __init__(self, name: str, keys: int, columns: int) -> None:
        self.name = name
        self.seed = seed_of(name)
        self.columns = columns
        self._keys = keys
        self.key_width = 8 * keys

    def reader(self, cursor: Cursor) -> "kernels.pages.PageCursor":
        """Return a cursor of this sub-database as kernels take it."""
        return kernels.pages.PageCursor(cursor, xxh3_64_intdigest, self.columns, self.seed)

    def empty(self) -> Rows:
        """Return columns without any row."""
        return [np.empty(0, np.uint64)] * self.columns

    def key(self, *numbers: int) -> bytes:
        """Return the key of a row as bytes, which sort as its numbers."""
        return b"".join([number.to_bytes(8, "big") for number in numbers])

    def first_key(self, rows: Rows) -> bytes:
        """Return the key of the page that has these rows."""
        return self.key(*[int(column[0]) for column in rows[: self._keys]])

    def seed_at(self, key: bytes | memoryview) -> int:
        """Return the seed of the checksum of the page with a key."""
        return self.seed ^ int.from_bytes(key)

    def rows_at(self, cursor: Cursor, columns: int | None = None) -> Rows:
        """Return all columns of the page that a cursor is at, or the first N."""
        key, value = cursor.item()
        return unpack_rows(value, self.columns, self.seed_at(key), columns)

    def _packed(self, rows: Rows, shape: Shape) -> tuple[bytes, bytearray]:
        """Return key and value of the page that has these rows."""
        key = self.first_key(rows)
        return key, pack_rows(rows, shape, self.seed_at(key))

    def scan(
        self, txn: ReadTransaction, first: bytes | None = None, columns: int | None = None
    ) -> Iterator[Rows]:
        """Yield the rows of all pages in their order, or from the page on that a key belongs to.

        Of each row, all columns are read or the first N.
        """
        with txn.cursor(self.name) as cursor:
            found = seek(cursor, first) if first else cursor.first()
            last = b""
            while found:
                key = bytes(cursor.key())
                if key <= last:
                    raise out_of_order(self.name)
                last = key
                yield self.rows_at(cursor, columns)
                found = cursor.next()

    def page_of(self, txn: ReadTransaction, first: int) -> tuple[Rows, int | None]:
        """Return the page that a row belongs to, and the first number of the next page."""
        with txn.cursor(self.name) as cursor:
            old, upper = page_and_next(cursor, self.key(first))
            rows = self.rows_at(cursor) if old else self.empty()
            return rows, int.from_bytes(upper[:8], "big") if upper else None

    def fill(self, txn: WriteTransaction, blocks: Iterable[Rows]) -> None:
        """Append sorted rows after all that are stored, page by page, each as full as possible."""
        rows = self.empty()
        for block in blocks:
            rows = joined([rows, block])
            start = 0
            for piece, shape in _pieces(rows):
                if start + len(piece[0]) == len(rows[0]):  # the next block may still fit here
                    break
                txn.append(self.name, *self._packed(piece, shape))
                start += len(piece[0])
            rows = [column[start:] for column in rows]
        for piece, shape in _pieces(rows):
            txn.append(self.name, *self._packed(piece, shape))

    def holds(self, txn: ReadTransaction, rows: Rows) -> Marks:
        """Mark those rows, which are sorted by their key, whose key is stored."""
        wanted = rows[: self._keys]
        found = np.zeros(len(wanted[0]), np.bool_)
        keys = _KeysOfRows(wanted)
        at = 0
        with txn.cursor(self.name) as cursor:
            while at < len(keys):
                old, upper = page_and_next(cursor, keys[at])
                if old is None:
                    break
                stored = self.rows_at(cursor)[: self._keys]
                stop = keys.place(upper, at)
                found[at:stop] = _among([column[at:stop] for column in wanted], stored)
                at = stop
        return found

    def splice(self, txn: WriteTransaction, insert: Rows, remove: Rows) -> None:
        """Remove rows and insert others, each sorted by its key and without repetitions.

        A row whose key is stored already replaces the old one; removing a missing row is a no-op.
        """
        coming, going = _KeysOfRows(insert[: self._keys]), _KeysOfRows(remove[: self._keys])
        last_come, last_go = len(coming), len(going)
        new = NewRows(insert)
        come = go = 0
        with txn.cursor(self.name) as cursor:
            at = self.reader(cursor) if kernels.enabled and not last_go else None
            put = partial(txn.put, self.name)
            while come < last_come or go < last_go:
                come = new.insert(at, put, self._keys, come, _FEW)
                if at and come == last_come:
                    break
                key = coming[come] if come < last_come else going[go]
                if go < last_go and going[go] < key:
                    key = going[go]
                old, upper = page_and_next(cursor, key)
                to_come = coming.place(upper, come)
                to_go = going.place(upper, go) if last_go else 0
                if old is None:
                    rows = merged([column[come:] for column in insert], self.empty(), self._keys)
                    self._store(txn, rows, None)
                    return
                value, seed = cursor.value(), self.seed_at(old)
                if to_go == go:
                    if to_come - come <= _FEW:
                        grown = new.into(value, self.columns, seed, come, to_come)
                        if grown is not None:
                            txn.put(self.name, old, grown)
                            come = to_come
                            continue
                    before = rows_of(value)
                    rows = new.merged(value, self._keys, seed, come, to_come)
                else:
                    rows = unpack_rows(value, self.columns, seed)
                    before = len(rows[0])
                    gone = [column[go:to_go] for column in remove[: self._keys]]
                    keep = ~_among(rows[: self._keys], gone)
                    rows = [column[keep] for column in rows]
                    if to_come > come:
                        coming_rows = [column[come:to_come] for column in insert]
                        rows = merged(coming_rows, rows, self._keys)
                # Rows that are nothing but keys can only change in number, or by a removal.
                if to_go > go or len(rows[0]) > before or self._keys < self.columns:
                    self._store(txn, rows, old)
                come, go = to_come, to_go

    def _store(self, txn: WriteTransaction, rows: Rows, old: bytes | None) -> None:
        """Write the new rows of a page: as none, as one, joined with the one before, or split."""
        if not len(rows[0]):
            if old:
                txn.delete(self.name, old)
            return
        page = page_or_size(rows, LARGEST)
        if old and isinstance(page, bytearray) and len(page) < _SMALL:
            with txn.cursor(self.name) as cursor:
                if cursor.set_key(old) and cursor.prev():
                    before = bytes(cursor.key())
                    both = joined([self.rows_at(cursor), rows])
                    both_page = page_or_size(both, _ROOMY)
                    if isinstance(both_page, bytearray):
                        txn.delete(self.name, old)
                        old, rows, page = before, both, both_page
        if isinstance(page, bytearray):
            pieces = [(rows, page)]
        elif page > _FLOOD * LARGEST:
            pieces = [(piece, pack_unsummed(piece, shape)) for piece, shape in _pieces(rows)]
        else:
            pieces = self._shared(txn, rows, old) or list(_halves(rows))
        keys = [self.first_key(piece) for piece, _ in pieces]
        if old and old not in keys:
            txn.delete(self.name, old)
        for key, (_, page) in zip(keys, pieces, strict=True):
            txn.put(self.name, key, summed(page, self.seed_at(key)))

    def _shared(
        self, txn: WriteTransaction, rows: Rows, old: bytes | None
    ) -> list[tuple[Rows, bytearray]]:
        """Cut the rows of a page that overflows and of the page before evenly.

        They are cut into two pages if these have room for some more, else into three. So pages
        are fuller than if each was halved. Nothing is returned if there is no page before.
        """
        if not old:
            return []
        with txn.cursor(self.name) as cursor:
            if not cursor.set_key(old) or not cursor.prev():
                return []
            both = joined([self.rows_at(cursor), rows])
        for count, largest in ((2, _SHARED), (3, LARGEST)):
            ends = [len(both[0]) * part // count for part in range(count + 1)]
            pieces: list[tuple[Rows, bytearray]] = []
            for low, high in pairwise(ends):
                part = [column[low:high] for column in both]
                page = page_or_size(part, largest)
                if not isinstance(page, bytearray):
                    break
                pieces.append((part, page))
            else:
                return pieces  # the first of them takes the place of the page before
        return []


class _KeysOfRows:
    """The keys of sorted rows as bytes, which sort as their numbers."""

    def __init__(self, columns: Rows) -> None:
        self._width = 8 * len(columns)
        self._bytes = np.stack(columns, axis=-1).astype(">u8").tobytes()
        self._count = len(columns[0])

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: int) -> bytes:
        start = row * self._width
        return self._bytes[start : start + self._width]

    def place(self, limit: bytes | None, start: int) -> int:
        """Return the first row from one on whose key isn't below a limit."""
        count = self._count
        if limit is None:
            return count
        # Mostly a page gets a row or a few.
        low, at, step = start, start, 1
        while at < count and self[at] < limit:
            low, at, step = at + 1, at + step, 2 * step
        return bisect_left(self, limit, low, min(at, count))


def read_words(
    page: memoryview, columns: int, seed: int, wanted: int
) -> tuple[list[memoryview], int]:
    """Return the first `wanted` columns of a page as bytes of uint64, and how many rows it has."""
    if wanted == 1:
        column, count = raw_column(page, columns, seed)
        return [column], count
    rows = unpack_rows(page, columns, seed, wanted)
    return [row.data.cast("B") for row in rows], len(rows[0])


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
    if not cursor.set_range(key):
        return (bytes(cursor.key()), None) if cursor.last() else (None, None)
    upper = bytes(cursor.key())
    if upper != key and cursor.prev():
        return bytes(cursor.key()), upper
    # The key is that of a page, or comes before all of them.
    after = bytes(cursor.key()) if cursor.set_key(upper) and cursor.next() else None
    cursor.set_key(upper)
    return upper, after


def _among(rows: Rows, known: Rows) -> Marks:
    """Mark the rows that are among others; both are sorted, without repetitions."""
    if len(rows) == 1:
        return among(rows[0], known[0])
    both = joined([known, rows])
    order = np.lexsort(both[::-1])  # stable: a known row comes before its equal
    found = np.zeros(len(order), np.bool_)
    found[order] = ~differs(*[column[order] for column in both])
    return found[len(known[0]) :]


def _pieces(rows: Rows) -> Iterator[tuple[Rows, Shape]]:
    """Cut rows into pieces that each fill a page, or nearly."""
    start, count = 0, 1
    while start < len(rows[0]):
        found: list[tuple[Rows, Shape]] = []
        fits, over = 0, len(rows[0]) - start + 1  # as many rows as fit on a page, or don't
        bounded = False
        while over - fits > 1 + fits // _NEARLY:
            piece = [column[start : start + count] for column in rows]
            shape = shape_of(piece)
            room = rows_that_fit(shape)  # at these widths; more rows may need wider columns
            if shape.size <= LARGEST:
                found, fits = [(piece, shape)], len(piece[0])
                if room <= fits:
                    break
            else:
                over, bounded = len(piece[0]), True
            count = room if not bounded or fits < room < over else (fits + over) // 2
        yield from found
        start, count = start + fits, fits


def _halves(rows: Rows) -> Iterator[tuple[Rows, bytearray]]:
    """Halve rows until each part fits on a page."""
    page = page_or_size(rows, LARGEST)
    if isinstance(page, bytearray):
        yield rows, page
        return
    half = len(rows[0]) // 2
    for part in ([column[:half] for column in rows], [column[half:] for column in rows]):
        yield from _halves(part)
