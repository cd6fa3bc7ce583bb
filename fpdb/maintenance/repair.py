"""Write what is intact in a damaged database into a new one; the damaged file is never mapped."""

import contextlib
import os
import time
from array import array
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from fpdb.arrays import Column, Rows, among, differs, gathered
from fpdb.documents.catalog import Catalog, IntegerCatalog
from fpdb.documents.layout import layout, new_database
from fpdb.errors import DamagedError, FpdbError, InputError, StorageError
from fpdb.maintenance.scan import records, require_document, shown_id
from fpdb.models import Key, Problem, Repaired, require_whole
from fpdb.storage import Environment, ReadTransaction, WriteTransaction, open_checks
from fpdb.storage.columns import page_length, unpack_rows
from fpdb.storage.format import (
    ID_BYTES,
    Counters,
    Header,
    Stored,
    record_length,
    require_supported,
    unpack_header,
    unpack_record,
)
from fpdb.storage.survey import Stray, Survey
from fpdb.tables import Index
from fpdb.tables.bits import Fingerprints, of_words
from fpdb.tables.bulk_load import BLOCK, LEAST_MEMORY, MEMORY, load_tables
from fpdb.tables.pages import Pages

_BATCH = 1 << 12
_SHOWN = 24
_UNKNOWN = -1  # the id of a record without its key
_HIGHEST_ID = 1 << 62  # more than any database has had
_HIGH_BITS = 32  # of a fingerprint, in a row of `ids`


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
        memory: About how many bytes sorting may take; integer keys take 16 bytes a document more.
    """
    require_whole("memory", memory, LEAST_MEMORY)
    directory = Path(os.path.realpath(path))
    open_checks.require_vacant(Path(os.path.realpath(new)))
    with Survey(open_checks.open_data(directory)) as survey:
        described = _find_header(survey)
        problems = [] if described else [Problem("header", "it is lost")]
        if described is None and like is not None:
            described = _read_header(like)
        if described is None:
            raise DamagedError(
                f"{directory} has lost its header, which says what its fingerprints are",
                hint="name a database that was created in the same way, as like=… or --like",
            )
        require_supported(described, readonly=True)
        contents = _Contents(survey, *layout(described))
        with Environment.build(new, *new_database(described)) as built:
            work = _Repair(contents, survey)
            work.run(built, memory)
            if survey.changed():
                raise StorageError(
                    f"{directory} was written to while it was read",
                    hint="stop those who write to it, and repair it again",
                )
    problems += [*survey.problems, *contents.problems, *work.problems]
    return Repaired(Path(new), work.documents, work.missing, tuple(work.lost), tuple(problems))


def _find_header(survey: Survey) -> Header | None:
    """Return the header; it never changes, so an old copy of it will do."""
    for value in survey.copies_of(b"header"):
        with contextlib.suppress(FpdbError):
            return unpack_header(value)
    return None


def _read_header(path: str | os.PathLike[str]) -> Header:
    with Environment.open(path, readonly=True) as other, other.read() as txn:
        other.require(["header"])
        return unpack_header(txn.get("header", b"header") or b"")


class _Contents:
    """The records and rows of a damaged file that can be read, including those of stray pages."""

    def __init__(self, survey: Survey, index: Index, catalog: Catalog) -> None:
        self.index = index
        self.catalog = catalog
        self.problems: list[Problem] = []
        self._survey = survey
        self._tables = [index.home, *catalog.pages] if catalog.pages else []
        self._values: dict[str, list[tuple[int, int]]] = {"documents": []}
        self._values |= {pages.name: [] for pages in self._tables}
        self._reported: set[str] = set()
        for stray in survey.strays():
            self._adopt(stray)

    def records(self) -> Iterator[Stored]:
        """Yield the documents whose record is intact, mostly in the order of their ids."""
        for entry in self._survey.entries("documents"):
            try:
                yield self._record(entry.key, entry.value)
            except (DamagedError, InputError) as error:
                what = f"page {entry.page}, document {shown_id(entry.key)}: {error}"
                self.problems.append(Problem("documents", what))
        for page, length in self._values["documents"]:
            yield self._record(b"", self._survey.value(page, length))

    def rows(self, pages: Pages) -> Iterator[Rows]:
        """Yield the rows of the pages of a table that are intact."""
        for entry in self._survey.entries(pages.name):
            try:
                yield _rows(entry.value, pages)
            except DamagedError as error:
                if pages.name not in self._reported:
                    what = f"page {entry.page}, {entry.key[:_SHOWN].hex()}: {error}"
                    self.problems.append(Problem(pages.name, what))
        self._reported.add(pages.name)
        for page, length in self._values[pages.name]:
            yield _rows(self._survey.value(page, length), pages)

    def _record(self, name: bytes, value: bytes | None) -> Stored:
        """Return the document of a record, or raise an error; without a name it has no id."""
        if value is None:
            raise DamagedError("the pages of its record can't be read")
        number = int.from_bytes(name) if name else _UNKNOWN
        stored = unpack_record(value, number, self.index.plan.bits)
        named = self.catalog.kind == "text"
        valid = name or bytes(ID_BYTES)
        require_document(stored, valid, named=named, sketched=self.catalog.sketched)
        self.catalog.check_key(stored.key)
        return stored if named else stored._replace(id=int(stored.key))

    def _adopt(self, stray: Stray) -> None:
        """Find out which tree a stray page belongs to."""
        for entry in stray.entries:
            if name := self._tree_of(entry.key, entry.value or b""):
                self._survey.leaves.setdefault(name, array("Q")).append(stray.page)
                return
        if not stray.entries:
            length = record_length(stray.value)
            if name := self._tree_of(b"", stray.value[:length]):
                self._values[name].append((stray.page, length))
            for pages in self._tables:
                length = page_length(stray.value, pages.columns)
                if _is_page(stray.value[:length], pages):
                    self._values[pages.name].append((stray.page, length))
                    return

    def _tree_of(self, key: bytes, value: bytes) -> str | None:
        """Return the name of the tree of an entry, if it is one of those that are read."""
        for pages in self._tables:
            if len(key) == pages.key_width and _is_page(value, pages):
                return pages.name
        try:
            self._record(key, value)
        except (DamagedError, InputError):
            return None
        return "documents"


class _Repair:
    """One run: what was written, and what was lost."""

    def __init__(self, contents: _Contents, survey: Survey) -> None:
        self._contents = contents
        self._survey = survey
        self._index = contents.index
        self._catalog = contents.catalog
        self._next_id = 0
        self._placed = self._sketches = 0
        self._recorded = np.empty(0, np.uint64)  # ids that aren't those of bare documents
        self.documents = 0
        self.missing: int | None = None
        self.lost: list[Key] = []
        self.problems: list[Problem] = []

    def run(self, built: Environment, memory: int) -> None:
        """Fill a new database."""
        old = self._old_counters()
        with built.write() as into:
            self._write_records(into, old.next_id if old else _HIGHEST_ID)
            if isinstance(self._catalog, IntegerCatalog):
                self._write_bare(into, self._catalog.ids)
            else:
                self._find_lost_keys(into)
        with built.read() as txn, built.write() as into:
            load_tables(into, self._index, lambda: self._places(txn), self._placed, memory)
            counters = Counters(
                max(old.next_id if old else 0, self._next_id),
                self.documents,
                self.documents - self._placed,
                old.writes if old else 1,
                self._sketches if self._catalog.sketched else None,
            )
            into.put("counters", b"counters", counters.pack())
        if old:
            self.missing = max(old.documents - self.documents, 0)

    def _old_counters(self) -> Counters | None:
        survey = self._survey
        try:
            return Counters.unpack(survey.file.entry(survey.trees.get("counters"), b"counters"))
        except DamagedError:
            what = "they are lost, so it isn't known how many documents there were"
            self.problems.append(Problem("counters", what))
            return None

    # Documents with a record

    def _write_records(self, into: WriteTransaction, beyond: int) -> None:
        """Write the documents with a record, those with text keys under their ids if possible.

        A document whose id is taken, or not less than `beyond`, gets a new one at the end.
        """
        homeless: list[Stored] = []
        ids: list[Column] = [self._recorded]
        found = self._contents.records()
        while batch := list(islice(found, _BATCH)):
            kept: dict[int, Stored] = {}
            for stored in self._without_known(into, batch):
                if self._catalog.kind == "text" and not (
                    0 <= stored.id < beyond
                    and stored.id not in kept
                    and into.get("documents", stored.id.to_bytes(ID_BYTES)) is None
                ):
                    homeless.append(stored)
                else:
                    kept[stored.id] = stored
            self._save(into, kept.values())
            ids.append(np.fromiter(kept, np.uint64, len(kept)))
        for stored in self._without_known(into, homeless):
            self._save(into, [stored._replace(id=self._next_id)])
        self._recorded = np.sort(np.concatenate(ids))

    def _without_known(self, into: WriteTransaction, batch: list[Stored]) -> list[Stored]:
        """Leave out documents whose key was written already."""
        known = self._catalog.find_many(into, [stored.key for stored in batch])
        fresh: dict[Key, Stored] = {}
        for stored in batch:
            if known[stored.key] is None and stored.key not in fresh:
                fresh[stored.key] = stored
            else:
                what = f"the document {stored.key!r} is there twice; the first is taken"
                self.problems.append(Problem("documents", what))
        return list(fresh.values())

    def _save(self, into: WriteTransaction, documents: Iterable[Stored]) -> None:
        self._catalog.write(into, list(documents), [])
        for stored in documents:
            self.documents += 1
            self._placed += stored.fingerprint is not None
            self._sketches += bool(stored.sketch)
            if self._catalog.kind == "text":
                self._next_id = max(self._next_id, stored.id + 1)

    def _find_lost_keys(self, into: WriteTransaction) -> None:
        """Find the text keys whose documents are gone."""
        for entry in self._survey.entries("keys"):
            if into.get("keys", entry.key) is None:
                number = entry.value or b""
                stored = into.get("documents", number) if len(number) == ID_BYTES else None
                if stored is None:
                    self.lost.append(entry.key.decode(errors="replace"))

    # Bare documents: rows of `ids` and of the home table, without a record

    def _write_bare(self, into: WriteTransaction, pages: Pages) -> None:
        """Write the rows of `ids` of the bare documents whose row of the home table is intact."""
        home = self._index.home
        bare = np.sort(np.concatenate([pages.empty()[0], *map(self._bare_ids, self._home_rows())]))
        fresh = differs(bare)
        if not fresh.all():
            # Which of the rows is right can't be known.
            what = f"{np.count_nonzero(~fresh)} rows have the id of another one"
            self.problems.append(Problem(home.name, what))
            self._recorded = np.sort(np.concatenate([self._recorded, bare[~fresh]]))
            bare = bare[~among(bare, self._recorded)]
        dated = np.zeros(len(bare), np.bool_)
        for rows in gathered(self._contents.rows(pages), BLOCK):
            wanted = among(rows[0], bare)
            dated |= among(bare, np.sort(rows[0]))
            self.lost += rows[0][~wanted & ~among(rows[0], self._recorded)].tolist()
            _splice(into, pages, [column[wanted] for column in rows])
        undated = bare[~dated]
        if len(undated):
            what = f"{len(undated)} documents have lost their time of adding, and have this one"
            self.problems.append(Problem(pages.name, what))
            self._date(into, pages, undated)
        self.documents += len(bare)
        self._placed += len(bare)
        self._report_stripped()

    def _date(self, into: WriteTransaction, pages: Pages, undated: Column) -> None:
        """Write the rows of `ids` of documents that have lost them."""
        below = np.uint64(min(self._index.plan.bits, 64) - _HIGH_BITS)
        now = int(time.time())
        for rows in self._home_rows():
            wanted = among(rows[-1], undated)
            high, ids = rows[0][wanted] >> below, rows[-1][wanted]
            _splice(into, pages, [ids, high, np.full(len(ids), now, np.uint64)])

    def _report_stripped(self) -> None:
        tree = self._survey.trees.get("documents")
        lost = tree.entries - len(self._recorded) if tree else 0
        if lost > 0:
            what = f"{lost} records are lost; what is left of their documents are fingerprints"
            self.problems.append(Problem("documents", what))

    def _home_rows(self) -> Iterator[Rows]:
        return gathered(self._contents.rows(self._index.home), BLOCK)

    def _bare_ids(self, rows: Rows) -> Column:
        ids = rows[-1]
        return ids[~among(ids, self._recorded)]

    # The tables

    def _places(self, txn: ReadTransaction) -> Iterator[tuple[Fingerprints, Column]]:
        """Yield all fingerprints with the ids of their documents."""
        for block in records(txn, self._catalog, self._index.plan.bits):
            *words, ids = block.rows()
            yield of_words(words), ids
        if self._catalog.kind == "integer":
            for rows in self._home_rows():
                bare = ~among(rows[-1], self._recorded)
                *words, ids = (column[bare] for column in rows)
                yield of_words(words), ids


def _splice(into: WriteTransaction, pages: Pages, rows: Rows) -> None:
    """Insert rows that aren't in order."""
    order = np.argsort(rows[0], kind="stable")
    ordered = [column[order] for column in rows]
    fresh = differs(ordered[0])
    pages.splice(into, [column[fresh] for column in ordered], pages.empty())


def _rows(value: bytes | None, pages: Pages) -> Rows:
    if value is None:
        raise DamagedError("it can't be read")
    rows = unpack_rows(value, pages.columns)
    if page_length(value, pages.columns) != len(value):
        raise DamagedError("it has another number of columns")
    # With 128 bits, a page of the home table has as many columns as one of `ids`.
    if pages.name == IntegerCatalog.ids.name and (rows[1] >> np.uint64(_HIGH_BITS)).any():
        raise DamagedError("it is one of another table")
    return rows


def _is_page(value: bytes, pages: Pages) -> bool:
    try:
        return len(_rows(value, pages)[0]) > 0
    except DamagedError:
        return False
