"""From texts to fingerprints, in the Python processes of Spark's workers."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

import fpdb
from fpdb.integrations.spark.columns import WIDE, note, require_columns, words_array

_KEYS = (StringType, ByteType, ShortType, IntegerType, LongType)
# So many characters of texts are worked on at once.
_CHARACTERS = 1 << 23
# No column that is kept has this name.
_TEXT = "text to fingerprint"
_BUILT: dict[tuple[str, int], fpdb.Recipe] = {}


def fingerprint(
    df: DataFrame,
    *,
    text: str = "text",
    key: str = "key",
    recipe: str | fpdb.Recipe = "web",
    sketch: str | None = None,
    keep: Sequence[str] = (),
) -> DataFrame:
    """Fingerprint the texts of a DataFrame; its rows become documents without their texts.

    The columns are `key`, `fingerprint` (bigint, of 128 bits a struct of two; null for a short
    text), `digest` (16 bytes, by which equal texts are known), `characters`, `sketch` if asked for
    with "minhash" (128 bytes; null for a text without shingles), `problem`, which says why a text
    has no fingerprint at all (no text, no key, or too large), and those that you `keep`.

    The recipe goes to the workers as data, and is built once in each of their processes. Nothing is
    computed before it is asked for, and then each time: write the result to Parquet, or cache it.
    """
    require_columns(df, text, key, *keep)
    if sketch not in (None, "minhash"):
        raise fpdb.InputError(f"found sketch={sketch!r}", hint="minhash or None")
    kind = df.schema[key].dataType
    if not isinstance(kind, _KEYS):
        raise fpdb.InputError(
            f"found keys of the type {kind.simpleString()}, expected strings or whole numbers",
            hint="cast them: df.withColumn('key', df.key.cast('string'))",
        )
    made = {"key", "fingerprint", "digest", "characters", "sketch", "problem"}
    if made & set(keep):
        raise fpdb.InputError(
            f"found keep={list(keep)}, expected none of {', '.join(sorted(made))}",
            hint="rename a column: df.withColumnRenamed(old, new)",
        )
    chosen = fpdb.recipe(recipe) if isinstance(recipe, str) else recipe
    whole = LongType() if not isinstance(kind, StringType) else kind
    wide = chosen.bits == 128
    fields = [
        StructField("key", whole),
        StructField("fingerprint", WIDE if wide else LongType()),
        StructField("digest", BinaryType()),
        StructField("characters", IntegerType()),
        *([StructField("sketch", BinaryType())] if sketch else []),
        StructField("problem", StringType()),
        *(df.schema[name] for name in keep),
    ]
    source = df.select(
        F.col(key).cast(whole).alias("key"), F.col(text).cast("string").alias(_TEXT), *keep
    )
    work = _Work(chosen, sketched=sketch is not None, keep=tuple(keep))
    found = source.mapInArrow(work, StructType(fields))
    own = F.col("fingerprint").alias("fingerprint", metadata=note(chosen.bits, chosen.id, sketch))
    return found.select(*(own if f.name == "fingerprint" else F.col(f.name) for f in fields))


class _Work:
    """What is sent to the workers: the recipe, which is nothing but data, and what to make."""

    def __init__(self, recipe: fpdb.Recipe, *, sketched: bool, keep: tuple[str, ...]) -> None:
        self._recipe = recipe
        self._sketched = sketched
        self._keep = keep

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # The first of this process serves all its tasks, with the dictionary that it has loaded.
        recipe = _BUILT.setdefault((self._recipe.id, self._recipe.largest), self._recipe)
        for batch in batches:
            for rows in _pieces(batch):
                yield self._made(recipe, rows)

    def _made(self, recipe: fpdb.Recipe, rows: pa.RecordBatch) -> pa.RecordBatch:
        texts = rows[_TEXT].to_pylist()
        keyed = rows["key"].is_valid().to_pylist()
        good, batch, problems = _fingerprinted(recipe, texts, keyed, sketched=self._sketched)
        placed = np.zeros(len(texts), np.bool_)
        placed[good] = True
        known = np.flatnonzero(placed)
        short = np.zeros(len(texts), np.bool_)
        short[known] = batch.short
        numbers = np.zeros((len(texts), *batch.fingerprints.shape[1:]), np.uint64)
        numbers[known] = batch.fingerprints
        columns: dict[str, Any] = {
            "key": rows["key"],
            "fingerprint": words_array(numbers, ~placed | short),
            "digest": pa.array(
                [fpdb.text_digest(t) if ok else None for t, ok in zip(texts, placed, strict=True)],
                pa.binary(),
            ),
            "characters": pa.array(
                [len(t) if ok else None for t, ok in zip(texts, placed, strict=True)], pa.int32()
            ),
        }
        if self._sketched and batch.sketches is not None:
            sketches: list[bytes | None] = [None] * len(texts)
            for place, row in zip(known.tolist(), batch.sketches, strict=True):
                sketches[place] = row.tobytes() if row.any() else None
            columns["sketch"] = pa.array(sketches, pa.binary())
        columns["problem"] = pa.array(problems, pa.string())
        columns |= {name: rows[name] for name in self._keep}
        return pa.RecordBatch.from_pydict(columns)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch where its texts become too many to be worked on at once."""
    sizes = [len(text or b"") for text in batch[_TEXT].cast(pa.binary()).to_pylist()]
    start = room = 0
    for place, size in enumerate(sizes):
        room += size
        if room > _CHARACTERS and place > start:
            yield batch.slice(start, place - start)
            start, room = place, size
    yield batch.slice(start)


def _fingerprinted(
    recipe: fpdb.Recipe, texts: Sequence[str | None], keyed: Sequence[bool], *, sketched: bool
) -> tuple[list[int], fpdb.Batch, list[str | None]]:
    """Fingerprint what can be; give the places of that, and what is wrong with the rest."""
    problems: list[str | None] = [
        "found no key" if not named else "found no text" if text is None else None
        for text, named in zip(texts, keyed, strict=True)
    ]
    good = [place for place, problem in enumerate(problems) if problem is None]
    try:
        return good, recipe.batch((texts[p] or "" for p in good), sketches=sketched), problems
    except fpdb.InputError:
        for place in list(good):
            try:
                recipe.batch([texts[place] or ""])
            except fpdb.InputError as error:
                problems[place] = str(error)
                good.remove(place)
    return good, recipe.batch((texts[p] or "" for p in good), sketches=sketched), problems
