"""Measure databases of similar texts beside databases of bits: queries, adds, joins, bytes.

Fingerprints and sketches are random and written as they are, so that no text is cut and hashed; in
every tenth document both are those of the one before, but for a bit and six bytes. Queries are
measured by the processor time of the thread, what waits for the disk by the clock. All documents
are added a thousand at a time, as a crawler does, so that the file has the pages that this frees.
"""

import itertools
import tempfile
import time
from pathlib import Path

import numpy as np
from paired import median, timed, written
from store import short

import fpdb
from fpdb.storage.block import Block
from fpdb.storage.format import Stored

SIZES = [1_000_000]
BATCH = 1_000
SINGLES = 500
TENTH = 10
KINDS = {"similarity 0.8": 0.8, "bits": None}
BITS = 64


class Documents:
    """Documents in a row, the same ones for each database, with sketches or without."""

    def __init__(self, *, sketched):
        self._sketched = sketched
        self._generator = np.random.default_rng(1)
        self._numbers = itertools.count()

    def take(self, count):
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


def measure(path, similarity, documents, rounds):
    with fpdb.create(path, similarity=similarity, k=3, capacity=documents) as db:
        source, known = Documents(sketched=similarity is not None), []
        for start in range(0, documents, BATCH):
            block = source.take(min(BATCH, documents - start))
            db.add_prepared(Block.of(block, BITS))
            known = known or block[:SINGLES]
        stats = db.stats()
        # Other texts than those that are stored, with the same sketches.
        hits = [document._replace(key="", digest=document.digest[::-1]) for document in known]
        misses = source.take(TENTH * SINGLES)[::TENTH]
        together = (hits + misses)[:BATCH]
        figures = {}
        for row, asked in (("miss", misses), ("hit", hits)):
            questions = [Block.of([each], BITS) for each in asked]
            answers = [next(db.query_prepared(each)) for each in questions[:TENTH]]
            if any(bool(found) != (row == "hit") for found in answers):
                raise ValueError(f"the queries of the row {row} have other answers")
            each = iter(questions)
            figures[f"query, {row}, µs"] = 1e6 * processor(
                len(asked), lambda each=each: list(db.query_prepared(next(each)))
            )
        block = Block.of(together, BITS)
        many = processor(rounds, lambda: list(db.query_prepared(block)))
        figures["query_many, each of a thousand, µs"] = 1e6 * many / len(together)
        blocks = [Block.of(source.take(BATCH), BITS) for _ in range(10 * rounds)]
        before = written_bytes()
        seconds = [timed(lambda b=b: db.add_prepared(b, skip_duplicates=True)) for b in blocks]
        new = BATCH * len(blocks)
        figures["add, each of a thousand, without duplicates, µs"] = 1e6 * median(seconds) / BATCH
        figures["bytes written for each of these"] = (written_bytes() - before) / new
        expected = documents + new * (TENTH - 1) // TENTH
        if abs(len(db) - expected) > expected // 1000 + 2:
            raise ValueError(f"found {len(db)} documents, expected {expected}")
        figures["bytes of the file for a document"] = stats.bytes / documents
        figures["bytes of these in use"] = stats.bytes_used / documents
        pairs = []
        figures["all pairs, s"] = processor(
            min(rounds, 3), lambda: pairs.append(sum(1 for _ in db.pairs()))
        )
        if pairs[0] < 0.99 * (documents // TENTH):
            raise ValueError(f"found {pairs[0]} pairs, expected {documents // TENTH}")
    return figures


def written_bytes():
    """Return how many bytes this process has written to files."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


def processor(rounds, work):
    return median([timed(work, time.thread_time) for _ in range(rounds)])


def run(options):
    """Return a table with a row for each figure, and a column for each kind and size."""
    figures = {
        (kind, short(documents)): measured(similarity, documents, options.rounds)
        for kind, similarity in KINDS.items()
        for documents in options.sizes or SIZES
    }
    names = next(iter(figures.values()))
    rows = [
        {"row": name} | {", ".join(side): written(own[name]) for side, own in figures.items()}
        for name in names
    ]
    return {"note": "", "tables": [rows]}


def measured(similarity, documents, rounds):
    with tempfile.TemporaryDirectory(prefix="fpdb-bench-") as folder:
        return measure(Path(folder) / "db", similarity, documents, rounds)
