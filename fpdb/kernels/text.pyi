from array import array
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

class CharacterTable:
    def __init__(self, source: Callable[[int], NDArray[np.uint32]]) -> None: ...

class WeightTable:
    def __init__(
        self,
        table: NDArray[np.int64],
        masses: NDArray[np.float64],
        damp: Callable[[int], int],
    ) -> None: ...

class FactorTable:
    def __init__(
        self,
        data: bytes,
        ends: NDArray[np.int64],
        values: NDArray[np.float64],
        missing: float,
    ) -> None: ...

class TextKernel:
    def __init__(
        self,
        characters: CharacterTable,
        weights: WeightTable,
        *,
        bits: int,
        tie: int,
        most: int,
        salts: NDArray[np.uint64],
    ) -> None: ...
    def vote_counts(
        self, digests: list[bytes], counts: list[int], fingerprint: NDArray[np.uint64]
    ) -> bool:
        """Let features vote, by their hashes and counts; return whether it could be done."""

    def run(
        self,
        texts: list[str],
        fingerprints: NDArray[np.uint64],
        features: NDArray[np.int64],
        sketches: NDArray[np.uint8],
        passages: list[bytes] | None = None,
    ) -> list[int]:
        """Fill a row of each array for each text; return the numbers of those left out.

        `fingerprints` without columns, `sketches` without rows and no `passages` aren't filled.
        """

class ShingleKernel(TextKernel):
    def shingles(self, texts: list[str]) -> list[bytes | None]:
        """Return the hashes of the distinct shingles of each text; None if it is left out."""

    def passages(self, text: str) -> tuple[bytes, bytes, bytes, int] | None:
        """Return the parts of `PlacedPassages` of a text, or None if it is left out."""

class FeatureKernel(TextKernel):
    def __init__(
        self,
        characters: CharacterTable,
        weights: WeightTable,
        *,
        bits: int,
        tie: int,
        most: int,
        salts: NDArray[np.uint64],
        length: int,
        joined: bool,
        seed: int,
        hasher: Callable[[bytes], int],
        factors: FactorTable | None,
        dictionary: Callable[[], array[int] | None] | None,
    ) -> None: ...
