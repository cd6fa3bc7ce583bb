"""Check a database: pages and records, and whether every table agrees with the documents.

LMDB trusts its file. A damaged one may end the process that reads it by a signal, or keep it busy
for ever; so a child process reads it, and how that process ends is part of the answer.

Each table is compared with the documents by digests, which don't depend on the order of the rows.
A repair makes all tables anew, so nothing says which of their rows are wrong.
"""

import os
import signal
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from fpdb.arrays import Column, Rows, differs, gathered, joined, unique
from fpdb.documents.catalog import (
    KEYS,
    Catalog,
    IntegerCatalog,
    View,
    key_bytes,
    key_pages,
)
from fpdb.documents.layout import check_runs, database_names, layout, read_layout
from fpdb.errors import DamagedError, FormatError, FpdbError, InputError, OpenError, WorkerError
from fpdb.fingerprint import canonical
from fpdb.fingerprint.sketches import mix
from fpdb.models import Problem
from fpdb.processes import Worker, limit, require_address_space, signal_name
from fpdb.progress import Meter, show, tracked
from fpdb.storage import Environment, ReadTransaction, open_checks, survey
from fpdb.storage.block import Block
from fpdb.storage.format import (
    ID_BYTES,
    Counters,
    Stored,
    require_checksum,
    require_supported,
    unpack_header,
    unpack_record,
)
from fpdb.storage.lmdb_file import DATA_FILE
from fpdb.tables import Permutation
from fpdb.tables.bits import as_words, of_words
from fpdb.tables.index import HIGH_BITS
from fpdb.tables.levels import Levels
from fpdb.tables.sorted_pages import SortedPages, changed_rows

# The limits of the child process: far more than an intact database needs.
_MEMORY = 4 << 30
_SECONDS = 600
_SECONDS_A_MEGABYTE = 2

ROWS, RECORDS = 1 << 16, 1 << 13  # of a table, and of documents, that are read at once

_SEEDS = [int.from_bytes(os.urandom(8)) for _ in range(4)]

_MISSING = "the entry of the document {} is missing"
_OTHER = "the row of the document {} isn't that of its record"


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
    directory = open_checks.resolved(path)
    open_checks.identify(directory)
    with Worker(partial(read_problems, deep=deep)) as child:
        try:
            yield from child.values(directory, show)
        except WorkerError:
            killer = -(child.exit_code or 0)
            if killer <= 0 or killer in {signal.SIGKILL, signal.SIGTERM}:
                raise
            yield Problem(DATA_FILE, f"it killed the process that read it by {signal_name(killer)}")


def read_problems(directory: Path, *, deep: bool) -> Iterator[Problem]:
    """Yield everything that is wrong with a database, which this process reads within limits."""
    try:
        size = os.lstat(directory / DATA_FILE).st_size
        limit(_MEMORY, _SECONDS + _SECONDS_A_MEGABYTE * (size >> 20))
        if deep:
            # A snapshot keeps the pages that are read here from being used again.
            with Environment.open(directory, readonly=True) as environment, environment.read():
                faults = survey.structure_faults(directory)
            yield from (Problem(DATA_FILE, fault) for fault in faults)
        with Environment.open(directory, readonly=True) as environment:
            _, index, catalog = read_layout(environment)
            with environment.read() as txn:
                yield from check_view(View(txn, index, catalog))
    except (FormatError, OpenError):
        raise  # what can't be opened isn't a problem of the database, but an error of the call
    except FpdbError as error:
        yield Problem(DATA_FILE, str(error))
    except MemoryError:
        require_address_space(_MEMORY)
        yield Problem(DATA_FILE, "reading it takes far more memory than an intact database needs")
    except Exception as error:  # whatever damage leads to is a problem of the database
        yield Problem(DATA_FILE, f"it can't be read to its end: {type(error).__name__}: {error}")


def require_complete_copy(directory: Path) -> None:
    """Raise DamagedError if a copy of a database is torn or damaged."""
    for problem in check(directory, deep=True):
        raise DamagedError(
            f"{directory} is a copy that isn't complete: {problem.where}: {problem.what}",
            hint="copy it with `fpdb backup`; `fpdb repair` writes what is intact into another",
        )


def check_view(view: View) -> Iterator[Problem]:
    """Yield everything that is wrong in one snapshot of a database, read by this process.

    What can't be read is reported, and what depends on it isn't compared. Memory is bounded,
    however many documents there are.
    """
    yield from _check_header(view)
    names = list(database_names(view.index, view.catalog))
    step = Meter("look up the keys", "key", sum(map(view.txn.entries, names)))
    for name in names:
        yield from _check_lookups(view.txn, name, step)
    yield from check_runs(view.txn)
    yield from _Check(view).problems()


def _check_header(view: View) -> Iterator[Problem]:
    catalog, plan = view.catalog, view.index.plan
    try:
        head = unpack_header(view.txn.get("header", b"header") or b"")
        require_supported(head, readonly=True)
        index, _ = layout(head)
        recipe, recipe_id = canonical(head["recipe"])
    except FpdbError as error:
        yield Problem("header", str(error))
        return
    for what, found, expected in (
        ("keys", head["keys"], catalog.kind),
        ("recipe_id", head["recipe_id"], recipe_id),
        ("bits", recipe["bits"], plan.bits),
        ("plan", index.plan.name, plan.name),
    ):
        if found != expected:
            yield Problem("header", f"{what} is {found!r}, expected {expected!r}")


def _check_lookups(txn: ReadTransaction, name: str, step: Meter) -> Iterator[Problem]:
    """Look every key of a tree up from its root, and compare its order with the one before.

    A scan goes from page to page and never follows a key down the tree; nearly every call does. If
    each key is found, and the keys are in order, then the place of any other key is found as well.
    """
    database, get = txn.databases[name], txn.raw.get
    kinds = [kind for kind, there in database.flags().items() if there]
    if kinds:
        yield Problem(name, f"its entries are kept as {', '.join(sorted(kinds))}, expected none")
    count, last = 0, b""
    wrong: dict[str, list[bytes]] = {"in order": [], "found": []}
    with txn.cursor(name) as cursor:
        for key in map(bytes, step.count(cursor.iternext(keys=True, values=False))):
            if key <= last:
                wrong["in order"].append(key)
            if get(key, None, database) is None:
                wrong["found"].append(key)
            last = key
            count += 1
    for what, keys in wrong.items():
        if keys:
            yield Problem(name, f"{len(keys)} keys aren't {what}, first {keys[0].hex()}")
    if count != txn.entries(name):
        yield Problem(name, f"{count} entries, expected {txn.entries(name)}")


def digest(blocks: Iterable[Rows]) -> NDArray[np.uint64]:
    """Return a digest of rows, in any order: their number, and a sum of mixes.

    Two sets of rows that differ have the same digest with a chance of one in 2**64. Nobody can
    choose rows so that they do, because nobody can predict the seeds. Digests can be added up.
    """
    total = np.zeros(2, np.uint64)
    for rows in blocks:
        mixed = np.zeros(len(rows[0]), np.uint64)
        for column, seed in zip(rows, _SEEDS, strict=False):
            mixed = mix((mixed ^ column) + np.uint64(seed))
        total += np.array([len(mixed), mixed.sum()], np.uint64)
    return total


def hashed(texts: Iterable[bytes]) -> Column:
    """Return a number for each text, which represents it in rows."""
    return np.array([xxhash.xxh3_64_intdigest(text, _SEEDS[0]) for text in texts], np.uint64)


class _Check:
    """Compares the tables of a snapshot with its documents, and with each other.

    With integer keys, `ids` has the documents, and only some have records. Then the home table is
    compared with `ids`, by what both have of a document: its id and the highest bits of its
    fingerprint; and each record is looked up in both.
    """

    def __init__(self, view: View) -> None:
        self._txn, self._index, self._catalog = view.txn, view.index, view.catalog
        self._bits = view.index.plan.bits
        self._numbered = view.catalog.kind == "integer"
        self._home, self._by_key = view.index.home.name, view.catalog.by_key.name
        self._tables: dict[str, Levels[Any]] = {pages.name: pages for pages in _tables(view)}
        # Recent pages are compared together with the others.
        self._table_of = {
            name: table for table, pages in self._tables.items() for name in pages.names
        }
        self._further = {
            pages.name: table.permutation
            for pages, table in zip(view.index.further, view.index.plan.tables[1:], strict=True)
        }
        self._problems: list[Problem] = []
        self._faulty: set[str] = set()  # sub-databases that aren't compared any more
        # The other tables are compared with the home table, which is read again for each.
        read = [name for pages in self._tables.values() for name in pages.names]
        read += ["short", "documents", *self._index.home.names * len(self._further)]
        self._step = Meter("compare the tables", "entry", sum(map(self._txn.entries, read)))

    def problems(self) -> Iterator[Problem]:
        """Read everything once, and compare it."""
        digests = {}
        for name in (*self._tables, "short"):
            digests[name] = digest(self._stored(name))
            yield from self._reported()
        yield from self._compare_documents(digests)
        for name, permutation in self._further.items():
            if self._faulty.isdisjoint([self._home, name]):
                self._compare(name, digests[name], digest(self._permuted(permutation)))
                yield from self._reported()

    def _report(self, where: str, what: str) -> None:
        self._problems.append(Problem(where, what))

    def _reported(self) -> Iterator[Problem]:
        """Yield the new problems; where they are, nothing is compared any more."""
        new, self._problems = self._problems, []
        self._faulty.update(self._table_of.get(problem.where, problem.where) for problem in new)
        yield from new

    # The tables

    def _stored(self, name: str) -> Iterator[Rows]:
        """Yield the rows of a sub-database in blocks, as far as they can be compared."""
        if name == "short":
            return self._short()
        pages = self._tables[name]
        rows = pages.merged(self._pages(pages), self._pages(pages.recent))
        return gathered((self._comparable(name, part) for part in rows), ROWS)

    def _comparable(self, name: str, rows: Any) -> Rows:
        if name == KEYS:
            return [
                hashed(key_pages.keys(rows)),
                np.array([number for _, number in rows], np.uint64),
            ]
        if self._numbered and name == self._home:
            return [rows[0] >> np.uint64(min(self._bits, 64) - HIGH_BITS), rows[-1]]
        if self._numbered and name == self._by_key:
            return [rows[1], rows[0]]
        return rows  # type: ignore[no-any-return]

    def _pages(self, pages: SortedPages[Any]) -> Iterator[Any]:
        """Yield the rows of pages that can be read; report the others, and rows out of order."""
        name, last = pages.name, b""
        with self._txn.cursor(name) as cursor:
            for page, value in self._step.count(cursor):
                try:
                    rows = pages.unpack(value, pages.seed_at(page))
                except DamagedError as error:
                    self._report(name, f"page {bytes(page).hex()}: {error}")
                    continue
                keys = pages.keys(rows)
                first = keys[0] if keys else b""
                if page != first:
                    what = f"page {bytes(page).hex()} has the wrong key, expected {first.hex()}"
                    self._report(name, what)
                if wrong := [key for old, key in pairwise([last, *keys]) if key <= old]:
                    what = f"{len(wrong)} rows aren't in order, or are stored twice, first "
                    self._report(name, what + wrong[0].hex())
                if keys:
                    last = keys[-1]
                    yield rows

    def _short(self) -> Iterator[Rows]:
        with self._txn.cursor("short") as cursor:
            entries = ((bytes(key), len(value)) for key, value in self._step.count(cursor))
            while block := list(islice(entries, ROWS)):
                for key, length in block:
                    if len(key) <= ID_BYTES or length:
                        self._report("short", f"{key.hex()} isn't a text with an id")
                ids = [int.from_bytes(key[-ID_BYTES:]) for key, _ in block]
                yield [hashed(key[:-ID_BYTES] for key, _ in block), np.array(ids, np.uint64)]

    def _permuted(self, permutation: Permutation) -> Iterator[Rows]:
        """Yield the rows of the home table as another table must have them."""
        last: Rows = []
        for *words, _ in gathered(self._step.count(self._index.home.scan(self._txn)), ROWS):
            both = joined([last, words]) if last else words
            fresh = differs(*both)[len(both[0]) - len(words[0]) :]
            last = [column[-1:] for column in words]
            yield as_words(permutation.apply(of_words([column[fresh] for column in words])))

    # The documents

    def _records(self) -> Iterator[list[Stored]]:
        documents: list[Stored] = []
        with self._txn.cursor("documents") as cursor:
            for name, value in self._step.count(cursor):
                number = bytes(name)
                try:
                    documents.append(intact_record(number, value, self._bits, self._catalog))
                except (DamagedError, InputError) as error:
                    self._report("documents", f"the document {shown_id(number)}: {error}")
                if len(documents) == RECORDS:
                    yield documents
                    documents = []
        yield documents

    def _compare_documents(self, digests: dict[str, NDArray[np.uint64]]) -> Iterator[Problem]:
        """Compare the records, the home table, and `keys` or `ids` with each other."""
        expected: dict[str, NDArray[np.uint64]] = defaultdict(lambda: digest(()))
        sketches = last = 0
        for records in self._records():
            block = Block.of(records, self._bits)
            for name, rows in (self._rows_of(block) | self._group_rows(records)).items():
                expected[name] += digest([rows])
            if self._numbered:
                self._look_up(block)
            sketches += int(np.count_nonzero(block.sketched))
            last = max(last, int(block.ids.max(initial=0)))
        yield from self._reported()
        if "documents" in self._faulty:
            return
        documents = digests[self._by_key] if self._numbered else expected[self._by_key]
        # Without all keys, nothing says which documents there are at home.
        keyless = self._numbered and self._by_key in self._faulty
        if keyless:
            del expected[self._home]
        elif self._numbered:
            # All of `ids` are at home, but for the short texts, which only have a record.
            expected[self._home] = documents - expected[self._home]
        for name, wanted in expected.items():
            self._compare(name, digests[name], wanted)
        yield from self._reported()
        self._check_keepers()
        yield from self._reported()
        if not keyless:
            short = int(expected["short"][0])
            yield from self._check_counters(int(documents[0]), short, sketches, last)

    def _rows_of(self, block: Block) -> dict[str, Rows]:
        """Return the rows that records must have; with integer keys, of short texts only."""
        short = block[block.short.nonzero()[0]]
        (prints, ids), *others = self._index.rows(block)
        rows: dict[str, Rows] = {}
        if self._numbered:
            rows[self._home] = [np.zeros(len(short), np.uint64), short.ids]
        else:
            rows[self._by_key] = [hashed(key_bytes(str(key)) for key in block.keys), block.ids]
            rows[self._home] = [*as_words(prints), ids]
        rows["short"] = [hashed(digest.tobytes() for digest in short.digests), short.ids]
        for table, of_texts in zip(self._index.of_texts, others, strict=True):
            rows[table.pages.name] = of_texts
        return rows

    def _group_rows(self, records: list[Stored]) -> dict[str, Rows]:
        """Return the rows of groups that records must have; unchecked ones have their keepers."""
        groups = self._index.groups
        if not groups or groups.unchecked.name in self._faulty:
            return {}
        members = [record for record in records if record.keeper]
        ids = np.array([record.id for record in members], np.uint64)
        keepers = np.array([int.from_bytes(record.keeper) for record in members], np.uint64)
        unchecked = groups.new_keepers(self._txn, ids)
        keepers[ids.searchsorted(unchecked[0])] = unchecked[1]
        return {groups.members.name: [keepers, ids], groups.unchecked.name: unchecked}

    def _check_keepers(self) -> None:
        """Look the keepers of groups up: each is there, and in no other group."""
        groups = self._index.groups
        if not groups or groups.members.name in self._faulty:
            return
        for keepers, _ in gathered(groups.members.scan(self._txn), ROWS):
            for number in unique(keepers).tolist():
                keeper = self._catalog.record(self._txn, number)
                if keeper is None or keeper.keeper:
                    self._report(groups.members.name, f"the document {number} keeps no group")

    def _look_up(self, block: Block) -> None:
        """Look records up in `ids` and in the home table, which must have the very same row."""
        if self._home not in self._faulty:
            prints, ids = self._index.rows(block)[0]
            held = self._index.holds(self._txn, prints, ids)
            for number in ids[~held].tolist():
                self._report(self._home, _MISSING.format(number))
        if self._by_key not in self._faulty:
            high = as_words(block.fingerprints)[0] >> np.uint64(min(self._bits, 64) - HIGH_BITS)
            rows = [block.ids, high, block.added.astype(np.uint64)]
            differing, _ = changed_rows(rows, IntegerCatalog.ids.find(self._txn, [block.ids]))
            for number in differing[0].tolist():
                self._report(self._by_key, _OTHER.format(number))

    def _check_counters(
        self, documents: int, short: int, sketches: int, last: int
    ) -> Iterator[Problem]:
        try:
            counters = Counters.unpack(self._txn.get("counters", b"counters"))
        except DamagedError as error:
            yield Problem("counters", str(error))
            return
        for what, found, counted in (
            ("documents", documents, counters.documents),
            ("short documents", short, counters.short),
            ("sketches", sketches if self._catalog.sketched else None, counters.sketches),
        ):
            if found != counted:
                yield Problem("counters", f"{found} {what}, expected {counted}")
        if not self._numbered and documents and last >= counters.next_id:
            yield Problem("counters", f"the id {last} is taken, the next is {counters.next_id}")

    def _compare(self, name: str, found: NDArray[np.uint64], expected: NDArray[np.uint64]) -> None:
        """Report a table whose rows could be read, and aren't the expected ones."""
        if name in self._faulty or (found == expected).all():
            return
        what = "some of its rows aren't those of the documents"
        if found[0] != expected[0]:
            what = f"it has {found[0]:,} rows, expected {expected[0]:,}"
        self._report(name, what)


def shown_id(name: bytes) -> str:
    """Return the number of an id, or its bytes if it can't be one."""
    return str(int.from_bytes(name)) if len(name) == ID_BYTES else name[:ID_BYTES].hex() + "…"


def intact_record(name: bytes, value: bytes | memoryview, bits: int, catalog: Catalog) -> Stored:
    """Return a record; raise an error unless it is one of this kind of database, and its id's."""
    record = unpack_record(value, int.from_bytes(name), bits)
    if (
        len(name) != ID_BYTES
        or type(record.key) is not (str if catalog.kind == "text" else int)
        or any(getattr(record, name) for name in catalog.unkept)
    ):
        raise DamagedError("its fields aren't those of a document")
    catalog.check_key(record.key)
    return record


def require_checksums(view: View) -> None:
    """Raise DamagedError unless all checksums are right, and so is the number of documents."""
    txn, counters = view.txn, view.counters
    counted = {pages.name: sum(len(page[0]) for page in pages.scan(txn)) for pages in _tables(view)}
    for problem in check_runs(txn):
        raise DamagedError(f"{problem.where}: {problem.what}")
    with txn.cursor("documents") as cursor:
        total = txn.entries("documents")
        for number, value in tracked(cursor, "read the documents", "document", total):
            require_checksum(value, int.from_bytes(number))
    rows = counted[view.index.home.name]
    if rows != counters.documents - counters.short:
        raise DamagedError(
            f"the home table has {rows:,} rows, expected {counters.documents - counters.short:,}"
        )


def _tables(view: View) -> list[Levels[Any]]:
    return [*view.index.pages, view.catalog.by_key]
