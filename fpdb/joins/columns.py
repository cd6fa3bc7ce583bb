"""Documents as columns, and columns that grow in mapped files, which needn't fit into memory.

A column of a corpus is an array in a scratch file. The system writes its pages there when memory is
short, and reads them again.
"""

import mmap
import os
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


class GrowingColumn:
    """An array in a scratch file, to whose end rows are added."""

    def __init__(self, scratch: Scratch, name: str, kind: Any, *width: int) -> None:
        scratch.file(name).close()
        self._scratch, self._name = scratch, name
        self._kind, self._width = np.dtype(kind), width
        self._row_bytes = int(np.prod(width, dtype=np.int64)) * self._kind.itemsize
        self._rows = self._mapped(_LEAST_ROWS)
        self._count = 0

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
            # Views of the old map stay valid: both show the same file.
            self._rows = self._mapped(count + count // 2)
        self._rows[self._count : count] = rows
        self._count = count

    def _mapped(self, rows: int) -> NDArray[Any]:
        size = rows * self._row_bytes
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(self._name, flags, dir_fd=self._scratch.descriptor)
        try:
            # Pages that no disk has room for would end the process when they are written.
            getattr(os, "posix_fallocate", _extend)(file, 0, size)
            data = mmap.mmap(file, size)
        finally:
            os.close(file)
        count = rows * self._row_bytes // self._kind.itemsize
        return np.frombuffer(data, self._kind, count).reshape(rows, *self._width)


def _extend(file: int, _: int, size: int) -> None:  # macOS
    os.ftruncate(file, size)


class GrowingStrings:
    """Strings of bytes, to which others are added."""

    def __init__(self, scratch: Scratch, name: str) -> None:
        self._data = GrowingColumn(scratch, name, np.uint8)
        self._ends = GrowingColumn(scratch, f"{name}-ends", np.int64)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> bytes:
        start = int(self._ends.values[number - 1]) if number else 0
        return self._data.values[start : int(self._ends.values[number])].tobytes()

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
        side = self.side
        return [side.fingerprints, side.digests, side.sketches, self.short]

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

    def __init__(self, scratch: Scratch, bits: int) -> None:
        words = (2,) if bits == 128 else ()
        self._columns = [
            GrowingColumn(scratch, "fingerprints", np.uint64, *words),
            GrowingColumn(scratch, "digests", np.uint64, DIGEST_BYTES // 8),
            GrowingColumn(scratch, "sketches", np.uint8, SKETCH_BYTES),
            GrowingColumn(scratch, "short", np.bool_),
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
