"""Write documents into a new database: first records and keys, then all tables in bulk.

Compacting and merging copy the entries of other databases, which are sorted already. Repairing
writes documents one by one, in any order.
"""

import heapq
import os
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from fpdb.arrays import Column, among, gathered
from fpdb.documents.catalog import Catalog, View
from fpdb.documents.layout import layout, new_database, read_files, write_files
from fpdb.errors import DamagedError
from fpdb.progress import tracked
from fpdb.storage import Environment, Ongoing, ReadTransaction, WriteTransaction
from fpdb.storage.format import (
    ID_BYTES,
    Counters,
    FilePlace,
    Header,
    Stored,
    StoredRun,
    renumbered,
    require_checksum,
)
from fpdb.tables.bits import Fingerprints, of_words
from fpdb.tables.bulk_load import BLOCK, load_tables

_BATCH = 1 << 12  # documents that are looked up and written at once

T = TypeVar("T")
# Yields fingerprints with the ids of their documents in blocks, each time that it is called with a
# transaction of the new database.
FingerprintsOf = Callable[[ReadTransaction], Iterator[tuple[Fingerprints, Column]]]


def write_documents(
    into: WriteTransaction,
    catalog: Catalog,
    documents: Iterable[Stored],
    counters: Counters,
    on_twice: Callable[[Stored], object],
) -> Counters:
    """Write documents, each under its id if that is free and below the next one, else a new one.

    Return the counters with these documents.
    """
    next_id, count, short, sketches = counters.next_id, 0, 0, 0
    found = iter(documents)
    while batch := list(islice(found, _BATCH)):
        known = catalog.find_many(into, [document.key for document in batch])
        taken: dict[int, Stored] = {}
        for document in batch:
            if known[document.key]:
                on_twice(document)
                continue
            known[document.key] = document
            number = document.id
            if isinstance(document.key, int):
                number = document.key
            elif number >= counters.next_id or number in taken or catalog.record(into, number):
                number, next_id = next_id, next_id + 1
            taken[number] = document._replace(id=number)
            short += document.fingerprint is None
            sketches += bool(document.sketch)
        catalog.write(into, list(taken.values()), [])
        count += len(taken)
    return counters._replace(
        next_id=next_id if catalog.kind == "text" else 0,
        documents=count,
        short=short,
        writes=max(counters.writes, 1),
        sketches=sketches if catalog.sketched else None,
    )


def write_tables(
    built: Environment, header: Header, counters: Counters, places: FingerprintsOf, memory: int
) -> None:
    """Write the tables, the bands and the counters of a new database, which has its documents."""
    index, catalog = layout(header)
    with built.read() as txn, built.write() as into:
        count = counters.documents - counters.short
        load_tables(into, index, lambda: places(txn), count, memory)
        catalog.load_bands(into, memory)
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
        into.extend(name, tracked(entries, f"copy {name}", "entry", total))


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
