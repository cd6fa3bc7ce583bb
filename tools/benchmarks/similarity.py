"""Measure databases of similar texts beside databases of bits: queries, adds, joins, bytes.

Fingerprints and sketches are random and written as they are, so that no text is cut and hashed; in
every tenth document both are those of the one before, but for a bit and six bytes. Queries are
measured by the processor time of the thread, what waits for the disk by the clock.

With --bands N, the bands alone are measured too, of a million documents and of N. Those of N have
the shape for 100 million, however many N are.
"""

import itertools
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import store
from tables import met

import fpdb
from fpdb.storage import Environment
from fpdb.storage.format import Stored
from fpdb.tables import choose_bands
from fpdb.tables.bands import BandTable, Sketches

AT_ONCE = 50_000
BATCH = 1_000
SINGLES = 500
TENTH = 10
LEAST = 0.8
# The targets: the largest figure of a database of similar texts, by its row, at a million.
TARGETS = {
    "query, miss": 60.0,
    "query, hit": 60.0,
    "bytes a document, keys of 50 bytes": 420.0,
    "all pairs": 10.0,
}


# Of the bands alone: how many times as long a look-up may take in a large database as in the
# first, the rows that are made at once, the memory for sorting, and the look-ups from the disk.
TIMES = 3
BLOCK = 1 << 18
MEMORY = 4 << 30
COLD = 30


class Documents:
    """Documents in a row, the same ones for each database, with sketches or without."""

    def __init__(self, *, sketched):
        self._sketched = sketched
        self._generator = np.random.default_rng(1)
        self._numbers = itertools.count()

    def take(self, count):
        """Make the next documents."""
        generator = self._generator
        fingerprints = generator.integers(2**64, size=count, dtype=np.uint64)
        sketches = generator.integers(256, size=(count, 128), dtype=np.uint8)
        fingerprints[TENTH - 1 :: TENTH] = fingerprints[TENTH - 2 :: TENTH][: count // TENTH] ^ 1
        changed = sketches[TENTH - 2 :: TENTH][: count // TENTH].copy()
        changed[:, generator.choice(128, 6, replace=False)] ^= 255
        sketches[TENTH - 1 :: TENTH] = changed
        digests = generator.integers(256, size=(count, 16), dtype=np.uint8)
        added = int(time.time())
        columns = (self._numbers, fingerprints.tolist(), digests, sketches)
        return [
            Stored(
                id=0,
                key=f"https://example.org/{number:030d}",
                fingerprint=fingerprint,
                added=added,
                digest=digest.tobytes(),
                characters=1500,
                sketch=sketch.tobytes() if self._sketched else b"",
            )
            for number, fingerprint, digest, sketch in zip(*columns, strict=False)
        ]


def fill(db, documents):
    """Write the first N documents; return where the others come from, and some of the first."""
    source = Documents(sketched=db.similarity is not None)
    known = []
    for start in range(0, documents, AT_ONCE):
        block = source.take(min(AT_ONCE, documents - start))
        with db._environment.write(60) as txn:
            writer = db._writer(txn, [document.key for document in block])
            writer.add(block)
            writer.apply()
        known = known or block[:SINGLES]
    return source, known


def measure(path, similarity, documents, rounds):
    """Return the figures of a new database, by their rows."""
    with fpdb.create(path, similarity=similarity, k=3, capacity=documents) as db:
        source, known = fill(db, documents)
        size = db.stats().bytes_used / documents
        # Other texts than those that are stored, with the same sketches.
        hits = [document._replace(key="", digest=document.digest[::-1]) for document in known]
        misses = source.take(TENTH * SINGLES)[::TENTH]
        together = (hits + misses)[:BATCH]
        figures = {}
        for row, asked in (("miss", misses), ("hit", hits)):
            answers = [next(db.query_prepared([each])) for each in asked[:TENTH]]
            if any(bool(found) != (row == "hit") for found in answers):
                raise ValueError(f"the queries of the row {row} have other answers")
            seconds = [timed(lambda own=own: list(db.query_prepared([own]))) for own in asked]
            figures[f"query, {row}"] = 1e6 * statistics.median(seconds)
        seconds = [timed(lambda: list(db.query_prepared(together))) for _ in range(rounds)]
        figures["query_many, each of a thousand"] = 1e6 * statistics.median(seconds) / len(together)
        batches = [source.take(BATCH) for _ in range(3 * rounds)]
        added = iter(batches)
        seconds = [
            timed(lambda: db.add_prepared(next(added), skip_duplicates=True), time.perf_counter)
            for _ in batches
        ]
        figures["add, each of a thousand, without duplicates"] = (
            1e6 * statistics.median(seconds) / BATCH
        )
        expected = documents + len(batches) * BATCH * (TENTH - 1) // TENTH
        if abs(len(db) - expected) > expected // 1000 + 2:
            raise ValueError(f"found {len(db)} documents, expected {expected}")
        figures["bytes a document, keys of 50 bytes"] = size
        pairs = []
        seconds = [
            timed(lambda: pairs.append(sum(1 for _ in db.pairs()))) for _ in range(min(rounds, 3))
        ]
        if pairs[0] < 0.99 * (documents // TENTH):
            raise ValueError(f"found {pairs[0]} pairs, expected {documents // TENTH}")
        figures["all pairs"] = statistics.median(seconds)
    return figures


def timed(work, clock=time.thread_time):
    started = clock()
    work()
    return clock() - started


def run(documents, rounds):
    """Measure both kinds of databases; return the rows of the table."""
    with tempfile.TemporaryDirectory(prefix="fpdb-bench-") as folder:
        similar, bits = (
            measure(Path(folder) / f"db {similarity}", similarity, documents, rounds)
            for similarity in (LEAST, None)
        )
    rows = []
    for row, own in similar.items():
        unit = "s" if row == "all pairs" else "bytes" if "bytes" in row else "µs"
        digits = 2 if unit == "s" else 0
        target = TARGETS.get(row) if documents == 1_000_000 else None
        rows.append(
            {
                "row": row,
                "documents": f"{documents:,}",
                f"similarity {LEAST}": f"{own:,.{digits}f} {unit}",
                "bits, k = 3": f"{bits[row]:,.{digits}f} {unit}",
                "target": f"{target:,.0f} {unit}: {met(own <= target)}" if target else "",
            }
        )
    return rows


class OnlyBands:
    """The bands of random sketches, as many as there are documents, without the documents."""

    def __init__(self, folder, documents, capacity):
        self.documents = documents
        self.table = BandTable(choose_bands(LEAST, capacity))
        self._path = Path(folder) / f"bands of {documents}"
        started = time.process_time()
        with Environment.build(self._path, ["bands"]) as built, built.write() as txn:
            self.table.load(txn, self._sketches, documents, documents - 1, MEMORY)
        self.seconds = time.process_time() - started
        first = next(iter(self._sketches())).sketches[:SINGLES]
        other = np.random.default_rng(1).integers(256, size=first.shape, dtype=np.uint8)
        self.asked = {"hit": [row.tobytes() for row in first], "miss": list(map(bytes, other))}
        self._environment = Environment.open(self._path)

    def _sketches(self):
        """Make the same sketches each time, a block of them for each number."""
        for start in range(0, self.documents, BLOCK):
            count = min(BLOCK, self.documents - start)
            made = np.random.Generator(np.random.SFC64(start)).bytes(128 * count)
            yield Sketches(
                np.arange(start, start + count, dtype=np.uint64),
                np.frombuffer(made, np.uint8).reshape(-1, 128),
                np.zeros((count, 2), np.uint64),
            )

    def check(self):
        """Raise an error unless the first documents are found, and only they are."""
        with self._environment.read() as txn:
            for number, sketch in enumerate(self.asked["hit"]):
                found, complete = self.table.near(txn, self.table.numbers(sketch, b""))
                if number not in found or not complete or len(found) > TENTH:
                    raise ValueError(f"{number} is looked up, found {found[:TENTH]}")

    def cached(self, row):
        """Return the median microseconds of a look-up, when all pages were read before."""
        table, seconds = self.table, []
        with self._environment.read() as txn:
            for sketch in self.asked[row]:
                table.near(txn, table.numbers(sketch, b""))
            for sketch in self.asked[row]:
                work = timed(lambda own=sketch: table.near(txn, table.numbers(own, b"")))
                seconds.append(work)
        return 1e6 * statistics.median(seconds)

    def not_cached(self, number):
        """Return the microseconds of one look-up after all pages were forgotten."""
        self._environment.close()
        store.forget(self._path)
        self._environment = Environment.open(self._path)
        numbers = self.table.numbers(self.asked["miss"][number], b"")
        with self._environment.read() as txn:
            return 1e6 * timed(lambda: self.table.near(txn, numbers), time.perf_counter)

    def close(self):
        self._environment.close()


def _time(microseconds):
    return f"{microseconds:,.1f} µs" if microseconds < 10_000 else f"{microseconds / 1e3:,.0f} ms"


def run_bands(sizes, rounds):
    """Measure look-ups in the bands alone, in turns.

    Sizes are the number of documents and the capacity that the bands are planned for, those of the
    database with which the others are compared first.
    """
    with tempfile.TemporaryDirectory(prefix="fpdb-bench-") as folder:
        built = [OnlyBands(folder, *size) for size in sizes]
        for each in built:
            each.check()
        figures = {}
        for name in ("miss", "hit"):
            found = [[each.cached(name) for each in built] for _ in range(rounds)]
            medians = map(statistics.median, zip(*found, strict=True))
            figures[f"bands alone, {name}, file cached"] = list(medians)
        found = [[each.not_cached(number) for each in built] for number in range(COLD)]
        medians = map(statistics.median, zip(*found, strict=True))
        figures["bands alone, miss, file not cached"] = list(medians)
        figures["bands alone, bulk load, each"] = [
            1e6 * each.seconds / each.documents for each in built
        ]
        for each in built:
            each.close()
    rows = []
    for place, each in enumerate(built):
        for row, own in figures.items():
            target = TIMES * own[0] if place and row.endswith("file cached") else None
            rows.append(
                {
                    "row": row,
                    "documents": f"{each.documents:,}, {each.table.shape.name}",
                    f"similarity {LEAST}": _time(own[place]),
                    "bits, k = 3": "-",
                    "target": f"{_time(target)}: {met(own[place] <= target)}" if target else "",
                }
            )
    return rows
