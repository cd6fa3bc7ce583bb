"""A thread that adds documents for an event loop: those that wait share one transaction."""

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from queue import Empty, SimpleQueue

import fpdb

_Waiting = tuple[fpdb.Document, Future[fpdb.Added]]

# So many documents, or characters, are added in one transaction at most.
_MOST = 256
_CHARACTERS = 1 << 20


class Adder:
    """Adds documents in a thread, but none that resembles a stored one.

    While a transaction waits for the disk, further documents gather, and the next one takes them
    all. So a document that comes alone never waits for others, and many cost little each.
    """

    def __init__(self, database: fpdb.Database, min_jaccard: float | None = None) -> None:
        self._database = database
        self._min_jaccard = min_jaccard
        self._waiting: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._closed: Future[None] = Future()
        # A program that is ended must not wait for it: what isn't committed was never promised.
        threading.Thread(target=self._run, name="fpdb-adder", daemon=True).start()

    def add(self, document: fpdb.Document) -> Future[fpdb.Added]:
        """Have a document added; the result is there once it is durable."""
        result: Future[fpdb.Added] = Future()
        self._waiting.put((document, result))
        return result

    def close(self) -> Future[None]:
        """Have the database closed, behind everything that was to be added."""
        self._waiting.put(None)
        return self._closed

    def _run(self) -> None:
        going = True
        while going:
            batch, going = self._take()
            if batch:
                self._add(batch)
        self._database.close()
        self._closed.set_result(None)

    def _take(self) -> tuple[list[_Waiting], bool]:
        """Wait for a document, and take all that wait with it; say whether to go on."""
        batch: list[_Waiting] = []
        room = _CHARACTERS
        next_one = self._waiting.get()
        with contextlib.suppress(Empty):
            while next_one is not None:
                document, result = next_one
                if result.set_running_or_notify_cancel():
                    batch.append(next_one)
                    room -= len(document.text or "")
                if len(batch) == _MOST or room < 0:
                    return batch, True
                next_one = self._waiting.get_nowait()
        return batch, next_one is not None

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
