"""What Prometheus reads: requests, documents, transactions, and the size of the database."""

import time
from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

import fpdb
from fpdb.integrations.batcher import added_to

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
_DOCUMENTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class Metrics:
    """Counts what a server does."""

    def __init__(self, database: fpdb.Database) -> None:
        self._database = database
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "fpdb_requests", "Requests, by what they called.", ["call", "status"], registry=registry
        )
        self._seconds = Histogram(
            "fpdb_request_seconds",
            "Time of a request.",
            ["call"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.in_flight = Gauge(
            "fpdb_requests_in_flight", "Requests without a complete answer.", registry=registry
        )
        self.waiting = Gauge(
            "fpdb_waiting_documents", "Documents that wait to be stored.", registry=registry
        )
        self._checked = Counter(
            "fpdb_checked_documents", "Documents, by the outcome.", ["status"], registry=registry
        )
        self._incomplete = Counter(
            "fpdb_incomplete_answers", "Searches that a budget ended.", registry=registry
        )
        self._transactions = Histogram(
            "fpdb_transaction_documents",
            "Documents of a transaction.",
            buckets=_DOCUMENTS,
            registry=registry,
        )
        self._transaction_seconds = Histogram(
            "fpdb_transaction_seconds",
            "Time of a transaction.",
            buckets=_SECONDS,
            registry=registry,
        )
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield what is read when it is requested, as the registry calls it."""
        yield GaugeMetricFamily("fpdb_documents", "Stored documents.", len(self._database))
        size = (self._database.path / "data.mdb").stat().st_size
        yield GaugeMetricFamily("fpdb_file_bytes", "Size of the file.", size)

    def written(self) -> bytes:
        """Return everything in the format of Prometheus."""
        return generate_latest(self._registry)

    def count_request(self, call: str, status: int, seconds: float) -> None:
        """Count a request that has its answer."""
        self._requests.labels(call, str(status)).inc()
        self._seconds.labels(call).observe(seconds)

    def adding(
        self, similarity: float | None
    ) -> Callable[[Sequence[fpdb.Document]], list[fpdb.Added | fpdb.FpdbError]]:
        """Return a function that adds documents, and counts what became of them."""
        add = added_to(self._database, similarity)

        def counted(documents: Sequence[fpdb.Document]) -> list[fpdb.Added | fpdb.FpdbError]:
            started = time.perf_counter()
            found = add(documents)
            self._transaction_seconds.observe(time.perf_counter() - started)
            self._transactions.observe(len(documents))
            statuses: dict[str, int] = {}
            for each in found:
                status = each.status if isinstance(each, fpdb.Added) else "error"
                statuses[status] = statuses.get(status, 0) + 1
                if isinstance(each, fpdb.Added) and not each.matches.complete:
                    self._incomplete.inc()
            for status, number in statuses.items():
                self._checked.labels(status).inc(number)
            return found

        return counted
