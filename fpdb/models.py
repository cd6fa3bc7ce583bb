"""The frozen values that fpdb hands out."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Batch:
    """The fingerprints of many texts, and which of them are not to be trusted.

    `fingerprints` is uint64[n], or uint64[n, 2] at 128 bits, high word first; `features` counts
    the distinct features of each text; `short` marks the texts with too few of them.
    """

    fingerprints: NDArray[np.uint64]
    features: NDArray[np.int64]
    short: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.features)


@dataclass(frozen=True)
class Comparison:
    """What two texts have in common under a recipe, estimated and exact.

    `distance` is the Hamming distance, `similarity` 1 - distance/bits. `angle` (in degrees) and
    `cosine_estimate` follow from the distance; `cosine` and `jaccard` are exact, from the
    features themselves; `value_ratio` divides the smaller fingerprint by the larger. `short` says
    that a text has too few features for its fingerprint to be trusted, `equal` that the features
    of both are the same.
    """

    distance: int
    similarity: float
    angle: float
    cosine_estimate: float
    cosine: float
    jaccard: float
    value_ratio: float
    short: bool
    equal: bool
