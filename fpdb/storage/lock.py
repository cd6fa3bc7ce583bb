"""The write lock: one writer at a time, over threads and processes, with a timeout and a name.

LMDB's own lock can neither be interrupted nor time out, so this one is taken first. Threads
queue at an `RLock`, processes at an `flock` on a file that LMDB doesn't use. Each has a
turnstile, which the next in the queue keeps locked, so that a busy writer can't overtake it.

A signal handler may raise after any call, and before the first statement of any function, also of
an `__exit__`. So the lock belongs to an object: to release it twice does no harm, and it is
released when nothing refers to its owner any more. Threads queue at RLocks because only these show
whether a thread has one, after an exception out of `acquire`.
"""

import contextlib
import fcntl
import functools
import os
import platform
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import lmdb

from fpdb.errors import LockTimeoutError
from fpdb.processes import is_stopped
from fpdb.progress import announce
from fpdb.storage.lmdb_file import DATA_FILE
from fpdb.storage.open_checks import LOCK_FILE, Identity, disk_named, moved, open_data

# After this many seconds of waiting for another process, it is announced.
ANNOUNCED_SECONDS = 2.0

_OTHER_PROCESS = "wait for that writer, or end it; the lock of a killed process is released"
_OTHER_THREAD = "wait until that thread has written, or give this one more time: open(…, timeout=…)"
_RECORD_BYTES = 256
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.0002, 0.005


# What the lock belongs to, until it releases it or nothing refers to it any more. Its `abandon()`
# undoes what was begun under the lock, and releases it.
Owner = Any


class _Holding:
    """Who has the lock, and where that was taken, without keeping either alive."""

    __slots__ = ("_code", "_frame", "owner", "thread")

    def __init__(
        self, owner: Owner, dropped: Callable[["weakref.ref[Owner]"], None], frame: FrameType
    ) -> None:
        self.thread = threading.get_ident()
        self.owner = weakref.ref(owner, dropped)
        self._frame, self._code = id(frame), frame.f_code

    def is_entered(self) -> bool:
        """Return whether the function that took the lock is still running in this thread.

        If it isn't, an exception has left it while a traceback kept the owner.
        """
        frame: FrameType | None = sys._getframe()  # noqa: SLF001 - no other way to walk the stack
        while frame and not (id(frame) == self._frame and frame.f_code is self._code):
            frame = frame.f_back
        return frame is not None


class WriteLock:
    """The lock of the database that is in a directory now; not reentrant."""

    def __init__(self, directory: Path, identity: Identity) -> None:
        self.directory = directory
        self._identity = identity
        # LMDB's transaction, which has a lock too, and is aborted if nobody owns this one any more.
        self.begun: lmdb.Transaction[memoryview] | None = None
        self._holding: _Holding | None = None
        self._thread_turn, self._thread_lock = threading.RLock(), threading.RLock()
        self._process_turn = self._process_lock = -1

    def acquire(self, owner: Owner, caller: FrameType, timeout: float) -> None:
        """Take the lock, or raise LockTimeoutError after `timeout` seconds.

        The function of the frame `caller` has the block at whose end the owner releases the lock.
        """
        if self.is_held():
            raise LockTimeoutError(
                f"this thread already writes to {self.directory}",
                hint="finish the first write transaction before the next one",
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
            self._sign()
            self._holding = _Holding(owner, self._dropped, caller)
        except BaseException:
            if self._thread_lock.acquire(blocking=False):  # this thread has it, or nobody
                self._unlock()
            raise

    def release(self, owner: object) -> None:
        """Release the lock if this owner has it, by this thread and in this process."""
        holding = self._holding
        if (
            holding is not None
            and holding.thread == threading.get_ident()
            and holding.owner() is owner
        ):
            self._unlock()

    def is_held(self) -> bool:
        """Return whether this thread has the lock; release what an exception has left of it."""
        holding = self._holding
        if holding is None or holding.thread != threading.get_ident():
            return False
        if holding.is_entered():
            return True
        if (owner := holding.owner()) is not None:
            owner.abandon()
        self._end(holding)
        return False

    def close(self) -> None:
        """Close the lock's files, unless a thread has it; it can be used again afterwards."""
        if self._holding is None and self._thread_lock.acquire(blocking=False):
            try:
                self._close_files()
            finally:
                self._thread_lock.release()

    def forget(self) -> None:
        """Drop what a forked process has inherited, without unlocking it for its parent."""
        self._holding = self.begun = None
        self._thread_turn, self._thread_lock = threading.RLock(), threading.RLock()
        self._close_files()

    def _dropped(self, owner: "weakref.ref[Owner]") -> None:
        holding = self._holding
        # A thread can't end LMDB's transaction of another one, which ends it at its next write.
        if (
            holding is not None
            and holding.owner is owner
            and holding.thread == threading.get_ident()
        ):
            self._end(holding)

    def _end(self, holding: _Holding) -> None:
        if self._holding is holding:
            try:
                if self.begun is not None:
                    self.begun.abort()
            finally:
                self._unlock()

    def _unlock(self) -> None:
        """Release everything that this thread has, whatever that is."""
        try:
            self._unlock_files()
        except BaseException:
            self._unlock_files()
            raise
        finally:
            self._holding = self.begun = None
            # No function is called that an exception could leave at its beginning.
            try:
                while True:
                    self._thread_lock.release()
            except RuntimeError:  # it isn't this thread's any more
                pass

    def _unlock_files(self) -> None:
        for descriptor in (self._process_turn, self._process_lock):
            if descriptor >= 0:
                fcntl.flock(descriptor, fcntl.LOCK_UN)

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
            try:
                while True:
                    self._thread_turn.release()
            except RuntimeError:
                pass

    def _open(self) -> None:
        with disk_named(self.directory):
            turn = -1
            try:
                turn = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                found = os.lstat(DATA_FILE, dir_fd=turn)
                if (found.st_dev, found.st_ino) != self._identity:
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
        record = _own_record(os.getpid())
        # On a full disk the lock still works, only its holder has no name.
        with contextlib.suppress(OSError):
            if os.pread(self._process_lock, _RECORD_BYTES, 0) != record:
                os.pwrite(self._process_lock, record, 0)

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


class Attempt:
    """Takes a lock for a block if it is free in time; the block gets whether this thread has it."""

    __slots__ = ("__weakref__", "_lock", "_seconds")

    def __init__(self, lock: WriteLock, seconds: float = 0) -> None:
        self._lock = lock
        self._seconds = seconds

    def __enter__(self) -> bool:
        if self._lock.is_held():
            return True
        try:
            caller = sys._getframe(1)  # noqa: SLF001 - no other way to get it
            self._lock.acquire(self, caller, self._seconds)
        except LockTimeoutError:
            return False
        except BaseException:
            self.abandon()
            raise
        return True

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def abandon(self) -> None:
        """Release the lock, if this has it."""
        self._lock.release(self)


def _until(deadline: float) -> float:
    return min(max(deadline - time.monotonic(), 0), threading.TIMEOUT_MAX)


@functools.lru_cache(maxsize=1)
def _own_record(pid: int) -> bytes:
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
