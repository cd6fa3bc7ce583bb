"""What every side of the bench has in common: it reads orders, a line each, and answers in JSON.

A side runs as a process of its own, in an environment of its own that holds its package, numpy
and nothing else; so its memory and its cores can be counted. This file is all that they share.
"""

import gc
import json
import os
import resource
import sys
import time
from pathlib import Path

import numpy as np

K = 3
BITS = 64
CHUNK = 100_000


class Side:
    """One contender. What a subclass doesn't define, it can't do; the driver knows and won't ask.

    Each pair of methods parts what is timed from what is not: `argument` prepares for `one`,
    `found` reads its result; likewise `arguments`, `many` and `hits`.
    """

    version = "?"
    keeping = False  # whether `values` will be called after `join`

    def __init__(self, folder, options):
        self.folder = folder
        self.options = options

    def input(self, fingerprints):
        """Bring the fingerprints into the form that `load` takes."""
        return fingerprints

    def load(self, data):
        raise NotImplementedError

    def argument(self, fingerprint):
        return fingerprint

    def one(self, argument):
        """Ask for one query."""
        raise NotImplementedError

    def found(self, result):
        """Return the ids in the result of one query."""
        raise NotImplementedError

    def arguments(self, fingerprints):
        return [self.argument(number) for number in fingerprints.tolist()]

    def many(self, arguments):
        """Ask for many queries; those who take one at a time do it in a loop."""
        return [self.one(argument) for argument in arguments]

    def hits(self, result):
        """Return the places of the queries and the ids in the result of many queries."""
        found = [self.found(each) for each in result]
        places = np.repeat(np.arange(len(found)), [len(ids) for ids in found])
        return places, np.array([number for ids in found for number in ids], np.int64)

    def everything(self, fingerprints):
        """Bring the fingerprints into the form that `join` takes."""
        return fingerprints

    def join(self, data):
        """Find all pairs and give their number, beside what `values` reads.

        A side that has no self-join is asked for every document, in chunks; so it finds each
        pair twice, and each document itself.
        """
        pairs = []
        for begin in range(0, len(data), CHUNK):
            places, ids = self.hits(self.many(self.arguments(data[begin : begin + CHUNK])))
            places = places + begin
            once = places < ids
            pairs.append((places[once], ids[once]))
        return sum(len(first) for first, _ in pairs), pairs

    def values(self, result, fingerprints):
        """Return the fingerprints of all pairs as two arrays."""
        return tuple(fingerprints[np.concatenate(ids)] for ids in zip(*result, strict=True))

    def threads(self, count):
        """Set the number of threads, if the side has threads."""

    def save(self):
        """Bring to disk what isn't there yet."""

    def open(self):
        """Open what an earlier process saved."""
        raise NotImplementedError

    def add(self, ids, fingerprints):
        raise NotImplementedError

    def close(self):
        """Close files."""

    def extra(self, what, order):
        """Measure something that no other side is asked for."""
        raise NotImplementedError


def pin(cores):
    """Keep the whole process on some cores: threads that run already don't follow the first."""
    for task in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(task), cores)


def memory():
    """Return the resident bytes: the process's own, and those of files that it has mapped."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {name: int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssFile")}


def timed(function, *arguments):
    start = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - start, result


class Server:
    """Carries out orders."""

    def __init__(self, side, work):
        self.side = side
        self.work = work  # the folder with the workload

    def array(self, name):
        return np.load(self.work / f"{name}.npy")

    def load(self, _order):
        data = self.side.input(self.array("stored"))
        seconds, _ = timed(self.side.load, data)
        return {"seconds": seconds}

    def check(self, order):
        """Answer the check queries in all ways, for the driver to compare."""
        queries = self.array("check")
        result = self.side.many(self.side.arguments(queries))
        self.keep(order["many"], *self.side.hits(result))
        arguments = [self.side.argument(number) for number in queries[: order["singles"]].tolist()]
        for way, path in order["ways"].items():
            ask = getattr(self.side, way)
            found = [self.side.found(ask(argument)) for argument in arguments]
            places = np.repeat(np.arange(len(found)), [len(ids) for ids in found])
            ids = np.array([number for each in found for number in each], np.int64)
            self.keep(path, places, ids)
        return {}

    def keep(self, path, first, second):
        np.save(path, np.column_stack([first, second]).reshape(-1, 2))

    def single(self, order):
        """Time every query on its own."""
        arguments = [self.side.argument(number) for number in self.queries(order).tolist()]
        ask = getattr(self.side, order["way"])
        taken = []
        for argument in arguments:
            start = time.perf_counter()
            ask(argument)
            taken.append(time.perf_counter() - start)
        p50, p99 = np.quantile(taken, [0.5, 0.99]).tolist()
        return {"p50": p50, "p99": p99}

    def batch(self, order):
        arguments = self.side.arguments(self.queries(order))
        seconds, _ = timed(self.side.many, arguments)
        return {"seconds": seconds}

    def queries(self, order):
        return np.load(self.work / "queries.npy", mmap_mode="r")[: order["count"]].copy()

    def join(self, order):
        name = "distinct" if order["distinct"] else "stored"
        data = self.side.everything(self.array(name))
        self.side.keeping = order["keep"] is not None
        seconds, (count, result) = timed(self.side.join, data)
        if self.side.keeping:
            first, second = self.side.values(result, self.array(name))
            low, high = np.minimum(first, second), np.maximum(first, second)
            self.keep(order["keep"], low, high)
        return {"seconds": seconds, "count": count}

    def save(self, _order):
        seconds, _ = timed(self.side.save)
        return {"seconds": seconds}

    def open(self, order):
        """Open, answer one query, then tell the memory after a thousand."""
        query = self.side.argument(int(self.queries({"count": 1})[0]))

        def first_answer():
            self.side.open()
            self.side.one(query)

        seconds, _ = timed(first_answer)
        for number in self.queries({"count": order["warm"]}).tolist():
            self.side.one(self.side.argument(number))
        gc.collect()
        return {"seconds": seconds, **memory()}

    def adds(self, order):
        """Add batches of random fingerprints, each durable if the side can make it so."""
        generator = np.random.default_rng(order["first"])
        taken = []
        for batch in range(order["batches"]):
            begin = order["first"] + batch * order["size"]
            ids = np.arange(begin, begin + order["size"], dtype=np.uint64)
            array = generator.integers(0, 1 << BITS, order["size"], dtype=np.uint64)
            taken.append(timed(self.side.add, ids, array)[0])
        return {"taken": taken}

    def close(self, _order):
        self.side.close()
        return {}

    def extra(self, order):
        return self.side.extra(order["what"], order)


def serve(kind):
    """Run one side until its input ends: `side.py WORK FOLDER LIMIT OPTIONS`."""
    work, folder, limit = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    # A package that prints must not be taken for an answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    side = kind(folder, json.loads(sys.argv[4]))
    server = Server(side, work)
    everywhere = os.sched_getaffinity(0)

    def answer(value):
        print(json.dumps(value), file=answers, flush=True)

    answer({"version": side.version})
    for line in sys.stdin:
        order = json.loads(line)
        cores = everywhere if order.get("cores") == "all" else {min(everywhere)}
        pin(cores)
        side.threads(len(cores))
        try:
            answer(getattr(server, order["do"])(order))
        except MemoryError:
            answer({"stopped": f"more than {limit / 2**30:.1f} GiB of memory, what was left"})
        except Exception as error:  # a row that fails is reported, the others go on
            answer({"stopped": f"{type(error).__name__}: {error}"})
