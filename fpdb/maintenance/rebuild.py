"""Make a new database of others: copy their records and keys, then write all tables in bulk."""

import heapq
import os
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TypeVar

import numpy as np

from fpdb.arrays import Column, among, gathered
from fpdb.documents.catalog import View
from fpdb.documents.layout import layout, new_database, read_files, write_files
from fpdb.errors import DamagedError
from fpdb.progress import tracked
from fpdb.storage import Environment, Ongoing, ReadTransaction, WriteTransaction
from fpdb.storage.format import (
    ID_BYTES,
    Counters,
    FilePlace,
    Header,
    StoredRun,
    renumbered,
    require_checksum,
)
from fpdb.tables.bits import Fingerprints, of_words
from fpdb.tables.bulk_load import BLOCK, load_tables

T = TypeVar("T")
# Yields fingerprints with the ids of their documents in blocks, each time that it is called with a
# transaction of the new database.
FingerprintsOf = Callable[[ReadTransaction], Iterator[tuple[Fingerprints, Column]]]


def write_tables(
    built: Environment, header: Header, counters: Counters, places: FingerprintsOf, memory: int
) -> None:
    """Write the tables, the bands and the counters of a new database, which has its documents."""
    index, catalog = layout(header)
    with built.read() as txn, built.write() as into:
        count = counters.documents - counters.short
        load_tables(into, index, lambda: places(txn), count, memory)
        catalog.load_texts(into, memory)
        into.put("counters", b"counters", counters.pack())


@dataclass(eq=False)
class CopySource:
    """A snapshot whose documents are copied, without the `dropped` ones.

    `base` is added to their ids.
    """

    path: Path
    header: Header
    view: View
    base: int = 0
    dropped: "array[int]" = field(default_factory=lambda: array("Q"))

    def read(self, items: Iterable[T]) -> Iterator[T]:
        """Yield what is read of this database; its errors name it."""
        try:
            with Ongoing(self.view.txn):
                yield from items
        except DamagedError as error:
            raise self.damaged(str(error)) from None

    def damaged(self, what: str) -> DamagedError:
        """Return an error that names this database."""
        return DamagedError(f"{self.path}: {what}", hint=f"run `fpdb check` on {self.path}")

    def entries(self, name: str) -> Iterator[tuple[bytes, bytes | memoryview]]:
        """Yield the entries of `documents` or `short` under their new ids."""
        with self.view.txn.cursor(name) as cursor:
            for key, value in cursor:
                number = int.from_bytes(key[-ID_BYTES:])
                if name == "documents":
                    require_checksum(value, number)
                if not self.dropped and not self.base:
                    yield bytes(key), value
                    continue
                at = bisect_left(self.dropped, number)
                if at < len(self.dropped) and self.dropped[at] == number:
                    continue
                moved = number + self.base
                kept = renumbered(value, moved) if name == "documents" else bytes(value)
                yield bytes(key[:-ID_BYTES]) + moved.to_bytes(ID_BYTES), kept

    def places(self) -> Iterator[tuple[Fingerprints, Column]]:
        """Yield fingerprints with the new ids of their documents, in blocks."""
        dropped, base = np.array(self.dropped, np.uint64), np.uint64(self.base)
        home = self.read(self.view.index.home.scan(self.view.txn))
        for *words, ids in gathered(home, BLOCK):
            if not self.dropped:
                yield of_words(words), ids + base if base else ids
                continue
            kept = ~among(ids, dropped)
            yield of_words([word[kept] for word in words]), ids[kept] + base


def copy_documents(into: WriteTransaction, sources: Sequence[CopySource]) -> None:
    """Copy the records and the short texts of all sources; the keys are written already."""
    for name in ("documents", "short"):
        entries = heapq.merge(*(source.read(source.entries(name)) for source in sources))
        total = sum(source.view.txn.entries(name) for source in sources)
        into.put_many(name, tracked(entries, f"copy {name}", "entry", total), append=True)


def compact(
    source: CopySource,
    described: Header,
    path: str | os.PathLike[str],
    memory: int,
    *,
    replace: bool = False,
) -> None:
    """Copy a snapshot into a new database, which a header describes.

    It may replace the one at the path, if that is locked.
    """
    _, catalog = layout(described)
    counters, txn = source.view.counters, source.view.txn
    new = new_database(described, counters)
    with Environment.build(path, *new, replace=replace) as built:
        with built.write() as into:
            catalog.by_key.fill(into, source.read(source.view.catalog.by_key.scan(txn)))
            copy_documents(into, [source])
            write_files(into, chain(read_files(txn, FilePlace), read_files(txn, StoredRun)))
        write_tables(built, described, counters, lambda _: source.places(), memory)
