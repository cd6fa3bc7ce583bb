"""Spark jobs where something is short or lost: a worker, memory, or rounds for a long path."""

import os
import random
import signal
import threading
import time
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.spark import fingerprints

import fpdb
from fpdb.integrations import spark as on_spark
from fpdb.integrations.spark import matches

pytestmark = pytest.mark.spark


def stages_of(context):
    """Spark's figures of all stages."""
    quantiles = context._gateway.new_array(context._jvm.double, 0)
    nothing = context._jvm.java.util.ArrayList()
    store = context._jsc.sc().statusStore()
    found = store.stageList(nothing, False, False, quantiles, nothing)
    return [found.apply(place) for place in range(found.length())]


def _executors(spark):
    """Find the processes of Java for which the workers' Python works."""

    # It goes to the workers by value, as they can't import this module.
    def tell(batches):
        import os

        import pyarrow

        def parent(number):
            with open(f"/proc/{number}/stat", encoding="utf-8") as file:
                return int(file.read().rsplit(")", 1)[1].split()[1])

        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"pid": [parent(os.getppid())]})

    rows = spark.range(0, 40, 1, 8).mapInArrow(tell, "pid bigint").collect()
    return {row["pid"] for row in rows}


def _in_thread(work):
    found = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    return thread, found


@pytest.fixture
def crawl(spark):
    chance = random.Random(7)
    numbers = [chance.getrandbits(64) for _ in range(3000)]
    numbers += [number ^ 1 << chance.randrange(64) for number in numbers[:500]]
    rows = [(key, _signed(number)) for key, number in enumerate(numbers)]
    return spark.createDataFrame(rows, "key bigint, fingerprint bigint").repartition(4)


def _signed(number):
    return number - (1 << 64) if number >> 63 else number


def test_a_worker_that_is_killed_costs_no_answer(spark, crawl):
    wanted = {tuple(row) for row in on_spark.pairs(crawl).collect()}
    assert len(wanted) == 500
    victims = _executors(spark)
    before = len(stages_of(spark.sparkContext))
    thread, found = _in_thread(lambda: {tuple(row) for row in on_spark.pairs(crawl).collect()})
    while thread.is_alive() and len(stages_of(spark.sparkContext)) < before + 5:
        time.sleep(0.01)
    victim = min(victims)
    assert thread.is_alive()
    os.kill(victim, signal.SIGKILL)
    thread.join(300)
    assert found == [wanted]
    deadline = time.monotonic() + 60
    while victim in (now := _executors(spark)) or not now:
        assert time.monotonic() < deadline


def test_a_worker_that_is_killed_costs_no_cluster(spark, crawl):
    pairs = on_spark.pairs(crawl, spanning=True).cache()
    wanted = {tuple(row) for row in on_spark.clusters(pairs).collect()}
    victim = max(_executors(spark))
    thread, found = _in_thread(lambda: {tuple(row) for row in on_spark.clusters(pairs).collect()})
    time.sleep(1)
    assert thread.is_alive()
    os.kill(victim, signal.SIGKILL)
    thread.join(300)
    pairs.unpersist()
    assert found == [wanted]


def test_a_join_of_more_rows_than_fit_into_the_memory_of_the_workers(spark, tmp_path):
    numbers = fingerprints(1_000_000)
    rows = pa.table({"key": np.arange(len(numbers)), "fingerprint": numbers.view(np.int64)})
    df = spark.createDataFrame(rows).repartition(4)
    df.write.parquet(str(tmp_path / "rows"))
    df = spark.read.parquet(str(tmp_path / "rows"))
    # What the settings leave of the 1,024 MB of each worker; a row takes 40 bytes at least.
    memory = 2 * 0.05 * (1024 - 300) * 1e6
    [plan, *_] = fpdb.join_plans(64, 3, len(numbers))
    assert plan.fingerprints * len(plan.masks) * 40 > 2 * memory
    # Spark forgets the oldest of many stages.
    before = max((stage.stageId() for stage in stages_of(spark.sparkContext)), default=-1)
    found = on_spark.pairs(df).selectExpr("count(*)", "sum(distance)").collect()[0]
    stages = [stage for stage in stages_of(spark.sparkContext) if stage.stageId() > before]
    assert sum(stage.diskBytesSpilled() for stage in stages) > 0
    with fpdb.build(tmp_path / "own.fpdb", similarity=None, k=plan.k, keys="integer") as database:
        database.add_fingerprints(np.arange(len(numbers), dtype=np.uint64), numbers)
    with fpdb.open(tmp_path / "own.fpdb") as database:
        distances = [pair.distance for pair in database.pairs()]
    assert tuple(found) == (len(distances), sum(distances))


def test_a_long_path_is_one_cluster_after_few_rounds(spark, monkeypatch):
    rounds = []
    own = matches._round
    monkeypatch.setattr(matches, "_round", lambda edges: (rounds.append(1), own(edges))[1])
    length = 200
    order = [f"page-{number:03}" for number in range(length)]
    random.Random(4).shuffle(order)
    pairs = spark.createDataFrame(
        [(a, b, 1) for a, b in pairwise(order)],
        "key string, other string, distance int",
    )
    found = on_spark.clusters(pairs).collect()
    assert {row["representative"] for row in found} == {"page-000"}
    assert sorted(row["key"] for row in found) == sorted(order)
    # Handing the smallest key on from neighbour to neighbour would take as many rounds as the path
    # is long.
    assert len(rounds) <= 20
