from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from fpdb.arrays import Column, Places

def packed(
    strings: list[tuple[NDArray[Any], Places]],
    fingerprints: NDArray[Any],
    short: NDArray[Any],
    digests: NDArray[Any],
    sketches: NDArray[Any],
    characters: Places,
    added: Places,
    ends: Places,
) -> bytearray: ...
def numbered(
    data: NDArray[Any],
    ends: Places,
    ids: Column,
    digest: Callable[[memoryview, int], int],
    seed: int,
) -> list[tuple[bytes, bytes]]: ...
