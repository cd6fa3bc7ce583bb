"""Child processes, and workers that run a function for many items, in order, within bounds.

A child is a new Python that gets its work over a socket, and that ends when the socket is closed,
however that comes about. It isn't forked: LMDB and threads don't survive that. It doesn't import
the program that started it either, as multiprocessing would, so a script needs no
`if __name__ == "__main__"`.
"""

import atexit
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
    """Yield each item with what a function makes of it, in order; with one job, made here."""
    jobs = count_jobs(jobs)
    if jobs > 1:
        with Workers(work, jobs) as workers:
            yield from workers.map(items)
        return
    for item in items:
        yield item, work(item)


class Workers(Generic[Item, Result]):
    """Several processes that run a function; results come in the order of the items."""

    def __init__(self, work: Callable[[Item], Result], jobs: int) -> None:
        from concurrent.futures import ThreadPoolExecutor

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
        """End all processes; what they were working on is dropped."""
        with self._lock:
            self._closed = True
            for worker in self._started:
                worker.kill()
        self._threads.shutdown(cancel_futures=True)
        while self._started:
            self._started.pop().close()
        self._pending.clear()

    def map(self, items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
        """Yield each item with its result; those before an error come before it is raised."""
        source, failure = iter(items), None
        while True:
            try:
                item = next(source)
            except StopIteration:
                break
            except Exception as error:
                failure = error
                break
            self._pending.append((item, self._threads.submit(self._run, item)))
            while self._pending and (
                len(self._pending) > self._limit or self._pending[0][1].done()
            ):
                yield self._next()
        while self._pending:
            yield self._next()
        if failure:
            raise failure

    def _next(self) -> tuple[Item, Result]:
        item, future = self._pending.popleft()
        return item, future.result()

    def _run(self, item: Item) -> Result:
        try:
            worker = self._idle.pop()
        except IndexError:
            with self._lock:
                if self._closed:
                    raise WorkerError("the workers were closed") from None
                worker = Worker(self._work)
                self._started.append(worker)
        try:
            result: Result = worker.call(item)
        finally:
            self._idle.append(worker)
        return result


class Worker:
    """A child process that runs a function, and the connection to it."""

    def __init__(self, work: Callable[..., Any], stderr: int | None = None) -> None:
        """Start the process; `stderr` is where its messages go, as for `subprocess.Popen`."""
        import subprocess
        from multiprocessing.connection import Connection

        own, other = socket.socketpair()
        command = [sys.executable or "", "-c", _CODE, str(other.fileno()), *map(str, sys.path)]
        try:
            with other:
                self._process = subprocess.Popen(  # noqa: S603 - it is this very Python
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
        self._connection: Connection[Any, Any] = Connection(own.detach())
        self._work: Callable[..., Any] | None = work  # until it is sent

    def call(self, item: object) -> Any:
        """Return what the function makes of an item, or raise its error."""
        self.send(item)
        return self.receive()

    def send(self, item: object) -> None:
        """Begin a call, whose result `receive` returns; nothing else may be sent before that."""
        try:
            self._connection.send((self._work, item))
            self._work = None
        except OSError:
            raise self._lost() from None
        except MemoryError:  # half of the item may already be in the socket
            self.kill()
            raise self._lost() from None
        except Exception as error:  # pickle raises what it likes
            raise _unfit(error) from None

    def receive(self) -> Any:
        """Wait for the end of a call; return its result, or raise its error."""
        try:
            good, answer = self._connection.recv()
        except (EOFError, OSError):
            raise self._lost() from None
        except MemoryError:  # half of the answer may still be in the socket
            self.kill()
            raise self._lost() from None
        except Exception as error:  # pickle raises what it likes
            raise _unfit(error) from None
        if not good:
            raise answer
        return answer

    @property
    def exit_code(self) -> int | None:
        """The exit code of a process that was lost, or the negative of a signal; else None."""
        return self._process.returncode

    def _lost(self) -> WorkerError:
        self._connection.close()  # which ends a process that only couldn't be reached
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

    def leave(self) -> None:
        """Forget, in a forked child, a process of its parent."""
        self._connection.close()
        self._process.returncode = 0


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

    def take(self) -> Worker:
        """Return a process that is idle, or a new one, whose messages are dropped."""
        try:
            return self._idle.pop()
        except IndexError:
            import subprocess

            self._check()
            return Worker(self._work, subprocess.DEVNULL)

    def keep(self, worker: Worker) -> None:
        """Keep a process, of which no answer is under way, for others."""
        self._idle.append(worker)

    def end(self) -> None:
        """End the processes that are idle."""
        while self._idle:
            worker = self._idle.pop()
            worker.kill()
            worker.close()

    def _leave_to_parent(self) -> None:
        """Forget, in a forked child, the processes of its parent."""
        for worker in self._idle:
            worker.leave()
        self._idle.clear()


def _unfit(error: Exception) -> WorkerError:
    return WorkerError(
        f"a worker process can't take or return this: {type(error).__name__}: {error}",
        hint="one job starts no worker; or define it in a module that can be imported",
    )


def _block_interrupts() -> None:
    """Keep Ctrl-C from the processes that this thread starts, from their start on."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def serve(number: int) -> None:
    """Run a worker: receive items until the socket is closed, with the first a function."""
    from multiprocessing.connection import Connection

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_caller, args=[number], daemon=True).start()
    connection: Connection[Any, Any] = Connection(number)
    # The other end may be gone at any moment; then there is nothing left to do.
    with connection, contextlib.suppress(EOFError, OSError):
        work: Any = None
        while True:
            try:
                sent, item = connection.recv()
                work = sent or work
            except (EOFError, OSError):
                raise
            except Exception as error:  # e.g. a class that only the caller has
                connection.send((False, _unfit(error)))
                continue
            try:
                found = True, work(item)
            except Exception as error:  # it is raised where the result is used
                found = False, error
            try:
                connection.send(found)
            except OSError:
                raise
            except Exception as error:  # pickle raises what it likes
                connection.send((False, _unfit(error)))


def _end_with_caller(number: int) -> None:
    """End this process once the other end of its socket is closed, whatever it is doing."""
    import select

    hangup = select.poll()
    hangup.register(number, 0)
    hangup.poll()
    os._exit(0)
