"""Measure Spark beside fpdb alone, with the same answers; it needs Java, and the group `full`.

Both find all pairs within 3 of the same fingerprints: random ones, a tenth of them near others and
a fiftieth equal to others. Then both deduplicate the same made texts: one in five is an earlier one
with some words replaced, or none. Spark runs on this machine with two threads. It is processor time
that counts, of Java and of all workers, with their start.
"""

import json
import resource
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parent))  # as a module, too
import paired

K = 3
SIZES = [100_000, 400_000]
ROUNDS = 1  # of Spark, a minute each
THREADS = 2
WORDS, OF = 126, 20_000  # of a text, and all different ones
AT_ONCE = 50_000
PRICE = 0.05  # dollars for an hour of a core
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "4g",
    "spark.sql.shuffle.partitions": str(8 * THREADS),
}


def fingerprints(documents):
    generator = np.random.default_rng(1)
    near, equal = documents // 10, documents // 50
    numbers = generator.integers(0, 1 << 64, documents - near - equal, dtype=np.uint64)
    copies = numbers[generator.integers(0, len(numbers), near)]
    for _ in range(K):
        copies = copies ^ np.uint64(1) << generator.integers(0, 64, near, dtype=np.uint64)
    same = numbers[generator.integers(0, len(numbers), equal)]
    return generator.permutation(np.concatenate([numbers, copies, same]))


def texts(documents):
    """Return made texts of 820 bytes, as numbers of words."""
    generator = np.random.default_rng(2)
    rows = generator.integers(0, OF, (documents, WORDS))
    for place in range(4, documents, 5):
        rows[place] = rows[generator.integers(place)]
        changed = generator.integers(0, WORDS, generator.integers(8))
        rows[place, changed] = generator.integers(0, OF, len(changed))
    return rows


def write(folder, documents, kind):
    """Write what both sides take, in the order of the keys."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if kind == "bits":
        keys, values = np.arange(documents), fingerprints(documents).view(np.int64)
        tables = [pa.table({"key": keys, "fingerprint": values})]
    else:
        letters = np.random.default_rng(3).integers(97, 123, (OF, 9), np.uint8)
        words = [bytes(row[: 2 + place % 8]).decode() for place, row in enumerate(letters)]
        rows = texts(documents)
        tables = [
            pa.table(
                {
                    "key": [
                        f"https://example.org/{start + place:09}" for place in range(len(part))
                    ],
                    "text": [" ".join(map(words.__getitem__, row)) for row in part.tolist()],
                }
            )
            for start, part in (
                (at, rows[at : at + AT_ONCE]) for at in range(0, documents, AT_ONCE)
            )
        ]
    with pq.ParquetWriter(folder / "rows.parquet", tables[0].schema) as file:
        for table in tables:
            file.write_table(table, row_group_size=AT_ONCE)


def embedded(folder, kind):
    import pyarrow.parquet as pq

    import fpdb

    table = pq.read_table(folder / "rows.parquet")
    if kind == "texts":
        return len(fpdb.dedupe(table))
    numbers = table["fingerprint"].to_numpy().view(np.uint64)
    path = folder / f"{time.monotonic_ns()}.fpdb"
    options = {"similarity": None, "k": K, "keys": "integer", "capacity": len(numbers)}
    with fpdb.build(path, **options) as db:
        db.add_fingerprints(np.arange(len(numbers), dtype=np.uint64), numbers)
    with fpdb.open(path) as db:
        return sum(1 for _ in db.pairs())


def on_spark(folder, kind):
    from pyspark.sql import SparkSession

    from fpdb.integrations import spark as joined

    builder = SparkSession.builder.master(f"local[{THREADS}]")
    places = {"spark.local.dir": folder / "local", "spark.checkpoint.dir": folder / "checkpoints"}
    for name, value in {**SETTINGS, **places}.items():
        builder = builder.config(name, str(value))
    session = builder.getOrCreate()
    df = session.read.parquet(str(folder / "rows.parquet"))
    answer = joined.dedupe(df) if kind == "texts" else joined.pairs(df, k=K)
    output = str(folder / f"{time.monotonic_ns()}.parquet")
    answer.write.parquet(output)
    count = session.read.parquet(output).count()
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)  # or its time wouldn't count
    return count


def processor_seconds():
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def measured(kind, documents, rounds):
    """Return a row for each side."""
    with tempfile.TemporaryDirectory(prefix="fpdb-bench-") as name:
        write(Path(name), documents, kind)
        variables = {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_HOSTNAME": "localhost",
            "PYSPARK_PYTHON": sys.executable,
        }
        answer = partial(paired.answer_of, __file__, name, kind, **variables)
        results = paired.in_turn({side: partial(answer, side) for side in SIDES}, rounds)
    if len({result["answer"] for of_side in results.values() for result in of_side}) > 1:
        sys.exit(f"the sides gave other answers: {results}")
    for side, of_side in results.items():
        result = paired.median(of_side)
        rate = documents / result["seconds"]
        yield {
            "documents": f"{documents:,} {kind}",
            "side": side,
            "pairs found, or texts that stay": f"{result['answer']:,}",
            "processor s": paired.written(result["seconds"]),
            "documents a second of a core": f"{rate:,.0f}",
            "a million of them, $": paired.written(1e6 / rate / 3600 * PRICE),
        }


SIDES = {"fpdb alone": embedded, "Spark": on_spark}


def run(options):
    tables = [
        [
            row
            for documents in options.sizes or SIZES
            for row in measured(kind, documents, min(options.rounds, ROUNDS))
        ]
        for kind in ("bits", "texts")
    ]
    note = f"An hour of a core is taken for ${PRICE:.2f}."
    return {"note": note, "tables": tables}


if __name__ == "__main__":
    place, asked, named = sys.argv[1:]
    print(json.dumps({"answer": SIDES[named](Path(place), asked), "seconds": processor_seconds()}))
