"""Compare the ids of integer keys with the home table and the records.

A document that is only a fingerprint has no record: it is known by its row of `ids` and by the row
of the home table with its id. These agree on the highest 32 bits of the fingerprint, and so digests
of both are compared. Ids in whose bucket they differ, or with a record that disagrees, are
suspects: only of these are all rows brought together.
"""

from collections.abc import Generator, Iterator

import numpy as np
from numpy.typing import NDArray

from fpdb.documents.integer_keys import IntegerCatalog
from fpdb.maintenance.agreement import (
    Block,
    Difference,
    Digest,
    Kept,
    Mixer,
    Row,
    gather,
    groups,
    marked,
    report,
)
from fpdb.maintenance.reading import Order, Records, as_array, blocks, records
from fpdb.models import Problem
from fpdb.storage import ReadTransaction
from fpdb.storage.columns import Column, Rows
from fpdb.tables import Index
from fpdb.tables.pages import Pages

# Records that are looked up in the home table at once.
HELD = 1 << 17

_HIGH_BITS = 32


class Identities:
    """Takes the rows of the home table, of `ids` and of the records, and finds what disagrees."""

    def __init__(
        self, txn: ReadTransaction, index: Index, catalog: IntegerCatalog, mixer: Mixer
    ) -> None:
        self._txn = txn
        self._index = index
        self._catalog = catalog
        self._mixer = mixer
        self._below = min(index.plan.bits, 64) - _HIGH_BITS
        self._home, self._ids, self._records = Digest(), Digest(), Digest()
        self._ids_order = Order()
        self._suspects = marked(np.empty(0, np.uint64))

    @property
    def pages(self) -> Pages:
        """The pages of `ids`."""
        return self._catalog.ids

    def take_home(self, rows: Rows) -> None:
        """Count rows of the home table."""
        self._add(self._home, rows[-1], rows[0] >> np.uint64(self._below))

    def take_ids(self, rows: Rows) -> None:
        """Count rows of `ids`."""
        self._add(self._ids, rows[0], rows[1])
        self._ids_order.take(rows[:1])

    def take_records(self, block: Records) -> None:
        """Count records, and compare them with their rows of `ids`, whose pages can be read."""
        self._records.add(self._mixer.numbers([block.ids]))
        # A short text has a row of `ids`, and none at home that could outweigh it.
        short = block.ids[~block.placed]
        self._add(self._home, short, np.zeros(len(short), np.uint64))
        self._suspect(block.ids[~self._agree(block)])

    def look_up(self) -> None:
        """Suspect the records whose row isn't found in the home table, or not in its place."""
        parts: list[Rows] = []
        size = 0
        for block in records(self._txn, self._catalog, self._index.plan.bits):
            parts.append(block.rows())
            size += len(parts[-1][0])
            if size >= HELD:
                self._look_up(parts)
                parts, size = [], 0
        if parts:
            self._look_up(parts)

    def compare(self) -> Generator[Problem, None, tuple[int, Kept]]:
        """Report what disagrees; give the number of documents, and what is wrong at home."""
        suspects = self._suspects | self._home.differs(self._ids)
        if not self._ids_order.kept or self._ids_order.repeated:
            # An id that stands twice could make up for one that stands twice at home.
            suspects[:] = True
        documents, kept = int(self._ids.counts[~suspects].sum()), Kept()
        counts = self._home.counts + self._ids.counts + self._records.counts
        for group in groups(suspects, counts):
            found = gather(self._home_blocks, group)
            own, expected = yield from self._join(
                gather(self._ids_blocks, group), found, gather(self._record_blocks, group)
            )
            documents += own
            difference = Difference(sorted(expected - found), sorted(found - expected))
            yield from report(self._index.home.name, difference)
            kept.add(difference)
        return documents, kept

    def _add(self, digest: Digest, ids: Column, high: Column) -> None:
        digest.add(self._mixer.numbers([ids, high]), by=self._mixer.numbers([ids]))

    def _suspect(self, ids: Column) -> None:
        self._suspects |= marked(self._mixer.numbers([ids]))

    def _agree(self, block: Records) -> NDArray[np.bool_]:
        """Say of each record whether `ids` has its row; an oversight only makes it a suspect."""
        agree = np.zeros(len(block.ids), np.bool_)
        if not len(agree):
            return agree
        high = block.words[0] >> np.uint64(self._below)
        pages = self._catalog.ids
        for ids, own_high, added in pages.scan(self._txn, pages.key(int(block.ids[0]))):
            if not len(ids) or ids[0] > block.ids[-1]:
                break
            first, last = block.ids.searchsorted(ids[0]), block.ids.searchsorted(ids[-1], "right")
            wanted = slice(int(first), int(last))
            at = ids.searchsorted(block.ids[wanted])
            at[at == len(ids)] = 0
            agree[wanted] = (
                (ids[at] == block.ids[wanted])
                & (own_high[at] == high[wanted])
                & (added[at] == block.added[wanted])
            )
        return agree

    def _look_up(self, parts: list[Rows]) -> None:
        *words, ids = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        self._suspect(ids[~self._index.holds(self._txn, as_array(words), ids)])

    def _home_blocks(self) -> Iterator[Block]:
        for rows in blocks(self._txn, self._index.home):
            yield self._mixer.block(rows, by=rows[-1:])

    def _ids_blocks(self) -> Iterator[Block]:
        for rows in blocks(self._txn, self._catalog.ids):
            yield self._mixer.block(rows, by=rows[:1])

    def _record_blocks(self) -> Iterator[Block]:
        for block in records(self._txn, self._catalog, self._index.plan.bits):
            rows = [block.ids, block.placed.astype(np.uint64), block.added, *block.words]
            yield self._mixer.block(rows, by=rows[:1])

    def _join(
        self, ids: set[Row], home: set[Row], stored: set[Row]
    ) -> Generator[Problem, None, tuple[int, set[Row]]]:
        """Bring together what is known of some ids; count the documents, and find their places."""
        places: dict[int, list[Row]] = {}
        for row in sorted(home):
            places.setdefault(row[-1], []).append(row)
        known = {number: rest for number, *rest in sorted(stored)}
        documents, expected = 0, set()
        for number, high, added in sorted(ids):
            record = known.pop(number, None)
            if record is None:
                own = [row for row in places.get(number, []) if row[0] >> self._below == high]
                if not own:
                    what = f"the document {number} is in no table"
                    yield Problem(self._index.home.name, what)
                    continue
                expected.add(own[0])
            else:
                placed, at, *words = record
                if placed:
                    expected.add((*words, number))
                if (words[0] >> self._below, at) != (high, added):
                    what = f"the row of the document {number} isn't that of its record"
                    yield Problem("ids", what)
            documents += 1
        for number, (placed, _, *words) in known.items():
            yield Problem("ids", f"the row of the document {number} is missing")
            if placed:
                expected.add((*words, number))
            documents += 1
        return documents, expected
