"""Which directories this process has open, and what becomes of them when it forks."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb

from fpdb.errors import StorageError
from fpdb.storage import creation, preflight
from fpdb.storage.creation import Entries
from fpdb.storage.faults import disk_named
from fpdb.storage.opening import open_lmdb
from fpdb.storage.seal import require_sealed
from fpdb.storage.shared import SharedEnvironment

_open: dict[preflight.Identity, SharedEnvironment] = {}
_lock = threading.RLock()


def join(
    directory: Path,
    names: tuple[str, ...],
    *,
    readonly: bool,
    verify: Callable[[Path], None] | None,
) -> SharedEnvironment:
    """Return the environment of a directory; the first who asks for it opens it.

    A data file that was copied there has `verify` look at it first.
    """
    with _lock, disk_named(directory):
        shared = _open.get(preflight.identify(directory))
        if shared is None or shared.given_up:
            preflight.require_openable(directory, readonly=readonly)
            if verify:
                require_sealed(directory, verify)
            shared = SharedEnvironment(directory, names, readonly=readonly)
            return _enter(shared, open_lmdb(directory, readonly=readonly))
        shared.users += 1
        try:
            shared.include(names, readonly=readonly)
        except BaseException:
            leave(shared)
            raise
        return shared


def create(directory: Path, names: tuple[str, ...], initial: Entries) -> SharedEnvironment:
    """Create a database and return its environment."""
    with _lock:
        environment = creation.create(directory, names, initial)
        return _enter(SharedEnvironment(directory, names, readonly=False), environment)


@contextlib.contextmanager
def build(directory: Path, names: tuple[str, ...], initial: Entries) -> Iterator[SharedEnvironment]:
    """Create a database for a block to fill and leave; it appears, on disk for good, after that.

    Until then nothing waits for the disk: a power cut costs only the draft.
    """
    with creation.beside(directory) as draft:
        with _lock:
            environment = creation.make(draft, names, initial, sync=False)
            shared = _enter(SharedEnvironment(draft, names, readonly=False), environment)
        yield shared
        with _lock:
            if shared.environment is not None:
                # It would go on writing without waiting for the disk.
                for identity in [known for known, other in _open.items() if other is shared]:
                    del _open[identity]
                raise StorageError(
                    f"a transaction is still open in the database that is built at {directory}",
                    hint="end its iterators, snapshots and threads within the block",
                )


def leave(shared: SharedEnvironment) -> None:
    """Drop one handle; the last one closes the environment, once nobody is inside."""
    with _lock:
        shared.users -= 1
        if shared.users == 0:
            shared.close_if_idle()
        for identity, known in list(_open.items()):
            if known.users == 0 and known.environment is None:
                del _open[identity]


def _enter(shared: SharedEnvironment, environment: lmdb.Environment) -> SharedEnvironment:
    try:
        shared.attach(environment)
    except BaseException:
        shared.lock.close()
        raise
    _open[preflight.identify(shared.directory)] = shared
    return shared


def _before_fork() -> None:
    _lock.acquire()
    for shared in _open.values():
        shared.before_fork()


def _after_fork_in_parent() -> None:
    for shared in _open.values():
        shared.after_fork_in_parent()
    _lock.release()


def _after_fork_in_child() -> None:
    global _lock  # noqa: PLW0603 - the inherited one belongs to a thread of the parent
    _lock = threading.RLock()
    for shared in _open.values():
        shared.after_fork_in_child()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
