"""Which documents may go, besides that they resemble one that stays."""

from dataclasses import dataclass

import numpy as np

from fpdb.arrays import Column, Marks, Places
from fpdb.documents.similarity import Shares
from fpdb.fingerprint.sketches import doubtful_estimates, least_estimate
from fpdb.joins.columns import GrowingColumn


def own_shares(shares: Shares, sizes: Places, other_sizes: Places) -> Shares:
    """Return the share of its shingles that the other document of each pair lacks.

    The similarity of two sets and their sizes say how many shingles both have.
    """
    sizes, other_sizes = sizes.astype(np.int64), other_sizes.astype(np.int64)
    common = np.rint(shares / (1 + shares) * (sizes + other_sizes))
    common = np.minimum(common, np.minimum(sizes, other_sizes))  # as a share may be estimated
    lost: Shares = (sizes - common) / np.maximum(sizes, 1)
    return lost


@dataclass(frozen=True, eq=False)
class Rule:
    """The conditions for a document to go for another: by columns with a row for each of a corpus.

    With `groups`, it must be of the same group. With `lose`, the one that stays lacks at most this
    share of its shingles, of which `sizes` are the numbers; no estimate shows that.
    """

    groups: GrowingColumn | None = None
    lose: float | None = None
    sizes: GrowingColumn | None = None

    @property
    def by_estimate(self) -> bool:
        """Whether more than the texts themselves may show that a document may go."""
        return self.lose is None

    def doubtful_estimates(self, similarity: float) -> tuple[float, float]:
        least, sure = doubtful_estimates(similarity)
        return least, sure if self.by_estimate else 1.0

    def least_estimate(self, similarity: float) -> float:
        if not self.by_estimate:
            return np.inf
        return least_estimate(similarity) if similarity else 0.0

    def apart(self, keys: Column, numbers: Places) -> Column:
        """Return other keys of documents, such that those of two groups have none in common."""
        return keys if self.groups is None else keys ^ self.groups.values[numbers]

    def compares(self, first: Places, second: Places) -> Marks | slice:
        """Mark the pairs that may be compared, or return a slice of all."""
        groups = self.groups
        return slice(None) if groups is None else groups.values[first] == groups.values[second]

    def lets_go(self, first: Places, second: Places, shares: Shares) -> Marks | bool:
        """Mark the pairs whose first document may go, given how similar they are."""
        if self.lose is None or self.sizes is None:
            return True
        sizes = self.sizes.values
        return own_shares(shares, sizes[first], sizes[second]) <= self.lose


ANY = Rule()
