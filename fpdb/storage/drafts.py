"""Drafts of databases that take long to make: they outlast a kill, and the same work goes on.

A draft stands beside its place, under a name of its own. Its claim is locked while somebody is at
work on it, and holds the name of that work once the draft can be gone on with.
"""

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fpdb.errors import AccessError, DatabaseExistsError, LockTimeoutError
from fpdb.storage import creation, open_checks
from fpdb.storage.copy_guard import SEAL_FILE
from fpdb.storage.creation import CLAIM_FILE, Entries
from fpdb.storage.lmdb_file import DATA_FILE
from fpdb.storage.lock import LOCK_FILE
from fpdb.storage.open_checks import LMDB_LOCK_FILE
from fpdb.storage.translate import disk_named

_OWN = (DATA_FILE, LMDB_LOCK_FILE, LOCK_FILE, SEAL_FILE)
_ASIDE = "aside-"


class Draft(NamedTuple):
    """A draft, and how it was begun: fresh, resumed, or anew because an older one is of no use."""

    path: Path
    begun: str

    def aside(self, number: int) -> Path:
        """Name a file beside the data that is needed as long as the work lasts."""
        return self.path / f"{_ASIDE}{number}"


def place_of(directory: Path) -> Path:
    """Say where the draft of a database is."""
    return directory.parent / f".{directory.name}.merge"


@contextlib.contextmanager
def lasting(
    directory: Path,
    work: bytes,
    names: Sequence[str],
    initial: Entries,
    useless: tuple[type[BaseException], ...],
) -> Iterator[Draft]:
    """Give a draft with these sub-databases for a block to fill, and move it to its place then.

    If the block is cut short, the draft stays, and is given again to whoever comes with the same
    work; after errors that are `useless` to go on from, nothing is left.
    """
    owner = os.getpid()
    path = place_of(directory)
    with contextlib.ExitStack() as claim:
        descriptor = claim.enter_context(_claimed(directory, path))
        with disk_named(path):
            begun = _begin(path, descriptor, work, tuple(names), initial)
        try:
            yield Draft(path, begun)
            creation.require_process(owner, directory)
            creation.settle(path, directory)
        except useless:
            if os.getpid() == owner:
                _clear(path)
                with contextlib.suppress(OSError):
                    (path / CLAIM_FILE).unlink()
                    path.rmdir()
            raise
        with contextlib.suppress(OSError):
            _clear_aside(directory)
            (directory / CLAIM_FILE).unlink()


@contextlib.contextmanager
def _claimed(directory: Path, path: Path) -> Iterator[int]:
    """Lock the claim of a draft, which is made if there is none."""
    descriptor = None
    while descriptor is None:
        open_checks.require_vacant(directory)
        creation.remove_abandoned(directory)
        descriptor = _open_claim(directory, path)
        if descriptor is not None and not _lock(directory, path, descriptor):
            descriptor = None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(directory: Path, path: Path, descriptor: int) -> bool:
    """Lock a claim, or close it, if it isn't that of the draft any more: others have moved it."""
    locked = False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with contextlib.suppress(FileNotFoundError):
            locked = os.path.samestat(os.fstat(descriptor), os.stat(path / CLAIM_FILE))
    except BlockingIOError as error:
        raise LockTimeoutError(
            f"another process is making {directory}", hint="wait for it, or choose another path"
        ) from error
    finally:
        if not locked:
            os.close(descriptor)
    return locked


def _open_claim(directory: Path, path: Path) -> int | None:
    """Open the claim of a draft; None if somebody has just moved that draft to its place."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    hint = "move it away, or choose another path"
    with disk_named(path):
        try:
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
            _require_own(path)
            others = set(os.listdir(path)) if not (path / CLAIM_FILE).exists() else ()
            if others:
                raise DatabaseExistsError(
                    f"{path} holds other files ({min(others)}), expected the draft of a merge",
                    hint=hint,
                )
            return os.open(path / CLAIM_FILE, flags, 0o600)
        except FileNotFoundError:
            open_checks.require_vacant(directory)
            return None
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.EISDIR, errno.ELOOP):
                raise
            raise DatabaseExistsError(f"{path} isn't the draft of a merge", hint=hint) from error


def _require_own(path: Path) -> None:
    """Refuse what is no directory, and one into which others may put what they like."""
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise AccessError(
            f"the draft {path} can be changed by others than user {os.geteuid()}",
            hint="choose another path, or remove that draft as its owner",
        )


def _begin(
    path: Path, descriptor: int, work: bytes, names: tuple[str, ...], initial: Entries
) -> str:
    """Find a draft of this very work, or begin it: only a whole draft is given its name."""
    known = os.pread(descriptor, len(work) + 1, 0)
    if known == work:
        return "resumed"
    os.ftruncate(descriptor, 0)
    os.fsync(descriptor)
    _clear(path)
    os.close(os.open(path / LOCK_FILE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    creation.make(path, names, initial).close()
    creation.sync(path)
    os.pwrite(descriptor, work, 0)
    os.fsync(descriptor)
    return "anew" if known else "fresh"


def _clear(path: Path) -> None:
    for name in _OWN:
        (path / name).unlink(missing_ok=True)
    _clear_aside(path)


def _clear_aside(path: Path) -> None:
    for file in path.glob(f"{_ASIDE}*"):
        file.unlink(missing_ok=True)
