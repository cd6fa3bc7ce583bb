"""Everything that fpdb raises on purpose.

FpdbError
├─ InputError (+ ValueError)           a text, a line or a value that can't be used as it is
│  ├─ ShortTextError                   too few features for a trustworthy fingerprint
│  └─ HtmlError                        a page that can't be read as HTML within its limits
├─ RecipeError (+ ValueError)          a recipe that doesn't exist, or can't be built
├─ RecipeMismatchError (+ ValueError)  another recipe or k than the database was created with
├─ KeyConflictError (+ ValueError)     databases to be merged differ in a document: .key, .paths
├─ NoSketchError (+ ValueError)        matches can't be verified: no sketches, and no texts
├─ PlanError (+ ValueError)            tables that can't be built, or can't serve a distance
├─ DocumentNotFoundError (+ KeyError)  no document has this key
├─ OpenError                           a database that can't be opened or created here and now
│  ├─ DatabaseNotFoundError (+ FileNotFoundError)
│  ├─ DatabaseExistsError (+ FileExistsError)
│  ├─ AccessError (+ PermissionError)  this user may not read or write it
│  └─ UnsupportedFileSystemError       memory maps and locks don't work there
├─ FormatError                         bytes that this version doesn't understand
│  ├─ NotADatabaseError                something else than an fpdb database
│  ├─ TooNewError                      made by a newer fpdb: .found, .supported
│  └─ UpgradeRequiredError             made by a much older fpdb: .found, .supported
├─ StorageError                        the store refused a read or a write
│  ├─ DamagedError                     bytes are missing or wrong, or the disk failed
│  ├─ DiskFullError (+ OSError)        .free bytes are left at .path
│  ├─ MapFullError                     one transaction outgrew the memory map
│  └─ ReadersFullError                 every reader slot is taken
├─ LockTimeoutError (+ TimeoutError)   another writer kept the lock: .pid
├─ ReadOnlyError                       a write through a read-only handle
├─ ClosedError                         a closed handle was used
├─ WorkerError                         a process of `jobs` can't be started, or was killed
└─ MissingExtraError (+ ImportError)   a package that only some users need isn't installed

Each error says what was found and what was expected, and carries a `hint` that cures.
"""

from pathlib import Path


class FpdbError(Exception):
    """The base of all errors of fpdb; `hint` says what to do about it."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class InputError(FpdbError, ValueError):
    """A text, a line or a value that can't be used as it is."""


class ShortTextError(InputError):
    """A text with fewer distinct features than its recipe asks for."""


class HtmlError(InputError):
    """A page that can't be read as HTML within the bounds of size, time and memory."""


class RecipeError(FpdbError, ValueError):
    """A recipe that doesn't exist, or whose parts don't fit together."""


class KeyConflictError(FpdbError, ValueError):
    """Databases that are to be merged have different documents with one `key`; `paths` has them."""

    def __init__(
        self, message: str, *, hint: str = "", key: str | int = "", paths: tuple[Path, ...] = ()
    ) -> None:
        super().__init__(message, hint=hint)
        self.key = key
        self.paths = paths


class NoSketchError(FpdbError, ValueError):
    """Matches are to be verified, but there are neither sketches nor texts."""


class OpenError(FpdbError):
    """A database that can't be opened or created here and now."""


class DatabaseNotFoundError(OpenError, FileNotFoundError):
    """There is nothing at the path."""


class DatabaseExistsError(OpenError, FileExistsError):
    """There is already something where a database was to be created."""


class AccessError(OpenError, PermissionError):
    """A way to open the database that this user has no right to."""


class UnsupportedFileSystemError(OpenError):
    """A file system on which memory maps and locks can't be relied on."""


class FormatError(FpdbError):
    """Bytes on disk that this version of fpdb doesn't understand."""


class NotADatabaseError(FormatError):
    """What is at the path isn't an fpdb database."""


class _VersionError(FormatError):
    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        found: int | str | None = None,
        supported: int | str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.found = found
        self.supported = supported


class TooNewError(_VersionError):
    """A database that a newer fpdb made; `found` exceeds `supported`."""


class UpgradeRequiredError(_VersionError):
    """A database older than this fpdb can read; `found` is below `supported`."""


class StorageError(FpdbError):
    """The store refused a read or a write."""


class DamagedError(StorageError):
    """Bytes of the database are missing or wrong, or its disk failed."""


class DiskFullError(StorageError, OSError):
    """The disk (or a quota) has no room; `free` bytes are left at `path`."""

    def __init__(
        self, message: str, *, hint: str = "", free: int = 0, path: Path | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.free = free
        self.path = path


class MapFullError(StorageError):
    """One transaction needed more room than the memory map had."""


class ReadersFullError(StorageError):
    """Every reader slot of the environment is taken."""


class LockTimeoutError(FpdbError, TimeoutError):
    """Another writer kept the lock for too long; `pid` is its process, if known."""

    def __init__(self, message: str, *, hint: str = "", pid: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.pid = pid


class ReadOnlyError(FpdbError):
    """A write through a handle that was opened read-only."""


class ClosedError(FpdbError):
    """A handle was used after it was closed."""


class WorkerError(FpdbError):
    """A worker process can't be started, or ended before its work did."""


class MissingExtraError(FpdbError, ImportError):
    """A package that only some users need isn't installed; the hint says how to install it."""


class RecipeMismatchError(FpdbError, ValueError):
    """A recipe or a k other than the stored one; a database keeps what it was created with."""


class PlanError(FpdbError, ValueError):
    """A plan that can't be built, or that can't serve what is asked of it."""


class DocumentNotFoundError(FpdbError, KeyError):
    """There is no document with this key."""

    def __str__(self) -> str:
        return str(self.args[0])
