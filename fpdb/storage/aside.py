"""Numbers in a file beside a draft, as many as there are, which take no memory of the process."""

import contextlib
import os
import shutil
from pathlib import Path

import numpy as np

from fpdb.errors import DamagedError
from fpdb.storage.columns import Column
from fpdb.storage.creation import sync
from fpdb.storage.translate import disk_named

_WIDTH = 8
_NOTHING = np.empty(0, np.uint64)


class Numbers:
    """A file of numbers, to which more are added behind; it is on disk when `add` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __len__(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            return self._path.stat().st_size // _WIDTH
        return 0

    def cut(self, count: int) -> None:
        """Forget all but the first ones."""
        if len(self) < count:
            raise DamagedError(
                f"{self._path} has lost {count - len(self):,} numbers", hint="begin again"
            )
        if len(self) > count:
            os.truncate(self._path, count * _WIDTH)

    def add(self, numbers: Column) -> None:
        """Add numbers behind those that are there."""
        if not len(numbers):
            return
        new = not len(self)
        with disk_named(self._path.parent):
            with open(self._path, "ab", opener=_private) as file:
                file.write(numbers.astype("<u8").tobytes())
                file.flush()
                os.fsync(file.fileno())
            if new:
                sync(self._path.parent)

    def sort(self) -> None:
        """Put the numbers in their order."""
        if not len(self):
            return
        # Who is killed amid a swap has lost a number, so it is a copy that is sorted.
        copy = self._path.with_name(f"{self._path.name}.sorted")
        with disk_named(self._path.parent):
            shutil.copyfile(self._path, copy)
            numbers = np.memmap(copy, "<u8", "r+")
            numbers.sort()
            numbers.flush()
            copy.replace(self._path)
            sync(self._path.parent)

    def read(self) -> Column:
        """Map the numbers: what isn't looked at isn't read."""
        return np.memmap(self._path, "<u8", "r") if len(self) else _NOTHING


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
