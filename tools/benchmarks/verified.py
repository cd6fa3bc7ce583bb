"""Measure verified queries: `python tools/benchmarks/verified.py [DOCUMENTS]`, or of a million.

Fingerprints and sketches are random and written as they are; 500 texts beside them are asked for.
Times are processor times of the thread that asks, the median of all questions.
"""

import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import fpdb
from fpdb.storage.format import Stored

AT_ONCE = 50_000
LEAST = 0.8


def texts(count=500, words=300):
    dice = random.Random(2)
    known = [f"word{number}" for number in range(20_000)]
    return [" ".join(dice.choices(known, k=words)) for _ in range(count)]


def fill(db, documents):
    """Write documents of random fingerprints and sketches, without any text."""
    generator = np.random.default_rng(1)
    for start in range(0, documents, AT_ONCE):
        count = min(AT_ONCE, documents - start)
        keys = [f"https://example.org/{number}" for number in range(start, start + count)]
        fingerprints = generator.integers(2**64, size=count, dtype=np.uint64).tolist()
        sketches = generator.integers(256, size=(count, 128), dtype=np.uint8)
        digests = generator.integers(256, size=(count, 16), dtype=np.uint8)
        with db._environment.write(60) as txn:
            writer = db._writer(txn, keys)
            added = int(time.time())
            for key, number, digest, sketch in zip(
                keys, fingerprints, digests, sketches, strict=True
            ):
                own = Stored(
                    id=0,
                    key=key,
                    fingerprint=number,
                    added=added,
                    digest=digest.tobytes(),
                    characters=1500,
                    sketch=sketch.tobytes(),
                )
                writer.add(own)
            writer.apply()


def median(ask, questions):
    seconds = []
    for question in questions:
        started = time.thread_time()
        ask(question)
        seconds.append(time.thread_time() - started)
    return 1e6 * statistics.median(seconds)


def main(documents=1_000_000):
    asked = texts()
    with (
        tempfile.TemporaryDirectory(prefix="fpdb-bench-") as folder,
        fpdb.create(Path(folder) / "db", sketch="minhash", capacity=documents) as db,
    ):
        fill(db, documents)
        list(db.add_many(fpdb.Document(f"text {n}", text) for n, text in enumerate(asked)))
        prepared = db.preparer.prepare([fpdb.Document("any", text) for text in asked])
        numbers = [document.fingerprint for document in prepared]
        k = fpdb.first_look(64, db.k, LEAST)

        def ready(place):
            [found] = db.query_prepared(prepared[place : place + 1], min_jaccard=LEAST)
            assert found[0].key == f"text {place}"

        def together(_):
            list(db.query_prepared(prepared * 2, min_jaccard=LEAST))

        rows = {
            f"fingerprint, k={db.k}": median(db.query_fingerprint, numbers),
            f"fingerprint, k={k}": median(lambda n: db.query_fingerprint(n, k=k), numbers),
            f"fingerprint and sketch, min_jaccard={LEAST}": median(ready, range(len(asked))),
            "the same, a thousand together": median(together, range(5)) / 1000,
            "making a fingerprint": median(db.recipe.fingerprint, asked),
            "making a sketch": median(db.recipe.sketch, asked),
            f"text, k={db.k}": median(db.query, asked),
            f"text, min_jaccard={LEAST}": median(lambda t: db.query(t, min_jaccard=LEAST), asked),
        }
        print(f"{len(db):,} documents, {db.stats().bytes_used / len(db):.0f} bytes each")
        for name, microseconds in rows.items():
            print(f"{microseconds:8,.0f} µs  {name}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
