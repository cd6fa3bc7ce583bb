"""Copies in a cluster: of documents with one fingerprint, one stands for all that are alike."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fpdb.documents import Verifier
from fpdb.joins.pairs import Expansion, Numbers, Places, Runs, chosen_runs, numbers_of
from fpdb.storage import ReadTransaction
from fpdb.storage.columns import Column
from fpdb.tables import Index

# Runs of fewer documents are expanded as they are.
_FEW = 8
# As many different documents with one fingerprint are compared with each other at once.
_MOST = 64


class Standing(Expansion):
    """Expands pairs of fingerprints into pairs of documents that stand for their copies.

    What is alike by its sketch, or its text, is similar to the same documents. Copies are
    connected with the one that stands for them, instead of each with each.
    """

    def __init__(
        self,
        txn: ReadTransaction,
        index: Index,
        verifier: Verifier,
        connect: Callable[[Column, Column], None],
    ) -> None:
        super().__init__(txn, index)
        self._verifier = verifier
        self._connect = connect
        self._standing: dict[Any, Column] = {}

    def learn(self, runs: Runs) -> None:
        """Read the larger runs, and find who stands for whom."""
        numbers = numbers_of(runs.words).tolist()
        manifold = np.zeros(len(numbers), np.bool_)
        for at in (runs.sizes > _FEW).nonzero()[0].tolist():
            standing = self._stand_in([int(word[at]) for word in runs.words])
            if len(standing) > _MOST:
                manifold[at] = True
            else:
                self._standing[numbers[at]] = standing
        super().learn(chosen_runs(runs, manifold | (runs.sizes <= _FEW)))

    def _stand_in(self, words: list[int]) -> Column:
        """Give the documents that stand for all with a fingerprint, and connect the others."""
        first: dict[bytes, int] = {}
        for ids in self.slices(words):
            copies: list[int] = []
            originals: list[int] = []
            for number, likeness in zip(
                ids.tolist(), self._verifier.likeness(self._txn, ids), strict=True
            ):
                original = first.setdefault(likeness, number)
                if original != number and likeness:
                    copies.append(number)
                    originals.append(original)
            self._connect(np.array(copies, np.uint64), np.array(originals, np.uint64))
        return np.array(sorted(first.values()), np.uint64)

    def ids(self, numbers: Numbers) -> tuple[Column, Places, Places]:
        """Give the ids of those that stand for the documents of distinct fingerprints."""
        found = [self._standing.get(number) for number in numbers.tolist()]
        stands = np.array([standing is not None for standing in found], np.bool_)
        if not stands.any():
            return super().ids(numbers)
        others, other_starts, other_counts = super().ids(numbers[~stands])
        standing = [ids for ids in found if ids is not None]
        sizes = np.array(list(map(len, standing)))
        starts, counts = np.empty(len(numbers), np.int64), np.empty(len(numbers), np.int64)
        starts[~stands], counts[~stands] = other_starts, other_counts
        starts[stands], counts[stands] = len(others) + np.cumsum(sizes) - sizes, sizes
        return np.concatenate([others, *standing]), starts, counts
