"""A handle of one LMDB environment in a directory: create, open, read, write, close."""

import contextlib
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from fpdb.errors import ClosedError, ReadOnlyError
from fpdb.storage import backup, shared_environment
from fpdb.storage.drafts import Entries
from fpdb.storage.lmdb_file import DATA_FILE
from fpdb.storage.open_checks import LMDB_LOCK_FILE
from fpdb.storage.shared_environment import LOCK_SECONDS, SharedEnvironment
from fpdb.storage.transactions import ReadTransaction, WriteTransaction
from fpdb.storage.translate import disk_named


class Environment:
    """A handle of a directory; all of its handles in a process share one LMDB environment.

    It may be used by all threads, survives a fork, and can be pickled as its path.
    """

    __slots__ = ("__weakref__", "_closer", "_shared", "names", "path", "readonly")

    def __init__(self, shared: SharedEnvironment, names: Iterable[str], *, readonly: bool) -> None:
        self.path = shared.directory
        self.names = tuple(names)
        self.readonly = readonly
        self._shared: SharedEnvironment | None = shared
        self._closer = weakref.finalize(self, shared_environment.leave, shared)

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], names: Iterable[str], initial: Entries | None = None
    ) -> Self:
        """Create a database with these sub-databases and first entries, and open it.

        It appears at its path complete, or not at all.
        """
        names = tuple(names)
        shared = shared_environment.create(Path(os.path.realpath(path)), names, initial or {})
        return cls(shared, names, readonly=False)

    @classmethod
    @contextlib.contextmanager
    def build(
        cls, path: str | os.PathLike[str], names: Iterable[str], initial: Entries | None = None
    ) -> Iterator[Self]:
        """Create a database for a block to fill; it appears, synced, when the block ends."""
        names = tuple(names)
        with shared_environment.build(Path(os.path.realpath(path)), names, initial or {}) as shared:
            handle = cls(shared, names, readonly=False)
            try:
                yield handle
            finally:
                handle.close()

    @contextlib.contextmanager
    def backup(self, path: str | os.PathLike[str]) -> Iterator[Self]:
        """Copy this moment for a block to check; the copy appears, synced, when the block ends."""
        if self._shared is None:
            raise self._closed()
        with backup.copied(self._shared, Path(os.path.realpath(path))) as draft:
            copy = type(self).open(draft, self.names, readonly=True)
            try:
                yield copy
            finally:
                copy.close()
            # The copy needs no locks of those who checked it.
            with disk_named(draft):
                (draft / LMDB_LOCK_FILE).unlink(missing_ok=True)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        names: Iterable[str] = (),
        *,
        readonly: bool = False,
        verify: Callable[[Path], None] | None = None,
    ) -> Self:
        """Open an existing database and these of its sub-databases; never create anything.

        `verify` is called for a copied one that wasn't opened before, and raises if it is torn.
        """
        names = tuple(names)
        directory = Path(os.path.realpath(path))
        shared = shared_environment.join(directory, names, readonly=readonly, verify=verify)
        return cls(shared, names, readonly=readonly)

    def read(self) -> ReadTransaction:
        """Return a snapshot for a `with` block; keep the block short, since it pins free pages."""
        shared = self._shared
        if shared is None:
            raise self._closed()
        return ReadTransaction(shared)

    def write(self, timeout: float = LOCK_SECONDS) -> WriteTransaction:
        """Return a write transaction for a `with` block, which waits at most `timeout` seconds."""
        if self._shared is None:
            raise self._closed()
        if self.readonly:
            raise ReadOnlyError(
                f"{self.path} was opened read-only", hint="open it with readonly=False"
            )
        return WriteTransaction(self._shared, timeout)

    def file_bytes(self) -> int:
        """Return the size of the data file."""
        return (self.path / DATA_FILE).stat().st_size

    def include(self, names: Iterable[str]) -> None:
        """Open further sub-databases, such as those that a header names."""
        if self._shared is None:
            raise self._closed()
        self.names = tuple(dict.fromkeys((*self.names, *names)))
        self._shared.include(self.names, readonly=self.readonly)

    def close(self) -> None:
        """Close the handle; transactions of other threads may finish first."""
        self._shared = None
        self._closer()

    @property
    def closed(self) -> bool:
        """Whether this handle was closed."""
        return self._shared is None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen, (type(self), self.path, self.names, self.readonly)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "read-only" if self.readonly else "open"
        return f"<{type(self).__name__} {self.path} ({state})>"

    def _closed(self) -> ClosedError:
        return ClosedError(f"this handle of {self.path} was closed", hint="open it again")


def _reopen(
    cls: type[Environment],
    path: Path,
    names: tuple[str, ...],
    readonly: bool,  # noqa: FBT001 - pickle passes arguments by position
) -> Environment:
    return cls.open(path, names, readonly=readonly)
