"""Fingerprints in a DataFrame: computed from texts, and read back from a column."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, LongType, StringType, StructType

import fpdb

# The key of the column's metadata, which Parquet files keep.
_METADATA = "fpdb"
_KEYS = ("string", "byte", "short", "integer", "long")
# The recipes of this process, by id and largest text. All its tasks share them.
_BUILT: dict[tuple[str, int], fpdb.Recipe] = {}
# The runs of Spark whose workers have fpdb.
_PROVEN: set[str] = set()


class FingerprintType(NamedTuple):
    """The width of the fingerprints of a column, the id of their recipe, and what is near.

    That is what has a similarity, or if that is None, what is within k.
    """

    bits: int
    recipe_id: str | None = None
    similarity: float | None = None
    k: int = fpdb.Recipe.k

    @property
    def type(self) -> DataType:
        """Spark's type of such a column. Spark has signed integers only, so the bits count."""
        return (
            LongType() if self.bits <= 64 else StructType().add("high", "long").add("low", "long")
        )


def fingerprint(
    df: DataFrame,
    *,
    text: str = "text",
    key: str = "key",
    recipe: str | fpdb.Recipe = "web",
    similarity: float | Literal["recipe"] | None = "recipe",
) -> DataFrame:
    """Compute fingerprints and sketches of the texts of a DataFrame, which are dropped.

    Spark computes a column each time it is used: write the result to Parquet, or cache it.

    Args:
        df: The documents.
        text: The column of texts.
        key: The column of keys: strings or integers.
        recipe: A recipe, or the name of a preset. It is sent to the workers.
        similarity: What near texts have at least, unless a question says another; by default the
            recipe's, 0.8 with `web`. With None there are no sketches, and bits are compared.

    Returns:
        A DataFrame with the columns `key`, `fingerprint` (null for a short text), `digest`,
        `characters`, `sketch` (with a similarity), and `problem`: why there is no fingerprint.
    """
    source = texts_of(df, text, key)
    chosen = fpdb.recipe(recipe) if isinstance(recipe, str) else recipe
    if similarity == "recipe":
        similarity = chosen.similarity
    similarity = fpdb.models.require_similarity(similarity)
    require_workers(df.sparkSession)
    column = FingerprintType(chosen.bits, chosen.id, similarity, chosen.k)
    schema = StructType([source.schema["key"]]).add("fingerprint", column.type)
    schema.add("digest", "binary").add("characters", "integer")
    if similarity:
        schema.add("sketch", "binary")
    task = partial(_fingerprinted, chosen, similarity)
    prints = source.mapInArrow(task, schema.add("problem", "string"))
    return prints.withMetadata("fingerprint", {_METADATA: column._asdict()})


def _fingerprinted(
    recipe: fpdb.Recipe, similarity: float | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    # The first recipe of a process has loaded its dictionary, so later tasks take that one.
    recipe = _BUILT.setdefault((recipe.id, recipe.largest), recipe)
    for rows in batches:
        problems = pc.if_else(
            rows["text"].is_valid(), pa.scalar(None, pa.string()), "found no text"
        )
        problems = pc.if_else(rows["key"].is_valid(), problems, "found no key")
        texts = pc.if_else(problems.is_null(), rows["text"], "").to_pylist()
        try:
            batch = recipe.batch(texts, sketches=similarity is not None)
        except fpdb.InputError:
            why = map(partial(_problem, recipe), texts, problems.to_pylist())
            problems = pa.array(why, pa.string())
            texts = pc.if_else(problems.is_null(), rows["text"], "").to_pylist()
            batch = recipe.batch(texts, sketches=similarity is not None)
        good = problems.is_null()
        usable = good.to_numpy(zero_copy_only=False)
        digests = b"".join(recipe.digests(texts, batch.short.tolist()))
        columns: dict[str, Any] = {
            "key": rows["key"],
            "fingerprint": _words_array(batch.fingerprints, batch.short | ~usable),
            "digest": _bytes_array(np.frombuffer(digests, np.uint8).reshape(-1, 16), usable),
            "characters": pc.if_else(good, pc.utf8_length(rows["text"]), None).cast(pa.int32()),
        }
        if batch.sketches is not None:
            columns["sketch"] = _bytes_array(batch.sketches, usable & batch.sketches.any(axis=1))
        yield pa.RecordBatch.from_pydict({**columns, "problem": problems})


def _problem(recipe: fpdb.Recipe, text: str, known: str | None) -> str | None:
    try:
        recipe.batch([text])
    except fpdb.InputError as error:
        return str(error)
    return known


def texts_of(df: DataFrame, text: str, key: str) -> DataFrame:
    """Return the columns `key` and `text` of a DataFrame."""
    require_columns(df, text, key)
    kind = df.schema[key].dataType
    if kind.typeName() not in _KEYS:
        raise fpdb.InputError(
            f"found keys of the type {kind.simpleString()}, expected strings or integers",
            hint="cast them: df.withColumn('key', df.key.cast('string'))",
        )
    stored = kind if isinstance(kind, StringType) else LongType()
    return df.select(F.col(key).cast(stored).alias("key"), F.col(text).cast("string").alias("text"))


def require_workers(spark: SparkSession) -> None:
    """Raise MissingExtraError if the workers' Python has no fpdb, which a short job shows."""
    context = spark.sparkContext
    if context.applicationId in _PROVEN:
        return

    # It goes to the workers by value, as what is in fpdb would not.
    def lacking(_: Iterable[int]) -> Iterator[str]:
        import importlib
        import sys

        try:
            importlib.import_module("fpdb")
        except ImportError:
            yield sys.executable

    count = context.defaultParallelism
    for python in context.parallelize(range(count), count).mapPartitions(lacking).take(1):
        raise fpdb.MissingExtraError(
            f"the workers' Python, {python}, has no fpdb",
            hint="pip install 'fpdb-store[spark]' there, or name one that has it: "
            "PYSPARK_PYTHON=/path/to/python",
        )
    _PROVEN.add(context.applicationId)


def require_columns(df: DataFrame, *names: str) -> None:
    """Raise InputError if a DataFrame lacks one of these columns."""
    for name in names:
        if name not in df.columns:
            raise fpdb.InputError(
                f"found the columns {', '.join(df.columns)}, expected {name!r} among them",
                hint="rename a column: df.withColumnRenamed(old, new)",
            )


def fingerprint_type(df: DataFrame) -> FingerprintType:
    """Return the type of a DataFrame's fingerprints, from the column's metadata if it has any."""
    require_columns(df, "key", "fingerprint")
    field = df.schema["fingerprint"]
    bits = 128 if isinstance(field.dataType, StructType) else 64
    return FingerprintType(**{"bits": bits, **((field.metadata or {}).get(_METADATA) or {})})


def fingerprint_column(df: DataFrame, kind: FingerprintType) -> Column:
    """Return the fingerprints of a DataFrame as signed 64-bit words.

    Unsigned 64-bit integers in Parquet are read as decimals.
    """
    column, stored = F.col("fingerprint"), df.schema["fingerprint"].dataType
    if stored == kind.type:
        return column
    if isinstance(stored, DecimalType) and kind.bits <= 64:
        number = "CAST(fingerprint AS decimal(21, 0))"
        wraps = f"if({number} >= {1 << 63}BD, {1 << 64}BD, 0BD)"
        return F.expr(f"CAST({number} - {wraps} AS bigint)")
    raise fpdb.InputError(
        f"found fingerprints of the type {stored.simpleString()}, expected "
        f"{kind.type.simpleString()}",
        hint="fpdb.integrations.spark.fingerprint makes such a column",
    )


def _words_array(fingerprints: NDArray[np.uint64], missing: NDArray[np.bool_]) -> Any:
    """Return fingerprints as an Arrow column, with nulls where they are missing."""
    if fingerprints.ndim == 1:
        return pa.array(fingerprints.view(np.int64), mask=missing)
    words = [pa.array(np.ascontiguousarray(word)) for word in fingerprints.view(np.int64).T]
    return pa.StructArray.from_arrays(words, names=["high", "low"], mask=pa.array(missing))


def _bytes_array(rows: NDArray[np.uint8], there: NDArray[np.bool_]) -> Any:
    """Return rows of bytes as an Arrow column, with nulls where they aren't there."""
    data = pa.py_buffer(np.ascontiguousarray(rows))
    column = pa.Array.from_buffers(pa.binary(rows.shape[1]), len(rows), [None, data])
    return pc.if_else(pa.array(there), column.cast(pa.binary()), pa.scalar(None, pa.binary()))


def bytes_rows(column: pa.Array, width: int) -> NDArray[np.uint8]:
    """Return a column of bytes, all as long, as rows."""
    fixed = column.cast(pa.binary(width))
    data = np.frombuffer(fixed.buffers()[1], np.uint8)[fixed.offset * width :]
    return data[: len(fixed) * width].reshape(-1, width)
