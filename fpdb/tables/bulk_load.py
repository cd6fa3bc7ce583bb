"""Load all tables at once: sorted range by range in bounded memory, written page after page.

A table is loaded in as many ranges of its permuted fingerprints as the memory requires. For each
of them the source is read again, which is cheaper than sorting on disk. While one range is
written, another thread sorts the next.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np

from fpdb.arrays import Column, Marks, Rows
from fpdb.progress import tracked
from fpdb.storage import WriteTransaction
from fpdb.tables.bits import Fingerprints, Permutation, as_words, distinct, to_array
from fpdb.tables.index import Index, home_rows
from fpdb.tables.sorted_pages import NumberPages
from fpdb.threads import made_ahead

# Yields all fingerprints with the ids of their documents, block by block, each time it is called.
FingerprintSource = Callable[[], Iterable[tuple[Fingerprints, Column]]]
# The lowest first word of a range, and the lowest after it.
Range = tuple[int, int]

_WHOLE: Range = (0, 1 << 64)

MEMORY = 1 << 30
LEAST_MEMORY = 1 << 20  # with less, the source would be read again for every tiny range
BLOCK = 1 << 20

# What a row takes, for each word of it, while one range is written and the next is sorted.
_ROW_BYTES = 96
_SAMPLE = 1 << 16


def source_of(fingerprints: Fingerprints, ids: Column) -> FingerprintSource:
    """Return a source of two arrays."""

    def blocks() -> Iterator[tuple[Fingerprints, Column]]:
        for start in range(0, len(ids), BLOCK):
            yield fingerprints[start : start + BLOCK], ids[start : start + BLOCK]

    return blocks


def load_tables(
    txn: WriteTransaction, index: Index, source: FingerprintSource, count: int, memory: int = MEMORY
) -> None:
    """Write the N fingerprints of a source to tables that are empty."""
    # On an error too, no thread may read the source after the end of its transaction.
    with contextlib.closing(made_ahead(_ranges(index, source, count, memory), 1)) as made:
        for pages, group in groupby(made, key=itemgetter(0)):
            pages.fill(txn, (rows for _, rows in group))


def _ranges(
    index: Index, source: FingerprintSource, count: int, memory: int
) -> Iterator[tuple[NumberPages, Rows]]:
    """Yield each table with its sorted rows, range by range."""
    row_bytes = _ROW_BYTES * (2 if index.plan.bits == 128 else 1)
    ranges = -(-count * row_bytes // memory)
    sample = None
    if ranges > 1:
        step = -(-count // _SAMPLE)
        sample = np.concatenate([fingerprints[::step] for fingerprints, _ in source()])
    tables = list(zip(index.tables, index.plan.tables, strict=True))
    for pages, table in tracked(tables, "sort the tables", "table", len(tables)):
        permutation, home = table.permutation, pages is index.home
        for limits in _cut(permutation, sample, ranges):
            yield pages, _sorted(source, permutation, limits, home=home)


def _sorted(
    source: FingerprintSource, permutation: Permutation, limits: Range, *, home: bool
) -> Rows:
    chosen, numbers = [to_array((), permutation.bits)], [np.empty(0, np.uint64)]
    for fingerprints, ids in source():
        permuted = permutation.apply(fingerprints)
        inside = _inside(as_words(permuted)[0], limits)
        chosen.append(permuted[inside])
        if home:
            numbers.append(ids[inside])
    gathered = np.concatenate(chosen)
    return home_rows(gathered, np.concatenate(numbers)) if home else as_words(distinct(gathered))


def _inside(column: Column, limits: Range) -> Marks | slice:
    if limits == _WHOLE:
        return slice(None)
    low, after = limits
    return (column >= np.uint64(low)) & (column <= np.uint64(after - 1))


def _cut(permutation: Permutation, sample: Fingerprints | None, ranges: int) -> list[Range]:
    """Cut a table into ranges of about as many rows; equal fingerprints are in the same one."""
    if sample is None:
        return [_WHOLE]
    first = np.sort(as_words(permutation.apply(sample))[0])
    places = np.linspace(0, len(first) - 1, ranges + 1).astype(np.intp)[1:-1]
    return list(pairwise(sorted({*_WHOLE, *first[places].tolist()})))
