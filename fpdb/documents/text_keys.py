"""Documents whose keys are texts: every one has a record, and `keys` leads from key to id."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fpdb.documents.catalog import SLICE, Catalog, Columns, Keys, Stored
from fpdb.errors import DamagedError, InputError
from fpdb.models import Key
from fpdb.storage import ReadTransaction, WriteTransaction
from fpdb.storage.columns import Column
from fpdb.storage.records import LARGEST_KEY, Record, pack_record
from fpdb.tables.bits import Fingerprints

_LONGEST_LMDB_KEY = 511
_DIGEST_BYTES = 32
# So many bytes of a long key stand before its digest.
_HEAD = _LONGEST_LMDB_KEY - _DIGEST_BYTES


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

    def keys_of(self, txn: ReadTransaction, ids: Column) -> list[Key | None]:
        records = (self.record(txn, number) for number in ids.tolist())
        return [None if stored is None else stored.key for stored in records]

    def save(self, txn: WriteTransaction, documents: Sequence[Stored]) -> None:
        for stored in documents:
            self._put_record(txn, stored)
            txn.put("keys", key_bytes(str(stored.key)), stored.id.to_bytes(8, "big"))

    def remove(self, txn: WriteTransaction, documents: Sequence[Stored]) -> None:
        for stored in documents:
            self._delete_record(txn, stored)
            txn.delete("keys", key_bytes(str(stored.key)))

    def replace(self, txn: WriteTransaction, old: Sequence[Stored], new: Sequence[Stored]) -> None:
        for stored in old:
            self._delete_short(txn, stored)
        for stored in new:
            self._put_record(txn, stored)

    def distinct(self, keys: Keys, fingerprints: Fingerprints) -> tuple[Keys, Fingerprints]:
        last = {str(key): place for place, key in enumerate(keys)}
        if len(last) == len(keys):
            return keys, fingerprints
        return list(last), fingerprints[np.fromiter(last.values(), np.intp, len(last))]

    def sift(
        self, txn: ReadTransaction, keys: Keys, fingerprints: Fingerprints
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        numbers = self._index.numbers(fingerprints)
        found = [self.find(txn, str(key)) for key in keys]
        new = np.array([stored is None for stored in found], np.bool_)
        changed = [
            stored is not None and (stored.fingerprint, stored.digest, stored.meta) != (n, b"", b"")
            for stored, n in zip(found, numbers, strict=True)
        ]
        return new, np.array(changed, np.bool_)

    def new_ids(self, keys: Keys, next_id: int) -> Column:
        return np.arange(next_id, next_id + len(keys), dtype=np.uint64)

    def save_bare(
        self, txn: WriteTransaction, keys: Keys, ids: Column, fingerprints: Fingerprints, added: int
    ) -> None:
        for name, value in self._bare_records(keys, ids, fingerprints, added):
            txn.put("documents", name, value)
        for name, number in self._sorted_names(keys, ids):
            txn.put("keys", name, number)

    def fill(
        self, txn: WriteTransaction, keys: Keys, ids: Column, fingerprints: Fingerprints, added: int
    ) -> None:
        for name, value in self._bare_records(keys, ids, fingerprints, added):
            txn.append("documents", name, value)
        for name, number in self._sorted_names(keys, ids):
            txn.append("keys", name, number)

    def extend(self, txn: WriteTransaction, blocks: Iterable[Columns]) -> None:
        for block in blocks:
            for stored in block.stored:
                self._append_record(txn, stored)
                name = key_bytes(str(stored.key))
                # Of keys that begin alike, a long one may have a name below that of the last one.
                write = txn.append if len(name) < _HEAD else txn.put
                write("keys", name, stored.id.to_bytes(8, "big"))

    def _bare_records(
        self, keys: Keys, ids: Column, fingerprints: Fingerprints, added: int
    ) -> Iterator[tuple[bytes, bytes]]:
        for start in range(0, len(ids), SLICE):
            numbers = self._index.numbers(fingerprints[start : start + SLICE])
            own = ids[start : start + SLICE].tolist()
            for place, (fingerprint, number) in enumerate(zip(numbers, own, strict=True), start):
                data = fingerprint.to_bytes(self._bytes, "big")
                record = Record(str(keys[place]), data, added, b"", b"", 0, self.no_sketch)
                yield number.to_bytes(8, "big"), pack_record(record)

    def _sorted_names(self, keys: Keys, ids: Column) -> list[tuple[bytes, bytes]]:
        names = map(key_bytes, map(str, keys))
        numbers = (number.to_bytes(8, "big") for number in ids.tolist())
        return sorted(zip(names, numbers, strict=True))

    def copy(self, txn: ReadTransaction, into: WriteTransaction) -> None:
        self._copy_records(txn, into)
        self._copy_entries(txn, into, "keys")

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
            while there and len(found) < SLICE and bytes(cursor.key()).startswith(start):
                stored = self.load(txn, int.from_bytes(cursor.value(), "big"))
                if stored is None:
                    raise DamagedError("a key leads to no document", hint="run `fpdb check`")
                if str(stored.key).startswith(prefix):
                    found.append(stored)
                there = cursor.next()
        return found


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
    return data[:_HEAD] + digest


def _prefix_bytes(prefix: str) -> bytes:
    return prefix.encode("utf-8", "surrogatepass")[:_HEAD]
