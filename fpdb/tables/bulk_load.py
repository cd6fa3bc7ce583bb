"""Load all tables at once: each is sorted in bounded memory, and written page after page.

The source is read again for each table. While one table is written, another thread sorts the next.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from fpdb.arrays import Column, Rows
from fpdb.progress import tracked
from fpdb.storage import WriteTransaction
from fpdb.tables.bits import Fingerprints, as_words
from fpdb.tables.index import Index
from fpdb.tables.sorted_pages import NumberPages
from fpdb.tables.sorter import Sorter
from fpdb.threads import made_ahead

# Yields all fingerprints with the ids of their documents, block by block, each time it is called.
FingerprintSource = Callable[[], Iterable[tuple[Fingerprints, Column]]]

MEMORY = 1 << 30
LEAST_MEMORY = 1 << 20  # with less, the sorted runs would be too many


def load_tables(
    txn: WriteTransaction, index: Index, source: FingerprintSource, count: int, memory: int = MEMORY
) -> None:
    """Write the N fingerprints of a source to all tables."""
    # On an error too, no thread may read the source after the end of its transaction.
    folder = txn.shared.directory
    with contextlib.closing(made_ahead(_sorted(index, source, memory, folder), 1)) as made:
        for pages, group in groupby(made, key=itemgetter(0)):
            pages.merge(txn, (rows for _, rows in group), count)


def _sorted(
    index: Index, source: FingerprintSource, memory: int, folder: Path
) -> Iterator[tuple[NumberPages, Rows]]:
    """Yield each table with its sorted rows, block by block."""
    tables = list(zip(index.tables, index.plan.tables, strict=True))
    for pages, table in tracked(tables, "sort the tables", "table", len(tables)):
        home = pages is index.home
        # Half, as the rows of a table are written while those of the next are sorted.
        with Sorter(folder, pages.columns, pages.columns, memory // 2) as sorter:
            for fingerprints, ids in source():
                words = as_words(table.permutation.apply(fingerprints))
                sorter.add([*words, ids] if home else words)
            for rows in sorter.rows():
                yield pages, rows
