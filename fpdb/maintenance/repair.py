"""Write what is intact in a damaged database into a new one; the damaged file is never mapped."""

import contextlib
import os
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from fpdb.arrays import Column, among, joined
from fpdb.documents.catalog import IntegerCatalog, find_key, key_pages
from fpdb.documents.layout import layout, new_database
from fpdb.errors import DamagedError, InputError, NotADatabaseError, StorageError
from fpdb.maintenance.check import intact_record, shown_id
from fpdb.maintenance.rebuild import write_tables
from fpdb.models import Key, Problem, Repaired, now, require_whole
from fpdb.progress import tracked
from fpdb.storage import Environment, ReadTransaction, WriteTransaction, open_checks
from fpdb.storage.block import Block
from fpdb.storage.format import (
    Counters,
    Header,
    Stored,
    require_supported,
    unpack_header,
)
from fpdb.storage.survey import Survey
from fpdb.tables.bits import Fingerprints, of_words, to_array
from fpdb.tables.bulk_load import LEAST_MEMORY, MEMORY
from fpdb.tables.levels import Levels
from fpdb.tables.sorted_pages import R, SortedPages

T = TypeVar("T")

_SHOWN = 24
_BATCH = 1 << 12  # documents that are looked up and written at once
_NO_IDS = np.empty(0, np.uint64)


def repair(
    path: str | os.PathLike[str],
    new: str | os.PathLike[str],
    *,
    memory: int = MEMORY,
) -> Repaired:
    """Write every document of a damaged database whose record is intact into a new one.

    The damaged one is only read, page by page, and nobody may write to it meanwhile. All tables are
    built anew. Nothing comes back that was deleted or replaced, unless the last commit did that and
    is lost. With integer keys, a document that has no record, or has lost it, comes back as its
    fingerprint, if its row of the first table is intact. The new database appears at its path
    complete, and synced.

    No secret of a recipe is needed.

    Args:
        path: The damaged database.
        new: Where the new one is created.
        memory: About how many bytes sorting may take; integer keys take 80 bytes a document more.

    Returns:
        How many documents came back, how many are missing, and the keys of lost ones if they can be
        read.

    Raises:
        DatabaseExistsError: There is something at `new`.
        DamagedError: Nothing can be saved, or the header is lost.
        StorageError: Somebody wrote to the database meanwhile.
    """
    require_whole("memory", memory, LEAST_MEMORY)
    directory = open_checks.resolved(path)
    open_checks.require_vacant(open_checks.resolved(new))
    with Survey(open_checks.open_data(directory)) as survey:
        described = _find_header(survey)
        if described is None:
            raise DamagedError(
                f"{directory} has lost its header, which says what its fingerprints are",
                hint="restore a backup",
            )
        require_supported(described, readonly=True)
        work = _Repair(survey, described)
        with Environment.build(new, *new_database(described)) as built:
            work.run(built, memory)
            if survey.changed():
                raise StorageError(
                    f"{directory} was written to while it was read",
                    hint="stop those who write to it, and repair it again",
                )
    problems = *survey.problems, *work.problems
    return Repaired(Path(new), work.documents, work.missing, tuple(work.lost), problems)


def _find_header(survey: Survey) -> Header | None:
    for entry in chain(survey.entries("header"), survey.strays()):
        if entry.key == b"header":
            with contextlib.suppress(DamagedError, NotADatabaseError):
                return unpack_header(entry.value or b"")
    return None


class _Repair:
    """One run: the documents that can be read of a damaged file, and all that was lost."""

    def __init__(self, survey: Survey, header: Header) -> None:
        self.problems: dict[Problem, None] = {}  # each once, in order
        self.lost: list[Key] = []
        self.missing: int | None = None
        self.documents = 0
        self._survey = survey
        self._header = header
        self._index, self._catalog = layout(header)

    def run(self, built: Environment, memory: int) -> None:
        """Fill a new database."""
        old = self._old_counters()
        tree = self._survey.trees.get("documents")
        total = tree.entries if tree else 0
        records = self._read("documents", self._record)
        documents = iter(tracked(records, "copy documents", "document", total))
        bare: tuple[Fingerprints, Column] = to_array((), self._index.plan.bits), _NO_IDS
        with built.write() as into:
            counters = self._write_documents(into, documents, old or Counters())
            if isinstance(self._catalog, IntegerCatalog):
                bare = self._write_bare(into, self._catalog, total)
                counters = counters._replace(documents=counters.documents + len(bare[1]))
            else:
                names = chain.from_iterable(self._rows(key_pages))
                lost = (text for text, _ in names if find_key(into, text) is None)
                self.lost += [text.decode(errors="replace") for text in lost]

        def places(txn: ReadTransaction) -> Iterator[tuple[Fingerprints, Column]]:
            return chain(self._catalog.fingerprints(txn), [bare])

        write_tables(built, self._header, counters, places, memory)
        self.documents = counters.documents
        if old and not self._survey.outdated:
            self.missing = max(old.documents - self.documents, 0)

    def _report(self, where: str, what: str) -> None:
        self.problems[Problem(where, what)] = None

    def _write_documents(
        self, into: WriteTransaction, documents: Iterator[Stored], old: Counters
    ) -> Counters:
        """Write documents under their ids; of several with the same id or key, the first."""
        catalog, next_id = self._catalog, old.next_id
        count = short = sketches = 0
        while batch := list(islice(documents, _BATCH)):
            there = catalog.find_many(into, [document.key for document in batch])
            new: dict[int, Stored] = {}
            for document in batch:
                number = document.id
                if there[document.key] or number in new or catalog.record(into, number):
                    what = f"the document {document.key!r} is there twice; the first is taken"
                    self._report("documents", what)
                else:
                    there[document.key] = new[number] = document
                    short += document.fingerprint is None
                    sketches += bool(document.sketch)
            block = Block.of(list(new.values()), self._index.plan.bits)
            catalog.write(into, block)
            count += len(new)
            next_id = max([next_id, *(number + 1 for number in new)])
        return Counters(
            next_id if catalog.kind == "text" else 0,
            count,
            short,
            max(old.writes, 1),
            sketches if catalog.sketched else None,
        )

    def _old_counters(self) -> Counters | None:
        survey = self._survey
        try:
            return Counters.unpack(survey.file.entry(survey.trees.get("counters"), b"counters"))
        except DamagedError:
            what = "they are lost, so it isn't known how many documents there were"
            self._report("counters", what)
            return None

    def _rows(self, table: Levels[R]) -> Iterator[R]:
        """Yield the rows of a table whose pages are intact."""
        return table.merged(self._pages(table), self._pages(table.recent))

    def _pages(self, pages: SortedPages[R]) -> Iterator[R]:
        """Yield the rows of the pages of a sub-database that are intact."""

        def unpack(key: bytes, value: bytes | None) -> R:
            rows = pages.unpack(value or b"", pages.seed_at(key))
            if not pages.keys(rows):
                raise DamagedError("it has no rows")
            return rows

        return self._read(pages.name, unpack)

    def _read(self, name: str, unpack: Callable[[bytes, bytes | None], T]) -> Iterator[T]:
        """Yield the values of a tree that are intact; if it leads to none, those of its leaves."""
        reached = False
        for entry in self._survey.entries(name):
            reached = True
            try:
                value = unpack(entry.key, entry.value)
            except (DamagedError, InputError) as error:
                shown = entry.key[:_SHOWN].hex()
                if name == "documents":
                    shown = f"document {shown_id(entry.key)}"
                self._report(name, f"page {entry.page}, {shown}: {error}")
            else:
                yield value
        for entry in () if reached else self._survey.strays():
            try:
                value = unpack(entry.key, entry.value)
            except (DamagedError, InputError):
                continue  # it is of another tree, which its checksum covers
            self._report(name, "no tree leads to its entries, so they are read page by page")
            yield value

    def _record(self, name: bytes, value: bytes | None) -> Stored:
        if value is None:
            raise DamagedError("the pages of its record can't be read")
        stored = intact_record(name, value, self._index.plan.bits, self._catalog)
        if type(stored.key) is int and stored.key != stored.id:
            raise DamagedError(f"it is a record of the document {stored.key}")
        return stored

    def _write_bare(
        self, into: WriteTransaction, catalog: IntegerCatalog, total: int
    ) -> tuple[Fingerprints, Column]:
        """Write the documents without a record whose row of the home table is intact."""
        numbers, _, times = joined([catalog.ids.empty(), *self._rows(catalog.ids)])
        home = self._index.home
        *words, ids = joined([home.empty(), *self._rows(home)])
        recorded = joined(
            [[np.empty(0, np.uint64)], *([rows[0]] for rows in catalog.ids.scan(into))]
        )[0]
        bare, first, counts = np.unique(ids, return_index=True, return_counts=True)
        # Which of several fingerprints is that of an id can't be known.
        certain = (counts == 1) & ~among(bare, recorded)
        bare, fingerprints = bare[certain], of_words([word[first[certain]] for word in words])
        added = np.full(len(bare), now(), np.uint64)
        there = among(numbers, bare)
        places = bare.searchsorted(numbers[there])
        added[places] = times[there]
        self.lost += numbers[~there & ~among(numbers, recorded)].tolist()
        catalog.fill(into, [(bare, bare, fingerprints)], added, len(bare))
        if undated := len(bare) - len(np.unique(places)):
            what = f"{undated} documents have lost their time of adding"
            self._report("ids", f"{what}, and have this one")
        if (stripped := total - len(recorded)) > 0:
            what = f"{stripped} records are lost; what is left of their documents are fingerprints"
            self._report("documents", what)
        return fingerprints, bare
