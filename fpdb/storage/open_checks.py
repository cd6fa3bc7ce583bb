"""Opening LMDB: the checks of a directory before LMDB sees it, its settings, and its errors.

LMDB trusts whatever it opens, and follows links. So these are checked first: that the path is on
a local disk, that each file is a regular one of the right user, and that the meta pages and the
length of the data file are right. LMDB then opens the descriptors that were checked, by their
names in /proc, so that nobody can swap a file in between.
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
SEAL_FILE = "fpdb.seal"
LARGEST_MAP = 1 << 40
# By how much a map exceeds its file at least: a reader opens it anew when it is outgrown.
READERS_ROOM, WRITERS_ROOM = 1 << 20, 16 << 20
MAX_READERS = 4096
MAX_DATABASES = 80
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
    found = _find_data(directory)
    return found.st_dev, found.st_ino


def inode_of(path: str | Path) -> Identity | None:
    """Return device and inode of a file or directory, None if there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def moved(directory: Path) -> MovedError:
    """Return the error for a path that doesn't lead to the database any more that was opened."""
    return MovedError(
        f"the database at {directory} was moved, removed or replaced", hint="open it again"
    )


def require_openable(directory: Path, *, readonly: bool) -> None:
    """Check a directory that is not in use in this process."""
    descriptor = open_data(directory, copied=True)
    try:
        require_local(directory)
        if not readonly:
            require_owner(directory)
        with disk_named(directory):
            owner = os.fstat(descriptor).st_uid
            for name in (LMDB_LOCK_FILE, LOCK_FILE, SEAL_FILE):
                with contextlib.suppress(FileNotFoundError):
                    _require_file(os.lstat(directory / name), directory / name, owner)
            require_intact(descriptor, str(directory / DATA_FILE))
    finally:
        os.close(descriptor)


def open_data(directory: Path, *, copied: bool = False) -> int:
    """Open the data file of a directory that is not in use in this process, to read it.

    Its owner may have it `copied` by an overlay, as containers have, before anything is read of it:
    it is then opened for writing, if possible, though nothing is written.
    """
    if _find_data(directory).st_uid == os.geteuid() and copied:
        with contextlib.suppress(OSError):
            return open_file(directory / DATA_FILE, os.O_RDWR)
    with disk_named(directory):
        return open_file(directory / DATA_FILE, os.O_RDONLY)


def open_file(path: Path, flags: int, *, folder: int | None = None) -> int:
    """Open a file of a database (of its opened `folder`), which must be regular, and no link."""
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        name = path if folder is None else path.name
        descriptor = os.open(name, flags, 0o600, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _not_a_file(path, "is a symbolic link, expected a regular file") from error
        raise
    try:
        _require_file(os.fstat(descriptor), path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _require_file(found: os.stat_result, path: Path, owner: int | None = None) -> None:
    """Raise OpenError unless this is a regular file, and with an `owner`, theirs alone."""
    if not stat.S_ISREG(found.st_mode):
        link = stat.S_ISLNK(found.st_mode)
        kind = "a symbolic link" if link else "a directory, pipe, socket or device"
        raise _not_a_file(path, f"is {kind}, expected a regular file")
    if path.name != DATA_FILE and found.st_nlink > 1:
        # What is written to it would be written to the file with the other name.
        raise _not_a_file(path, f"has {found.st_nlink} names (hard links), expected one")
    if owner is not None and found.st_uid != owner:
        raise _not_a_file(
            path, f"belongs to user {found.st_uid}, expected user {owner} as {DATA_FILE}"
        )


def _not_a_file(path: Path, what: str) -> OpenError:
    hint = "remove it while no process has the database open; it is made anew"
    return OpenError(f"{path} {what}", hint=hint)


def require_owner(directory: Path) -> None:
    """Raise AccessError unless this user owns a database, and nobody else can replace its files."""
    owner, user = _find_data(directory).st_uid, os.geteuid()
    if owner != user:
        # Lock files made here would shut the owner out.
        raise AccessError(
            f"{directory} belongs to user {owner}, and this process runs as user {user}",
            hint=f"run as user {owner}, or open it to read only",
        )
    found = os.stat(directory)
    if not _is_private(found):
        raise AccessError(
            f"other users may replace files in {directory}: it belongs to user {found.st_uid}, "
            f"mode {stat.S_IMODE(found.st_mode):o}",
            hint=f"chown it to user {user}, and chmod go-w; or open it to read only",
        )


def _is_private(found: os.stat_result) -> bool:
    """Return whether only this user, root, or a group of this process may replace files.

    Kubernetes gives a volume to a group of the containers that mount it, and lets it write.
    """
    others = stat.S_IWOTH
    if found.st_gid not in {0, os.getegid(), *os.getgroups()}:
        others |= stat.S_IWGRP
    return found.st_uid in {0, os.geteuid()} and not found.st_mode & others


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
            what = "is a file or holds other files, expected an empty directory"
            found = f"there is a database at {directory} already"
            raise DatabaseExistsError(
                found if (directory / DATA_FILE).exists() else f"{directory} {what}",
                hint="choose another path",
            )


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
            found = os.lstat(directory / DATA_FILE)
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
    directory: Path, *, readonly: bool, sync: bool = True, expected: Identity | None = None
) -> lmdb.Environment:
    """Open the environment of a directory with the largest map that this process may have.

    Raise MovedError if its data file isn't the expected one. Another process may have put another
    database there, which this process may have open already: to open and close that a second time
    would drop this process's locks on it, and with them its snapshots.

    A reader who may not use the lock file opens the data file without it. Nothing then protects
    its snapshots from writers: compare `last_commit` after each.

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
    with disk_named(directory), _pinned(directory, expected, readonly=readonly) as path:
        return _open_at(path, directory, readonly=readonly, sync=sync)


def _open_at(path: str, directory: Path, *, readonly: bool, sync: bool) -> lmdb.Environment:
    locked = os.path.isdir(path)  # else it is the data file alone
    size, smallest = _map_sizes(os.lstat(directory / DATA_FILE).st_size, readonly=readonly)
    attempts = 0
    while True:
        try:
            environment = lmdb.open(
                path,
                subdir=locked,
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

    Where address space is limited, half of what is free is left to everything else.
    """
    room = READERS_ROOM if readonly else max(data_size // 4, WRITERS_ROOM)
    smallest = data_size + room
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return LARGEST_MAP, smallest
    used = int(MEMORY.read_text().split()[0]) * resource.getpagesize()
    return max(min((limit - used) // 2, LARGEST_MAP), smallest), smallest


@contextlib.contextmanager
def _pinned(directory: Path, expected: Identity | None, *, readonly: bool) -> Iterator[str]:
    """Yield the name of the directory that LMDB opens, or of the data file alone.

    Lock files are used in this user's own directories, where nobody else can replace them by a
    link. The descriptors are of the kind O_PATH, because closing any other one of a lock file would
    drop the locks that LMDB has taken on it.
    """
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.ExitStack() as stack:
        folder = os.open(directory, flags | os.O_DIRECTORY)
        stack.callback(os.close, folder)
        data = os.open(DATA_FILE, flags, dir_fd=folder)
        stack.callback(os.close, data)
        found = os.fstat(data)
        _require_file(found, directory / DATA_FILE)
        if expected not in (None, (found.st_dev, found.st_ino)):
            raise moved(directory)
        if (
            found.st_uid == os.geteuid()
            and _is_private(os.fstat(folder))
            and os.access(name_of(data), os.W_OK, effective_ids=True)
            and _has_lock_file(folder, directory / LMDB_LOCK_FILE, needed=not readonly)
        ):
            yield name_of(folder)
        elif readonly:
            yield name_of(data)
        else:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), DATA_FILE)


def name_of(descriptor: int) -> str:
    """Return a path that leads to what a descriptor of this process was opened for."""
    return f"{DESCRIPTORS}/{descriptor}"


def _has_lock_file(folder: int, path: Path, *, needed: bool) -> bool:
    """Make and allocate LMDB's lock file, which it writes by a map: a hole on a full disk kills.

    This process must not have it open: closing it here drops its locks. Return whether there is
    such a file, or raise the system's error if it is `needed`.
    """
    try:
        descriptor = open_file(path, os.O_RDWR | os.O_CREAT, folder=folder)
        try:
            if os.fstat(descriptor).st_blocks * 512 < LOCK_BYTES:
                os.posix_fallocate(descriptor, 0, LOCK_BYTES)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in _NO_ROOM or error.errno in _FORBIDDEN:
            if needed:
                raise
            return False
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
    return True  # some file systems can't allocate in advance


_LITTLE_ROOM = 4 << 20  # a write that stopped short leaves less than this on a full disk
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
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
        "run as its owner",
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
