"""The seal of a directory, by which a copied data file is recognised.

A copy of a directory that others write to may be torn: parts of one file from different moments,
each intact in itself. Nothing in such a file shows its age, but it is another file than the one
that was copied. So a data file is sealed where fpdb made it, and a file without its seal is
verified before it is opened for the first time.
"""

import contextlib
import errno
import fcntl
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from fpdb.storage.lmdb_file import DATA_FILE

SEAL_FILE = "fpdb.seal"

_SEAL_BYTES = 64
_GENERATION = 0x80087601  # FS_IOC_GETVERSION: changes when the number of an inode is used again


def seal(directory: Path) -> None:
    """Record that the data file of this directory is complete."""
    with _seal_file(directory) as descriptor:
        _write(descriptor, directory)


def require_sealed(directory: Path, verify: Callable[[Path], None]) -> None:
    """Verify the data file unless it is sealed, and seal it; one of several processes does it."""
    if _is_sealed(directory):
        return
    with contextlib.ExitStack() as stack:
        try:
            descriptor = stack.enter_context(_seal_file(directory))
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:  # a user who may not write here verifies it each time
            _require_room(error)
            verify(directory)
            return
        if not _is_sealed(directory):
            verify(directory)
            _write(descriptor, directory)


def _is_sealed(directory: Path) -> bool:
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(directory / SEAL_FILE, flags)
    except OSError:
        return False
    try:
        return os.pread(descriptor, _SEAL_BYTES, 0) == _identity(directory)
    except OSError as error:
        _require_room(error)
        return False
    finally:
        os.close(descriptor)


def _require_room(error: OSError) -> None:
    """Raise an error if too many files are open: then no check could start either."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        raise error


def _identity(directory: Path) -> bytes:
    """Return what identifies the data file among all others, its copies included."""
    descriptor = os.open(directory / DATA_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        try:
            answer = fcntl.ioctl(descriptor, _GENERATION, bytes(8))
            # A device may get another number when the machine starts again.
            name = f"inode {found.st_ino} generation {struct.unpack_from('=I', answer)[0]}"
        except OSError:
            name = f"inode {found.st_ino} device {found.st_dev}"
    finally:
        os.close(descriptor)
    return f"{name}\n".encode().ljust(_SEAL_BYTES)


@contextlib.contextmanager
def _seal_file(directory: Path) -> Iterator[int]:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(directory / SEAL_FILE, flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write(descriptor: int, directory: Path) -> None:
    # On a full disk the file remains unsealed, and is verified again next time.
    with contextlib.suppress(OSError):
        owner = os.stat(directory / DATA_FILE)
        os.fchown(descriptor, owner.st_uid, owner.st_gid)  # root's seal would shut the owner out
        os.pwrite(descriptor, _identity(directory), 0)
