"""Opening LMDB itself: its settings, the size of its map, and its passing refusals."""

import errno
import os
import stat
import time
from pathlib import Path

import lmdb

from fpdb.errors import OpenError
from fpdb.storage.faults import translate
from fpdb.storage.lmdb_file import DATA_FILE

LMDB_LOCK_FILE = "lock.mdb"
LARGEST_MAP, SMALLEST_MAP = 1 << 40, 64 << 20
MAX_READERS = 4096
MAX_DATABASES = 80

# The engine whose files every other LMDB tool can read. Left out, an environment variable of
# py-lmdb's would choose the format of a new file.
_ENGINE_0_9 = 0
_ATTEMPTS = 5


def open_lmdb(
    directory: Path, *, readonly: bool, create: bool = False, sync: bool = True
) -> lmdb.Environment:
    """Open the environment of a directory with the largest map that this process may have.

    Without `sync`, what is committed reaches the disk when the system likes.
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
