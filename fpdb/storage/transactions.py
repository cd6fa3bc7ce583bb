"""Transactions: thin wrappers of LMDB's, with fpdb's errors.

Memoryviews and cursors of a transaction end with its block, and in a write transaction a memoryview
ends with the next write: copy what must last.
"""

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

import lmdb

from fpdb.errors import ClosedError, FpdbError
from fpdb.models import Snapshots
from fpdb.storage.open_checks import LARGEST_MAP
from fpdb.storage.shared_environment import SharedEnvironment

if TYPE_CHECKING:
    Cursor = lmdb.Cursor[memoryview]
else:
    Cursor = lmdb.Cursor

# What LMDB raises, for callers that translate it before their transaction ends.
FAULTS = lmdb.Error

_thread = threading.get_ident


class ReadTransaction:
    """A snapshot, as a context manager; `raw` and `databases` are for the hottest loops."""

    __slots__ = ("_shared", "cursors", "databases", "raw")

    raw: "lmdb.Transaction[memoryview]"
    databases: "dict[str, lmdb._Database]"

    def __init__(self, shared: SharedEnvironment) -> None:
        self._shared = shared
        self.cursors: dict[str, Cursor] = {}

    def __enter__(self) -> Self:
        shared = self._shared
        try:
            shared.active[self] = _thread()
            if shared.barred:
                shared.admit(self)
            self.raw = shared.begin(buffers=True)
        except lmdb.Error as error:
            self._begin_again(error, write=False)
        except BaseException:
            self._end()
            raise
        self.databases = shared.databases
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        shared = self._shared
        if self not in shared.active:
            self._leave_to_parent()
            return
        self.cursors = {}
        self.raw.abort()
        del self.raw  # py-lmdb keeps the reader slot until it is collected
        del shared.active[self]
        if error is not None and isinstance(error, lmdb.Error):
            fault = shared.fault(error)
            shared.ended()
            raise fault from error
        if shared.barred:
            shared.ended()

    def require_open(self) -> None:
        """Raise if the block has ended, or if this is a child process that was forked in it."""
        if self not in self._shared.active:
            raise ClosedError(
                f"the transaction on {self._shared.directory} has ended, or is another process's",
                hint="use a snapshot within its `with` block, in the process that began it",
            )

    def explained(self, error: lmdb.Error) -> FpdbError:
        """Return fpdb's error for one of LMDB's, where the block goes on."""
        return self._shared.fault(error)

    @contextlib.contextmanager
    def going_on(self) -> Iterator[None]:
        """Run a part of the transaction, with fpdb's errors for LMDB's."""
        self.require_open()
        try:
            yield
        except FAULTS as error:
            raise self.explained(error) from error

    def get(self, name: str, key: bytes) -> memoryview | None:
        """Return the value of a key, or None."""
        return self.raw.get(key, None, self.databases[name])

    def cursor(self, name: str) -> Cursor:
        """Return a cursor over a sub-database."""
        return self.raw.cursor(self.databases[name])

    def kept_cursor(self, name: str) -> Cursor:
        """Return the cursor that is kept open for a sub-database; move it before each use."""
        cursor = self.cursors.get(name)
        if cursor is None:
            cursor = self.cursors[name] = self.raw.cursor(self.databases[name])
        return cursor

    def entries(self, name: str) -> int:
        """Return the number of entries of a sub-database."""
        return self.raw.stat(self.databases[name])["entries"]

    def bytes_of(self, name: str) -> int:
        """Return the number of bytes that the pages of a sub-database take."""
        stat = self.raw.stat(self.databases[name])
        pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        return stat["psize"] * pages

    def number(self) -> int:
        """Return the number of the transaction whose state this one sees."""
        return self.raw.id()

    def open_snapshots(self) -> Snapshots:
        """Count the snapshots that processes have open, without this one, and find the oldest."""
        environment = self._shared.environment
        if environment is None:
            return Snapshots(0, None, 0)
        environment.reader_check()  # a process that was killed reads no more
        lines = [line.split() for line in environment.readers().splitlines()[1:]]
        found = [(int(pid), int(number)) for pid, _, number in lines if number.isdigit()]
        own = os.getpid(), self.number()
        if own in found:
            found.remove(own)
        if not found:
            return Snapshots(0, None, 0)
        pid, oldest = min(found, key=lambda reader: reader[1])
        # Others may have committed since this snapshot began.
        return Snapshots(len(found), pid, max(own[1] - oldest, 0))

    def _leave_to_parent(self) -> None:
        # A fork took place in the block. To end the transaction here would unpin the snapshot
        # that the parent process is reading, in the memory that both share.
        self.cursors = {}
        with contextlib.suppress(AttributeError):
            del self.raw

    def _begin_again(self, error: lmdb.Error, *, write: bool) -> None:
        try:
            self.raw = self._shared.begin_again(self, error, write=write)
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        self._shared.active.pop(self, None)
        if self._shared.barred:
            self._shared.ended()


class WriteTransaction(ReadTransaction):
    """The one transaction that writes: committed by a clean end of its block, else undone."""

    __slots__ = ("_timeout",)

    def __init__(self, shared: SharedEnvironment, timeout: float) -> None:
        super().__init__(shared)
        self._timeout = timeout

    def __enter__(self) -> Self:
        shared = self._shared
        if shared.barred:
            shared.require_usable()
        shared.lock.acquire(self._timeout)
        try:
            self._begin()
        except BaseException:
            shared.lock.release()
            self._end()
            raise
        self.databases = shared.databases
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        shared, fault = self._shared, None
        if self not in shared.active:
            self._leave_to_parent()
            if error is None:
                raise ClosedError(
                    f"the transaction on {shared.directory} belongs to the parent process",
                    hint="fork outside of transactions",
                )
            return
        self.cursors = {}
        try:
            if error is None:
                self.raw.commit()
            else:
                self.raw.abort()
        except lmdb.Error as failure:
            fault = failure
        finally:
            del self.raw
            del shared.active[self]
            shared.lock.release()
        fault = error if isinstance(error, lmdb.Error) else fault
        if fault is not None:
            raise self._explain(fault) from fault
        if shared.barred:
            shared.ended()

    def put(self, name: str, key: bytes, value: bytes | memoryview) -> None:
        """Store a value under a key, replacing what was there."""
        self.raw.put(key, value, db=self.databases[name])

    def append(self, name: str, key: bytes | memoryview, value: bytes | memoryview) -> None:
        """Store a value under a key after all others, which is faster and leaves no gaps."""
        self.raw.put(key, value, append=True, db=self.databases[name])

    def extend(self, name: str, entries: Iterable[tuple[bytes, bytes | memoryview]]) -> None:
        """Store values in the order of their keys, after all others."""
        with self.raw.cursor(self.databases[name]) as cursor:
            cursor.putmulti(entries, append=True)

    def delete(self, name: str, key: bytes) -> bool:
        """Delete a key; return whether it was there."""
        return self.raw.delete(key, db=self.databases[name])

    def _begin(self) -> None:
        shared = self._shared
        if shared.pid != os.getpid() and shared.environment is not None:
            # A fork that ran no Python hook; to write here would corrupt the file.
            raise ClosedError(
                f"{shared.directory} was opened by process {shared.pid}, not by this one",
                hint="open the database after the fork",
            )
        shared.check_readers()
        try:
            shared.active[self] = _thread()
            if shared.barred:
                shared.admit(self)
            self.raw = shared.begin(write=True, buffers=True)
        except lmdb.Error as error:
            self.raw = shared.begin_again(self, error, write=True)

    def _explain(self, error: lmdb.Error) -> FpdbError:
        shared = self._shared
        fault = shared.fault(error)
        if isinstance(error, lmdb.MapFullError) and shared.map_bytes < LARGEST_MAP:
            # The next attempt may fit: memory may have become free since the map was made.
            with contextlib.suppress(FpdbError):
                shared.map_anew()
        if shared.barred:
            shared.ended()
        return fault
