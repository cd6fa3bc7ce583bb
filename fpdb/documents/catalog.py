"""Documents by key and by id: what is stored of each beside its places in the tables."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.errors import DamagedError
from fpdb.models import Key
from fpdb.storage import ReadTransaction, WriteTransaction
from fpdb.storage.columns import Column
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
    """A document as the catalog knows it; `fingerprint` is None if the text is short."""

    id: int
    key: Key
    fingerprint: int | None
    added: int
    digest: bytes = b""
    meta: bytes = b""
    characters: int = 0
    sketch: bytes | None = None


class Columns(NamedTuple):
    """Documents in the order of their ids, which is that of their keys.

    `placed` says which have a fingerprint; that of the others is 0. `stored` has all of them, or
    none if there is nothing more to keep of any.
    """

    ids: Column
    fingerprints: Fingerprints
    placed: NDArray[np.bool_]
    added: Column
    stored: Sequence[Stored]


class Catalog(ABC):
    """What both kinds of keys share: records by id, and short texts by their digest."""

    kind: str
    names: tuple[str, ...]
    pages: tuple[Pages, ...] = ()

    def __init__(self, index: Index, *, sketched: bool = False) -> None:
        self._index = index
        self._bytes = index.plan.bits // 8
        self.sketched = sketched
        # What stands in the place of the sketch of a document that has none.
        self.no_sketch = b"" if sketched else None

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

    @abstractmethod
    def keys_of(self, txn: ReadTransaction, ids: Column) -> list[Key | None]:
        """Give the keys of documents by their ids; None for one that isn't there."""

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
    def replace(self, txn: WriteTransaction, old: Sequence[Stored], new: Sequence[Stored]) -> None:
        """Write documents in the place of others with the same keys and ids.

        What is the same of both isn't written: each page that is written makes the file larger
        until the page in its place is free.
        """

    @abstractmethod
    def distinct(self, keys: Keys, fingerprints: Fingerprints) -> tuple[Keys, Fingerprints]:
        """Leave out all but the last of equal keys, with their fingerprints."""

    @abstractmethod
    def sift(
        self, txn: ReadTransaction, keys: Keys, fingerprints: Fingerprints
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Say which distinct keys are new, and which have another fingerprint or more than that."""

    @abstractmethod
    def new_ids(self, keys: Keys, next_id: int) -> Column:
        """Give new keys their ids."""

    @abstractmethod
    def save_bare(
        self, txn: WriteTransaction, keys: Keys, ids: Column, fingerprints: Fingerprints, added: int
    ) -> None:
        """Write new documents that are nothing but a key and a fingerprint."""

    @abstractmethod
    def fill(
        self, txn: WriteTransaction, keys: Keys, ids: Column, fingerprints: Fingerprints, added: int
    ) -> None:
        """Do the same in an empty catalog, faster."""

    @abstractmethod
    def extend(self, txn: WriteTransaction, blocks: Iterable[Columns]) -> None:
        """Write documents into an empty catalog that come in the order of their keys."""

    @abstractmethod
    def slice_after(
        self, txn: ReadTransaction, after: Key | None, prefix: str = ""
    ) -> list[Stored]:
        """Give the next documents in the order of their keys, none at the end."""

    @abstractmethod
    def each(self, txn: ReadTransaction, prefix: str = "") -> Iterator[Stored]:
        """Give the documents in the order of their ids."""

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
        self._write_record(txn, stored, txn.put)

    def _append_record(self, txn: WriteTransaction, stored: Stored) -> None:
        self._write_record(txn, stored, txn.append)

    def _write_record(
        self, txn: WriteTransaction, stored: Stored, write: Callable[[str, bytes, bytes], None]
    ) -> None:
        number = stored.id.to_bytes(8, "big")
        number_of = stored.fingerprint
        fingerprint = b"" if number_of is None else number_of.to_bytes(self._bytes, "big")
        record = Record(stored.key, fingerprint, *stored[3:])
        write("documents", number, pack_record(record))
        if number_of is None:
            txn.put("short", stored.digest + number, b"")

    def _delete_record(self, txn: WriteTransaction, stored: Stored) -> None:
        txn.delete("documents", stored.id.to_bytes(8, "big"))
        self._delete_short(txn, stored)

    def _delete_short(self, txn: WriteTransaction, stored: Stored) -> None:
        if stored.fingerprint is None:
            txn.delete("short", stored.digest + stored.id.to_bytes(8, "big"))

    def record(self, txn: ReadTransaction, number: int) -> Stored | None:
        """Give the record of an id, if it has one."""
        if number >> 64:
            raise DamagedError("an id has more than 64 bits", hint="run `fpdb check`")
        value = txn.get("documents", number.to_bytes(8, "big"))
        return None if value is None else to_stored(number, unpack_record(value))


@dataclass(frozen=True, slots=True)
class View:
    """What one transaction sees of a database: its tables and its documents."""

    txn: ReadTransaction
    index: Index
    catalog: Catalog


def to_stored(number: int, record: Record) -> Stored:
    """Give the document of a record."""
    fingerprint = int.from_bytes(record.fingerprint, "big") if record.fingerprint else None
    return Stored(number, record.key, fingerprint, *record[2:])


def digest_of(text: str) -> bytes:
    """Give the digest by which equal texts are known."""
    data = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=TEXT_DIGEST_BYTES).digest()
