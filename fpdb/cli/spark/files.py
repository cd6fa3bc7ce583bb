"""What Spark reads and writes: documents in, rows out, and a directory to work in meanwhile."""

import contextlib
import json
import tempfile
import uuid
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

import fpdb
from fpdb.cli.spark.options import InputForm, OutputForm, Source

# Lines of JSON that tell which fields there are.
_HEAD = 1000
# What a spreadsheet may take for a formula.
_FORMULA = "^([-=+@\t\r\n\\x00＝＋－＠])"
_CSV: dict[str, Any] = {"header": True, "escape": '"'}


def read(spark: SparkSession, source: Source, keep: tuple[str, ...] = ()) -> DataFrame:
    """Read documents, with whatever columns they have."""
    match source.format:
        case InputForm.PARQUET:
            return spark.read.parquet(*source.paths)
        case InputForm.CSV:
            return spark.read.csv(list(source.paths), multiLine=True, **_CSV)
        case InputForm.JSONL:
            schema = _fields(spark, source, keep)
            return spark.read.json(list(source.paths), schema=schema)


def column(df: DataFrame, source: Source, names: tuple[str, ...]) -> str:
    """Choose the column that has one of these names."""
    for name in names:
        if name in df.columns:
            return name
    raise fpdb.InputError(
        f"{source.paths[0]} has the columns {', '.join(df.columns) or '(none)'}, "
        f"expected {' or '.join(map(repr, names))} among them",
        hint="--key-field and --text-field name the columns of keys and texts",
    )


def _fields(spark: SparkSession, source: Source, keep: tuple[str, ...]) -> StructType:
    """Tell which fields JSON lines have, without reading all of them as Spark would."""
    whole: dict[str, bool] = {}
    for row in spark.read.text(list(source.paths)).limit(_HEAD).collect():
        with contextlib.suppress(ValueError):
            found = json.loads(row[0])
            for name, value in found.items() if isinstance(found, dict) else ():
                if value is not None:
                    is_whole = isinstance(value, int) and not isinstance(value, bool)
                    whole[name] = whole.get(name, True) and is_whole
    named = (*source.keys, *source.texts, "other", "fingerprint", *keep)
    wanted = [name for name in dict.fromkeys(named) if name in whole]
    return StructType(
        [StructField(name, LongType() if whole[name] else StringType()) for name in wanted]
    )


def write(df: DataFrame, path: str, form: OutputForm, *, guard: bool = True) -> None:
    """Write rows to a new directory; if it fails, none is left."""
    with _whole(df.sparkSession, path):
        match form:
            case OutputForm.PARQUET:
                df.write.parquet(path)
            case OutputForm.JSONL:
                df.write.json(path)
            case OutputForm.CSV:
                _guarded(df, guard=guard).write.csv(path, **_CSV)


def _guarded(df: DataFrame, *, guard: bool) -> DataFrame:
    texts = [f.name for f in df.schema if isinstance(f.dataType, StringType)] if guard else []
    return df.withColumns({name: F.regexp_replace(name, _FORMULA, "'$1") for name in texts})


@contextlib.contextmanager
def _whole(spark: SparkSession, path: str) -> Iterator[None]:
    require_vacant(spark, path)
    try:
        yield
    except BaseException:
        _remove(spark, path)
        raise


def require_vacant(spark: SparkSession, path: str) -> None:
    """Refuse a directory that exists."""
    system, place = _place(spark, path)
    if system.exists(place):
        raise fpdb.InputError(
            f"{path} exists already", hint="choose another directory, or remove it"
        )


@contextlib.contextmanager
def workplace(spark: SparkSession, work: str | None, output: str | None) -> Iterator[str]:
    """Give a directory for a block, which Spark checkpoints to as well; then it is removed."""
    name = f"fpdb-{uuid.uuid4().hex[:12]}"
    if work is not None:
        path = f"{work.rstrip('/')}/{name}"
    elif output is not None:
        path = f"{output.rstrip('/')}.{name}"
    elif is_local(spark):
        path = f"{tempfile.gettempdir()}/{name}"
    else:
        raise fpdb.InputError(
            "there is no directory to work in that all workers reach",
            hint="--work DIR names one, or --output DIR, beside which one is made",
        )
    before = spark.sparkContext.getCheckpointDir()
    try:
        spark.sparkContext.setCheckpointDir(f"{path}/checkpoints")
        yield path
    finally:
        if before is not None:
            spark.sparkContext.setCheckpointDir(before)
        _remove(spark, path)


def is_local(spark: SparkSession) -> bool:
    """Tell whether all of Spark is on this machine."""
    return str(spark.sparkContext.master).startswith("local")


def _remove(spark: SparkSession, path: str) -> None:
    """Remove a directory, if Spark is still there to do it."""
    with contextlib.suppress(Exception):
        system, place = _place(spark, path)
        system.delete(place, True)


def _place(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Give the file system of a path, whichever it is; Spark has no other door to it."""
    context: Any = spark.sparkContext
    place = context._jvm.org.apache.hadoop.fs.Path(path)  # noqa: SLF001
    return place.getFileSystem(context._jsc.hadoopConfiguration()), place  # noqa: SLF001
