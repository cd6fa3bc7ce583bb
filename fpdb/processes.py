"""Child processes that run a function for items, one after the other.

A child is a new Python that gets its work over a socket, and that ends when the socket is closed,
however that comes about. It isn't forked: LMDB and threads don't survive that. It doesn't import
the program that started it either, as multiprocessing would, so a script needs no
`if __name__ == "__main__"`. It imports nothing from its working directory.

A call sends the function and an item. The answers are a kind and a value each: the values and steps
that the function makes, and in the end its result, or its error.
"""

import atexit
import contextlib
import functools
import os
import pickle
import resource
import select
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from fpdb import progress
from fpdb.errors import InputError, WorkerError

_CODE = """
import sys
sys.path[:] = sys.argv[2:]
try:
    from fpdb.processes import serve
except Exception as error:
    sys.exit(f"a worker process can't start: {type(error).__name__}: {error}")
serve(int(sys.argv[1]))
"""
# Each child has one processor; libraries that start a thread for each only get in the way.
_SINGLE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# With this a child ends that has no memory for its work.
_NO_MEMORY = 12


class _Channel:
    """Sends and receives objects over a socket; the buffers of arrays aren't copied for it.

    Those of multiprocessing read large objects in many small pieces, and joins these.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def send(self, value: object) -> None:
        buffers: list[pickle.PickleBuffer] = []
        data = pickle.dumps(value, 5, buffer_callback=buffers.append)
        parts = [memoryview(data), *(buffer.raw() for buffer in buffers)]
        sizes = [part.nbytes for part in parts]
        self._socket.sendall(struct.pack(f"{1 + len(sizes)}Q", len(sizes), *sizes))
        for part in parts:
            self._socket.sendall(part)

    def receive(self) -> Any:
        """Receive an object; raise EOFError if the other end is closed."""
        [count] = struct.unpack("Q", self._read(8))
        data, *buffers = map(self._read, struct.unpack(f"{count}Q", self._read(8 * count)))
        return pickle.loads(data, buffers=buffers)  # noqa: S301 - the other end is this package

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        left = memoryview(data)
        while left:
            if not (count := self._socket.recv_into(left)):
                raise EOFError
            left = left[count:]
        return data


class Worker:
    """A child process that runs a function, and the connection to it."""

    def __init__(self, work: Callable[[Any], Any], stderr: int | None = None) -> None:
        """Start the process; `stderr` is where its messages go, as for `subprocess.Popen`."""
        import subprocess

        self._work = work
        # Of a process that was lost; the negative of the signal that killed it.
        self.exit_code: int | None = None
        self.busy = False  # with a call, of which answers may be under way
        end, other = socket.socketpair()
        try:
            with other:
                self._process = subprocess.Popen(  # noqa: S603 - it is this very Python
                    _command(other.fileno()),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    pass_fds=[other.fileno()],
                    # A terminal sends Ctrl-C to all of a group, and it is for this process alone.
                    process_group=0,
                    # A child would follow the relative entries of this path.
                    env=_SINGLE_THREAD | {k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
                )
        except OSError as error:
            end.close()
            raise WorkerError(
                f"a child process can't be started: {error.strerror}",
                hint="is memory short, or are there too many processes?",
            ) from None
        self._connection = _Channel(end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, item: object) -> Any:
        """Return the result of the function for an item, or raise its error."""
        return next(self.values(item), None)

    def values(
        self, item: object, on_step: Callable[[progress.WorkStep], object] | None = None
    ) -> Iterator[Any]:
        """Yield what the function yields or returns for an item, or raise its error.

        The process makes the next value meanwhile. While it is busy it can only be closed.
        """
        self.busy = True
        self._exchange(self._connection.send, (self._work, item))
        while True:
            kind, value = self._exchange(self._connection.receive)
            self.busy = kind in ("value", "step")
            if kind == "error":
                raise value
            if kind == "step":
                if on_step:
                    on_step(value)
            elif self.busy or value is not None:
                yield value
            if not self.busy:
                return

    def _exchange(self, transfer: Callable[..., Any], *values: object) -> Any:
        try:
            return transfer(*values)
        except TimeoutError:  # of a handler of a signal
            raise
        except (EOFError, OSError):
            raise self._lost() from None

    def _lost(self) -> WorkerError:
        self._connection.close()  # which ends a process that only couldn't be reached
        self.exit_code = code = self._process.wait()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return WorkerError(
            f"the worker process {self._process.pid} {how}",
            hint="was memory short? what was acknowledged is stored",
        )

    def kill(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()

    def close(self) -> None:
        """End the process, and release its resources."""
        self.kill()
        self._process.wait()
        self._connection.close()

    def leave(self) -> None:
        """Forget, in a forked child, a process of its parent."""
        self._connection.close()
        self._process.returncode = 0


class CallError(Exception):
    """A call in a child process that is kept ended without a value; the message says how."""


class KeptWorkers:
    """Child processes that run one function, and are kept for the next caller of any thread.

    There are at most as many as there were callers at the same time. They end with this process.
    Before one is started, `check` raises an error if the function can't run here.
    """

    def __init__(self, work: Callable[[Any], Any], check: Callable[[], object]) -> None:
        self._work = work
        self._check = check
        self._idle: list[Worker] = []
        atexit.register(self.end)
        os.register_at_fork(after_in_child=self._leave_to_parent)

    def values(self, item: object, memory: int, seconds: float) -> Iterator[Any]:
        """Yield what the function yields or returns for an item, or raise its error.

        If its process ends, which limits its own memory and processor time, a CallError is raised:
        what it read is the cause.
        """
        worker = self._taken()
        try:
            yield from worker.values(item)
        except WorkerError:
            if worker.exit_code is None:  # it is the function's own
                raise
            raise CallError(_ending(worker.exit_code, memory, seconds)) from None
        finally:
            if worker.busy:
                worker.close()
            else:
                self._idle.append(worker)

    def _taken(self) -> Worker:
        """Return a process that is idle, or a new one, whose messages are dropped."""
        if sys.platform != "linux":
            raise InputError(
                f"HTML, Word and Parquet are read on Linux only, found {sys.platform}: "
                "elsewhere the memory of their readers can't be limited",
                hint="give plain text or JSON lines, or use a container",
            )
        try:
            return self._idle.pop()
        except IndexError:
            import subprocess

            self._check()
            return Worker(self._work, subprocess.DEVNULL)

    def end(self) -> None:
        """End the processes that are idle."""
        while self._idle:
            self._idle.pop().close()

    def _leave_to_parent(self) -> None:
        while self._idle:
            self._idle.pop().leave()


def _command(descriptor: int) -> list[str]:
    """Return the command of a child with the path of this process, but for its relative entries.

    `-P` keeps the working directory from the path until the code runs. In a source tree that isn't
    installed, this package may have come from a relative entry.
    """
    flags = ["-P", *["-E"] * sys.flags.ignore_environment, *["-s"] * sys.flags.no_user_site]
    path = [entry for entry in map(str, sys.path) if os.path.isabs(entry)]
    root = str(Path(__file__).resolve().parents[1])
    return [sys.executable or "", *flags, "-c", _CODE, str(descriptor), *path, root]


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped, as Ctrl-Z does it, and may go on."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in ("T", "t")


def signal_name(number: int) -> str:
    """Return the name of a signal, and its meaning."""
    return f"{signal.Signals(number).name}: {signal.strsignal(number)}"


def limit(memory: int, seconds: float) -> None:
    """Limit the memory that this call may take in a child, and its processor time.

    What the process had before its first call doesn't count.
    """
    for what, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_DATA, _used() + memory)):
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (most if hard < 0 else min(most, hard), hard))
    signal.setitimer(signal.ITIMER_PROF, seconds)


@functools.cache
def _used() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[5]) * resource.getpagesize()


def require_address_space(least: int) -> None:
    """Raise WorkerError if the address space of this process is limited to less."""
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 <= most < least:
        raise WorkerError(
            f"memory ran short in a child process, which may have {most:,} bytes of address space",
            hint=f"raise the limit (ulimit -v) to {least:,} bytes, and try again",
        )


def serve(number: int) -> None:
    """Run a worker: answer calls until the socket is closed."""
    threading.Thread(target=_end_with_caller, args=[number], daemon=True).start()
    connection = _Channel(socket.socket(fileno=number))
    progress.listen(lambda step: connection.send(("step", step)))
    try:
        # The other end may be gone at any moment; then there is nothing left to do.
        with contextlib.suppress(EOFError, OSError):
            while True:
                _answer(connection, *connection.receive())
    except MemoryError:
        sys.exit(_NO_MEMORY)


def _answer(connection: _Channel, work: Callable[[Any], Any], item: object) -> None:
    try:
        result = work(item)
        if isinstance(result, Iterator):
            for value in result:
                connection.send(("value", value))
                del value  # which might leave no room for the next
            result = None
        connection.send(("result", result))
    except MemoryError:
        raise
    except Exception as error:  # it is raised where the result is used
        connection.send(("error", error))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _end_with_caller(number: int) -> None:
    hangup = select.poll()
    hangup.register(number, 0)
    hangup.poll()
    os._exit(0)


def _ending(code: int, memory: int, seconds: float) -> str:
    """Return how a call ended whose process ended with a code."""
    if code == _NO_MEMORY:
        return f"takes more than {memory >> 20} MiB of memory"
    if code == -signal.SIGPROF:
        return f"takes more than {seconds:.0f} seconds of processor time"
    if code < 0:
        return f"killed the process that read it by {signal_name(-code)}"
    return f"ended the process that read it with {code}"
