"""Measure the join on Spark against that of a database; it needs Java.

Both find all pairs within 3 of the same fingerprints: random ones, a tenth of them near others and
a fiftieth equal to others. Then both find the similar texts among the documents of `tools/lab/bench
similarity` by their sketches. Spark runs as a cluster of its own on this machine, with one worker
and with two, one core each.
"""

import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parent))  # as a module, too
import paired
import similarity

K = 3
SIZES = [1_000_000, 200_000]  # of fingerprints, of texts
MEMORY = 1024  # megabytes of a worker


def fingerprints(documents):
    generator = np.random.default_rng(1)
    near, equal = documents // 10, documents // 50
    numbers = generator.integers(0, 1 << 64, documents - near - equal, dtype=np.uint64)
    copies = numbers[generator.integers(0, len(numbers), near)]
    for _ in range(K):
        copies = copies ^ np.uint64(1) << generator.integers(0, 64, near, dtype=np.uint64)
    same = numbers[generator.integers(0, len(numbers), equal)]
    return generator.permutation(np.concatenate([numbers, copies, same]))


def write(folder, documents, *, similar):
    """Write what both sides take, as arrays and as a table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if similar:
        endless = similarity.Documents(sketched=True)
        starts = range(0, documents, similarity.AT_ONCE)
        blocks = (endless.take(min(similarity.AT_ONCE, documents - start)) for start in starts)
        source = [document for block in blocks for document in block]
        numbers = np.array([document.fingerprint for document in source], np.uint64)
        columns = {
            name: [getattr(document, name) for document in source]
            for name in ("key", "digest", "characters", "sketch")
        }
    else:
        numbers, columns = fingerprints(documents), {"key": np.arange(documents)}
    np.save(folder / "fingerprints.npy", numbers)
    rows = pa.table({**columns, "fingerprint": numbers.view(np.int64)})
    pq.write_table(rows, folder / "fingerprints.parquet", row_group_size=250_000)


def embedded(folder, *, similar):
    import fpdb

    numbers = np.load(folder / "fingerprints.npy")
    path, documents = folder / f"{time.monotonic_ns()}.fpdb", len(numbers)
    started = time.perf_counter()
    if similar:
        with fpdb.create(path, similarity=similarity.LEAST, capacity=documents) as db:
            similarity.fill(db, documents)
    else:
        options = {"similarity": None, "k": K, "keys": "integer", "capacity": documents}
        with fpdb.build(path, **options) as db:
            db.add_fingerprints(np.arange(documents, dtype=np.uint64), numbers)
    loaded = time.perf_counter()
    with fpdb.open(path) as db:
        apart = [pair.distance for pair in db.pairs()]
    done = time.perf_counter()
    return {"start": loaded - started, "join": done - loaded, "pairs": [len(apart), sum(apart)]}


def on_spark(folder, workers, *, similar):
    from pyspark.sql import SparkSession

    from fpdb.integrations import spark as joined

    started = time.perf_counter()
    builder = SparkSession.builder.master(f"local-cluster[{workers},1,{MEMORY}]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.executor.memory": f"{MEMORY}m",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.local.dir": str(folder / "local"),
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    df = session.read.parquet(str(folder / "fingerprints.parquet"))
    df.count()
    session.range(1000).mapInArrow(lambda batches: batches, "id bigint").count()
    ready = time.perf_counter()
    pairs = joined.pairs(df, **({} if similar else {"k": K}))
    found = pairs.selectExpr("count(*)", "sum(distance)").collect()
    done = time.perf_counter()
    session.stop()
    return {"start": ready - started, "join": done - ready, "pairs": list(found[0])}


def run(options):
    rows = []
    for kind, documents in zip(("bits", "texts"), options.sizes or SIZES, strict=False):
        with tempfile.TemporaryDirectory(prefix="fpdb-bench-") as name:
            write(Path(name), documents, similar=kind == "texts")
            variables = {
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_LOCAL_HOSTNAME": "localhost",
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_WORKER_DIR": str(Path(name, "work")),
            }
            sides = {
                workers: partial(paired.answer_of, __file__, name, workers, kind, **variables)
                for workers in range(3)
            }
            found = paired.in_turn(sides, options.rounds)
        if len({str(each["pairs"]) for results in found.values() for each in results}) > 1:
            sys.exit(f"the sides found other pairs: {found}")
        for workers, results in found.items():
            side = f"Spark, workers: {workers}" if workers else "database"
            own = paired.median(results)
            row = {"documents": f"{documents:,} {kind}", "side": side, "pairs": own["pairs"][0]}
            rows.append(row | {f"{each}, s": f"{own[each]:.2f}" for each in ("start", "join")})
    return {"note": "The start of a database is its load.", "tables": [rows]}


if __name__ == "__main__":
    place, count, asked = sys.argv[1:]
    near = asked == "texts"
    answer = embedded if count == "0" else partial(on_spark, workers=count)
    print(json.dumps(answer(Path(place), similar=near)))
