"""Fingerprints in a DataFrame: computed from texts, and read back from a column."""

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

import fpdb

# The key of the column's metadata, which Parquet files keep.
_METADATA = "fpdb"
_WORD_NAMES = ("high", "low")
_WIDE = StructType().add("high", "long").add("low", "long")
# Decimals, because the gateway to Java takes no integers as large as these.
_LOWEST_NEGATIVE, _WRAP = Decimal(1 << 63), Decimal(1 << 64)
_INTEGERS = (ByteType, ShortType, IntegerType, LongType)
# The recipes of this process, by id and largest text. All its tasks share them.
_BUILT: dict[tuple[str, int], fpdb.Recipe] = {}


class FingerprintType(NamedTuple):
    """The width of the fingerprints of a column, and what computed them.

    That is the id of a recipe, the similarity that sketches were made for, and the k where bits are
    compared.
    """

    bits: int
    recipe_id: str | None = None
    similarity: float | None = None
    k: int = fpdb.Recipe.k

    @property
    def type(self) -> DataType:
        """Spark's type of such a column. Spark has signed integers only, so the bits count."""
        return _WIDE if self.bits == 128 else LongType()


def fingerprint(
    df: DataFrame,
    *,
    text: str = "text",
    key: str = "key",
    recipe: str | fpdb.Recipe = "web",
    similarity: float | Literal["recipe"] | None = "recipe",
) -> DataFrame:
    """Compute fingerprints and sketches of the texts of a DataFrame, which are dropped.

    Spark computes a column each time it is used: write the result to Parquet, or cache it. The
    recipe is sent to the workers as data, and each of their processes builds it once.

    Args:
        df: The documents.
        text: The column of texts.
        key: The column of keys: strings or integers.
        recipe: A recipe, or the name of a preset.
        similarity: What near texts have at least, unless a question says another; by default the
            recipe's, 0.8 with `web`. With None there are no sketches, and bits are compared.

    Returns:
        A DataFrame with the columns `key`, `fingerprint` (bigint; for 128 bits a struct of two;
        null for a short text), `digest` (16 bytes, equal for equal texts), `characters`, `sketch`
        (128 bytes; null for a text without shingles; only with a similarity) and `problem` (why a
        document has no fingerprint: no text, no key, or too large).
    """
    require_columns(df, text, key)
    key_type = df.schema[key].dataType
    if not isinstance(key_type, (StringType, *_INTEGERS)):
        raise fpdb.InputError(
            f"found keys of the type {key_type.simpleString()}, expected strings or integers",
            hint="cast them: df.withColumn('key', df.key.cast('string'))",
        )
    chosen = fpdb.recipe(recipe) if isinstance(recipe, str) else recipe
    if similarity == "recipe":
        similarity = chosen.similarity
    fpdb.models.require_similarity(similarity)
    column = FingerprintType(chosen.bits, chosen.id, similarity, chosen.k)
    stored_key = key_type if isinstance(key_type, StringType) else LongType()
    schema = StructType().add("key", stored_key).add("fingerprint", column.type)
    schema.add("digest", "binary").add("characters", "integer")
    if similarity:
        schema.add("sketch", "binary")
    schema.add("problem", "string")
    source = df.select(
        F.col(key).cast(stored_key).alias("key"), F.col(text).cast("string").alias("text")
    )
    task = _FingerprintTask(chosen, sketched=similarity is not None)
    found = source.mapInArrow(task, schema)
    return found.withMetadata("fingerprint", {_METADATA: column._asdict()})


class _FingerprintTask:
    """Fingerprints batches of texts on a worker. It is sent there, and consists of data only."""

    def __init__(self, recipe: fpdb.Recipe, *, sketched: bool) -> None:
        self._recipe = recipe
        self._sketched = sketched

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # The first recipe of a process has loaded its dictionary, so later tasks take that one.
        recipe = _BUILT.setdefault((self._recipe.id, self._recipe.largest), self._recipe)
        for rows in batches:
            yield self._fingerprint(recipe, rows)

    def _fingerprint(self, recipe: fpdb.Recipe, rows: pa.RecordBatch) -> pa.RecordBatch:
        texts = rows["text"].to_pylist()
        keyed = rows["key"].is_valid().to_pylist()
        good, batch, problems = self._usable(recipe, texts, keyed)
        count = len(texts)
        missing = np.ones(count, np.bool_)
        missing[good] = batch.short
        unusable, at = np.ones(count, np.bool_), np.zeros(count, np.int64)
        unusable[good], at[good] = False, np.arange(len(good))
        places = pa.array(at, mask=unusable)
        numbers = np.zeros((count, *batch.fingerprints.shape[1:]), np.uint64)
        numbers[good] = batch.fingerprints
        usable = [texts[place] or "" for place in good]
        digests, lengths = recipe.digests(usable, batch.short.tolist()), list(map(len, usable))
        columns: dict[str, Any] = {
            "key": rows["key"],
            "fingerprint": words_array(numbers, missing),
            "digest": pa.array(digests, pa.binary()).take(places),
            "characters": pa.array(lengths, pa.int32()).take(places),
        }
        if self._sketched and batch.sketches is not None:
            sketches = [row.tobytes() if row.any() else None for row in batch.sketches]
            columns["sketch"] = pa.array(sketches, pa.binary()).take(places)
        columns["problem"] = pa.array(problems, pa.string())
        return pa.RecordBatch.from_pydict(columns)

    def _usable(
        self, recipe: fpdb.Recipe, texts: list[str | None], keyed: list[bool]
    ) -> tuple[list[int], fpdb.models.Batch, list[str | None]]:
        """Return the places of the usable texts, their batch, and the problem of each other one."""
        problems: list[str | None] = []
        for text, named in zip(texts, keyed, strict=True):
            missing = "key" if not named else "text" if text is None else None
            problems.append(missing and f"found no {missing}")

        def batch(places: list[int]) -> fpdb.models.Batch:
            return recipe.batch((texts[place] or "" for place in places), sketches=self._sketched)

        good = [place for place, problem in enumerate(problems) if problem is None]
        try:
            return good, batch(good), problems
        except fpdb.InputError:
            for place in good:
                try:
                    batch([place])
                except fpdb.InputError as error:
                    problems[place] = str(error)
        good = [place for place, problem in enumerate(problems) if problem is None]
        return good, batch(good), problems


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
    metadata = (field.metadata or {}).get(_METADATA) or {}
    bits = 128 if isinstance(field.dataType, StructType) else 64
    return FingerprintType(**{"bits": bits, **metadata})


def fingerprint_column(df: DataFrame, kind: FingerprintType) -> Column:
    """Return the fingerprints of a DataFrame as signed 64-bit words.

    Unsigned 64-bit integers in Parquet are read as decimals.
    """
    found = df.schema["fingerprint"].dataType
    column = F.col("fingerprint")
    if found == kind.type:
        return column
    if isinstance(found, DecimalType) and kind.bits <= 64:
        number = column.cast("decimal(21,0)")
        signed = F.when(number >= _LOWEST_NEGATIVE, number - _WRAP).otherwise(number)
        return signed.cast("bigint")
    raise fpdb.InputError(
        f"found fingerprints of the type {found.simpleString()}, expected "
        f"{kind.type.simpleString()}",
        hint="fpdb.integrations.spark.fingerprint makes such a column",
    )


def words_array(fingerprints: NDArray[np.uint64], missing: NDArray[np.bool_] | None = None) -> Any:
    """Return fingerprints as an Arrow column, with nulls where they are missing."""
    numbers = np.ascontiguousarray(fingerprints).view(np.int64)
    if numbers.ndim == 1 or numbers.shape[1] == 1:
        return pa.array(numbers.reshape(-1), mask=missing)
    words = [pa.array(np.ascontiguousarray(numbers[:, word])) for word in (0, 1)]
    mask = None if missing is None else pa.array(missing)
    return pa.StructArray.from_arrays(words, names=list(_WORD_NAMES), mask=mask)
