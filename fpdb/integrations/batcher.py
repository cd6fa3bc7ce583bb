"""Add documents of an event loop in a thread; those that wait share a transaction."""

import contextlib
import threading
from concurrent.futures import Future
from queue import Empty, SimpleQueue

import fpdb

_Waiting = tuple[fpdb.Document, Future[fpdb.Added]]

# The most documents that are added in one transaction.
_DOCUMENTS = 256


class Batcher:
    """Adds documents in a thread, except near-duplicates of stored ones.

    While a transaction waits for the disk, further documents are queued, and the next transaction
    adds all of them. So a single document isn't delayed, and many take few transactions.
    """

    def __init__(self, database: fpdb.Database, similarity: float | None = None) -> None:
        self._database = database
        self._similarity = similarity
        self._waiting: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._closed: Future[None] = Future()
        # A program may exit without waiting: no result was set before its transaction committed.
        threading.Thread(target=self._run, name="fpdb-batcher", daemon=True).start()

    def add(self, document: fpdb.Document) -> Future[fpdb.Added]:
        """Queue a document; the result is set once it is stored durably."""
        result: Future[fpdb.Added] = Future()
        self._waiting.put((document, result))
        return result

    def close(self) -> Future[None]:
        """Close the database after everything in the queue is added."""
        self._waiting.put(None)
        return self._closed

    def _run(self) -> None:
        running = True
        while running:
            batch = [self._waiting.get()]
            with contextlib.suppress(Empty):
                while batch[-1] is not None and len(batch) < _DOCUMENTS:
                    batch.append(self._waiting.get_nowait())
            running = batch[-1] is not None
            # A future that was cancelled meanwhile is left out.
            self._add([item for item in batch if item and item[1].set_running_or_notify_cancel()])
        self._database.close()
        self._closed.set_result(None)

    def _add(self, batch: list[_Waiting]) -> None:
        left = dict(enumerate(batch))
        try:
            prepared, refused = self._database.preparer.sift([document for document, _ in batch])
            for place, error in refused:
                left.pop(place)[1].set_exception(error)
            added = self._database.add_prepared(
                prepared, skip_duplicates=True, similarity=self._similarity
            )
            for place, each in zip(list(left), added, strict=True):
                left.pop(place)[1].set_result(each)
        except Exception as error:
            for _, result in left.values():
                result.set_exception(error)
