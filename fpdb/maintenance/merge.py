"""Merge databases into a new one, which is built beside its path, checked, and moved there.

Each source is one sorted stream of keys, of ids, of records; a merge reads the streams side by
side, and the tables are loaded in bulk. A merge that is cut short leaves nothing to go on with.
"""

import contextlib
import heapq
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import IO, Literal, TypeVar

import numpy as np

from fpdb.arrays import Column, Rows, among, differs, gathered, joined
from fpdb.documents.catalog import IntegerCatalog, View
from fpdb.documents.layout import new_database, read_layout, replanned
from fpdb.errors import DamagedError, InputError, RecipeMismatchError
from fpdb.maintenance.check import check, require_complete_copy
from fpdb.maintenance.scan import ids_of, in_step
from fpdb.models import Merged, MergedSource, require_choice, require_whole
from fpdb.storage import Environment, Ongoing, WriteTransaction, open_checks
from fpdb.storage.format import Counters, Header, Stored, require_checksum
from fpdb.storage.open_checks import disk_named
from fpdb.tables import Index, Plan
from fpdb.tables.bits import Fingerprints, of_words
from fpdb.tables.bulk_load import BLOCK, LEAST_MEMORY, MEMORY, load_tables

RULES = ("newest", "first", "error")
# Entries that are read from a source at once, and rows of `ids`.
ENTRIES = 1 << 12
ROWS = 1 << 16
_ID_BYTES = 8

T = TypeVar("T")


def merge(
    sources: Iterable[str | os.PathLike[str]],
    path: str | os.PathLike[str],
    *,
    on_conflict: Literal["newest", "first", "error"] = "newest",
    k: int | None = None,
    capacity: int | None = None,
    plan: Plan | None = None,
    memory: int = MEMORY,
) -> Merged:
    """Write the documents of several databases, which have the same recipe, into a new one.

    Of documents with the same key, the `newest` stays, which is the one that was added last, and of
    equally old ones that of the first source; or that of the `first` source; or it is an `error` if
    they differ in more than the time when they were added. Integer keys stay the ids; otherwise the
    ids follow the order of the sources, and in each of them that of its own ids.

    The tables are those of the sources if these are the same and the capacity suffices; otherwise
    those of the best plan for the k and for the number of documents. Sorting takes about `memory`
    bytes.

    Each source is read in one snapshot. The new database appears at its path when it is complete,
    on disk, and checked deeply. If the merge fails or is killed, nothing appears.

    Raises:
        InputError: With `error`, two sources have different documents with the same key.
        DamagedError: A source is damaged.
    """
    require_whole("memory", memory, LEAST_MEMORY)
    require_choice("on_conflict", on_conflict, RULES)
    directory = Path(os.path.realpath(path))
    open_checks.require_vacant(directory)
    with contextlib.ExitStack() as draft:
        with contextlib.ExitStack() as held:
            opened = [_open(source, directory.parent, held) for source in _distinct(sources)]
            _require_alike(opened)
            described = _header(opened, k, capacity, plan)
            built = draft.enter_context(Environment.build(directory, *new_database(described)))
            index = Index(Plan.from_dict(described["plan"]))
            with built.write() as into:
                taken = _Merge(opened, into, index, on_conflict).write(memory)
        # The check needs neither the snapshots, which keep other files growing, nor this handle.
        built.close()
        for problem in check(built.path, deep=True):
            raise DamagedError(
                f"what was merged for {directory} is damaged: {problem.where}: {problem.what}",
                hint="run `fpdb check --deep` on the databases that it was made of",
            )
    return Merged(directory, sum(source.documents for source in taken), taken)


class _Ids:
    """Ids of dropped documents, in a file without a name: there may be many."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._file: IO[bytes] | None = None
        self.count = 0

    def close(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self._file.close()

    def add(self, ids: Column) -> None:
        """Add ids, in any order."""
        with disk_named(self._place):
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._place)  # noqa: SIM115 - see close
            self._file.write(ids.tobytes())
        self.count += len(ids)

    @cached_property
    def ordered(self) -> Column:
        """All ids in their order; use it when all were added."""
        if self._file is None:
            return np.empty(0, np.uint64)
        with disk_named(self._place):
            self._file.flush()
            ids = np.memmap(self._file, np.uint64, "r+")
            ids.sort()
        return ids


@dataclass(eq=False)
class _Source:
    """One snapshot of a database; `base` is added to its ids, and `dropped` has those left out."""

    path: Path
    header: Header
    view: View
    counters: Counters
    dropped: _Ids
    base: int = 0

    @property
    def plan(self) -> Plan:
        """The tables of the database."""
        return self.view.index.plan

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

    def keys(self, place: int) -> Iterator[tuple[bytes, int, int]]:
        """Yield the text keys as they are stored, with this source's place and the ids."""
        with self.view.txn.cursor("keys") as cursor:
            for key, number in cursor:
                yield bytes(key), place, int.from_bytes(number)

    def entries(self, name: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield entries whose keys end with an id, under their new ids, without the dropped."""
        gone, checked = self.dropped.ordered, name == "documents"
        with self.view.txn.cursor(name) as cursor:
            stored = iter(cursor)
            while found := [(bytes(key), bytes(value)) for key, value in islice(stored, ENTRIES)]:
                ids = ids_of([key[-_ID_BYTES:] for key, _ in found])
                new = (ids + np.uint64(self.base)).astype(">u8").tobytes()
                kept = (~among(ids, gone)).tolist()
                for at, (key, value) in enumerate(found):
                    if kept[at]:
                        if checked:
                            require_checksum(value)
                        end = new[at * _ID_BYTES : (at + 1) * _ID_BYTES]
                        yield key[:-_ID_BYTES] + end, value

    def places(self) -> Iterator[tuple[Fingerprints, Column]]:
        """Yield fingerprints with the new ids of their documents, in blocks."""
        gone = self.dropped.ordered
        for *words, ids in gathered(self.view.index.home.scan(self.view.txn), BLOCK):
            kept = ~among(ids, gone)
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
        found = (catalog.record(txn, number) for number in self.dropped.ordered.tolist())
        dropped = sum(stored is not None and bool(stored.sketch) for stored in found)
        return (self.counters.sketches or 0) - dropped


def _distinct(sources: Iterable[str | os.PathLike[str]]) -> list[str | os.PathLike[str]]:
    """Return the sources, none of which may be named twice."""
    if isinstance(sources, str | bytes | os.PathLike) or not isinstance(sources, Iterable):
        raise InputError(
            f"found {sources!r:.40}, expected several paths", hint="give a list of paths"
        )
    known: dict[open_checks.Identity, str | os.PathLike[str]] = {}
    for source in sources:
        identity = open_checks.identify(Path(os.path.realpath(source)))
        if identity in known:
            raise InputError(
                f"{known[identity]} and {source} are the same database",
                hint="name each database once",
            )
        known[identity] = source
    if not known:
        raise InputError("found no database to merge", hint="name at least one")
    return list(known.values())


def _open(path: str | os.PathLike[str], place: Path, held: contextlib.ExitStack) -> _Source:
    """Open a source, and a snapshot of it, until a stack ends; `place` takes temporary files."""
    environment = held.enter_context(
        Environment.open(path, readonly=True, verify=require_complete_copy)
    )
    described, index, catalog = read_layout(environment)
    txn = held.enter_context(environment.read())
    counters = Counters.unpack(txn.get("counters", b"counters"))
    view, dropped = View(txn, index, catalog), _Ids(place)
    held.callback(dropped.close)
    return _Source(environment.path, described, view, counters, dropped)


def _require_alike(opened: Sequence[_Source]) -> None:
    """Raise an error if the documents of some databases don't fit into one."""
    first, *others = opened
    for other in others:
        both = first, other
        recipes = [(each.header["recipe"].get("name"), each.header["recipe_id"]) for each in both]
        kinds = [each.view.catalog.kind for each in both]
        sketches = [each.header.get("sketch") or "no" for each in both]
        for error, alike, found, hint in (
            (
                RecipeMismatchError,
                recipes[0][1] == recipes[1][1],
                [f"was created with the recipe {name} ({number})" for name, number in recipes],
                "merge databases of one recipe; ingest the texts of the other one again",
            ),
            (
                InputError,
                kinds[0] == kinds[1],
                [f"has {kind} keys" for kind in kinds],
                "merge databases with keys of one kind; ingest the other one again",
            ),
            (
                InputError,
                sketches[0] == sketches[1],
                [f"keeps {sketch} sketches" for sketch in sketches],
                "ingest the texts of one of them again, with the same --sketch as the other",
            ),
        ):
            if not alike:
                raise error(f"{first.path} {found[0]}, {other.path} {found[1]}", hint=hint)


def _header(
    opened: Sequence[_Source], k: int | None, capacity: int | None, plan: Plan | None
) -> Header:
    """Describe the new database: as the sources, with tables that suit all their documents."""
    first = opened[0]
    ks = sorted({source.plan.k for source in opened})
    if k is None and len(ks) > 1:
        raise InputError(
            f"the databases were created for k={', '.join(map(str, ks))}",
            hint="give the k of the new one",
        )
    wanted = ks[0] if k is None else k
    total = sum(source.counters.documents for source in opened)
    room = max(source.header["capacity"] for source in opened)
    if plan is None:
        alike = all(source.plan == first.plan for source in opened) and wanted == first.plan.k
        if alike and capacity is None and total <= room:
            plan = first.plan
    room = max(total, room) if capacity is None else capacity
    return replanned(first.header, k=wanted, capacity=room, plan=plan)


class _Merge:
    """One merge: the sources, and the transaction that writes the new database."""

    def __init__(
        self, sources: Sequence[_Source], into: WriteTransaction, index: Index, rule: str
    ) -> None:
        self._sources = sources
        self._into = into
        self._index = index
        self._rule = rule
        self._named = sources[0].view.catalog.kind == "text"

    def write(self, memory: int) -> tuple[MergedSource, ...]:
        """Write everything; return what was taken of each source."""
        into, next_id = self._into, 0
        if self._named:
            for source in self._sources:
                source.base = next_id
                next_id = source.next_id()
            into.extend("keys", self._keys())
        else:
            IntegerCatalog.ids.fill(into, self._ids())
        records = [source.read(source.entries("documents")) for source in self._sources]
        # The new ids of text keys are those of one source after the other.
        into.extend("documents", chain(*records) if self._named else _by_key(records))
        into.extend("short", _by_key([s.read(s.entries("short")) for s in self._sources]))
        taken = tuple(
            MergedSource(s.path, s.counters.documents - s.dropped.count, s.dropped.count)
            for s in self._sources
        )
        documents, short = sum(each.documents for each in taken), into.entries("short")
        load_tables(into, self._index, self._places, documents - short, memory)
        sketched = self._sources[0].view.catalog.sketched
        sketches = sum(source.sketches() for source in self._sources) if sketched else None
        counters = Counters(next_id, documents, short, 1, sketches)
        into.put("counters", b"counters", counters.pack())
        return taken

    def _places(self) -> Iterator[tuple[Fingerprints, Column]]:
        return chain.from_iterable(source.read(source.places()) for source in self._sources)

    def _keys(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the text keys of all sources with new ids, each once."""
        bases = [source.base for source in self._sources]
        streams = [source.read(source.keys(at)) for at, source in enumerate(self._sources)]
        for key, group in groupby(heapq.merge(*streams), key=itemgetter(0)):
            found = list(group)
            _, place, number = found[0]
            if len(found) > 1:
                place, number = self._winner([rival[1:] for rival in found])
                for _, other, dropped in found:
                    if other != place:
                        self._sources[other].dropped.add(np.array([dropped], np.uint64))
            yield key, (number + bases[place]).to_bytes(_ID_BYTES)

    def _ids(self) -> Iterator[Rows]:
        """Yield the rows of `ids` of all sources, each id once."""
        streams = [
            source.read(gathered(IntegerCatalog.ids.scan(source.view.txn), ROWS))
            for source in self._sources
        ]
        for parts in in_step(streams, [IntegerCatalog.ids.columns] * len(streams)):
            places = np.concatenate([np.full(len(p[0]), at) for at, p in enumerate(parts)])
            ids, _, added = rows = joined(parts)
            # Of equal ids the one that stays comes first.
            ties = [places, ~added] if self._rule == "newest" else [places]
            order = np.lexsort([*ties, ids])
            ids, places = ids[order], places[order]
            later = ~differs(ids)
            if self._rule == "error":
                for at in later.nonzero()[0].tolist():
                    self._require_same([(int(places[to]), int(ids[to])) for to in (at - 1, at)])
            for place in np.unique(places[later]).tolist():
                self._sources[place].dropped.add(ids[later & (places == place)])
            yield [column[order][~later] for column in rows]

    def _winner(self, rivals: list[tuple[int, int]]) -> tuple[int, int]:
        """Return which of several documents with one key stays, as the place and id of each."""
        if self._rule == "error":
            self._require_same(rivals)
        if self._rule != "newest":
            return rivals[0]
        # The first of equally old ones.
        return max(rivals, key=lambda rival: self._sources[rival[0]].document(rival[1]).added)

    def _require_same(self, rivals: list[tuple[int, int]]) -> None:
        """Raise an error if documents with one key differ in more than the time of adding."""
        first, *others = (
            self._sources[place].document(number)._replace(id=0, added=0)
            for place, number in rivals
        )
        for (place, _), other in zip(rivals[1:], others, strict=True):
            if other != first:
                paths = self._sources[rivals[0][0]].path, self._sources[place].path
                raise InputError(
                    f"{paths[0]} and {paths[1]} have different documents with the key "
                    f"{first.key!r}",
                    hint="merge with on_conflict newest or first, or delete one of them",
                )


def _by_key(
    streams: Sequence[Iterator[tuple[bytes, bytes]]],
) -> Iterator[tuple[bytes, bytes]]:
    return heapq.merge(*streams, key=itemgetter(0))
