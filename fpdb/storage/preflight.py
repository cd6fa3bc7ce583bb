"""The checks before LMDB sees a directory: what is there, whose it is, and whether it is whole."""

import errno
import os
import stat
import sys
from pathlib import Path

from fpdb.errors import (
    AccessError,
    DamagedError,
    DatabaseExistsError,
    DatabaseNotFoundError,
    NotADatabaseError,
    OpenError,
)
from fpdb.storage.faults import disk_named
from fpdb.storage.filesystem import require_local
from fpdb.storage.lmdb_file import DATA_FILE, Meta, require_intact

Identity = tuple[int, int]

_CREATE_HINT = "create it first, or give another path"


def identify(directory: Path) -> Identity:
    """Return device and inode of the data file, found without opening anything.

    Closing any descriptor of a file drops this process's locks on it, so a directory that is
    already in use here may only be looked at like this.
    """
    return _identity(_data_file(directory))


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
    found, path = _data_file(directory), directory / DATA_FILE
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except PermissionError as error:
        raise AccessError(
            f"user {os.geteuid()} may not read {path}, which belongs to user {found.st_uid}",
            hint="open it as its owner",
        ) from error


def require_owner(directory: Path) -> None:
    """Refuse to write another user's files: the lock files made by it would shut the owner out."""
    owner, user = _data_file(directory).st_uid, os.geteuid()
    if owner != user:
        raise AccessError(
            f"{directory} belongs to user {owner}, and this process runs as user {user}",
            hint=f"run as user {owner}, or open it with readonly=True",
        )


def require_64_bits() -> None:
    """Refuse a 32-bit Python, whose address space is too small for the map."""
    if sys.maxsize < 2**32:
        raise OpenError(
            "this Python has 32-bit addresses, expected 64", hint="use a 64-bit build of Python"
        )


def require_vacant(directory: Path) -> None:
    """Raise if something stands in the way of a new database."""
    require_64_bits()
    with disk_named(directory):
        _require_vacant(directory)


def _require_vacant(directory: Path) -> None:
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
            f"there is a database at {directory} already", hint="open it, or choose another path"
        )
    if names:
        raise DatabaseExistsError(
            f"{directory} holds other files ({min(names)}), expected an empty directory",
            hint="choose another path",
        )


def is_vacant(directory: str | os.PathLike[str]) -> bool:
    """Tell whether there is nothing at a path, or an empty directory."""
    path = Path(directory)
    with disk_named(path):
        return not path.exists() or (path.is_dir() and not any(path.iterdir()))


def _data_file(directory: Path) -> os.stat_result:
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


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino
