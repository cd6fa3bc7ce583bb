"""The seal of a data file, by which a copy of it is recognised, so that it is verified once.

A copy of a directory that others write to may be torn, and nothing in it shows that. So a data file
is sealed where fpdb made or verified it, by the number of its inode and the times of its birth and
of its last change, which no copy can take along, nor a write over it leave as they were. A file
without its seal is verified before it is opened.

From the first write of a process until it closes the database, or if it was killed, the seal says
so in place of the time of change: else every commit would have to write another one.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from fpdb.storage.lmdb_file import DATA_FILE

SEAL_FILE = "fpdb.seal"

_BYTES = 96
_WRITING = "writing"
_ATTEMPTS = 20
LIBC = ctypes.CDLL(None, use_errno=True)
# statx: AT_EMPTY_PATH, STATX_BTIME, and what it fills in
_BY_DESCRIPTOR, _BIRTH, _STATX_BYTES, _BIRTH_OFFSET = 0x1000, 0x800, 256, 80


def seal(directory: Path) -> None:
    """Record that the data file of this directory is complete."""
    _write(directory, _identities(directory)[:1])


def mark_sealed(directory: Path, *, writing: bool) -> None:
    """Let a sealed file change while a writer has it open, or seal it again."""
    if is_sealed(directory):
        identities = _identities(directory)
        _write(directory, identities[1:] if writing else identities[:1])


def require_sealed(directory: Path, verify: Callable[[Path], None]) -> None:
    """Verify the data file unless it is sealed, and seal it; one of several processes does it."""
    if is_sealed(directory):
        return
    with contextlib.ExitStack() as stack:
        try:
            descriptor = stack.enter_context(_opened(directory / SEAL_FILE))
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:  # where nothing can be written, it is verified each time
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise  # no check could start either
            verify(directory)
            return
        if not is_sealed(directory):
            # A page that is written meanwhile isn't verified.
            identities = _identities(directory)
            verify(directory)
            _write(directory, identities[:1])


def is_sealed(directory: Path) -> bool:
    """Return whether the data file is the one that was sealed, as it was then."""
    with contextlib.suppress(OSError), _opened(directory / SEAL_FILE, os.O_RDONLY) as descriptor:
        for _ in range(_ATTEMPTS):
            record = os.pread(descriptor, _BYTES, 0)
            if record in _identities(directory):
                return True
            if record == os.pread(descriptor, _BYTES, 0):  # else a writer has begun or ended
                break
    return False


def _identities(directory: Path) -> list[bytes]:
    """Return what identifies the data file among all others: at rest, and while it is written to.

    The number of an inode is used again, on some file systems at once; the times of its birth and
    change aren't, and nobody can set them. Where a file has no birth there are none: it can't be
    sealed, and is verified at each opening.
    """
    with _opened(directory / DATA_FILE, os.O_RDONLY) as descriptor:
        born, status = _birth(descriptor), os.fstat(descriptor)
    # A device may get another number when the machine starts again.
    name = f"inode {status.st_ino} born {born} changed "
    states = str(status.st_ctime_ns), _WRITING
    return [f"{name}{state}\n".encode().ljust(_BYTES) for state in states] if born else []


def _write(directory: Path, identities: list[bytes]) -> None:
    # On a full disk the file remains unsealed, and is verified again next time.
    with _opened(directory / SEAL_FILE) as descriptor, contextlib.suppress(OSError):
        for identity in identities:
            os.pwrite(descriptor, identity, 0)


def _birth(descriptor: int) -> str:
    status = getattr(LIBC, "statx", None)
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    if status is None or status(descriptor, b"", _BY_DESCRIPTOR, _BIRTH, buffer):
        return ""
    if not struct.unpack_from("=I", buffer)[0] & _BIRTH:
        return ""
    seconds, fraction = struct.unpack_from("=qI", buffer, _BIRTH_OFFSET)
    return f"{seconds}.{fraction:09}"


@contextlib.contextmanager
def _opened(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
