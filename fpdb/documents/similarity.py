"""How similar texts are, by the Jaccard similarity of their sketches, or of their shingles."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Marks, Places, differs, joined
from fpdb.fingerprint.sketches import jaccard_of_rows, least_estimate
from fpdb.storage.block import TextColumns
from fpdb.storage.format import Stored
from fpdb.tables.bits import Distances, distances

Shares = NDArray[np.float64]


class Alike(NamedTuple):
    """Pairs of documents that are or may be similar, as columns.

    They go by places or ids. A share is nan if fingerprints were compared. A pair is `sure` if that
    was so, or if the texts are equal or known; of others, the share is an estimate.
    """

    first: NDArray[Any]
    second: NDArray[Any]
    shares: Shares
    distances: Distances
    sure: Marks

    def only(self, chosen: Marks | Places | slice) -> "Alike":
        return Alike._make(column[chosen] for column in self)

    @classmethod
    def none(cls) -> "Alike":
        ids, apart, sure = np.empty(0, np.uint64), np.empty(0, np.uint8), np.empty(0, np.bool_)
        return cls(np.empty(0, np.int64), ids, np.empty(0), apart, sure)

    def nearer(self, further: "Alike") -> "Alike":
        """Return the nearest pair of each first document in these and others."""
        pairs = Alike(*joined([self, further])).nearest_first()
        return pairs.only(differs(pairs.first))

    def nearest_first(self) -> "Alike":
        """Sort the pairs of each first document: the most similar one, then the nearest by bits.

        Of two that are as near, the lower one comes first.
        """
        shares = np.nan_to_num(self.shares)
        return self.only(np.lexsort((self.second, self.distances, -shares, self.first)))


class KnownTexts(Protocol):
    """Texts that are at hand, in places, so that they can be compared exactly."""

    def places(self, documents: Sequence[Stored]) -> Places:
        """Return where the texts of documents are, and -1 for those that aren't known."""

    def shares(self, first: Places, second: Places) -> Shares:
        """Return the exact similarity of each two texts; nan where one of them isn't known."""

    def ask_no_more(self) -> None:
        """Take all further texts for unknown."""


def alike(
    first: TextColumns,
    left: Places,
    second: TextColumns,
    right: Places,
    *,
    least: float,
    bits: int,
    at: Places | None = None,
) -> Alike:
    """Compare texts with others by their places; return the pairs whose estimate is at least so.

    With `at`, the others have these places.
    """
    there = right if at is None else at[right]
    shares = jaccard(first, left, second, there)
    [near] = (shares >= least).nonzero()
    left, there = left[near], there[near]
    apart = distances(first.fingerprints[left], second.fingerprints[there], bits)
    equal = equal_texts(first, left, second, there)
    return Alike(left, right[near], shares[near], apart, equal)


def jaccard(first: TextColumns, left: Places, second: TextColumns, right: Places) -> Shares:
    """Return the similarity of each two texts; nan if one of them has no sketch.

    Equal texts are similar in any case.
    """
    shares = jaccard_of_rows(first.sketches, left, second.sketches, right)
    shares[equal_texts(first, left, second, right)] = 1.0
    return shares


def decided(
    shares: Shares, equal: Marks, exact: Shares, similarity: float
) -> tuple[Marks, Shares, Marks]:
    """Decide which pairs are similar: exactly where that is known, and by estimates elsewhere.

    Args:
        shares: How similar they are by their sketches.
        equal: Marks of equal texts.
        exact: How similar they are by their texts; nan where one of these isn't known.
        similarity: The limit.

    Returns:
        Marks of the similar pairs; how similar all are; and marks of those where that is exact.
    """
    known = ~np.isnan(exact)
    shares, known = np.where(known, exact, shares), known | equal
    return shares >= np.where(known, similarity, least_estimate(similarity)), shares, known


def equal_texts(first: TextColumns, left: Places, second: TextColumns, right: Places) -> Marks:
    """Mark the pairs of texts whose digests are equal."""
    # Most pairs differ in the first half of their digests, which is compared much faster. Of a
    # column of an array, numpy would copy all rows to take some.
    one, other = first.digests.reshape(-1), second.digests.reshape(-1)
    same: Marks = one.take(2 * left) == other.take(2 * right)
    [places] = same.nonzero()
    digests = first.digests[left[places]]
    equal = (digests == second.digests[right[places]]).all(axis=1)
    same[places] = equal & digests.any(axis=1)
    return same
