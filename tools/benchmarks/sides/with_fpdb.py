"""A database of bits with integer keys; the key is the id."""

import shutil
from array import array
from contextlib import ExitStack
from importlib.metadata import version

import numpy as np
from side import Side, main

import fpdb


class Fpdb(Side):
    version = f"fpdb {version('fpdb-store')}"
    cores = frozenset({"load", "batch 1k", "batch 100k", "join"})
    ways = ("one", "prepared")
    database = snapshot = None

    def __init__(self, folder, options):
        super().__init__(folder, options)
        self.held = ExitStack()
        self.loaded = (
            fpdb.build,
            fpdb.open,
        )  # names load their modules, as other packages do at once

    @property
    def path(self):
        return self.folder / "bench.fpdb"

    def load(self, data):
        self.close()
        shutil.rmtree(self.path, ignore_errors=True)
        with fpdb.build(
            self.path, keys="integer", similarity=None, k=3, capacity=len(data)
        ) as database:
            database.add_fingerprints(np.arange(len(data), dtype=np.uint64), data)
        self.open()

    def open(self):
        self.database = fpdb.open(self.path)

    def one(self, argument):
        return self.database.query_fingerprint(argument)

    def prepared(self, argument):
        if self.snapshot is None:
            self.snapshot = self.held.enter_context(self.database.snapshot())
        return self.snapshot.query_fingerprint(argument)

    def found(self, result):
        return [match.id for match in result]

    def arguments(self, fingerprints):
        return fingerprints

    def many(self, arguments):
        return self.database.query_fingerprints(arguments)

    def hits(self, result):
        return result.queries, result.ids.astype(np.int64)

    def join(self, _data):
        first, second = array("Q"), array("Q")
        for pair in self.database.pairs():
            first.append(pair[0])
            second.append(pair[1])
        return len(first)

    def add(self, ids, fingerprints):
        self.database.add_fingerprints(ids, fingerprints)

    def close(self):
        self.held.close()
        if self.database is not None:
            self.database.close()
        self.database = self.snapshot = None


if __name__ == "__main__":
    main(Fpdb)
