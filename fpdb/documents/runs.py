"""Runs that add the kept records of a delivery to a database, in one step at their end."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import islice

from fpdb.documents import layout
from fpdb.documents.catalog import SLICE, Catalog, View
from fpdb.documents.writer import Writer, without_collector
from fpdb.models import Key
from fpdb.storage import Environment
from fpdb.storage.block import Block
from fpdb.storage.format import Stored, StoredRun
from fpdb.storage.lock import sole_run
from fpdb.tables import Index

Find = Callable[[Sequence[Key]], dict[Key, Stored | None]]
# Keys of documents that are removed, and new documents, which may take them.
Addition = tuple[Iterable[Key], Iterable[Block]]


@dataclass(frozen=True)
class Runs:
    """The runs that a database knows, and their two steps."""

    environment: Environment
    index: Index
    catalog: Catalog
    timeout: float

    def alone(self) -> AbstractContextManager[None]:
        """Be the only run on this database, for a block; else raise LockTimeoutError."""
        return sole_run(self.environment.path)

    def known(self) -> list[StoredRun]:
        """Return the runs that added documents, or are about to."""
        with self.environment.read() as txn:
            return list(layout.read_runs(txn))

    def stored(self, keys: Sequence[Key]) -> dict[Key, Stored | None]:
        """Find documents by their keys."""
        with self.environment.read() as txn:
            return self.catalog.find_many(txn, keys)

    def begin(self, run: StoredRun) -> None:
        """Store that a run is about to move its outputs to their places."""
        with self.environment.write(self.timeout) as txn:
            layout.write_runs(txn, [run])

    def next_id(self) -> int:
        """Return the id that the next new document gets."""
        with self.environment.read() as txn:
            return View(txn, self.index, self.catalog).counters.next_id

    def finish(
        self,
        run: StoredRun,
        since: int,
        choose: Callable[[Iterable[list[Stored]], Find], Addition],
    ) -> int:
        """Add new documents and store that their run is finished, in one transaction.

        They are chosen within it, given the documents that others have added `since` an id, and a
        function that finds documents by their keys. One whose key is taken gets another key. Return
        how many are added. A run that adds nothing is forgotten: it could as well be run again.
        """
        with without_collector(), self.environment.write(self.timeout) as txn:
            end = View(txn, self.index, self.catalog).counters.next_id
            later = filter(None, (self.catalog.record(txn, number) for number in range(since, end)))
            find = partial(self.catalog.find_many, txn)
            replaced, blocks = choose(iter(lambda: list(islice(later, SLICE)), []), find)
            writer = Writer(txn, self.index, self.catalog)
            writer.remove(replaced)
            added = writer.add_new(blocks)
            layout.forget_runs(txn, [run.content])
            if added:
                layout.write_runs(txn, [run._replace(finished=True, command="")])
        return added

    def add(self, runs: Iterable[StoredRun]) -> None:
        """Store the runs of another database, whose documents this one has."""
        with self.environment.write(self.timeout) as txn:
            layout.add_runs(txn, runs)

    def abandon(self) -> None:
        """Forget the runs that aren't finished."""
        with self.environment.write(self.timeout) as txn:
            runs = layout.read_runs(txn)
            layout.forget_runs(txn, [run.content for run in runs if not run.finished])
