"""What the commands of `fpdb spark` do, once Spark is started: sizes first, then the work."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from fpdb.integrations import spark as integration  # isort: skip - says how to install Spark
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

import fpdb
from fpdb.cli import render, units
from fpdb.cli.databases import require
from fpdb.cli.spark import files
from fpdb.cli.spark.options import Engine, Making, OutputForm, Source, Target
from fpdb.cli.spark.session import started

_K = 3
_SHOWN = 5
# Texts in a batch for Python: fewer than Spark's 10,000 rows, since they may be large.
_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
_SHUFFLE = "spark.sql.shuffle.partitions"
_TEXTS = 2_000
_ROWS = 10_000


class Run(NamedTuple):
    """A command at work: its Spark, and the directory for what is removed at the end."""

    spark: SparkSession
    own: bool
    work: str

    def tune(self, name: str, value: int) -> None:
        """Set what nobody has configured, if Spark was started for this."""
        if self.own and not self.spark.sparkContext.getConf().contains(name):
            self.spark.conf.set(name, value)


@contextlib.contextmanager
def _running(engine: Engine, output: str | None) -> Iterator[Run]:
    with started(engine) as (spark, own):
        context = spark.sparkContext
        cores = context.defaultParallelism
        render.note(f"Spark {spark.version}, {context.master}, {cores} cores")
        if output is not None:
            files.require_vacant(spark, output)
        with files.workplace(spark, engine.work, output) as work:
            run = Run(spark, own, work)
            if files.is_local(spark):
                run.tune(_SHUFFLE, 4 * cores)
            yield run


def fingerprint(
    engine: Engine, source: Source, making: Making, keep: tuple[str, ...], output: str
) -> None:
    """Write the fingerprints of texts."""
    began = time.monotonic()
    with _running(engine, output) as run:
        found = _fingerprinted(run, source, making, output, keep)
    render.note(f"{output}: {_sizes(found)}; {_since(began)}")


def pairs(
    engine: Engine,
    source: Source,
    making: Making,
    target: Target,
    k: int | None,
    min_jaccard: float | None,
    *,
    spanning: bool,
) -> None:
    """Find the pairs of documents."""
    began = time.monotonic()
    with _running(engine, target.path) as run:
        df = _documents(run, making, source)[0]
        plan = _planned(run, df, None, making, k, min_jaccard)
        found = integration.pairs(
            df, k, min_jaccard=min_jaccard, spanning=spanning, bits=plan.bits, plan=plan
        )
        shown = ("key", "other", "distance", "jaccard")
        count = _deliver(found, target, shown)["rows"]
    render.note(f"{_where(target)}pairs {count:,}; {_since(began)}")


def query(
    engine: Engine,
    questions: Source,
    source: Source,
    making: Making,
    target: Target,
    k: int | None,
    min_jaccard: float | None,
) -> None:
    """Find the matches of questions."""
    began = time.monotonic()
    with _running(engine, target.path) as run:
        asked, df = _documents(run, making, questions, source)
        plan = _planned(run, asked, df, making, k, min_jaccard)
        found = integration.query(asked, df, k, min_jaccard=min_jaccard, bits=plan.bits, plan=plan)
        shown = ("query", "key", "distance", "similarity", "jaccard")
        count = _deliver(found, target, shown)["rows"]
    render.note(f"{_where(target)}matches {count:,}; {_since(began)}")


def clusters(
    engine: Engine,
    source: Source,
    making: Making,
    target: Target,
    k: int | None,
    min_jaccard: float | None,
) -> None:
    """Find the clusters of documents, or of pairs that were found before."""
    began = time.monotonic()
    with _running(engine, target.path) as run:
        df = files.read(run.spark, source)
        if {"key", "other"} <= set(df.columns):
            given = (k, min_jaccard, making.recipe, making.bits)
            require(given == (None,) * 4, "pairs are found already: how to find them isn't asked")
            found = integration.clusters(df)
        else:
            df = _documents(run, making, source)[0]
            plan = _planned(run, df, None, making, k, min_jaccard)
            found = integration.clusters(
                integration.pairs(
                    df, k, min_jaccard=min_jaccard, spanning=True, bits=plan.bits, plan=plan
                )
            )
        if target.path is None:
            found = found.orderBy("representative", "key")
        counts = _deliver(found, target, ("representative", "key"))
    heads = counts["same"]
    duplicates = counts["rows"] - heads
    render.note(f"{_where(target)}clusters {heads:,}, duplicates {duplicates:,}; {_since(began)}")


def sorted_columns(
    engine: Engine, source: Source, making: Making, output: str, k: int | None, capacity: int | None
) -> None:
    """Write sorted columns, which become a database without being sorted again."""
    began = time.monotonic()
    with _running(engine, output) as run:
        df = _documents(run, making, source, keep=("added", "meta"))[0]
        count = integration.write_sorted(
            df.where("problem IS NULL"),
            output,
            recipe=making.build(),
            k=_K if k is None else k,
            capacity=capacity,
        )
    render.note(f"{output}: documents {count:,}; {_since(began)}")


def _documents(
    run: Run, making: Making, *sources: Source, keep: tuple[str, ...] = ()
) -> list[DataFrame]:
    """Read documents that have fingerprints; those of texts are computed once, and written."""
    found = []
    fresh = False
    for number, source in enumerate(sources):
        df = files.read(run.spark, source, keep)
        if "fingerprint" in df.columns:
            df, counts = _known(df, source)
        else:
            fresh = True
            path = f"{run.work}/{number}.parquet"
            kept = tuple(name for name in keep if name in df.columns)
            counts = _fingerprinted(run, source, making, path, kept)
            df = run.spark.read.parquet(path)
        render.note(f"{', '.join(source.paths)}: {_sizes(counts)}")
        found.append(df)
    # Sorted columns keep what there is, and the recipe too.
    require(fresh or keep or making.recipe is None, "there are fingerprints: leave --recipe out")
    return found


def _known(df: DataFrame, source: Source) -> tuple[DataFrame, dict[str, Any]]:
    """Take fingerprints as they are, and count them."""
    key = files.column(df, source, source.keys)
    if key != "key":
        df = df.drop("key").withColumnRenamed(key, "key")
    if "problem" not in df.columns:
        df = df.withColumn("problem", F.lit(None).cast("string"))
    counts = df.agg(*_counts()).collect()[0].asDict()
    _name_problems(df, counts["problems"])
    return df, counts


def _fingerprinted(
    run: Run, source: Source, making: Making, output: str, keep: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Fingerprint texts into a directory, and count them."""
    df = files.read(run.spark, source, keep)
    key, text = (files.column(df, source, names) for names in (source.keys, source.texts))
    for name in keep:
        files.column(df, source, (name,))
    run.tune(_BATCH, _TEXTS)
    seen = Observation()
    made = integration.fingerprint(
        df,
        text=text,
        key=key,
        recipe=making.build(),
        sketch=making.sketch,
        keep=keep,
    )
    files.write(made.observe(seen, *_counts()), output, OutputForm.PARQUET)
    found = seen.get
    _name_problems(run.spark.read.parquet(output), found["problems"])
    return found


def _name_problems(df: DataFrame, count: int) -> None:
    """Say why texts have no fingerprint, of the first of them."""
    if count:
        bad = df.where("problem IS NOT NULL").select("key", "problem")
        for key, problem in bad.limit(_SHOWN).collect():
            render.note(f"{'(no key)' if key is None else key}: {problem}")
    if count > _SHOWN:
        render.note(f"and {count - _SHOWN:,} more, which the column problem tells")


def _counts() -> tuple[Column, ...]:
    short = F.col("fingerprint").isNull() & F.col("problem").isNull()
    return (
        F.count(F.lit(1)).alias("documents"),
        F.count_if(short).alias("short"),
        F.count("problem").alias("problems"),
    )


def _sizes(found: dict[str, Any]) -> str:
    return (
        f"documents {found['documents']:,}, short {found['short']:,}, "
        f"problems {found['problems']:,}"
    )


def _planned(
    run: Run,
    df: DataFrame,
    corpus: DataFrame | None,
    making: Making,
    k: int | None,
    min_jaccard: float | None,
) -> fpdb.JoinPlan:
    """Plan the work, and tell what it will take before it begins."""
    bits = making.bits
    run.tune(_BATCH, _ROWS)
    plan = integration.plan(df, k, corpus=corpus, min_jaccard=min_jaccard, bits=bits)
    asked = "" if plan.queries is None else f"{plan.queries:,} of questions, "
    run.tune(_SHUFFLE, max(plan.tasks, 4 * plan.cores))
    lines = {
        "fingerprints": f"{asked}{plan.documents:,} distinct ones of {plan.bits} bits",
        "plan": f"k={plan.k}, {plan.name}",
        "rows": f"{plan.rows:,}, {units.size(plan.shuffle_bytes)} to shuffle",
        "candidates": f"{plan.candidates:,} expected",
        "tasks": f"{plan.tasks:,} on {plan.cores} cores",
        "time": f"{units.time(plan.seconds)} expected",
    }
    for name, value in lines.items():
        render.note(f"{name:<12}  {value}")
    return plan


def _deliver(found: DataFrame, target: Target, shown: tuple[str, ...]) -> dict[str, int]:
    """Write rows to a directory or print them; count them, and those of which both keys are one."""
    first, second = found.columns[:2]
    if target.path is not None:
        seen = Observation()
        counts = (
            F.count(F.lit(1)).alias("rows"),
            F.count_if(F.col(first) == F.col(second)).alias("same"),
        )
        files.write(found.observe(seen, *counts), target.path, target.format, guard=target.guard)
        return seen.get
    rows = same = 0
    for row in found.toLocalIterator(prefetchPartitions=True):
        rows += 1
        same += row[first] == row[second]
        if target.as_json:
            render.record(row.asDict())
        else:
            render.row(*(_cell(row[name]) for name in shown if name in row))
    return {"rows": rows, "same": same}


def _cell(value: Any) -> Any:
    """Write a similarity as the other commands do."""
    return f"{value:.4f}" if isinstance(value, float) else value


def _where(target: Target) -> str:
    return "" if target.path is None else f"{target.path}: "


def _since(began: float) -> str:
    return f"{time.monotonic() - began:.2f} s"
