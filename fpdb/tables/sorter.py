"""Sort more rows of numbers than the memory holds: sorted runs in a file without a name, merged."""

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Self

import numpy as np

from fpdb.arrays import Column, Rows, differs, joined, unique
from fpdb.scratch import unnamed_file
from fpdb.storage.open_checks import disk_named
from fpdb.tables.bits import order

# Bytes of a row while it is sorted, for each word of it: the row, a copy, a share of the indices.
ROW_BYTES = 32
# Rows that are merged together, and the least of them that are read of a run.
_MERGED, _LEAST = 1 << 21, 1 << 6
# Rows that are read of a file together, or of another database.
BLOCK = 1 << 20


class RowFile:
    """Blocks of rows of numbers, in memory up to some bytes, the others in a file."""

    def __init__(self, folder: Path, columns: int, memory: int = 0) -> None:
        self._folder, self._columns, self._room = folder, columns, memory
        self._file: IO[bytes] | None = None
        self._held: list[Rows | int] = []  # blocks, or where they begin in the file
        self.counts: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.clear()
        if self._file:
            self._file.close()

    def __len__(self) -> int:
        return sum(self.counts)

    def __iter__(self) -> Iterator[Rows]:
        for place, count in enumerate(self.counts):
            for start in range(0, count or 1, BLOCK):
                yield self.part(place, start, min(start + BLOCK, count))

    def append(self, rows: Rows) -> None:
        """Append a block of rows."""
        self.counts.append(len(rows[0]))
        size = 8 * self._columns * len(rows[0])
        if size <= self._room:
            self._room -= size
            self._held.append(rows)
            return
        with disk_named(self._folder):
            self._file = self._file or unnamed_file(self._folder)
            self._held.append(self._file.seek(0, 2))
            for column in rows:
                self._file.write(np.ascontiguousarray(column).data)

    def part(self, place: int, start: int, stop: int) -> Rows:
        """Return the rows of a block from one place to another."""
        held, count = self._held[place], self.counts[place]
        if not isinstance(held, int):
            return [column[start:stop] for column in held]
        rows = [np.empty(stop - start, np.uint64) for _ in range(self._columns)]
        if self._file:
            with disk_named(self._folder):
                for index, column in enumerate(rows):
                    self._file.seek(held + 8 * (index * count + start))
                    self._file.readinto(column.data)  # type: ignore[attr-defined]
        return rows


class Sorter:
    """Sorts rows by their first N columns; of rows that agree in these, only the last stays."""

    def __init__(self, folder: Path, columns: int, keys: int, memory: int) -> None:
        self._keys = keys
        self._most = max(memory // (ROW_BYTES * columns), _LEAST)
        self._runs = RowFile(folder, columns)
        self._held: list[Rows] = []
        self._room = self._most
        # The keys of the last row of all runs, as long as these follow one another.
        self._last: tuple[np.uint64, ...] = ()
        self._in_turn = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._held.clear()
        self._runs.__exit__(*error)

    def add(self, rows: Rows) -> None:
        """Take a block of rows."""
        start, count = 0, len(rows[0])
        while start < count:
            stop = min(start + self._room, count)
            self._held.append([column[start:stop] for column in rows])
            self._room -= stop - start
            start = stop
            if not self._room:
                self._end_run()

    def rows(self) -> Iterator[Rows]:
        """Yield all rows in their order, in blocks."""
        if not self._runs.counts:
            if self._held:
                yield self._taken()
            return
        if self._held:
            self._end_run()
        yield from self._runs if self._in_turn else self._merged()

    def _end_run(self) -> None:
        run = self._taken()
        ends = [tuple(column[at] for column in run[: self._keys]) for at in (0, -1)]
        self._in_turn &= self._last < ends[0]
        self._last = ends[1]
        self._runs.append(run)

    def _taken(self) -> Rows:
        rows = joined(self._held)
        self._held, self._room = [], self._most
        return _sorted(rows, self._keys)

    def _merged(self) -> Iterator[Rows]:
        counts = self._runs.counts
        room = max(min(self._most // 4, _MERGED) // len(counts), _LEAST)
        read = [0] * len(counts)
        parts = [self._runs.part(place, 0, 0) for place in range(len(counts))]
        while True:
            bounds = []  # no run has more rows up to the lowest of them
            for place, count in enumerate(counts):
                stop = min(read[place] + room - len(parts[place][0]), count)
                if stop > read[place]:
                    parts[place] = joined([parts[place], self._runs.part(place, read[place], stop)])
                    read[place] = stop
                if stop < count:
                    bounds.append(tuple(column[-1] for column in parts[place][: self._keys]))
            if not bounds:
                yield _sorted(joined(parts), self._keys)
                return
            bound, taken = min(bounds), []
            for place, part in enumerate(parts):
                end = _end(part[: self._keys], bound)
                taken.append([column[:end] for column in part])
                parts[place] = [column[end:] for column in part]
            yield _sorted(joined(taken), self._keys)


def _sorted(rows: Rows, keys: int) -> Rows:
    """Sort rows by their first N columns; of rows that agree in these, the last stays."""
    if len(rows) == 1:
        return [unique(rows[0])]
    if keys > 1 or not (rows[0][1:] > rows[0][:-1]).all():
        sequence = order(rows[0], *rows[1:keys])
        rows = [column[sequence] for column in rows]
        last = np.append(differs(*rows[:keys])[1:], True)
        if not last.all():
            rows = [column[last] for column in rows]
    return rows


def _end(columns: Rows, bound: tuple[np.uint64, ...]) -> int:
    """Return how many of some sorted rows don't come after another row."""
    low, high = 0, len(columns[0])
    for column, number in zip(columns, bound, strict=True):
        equal: Column = column[low:high]
        low, high = (
            low + int(equal.searchsorted(number)),
            low + int(equal.searchsorted(number, "right")),
        )
    return high
