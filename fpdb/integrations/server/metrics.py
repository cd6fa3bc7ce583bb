"""What Prometheus reads: requests, documents, transactions, and the size of the database."""

from collections import Counter as Counts
from collections.abc import Sequence
from functools import cache, partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

import fpdb
from fpdb.integrations.batcher import Outcome

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
_DOCUMENTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class Metrics:
    """Counts what a server does."""

    def __init__(self, database: fpdb.Database) -> None:
        self._registry = registry = CollectorRegistry()
        count = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        times = partial(Histogram, buckets=_SECONDS, registry=registry)
        sizes = partial(Histogram, buckets=_DOCUMENTS, registry=registry)
        requests = count("fpdb_requests", "Requests, by what they called.", ["call", "status"])
        seconds = times("fpdb_request_seconds", "Time of a request.", ["call"])
        checked = count("fpdb_checked_documents", "Documents, by the outcome.", ["status"])
        # Looking a label up takes longer than counting.
        self._requests = cache(requests.labels)
        self._seconds = cache(seconds.labels)
        self._checked = cache(checked.labels)
        self.in_flight = gauge("fpdb_requests_in_flight", "Requests without a complete answer.")
        self.waiting = gauge("fpdb_waiting_documents", "Documents that wait to be stored.")
        self._incomplete = count("fpdb_incomplete_answers", "Searches that a budget ended.")
        self._documents = sizes("fpdb_transaction_documents", "Documents of a transaction.")
        self._transactions = times("fpdb_transaction_seconds", "Time of a transaction.")
        gauge("fpdb_documents", "Stored documents.").set_function(database.__len__)
        size = gauge("fpdb_file_bytes", "Size of the file.")
        size.set_function(lambda: (database.path / "data.mdb").stat().st_size)

    def written(self) -> bytes:
        """Return everything in the format of Prometheus."""
        return generate_latest(self._registry)

    def count_request(self, call: str, status: int, seconds: float) -> None:
        """Count a request that has its answer."""
        self._requests(call, status).inc()
        self._seconds(call).observe(seconds)

    def count_transaction(self, found: Sequence[Outcome], seconds: float) -> None:
        """Count what became of the documents of a transaction."""
        self._transactions.observe(seconds)
        self._documents.observe(len(found))
        added = [each for each in found if isinstance(each, fpdb.Added)]
        statuses = Counts(each.status for each in added)
        statuses["error"] = len(found) - len(added)
        for status, number in statuses.items():
            self._checked(status).inc(number)
        self._incomplete.inc(sum(not each.matches.complete for each in added))
