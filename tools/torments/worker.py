"""A process to be tormented: warmed up, told what to do, listened to, killed.

Process and parent talk over a socket, one JSON object per line. A file of its own would be one
more thing to lose, and `write` is a system call that some torments make fail.
"""

import contextlib
import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

_WARM = ("fpdb", "fpdb.corpus", "workload")


class Channel:
    """One end of the conversation."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self._unread = b""

    def tell(self, **message: Any) -> None:
        """Send a message; it has left this process when this returns."""
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
    """A process that has loaded everything, and waits until it is told what to do."""

    def __init__(self) -> None:
        own, other = socket.socketpair()
        super().__init__(own)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed with the worker
        with other:
            self.process = subprocess.Popen(
                [sys.executable, __file__, str(other.fileno())],
                # One thread: it starts faster, and a tracer has less to follow.
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
            )

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self.process.pid

    def ready(self) -> None:
        """Wait until everything is loaded."""
        if self.hear(60) != {"ready": True}:
            raise RuntimeError(f"a worker didn't start: {self.errors()}")

    def begin(self, job: str, **arguments: Any) -> None:
        """Begin a job, a function that is named as module.function and gets a channel first."""
        self.ready()
        self.go(job, **arguments)

    def go(self, job: str, **arguments: Any) -> None:
        """Begin a job; the worker is known to be ready."""
        self.tell(job=job, arguments=arguments)

    def listen(self, seconds: float) -> Iterator[dict[str, Any]]:
        """Give the messages of some time, or until the process ends."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            message = self.hear(left)
            if message is None:
                return
            yield message

    def kill(self) -> Iterator[dict[str, Any]]:
        """Kill the process; give what it had still said."""
        self.process.kill()
        self.process.wait()
        return self.listen(60)

    def wait(self, seconds: float) -> int:
        """Wait for the end of the process, and give its exit code."""
        return self.process.wait(seconds)

    def errors(self) -> str:
        """Give what the process printed, which a sound one doesn't."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def close(self) -> None:
        """End the process, whatever it is doing."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        self.end.close()
        self._errors.close()


class Workers:
    """Starts workers ahead of their use, since to load fpdb takes longer than most torments."""

    def __init__(self, ahead: int = 1) -> None:
        self._ahead = ahead
        self._warm: list[Worker] = []
        self._begun: list[Worker] = []

    def take(self) -> Worker:
        """Give a worker that nobody uses; another one is started."""
        while len(self._warm) <= self._ahead:
            self._warm.append(Worker())
        worker = self._warm.pop(0)
        self._begun.append(worker)
        return worker

    def drop(self, worker: Worker) -> None:
        """End a worker."""
        worker.close()
        self._begun.remove(worker)

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        for worker in (*self._warm, *self._begun):
            worker.close()


def main() -> None:
    """Be a worker."""
    for name in _WARM:
        importlib.import_module(name)
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    channel.tell(ready=True)
    message = channel.hear()
    if message is not None:
        module, _, function = message["job"].rpartition(".")
        getattr(importlib.import_module(module), function)(channel, **message["arguments"])


if __name__ == "__main__":
    main()
