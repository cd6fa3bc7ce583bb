"""Documents whose keys are texts: every one has a record, and `keys` leads from key to id."""

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np

from fpdb.arrays import Column, Marks
from fpdb.documents.catalog import SLICE, Catalog, Keys, Stored, to_stored
from fpdb.errors import DamagedError, InputError
from fpdb.models import Key
from fpdb.storage import ReadTransaction, WriteTransaction
from fpdb.storage.records import LARGEST_KEY, pack_record, unpack_record
from fpdb.tables.bits import Fingerprints

_LONGEST_LMDB_KEY = 511
_DIGEST_BYTES = 32
# Bytes of a long key before its digest.
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

    def find_many(self, txn: ReadTransaction, keys: Sequence[Key]) -> dict[Key, Stored | None]:
        found: dict[Key, Stored | None] = {}
        for key in keys:
            number = txn.get("keys", key_bytes(str(key)))
            found[key] = None
            if number is not None:
                found[key] = self.record(txn, int.from_bytes(number, "big"))
        return found

    def load(self, txn: ReadTransaction, number: int) -> Stored | None:
        return self.record(txn, number)

    def keys_of(self, txn: ReadTransaction, ids: Column) -> list[Key | None]:
        records = (self.record(txn, number) for number in ids.tolist())
        return [None if stored is None else stored.key for stored in records]

    def write(
        self, txn: WriteTransaction, saved: Sequence[Stored], removed: Sequence[Stored]
    ) -> None:
        kept = {stored.id for stored in saved}
        replaced = {stored.id for stored in removed if stored.id in kept}
        for stored in removed:
            self._delete_short(txn, stored)
            if stored.id not in kept:
                txn.delete("documents", stored.id.to_bytes(8, "big"))
                txn.delete("keys", key_bytes(str(stored.key)))
        for stored in saved:
            self._put_record(txn, stored)
            if stored.id not in replaced:
                txn.put("keys", key_bytes(str(stored.key)), stored.id.to_bytes(8, "big"))

    def distinct(self, keys: Keys, fingerprints: Fingerprints) -> tuple[Keys, Fingerprints]:
        last = {str(key): place for place, key in enumerate(keys)}
        if len(last) == len(keys):
            return keys, fingerprints
        return list(last), fingerprints[np.fromiter(last.values(), np.intp, len(last))]

    def sift(
        self, txn: ReadTransaction, keys: Keys, fingerprints: Fingerprints
    ) -> tuple[Marks, Marks]:
        numbers = self._index.numbers(fingerprints)
        stored = self.find_many(txn, [str(key) for key in keys])
        new = [stored[str(key)] is None for key in keys]
        changed = []
        for key, number in zip(keys, numbers, strict=True):
            old = stored[str(key)]
            changed.append(
                old is not None and (old.fingerprint != number or bool(old.digest or old.meta))
            )
        return np.array(new, np.bool_), np.array(changed, np.bool_)

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
        write = txn.append if empty else txn.put
        for name, value in self._bare_records(keys, ids, fingerprints, added):
            write("documents", name, value)
        names = map(key_bytes, map(str, keys))
        numbers = (number.to_bytes(8, "big") for number in ids.tolist())
        for name, number in sorted(zip(names, numbers, strict=True)):
            write("keys", name, number)

    def _bare_records(
        self, keys: Keys, ids: Column, fingerprints: Fingerprints, added: int
    ) -> Iterator[tuple[bytes, bytes]]:
        for start in range(0, len(ids), SLICE):
            numbers = self._index.numbers(fingerprints[start : start + SLICE])
            own = ids[start : start + SLICE].tolist()
            for place, (fingerprint, number) in enumerate(zip(numbers, own, strict=True), start):
                key = str(keys[place])
                stored = Stored(number, key, fingerprint, added, sketch=self.no_sketch)
                yield number.to_bytes(8, "big"), pack_record(self._record_of(stored))

    def each(self, txn: ReadTransaction, prefix: str = "") -> Iterator[Stored]:
        if prefix:
            yield from self._each_below(txn, prefix)
            return
        with txn.cursor("documents") as cursor:
            for number, value in cursor:
                yield to_stored(int.from_bytes(number, "big"), unpack_record(value))

    def _each_below(self, txn: ReadTransaction, prefix: str) -> Iterator[Stored]:
        """Sort the ids of the keys with a prefix first: eight bytes for each."""
        parts: list[Column] = [np.empty(0, np.uint64)]
        after: Key | None = None
        while found := self.slice_after(txn, after, prefix):
            after = found[-1].key
            parts.append(np.array([stored.id for stored in found], np.uint64))
        for number in np.sort(np.concatenate(parts)).tolist():
            stored = self.load(txn, number)
            if stored is not None:
                yield stored

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
    """Return the bytes under which a key is found; a long one is cut, and a digest is appended."""
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
