"""A process to torment: it takes orders, reports what it does, and is killed.

Process and parent talk over a socket, one JSON object per line. A file of its own would be one
more thing to lose, and `write` is a system call that some torments make fail.
"""

import importlib
import json
import os
import select
import signal
import socket
import tempfile
import time
import traceback
from collections.abc import Iterator
from typing import Any, ClassVar, NoReturn

import workload  # noqa: F401 - what is loaded before the fork isn't loaded by the workers

import fpdb.maintenance  # noqa: F401


class Channel:
    """One end of the conversation."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self._unread = b""

    def tell(self, **message: Any) -> None:
        self.end.sendall(json.dumps(message).encode() + b"\n")

    def hear(self, seconds: float | None = None) -> dict[str, Any] | None:
        """Receive the next message; None if there is none in time, or will be none any more."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while b"\n" not in self._unread:
            if deadline is not None:
                self.end.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                received = self.end.recv(1 << 16)
            except (TimeoutError, ConnectionResetError):
                return None
            finally:
                self.end.settimeout(None)
            if not received:  # a line that was cut short was never sent
                return None
            self._unread += received
        line, _, self._unread = self._unread.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message


class Worker(Channel):
    """A forked process that waits for an order."""

    _all: ClassVar[set[socket.socket]] = set()  # the ends of the parent

    def __init__(self) -> None:
        own, other = socket.socketpair()
        super().__init__(own)
        self._all.add(own)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed with the worker
        self._code: int | None = None
        self.pid = os.fork()
        if not self.pid:
            for end in self._all:  # else the others wouldn't notice that the parent has ended
                end.close()
            self._work(other)
        other.close()
        self._ends = os.pidfd_open(self.pid)

    def _work(self, end: socket.socket) -> NoReturn:
        """Do the job that is named, in the forked process; print the error that ends it."""
        code = 1
        try:
            for standard in (1, 2):
                os.dup2(self._errors.fileno(), standard)
            channel = Channel(end)
            message = channel.hear()
            if message is not None:
                module, _, function = message["job"].rpartition(".")
                job = getattr(importlib.import_module(module), function)
                job(channel, *message["given"], **message["named"])
            code = 0
        except BaseException:
            os.write(2, traceback.format_exc().encode(errors="replace"))
        finally:
            os._exit(code)

    def begin(self, job: str, *given: Any, **named: Any) -> None:
        """Begin a job, a function that is named as module.function and gets a channel first."""
        self.tell(job=job, given=given, named=named)

    def ask(self, seconds: float) -> dict[str, Any] | None:
        """Order the next step, and receive its message."""
        self.tell(go=True)
        return self.hear(seconds)

    def expect(self, **message: Any) -> None:
        """Receive a message that must be this one."""
        if (found := self.hear(60)) != message:
            raise RuntimeError(f"a worker said {found}, not {message}: {self.errors()}")

    def listen(self, seconds: float) -> Iterator[dict[str, Any]]:
        """Yield the messages of some time, or until the process ends."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            message = self.hear(left)
            if message is None:
                return
            yield message

    def kill(self) -> Iterator[dict[str, Any]]:
        """Kill the process; give what it had still said."""
        if self._code is None:  # else the number may be another's by now
            os.kill(self.pid, signal.SIGKILL)
            self.wait(60)
        return self.listen(60)

    @property
    def ended(self) -> bool:
        return bool(select.select([self._ends], [], [], 0)[0])

    def wait(self, seconds: float) -> int:
        """Wait for the end of the process; give its exit code, or the signal below zero."""
        if self._code is None:
            if not select.select([self._ends], [], [], seconds)[0]:
                raise TimeoutError(f"a worker goes on for more than {seconds} s")
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def close(self) -> None:
        self.kill()
        os.close(self._ends)
        self._all.remove(self.end)
        self.end.close()
        self._errors.close()


class Workers:
    """Starts workers, and ends those that are left after a `with` block."""

    def __init__(self) -> None:
        self._begun: list[Worker] = []

    def take(self) -> Worker:
        worker = Worker()
        self._begun.append(worker)
        return worker

    def drop(self, worker: Worker) -> None:
        worker.close()
        self._begun.remove(worker)

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._begun:
            worker.close()
