"""A database as callers of the storage use it: handles, which share one LMDB environment.

LMDB forbids to open an environment twice in a process, to carry it over a fork, and to replace
its map while a transaction is open. So every handle of a directory uses one SharedEnvironment. To
replace the environment, it bars new transactions, waits until the open ones have ended, and then
closes and opens it; handles don't notice.

To open it for writing takes the write lock. If another process has that for longer than a moment,
it is opened for reading, and the first transaction that finds the lock free opens it anew.

A directory may be moved, and another one take its path: so environments are found by the identity
of their data file, and a handle raises MovedError when another one is at its path.

What opens, replaces or closes environments holds `table_lock`. `barred` may stay set: then the next
transaction takes `table_lock`, too, and lifts it.
"""

import contextlib
import ctypes
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NoReturn, Self

import lmdb

from fpdb.errors import (
    ClosedError,
    DamagedError,
    DatabaseNotFoundError,
    FpdbError,
    MovedError,
    NotADatabaseError,
    ReadOnlyError,
    StorageError,
)
from fpdb.progress import WorkStep, log, show
from fpdb.storage import drafts
from fpdb.storage.drafts import Entries, drafted, make_environment
from fpdb.storage.lmdb_file import DATA_FILE
from fpdb.storage.lock import WriteLock
from fpdb.storage.open_checks import (
    LMDB_LOCK_FILE,
    Identity,
    data_size,
    disk_named,
    identify,
    moved,
    open_lmdb,
    require_openable,
    resolved,
    translate,
)
from fpdb.storage.seal import require_sealed
from fpdb.storage.survey import structure_faults
from fpdb.storage.transactions import Lockout, ReadTransaction, WriteTransaction

LOCK_SECONDS = 30.0
# As long as opening waits for a writer: longer than most transactions take.
OPENING_SECONDS = 0.25
DRAIN_SECONDS = 30.0
FORK_SECONDS = 5.0
READER_CHECK_SECONDS = 1.0
_PAUSE = 0.001
_ATTEMPTS = 100

Mark = weakref.ref[ReadTransaction]


class Environment:
    """A handle of a directory; all of its handles in a process share one LMDB environment.

    It may be used by all threads, and survives a fork.
    """

    def __init__(
        self,
        path: Path,
        *,
        readonly: bool = False,
        sync: bool = True,
        verify: Callable[[Path], None] | None = None,
    ) -> None:
        self.path, self.readonly, self.sync = path, readonly, sync
        self._verify = verify
        self._data = str(path / DATA_FILE)
        self._trusted_until = 0.0
        self.damage = ""  # that a transaction met first
        self._shared: SharedEnvironment | None
        self._shared = shared = self._join()
        self._closer = weakref.finalize(self, _leave, shared)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        names: Iterable[str],
        initial: Entries | None = None,
        *,
        verify: Callable[[Path], None] | None = None,
    ) -> Self:
        """Create a database with these sub-databases and first entries, and open it."""
        with drafted(resolved(path)) as draft:
            make_environment(draft, names, initial or {})
        return cls.open(path, verify=verify)

    @classmethod
    @contextlib.contextmanager
    def build(
        cls,
        path: str | os.PathLike[str],
        names: Iterable[str],
        initial: Entries | None = None,
        *,
        replace: bool = False,
    ) -> Iterator[Self]:
        """Create a database for a block to fill; it appears, synced, when the block ends.

        Until then nothing waits for the disk: a power cut costs only the draft. It may replace one
        that has a `lockout`.
        """
        with drafted(resolved(path), replace=replace) as draft:
            make_environment(draft, names, initial or {})
            with cls(draft, sync=False) as handle:
                shared = handle.current()
                yield handle
            if shared.environment is not None:
                # It would write on without waiting for the disk.
                _open.pop(shared.identity, None)
                raise StorageError(
                    f"a transaction is still open in the database that is built at {draft}",
                    hint="end its iterators, snapshots and threads within the block",
                )

    @contextlib.contextmanager
    def backup(self, path: str | os.PathLike[str]) -> Iterator[Self]:
        """Copy this moment for a block to check; the copy appears, synced, when the block ends."""
        with drafted(resolved(path)) as draft:
            show(WorkStep("copy", data_size(self.path), 0, "byte"))
            with self.read() as txn:
                txn.copy_to(draft / DATA_FILE)
            for fault in structure_faults(draft):
                raise DamagedError(
                    f"{draft / DATA_FILE} isn't intact: {fault}",
                    hint="run `fpdb check` on the database that it was copied from",
                )
            with type(self).open(draft, readonly=True) as copy:
                yield copy
            # The lock file of the check isn't part of the copy.
            with disk_named(draft):
                (draft / LMDB_LOCK_FILE).unlink(missing_ok=True)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        readonly: bool = False,
        verify: Callable[[Path], None] | None = None,
    ) -> Self:
        """Open an existing database; never create anything.

        `verify` is called for a copied one that wasn't opened before, and raises if it is torn.
        """
        return cls(resolved(path), readonly=readonly, verify=verify)

    def read(self) -> ReadTransaction:
        """Return a snapshot for a `with` block; keep the block short, since it pins free pages."""
        return ReadTransaction(self)

    def write(self, timeout: float = LOCK_SECONDS) -> WriteTransaction:
        """Return a write transaction for a `with` block, which waits at most `timeout` seconds."""
        self._require_writable()
        return WriteTransaction(self, timeout)

    def notice(self, error: BaseException) -> None:
        """Log the first damage that a transaction meets; later ones may meet it all the time."""
        if isinstance(error, DamagedError) and not self.damage:
            self.damage = str(error)
            log("ERROR", "%s is damaged: %s", self.path, error)

    def current(self) -> "SharedEnvironment":
        """Return the environment; raise MovedError if it isn't at the path, at most a moment ago.

        To look there takes a tenth of the time of a query, so reads don't do it each time.
        """
        shared = self._shared
        if shared is None:
            raise ClosedError(f"this handle of {self.path} was closed", hint="open it again")
        if time.monotonic() >= self._trusted_until:
            if not self.is_at_path(shared):
                raise moved(self.path)
            shared.directory = shared.lock.directory = self.path
        return shared

    def is_at_path(self, shared: "SharedEnvironment") -> bool:
        """Return whether an environment is that of the data file at the path now."""
        now = time.monotonic()
        is_there = _inode_of(self._data) == shared.identity
        self._trusted_until = now + drafts.NOTICED_SECONDS if is_there else 0.0
        return is_there

    def _join(self) -> "SharedEnvironment":
        """Return the environment of the database at the path; its first handle opens it."""
        for _ in range(_ATTEMPTS):
            with table_lock, disk_named(self.path):
                identity = identify(self.path)
                try:
                    return self._shared_by(identity)
                except (FpdbError, FileNotFoundError) as error:
                    # Else it was replaced, or moved away and back, at this very moment.
                    if isinstance(error, FpdbError) and identify(self.path) == identity:
                        raise
        raise moved(self.path)

    def _shared_by(self, identity: Identity) -> "SharedEnvironment":
        """Return the environment of a data file, which this handle shares."""
        _require_one_place(self.path, identity)
        shared = _open.get(identity)
        if shared is None:
            damage = None
            try:
                require_openable(self.path)
            except DamagedError as error:
                damage = error
            if self._verify:  # which says of a torn copy that it is one
                require_sealed(self.path, self._verify)
            if damage:
                raise damage
            shared = SharedEnvironment(self, identity)
            try:
                shared.open()
                _open[identity] = shared
            except BaseException:
                shared.close()
                raise
            return shared
        shared.users += 1
        try:
            shared.require_usable()
        except BaseException:
            _leave(shared)
            raise
        shared.directory = shared.lock.directory = self.path
        shared.writable |= not self.readonly
        shared.barred = True  # until its next transaction
        return shared

    def lockout(self, timeout: float = LOCK_SECONDS) -> Lockout:
        """Return what keeps all writers out of what is at the path, for a `with` block."""
        self._require_writable()
        return Lockout(self, timeout)

    def require(self, names: Iterable[str]) -> None:
        """Raise NotADatabaseError unless there are these sub-databases."""
        with self.read() as txn:
            for name in names:
                if name not in txn.databases:
                    raise NotADatabaseError(
                        f"{self.path} has no sub-database {name}",
                        hint="another program made it: give another path",
                    )

    def close(self) -> None:
        """Close the handle; transactions of other threads may finish first.

        A write of this thread that Ctrl-C has left open is undone.
        """
        shared, self._shared = self._shared, None
        if shared is not None:
            for transaction in shared.transactions_of(threading.get_ident()):
                if isinstance(transaction, WriteTransaction) and transaction.handle is self:
                    transaction.abandon()
        self._closer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_writable(self) -> None:
        if self.readonly:
            raise ReadOnlyError(
                f"{self.path} was opened read-only", hint="open it with readonly=False"
            )


class SharedEnvironment:
    """An LMDB environment, its sub-databases, its open transactions, and its handles."""

    def __init__(self, handle: Environment, identity: Identity) -> None:
        self.directory, self.identity = handle.path, identity
        self.lock_file: Identity | None = None  # of LMDB; a data file must keep the one it has
        self.header: bytes | None = None
        # The LMDB environment is, at this moment, or its map had no room for a transaction.
        self.readonly = True
        self.writable = not handle.readonly  # a handle may write
        self.unguarded = False  # it has no lock file, by which writers see its snapshots
        self.users = 1
        self.pid = os.getpid()
        self.lock = WriteLock(handle.path, identity)
        self.environment: lmdb.Environment | None = None
        self.begin: Callable[..., lmdb.Transaction[memoryview]] = self._refuse
        self.databases: dict[str, lmdb._Database] = {}
        # The open transactions. Single operations on a set are atomic, so beginning a transaction
        # takes no lock. A transaction that Ctrl-C drops leaves the set by itself.
        self.active: set[Mark] = set()
        # While this is set, a transaction calls `admit` to begin, and `close_if_idle` at its end.
        self.barred = True
        self.failure: FpdbError | None = None
        self.stranded = False
        self.reader_check_due = 0.0
        self._sync = handle.sync

    def admit(self, mark: Mark, *, write: bool) -> None:
        """Wait until a transaction may begin, and count it among the active ones."""
        self.active.discard(mark)
        # A thread with an open transaction can't wait for itself to end it.
        if self.transactions_of(threading.get_ident()) and not (write and self.readonly):
            self.require_usable()
            self.active.add(mark)
            return
        with table_lock:  # others may have opened it anew, and for reading, until here
            self.require_usable()
            if self.environment is None or (write and self.readonly):
                self.open_anew()
            elif self.readonly and self.writable and not self.active:
                # The first write would do it, but not within a snapshot of its own thread.
                with self.lock.attempt() as free:
                    if free:
                        self.open_anew()
            self._settle()
            self.active.add(mark)

    def make_way(self, mark: Mark, error: lmdb.Error, *, write: bool) -> None:
        """Remove the obstacle to the beginning of a transaction."""
        if isinstance(error, lmdb.MapResizedError):
            self.active.discard(mark)
            self.open_anew()
            self.admit(mark, write=write)
        elif self.environment:  # every reader slot was taken
            self.environment.reader_check()

    def fault(self, error: lmdb.Error) -> FpdbError:
        """Return fpdb's error for LMDB's; after damage nothing begins any more."""
        translated = translate(error, self.directory)
        if isinstance(translated, DamagedError):
            self.failure, self.barred = translated, True
        elif isinstance(error, lmdb.MapFullError):
            self.readonly = self.barred = True
        return translated

    def last_commit(self) -> int:
        """Return the number of the last transaction in the file that is mapped."""
        return self.environment.info()["last_txnid"] if self.environment else sys.maxsize

    def check_readers_if_due(self) -> None:
        """Free the reader slots of dead processes, once a second."""
        now = time.monotonic()
        if now >= self.reader_check_due and self.environment:
            self.reader_check_due = now + READER_CHECK_SECONDS
            self.environment.reader_check()

    def close_if_idle(self) -> None:
        """Close the environment if no handle needs it and no transaction is open."""
        if self.users and not self.failure:
            return
        with table_lock:
            self.barred = True
            if (self.users == 0 or self.failure) and not self.active:
                self.close()
                if (self.users == 0 or not self.stranded) and _open.get(self.identity) is self:
                    del _open[self.identity]

    def require_usable(self) -> None:
        """Raise the error that keeps every transaction from beginning, if there is one."""
        if self.failure:
            raise type(self.failure)(str(self.failure), hint=self.failure.hint)
        if self.users == 0:
            self._refuse()
        if self.pid != os.getpid() and self.environment is not None:
            # It was forked without Python's hooks: a write would corrupt the file.
            raise ClosedError(
                f"{self.directory} was opened by process {self.pid}, not by this one",
                hint="open the database after the fork",
            )

    def before_fork(self) -> None:
        """Keep new transactions out, and let the other threads leave."""
        self.barred = True
        if not self.transactions_of(threading.get_ident()):
            self._drain(FORK_SECONDS)

    def after_fork_in_child(self) -> None:
        """Drop the parent's environment; the child's next transaction opens it anew."""
        quiet = not self.active
        self.active.clear()
        self.barred = True
        self.lock.forget()
        if quiet:
            self._close()
        elif self.environment is not None:
            # To close it would wait for threads that this process doesn't have, and would end
            # the parent's transactions. So it must never be collected either, not even at exit.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.environment))
            self.environment, self.begin, self.stranded = None, self._refuse, True
            self.failure = ClosedError(
                f"{self.directory} was inside a transaction when this process was forked",
                hint="fork outside of transactions, in other threads too, or spawn",
            )

    def transactions_of(self, thread: int) -> list[ReadTransaction]:
        transactions = [mark() for mark in list(self.active)]
        return [other for other in transactions if other is not None and other.thread == thread]

    def _drain(self, seconds: float) -> bool:
        """Wait until no transaction is open; return whether that is so."""
        ends = time.monotonic() + seconds
        while self.active and time.monotonic() < ends:
            time.sleep(_PAUSE)
        return not self.active

    def open(self) -> None:
        """Open it for writing if a handle writes and no other process does, else for reading."""
        # Opening a sub-database of a writable environment takes LMDB's write lock: that wait
        # can't be interrupted, and holds the interpreter's lock.
        free = self.lock.attempt(OPENING_SECONDS) if self.writable else contextlib.nullcontext()
        with free as writing:
            try:
                self.environment = environment = open_lmdb(
                    self.directory, readonly=not writing, sync=self._sync, expected=self.identity
                )
                self.databases = self._open_databases(environment)
                self.readonly, self.pid = not writing, os.getpid()
                self.unguarded = not environment.flags()["lock"]
                if not self.unguarded:
                    self.lock_file = _inode_of(self.directory / LMDB_LOCK_FILE)
                self.begin = environment.begin
            except BaseException:
                self._close()
                raise
        self.reader_check_due = time.monotonic() + READER_CHECK_SECONDS
        self._settle()

    def _open_databases(self, environment: lmdb.Environment) -> "dict[str, lmdb._Database]":
        try:
            with environment.begin() as transaction:
                names = [name for name, _ in transaction.cursor()]
            # Without a transaction of ours: py-lmdb would close them with it.
            opened = {name.decode(): environment.open_db(name, create=False) for name in names}
            with environment.begin() as transaction:
                header = opened.get("header")
                stored = transaction.get(b"header", db=header) if header else None
            if self.header not in (None, stored):  # the number of an inode was used again
                raise moved(self.directory)
            self.header = stored
        except (lmdb.IncompatibleError, lmdb.DbsFullError, UnicodeDecodeError) as error:
            raise NotADatabaseError(
                f"{self.directory} has other entries than fpdb's sub-databases",
                hint="another program made it, or it is a copy that isn't complete: give another "
                "path, and copy databases with `fpdb backup`",
            ) from error
        except lmdb.Error as error:
            raise translate(error, self.directory) from error
        return opened

    def open_anew(self) -> None:
        """Open the environment again, with the largest map that is possible now."""
        with table_lock:
            self.barred = True
            if self.transactions_of(threading.get_ident()) or not self._drain(DRAIN_SECONDS):
                raise StorageError(
                    f"{self.directory} must be opened anew, for writing or for a larger map, but "
                    "this process is inside a transaction on it",
                    hint="end that snapshot or iterator first",
                )
            self._close()
            try:
                require_openable(self.directory)
                self.open()
            except (DatabaseNotFoundError, NotADatabaseError, FileNotFoundError) as error:
                raise moved(self.directory) from error

    def close(self) -> None:
        """Close the environment and the files of the lock; it can be opened again."""
        self._close()
        if not self.failure:
            self.lock.sign_off()
        self.lock.close()

    def _close(self) -> None:
        environment, self.environment, self.lock_file = self.environment, None, None
        self.begin, self.databases = self._refuse, {}
        if environment is not None:
            environment.close()

    def _settle(self) -> None:
        usable = self.environment is not None and not (self.readonly and self.writable)
        self.barred = not usable or self.failure is not None or self.users == 0

    def _refuse(self, **_: object) -> NoReturn:
        raise ClosedError(f"{self.directory} was closed", hint="open it again")


_open: dict[Identity, SharedEnvironment] = {}
# Keeps other threads from joining, leaving, opening and closing environments.
table_lock = threading.RLock()


def _inode_of(path: str | Path) -> Identity | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _require_one_place(directory: Path, identity: Identity) -> None:
    """Raise unless the data file of a directory and LMDB's lock file belong together."""
    lock_file = _inode_of(directory / LMDB_LOCK_FILE)
    for known, shared in _open.items():
        if shared.lock_file and (known == identity) != (shared.lock_file == lock_file):
            raise MovedError(
                f"{DATA_FILE} or {LMDB_LOCK_FILE} of {directory} was replaced or removed within it",
                hint="move whole directories; close all handles of both, then open it again",
            )


def _leave(shared: SharedEnvironment) -> None:
    """Drop one handle; the last one closes the environment, after the last transaction."""
    with table_lock:
        shared.users -= 1
        shared.close_if_idle()


def _before_fork() -> None:
    table_lock.acquire()
    for shared in list(_open.values()):
        shared.before_fork()


def _after_fork_in_child() -> None:
    for shared in list(_open.values()):
        shared.after_fork_in_child()
    table_lock.release()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=table_lock.release,
    after_in_child=_after_fork_in_child,
)
