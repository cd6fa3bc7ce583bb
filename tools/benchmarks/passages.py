"""Measure questions about copied parts, and all pairs, by the number of documents.

`tools/bench passages [N]`: the documents are those of the corpus for dedupe. A question is made of
parts of stored documents. The memory of the pairs is the peak of a process of its own.
"""

import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq
from dedupe import Corpus

import fpdb

WORDS, PART, QUESTIONS = (200, 2000), 60, 300
LEAST = 0.3


def main():
    if sys.argv[1:2] == ["--pairs"]:
        pairs(sys.argv[2])
        return
    documents = int(float(sys.argv[1])) if sys.argv[1:] else 1_000_000
    with tempfile.TemporaryDirectory() as name:
        source, path = Path(name) / "corpus.parquet", Path(name) / "db"
        Corpus(source, documents)
        began = time.perf_counter()
        with fpdb.create(path, passages=True, capacity=documents) as database:
            for part in pq.ParquetFile(source).iter_batches(columns=["id", "text"]):
                rows = zip(*(column.to_pylist() for column in part.columns), strict=True)
                for _ in database.add_many(fpdb.Document(*row) for row in rows):
                    pass
        print(f"{documents:,} documents: {time.perf_counter() - began:.0f} s", flush=True)
        some = next(pq.ParquetFile(source).iter_batches(columns=["text"]))
        ask(path, some.column(0).to_pylist())
        subprocess.run([sys.executable, __file__, "--pairs", path], check=True)


def ask(path, texts):
    """Print the median time of questions of each length."""
    dice = random.Random(1)
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
            milliseconds = statistics.median(times) * 1000
            print(f"{size} words: {milliseconds:.2f} ms, {found / QUESTIONS:.1f} documents")


def pairs(path):
    """Print how long all pairs take, and the most memory."""
    with fpdb.open(path, readonly=True) as database:
        began = time.perf_counter()
        count = sum(1 for _ in database.passage_pairs(least=LEAST))
    seconds, memory = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    print(f"{count:,} pairs: {seconds:.1f} s, {memory.ru_maxrss >> 10} MB")


if __name__ == "__main__":
    main()
