"""Compare two sources of rows as sets, in bounded memory and whatever their order.

Every row is mixed to 64 random bits, of which the highest name a bucket. A digest has the number of
rows in each bucket and the sum of their mixes. The buckets in which two digests differ are read
again, as many at once as memory allows, and compared row by row. Rows that differ agree in their
digest with a chance of one in 2**64, and nobody can choose them such that they do: the seeds are
random and new in each check.
"""

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from fpdb.models import Problem
from fpdb.storage.columns import Column, Rows

# Rows that are compared with each other at once: they and their sets take about 60 MB.
COMPARED = 1 << 18
# Rows in which two sources differ that are kept.
KEPT = 1 << 17

_BUCKET_BITS = 12
_BUCKETS = 1 << _BUCKET_BITS
_MOST_COLUMNS = 4

Row = tuple[Any, ...]  # numbers, or the key and the value of an entry
Buckets = NDArray[np.bool_]  # which of all are chosen


class Entries(NamedTuple):
    """Entries of a sub-database."""

    keys: list[bytes]
    values: list[bytes]


class Block(NamedTuple):
    """The mixes of some rows, and a way to take some of these out."""

    mixed: Column
    rows_at: Callable[[NDArray[np.intp]], Iterable[Row]]


Source = Callable[[], Iterable[Block]]  # gives all rows whenever it is called


class Mixer:
    """Turns rows into numbers that look random, with seeds of its own."""

    def __init__(self) -> None:
        self._seeds = [int.from_bytes(os.urandom(8), "big") for _ in range(_MOST_COLUMNS)]

    def numbers(self, rows: Rows) -> Column:
        """Mix rows that are columns of numbers, by the finalizer of SplitMix64."""
        mixed = np.zeros(len(rows[0]), np.uint64)
        for column, seed in zip(rows, self._seeds, strict=False):
            mixed ^= column
            mixed += np.uint64(seed)
            mixed ^= mixed >> np.uint64(30)
            mixed *= np.uint64(0xBF58476D1CE4E5B9)
            mixed ^= mixed >> np.uint64(27)
            mixed *= np.uint64(0x94D049BB133111EB)
            mixed ^= mixed >> np.uint64(31)
        return mixed

    def entries(self, entries: Entries) -> Column:
        """Mix entries of a sub-database."""
        seed, digest = self._seeds[0], xxhash.xxh3_64_intdigest
        pairs = zip(entries.keys, entries.values, strict=True)
        # Without its length, the value could begin anywhere.
        mixed = [digest(key + value + len(value).to_bytes(4), seed) for key, value in pairs]
        return np.array(mixed, np.uint64)

    def block(self, rows: Rows, by: Rows | None = None) -> Block:
        """Mix rows that are columns of numbers, or some of these columns, and keep the rows."""

        def rows_at(places: NDArray[np.intp]) -> Iterable[Row]:
            return zip(*(column[places].tolist() for column in rows), strict=True)

        return Block(self.numbers(rows if by is None else by), rows_at)

    def entry_block(self, entries: Entries) -> Block:
        """Mix entries of a sub-database, and keep them."""

        def rows_at(places: NDArray[np.intp]) -> Iterable[Row]:
            return ((entries.keys[at], entries.values[at]) for at in places.tolist())

        return Block(self.entries(entries), rows_at)


class Digest:
    """Which rows a source has: in each bucket their number and the sum of their mixes."""

    def __init__(self) -> None:
        self.counts = np.zeros(_BUCKETS, np.int64)
        self.sums = np.zeros(_BUCKETS, np.uint64)

    def add(self, mixed: Column, by: Column | None = None) -> None:
        """Count rows in the buckets of their mixes, or of others."""
        buckets = _buckets(mixed if by is None else by)
        self.counts += np.bincount(buckets, minlength=_BUCKETS)
        np.add.at(self.sums, buckets, mixed)

    def differs(self, other: "Digest") -> Buckets:
        """Say in which buckets there are other rows."""
        differs: Buckets = (self.counts != other.counts) | (self.sums != other.sums)
        return differs


def in_buckets(chosen: Buckets, mixed: Column) -> NDArray[np.bool_]:
    """Say of each mix whether its bucket is among the chosen ones."""
    inside: NDArray[np.bool_] = chosen[_buckets(mixed)]
    return inside


def marked(mixed: Column) -> Buckets:
    """Choose the buckets of mixes."""
    chosen = np.zeros(_BUCKETS, np.bool_)
    chosen[_buckets(mixed)] = True
    return chosen


def _buckets(mixed: Column) -> NDArray[np.int64]:
    return (mixed >> np.uint64(64 - _BUCKET_BITS)).astype(np.int64)


def groups(chosen: Buckets, counts: NDArray[np.int64]) -> Iterator[Buckets]:
    """Cut the chosen buckets into groups with no more rows than are compared at once, if can be."""
    places = chosen.nonzero()[0]
    ends = np.cumsum(counts[places])
    begins = ends - counts[places]
    first = 0
    while first < len(places):
        behind = int(ends.searchsorted(begins[first] + COMPARED, "right"))
        behind = max(behind, first + 1)
        group = np.zeros(_BUCKETS, np.bool_)
        group[places[first:behind]] = True
        yield group
        first = behind


class Side(NamedTuple):
    """One of two sources that are compared: its digest, and how to read it again."""

    digest: Digest
    read: Source


def side(read: Source) -> Side:
    """Read a source once for its digest."""
    digest = Digest()
    for mixed, _ in read():
        digest.add(mixed)
    return Side(digest, read)


class Difference(NamedTuple):
    """Rows that are missing, and rows that shouldn't be there."""

    missing: list[Row]
    strange: list[Row]


def differences(found: Side, expected: Side) -> Iterator[Difference]:
    """Find the rows that stand on one side only, group by group; nothing if both agree."""
    chosen = found.digest.differs(expected.digest)
    for group in groups(chosen, found.digest.counts + expected.digest.counts):
        own, wanted = gather(found.read, group), gather(expected.read, group)
        yield Difference(sorted(wanted - own), sorted(own - wanted))


def gather(read: Source, group: Buckets) -> set[Row]:
    """Read the rows in some buckets."""
    rows: set[Row] = set()
    for mixed, rows_at in read():
        inside = in_buckets(group, mixed)
        if inside.any():
            rows.update(rows_at(inside.nonzero()[0]))
    return rows


def repeated(found: Side) -> int:
    """Count the rows that stand there once more, wherever."""
    counts = found.digest.counts
    distinct = sum(len(gather(found.read, group)) for group in groups(counts > 0, counts))
    return int(counts.sum()) - distinct


def report(where: str, difference: Difference) -> Iterator[Problem]:
    """Name rows that are missing or strange."""
    for row in difference.missing:
        yield Problem(where, f"the row {_shown(row)} of a document is missing")
    for row in difference.strange:
        yield Problem(where, f"the row {_shown(row)} belongs to no document")


def _shown(row: Row) -> str:
    return ", ".join(part.hex() if isinstance(part, bytes) else str(part) for part in row)


def compare(where: str, found: Side, expected: Side) -> Generator[Problem, None, "Kept"]:
    """Report the rows that stand on one side only, and keep them if they aren't too many."""
    kept = Kept()
    for difference in differences(found, expected):
        yield from report(where, difference)
        kept.add(difference)
    return kept


class Kept:
    """How a source differs from what it should be; `whole` says that all of it is here."""

    def __init__(self) -> None:
        self.missing: list[Row] = []
        self.strange: set[Row] = set()
        self.whole = True

    def add(self, difference: Difference) -> None:
        """Keep rows that differ, unless there are too many."""
        size = len(self.missing) + len(self.strange)
        if size + len(difference.missing) + len(difference.strange) > KEPT:
            self.whole = False
        if self.whole:
            self.missing += difference.missing
            self.strange.update(difference.strange)

    def mend(self, blocks: Iterator[Rows]) -> Iterator[Rows]:
        """Give rows as they should be: without the strange ones, and the missing ones at last."""
        ids = np.array(sorted(row[-1] for row in self.strange), np.uint64)
        for rows in blocks:
            keep = np.ones(len(rows[0]), np.bool_)
            for place in _among(rows[-1], ids):
                keep[place] = tuple(column.item(place) for column in rows) not in self.strange
            yield [column[keep] for column in rows]
        if self.missing:
            columns = np.array(self.missing, np.uint64).T
            yield list(np.ascontiguousarray(columns))


def _among(column: Column, chosen: Column) -> list[int]:
    if not len(chosen):
        return []
    at = chosen.searchsorted(column)
    at[at == len(chosen)] = 0
    places: list[int] = (chosen[at] == column).nonzero()[0].tolist()
    return places
