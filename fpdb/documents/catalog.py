"""Documents by key and by id: what is stored of each beside its places in the tables.

With text keys, every document has a record, and `keys` leads from the key to the id. With integer
keys the id is the key: `ids` holds, in sorted pages, the id, the highest 32 bits of the fingerprint
and the time of adding; only a document with a text or metadata has a record as well.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fpdb.errors import DamagedError, InputError
from fpdb.models import Key
from fpdb.storage import ReadTransaction, WriteTransaction
from fpdb.storage.columns import Column
from fpdb.storage.records import LARGEST_KEY, Record, pack_record, unpack_record
from fpdb.tables import Index
from fpdb.tables.bits import Fingerprints
from fpdb.tables.pages import Pages

_LONGEST_LMDB_KEY = 511
_DIGEST_BYTES = 32
_SLICE = 1000


class Stored(NamedTuple):
    """A document as the catalog knows it; `fingerprint` is None if the text is short."""

    id: int
    key: Key
    fingerprint: int | None
    added: int
    digest: bytes = b""
    meta: bytes = b""
    characters: int = 0


class Catalog(ABC):
    """What both kinds of keys share: records by id, and short texts by their digest."""

    kind: str
    names: tuple[str, ...]

    def __init__(self, index: Index) -> None:
        self._index = index
        self._bytes = index.plan.bits // 8

    @abstractmethod
    def check_key(self, key: Key) -> None:
        """Refuse a key of the wrong kind."""

    @abstractmethod
    def find(self, txn: ReadTransaction, key: Key) -> Stored | None:
        """Find a document by its key."""

    def find_many(self, txn: ReadTransaction, keys: Sequence[Key]) -> dict[Key, Stored | None]:
        """Find documents by their keys."""
        return {key: self.find(txn, key) for key in keys}

    @abstractmethod
    def load(self, txn: ReadTransaction, number: int) -> Stored | None:
        """Find a document by its id."""

    def key_and_meta(self, txn: ReadTransaction, number: int) -> tuple[Key, bytes]:
        """Give what a match shows of a document that a table names."""
        stored = self.record(txn, number)
        if stored is None:
            raise DamagedError(f"the document {number} isn't there", hint="run `fpdb check`")
        return stored.key, stored.meta

    def characters(self, txn: ReadTransaction, number: int) -> int:
        """Give the length of a document's text, 0 if it came as a fingerprint."""
        stored = self.record(txn, number)
        return stored.characters if stored else 0

    @abstractmethod
    def save(self, txn: WriteTransaction, documents: Sequence[Stored]) -> None:
        """Write documents, each under its id, whatever was there."""

    @abstractmethod
    def remove(self, txn: WriteTransaction, documents: Sequence[Stored]) -> None:
        """Forget documents."""

    @abstractmethod
    def fill(
        self, txn: WriteTransaction, keys: Sequence[Key], fingerprints: Fingerprints, added: int
    ) -> tuple[Fingerprints, Column]:
        """Write many documents without texts into an empty catalog; of equal keys the last counts.

        Give their fingerprints and ids.
        """

    @abstractmethod
    def slice_after(
        self, txn: ReadTransaction, after: Key | None, prefix: str = ""
    ) -> list[Stored]:
        """Give the next documents in the order of their keys, none at the end."""

    def short_ids(self, txn: ReadTransaction, digest: bytes) -> Iterator[int]:
        """Give the ids of the short texts with a digest."""
        with txn.cursor("short") as cursor:
            found = cursor.set_range(digest)
            while found:
                key = bytes(cursor.key())
                if not key.startswith(digest):
                    return
                yield int.from_bytes(key[len(digest) :], "big")
                found = cursor.next()

    def _put_record(self, txn: WriteTransaction, stored: Stored) -> None:
        number = stored.id.to_bytes(8, "big")
        number_of = stored.fingerprint
        fingerprint = b"" if number_of is None else number_of.to_bytes(self._bytes, "big")
        record = Record(stored.key, fingerprint, *stored[3:])
        txn.put("documents", number, pack_record(record))
        if number_of is None:
            txn.put("short", stored.digest + number, b"")

    def _delete_record(self, txn: WriteTransaction, stored: Stored) -> None:
        number = stored.id.to_bytes(8, "big")
        txn.delete("documents", number)
        if stored.fingerprint is None:
            txn.delete("short", stored.digest + number)

    def record(self, txn: ReadTransaction, number: int) -> Stored | None:
        """Give the record of an id, if it has one."""
        value = txn.get("documents", number.to_bytes(8, "big"))
        return None if value is None else _stored(number, unpack_record(value))


def _stored(number: int, record: Record) -> Stored:
    fingerprint = int.from_bytes(record.fingerprint, "big") if record.fingerprint else None
    return Stored(number, record.key, fingerprint, *record[2:])


class TextCatalog(Catalog):
    """Documents whose keys are texts, such as URLs."""

    kind = "text"
    names = ("documents", "keys", "short")

    def check_key(self, key: Key) -> None:
        if not isinstance(key, str) or not key:
            raise InputError(
                f"found the key {key!r}, expected a text that isn't empty",
                hint="a database with integer keys is created with keys='integer'",
            )
        key_bytes(key)

    def find(self, txn: ReadTransaction, key: Key) -> Stored | None:
        self.check_key(key)
        number = txn.get("keys", key_bytes(str(key)))
        return None if number is None else self.load(txn, int.from_bytes(number, "big"))

    def load(self, txn: ReadTransaction, number: int) -> Stored | None:
        return self.record(txn, number)

    def save(self, txn: WriteTransaction, documents: Sequence[Stored]) -> None:
        for stored in documents:
            self._put_record(txn, stored)
            txn.put("keys", key_bytes(str(stored.key)), stored.id.to_bytes(8, "big"))

    def remove(self, txn: WriteTransaction, documents: Sequence[Stored]) -> None:
        for stored in documents:
            self._delete_record(txn, stored)
            txn.delete("keys", key_bytes(str(stored.key)))

    def fill(
        self, txn: WriteTransaction, keys: Sequence[Key], fingerprints: Fingerprints, added: int
    ) -> tuple[Fingerprints, Column]:
        last = {key_bytes(str(key)): place for place, key in enumerate(keys)}
        places = np.fromiter(last.values(), np.intp, len(last))
        numbers = self._index.numbers(fingerprints[places])
        for number, (place, fingerprint) in enumerate(zip(places.tolist(), numbers, strict=True)):
            packed = fingerprint.to_bytes(self._bytes, "big")
            record = Record(keys[place], packed, added, b"", b"", 0)
            txn.append("documents", number.to_bytes(8, "big"), pack_record(record))
        for name, number in sorted(zip(last, range(len(last)), strict=True)):
            txn.append("keys", name, number.to_bytes(8, "big"))
        return fingerprints[places], np.arange(len(last), dtype=np.uint64)

    def slice_after(
        self, txn: ReadTransaction, after: Key | None, prefix: str = ""
    ) -> list[Stored]:
        start = _prefix_bytes(prefix)
        last = key_bytes(str(after)) if after is not None else None
        found: list[Stored] = []
        with txn.cursor("keys") as cursor:
            there = cursor.set_range(start if last is None else last)
            if there and last is not None and bytes(cursor.key()) == last:
                there = cursor.next()
            while there and len(found) < _SLICE and bytes(cursor.key()).startswith(start):
                stored = self.load(txn, int.from_bytes(cursor.value(), "big"))
                if stored is None:
                    raise DamagedError("a key leads to no document", hint="run `fpdb check`")
                if str(stored.key).startswith(prefix):
                    found.append(stored)
                there = cursor.next()
        return found


class IntegerCatalog(Catalog):
    """Documents whose keys are numbers, which are their ids as well."""

    kind = "integer"
    names = ("documents", "ids", "short")
    ids = Pages("ids", keys=1, columns=3)

    def check_key(self, key: Key) -> None:
        if isinstance(key, bool) or not isinstance(key, int) or not 0 <= key < 1 << 64:
            raise InputError(
                f"found the key {key!r}, expected a whole number from 0 to 2**64 - 1",
                hint="a database with text keys is created with keys='text'",
            )

    def find(self, txn: ReadTransaction, key: Key) -> Stored | None:
        self.check_key(key)
        return self.load(txn, int(key))

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

    def key_and_meta(self, txn: ReadTransaction, number: int) -> tuple[Key, bytes]:
        stored = self.record(txn, number)
        return number, stored.meta if stored else b""

    def _bare(self, txn: ReadTransaction, number: int, high: int, added: int) -> Stored:
        fingerprint = self._index.locate(txn, high, number)
        if fingerprint is None:
            raise DamagedError(f"the document {number} is in no table", hint="run `fpdb check`")
        return Stored(number, number, fingerprint, added)

    def save(self, txn: WriteTransaction, documents: Sequence[Stored]) -> None:
        below = 8 * self._bytes - 32
        rows = [(d.id, (d.fingerprint or 0) >> below, d.added) for d in documents]
        columns = np.array(sorted(rows), np.uint64).reshape(-1, 3).T
        self.ids.splice(txn, list(np.ascontiguousarray(columns)), self.ids.empty())
        for stored in documents:
            if stored.digest or stored.meta or stored.fingerprint is None:
                self._put_record(txn, stored)

    def remove(self, txn: WriteTransaction, documents: Sequence[Stored]) -> None:
        ids = np.array(sorted(stored.id for stored in documents), np.uint64)
        self.ids.splice(txn, self.ids.empty(), [ids, ids, ids])
        for stored in documents:
            if stored.digest or stored.meta or stored.fingerprint is None:
                self._delete_record(txn, stored)

    def fill(
        self, txn: WriteTransaction, keys: Sequence[Key], fingerprints: Fingerprints, added: int
    ) -> tuple[Fingerprints, Column]:
        ids, places = np.unique(np.array(keys, np.uint64)[::-1], return_index=True)
        chosen = fingerprints[len(keys) - 1 - places]
        high = chosen if chosen.ndim == 1 else chosen[:, 0]
        shift = np.uint64(0 if self._bytes == 4 else 32)
        self.ids.fill(txn, [ids, high >> shift, np.full(len(ids), added, np.uint64)])
        return chosen, ids

    def slice_after(
        self, txn: ReadTransaction, after: Key | None, prefix: str = ""
    ) -> list[Stored]:
        if prefix:
            raise InputError("found a prefix for integer keys", hint="only text keys have prefixes")
        start = 0 if after is None else int(after) + 1
        found: list[Stored] = []
        if start == 1 << 64:  # there is no key behind the last one
            return found
        for ids, high, added in self.ids.scan(txn, self.ids.key(start)):
            rows = zip(ids.tolist(), high.tolist(), added.tolist(), strict=True)
            for number, own_high, own_added in rows:
                if number >= start:
                    record = self.record(txn, number)
                    found.append(record or self._bare(txn, number, own_high, own_added))
            if len(found) >= _SLICE:
                break
        return found


CATALOGS: dict[str, type[Catalog]] = {kind.kind: kind for kind in (TextCatalog, IntegerCatalog)}


def key_bytes(key: str) -> bytes:
    """Give the bytes under which a key is found; a long one is cut and told apart by a digest."""
    try:
        data = key.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"the key {key!r} holds half a surrogate pair", hint="keys are valid Unicode"
        ) from None
    if len(data) < _LONGEST_LMDB_KEY:
        return data
    if len(data) > LARGEST_KEY:
        raise InputError(
            f"found a key of {len(data):,} bytes, expected at most {LARGEST_KEY:,}",
            hint="use a digest of it as the key, and keep it in the metadata",
        )
    digest = hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
    return data[: _LONGEST_LMDB_KEY - _DIGEST_BYTES] + digest


def _prefix_bytes(prefix: str) -> bytes:
    return prefix.encode("utf-8", "surrogatepass")[: _LONGEST_LMDB_KEY - _DIGEST_BYTES]
