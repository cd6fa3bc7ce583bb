"""A database of bits with integer keys; the key is the id."""

import shutil
from array import array
from importlib.metadata import version

import numpy as np
from side import Side, main

import fpdb


class Fpdb(Side):
    version = f"fpdb {version('fpdb-store')}"
    cores = frozenset({"load", "batch 1k", "batch 100k", "join"})
    # Names load their modules, as other packages do at once.
    loaded = fpdb.build, fpdb.open
    database = None

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
        if self.database is not None:
            self.database.close()
        self.database = None


if __name__ == "__main__":
    main(Fpdb)
