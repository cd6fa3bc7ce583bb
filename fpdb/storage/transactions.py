"""Transactions of a database: snapshots, writes, and blocks that keep writers out.

Memoryviews and cursors of a transaction end with its block, and in a write transaction a memoryview
ends with the next write: copy what must last.
"""

import contextlib
import math
import os
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import lmdb

from fpdb.errors import (
    AccessError,
    ClosedError,
    DeadlineError,
    LockTimeoutError,
    MovedError,
)
from fpdb.models import Snapshots
from fpdb.storage.open_checks import disk_named, moved, translate

if TYPE_CHECKING:
    from fpdb.storage.environment import Environment, Mark

    Cursor = lmdb.Cursor[memoryview]
else:
    Cursor = lmdb.Cursor

_thread = threading.get_ident
_latest: ContextVar[float] = ContextVar("latest", default=math.inf)


@contextlib.contextmanager
def deadline(latest: float) -> Iterator[None]:
    """Let no transaction of the block commit after a time of `time.monotonic()`.

    One that would is undone, and the call raises DeadlineError: so a server that has answered that
    a request took too long stores nothing of it later. It holds for this thread or task, and within
    another block no longer than that one's.
    """
    before = _latest.set(min(latest, _latest.get()))
    try:
        yield
    finally:
        _latest.reset(before)


def _late(directory: Path) -> DeadlineError | None:
    """Return the error of a write after the deadline, or None before it."""
    if time.monotonic() <= _latest.get():
        return None
    return DeadlineError(
        f"a write to {directory} wasn't complete before its deadline, and was undone",
        hint="try again, with fewer documents or a later deadline",
    )


class ReadTransaction:
    """A snapshot, as a context manager; `raw` and `databases` are for the hottest loops."""

    __slots__ = (
        *("__weakref__", "handle", "cursors", "databases"),
        *("mark", "raw", "readers", "shared", "thread"),
    )

    _writes = False
    raw: "lmdb.Transaction[memoryview]"
    databases: "dict[str, lmdb._Database]"

    def __init__(self, handle: "Environment") -> None:
        self.handle = handle
        self.thread = 0
        self.cursors: dict[str, Cursor] = {}
        self.readers: dict[object, Any] = {}  # of callers, over these cursors

    def __enter__(self) -> Self:
        self.shared = shared = self.handle.current()
        self.mark: Mark = weakref.ref(self, shared.active.discard)
        try:
            self._begin()
        except lmdb.Error as error:
            fault = shared.fault(error)
            self.handle.notice(fault)
            self.abandon()
            raise fault from error
        except BaseException as error:
            self.handle.notice(error)
            self.abandon()
            raise
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        shared, fault = self.shared, error if isinstance(error, lmdb.Error) else None
        late = None
        if error:
            self.handle.notice(error)
        self.cursors, self.readers = {}, {}
        if self.mark not in shared.active:
            self._leave(error)
            return
        # A transaction uses the pages again that the one two before it has freed. So it is the
        # third after a snapshot that may change it, from when the second has committed.
        overtaken = shared.unguarded and shared.last_commit() > self.raw.id() + 1
        was_moved = False
        try:
            if self._writes and error is None and (late := _late(shared.directory)) is None:
                self.raw.commit()
                was_moved = not self.handle.is_at_path(shared)
            else:
                self.raw.abort()
        except lmdb.Error as failure:
            fault = failure
        finally:
            self._end()
        translated = shared.fault(fault) if fault is not None else late
        if shared.barred:
            shared.close_if_idle()
        if overtaken and (error is None or isinstance(error, (Exception, GeneratorExit))):
            raise AccessError(
                f"{shared.directory} was written to while it was read, from a disk that is mounted "
                "read-only here",
                hint="read it again while nobody writes to it, or mount the disk to write",
            ) from error
        if translated is not None:
            self.handle.notice(translated)
            raise translated from fault
        if was_moved:
            raise MovedError(
                f"the database at {self.handle.path} was moved, removed or replaced during a "
                "write, which isn't in what is there now",
                hint="open it again, in Python by db.reopen(), and write again; fpdb replaces "
                "databases between writes only",
            )

    def require_in_place(self) -> None:
        """Raise MovedError unless the database that it reads is still at its path."""
        if not self.handle.is_at_path(self.shared):
            raise MovedError(
                f"{self.handle.path} was moved, removed or replaced while it was held",
                hint="copy it again: the copy may be of both",
            )

    def get(self, name: str, key: bytes) -> memoryview | None:
        """Return the value of a key, or None."""
        return self.raw.get(key, None, self.databases[name])

    def cursor(self, name: str) -> Cursor:
        """Return a cursor over a sub-database."""
        return self.raw.cursor(self.databases[name])

    def shared_cursor(self, name: str) -> Cursor:
        """Return the cursor that all uses of a sub-database share; move it before each."""
        cursor = self.cursors.get(name)
        if cursor is None:
            cursor = self.cursors[name] = self.raw.cursor(self.databases[name])
        return cursor

    def entries(self, name: str) -> int:
        """Return the number of entries of a sub-database."""
        return self.raw.stat(self.databases[name])["entries"]

    @property
    def page_size(self) -> int:
        """The number of bytes of a page."""
        size: int = self.raw.stat(self.databases["documents"])["psize"]
        return size

    def bytes_of(self, name: str) -> int:
        """Return the number of bytes that the pages of a sub-database take."""
        stat = self.raw.stat(self.databases[name])
        pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        return stat["psize"] * pages

    def open_snapshots(self) -> Snapshots:
        """Count the snapshots that processes have open, without this one, and find the oldest."""
        environment, snapshot = self.shared.environment, (self.raw.id(), os.getpid())
        if environment is None:
            return Snapshots(0, None, 0)
        environment.reader_check()  # a process that was killed reads no more
        lines = [line.split() for line in environment.readers().splitlines()[1:]]
        snapshots = [(int(number), int(pid)) for pid, _, number in lines if number.isdigit()]
        if snapshot in snapshots:
            snapshots.remove(snapshot)
        oldest, reader = min(snapshots) if snapshots else (snapshot[0], None)
        # Others may have committed since this snapshot began.
        return Snapshots(len(snapshots), reader, max(snapshot[0] - oldest, 0))

    def copy_to(self, path: Path) -> None:
        """Write this moment into a new data file, compacted."""
        with disk_named(path.parent):
            path.touch(0o600, exist_ok=False)
            with path.open("wb") as file:
                try:
                    if self.shared.environment is not None:
                        self.shared.environment.copyfd(file.fileno(), compact=True, txn=self.raw)
                except lmdb.Error as error:
                    raise translate(error, path.parent) from error

    def _leave(self, error: BaseException | None) -> None:
        # If a fork took place in the block, to end the transaction here would unpin the snapshot
        # that the parent process is reading, in the memory that both share.
        with contextlib.suppress(AttributeError):
            del self.raw
        if self._writes and error is None:
            raise ClosedError(
                f"the transaction on {self.shared.directory} belongs to the parent process, or "
                "ended when this thread began another one",
                hint="fork outside of transactions, and don't hold one in a generator",
            )

    def _begin(self) -> None:
        shared, mark, write = self.shared, self.mark, self._writes
        self.thread = _thread()
        shared.active.add(mark)
        if shared.barred:
            shared.admit(mark, write=write)
        try:
            self.raw = shared.begin(write=write, buffers=True)
        except (lmdb.MapResizedError, lmdb.ReadersFullError) as error:
            shared.make_way(mark, error, write=write)
            self.raw = shared.begin(write=write, buffers=True)
        self.databases = shared.databases

    def _end(self) -> None:
        if hasattr(self, "raw"):
            del self.raw  # py-lmdb keeps the reader slot until it is collected
        self.shared.active.discard(self.mark)

    def abandon(self) -> None:
        """End a transaction that has begun, unless the block has ended."""
        self._end()
        if self.shared.barred:
            self.shared.close_if_idle()


class Ongoing:
    """A transaction that goes on after each block, with fpdb's errors in place of LMDB's."""

    __slots__ = ("_txn",)

    def __init__(self, txn: ReadTransaction) -> None:
        self._txn = txn

    def __enter__(self) -> ReadTransaction:
        shared = self._txn.shared
        if self._txn.mark not in shared.active:
            raise ClosedError(
                f"the transaction on {shared.directory} has ended, or is another process's",
                hint="use a snapshot within its `with` block, in the process that began it",
            )
        return self._txn

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, lmdb.Error):
            raise self._txn.shared.fault(error) from error


class WriteTransaction(ReadTransaction):
    """The one transaction that writes: committed by a clean end of its block, else undone."""

    __slots__ = ("_timeout",)

    _writes = True

    def __init__(self, handle: "Environment", timeout: float) -> None:
        super().__init__(handle)
        self._timeout = timeout

    def _begin(self) -> None:
        shared = self.shared
        shared.require_usable()
        if late := _late(shared.directory):
            raise late
        try:
            shared.lock.acquire(self, min(self._timeout, _latest.get() - time.monotonic()))
        except LockTimeoutError as error:
            if late := _late(shared.directory):
                raise late from error
            raise
        if not self.handle.is_at_path(shared):  # it was replaced during the wait
            raise moved(shared.directory)
        shared.check_readers_if_due()
        super()._begin()

    def _end(self) -> None:
        self.shared.lock.release(self)
        super()._end()

    def abandon(self) -> None:
        """Undo all writes, unless the block has ended."""
        if self.shared.lock.is_owned_by(self) and hasattr(self, "raw"):
            with contextlib.suppress(lmdb.Error):  # it was committed
                self.raw.abort()
        super().abandon()

    def put(self, name: str, key: bytes, value: bytes | bytearray | memoryview) -> None:
        """Store a value under a key, in place of an older one."""
        self.raw.put(key, value, db=self.databases[name])

    def append(
        self, name: str, key: bytes | memoryview, value: bytes | bytearray | memoryview
    ) -> None:
        """Store a value under a key after all others, which is faster and leaves no gaps."""
        self.raw.put(key, value, append=True, db=self.databases[name])

    def put_many(
        self,
        name: str,
        entries: Iterable[tuple[bytes, bytes | memoryview]],
        *,
        append: bool = False,
    ) -> None:
        """Store values under their keys, or in the order of their keys after all others."""
        with self.raw.cursor(self.databases[name]) as cursor:
            cursor.putmulti(entries, append=append)

    def delete(self, name: str, key: bytes) -> bool:
        """Delete a key; return whether it was there."""
        return self.raw.delete(key, db=self.databases[name])


class Lockout(WriteTransaction):
    """Keeps all writers out and writes nothing, so the database may be another at the end."""

    __slots__ = ()

    def __exit__(self, *_: object) -> None:
        self.abandon()
