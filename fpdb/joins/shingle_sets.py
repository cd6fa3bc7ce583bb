"""The shingles of some documents of a corpus, to compare what their sketches leave in doubt."""

from collections.abc import Sequence

import numpy as np

from fpdb import kernels
from fpdb.arrays import Column, Places
from fpdb.documents.similarity import Shares
from fpdb.joins.columns import GrowingColumn, Room


class ShingleSets:
    """Sets of shingles by the numbers of their documents, which come in order."""

    def __init__(self, room: Room) -> None:
        self._numbers = GrowingColumn(room, np.int64)
        self._starts = GrowingColumn(room, np.int64)
        self._ends = GrowingColumn(room, np.int64)
        self._hashes = GrowingColumn(room, np.uint64)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def size(self) -> int:
        """The number of all shingles."""
        return len(self._hashes)

    def add(self, numbers: Places, sets: Sequence[Column]) -> None:
        """Add sets, each sorted and without repeated hashes."""
        self._numbers.add(numbers)
        sizes = np.array(list(map(len, sets)), np.int64)
        ends = len(self._hashes) + sizes.cumsum()
        self._starts.add(ends - sizes)
        self._ends.add(ends)
        self._hashes.add(np.concatenate([np.empty(0, np.uint64), *sets]))

    def shares(self, first: Places, second: Places) -> Shares:
        """Return the Jaccard similarity of each two documents."""
        left, right = (self._numbers.values.searchsorted(numbers) for numbers in (first, second))
        starts, ends = self._starts.values, self._ends.values
        common = np.empty(len(left), np.int64)
        if kernels.enabled:
            kernels.number_pages.common(self._hashes.values, starts, ends, left, right, common)
        else:
            hashes = self._hashes.values
            for pair, (one, two) in enumerate(zip(left.tolist(), right.tolist(), strict=True)):
                sets = hashes[starts[one] : ends[one]], hashes[starts[two] : ends[two]]
                common[pair] = len(np.intersect1d(*sets, assume_unique=True))
        sizes, others = (ends[places] - starts[places] for places in (left, right))
        shares: Shares = common / (sizes + others - common)
        return shares
