"""Documents by key and by id: what is stored of each, besides its rows in the tables."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fpdb.arrays import Column, Marks
from fpdb.errors import DamagedError
from fpdb.models import Key
from fpdb.storage import ReadTransaction, WriteTransaction
from fpdb.storage.records import Record, pack_record, require_sound, unpack_record
from fpdb.tables import Index
from fpdb.tables.bits import Fingerprints
from fpdb.tables.pages import Pages

# Documents that are read in one step.
SLICE = 1000

# Keys as they are loaded: a sequence of texts, or a column of numbers.
Keys = Sequence[str] | Column

TEXT_DIGEST_BYTES = 16


class Stored(NamedTuple):
    """A document as it is stored, or ready to be stored.

    `fingerprint` is None if the text is short; `digest` and `meta` are empty if there is none.
    `sketch` is None in a database without sketches, and empty if the document has none. The `id`
    of a document with a text key is assigned when it is written.
    """

    id: int
    key: Key
    fingerprint: int | None
    added: int
    digest: bytes = b""
    meta: bytes = b""
    characters: int = 0
    sketch: bytes | None = None

    def holds_what(self, other: "Stored") -> bool:
        """Return whether two documents with the same key differ in nothing but id and time."""
        return (
            self.fingerprint == other.fingerprint
            and self.digest == other.digest
            and self.meta == other.meta
            and self.characters == other.characters
            and self.sketch == other.sketch
        )


class Catalog(ABC):
    """What both kinds of keys share: records by id, and short texts by their digest."""

    kind: str
    names: tuple[str, ...]
    pages: tuple[Pages, ...] = ()

    def __init__(self, index: Index, *, sketched: bool = False) -> None:
        self._index = index
        self._bytes = index.plan.bits // 8
        self.sketched = sketched
        # The sketch of a document that has none.
        self.no_sketch = b"" if sketched else None

    @abstractmethod
    def check_key(self, key: Key) -> None:
        """Raise InputError if a key is of the wrong kind."""

    @abstractmethod
    def find_many(self, txn: ReadTransaction, keys: Sequence[Key]) -> dict[Key, Stored | None]:
        """Find documents by valid keys."""

    def find(self, txn: ReadTransaction, key: Key) -> Stored | None:
        """Find a document by its key."""
        self.check_key(key)
        return self.find_many(txn, [key])[key]

    @abstractmethod
    def load(self, txn: ReadTransaction, number: int) -> Stored | None:
        """Find a document by its id."""

    @abstractmethod
    def keys_of(self, txn: ReadTransaction, ids: Column) -> list[Key | None]:
        """Return the keys of documents by their ids; None for a missing one."""

    def key_and_meta(self, txn: ReadTransaction, number: int) -> tuple[Key, bytes]:
        """Return what a match shows of a document that a table names."""
        stored = self.record(txn, number)
        if stored is None:
            raise DamagedError(f"the document {number} isn't there", hint="run `fpdb check`")
        return stored.key, stored.meta

    def characters(self, txn: ReadTransaction, number: int) -> int:
        """Return the length of a document's text, 0 if it came as a fingerprint."""
        stored = self.record(txn, number)
        return stored.characters if stored else 0

    @abstractmethod
    def write(
        self, txn: WriteTransaction, saved: Sequence[Stored], removed: Sequence[Stored]
    ) -> None:
        """Write documents and remove others; what is replaced under its id is in both.

        What stays the same isn't written: each page that is written makes the file larger until
        the page in its place is free.
        """

    @abstractmethod
    def distinct(self, keys: Keys, fingerprints: Fingerprints) -> tuple[Keys, Fingerprints]:
        """Drop all but the last of equal keys, with their fingerprints."""

    @abstractmethod
    def sift(
        self, txn: ReadTransaction, keys: Keys, fingerprints: Fingerprints
    ) -> tuple[Marks, Marks]:
        """Mark the distinct keys that are new, and those stored with anything else."""

    @abstractmethod
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
        """Write new documents that are a key and a fingerprint; faster if the catalog is empty."""

    @abstractmethod
    def slice_after(
        self, txn: ReadTransaction, after: Key | None, prefix: str = ""
    ) -> list[Stored]:
        """Return the next documents in the order of their keys, none at the end."""

    @abstractmethod
    def each(self, txn: ReadTransaction, prefix: str = "") -> Iterator[Stored]:
        """Yield the documents in the order of their ids."""

    @abstractmethod
    def copy(self, txn: ReadTransaction, into: WriteTransaction) -> None:
        """Copy everything into an empty catalog of another database."""

    def _copy_records(self, txn: ReadTransaction, into: WriteTransaction) -> None:
        with txn.cursor("documents") as cursor:
            for number, value in cursor:
                require_sound(value)
                into.append("documents", number, value)
        self._copy_entries(txn, into, "short")

    def _copy_entries(self, txn: ReadTransaction, into: WriteTransaction, name: str) -> None:
        with txn.cursor(name) as cursor:
            for key, value in cursor:
                into.append(name, key, value)

    def short_ids(self, txn: ReadTransaction, digest: bytes) -> Iterator[int]:
        """Yield the ids of the short texts with a digest."""
        with txn.cursor("short") as cursor:
            found = cursor.set_range(digest)
            while found:
                key = bytes(cursor.key())
                if not key.startswith(digest):
                    return
                yield int.from_bytes(key[len(digest) :], "big")
                found = cursor.next()

    def record(self, txn: ReadTransaction, number: int) -> Stored | None:
        """Return the record of an id, if it has one."""
        if number >> 64:
            raise DamagedError("an id has more than 64 bits", hint="run `fpdb check`")
        value = txn.get("documents", number.to_bytes(8, "big"))
        return None if value is None else to_stored(number, unpack_record(value))

    def _put_record(self, txn: WriteTransaction, stored: Stored) -> None:
        number = stored.id.to_bytes(8, "big")
        txn.put("documents", number, pack_record(self._record_of(stored)))
        if stored.fingerprint is None:
            txn.put("short", stored.digest + number, b"")

    def _record_of(self, stored: Stored) -> Record:
        number = stored.fingerprint
        return Record(
            key=stored.key,
            fingerprint=b"" if number is None else number.to_bytes(self._bytes, "big"),
            added=stored.added,
            digest=stored.digest,
            meta=stored.meta,
            characters=stored.characters,
            sketch=stored.sketch,
        )

    def _delete_short(self, txn: WriteTransaction, stored: Stored) -> None:
        if stored.fingerprint is None:
            txn.delete("short", stored.digest + stored.id.to_bytes(8, "big"))


@dataclass(frozen=True, slots=True)
class View:
    """What one transaction sees of a database: its tables and its documents."""

    txn: ReadTransaction
    index: Index
    catalog: Catalog


def to_stored(number: int, record: Record) -> Stored:
    """Return the document of a record."""
    return Stored(
        id=number,
        key=record.key,
        fingerprint=int.from_bytes(record.fingerprint, "big") if record.fingerprint else None,
        added=record.added,
        digest=record.digest,
        meta=record.meta,
        characters=record.characters,
        sketch=record.sketch,
    )


def digest_of(text: str) -> bytes:
    """Return the digest by which equal texts are recognized."""
    data = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=TEXT_DIGEST_BYTES).digest()
