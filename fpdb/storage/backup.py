"""Copies of a database that others write to, and the structure of its data file.

A copy is compacted, and verified before it appears in its place. LMDB's own structure is verified
page by page, without mapping the file: every page must be reachable once, or free.
"""

import contextlib
import os
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import lmdb
from lmdb import verify

from fpdb.errors import DamagedError, FpdbError
from fpdb.storage import shared_environment
from fpdb.storage.drafts import drafted
from fpdb.storage.lmdb_file import DATA_FILE, LmdbFile
from fpdb.storage.open_checks import open_data, require_openable
from fpdb.storage.shared_environment import SharedEnvironment
from fpdb.storage.survey import newest_state
from fpdb.storage.transactions import ReadTransaction
from fpdb.storage.translate import disk_named, translate

_SHOWN = 200
_VERIFICATIONS = 5
_GLANCES = 20
_PAUSE = 0.01


@contextlib.contextmanager
def copied(shared: SharedEnvironment, directory: Path) -> Iterator[Path]:
    """Yield a copy of this moment for a block to check; it appears, synced, when the block ends."""
    with drafted(directory) as draft:
        with ReadTransaction(shared) as txn, disk_named(draft):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(draft / DATA_FILE, flags, 0o600)
            try:
                if shared.environment is not None:
                    shared.environment.copyfd(descriptor, compact=True, txn=txn.raw)
                os.fsync(descriptor)
            except lmdb.Error as error:
                raise translate(error, draft) from error
            finally:
                os.close(descriptor)
        require_structure(draft)
        yield draft


def require_structure(directory: Path) -> None:
    """Verify the structure of a data file in a child process, which doesn't map it."""
    import subprocess

    done = subprocess.run(  # noqa: S603 - this very Python, which ignores the working directory
        [sys.executable, "-P", "-m", "lmdb", "verify", str(directory)],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode:
        words = (done.stdout or done.stderr).strip().splitlines() or ["it can't be read"]
        raise DamagedError(
            f"{directory / DATA_FILE} isn't intact: {words[0][:_SHOWN]}",
            hint="run `fpdb check` on the database that it was copied from",
        )


def meta_faults(directory: Path) -> list[str]:
    """Return what is wrong with the meta pages, if they mislead LMDB about the newest state."""
    file = LmdbFile(open_data(directory))
    try:
        for _ in range(_GLANCES):
            before = file.meta_bytes()
            state = newest_state(file)
            # A commit of another process is no damage, and who commits has found an intact file.
            if not state.faults or file.meta_bytes() == before:
                return state.faults if state.misled else []
            time.sleep(_PAUSE)
    finally:
        file.close()
    return []


def structure_faults(directory: Path) -> list[str]:
    """Return what is wrong with the pages of a data file, their trees, and the free pages.

    Others may write meanwhile. If they do, what seems wrong may be a page that was used again. Then
    all is verified once more under a snapshot, which keeps later states from being overwritten.
    """
    found: list[str] = []
    with contextlib.ExitStack() as stack:
        for attempt in range(_VERIFICATIONS):
            before = _newest_transaction(directory)
            found = _verify(directory)
            if not found or before is None or before == _newest_transaction(directory):
                break
            if attempt == 0:
                shared = shared_environment.join(directory, (), readonly=True, verify=None)
                stack.callback(shared_environment.leave, shared)
                stack.enter_context(ReadTransaction(shared))
    return found


def _verify(directory: Path) -> list[str]:
    try:
        found: list[str] = verify.verify(directory, subdir=True)  # type: ignore[no-untyped-call]
    except verify.VerifyError as error:
        return [str(error)]
    except (ArithmeticError, LookupError, TypeError, ValueError, struct.error) as error:
        return [f"the structure can't be followed: {type(error).__name__}: {error}"]
    return found


def _newest_transaction(directory: Path) -> int | None:
    """Return the number of the newest transaction, if the meta pages can be read."""
    try:
        return require_openable(directory, readonly=True).transaction
    except FpdbError:
        return None
