"""Child processes: how they are started, and workers that run a function, in order, within bounds.

A child is a new Python that gets its work over a socket, and that ends when the socket is closed,
however that comes about. It isn't forked: LMDB and threads don't survive that. It doesn't import
the program that started it either, as multiprocessing would, so a script needs no
`if __name__ == "__main__"`. What can't be pickled, or not be found by the child, is done here.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from fpdb.errors import InputError, WorkerError

if TYPE_CHECKING:
    from concurrent.futures import Future
    from multiprocessing.connection import Connection
    from subprocess import Popen

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST = 256
# Items in flight for each worker: one that it works on, and one that waits.
_AHEAD = 2
_CODE = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from fpdb.processes import serve; serve(int(sys.argv[1]))"
)
# Each child has one processor; libraries that start a thread for each only get in the way.
_ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_DONE, _FAILED, _UNFIT = "done", "failed", "unfit"


class _UnfitError(Exception):
    """Something can't be sent to another process or back."""


def count_jobs(jobs: int) -> int:
    """Return the number of processes: 0 means all processors that this one may use."""
    if isinstance(jobs, bool) or not isinstance(jobs, int) or not 0 <= jobs <= MOST:
        raise InputError(
            f"found jobs={jobs!r}, expected a whole number from 0 to {MOST}",
            hint="1 starts no worker, 0 one for each processor",
        )
    return jobs or len(os.sched_getaffinity(0))


def mapped(
    work: Callable[[Item], Result], items: Iterable[Item], jobs: int
) -> Iterator[tuple[Item, Result]]:
    """Yield each item with what a function makes of it, in order; in worker processes if several.

    With one job, the function is called here, for one item at a time.
    """
    if count_jobs(jobs) > 1:
        yield from Workers(work, jobs).map(items)
        return
    for item in items:
        yield item, work(item)


class Workers(Generic[Item, Result]):
    """Several processes that run a function; results come in the order of the items."""

    def __init__(self, work: Callable[[Item], Result], jobs: int) -> None:
        from concurrent.futures import ThreadPoolExecutor

        jobs = count_jobs(jobs)
        self._work = work
        self._limit = _AHEAD * jobs
        self._pending: deque[tuple[Item, Future[Result]]] = deque()
        self._idle: deque[Worker] = deque()
        self._started: list[Worker] = []
        self._closed = False
        self._lock = threading.Lock()
        # A thread for each worker waits for the answers, and at once sends the next item.
        self._threads = ThreadPoolExecutor(jobs, "fpdb-worker", _block_interrupts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def map(self, items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
        """Yield each item with its result; those before an error come before it is raised."""
        with self:
            held: list[Item] = []  # a single item isn't worth a process
            source = _Items(items)
            for place, item in enumerate(source):
                if place == 0:
                    held.append(item)
                    continue
                for each in (*held, item):
                    self.put(each)
                held = []
                yield from self.ready()
            for item in held:
                yield item, self._work(item)
            yield from self.rest()
            if source.failure:
                raise source.failure

    def put(self, item: Item) -> None:
        """Have one more item worked on."""
        self._pending.append((item, self._threads.submit(self._run, item)))

    def ready(self) -> Iterator[tuple[Item, Result]]:
        """Yield the results that are there; wait for some if too many items are in flight."""
        while self._pending and (len(self._pending) > self._limit or self._pending[0][1].done()):
            yield self._next()

    def rest(self) -> Iterator[tuple[Item, Result]]:
        """Wait for all results."""
        while self._pending:
            yield self._next()

    def _next(self) -> tuple[Item, Result]:
        item, future = self._pending.popleft()
        return item, future.result()

    def close(self) -> None:
        """End all processes; what they were working on is dropped."""
        with self._lock:
            self._closed = True
            for worker in self._started:
                worker.kill()
        self._threads.shutdown(cancel_futures=True)
        while self._started:
            self._started.pop().close()
        self._pending.clear()

    def _run(self, item: Item) -> Result:
        try:
            worker = self._idle.pop()
        except IndexError:
            worker = self._start()
        try:
            outcome, value = worker.ask(item)
        except _UnfitError:
            outcome, value = _UNFIT, None
        self._idle.append(worker)
        if outcome == _FAILED:
            raise value
        result: Result = value if outcome == _DONE else self._work(item)
        return result

    def _start(self) -> "Worker":
        with self._lock:
            if self._closed:
                raise WorkerError("the workers were closed")
            worker = Worker()
            self._started.append(worker)
        worker.prepare(self._work)
        return worker


class _Items(Iterator[Item]):
    """Items, up to the error that ends them."""

    def __init__(self, items: Iterable[Item]) -> None:
        self.failure: Exception | None = None
        self._items = iter(items)

    def __next__(self) -> Item:
        try:
            return next(self._items)
        except StopIteration:
            raise
        except Exception as error:
            self.failure = error
            raise StopIteration from None


def start_python(*program: str, stderr: int | None = None) -> "tuple[Popen[bytes], socket.socket]":
    """Start this Python as a child, and return it with the socket to it.

    Args:
        program: The arguments that name what to run: "-c" and code, or a file. Its own arguments
            are the number of its socket, and what its `sys.path` is to be.
        stderr: Where its messages go, as for `subprocess.Popen`.
    """
    import subprocess

    own, other = socket.socketpair()
    command = [sys.executable or "", *program, str(other.fileno()), *map(str, sys.path)]
    try:
        with other:
            process = subprocess.Popen(  # noqa: S603 - it is this very Python
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                pass_fds=[other.fileno()],
                env=_ENVIRONMENT | os.environ,
            )
    except OSError as error:
        own.close()
        raise WorkerError(
            f"a child process can't be started: {error.strerror}",
            hint="are there too many processes? one job needs no worker",
        ) from None
    return process, own


class Worker:
    """A child process that runs a function, and the connection to it."""

    def __init__(self, stderr: int | None = None) -> None:
        from multiprocessing.connection import Connection

        self._process, own = start_python("-c", _CODE, stderr=stderr)
        self._connection: Connection[Any, Any] = Connection(own.detach())

    def prepare(self, work: Callable[..., Any]) -> None:
        """Send the function that is run for each item."""
        with contextlib.suppress(_UnfitError):
            self._send(work)
            return
        self._send(None)

    def ask(self, item: object) -> tuple[str, Any]:
        """Have one item worked on; return the outcome, and the result or the error."""
        self._send(item)
        try:
            answer: tuple[str, Any] = self._connection.recv()
        except (EOFError, OSError):
            raise self._lost() from None
        except MemoryError:  # half of the answer may still be in the socket
            self.kill()
            raise self._lost() from None
        except Exception:  # the class of an error may be unknown here
            raise _UnfitError from None
        return answer

    def _send(self, value: object) -> None:
        try:
            self._connection.send(value)
        except OSError:
            raise self._lost() from None
        except Exception:  # pickle raises what it likes
            raise _UnfitError from None

    def call(self, item: object) -> Any:
        """Return what the function makes of an item, or raise its error."""
        try:
            outcome, value = self.ask(item)
        except _UnfitError:
            outcome, value = _UNFIT, None
        if outcome == _UNFIT:
            raise WorkerError("a worker process can't do its work", hint="is its fpdb this one?")
        if outcome == _FAILED:
            raise value
        return value

    @property
    def exit_code(self) -> int | None:
        """The exit code of a process that was lost, or the negative of a signal; else None."""
        return self._process.returncode

    def _lost(self) -> WorkerError:
        code = self._process.wait()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return WorkerError(
            f"the worker process {self._process.pid} {how}",
            hint="was memory short? fewer jobs need less; what was acknowledged is stored",
        )

    def kill(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()

    def close(self) -> None:
        """Release what the process took."""
        self._process.wait()
        self._connection.close()


def _block_interrupts() -> None:
    """Keep Ctrl-C from the processes that this thread starts, from their start on."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def serve(number: int) -> None:
    """Run a worker: receive a function, and then items until the socket is closed."""
    from multiprocessing.connection import Connection

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_caller, args=[number], daemon=True).start()
    connection: Connection[Any, Any] = Connection(number)
    # The other end may be gone at any moment; then there is nothing left to do.
    with connection, contextlib.suppress(EOFError, OSError):
        work = _received(connection)
        while True:
            item = _received(connection)
            if work is None or item is None:
                connection.send((_UNFIT, None))
                continue
            try:
                answer = _DONE, work(item)
            except Exception as error:  # it is raised where the result is used
                answer = _FAILED, error
            try:
                connection.send(answer)
            except OSError:
                raise
            except Exception:  # pickle raises what it likes
                connection.send((_UNFIT, None))


def _end_with_caller(number: int) -> None:
    """End this process once the other end of its socket is closed, whatever it is doing."""
    import select

    hangup = select.poll()
    hangup.register(number, 0)
    hangup.poll()
    os._exit(0)


def _received(connection: "Connection[Any, Any]") -> Any:
    try:
        return connection.recv()
    except (EOFError, OSError):
        raise
    except Exception:  # what this process can't find is left to the other one
        return None
