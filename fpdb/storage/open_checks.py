"""Opening LMDB: the checks of a directory before LMDB sees it, its settings, and its errors.

LMDB trusts whatever it opens. So these are checked first: that the path is on a local disk, that
the database is this user's, and that the meta pages and the length of the data file are right. LMDB
then opens the directory that was checked, by the name of its descriptor in /proc, so that a
compaction can't replace it in between.
"""

import contextlib
import errno
import os
import resource
import stat
import sys
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
    MovedError,
    NotADatabaseError,
    OpenError,
    StorageError,
)
from fpdb.scratch import remove_abandoned
from fpdb.storage.lmdb_file import DATA_FILE, require_intact

LMDB_LOCK_FILE = "lock.mdb"
LOCK_FILE = "fpdb.lock"
LARGEST_MAP = 1 << 40
# By how much a map exceeds its file at least: a reader opens it anew when it is outgrown.
READERS_ROOM, WRITERS_ROOM = 1 << 20, 16 << 20
MAX_READERS = 4096
MAX_DATABASES = 160
# LMDB's lock file: two lines of the processor's cache, and one for each reader.
LOCK_BYTES = 64 * (2 + MAX_READERS)

MOUNTS = Path("/proc/self/mountinfo")
MEMORY = Path("/proc/self/statm")
DESCRIPTORS = "/proc/self/fd"
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
    status = _find_data(directory)
    return status.st_dev, status.st_ino


def moved(directory: Path) -> MovedError:
    """Return the error for a path that doesn't lead to the database any more that was opened."""
    return MovedError(
        f"the database at {directory} was moved, removed or replaced",
        hint="open it again; in Python, db.reopen() does",
    )


def data_size(directory: Path) -> int:
    """Return the bytes of the file of a database that is open; raise MovedError if it is gone."""
    try:
        return (directory / DATA_FILE).stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        raise moved(directory) from None


def require_openable(directory: Path) -> None:
    """Check a directory that is not in use in this process."""
    require_local(directory)
    _require_owner(directory)
    descriptor = open_data(directory)
    try:
        require_intact(descriptor, str(directory / DATA_FILE))
    finally:
        os.close(descriptor)


def open_data(directory: Path) -> int:
    """Open the data file of a directory that is not in use in this process, to read it.

    It is opened for writing, if possible, though nothing is written: on an overlay, as containers
    have, that copies the file, and who has it open before doesn't see writes to the copy.
    """
    _find_data(directory)
    with disk_named(directory):
        with contextlib.suppress(OSError):
            return os.open(directory / DATA_FILE, os.O_RDWR)
        return os.open(directory / DATA_FILE, os.O_RDONLY)


def _require_owner(directory: Path) -> None:
    """Raise AccessError unless this user owns a database, or nobody can write to its disk.

    Lock files made here would shut the owner out, and without them snapshots aren't safe.
    """
    owner, user = _find_data(directory).st_uid, os.geteuid()
    if owner != user and not os.statvfs(directory).f_flag & os.ST_RDONLY:
        raise AccessError(
            f"{directory} belongs to user {owner}, and this process runs as user {user}",
            hint=f"run as its owner (sudo -u '#{owner}'), who can also copy it by `fpdb backup`",
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
        if not is_vacant(directory):
            remove_abandoned(directory)  # of a maker that was killed after its draft had moved
            message = f"{directory} is a file or holds other files, expected an empty directory"
            if (directory / DATA_FILE).exists():
                message = f"there is a database at {directory} already"
            raise DatabaseExistsError(message, hint="choose another path")


def resolved(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path without links; raise OpenError if nothing can have it as a name."""
    name = os.fsdecode(path)
    try:
        if name and b"\0" not in os.fsencode(name):
            return Path(os.path.realpath(name))
        reason = "it is empty, or holds a NUL"
    except (UnicodeEncodeError, OSError) as error:  # the working directory may be gone
        reason = str(error)
    raise OpenError(
        f"found the path {name!r:.200}, expected one that a file can have: {reason}",
        hint="use characters that the locale has, and . for the working directory",
    )


def is_vacant(directory: str | os.PathLike[str]) -> bool:
    """Return whether there is nothing at a path, or an empty directory."""
    path = resolved(directory)
    with disk_named(path):
        return not os.path.lexists(path) or (path.is_dir() and not any(path.iterdir()))


def _find_data(directory: Path) -> os.stat_result:
    hint = "create it first, or give another path"
    try:
        with disk_named(directory):
            status = os.lstat(directory / DATA_FILE)
    except (NotADirectoryError, FileNotFoundError) as error:
        if not directory.exists():
            raise DatabaseNotFoundError(
                f"there is no database at {directory}", hint=hint
            ) from error
        what = f"has no {DATA_FILE}"
        if not directory.is_dir():
            what, hint = "is a file", "the database comes first, then what is read"
        raise NotADatabaseError(
            f"{directory} {what}, expected the directory of a database", hint=hint
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise NotADatabaseError(
            f"{directory / DATA_FILE} isn't a regular file",
            hint="link to the directory of a database, not to the file in it",
        )
    return status


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
    directory: Path, *, readonly: bool, sync: bool = True, expected: Identity | None = None
) -> lmdb.Environment:
    """Open the environment of a directory with the largest map that this process may have.

    Raise MovedError if its data file isn't the expected one. Another process may have put another
    database there, which this process may have open already: to open and close that a second time
    would drop this process's locks on it, and with them its snapshots.

    On a disk that is mounted read-only here, a reader uses no lock file. Nothing then protects its
    snapshots from writers elsewhere: compare `last_commit` after each.

    Without `sync`, commits don't wait for the disk.
    """
    if sys.platform != "linux":
        raise OpenError(
            f"databases are opened on Linux only, found {sys.platform}: LMDB gets files by their "
            f"descriptors in {DESCRIPTORS}",
            hint="recipes, fingerprints and fpdb compare work here; for the rest, use a container",
        )
    if not os.path.isdir(DESCRIPTORS):
        raise OpenError(
            f"there is no {DESCRIPTORS}, through which LMDB opens {directory}",
            hint="mount /proc where this process runs",
        )
    with disk_named(directory), _pinned(directory, expected) as folder:
        locked = True
        try:
            _make_lock_file(folder)
        except OSError as error:
            locked = False
            if error.errno == errno.ELOOP:
                raise NotADatabaseError(
                    f"{directory / LMDB_LOCK_FILE} is a link, expected a file or nothing",
                    hint="remove the link, while no program has the database open",
                ) from error
            if error.errno != errno.EROFS or not readonly:
                raise
        return _open_at(name_of(folder), directory, readonly=readonly, sync=sync, locked=locked)


def _open_at(
    path: str, directory: Path, *, readonly: bool, sync: bool, locked: bool
) -> lmdb.Environment:
    size, smallest = _map_sizes(os.lstat(directory / DATA_FILE).st_size, readonly=readonly)
    attempts = 0
    while True:
        try:
            environment = lmdb.open(
                path,
                lock=locked,
                map_size=size,
                readonly=readonly,
                create=False,
                sync=sync,
                mode=0o600,
                max_readers=MAX_READERS,
                max_dbs=MAX_DATABASES,
                # A spare one would keep its reader slot over a fork, and closing the
                # environment in the child would take it from the parent.
                max_spare_txns=0,
                lib_version=_ENGINE_0_9,
            )
            break
        except lmdb.MemoryError as error:
            if size <= smallest:
                raise OpenError(
                    f"this process has no room for a map of {smallest:,} bytes of {directory}",
                    hint="raise its limit on address space (ulimit -v)",
                ) from error
            size = max(size // 2, smallest)
        except lmdb.Error as error:
            # Opening can fail while another process opens or closes at the same moment.
            passing = isinstance(error, (lmdb.InvalidParameterError, lmdb.LockError))
            attempts += 1
            if attempts == _ATTEMPTS or not (passing or getattr(error, "code", 0) == errno.ENOENT):
                raise translate(error, directory) from error
            time.sleep(0.01 * 2**attempts)
    environment.reader_check()
    return environment


def _map_sizes(data_size: int, *, readonly: bool) -> tuple[int, int]:
    """Return the size of the largest map to try for a data file, and of the smallest that will do.

    Where address space is limited, half of the free part is left to everything else.
    """
    room = READERS_ROOM if readonly else max(data_size // 4, WRITERS_ROOM)
    smallest = data_size + room
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return LARGEST_MAP, smallest
    used = int(MEMORY.read_text().split()[0]) * resource.getpagesize()
    return max(min((limit - used) // 2, LARGEST_MAP), smallest), smallest


@contextlib.contextmanager
def _pinned(directory: Path, expected: Identity | None) -> Iterator[int]:
    """Yield a descriptor of a directory, which another one may not take the place of meanwhile."""
    folder = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        status = os.stat(DATA_FILE, dir_fd=folder)
        if expected not in (None, (status.st_dev, status.st_ino)):
            raise moved(directory)
        yield folder
    finally:
        os.close(folder)


def name_of(descriptor: int) -> str:
    """Return a path that leads to the file or directory of an open descriptor."""
    return f"{DESCRIPTORS}/{descriptor}"


def _make_lock_file(folder: int) -> None:
    """Make and allocate LMDB's lock file, which it writes by a map: a hole on a full disk kills.

    This process must not have it open: closing it here drops its locks.
    """
    # LMDB overwrites it: a link in a directory that came from elsewhere may lead to any file.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    descriptor = os.open(LMDB_LOCK_FILE, flags, 0o600, dir_fd=folder)
    try:
        if os.fstat(descriptor).st_blocks * 512 < LOCK_BYTES:
            os.posix_fallocate(descriptor, 0, LOCK_BYTES)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise  # else the file system can't allocate in advance
    finally:
        os.close(descriptor)


_LITTLE_ROOM = 4 << 20  # a write that stopped short leaves less than this on a full disk
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DAMAGE = (
    *(lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError),
    *(lmdb.VersionMismatchError, lmdb.PanicError),
)
_OTHER_DISK = "write to another one, or open it to read only"
# Numbers of the system's errors and classes of LMDB's, with the error to raise, its message and
# its hint.
_FAULTS: list[tuple[tuple[object, ...], type[FpdbError], str, str]] = [
    (
        (errno.EIO, *_DAMAGE),
        DamagedError,
        "an error of the disk or of the file at {path}: {error}",
        "check the disk, then run `fpdb check`",
    ),
    (
        (errno.EACCES, errno.EPERM),
        AccessError,
        "user {user} may not use {path}: {error}",
        "run as its owner, or give this user the right to write there",
    ),
    ((errno.EROFS,), AccessError, "{path} is on a read-only file system", _OTHER_DISK),
    (
        (errno.EMFILE, errno.ENFILE),
        OpenError,
        "{path} can't be opened: too many files are open",
        "raise the limit of this process (ulimit -n), or open fewer at a time",
    ),
    ((errno.ENAMETOOLONG,), OpenError, "the name is too long: {path}", "choose another one"),
    ((errno.ELOOP,), OpenError, "a link to itself: {path}", "choose another one"),
    (
        (lmdb.LockError,),
        OpenError,
        "{path} is in use by a process of another container with the same process id ({pid})",
        "let the containers share one PID namespace, or open it from one of them only",
    ),
    (
        (lmdb.MapFullError,),
        StorageError,
        "the transaction needs more room than the memory map of {path} has",
        "write in smaller transactions, or raise the limit on address space (ulimit -v)",
    ),
    (
        (lmdb.ReadersFullError,),
        StorageError,
        "every reader slot of {path} is taken",
        "read from fewer processes and threads at a time",
    ),
    (
        (lmdb.MemoryError,),
        StorageError,
        "this process has no memory left for a transaction on {path}",
        "raise its limits (ulimit -v, ulimit -d), or write in smaller transactions",
    ),
]


@contextlib.contextmanager
def disk_named(directory: Path) -> Iterator[None]:
    """Raise fpdb's errors for those of the disk, in a block that works on a directory's files."""
    try:
        yield
    except FpdbError:  # of which some are the system's errors, too
        raise
    except OSError as error:
        fault = _fault(error.errno, error, directory)
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
    elif number == errno.EAGAIN:
        number = lmdb.LockError  # another process has the lock of this one's id
    elif "closed/deleted/dropped" in str(error):
        return ClosedError(
            f"the transaction on {directory} has ended, or its environment was closed",
            hint="begin a new transaction; a forked process can't go on with its parent's",
        )
    else:
        fault = _fault(type(error), error, directory)
        if fault is not None:
            return fault
    return _fault(number, error, directory) or StorageError(
        f"{directory}: {error}", hint="see LMDB's documentation of this error"
    )


def _fault(cause: object, error: Exception, directory: Path) -> FpdbError | None:
    if cause in _NO_ROOM:
        disk = os.statvfs(directory)
        free = disk.f_bavail * disk.f_frsize
        reason = f"{free:,} bytes are free, a quota or ulimit -f may be lower"
        if disk.f_files and not disk.f_favail:
            reason = "no inode is left for another file, whatever bytes are free"
        return DiskFullError(
            f"no room to write to {directory}: {reason}",
            hint="make room, or raise the quota, and write again; what was committed is safe",
            free=free,
            path=directory,
        )
    values = {"path": directory, "error": error, "user": os.geteuid(), "pid": os.getpid()}
    for causes, kind, message, hint in _FAULTS:
        if cause in causes:
            return kind(message.format_map(values), hint=hint)
    return None


def _lacks_room(directory: Path) -> bool:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    data = directory / DATA_FILE
    size = data.stat().st_size if data.exists() else 0
    at_limit = limit != resource.RLIM_INFINITY and size + _LITTLE_ROOM > limit
    disk = os.statvfs(directory)
    return at_limit or disk.f_bavail * disk.f_frsize < _LITTLE_ROOM
