"""Clusters: the connected components of pairs, in a number of rounds that grows with log n.

In each round every document looks at itself and its neighbours, and takes the one with the smallest
hash, salted by the round, as its name. Documents with the same name become one, and pairs of one
with itself fall away. On any graph a round is expected to leave at most three of four documents
(Bögeholz, Brand and Todor, "In-database connected component analysis", ICDE 2020), so a path of a
million documents is done in some thirty rounds, and the small clusters of a corpus in a few.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import fpdb
from fpdb.integrations.spark.columns import require_columns


def clusters(pairs: DataFrame) -> DataFrame:
    """Find the documents that pairs connect: a row with `representative` and `key` for each.

    The representative of a cluster is its smallest key; it has a row as well. Take pairs with
    `spanning=True`, which connect the same documents with fewer rows. Each round is written to
    Spark's checkpoint directory, so that a lost worker costs no more than the round.
    """
    require_columns(pairs, "key", "other")
    _require_checkpoints(pairs.sparkSession)
    edges = pairs.select(F.col("key").alias("a"), F.col("other").alias("b")).where("a <> b")
    edges = edges.checkpoint()
    names: list[DataFrame] = []
    while not edges.isEmpty():
        name = _names(edges, len(names)).checkpoint()
        names.append(name)
        edges = _contracted(edges, name).checkpoint()
    return _representatives(names, pairs)


def _names(edges: DataFrame, salt: int) -> DataFrame:
    """Give each document the neighbour with the smallest hash, or its own key, as its name."""
    both = edges.select("a", "b").union(edges.select("b", "a"))
    ranked = both.select("a", F.struct(F.xxhash64("b", F.lit(salt)).alias("hash"), F.col("b")))
    ranked = ranked.toDF("key", "rank")
    own = F.struct(F.xxhash64("key", F.lit(salt)).alias("hash"), F.col("key").alias("b"))
    least = ranked.groupBy("key").agg(F.min("rank").alias("rank"))
    return least.select("key", F.least(own, "rank")["b"].alias("name"))


def _contracted(edges: DataFrame, name: DataFrame) -> DataFrame:
    """Put names in the place of keys, and leave out what has become the same."""
    first = name.toDF("a", "first")
    second = name.toDF("b", "second")
    found = edges.join(first, "a").join(second, "b").where("first <> second")
    return found.select(
        F.least("first", "second").alias("a"), F.greatest("first", "second").alias("b")
    ).distinct()


def _representatives(names: list[DataFrame], pairs: DataFrame) -> DataFrame:
    """Follow the names from the last round back to the documents."""
    if not names:
        keys = pairs.select(F.col("key").alias("representative"), "key")
        return keys.limit(0)
    whole = names[-1]
    for name in reversed(names[:-1]):
        later = whole.toDF("name", "last")
        whole = name.join(later, "name", "left").select(
            "key", F.coalesce("last", "name").alias("name")
        )
    least = whole.groupBy("name").agg(F.min("key").alias("representative"))
    return whole.join(least, "name").select("representative", "key")


def _require_checkpoints(session: SparkSession) -> None:
    directory = session.sparkContext.getCheckpointDir()
    if directory is None:
        raise fpdb.InputError(
            "Spark has no checkpoint directory, where the rounds are written",
            hint="spark.sparkContext.setCheckpointDir(directory), on a disk that all workers share",
        )
