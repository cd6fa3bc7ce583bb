"""Opening LMDB: the checks of a directory before LMDB sees it, its settings, and its size.

LMDB trusts whatever it opens. So these are checked first: that the path is on a local disk, that
the data file is a regular file of this user, and that its meta pages and its length are right.
"""

import errno
import os
import stat
import sys
import time
from pathlib import Path

import lmdb

from fpdb.errors import (
    AccessError,
    DamagedError,
    DatabaseExistsError,
    DatabaseNotFoundError,
    NotADatabaseError,
    OpenError,
)
from fpdb.storage.lmdb_file import DATA_FILE, Meta, require_intact
from fpdb.storage.translate import disk_named, translate

LMDB_LOCK_FILE = "lock.mdb"
LARGEST_MAP, SMALLEST_MAP = 1 << 40, 64 << 20
MAX_READERS = 4096
MAX_DATABASES = 80

# Between machines, neither memory maps nor locks are coherent on these.
REMOTE = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "gfs", "gfs2", "glusterfs", "gpfs", "lustre"}
    | {"ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb3", "smbfs"}
)

# The engine whose files every other LMDB tool can read. Left out, an environment variable of
# py-lmdb's would choose the format of a new file.
_ENGINE_0_9 = 0
_ATTEMPTS = 5

_CREATE_HINT = "create it first, or give another path"

Identity = tuple[int, int]


# What is at a path


def identify(directory: Path) -> Identity:
    """Return device and inode of the data file, without opening anything.

    Closing any descriptor of a file drops this process's locks on it, so a directory that is
    already in use here may only be checked like this.
    """
    found = _find_data(directory)
    return found.st_dev, found.st_ino


def require_openable(directory: Path, *, readonly: bool) -> Meta:
    """Check a directory that is not in use in this process, and return its newest meta page."""
    require_64_bits()
    require_local(directory)
    if not readonly:
        require_owner(directory)
    path = directory / DATA_FILE
    descriptor = open_data(directory)
    try:
        return require_intact(descriptor, str(path))
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise DamagedError(f"{path} can't be read: {error}", hint="check the disk") from error
    finally:
        os.close(descriptor)


def open_data(directory: Path) -> int:
    """Open the data file of a directory that is not in use in this process, to read it."""
    found, path = _find_data(directory), directory / DATA_FILE
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except PermissionError as error:
        raise AccessError(
            f"user {os.geteuid()} may not read {path}, which belongs to user {found.st_uid}",
            hint="open it as its owner",
        ) from error


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
    require_64_bits()
    with disk_named(directory):
        parent = directory.parent
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
        try:
            names = os.listdir(directory)
        except FileNotFoundError:
            return
        except NotADirectoryError as error:
            raise DatabaseExistsError(
                f"{directory} is a file, expected nothing there", hint="choose another path"
            ) from error
        if DATA_FILE in names:
            raise DatabaseExistsError(
                f"there is a database at {directory} already",
                hint="open it, or choose another path",
            )
        if names:
            raise DatabaseExistsError(
                f"{directory} holds other files ({min(names)}), expected an empty directory",
                hint="choose another path",
            )


def is_vacant(directory: str | os.PathLike[str]) -> bool:
    """Return whether there is nothing at a path, or an empty directory."""
    path = Path(directory)
    with disk_named(path):
        return not path.exists() or (path.is_dir() and not any(path.iterdir()))


def require_64_bits() -> None:
    """Raise OpenError in a 32-bit Python, whose address space is too small for the map."""
    if sys.maxsize < 2**32:
        raise OpenError(
            "this Python has 32-bit addresses, expected 64", hint="use a 64-bit build of Python"
        )


def _find_data(directory: Path) -> os.stat_result:
    try:
        found = os.lstat(directory / DATA_FILE)
    except NotADirectoryError as error:
        raise NotADatabaseError(
            f"{directory} is a file, expected a directory", hint="give another path"
        ) from error
    except FileNotFoundError as error:
        if directory.is_dir():
            raise NotADatabaseError(
                f"the directory {directory} has no {DATA_FILE}", hint=_CREATE_HINT
            ) from error
        raise DatabaseNotFoundError(
            f"there is no database at {directory}", hint=_CREATE_HINT
        ) from error
    except PermissionError as error:
        raise AccessError(
            f"user {os.geteuid()} may not enter {directory}", hint="open it as its owner"
        ) from error
    if not stat.S_ISREG(found.st_mode):
        raise NotADatabaseError(
            f"{directory / DATA_FILE} isn't a regular file",
            hint="link to the directory of a database, not to the file in it",
        )
    return found


# The file system


def require_local(path: Path, mounts: str | None = None) -> None:
    """Raise an error for a path on a network file system.

    Args:
        path: Where a database is, or will be.
        mounts: The kernel's table of mounts, by default that of this process.
    """
    kind = file_system_of(path, _read_mounts() if mounts is None else mounts)
    if kind in REMOTE or kind == "fuse" or kind.startswith("fuse."):
        raise OpenError(
            f"{path} is on a file system of type {kind}, expected a local one",
            hint="move the database to a local disk; LMDB's map and locks need one",
        )


def file_system_of(path: Path, mounts: str) -> str:
    """Return the type of the file system of a path, "" if the table of mounts doesn't have it."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        mount, _, rest = line.partition(" - ")
        fields = mount.split(" ")
        if len(fields) < 5 or not rest:
            continue
        point = fields[4]
        for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
            point = point.replace(code, character)
        # A later mount at the same place hides the earlier one.
        depth = len(Path(point).parts)
        if depth >= best and path.is_relative_to(point):
            best, kind = depth, rest.split(" ")[0]
    return kind


def _read_mounts() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


# LMDB itself


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
    while True:
        try:
            environment = _open(directory, size, owner, readonly=readonly, sync=sync)
        except lmdb.MemoryError as error:
            size //= 2
            if size < smallest:
                raise OpenError(
                    f"this process has no room for a map of {smallest:,} bytes of {directory}",
                    hint="raise its limit on address space (ulimit -v)",
                ) from error
        except lmdb.Error as error:
            raise translate(error, directory) from error
        else:
            break
    if owner and not had_locks and os.geteuid() == 0 != owner.st_uid:
        # A lock file of root's would shut the owner out.
        os.chown(locks, owner.st_uid, owner.st_gid)
    environment.reader_check()
    return environment


def _open(
    directory: Path, size: int, owner: os.stat_result | None, *, readonly: bool, sync: bool
) -> lmdb.Environment:
    for attempt in range(_ATTEMPTS):
        try:
            return lmdb.open(
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
        except lmdb.Error as error:
            # Opening can fail while another process opens or closes at the same moment.
            passing = isinstance(error, (lmdb.InvalidParameterError, lmdb.LockError))
            if not (passing or getattr(error, "code", 0) == errno.ENOENT):
                raise
            if attempt == _ATTEMPTS - 1:
                raise
            time.sleep(0.01 * 2**attempt)
    raise AssertionError("the last attempt returns or raises")
