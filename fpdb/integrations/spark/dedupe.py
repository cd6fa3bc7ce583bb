"""A DataFrame without its near-duplicates."""

from collections import defaultdict
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import fpdb
from fpdb.integrations.spark.fingerprints import fingerprint
from fpdb.integrations.spark.matches import clusters, pairs


def dedupe(
    df: DataFrame,
    *,
    text: str = "text",
    key: str = "key",
    recipe: str | fpdb.Recipe = "web",
    similarity: float | Literal["recipe"] | None = "recipe",
) -> DataFrame:
    """Return the rows that stay: in the order of the keys, each that resembles none that stays.

    `fpdb.dedupe` keeps the same rows of records in that order, if no band is crowded. Rows
    without a key or a text stay. Spark reads the DataFrame twice, and the pairs are written to its
    checkpoint directory.

    Args:
        df: The rows, each with a key of its own.
        text: The column of texts.
        key: The column of keys: strings or integers.
        recipe: A recipe, or the name of a preset.
        similarity: As in `fingerprint`; with None, what is within the k of the recipe is removed.
    """
    prints = fingerprint(df, text=text, key=key, recipe=recipe, similarity=similarity)
    near = pairs(prints, spanning=True).checkpoint()
    kind = near.schema["key"].dataType
    copied = F.expr("distance = 0 AND coalesce(similarity, 1.0) = 1.0").alias("copied")
    linked = near.select("key", "other", copied).join(clusters(near), "key")
    removed = linked.groupBy("representative").applyInArrow(_removed, f"removed {kind.typeName()}")
    short = prints.where(f"fingerprint IS NULL AND digest != X'{'00' * 16}'")
    first = short.groupBy("digest").agg(F.min("key").alias("first"))
    equal = short.join(first, "digest").where("key <> first").select(F.col("key").alias("removed"))
    gone = removed.union(equal)
    return df.join(gone, df[key] == gone["removed"], "left_anti")


def _removed(cluster: pa.Table) -> pa.Table:
    """Return the documents of a cluster that go, given its pairs.

    A copy resembles what its original resembles, and so goes in any case.
    """
    copies: list[Any] = []
    earlier: dict[Any, list[Any]] = defaultdict(list)
    for row in cluster.to_pylist():
        if row["copied"]:
            copies.append(row["other"])
        else:
            earlier[row["other"]].append(row["key"])
    gone: dict[Any, None] = {}
    for document in sorted(earlier):
        if any(other not in gone for other in earlier[document]):
            gone[document] = None
    return pa.table({"removed": pa.array([*copies, *gone], cluster.schema.field("key").type)})
