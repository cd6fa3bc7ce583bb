"""The write lock: one writer at a time, over threads and processes, with a timeout and a name.

LMDB's own lock can neither be interrupted nor time out, so this one is taken first. Threads
queue at an `RLock`, processes at an `flock` on a file that LMDB doesn't use. Each has a
turnstile, which the next in the queue keeps locked, so that a busy writer can't overtake it.

Ctrl-C may end a wait, and come before the end of a block has begun. So the lock has an owner, and
is released when nothing refers to that any more. Threads have RLocks because a thread can release
one without knowing whether it has it.
"""

import contextlib
import fcntl
import functools
import os
import platform
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from fpdb.errors import LockTimeoutError
from fpdb.processes import is_stopped
from fpdb.progress import announce
from fpdb.storage import seal
from fpdb.storage.lmdb_file import DATA_FILE
from fpdb.storage.open_checks import LOCK_FILE, Identity, disk_named, moved, name_of, open_data

# After this many seconds of waiting for another process, it is announced.
ANNOUNCED_SECONDS = 2.0

_OTHER_PROCESS = "wait for that writer, or end it; the lock of a killed process is released"
_OTHER_THREAD = "wait until that thread has written, or give this one more time: open(…, timeout=…)"
_RECORD_BYTES = 256
# As long as a writer that closes waits for who opens just now.
_SIGN_OFF_SECONDS = 0.25
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.0002, 0.005


class _Attempt:
    """Owns the lock during a block."""


class WriteLock:
    """The lock of the database that is in a directory now; not reentrant."""

    def __init__(self, directory: Path, identity: Identity) -> None:
        self.directory = directory
        self._identity = identity
        # The object that has the lock, and its thread.
        self._owner: weakref.ref[object] | None = None
        self._thread = 0
        self._thread_turn, self._thread_lock = threading.RLock(), threading.RLock()
        self._process_turn = self._process_lock = -1

    def acquire(self, owner: object, timeout: float, *, writes: bool = True) -> None:
        """Take the lock, or raise LockTimeoutError after `timeout` seconds.

        Who `writes` signs with its name, and leaves the data file unsealed until it signs off.
        """
        if self.is_held():
            raise LockTimeoutError(
                f"this thread already writes to {self.directory}",
                hint="finish the first write transaction before the next one; if Ctrl-C has ended "
                "it, close the database and open it again",
                pid=os.getpid(),
            )
        began = time.monotonic()
        try:
            if not self._acquire_in_process(began + timeout):
                self._give_up(timeout, os.getpid(), "another thread of this process", _OTHER_THREAD)
            if self._process_turn < 0:
                self._open()
            if not (
                self._poll(self._process_turn, began, timeout)
                and self._poll(self._process_lock, began, timeout)
            ):
                self._give_up(timeout, *self._holder())
            fcntl.flock(self._process_turn, fcntl.LOCK_UN)
            if writes:
                self._sign()
            self._thread = threading.get_ident()
            self._owner = weakref.ref(owner, self._dropped)
        except BaseException:
            if self._thread_lock.acquire(blocking=False):  # this thread has it, or nobody
                self._unlock()
            raise

    @contextlib.contextmanager
    def attempt(self, seconds: float = 0) -> Iterator[bool]:
        """Take the lock for a block if it is free in time; yield whether this thread has it."""
        owner = _Attempt()
        try:
            with contextlib.suppress(LockTimeoutError):
                self.acquire(owner, seconds, writes=False)
            yield self.is_held()
        finally:
            self.release(owner)

    def release(self, owner: object) -> None:
        """Release the lock if this owner has it, by this thread and in this process."""
        if self.is_owned_by(owner):
            self._unlock()

    def is_owned_by(self, owner: object) -> bool:
        """Return whether an owner has the lock, by this thread and in this process."""
        return self.is_held() and self._owner is not None and self._owner() is owner

    def is_held(self) -> bool:
        return self._owner is not None and self._thread == threading.get_ident()

    def sign_off(self) -> None:
        """Seal the writes of this process, and take its name off, unless others write."""
        if self._process_turn >= 0 and self._is_signed():
            with self.attempt(_SIGN_OFF_SECONDS) as free, contextlib.suppress(OSError):
                if free and self._is_signed():
                    seal.mark_sealed(self._folder, writing=False)
                    os.pwrite(self._process_lock, bytes(_RECORD_BYTES), 0)

    def close(self) -> None:
        """Close the lock's files, unless another thread has it; it can be used again afterwards."""
        if self._thread_lock.acquire(blocking=False):
            self._close_files()
            self._unlock()

    def forget(self) -> None:
        """Drop the parent's lock in a forked process, without unlocking it for the parent."""
        self._owner = None
        self._thread_turn, self._thread_lock = threading.RLock(), threading.RLock()
        self._close_files()

    def _dropped(self, owner: "weakref.ref[object]") -> None:
        if self._owner is owner and self.is_held():
            self._unlock()

    def _unlock(self) -> None:
        for descriptor in (self._process_lock, self._process_turn):
            if descriptor >= 0:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        self._owner = None
        _release(self._thread_lock)

    def _close_files(self) -> None:
        files = self._process_turn, self._process_lock
        self._process_turn = self._process_lock = -1
        for descriptor in files:
            if descriptor >= 0:
                os.close(descriptor)

    def _acquire_in_process(self, deadline: float) -> bool:
        try:
            return self._thread_turn.acquire(timeout=_until(deadline)) and (
                self._thread_lock.acquire(timeout=_until(deadline))
            )
        finally:
            _release(self._thread_turn)

    def _open(self) -> None:
        with disk_named(self.directory):
            turn = -1
            try:
                turn = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
                status = os.lstat(DATA_FILE, dir_fd=turn)
                if (status.st_dev, status.st_ino) != self._identity:
                    raise moved(self.directory)
                if self._process_lock < 0:
                    flags = os.O_RDWR | os.O_CREAT
                    self._process_lock = os.open(LOCK_FILE, flags, 0o600, dir_fd=turn)
                self._process_turn, turn = turn, -1
            except (FileNotFoundError, NotADirectoryError) as error:
                raise moved(self.directory) from error
            finally:
                if turn >= 0:
                    os.close(turn)

    def _poll(self, descriptor: int, began: float, timeout: float) -> bool:
        announced, pause = began + ANNOUNCED_SECONDS, _SHORTEST_PAUSE
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                now = time.monotonic()
                if now >= began + timeout:
                    return False
                if announced <= now:
                    announced = began + timeout
                    _, name, hint = self._holder()
                    waiting = f"waiting at most {timeout:g} s for {name}"
                    announce(f"{waiting}, which writes to {self.directory}: {hint}")
                time.sleep(min(pause, began + timeout - now))
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                return True

    def _sign(self) -> None:
        # On a full disk the lock still works, only its holder has no name.
        with contextlib.suppress(OSError):
            if not self._is_signed():
                os.pwrite(self._process_lock, _record(os.getpid()), 0)
                seal.mark_sealed(self._folder, writing=True)

    def _is_signed(self) -> bool:
        return os.pread(self._process_lock, _RECORD_BYTES, 0) == _record(os.getpid())

    @property
    def _folder(self) -> Path:
        return Path(name_of(self._process_turn))  # wherever it was moved

    def _holder(self) -> tuple[int | None, str, str]:
        try:
            record = os.pread(self._process_lock, _RECORD_BYTES, 0).decode()
            first, second, host = record.split(maxsplit=2)
            pid, namespace = int(first), int(second)
        except (OSError, ValueError):
            return None, "an unknown process", _OTHER_PROCESS
        if namespace != _pid_namespace():
            return pid, f"process {pid} of another container ({host.strip()})", _OTHER_PROCESS
        if is_stopped(pid):
            end = f"`kill -KILL {pid}` ends it, and undoes what it hasn't committed"
            return pid, f"process {pid} (stopped)", f"`kill -CONT {pid}` lets it go on; {end}"
        return pid, f"process {pid}", _OTHER_PROCESS

    def _give_up(self, timeout: float, pid: int | None, name: str, hint: str) -> NoReturn:
        raise LockTimeoutError(
            f"no write lock on {self.directory} within {timeout:g} s: {name} holds it",
            hint=hint,
            pid=pid,
        )


def _release(lock: "threading.RLock") -> None:
    """Release a lock as often as this thread has it."""
    with contextlib.suppress(RuntimeError):
        while True:
            lock.release()


def _until(deadline: float) -> float:
    return min(max(deadline - time.monotonic(), 0), threading.TIMEOUT_MAX)


@functools.lru_cache(maxsize=1)
def _record(pid: int) -> bytes:
    record = f"{pid} {_pid_namespace()} {platform.node()[:64]}"
    return record.encode().ljust(_RECORD_BYTES)


def _pid_namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


@contextlib.contextmanager
def sole_run(directory: Path) -> Iterator[None]:
    """Be the only run that adds to the database in a directory, for a block; a kill ends it too.

    Others may write meanwhile, and wait for no run.
    """
    descriptor = open_data(directory)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockTimeoutError(
                f"another run is adding to {directory}", hint="wait until it has ended, or end it"
            ) from None
        yield
    finally:
        os.close(descriptor)
