"""Translate errors of LMDB, and of the disk, into fpdb's."""

import contextlib
import errno
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb

from fpdb.errors import (
    AccessError,
    ClosedError,
    DamagedError,
    DiskFullError,
    FpdbError,
    OpenError,
    StorageError,
)
from fpdb.storage.lmdb_file import DATA_FILE

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)
_TOO_MANY = (errno.EMFILE, errno.ENFILE)
LITTLE_ROOM = 4 << 20  # a write that stopped short leaves less than this on a full disk


def is_fatal(error: FpdbError) -> bool:
    """Return whether the environment must not be used any more after this error."""
    return isinstance(error, DamagedError)


def translate(error: lmdb.Error, directory: Path) -> FpdbError:
    """Return fpdb's error for one of LMDB's."""
    explain = _BY_CLASS.get(type(error)) or _BY_CODE.get(getattr(error, "code", 0), _other)
    return explain(error, directory)


def explained(error: OSError, directory: Path) -> FpdbError | None:
    """Return fpdb's error for one of the system's that the disk or the path causes, else None."""
    if error.errno in _NO_ROOM:
        return _disk_full(error, directory)
    if error.errno == errno.EIO:
        return DamagedError(
            f"an error of the disk at {directory}: {error}", hint="check the disk, then try again"
        )
    if error.errno in _NO_ACCESS:
        return AccessError(
            f"user {os.geteuid()} may not use {directory}: {error.strerror}",
            hint="choose another path, or run as its owner",
        )
    if error.errno in _TOO_MANY:
        return _too_many_files(error, directory)
    if error.errno == errno.ENAMETOOLONG:
        return OpenError(f"the name is too long: {directory}", hint="choose a shorter one")
    return None


@contextlib.contextmanager
def disk_named(directory: Path) -> Iterator[None]:
    """Raise fpdb's errors for those of the disk, in a block that works on a directory's files."""
    try:
        yield
    except FpdbError:  # of which some are the system's errors, too
        raise
    except OSError as error:
        fault = explained(error, directory)
        if fault is None:
            raise
        raise fault from error


def free_bytes(directory: Path) -> int:
    """Return the number of bytes that a user may still write to the disk of a directory."""
    disk = os.statvfs(directory)
    return disk.f_bavail * disk.f_frsize


def _input_output(error: lmdb.Error, directory: Path) -> FpdbError:
    # LMDB calls a write that stopped short an input/output error, too.
    explain = _disk_full if _lacks_room(directory) else _damaged
    return explain(error, directory)


def _damaged(error: lmdb.Error, directory: Path) -> DamagedError:
    return DamagedError(
        f"{directory} was closed after an error of the disk or the file: {error}",
        hint="check the disk, then run `fpdb check`",
    )


def _map_full(error: lmdb.Error, directory: Path) -> FpdbError:
    if free_bytes(directory) < LITTLE_ROOM:
        return _disk_full(error, directory)
    return StorageError(
        f"the transaction needs more room than the memory map of {directory} has",
        hint="write in smaller transactions, or raise the limit on address space (ulimit -v)",
    )


def _disk_full(_: Exception, directory: Path) -> DiskFullError:
    free, limit = free_bytes(directory), resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    allowed = "" if limit == resource.RLIM_INFINITY else f", files may have {limit:,} bytes"
    return DiskFullError(
        f"no room to write to {directory}: {free:,} bytes are free{allowed}",
        hint="make room, or raise the quota, and write again; what was committed is safe",
        free=free,
        path=directory,
    )


def _pid_clash(_: lmdb.Error, directory: Path) -> OpenError:
    return OpenError(
        f"{directory} is in use by a process of another container with the same process id "
        f"({os.getpid()})",
        hint="let the containers share one PID namespace, or open it from one of them only",
    )


def _lacks_room(directory: Path) -> bool:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    data = directory / DATA_FILE
    size = data.stat().st_size if data.exists() else 0
    at_limit = limit != resource.RLIM_INFINITY and size + LITTLE_ROOM > limit
    return at_limit or free_bytes(directory) < LITTLE_ROOM


def _readers_full(_: lmdb.Error, directory: Path) -> StorageError:
    return StorageError(
        f"every reader slot of {directory} is taken",
        hint="read from fewer processes and threads at a time",
    )


def _too_many_files(_: Exception, directory: Path) -> OpenError:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return OpenError(
        f"{directory} can't be opened: too many files are open, this process may have {limit:,}",
        hint="raise that limit (ulimit -n), or open fewer at a time",
    )


def _no_access(error: lmdb.Error, directory: Path) -> AccessError:
    return AccessError(
        f"user {os.geteuid()} may not use {directory}: {error}",
        hint="readers need write permission too, on lock.mdb: run as the database's owner",
    )


def _other(error: lmdb.Error, directory: Path) -> FpdbError:
    if "closed/deleted/dropped" in str(error):
        return ClosedError(
            f"the transaction on {directory} has ended, or its environment was closed",
            hint="begin a new transaction; a forked process can't go on with its parent's",
        )
    return StorageError(f"{directory}: {error}", hint="see LMDB's documentation of this error")


_Explain = Callable[[lmdb.Error, Path], FpdbError]

_BY_CLASS: dict[type[lmdb.Error], _Explain] = {
    lmdb.CorruptedError: _damaged,
    lmdb.PageNotFoundError: _damaged,
    lmdb.InvalidError: _damaged,
    lmdb.VersionMismatchError: _damaged,
    lmdb.PanicError: _damaged,
    lmdb.MapFullError: _map_full,
    lmdb.DiskError: _disk_full,
    lmdb.ReadersFullError: _readers_full,
    lmdb.LockError: _pid_clash,
}
_BY_CODE: dict[int, _Explain] = {
    errno.EIO: _input_output,
    **dict.fromkeys(_NO_ROOM, _disk_full),
    errno.EAGAIN: _pid_clash,
    **dict.fromkeys(_NO_ACCESS, _no_access),
    **dict.fromkeys(_TOO_MANY, _too_many_files),
}
