"""The passages of texts: find documents that have a part of a text.

A row is the upper bits of a number of a text, which is made of a passage, and the id of a document.
The record of the document has the whole numbers, which tell whether they are really equal.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np

from fpdb.arrays import Column, Rows, Strings, joined, ranked
from fpdb.fingerprint.sketches import unpack_passages
from fpdb.models import PASSAGE_BYTES, PASSAGES
from fpdb.storage import WriteTransaction
from fpdb.storage.block import Block
from fpdb.storage.format import Stored
from fpdb.tables.bands import NumberTable, sorted_rows

# Of a number that more documents have, none is taken: it is of boilerplate.
MOST_OF_A_PASSAGE = 1000
ROW_BITS = 32
_REST = 8 * PASSAGE_BYTES - ROW_BITS
# Rows of a text of some hundred words, about.
_PASSAGES = 10
# Bytes of a row while it is sorted.
_ROW_BYTES = 64


def row_numbers(numbers: Column) -> Column:
    """Return the numbers under which the table has numbers of passages."""
    return numbers >> np.uint64(_REST)


class PassageTable(NumberTable):
    """The sub-database of the passages of all documents."""

    def __init__(self) -> None:
        super().__init__("passages", ROW_BITS, _PASSAGES)

    def made(self, documents: Block) -> Strings:
        """Return the numbers of each document; a short text has none."""
        if PASSAGES not in documents.further:
            return Strings(np.empty(0, np.uint64), np.zeros(len(documents), np.int64))
        columns = documents.short.tolist(), documents.further[PASSAGES]
        passages = [b"" if short else text for short, text in zip(*columns, strict=True)]
        places = np.arange(len(passages), dtype=np.uint64)
        numbers, owners = self._made(places, passages)
        return Strings(numbers, owners.searchsorted(places, "right"))

    def _made(self, ids: Column, passages: Sequence[bytes]) -> Rows:
        sizes = np.fromiter(map(len, passages), np.int64, len(passages)) // PASSAGE_BYTES
        numbers = row_numbers(unpack_passages(b"".join(passages)))
        # Two numbers of a text may have the same upper bits.
        rows, _ = ranked([np.repeat(ids, sizes), numbers])
        return rows[::-1]

    def load(
        self, txn: WriteTransaction, source: Callable[[], Iterable[Sequence[Stored]]], memory: int
    ) -> None:
        """Write the rows of all documents to the table, which is empty.

        The source is read again for each part of the rows that fits into the memory.
        """
        count = sum(len(text.passages) for block in source() for text in block) // PASSAGE_BYTES
        parts = 1 + count * _ROW_BYTES // memory
        bounds = [(part << ROW_BITS) // parts for part in range(parts + 1)]
        self.pages.fill(
            txn, (self._between(source, low, after - 1) for low, after in pairwise(bounds))
        )

    def _between(
        self, source: Callable[[], Iterable[Sequence[Stored]]], low: int, high: int
    ) -> Rows:
        rows = [self.pages.empty()]
        for block in source():
            owners = np.array([document.id for document in block], np.uint64)
            numbers, ids = self._made(owners, [document.passages for document in block])
            chosen = (numbers >= np.uint64(low)) & (numbers <= np.uint64(high))
            rows.append([numbers[chosen], ids[chosen]])
        return sorted_rows(joined(rows))
