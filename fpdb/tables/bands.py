"""The bands of sketches: find documents whose sketch agrees with another in a band.

A row is a number, made of a band and what a sketch has in it, and the id of a document. All bands
are in one sub-database, one after the other. A text without a sketch has one row, made of
the digest of the text, so that equal texts are always candidates.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise

import numpy as np

from fpdb.arrays import Rows, joined
from fpdb.storage import Cursor, ReadTransaction, WriteTransaction
from fpdb.storage.columns import last_numbers, narrow_column
from fpdb.storage.format import Stored
from fpdb.tables.pages import Pages, seek
from fpdb.tables.plan import Bands

# Ids that are read of one band: where more documents agree, they share boilerplate or a form.
MOST_OF_A_BAND = 10_000
# Documents that are compared with a text: if there are more, those that agree in most bands.
MOST_COMPARED = 10_000
# Ids of many queries that are held at once.
_HELD = 1 << 20
# What a row takes while it is sorted.
_ROW_BYTES = 48
_BLOCK = 1 << 13


class BandTable:
    """The sub-database of all bands of the sketches of a database."""

    def __init__(self, shape: Bands) -> None:
        self.shape = shape
        self.pages = Pages("bands", keys=2, columns=2)
        self._bits = shape.bits
        self._mask = (1 << shape.bits) - 1
        self._bases = [(shape.bits * band, band << shape.bits) for band in range(shape.count)]
        self._last = shape.count << shape.bits

    def numbers(self, sketch: bytes | None, digest: bytes) -> list[int]:
        """Return the numbers under which a document is found, given its sketch and its digest.

        A missing sketch is empty, None or all zeros.
        """
        mask = self._mask
        if bins := int.from_bytes(sketch, "little") if sketch else 0:
            return [base | bins >> shift & mask for shift, base in self._bases]
        return [self._last | int.from_bytes(digest[:8], "little") & mask] if any(digest) else []

    def rows(self, documents: Sequence[Stored]) -> Rows:
        """Return the rows of documents, sorted; a short text has none."""
        numbers: list[int] = []
        ids: list[int] = []
        for document in documents:
            if document.fingerprint is not None:
                own = self.numbers(document.sketch, document.digest)
                numbers += own
                ids += [document.id] * len(own)
        return _sorted([np.array(numbers, np.uint64), np.array(ids, np.uint64)])

    def update(
        self, txn: WriteTransaction, insert: Sequence[Stored], remove: Sequence[Stored]
    ) -> None:
        """Remove the rows of documents, and insert those of others."""
        if insert or remove:
            self.pages.splice(txn, self.rows(insert), self.rows(remove))

    def near(self, txn: ReadTransaction, numbers: Sequence[int]) -> tuple[list[int], bool]:
        """Return the ids of the documents under some sorted numbers, and whether these are all."""
        return _chosen([found for _, found in self._found(txn, numbers)])

    def near_each(
        self, txn: ReadTransaction, asked: Sequence[Sequence[int]]
    ) -> Iterator[tuple[list[int], bool]]:
        """Yield what `near` returns for each of many; their pages are read in order, each once."""
        runs: dict[int, list[int]] = {}
        held = 0
        for number, found in self._found(txn, sorted(set(chain.from_iterable(asked)))):
            runs[number] = found
            held += len(found)
            if held > _HELD and len(asked) > 1:
                half = len(asked) // 2
                for part in (asked[:half], asked[half:]):
                    yield from self.near_each(txn, part)
                return
        for numbers in asked:
            yield _chosen([runs[number] for number in numbers if number in runs])

    def _found(
        self, txn: ReadTransaction, numbers: Iterable[int]
    ) -> Iterator[tuple[int, list[int]]]:
        """Yield the sorted numbers that documents have, with the ids, at most one more than count.

        The cursor is the one that the transaction keeps: take all before anything else is read.
        """
        seed, cursor = self.pages.seed, txn.kept_cursor(self.pages.name)
        # Local names: looking these up takes a tenth of the time.
        to_page, back, item, as_number = cursor.set_range, cursor.prev, cursor.item, int.from_bytes
        last = -1
        for number in numbers:
            # All rows of a number before the last one of a page are there, or on earlier pages.
            if number >= last:
                # The last page that may have the number.
                if not (back() if to_page((number + 1).to_bytes(8, "big")) else cursor.last()):
                    continue
                key, page = item()
                column, low = narrow_column(page, 2, seed ^ as_number(key))
                last = column[-1] + low if column else -1
            start = bisect_left(column, number - low)
            if start < len(column) and column[start] == number - low:
                if start:
                    stop = bisect_right(column, number - low, start)
                    yield number, last_numbers(page, 2, start, stop)
                else:  # the page before may have it as well
                    yield number, self._run(cursor, number)

    def _run(self, cursor: Cursor, number: int) -> list[int]:
        """Return the ids of a number whose rows may be on several pages, no more than needed."""
        found: list[int] = []
        there = seek(cursor, self.pages.key(number, 0))
        while there and len(found) <= MOST_OF_A_BAND:
            key, page = cursor.item()
            if int.from_bytes(key[:8]) > number:
                break
            column, low = narrow_column(page, 2, self.pages.seed_at(key))
            start = bisect_left(column, number - low)
            stop = bisect_right(column, number - low, start)
            found += last_numbers(page, 2, start, stop)
            there = cursor.next()
        return found

    def load(
        self,
        txn: WriteTransaction,
        source: Callable[[], Iterator[Stored]],
        count: int,
        memory: int,
    ) -> None:
        """Write the rows of N documents to the table, which is empty.

        The source is read again for each part that fits into the memory.
        """
        end = self.shape.count + 1 << self._bits
        parts = 1 + count * self.shape.count * _ROW_BYTES // memory
        bounds = [end * part // parts for part in range(parts + 1)]

        def blocks() -> Iterator[Rows]:
            for low, after in pairwise(bounds):
                found = [self.pages.empty()]
                documents = source()
                while block := list(islice(documents, _BLOCK)):
                    rows = self.rows(block)
                    some = slice(*rows[0].searchsorted(np.array([low, after], np.uint64)))
                    found.append([column[some].copy() for column in rows])
                yield _sorted(joined(found))

        self.pages.fill(txn, blocks())


def _chosen(runs: Sequence[list[int]]) -> tuple[list[int], bool]:
    """Return the ids that are compared with a text, of those in its bands, and if these are all."""
    complete = True
    ids: list[int] = []
    for found in runs:
        if len(found) > MOST_OF_A_BAND:
            complete = False
        ids += found[:MOST_OF_A_BAND]
    chosen = sorted(set(ids))
    if len(chosen) > MOST_COMPARED:
        complete = False
        bands = Counter(ids)
        chosen = sorted(sorted(chosen, key=lambda own: -bands[own])[:MOST_COMPARED])
    return chosen, complete


def _sorted(rows: Rows) -> Rows:
    order = np.lexsort(rows[::-1])
    return [column[order] for column in rows]
