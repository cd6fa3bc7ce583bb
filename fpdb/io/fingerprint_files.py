"""Ready fingerprints that are read by columns: arrays of numpy, words, and tables of digits."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Column, Places
from fpdb.io.records import Reading
from fpdb.io.streams import StreamError, Watch, chunks, line_ends, suffix_of
from fpdb.io.tables import header_reason, numbered
from fpdb.models import Key

ARRAY_SUFFIXES = (".npy", ".u64")
# Keys, or None if they are counted on, with their fingerprints.
KeyedBlock = tuple[Sequence[Key] | NDArray[Any] | None, NDArray[np.uint64]]

_ROWS = 1 << 18
_CHUNK = 1 << 21  # bytes of lines that are split together
_EXPECTED = (
    "expected uint64[n], uint64[n, 2] of 128 bits, or the fields key and fingerprint with these"
)
_BOM, _QUOTE, _RETURN = b"\xef\xbb\xbf", b'"', b"\r"
# The digits that each base may have, and the most of them that 64 bits take.
_VALUES = np.full(256, 99, np.uint8)
_VALUES[list(b"0123456789abcdef")] = range(16)
_VALUES[list(b"ABCDEF")] = range(10, 16)
_RADIX = {"hex": (16, 16), "decimal": (10, 20)}
_LARGEST_POWER = np.uint64(10**19)


class UnusualError(Exception):
    """A line of a table that isn't merely fields without quotes, with digits in those wanted."""


def array_blocks(path: str, bits: int, watch: Watch) -> Iterator[KeyedBlock]:
    """Yield the rows of a .npy file, or of a .u64 file, for a database of N bits.

    In .npy are fingerprints as `recipe.fingerprint_many` returns them, or the fields `key` and
    `fingerprint`; in .u64 are words, the lowest byte first, two for 128 bits.
    """
    kind, count, start = _layout(path, bits)
    wide = kind["fingerprint"].shape == (2,)
    if wide != (bits == 128):
        raise StreamError(
            f"holds fingerprints of {128 if wide else 'at most 64'} bits, expected {bits}",
            hint="those of another width need a database of their own",
        )
    for at in range(0, count, _ROWS):
        wanted = min(_ROWS, count - at)
        rows = np.fromfile(path, kind, wanted, offset=start + at * kind.itemsize)
        if len(rows) < wanted:
            raise StreamError(f"ends after {at + len(rows):,} fingerprints of {count:,}")
        watch.progress(rows.nbytes)
        keys = np.ascontiguousarray(rows["key"]) if "key" in (kind.names or ()) else None
        yield keys, np.ascontiguousarray(rows["fingerprint"].astype(np.uint64, copy=False))


def array_kind(path: str) -> tuple[str, bool]:
    """Return the kind of keys of a file, and whether its array has fingerprints of 128 bits."""
    kind, _, _ = _layout(path, 64)
    texts = "key" in (kind.names or ()) and kind["key"].kind not in "iu"
    return "text" if texts else "integer", kind["fingerprint"].shape == (2,)


def _layout(path: str, bits: int) -> tuple[np.dtype[Any], int, int]:
    """Return the type of a row, how many there are, and where they begin."""
    if not os.path.isfile(path):
        raise StreamError(
            "isn't a regular file, expected one", hint="save it: arrays aren't read from pipes"
        )
    if suffix_of(path) == ".u64":
        size, words = os.path.getsize(path), 2 if bits == 128 else 1
        if size % (8 * words):
            raise StreamError(f"has {size:,} bytes, expected {8 * words} for each fingerprint")
        return _unnamed(np.dtype("<u8"), words), size // (8 * words), 0
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise StreamError(f"can't be read as an array of numpy: {error}") from None
    kind, shape = array.dtype, array.shape
    if kind.names is None and len(shape) in (1, 2) and array.flags.c_contiguous:
        kind, shape = _unnamed(kind, *shape[1:]), shape[:1]
    elif not {"key", "fingerprint"} <= {*(kind.names or ())}:
        kind = _unnamed(np.dtype(bool))  # which no fingerprint has
    values = kind["fingerprint"]
    fits = values.shape == () or (values.shape, values.base.itemsize) == ((2,), 8)
    if len(shape) != 1 or values.base.kind != "u" or not fits:
        raise StreamError(
            f"holds an array {array.dtype}{list(array.shape)}, {_EXPECTED}",
            hint="array.view(numpy.uint64) takes the bits of signed words",
        )
    return kind, shape[0], array.offset


def _unnamed(base: np.dtype[Any], words: int = 1) -> np.dtype[Any]:
    return np.dtype([("fingerprint", base, (words,) if words > 1 else ())])


def digit_blocks(
    path: str, form: str, reading: Reading, bits: int, watch: Watch
) -> Iterator[KeyedBlock]:
    """Yield keys that are numbers, and fingerprints of at most 64 bits, of a plain table of digits.

    Raises:
        UnusualError: A line isn't plain, so the file must be read as records.
    """
    mark = (reading.delimiter or ("\t" if form == "tsv" else ",")).encode()
    if reading.encoding or reading.base not in _RADIX or len(mark) > 1 or bits > 64:
        raise UnusualError
    places: tuple[int, int, int] | None = None
    for part in _whole_lines(chunks(path, watch)):
        data = part
        if places is None:
            head = data[: data.find(b"\n")].removeprefix(_BOM)
            places = _places(head.removesuffix(_RETURN).split(mark), reading)
            if not numbered(reading):
                data = data[data.find(b"\n") + 1 :]
        if data:
            keys, numbers = _split(data, mark, places, reading)
            if bits < 64 and (numbers >> np.uint64(bits)).any():
                raise UnusualError
            yield keys, numbers


def _whole_lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield bytes in larger parts that end with a line."""
    held = bytearray()
    for part in parts:
        held += part
        if len(held) >= _CHUNK and (end := held.rfind(b"\n") + 1):
            yield bytes(held[:end])
            del held[:end]
    if held:
        yield bytes(held if held.endswith(b"\n") else held + b"\n")


def _places(head: list[bytes], reading: Reading) -> tuple[int, int, int]:
    """Return the number of columns of a table, and the places of keys and fingerprints."""
    if numbered(reading):
        names = [str(number + 1) for number in range(len(head))]
    else:
        names = [name.strip().decode(errors="replace") for name in head]
    keys = [name for name in reading.keys if name in names]
    if header_reason(tuple(names), reading) or not keys or len({*names}) < len(names):
        raise UnusualError
    return len(names), names.index(keys[0]), names.index(str(reading.fingerprint_field))


def _split(
    data: bytes, mark: bytes, places: tuple[int, int, int], reading: Reading
) -> tuple[Column, Column]:
    count, of_key, of_print = places
    array = np.frombuffer(data, np.uint8)
    ends = line_ends(data) - 1
    marks = np.flatnonzero(array == mark[0])
    if _QUOTE in data or len(marks) != (count - 1) * len(ends):
        raise UnusualError
    stops = np.column_stack([marks.reshape(len(ends), -1), ends])
    starts = np.column_stack([np.append(0, ends[:-1] + 1), stops[:, :-1] + 1])
    if (starts > stops).any():  # a line has too few fields, and another too many
        raise UnusualError
    if _RETURN in data:
        stops[:, -1] -= array[ends - 1] == _RETURN[0]
    keys = _numbers(array, starts[:, of_key], stops[:, of_key], "decimal")
    return keys, _numbers(array, starts[:, of_print], stops[:, of_print], reading.base)


def _numbers(data: NDArray[np.uint8], starts: Places, stops: Places, base: str) -> Column:
    """Return the numbers that digits from one place to another are."""
    radix, most = _RADIX[base]
    sizes = stops - starts
    widest = int(sizes.max())
    if sizes.min() < 1 or widest > most:
        raise UnusualError
    numbers, wrong = np.zeros(len(starts), np.uint64), np.zeros(len(starts), np.bool_)
    for back in range(widest, 0, -1):
        at = stops - back
        digits = _VALUES[data[np.maximum(at, starts)]]
        wrong |= digits >= radix
        numbers *= np.uint64(radix)
        numbers += np.where(at >= starts, digits, 0).astype(np.uint64)
    if radix == 10 and widest == most:  # beyond 64 bits, the number comes out too small
        wrong |= (sizes == most) & ((data[starts] != ord("1")) | (numbers < _LARGEST_POWER))
    if wrong.any():
        raise UnusualError
    return numbers
