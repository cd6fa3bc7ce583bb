"""Threads that run a function for many items, in order, within bounds.

Threads are enough: the kernels and numpy release Python's lock, and HTML and Parquet are read by
child processes.
"""

import _thread
import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from itertools import repeat
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from fpdb.errors import InputError, WorkerError

Item = TypeVar("Item")
Result = TypeVar("Result")

# Where the result of an item is put, or its error.
_Reply = SimpleQueue[Any]

MOST = 256
# Items in flight for each thread: one that it works on, and one that waits.
_AHEAD = 2


def count_jobs(jobs: int) -> int:
    """Return the number of threads: 0 means all processors that this process may use."""
    if isinstance(jobs, bool) or not isinstance(jobs, int) or not 0 <= jobs <= MOST:
        raise InputError(
            f"found jobs {jobs!r}, expected a whole number from 0 to {MOST}",
            hint="1 starts no thread, 0 one for each processor",
        )
    if not jobs and not hasattr(os, "sched_getaffinity"):  # macOS
        return os.cpu_count() or 1
    return jobs or len(os.sched_getaffinity(0))


def mapped(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    jobs: int,
    ahead: int = 0,
    stop: Callable[[], object] | None = None,
) -> Iterator[tuple[Item, Result]]:
    """Yield each item with the result of a function, in order; one job starts no thread.

    A result is yielded as soon as it is there and an item follows, or with `ahead`, after that many
    further items: for a caller that takes several at a time, and keeps the threads waiting. The
    results before an error come before it is raised. `stop` is called when nobody takes further
    results, before the items that are being worked on are awaited.
    """
    jobs = count_jobs(jobs)
    if jobs == 1:
        for item in items:
            yield item, work(item)
        return
    threads = _Threads(work, jobs)
    try:
        yield from threads.results(items, max(ahead, _AHEAD * jobs), patient=bool(ahead))
    finally:
        if stop:
            stop()
        threads.close()


def made_ahead(items: Iterable[Item], most: int) -> Generator[Item]:
    """Yield items that a thread makes, up to N of them before they are wanted."""
    source, end = iter(items), object()
    with closing(_Threads[None, Any](lambda _: next(source, end), 1)) as thread:
        for _, item in thread.results(repeat(None), most, patient=True):
            if item is end:
                return
            yield item


def overlapped(work: Callable[[Item], object], items: Iterable[Item]) -> None:
    """Call a function for each item in a thread, while the next item is made."""
    with closing(_Threads(work, 1)) as thread:
        for _ in thread.results(items, 1, patient=True):
            pass


class _Threads(Generic[Item, Result]):
    # Futures and conditions wait in Python code, in which an exception out of a signal handler
    # leaves their locks taken; these queues are written in C.
    def __init__(self, work: Callable[[Item], Result], jobs: int) -> None:
        self._work, self._jobs = work, jobs
        self._tasks: SimpleQueue[tuple[Item, _Reply] | None] = SimpleQueue()
        self._ended: SimpleQueue[None] = SimpleQueue()
        self._pending: deque[tuple[Item, _Reply]] = deque()
        self._running = 0
        self._closed = False

    def results(
        self, items: Iterable[Item], most: int, *, patient: bool
    ) -> Iterator[tuple[Item, Result]]:
        source, failure, pending = iter(items), None, self._pending
        while True:
            try:
                item = next(source)
            except StopIteration:
                break
            except Exception as error:
                failure = error
                break
            pending.append((item, SimpleQueue()))
            self._tasks.put(pending[-1])
            if self._running < self._jobs:
                self._start()
            while pending and (len(pending) > most or not (patient or pending[0][1].empty())):
                yield self._next()
        while pending:
            yield self._next()
        if failure:
            raise failure

    def close(self) -> None:
        self._closed = True
        for _ in range(self._jobs):
            self._tasks.put(None)
        if not sys.is_finalizing():  # a generator ends with the program, whose threads have stopped
            for _ in range(self._running):
                self._ended.get()

    def _next(self) -> tuple[Item, Result]:
        item, reply = self._pending.popleft()
        result, error = reply.get()
        if error is not None:
            raise error
        return item, result

    def _run(self) -> None:
        while (task := self._tasks.get()) and not self._closed:
            item, reply = task
            try:
                reply.put((self._work(item), None))
            except BaseException as error:  # it is raised where the result is used
                reply.put((None, error))
        self._ended.put(None)

    def _start(self) -> None:
        try:
            _thread.start_new_thread(self._run, ())
        except RuntimeError as error:
            raise WorkerError(
                f"a thread can't be started: {error}",
                hint="is memory short, or are there too many threads? one job needs none",
            ) from None
        self._running += 1
