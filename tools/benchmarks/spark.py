"""Measure the join on Spark against that of a database: `tools/bench spark`.

Both find all pairs within 3 of the same fingerprints: random ones, a tenth of them near others and
a fiftieth equal to others. Spark runs as a cluster of its own on this machine, with one worker and
with two, one core each. `--documents 1e6,4e6`, `--rounds 3`, `--memory 512` (megabytes of a
worker), `--tables 4,10` (the plans that are forced, to tell rows from candidates). `--similar`:
both find the similar texts among the documents of `similarity.py` by sketches. The last line
is all of it as JSON.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

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


def embedded(folder):
    """Load a database and find its pairs."""
    import fpdb

    numbers = np.load(folder / "fingerprints.npy")
    started = time.perf_counter()
    options = {"similarity": None, "k": K, "keys": "integer", "capacity": len(numbers)}
    with fpdb.build(folder / f"{os.getpid()}.fpdb", **options) as db:
        db.add_fingerprints(np.arange(len(numbers), dtype=np.uint64), numbers)
    loaded = time.perf_counter()
    with fpdb.open(folder / f"{os.getpid()}.fpdb") as db:
        count = total = 0
        for pair in db.pairs(k=K):
            count += 1
            total += pair.distance
    done = time.perf_counter()
    return {"load": loaded - started, "join": done - loaded, "pairs": [count, total]}


def embedded_similar(folder, documents):
    """Fill a database with sketches and find its pairs."""
    import similarity

    import fpdb

    path = folder / f"{os.getpid()}.fpdb"
    started = time.perf_counter()
    with fpdb.create(path, similarity=similarity.LEAST, capacity=documents) as db:
        similarity.fill(db, documents)
        loaded = time.perf_counter()
        apart = [pair.distance for pair in db.pairs()]
    done = time.perf_counter()
    return {"load": loaded - started, "join": done - loaded, "pairs": [len(apart), sum(apart)]}


def on_spark(folder, workers, memory, tables, similar):
    """Find the pairs on a cluster of N workers, once to warm up and then by the clock."""
    from pyspark.sql import SparkSession

    import fpdb
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
    documents = df.count()
    session.range(1000).mapInArrow(lambda batches: batches, "id bigint").count()
    ready = time.perf_counter()
    wanted = {} if similar else {"k": K}
    plan = joined.plan(df, **wanted)
    planned = time.perf_counter()
    if tables:
        plans = fpdb.join_plans(64, K, plan.documents, cores=workers)
        plan = next(each for each in plans if len(each.masks) == tables)
    pairs = joined.pairs(df, **wanted, plan=plan).selectExpr("count(*)", "sum(distance)").collect()
    done = time.perf_counter()
    stages = stages_of(session.sparkContext)
    found = {
        "documents": documents,
        "plan": plan.name,
        "rows": plan.rows,
        "candidates": getattr(plan, "candidates", None),
        "expected": getattr(plan, "seconds", None),
        "start": ready - started,
        "count": planned - ready,
        "join": done - planned,
        "pairs": list(pairs[0]),
        "shuffled": sum(stage.shuffleWriteBytes() for stage in stages),
        "spilled": sum(stage.diskBytesSpilled() for stage in stages),
        "core_seconds": sum(stage.executorRunTime() for stage in stages) / 1000,
    }
    session.stop()
    return found


def stages_of(context):
    """Return Spark's figures of all stages."""
    quantiles = context._gateway.new_array(context._jvm.double, 0)
    nothing = context._jvm.java.util.ArrayList()
    store = context._jsc.sc().statusStore()
    found = store.stageList(nothing, False, False, quantiles, nothing)  # noqa: FBT003
    return [found.apply(place) for place in range(found.length())]


def run(folder, *arguments):
    """Run one side in a process of its own, and give what it measured."""
    command = [sys.executable, "-W", "ignore", __file__, "--side", str(folder), *arguments]
    environment = os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "localhost",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_WORKER_DIR": str(folder / "work"),
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if not line.startswith("\tat ")]
        sys.exit("\n".join(lines[-60:]))
    return json.loads(done.stdout.splitlines()[-1])


def medians(runs):
    """Return the medians of what was measured; all runs must have found the same."""
    assert len({json.dumps(each["pairs"]) for each in runs}) == 1
    return {
        name: statistics.median(each[name] for each in runs) if isinstance(value, float) else value
        for name, value in runs[0].items()
    }


def measure(documents, arguments):
    with tempfile.TemporaryDirectory(prefix="fpdb-bench-") as name:
        import pyarrow as pa
        import pyarrow.parquet as pq
        import similarity

        folder = Path(name)
        if arguments.similar:
            import similarity

            source = similarity.Documents(sketched=True)
            starts = range(0, documents, similarity.AT_ONCE)
            blocks = (source.take(min(similarity.AT_ONCE, documents - start)) for start in starts)
            rows = pa.concat_tables(map(columns_of, blocks))
        else:
            numbers = fingerprints(documents)
            np.save(folder / "fingerprints.npy", numbers)
            rows = pa.table({"key": np.arange(len(numbers)), "fingerprint": numbers.view(np.int64)})
        pq.write_table(rows, folder / "fingerprints.parquet", row_group_size=250_000)
        sides = {"database": ["embedded", str(documents * arguments.similar)]}
        for workers in arguments.workers:
            for tables in arguments.tables or [0]:
                plan = f", {tables} tables" if tables else ""
                sides[f"{workers} worker{'s' * (workers > 1)}{plan}"] = [
                    "spark",
                    str(workers),
                    str(arguments.memory),
                    str(tables),
                    str(int(arguments.similar)),
                ]
        runs = {side: [] for side in sides}
        for _ in range(arguments.rounds):
            for side, words in sides.items():
                runs[side].append(run(folder, *words))
                print(documents, side, json.dumps(runs[side][-1]), flush=True)
        assert len({json.dumps(each[0]["pairs"]) for each in runs.values()}) == 1
        return {side: medians(each) for side, each in runs.items()}


def columns_of(documents):
    """Return documents as the columns that Spark reads."""
    import pyarrow as pa

    numbers = np.array([document.fingerprint for document in documents], np.uint64)
    columns = {
        name: [getattr(document, name) for document in documents]
        for name in ("key", "digest", "characters", "sketch")
    }
    return pa.table({**columns, "fingerprint": numbers.view(np.int64)})


def numbers_of(text):
    return [int(float(word)) for word in text.split(",") if word]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=numbers_of, default=[1_000_000])
    parser.add_argument("--workers", type=numbers_of, default=[1, 2])
    parser.add_argument("--tables", type=numbers_of, default=[])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", type=int, default=1024)
    parser.add_argument("--similar", action="store_true")
    parser.add_argument("--side", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        folder, side, *words = arguments.side
        numbers = list(map(int, words))
        if side != "embedded":
            found = on_spark(Path(folder), *numbers)
        else:
            [similar] = numbers
            found = embedded_similar(Path(folder), similar) if similar else embedded(Path(folder))
        print(json.dumps(found))
        return
    print(json.dumps({n: measure(n, arguments) for n in arguments.documents}))


if __name__ == "__main__":
    main()
