"""Write what is intact in a damaged database into a new one; the damaged file is never mapped."""

import os
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from fpdb.arrays import Column, Rows, among, gathered, joined
from fpdb.documents.catalog import Catalog, IntegerCatalog
from fpdb.documents.keys import KEYS, find_key, seed_at
from fpdb.documents.layout import layout, new_database
from fpdb.errors import (
    DamagedError,
    FormatError,
    InputError,
    NotADatabaseError,
    StorageError,
)
from fpdb.maintenance.check import require_document, shown_id
from fpdb.models import Key, Problem, Repaired, now, require_whole
from fpdb.progress import tracked
from fpdb.storage import Environment, ReadTransaction, WriteTransaction, open_checks
from fpdb.storage.columns import page_length, unpack_rows
from fpdb.storage.format import (
    ID_BYTES,
    Counters,
    Header,
    Stored,
    require_supported,
    unpack_header,
    unpack_record,
)
from fpdb.storage.survey import Entry, Survey
from fpdb.storage.texts import TextEntry, first_text, unpack_texts
from fpdb.tables import Index
from fpdb.tables.bits import Fingerprints, of_words, to_array
from fpdb.tables.bulk_load import BLOCK, LEAST_MEMORY, MEMORY, load_tables
from fpdb.tables.index import HIGH_BITS
from fpdb.tables.pages import Pages

_BATCH = 1 << 12
_SHOWN = 24
_BEYOND = 1 << 40  # an id that no database has reached


def repair(
    path: str | os.PathLike[str],
    new: str | os.PathLike[str],
    *,
    like: str | os.PathLike[str] | None = None,
    memory: int = MEMORY,
) -> Repaired:
    """Write every document of a damaged database whose record is intact into a new one.

    The damaged one is only read, page by page, and nobody may write to it meanwhile. All tables are
    built anew. Nothing comes back that was deleted or replaced. With integer keys, a document that
    has no record, or has lost it, comes back as its fingerprint, if its row of the first table is
    intact. The new database appears at its path complete, and synced.

    No secret of a recipe is needed.

    Args:
        path: The damaged database.
        new: Where the new one is created.
        like: A database that was created with the same recipe, k, keys and plan; its header is
            taken if that of the damaged one is lost.
        memory: About how many bytes sorting may take; integer keys take 40 bytes a document more.

    Returns:
        How many documents came back, how many are missing, and the keys of lost ones if they can be
        read.

    Raises:
        DatabaseExistsError: There is something at `new`.
        DamagedError: Nothing can be saved, or the header is lost and `like` isn't given.
        StorageError: Somebody wrote to the database meanwhile.
    """
    require_whole("memory", memory, LEAST_MEMORY)
    directory = open_checks.resolved(path)
    open_checks.require_vacant(open_checks.resolved(new))
    with Survey(open_checks.open_data(directory)) as survey:
        described = _find_header(survey)
        problems = [] if described else [Problem("header", "it is lost")]
        if described is None and like is not None:
            described = _read_header(like)
        if described is None:
            raise DamagedError(
                f"{directory} has lost its header, which says what its fingerprints are",
                hint="name a database that was created in the same way",
                parameter="like",
            )
        require_supported(described, readonly=True)
        work = _Repair(survey, *layout(described))
        with Environment.build(new, *new_database(described)) as built:
            work.run(built, memory)
            if survey.changed():
                raise StorageError(
                    f"{directory} was written to while it was read",
                    hint="stop those who write to it, and repair it again",
                )
    problems += [*survey.problems, *work.problems]
    return Repaired(Path(new), work.documents, work.missing, tuple(work.lost), tuple(problems))


def _find_header(survey: Survey) -> Header | None:
    unreadable = None
    for value in survey.copies_of(b"header"):  # it never changes, so an old copy of it will do
        try:
            return unpack_header(value)
        except (DamagedError, NotADatabaseError):
            continue
        except FormatError as error:
            unreadable = error
    if unreadable:
        raise unreadable
    return None


def _read_header(path: str | os.PathLike[str]) -> Header:
    with Environment.open(path, readonly=True) as other, other.read() as txn:
        other.require(["header"])
        return unpack_header(txn.get("header", b"header") or b"")


class _Repair:
    """One run: what can be read of a damaged file, what was written, and what was lost."""

    def __init__(self, survey: Survey, index: Index, catalog: Catalog) -> None:
        self.problems: dict[Problem, None] = {}  # each once, in order
        self.lost: list[Key] = []
        self.missing: int | None = None
        self.documents = 0
        self._survey = survey
        self._index = index
        self._catalog = catalog
        self._named = catalog.kind == "text"
        # With text keys, all that is needed of a document is in its record.
        self._tables = [] if self._named else [IntegerCatalog.ids, index.home]
        # What checks and unpacks a value with its key, by their tree.
        self._unpackers: dict[str, Callable[[bytes, bytes | None], Any]]
        self._unpackers = {pages.name: partial(_unpack, pages) for pages in self._tables}
        self._unpackers |= {"documents": self._record, KEYS: _texts}
        self._next_id = 0
        self._short = self._sketches = 0
        # Sorted ids, with integer keys: of documents with a record, and of those without.
        self._recorded = self._bare = np.empty(0, np.uint64)
        for page, entries in survey.stray_leaves():
            if name := next(filter(None, map(self._tree_of, entries)), None):
                survey.leaves.setdefault(name, array("Q")).append(page)

    def run(self, built: Environment, memory: int) -> None:
        """Fill a new database."""
        old = self._old_counters()
        self._next_id = old.next_id if old else _BEYOND
        with built.write() as into:
            self._write_records(into)
            if self._named:
                self._find_lost_keys(into)
            else:
                self._write_bare(into)
        with built.read() as txn, built.write() as into:
            count = self.documents - self._short
            load_tables(into, self._index, lambda: self._places(txn), count, memory)
            self._catalog.load_bands(into, memory)
            counters = Counters(
                self._next_id if self._named else 0,
                self.documents,
                self._short,
                old.writes if old else 1,
                self._sketches if self._catalog.sketched else None,
            )
            into.put("counters", b"counters", counters.pack())
        if old:
            self.missing = max(old.documents - self.documents, 0)

    def _report(self, where: str, what: str) -> None:
        self.problems[Problem(where, what)] = None

    # What can be read

    def _old_counters(self) -> Counters | None:
        survey = self._survey
        try:
            return Counters.unpack(survey.file.entry(survey.trees.get("counters"), b"counters"))
        except DamagedError:
            what = "they are lost, so it isn't known how many documents there were"
            self._report("counters", what)
            return None

    def _read(self, name: str) -> Iterator[Any]:
        """Yield the values of a tree that are intact."""
        unpack = self._unpackers[name]
        for entry in self._survey.entries(name):
            try:
                found = unpack(entry.key, entry.value)
            except (DamagedError, InputError) as error:
                shown = entry.key[:_SHOWN].hex()
                if name == "documents":
                    shown = f"document {shown_id(entry.key)}"
                self._report(name, f"page {entry.page}, {shown}: {error}")
            else:
                yield found

    def _record(self, name: bytes, value: bytes | None) -> Stored:
        if value is None:
            raise DamagedError("the pages of its record can't be read")
        stored = unpack_record(value, int.from_bytes(name), self._index.plan.bits)
        require_document(stored, name, self._catalog)
        return stored if self._named else stored._replace(id=int(stored.key))

    def _rows(self, pages: Pages) -> Iterator[Rows]:
        return gathered(chain([pages.empty()], self._read(pages.name)), BLOCK)

    def _names(self) -> Iterator[TextEntry]:
        return chain.from_iterable(self._read(KEYS))

    def _is_intact(self, name: str, key: bytes, value: bytes | None) -> bool:
        """Return whether a value is one of a tree, under a key."""
        try:
            self._unpackers[name](key, value)
        except (DamagedError, InputError):
            return False
        return True

    def _tree_of(self, entry: Entry) -> str | None:
        """Return the tree to which an entry of a stray leaf belongs."""
        names = [pages.name for pages in self._tables if len(entry.key) == pages.key_width]
        if self._named and first_text(entry.value or b"") == entry.key:
            names.append(KEYS)
        for name in (*names, "documents"):
            if self._is_intact(name, entry.key, entry.value):
                return name
        return None

    # Documents with a record

    def _write_records(self, into: WriteTransaction) -> None:
        """Write the documents with a record.

        One with a text key keeps its id if that is free and possible, and else gets a new one.
        """
        ids: list[int] = []
        tree = self._survey.trees.get("documents")
        read, total = self._read("documents"), tree.entries if tree else 0
        found = iter(tracked(read, "copy documents", "document", total))
        highest = self._next_id
        while batch := list(islice(found, _BATCH)):
            known = self._catalog.find_many(into, [stored.key for stored in batch])
            taken: dict[int, Stored] = {}
            for stored in batch:
                if known[stored.key]:
                    what = f"the document {stored.key!r} is there twice; the first is taken"
                    self._report("documents", what)
                    continue
                known[stored.key] = stored
                number = stored.id
                if self._named and (
                    number >= highest
                    or number in taken
                    or into.get("documents", number.to_bytes(ID_BYTES)) is not None
                ):
                    number = self._next_id
                    self._next_id += 1
                taken[number] = stored._replace(id=number)
                self._short += stored.fingerprint is None
                self._sketches += bool(stored.sketch)
            self._catalog.write(into, list(taken.values()), [])
            self.documents += len(taken)
            if not self._named:
                ids += taken
        self._recorded = np.sort(np.array(ids, np.uint64))

    def _find_lost_keys(self, into: WriteTransaction) -> None:
        for text, _ in self._names():
            if find_key(into, text) is None:
                self.lost.append(text.decode(errors="replace"))

    # Bare documents, with integer keys: rows of `ids` and of the home table, without a record

    def _write_bare(self, into: WriteTransaction) -> None:
        """Write the rows of `ids` of the bare documents whose row of the home table is intact."""
        below = np.uint64(min(self._index.plan.bits, 64) - HIGH_BITS)
        home = ([rows[-1], rows[0] >> below] for rows in self._rows(self._index.home))
        ids, high = joined(home)
        bare, first, counts = np.unique(ids, return_index=True, return_counts=True)
        # Which of several fingerprints is that of an id can't be known.
        kept = (counts == 1) & ~among(bare, self._recorded)
        self._bare, high = bare[kept], high[first[kept]]
        added = np.full(len(self._bare), now(), np.uint64)
        dated = np.zeros(len(self._bare), np.bool_)
        for own, _, times in self._rows(IntegerCatalog.ids):
            there = among(own, self._bare)
            places = self._bare.searchsorted(own[there])
            added[places], dated[places] = times[there], True
            self.lost += own[~there & ~among(own, self._recorded)].tolist()
        IntegerCatalog.ids.splice(into, [self._bare, high, added], IntegerCatalog.ids.empty())
        self.documents += len(self._bare)
        if not dated.all():
            what = f"{np.count_nonzero(~dated)} documents have lost their time of adding"
            self._report("ids", f"{what}, and have this one")
        tree = self._survey.trees.get("documents")
        stripped = tree.entries - len(self._recorded) if tree else 0
        if stripped > 0:
            what = f"{stripped} records are lost; what is left of their documents are fingerprints"
            self._report("documents", what)

    # The tables

    def _places(self, txn: ReadTransaction) -> Iterator[tuple[Fingerprints, Column]]:
        bits = self._index.plan.bits
        with txn.cursor("documents") as cursor:
            records = (unpack_record(value, int.from_bytes(name), bits) for name, value in cursor)
            placed = ((d.fingerprint, d.id) for d in records if d.fingerprint is not None)
            while block := list(islice(placed, _BATCH)):
                fingerprints, ids = zip(*block, strict=True)
                yield to_array(fingerprints, bits), np.array(ids, np.uint64)
        for rows in self._rows(self._index.home) if self._tables else ():
            *words, numbers = (column[among(rows[-1], self._bare)] for column in rows)
            yield of_words(words), numbers


def _texts(key: bytes, value: bytes | None) -> list[TextEntry]:
    return unpack_texts(value or b"", seed_at(key))


def _unpack(pages: Pages, key: bytes, value: bytes | None) -> Rows:
    if value is None:
        raise DamagedError("it can't be read")
    rows = unpack_rows(value, pages.columns, pages.seed_at(key))
    if page_length(value, pages.columns) != len(value):
        raise DamagedError("it has another number of columns")
    # With 128 bits, a page of the home table has as many columns as one of `ids`.
    if pages is IntegerCatalog.ids and (rows[1] >> np.uint64(HIGH_BITS)).any():
        raise DamagedError("it is one of another table")
    if not len(rows[0]):
        raise DamagedError("it has no rows")
    return rows
