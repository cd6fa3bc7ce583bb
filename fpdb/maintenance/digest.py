"""Digests of rows, by which sets of them are compared that are larger than memory."""

import os
from collections.abc import Iterable

import numpy as np
import xxhash

from fpdb.arrays import Column, Marks, Places, Rows
from fpdb.fingerprint.sketches import mix

_BUCKET_BITS = 12
_BUCKETS = 1 << _BUCKET_BITS
_SEEDS = [int.from_bytes(os.urandom(8)) for _ in range(4)]


class Digest:
    """A digest of rows, in any order: in each bucket, their number and the sum of their mixes.

    Two sets of rows that differ have the same digest with a chance of one in 2**64. Nobody can
    choose rows so that they do, because nobody can predict the seeds.
    """

    def __init__(self, blocks: Iterable[Rows] = ()) -> None:
        self.counts = np.zeros(_BUCKETS, np.int64)
        self.sums = np.zeros(_BUCKETS, np.uint64)
        for rows in blocks:
            self.add(rows)

    def add(self, rows: Rows) -> None:
        """Add rows."""
        mixed, buckets = spread(rows)
        self.counts += np.bincount(buckets, minlength=_BUCKETS)
        np.add.at(self.sums, buckets, mixed)

    @property
    def count(self) -> int:
        """The number of rows."""
        return int(self.counts.sum())

    def differs(self, other: "Digest") -> Marks:
        """Mark the buckets with other rows."""
        marks: Marks = (self.counts != other.counts) | (self.sums != other.sums)
        return marks


def spread(rows: Rows) -> tuple[Column, Places]:
    """Return 64 bits that look random for each row, and its bucket."""
    mixed = np.zeros(len(rows[0]), np.uint64)
    for column, seed in zip(rows, _SEEDS, strict=False):
        mixed = mix((mixed ^ column) + np.uint64(seed))
    return mixed, (mixed >> np.uint64(64 - _BUCKET_BITS)).astype(np.int64)


def hashed(texts: Iterable[bytes]) -> Column:
    """Return a number for each text, which represents it in rows."""
    return np.array([xxhash.xxh3_64_intdigest(text, _SEEDS[0]) for text in texts], np.uint64)
