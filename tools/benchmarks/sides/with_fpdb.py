"""fpdb as a side of the bench."""

import shutil
import time
from array import array as compact
from contextlib import ExitStack
from importlib.metadata import version

import numpy as np
from serve import Side, serve, timed

import fpdb


class Fpdb(Side):
    """A database of bits with integer keys; the key is the id."""

    version = f"fpdb {version('fpdb-store')}"
    database = None
    snapshot = None

    def __init__(self, folder, options):
        super().__init__(folder, options)
        self.held = ExitStack()

    @property
    def path(self):
        return self.folder / "bench.fpdb"

    def load(self, data):
        with fpdb.build(
            self.path, keys="integer", similarity=None, k=3, capacity=max(len(data), 1)
        ) as database:
            database.add_fingerprints(np.arange(len(data), dtype=np.uint64), data)
        self.database = fpdb.open(self.path)

    def one(self, argument):
        return self.database.query_fingerprint(argument)

    def found(self, result):
        return [match.id for match in result]

    def prepared(self, argument):
        return self.snapshot.query_fingerprint(argument)

    def arguments(self, fingerprints):
        return fingerprints

    def many(self, arguments):
        return self.database.query_fingerprints(arguments)

    def hits(self, result):
        return result.queries, result.ids.astype(np.int64)

    def join(self, _data):
        if not self.keeping:
            return sum(1 for _ in self.database.pairs()), None
        first, second = compact("Q"), compact("Q")
        for pair in self.database.pairs():
            first.append(pair[0])
            second.append(pair[1])
        return len(first), (first, second)

    def values(self, result, fingerprints):
        return tuple(fingerprints[np.frombuffer(ids, np.uint64)] for ids in result)

    def open(self):
        self.database = fpdb.open(self.path)

    def add(self, ids, fingerprints):
        self.database.add_fingerprints(ids, fingerprints)

    def close(self):
        if self.database is not None:
            self.database.close()

    def extra(self, what, order):
        return getattr(self, what)(order)

    def way(self, _order):
        """Take a snapshot, which the prepared queries ask."""
        self.snapshot = self.held.enter_context(self.database.snapshot())
        return {}

    def leave(self, _order):
        """Close the snapshot, which would keep pages of the file from being reused."""
        self.held.close()
        return {}

    def used(self, _order):
        stats = self.database.stats()
        return {"used": stats.bytes_used / stats.documents, "file": stats.bytes / stats.documents}

    def random_inserts(self, order):
        """Fill a database by batches of random fingerprints, then tell the bytes a document."""
        documents, size = order["documents"], order["size"]
        generator = np.random.default_rng(3)
        with fpdb.create(
            self.path, keys="integer", similarity=None, k=3, capacity=documents
        ) as self.database:
            start = time.perf_counter()
            for first in range(0, documents, size):
                array = generator.integers(0, 1 << 64, size, dtype=np.uint64)
                self.add(np.arange(first, first + size, dtype=np.uint64), array)
            seconds = time.perf_counter() - start
            return {"seconds": seconds, **self.used(order)}

    def hot_bucket(self, order):
        """Put the same fingerprint into a database again and again, beside random ones.

        The other database has as many documents, all random; both take the same batches.
        """
        half, rounds = order["copies"], order["rounds"]
        generator = np.random.default_rng(5)
        stored = generator.integers(0, 1 << 64, 2 * half, dtype=np.uint64)
        hot = int(stored[0])
        databases = {}
        for name in ("uniform", "hot"):
            if name == "hot":
                stored[:half] = hot
            path = self.folder / f"{name}.fpdb"
            databases[name] = fpdb.create(
                path, keys="integer", similarity=None, k=3, capacity=2 * half
            )
            databases[name].add_fingerprints(np.arange(2 * half, dtype=np.uint64), stored)
        batches = {
            "random": lambda: generator.integers(0, 1 << 64, 1_000, dtype=np.uint64),
            "copies": lambda: np.full(1_000, hot, np.uint64),
        }
        taken = {"uniform random": [], "hot random": [], "hot copies": []}
        first = 2 * half
        for _ in range(10 * rounds):
            for row, seconds in taken.items():
                name, kind = row.split()
                array = batches[kind]()
                ids = np.arange(first, first + len(array), dtype=np.uint64)
                first += len(array)
                seconds.append(timed(databases[name].add_fingerprints, ids, array)[0])
        database = databases["hot"]
        result = {"adds": taken, "query": []}
        for _ in range(rounds):
            seconds, matches = timed(database.query_fingerprint, hot)
            result["query"].append(seconds)
        result["matches"], result["complete"] = len(matches), matches.complete
        for name, each in databases.items():
            each.close()
            shutil.rmtree(self.folder / f"{name}.fpdb")
        return result


if __name__ == "__main__":
    serve(Fpdb)
