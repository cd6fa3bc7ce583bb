from fpdb.arrays import Column, Places

def near_rows(
    value: bytes | memoryview,
    columns: int,
    digest: int,
    low: int,
    high: int,
    query: int,
    k: int,
) -> tuple[int, list[tuple[int, int, int, int]] | None] | None: ...
def runs(
    value: bytes | memoryview, columns: int, digest: int, numbers: list[int], at: int
) -> tuple[int, list[tuple[int, list[int] | None]]] | None: ...
def packed(rows: list[Column], largest: int) -> bytearray | int: ...

class RowsToInsert:
    def __init__(self, rows: Column) -> None: ...
    def into(
        self, value: bytes | memoryview, digest: int, first: int, after: int
    ) -> bytearray | None: ...
    def merged(
        self, value: bytes | memoryview, keys: int, digest: int, first: int, after: int
    ) -> memoryview | None: ...

class RangeSearch:
    longest: int
    def __init__(
        self,
        lows: Column,
        highs: Column,
        bounds: Places,
        words: Column,
        queries: Places,
        read: Places,
        budget: int,
        k: int,
        most: int,
    ) -> None: ...
    def compare(
        self, value: bytes | memoryview, columns: int, digest: int, done: int
    ) -> tuple[int, bool] | None: ...
    def __len__(self) -> int: ...
    def taken(self) -> tuple[bytes, bytes]: ...
