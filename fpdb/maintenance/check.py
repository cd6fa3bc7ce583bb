"""Check a database: order and checksums of pages, every document in every table and back."""

from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

from fpdb.documents import Catalog
from fpdb.documents.integer_keys import IntegerCatalog
from fpdb.errors import DamagedError
from fpdb.maintenance.agreement import (
    Block,
    Digest,
    Entries,
    Kept,
    Mixer,
    Side,
    Source,
    compare,
    repeated,
    side,
)
from fpdb.maintenance.header_check import check_header
from fpdb.maintenance.identities import Identities
from fpdb.maintenance.lookups import check_lookups
from fpdb.maintenance.reading import Faults, Order, Records, as_array, blocks, entries, records
from fpdb.models import Problem
from fpdb.storage import ReadTransaction
from fpdb.storage.columns import Rows
from fpdb.storage.counters import Counters
from fpdb.tables import Index, Permutation
from fpdb.tables.bits import Fingerprints
from fpdb.tables.pages import Pages

# Gives the fingerprints of all documents, some of them repeatedly, whenever it is called.
Fingerprinted = Callable[[], Iterator[Fingerprints]]


def check(txn: ReadTransaction, index: Index, catalog: Catalog) -> Iterator[Problem]:
    """Yield everything that is wrong in one snapshot of a database.

    What can't be read is reported, and what depends on it isn't compared. However many documents
    there are, only a part of them is in memory at once.
    """
    yield from check_header(txn, index, catalog)
    yield from check_lookups(txn, ["header", *catalog.names, *index.names])
    yield from _Check(txn, index, catalog).problems()


class _Table(NamedTuple):
    """What was read of a table, and whether that is all of it."""

    side: Side
    whole: bool


class _Census:
    """What one reading of all records says of them."""

    def __init__(self) -> None:
        self.home, self.keys, self.short = Digest(), Digest(), Digest()
        self.documents = 0
        self.last_id = 0
        self.sketches = 0

    def add(self, block: Records, mixer: Mixer) -> None:
        """Count a block of records."""
        self.home.add(mixer.numbers(block.rows()))
        self.keys.add(mixer.entries(block.names))
        self.short.add(mixer.entries(block.digests))
        self.documents += len(block.ids)
        self.sketches += block.sketches
        self.last_id = max(self.last_id, int(block.ids.max(initial=0)))


class _Check:
    """One run over a snapshot: what all its steps share."""

    def __init__(self, txn: ReadTransaction, index: Index, catalog: Catalog) -> None:
        self._txn = txn
        self._index = index
        self._catalog = catalog
        self._mixer = Mixer()
        self._census = _Census()

    def problems(self) -> Iterator[Problem]:
        """Read every table and the records, and compare them."""
        numbered = None
        if isinstance(self._catalog, IntegerCatalog):
            numbered = Identities(self._txn, self._index, self._catalog, self._mixer)
        home = yield from self._table(self._index.home, numbered.take_home if numbered else None)
        further: dict[str, _Table] = {}
        for pages in self._index.further:
            further[pages.name] = yield from self._table(pages)
        if numbered:
            found = yield from self._compare_numbered(numbered, home)
        else:
            found = yield from self._compare_named(home)
        if found is None:
            return
        documents, kept = found
        yield from self._compare_entries("short", self._census.short, lambda block: block.digests)
        yield from self._check_counters(documents)
        yield from self._compare_further(kept, further)

    def _compare_named(
        self, home: _Table
    ) -> Generator[Problem, None, tuple[int, Kept | None] | None]:
        """Compare documents whose keys are texts with the keys and the home table.

        Give their number, and what is wrong at home if that is known; nothing if records can't be
        read.
        """
        if not (yield from self._count_records()):
            return None
        yield from self._compare_entries("keys", self._census.keys, lambda block: block.names)
        kept = None
        if home.whole:
            expected = Side(self._census.home, self._of_records(self._home_block))
            kept = yield from compare(self._index.home.name, home.side, expected)
        return self._census.documents, kept

    def _compare_numbered(
        self, numbered: Identities, home: _Table
    ) -> Generator[Problem, None, tuple[int, Kept | None] | None]:
        """Do the same with documents whose keys are numbers, of which not all have records."""
        ids = yield from self._table(numbered.pages, numbered.take_ids)
        take = numbered.take_records if ids.whole else None
        if not (yield from self._count_records(take)) or not (home.whole and ids.whole):
            return None
        if self._census.home.differs(home.side.digest).any():  # else all documents have records
            numbered.look_up()
        return (yield from numbered.compare())

    def _table(
        self, pages: Pages, take: Callable[[Rows], None] | None = None
    ) -> Generator[Problem, None, _Table]:
        """Read a table, and report what is wrong with its pages."""
        faults, order, digest = Faults(), Order(), Digest()
        for rows in blocks(self._txn, pages, faults):
            yield from faults.tell()
            order.take(rows)
            digest.add(self._mixer.numbers(rows))
            if take:
                take(rows)
        found = Side(digest, self._of_table(pages))
        times = order.repeated
        if not order.kept:
            yield Problem(pages.name, "rows aren't in order")
            times = repeated(found)
        if times:
            yield Problem(pages.name, f"{times} rows stand twice")
        return _Table(found, faults.whole)

    def _of_table(self, pages: Pages) -> Source:
        return lambda: map(self._mixer.block, blocks(self._txn, pages))

    def _of_records(self, block_of: Callable[[Records], Block]) -> Source:
        return lambda: map(block_of, self._records())

    def _records(self, faults: Faults | None = None) -> Iterator[Records]:
        return records(self._txn, self._catalog, self._index.plan.bits, faults)

    def _home_block(self, block: Records) -> Block:
        return self._mixer.block(block.rows())

    def _count_records(
        self, take: Callable[[Records], None] | None = None
    ) -> Generator[Problem, None, bool]:
        """Read all records, report those that can't be, and say whether there are none."""
        faults = Faults()
        for block in self._records(faults):
            yield from faults.tell()
            self._census.add(block, self._mixer)
            if take:
                take(block)
        return faults.whole

    def _compare_entries(
        self, name: str, expected: Digest, entries_of: Callable[[Records], Entries]
    ) -> Iterator[Problem]:
        found = side(lambda: map(self._mixer.entry_block, entries(self._txn, name)))
        wanted = self._of_records(lambda block: self._mixer.entry_block(entries_of(block)))
        yield from compare(name, found, Side(expected, wanted))

    def _check_counters(self, documents: int) -> Iterator[Problem]:
        short = int(self._census.short.counts.sum())
        try:
            counters = Counters.unpack(self._txn.get("header", b"counters"))
        except DamagedError as error:
            yield Problem("counters", str(error))
            return
        if counters.documents != documents:
            what = f"{documents} documents, expected {counters.documents}"
            yield Problem("counters", what)
        if counters.short != short:
            yield Problem("counters", f"{short} short documents, expected {counters.short}")
        sketches = self._census.sketches if self._catalog.sketched else None
        if counters.sketches != sketches:
            yield Problem("counters", f"{sketches} sketches, expected {counters.sketches}")
        last = self._census.last_id
        if self._catalog.kind == "text" and documents and last >= counters.next_id:
            yield Problem("counters", f"the id {last} is taken, the next is {counters.next_id}")

    def _compare_further(self, kept: Kept | None, further: dict[str, _Table]) -> Iterator[Problem]:
        """Compare the tables that hold nothing but distinct fingerprints with those there are."""
        if not further:
            return
        index = self._index
        permutations = [table.permutation for table in index.plan.tables[1:]]
        expected = [Digest() for _ in further]
        if kept and kept.whole:
            # What the home table has, once it is mended, is read faster than the records.
            source = self._fingerprints_at_home(kept)
        elif self._catalog.kind == "text":
            source = self._fingerprints_of_records
        else:
            what = "too many rows are wrong to compare the other tables with this one"
            yield Problem(index.home.name, what)
            return
        for fingerprints in source():
            for permutation, digest in zip(permutations, expected, strict=True):
                digest.add(self._mixer.numbers(index.words(permutation.apply(fingerprints))))
        tables = zip(further.items(), permutations, expected, strict=True)
        for (name, table), permutation, digest in tables:
            if table.whole:
                wanted = Side(digest, self._permuted(source, permutation))
                yield from compare(name, table.side, wanted)

    def _permuted(self, source: Fingerprinted, permutation: Permutation) -> Source:
        def read() -> Iterator[Block]:
            for fingerprints in source():
                yield self._mixer.block(self._index.words(permutation.apply(fingerprints)))

        return read

    def _fingerprints_of_records(self) -> Iterator[Fingerprints]:
        for block in self._records():
            yield as_array(block.rows()[:-1])

    def _fingerprints_at_home(self, kept: Kept) -> Fingerprinted:
        def read() -> Iterator[Fingerprints]:
            order = Order()
            for *words, _ in kept.mend(blocks(self._txn, self._index.home)):
                fresh = order.take(words)
                yield as_array([word[fresh] for word in words])

        return read
