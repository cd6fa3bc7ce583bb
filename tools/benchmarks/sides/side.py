"""The rows of the store's bench: a side runs them in order and prints each as a line of JSON.

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
TOO_LONG = 120  # a row that would take N seconds isn't begun
SLOW = 10  # a row that took N seconds isn't repeated
ROUNDS = 3


class Side:
    """One package. A row in `cannot` isn't run; what it has no method for isn't asked of it."""

    version = "?"
    cannot = frozenset()
    distinct = False  # its self-join drops copies, so it gets none
    cores = frozenset()  # the rows that it runs with all cores too
    ways = ("one",)  # the methods that answer a single query

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
    """Runs and prints the rows of one side."""

    def __init__(self, side, work, output):
        self.side, self.work, self.output = side, work, output
        self.answers = work / f"answers of {side.folder.name}"
        self.all_cores = os.sched_getaffinity(0)
        self.seconds = {}

    def print(self, **fields):
        print(json.dumps(fields), file=self.output, flush=True)

    def run(self, row, measure, *, rounds=1, estimate=0.0):
        """Run a row with one core, and with all if the package uses them; print its seconds."""
        for cores in ("one", "all"):
            if row in self.side.cannot or (cores == "all" and row not in self.side.cores):
                continue
            where = {"row": row, "cores": cores}
            if estimate > TOO_LONG:
                self.print(**where, stopped=f"not begun: it would take {estimate / 60:,.0f} min")
                continue
            self.print(**where)
            pin(self.all_cores if cores == "all" else {min(self.all_cores)})
            self.side.threads(len(self.all_cores) if cores == "all" else 1)
            values = []
            try:
                while len(values) < rounds and sum(values) < SLOW:
                    values.append(measure())
            except MemoryError:
                self.print(**where, stopped="more memory than is left")
            except Exception as error:  # a row that fails is reported, the others go on
                self.print(**where, stopped=f"{type(error).__name__}: {error}")
            else:
                self.print(**where, values=values)
                self.seconds[row] = min(values)

    # The phases, each in a process of its own

    def build(self):
        side, stored, queries = self.side, self.array("stored"), self.array("queries")
        data = side.prepared_data(stored)
        self.run("load", lambda: timed(side.load, data)[0])

        if "load" not in side.cannot:
            self.check()
            self.singles(queries[:SINGLES])
            for row, count in BATCHES.items():
                arguments = side.arguments(queries[:count])
                before = self.seconds.get("batch 1k", 0) * count / BATCHES["batch 1k"]
                self.run(
                    row, lambda own=arguments: timed(side.many, own)[0],
                    rounds=ROUNDS, estimate=before,
                )  # fmt: skip
            self.run("save", lambda: timed(side.save)[0])
        each = self.seconds.get("batch 100k", 0) / BATCHES["batch 100k"]
        own_join = type(side).join is not Side.join
        self.run("join", self.join, estimate=0 if own_join else each * len(stored))

    def array(self, name):
        return np.load(self.work / f"{name}.npy")

    def check(self):
        side, queries = self.side, self.array("check")
        answers = {"many": side.hits(side.many(side.arguments(queries)))}
        for way in side.ways:
            ask = getattr(side, way)
            numbers = queries[:CHECKED_ALONE].tolist()
            answers[way] = spread([side.found(ask(side.argument(number))) for number in numbers])
        for name, rows in answers.items():
            np.save(self.answers / f"by-{name}.npy", np.column_stack(rows).reshape(-1, 2))

    def singles(self, queries):
        arguments = [self.side.argument(number) for number in queries.tolist()]
        pin({min(self.all_cores)})
        self.side.threads(1)
        for way in self.side.ways:
            ask, row = getattr(self.side, way), "single" if way == "one" else way
            for _ in range(ROUNDS):
                taken = [timed(ask, argument)[0] for argument in arguments]
                for name, share in (("p50", 0.5), ("p99", 0.99)):
                    value = float(np.quantile(taken, share))
                    self.print(row=f"{row} {name}", cores="one", values=[value])

    def join(self):
        fingerprints = self.array("distinct" if self.side.distinct else "stored")
        seconds, count = timed(self.side.join, self.side.everything(fingerprints))
        (self.answers / "pairs.txt").write_text(str(count))
        return seconds

    def reopen(self, row="reopen", warm=WARM):
        """Open what was saved and answer a query; then print the memory after N more."""
        queries = self.array("queries")[: warm + 1].tolist()
        query = self.side.argument(queries[0])

        def first_answer():
            self.side.open()
            self.side.one(query)

        self.run(row, lambda: timed(first_answer)[0])
        if warm:
            for number in queries:
                self.side.one(self.side.argument(number))
            gc.collect()
            self.print(row="memory", cores="one", values=[memory()])

    def cold(self):
        self.reopen("reopen cold", warm=0)

    def adds(self):
        self.side.open()
        first = len(self.array("stored"))
        generator = np.random.default_rng(first)
        for start in range(first, first + ADDS * SIZE, SIZE):
            ids = np.arange(start, start + SIZE, dtype=np.uint64)
            array = generator.integers(0, 1 << BITS, SIZE, dtype=np.uint64)
            seconds, _ = timed(self.side.add, ids, array)
            self.print(row="adds", cores="one", values=[seconds])


def pin(cores):
    """Keep the whole process on some cores: threads that run already don't follow the first."""
    for task in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(task), cores)


def memory():
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return sum(int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssFile"))


def timed(function, *arguments):
    start = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - start, result


def main(kind):
    """Run a phase of one side: `with_NAME.py PHASE WORK FOLDER LIMIT OPTIONS`."""
    phase, work, folder, limit, options = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_DATA, (int(limit), int(limit)))
    # A package that prints must not be taken for an answer.
    output, sys.stdout = sys.stdout, sys.stderr
    side = kind(Path(folder), json.loads(options))
    rows = Rows(side, Path(work), output)
    rows.print(version=side.version)
    getattr(rows, phase)()
    side.close()
