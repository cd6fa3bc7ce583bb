"""Check a database: pages and records, and whether every table agrees with the documents.

LMDB trusts its file. A damaged one may end the process that reads it by a signal, or keep it busy
for ever; so a child process reads it, and how that process ends is part of the answer.

Each table is compared with the documents by digests, which don't depend on the order of the rows: a
number of rows and a sum of their mixes, for each of 4,096 buckets. Only where digests differ are
rows read again, those of the buckets that differ, and no more of them than memory is set aside for.
"""

import os
import resource
import signal
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from fpdb.arrays import Rows, gathered, joined
from fpdb.documents.catalog import Catalog, IntegerCatalog, View
from fpdb.documents.layout import database_names, layout, read_layout
from fpdb.errors import DamagedError, FormatError, FpdbError, OpenError, WorkerError
from fpdb.fingerprint import canonical
from fpdb.maintenance.scan import (
    Buckets,
    Digest,
    Faults,
    Mixer,
    Order,
    Records,
    buckets_of,
    entries,
    in_step,
    records,
    table_rows,
)
from fpdb.models import Problem
from fpdb.processes import Worker
from fpdb.storage import Environment, ReadTransaction, open_checks
from fpdb.storage.format import (
    MINHASH,
    Counters,
    require_checksum,
    require_supported,
    unpack_header,
)
from fpdb.storage.lmdb_file import DATA_FILE
from fpdb.tables import Index, Permutation
from fpdb.tables.bits import as_words, of_words
from fpdb.tables.pages import Pages

# The limits of the child process: far more than an intact database needs.
_MEMORY = 4 << 30
_SECONDS = 600
_SECONDS_A_MEGABYTE = 2

_SHOWN = 200
_NEXT = "next"  # the item that asks the child for another problem

# Rows of both sides of a comparison that are held at once: they take about 60 MB.
COMPARED = 1 << 18
# Records that are looked up in the home table at once.
HELD = 1 << 17
_HIGH_BITS = 32
_ID_BYTES = 8

Row = tuple[int, ...]


def check(path: str | os.PathLike[str], *, deep: bool = False) -> Iterator[Problem]:
    """Yield everything that is wrong with a database, which a child process reads.

    However damaged the file is, this process survives: if it kills the child, that is a problem
    too, and so is what keeps the database from being opened. The path must lead to a database that
    may be read. No secret of a recipe is needed.

    With `deep`, LMDB's own structure is checked first, page by page, without mapping the file:
    every page must be reachable once or free. Others may read and write meanwhile.

    Nothing is read before the result is iterated; the child ends when the iterator is closed.

    Raises:
        WorkerError: The child couldn't start, or somebody killed it, so the check isn't complete.
    """
    import tempfile

    directory = Path(os.path.realpath(path))
    open_checks.identify(directory)
    with tempfile.TemporaryFile() as complaints:
        child = Worker(_Reading(directory, deep=deep), stderr=complaints.fileno())
        try:
            while problem := child.call(_NEXT):
                yield problem
        except WorkerError:
            if child.exit_code is None:
                raise
            yield _death(child.exit_code, complaints)
        finally:
            child.kill()
            child.close()


def _death(code: int, complaints: IO[bytes]) -> Problem:
    """Return the problem that ended the child, or raise WorkerError if it isn't the database's."""
    complaints.seek(0)
    lines = complaints.read().decode(errors="replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")[:_SHOWN]
    if code >= 0:
        raise WorkerError(
            f"the child process of the check ended with exit code {code}: {last or 'no message'}",
            hint="can this Python start, and import fpdb, as a child process?",
        )
    name = signal.Signals(-code).name
    if -code in {signal.SIGKILL, signal.SIGTERM}:
        raise WorkerError(
            f"the child process of the check was killed by {name}, so the check isn't complete",
            hint="was memory short? check again when there is more",
        )
    reason = f": {last}" if last else ""
    if -code == signal.SIGXCPU:
        reason = ": it took far more time than a file of this size needs"
    return Problem(DATA_FILE, f"it killed the process that read it by {name}{reason}")


class _Reading:
    """Reads a database in the child; each call returns the next problem, None after the last."""

    def __init__(self, directory: Path, *, deep: bool) -> None:
        self._directory = directory
        self._deep = deep
        self._problems: Iterator[Problem] | None = None

    def __call__(self, _: object) -> Problem | None:
        if self._problems is None:
            self._problems = read_problems(self._directory, deep=self._deep)
        return next(self._problems, None)


def read_problems(directory: Path, *, deep: bool) -> Iterator[Problem]:
    """Yield everything that is wrong with a database, which this process reads within limits."""
    try:
        _limit(directory)
        yield from _problems(directory, deep=deep)
    except (FormatError, OpenError):
        raise  # what can't be opened isn't a problem of the database, but an error of the call
    except FpdbError as error:
        yield Problem(DATA_FILE, str(error))
    except MemoryError:
        what = "reading it takes far more memory than an intact database needs"
        yield Problem(DATA_FILE, what)
    except Exception as error:  # whatever damage leads to is a problem of the database
        what = f"it can't be read to its end: {type(error).__name__}: {error}"
        yield Problem(DATA_FILE, what)


def _limit(directory: Path) -> None:
    size = (directory / DATA_FILE).stat().st_size
    seconds = _SECONDS + _SECONDS_A_MEGABYTE * (size >> 20)
    for what, most in (
        (resource.RLIMIT_DATA, _MEMORY),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (most if hard < 0 else min(most, hard), hard))


def _problems(directory: Path, *, deep: bool) -> Iterator[Problem]:
    from fpdb.storage import survey

    for fault in survey.meta_faults(directory):
        yield Problem(DATA_FILE, fault)
    if deep:
        for fault in survey.structure_faults_in_use(directory):
            yield Problem(DATA_FILE, fault)
    with Environment.open(directory, readonly=True) as environment:
        _, index, catalog = read_layout(environment)
        with environment.read() as txn:
            yield from check_view(View(txn, index, catalog))


def require_complete_copy(directory: Path) -> None:
    """Raise DamagedError if a copy of a database is torn or damaged."""
    for problem in check(directory, deep=True):
        raise DamagedError(
            f"{directory} is a copy that isn't complete: {problem.where}: {problem.what}",
            hint="copy it with `fpdb backup`, or under `fpdb hold`",
        )


def check_view(view: View) -> Iterator[Problem]:
    """Yield everything that is wrong in one snapshot of a database, read by this process.

    What can't be read is reported, and what depends on it isn't compared. Memory is bounded,
    however many documents there are.
    """
    yield from _check_header(view)
    for name in database_names(view.index, view.catalog):
        yield from _check_lookups(view.txn, name)
    yield from _Comparison(view).problems()


def _check_header(view: View) -> Iterator[Problem]:
    """Yield what is wrong in the header that is stored now."""
    catalog, plan = view.catalog, view.index.plan
    try:
        head = unpack_header(view.txn.get("header", b"header") or b"")
        require_supported(head, readonly=True)
        index, _ = layout(head)
        recipe, recipe_id = canonical(head["recipe"])
    except FpdbError as error:
        yield Problem("header", str(error))
        return
    sketch = MINHASH if catalog.sketched else None
    for what, found, expected in (
        ("keys", head["keys"], catalog.kind),
        ("sketch", head.get("sketch"), sketch),
        ("features", head["features"], [sketch] if sketch else []),
        ("recipe_id", head["recipe_id"], recipe_id),
        ("bits", recipe["bits"], plan.bits),
    ):
        if found != expected:
            yield Problem("header", f"{what} is {found!r}, expected {expected!r}")
    if index.plan != plan:
        yield Problem("header", f"the plan is {index.plan.name}, expected {plan.name}")


def _check_lookups(txn: ReadTransaction, name: str) -> Iterator[Problem]:
    """Look every key of a tree up from its root, and compare its order with the one before.

    A scan goes from page to page and never follows a key down the tree; nearly every call does. If
    each key is found, and the keys are in order, then the place of any other key is found as well.
    """
    database, get = txn.databases[name], txn.raw.get
    kinds = [kind for kind, there in database.flags().items() if there]
    if kinds:
        yield Problem(name, f"its entries are kept as {', '.join(sorted(kinds))}, expected none")
    count = disordered = unfound = 0
    last = first_disordered = first_unfound = b""
    with txn.cursor(name) as cursor:
        for key in map(bytes, cursor.iternext(keys=True, values=False)):
            if key <= last:
                first_disordered = first_disordered or key
                disordered += 1
            if get(key, None, database) is None:
                first_unfound = first_unfound or key
                unfound += 1
            last = key
            count += 1
    if disordered:
        yield Problem(name, f"{disordered} keys aren't in order, first {first_disordered.hex()}")
    if unfound:
        yield Problem(name, f"{unfound} keys aren't found, first {first_unfound.hex()}")
    if count != txn.entries(name):
        yield Problem(name, f"{count} entries, expected {txn.entries(name)}")


class Side(NamedTuple):
    """One of two sets of rows that are compared: its digest, and how to read it again."""

    digest: Digest
    read: Callable[[], Iterable[Rows]]


class Difference(NamedTuple):
    """Rows that are missing, and rows that belong to no document; `complete` if that is all."""

    missing: list[Row]
    strange: list[Row]
    complete: bool


# How rows that are missing, and rows that are strange, are reported.
_TABLE = "the row {row} of a document is missing", "the row {row} belongs to no document"
_OF_ID = (
    "the entry of the document {id} is missing",
    "an entry names the document {id}, which has another one",
)


class _Census:
    """What one scan of all records counts."""

    def __init__(self) -> None:
        self.home, self.keys, self.short = Digest(), Digest(), Digest()
        self.documents = self.short_texts = self.sketches = self.last_id = 0

    def add(self, block: Records) -> None:
        """Count a block of records."""
        self.documents += len(block.ids)
        self.short_texts += len(block.digests)
        self.sketches += block.sketches
        self.last_id = max(self.last_id, int(block.ids.max(initial=0)))


class _Comparison:
    """One check of a snapshot: the digests of its tables, and of its documents."""

    def __init__(self, view: View) -> None:
        self._txn = view.txn
        self._index: Index = view.index
        self._catalog: Catalog = view.catalog
        self._below = np.uint64(min(view.index.plan.bits, 64) - _HIGH_BITS)
        self._mixer = Mixer()
        self._census = _Census()
        # How the home table differs from the documents, and what it lacks of them.
        self._home = Difference([], [], complete=True)
        self._lacking: set[Row] = set()

    def problems(self) -> Iterator[Problem]:
        """Scan every table and the records, and compare them."""
        home, rows, marks = self._index.home, Digest(), Digest()
        numbered = isinstance(self._catalog, IntegerCatalog)
        home_read = yield from self._scan(home, rows, marks if numbered else None)
        further = [(pages, Digest()) for pages in self._index.further]
        readable = []
        for pages, digest in further:
            readable.append((yield from self._scan(pages, digest)))
        ids_read = not numbered or (yield from self._scan(IntegerCatalog.ids, Digest()))
        if (yield from self._count_records()) and ids_read:
            documents = self._census.documents
            if numbered:
                documents = yield from self._compare_numbered(rows, marks, compare=home_read)
            else:
                yield from self._compare_entries("keys", self._census.keys)
                if home_read:
                    found = Side(rows, partial(table_rows, self._txn, home))
                    expected = Side(
                        self._census.home, lambda: (block.rows() for block in self._records())
                    )
                    self._home = yield from self._compare(home.name, found, expected, _OF_ID)
                    self._lacking = {row[:-1] for row in self._home.missing}
            yield from self._compare_entries("short", self._census.short)
            yield from self._check_counters(documents)
        if home_read and self._home.complete:
            permutations = [table.permutation for table in self._index.plan.tables[1:]]
            chosen = zip(further, permutations, readable, strict=True)
            yield from self._compare_further(
                [(*table, permutation) for table, permutation, there in chosen if there]
            )

    # Scans, which make the digests

    def _scan(
        self, pages: Pages, rows: Digest, marks: Digest | None = None
    ) -> Generator[Problem, None, bool]:
        """Read a table, and report what is wrong with its pages; return whether all can be read.

        The `marks` of the home table are the part of its rows that `ids` has as well.
        """
        faults, order = Faults(), Order()
        for block in self._distinct_rows(pages, order, faults):
            yield from faults.take()
            rows.add(self._mixer.rows(block))
            if marks:
                marks.add(self._mixer.rows(self._marks(block)))
        if not order.kept:
            yield Problem(pages.name, "rows aren't in order")
        if order.repeated:
            yield Problem(pages.name, f"{order.repeated} rows are stored twice")
        return faults.complete

    def _distinct_rows(
        self, pages: Pages, order: Order, faults: Faults | None = None
    ) -> Iterator[Rows]:
        """Read a table without the rows whose key is that of the row before."""
        for rows in table_rows(self._txn, pages, faults):
            fresh = order.take(rows[: pages.key_width // _ID_BYTES])
            yield rows if fresh.all() else [column[fresh] for column in rows]

    def _count_records(self) -> Generator[Problem, None, bool]:
        """Read all records, and report those that can't be read; return whether all can."""
        faults, census = Faults(), self._census
        for block in self._records(faults):
            yield from faults.take()
            census.add(block)
            census.home.add(self._mixer.rows(block.rows()))
            census.keys.add(self._mixer.rows(self._key_rows(block)))
            census.short.add(self._mixer.rows(self._short_rows(block)))
        return faults.complete

    def _records(self, faults: Faults | None = None) -> Iterator[Records]:
        return records(self._txn, self._catalog, self._index.plan.bits, faults)

    def _marks(self, rows: Rows) -> Rows:
        """Return the highest bits and the ids of rows of the home table, as `ids` has them."""
        return [rows[0] >> self._below, rows[-1]]

    def _key_rows(self, block: Records) -> Rows:
        named = block.ids[: len(block.keys)]  # none if keys are integers
        return [self._mixer.texts(block.keys), named]

    def _short_rows(self, block: Records) -> Rows:
        return [self._mixer.texts(block.digests), block.ids[~block.placed]]

    # Comparisons

    def _compare(
        self, where: str, found: Side, expected: Side, wording: tuple[str, str]
    ) -> Generator[Problem, None, Difference]:
        """Report the rows that are on one side only."""
        differs = found.digest.differs(expected.digest)
        if not differs.any():
            return Difference([], [], complete=True)
        counts = found.digest.counts + expected.digest.counts
        places = differs.nonzero()[0]
        held = np.cumsum(counts[places]) <= COMPARED
        held[0] = True
        chosen = np.zeros_like(differs)
        chosen[places[held]] = True
        own, wanted = (self._rows_in(chosen, side.read) for side in (found, expected))
        missing, strange = sorted(wanted - own), sorted(own - wanted)
        for rows, words in zip((missing, strange), wording, strict=True):
            for row in rows:
                yield Problem(where, words.format(row=", ".join(map(str, row)), id=row[-1]))
        there, total = int(found.digest.counts.sum()), int(expected.digest.counts.sum())
        complete = bool(held.all())
        if not complete or there - total > len(strange) - len(missing):
            what = f"it has {there:,} rows, expected {total:,}"
            more = "" if complete else "; only some of the rows that differ are named"
            yield Problem(where, what + more)
        return Difference(missing, strange, complete)

    def _rows_in(self, chosen: Buckets, read: Callable[[], Iterable[Rows]]) -> set[Row]:
        """Read the rows in some buckets."""
        rows: set[Row] = set()
        for block in read():
            inside = chosen[buckets_of(self._mixer.rows(block))]
            if inside.any():
                rows.update(zip(*(column[inside].tolist() for column in block), strict=True))
        return rows

    def _compare_entries(self, name: str, expected: Digest) -> Generator[Problem, None, None]:
        """Compare `keys` or `short` with the records."""
        rows_of = self._key_rows if name == "keys" else self._short_rows
        faults, found = Faults(), Digest()
        for block in self._entries(name, faults):
            yield from faults.take()
            found.add(self._mixer.rows(block))
        own = Side(found, partial(self._entries, name))
        wanted = Side(expected, lambda: map(rows_of, self._records()))
        yield from self._compare(name, own, wanted, _OF_ID)

    def _entries(self, name: str, faults: Faults | None = None) -> Iterator[Rows]:
        """Read `keys` or `short` as rows of a text and an id."""
        for texts, ids in entries(self._txn, name, faults):
            yield [self._mixer.texts(texts), ids]

    def _check_counters(self, documents: int) -> Iterator[Problem]:
        census = self._census
        try:
            counters = Counters.unpack(self._txn.get("counters", b"counters"))
        except DamagedError as error:
            yield Problem("counters", str(error))
            return
        sketches = census.sketches if self._catalog.sketched else None
        for what, found, expected in (
            ("documents", documents, counters.documents),
            ("short documents", census.short_texts, counters.short),
            ("sketches", sketches, counters.sketches),
        ):
            if found != expected:
                yield Problem("counters", f"{found} {what}, expected {expected}")
        last = census.last_id
        if self._catalog.kind == "text" and documents and last >= counters.next_id:
            yield Problem("counters", f"the id {last} is taken, the next is {counters.next_id}")

    # Documents with integer keys, of which not all have records

    def _compare_numbered(
        self, rows: Digest, marks: Digest, *, compare: bool
    ) -> Generator[Problem, None, int]:
        """Compare `ids`, the records and the home table; return the number of documents.

        A document without a record is known by its row of `ids` and its row of the home table,
        which agree on the highest 32 bits of the fingerprint.
        """
        expected, problems = Digest(), list[Problem]()
        documents = 0
        for count, block in self._numbered(problems):
            yield from problems
            problems.clear()
            documents += count
            expected.add(self._mixer.rows(block))
        if not compare:
            return documents
        home = self._index.home
        found = Side(marks, lambda: map(self._marks, table_rows(self._txn, home)))
        wanted = Side(expected, lambda: (block for _, block in self._numbered([])))
        self._home = yield from self._compare(home.name, found, wanted, _OF_ID)
        if self._census.home.differs(rows).any():  # else all documents have records, and agree
            known = {row[-1] for row in self._home.missing}
            for row in self._not_at_home():
                self._lacking.add(row[:-1])
                if row[-1] not in known:
                    yield Problem(home.name, _OF_ID[0].format(id=row[-1]))
        return documents

    def _numbered(self, problems: list[Problem]) -> Iterator[tuple[int, Rows]]:
        """Join the rows of `ids` with the records; where they disagree, the record counts.

        Yield for each block of ids the number of documents, and the rows that the home table must
        have of them, as far as `ids` has these.
        """
        stored = self._distinct_rows(IntegerCatalog.ids, Order())
        recorded = (
            [block.ids, block.words[0] >> self._below, block.added, block.placed.astype(np.uint64)]
            for block in self._records()
        )
        for (ids, high, added), (own, own_high, own_added, placed) in in_step(
            [stored, recorded], (3, 4)
        ):
            at = ids.searchsorted(own)
            there = at < len(ids)
            there[there] = ids[at[there]] == own[there]
            same = there.copy()
            place = at[there]
            same[there] = (high[place] == own_high[there]) & (added[place] == own_added[there])
            for gone, what in ((~there, "is missing"), (there & ~same, "isn't that of its record")):
                problems += [
                    Problem("ids", f"the row of the document {number} {what}")
                    for number in own[gone].tolist()
                ]
            bare = np.ones(len(ids), np.bool_)
            bare[place] = False
            known = placed.astype(np.bool_)
            rows = joined([[high[bare], ids[bare]], [own_high[known], own[known]]])
            yield len(ids) + int(np.count_nonzero(~there)), rows

    def _not_at_home(self) -> Iterator[Row]:
        """Yield the rows of records that the home table doesn't have."""
        for rows in gathered((block.rows() for block in self._records()), HELD):
            gone = ~self._index.holds(self._txn, of_words(rows[:-1]), rows[-1])
            yield from zip(*(column[gone].tolist() for column in rows), strict=True)

    # The further tables, which have distinct fingerprints only

    def _compare_further(
        self, tables: list[tuple[Pages, Digest, Permutation]]
    ) -> Iterator[Problem]:
        expected = [Digest() for _ in tables]
        for words in self._fingerprints():
            for (_, _, permutation), digest in zip(tables, expected, strict=True):
                permuted = permutation.apply(of_words(words))
                digest.add(self._mixer.rows(as_words(permuted)))
        for (pages, found, permutation), digest in zip(tables, expected, strict=True):
            own = Side(found, partial(table_rows, self._txn, pages))
            wanted = Side(digest, partial(self._all_permuted, permutation))
            yield from self._compare(pages.name, own, wanted, _TABLE)

    def _all_permuted(self, permutation: Permutation) -> Iterator[Rows]:
        for words in self._fingerprints():
            yield as_words(permutation.apply(of_words(words)))

    def _fingerprints(self) -> Iterator[Rows]:
        """Yield the fingerprints of all documents: of the home table, as it should be.

        They are distinct, but for what the home table lacks. (Digests of rows that are there twice
        differ; but then the rows are compared as sets.)
        """
        order, strange = Order(), self._home.strange
        ids = np.array(sorted({row[-1] for row in strange}), np.uint64)
        gone = set(strange)
        for rows in table_rows(self._txn, self._index.home):
            keep = np.ones(len(rows[0]), np.bool_)
            if gone:
                compared = self._marks(rows) if self._catalog.kind == "integer" else rows
                for place in np.isin(rows[-1], ids).nonzero()[0].tolist():
                    keep[place] = tuple(column.item(place) for column in compared) not in gone
            words = [column[keep] for column in rows[:-1]]
            fresh = order.take(words)
            yield [column[fresh] for column in words]
        if self._lacking:
            columns = np.array(sorted(self._lacking), np.uint64).T
            yield list(np.ascontiguousarray(columns))


def require_intact(view: View) -> None:
    """Raise DamagedError unless all checksums are right, and so is the number of documents.

    Whether the tables agree with each other is what `check` compares.
    """
    txn, index = view.txn, view.index
    counters = Counters.unpack(txn.get("counters", b"counters"))
    rows = sum(len(page[0]) for page in index.home.scan(txn))
    for pages in (*index.further, *view.catalog.pages):
        for _ in pages.scan(txn):
            pass
    with txn.cursor("documents") as cursor:
        for value in cursor.iternext(keys=False, values=True):
            require_checksum(value)
    if rows != counters.documents - counters.short:
        raise DamagedError(
            f"the home table has {rows:,} rows, expected {counters.documents - counters.short:,}",
            hint="run `fpdb check`",
        )
