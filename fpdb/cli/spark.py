"""The commands that run on Apache Spark: fingerprint, pairs, clusters, query.

They use the session of spark-submit, or start one with Spark's own settings: the configuration
files, and the variables SPARK_* and PYSPARK_*. Spark is imported by the command that needs it.
"""

import contextlib
import importlib
import os
import re
import secrets
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

import fpdb
from fpdb.cli import options, render
from fpdb.cli.options import option, require_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

app = typer.Typer(help="Work on Apache Spark.", rich_markup_mode="rich", no_args_is_help=True)
# What surrounds the message of an error: classes of Java, and marks for machines.
_WRAPPING = re.compile(r"(?:[a-z]\w*\.)+[A-Z][\w$]*: |\[[A-Z][A-Z_.0-9]+\] | *SQLSTATE: \w+.*$")

InputArgument = Annotated[
    str,
    typer.Argument(metavar="IN", help="A path or pattern of Spark, e.g. s3a://crawl/*.parquet."),
]
OutputArgument = Annotated[
    str, typer.Argument(metavar="OUT", callback=require_name, help="A new directory for Parquet.")
]


@app.command()
def fingerprint(
    source: InputArgument,
    output: OutputArgument,
    key: Annotated[str, option("--key-field F", "The column of keys.")] = "key",
    text: Annotated[str, option("--text-field F", "The column of texts.")] = "text",
    recipe: options.RecipeOption = options.WEB,
    similarity: options.NewSimilarityOption = None,
) -> None:
    """Fingerprint texts, and sketch them.

    Example:
      fpdb spark fingerprint pages.jsonl prints.parquet --key-field url
    """
    near: Any = "recipe" if similarity is None else similarity or None
    options = {"recipe": recipe, "similarity": near}
    with _session(output) as (spark, library):
        found = library.fingerprint(_read_texts(spark, source), text=text, key=key, **options)
        found.write.parquet(output)
        written = spark.read.parquet(output)
        missing = written.where("fingerprint IS NULL").count()
        bad = written.where("problem IS NOT NULL").count()
        documents = written.count()
        counts = {"documents": documents, "short": missing - bad, "problems": bad}
        _summarise(output, counts, " (see its column problem)" if bad else "")
    if bad:
        raise typer.Exit(render.ExitCode.BAD_RECORDS)


@app.command()
def pairs(
    source: InputArgument,
    output: OutputArgument,
    k: options.KOption = None,
    similarity: options.SimilarityOption = None,
) -> None:
    """List pairs of near-duplicates.

    Example:
      fpdb spark pairs prints.parquet pairs.parquet --similarity 0.9
    """
    with _session(output) as (spark, library):
        found = _find(library, spark.read.parquet(source), k, similarity)
        found.write.parquet(output)
        _summarise(output, {"pairs": spark.read.parquet(output).count()})


@app.command()
def clusters(
    source: InputArgument,
    output: OutputArgument,
    k: options.KOption = None,
    similarity: options.SimilarityOption = None,
) -> None:
    """Group near-duplicates, or given pairs.

    Example:
      fpdb spark clusters prints.parquet clusters.parquet
    """
    with _session(output) as (spark, library):
        df = spark.read.parquet(source)
        if "other" not in df.columns:
            df = _find(library, df, k, similarity, spanning=True)
        library.clusters(df).write.parquet(output)
        heads = spark.read.parquet(output).where("representative = key").count()
        _summarise(output, {"clusters": heads})


@app.command()
def query(
    questions: Annotated[
        str, typer.Argument(metavar="QUESTIONS", help="The fingerprints to look for.")
    ],
    corpus: Annotated[str, typer.Argument(metavar="CORPUS", help="The fingerprints to search.")],
    output: OutputArgument,
    k: options.KOption = None,
    similarity: options.SimilarityOption = None,
) -> None:
    """Find fingerprints like these in a corpus.

    Example:
      fpdb spark query new.parquet prints.parquet matches.parquet
    """
    with _session(output) as (spark, library):
        asked, held = spark.read.parquet(questions), spark.read.parquet(corpus)
        _find(library, asked, k, similarity, corpus=held).write.parquet(output)
        _summarise(output, {"matches": spark.read.parquet(output).count()})


def _summarise(output: str, counts: dict[str, int], rest: str = "") -> None:
    """Print what was written."""
    render.summarise({"path": output} | counts, f"{output}: {render.listed(counts)}{rest}")


def _find(
    library: Any,
    df: "DataFrame",
    k: int | None,
    similarity: float | None,
    *,
    corpus: "DataFrame | None" = None,
    spanning: bool = False,
) -> "DataFrame":
    """Plan a join and print the plan, and return the pairs, or the matches in a corpus."""
    search: Any = {"similarity": similarity, "k": k}
    plan = library.plan(df, corpus=corpus, **search)
    near = f"k={plan.k}" if isinstance(plan, fpdb.JoinPlan) else f"similarity={plan.similarity}"
    work = f"{plan.rows:,} rows in {plan.tasks:,} tasks"
    render.summarise(None, f"plan: {near}, {plan.name}, {work}")
    found: DataFrame = (
        library.pairs(df, **search, spanning=spanning, plan=plan)
        if corpus is None
        else library.query(df, corpus, **search, plan=plan)
    )
    return found


def _read_texts(spark: "SparkSession", source: str) -> "DataFrame":
    suffix = PurePath(source.removesuffix(".gz")).suffix
    if suffix in (".jsonl", ".json", ".ndjson"):
        return spark.read.json(source)
    if suffix == ".csv":
        return spark.read.csv(source, header=True, multiLine=True, escape='"')
    return spark.read.parquet(source)


@contextlib.contextmanager
def _session(output: str) -> Iterator[tuple["SparkSession", Any]]:
    """Yield a session of Spark with a checkpoint directory, and fpdb's functions for it."""
    library = importlib.import_module("fpdb.integrations.spark")  # says how to install Spark
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, PySparkException
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Spark starts `python -m`, which would import from the working directory.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    started = time.monotonic()
    own = SparkSession.getActiveSession() is None
    try:
        with warnings.catch_warnings():
            # Only its Arrow batches are used, which have nothing to do with pandas.
            warnings.filterwarnings("ignore", "PySpark does not yet fully support", FutureWarning)
            spark = SparkSession.builder.appName("fpdb").getOrCreate()
            try:
                with _new_directory(spark, output):
                    yield spark, library
            finally:
                if own:
                    spark.stop()
    except AnalysisException as error:
        hint = "paths are Spark's: on a cluster, all workers must reach them"
        raise fpdb.InputError(_message(error), hint=hint) from None
    except (PySparkException, Py4JError, ConnectionError) as error:
        hint = "is there a Java of 17 or later? Spark's own messages are above"
        raise fpdb.WorkerError(f"Spark failed: {_message(error)}", hint=hint) from None
    render.summarise(None, f"{time.monotonic() - started:.1f} s")


@contextlib.contextmanager
def _new_directory(spark: "SparkSession", output: str) -> Iterator[None]:
    """Require that the output doesn't exist; put checkpoints beside it, and remove them."""
    context: Any = spark.sparkContext  # PySpark has no public way to Hadoop's file systems
    path = context._jvm.org.apache.hadoop.fs.Path  # noqa: SLF001
    # The random part keeps it from being a directory that is there, which would be removed.
    unused = f"{output.rstrip('/')}.{secrets.token_hex(8)}.checkpoints"
    place, checkpoints = path(output), path(unused)
    system = place.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001
    if system.exists(place):
        hint = "choose another directory, or remove it"
        raise fpdb.InputError(f"{output} exists already", hint=hint)
    own = context.getCheckpointDir() is None
    if own:
        context.setCheckpointDir(checkpoints.toString())
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):  # the first error is the one to report
            system.delete(place, True)
        raise
    finally:
        if own:
            with contextlib.suppress(Exception):
                system.delete(checkpoints, True)


def _message(error: Exception) -> str:
    """Return the line that says the cause of an error of Spark, without Java's class names."""
    lines = str(error).splitlines() or ["no reason is given"]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return _WRAPPING.sub("", causes[-1] if causes else lines[0])
