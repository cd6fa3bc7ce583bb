from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

class CharacterTable:
    def __init__(self, source: Callable[[int], NDArray[np.uint32]]) -> None: ...

class WeightTable:
    def __init__(self, table: NDArray[np.int64], damp: Callable[[int], int]) -> None: ...

class ShingleKernel:
    def __init__(
        self,
        characters: CharacterTable,
        weights: WeightTable,
        *,
        bits: int,
        tie: int,
        most: int,
        letters: NDArray[np.uint64],
        places: NDArray[np.uint64],
        rounds: NDArray[np.uint64],
        bins: NDArray[np.uint64],
        votes: NDArray[np.uint64],
    ) -> None: ...
    def run(
        self,
        texts: list[str],
        fingerprints: NDArray[np.uint64],
        features: NDArray[np.int64],
        sketches: NDArray[np.uint8],
    ) -> list[int]: ...
