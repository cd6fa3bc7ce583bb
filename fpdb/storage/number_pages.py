"""The bytes of a page of numbers: columns, each as narrow as it can be, and a checksum.

The seed of the checksum is made of the table and the page's key, so that a page in the place of
another is noticed. XXH3 takes the lowest 64 bits of a seed.

Part of the file format: docs/reference/format.md has the layout, and none of it may change.
"""

import struct
from functools import cache
from typing import NamedTuple

import numpy as np
import xxhash

from fpdb import kernels
from fpdb.arrays import Column, Rows
from fpdb.errors import DamagedError

# What fits on one overflow page of LMDB after its head: no page needs a run of free pages.
LARGEST = 4080
_HEAD = struct.Struct("<IHH")
_CHECKSUM_BYTES = 4
_MOST_COLUMNS = 4  # as many widths as 16 bits hold
_BASES = [struct.Struct(f"<{count}Q") for count in range(_MOST_COLUMNS + 1)]
_TYPES = {width: np.dtype(f"<u{width}") for width in (1, 2, 4)}
_BODY_HEAD = struct.Struct("<HH")
_sum_into = struct.Struct("<I").pack_into
_digest = xxhash.xxh3_64_intdigest


class Shape(NamedTuple):
    """The bases and widths of columns, and the bytes of their page."""

    bases: list[int]
    widths: list[int]
    size: int


def shape_of(rows: Rows) -> Shape:
    """Return the shape of rows whose first column is sorted."""
    bases, widths, row = [], [], 0
    for index, column in enumerate(rows):
        low, high = (column.min(), column.max()) if index else (column[0], column[-1])
        width = (int(high - low).bit_length() + 7) // 8
        bases.append(0 if width == 8 else int(low))
        widths.append(width)
        row += width
    return Shape(bases, widths, _HEAD.size + 8 * len(rows) + row * len(rows[0]))


def rows_that_fit(shape: Shape) -> int:
    """Return the number of rows of these widths that fit on a page."""
    room = LARGEST - _HEAD.size - 8 * len(shape.widths)
    return room // max(sum(shape.widths), 1)


def pack_rows(rows: Rows, seed: int) -> bytearray:
    """Pack rows into a page."""
    return summed(pack_unsummed(rows, shape_of(rows)), seed)


def pack_fitting(rows: Rows, largest: int) -> bytearray | None:
    """Pack rows into a page that lacks its checksum; return None if it would be too large."""
    if kernels.enabled:
        found = kernels.number_pages.packed(rows, largest)
        return found if isinstance(found, bytearray) else None
    shape = shape_of(rows)
    return pack_unsummed(rows, shape) if shape.size <= largest else None


def pack_unsummed(rows: Rows, shape: Shape) -> bytearray:
    """Pack rows into a page of this shape, whose checksum is still missing."""
    nibbles = 0
    parts = [b"", _BASES[len(rows)].pack(*shape.bases)]
    for index, (column, base, width) in enumerate(
        zip(rows, shape.bases, shape.widths, strict=True)
    ):
        nibbles |= width << 4 * index
        numbers = (column - np.uint64(base)).astype("<u8")
        parts.append(numbers.view(np.uint8).reshape(-1, 8)[:, :width].tobytes())
    parts[0] = bytes(_CHECKSUM_BYTES) + _BODY_HEAD.pack(len(rows[0]), nibbles)
    return bytearray().join(parts)


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
        found = kernels.number_pages.unpacked(value, columns, wanted or columns, digest)
        if found is not None:
            return list(np.frombuffer(found, np.uint64).reshape(wanted or columns, -1))
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
    """Return the bytes of a row, by the widths in the head of a page."""
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
    if width in _TYPES:
        return np.frombuffer(value, _TYPES[width], count, at).astype(np.uint64)
    if width > 8:
        raise ValueError(f"a column is {width} bytes wide")
    wide = np.zeros((count, 8), np.uint8)
    wide[:, :width] = np.frombuffer(value, np.uint8, count * width, at).reshape(count, width)
    return wide.view(np.uint64)[:, 0]
