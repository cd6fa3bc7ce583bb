"""The one way in which a database appears: made beside its place, synced, sealed, and moved there.

A draft lies in a scratch folder, so that the next maker removes what a killed process left.

A copy of a directory that others write to may be torn, and nothing in it shows that. So a data file
is sealed where fpdb made it, by what no copy can take along, and a file without its seal is
verified before it is opened for the first time.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import lmdb

from fpdb.errors import OpenError, StorageError
from fpdb.scratch import require_process, scratch_folder, sync
from fpdb.storage.lmdb_file import DATA_FILE
from fpdb.storage.open_checks import (
    LMDB_LOCK_FILE,
    LOCK_FILE,
    SEAL_FILE,
    disk_named,
    open_lmdb,
    require_vacant,
    translate,
)

Entries = Mapping[str, Mapping[bytes, bytes]]

# A read checks whether its database was replaced if none did for this time. Who replaces it waits
# for as long before that returns, so every call that begins after it notices.
NOTICED_SECONDS = 0.01
_LIBC = ctypes.CDLL(None, use_errno=True)
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
_UNABLE = {errno.ENOSYS, errno.EINVAL, errno.EXDEV, errno.EBUSY, errno.EOPNOTSUPP}

_SEAL_BYTES = 96
_FILES = {DATA_FILE, LMDB_LOCK_FILE, LOCK_FILE, SEAL_FILE}
# statx: AT_EMPTY_PATH, STATX_BTIME, and what it fills in
_BY_DESCRIPTOR, _BIRTH, _STATX_BYTES, _BIRTH_OFFSET = 0x1000, 0x800, 256, 80


@contextlib.contextmanager
def drafted(directory: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a draft of a database, and move it to its place when the block ends.

    Nobody ever sees an unfinished database, and of two makers the slower one gets an error. If the
    block fails, nothing is left. With `replace`, it replaces a database, which the caller keeps
    locked.
    """
    if replace:
        _require_only_files(directory)
    else:
        require_vacant(directory)
    place, maker = directory.parent, os.getpid()
    with contextlib.ExitStack() as stack:
        with disk_named(place):
            try:
                scratch = stack.enter_context(scratch_folder(directory))
            except FileNotFoundError as error:  # as in /proc
                raise OpenError(
                    f"no directory can be made in {place}: {error.strerror}",
                    hint="choose another path",
                ) from error
            draft = scratch / directory.name
            draft.mkdir(0o700)
            (draft / LOCK_FILE).touch(0o600)
        yield draft
        require_process(maker)
        with disk_named(place):
            sync(draft / DATA_FILE)
            seal(draft)
            sync(draft)
            if replace:
                shutil.copymode(directory, draft)
                shutil.copymode(directory / DATA_FILE, draft / DATA_FILE)
                _require_only_files(directory)
                exchange(draft, directory)
            else:
                try:
                    draft.rename(directory)  # onto nothing, or an empty directory
                except OSError:
                    require_vacant(directory)  # another process may have been quicker
                    raise
                sync(place)


def exchange(first: Path, second: Path) -> None:
    """Exchange two directories on disk, so that there is one at each path at every moment."""
    rename = getattr(_LIBC, "renameat2", None)
    number = errno.ENOSYS
    if rename is not None:
        failed = rename(_HERE, os.fsencode(first), _HERE, os.fsencode(second), _EXCHANGE)
        number = ctypes.get_errno() if failed else 0
    if number in _UNABLE:
        raise StorageError(
            f"the file system can't exchange {first} and {second}: {os.strerror(number)}",
            hint="compact it to another path, stop those who use it, and rename the directories",
        )
    with disk_named(first):
        if number:
            raise OSError(number, os.strerror(number), str(first), None, str(second))
        sync(first.parent)
        sync(second.parent)
    time.sleep(NOTICED_SECONDS)


def _require_only_files(directory: Path) -> None:
    """Raise OpenError if there is anything in a directory that would be removed with it."""
    with disk_named(directory):
        foreign = sorted(set(os.listdir(directory)) - _FILES)
    if foreign:
        raise OpenError(
            f"{directory} holds {foreign[0]}, expected only the files of a database, which will be "
            "removed",
            hint="move it to another directory",
        )


def make_environment(draft: Path, names: Iterable[str], initial: Entries) -> None:
    """Make an environment in a draft, with its sub-databases and their first entries."""
    with disk_named(draft):
        (draft / DATA_FILE).touch(0o600)
    made = open_lmdb(draft, readonly=False, sync=False)
    try:
        with made.begin(write=True) as transaction:
            for name in names:
                database = made.open_db(name.encode(), txn=transaction)
                for entry in initial.get(name, {}).items():
                    transaction.put(*entry, db=database)
    except lmdb.Error as error:
        raise translate(error, draft) from error
    finally:
        made.close()


def remove(directory: Path) -> None:
    """Remove the files of a database, and its directory if nothing else is in it."""
    with contextlib.suppress(OSError):
        for name in _FILES:
            (directory / name).unlink(missing_ok=True)
        directory.rmdir()


def seal(directory: Path) -> None:
    """Record that the data file of this directory is complete."""
    # On a full disk the file remains unsealed, and is verified again next time.
    with _opened(directory / SEAL_FILE) as descriptor, contextlib.suppress(OSError):
        if name := _identity(directory):
            os.pwrite(descriptor, name, 0)


def require_sealed(directory: Path, verify: Callable[[Path], None]) -> None:
    """Verify the data file unless it is sealed, and seal it; one of several processes does it."""
    if _is_sealed(directory):
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
        if not _is_sealed(directory):
            verify(directory)
            seal(directory)


def _is_sealed(directory: Path) -> bool:
    with contextlib.suppress(OSError), _opened(directory / SEAL_FILE, os.O_RDONLY) as descriptor:
        return os.pread(descriptor, _SEAL_BYTES, 0) == _identity(directory)
    return False


def _identity(directory: Path) -> bytes | None:
    """Return what identifies the data file among all others, its copies included.

    The number of an inode is used again, on some file systems at once; the time of its birth isn't,
    and nobody can set it. Where a file has none, return None: it can't be sealed, and is verified
    at each opening.
    """
    with _opened(directory / DATA_FILE, os.O_RDONLY) as descriptor:
        born = _birth(descriptor)
        # A device may get another number when the machine starts again.
        name = f"inode {os.fstat(descriptor).st_ino} born {born}\n"
    return name.encode().ljust(_SEAL_BYTES) if born else None


def _birth(descriptor: int) -> str:
    status = getattr(_LIBC, "statx", None)
    found = ctypes.create_string_buffer(_STATX_BYTES)
    if status is None or status(descriptor, b"", _BY_DESCRIPTOR, _BIRTH, found):
        return ""
    if not struct.unpack_from("=I", found)[0] & _BIRTH:
        return ""
    seconds, fraction = struct.unpack_from("=qI", found, _BIRTH_OFFSET)
    return f"{seconds}.{fraction:09}"


@contextlib.contextmanager
def _opened(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
