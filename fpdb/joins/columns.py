"""Documents as columns, and columns that grow: in memory while there is room, else in mapped files.

A mapped column needn't fit into memory: the system writes its pages to the file when memory is
short, and reads them again.
"""

import contextlib
import math
import mmap
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Marks, Places
from fpdb.documents.similarity import Known, Side
from fpdb.fingerprint.sketches import has_sketch
from fpdb.models import DIGEST_BYTES, SKETCH_BYTES
from fpdb.scratch import Scratch
from fpdb.storage.format import Stored

_LEAST_ROWS = 1 << 12


class Room:
    """Where the columns of a run lie: in some bytes of memory, and beyond these in files."""

    def __init__(self, scratch: Scratch, memory: int | None = None) -> None:
        self.scratch = scratch
        self._left = free_memory() // 2 if memory is None else memory
        self._files = 0

    def array(self, kind: Any, *shape: int) -> NDArray[Any]:
        """Return a new array with any values."""
        array = self.in_memory(kind, *shape)
        if array is None:
            name = self.file()
            array = self.mapped(name, kind, *shape)
            # The mapped pages stay until the array goes.
            os.unlink(name, dir_fd=self.scratch.descriptor)
        return array

    def in_memory(self, kind: Any, *shape: int) -> NDArray[Any] | None:
        """Return a new array in memory, or None if that has no room for it."""
        array_bytes = _bytes_of(kind, shape)
        if array_bytes > self._left:
            return None
        self._left -= array_bytes
        array = np.empty(shape, kind)
        weakref.finalize(array, self._free, array_bytes).atexit = False
        return array

    def file(self) -> str:
        """Make a file, and return its name."""
        self._files += 1
        name = f"column-{self._files}"
        self.scratch.file(name).close()
        return name

    def mapped(self, name: str, kind: Any, *shape: int) -> NDArray[Any]:
        """Return the content of a file as an array; extend the file to its size."""
        size = max(_bytes_of(kind, shape), 1)
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(name, flags, dir_fd=self.scratch.descriptor)
        try:
            # Pages that no disk has room for would end the process when they are written.
            getattr(os, "posix_fallocate", _extend)(file, 0, size)
            data = mmap.mmap(file, size)
            # Else the system reads up to megabytes around each row of a few bytes.
            data.madvise(mmap.MADV_RANDOM)
        finally:
            os.close(file)
        return np.frombuffer(data, kind, math.prod(shape)).reshape(shape)

    def _free(self, size: int) -> None:
        self._left += size


def _bytes_of(kind: Any, shape: Sequence[int]) -> int:
    return math.prod(shape) * int(np.dtype(kind).itemsize)


def _extend(file: int, _: int, size: int) -> None:  # macOS
    os.ftruncate(file, size)


def free_memory() -> int:
    """Return the bytes of memory that programs can have without swapping, as `free` counts them."""
    with contextlib.suppress(OSError), open("/proc/meminfo", encoding="ascii") as file:
        found = dict(line.split(":", 1) for line in file)
        return int(found["MemAvailable"].split()[0]) << 10
    pages: int = os.sysconf("SC_PHYS_PAGES")  # macOS
    return pages * os.sysconf("SC_PAGE_SIZE") // 2


class GrowingColumn:
    """An array to whose end rows are added."""

    _count: int
    _rows: NDArray[Any]

    def __init__(self, room: Room, kind: Any, *width: int) -> None:
        self._room, self._kind, self._width = room, kind, width
        self._file = ""
        self.clear()

    def __len__(self) -> int:
        return self._count

    @property
    def values(self) -> NDArray[Any]:
        """All rows."""
        return self._rows[: self._count]

    def add(self, rows: NDArray[Any]) -> None:
        """Append rows."""
        count = self._count + len(rows)
        if count > len(self._rows):
            self._rows = self._grown(max(count + count // 2, _LEAST_ROWS))
        self._rows[self._count : count] = rows
        self._count = count

    def clear(self) -> None:
        """Remove all rows, and what they take of memory or of the disk."""
        if self._file:
            os.unlink(self._file, dir_fd=self._room.scratch.descriptor)
        self._file, self._count = "", 0
        self._rows = np.empty((0, *self._width), self._kind)

    def _grown(self, rows: int) -> NDArray[Any]:
        shape = rows, *self._width
        if self._file:
            # Views of the old map stay valid: both show the same file.
            return self._room.mapped(self._file, self._kind, *shape)
        grown = self._room.in_memory(self._kind, *shape)
        if grown is None:
            self._file = self._room.file()
            grown = self._room.mapped(self._file, self._kind, *shape)
        if self._count:
            grown[: self._count] = self.values
        return grown


class GrowingStrings:
    """Strings of bytes, to which others are added."""

    def __init__(self, room: Room) -> None:
        self._data = GrowingColumn(room, np.uint8)
        self._ends = GrowingColumn(room, np.int64)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> bytes:
        return self.some(np.array([number]))[0]

    def some(self, numbers: Places) -> list[bytes]:
        """Return strings by their numbers."""
        ends = self._ends.values
        bounds = np.where(numbers > 0, ends[numbers - 1], 0).tolist(), ends[numbers].tolist()
        data = self._data.values
        return [data[start:end].tobytes() for start, end in zip(*bounds, strict=True)]

    @property
    def sizes(self) -> Places:
        """The number of bytes of each."""
        return np.diff(self._ends.values, prepend=0)

    def add(self, data: bytes, sizes: Places) -> None:
        """Append strings, which are given one after the other, with their sizes."""
        self._ends.add(len(self._data) + sizes.cumsum())
        self._data.add(np.frombuffer(data, np.uint8))


@dataclass(frozen=True, eq=False)
class TextColumns:
    """Some documents as columns: what they are compared by, and marks of the short ones."""

    side: Side
    short: Marks

    @classmethod
    def of(cls, documents: Sequence[Stored], bits: int) -> "TextColumns":
        """Return the columns of documents that are ready to be stored."""
        short = np.array([each.fingerprint is None for each in documents], np.bool_)
        return cls(Known.of(documents, bits).side, short)

    @classmethod
    def of_columns(cls, columns: Sequence[NDArray[Any]]) -> "TextColumns":
        """Return texts with these columns."""
        *side, short = columns
        return cls(Side(*side), short)

    @property
    def columns(self) -> list[NDArray[Any]]:
        """All columns."""
        return [*self.side, self.short]

    def __len__(self) -> int:
        return len(self.short)

    def __getitem__(self, places: Places | slice) -> "TextColumns":
        return self.of_columns([column[places] for column in self.columns])

    @cached_property
    def ready(self) -> Marks:
        """Marks of the documents that are nothing but a fingerprint, and are compared by that."""
        return ~(self.short | self.side.digests.any(axis=1) | has_sketch(self.side.sketches))


class GrowingTexts:
    """The columns of all documents of a corpus, numbered in the order in which they were added."""

    def __init__(self, room: Room, bits: int) -> None:
        words = (2,) if bits == 128 else ()
        self._columns = [
            GrowingColumn(room, np.uint64, *words),
            GrowingColumn(room, np.uint64, DIGEST_BYTES // 8),
            GrowingColumn(room, np.uint8, SKETCH_BYTES),
            GrowingColumn(room, np.bool_),
        ]

    def __len__(self) -> int:
        return len(self._columns[0])

    @property
    def all(self) -> TextColumns:
        """All documents."""
        return TextColumns.of_columns([column.values for column in self._columns])

    def add(self, texts: TextColumns) -> None:
        """Append documents."""
        for column, own in zip(self._columns, texts.columns, strict=True):
            column.add(own)
