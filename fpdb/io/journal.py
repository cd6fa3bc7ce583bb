"""What a long run keeps on disk: a folder that it locks, a journal, and prepared documents."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Self

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Places
from fpdb.errors import InputError, LockTimeoutError
from fpdb.storage.format import (
    FileIdentity,
    FilePlace,
    FilePlaces,
    Stored,
    pack_record,
    unpack_record,
)
from fpdb.storage.open_checks import disk_named

_LOCK, _JOURNAL, _CODES = "dedupe.lock", "journal-", ".decisions"


@contextlib.contextmanager
def claimed_folder(folder: Path, output: str) -> Iterator[None]:
    """Create a folder, or take what an interrupted run left, for a block that has it alone.

    It is removed when the block ends; if that fails, all but the journals on which a database
    depends. Raise LockTimeoutError if another run has the folder, InputError if it is no run's.
    """
    descriptor = -1
    with disk_named(folder.parent):
        while descriptor < 0:
            _require_own(folder)
            folder.mkdir(mode=0o700, exist_ok=True)
            descriptor = _claimed(folder / _LOCK, output)
    try:
        _clear(folder)
        yield
        _remove(folder)
    except BaseException:
        _clear(folder)
        if not _journals(folder):
            _remove(folder)
        raise
    finally:
        os.close(descriptor)


def _require_own(folder: Path) -> None:
    """Raise InputError if something else is in the place of a folder, which would be lost."""
    found = folder.is_dir() and [entry.name for entry in folder.iterdir()]
    if (folder.exists() and found is False) or (found and _LOCK not in found):
        raise InputError(
            f"{folder} is there, where the run would keep what is temporary",
            hint="move it elsewhere, or name another output",
        )


def _remove(folder: Path) -> None:
    """Remove a folder, and last what shows that it is a run's."""
    with disk_named(folder.parent):
        for path in folder.glob(f"{_JOURNAL}*"):
            path.unlink()
        _clear(folder)
        (folder / _LOCK).unlink()
        folder.rmdir()


def _clear(folder: Path) -> None:
    journals = _journals(folder)
    with disk_named(folder.parent):
        for entry in folder.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name != _LOCK and not (journals and entry.name.startswith(_JOURNAL)):
                entry.unlink()


def _claimed(path: Path, output: str) -> int:
    """Lock a file; return -1 if its folder was removed meanwhile."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return -1
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    except BlockingIOError:
        os.close(descriptor)
        raise LockTimeoutError(
            f"another run is writing {output}", hint="wait until it has ended, or end it"
        ) from None
    os.close(descriptor)
    return -1


def _journals(folder: Path) -> list[Path]:
    """Return the journals with decisions that a database may depend on."""
    found = folder.glob(f"{_JOURNAL}*{_CODES}")
    return [path for path in found if path.stat().st_size]


class Journal:
    """The decisions of a run, a byte each, and the lines about what is removed.

    A database stores with each batch of documents how long both files are. So after a crash the
    files are cut to that, and nothing is decided twice.
    """

    def __init__(
        self, folder: Path, digest: bytes = b"", uuid: str = "", places: Sequence[FilePlace] = ()
    ) -> None:
        """Open or create the files, with the digest of the inputs and options of the run.

        The uuid is that of the database, and the places are what it stores; without them, the files
        aren't synced, and no later run goes on with them.
        """
        self._digest, self._durable = digest, bool(uuid)
        name = f"{_JOURNAL}{uuid}" if uuid else "journal"
        self._path = folder.resolve() / f"{name}{_CODES}"
        for other in _journals(folder):
            if other.name != self._path.name:
                raise InputError(
                    f"{folder} has what an interrupted run with another database decided",
                    hint="run it with that database to go on; or remove the folder",
                )
        self.lines = folder / f"{name}.jsonl"
        with disk_named(folder):
            self._codes, self._lines = self._path.open("a+b"), self.lines.open("a+b")
        status = os.fstat(self._codes.fileno())
        self.identity = FileIdentity(status.st_dev, status.st_ino)
        self.resumed = False
        self._places = [place for place in places if place.path == str(self._path)]

    def __enter__(self) -> Self:
        try:
            self._resume()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._codes.close()
        self._lines.close()

    def _resume(self) -> None:
        offset = lines = 0
        for place in self._places:
            if place.identity != self.identity or self._size(self._codes) < place.offset:
                raise InputError(
                    f"{self._path} is gone or was changed, and with it what an interrupted run "
                    "decided",
                    hint="put it back; or restore the database from a backup, and begin again",
                )
            if place.digest != self._digest:
                raise InputError(
                    "an interrupted run had other inputs or options, or the inputs were changed",
                    hint="give the same inputs and options to go on where it was interrupted",
                )
            offset, lines, self.resumed = place.offset, place.lines, True
        self._codes.truncate(offset)
        self._lines.truncate(lines)

    def decided(self) -> bytes:
        """Return all decisions."""
        self._codes.seek(0)
        return self._codes.read()

    def _size(self, file: IO[bytes]) -> int:
        return os.fstat(file.fileno()).st_size

    def note(self, codes: bytes, lines: bytes) -> FilePlaces:
        """Append decisions and lines; return what the database is to store with them."""
        for file, data in ((self._codes, codes), (self._lines, lines)):
            with disk_named(self._path.parent):
                file.write(data)
                file.flush()
                if self._durable and data:
                    os.fdatasync(file.fileno())
        if not self._durable:
            return {}
        offset, length = self._size(self._codes), self._size(self._lines)
        place = FilePlace(self.identity, str(self._path), offset, length, self._digest)
        return {self.identity: place}


class Spool:
    """Prepared documents in a file; in memory are only their sizes and what they are sorted by."""

    def __init__(self, path: Path, bits: int) -> None:
        self._bits = bits
        self._file = path.open("w+b")
        self._sizes: list[Places] = []
        self._values: list[NDArray[np.float64]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, documents: Sequence[Stored], values: NDArray[np.float64]) -> None:
        """Append documents, each with a value."""
        records = [pack_record(each, self._bits) for each in documents]
        with disk_named(Path(self._file.name).parent):
            self._file.write(b"".join(records))
        self._sizes.append(np.fromiter(map(len, records), np.int64, len(records)))
        self._values.append(values)

    def order(self) -> Places:
        """Return the numbers of the documents, those with larger values first."""
        values = np.concatenate([np.empty(0), *self._values])
        self._values = []
        return (-values).argsort(kind="stable")

    def batches(self, order: Places, together: int) -> Iterator[list[Stored]]:
        """Yield documents by their numbers, N at a time."""
        with disk_named(Path(self._file.name).parent):
            self._file.flush()
        sizes = np.concatenate([np.empty(0, np.int64), *self._sizes])
        starts = sizes.cumsum() - sizes
        number = self._file.fileno()
        for first in range(0, len(order), together):
            some = order[first : first + together]
            spans = zip(sizes[some].tolist(), starts[some].tolist(), strict=True)
            yield [
                unpack_record(os.pread(number, size, start), 0, self._bits) for size, start in spans
            ]
