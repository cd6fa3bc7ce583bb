"""A DataFrame without its near-duplicates."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Literal
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

import fpdb
from fpdb.integrations.spark.fingerprints import fingerprint, fingerprint_type, texts_of
from fpdb.integrations.spark.matches import checkpoints_of, clusters, documents_of, with_leads
from fpdb.integrations.spark.near import near

# Pairs that one task decides; more are divided by their clusters.
_TOGETHER = 4_000_000
# Keys of removed rows that are sent to all workers, so that no text is.
_SENT = 1_000_000


def dedupe(
    df: DataFrame,
    *,
    text: str = "text",
    key: str = "key",
    recipe: str | fpdb.Recipe = "web",
    similarity: float | Literal["recipe"] | None = "recipe",
) -> DataFrame:
    """Return the rows that stay: in the order of the keys, each that resembles none that stays.

    `fpdb.dedupe` keeps the same rows of records in that order, if no band is crowded: texts are
    compared where sketches leave it open whether they are similar. Rows without a key or a text
    stay. Spark reads the DataFrame up to three times, and writes fingerprints and pairs to its
    checkpoint directory.

    Args:
        df: The rows, each with a key of its own.
        text: The column of texts.
        key: The column of keys: strings or integers.
        recipe: A recipe, or the name of a preset.
        similarity: As in `fingerprint`; with None, what is within the k of the recipe is removed.
    """
    checkpoints_of(df)
    chosen = fpdb.recipe(recipe) if isinstance(recipe, str) else recipe
    prints = fingerprint(df, text=text, key=key, recipe=chosen, similarity=similarity)
    kind = fingerprint_type(prints)
    least, sure = fpdb.doubtful_estimates(kind.similarity) if kind.similarity else (0.0, 0.0)
    # Where equal sketches don't show that texts are similar, only equal texts are equal.
    documents = _written(with_leads(documents_of(prints, kind, exactly=sure >= 1)))
    low, high = F.least("key", "other").alias("key"), F.greatest("key", "other").alias("other")
    pairs = near([documents.where("key = lead")], kind, least)
    linked = _written(pairs.select(low, high, "similarity"))
    if kind.similarity:
        texts = texts_of(df, text, key)
        alike = _similar(linked.where(f"similarity < {sure}"), texts, chosen, kind.similarity)
        linked = _written(linked.where(f"similarity >= {sure}").select("key", "other").union(alike))
    together = linked.coalesce(1)
    if linked.count() > _TOGETHER:
        together = linked.join(clusters(linked), "key").repartition("representative")
    removed = StructType([StructField("removed", linked.schema["key"].dataType)])
    resembling = together.select("key", "other").mapInArrow(_removed, removed)
    gone = _written(documents.where("key <> lead").selectExpr("key AS removed").union(resembling))
    if gone.count() <= _SENT:
        gone = F.broadcast(gone)
    return df.join(gone, df[key] == gone["removed"], "left_anti")


def _written(df: DataFrame) -> DataFrame:
    """Write rows to the checkpoint directory, so that a lost worker costs no more than a step."""
    path = f"{checkpoints_of(df)}/fpdb-{uuid4().hex}"
    df.write.parquet(path)
    return df.sparkSession.read.parquet(path)


def _similar(
    pairs: DataFrame, texts: DataFrame, recipe: fpdb.Recipe, similarity: float
) -> DataFrame:
    keys = pairs.select("key").union(pairs.select("other")).distinct()
    texts = _written(texts.join(keys, "key", "left_semi"))
    both = (
        pairs.select("key", "other").join(texts, "key").join(texts.toDF("other", "more"), "other")
    )
    schema = both.select("key", "other").schema
    return both.mapInArrow(partial(_compared_exactly, recipe, similarity), schema)


def _compared_exactly(
    recipe: fpdb.Recipe, similarity: float, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Compare texts by their shingles, and yield the pairs that are similar."""
    for batch in batches:
        first, second = (recipe.shingles_many(batch[name].to_pylist()) for name in ("text", "more"))
        sizes = np.array([[*map(len, first)], [*map(len, second)]]).sum(axis=0)
        pairs = zip(first, second, strict=True)
        common = np.array([len(np.intersect1d(*both, assume_unique=True)) for both in pairs])
        alike = common / np.maximum(sizes - common, 1) >= similarity
        yield batch.select(["key", "other"]).filter(pa.array(alike))


def _removed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the documents of whole clusters that go, given their pairs.

    In the order of the keys, each goes that resembles an earlier one that stays.
    """
    parts = list(batches)
    if not parts:
        return
    [earlier, later] = pa.Table.from_batches(parts).columns
    named = pa.chunked_array([*earlier.chunks, *later.chunks]).combine_chunks().dictionary_encode()
    order = pc.sort_indices(named.dictionary)
    ranks = order.to_numpy().argsort()[named.indices].reshape(2, -1)
    gone = np.zeros(len(order), np.bool_)
    for first, second in ranks[:, ranks[1].argsort()].T.tolist():
        if not gone[first]:
            gone[second] = True
    removed = named.dictionary.take(order).filter(pa.array(gone))
    yield pa.RecordBatch.from_arrays([removed], ["removed"])
