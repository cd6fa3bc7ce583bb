"""Child processes that run a function for items, one after the other.

A child is a new Python that gets its work over a socket, and that ends when the socket is closed,
however that comes about. It isn't forked: LMDB and threads don't survive that. It doesn't import
the program that started it either, as multiprocessing would, so a script needs no
`if __name__ == "__main__"`. It imports nothing from its working directory.
"""

import atexit
import contextlib
import os
import signal
import socket
import struct
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

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
# A call that takes longer than the first looks at the process; one that is stopped (by SIGSTOP or
# a debugger) gets the second to go on. A busy process may take as long as it needs.
_LOOK_SECONDS = 5.0
_STOPPED_SECONDS = 60.0
# Each child has one processor; libraries that start a thread for each only get in the way.
_SINGLE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_LENGTH = struct.Struct("=Q")
_CHUNK = 1 << 14  # most values fit into the first read


class Worker:
    """A child process that runs a function, and the connection to it."""

    def __init__(self, work: Callable[..., Any], stderr: int | None = None) -> None:
        """Start the process; `stderr` is where its messages go, as for `subprocess.Popen`."""
        import subprocess

        own, other = socket.socketpair()
        # Ctrl-C, which a terminal sends to children too, is for this process alone: a child that
        # is still starting would print a traceback.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with other:
                self._process = subprocess.Popen(  # noqa: S603 - it is this very Python
                    _command(other.fileno()),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    pass_fds=[other.fileno()],
                    # A child would follow the relative entries of this path.
                    env=_SINGLE_THREAD | {k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
                )
        except OSError as error:
            own.close()
            raise WorkerError(
                f"a child process can't be started: {error.strerror}",
                hint="is memory short, or are there too many processes?",
            ) from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        timeout = struct.pack("@ll", *divmod(round(_LOOK_SECONDS * 1e6), 1_000_000))
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):  # no poll before each transfer
            own.setsockopt(socket.SOL_SOCKET, option, timeout)
        self._channel = _Channel(own, self._look)
        self._work: Callable[..., Any] | None = work  # until it is sent
        self._stopped_since: float | None = None  # as far as the running call has seen
        self._given_up = False
        # Of a process that was lost; the negative of the signal that killed it.
        self.exit_code: int | None = None
        # What the last call raised, if that was due to the call, and not to somebody else.
        self.failure: BaseException | None = None

    def call(self, item: object) -> Any:
        """Return what the function makes of an item, or raise its error."""
        self.send(item)
        return self.receive()

    def send(self, item: object) -> None:
        """Begin a call, whose result `receive` returns; nothing else may be sent before that."""
        self._stopped_since = None
        try:
            self._channel.send((self._work, item))
            self._work = None
        except BaseException as error:
            raise self._explained(error) from None

    def receive(self) -> Any:
        """Wait for the end of a call; return its result, or raise its error."""
        try:
            while (received := self._channel.receive())[0] is None:
                progress.show(received[1])
                self._channel.send(None)  # the ends take turns
        except BaseException as error:
            raise self._explained(error) from None
        good, answer = received
        if not good:
            self.failure = answer
            raise answer
        return answer

    def _explained(self, error: BaseException) -> BaseException:
        """Return what to raise for an error of the exchange; a torn one ends the process."""
        if isinstance(error, WorkerError):
            self.failure = None if self._given_up else error
            return error
        lost = isinstance(error, (EOFError, OSError)) and _is_raised_here(error)
        if not lost:  # half of a message may be on its way
            self.kill()
        if lost or isinstance(error, MemoryError):
            self.failure = self._lost()
            return self.failure
        return error

    def _look(self) -> None:
        """Warn of a process that is stopped, which makes this one wait, and give up in the end."""
        pid, now = self._process.pid, time.monotonic()
        if not is_stopped(pid):
            self._stopped_since = None
        elif self._stopped_since is None:
            self._stopped_since = now
            warnings.warn(
                f"waiting for the worker process {pid}, which is stopped, for up to "
                f"{_STOPPED_SECONDS:.0f} seconds: `kill -CONT {pid}` lets it go on",
                RuntimeWarning,
                stacklevel=2,
            )
        elif now - self._stopped_since >= _STOPPED_SECONDS:
            self._given_up = True
            self.kill()
            raise WorkerError(
                f"the worker process {pid} was stopped, and nobody let it go on for "
                f"{_STOPPED_SECONDS:.0f} seconds",
                hint=f"`kill -CONT {pid}` would have; what was acknowledged is stored",
            )

    def _lost(self) -> WorkerError:
        self._channel.close()  # which ends a process that only couldn't be reached
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
        """End the process, and release what it took."""
        self.kill()
        self._process.wait()
        self._channel.close()

    def leave(self) -> None:
        """Forget, in a forked child, a process of its parent."""
        self._channel.close()
        self._process.returncode = 0


class Streamed:
    """Makes a function that yields answer calls: an item begins it, None goes on with it.

    Each call returns the next value, None after the last. With `steps`, the caller's listener gets
    the steps of the work too. A value that there is no memory to send is sent as the parts that
    `split` makes of it, which returns one part, or none, of what can't be divided.
    """

    _values: Iterator[Any] = iter(())

    def __init__(
        self,
        read: Callable[..., Iterator[Any]],
        *,
        steps: bool = False,
        split: Callable[[Any], list[Any]] | None = None,
    ) -> None:
        self._read = read
        self._split = split
        self.steps = steps

    def __call__(self, item: object) -> Any:
        """Return the next value."""
        if item is not None:
            self._values = self._read(item)
        return next(self._values, None)

    def divide(self, value: object) -> bool:
        """Let the parts of a value be the next ones; return whether it has any."""
        parts = self._split(value) if self._split else []
        self._values = chain(parts, self._values)
        return bool(parts)


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


class _Channel:
    """Values that are pickled and sent over a socket, each after its length.

    The two ends take turns, so one value at a time is under way.
    """

    def __init__(self, end: socket.socket, on_wait: Callable[[], object] = lambda: None) -> None:
        """Take one end of a pair; `on_wait` is called whenever the timeout of the socket passes."""
        from multiprocessing.reduction import ForkingPickler

        self._end = end
        self._on_wait = on_wait
        self._dumps, self._loads = ForkingPickler.dumps, ForkingPickler.loads

    def send(self, value: object) -> None:
        """Send a value; what can't be pickled, or has no room in memory, sends nothing."""
        try:
            body = self._dumps(value)
        except MemoryError:
            raise
        except Exception as error:  # pickle raises what it likes
            raise _unfit(error) from None
        rest = memoryview(b"".join((_LENGTH.pack(len(body)), body)))
        while rest:
            rest = rest[self._attempt(self._end.send, rest) :]

    def receive(self) -> Any:
        """Return the next value; raise EOFError if the other end is closed.

        After a MemoryError, the rest of the value may follow in the socket.
        """
        data = bytearray(_CHUNK)
        got, size = 0, _LENGTH.size
        while got < size:
            count = self._attempt(self._end.recv_into, memoryview(data)[got:])
            if not count:
                raise EOFError
            got += count
            if size == _LENGTH.size <= got:
                size += _LENGTH.unpack_from(data)[0]
                if size > len(data):
                    larger = bytearray(size)
                    larger[:got] = data[:got]
                    data = larger
        try:
            return self._loads(memoryview(data)[_LENGTH.size : size])
        except MemoryError:
            raise
        except Exception as error:  # e.g. a class that only the caller has
            raise _unfit(error) from None

    def close(self) -> None:
        """Close this end."""
        self._end.close()

    def _attempt(self, transfer: Callable[[memoryview], int], data: memoryview) -> int:
        while True:
            try:
                return transfer(data)
            except BlockingIOError as error:  # the timeout has passed
                if not _is_raised_here(error):
                    raise
                self._on_wait()


def _command(descriptor: int) -> list[str]:
    """Return what starts a child with the path of this process, but for its relative entries.

    `-P` keeps the working directory from the path until the code runs. In a source tree that isn't
    installed, this package may have come from a relative entry.
    """
    flags = ["-P", *["-E"] * sys.flags.ignore_environment, *["-s"] * sys.flags.no_user_site]
    path = [entry for entry in map(str, sys.path) if os.path.isabs(entry)]
    own = str(Path(__file__).resolve().parents[1])
    return [sys.executable or "", *flags, "-c", _CODE, str(descriptor), *path, own]


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped, as Ctrl-Z does it, and may go on."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in ("T", "t")


def signal_name(number: int) -> str:
    """Return the name of a signal, and what it means."""
    return f"{signal.Signals(number).name}: {signal.strsignal(number)}"


def limit_resource(what: int, most: int) -> None:
    """Limit a resource of this process, one of `resource.RLIMIT_…`."""
    import resource

    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (most if hard < 0 else min(most, hard), hard))


def require_address_space(least: int) -> None:
    """Raise WorkerError if the address space of this process is limited to less."""
    import resource

    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 <= most < least:
        raise WorkerError(
            f"memory ran short in a child process, which may have {most:,} bytes of address space",
            hint=f"raise the limit (ulimit -v) to {least:,} bytes, and try again",
        )


def _is_raised_here(error: BaseException) -> bool:
    """Return whether a function of this module raised an error, and no handler of a signal."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return place is not None and place.tb_frame.f_code.co_filename == __file__


def _unfit(error: Exception) -> WorkerError:
    return WorkerError(
        f"a worker process can't take or return this: {type(error).__name__}: {error}",
        hint="define it in a module that can be imported",
    )


def serve(number: int) -> None:
    """Run a worker: receive items until the socket is closed, with the first a function."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_caller, args=[number], daemon=True).start()
    channel = _Channel(socket.socket(fileno=number))
    work: Any = None
    # The other end may be gone at any moment; then there is nothing left to do.
    with contextlib.suppress(EOFError, OSError):
        while True:
            try:
                sent, item = channel.receive()
                work = sent or work
                if isinstance(sent, Streamed) and sent.steps:
                    progress.listen(partial(_send_step, channel))
            except MemoryError:
                sys.exit(1)
            except WorkerError as error:
                channel.send((False, error))
                continue
            try:
                good, value = True, work(item)
            except Exception as error:  # it is raised where the result is used
                good, value = False, error
            _answer(channel, work, good, value)
            del item, value  # which might leave no room for the next


def _answer(channel: _Channel, work: object, good: bool, value: object) -> None:  # noqa: FBT001
    """Send the value or the error of a call, the parts of a value that there is no memory for."""
    while True:
        failure: Exception | None = None
        try:
            channel.send((good, value))
        except WorkerError as error:
            failure = error
        except MemoryError:
            if not good:
                raise
        else:
            return
        # What the frames of the MemoryError took is free again.
        if failure is None and isinstance(work, Streamed) and work.divide(value):
            value = work(None)
        else:
            good, value = False, failure or MemoryError()


def _send_step(channel: _Channel, step: progress.WorkStep) -> None:
    """Send the caller a step of the running call, and wait until it is taken."""
    channel.send((None, step))
    channel.receive()


def _end_with_caller(number: int) -> None:
    import select

    hangup = select.poll()
    hangup.register(number, 0)
    hangup.poll()
    os._exit(0)


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
