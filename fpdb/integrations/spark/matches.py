"""Pairs of near documents, clusters, and matches of questions, as a database finds them.

Similar documents are found by their sketches, or where bits are compared, those within k. Equal
documents, with the same fingerprint and sketch, are known by a hash of these, their id.
"""

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

import fpdb
from fpdb.integrations.spark.fingerprints import (
    FingerprintType,
    fingerprint_column,
    fingerprint_type,
    require_columns,
)
from fpdb.integrations.spark.near import ends, near

# Two documents with equal ones are equal.
_LIKENESS = ("fingerprint", "sketch", "digest")


def pairs(
    df: DataFrame, *, similarity: float | None = None, k: int | None = None, spanning: bool = False
) -> DataFrame:
    """Find all pairs of near documents, each once: `key`, `other`, `distance`, `similarity`.

    They are the pairs of a database with the same documents; `key` is the smaller one.

    Args:
        df: The columns of `fingerprint`; for bits `key` and `fingerprint`. Each key occurs once.
        similarity: The least Jaccard similarity, by sketches; by default that of `fingerprint`.
        k: Compare bits instead, and at most this distance; without sketches by default that of the
            recipe, or 3. Then `similarity` is null.
        spanning: Pair the documents of a group of equal ones with the first of them only, and of
            two near groups only the first documents: fewer rows, which connect the same documents.
            A million copies have 500 billion pairs. `clusters` needs no more than this.
    """
    wanted = _wanted(fingerprint_type(df), similarity, k)
    documents = documents_of(df, wanted).where("fingerprint IS NOT NULL")
    if spanning:
        members = with_leads(documents)
        equal = members.where("key <> lead").selectExpr("key", "lead AS other")
        documents = members.where("key = lead")
    else:
        one, other = ends([documents])
        same = " AND ".join(f"one_{name} <=> other_{name}" for name in ("id", *_LIKENESS))
        equal = one.join(other, F.expr(f"one_key < other_key AND {same}"))
        equal = equal.selectExpr("one_key AS key", "other_key AS other")
    both = _nearness([documents], wanted, equal)
    ordered = F.least("key", "other").alias("key"), F.greatest("key", "other").alias("other")
    return both.select(*ordered, "distance", "similarity")


def query(
    df: DataFrame, corpus: DataFrame, *, similarity: float | None = None, k: int | None = None
) -> DataFrame:
    """Find the documents of a corpus near each question: `query`, `key`, `distance`, `similarity`.

    They are the matches of a database with the corpus, in no order. Both DataFrames have the
    columns of `fingerprint`. A short text matches short texts that equal it, by `digest`. The
    options are those of `pairs`, and the similarity is by default that of the corpus.
    """
    asked, kind = fingerprint_type(df), fingerprint_type(corpus)
    if None not in (kind.recipe_id, asked.recipe_id) and kind.recipe_id != asked.recipe_id:
        raise fpdb.RecipeMismatchError(
            f"the corpus was fingerprinted by the recipe {kind.recipe_id}, "
            f"found questions by {asked.recipe_id}",
            hint="fingerprint both by the same recipe",
        )
    wanted = _wanted(kind, similarity, k)
    documents = [documents_of(side, wanted) for side in (df, corpus)]
    one, other = ends([side.where("digest IS NOT NULL") for side in documents])
    equal = one.join(other, F.expr("one_digest = other_digest"))
    both = _nearness(documents, wanted, equal.selectExpr("one_key AS key", "other_key AS other"))
    return both.selectExpr("key AS query", "other AS key", "distance", "similarity")


def _wanted(kind: FingerprintType, similarity: float | None, k: int | None) -> FingerprintType:
    similarity = fpdb.models.require_similarity(similarity, k)
    if k is not None:
        return kind._replace(similarity=None, k=k)
    return kind._replace(similarity=similarity or kind.similarity)


def _nearness(sides: list[DataFrame], wanted: FingerprintType, equal: DataFrame) -> DataFrame:
    """Return the near documents of `near`, and equal ones."""
    least = fpdb.least_estimate(wanted.similarity) if wanted.similarity else 0.0
    # Equal texts are known to be similar, even where bits are compared.
    share = "1.0D" if wanted.similarity or len(sides) > 1 else "CAST(NULL AS double)"
    equal = equal.selectExpr("key", "other", "0 AS distance", f"{share} AS similarity")
    return near(sides, wanted, least).unionByName(equal)


def documents_of(df: DataFrame, wanted: FingerprintType, *, exactly: bool = False) -> DataFrame:
    """Return `key`, `fingerprint`, `sketch`, `digest`, and `id`, which is equal for equal ones.

    There is a digest only where it decides which documents are equal: without a fingerprint, and
    for a similarity, without a sketch; or everywhere, if they are to be equal exactly. What has
    nothing to compare is left out.
    """
    if wanted.similarity is not None and "sketch" not in df.columns:
        raise fpdb.InputError(
            "the documents have no sketches to find similar ones by",
            hint="fingerprint them with a similarity, or query with k",
        )
    nothing, zeros = "CAST(NULL AS binary)", f"X'{'00' * 16}'"
    sketch = "if(fingerprint IS NULL, NULL, sketch)" if wanted.similarity else nothing
    compared = sketch if wanted.similarity else "fingerprint"
    digest = f"if({exactly} OR {compared} IS NULL, nullif(digest, {zeros}), NULL)"
    digest = digest if "digest" in df.columns else nothing
    prints = df.withColumn("fingerprint", fingerprint_column(df, wanted))
    prints = prints.where(f"{compared} IS NOT NULL OR {digest} IS NOT NULL")
    names = "key", "fingerprint", f"{sketch} AS sketch", f"{digest} AS digest"
    return prints.selectExpr(*names).withColumn("id", F.xxhash64(*_LIKENESS))


def with_leads(documents: DataFrame) -> DataFrame:
    """Add the `lead` of each document: the smallest key of those that equal it."""
    return documents.withColumn("lead", F.min("key").over(Window.partitionBy("id", *_LIKENESS)))


def checkpoints_of(df: DataFrame) -> str:
    """Return Spark's checkpoint directory; raise InputError if it has none."""
    directory: str | None = df.sparkSession.sparkContext.getCheckpointDir()
    if directory is None:
        raise fpdb.InputError(
            "Spark has no checkpoint directory to write the rounds to",
            hint="spark.sparkContext.setCheckpointDir(directory), on a disk that all workers reach",
        )
    return directory


def clusters(pairs: DataFrame) -> DataFrame:
    """Return the documents that pairs connect: a row with `representative` and `key` for each.

    They are those of `db.clusters(chains=True)`; `dedupe` follows no chains. The representative of
    a cluster is its smallest key, which has a row as well. Pairs found with `spanning=True` give
    the same clusters with fewer rows. Each round is written to Spark's checkpoint directory, so
    that a lost worker costs no more than the round.
    """
    require_columns(pairs, "key", "other")
    checkpoints_of(pairs)
    ordered = F.greatest("key", "other").alias("key"), F.least("key", "other").alias("low")
    edges = pairs.select(*ordered).where("key <> low").distinct().checkpoint()
    before = None
    while (now := _summary(edges)) != before:
        before, edges = now, _round(edges).checkpoint()
    heads = edges.select("low", F.col("low").alias("key")).distinct()
    return edges.select("low", "key").union(heads).withColumnRenamed("low", "representative")


def _summary(edges: DataFrame) -> Row | None:
    """Return numbers that change if the edges do."""
    hashed = F.xxhash64("key", "low").cast("decimal(38,0)")
    return edges.agg(F.count("*"), F.sum(hashed)).first()


def _round(edges: DataFrame) -> DataFrame:
    """Link documents to lower ones of their clusters; the lowest are all that is left in the end.

    These are the large star and the small star of Kiveris et al., "Connected components in
    MapReduce and beyond" (SoCC 2014). The rounds grow with the logarithm of the longest path.
    """
    swapped = edges.select(F.col("low").alias("key"), F.col("key").alias("low"))
    nearby = edges.union(swapped).groupBy("key").agg(F.min("low").alias("least"))
    nearby = nearby.select(F.col("key").alias("low"), F.least("key", "least").alias("least"))
    large = edges.join(nearby, "low").select("key", F.col("least").alias("low")).distinct()
    least = large.groupBy("key").agg(F.min("low").alias("least"))
    lower = large.join(least, "key").select(F.col("low").alias("key"), "least")
    return least.union(lower.where("key <> least")).distinct().withColumnRenamed("least", "low")
