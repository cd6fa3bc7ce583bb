"""Make a new database of others: copy their records and keys, then write all tables in bulk.

Each source is one sorted stream of keys, of ids, of records, and these are read side by side.
"""

import contextlib
import heapq
import os
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fpdb.arrays import Column, among, gathered
from fpdb.documents.catalog import Catalog, View
from fpdb.documents.groups import Grouping
from fpdb.documents.layout import (
    add_runs,
    layout,
    new_database,
    read_layout,
    read_runs,
    replanned,
    write_runs,
)
from fpdb.errors import DamagedError, InputError, RecipeMismatchError
from fpdb.maintenance.check import check, require_complete_copy
from fpdb.models import PASSAGES, require_whole
from fpdb.progress import tracked
from fpdb.storage import Environment, Ongoing, ReadTransaction, WriteTransaction, open_checks
from fpdb.storage.format import (
    ID_BYTES,
    Counters,
    Header,
    renumbered,
    require_checksum,
)
from fpdb.tables.bits import Fingerprints, of_words
from fpdb.tables.bulk_load import LEAST_MEMORY, load_tables
from fpdb.tables.sorter import BLOCK

T = TypeVar("T")
# A key, the place of its source, its id; an integer key also has the remainder of its row of `ids`.
_SourceKey = tuple[Any, ...]
# Yields fingerprints with the ids of their documents in blocks, each time that it is called with a
# transaction of the new database.
FingerprintsOf = Callable[[ReadTransaction], Iterator[tuple[Fingerprints, Column]]]


def write_tables(
    built: Environment,
    header: Header,
    counters: Counters,
    places: FingerprintsOf,
    memory: int,
    *,
    grouped: bool = False,
) -> None:
    """Write the tables, the bands and the counters of a new database, which has its documents.

    Their groups are decided as well, unless they are `grouped` already.
    """
    index, catalog = layout(header)
    with built.read() as txn, built.write() as into:
        count = counters.documents - counters.short
        load_tables(into, index, lambda: places(txn), count, memory)
        catalog.load_texts(into, memory)
        into.put("counters", b"counters", counters.pack())
        if index.groups and not grouped:
            Grouping(into, View(into, index, catalog), index.groups).decide()


@dataclass(eq=False)
class CopySource:
    """A snapshot whose documents are copied, without the `dropped` ones.

    `base` is added to their ids. `newer` ones stay in place of those of earlier sources.
    """

    path: Path
    header: Header
    view: View
    base: int = 0
    dropped: "array[int]" = field(default_factory=lambda: array("Q"))
    newer: int = 0

    def read(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the parts of this database as they are read; its errors name it."""
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
                content = renumbered(value, moved) if name == "documents" else bytes(value)
                yield bytes(key[:-ID_BYTES]) + moved.to_bytes(ID_BYTES), content

    def places(self) -> Iterator[tuple[Fingerprints, Column]]:
        """Yield fingerprints with the new ids of their documents, in blocks."""
        dropped, base = np.array(self.dropped, np.uint64), np.uint64(self.base)
        home = self.read(self.view.index.home.scan(self.view.txn))
        for *words, ids in gathered(home, BLOCK):
            if not self.dropped:
                yield of_words(words), ids + base if base else ids
                continue
            marks = ~among(ids, dropped)
            yield of_words([word[marks] for word in words]), ids[marks] + base


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
    index, catalog = layout(described)
    counters, txn = source.view.counters, source.view.txn
    new = new_database(described, counters)
    with Environment.build(path, *new, replace=replace) as built:
        with built.write() as into:
            catalog.by_key.fill(into, source.read(source.view.catalog.by_key.scan(txn)))
            copy_documents(into, [source])
            write_runs(into, read_runs(txn))
            old, new_groups = source.view.index.groups, index.groups
            # With another similarity, they are others.
            grouped = bool(old and new_groups and old.similarity == new_groups.similarity)
            if old and new_groups and grouped:
                for pages, into_pages in zip(old.pages, new_groups.pages, strict=True):
                    into_pages.fill(into, source.read(pages.scan(txn)))
        write_tables(built, described, counters, lambda _: source.places(), memory, grouped=grouped)


@contextlib.contextmanager
def open_sources(
    paths: Sequence[str | os.PathLike[str]], stored: tuple[Path, Header] | None = None
) -> Iterator[list[CopySource]]:
    """Open a snapshot of each database, if one (`stored`, unless that is new) can hold them all.

    Raises:
        InputError: One of them is named twice, or is the stored one.
        RecipeMismatchError: They have different recipes, kinds of keys, similarities or k.
    """
    seen = {open_checks.identify(stored[0]): stored[0]} if stored else {}
    sources: list[CopySource] = []
    with contextlib.ExitStack() as opened:
        for path in map(open_checks.resolved, paths):
            identity = open_checks.identify(path)
            if identity in seen:
                raise InputError(
                    f"{seen[identity]} and {path} are the same database",
                    hint="name each database once",
                )
            seen[identity] = path
            environment = opened.enter_context(
                Environment.open(path, readonly=True, verify=require_complete_copy)
            )
            described, index, catalog = read_layout(environment)
            stored = stored or (path, described)
            _require_alike(*stored, path, described)
            txn = opened.enter_context(environment.read())
            sources.append(CopySource(path, described, View(txn, index, catalog)))
        yield sources


def _require_alike(path: Path, stored: Header, other_path: Path, other: Header) -> None:
    for name, one, two in (
        *(
            (name, stored.get(name), other.get(name))
            for name in ("recipe_id", "keys", "similarity")
        ),
        ("k", stored["plan"]["k"], other["plan"]["k"]),
        ("passages", PASSAGES in stored["features"], PASSAGES in other["features"]),
    ):
        if one != two:
            again = name in {"similarity", "k"} and None not in (one, two)
            raise RecipeMismatchError(
                f"{path} (recipe {stored['recipe'].get('name')}) was created with {name}={one}, "
                f"{other_path} (recipe {other['recipe'].get('name')}) with {name}={two}",
                hint=f"compact one of them with the {name} of the other"
                if again
                else "ingest the texts of one of them again, with the options of the other",
            )


def combine(
    paths: Sequence[str | os.PathLike[str]],
    path: str | os.PathLike[str],
    capacity: int | None,
    memory: int,
) -> tuple[Counters, int, int]:
    """Copy the documents of databases into a new one.

    Return its counters, how many were read, and how many of these replaced an older one.

    Of documents with the same key the newest stays, and of equally old ones that of the first
    source. Ids follow the order of the sources, and in each of them that of its own ids, unless
    the keys are the ids. The plan is the best one for all documents that were read, and for the
    largest capacity of the sources, unless there is another `capacity`.

    The new database appears at its path when it is complete, on disk, and checked deeply.
    """
    require_whole("memory", memory, LEAST_MEMORY)
    directory = open_checks.resolved(path)
    open_checks.require_vacant(directory)
    with contextlib.ExitStack() as draft:
        with open_sources(paths) as sources:
            total = sum(source.view.counters.documents for source in sources)
            if capacity is None:
                capacity = max(total, *(source.header["capacity"] for source in sources))
            groups = any(source.view.catalog.grouped for source in sources)
            described = replanned(sources[0].header, k=None, capacity=capacity, groups=groups)
            built = draft.enter_context(Environment.build(directory, *new_database(described)))
            with built.write() as into:
                counters = _write(into, layout(described)[1], sources)

            def places(_: ReadTransaction) -> Iterator[tuple[Fingerprints, Column]]:
                return chain.from_iterable(source.places() for source in sources)

            write_tables(built, described, counters, places, memory)
        # The check needs neither the snapshots, which keep other files growing, nor this handle.
        built.close()
        for problem in check(built.path, deep=True):
            raise DamagedError(
                f"the copy for {directory} is damaged: {problem.where}: {problem.what}",
                hint="run `fpdb check` on the databases that it was made of",
            )
    return counters, total, sum(source.newer for source in sources)


def _write(into: WriteTransaction, catalog: Catalog, sources: Sequence[CopySource]) -> Counters:
    next_id = 0
    if catalog.kind == "text":
        for source in sources:
            source.base = next_id
            with Ongoing(source.view.txn), source.view.txn.cursor("documents") as cursor:
                next_id += int.from_bytes(cursor.key()) + 1 if cursor.last() else 0
    read = [_keys(place, source) for place, source in enumerate(sources)]
    total = sum(source.view.counters.documents for source in sources)
    newest = _newest(sources, tracked(heapq.merge(*read), "merge the keys", "key", total))
    moved = ((key, number + sources[place].base, *row) for key, place, number, *row in newest)
    # All keys are read here, so then it is known which documents are dropped.
    catalog.fill_keys(into, moved)
    for source in sources:
        np.frombuffer(source.dropped, np.uint64).sort()
    copy_documents(into, sources)
    documents = total - sum(len(source.dropped) for source in sources)
    sketches = sum(map(_sketches, sources)) if catalog.sketched else None
    add_runs(into, (run for s in sources for run in s.read(read_runs(s.view.txn))))
    return Counters(next_id, documents, into.entries("short"), 1, sketches)


def _keys(place: int, source: CopySource) -> Iterator[_SourceKey]:
    """Yield the keys of a source in order, with its place."""
    entries = source.view.catalog.key_entries(source.view.txn)
    return ((key, place, *row) for key, *row in source.read(entries))


def _newest(sources: Sequence[CopySource], keys: Iterable[_SourceKey]) -> Iterator[_SourceKey]:
    """Yield each key once, with the document that stays; note the others as dropped."""
    for _, group in groupby(keys, key=itemgetter(0)):
        newest, *rivals = group
        latest = _added(sources[newest[1]], *newest[2:]) if rivals else 0
        for rival in rivals:
            source, dropped = sources[rival[1]], rival
            if (added := _added(source, *rival[2:])) > latest:  # else the first one stays
                newest, latest, dropped = rival, added, newest
                source.newer += 1
            sources[dropped[1]].dropped.append(dropped[2])
        yield newest


def _added(source: CopySource, number: int, *row: int) -> int:
    if row:  # of an integer key
        return row[-1]
    [stored] = source.read(map(source.view.catalog.named, [source.view.txn], [number]))
    return stored.added


def _sketches(source: CopySource) -> int:
    """Count the sketches of the documents that aren't dropped."""
    catalog, txn = source.view.catalog, source.view.txn
    dropped = (catalog.record(txn, number) for number in source.dropped)
    without = sum(stored is not None and bool(stored.sketch) for stored in dropped)
    return (source.view.counters.sketches or 0) - without
