from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Column, Places

class PageCursor:
    def __init__(
        self, cursor: Any, digest: Callable[[memoryview, int], int], columns: int, seed: int
    ) -> None: ...

class Probes:
    def __init__(self, moves: Column, moves_back: Column, masks: Column, below: int) -> None: ...

class NearSearch:
    def __init__(self, probes: list[Probes], words: int, k: int, few: int, home: bool) -> None: ...
    def near(
        self, cursors: list[list[PageCursor]], query: int, room: int
    ) -> tuple[dict[int, int], dict[int, list[int]]] | None: ...

def runs(at: PageCursor, numbers: Sequence[int]) -> list[tuple[int, list[int] | None]] | None: ...
def unpacked(
    value: bytes | memoryview, columns: int, wanted: int, digest: int
) -> bytearray | None: ...
def record_heads(
    cursor: Any,
    ids: Column,
    digest: Callable[[memoryview, int], int],
    seed: int,
    page: int,
    size: int,
    keys: list[str] | None = None,
    width: int = 0,
) -> bytearray | None: ...
def bins_apart(
    first: Column, first_rows: Places, second: Column, second_rows: Places, counts: Places
) -> None: ...
def common(
    hashes: Column,
    ends: Places,
    signatures: Column,
    firsts: NDArray[np.int32],
    seconds: NDArray[np.int32],
    least: float,
    counts: Places,
) -> None: ...
def meeting(
    rows: Column,
    heads: Column,
    asked: Column,
    lower_bits: np.uint64,
    starts: Places,
    counts: Places,
) -> None: ...
def near_rows(
    rows: Column,
    heads: Column,
    asked: Column,
    lower_bits: np.uint64,
    crowd: int,
    first: Column,
    second: Column,
    most: int,
    askers: Places,
    met: Places,
) -> int | None: ...
def heads(values: list[memoryview], size: int) -> bytearray: ...
def packed(rows: list[Column], first: int, largest: int) -> tuple[bytearray, int]: ...
def merged(rows: list[Column], insert: list[Column], keys: int) -> tuple[bytearray, int]: ...

class RowsToInsert:
    def __init__(self, rows: Column, largest: int) -> None: ...
    def insert(
        self,
        at: PageCursor,
        put: Callable[[bytes, bytearray], object],
        keys: int,
        most: int,
        first: int,
    ) -> int: ...

class Ranges:
    longest: int
    def search(self, at: PageCursor, in_turn: bool, enough: int) -> bool | None: ...
    def taken(self) -> list[bytes]: ...

class RangeSearch(Ranges):
    def __init__(
        self,
        lows: Column,
        highs: Column,
        bounds: Places,
        words: list[Column],
        queries: Places,
        read: Places,
        budget: int,
        k: int,
        most: int,
    ) -> None: ...

class IdSearch(Ranges):
    def __init__(
        self,
        lows: Column,
        highs: Column,
        bounds: Places,
        words: list[Column],
        queries: Places,
        read: Places,
        limit: int,
    ) -> None: ...
