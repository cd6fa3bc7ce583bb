"""The one door for what is temporary, and for files that appear whole or not at all.

What isn't finished lies in a scratch folder, of mode 700 and with a random name, which is made
exclusively and used through its descriptor. Its maker keeps a file in it locked, the claim. A
folder whose claim nobody has locked was left by a killed process: the next maker beside the same
path removes it. Process ids wouldn't show that: containers share folders, and their ids repeat.
"""

import contextlib
import errno
import fcntl
import io
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

from fpdb.errors import ClosedError, FpdbError, LockTimeoutError

CLAIM_FILE, _DRAFT = "unfinished", "draft"
_SUFFIX, _RANDOM_BYTES = ".new", 8
_RANDOM = re.compile(f"[0-9a-f]{{{2 * _RANDOM_BYTES}}}{re.escape(_SUFFIX)}")
_LONGEST_NAME = 255
_ATTEMPTS = 100
# Bytes that are written at once.
_BUFFER = 1 << 20
_MOST_LINKS = 40
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
# What file systems answer that can't lock a file, sync a directory or keep its mode.
_UNABLE = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK, errno.EBADF, errno.EPERM}


def new_file(path: str | Path, mode: int = 0o600, *, folder: int | None = None) -> int:
    """Make a file (in an opened folder), or raise FileExistsError; return its descriptor."""
    return os.open(path, _NEW, mode, dir_fd=folder)


@dataclass
class Scratch:
    """A folder that only this process uses."""

    path: Path
    descriptor: int
    parent: int
    """The opened folder around it."""
    mode: int
    """What open() gives a new file in the folder around it."""
    owner: int = field(default_factory=os.getpid)
    left: bool = False
    """Whether the next maker is to remove it, and not the end of the block."""

    def file(self, name: str) -> io.BufferedRandom:
        """Make a file in it, to write and read."""
        return open(new_file(name, folder=self.descriptor), "w+b")

    def folder(self, name: str) -> Path:
        """Make a folder in it, and return its path."""
        os.mkdir(name, 0o700, dir_fd=self.descriptor)
        return self.path / name

    def move(self, name: str, place: str) -> None:
        """Move a file out of it, to a name in the folder around it."""
        os.rename(name, place, src_dir_fd=self.descriptor, dst_dir_fd=self.parent)

    def require_owner(self) -> None:
        """Raise ClosedError in a child process that was forked in the block."""
        if os.getpid() != self.owner:
            raise ClosedError(
                f"{self.path} belongs to process {self.owner}, not to this one",
                hint="let the process that began it end the block",
            )


@contextlib.contextmanager
def scratch_folder(beside: Path | None = None, *, alone: bool = False) -> Iterator[Scratch]:
    """Make a folder for a block, beside a path or in the temporary directory, then remove it.

    With `alone`, raise LockTimeoutError if there is another one in use beside the path.
    """
    path = beside or Path(tempfile.gettempdir(), "fpdb")
    prefix = _prefix(path.name)
    with contextlib.ExitStack() as stack:
        parent = _open_folder(path.parent)
        stack.callback(os.close, parent)
        _remove_abandoned(parent, prefix)
        name, folder, claim = _begun(parent, prefix)
        stack.callback(os.close, claim)
        stack.callback(os.close, folder)
        mode = stat.S_IMODE(os.fstat(claim).st_mode)
        _if_able(os.fchmod, claim, 0o600)
        scratch = Scratch(path.parent / name, folder, parent, mode)
        try:
            if alone and _is_in_use(parent, prefix, name):
                raise LockTimeoutError(
                    f"another run is writing {path}", hint="wait until it has ended, or end it"
                )
            yield scratch
        finally:
            # A child that was forked in the block has nothing to remove.
            if os.getpid() == scratch.owner and not scratch.left:
                with contextlib.suppress(OSError):
                    _remove(parent, name, folder)


def _begun(parent: int, prefix: str) -> tuple[str, int, int]:
    """Make a folder and its locked claim; return its name, and the descriptors of both."""
    for _ in range(_ATTEMPTS):
        name = prefix + secrets.token_hex(_RANDOM_BYTES) + _SUFFIX
        os.mkdir(name, 0o700, dir_fd=parent)
        # Another maker may remove the folder until the claim is locked.
        with contextlib.ExitStack() as undo, contextlib.suppress(FileNotFoundError):
            undo.callback(_if_there, os.rmdir, name, parent)
            folder = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
            undo.callback(os.close, folder)
            claim = new_file(CLAIM_FILE, 0o666, folder=folder)
            undo.callback(os.close, claim)
            undo.callback(_if_there, os.unlink, CLAIM_FILE, folder)
            # Who may write to the folder around it could have replaced it. Folder and claim are
            # compared because some file systems show other owners and modes than were given.
            around, inside = os.fstat(folder), os.fstat(claim)
            exposed = around.st_mode & _OTHERS and not inside.st_mode & _OTHERS
            if around.st_uid != inside.st_uid or exposed:
                what = f"another user replaced {name} as soon as it was made"
                raise PermissionError(errno.EACCES, what)
            if _lock(claim, unable=True):
                undo.pop_all()
                return name, folder, claim
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _lock(claim: int, *, unable: bool) -> bool:
    """Lock a claim if nobody else has; `unable` is the answer where there are no locks."""
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _UNABLE:
            raise
        return unable
    return os.fstat(claim).st_nlink > 0  # else its folder was removed


def _prefix(name: str) -> str:
    """Return how the names of scratch folders beside a path begin, shortened if they must be."""
    room = _LONGEST_NAME - 2 * _RANDOM_BYTES - len("." + _SUFFIX)
    return os.fsdecode(os.fsencode(f".{name}")[:room]) + "."


def remove_abandoned(beside: Path) -> None:
    """Remove what killed processes have left beside a path, as far as that is possible."""
    with contextlib.suppress(OSError, ValueError):  # a ValueError is a path with a NUL
        parent = _open_folder(beside.parent)
        try:
            _remove_abandoned(parent, _prefix(beside.name))
        finally:
            os.close(parent)


def _remove_abandoned(parent: int, prefix: str) -> None:
    for name, folder, claim in _folders(parent, prefix):
        with contextlib.suppress(OSError):
            if _lock(claim, unable=False):
                # Under another name: a worker of the killed process may be making a file in it.
                other = prefix + secrets.token_hex(_RANDOM_BYTES) + _SUFFIX
                os.rename(name, other, src_dir_fd=parent, dst_dir_fd=parent)
                _remove(parent, other, folder)


def _folders(parent: int, prefix: str) -> Iterator[tuple[str, int, int]]:
    """Open the scratch folders that this user has beside a path, and their claims."""
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = os.listdir(parent)
    for name in names:
        if not (name.startswith(prefix) and _RANDOM.fullmatch(name, len(prefix))):
            continue
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            folder = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
            stack.callback(os.close, folder)
            if os.fstat(folder).st_uid != os.geteuid():
                continue
            _if_there(os.rmdir, name, parent)
            # Without a claim, it isn't one of fpdb's.
            flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            claim = os.open(CLAIM_FILE, flags, dir_fd=folder)
            stack.callback(os.close, claim)
            if stat.S_ISREG(os.fstat(claim).st_mode):
                yield name, folder, claim


def _remove(parent: int, name: str, folder: int) -> None:
    """Remove a folder with all that is in it, last the claim: it shows what a kill leaves."""
    for each in os.listdir(folder):
        if stat.S_ISDIR(os.lstat(each, dir_fd=folder).st_mode):
            shutil.rmtree(each, dir_fd=folder)
        elif each != CLAIM_FILE:
            os.unlink(each, dir_fd=folder)
    os.unlink(CLAIM_FILE, dir_fd=folder)
    if os.path.samestat(os.lstat(name, dir_fd=parent), os.fstat(folder)):
        os.rmdir(name, dir_fd=parent)


def _is_in_use(parent: int, prefix: str, own: str) -> bool:
    """Return whether another process of this user has a folder beside a path, if that is seen."""
    for name, _, claim in _folders(parent, prefix):
        if name != own and not _lock(claim, unable=True) and os.fstat(claim).st_nlink:
            return True
    return False


def _if_there(act: Callable[..., None], name: str, folder: int) -> None:
    """Remove a file, or an empty folder, if that is possible."""
    with contextlib.suppress(OSError):
        act(name, dir_fd=folder)


class Drafts:
    """Files that are written beside their places, and move there together when a block ends."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._finished: list[tuple[str, str, Scratch]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._stack:
            if kind is None:
                for shown, name, scratch in self._finished:
                    scratch.require_owner()
                    with _written(shown):
                        scratch.move(_DRAFT, name)
                for shown, _name, scratch in self._finished:
                    with _written(shown):
                        _if_able(os.fsync, scratch.parent)

    @contextlib.contextmanager
    def file(self, target: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
        """Open a file to write for a block, at whose end it is on the disk, not yet in its place.

        A link is followed, as open() does; a device, a pipe and a descriptor of this process
        (/dev/stdout) are written at once.
        """
        shown, scratch = os.fspath(target), None
        with _written(shown):
            place = _followed(Path(shown))
            descriptor = _open_special(place)
            if descriptor is None:
                scratch = self._stack.enter_context(scratch_folder(place))
                descriptor = new_file(_DRAFT, folder=scratch.descriptor)
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, descriptor)
            raw = stack.enter_context(_NamedFile(descriptor, shown))
            file = io.BufferedWriter(raw, _BUFFER)
            yield file
            if scratch:
                scratch.require_owner()
            if not file.closed:
                file.flush()
            if scratch:
                with _written(shown):
                    _if_able(os.fchmod, descriptor, _mode(place.name, scratch))
                    os.fsync(descriptor)
                self._finished.append((shown, place.name, scratch))


def _mode(name: str, scratch: Scratch) -> int:
    """Return the mode of the user's own file that a draft replaces, or what open() gives it."""
    with contextlib.suppress(FileNotFoundError):
        found = os.lstat(name, dir_fd=scratch.parent)
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
            return found.st_mode & 0o777
    return scratch.mode


@contextlib.contextmanager
def draft_file(target: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file to write, which appears, complete, when the block ends; or not at all."""
    with Drafts() as drafts, drafts.file(target) as file:
        yield file


class _NamedFile(io.FileIO):
    """A file whose errors name it, so that they aren't taken for others of the block."""

    def __init__(self, descriptor: int, shown: str) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._shown = shown

    def write(self, data: Any, /) -> int:
        with _written(self._shown):
            return super().write(data)


@contextlib.contextmanager
def _written(path: str) -> Iterator[None]:
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


def _followed(path: Path) -> Path:
    """Follow the links at a path; return the path of a file, there or not, or of a descriptor."""
    for _ in range(_MOST_LINKS):
        if _descriptor(path) is not None or not os.path.islink(path):
            return path
        link, folder = os.lstat(path), os.stat(path.parent)
        # Linux refuses to follow a stranger's link in a folder that all may write to, as /tmp
        # (fs.protected_symlinks), but not where a program reads it.
        if folder.st_mode & stat.S_IWOTH and link.st_uid not in (os.geteuid(), folder.st_uid):
            raise PermissionError(errno.EACCES, f"it is a symbolic link of user {link.st_uid}")
        path = path.parent / os.readlink(path)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _descriptor(path: Path) -> int | None:
    """Return the number of the descriptor of this process that a path names, as /dev/fd/1."""
    folders = os.path.realpath("/proc/self/fd"), "/dev/fd"
    is_one = path.name.isdecimal() and os.path.realpath(path.parent) in folders
    return int(path.name) if is_one else None


def _open_special(path: Path) -> int | None:
    """Open what isn't a regular file and can't be replaced by one; return None for all else."""
    if (descriptor := _descriptor(path)) is not None:
        return os.dup(descriptor)
    if path.exists() and not path.is_file():
        return os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC)
    return None


def _open_folder(path: Path) -> int:
    try:
        return os.open(path, _FOLDER)
    except PermissionError:  # it may be one that can be written, but not listed
        return os.open(path, _FOLDER | getattr(os, "O_PATH", 0))


def _if_able(act: Callable[..., None], *arguments: int) -> None:
    """Do what some file systems can't."""
    try:
        act(*arguments)
    except OSError as error:
        if error.errno not in _UNABLE:
            raise
