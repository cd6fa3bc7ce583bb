"""Pairs of near documents, clusters, and matches of questions, as a database finds them.

Similar documents are found by their sketches, or where bits are compared, those within k.
Documents with the same fingerprint (and the same sketch, if that counts) are a group, which is
joined as one row, its smallest key being the lead. The last step expands groups to documents.
"""

from typing import NamedTuple

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

import fpdb
from fpdb.integrations.spark.cells import AnyPlan, BandPlan, joined, plan_bands
from fpdb.integrations.spark.fingerprints import (
    FingerprintType,
    fingerprint_column,
    fingerprint_type,
    require_columns,
)

_NEARNESS = ("distance", "similarity")


class _Wanted(NamedTuple):
    """What is near: what has a similarity, or if that is None, what is within k."""

    similarity: float | None
    k: int


def plan(
    df: DataFrame,
    *,
    corpus: DataFrame | None = None,
    similarity: float | None = None,
    k: int | None = None,
) -> AnyPlan:
    """Count the distinct documents and return the best plan to join them.

    `pairs` and `query` make one themselves if they are given none.
    """
    kind = fingerprint_type(df)
    held_kind = kind if corpus is None else _corpus_kind(corpus, kind)
    search = _search(held_kind, similarity, k)
    held = None if corpus is None else _documents(corpus, held_kind, search)
    return _planned(_documents(df, kind, search), held, kind, search)


def pairs(
    df: DataFrame,
    *,
    similarity: float | None = None,
    k: int | None = None,
    spanning: bool = False,
    plan: AnyPlan | None = None,
) -> DataFrame:
    """Find all pairs of near documents, each once: `key`, `other`, `distance`, `similarity`.

    They are the pairs of a database with the same documents; `key` is the smaller one.

    Args:
        df: The columns of `fingerprint`; for bits `key` and `fingerprint`. Each key occurs once.
        similarity: The least Jaccard similarity, by sketches; by default that of `fingerprint`.
        k: Compare bits instead, and at most this distance; without sketches by default that of the
            recipe, or 3. Then `similarity` is null.
        spanning: Pair the documents of a group with the first of them only, and of two near groups
            only the first documents: fewer rows, which connect the same documents. A million
            copies have 500 billion pairs. `clusters` needs no more than this.
        plan: A plan made by `plan` for the same question, which saves counting again.
    """
    kind = fingerprint_type(df)
    search = _search(kind, similarity, k)
    documents = _documents(df, kind, search)
    chosen = plan or _planned(documents, None, kind, search)
    groups, members = _grouped(documents, named=spanning or search.similarity is not None)
    linked = _near(groups, None, kind, search, chosen)
    inside = _equal(_inside(members, spanning=spanning), known=search.similarity is not None)
    if spanning:
        linked = linked.withColumnsRenamed({"lead": "key", "other_lead": "other"})
    else:
        linked = _spread(linked, members, members)
    ordered = linked.unionByName(inside).withColumns(
        {"key": F.least("key", "other"), "other": F.greatest("key", "other")}
    )
    return ordered.select("key", "other", *_NEARNESS)


def query(
    df: DataFrame,
    corpus: DataFrame,
    *,
    similarity: float | None = None,
    k: int | None = None,
    plan: AnyPlan | None = None,
) -> DataFrame:
    """Find the documents of a corpus near each question: `query`, `key`, `distance`, `similarity`.

    They are the matches of a database with the corpus, in no order. Both DataFrames have the
    columns of `fingerprint`. A short text matches short texts that equal it, by `digest`. The
    options are those of `pairs`, and the similarity is by default that of the corpus.
    """
    kind = fingerprint_type(df)
    own = _corpus_kind(corpus, kind)
    search = _search(own, similarity, k)
    asked, held = _documents(df, kind, search), _documents(corpus, own, search)
    chosen = plan or _planned(asked, held, kind, search)
    named = search.similarity is not None
    (groups, questions), (others, members) = (_grouped(side, named=named) for side in (asked, held))
    linked = _near(groups, others, kind, search, chosen)
    matches = _spread(linked, questions, members).unionByName(_same_texts(df, corpus))
    return matches.select(F.col("key").alias("query"), F.col("other").alias("key"), *_NEARNESS)


def _search(kind: FingerprintType, similarity: float | None, k: int | None) -> _Wanted:
    fpdb.models.require_similarity(similarity, k)
    if k is not None:
        return _Wanted(None, k)
    return _Wanted(kind.similarity if similarity is None else similarity, kind.k)


def _corpus_kind(corpus: DataFrame, asked: FingerprintType) -> FingerprintType:
    """Return the type of the corpus; raise RecipeMismatchError if the questions' isn't the same."""
    own = fingerprint_type(corpus)
    if None not in (own.recipe_id, asked.recipe_id) and own.recipe_id != asked.recipe_id:
        raise fpdb.RecipeMismatchError(
            f"the corpus was fingerprinted by the recipe {own.recipe_id}, "
            f"found questions by {asked.recipe_id}",
            hint="fingerprint both by the same recipe",
        )
    return own


def _documents(df: DataFrame, kind: FingerprintType, search: _Wanted) -> DataFrame:
    """Return the documents with a fingerprint, and for a similarity, with a sketch or a digest."""
    columns = [F.col("key"), fingerprint_column(df, kind).alias("fingerprint")]
    if search.similarity is None:
        return df.select(*columns).where("fingerprint IS NOT NULL")
    if "sketch" not in df.columns:
        raise fpdb.InputError(
            "the documents have no sketches to find similar ones by",
            hint="fingerprint them with a similarity, or query with k",
        )
    digest = F.col("digest") if "digest" in df.columns else F.lit(None).cast("binary")
    columns.append(F.coalesce("sketch", digest).alias("likeness"))
    return df.select(*columns).where("fingerprint IS NOT NULL AND likeness IS NOT NULL")


def _planned(
    left: DataFrame, right: DataFrame | None, kind: FingerprintType, search: _Wanted
) -> AnyPlan:
    cores = max(1, left.sparkSession.sparkContext.defaultParallelism)
    if search.similarity is not None:
        others = None if right is None else _groups(right)
        return plan_bands(_groups(left), others, search.similarity, cores)
    sides = [side.select("fingerprint") for side in (left, right) if side is not None]
    counts = [max(1, side.distinct().count()) for side in sides]
    queries = None if right is None else counts[0]
    return fpdb.join_plans(kind.bits, search.k, counts[-1], queries=queries, cores=cores)[0]


def _near(
    left: DataFrame, right: DataFrame | None, kind: FingerprintType, search: _Wanted, plan: AnyPlan
) -> DataFrame:
    """Return near pairs: `lead`, `other_lead`, `distance`, `similarity`.

    A lead is the key of a group, or where bits are compared, its fingerprint.
    """
    if isinstance(plan, BandPlan):
        fits, made = plan.similarity == search.similarity, f"similarity={plan.similarity}"
    else:
        fits = search.similarity is None and (plan.bits, plan.k) == (kind.bits, search.k)
        made = f"{plan.bits} bits and k={plan.k}"
    if not fits:
        wanted = f"k={search.k}" if search.similarity is None else f"similarity={search.similarity}"
        raise fpdb.PlanError(
            f"the plan is for {made}, expected one for {wanted}",
            hint="fpdb.integrations.spark.plan makes one for the same question",
        )
    return joined(left, right, plan)


def _grouped(documents: DataFrame, *, named: bool) -> tuple[DataFrame, DataFrame]:
    """Return the groups, and the documents with the leads of theirs.

    The lead is the smallest key, or unless they are `named`, the fingerprint.
    """
    if named:
        groups = _groups(documents)
        names = [name for name in documents.columns if name != "key"]
        return groups, documents.join(groups, names).select("lead", "key")
    members = documents.select(F.col("fingerprint").alias("lead"), "key")
    return documents.select("fingerprint").distinct(), members


def _groups(documents: DataFrame) -> DataFrame:
    """Return the groups, each with its smallest key as the lead."""
    names = [name for name in documents.columns if name != "key"]
    return documents.groupBy(*names).agg(F.min("key").alias("lead"))


def _inside(members: DataFrame, *, spanning: bool) -> DataFrame:
    """Pair the documents of each group: with the lead, or each with each."""
    if spanning:
        return members.where("key <> lead").select(
            F.col("lead").alias("key"), F.col("key").alias("other")
        )
    others = members.withColumnRenamed("key", "other")
    return members.join(others, "lead").where("key < other").drop("lead")


def _equal(pairs: DataFrame, *, known: bool = True) -> DataFrame:
    """Add the distance and the similarity of equal documents, if similarity is known."""
    similarity = F.lit(1.0 if known else None).cast("double")
    return pairs.withColumn("distance", F.lit(0)).withColumn("similarity", similarity)


def _spread(linked: DataFrame, members: DataFrame, others: DataFrame) -> DataFrame:
    """Expand pairs of groups to pairs of documents."""
    second = others.withColumnsRenamed({"lead": "other_lead", "key": "other"})
    return linked.join(members, "lead").join(second, "other_lead").drop("lead", "other_lead")


def _same_texts(df: DataFrame, corpus: DataFrame) -> DataFrame:
    """Match short texts with those that equal them."""
    sides = [
        side.where(f"fingerprint IS NULL AND digest != X'{'00' * 16}'").select("key", "digest")
        if "digest" in side.columns
        else side.select("key", F.lit(None).cast("binary").alias("digest")).limit(0)
        for side in (df, corpus)
    ]
    second = sides[1].withColumnRenamed("key", "other")
    return _equal(sides[0].join(second, "digest").drop("digest"))


def clusters(pairs: DataFrame) -> DataFrame:
    """Return the documents that pairs connect: a row with `representative` and `key` for each.

    They are those of `db.clusters(chains=True)`; `dedupe` follows no chains. The representative of
    a cluster is its smallest key, which has a row as well. Pairs found with `spanning=True` give
    the same clusters with fewer rows. Each round is written to Spark's checkpoint directory, so
    that a lost worker costs no more than the round.
    """
    require_columns(pairs, "key", "other")
    if pairs.sparkSession.sparkContext.getCheckpointDir() is None:
        raise fpdb.InputError(
            "Spark has no checkpoint directory to write the rounds to",
            hint="spark.sparkContext.setCheckpointDir(directory), on a disk that all workers reach",
        )
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
