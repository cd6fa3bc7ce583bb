"""Pairs of documents within k, clusters, and matches of questions, as a database finds them.

Documents with the same fingerprint (and the same sketch, if pairs are verified) are a group, which
is joined as one row, its smallest key being the lead. The last step expands groups to documents.
"""

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

import fpdb
from fpdb.integrations.spark.fingerprints import (
    FingerprintType,
    fingerprint_column,
    fingerprint_type,
    require_columns,
)
from fpdb.integrations.spark.kernel import near, verified

_DEFAULT_K = 3


def plan(
    df: DataFrame,
    k: int | None = None,
    *,
    corpus: DataFrame | None = None,
    similarity: float | None = None,
) -> fpdb.JoinPlan:
    """Count the distinct fingerprints and return the best plan to join them.

    `pairs` and `query` make one themselves if they are given none.
    """
    kind = fingerprint_type(df)
    wanted = _first_look(kind, k, similarity)
    held = None if corpus is None else _documents(corpus, _corpus_kind(corpus, kind))
    return _planned(_documents(df, kind), held, kind, wanted)


def pairs(
    df: DataFrame,
    k: int | None = None,
    *,
    similarity: float | None = None,
    spanning: bool = False,
    plan: fpdb.JoinPlan | None = None,
) -> DataFrame:
    """Find all pairs of documents within k, each once: `key`, `other`, `distance`, `similarity`.

    They are the pairs of a database with the same documents; `key` is the smaller one.

    Args:
        df: The columns `key` and `fingerprint`, and for `similarity` the others of `fingerprint`.
            Each key occurs once.
        k: The largest distance, by default 3.
        similarity: The least Jaccard similarity, by sketches, which becomes the column `jaccard`.
            The default of k is then as wide as this similarity needs.
        spanning: Pair the documents of a group with the first of them only, and of two near groups
            only the first documents: fewer rows, which connect the same documents. A million
            copies have 500 billion pairs. `clusters` needs no more than this.
        plan: A plan made by `plan` for the same question, which saves counting again.
    """
    kind = fingerprint_type(df)
    wanted = _first_look(kind, k, similarity)
    documents = _documents(df, kind, verified=similarity is not None)
    found = _near(documents, None, kind, wanted, plan)
    if similarity is None and not spanning:
        members = documents.select(F.col("fingerprint").alias("lead"), "key")
        linked = found.withColumnsRenamed({"first": "lead", "second": "other_lead"})
    else:
        groups = _groups(documents)
        members = _members(documents, groups)
        linked = _leads(found, groups, groups)
        if similarity is not None:
            linked = verified(linked.unionByName(_twins(groups)), similarity)
    inside = _inside(members, spanning=spanning)
    if spanning:
        linked = linked.withColumnsRenamed({"lead": "key", "other_lead": "other"})
    else:
        linked = _spread(linked, members, members)
    if similarity is not None:
        inside = inside.withColumn("jaccard", F.lit(1.0))
    ordered = linked.unionByName(inside).withColumns(
        {"key": F.least("key", "other"), "other": F.greatest("key", "other")}
    )
    return _shaped(ordered, kind, "key", "other")


def query(
    df: DataFrame,
    corpus: DataFrame,
    k: int | None = None,
    *,
    similarity: float | None = None,
    plan: fpdb.JoinPlan | None = None,
) -> DataFrame:
    """Find the documents of a corpus near each question: `query`, `key`, `distance`, `similarity`.

    They are the matches of a database with the corpus, in no order. Both DataFrames have the
    columns of `fingerprint`. A short text matches short texts that equal it, by `digest`. The
    options are those of `pairs`.
    """
    kind = fingerprint_type(df)
    own = _corpus_kind(corpus, kind)
    wanted = _first_look(kind, k, similarity)
    verify = similarity is not None
    asked, held = _documents(df, kind, verified=verify), _documents(corpus, own, verified=verify)
    found = _near(asked, held, kind, wanted, plan)
    if similarity is None:
        questions = asked.select(F.col("fingerprint").alias("lead"), "key")
        members = held.select(F.col("fingerprint").alias("lead"), "key")
        linked = found.withColumnsRenamed({"first": "lead", "second": "other_lead"})
    else:
        groups, others = _groups(asked), _groups(held)
        questions, members = _members(asked, groups), _members(held, others)
        linked = verified(_leads(found, groups, others), similarity)
    near_ones = _spread(linked, questions, members)
    equal = _same_texts(df, corpus)
    if verify:
        equal = equal.withColumn("jaccard", F.lit(1.0))
    matches = near_ones.unionByName(equal)
    return _shaped(
        matches.withColumnsRenamed({"key": "query", "other": "key"}), kind, "query", "key"
    )


def _first_look(kind: FingerprintType, k: int | None, similarity: float | None) -> int:
    if k is not None or similarity is None:
        return _DEFAULT_K if k is None else k
    return max(_DEFAULT_K, -(-7 * kind.bits // 64))


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


def _documents(df: DataFrame, kind: FingerprintType, *, verified: bool = False) -> DataFrame:
    """Return the documents that have a fingerprint, and if verified, a sketch or a digest."""
    columns = [F.col("key"), fingerprint_column(df, kind).alias("fingerprint")]
    if verified:
        if "sketch" not in df.columns:
            raise fpdb.InputError(
                "the documents have no sketches to verify pairs with",
                hint='fingerprint them with sketch="minhash"',
            )
        digest = F.col("digest") if "digest" in df.columns else F.lit(None).cast("binary")
        columns.append(F.coalesce("sketch", digest).alias("likeness"))
    found = df.select(*columns).where("fingerprint IS NOT NULL")
    return found.where("likeness IS NOT NULL") if verified else found


def _near(
    left: DataFrame,
    right: DataFrame | None,
    kind: FingerprintType,
    k: int,
    plan: fpdb.JoinPlan | None,
) -> DataFrame:
    chosen = plan or _planned(left, right, kind, k)
    if (chosen.bits, chosen.k) != (kind.bits, k):
        raise fpdb.PlanError(
            f"the plan is for {chosen.bits} bits and k={chosen.k}, "
            f"expected {kind.bits} bits and k={k}",
            hint="fpdb.integrations.spark.plan makes one for the same question",
        )
    other = None if right is None else _distinct(right)
    return near(_distinct(left), other, kind, chosen)


def _planned(
    left: DataFrame, right: DataFrame | None, kind: FingerprintType, k: int
) -> fpdb.JoinPlan:
    cores = max(1, left.sparkSession.sparkContext.defaultParallelism)
    counts = [max(1, _distinct(side).count()) for side in (left, right) if side is not None]
    queries = None if right is None else counts[0]
    return fpdb.join_plans(kind.bits, k, counts[-1], queries=queries, cores=cores)[0]


def _distinct(documents: DataFrame) -> DataFrame:
    return documents.select("fingerprint").distinct()


def _groups(documents: DataFrame) -> DataFrame:
    """Return the groups, each with its smallest key as the lead."""
    names = [name for name in documents.columns if name != "key"]
    return documents.groupBy(*names).agg(F.min("key").alias("lead"))


def _members(documents: DataFrame, groups: DataFrame) -> DataFrame:
    names = [name for name in documents.columns if name != "key"]
    return documents.join(groups, names).select("lead", "key")


def _leads(found: DataFrame, groups: DataFrame, others: DataFrame) -> DataFrame:
    """Replace the fingerprints of pairs by the leads of their groups."""
    first = groups.withColumnsRenamed({"fingerprint": "first"})
    second = others.withColumnsRenamed(
        {"fingerprint": "second", "lead": "other_lead", "likeness": "other_likeness"}
    )
    return found.join(first, "first").join(second, "second").drop("first", "second")


def _twins(groups: DataFrame) -> DataFrame:
    """Pair the groups that have the same fingerprint and other sketches."""
    others = groups.withColumnsRenamed({"lead": "other_lead", "likeness": "other_likeness"})
    pairs = groups.join(others, "fingerprint").where("lead < other_lead").drop("fingerprint")
    return pairs.withColumn("distance", F.lit(0))


def _inside(members: DataFrame, *, spanning: bool) -> DataFrame:
    """Pair the documents of each group: with the lead, or each with each."""
    if spanning:
        pairs = members.where("key <> lead").select(
            F.col("lead").alias("key"), F.col("key").alias("other")
        )
    else:
        others = members.withColumnRenamed("key", "other")
        pairs = members.join(others, "lead").where("key < other").drop("lead")
    return pairs.withColumn("distance", F.lit(0))


def _spread(linked: DataFrame, members: DataFrame, others: DataFrame) -> DataFrame:
    """Expand pairs of groups to pairs of documents."""
    second = others.withColumnsRenamed({"lead": "other_lead", "key": "other"})
    return linked.join(members, "lead").join(second, "other_lead").drop("lead", "other_lead")


def _same_texts(df: DataFrame, corpus: DataFrame) -> DataFrame:
    """Match short texts with those that equal them."""
    sides = [
        side.where("fingerprint IS NULL AND digest IS NOT NULL").select("key", "digest")
        if "digest" in side.columns
        else side.select("key", F.lit(None).cast("binary").alias("digest")).limit(0)
        for side in (df, corpus)
    ]
    second = sides[1].withColumnRenamed("key", "other")
    return sides[0].join(second, "digest").drop("digest").withColumn("distance", F.lit(0))


def _shaped(df: DataFrame, kind: FingerprintType, key: str, other: str) -> DataFrame:
    columns: list[Column] = [F.col(key), F.col(other), F.col("distance")]
    columns.append((1 - F.col("distance") / kind.bits).alias("similarity"))
    if "jaccard" in df.columns:
        columns.append(F.col("jaccard"))
    return df.select(*columns)


def clusters(pairs: DataFrame) -> DataFrame:
    """Return the documents that pairs connect: a row with `representative` and `key` for each.

    The representative of a cluster is its smallest key, which has a row as well. Pairs found with
    `spanning=True` give the same clusters with fewer rows. Each round is written to Spark's
    checkpoint directory, so that a lost worker costs no more than the round.
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
