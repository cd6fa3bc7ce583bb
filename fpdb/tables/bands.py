"""The bands of sketches: find documents whose sketch agrees with another in a band.

A row is a number, made of a band and the bins of a sketch in it, and the id of a document. All
bands are in one sub-database, one after the other. A text without a sketch has one row, made of
the digest of the text, so that equal texts are always candidates.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, chain, pairwise
from math import ceil, log

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Column, Marks, Rows, Strings, joined
from fpdb.errors import PlanError
from fpdb.fingerprint.sketches import BINS, BITS
from fpdb.models import SKETCH_BYTES
from fpdb.storage import ReadTransaction, WriteTransaction
from fpdb.storage.block import FEW, Block
from fpdb.storage.format import Stored
from fpdb.tables.bits import order
from fpdb.tables.levels import NumberLevels
from fpdb.tables.sorted_pages import changed_rows

# Ids that are read of one band: where more documents agree, they share boilerplate or a form.
MOST_OF_A_BAND = 10_000
# Documents that are compared with a text: if there are more, those that agree in most bands.
MOST_COMPARED = 10_000
# Bytes of a row while its band is sorted.
_ROW_BYTES = 32
# The number of a row has room for what is in a band, and for the band.
MOST_BINS = 14
# Of the pairs at the similarity that is wanted, bands find this share; of more similar ones, more.
_RECALL = 0.95


# Ids of documents with their sketches and digests; a missing one is zeros.
Sketched = tuple[Column, NDArray[np.uint8], Column]


@dataclass(frozen=True)
class Bands:
    """Bands of sketches: `count` of them, each of `bins` bins.

    Documents that agree in a band are candidates for being similar.
    """

    count: int
    bins: int

    def __post_init__(self) -> None:
        if not 1 <= self.bins <= MOST_BINS or not 1 <= self.count <= BINS // self.bins:
            raise PlanError(
                f"{self.count} bands of {self.bins} bins",
                hint=f"a band has 1 to {MOST_BINS} of the {BINS} bins of a sketch",
            )

    @cached_property
    def bits(self) -> int:
        """The bits of a band."""
        return BITS * self.bins

    @property
    def name(self) -> str:
        """The bands in short, e.g. `10 bands of 6 bins`."""
        bands, bins = "band" if self.count == 1 else "bands", "bin" if self.bins == 1 else "bins"
        return f"{self.count} {bands} of {self.bins} {bins}"

    def recall(self, similarity: float) -> float:
        """Return the share of the pairs with a similarity that agree in a band.

        Bins with different winners agree in their bits once in 16 times.
        """
        agreeing = similarity + (1 - similarity) / (1 << BITS)
        return float(1 - (1 - agreeing**self.bins) ** self.count)

    def suffice(self, similarity: float) -> bool:
        """Return whether the bands find enough of the pairs with a similarity."""
        return self.recall(similarity) >= _RECALL

    def needed(self, similarity: float) -> int:
        """Return how many bands of as many bins find enough of the pairs with a similarity."""
        missed = 1 - replace(self, count=1).recall(similarity)
        return ceil(log(1 - _RECALL) / log(missed)) if missed else 1

    def chance(self, documents: int) -> float:
        """Return how many of N unrelated documents agree with a text in a band, on average."""
        return documents * self.count / 2.0**self.bits

    def columns(self, sketches: NDArray[np.uint8], digests: Column) -> tuple[Column, Marks]:
        """Return the numbers under which documents are found, and marks of those that count.

        A number is a band and the bins of a sketch in it. The last column is for texts without a
        sketch, by their digests. A missing sketch or digest is all zeros.
        """
        words = np.empty((len(sketches), self.count + 1), np.uint64, order="F")
        for band in range(self.count):
            start = min(self.bits * band // 8, SKETCH_BYTES - 8)
            eight = np.ascontiguousarray(sketches[:, start : start + 8]).view(np.uint64)[:, 0]
            words[:, band] = eight >> np.uint64(self.bits * band - 8 * start)
        words[:, -1] = digests[:, 0]
        words &= np.uint64((1 << self.bits) - 1)
        words |= np.arange(self.count + 1, dtype=np.uint64) << np.uint64(self.bits)
        marks = np.empty_like(words, np.bool_)
        marks[:] = sketches.any(axis=1, keepdims=True)
        marks[:, -1] = digests.any(axis=1) & ~marks[:, -1]
        return words, marks


class NumberTable(ABC):
    """A sub-database of rows: a number of a text, and the id of a document that has it."""

    def __init__(self, name: str, bits: int, width: int) -> None:
        self.pages = NumberLevels(name, keys=2, columns=2, width=width)
        self.bits = bits  # of a text, in a number

    @abstractmethod
    def made(self, documents: Block) -> Strings:
        """Return the numbers of each document; a short text has none."""

    def update(self, txn: WriteTransaction, insert: Rows, remove: Rows | None = None) -> None:
        """Remove rows and insert others, which are in any order."""
        rows = sorted_rows(insert), sorted_rows(remove or self.pages.empty())
        self.pages.splice(txn, *changed_rows(*rows))


class BandTable(NumberTable):
    """The sub-database of all bands of the sketches of a database."""

    def __init__(self, shape: Bands) -> None:
        super().__init__("bands", shape.bits, shape.count)
        self.shape = shape
        self._mask = (1 << shape.bits) - 1
        self._bytes = -(-shape.bits * shape.count // 8)
        self._bases = [(shape.bits * band, band << shape.bits) for band in range(shape.count)]
        self._last = shape.count << shape.bits
        self._end = shape.count + 1 << shape.bits  # after all numbers

    def numbers(self, sketch: bytes, digest: bytes) -> list[int]:
        """Return the numbers under which a document is found, given its sketch and its digest.

        A missing sketch is empty or all zeros.
        """
        mask = self._mask
        if any(sketch):
            bins = int.from_bytes(sketch[: self._bytes], "little")
            return [base | bins >> shift & mask for shift, base in self._bases]
        return [self._last | int.from_bytes(digest[:8], "little") & mask] if any(digest) else []

    def made(self, documents: Block) -> Strings:
        """Return the numbers of each document; a short text has none."""
        columns = documents.short, documents.sketches, documents.digests
        if len(documents) < FEW:
            lists = [
                [] if short else self.numbers(sketch.tobytes(), digest.tobytes())
                for short, sketch, digest in zip(*columns, strict=True)
            ]
            ends = np.array([*accumulate(map(len, lists))], np.int64)
            return Strings(np.array([*chain.from_iterable(lists)], np.uint64), ends)
        numbers, marks = self.shape.columns(*columns[1:])
        marks[documents.short] = False
        return Strings(numbers[marks], marks.sum(axis=1).cumsum())

    def of(self, document: Stored) -> list[int]:
        """Return the numbers of a document; a short text has none."""
        if document.fingerprint is None:
            return []
        sketch = document.sketch
        return self.numbers(sketch, b"" if any(sketch) else document.digest)

    def near(
        self,
        txn: ReadTransaction,
        numbers: list[int],
        only: Callable[[int], bool] | None = None,
        most: int | None = None,
    ) -> tuple[list[int], bool]:
        """Return the ids of the documents under some sorted numbers, and whether these are all.

        If it is said which ids count, only these do. More ids may be read of each band than usual.
        """
        most = MOST_OF_A_BAND if most is None else most
        return _chosen([ids for _, ids in self.pages.runs(txn, numbers, most)], most, only)

    def load(
        self,
        txn: WriteTransaction,
        source: Callable[[], Iterable[Sketched]],
        count: int,
        memory: int,
    ) -> None:
        """Write the rows of N documents to the table, which is empty.

        All blocks are in the order of ids. The source is read again for each part of the rows that
        fits into the memory.
        """
        parts = 1 + count * self.shape.count * _ROW_BYTES // memory
        bounds = [self._end * part // parts for part in range(parts + 1)]
        made = (self._part(source, low, after - 1) for low, after in pairwise(bounds))
        self.pages.fill(txn, chain.from_iterable(made))

    def _part(
        self, source: Callable[[], Iterable[Sketched]], low: int, high: int
    ) -> Iterator[Rows]:
        """Yield the sorted rows from a number to another one, band by band."""
        bands = range(low >> self.bits, (high >> self.bits) + 1)
        rows: dict[int, list[Rows]] = {band: [] for band in bands}
        for ids, sketches, digests in source():
            numbers, marks = self.shape.columns(sketches, digests)
            for band, parts in rows.items():
                chosen, column = marks[:, band], numbers[:, band]
                if band in {bands[0], bands[-1]}:
                    chosen = chosen & (column >= np.uint64(low)) & (column <= np.uint64(high))
                parts.append([column[chosen], ids[chosen]])
        for band in bands:
            if parts := rows.pop(band):
                numbers, ids = joined(parts)
                parts.clear()
                sequence = order(numbers)  # which leaves equal ones in the order of ids
                yield [numbers[sequence], ids[sequence]]


def sorted_rows(rows: Rows) -> Rows:
    if (rows[0][1:] > rows[0][:-1]).all():  # as the numbers of one text are
        return rows
    sequence = order(*rows)
    return [column[sequence] for column in rows]


def _chosen(
    runs: Sequence[list[int]], most: int, only: Callable[[int], bool] | None
) -> tuple[list[int], bool]:
    """Return the ids that are compared with a text, of those in its bands, and if these are all.

    The first of a band, `most` of them, are looked at; then ids that don't count leave their places
    to others.
    """
    complete = True
    ids: list[int] = []
    for run in runs:
        if len(run) > most:
            complete = False
        ids += run[:most]
    chosen = sorted(filter(only, set(ids)) if only else set(ids))
    if len(chosen) > MOST_COMPARED:
        complete = False
        bands = Counter(ids)
        chosen = sorted(sorted(chosen, key=lambda number: -bands[number])[:MOST_COMPARED])
    return chosen, complete
