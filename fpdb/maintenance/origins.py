"""The databases that a merge reads: their documents under new ids, without the dropped ones."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.documents import Catalog
from fpdb.documents.catalog import IntegerCatalog
from fpdb.errors import DamagedError
from fpdb.maintenance.scan import as_array
from fpdb.storage import ReadTransaction
from fpdb.storage.aside import Numbers
from fpdb.storage.columns import Column, Rows
from fpdb.storage.format import Counters, require_checksum
from fpdb.tables import Index
from fpdb.tables.bits import Fingerprints
from fpdb.tables.bulk_load import BLOCK

_ID_BYTES = 8
# Entries that are held at once, and bytes of them.
_ENTRIES = 1 << 12
_BYTES = 1 << 22


class Entries(NamedTuple):
    """Entries of a sub-database."""

    keys: list[bytes]
    values: list[bytes]


@dataclass(frozen=True, eq=False)
class Origin:
    """One snapshot of a database; `base` is added to its ids, and `dropped` has those left out."""

    path: Path
    index: Index
    catalog: Catalog
    txn: ReadTransaction
    counters: Counters
    base: int
    dropped: Numbers

    def behind(self) -> int:
        """Give the lowest new id behind all that its text keys take."""
        with self.txn.going_on(), self.txn.cursor("documents") as cursor:
            return self.base + (int.from_bytes(cursor.key()) + 1 if cursor.last() else 0)

    def entries(self, name: str, after: bytes = b"") -> Iterator[tuple[memoryview, memoryview]]:
        """Read a sub-database behind a key."""
        with self.txn.going_on(), self.txn.cursor(name) as cursor:
            there = cursor.set_range(after) if after else cursor.first()
            if there and after and bytes(cursor.key()) == after:
                there = cursor.next()
            if there:
                yield from cursor.iternext()

    def moved(self, name: str, after: bytes) -> Iterator[Entries]:
        """Read entries whose keys end with an id: under their new ids, behind one of those keys."""
        gone = self.dropped.read()
        start = b""
        if after:
            old = int.from_bytes(after[-_ID_BYTES:]) - self.base
            start = after[:-_ID_BYTES] + old.to_bytes(_ID_BYTES) if old >= 0 else b""
        for names, found in in_blocks(self.entries(name, start)):
            joined = b"".join([key[-_ID_BYTES:] for key in names])
            ids = np.frombuffer(joined, ">u8").astype(np.uint64)
            new = (ids + np.uint64(self.base)).astype(">u8").tobytes()
            ends = [new[at : at + _ID_BYTES] for at in range(0, len(new), _ID_BYTES)]
            keys = [key[:-_ID_BYTES] + end for key, end in zip(names, ends, strict=True)]
            kept = ~_among(ids, gone)
            if after and keys[0] <= after:  # of short texts, where one that is there is read again
                kept &= np.array([key > after for key in keys], np.bool_)
            values = list(compress(found, kept.tolist()))
            if name == "documents":
                self._require_sound(ids, values)
            yield Entries(list(compress(keys, kept.tolist())), values)

    def rows(self, after: int) -> Iterator[Rows]:
        """Read the ids of integer keys behind one, with the times when they were added."""
        pages = IntegerCatalog.ids
        with self.txn.going_on():
            for rows in pages.scan(self.txn, pages.key(after) if after >= 0 else None):
                start = 0 if after < 0 else int(rows[0].searchsorted(np.uint64(after), "right"))
                if start < len(rows[0]):
                    yield [column[start:] for column in rows]

    def places(self) -> Iterator[tuple[Fingerprints, Column]]:
        """Read the home table in blocks of fingerprints and new ids."""
        gone = self.dropped.read()
        with self.txn.going_on():
            held: list[Rows] = []
            size = 0
            for rows in self.index.home.scan(self.txn):
                held.append(rows)
                size += len(rows[0])
                if size >= BLOCK:
                    yield self._placed(held, gone)
                    held, size = [], 0
            if held:
                yield self._placed(held, gone)

    def sketches_dropped(self) -> int:
        """Count the sketches of the documents that are dropped."""
        found = (self.catalog.record(self.txn, number) for number in self.dropped.read().tolist())
        return sum(stored is not None and bool(stored.sketch) for stored in found)

    def _placed(self, held: list[Rows], gone: Column) -> tuple[Fingerprints, Column]:
        *words, ids = (np.concatenate(columns) for columns in zip(*held, strict=True))
        kept = ~_among(ids, gone)
        return as_array([word[kept] for word in words]), ids[kept] + np.uint64(self.base)

    def _require_sound(self, ids: Column, values: list[bytes]) -> None:
        try:
            for value in values:
                require_checksum(value)
        except DamagedError as error:
            raise DamagedError(
                f"{self.path}: between the documents {ids[0]} and {ids[-1]}: {error}",
                hint=f"run `fpdb check` on {self.path}",
            ) from None


def in_blocks(
    entries: Iterable[tuple[bytes | memoryview, bytes | memoryview]],
) -> Iterator[Entries]:
    """Copy entries in blocks of bounded size: to keep many views keeps the collector busy."""
    block, room = Entries([], []), _BYTES
    for key, value in entries:
        block.keys.append(bytes(key))
        block.values.append(bytes(value))
        room -= len(value)
        if room < 0 or len(block.keys) == _ENTRIES:
            yield block
            block, room = Entries([], []), _BYTES
    if block.keys:
        yield block


def _among(ids: Column, gone: Column) -> NDArray[np.bool_]:
    """Say which ids are among sorted ones."""
    if not len(gone):
        return np.zeros(len(ids), np.bool_)
    at = gone.searchsorted(ids)
    at[at == len(gone)] = 0
    same: NDArray[np.bool_] = gone[at] == ids
    return same
