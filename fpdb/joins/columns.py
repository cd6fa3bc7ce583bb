"""Documents as columns, and columns that grow: in memory while there is room, else in mapped files.

A mapped column needn't fit into memory: the system writes its pages to the file when memory is
short, and reads them again.
"""

import contextlib
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Places, Strings, unique
from fpdb.models import DIGEST_BYTES, SKETCH_BYTES
from fpdb.storage.block import TextColumns

_LEAST_ROWS = 1 << 12
# Bytes of a large page. The system puts a map where such pages fit if it has a multiple of these.
_HUGE = 1 << 21


class Room:
    """Where the columns of a run lie: in some bytes of memory, and beyond these in files."""

    def __init__(self, folder: Path, memory: int | None = None) -> None:
        self.folder = folder
        self._left = free_memory() // 2 if memory is None else memory
        self._spare = 2 * self._left // 5
        self._files = 0

    @property
    def left(self) -> int:
        """The bytes of memory that nobody has taken."""
        return self._left

    def take(self, size: int, *, searched: bool = False) -> bool:
        """Take some bytes of memory, if there are as many; a negative number gives them back.

        Columns that are searched can have all of it, others leave them two fifths, so that these
        are the first to be in files.
        """
        if size > self._left - (0 if searched else self._spare):
            return False
        self._left -= size
        return True

    def file(self) -> Path:
        self._files += 1
        path = self.folder / f"column-{self._files}"
        path.touch(exist_ok=False)
        return path

    def mapped(self, path: Path, size: int) -> mmap.mmap:
        with path.open("r+b") as file:
            # Pages that no disk has room for would end the process when they are written.
            getattr(os, "posix_fallocate", _extend)(file.fileno(), 0, size)
            data = mmap.mmap(file.fileno(), size)
        # Else the system reads up to megabytes around each row of a few bytes.
        data.madvise(mmap.MADV_RANDOM)
        return data


def _extend(file: int, _: int, size: int) -> None:  # macOS
    os.ftruncate(file, size)


def free_memory() -> int:
    """Return the bytes of memory that programs can have without swapping, as `free` counts them."""
    with contextlib.suppress(OSError), open("/proc/meminfo", encoding="ascii") as file:
        values = dict(line.split(":", 1) for line in file)
        return int(values["MemAvailable"].split()[0]) << 10
    pages: int = os.sysconf("SC_PHYS_PAGES")  # macOS
    return pages * os.sysconf("SC_PAGE_SIZE") // 2


def _memory(size: int) -> mmap.mmap:
    data = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        data.madvise(mmap.MADV_HUGEPAGE)  # many rows are read at random
    return data


class GrowingColumn:
    """An array to whose end rows are added."""

    _count: int

    def __init__(self, room: Room, kind: Any, *width: int, searched: bool = False) -> None:
        self._room, self._row, self._searched = room, np.dtype((kind, width)), searched
        self._file: Path | None = None
        self._taken = 0
        self.clear()

    def __len__(self) -> int:
        return self._count

    @property
    def in_file(self) -> bool:
        return self._file is not None

    @property
    def values(self) -> NDArray[Any]:
        return self._rows[: self._count]

    def add(self, rows: NDArray[Any]) -> None:
        count = self._count + len(rows)
        if count > len(self._rows):
            self._grow(max(count + count // 4, _LEAST_ROWS))
        self._rows[self._count : count] = rows
        self._count = count

    def expect(self, places: Places) -> None:
        """Let the system read rows of a file that are about to be read, all at once."""
        for page in unique(places * self._row.itemsize // mmap.PAGESIZE).tolist():
            self._data.madvise(mmap.MADV_WILLNEED, page * mmap.PAGESIZE, mmap.PAGESIZE)

    def clear(self) -> None:
        """Remove all rows, and release their memory or their place on the disk."""
        if self._file:
            self._file.unlink()
        self._room.take(-self._taken)
        self._file, self._taken, self._count = None, 0, 0
        self._show(_memory(mmap.PAGESIZE))

    def _show(self, data: mmap.mmap) -> None:
        self._data = data
        self._rows = np.frombuffer(data, self._row, len(data) // self._row.itemsize)

    def _grow(self, rows: int) -> None:
        """Make place for rows. Views of the old place stay valid."""
        size, before = rows * self._row.itemsize, self.values
        if size > _HUGE:
            size += -size % _HUGE
        if self._file:  # which both maps show
            self._show(self._room.mapped(self._file, size))
            return
        if self._room.take(size - self._taken, searched=self._searched):
            self._taken = size
            self._rows = before = before[:0].copy()
            with contextlib.suppress(BufferError, SystemError):  # there is a view; on macOS
                self._data.resize(size)
                self._show(self._data)
                return
            before = np.frombuffer(self._data, self._row, self._count)
            self._show(_memory(size))
        else:
            self._file = self._room.file()
            self._show(self._room.mapped(self._file, size))
            self._room.take(-self._taken)
            self._taken = 0
        self._rows[: self._count] = before


class GrowingStrings:
    """Strings of bytes, to which others are added."""

    def __init__(self, room: Room) -> None:
        self._data = GrowingColumn(room, np.uint8)
        self._ends = GrowingColumn(room, np.int64)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> bytes:
        return self.chosen(np.array([number]))[0]

    def chosen(self, numbers: Places) -> list[bytes]:
        return self.column.chosen(numbers).listed()

    @property
    def column(self) -> Strings:
        return Strings(self._data.values, self._ends.values)

    def add(self, strings: Sequence[bytes]) -> None:
        added = Strings.of(strings)
        self._ends.add(len(self._data) + added.ends)
        self._data.add(added.data)


class GrowingTexts:
    """The columns of all documents of a corpus, numbered in the order in which they were added."""

    def __init__(self, room: Room, bits: int) -> None:
        words = (2,) if bits == 128 else ()
        self._sketches = GrowingColumn(room, np.uint8, SKETCH_BYTES)
        self._columns = [
            GrowingColumn(room, np.uint64, *words, searched=True),
            GrowingColumn(room, np.uint64, DIGEST_BYTES // 8, searched=True),
            self._sketches,
            GrowingColumn(room, np.bool_, searched=True),
        ]

    def __len__(self) -> int:
        return len(self._columns[0])

    @property
    def all(self) -> TextColumns:
        return TextColumns(*(column.values for column in self._columns))

    def expect(self, first: Places, second: Places) -> None:
        """Say that documents are about to be compared: by their sketches, unless they are equal."""
        if self._sketches.in_file:
            digests = self._columns[1].values
            differ = (digests[first] != digests[second]).any(axis=1)
            self._sketches.expect(second[differ])

    def add(self, texts: TextColumns) -> None:
        for column, values in zip(self._columns, texts.columns, strict=True):
            column.add(values)
