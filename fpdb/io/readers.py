"""Child processes that read what may be made to end them, and that are kept for what comes next."""

import atexit
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

from fpdb.errors import InputError
from fpdb.processes import Worker, signal_name


class CallError(Exception):
    """A call in a child process that is kept ended without a value; the message says how."""


class KeptWorkers:
    """Child processes that run one function, and are kept for the next caller of any thread.

    There are at most as many as there were callers at the same time. They end with this process.
    Before one is started, `check` raises an error if the function can't run here.
    """

    def __init__(self, work: Callable[..., Any], check: Callable[[], object]) -> None:
        self._work = work
        self._check = check
        self._idle: list[Worker] = []
        atexit.register(self.end)
        os.register_at_fork(after_in_child=self._leave_to_parent)

    @contextlib.contextmanager
    def lent(self, memory: int, seconds: float) -> Iterator[Worker]:
        """Lend a process that is idle, or a new one, whose messages are dropped.

        After an error it is ended, because an answer may be under way. However a call ends that
        has no value, a CallError is raised, unless somebody stopped the process: what was read is
        the cause. The function limits the bytes of memory and the processor time by itself.
        """
        if sys.platform != "linux":
            raise InputError(
                f"HTML, Parquet and Arrow are read on Linux only, found {sys.platform}: elsewhere "
                "the memory of their readers can't be limited",
                hint="give plain text or JSON lines, or use a container",
            )
        try:
            worker = self._idle.pop()
        except IndexError:
            import subprocess

            self._check()
            worker = Worker(self._work, subprocess.DEVNULL)
        try:
            yield worker
        except BaseException as error:
            worker.close()
            if error is worker.failure:
                raise CallError(_ending(error, worker.exit_code, memory, seconds)) from None
            raise
        self._idle.append(worker)

    def end(self) -> None:
        """End the processes that are idle."""
        while self._idle:
            self._idle.pop().close()

    def _leave_to_parent(self) -> None:
        while self._idle:
            self._idle.pop().leave()


def _ending(error: BaseException, code: int | None, memory: int, seconds: float) -> str:
    """Return how a call ended that raised an error, or whose process ended with a code."""
    if isinstance(error, MemoryError):
        return f"takes more than {memory >> 20} MiB of memory"
    if code == -signal.SIGPROF:
        return f"takes more than {seconds:.0f} seconds of processor time"
    if code is not None and code < 0:
        return f"killed the process that read it by {signal_name(-code)}"
    if code is not None:
        return f"ended the process that read it with {code}"
    return f"ended with {type(error).__name__}: {str(error).partition(chr(10))[0]:.200}"
