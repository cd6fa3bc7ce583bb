"""The write lock: one writer at a time, over threads and processes, with a timeout and a name.

LMDB's own lock can neither be interrupted nor time out, so this one is taken first. Threads
queue at a `threading.Lock`, processes at an `flock` on a file that LMDB doesn't use. Each has a
turnstile: the next in the queue keeps it locked, so that a busy writer, which takes the lock again
right after releasing it, can't overtake the one that has been waiting.
"""

import contextlib
import fcntl
import functools
import os
import platform
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from fpdb.errors import LockTimeoutError, MovedError
from fpdb.storage.lmdb_file import DATA_FILE
from fpdb.storage.open_checks import disk_named, identify

LOCK_FILE = "fpdb.lock"

_RECORD_BYTES = 256
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.0002, 0.005


class WriteLock:
    """The lock of the database that is in a directory now; not reentrant."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._identity = identify(directory)
        self._owner: int | None = None
        self._thread_turn, self._thread_lock = threading.Lock(), threading.Lock()
        self._process_turn = self._process_lock = -1

    def acquire(self, timeout: float) -> None:
        """Take the lock, or raise LockTimeoutError after `timeout` seconds."""
        if self._owner == threading.get_ident():
            raise LockTimeoutError(
                f"this thread already writes to {self.directory}",
                hint="finish the first write transaction before the next one",
                pid=os.getpid(),
            )
        deadline = time.monotonic() + timeout
        if not self._acquire_in_process(deadline):
            raise self._timeout(timeout, os.getpid(), "another thread of this process")
        try:
            self._open()
            if not (_poll(self._process_turn, deadline) and _poll(self._process_lock, deadline)):
                self._give_up(timeout)
            fcntl.flock(self._process_turn, fcntl.LOCK_UN)
            self._sign()
            self._owner = threading.get_ident()
        except BaseException:
            self._unlock_files()
            self._thread_lock.release()
            raise

    def release(self) -> None:
        """Release the lock; a no-op in a process that was forked while it was held."""
        if self._owner != threading.get_ident():
            return
        self._owner = None
        self._unlock_files()
        self._thread_lock.release()

    @contextlib.contextmanager
    def held(self, timeout: float) -> Iterator[None]:
        """Hold the lock during a block; a no-op if this thread holds it already."""
        if self._owner == threading.get_ident():
            yield
            return
        self.acquire(timeout)
        try:
            yield
        finally:
            self.release()

    def close(self) -> None:
        """Close the lock's files, unless a thread holds it; it can be used again afterwards."""
        if self._thread_lock.acquire(blocking=False):
            self._close_files()
            self._thread_lock.release()

    def forget(self) -> None:
        """Drop what a forked process has inherited, without unlocking it for its parent."""
        self._owner = None
        self._thread_turn, self._thread_lock = threading.Lock(), threading.Lock()
        self._close_files()

    def _close_files(self) -> None:
        for descriptor in (self._process_turn, self._process_lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._process_turn = self._process_lock = -1

    def _acquire_in_process(self, deadline: float) -> bool:
        if not self._thread_turn.acquire(timeout=_until(deadline)):
            return False
        try:
            return self._thread_lock.acquire(timeout=_until(deadline))
        finally:
            self._thread_turn.release()

    def _open(self) -> None:
        if self._process_turn >= 0:
            return
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with disk_named(self.directory):
            turn = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self._require_same(turn)
                if self._process_lock < 0:
                    self._process_lock = os.open(LOCK_FILE, flags, 0o600, dir_fd=turn)
            except BaseException:
                os.close(turn)
                raise
            self._process_turn = turn

    def _require_same(self, opened: int) -> None:
        found = os.lstat(DATA_FILE, dir_fd=opened)
        if (found.st_dev, found.st_ino) != self._identity:
            raise MovedError(f"another database is at {self.directory} now", hint="open it again")

    def _unlock_files(self) -> None:
        for descriptor in (self._process_turn, self._process_lock):
            if descriptor >= 0:
                fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _sign(self) -> None:
        record = _own_record(os.getpid())
        # On a full disk the lock still works, only its holder has no name.
        with contextlib.suppress(OSError):
            if os.pread(self._process_lock, _RECORD_BYTES, 0) != record:
                os.pwrite(self._process_lock, record, 0)

    def _holder(self) -> tuple[int | None, str]:
        try:
            record = os.pread(self._process_lock, _RECORD_BYTES, 0).decode()
            first, second, host = record.split(maxsplit=2)
            pid, namespace = int(first), int(second)
        except (OSError, ValueError):
            return None, "an unknown process"
        elsewhere = namespace != _pid_namespace()
        return pid, f"process {pid}" + elsewhere * f" of another container ({host.strip()})"

    def _give_up(self, timeout: float) -> NoReturn:
        raise self._timeout(timeout, *self._holder())

    def _timeout(self, timeout: float, pid: int | None, name: str) -> LockTimeoutError:
        return LockTimeoutError(
            f"no write lock on {self.directory} within {timeout:g} s: {name} holds it",
            hint="wait for that writer, or end it; the lock of a killed process is released",
            pid=pid,
        )


def _until(deadline: float) -> float:
    return min(max(deadline - time.monotonic(), 0), threading.TIMEOUT_MAX)


def _poll(descriptor: int, deadline: float) -> bool:
    pause = _SHORTEST_PAUSE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(pause * 2, _LONGEST_PAUSE)
        else:
            return True


@functools.lru_cache(maxsize=1)
def _own_record(pid: int) -> bytes:
    record = f"{pid} {_pid_namespace()} {platform.node()[:64]}"
    return record.encode().ljust(_RECORD_BYTES)


def _pid_namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
