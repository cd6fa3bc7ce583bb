"""Add documents of an event loop in a thread; those that wait share a transaction."""

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from queue import Empty, SimpleQueue

import fpdb

_Waiting = tuple[fpdb.Document, Future[fpdb.Added]]

# The most documents and characters that are added in one transaction.
_DOCUMENTS = 256
_CHARACTERS = 1 << 20


class Batcher:
    """Adds documents in a thread, except near-duplicates of stored ones.

    While a transaction waits for the disk, further documents are queued, and the next transaction
    adds all of them. So a single document isn't delayed, and many take few transactions.
    """

    def __init__(self, database: fpdb.Database, min_jaccard: float | None = None) -> None:
        self._database = database
        self._min_jaccard = min_jaccard
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
            batch, running = self._take()
            if batch:
                self._add(batch)
        self._database.close()
        self._closed.set_result(None)

    def _take(self) -> tuple[list[_Waiting], bool]:
        """Wait for a document; return all that are queued, and False at the end of the queue."""
        batch: list[_Waiting] = []
        room = _CHARACTERS
        item = self._waiting.get()
        with contextlib.suppress(Empty):
            while item is not None:
                document, result = item
                if result.set_running_or_notify_cancel():
                    batch.append(item)
                    room -= len(document.text or "")
                if len(batch) == _DOCUMENTS or room < 0:
                    return batch, True
                item = self._waiting.get_nowait()
        return batch, item is not None

    def _add(self, batch: list[_Waiting]) -> None:
        done: set[int] = set()
        try:
            for place, added in self._added([document for document, _ in batch]):
                done.add(place)
                result = batch[place][1]
                if isinstance(added, fpdb.InputError):
                    result.set_exception(added)
                else:
                    result.set_result(added)
        except Exception as error:
            for place, (_, result) in enumerate(batch):
                if place not in done:
                    result.set_exception(error)

    def _added(
        self, documents: list[fpdb.Document]
    ) -> Iterator[tuple[int, fpdb.Added | fpdb.InputError]]:
        prepared, refused = self._database.preparer.sift(documents)
        yield from refused
        bad = {place for place, _ in refused}
        good = [place for place in range(len(documents)) if place not in bad]
        added = self._database.add_prepared(
            prepared, skip_duplicates=True, min_jaccard=self._min_jaccard
        )
        yield from zip(good, added, strict=True)
