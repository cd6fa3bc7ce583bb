"""The bands of sketches: find documents whose sketch agrees with another in a band.

A row is a number, made of a band and what a sketch has in it, and the id of a document. All bands
are in one sub-database, one after the other. A text without a sketch has one row, made of
the digest of the text, so that equal texts are always candidates.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Column, Marks, Rows, joined, ranked
from fpdb.fingerprint.sketches import has_sketch
from fpdb.models import DIGEST_BYTES, SKETCH_BYTES
from fpdb.storage import ReadTransaction, WriteTransaction
from fpdb.storage.format import Stored
from fpdb.tables.plan import Bands
from fpdb.tables.sorted_pages import NumberPages

# Ids that are read of one band: where more documents agree, they share boilerplate or a form.
MOST_OF_A_BAND = 10_000
# Documents that are compared with a text: if there are more, those that agree in most bands.
MOST_COMPARED = 10_000
# Ids of many queries that are held at once.
_HELD = 1 << 20
# Rows that are unpacked together after they were sorted.
_BLOCK = 1 << 18


class Sketches(NamedTuple):
    """Documents as the bands need them: ids, sketches, and digests; what is missing is zeros."""

    ids: Column
    sketches: NDArray[np.uint8]
    digests: Column


class BandTable:
    """The sub-database of all bands of the sketches of a database."""

    def __init__(self, shape: Bands) -> None:
        self.shape = shape
        self.pages = NumberPages("bands", keys=2, columns=2)
        self._bits = shape.bits
        self._mask = (1 << shape.bits) - 1
        self._bases = [(shape.bits * band, band << shape.bits) for band in range(shape.count)]
        self._last = shape.count << shape.bits
        self._end = shape.count + 1 << shape.bits  # after all numbers

    def numbers(self, sketch: bytes, digest: bytes) -> list[int]:
        """Return the numbers under which a document is found, given its sketch and its digest.

        A missing sketch is empty or all zeros.
        """
        mask = self._mask
        if bins := int.from_bytes(sketch, "little"):
            return [base | bins >> shift & mask for shift, base in self._bases]
        return [self._last | int.from_bytes(digest[:8], "little") & mask] if any(digest) else []

    def shared(self, documents: Sequence[Stored]) -> list[list[int]]:
        """Return of each document those of its numbers that others of them have too."""
        numbers = iter(self.numbers_each(documents))
        every = [[] if each.fingerprint is None else next(numbers) for each in documents]
        often = Counter(chain.from_iterable(every))
        return [[number for number in own if often[number] > 1] for own in every]

    def numbers_each(self, documents: Sequence[Stored]) -> list[list[int]]:
        """Return the numbers of each of many documents but the short texts."""
        block = _sketches_of(documents)
        numbers, marks = self.shape.columns(block.sketches, block.digests)
        every = zip(numbers.tolist(), marks[:, 0].tolist(), marks[:, -1].tolist(), strict=True)
        return [
            own[:-1] if sketched else own[-1:] if other else [] for own, sketched, other in every
        ]

    def rows(self, documents: Sequence[Stored]) -> Rows:
        """Return the rows of documents, sorted; a short text has none."""
        block = _sketches_of(documents)
        numbers, marks = self.shape.columns(block.sketches, block.digests)
        ids = block.ids[marks.nonzero()[0]]
        order = RowOrder((self._end - 1).bit_length(), int(ids.max(initial=0)))
        return order.sorted([order.combined(numbers[marks], ids)])

    def update(
        self, txn: WriteTransaction, insert: Sequence[Stored], remove: Sequence[Stored]
    ) -> None:
        """Remove the rows of documents, and insert those of others."""
        if insert or remove:
            gone = self.rows(remove) if remove else self.pages.empty()
            self.pages.splice(txn, self.rows(insert), gone)

    def near(self, txn: ReadTransaction, numbers: list[int]) -> tuple[list[int], bool]:
        """Return the ids of the documents under some sorted numbers, and whether these are all."""
        return _chosen([found for _, found in self.pages.runs(txn, numbers, MOST_OF_A_BAND)])

    def met(self, txn: ReadTransaction, sketches: NDArray[np.uint8], digests: Column) -> Marks:
        """Mark the texts that have a number of a stored one, or no number at all."""
        numbers, marks = self.shape.columns(sketches, digests)
        [wanted], places = ranked([numbers[marks]])
        bounds, _ = self.pages.last_numbers(txn, [wanted], 0)
        found = np.zeros(marks.shape, np.bool_)
        found[marks] = (np.diff(bounds) > 0)[places]
        found[~marks.any(axis=1)] = True
        met: Marks = np.logical_or.reduce(found, axis=1)
        return met

    def near_each(
        self, txn: ReadTransaction, asked: Sequence[Sequence[int]]
    ) -> Iterator[tuple[list[int], bool]]:
        """Yield what `near` returns for each of many; their pages are read in order, each once."""
        runs: dict[int, list[int]] = {}
        held = 0
        wanted = sorted(set(chain.from_iterable(asked)))
        for number, found in self.pages.runs(txn, wanted, MOST_OF_A_BAND):
            runs[number] = found
            held += len(found)
            if held > _HELD and len(asked) > 1:
                half = len(asked) // 2
                for part in (asked[:half], asked[half:]):
                    yield from self.near_each(txn, part)
                return
        for numbers in asked:
            yield _chosen([runs[number] for number in numbers if number in runs])

    def load(
        self,
        txn: WriteTransaction,
        source: Callable[[], Iterable[Sketches]],
        count: int,
        largest: int,
        memory: int,
    ) -> None:
        """Write the rows of N documents to the table, which is empty.

        No id exceeds `largest`, and all blocks are in the order of ids. The source is read again
        for each part that fits into the memory.
        """
        order = RowOrder(self._bits, largest)
        parts = 1 + count * self.shape.count * order.row_bytes // memory
        bounds = [self._end * part // parts for part in range(parts + 1)]
        made = (self._part(source, order, low, after) for low, after in pairwise(bounds))
        self.pages.fill(txn, chain.from_iterable(made))

    def _part(
        self, source: Callable[[], Iterable[Sketches]], order: "RowOrder", low: int, after: int
    ) -> Iterator[Rows]:
        """Yield the sorted rows from a number on and before another one, band by band."""
        bands = range(low >> self._bits, (after - 1 >> self._bits) + 1)
        found: dict[int, list[Rows]] = {band: [] for band in bands}
        for ids, sketches, digests in source():
            sketched = has_sketch(sketches)
            marks = sketched, (digests != 0).any(axis=1) & ~sketched
            for band, parts in found.items():
                base = band << self._bits
                values = self.shape.values(sketches, digests, band)
                chosen = marks[band == self.shape.count]
                if base < low or base + self._mask >= after:
                    chosen = chosen & (values >= np.uint64(max(low - base, 0)))
                    chosen &= values <= np.uint64(min(after - 1 - base, self._mask))
                parts.append(order.combined(values[chosen], ids[chosen]))
        for band in bands:
            for values, ids in order.blocks(found.pop(band)):
                yield [values + np.uint64(band << self._bits), ids]


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


class RowOrder:
    """Sorts rows of a band: a value and an id, in one number if both have room there.

    One number sorts ten times as fast as two, and takes a third of the memory.
    """

    def __init__(self, bits: int, largest: int) -> None:
        """Sort values of N bits, and ids up to the largest."""
        self._shift = np.uint64(min(largest.bit_length(), 63))
        self._fits = bits + largest.bit_length() <= 64
        # What a row takes while it is sorted.
        self.row_bytes = 16 if self._fits else 48

    def combined(self, values: Column, ids: Column) -> Rows:
        """Return rows as they are sorted."""
        return [values << self._shift | ids] if self._fits else [values, ids]

    def sorted(self, parts: list[Rows]) -> Rows:
        """Return the values and ids of rows that are combined, sorted."""
        return joined(list(self.blocks(parts)) or [[np.empty(0, np.uint64)] * 2])

    def blocks(self, parts: list[Rows]) -> Iterator[Rows]:
        """Yield the values and ids of rows that are combined, sorted, some at a time."""
        if not parts:
            return
        rows = joined(parts)
        parts.clear()
        if self._fits:
            rows[0].sort()
        else:
            order = np.lexsort(rows[::-1])
            rows = [column[order] for column in rows]
        below = (np.uint64(1) << self._shift) - np.uint64(1)
        for start in range(0, len(rows[0]), _BLOCK):
            some = [column[start : start + _BLOCK] for column in rows]
            yield [some[0] >> self._shift, some[0] & below] if self._fits else some


def _sketches_of(documents: Sequence[Stored]) -> Sketches:
    """Return what the bands need of documents; of a short text, nothing."""
    some = [document for document in documents if document.fingerprint is not None]
    sketches = b"".join([document.sketch.ljust(SKETCH_BYTES, b"\0") for document in some])
    digests = b"".join([document.digest.ljust(DIGEST_BYTES, b"\0") for document in some])
    return Sketches(
        np.array([document.id for document in some], np.uint64),
        np.frombuffer(sketches, np.uint8).reshape(-1, SKETCH_BYTES),
        np.frombuffer(digests, np.uint64).reshape(-1, DIGEST_BYTES // 8),
    )
