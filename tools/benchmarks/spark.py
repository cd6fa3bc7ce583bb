"""Measure the join on Spark against that of a database: `tools/bench spark`.

Both find all pairs within 3 of the same fingerprints: random ones, a tenth of them near others and
a fiftieth equal to others. Spark runs as a cluster of its own on this machine, with one worker and
with two, one core each. With `--similar`, both find the similar texts among the documents of
`tools/bench similarity` by their sketches. The last line is all of it as JSON.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parent)]  # as a module, too
import paired
import similarity

K = 3


def fingerprints(documents):
    generator = np.random.default_rng(1)
    near, equal = documents // 10, documents // 50
    numbers = generator.integers(0, 1 << 64, documents - near - equal, dtype=np.uint64)
    copies = numbers[generator.integers(0, len(numbers), near)]
    for _ in range(K):
        copies = copies ^ np.uint64(1) << generator.integers(0, 64, near, dtype=np.uint64)
    same = numbers[generator.integers(0, len(numbers), equal)]
    return generator.permutation(np.concatenate([numbers, copies, same]))


def embedded(folder, documents, *, similar):
    import fpdb

    path = folder / f"{os.getpid()}.fpdb"
    started = time.perf_counter()
    if similar:
        with fpdb.create(path, similarity=similarity.LEAST, capacity=documents) as db:
            similarity.fill(db, documents)
    else:
        numbers = np.load(folder / "fingerprints.npy")
        options = {"similarity": None, "k": K, "keys": "integer", "capacity": documents}
        with fpdb.build(path, **options) as db:
            db.add_fingerprints(np.arange(documents, dtype=np.uint64), numbers)
    loaded = time.perf_counter()
    with fpdb.open(path) as db:
        apart = [pair.distance for pair in db.pairs()]
    done = time.perf_counter()
    return {"load": loaded - started, "join": done - loaded, "pairs": [len(apart), sum(apart)]}


def on_spark(folder, workers, memory, *, similar):
    from pyspark.sql import SparkSession

    from fpdb.integrations import spark as joined

    started = time.perf_counter()
    session = (
        SparkSession.builder.master(f"local-cluster[{workers},1,{memory}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.executor.memory", f"{memory}m")
        .config("spark.sql.shuffle.partitions", "8")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
        .config("spark.local.dir", str(folder / "local"))
        .getOrCreate()
    )
    df = session.read.parquet(str(folder / "fingerprints.parquet"))
    df.count()
    session.range(1000).mapInArrow(lambda batches: batches, "id bigint").count()
    ready = time.perf_counter()
    wanted = {} if similar else {"k": K}
    found = joined.pairs(df, **wanted).selectExpr("count(*)", "sum(distance)").collect()
    done = time.perf_counter()
    session.stop()
    return {"start": ready - started, "join": done - ready, "pairs": list(found[0])}


def run(*words):
    folder = Path(words[0])
    return paired.answer_of(
        *(Path(__file__), "--side", *words),
        SPARK_LOCAL_IP="127.0.0.1",
        SPARK_LOCAL_HOSTNAME="localhost",
        PYSPARK_PYTHON=sys.executable,
        SPARK_WORKER_DIR=str(folder / "work"),
    )


def measure(documents, options):
    import pyarrow as pa
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory(prefix="fpdb-bench-") as name:
        folder = Path(name)
        if options.similar:
            source = similarity.Documents(sketched=True)
            starts = range(0, documents, similarity.AT_ONCE)
            blocks = (source.take(min(similarity.AT_ONCE, documents - start)) for start in starts)
            rows = pa.concat_tables(map(columns_of, blocks))
        else:
            numbers = fingerprints(documents)
            np.save(folder / "fingerprints.npy", numbers)
            rows = pa.table({"key": np.arange(len(numbers)), "fingerprint": numbers.view(np.int64)})
        pq.write_table(rows, folder / "fingerprints.parquet", row_group_size=250_000)
        similar = int(options.similar)
        sides = {"database": partial(run, folder, "database", documents, 0, similar)}
        for workers in (1, 2):
            words = folder, "spark", workers, options.memory, similar
            sides[f"{workers} worker{'s' * (workers > 1)}"] = partial(run, *words)
        found = paired.in_turn(sides, options.rounds)
        if len({json.dumps(each["pairs"]) for results in found.values() for each in results}) > 1:
            sys.exit(f"the sides found other pairs: {found}")
        return {side: paired.median(results) for side, results in found.items()}


def columns_of(documents):
    import pyarrow as pa

    numbers = np.array([document.fingerprint for document in documents], np.uint64)
    columns = {
        name: [getattr(document, name) for document in documents]
        for name in ("key", "digest", "characters", "sketch")
    }
    return pa.table({**columns, "fingerprint": numbers.view(np.int64)})


def main():
    parser = argparse.ArgumentParser(prog="tools/bench spark", description=__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000, help="a million")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each side: 3")
    parser.add_argument("--memory", type=int, default=1024, help="megabytes of a worker: 1,024")
    parser.add_argument("--similar", action="store_true", help="find similar texts")
    parser.add_argument("--side", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        folder, side, first, memory, similar = options.side
        if side == "database":
            found = embedded(Path(folder), int(first), similar=similar == "1")
        else:
            found = on_spark(Path(folder), int(first), int(memory), similar=similar == "1")
        print(json.dumps(found))
        return
    print(json.dumps(measure(options.documents, options)))


if __name__ == "__main__":
    main()
