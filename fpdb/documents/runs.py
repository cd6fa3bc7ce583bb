"""Runs that add what they keep of a delivery to a database, in one step at their end."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from fpdb.documents import layout
from fpdb.documents.catalog import Catalog
from fpdb.documents.new_documents import NewDocuments
from fpdb.documents.writer import Writer, without_collector
from fpdb.storage import Environment
from fpdb.storage.format import StoredRun
from fpdb.storage.lock import sole_run
from fpdb.tables import Index


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

    def begin(self, run: StoredRun) -> None:
        """Store that a run is about to move its outputs to their places."""
        with self.environment.write(self.timeout) as txn:
            layout.write_runs(txn, [run])

    def finish(self, run: StoredRun, parts: Iterable[NewDocuments]) -> int:
        """Add new documents and store that their run is finished, in one transaction.

        Nothing is replaced: a document whose key is taken gets another one. Return how many there
        are. A run that adds nothing is forgotten: it could as well be run again.
        """
        with without_collector(), self.environment.write(self.timeout) as txn:
            added = Writer(txn, self.index, self.catalog).add_new(parts)
            layout.forget_runs(txn, [run.content])
            if added:
                layout.write_runs(txn, [run._replace(finished=True, command="")])
        return added

    def abandon(self) -> None:
        """Forget the runs that aren't finished."""
        with self.environment.write(self.timeout) as txn:
            runs = layout.read_runs(txn)
            layout.forget_runs(txn, [run.content for run in runs if not run.finished])
