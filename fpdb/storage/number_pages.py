"""The bytes of a page of numbers: columns, each as narrow as it can be, and a checksum.

The seed of the checksum is made of the table and the page's key, so that a page in the place of
another is noticed. XXH3 takes the lowest 64 bits of a seed.

Part of the file format: docs/reference/format.md has the layout, and none of it may change.
"""

import struct
from functools import cache

import numpy as np
import xxhash

from fpdb import kernels
from fpdb.arrays import Column, Rows
from fpdb.errors import DamagedError

# Bytes that fit on one overflow page of LMDB after its head: no page needs a run of free pages.
LARGEST = 4080
_HEAD = struct.Struct("<IHH")
_CHECKSUM_BYTES = 4
_MOST_COLUMNS = 4  # as many widths as 16 bits hold
_BASES = [struct.Struct(f"<{count}Q") for count in range(_MOST_COLUMNS + 1)]
# The smallest spans of numbers that take 1 to 8 bytes.
_LEAST_OF_WIDTH = np.array([1 << 8 * width for width in range(8)], np.uint64)
_sum_into = struct.Struct("<I").pack_into
_digest = xxhash.xxh3_64_intdigest


def pack_rows(rows: Rows, first: int = 0) -> tuple[bytearray, int]:
    """Pack rows, from one on, into a page, as many as fit; return it and the place after the last.

    Its checksum is written by `summed`.
    """
    if kernels.enabled:
        return kernels.number_pages.packed(rows, first, LARGEST)
    columns = [column[first : first + LARGEST] for column in rows]
    lows = [np.minimum.accumulate(column) for column in columns]
    spans = [np.maximum.accumulate(column) - low for column, low in zip(columns, lows, strict=True)]
    widths = np.array([_LEAST_OF_WIDTH.searchsorted(span, "right") for span in spans])
    head = _HEAD.size + 8 * len(rows)
    sizes = head + widths.sum(axis=0) * np.arange(1, len(columns[0]) + 1)
    count = int(sizes.searchsorted(LARGEST, "right"))
    nibbles, bases, parts = 0, b"", []
    for index, (column, low) in enumerate(zip(columns, lows, strict=True)):
        width = int(widths[index, count - 1])
        base = np.uint64(0) if width == 8 else low[count - 1]
        nibbles |= width << 4 * index
        bases += base.tobytes()
        numbers = (column[:count] - base).astype("<u8")
        parts.append(numbers.view(np.uint8).reshape(-1, 8)[:, :width].tobytes())
    return bytearray(_HEAD.pack(0, count, nibbles) + bases + b"".join(parts)), first + count


def summed(page: bytearray, seed: int) -> bytearray:
    """Write the checksum of a page into it."""
    _sum_into(page, 0, _digest(memoryview(page)[_CHECKSUM_BYTES:], seed) & 0xFFFFFFFF)
    return page


def unpack_rows(
    value: memoryview | bytes, columns: int, seed: int, wanted: int | None = None
) -> Rows:
    """Unpack the columns of a page, or the first `wanted`; a column may be a view of the value."""
    if kernels.enabled:
        digest = _digest(value[_CHECKSUM_BYTES:], seed)
        data = kernels.number_pages.unpacked(value, columns, wanted or columns, digest)
        if data is not None:
            return list(np.frombuffer(data, np.uint64).reshape(wanted or columns, -1))
    try:
        checksum, count, widths = _HEAD.unpack_from(value)
        if _digest(value[_CHECKSUM_BYTES:], seed) & 0xFFFFFFFF != checksum:
            raise DamagedError("the checksum of a page is wrong")
        at = _HEAD.size + 8 * columns
        if at + count * _row_bytes(widths) != len(value):
            raise DamagedError("a page can't be read: it is one of another table")
        return _read_columns(value, wanted or columns, count, widths, at)
    except (struct.error, ValueError) as error:
        raise DamagedError(f"a page can't be read: {error}") from None


@cache
def _row_bytes(widths: int) -> int:
    return sum(widths >> 4 * index & 15 for index in range(_MOST_COLUMNS))


def _read_columns(value: memoryview | bytes, wanted: int, count: int, widths: int, at: int) -> Rows:
    rows: Rows = []
    for index, base in enumerate(_BASES[wanted].unpack_from(value, _HEAD.size)):
        width = widths >> 4 * index & 15
        if width == 8:  # isn't a difference, whatever base a forged page has
            rows.append(np.frombuffer(value, np.uint64, count, at))
        else:
            rows.append(_widened(value, at, count, width) + np.uint64(base))
        at += width * count
    return rows


def _widened(value: memoryview | bytes, at: int, count: int, width: int) -> Column:
    if width > 8:
        raise ValueError(f"a column is {width} bytes wide")
    wide = np.zeros((count, 8), np.uint8)
    wide[:, :width] = np.frombuffer(value, np.uint8, count * width, at).reshape(count, width)
    return wide.view(np.uint64)[:, 0]
