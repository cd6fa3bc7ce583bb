"""Store documents of an event loop in a thread; those that wait share a transaction."""

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Generic, NamedTuple, TypeVar

import fpdb

Answer = TypeVar("Answer")
Result = TypeVar("Result")
# What became of a document, or why it can't be stored.
Outcome = fpdb.Added | fpdb.FpdbError

# The most documents, and about the most characters, that are stored together.
_DOCUMENTS = 1000
_CHARACTERS = 1 << 23
# A transaction waits for others to join it this share of the time of the last, at most so long.
_PATIENCE, _MOST_SECONDS = 0.5, 0.02


class _Waiting(NamedTuple, Generic[Answer]):
    documents: Sequence[fpdb.Document]
    answers: "asyncio.Future[list[Answer]]"
    latest: float


class Batcher(Generic[Answer]):
    """Passes the documents of an event loop to a function in a thread, as many as wait together.

    While a transaction waits for the disk, further documents are queued, and the next transaction
    stores all of them. A transaction costs as much as some dozens of documents; so the next one
    waits for those who were answered last to call again, but not for long. A caller that is alone
    isn't delayed. An InputError or a DeadlineError reaches only those callers whose own documents
    raise it.
    """

    def __init__(self, store: Callable[[Sequence[fpdb.Document]], Sequence[Answer]]) -> None:
        """Start the thread; `store` returns an answer for each document, in their order."""
        self._closed = False
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_Waiting[Answer] | None] = SimpleQueue()
        self._ended = self._loop.create_future()
        # How many documents have no answer yet.
        self.waiting = 0
        # How many calls the next transaction waits for, and until when.
        self._expected, self._until = 1, 0.0
        self._enough = threading.Event()
        # A program may exit without waiting: nothing is answered before it is stored.
        threading.Thread(target=self._run, name="fpdb-batcher", daemon=True).start()

    def add(
        self, documents: Sequence[fpdb.Document], latest: float = math.inf
    ) -> "asyncio.Future[list[Answer]]":
        """Queue documents; the result is set once these and all before are stored durably.

        It is a DeadlineError if that isn't possible until `latest`, by `time.monotonic()`.
        """
        if self._closed:
            raise fpdb.ClosedError(
                "the batcher was closed", hint="close it after the last document"
            )
        answers: asyncio.Future[list[Answer]] = self._loop.create_future()
        self.waiting += len(documents)
        self._queue.put(_Waiting(documents, answers, latest))
        if self._queue.qsize() >= self._expected:
            self._enough.set()
        return answers

    async def close(self) -> None:
        """Wait until everything in the queue is stored."""
        self._closed = True
        self._queue.put(None)
        await asyncio.shield(self._ended)

    def _run(self) -> None:
        running = True
        while running:
            batch: list[_Waiting[Answer]] = []
            count = size = 0
            item = self._queue.get()
            self._gather()
            with contextlib.suppress(Empty):
                while item is not None:
                    batch.append(item)
                    count += len(item.documents)
                    size += sum(len(document.text or "") for document in item.documents)
                    if count >= _DOCUMENTS or size >= _CHARACTERS:
                        break
                    item = self._queue.get_nowait()
            running = item is not None
            began = time.perf_counter()
            # What nobody waits for any more is left out.
            wanted = [item for item in batch if not item.answers.cancelled()]
            answers = self._answers(wanted)
            now = time.perf_counter()
            self._until = now + min((now - began) * _PATIENCE, _MOST_SECONDS)
            # Before the answers, after which the same callers may be in the queue again.
            self._expected = len(batch) + self._queue.qsize()
            with contextlib.suppress(RuntimeError):  # the loop has ended, and so has who waited
                self._loop.call_soon_threadsafe(self._deliver, wanted, answers, count)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ended.set_result, None)

    def _answers(self, batch: list[_Waiting[Answer]]) -> list[list[Answer] | Exception]:
        """Store what calls have together, or in halves as long as some of it can't be used."""
        documents = [document for item in batch for document in item.documents]
        try:
            with fpdb.deadline(min((item.latest for item in batch), default=math.inf)):
                answers = iter(self._store(documents) if documents else ())
        except Exception as error:
            if len(batch) == 1 or not isinstance(error, (fpdb.InputError, fpdb.DeadlineError)):
                return [error] * len(batch)
            middle = len(batch) // 2
            return self._answers(batch[:middle]) + self._answers(batch[middle:])
        return [list(islice(answers, len(item.documents))) for item in batch]

    def _gather(self) -> None:
        """Wait until as many calls are queued as were answered last or came meanwhile."""
        self._expected -= 1  # the one that is taken already
        self._enough.clear()
        left = self._until - time.perf_counter()
        if left > 0 and self._queue.qsize() < self._expected:
            self._enough.wait(left)

    def _deliver(
        self, batch: list[_Waiting[Answer]], answers: list[list[Answer] | Exception], count: int
    ) -> None:
        """Set the results, in the event loop; of its documents, `count` wait no longer."""
        self.waiting -= count
        for item, result in zip(batch, answers, strict=True):
            future = item.answers
            if future.cancelled():
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)


def again_if_moved(database: fpdb.Database, work: Callable[[], Result]) -> Result:
    """Return the result of some work; once, if the database was replaced, reopen it and repeat."""
    try:
        return work()
    except fpdb.MovedError:
        database.reopen()
        return work()


def added_to(
    database: fpdb.Database,
    similarity: float | None = None,
    texts: fpdb.models.TextsByKey | None = None,
) -> Callable[[Sequence[fpdb.Document]], list[Outcome]]:
    """Return a function that adds documents to a database, except near-duplicates.

    A document that can't be used gets an error in place of an outcome, and all do if the database
    fails. One that was replaced by a copy, as `compact` does, is opened again. The similarity and
    the texts are those of `Database.add`.
    """

    def add(documents: Sequence[fpdb.Document]) -> list[Outcome]:
        prepared, refused = database.preparer.sift(documents, keep_texts=texts is not None)
        outcomes: list[Outcome] = []
        try:
            add_all = partial(
                database.add_prepared,
                prepared,
                skip_duplicates=True,
                similarity=similarity,
                texts=texts,
            )
            outcomes += again_if_moved(database, add_all)
        except fpdb.DeadlineError:
            raise
        except fpdb.FpdbError as error:
            outcomes += [error] * len(prepared)
        for place, reason in refused:  # in the order of their places
            outcomes.insert(place, reason)
        return outcomes

    return add
