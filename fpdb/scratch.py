"""The one door for what is temporary, and for files that appear whole or not at all.

An unfinished file lies beside its place, and its maker keeps a file locked, the claim: a draft, or
an empty file beside a scratch folder. A claim that nobody has locked was left by a killed process:
the next maker beside the same path removes it. Process ids wouldn't show that: containers share
folders, and their ids repeat.
"""

import contextlib
import errno
import fcntl
import glob
import io
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Self

from fpdb.errors import ClosedError, FpdbError, InputError

# The file of a database that has its pages.
DATA_FILE = "data.mdb"

_CLAIM, _FOLDER = ".fpdb-new", ".fpdb-tmp"
_LONGEST = 50  # characters of a name, so that the bytes of its claims' names are at most 255
_BUFFER = 1 << 20  # bytes that are written at once
_STREAMS = {"/dev/stdout": "/dev/fd/1", "/dev/stderr": "/dev/fd/2"}
_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")


@contextlib.contextmanager
def scratch_folder(beside: Path | None = None) -> Iterator[Path]:
    """Make a folder for a block, beside a path or in the temporary directory, then remove it."""
    import tempfile  # it takes long to import, and few commands need it

    with _claimed(beside or Path(tempfile.gettempdir(), "fpdb")) as claim:
        folder = claim.with_suffix(_FOLDER)
        folder.mkdir(0o700)
        yield folder


def unnamed_file(folder: Path) -> IO[bytes]:
    """Open a file in a folder that is gone when it is closed, or its process is killed."""
    import tempfile  # it takes long to import, and few commands need it

    return tempfile.TemporaryFile(dir=folder, prefix=".", suffix=_FOLDER)


def remove_abandoned(beside: Path) -> None:
    """Remove the remains of killed processes beside a path, as far as that is possible."""
    with contextlib.suppress(ValueError):  # a path with a NUL
        for name in glob.glob(f"{glob.escape(_beginning(beside))}*{_CLAIM}"):
            with contextlib.suppress(OSError), open(name, "r+b") as claim:
                if _lock(claim, unable=False):
                    _remove(Path(name))


def require_process(maker: int) -> None:
    """Raise ClosedError in a child that was forked since its parent began to write."""
    if os.getpid() != maker:
        raise ClosedError(
            f"process {maker} began to write this, and not its child {os.getpid()}",
            hint="let the process that began it end the block",
        )


@contextlib.contextmanager
def _claimed(beside: Path) -> Iterator[Path]:
    """Make a claim beside a path for a block, then remove it with its folder, if it has one."""
    remove_abandoned(beside)
    maker = os.getpid()
    while True:
        path = Path(f"{_beginning(beside)}{os.urandom(8).hex()}{_CLAIM}")
        with path.open("xb") as claim:
            if not _lock(claim, unable=True):
                continue  # another maker found it first, and removes it
            try:
                yield path
            finally:
                if os.getpid() == maker:
                    _remove(path)
            return


def _beginning(beside: Path) -> str:
    return os.path.join(os.path.realpath(beside.parent), f".{beside.name[:_LONGEST]}.")


def _lock(claim: IO[bytes], *, unable: bool) -> bool:
    """Lock a claim if nobody else has; `unable` is the answer where there are no locks."""
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return unable and not isinstance(error, BlockingIOError)
    return os.fstat(claim.fileno()).st_nlink > 0


def _remove(claim: Path) -> None:
    """Remove a claim, after its folder: it shows until then what a kill leaves."""
    folder = claim.with_suffix(_FOLDER)
    with contextlib.suppress(OSError):
        if folder.exists():
            shutil.rmtree(folder)
        claim.unlink()


def require_output(target: str | os.PathLike[str], inputs: Iterable[str] = ()) -> None:
    """Raise InputError if an output would replace a file that is read, or one of a database.

    "-" is standard output, and among the inputs standard input, which may be files as well.
    """
    shown = os.fspath(target)
    with _named(shown):
        folder = os.path.dirname(os.path.realpath(shown))
    if shown != "-" and os.path.exists(os.path.join(folder, DATA_FILE)):
        raise InputError(
            f"{shown} would be written into the database {folder}", hint="name another folder"
        )
    if (place := _regular(shown, 1)) is None:
        return
    for path in inputs:
        source = _regular(path, 0)
        if source and os.path.samestat(source, place):
            raise InputError(
                f"{shown} is an input, and would be replaced"
                + (f": {path} is the same file" if path != shown else ""),
                hint="name another file",
            )


def _regular(path: str, descriptor: int) -> os.stat_result | None:
    """Return the status of a regular file, of which "-" is the descriptor; None if it is none."""
    try:
        status = os.stat(descriptor if path == "-" else path)
    except (OSError, ValueError):  # a ValueError is a path with a NUL
        return None
    return status if stat.S_ISREG(status.st_mode) else None


class Drafts:
    """Files that are written beside their places, and move there together when a block ends."""

    def __init__(self) -> None:
        self._stack, self._maker = contextlib.ExitStack(), os.getpid()
        self._written: list[tuple[str, Path, Path]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._stack:
            if kind is None and self._written:
                require_process(self._maker)
                for shown, draft, place in self._written:
                    with _named(shown):
                        draft.replace(place)
                for shown, _draft, place in self._written:
                    with _named(shown):
                        sync(place.parent)

    @contextlib.contextmanager
    def file(self, target: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
        """Open a file to write for a block, at whose end it is on the disk, not yet in its place.

        A link is followed, as open() does; a device, a pipe and a descriptor of this process
        (/dev/stdout) are written at once.
        """
        shown = os.fspath(target)
        require_output(shown)
        draft: Path | None = None
        with _named(shown):
            place = Path(os.path.realpath(shown))
            descriptor = _DESCRIPTOR.fullmatch(_STREAMS.get(shown, shown))
            if not descriptor and (place.is_file() or not os.path.lexists(place)):
                draft = self._stack.enter_context(_claimed(place))
            # To open a descriptor by its path would begin its file anew.
            raw = io.FileIO(os.dup(int(descriptor[1])) if descriptor else draft or place, "wb")
            # Its errors name it, so that they aren't taken for others of the block.
            raw.write = _named(shown)(raw.write)  # type: ignore[method-assign]
        if draft:
            with contextlib.suppress(OSError):  # there is none, or its mode can't be kept
                shutil.copymode(place, draft)
        with raw:
            file = io.BufferedWriter(raw, _BUFFER)
            yield file
            if draft:
                require_process(self._maker)
            if not file.closed:
                file.flush()
        if draft:
            with _named(shown):
                sync(draft)
            self._written.append((shown, draft, place))


@contextlib.contextmanager
def draft_file(target: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file to write, which appears, complete, when the block ends; or not at all."""
    with Drafts() as drafts, drafts.file(target) as file:
        yield file


def sync(path: Path) -> None:
    """Wait until a file or a directory is on the disk, where the file system can do that."""
    with contextlib.suppress(PermissionError):  # a directory can be written, but not read
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
                raise
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Raise FpdbError for an error of the system's about a file that is written."""
    try:
        yield
    except FpdbError:  # some are an OSError as well
        raise
    except (OSError, ValueError) as error:  # a ValueError is a path with a NUL
        raise FpdbError(
            f"{path} can't be written: {getattr(error, 'strerror', None) or error}",
            hint="choose another file, or make room",
        ) from None
