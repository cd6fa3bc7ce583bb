"""Threads that run a function for many items, in order, within bounds.

Threads are enough: the kernels and numpy release Python's lock, and HTML and Parquet are read by
child processes.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeVar

from fpdb.errors import InputError, WorkerError

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

Item = TypeVar("Item")
Result = TypeVar("Result")

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
    most = max(ahead, _AHEAD * jobs)
    yield from _results(work, items, jobs, most, patient=bool(ahead), stop=stop)


def made_ahead(items: Iterable[Item], most: int) -> Generator[Item]:
    """Yield items that a thread makes, up to N of them before they are wanted."""
    source, end = iter(items), object()
    made: Generator[tuple[None, Any]] = _results(lambda _: next(source, end), repeat(None), 1, most)
    with closing(made):
        for _, item in made:
            if item is end:
                return
            yield item


def overlapped(work: Callable[[Item], object], items: Iterable[Item]) -> None:
    """Call a function for each item in a thread, while the next item is made."""
    for _ in _results(work, items, 1, 1):
        pass


def _results(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    jobs: int,
    most: int,
    *,
    patient: bool = True,
    stop: Callable[[], object] | None = None,
) -> Generator[tuple[Item, Result]]:
    from concurrent.futures import ThreadPoolExecutor  # most commands start no thread

    source, failure = iter(items), None
    pending: deque[tuple[Item, Future[Result]]] = deque()
    pool = ThreadPoolExecutor(jobs, "fpdb")
    try:
        while True:
            try:
                item = next(source)
            except StopIteration:
                break
            except Exception as error:
                failure = error
                break
            pending.append((item, _submit(pool, work, item)))
            while pending and (len(pending) > most or (not patient and pending[0][1].done())):
                yield _taken(pending)
        while pending:
            yield _taken(pending)
        if failure:
            raise failure
    finally:
        if stop:
            stop()
        pool.shutdown(cancel_futures=True)


def _submit(
    pool: "ThreadPoolExecutor", work: Callable[[Item], Result], item: Item
) -> "Future[Result]":
    try:
        return pool.submit(work, item)
    except RuntimeError as error:
        raise WorkerError(
            f"a thread can't be started: {error}",
            hint="is memory short, or are there too many threads? one job needs none",
        ) from None


def _taken(pending: "deque[tuple[Item, Future[Result]]]") -> tuple[Item, Result]:
    """Take the first item; nothing then keeps its result but the caller."""
    item, future = pending.popleft()
    return item, future.result()
