from collections.abc import Sequence

def packed(
    entries: Sequence[tuple[bytes, int]], first: int, after: int
) -> tuple[bytearray, int]: ...
def unpacked(value: bytes | memoryview, digest: int) -> list[tuple[bytes, int]] | None: ...
def numbers_of(
    value: bytes | memoryview, digest: int, texts: list[bytes], first: int
) -> list[int | None] | None: ...
def inserted(
    value: bytes | memoryview,
    digest: int,
    entries: Sequence[tuple[bytes, int]],
    first: int,
    after: int,
) -> bytearray | None: ...
