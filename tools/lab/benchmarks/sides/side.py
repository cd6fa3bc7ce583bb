"""The rows of the store's bench: a side runs those of a phase, and prints them as one JSON object.

A side runs as a process of its own, in an environment of its own that holds its package, numpy
and nothing else; so its memory and its cores can be counted. This file is all that sides share.
"""

import gc
import json
import os
import resource
import sys
import time
from pathlib import Path

import numpy as np

K, BITS = 3, 64
CHUNK = 100_000
SINGLES, CHECKED_ALONE = 2_000, 200
BATCHES = {"batch 1k": 1_000, "batch 100k": 100_000}
WARM = 1_000
ADDS, SIZE = 10, 1_000  # batches of adds, and the documents of each
SETTLED = 20  # of N stored documents, one is added before that
TOO_LONG = 120  # a row that would take N seconds isn't begun
SLOW = 10  # a row that took N seconds isn't repeated
ROUNDS = 3


class Side:
    """One package. A row in `cannot` isn't run; what it has no method for isn't asked of it."""

    version = "?"
    cannot = frozenset()
    distinct = False  # its self-join drops copies, so it gets none
    cores = frozenset()  # the rows that it runs with all cores too

    def __init__(self, folder, options):
        self.folder = folder
        self.options = options

    def prepared_data(self, fingerprints):
        """Bring the fingerprints into the form that `load` takes."""
        return fingerprints

    def argument(self, fingerprint):
        """Bring a fingerprint into the form that `one` takes."""
        return fingerprint

    def arguments(self, fingerprints):
        return [self.argument(number) for number in fingerprints.tolist()]

    def many(self, arguments):
        """Answer many queries; a package that takes one at a time does it in a loop."""
        return [self.one(argument) for argument in arguments]

    def found(self, result):
        """Return the ids in the result of one query."""
        return result

    def hits(self, result):
        """Return the places of the queries, and the ids, in the result of many queries."""
        return spread([self.found(each) for each in result])

    def everything(self, fingerprints):
        """Bring the fingerprints into the form that `join` takes."""
        return fingerprints

    def join(self, data):
        """Find all pairs of documents; return their number.

        A package without a self-join answers a query for each document, in chunks; so it finds
        each pair twice, and each document itself.
        """
        count = 0
        for begin in range(0, len(data), CHUNK):
            places, ids = self.hits(self.many(self.arguments(data[begin : begin + CHUNK])))
            count += int((places + begin < ids).sum())
        return count

    def threads(self, count):
        """Set the number of threads, if the package has threads."""

    def save(self):
        """Bring to disk what isn't there yet."""

    def close(self):
        """Close files."""


class ByteSide(Side):
    """A package that takes fingerprints as rows of bytes."""

    def prepared_data(self, fingerprints):
        return fingerprints.astype(">u8").view(np.uint8).reshape(-1, 8)

    arguments = prepared_data

    def argument(self, fingerprint):
        return self.prepared_data(np.array([fingerprint], np.uint64))


def spread(found):
    """Return a place and an id for each id of some lists."""
    places = np.repeat(np.arange(len(found)), [len(ids) for ids in found])
    return places, np.array([number for ids in found for number in ids], np.int64)


class Rows:
    """Runs the rows of one side; the phases are methods, each run in a process of its own."""

    def __init__(self, side, work):
        self.side, self.work, self.found = side, work, []
        self.answers = work / f"answers of {side.folder.name}"
        self.all_cores = os.sched_getaffinity(0)
        self.seconds = {}

    def add(self, row, cores="one", **fields):
        self.found.append({"row": row, "cores": cores, **fields})

    def run(self, row, function, *arguments, rounds=1, estimate=0.0):
        """Measure a row with one core, and with all if the package uses them."""
        for cores in ("one", "all"):
            if row in self.side.cannot or (cores == "all" and row not in self.side.cores):
                continue
            if estimate > TOO_LONG:
                self.add(row, cores, stopped=f"it would take {estimate / 60:,.0f} min")
                continue
            pin(self.all_cores if cores == "all" else {min(self.all_cores)})
            self.side.threads(len(self.all_cores) if cores == "all" else 1)
            values = []
            try:
                while len(values) < rounds and sum(values) < SLOW:
                    values.append(timed(function, *arguments))
            except Exception as error:  # a row that fails is reported, the others go on
                self.add(row, cores, stopped=f"{type(error).__name__}: {error}")
            else:
                self.add(row, cores, values=values)
                self.seconds[row] = min(values)

    def build(self):
        side, stored, queries = self.side, self.array("stored"), self.array("queries")
        self.run("load", side.load, side.prepared_data(stored))
        if "load" not in side.cannot:
            self.check()
            self.singles(queries[:SINGLES])
            for row, count in BATCHES.items():
                before = self.seconds.get("batch 1k", 0) * count / BATCHES["batch 1k"]
                arguments = side.arguments(queries[:count])
                self.run(row, side.many, arguments, rounds=ROUNDS, estimate=before)
            self.run("save", side.save)
        each = self.seconds.get("batch 100k", 0) / BATCHES["batch 100k"]
        own_join = type(side).join is not Side.join
        data = side.everything(self.array("distinct") if side.distinct else stored)
        self.run("join", self.join, data, estimate=0 if own_join else each * len(stored))

    def array(self, name):
        return np.load(self.work / f"{name}.npy")

    def check(self):
        side, queries = self.side, self.array("check")
        numbers = queries[:CHECKED_ALONE].tolist()
        answers = {
            "many": side.hits(side.many(side.arguments(queries))),
            "one": spread([side.found(side.one(side.argument(number))) for number in numbers]),
        }
        for name, rows in answers.items():
            np.save(self.answers / f"by-{name}.npy", np.column_stack(rows).reshape(-1, 2))

    def singles(self, queries):
        arguments = [self.side.argument(number) for number in queries.tolist()]
        pin({min(self.all_cores)})
        self.side.threads(1)
        for _ in range(ROUNDS):
            taken = [timed(self.side.one, argument) for argument in arguments]
            for name, share in (("p50", 0.5), ("p99", 0.99)):
                self.add(f"single {name}", values=[float(np.quantile(taken, share))])

    def join(self, data):
        (self.answers / "pairs.txt").write_text(str(self.side.join(data)))

    def reopen(self):
        """Open what was saved and answer a query; then count the memory after N more."""
        queries = self.array("queries")[: WARM + 1].tolist()
        query = self.side.argument(queries[0])
        self.run("reopen", lambda: (self.side.open(), self.side.one(query)))
        for number in queries:
            self.side.one(self.side.argument(number))
        gc.collect()
        self.add("memory", values=[memory()])

    def adds(self):
        self.side.open()
        first = len(self.array("stored"))
        generator = np.random.default_rng(first)
        # An index that merges what is new later on shall have begun to.
        settled = first // SETTLED // SIZE
        for batch in range(settled + ADDS):
            ids = np.arange(first + batch * SIZE, first + (batch + 1) * SIZE, dtype=np.uint64)
            array = generator.integers(0, 1 << BITS, SIZE, dtype=np.uint64)
            before = written()
            seconds = timed(self.side.add, ids, array)
            if batch >= settled:
                self.add("adds", values=[seconds])
                self.add("written", values=[written() - before])


def pin(cores):
    """Keep the whole process on some cores: threads that run already don't follow the first."""
    for task in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(task), cores)


def memory():
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return sum(int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssFile"))


def written():
    """Return how many bytes this process has written to files."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


def timed(function, *arguments):
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def main(kind):
    """Run a phase of one side: `with_NAME.py PHASE WORK FOLDER LIMIT OPTIONS`."""
    phase, work, folder, limit, options = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_DATA, (int(limit), int(limit)))
    side = kind(Path(folder), json.loads(options))
    rows = Rows(side, Path(work))
    getattr(rows, phase)()
    side.close()
    print(json.dumps({"version": side.version, "rows": rows.found}))
