"""Documents by key and by id: the record of each, besides its rows in the tables.

A document with a text key has a record, and `keys` leads from the key to its id. An integer key is
the id itself: sorted pages of `ids` have the id, the highest 24 bits of the fingerprint and the
time of adding, and a document that is more than that and a fingerprint has a record as well.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Column, Marks, Places, Rows, Strings, gathered
from fpdb.errors import DamagedError, InputError
from fpdb.models import CARRIED, DIGEST_BYTES, GROUPS, KEEPER, LATEST, MINHASH, PASSAGES, Key
from fpdb.progress import tracked
from fpdb.storage import ReadTransaction, WriteTransaction
from fpdb.storage.block import Block, Packed, TextColumns, entries_of
from fpdb.storage.format import (
    ID_BYTES,
    LARGEST_KEY,
    Counters,
    Marked,
    Stored,
    intact_heads,
    intact_keys,
    marks_in,
    pack_record,
    require_all_intact,
    unpack_record,
)
from fpdb.storage.text_pages import LONGEST_TEXT, TextEntry
from fpdb.tables import Index
from fpdb.tables.bands import Sketched
from fpdb.tables.bits import Fingerprints, as_words, of_words
from fpdb.tables.index import HIGH_BITS
from fpdb.tables.levels import Levels, NumberLevels, TextLevels
from fpdb.tables.sorted_pages import out_of_order
from fpdb.tables.sorter import Sorter

KEYS = "keys"
key_pages = TextLevels(KEYS)
_DIGEST_BYTES = 32
# Bytes of a long key before its digest.
HEAD_BYTES = LONGEST_TEXT - _DIGEST_BYTES

# Documents that are read in one step.
SLICE = 1000

# Keys as they are loaded: uint64[n], or texts as object[n]; and with their fingerprints.
Keys = NDArray[Any]
KeyedRows = tuple[Keys, Fingerprints]
NumberedRows = tuple[Keys, Column, Fingerprints]  # with the ids of the documents between them

# Records whose sketches are read at once.
_BLOCK = 1 << 14
# Bytes of a text key while it is loaded: as a string, as bytes, and in a record.
_TEXT_ROW_BYTES = 1 << 10


def key_bytes(key: str) -> bytes:
    """Return the bytes under which a key is found; a long one is cut, and a digest is appended."""
    try:
        data = key.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"the key {key!r} holds half a surrogate pair", hint="keys are valid Unicode"
        ) from None
    if len(data) < LONGEST_TEXT:
        return data
    if len(data) > LARGEST_KEY:
        raise InputError(
            f"found a key of {len(data):,} bytes, expected at most {LARGEST_KEY:,}",
            hint="use a digest of it as the key, and keep it in the metadata",
        )
    digest = hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
    return data[:HEAD_BYTES] + digest


def find_key(txn: ReadTransaction, text: bytes) -> int | None:
    """Return the id that the bytes of a key lead to."""
    return key_pages.find(txn, [text])[0]


def numbers_of(txn: ReadTransaction, texts: Iterable[bytes]) -> dict[bytes, int]:
    """Return the ids by the bytes of keys; keys of no document are left out."""
    wanted = sorted(texts)
    ids = zip(wanted, key_pages.find(txn, wanted), strict=True)
    return {text: number for text, number in ids if number is not None}


class Catalog(ABC):
    """The part that both kinds of keys share: records by id, and short texts by their digest."""

    kind: str
    by_key: Levels[Any]  # which have the keys

    def __init__(self, index: Index) -> None:
        self._index = index
        self._bits = index.plan.bits
        self.sketched = index.bands is not None
        self.passaged = index.passages is not None
        self.grouped = index.groups is not None
        features = {"": True, MINHASH: self.sketched, PASSAGES: self.passaged, GROUPS: self.grouped}
        # The names of the fields that documents may have here, and those that no record has.
        self.carried = [field.name for field in CARRIED if features[field.feature]]
        self.uncarried = [f.name for f in (*CARRIED, KEEPER) if not features[f.feature]]

    @property
    def names(self) -> list[str]:
        """The names of the sub-databases."""
        return ["documents", *self.by_key.names, "short"]

    @abstractmethod
    def check_key(self, key: Key) -> None:
        """Raise InputError if a key is of the wrong kind."""

    @abstractmethod
    def names_of(self, keys: Iterable[Key]) -> list[bytes]:
        """Return the names under which keys are found; numbers have none."""

    @abstractmethod
    def _records(self, documents: Block) -> Strings:
        """Return the records of documents without checksums; one that has none is empty."""

    @abstractmethod
    def find_many(
        self, txn: ReadTransaction, keys: Sequence[Key], names: Sequence[bytes] = ()
    ) -> dict[Key, Stored | None]:
        """Find documents by valid keys, and the names of these, if they are made."""

    def find(self, txn: ReadTransaction, key: Key) -> Stored | None:
        self.check_key(key)
        return self.find_many(txn, [key])[key]

    def keys_of(self, txn: ReadTransaction, ids: Column) -> list[Key | None]:
        """Return the keys of documents by their ids; None for a missing one."""
        with txn.cursor("documents") as cursor:
            keys = intact_keys(cursor, ids, txn.page_size, self._bits)
        if keys is not None:
            return list(keys)
        records = (self.record(txn, number) for number in ids.tolist())
        return [None if stored is None else stored.key for stored in records]

    def write(self, txn: WriteTransaction, saved: Block, removed: Block | None = None) -> None:
        """Write documents and remove others; a document that is replaced under its id is in both.

        An equal entry isn't written: each page that is written makes the file larger until
        the page in its place is free.
        """
        self._write_keys(txn, saved, removed)
        if removed:
            for key in short_keys(removed):
                txn.delete("short", key)
            gone, stay = (block.ids[self._recorded(block)] for block in (removed, saved))
            for number in np.setdiff1d(gone, stay).tolist():
                txn.delete("documents", number.to_bytes(ID_BYTES))
        self.put_records(txn, saved)

    @abstractmethod
    def _write_keys(self, txn: WriteTransaction, saved: Block, removed: Block | None) -> None: ...

    def _recorded(self, documents: Block) -> Marks:
        """Mark the documents that have a record."""
        return np.ones(len(documents), np.bool_)

    def pack(self, documents: Block) -> Packed:
        """Return the names, records and numbers of documents, unless they are packed already."""
        if documents.packed:
            return documents.packed
        names, records = self.names_of(documents.keys), self._records(documents)
        return Packed(names, records, self._index.numbers(documents))

    def packed(self, documents: Block) -> Block:
        """Return documents with their names, records and numbers."""
        return documents if documents.packed else replace(documents, packed=self.pack(documents))

    @abstractmethod
    def following(self, txn: ReadTransaction) -> int | None:
        """Return the number after the highest key; None if keys aren't numbers."""

    @abstractmethod
    def in_turn(self, rows: Iterable[KeyedRows], folder: Path, memory: int) -> Iterator[KeyedRows]:
        """Yield keys with fingerprints in the turn in which they are stored.

        In a block no key comes twice, and keys that are numbers come but once, sorted.
        """

    @abstractmethod
    def ids_of(self, txn: ReadTransaction, keys: Keys) -> tuple[Marks, Column]:
        """Mark the keys that are stored, and return their ids; keys that are numbers are sorted."""

    @abstractmethod
    def fill(
        self, txn: WriteTransaction, rows: Iterable[NumberedRows], added: int | Column, count: int
    ) -> None:
        """Write new documents, N at most, that are a key and a fingerprint, as they come."""

    @abstractmethod
    def slice_after(self, txn: ReadTransaction, after: Key | None, prefix: str) -> list[Stored]:
        """Return the next documents in the order of their keys, none at the end."""

    def documents(self, txn: ReadTransaction) -> Iterator[Stored]:
        """Yield the documents in the order of their ids."""
        return self.records(txn)

    def records(self, txn: ReadTransaction, first: int = 0) -> Iterator[Stored]:
        """Yield the documents that have a record, from an id on in the order of their ids."""
        with txn.cursor("documents") as cursor:
            last = -1
            for key, value in cursor if cursor.set_range(first.to_bytes(ID_BYTES)) else ():
                number = int.from_bytes(key)
                if number <= last:
                    raise out_of_order("documents")
                last = number
                yield unpack_record(value, number, self._bits)

    def load_texts(self, txn: WriteTransaction, memory: int) -> None:
        """Write the tables of numbers of texts; the records are written already."""
        if bands := self._index.bands:
            bands.load(txn, lambda: self._sketches(txn), txn.entries("documents"), memory)
        if passages := self._index.passages:
            passages.load(txn, lambda: self._slices(txn), memory)

    def _slices(self, txn: ReadTransaction) -> Iterator[list[Stored]]:
        records = self.records(txn)
        return iter(lambda: list(islice(records, SLICE)), [])

    def _sketches(self, txn: ReadTransaction) -> Iterator[Sketched]:
        """Yield the columns for the bands from all records, which this transaction has written."""
        for ids, marks, _ in self._blocks(txn, "read the sketches"):
            digests = np.ascontiguousarray(marks[:, :DIGEST_BYTES]).view(np.uint64)
            yield ids, marks[:, DIGEST_BYTES:], digests

    def fingerprints(self, txn: ReadTransaction) -> Iterator[tuple[Fingerprints, Column]]:
        """Yield the fingerprints of all records with their ids, in blocks."""
        for ids, _, fingerprints in self._blocks(txn, "read the fingerprints"):
            yield fingerprints, ids

    def _blocks(self, txn: ReadTransaction, step: str) -> Iterator[Marked]:
        with txn.cursor("documents") as cursor:
            entries = iter(cursor)
            blocks = range(0, txn.entries("documents"), _BLOCK)
            for _ in tracked(blocks, step, "block", len(blocks)):
                part = list(islice(entries, _BLOCK))
                ids = np.frombuffer(b"".join([key for key, _ in part]), ">u8").astype(np.uint64)
                yield marks_in(ids, [value for _, value in part], self._bits)

    @abstractmethod
    def key_entries(self, txn: ReadTransaction) -> Iterator[tuple[Any, ...]]:
        """Yield each key in order, with its id; an integer key with its row of `ids`."""

    def fill_keys(self, txn: WriteTransaction, entries: Iterable[tuple[Any, ...]]) -> None:
        """Write keys, as `key_entries` yields them, after all that are stored."""
        left = iter(entries)
        blocks = iter(lambda: list(islice(left, _BLOCK)), [])
        self.by_key.fill(txn, map(self._key_rows, blocks))

    @abstractmethod
    def _key_rows(self, entries: list[Any]) -> Any: ...

    def short_ids(self, txn: ReadTransaction, digest: bytes) -> Iterator[int]:
        """Yield the ids of the short texts with a digest; zeros are of texts that equal none."""
        if not any(digest):
            return
        with txn.cursor("short") as cursor:
            there = cursor.set_range(digest)
            while there:
                key = bytes(cursor.key())
                if not key.startswith(digest):
                    return
                yield int.from_bytes(key[len(digest) :], "big")
                there = cursor.next()

    def record(self, txn: ReadTransaction, number: int) -> Stored | None:
        """Return the record of an id, if it has one."""
        if number >> 64:
            raise DamagedError("an id has more than 64 bits")
        value = txn.get("documents", number.to_bytes(8, "big"))
        return None if value is None else unpack_record(value, number, self._bits)

    def texts(self, txn: ReadTransaction, ids: Column) -> TextColumns:
        """Return the columns by which texts are compared, given ids of documents, best sorted."""
        with txn.cursor("documents") as cursor:
            heads = intact_heads(cursor, ids, txn.page_size, self._bits)
        printed, marks, fingerprints = marks_in(ids, heads or self._values(txn, ids), self._bits)
        if len(printed) < len(ids):
            raise DamagedError("a short text is in the bands")
        digests = np.ascontiguousarray(marks[:, :DIGEST_BYTES]).view(np.uint64)
        sketches = np.ascontiguousarray(marks[:, DIGEST_BYTES:])
        return TextColumns(fingerprints, digests, sketches, np.zeros(len(ids), np.bool_))

    def _values(self, txn: ReadTransaction, ids: Column) -> list[memoryview]:
        """Return intact records by their ids, or raise DamagedError."""
        packed = ids.astype(">u8").tobytes()
        keys = [packed[at : at + ID_BYTES] for at in range(0, len(packed), ID_BYTES)]
        read = [txn.get("documents", key) for key in keys]
        values = [value for value in read if value is not None]
        if len(values) < len(read):
            raise DamagedError(f"the document {ids[read.index(None)]} isn't there")
        require_all_intact(values, ids.tolist())
        return values

    def recorded(self, _: ReadTransaction, ids: Column) -> Column:
        """Return the ids of those documents that have a record."""
        return ids

    def named(self, txn: ReadTransaction, number: int) -> Stored:
        """Return the record of a document that is stored; of an integer key without one, the key.

        A text key without a record is a DamagedError.
        """
        stored = self.record(txn, number)
        if stored is None:
            raise DamagedError(f"the document {number} isn't there")
        return stored

    def put_records(self, txn: WriteTransaction, documents: Block) -> None:
        """Write records under their ids, and short texts under their digests as well."""
        records, ids = self.pack(documents).records, documents.ids
        if not records.sizes.all():  # some integer keys have none
            [places] = records.sizes.nonzero()
            records, ids = records.chosen(places), ids[places]
        self._append(txn, records, ids)
        for key in short_keys(documents):
            txn.put("short", key, b"")

    def _append(self, txn: WriteTransaction, records: Strings, ids: Column) -> None:
        """Write records under their ids, those after all others together.

        Appended records leave less room on the pages: a sixteenth of all that they take.
        """
        with txn.cursor("documents") as cursor:
            last = bytes(cursor.key()) if cursor.last() else b""
        fresh: list[tuple[bytes, bytes]] = []
        older: list[tuple[bytes, bytes]] = []
        for entry in entries_of(records, ids):
            if entry[0] > last:
                fresh.append(entry)
                last = entry[0]
            else:
                older.append(entry)
        txn.put_many("documents", fresh, append=True)
        if older:
            txn.put_many("documents", older)


def short_keys(documents: Block) -> list[bytes]:
    """Return the keys of short texts: their digests, and the ids of the documents."""
    if not documents.short.any():
        return []
    [short] = documents.short.nonzero()
    keys = zip(documents.digests[short], documents.ids[short].tolist(), strict=True)
    return [digest.tobytes() + number.to_bytes(ID_BYTES) for digest, number in keys]


class TextCatalog(Catalog):
    """Documents whose keys are texts, such as URLs."""

    kind = "text"
    by_key = key_pages

    def check_key(self, key: Key) -> None:
        if not isinstance(key, str) or not key:
            hint = "give each document a name of its own, such as its address"
            if isinstance(key, bytes):
                hint = "decode it: key.decode()"
            elif isinstance(key, int):
                hint = "a database with integer keys is created with keys='integer'"
            raise InputError(f"found the key {key!r}, expected a text that isn't empty", hint=hint)
        key_bytes(key)

    def find_many(
        self, txn: ReadTransaction, keys: Sequence[Key], names: Sequence[bytes] = ()
    ) -> dict[Key, Stored | None]:
        documents: dict[Key, Stored | None] = dict.fromkeys(keys)
        names = names or self.names_of(keys)
        ids = numbers_of(txn, names)
        if not ids:
            return documents
        for key, name in zip(keys, names, strict=True):
            if (number := ids.get(name)) is None:
                continue
            documents[key] = stored = self.named(txn, number)
            if stored.key != key:
                raise _misled(key, stored.key)
        return documents

    def names_of(self, keys: Iterable[Key]) -> list[bytes]:
        return list(map(key_bytes, map(str, keys)))

    def _records(self, documents: Block) -> Strings:
        return documents.pack(self._bits)

    def _entries(self, documents: Block) -> list[TextEntry]:
        packed = documents.packed
        names = packed.names if packed else self.names_of(documents.keys)
        return sorted(zip(names, documents.ids.tolist(), strict=True))

    def _write_keys(self, txn: WriteTransaction, saved: Block, removed: Block | None) -> None:
        new, gone = self._entries(saved), list[TextEntry]()
        if removed:  # a replaced document keeps its key and id
            gone = self._entries(removed)
            new, gone = sorted(set(new).difference(gone)), sorted(set(gone).difference(new))
        key_pages.splice(txn, new, gone)

    def following(self, txn: ReadTransaction) -> int | None:
        return None

    def in_turn(self, rows: Iterable[KeyedRows], folder: Path, memory: int) -> Iterator[KeyedRows]:
        for keys, fingerprints in gathered(rows, max(memory // _TEXT_ROW_BYTES, SLICE)):
            last = dict(zip(keys.tolist(), range(len(keys)), strict=True))
            places = np.fromiter(last.values(), np.intp, len(last))
            yield keys[places], fingerprints[places]

    def ids_of(self, txn: ReadTransaction, keys: Keys) -> tuple[Marks, Column]:
        names = self.names_of(keys.tolist())
        ids = numbers_of(txn, names)
        marks = np.fromiter((name in ids for name in names), np.bool_, len(names))
        return marks, np.fromiter((ids[name] for name in compress(names, marks)), np.uint64)

    def fill(
        self, txn: WriteTransaction, rows: Iterable[NumberedRows], added: int | Column, count: int
    ) -> None:
        for keys, ids, fingerprints in rows:
            for start in range(0, len(ids), _BLOCK):
                part = slice(start, start + _BLOCK)
                documents = replace(Block.bare(keys[part].tolist(), self._bits), ids=ids[part])
                documents.fingerprints[:] = fingerprints[part]
                documents.added[:] = added
                self._append(txn, documents.pack(self._bits), documents.ids)
            named = sorted(zip(self.names_of(keys.tolist()), ids.tolist(), strict=True))
            key_pages.insert(txn, [named])

    def slice_after(self, txn: ReadTransaction, after: Key | None, prefix: str) -> list[Stored]:
        start = prefix.encode("utf-8", "surrogatepass")[:HEAD_BYTES]
        last = key_bytes(str(after)) if after is not None else b""
        documents: list[Stored] = []
        for entries in key_pages.scan(txn, max(start, last)):
            for text, number in entries:
                if text <= last or text < start:
                    continue
                if len(documents) == SLICE or not text.startswith(start):
                    return documents
                stored = self.named(txn, number)
                if key_bytes(str(stored.key)) != text:
                    raise _misled(text.decode(errors="replace"), stored.key)
                if str(stored.key).startswith(prefix):
                    documents.append(stored)
        return documents

    def key_entries(self, txn: ReadTransaction) -> Iterator[TextEntry]:
        return chain.from_iterable(key_pages.scan(txn))

    def _key_rows(self, entries: list[Any]) -> list[TextEntry]:
        return entries


class IntegerCatalog(Catalog):
    """Documents whose keys are numbers, which are their ids as well."""

    kind = "integer"
    by_key = ids = NumberLevels("ids", keys=1, columns=3)

    def check_key(self, key: Key) -> None:
        if isinstance(key, bool) or not isinstance(key, int) or not 0 <= key < 1 << 64:
            hint = "a database with text keys is created with keys='text'"
            if type(key) is int:
                hint = "it is out of range: number the documents from 0"
            elif isinstance(key, SupportsIndex):
                hint = "convert it: int(key)"
            raise InputError(
                f"found the key {key!r:.80}, expected a whole number from 0 to 2**64 - 1", hint=hint
            )

    def find_many(
        self, txn: ReadTransaction, keys: Sequence[Key], _: Sequence[bytes] = ()
    ) -> dict[Key, Stored | None]:
        documents: dict[Key, Stored | None] = dict.fromkeys(keys)
        wanted = np.array(sorted(map(int, documents)), np.uint64)
        stored = self._of_rows(txn, self.ids.find(txn, [wanted]))
        documents.update((document.id, document) for document in stored)
        return documents

    def keys_of(self, txn: ReadTransaction, ids: Column) -> list[Key | None]:
        order = np.argsort(ids)
        there = np.empty(len(ids), np.bool_)
        there[order] = self.ids.holds(txn, [ids[order]])
        return [number if here else None for number, here in zip(ids.tolist(), there, strict=True)]

    def recorded(self, txn: ReadTransaction, ids: Column) -> Column:
        keys = (number.to_bytes(ID_BYTES) for number in ids.tolist())
        return ids[[txn.get("documents", key) is not None for key in keys]]

    def named(self, txn: ReadTransaction, number: int) -> Stored:
        return self.record(txn, number) or Stored(number, number, None, 0)

    def _of_rows(self, txn: ReadTransaction, rows: Rows) -> Iterator[Stored]:
        """Yield the documents of rows: by their records, or from the tables."""
        for number, high, added in zip(*(column.tolist() for column in rows), strict=True):
            if record := self.record(txn, number):
                yield record
                continue
            if high >> HIGH_BITS or added > LATEST:
                raise DamagedError("a page can't be read: it is one of another table")
            fingerprint = self._index.locate(txn, high, number)
            if fingerprint is None:
                raise DamagedError(f"the document {number} is in no table")
            yield Stored(number, number, fingerprint, added)

    def _write_keys(self, txn: WriteTransaction, saved: Block, removed: Block | None) -> None:
        saved = saved[np.argsort(saved.ids)]
        rows = self._rows(saved.ids, saved.fingerprints, saved.added)
        rows[1][saved.short] = 0
        gone = np.setdiff1d(removed.ids, saved.ids) if removed else saved.ids[:0]
        self.ids.splice(txn, rows, [gone, gone, gone])

    def _recorded(self, documents: Block) -> Marks:
        marks = documents.short | documents.digested | documents.sketched
        marks |= documents.characters != 0
        for values in (documents.metas, *documents.further.values()):
            marks |= np.fromiter(map(bool, values), np.bool_, len(marks))
        return marks

    def names_of(self, _: Iterable[Key]) -> list[bytes]:
        return []

    def _records(self, documents: Block) -> Strings:
        marks = self._recorded(documents).tolist()
        records = [
            pack_record(documents.row(place), self._bits) if mark else b""
            for place, mark in enumerate(marks)
        ]
        return Strings.of(records)

    def _rows(self, ids: Column, fingerprints: Fingerprints, added: int | Column | Places) -> Rows:
        words = fingerprints if fingerprints.ndim == 1 else fingerprints[:, 0]
        times = np.broadcast_to(np.asarray(added, np.uint64), len(ids))
        below = np.uint64(min(self._bits, 64) - HIGH_BITS)
        return [ids, words >> below, np.ascontiguousarray(times)]

    def following(self, txn: ReadTransaction) -> int | None:
        following = [0]
        for pages in self.ids.levels(txn):
            with txn.cursor(pages.name) as cursor:
                if cursor.last():
                    following.append(int(pages.rows_at(cursor)[0][-1]) + 1)
        return max(following)

    def in_turn(self, rows: Iterable[KeyedRows], folder: Path, memory: int) -> Iterator[KeyedRows]:
        columns = 3 if self._bits == 128 else 2
        with Sorter(folder, columns, 1, memory) as sorter:
            for keys, fingerprints in rows:
                sorter.add([keys, *as_words(fingerprints)])
            for keys, *words in sorter.rows():
                yield keys, of_words(words)

    def ids_of(self, txn: ReadTransaction, keys: Keys) -> tuple[Marks, Column]:
        marks = self.ids.holds(txn, [keys])
        return marks, keys[marks]

    def fill(
        self, txn: WriteTransaction, rows: Iterable[NumberedRows], added: int | Column, count: int
    ) -> None:
        blocks = (self._rows(ids, fingerprints, added) for _, ids, fingerprints in rows)
        self.ids.merge(txn, blocks, count)

    def documents(self, txn: ReadTransaction) -> Iterator[Stored]:
        return chain.from_iterable(self._of_rows(txn, rows) for rows in self.ids.scan(txn))

    def slice_after(self, txn: ReadTransaction, after: Key | None, prefix: str) -> list[Stored]:
        if prefix:
            raise InputError("found a prefix for integer keys", hint="only text keys have prefixes")
        start = 0 if after is None else int(after) + 1
        documents: list[Stored] = []
        if start == 1 << 64:  # there is no key after the last one
            return documents
        for rows in self.ids.scan(txn, self.ids.key(start)):
            at = int(rows[0].searchsorted(np.uint64(start)))
            documents += self._of_rows(txn, [column[at:] for column in rows])
            if len(documents) >= SLICE:
                break
        return documents

    def key_entries(self, txn: ReadTransaction) -> Iterator[tuple[int, ...]]:
        for rows in self.ids.scan(txn):
            numbers, high, added = (column.tolist() for column in rows)
            yield from zip(numbers, numbers, high, added, strict=True)

    def _key_rows(self, entries: list[Any]) -> Rows:
        return list(np.ascontiguousarray(np.array(entries, np.uint64)[:, 1:].T))


@dataclass(slots=True, eq=False)  # frozen ones take twice as long to make, one for each query
class View:
    """The tables and documents of a database, as one transaction sees them."""

    txn: ReadTransaction
    index: Index
    catalog: Catalog

    @property
    def counters(self) -> Counters:
        return Counters.unpack(self.txn.get("counters", b"counters"))


def _misled(wanted: Key, stored: Key) -> DamagedError:
    return DamagedError(f"the key {wanted!r} leads to the document with the key {stored!r}")
