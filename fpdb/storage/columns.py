"""The bytes of a page: columns of numbers, each as narrow as it can be, and a checksum.

The seed of the checksum is made of the table and the page's key, so that a page in the place of
another is noticed. XXH3 takes the lowest 64 bits of a seed.

Part of the file format: docs/reference/format.md has the layout, and none of it may change.
"""

import struct
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from fpdb import kernels
from fpdb.arrays import Column, Rows, differs, joined
from fpdb.errors import DamagedError

# What fits on one overflow page of LMDB after its head: no page needs a run of free pages.
LARGEST = 4080
_HEAD = struct.Struct("<IHH")
_CHECKSUM_BYTES = 4
_LARGEST_NUMBER = (1 << 64) - 1
_TYPES: dict[int, np.dtype[np.unsignedinteger]] = {
    1: np.dtype("u1"),
    2: np.dtype("<u2"),
    4: np.dtype("<u4"),
    8: np.dtype("<u8"),
}
_LOWEST = [np.dtype(f"V{width}") for width in range(9)]  # the last N bytes of a number
_CODES: dict[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q"}
_FEW = 8
_MOST_COLUMNS = 4  # as many widths as 16 bits hold
_BASES = [struct.Struct(f"<{count}Q") for count in range(_MOST_COLUMNS + 1)]
_BODY_HEAD = struct.Struct("<HH")


class _RowBytes(dict[int, int]):
    """The bytes of a row, by the widths in the head of a page."""

    def __missing__(self, widths: int) -> int:
        total = self[widths] = sum(widths >> 4 * index & 15 for index in range(_MOST_COLUMNS))
        return total


_row_bytes = _RowBytes()
# Local names: looking up attributes costs half of the time that reading a page takes.
_unpack_head = _HEAD.unpack_from
_unpack_head_and_base = struct.Struct("<IHHQ").unpack_from
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


def pack_rows(rows: Rows, shape: Shape, seed: int) -> bytearray:
    """Pack rows into a page of this shape."""
    return summed(pack_unsummed(rows, shape), seed)


def page_or_size(rows: Rows, largest: int) -> bytearray | int:
    """Pack rows into a page that lacks its checksum, or return its size if that is too large."""
    if kernels.enabled:
        return kernels.pages.packed(rows, largest)
    shape = shape_of(rows)
    return pack_unsummed(rows, shape) if shape.size <= largest else shape.size


def pack_unsummed(rows: Rows, shape: Shape) -> bytearray:
    """Pack rows into a page of this shape, whose checksum is still missing."""
    nibbles = 0
    parts = [b"", _BASES[len(rows)].pack(*shape.bases)]
    for index, (column, base, width) in enumerate(
        zip(rows, shape.bases, shape.widths, strict=True)
    ):
        nibbles |= width << 4 * index
        if width == 8:
            parts.append(column.tobytes())
        elif width:
            parts.append(_narrowed(column - np.uint64(base), width))
    parts[0] = bytes(_CHECKSUM_BYTES) + _BODY_HEAD.pack(len(rows[0]), nibbles)
    return bytearray().join(parts)


def summed(page: bytearray, seed: int) -> bytearray:
    """Write the checksum of a page into it."""
    _sum_into(page, 0, _digest(memoryview(page)[_CHECKSUM_BYTES:], seed) & 0xFFFFFFFF)
    return page


def unpack_rows(
    value: memoryview | bytes, columns: int, seed: int, wanted: int | None = None
) -> Rows:
    """Unpack the columns of a page, or the first `wanted`; a wide column is a view of the value."""
    try:
        count, widths, at = _opened(value, columns, seed)
        wanted = wanted or columns
        if wanted == 1 and widths & 15 == 8:  # most pages that queries and joins read
            return [np.frombuffer(value, np.uint64, count, at)]
        return _read_columns(value, wanted, count, widths, at)
    except (struct.error, ValueError, KeyError) as error:
        raise DamagedError(f"a page can't be read: {error}") from None


class NewRows:
    """Rows that are put into pages, a few at a time: columns of equal length."""

    def __init__(self, rows: Rows) -> None:
        self._numbers: list[list[int]] = []
        self._rows = rows
        self._inserter = None
        if kernels.enabled:
            self._inserter = kernels.pages.RowsToInsert(np.stack(rows), LARGEST)

    def insert(
        self,
        at: "kernels.pages.PageCursor | None",
        put: Callable[[bytes, bytearray], object],
        keys: int,
        first: int,
        most: int,
    ) -> int:
        """Put rows into the pages that they belong to, from one on; return the first that is left.

        Without a kernel, all are left; with it, those from the first page on that `into` can't
        grow, or that gets more than `most` rows. The first N columns are the key of a row.
        """
        if self._inserter is None or at is None:
            return first
        return self._inserter.insert(at, put, keys, first, most)

    def into(
        self, value: memoryview, columns: int, seed: int, first: int, after: int
    ) -> bytearray | None:
        """Return a page with some of the rows, as `with_rows` does."""
        if self._inserter is not None:
            grown = self._inserter.into(value, _digest(value[4:], seed), first, after)
            if grown is None:
                return None
            if grown:
                return summed(grown, seed)
        if not self._numbers:
            self._numbers = [column.tolist() for column in self._rows]
        return with_rows(value, columns, seed, [column[first:after] for column in self._numbers])

    def merged(self, value: memoryview, keys: int, seed: int, first: int, after: int) -> Rows:
        """Return the rows of a page and some of these, sorted by their first N columns.

        One of these replaces an old one in whose place it comes.
        """
        columns, some = len(self._rows), slice(first, after)
        if self._inserter is not None:
            found = self._inserter.merged(value, keys, _digest(value[4:], seed), first, after)
            if found is not None:
                return list(np.frombuffer(found, np.uint64).reshape(columns, -1))
        old = unpack_rows(value, columns, seed)
        return merged([column[some] for column in self._rows], old, keys)


def merged(rows: Rows, old: Rows, keys: int) -> Rows:
    """Merge rows that are sorted by their first N columns; of equal keys the new row stays."""
    both = joined([rows, old])  # the sort is stable
    order = np.lexsort(both[:keys][::-1])
    both = [column[order] for column in both]
    fresh = differs(*both[:keys])
    return [column[fresh] for column in both]


def with_rows(
    value: memoryview, columns: int, seed: int, rows: list[list[int]]
) -> bytearray | None:
    """Return a page with a few more rows, whose other bytes mostly remain as they are.

    The rows are columns, sorted by the first. Return None if the page must be packed anew: if it
    would overflow, a column become wider, or a row come first or next to one with its number.
    """
    try:
        count, widths, start = _opened(value, columns, seed)
        width = widths & 15
        if not width or len(value) + len(rows[0]) * _row_bytes[widths] > LARGEST:
            return None
        bases = _BASES[columns].unpack_from(value, _HEAD.size)
        low = 0 if width == 8 else bases[0]
        numbers = _searchable(value, start, count, width)
        places = []
        for number in rows[0]:
            place = bisect_left(numbers, number - low)
            if not place or (place < count and numbers[place] == number - low):
                return None
            places.append(place)
        places.reverse()
        grown, at = bytearray(value), len(value)
        # From the end, so that what is before remains in its place.
        for index in range(columns - 1, -1, -1):
            width = widths >> 4 * index & 15
            at -= count * width
            base = 0 if width == 8 else bases[index]
            for place, number in zip(places, reversed(rows[index]), strict=True):
                here = at + place * width
                grown[here:here] = (number - base).to_bytes(width, "little")
    except OverflowError:  # a number that takes more bytes
        return None
    except (struct.error, ValueError, TypeError, KeyError) as error:
        raise DamagedError(f"a page can't be read: {error}") from None
    _BODY_HEAD.pack_into(grown, _CHECKSUM_BYTES, count + len(places), widths)
    return summed(grown, seed)


def raw_column(value: memoryview, columns: int, seed: int) -> tuple[memoryview, int]:
    """Return the first column of a page as bytes of uint64, mostly uncopied, and its length."""
    try:
        # As in `_opened`, whose call takes time here: queries read most pages by this function.
        checksum, count, widths = _unpack_head(value)
        start = 8 + 8 * columns
        sound = _digest(value[4:], seed) & 0xFFFFFFFF == checksum
        if not sound or start + count * _row_bytes[widths] != len(value):
            _opened(value, columns, seed)  # which raises the error
        if widths & 15 == 8:
            return value[start : start + 8 * count], count
        return _read_columns(value, 1, count, widths, start)[0].data.cast("B"), count
    except (struct.error, ValueError, KeyError) as error:
        raise DamagedError(f"a page can't be read: {error}") from None


def narrow_column(value: memoryview, columns: int, seed: int) -> tuple[Sequence[int], int]:
    """Return the first column of a page in a form to search in, and what to add to its numbers."""
    try:
        # As in `_opened`, whose call takes time here: a query reads a page for each band.
        checksum, count, widths, low = _unpack_head_and_base(value)
        start = 8 + 8 * columns
        sound = _digest(value[4:], seed) & 0xFFFFFFFF == checksum
        if not sound or start + count * _row_bytes[widths] != len(value):
            _opened(value, columns, seed)  # which raises the error
        if not (width := widths & 15):
            return bytes(count), low
        return _searchable(value, start, count, width), low if width < 8 else 0
    except (struct.error, ValueError, KeyError) as error:
        raise DamagedError(f"a page can't be read: {error}") from None


def last_numbers(value: memoryview, columns: int, start: int, stop: int) -> list[int]:
    """Return the last numbers of rows of a page whose checksum was verified already."""
    _, count, widths = _HEAD.unpack_from(value)
    at = _HEAD.size + 8 * columns
    for _ in range(columns - 1):
        at += count * (widths & 15)
        widths >>= 4
    width = widths & 15
    base: int = _BASES[1].unpack_from(value, _HEAD.size + 8 * (columns - 1))[0]
    if not width:
        return [base] * (stop - start)
    if width == 8:  # isn't a difference, whatever base a forged page has
        base = 0
    at, end = at + start * width, at + stop * width
    # Only on a forged page a sum wraps around, as in the arrays.
    if stop - start > _FEW:  # mostly it is one, for which an array takes too long
        found = _widened(value, at, stop - start, width).tolist()
        return [base + each & _LARGEST_NUMBER for each in found]
    return [
        base + int.from_bytes(value[each : each + width], "little") & _LARGEST_NUMBER
        for each in range(at, end, width)
    ]


def page_length(value: memoryview | bytes, columns: int) -> int:
    """Return the bytes of a page with N columns by its head, 0 if that can't be one."""
    if len(value) < _HEAD.size:
        return 0
    _, count, widths = _HEAD.unpack_from(value)
    each = [widths >> 4 * index & 15 for index in range(_MOST_COLUMNS)]
    if max(each) > 8 or any(each[columns:]):
        return 0
    length: int = _HEAD.size + 8 * columns + count * sum(each)
    return length


def rows_of(value: memoryview) -> int:
    """Return the number of rows of a page whose checksum was verified already."""
    count: int = _HEAD.unpack_from(value)[1]
    return count


def number_at(value: memoryview, columns: int, row: int) -> int:
    """Return the last number of a row of a page whose checksum was verified already."""
    _, count, widths = _HEAD.unpack_from(value)
    at = _HEAD.size + 8 * columns
    for _ in range(columns - 1):
        at += count * (widths & 15)
        widths >>= 4
    widths &= 15
    at += row * widths
    if widths == 8:  # isn't a difference, whatever base a forged page has
        return int.from_bytes(value[at : at + 8], "little")
    base: int = _BASES[1].unpack_from(value, _HEAD.size + 8 * (columns - 1))[0]
    # A sum that wraps around, which only a forged page holds, does so here as in the arrays.
    return base + int.from_bytes(value[at : at + widths], "little") & _LARGEST_NUMBER


def _opened(value: memoryview | bytes, columns: int, seed: int) -> tuple[int, int, int]:
    """Return the rows of a sound page, their widths, and where its columns begin."""
    checksum, count, widths = _unpack_head(value)
    if _digest(value[4:], seed) & 0xFFFFFFFF != checksum:
        raise DamagedError("the checksum of a page is wrong")
    start = 8 + 8 * columns
    if start + count * _row_bytes[widths] != len(value):
        raise DamagedError("a page can't be read: it is one of another table")
    return count, widths, start


def _read_columns(value: memoryview | bytes, wanted: int, count: int, widths: int, at: int) -> Rows:
    rows: Rows = []
    for index, base in enumerate(_BASES[wanted].unpack_from(value, _HEAD.size)):
        width = widths >> 4 * index & 15
        if width == 8:
            rows.append(np.frombuffer(value, np.uint64, count, at))
        elif width:
            rows.append(_widened(value, at, count, width) + np.uint64(base))
        else:
            rows.append(np.full(count, base, np.uint64))
        at += width * count
    return rows


def _searchable(value: memoryview, at: int, count: int, width: int) -> Sequence[int]:
    """Return a column without its base, uncopied if its numbers are as wide as memory has them."""
    if width in _CODES:
        return value[at : at + count * width].cast(_CODES[width])
    return _widened(value, at, count, width).data


def _narrowed(column: Column, width: int) -> bytes:
    if width in _TYPES:
        return column.astype(_TYPES[width]).tobytes()
    numbers = column.astype(_TYPES[8])
    return np.ndarray(len(column), _LOWEST[width], numbers, strides=(8,)).tobytes()


def _widened(
    value: memoryview | bytes, at: int, count: int, width: int
) -> NDArray[np.unsignedinteger]:
    if width in _TYPES:
        return np.frombuffer(value, _TYPES[width], count, at)
    if width > 8:
        raise ValueError(f"a column is {width} bytes wide")
    # Overlapping numbers, whose lowest bytes are before those that are wanted, or in the head.
    wide = np.ndarray(count, _TYPES[8], value, at - (8 - width), (width,)).copy()
    wide >>= np.uint64(8 * (8 - width))
    return wide
