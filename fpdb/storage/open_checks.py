"""Opening LMDB: the checks of a directory before LMDB sees it, its settings, and its errors.

LMDB trusts whatever it opens. So these are checked first: that the path is on a local disk, that
the data file is a regular file of this user, and that its meta pages and its length are right.
"""

import contextlib
import errno
import os
import resource
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import lmdb

from fpdb.errors import (
    AccessError,
    ClosedError,
    DamagedError,
    DatabaseExistsError,
    DatabaseNotFoundError,
    DiskFullError,
    FpdbError,
    NotADatabaseError,
    OpenError,
    StorageError,
)
from fpdb.storage.lmdb_file import DATA_FILE, require_intact

LMDB_LOCK_FILE = "lock.mdb"
LARGEST_MAP, SMALLEST_MAP = 1 << 40, 64 << 20
MAX_READERS = 4096
MAX_DATABASES = 80

MOUNTS = Path("/proc/self/mountinfo")
# Between machines, neither memory maps nor locks are coherent on these.
REMOTE = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse", "gfs", "gfs2", "glusterfs", "gpfs"}
    | {"lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb3", "smbfs"}
)

# The engine whose files every other LMDB tool can read. Left out, an environment variable of
# py-lmdb's would choose the format of a new file.
_ENGINE_0_9 = 0
_ATTEMPTS = 5

Identity = tuple[int, int]


def identify(directory: Path) -> Identity:
    """Return device and inode of the data file, without opening anything.

    Closing any descriptor of a file drops this process's locks on it, so a directory that is
    already in use here may only be checked like this.
    """
    found = _find_data(directory)
    return found.st_dev, found.st_ino


def require_openable(directory: Path, *, readonly: bool) -> None:
    """Check a directory that is not in use in this process."""
    descriptor = open_data(directory)
    try:
        require_local(directory)
        if not readonly:
            require_owner(directory)
        with disk_named(directory):
            require_intact(descriptor, str(directory / DATA_FILE))
    finally:
        os.close(descriptor)


def open_data(directory: Path) -> int:
    """Open the data file of a directory that is not in use in this process, to read it."""
    _find_data(directory)
    with disk_named(directory):
        return os.open(directory / DATA_FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)


def require_owner(directory: Path) -> None:
    """Raise AccessError for another user's files: lock files made here would shut the owner out."""
    owner, user = _find_data(directory).st_uid, os.geteuid()
    if owner != user:
        raise AccessError(
            f"{directory} belongs to user {owner}, and this process runs as user {user}",
            hint=f"run as user {owner}, or open it with readonly=True",
        )


def require_vacant(directory: Path) -> None:
    """Raise an error unless a new database can be created at a path."""
    parent = directory.parent
    with disk_named(directory):
        if not parent.is_dir():
            raise DatabaseNotFoundError(
                f"there is no directory {parent} to create {directory.name} in",
                hint="make that directory first",
            )
        require_local(parent)
        if (parent / DATA_FILE).exists():
            raise DatabaseExistsError(
                f"{parent} is a database, expected a directory beside it to create one in",
                hint="choose another path",
            )
        if (directory / DATA_FILE).exists():
            raise DatabaseExistsError(
                f"there is a database at {directory} already",
                hint="open it, or choose another path",
            )
        if not is_vacant(directory):
            raise DatabaseExistsError(
                f"{directory} is a file or holds other files, expected an empty directory",
                hint="choose another path",
            )


def is_vacant(directory: str | os.PathLike[str]) -> bool:
    """Return whether there is nothing at a path, or an empty directory."""
    path = Path(directory)
    with disk_named(path):
        return not path.exists() or (path.is_dir() and not any(path.iterdir()))


def _find_data(directory: Path) -> os.stat_result:
    hint = "create it first, or give another path"
    try:
        with disk_named(directory):
            found = os.lstat(directory / DATA_FILE)
    except (NotADirectoryError, FileNotFoundError) as error:
        if not directory.exists():
            raise DatabaseNotFoundError(
                f"there is no database at {directory}", hint=hint
            ) from error
        raise NotADatabaseError(
            f"{directory} has no {DATA_FILE}, expected the directory of a database", hint=hint
        ) from error
    if not stat.S_ISREG(found.st_mode):
        raise NotADatabaseError(
            f"{directory / DATA_FILE} isn't a regular file",
            hint="link to the directory of a database, not to the file in it",
        )
    return found


def require_local(directory: Path) -> None:
    """Raise an error for a directory on a network file system."""
    kind = file_system_of(directory.stat().st_dev)
    if kind in REMOTE or kind.startswith("fuse."):
        raise OpenError(
            f"{directory} is on a file system of type {kind}, expected a local one",
            hint="move the database to a local disk; LMDB's map and locks need one",
        )


def file_system_of(device: int) -> str:
    """Return the type of the file system with a device number, "" if it isn't mounted."""
    number = f"{os.major(device)}:{os.minor(device)}"
    with contextlib.suppress(OSError):
        for line in MOUNTS.read_text(errors="replace").splitlines():
            mount, _, kind = line.partition(" - ")
            if mount.split(" ")[2:3] == [number]:
                return kind.split(" ")[0]
    return ""


def open_lmdb(
    directory: Path, *, readonly: bool, create: bool = False, sync: bool = True
) -> lmdb.Environment:
    """Open the environment of a directory with the largest map that this process may have.

    Without `sync`, commits don't wait for the disk.
    """
    data, locks = directory / DATA_FILE, directory / LMDB_LOCK_FILE
    owner = None if create else data.stat()
    had_locks = locks.exists()
    smallest = max(4 * owner.st_size if owner else 0, SMALLEST_MAP)
    size = LARGEST_MAP
    attempts = 0
    while True:
        try:
            environment = lmdb.open(
                str(directory),
                map_size=size,
                readonly=readonly,
                create=False,
                sync=sync,
                mode=stat.S_IMODE(owner.st_mode) if owner else 0o600,
                max_readers=MAX_READERS,
                max_dbs=MAX_DATABASES,
                # A spare one would keep its reader slot over a fork, and closing the
                # environment in the child would take it from the parent.
                max_spare_txns=0,
                lib_version=_ENGINE_0_9,
            )
            break
        except lmdb.MemoryError as error:
            size //= 2
            if size < smallest:
                raise OpenError(
                    f"this process has no room for a map of {smallest:,} bytes of {directory}",
                    hint="raise its limit on address space (ulimit -v)",
                ) from error
        except lmdb.Error as error:
            # Opening can fail while another process opens or closes at the same moment.
            passing = isinstance(error, (lmdb.InvalidParameterError, lmdb.LockError))
            attempts += 1
            if attempts == _ATTEMPTS or not (passing or getattr(error, "code", 0) == errno.ENOENT):
                raise translate(error, directory) from error
            time.sleep(0.01 * 2**attempts)
    if owner and not had_locks and os.geteuid() == 0 != owner.st_uid:
        # A lock file of root's would shut the owner out.
        os.chown(locks, owner.st_uid, owner.st_gid)
    environment.reader_check()
    return environment


_LITTLE_ROOM = 4 << 20  # a write that stopped short leaves less than this on a full disk
_DAMAGE = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
    lmdb.PanicError,
)


@contextlib.contextmanager
def disk_named(directory: Path) -> Iterator[None]:
    """Raise fpdb's errors for those of the disk, in a block that works on a directory's files."""
    try:
        yield
    except FpdbError:  # of which some are the system's errors, too
        raise
    except OSError as error:
        fault = explain(error.errno or 0, error, directory)
        if fault is None:
            raise
        raise fault from error


def translate(error: lmdb.Error, directory: Path) -> FpdbError:
    """Return fpdb's error for one of LMDB's."""
    number = getattr(error, "code", 0)
    # LMDB calls a write that stopped short an input/output error.
    stopped = isinstance(error, lmdb.MapFullError) or number == errno.EIO
    if stopped and _lacks_room(directory):
        number = errno.ENOSPC
    elif isinstance(error, lmdb.MapFullError):
        return StorageError(
            f"the transaction needs more room than the memory map of {directory} has",
            hint="write in smaller transactions, or raise the limit on address space (ulimit -v)",
        )
    elif isinstance(error, _DAMAGE):
        number = errno.EIO
    elif isinstance(error, lmdb.ReadersFullError):
        return StorageError(
            f"every reader slot of {directory} is taken",
            hint="read from fewer processes and threads at a time",
        )
    elif isinstance(error, lmdb.LockError) or number == errno.EAGAIN:
        return OpenError(
            f"{directory} is in use by a process of another container with the same process id "
            f"({os.getpid()})",
            hint="let the containers share one PID namespace, or open it from one of them only",
        )
    elif "closed/deleted/dropped" in str(error):
        return ClosedError(
            f"the transaction on {directory} has ended, or its environment was closed",
            hint="begin a new transaction; a forked process can't go on with its parent's",
        )
    return explain(number, error, directory) or StorageError(
        f"{directory}: {error}", hint="see LMDB's documentation of this error"
    )


def explain(number: int, error: Exception, directory: Path) -> FpdbError | None:
    """Return fpdb's error for a number of the system's that the disk or the path causes."""
    match number:
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            free = free_bytes(directory)
            return DiskFullError(
                f"no room to write to {directory}: {free:,} bytes are free, "
                "a quota or a limit on the size of files (ulimit -f) may be lower",
                hint="make room, or raise the quota, and write again; what was committed is safe",
                free=free,
                path=directory,
            )
        case errno.EIO:
            return DamagedError(
                f"an error of the disk or of the file at {directory}: {error}",
                hint="check the disk, then run `fpdb check`",
            )
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return AccessError(
                f"user {os.geteuid()} may not use {directory}: {error}",
                hint="run as its owner; readers need write permission too, on lock.mdb",
            )
        case errno.EMFILE | errno.ENFILE:
            return OpenError(
                f"{directory} can't be opened: too many files are open",
                hint="raise the limit of this process (ulimit -n), or open fewer at a time",
            )
        case errno.ENAMETOOLONG:
            return OpenError(f"the name is too long: {directory}", hint="choose a shorter one")
    return None


def free_bytes(directory: Path) -> int:
    """Return the number of bytes that a user may still write to the disk of a directory."""
    disk = os.statvfs(directory)
    return disk.f_bavail * disk.f_frsize


def _lacks_room(directory: Path) -> bool:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    data = directory / DATA_FILE
    size = data.stat().st_size if data.exists() else 0
    at_limit = limit != resource.RLIM_INFINITY and size + _LITTLE_ROOM > limit
    return at_limit or free_bytes(directory) < _LITTLE_ROOM
