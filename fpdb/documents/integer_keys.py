"""Documents whose keys are numbers, which are their ids as well.

`ids` holds, in sorted pages, the id, the highest 32 bits of the fingerprint and the time of adding;
only a document with a text, a sketch or metadata has a record as well.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from fpdb.arrays import Column, Marks, Rows, differs
from fpdb.documents.catalog import SLICE, Catalog, Keys, Stored
from fpdb.errors import DamagedError, InputError
from fpdb.models import Key
from fpdb.storage import ReadTransaction, WriteTransaction
from fpdb.tables.bits import Fingerprints
from fpdb.tables.pages import Pages

_ROWS = 1 << 20


class IntegerCatalog(Catalog):
    """Documents whose keys are numbers, which are their ids as well."""

    kind = "integer"
    names = ("documents", "ids", "short")
    ids = Pages("ids", keys=1, columns=3)
    pages = (ids,)

    def check_key(self, key: Key) -> None:
        if isinstance(key, bool) or not isinstance(key, int) or not 0 <= key < 1 << 64:
            raise InputError(
                f"found the key {key!r}, expected a whole number from 0 to 2**64 - 1",
                hint="a database with text keys is created with keys='text'",
            )

    def find_many(self, txn: ReadTransaction, keys: Sequence[Key]) -> dict[Key, Stored | None]:
        found: dict[Key, Stored | None] = dict.fromkeys(keys)
        wanted = np.array(sorted(map(int, found)), np.uint64)
        first = 0
        while first < len(wanted):
            # All keys up to the next page are looked up in this one.
            rows, upper = self.ids.page_of(txn, int(wanted[first]))
            last = len(wanted) if upper is None else int(wanted.searchsorted(np.uint64(upper)))
            at = rows[0].searchsorted(wanted[first:last])
            there = at < len(rows[0])
            there[there] = rows[0][at[there]] == wanted[first:last][there]
            for position in at[there].tolist():
                number, high, added = (int(column[position]) for column in rows)
                found[number] = self.record(txn, number) or self._bare(txn, number, high, added)
            first = last
        return found

    def load(self, txn: ReadTransaction, number: int) -> Stored | None:
        return self.find_many(txn, [number])[number]

    def keys_of(self, txn: ReadTransaction, ids: Column) -> list[Key | None]:
        order = np.argsort(ids)
        there = np.empty(len(ids), np.bool_)
        there[order] = self.ids.holds(txn, [ids[order]])
        return [number if here else None for number, here in zip(ids.tolist(), there, strict=True)]

    def key_and_meta(self, txn: ReadTransaction, number: int) -> tuple[Key, bytes]:
        stored = self.record(txn, number)
        return number, stored.meta if stored else b""

    def _bare(self, txn: ReadTransaction, number: int, high: int, added: int) -> Stored:
        if high >> 32:
            raise DamagedError(
                "a page can't be read: it is one of another table", hint="run `fpdb check`"
            )
        fingerprint = self._index.locate(txn, high, number)
        if fingerprint is None:
            raise DamagedError(f"the document {number} is in no table", hint="run `fpdb check`")
        return Stored(number, number, fingerprint, added, sketch=self.no_sketch)

    def write(
        self, txn: WriteTransaction, saved: Sequence[Stored], removed: Sequence[Stored]
    ) -> None:
        below = 8 * self._bytes - 32
        rows = [(d.id, (d.fingerprint or 0) >> below, d.added) for d in saved]
        columns = np.array(sorted(rows), np.uint64).reshape(-1, 3).T
        kept = {stored.id for stored in saved}
        gone = np.array(sorted(d.id for d in removed if d.id not in kept), np.uint64)
        self.ids.splice(txn, list(np.ascontiguousarray(columns)), [gone, gone, gone])
        for stored in removed:
            if _has_record(stored):
                txn.delete("documents", stored.id.to_bytes(8, "big"))
                self._delete_short(txn, stored)
        for stored in saved:
            if _has_record(stored):
                self._put_record(txn, stored)

    def distinct(self, keys: Keys, fingerprints: Fingerprints) -> tuple[Keys, Fingerprints]:
        column = _column(keys)
        if (column[1:] > column[:-1]).all():
            return column, fingerprints
        places = np.argsort(column, kind="stable")
        column = column[places]
        last = np.append(differs(column)[1:], True)
        return column[last], fingerprints[places[last]]

    def sift(
        self, txn: ReadTransaction, keys: Keys, fingerprints: Fingerprints
    ) -> tuple[Marks, Marks]:
        column = _column(keys)
        known = self.ids.holds(txn, [column])
        same = np.zeros(len(column), np.bool_)
        if known.any():
            same[known] = self._index.holds(txn, fingerprints[known], column[known])
            if txn.entries("documents"):  # those with a text or metadata are more than that
                for place in same.nonzero()[0].tolist():
                    same[place] = self.record(txn, int(column[place])) is None
        return ~known, known & ~same

    def fill(
        self,
        txn: WriteTransaction,
        keys: Keys,
        ids: Column,
        fingerprints: Fingerprints,
        *,
        added: int,
        empty: bool,
    ) -> None:
        rows = self._bare_rows(ids, fingerprints, added)
        if empty:
            self.ids.fill(txn, rows)
            return
        for block in rows:
            self.ids.splice(txn, block, self.ids.empty())

    def _bare_rows(self, ids: Column, fingerprints: Fingerprints, added: int) -> Iterator[Rows]:
        for start in range(0, len(ids), _ROWS):
            high = self._high(fingerprints[start : start + _ROWS])
            own = ids[start : start + _ROWS]
            yield [own, high, np.full(len(own), added, np.uint64)]

    def _high(self, fingerprints: Fingerprints) -> Column:
        words = fingerprints if fingerprints.ndim == 1 else fingerprints[:, 0]
        return words >> np.uint64(0 if self._bytes == 4 else 32)

    def copy(self, txn: ReadTransaction, into: WriteTransaction) -> None:
        self._copy_records(txn, into)
        self.ids.fill(into, self.ids.scan(txn))

    def each(self, txn: ReadTransaction, prefix: str = "") -> Iterator[Stored]:
        after: Key | None = None
        while found := self.slice_after(txn, after, prefix):
            after = found[-1].key
            yield from found

    def slice_after(
        self, txn: ReadTransaction, after: Key | None, prefix: str = ""
    ) -> list[Stored]:
        if prefix:
            raise InputError("found a prefix for integer keys", hint="only text keys have prefixes")
        start = 0 if after is None else int(after) + 1
        found: list[Stored] = []
        if start == 1 << 64:  # there is no key after the last one
            return found
        for ids, high, added in self.ids.scan(txn, self.ids.key(start)):
            rows = zip(ids.tolist(), high.tolist(), added.tolist(), strict=True)
            for number, own_high, own_added in rows:
                if number >= start:
                    record = self.record(txn, number)
                    found.append(record or self._bare(txn, number, own_high, own_added))
            if len(found) >= SLICE:
                break
        return found


def _has_record(stored: Stored) -> bool:
    """Return whether a document is more than its key and its fingerprint."""
    return bool(stored.digest or stored.meta or stored.sketch or stored.fingerprint is None)


def _column(keys: Keys) -> Column:
    return np.asarray(keys, np.uint64)
