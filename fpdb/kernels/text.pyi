import numpy as np
from numpy.typing import NDArray

def fill_rounds(
    hashes: NDArray[np.uint64],
    counts: NDArray[np.int64],
    salts: NDArray[np.uint64],
    table: NDArray[np.uint64],
) -> bool:
    """Fill the bins of texts by the rounds of the sketch; return whether none stays empty."""
