"""The one way in which a database appears: made beside its place, synced, sealed, and moved there.

A draft lies in a scratch folder, so that the next maker removes that of a killed process.
"""

import contextlib
import ctypes
import errno
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import lmdb

from fpdb.errors import OpenError, StorageError
from fpdb.scratch import require_process, scratch_folder, sync
from fpdb.storage.lmdb_file import DATA_FILE
from fpdb.storage.open_checks import (
    LMDB_LOCK_FILE,
    LOCK_FILE,
    disk_named,
    open_lmdb,
    require_vacant,
    translate,
)
from fpdb.storage.seal import LIBC, SEAL_FILE, seal

Entries = Mapping[str, Mapping[bytes, bytes]]

# A read checks whether its database was replaced if none did for this time. Who replaces it waits
# for as long before that returns, so every call that begins after it notices.
NOTICED_SECONDS = 0.01
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
_UNABLE = {errno.ENOSYS, errno.EINVAL, errno.EXDEV, errno.EBUSY, errno.EOPNOTSUPP}

_FILES = {DATA_FILE, LMDB_LOCK_FILE, LOCK_FILE, SEAL_FILE}


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
            if replace:
                shutil.copymode(directory, draft)
                shutil.copymode(directory / DATA_FILE, draft / DATA_FILE)
            sync(draft / DATA_FILE)
            seal(draft)
            sync(draft)
            if replace:
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
    rename = getattr(LIBC, "renameat2", None)
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
