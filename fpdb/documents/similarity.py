"""How similar texts are, by the Jaccard similarity of their sketches."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Column, Marks, Places
from fpdb.fingerprint.sketches import jaccard_of_rows
from fpdb.models import DIGEST_BYTES
from fpdb.storage.block import Block
from fpdb.tables.bits import Fingerprints

Shares = NDArray[np.float64]


class Side(NamedTuple):
    """Some texts by their fingerprints, digests and sketches; a missing one is all zeros."""

    fingerprints: Fingerprints
    digests: Column
    sketches: NDArray[np.uint8]

    @classmethod
    def of(cls, documents: Block) -> "Side":
        return cls(documents.fingerprints, documents.digests, documents.sketches)


def jaccard(first: Side, own: Places, second: Side, other: Places) -> Shares:
    """Return the similarity of each two texts; nan if one of them has no sketch.

    Equal texts are similar in any case.
    """
    shares = jaccard_of_rows(first.sketches, own, second.sketches, other)
    shares[equal_texts(first, own, second, other)] = 1.0
    return shares


def equal_texts(first: Side, own: Places, second: Side, other: Places) -> Marks:
    """Mark the pairs of texts whose digests are equal."""
    # Most pairs differ in the first half of their digests, which is compared much faster.
    same: Marks = first.digests[:, 0].take(own) == second.digests[:, 0].take(other)
    [places] = same.nonzero()
    digests = first.digests[own[places]]
    equal = (digests == second.digests[other[places]]).all(axis=1)
    same[places] = equal & digests.any(axis=1)
    return same


def side_of(
    fingerprints: Fingerprints, digests: Sequence[bytes], sketches: NDArray[np.uint8]
) -> Side:
    """Combine fingerprints and digests, of which some may be empty, with sketches."""
    packed = b"".join([digest.ljust(DIGEST_BYTES, b"\0") for digest in digests])
    return Side(fingerprints, np.frombuffer(packed, np.uint64).reshape(-1, 2), sketches)
