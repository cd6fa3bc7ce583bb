"""Merge databases into a new one, which is built beside its path, checked, and moved there.

Each source is one sorted stream of keys, of ids, of records; a merge reads the streams side by
side, and the tables are loaded in bulk. A merge that is cut short leaves nothing to go on with.
"""

import contextlib
import heapq
import os
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from fpdb.arrays import Column, Rows, among, gathered
from fpdb.documents.catalog import IntegerCatalog, View
from fpdb.documents.keys import fill_keys, scan_keys
from fpdb.documents.layout import (
    layout,
    new_database,
    read_layout,
    read_runs,
    replanned,
    write_runs,
)
from fpdb.errors import DamagedError, InputError, RecipeMismatchError
from fpdb.maintenance.check import check, require_complete_copy
from fpdb.models import Merged, MergedSource, require_choice, require_whole
from fpdb.progress import tracked
from fpdb.storage import Environment, Ongoing, WriteTransaction, open_checks
from fpdb.storage.format import ID_BYTES, Counters, Header, Stored, renumbered, require_checksum
from fpdb.tables.bits import Fingerprints, of_words
from fpdb.tables.bulk_load import BLOCK, LEAST_MEMORY, MEMORY, load_tables

RULES = ("newest", "first")
ROWS = 1 << 16  # of `ids`, that are written at once

T = TypeVar("T")
# A key, the place of its source, its id; an integer key also has the rest of its row of `ids`.
_SourceKey = tuple[Any, int, int, int, int]


def merge(
    sources: Iterable[str | os.PathLike[str]],
    path: str | os.PathLike[str],
    *,
    on_conflict: Literal["newest", "first"] = "newest",
    capacity: int | None = None,
    memory: int = MEMORY,
) -> Merged:
    """Write the documents of several databases, which have the same recipe, into a new one.

    Of documents with the same key, the `newest` stays, which is the one that was added last, and of
    equally old ones that of the first source; or that of the `first` source. Integer keys stay the
    ids; otherwise the ids follow the order of the sources, and in each of them that of its own ids.

    The tables are those of the sources if these are the same and the capacity suffices; otherwise
    those of the best plan for the number of documents. Sorting takes about `memory` bytes.

    Each source is read in one snapshot. The new database appears at its path when it is complete,
    on disk, and checked deeply. If the merge fails or is killed, nothing appears.

    Raises:
        InputError: The sources have other kinds of keys, another similarity or another k.
        DamagedError: A source is damaged.
    """
    require_whole("memory", memory, LEAST_MEMORY)
    require_choice("on_conflict", on_conflict, RULES)
    directory = open_checks.resolved(path)
    open_checks.require_vacant(directory)
    with contextlib.ExitStack() as draft:
        with contextlib.ExitStack() as held:
            opened = [_open(source, held) for source in _distinct(sources)]
            _require_alike(opened)
            described = _header(opened, capacity)
            built = draft.enter_context(Environment.build(directory, *new_database(described)))
            with built.write() as into:
                taken = _Merge(opened, into, described, on_conflict).write(memory)
        # The check needs neither the snapshots, which keep other files growing, nor this handle.
        built.close()
        for problem in check(built.path, deep=True):
            raise DamagedError(
                f"what was merged for {directory} is damaged: {problem.where}: {problem.what}",
                hint="run `fpdb check` on the databases that it was made of",
            )
    return Merged(directory, sum(source.documents for source in taken), taken)


@dataclass(eq=False)
class _MergeSource:
    """One snapshot of a database.

    `base` is added to the ids of its documents; `dropped` are those that are left out.
    """

    path: Path
    header: Header
    view: View
    counters: Counters
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

    def next_id(self) -> int:
        """Return the lowest new id above those that its text keys take."""
        with Ongoing(self.view.txn), self.view.txn.cursor("documents") as cursor:
            return self.base + (int.from_bytes(cursor.key()) + 1 if cursor.last() else 0)

    def keys(self, place: int) -> Iterator[_SourceKey]:
        """Yield the text keys as they are stored, with this source's place and the ids."""
        for entries in scan_keys(self.view.txn):
            for text, number in entries:
                yield text, place, number, 0, 0

    def ids(self, place: int) -> Iterator[_SourceKey]:
        """Yield the integer keys, with this source's place and the rows of `ids`."""
        for rows in IntegerCatalog.ids.scan(self.view.txn):
            for number, high, added in zip(*(column.tolist() for column in rows), strict=True):
                yield number, place, number, high, added

    def entries(self, name: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield entries whose keys end with an id, under their new ids, without the dropped."""
        with self.view.txn.cursor(name) as cursor:
            for key, value in cursor:
                number = int.from_bytes(key[-ID_BYTES:])
                at = bisect_left(self.dropped, number)
                if at < len(self.dropped) and self.dropped[at] == number:
                    continue
                moved = number + self.base
                if name == "documents":
                    require_checksum(value, number)
                    kept = renumbered(value, moved)
                else:
                    kept = bytes(value)
                yield bytes(key[:-ID_BYTES]) + moved.to_bytes(ID_BYTES), kept

    def places(self) -> Iterator[tuple[Fingerprints, Column]]:
        """Yield fingerprints with the new ids of their documents, in blocks."""
        dropped = np.array(self.dropped, np.uint64)
        for *words, ids in gathered(self.view.index.home.scan(self.view.txn), BLOCK):
            kept = ~among(ids, dropped)
            yield of_words([word[kept] for word in words]), ids[kept] + np.uint64(self.base)

    def document(self, number: int) -> Stored:
        """Return the document with an id."""
        with Ongoing(self.view.txn):
            stored = self.view.catalog.load(self.view.txn, number)
        if stored is None:
            raise self.damaged("a key leads to no document")
        return stored

    def sketches(self) -> int:
        """Count the sketches of the documents that aren't dropped."""
        catalog, txn = self.view.catalog, self.view.txn
        found = (catalog.record(txn, number) for number in self.dropped)
        dropped = sum(stored is not None and bool(stored.sketch) for stored in found)
        return (self.counters.sketches or 0) - dropped


def _distinct(sources: Iterable[str | os.PathLike[str]]) -> list[str | os.PathLike[str]]:
    if isinstance(sources, str | bytes | os.PathLike):
        raise InputError(f"found {sources!r}, expected several paths", hint="give a list of paths")
    known: dict[open_checks.Identity, str | os.PathLike[str]] = {}
    for source in sources:
        identity = open_checks.identify(open_checks.resolved(source))
        if identity in known:
            raise InputError(
                f"{known[identity]} and {source} are the same database",
                hint="name each database once",
            )
        known[identity] = source
    if not known:
        raise InputError("found no database to merge", hint="name at least one")
    return list(known.values())


def _open(path: str | os.PathLike[str], held: contextlib.ExitStack) -> _MergeSource:
    """Open a source, and a snapshot of it, until a stack ends."""
    environment = held.enter_context(
        Environment.open(path, readonly=True, verify=require_complete_copy)
    )
    described, index, catalog = read_layout(environment)
    txn = held.enter_context(environment.read())
    counters = Counters.unpack(txn.get("counters", b"counters"))
    return _MergeSource(environment.path, described, View(txn, index, catalog), counters)


def _require_alike(opened: Sequence[_MergeSource]) -> None:
    first, *others = opened
    for other in others:
        for name, error in (
            ("recipe_id", RecipeMismatchError),
            ("keys", InputError),
            ("similarity", InputError),
        ):
            one, two = (each.header.get(name) for each in (first, other))
            if one != two:
                names = [each.header["recipe"].get("name") for each in (first, other)]
                raise error(
                    f"{first.path} (recipe {names[0]}) was created with {name}={one}, "
                    f"{other.path} (recipe {names[1]}) with {name}={two}",
                    hint="compact one of them with the similarity of the other"
                    if name == "similarity" and None not in (one, two)
                    else "ingest the texts of one of them again, with the options of the other",
                )


def _header(opened: Sequence[_MergeSource], capacity: int | None) -> Header:
    """Describe the new database: as the sources, with tables that suit all their documents."""
    first = opened[0]
    stored = [source.view.index.plan for source in opened]
    ks = sorted({each.k for each in stored})
    if len(ks) > 1:
        raise InputError(
            f"the databases were created for k={', '.join(map(str, ks))}",
            hint="compact them with one k",
        )
    total = sum(source.counters.documents for source in opened)
    room = max(source.header["capacity"] for source in opened)
    if capacity is None and total <= room and all(each == stored[0] for each in stored):
        return replanned({**first.header, "capacity": room}, k=None, capacity=None)
    wanted = max(total, room) if capacity is None else capacity
    return replanned(first.header, k=None, capacity=wanted)


class _Merge:
    """One merge: the sources, and the transaction that writes the new database."""

    def __init__(
        self, sources: Sequence[_MergeSource], into: WriteTransaction, header: Header, rule: str
    ) -> None:
        self._sources = sources
        self._into = into
        self._index, self._catalog = layout(header)
        self._rule = rule
        self._named = self._catalog.kind == "text"

    def write(self, memory: int) -> tuple[MergedSource, ...]:
        """Write everything; return what was taken of each source."""
        into, next_id = self._into, 0
        if self._named:
            for source in self._sources:
                source.base = next_id
                next_id = source.next_id()
            bases = [source.base for source in self._sources]
            kept = self._kept([source.keys(at) for at, source in enumerate(self._sources)])
            fill_keys(into, ((key, number + bases[at]) for key, at, number, _, _ in kept))
        else:
            kept = self._kept([source.ids(at) for at, source in enumerate(self._sources)])
            IntegerCatalog.ids.fill(into, _blocks(kept))
        for source in self._sources:
            np.frombuffer(source.dropped, np.uint64).sort()
        for name in ("documents", "short"):
            streams = [source.read(source.entries(name)) for source in self._sources]
            total = sum(source.view.txn.entries(name) for source in self._sources)
            into.extend(name, tracked(heapq.merge(*streams), f"copy {name}", "entry", total))
        taken = tuple(
            MergedSource(s.path, s.counters.documents - len(s.dropped), len(s.dropped))
            for s in self._sources
        )
        documents, short = sum(each.documents for each in taken), into.entries("short")
        load_tables(into, self._index, self._places, documents - short, memory)
        self._catalog.load_bands(into, memory)
        sketched = self._catalog.sketched
        sketches = sum(source.sketches() for source in self._sources) if sketched else None
        counters = Counters(next_id, documents, short, 1, sketches)
        into.put("counters", b"counters", counters.pack())
        runs = [run for source in self._sources for run in source.read(read_runs(source.view.txn))]
        write_runs(into, sorted(runs, key=attrgetter("finished")))
        return taken

    def _places(self) -> Iterator[tuple[Fingerprints, Column]]:
        return chain.from_iterable(source.read(source.places()) for source in self._sources)

    def _kept(self, streams: list[Iterator[_SourceKey]]) -> Iterator[_SourceKey]:
        """Yield each key once, with the document that stays; note the others as dropped."""
        read = [source.read(keys) for source, keys in zip(self._sources, streams, strict=True)]
        total = sum(source.counters.documents for source in self._sources)
        keys = tracked(heapq.merge(*read), "merge the keys", "key", total)
        for _, group in groupby(keys, key=itemgetter(0)):
            rivals = list(group)
            kept = rivals[0]
            if len(rivals) > 1:
                kept = self._winner(rivals)
                for rival in rivals:
                    if rival is not kept:
                        self._sources[rival[1]].dropped.append(rival[2])
            yield kept

    def _winner(self, rivals: list[_SourceKey]) -> _SourceKey:
        if self._rule == "first":
            return rivals[0]
        if not self._named:
            return max(rivals, key=itemgetter(-1))  # the first of equally old ones
        return max(rivals, key=lambda rival: self._sources[rival[1]].document(rival[2]).added)


def _blocks(keys: Iterator[_SourceKey]) -> Iterator[Rows]:
    while block := list(islice(keys, ROWS)):
        rows = np.array([(number, high, added) for number, _, _, high, added in block], np.uint64)
        yield list(np.ascontiguousarray(rows.T))
