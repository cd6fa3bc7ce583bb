"""How similar texts are, by the Jaccard similarity of their sketches, or of their shingles."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Marks, Places
from fpdb.fingerprint.sketches import jaccard_of_rows, least_estimate
from fpdb.storage.block import TextColumns
from fpdb.storage.format import Stored

Shares = NDArray[np.float64]


class KnownTexts(Protocol):
    """Texts that are at hand, in places, so that they can be compared exactly."""

    def places(self, documents: Sequence[Stored]) -> Places:
        """Return where the texts of documents are, and -1 for those that aren't known."""

    def shares(self, first: Places, second: Places) -> Shares:
        """Return the exact similarity of each two texts; nan where one of them isn't known."""

    def ask_no_more(self) -> None:
        """Take all further texts for unknown."""


def jaccard(first: TextColumns, own: Places, second: TextColumns, other: Places) -> Shares:
    """Return the similarity of each two texts; nan if one of them has no sketch.

    Equal texts are similar in any case.
    """
    shares = jaccard_of_rows(first.sketches, own, second.sketches, other)
    shares[equal_texts(first, own, second, other)] = 1.0
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


def equal_texts(first: TextColumns, own: Places, second: TextColumns, other: Places) -> Marks:
    """Mark the pairs of texts whose digests are equal."""
    # Most pairs differ in the first half of their digests, which is compared much faster.
    same: Marks = first.digests[:, 0].take(own) == second.digests[:, 0].take(other)
    [places] = same.nonzero()
    digests = first.digests[own[places]]
    equal = (digests == second.digests[other[places]]).all(axis=1)
    same[places] = equal & digests.any(axis=1)
    return same
