"""Everything that fpdb raises on purpose.

A message has the value that was found and the expected one, the `hint` the cure.
"""

import errno
from pathlib import Path


class FpdbError(Exception):
    """The base of all errors of fpdb.

    Attributes:
        hint: How to cure it.
        parameter: The parameter of Python that the hint is about, or nothing. The command line
            writes it as its option.
    """

    def __init__(self, message: str, *, hint: str = "", parameter: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        self.parameter = parameter
        if hint:  # a traceback shows notes
            self.add_note(f"hint: {hint}{parameter and f' ({parameter}=…)'}")

    def __str__(self) -> str:  # as KeyError and OSError don't
        return str(self.args[0])


class InputError(FpdbError, ValueError):
    """A text, a line or a value that can't be used as it is."""


class LossError(InputError):
    """More of a source would be removed than is allowed."""


class ShortTextError(InputError):
    """A text with fewer distinct features than its recipe's minimum."""


class HtmlError(InputError):
    """A page that can't be read as HTML within the limits of size, time and memory."""


class RecipeError(FpdbError, ValueError):
    """A recipe that doesn't exist, or whose parts don't fit together."""


class OpenError(FpdbError):
    """A database that can't be opened or created."""


class DatabaseNotFoundError(OpenError, FileNotFoundError):
    """There is nothing at the path."""

    errno = errno.ENOENT


class DatabaseExistsError(OpenError, FileExistsError):
    """There is something already where a database was to be created."""

    errno = errno.EEXIST


class AccessError(OpenError, PermissionError):
    """The user may not read or write the database."""

    errno = errno.EACCES


class FormatError(FpdbError):
    """Bytes on disk that this version of fpdb can't read."""


class NotADatabaseError(FormatError):
    """Something other than an fpdb database is at the path."""


class StorageError(FpdbError):
    """The store refused a read or a write."""


class DamagedError(StorageError):
    """Bytes of the database are missing or wrong, or its disk failed."""

    def __init__(
        self, message: str, *, hint: str = "run `fpdb check`", parameter: str = ""
    ) -> None:
        super().__init__(message, hint=hint, parameter=parameter)


class DiskFullError(StorageError, OSError):
    """The disk (or a quota) has no room; `free` bytes are left at `path`."""

    errno = errno.ENOSPC

    def __init__(
        self, message: str, *, hint: str = "", free: int = 0, path: Path | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.free = free
        self.path = self.filename = path


class LockTimeoutError(FpdbError, TimeoutError):
    """Another writer held the lock for too long; `pid` is its process, if known."""

    errno = errno.ETIMEDOUT

    def __init__(self, message: str, *, hint: str = "", pid: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.pid = pid


class DeadlineError(FpdbError, TimeoutError):
    """A write wasn't complete before the time of `fpdb.deadline`, and was undone."""

    errno = errno.ETIMEDOUT


class ReadOnlyError(FpdbError):
    """A write through a handle that was opened read-only."""


class ClosedError(FpdbError):
    """A handle was used after it was closed."""


class MovedError(ClosedError):
    """The database of a handle was moved, removed, or replaced by another one."""


class WorkerError(FpdbError):
    """A child process can't be started, or ended before its work was done."""


class MissingExtraError(FpdbError, ImportError):
    """A package that only some users need isn't installed; the hint says how to install it."""


class RecipeMismatchError(FpdbError, ValueError):
    """A recipe or a k other than the one that the database was created with."""


class PlanError(FpdbError, ValueError):
    """A plan that can't be built, or that doesn't support the k of a query."""


class DocumentNotFoundError(FpdbError, KeyError):
    """There is no document with this key."""


class TagsWarning(UserWarning):
    """A text whose tags count as words, because it was given as text and not as HTML."""


class IncompleteWarning(UserWarning):
    """An answer that leaves something out: a band is crowded, or made for a higher similarity."""
