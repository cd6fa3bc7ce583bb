"""Measure questions about copied parts, and all pairs, by the number of documents.

The documents are those of the corpus for dedupe. A question is made of parts of stored documents.
The memory of the pairs is the peak of a process of its own.
"""

import random
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

import paired
import pyarrow.parquet as pq
from dedupe import Corpus

import fpdb

SIZES = [1_000_000]
WORDS, PART, QUESTIONS = (200, 2000), 60, 300
LEAST = 0.3


def run(options):
    return {"note": "", "tables": [[measured(size) for size in options.sizes or SIZES]]}


def measured(documents):
    with tempfile.TemporaryDirectory() as name:
        source, path = Path(name) / "corpus.parquet", Path(name) / "db"
        Corpus(source, documents)
        with fpdb.create(path, passages=True, capacity=documents) as database:
            for part in pq.ParquetFile(source).iter_batches(columns=["id", "text"]):
                rows = zip(*(column.to_pylist() for column in part.columns), strict=True)
                for _ in database.add_many(fpdb.Document(*row) for row in rows):
                    pass
        some = next(pq.ParquetFile(source).iter_batches(columns=["text"]))
        row = {"documents": f"{documents:,}", **asked(path, some.column(0).to_pylist())}
        pairs = paired.run([sys.executable, __file__, path]).strip()
        return row | {f"all pairs with {LEAST}": pairs}


def asked(path, texts):
    """Return the median time of questions of each length, and how many documents are found."""
    dice, cells = random.Random(1), {}
    with fpdb.open(path, readonly=True) as database:
        for size in WORDS:
            times, found = [], 0
            for _ in range(QUESTIONS):
                words = []
                while len(words) < size:
                    words += dice.choice(texts).split()[:PART]
                text = " ".join(words[:size])
                began = time.perf_counter()
                found += len(database.passages(text))
                times.append(time.perf_counter() - began)
            shown = f"{statistics.median(times) * 1000:.2f} ms, {found / QUESTIONS:.1f} found"
            cells[f"{size} words"] = shown
    return cells


if __name__ == "__main__":
    with fpdb.open(sys.argv[1], readonly=True) as stored:
        begun = time.perf_counter()
        count = sum(1 for _ in stored.passage_pairs(least=LEAST))
    seconds, memory = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF)
    print(f"{count:,} in {seconds:.1f} s, {memory.ru_maxrss >> 10} MB")
