"""Copy a database while others write: compacted, and verified before it appears in its place."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import lmdb

from fpdb.errors import DamagedError
from fpdb.storage import creation
from fpdb.storage.faults import disk_named, translate
from fpdb.storage.lmdb_file import DATA_FILE
from fpdb.storage.shared import SharedEnvironment
from fpdb.storage.transactions import ReadTransaction

_SHOWN = 200


@contextlib.contextmanager
def copied(shared: SharedEnvironment, directory: Path) -> Iterator[Path]:
    """Give a copy of this moment for a block to look at; it appears, synced, behind the block."""
    with creation.beside(directory) as draft:
        with ReadTransaction(shared) as txn:
            _copy(shared, txn, draft)
        require_sound(draft)
        yield draft


def _copy(shared: SharedEnvironment, txn: ReadTransaction, draft: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with disk_named(draft):
        descriptor = os.open(draft / DATA_FILE, flags, 0o600)
        try:
            if shared.environment is not None:
                shared.environment.copyfd(descriptor, compact=True, txn=txn.raw)
            os.fsync(descriptor)
        except lmdb.Error as error:
            raise translate(error, draft) from error
        finally:
            os.close(descriptor)


def require_sound(directory: Path) -> None:
    """Check the structure of a data file in a process of its own, which doesn't map it."""
    import subprocess

    done = subprocess.run(  # noqa: S603 - it is this very Python
        [sys.executable, "-m", "lmdb", "verify", str(directory)],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode:
        words = (done.stdout or done.stderr).strip().splitlines() or ["it can't be read"]
        raise DamagedError(
            f"{directory / DATA_FILE} isn't whole: {words[0][:_SHOWN]}",
            hint="run `fpdb check` on the database that it was copied from",
        )
