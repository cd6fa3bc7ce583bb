"""Arrays: columns of numbers, their common operations, and columns of other libraries.

A block of rows is a list of columns of equal length. Columns of pandas, polars and Arrow are taken
by slices as arrays of numpy, without importing them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpdb.errors import InputError

Column = NDArray[np.uint64]
Rows = list[Column]
Marks = NDArray[np.bool_]
Places = NDArray[np.int64]

# Values of a column that are Python objects at the same time.
_SLICE = 1000


@dataclass(frozen=True, eq=False)
class Strings:
    """Strings of bytes, or of numbers, one after the other, and where each of them ends."""

    data: NDArray[Any]
    ends: Places

    @classmethod
    def of(cls, strings: Sequence[bytes]) -> "Strings":
        sizes = np.fromiter(map(len, strings), np.int64, len(strings))
        return cls(np.frombuffer(b"".join(strings), np.uint8), sizes.cumsum())

    @classmethod
    def joined(cls, parts: "Sequence[Strings]") -> "Strings":
        """Join columns of strings; at least one is given."""
        starts = np.cumsum([0, *(len(part.data) for part in parts[:-1])])
        ends = [part.ends + start for part, start in zip(parts, starts, strict=True)]
        return cls(np.concatenate([part.data for part in parts]), np.concatenate(ends))

    def listed(self) -> list[bytes]:
        data, ends = self.data.tobytes(), self.ends.tolist()
        return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def chosen(self, places: Places) -> "Strings":
        starts = np.where(places > 0, self.ends[places - 1], 0)
        sizes = self.ends[places] - starts
        return Strings(self.data[spans(starts, sizes)], sizes.cumsum())

    def only(self, marks: Marks) -> "Strings":
        """Return the strings that are marked; the others become empty."""
        sizes = self.sizes
        return Strings(self.data[np.repeat(marks, sizes)], (sizes * marks).cumsum())

    @property
    def sizes(self) -> Places:
        sizes = self.ends.copy()
        sizes[1:] -= self.ends[:-1]
        return sizes


def joined(blocks: Iterable[Sequence[NDArray[Any]]]) -> list[NDArray[Any]]:
    """Concatenate blocks of rows, of which there is at least one; a single one isn't copied."""
    every = list(blocks)
    if len(every) == 1:
        return list(every[0])
    return [np.concatenate(columns) for columns in zip(*every, strict=True)]


def gathered(blocks: Iterable[Sequence[NDArray[Any]]], least: int) -> Iterator[list[NDArray[Any]]]:
    """Join small blocks of rows until they have at least N rows; the last may have fewer."""
    held: list[Sequence[NDArray[Any]]] = []
    size = 0
    for block in blocks:
        held.append(block)
        size += len(block[0])
        if size >= least:
            yield joined(held)
            held, size = [], 0
    if held:
        yield joined(held)


def differs(*columns: NDArray[Any]) -> Marks:
    """Mark each row that differs from the row before in any column, and the first row."""
    marks = np.zeros(len(columns[0]), np.bool_)
    marks[:1] = True
    for column in columns:
        marks[1:] |= column[1:] != column[:-1]
    return marks


def run_starts(*columns: NDArray[Any]) -> Places:
    """Return the places where runs of equal rows begin."""
    starts: Places = differs(*columns).nonzero()[0]
    return starts


def in_runs(*columns: NDArray[Any]) -> tuple[Places, Places]:
    """Return for each of sorted rows how many equal ones come after it, and how many there are."""
    starts, count = run_starts(*columns), len(columns[0])
    counts = np.diff(starts, append=count)
    sizes = np.repeat(counts, counts)
    return np.repeat(starts, counts) + sizes - np.arange(count) - 1, sizes


def following(counts: Places) -> tuple[Places, Places]:
    """Pair each row with the next N rows; return the places of both, row by row."""
    rows = np.arange(len(counts))
    return np.repeat(rows, counts), spans(rows + 1, counts)


def unique(values: NDArray[Any]) -> NDArray[Any]:
    """Sort values, and drop repeated ones."""
    ordered = np.sort(values)
    return ordered[differs(ordered)]


def ranked(rows: Rows) -> tuple[Rows, Places]:
    """Return the distinct rows, sorted, and for each row its place among them."""
    keys = rows
    if len(rows) == 2 and len(rows[0]):
        high, low = (int(column.max()).bit_length() for column in rows)
        if high + low <= 64 > low:  # one column sorts in a quarter of the time
            keys = [rows[0] << np.uint64(low) | rows[1]]
    sequence = np.argsort(keys[0]) if len(keys) == 1 else np.lexsort(keys[::-1])
    rows = [column[sequence] for column in rows]
    fresh = differs(*rows)
    places = np.empty(len(fresh), np.int64)
    places[sequence] = np.cumsum(fresh) - 1
    return [column[fresh] for column in rows], places


def among(values: NDArray[Any], known: NDArray[Any]) -> Marks:
    """Mark the values that occur in sorted ones."""
    if not len(known):
        return np.zeros(len(values), np.bool_)
    at = known.searchsorted(values)
    at[at == len(known)] = 0
    marks: Marks = known[at] == values
    return marks


def spans(starts: NDArray[Any], counts: NDArray[Any]) -> Places:
    """Return the places of runs, given where each begins and how long it is, one after another."""
    ends = counts.cumsum()
    shifts: Places = np.repeat(starts - (ends - counts), counts)
    return shifts + np.arange(len(shifts))


def portions(sizes: Places, most: int) -> Iterator[slice]:
    """Yield slices of items that add up to at most N each, if an item alone isn't larger."""
    ends = sizes.cumsum()
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(ends.searchsorted(before + most, "right")))
        yield slice(start, stop)
        start = stop


def column(values: Any, what: str) -> Any:
    """Return a column of whole numbers as an array, another one as an iterator of its values.

    Anything but a column of another library is returned as it is. `what` describes the values in
    errors.

    Raises:
        InputError: There is a null among numbers or a masked value, or the values are a table.
    """
    if isinstance(values, np.ndarray):
        return _unmasked(values, what)
    if not hasattr(values, "__array__") or isinstance(values, np.generic):
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise InputError(
                f"found {values!r:.40}, expected several {what}", hint="give a list or an array"
            )
        return values
    rows = getattr(values, "iloc", values)  # by place, whatever index a Series of pandas has
    kind = np.asarray(rows[:1])
    if kind.ndim != 1:
        raise InputError(
            f"found a table, expected one column of {what}",
            hint='take a column: table["text"]; fpdb.documents_of takes documents from a table',
        )
    array = np.asarray(values) if kind.dtype.kind in "iuf" else kind
    if array.dtype.kind == "f":
        raise InputError(
            f"found a column of fractions, expected {what}",
            hint="nulls turn whole numbers into fractions, which lose their last bits: drop them "
            "first",
        )
    if array.dtype.kind not in "iu":
        starts = range(0, len(values), _SLICE)
        return (value for at in starts for value in _listed(rows[at : at + _SLICE]))
    if array.dtype.kind == "i" and (array < 0).any():
        raise InputError(
            f"found a negative number in a column of {what}",
            hint="if its bits are the 64 of a fingerprint: column.to_numpy().view(numpy.uint64)",
        )
    return array.astype(np.uint64, copy=False)


def items_of(values: Any, what: str) -> Iterable[Any]:
    """Return the values of a column, or of any other iterable, one by one."""
    if type(values) is list:
        return values
    content = column(values, what)
    taken: Iterable[Any] = content.tolist() if isinstance(content, np.ndarray) else content
    return taken


def _unmasked(array: NDArray[Any], what: str) -> NDArray[Any]:
    masked = int(np.count_nonzero(getattr(array, "mask", False)))
    if masked:
        raise InputError(
            f"found {masked} masked value{'s' * (masked > 1)} in a column of {what}",
            hint="array.compressed() leaves them out, array.data takes them as they are",
        )
    return np.asarray(array)


def _listed(values: Any) -> Any:
    """Return the values of a short column; to iterate over the column takes far longer."""
    for name in ("to_pylist", "to_list"):  # of Arrow; of pandas and polars
        if hasattr(values, name):
            return getattr(values, name)()
    return np.asarray(values).tolist()
