"""The shingles of some documents of a corpus, to compare those whose sketches leave a doubt."""

from collections.abc import Sequence

import numpy as np

from fpdb import kernels
from fpdb.arrays import Column, Places
from fpdb.documents.similarity import Shares
from fpdb.joins.columns import GrowingColumn, Room

# Bits of which each shingle changes one: at least as many shingles as bits differ between two sets.
_SIGNATURE_WORDS = 8


class ShingleSets:
    """Sets of shingles by the numbers of their documents, which come in order."""

    def __init__(self, room: Room) -> None:
        self._places = GrowingColumn(room, np.int32)  # of the sets, by the numbers
        self._ends = GrowingColumn(room, np.int64)
        self._ends.add(np.zeros(1, np.int64))
        self._hashes = GrowingColumn(room, np.uint64)
        self._signatures = GrowingColumn(room, np.uint64, _SIGNATURE_WORDS)  # zeros until needed

    def __len__(self) -> int:
        return len(self._signatures)

    @property
    def size(self) -> int:
        """The number of all shingles."""
        return len(self._hashes)

    def add(self, numbers: Places, sets: Sequence[Column]) -> None:
        """Add sets, each sorted and without repeated hashes."""
        if not len(numbers):
            return
        before = len(self._places)
        places = np.full(int(numbers[-1]) + 1 - before, -1, np.int32)
        places[numbers - before] = np.arange(len(self), len(self) + len(numbers))
        self._places.add(places)
        sizes = np.array(list(map(len, sets)), np.int64)
        self._ends.add(len(self._hashes) + sizes.cumsum())
        self._hashes.add(np.concatenate(sets))
        self._signatures.add(np.zeros((len(numbers), _SIGNATURE_WORDS), np.uint64))

    def sizes(self, numbers: Places) -> Places:
        """Return how many shingles documents have."""
        places, ends = self._places.values.take(numbers), self._ends.values
        sizes: Places = ends[places + 1] - ends[places]
        return sizes

    def shares(self, first: Places, second: Places, least: float) -> Shares:
        """Return the Jaccard similarity of each two documents, or 0 where it is below the least."""
        left, right = (self._places.values.take(numbers) for numbers in (first, second))
        hashes, ends = self._hashes.values, self._ends.values
        sizes = ends[left + 1] - ends[left] + ends[right + 1] - ends[right]
        common = np.empty(len(left), np.int64)
        if kernels.enabled:
            kernels.number_pages.common(
                hashes, ends, self._signatures.values, left, right, least, common
            )
        else:
            for pair, (one, two) in enumerate(zip(left.tolist(), right.tolist(), strict=True)):
                sets = hashes[ends[one] : ends[one + 1]], hashes[ends[two] : ends[two + 1]]
                common[pair] = len(np.intersect1d(*sets, assume_unique=True))
        shares: Shares = common / (sizes - common)
        shares[shares < least] = 0.0
        return shares
