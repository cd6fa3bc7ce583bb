"""Pairs of documents within k, and the documents near questions: what a database answers as well.

Documents that can't be told apart are one until the end: those with the same fingerprint, and if
pairs are verified, with the same sketch. They stand for a group by their first key, which is the
smallest.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import fpdb
from fpdb.integrations.spark.columns import Kind, fingerprint_column, kind_of
from fpdb.integrations.spark.joining import CELL_ROWS, near
from fpdb.integrations.spark.verifying import verified

_USUAL_K = 3


def plan(
    df: DataFrame,
    k: int | None = None,
    *,
    corpus: DataFrame | None = None,
    min_jaccard: float | None = None,
    bits: int | None = None,
) -> fpdb.JoinPlan:
    """Count the distinct fingerprints, and choose the tables by which they are joined.

    `pairs` and `query` do it themselves if they are given no plan.
    """
    kind = kind_of(df, bits)
    wanted = _first_look(kind, k, min_jaccard)
    own = _distinct(_documents(df, kind))
    if corpus is None:
        return _planned(own, None, kind, wanted)
    return _planned(own, _distinct(_documents(corpus, _corpus_kind(corpus, kind))), kind, wanted)


def pairs(
    df: DataFrame,
    k: int | None = None,
    *,
    min_jaccard: float | None = None,
    spanning: bool = False,
    bits: int | None = None,
    plan: fpdb.JoinPlan | None = None,
    cell_rows: int = CELL_ROWS,
) -> DataFrame:
    """Find all pairs of documents within k, each once: `key`, `other`, `distance`, `similarity`.

    They are those that a database with the same documents gives, with `key` the smaller one. The
    DataFrame has the columns of `fingerprint`, of which `key` and `fingerprint` are enough, and
    each key once. k is 3 unless you say otherwise. With `min_jaccard`, the first look is at a wider
    k, unless k is given, and a pair is what has that Jaccard similarity by its sketches, which is
    the column `jaccard`.

    A million copies have 500 billion pairs. With `spanning`, documents that can't be told apart are
    pairs with the first of them only, and of near ones only these first ones are a pair: fewer
    rows, which connect the same documents. It is what `clusters` needs.

    `cell_rows` bounds how many rows of a prefix are compared with each other in one task.
    """
    kind = kind_of(df, bits)
    wanted = _first_look(kind, k, min_jaccard)
    documents = _documents(df, kind, verified=min_jaccard is not None)
    found = _near(documents, None, kind, wanted, plan=plan, cell_rows=cell_rows)
    if min_jaccard is None and not spanning:
        members = documents.select(F.col("fingerprint").alias("lead"), "key")
        linked = found.withColumnsRenamed({"first": "lead", "second": "other_lead"})
    else:
        groups = _groups(documents)
        members = _members(documents, groups)
        linked = _leads(found, groups, groups)
        if min_jaccard is not None:
            linked = verified(linked.unionByName(_twins(groups)), min_jaccard)
    inside = _inside(members, spanning=spanning)
    if spanning:
        linked = linked.withColumnsRenamed({"lead": "key", "other_lead": "other"})
    else:
        linked = _spread(linked, members, members)
    if min_jaccard is not None:
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
    min_jaccard: float | None = None,
    bits: int | None = None,
    plan: fpdb.JoinPlan | None = None,
    cell_rows: int = CELL_ROWS,
) -> DataFrame:
    """Find the documents of a corpus near each question: `query`, `key`, `distance`, `similarity`.

    Both DataFrames have the columns of `fingerprint`. They are the matches that a database with the
    corpus gives, in no order: a short text finds short ones with equal text, by `digest`, and
    `min_jaccard` adds `jaccard`, as in `pairs`.
    """
    kind = kind_of(df, bits)
    own = _corpus_kind(corpus, kind)
    wanted = _first_look(kind, k, min_jaccard)
    verify = min_jaccard is not None
    asked, held = _documents(df, kind, verified=verify), _documents(corpus, own, verified=verify)
    found = _near(asked, held, kind, wanted, plan=plan, cell_rows=cell_rows)
    if min_jaccard is None:
        questions = asked.select(F.col("fingerprint").alias("lead"), "key")
        members = held.select(F.col("fingerprint").alias("lead"), "key")
        linked = found.withColumnsRenamed({"first": "lead", "second": "other_lead"})
    else:
        groups, others = _groups(asked), _groups(held)
        questions, members = _members(asked, groups), _members(held, others)
        linked = verified(_leads(found, groups, others), min_jaccard)
    near_ones = _spread(linked, questions, members)
    equal = _same_texts(df, corpus)
    if verify:
        equal = equal.withColumn("jaccard", F.lit(1.0))
    matches = near_ones.unionByName(equal)
    return _shaped(
        matches.withColumnsRenamed({"key": "query", "other": "key"}), kind, "query", "key"
    )


def _first_look(kind: Kind, k: int | None, min_jaccard: float | None) -> int:
    if k is not None or min_jaccard is None:
        return _USUAL_K if k is None else k
    return fpdb.first_look(kind.bits, _USUAL_K, min_jaccard)


def _corpus_kind(corpus: DataFrame, asked: Kind) -> Kind:
    """Refuse a corpus whose fingerprints can't be compared with those of the questions."""
    own = kind_of(corpus, asked.bits)
    if None not in (own.recipe_id, asked.recipe_id) and own.recipe_id != asked.recipe_id:
        raise fpdb.RecipeMismatchError(
            f"the corpus was fingerprinted by the recipe {own.recipe_id}, "
            f"found questions by {asked.recipe_id}",
            hint="fingerprint both by the same recipe",
        )
    return own


def _documents(df: DataFrame, kind: Kind, *, verified: bool = False) -> DataFrame:
    """Take the documents that have a fingerprint, and what tells how similar they are."""
    columns = [F.col("key"), fingerprint_column(df, kind).alias("fingerprint")]
    if verified:
        if "sketch" not in df.columns:
            raise fpdb.NoSketchError(
                "the documents have no sketches, by which pairs are verified",
                hint='fingerprint them with sketch="minhash"',
            )
        digest = F.col("digest") if "digest" in df.columns else F.lit(None).cast("binary")
        columns.append(F.coalesce("sketch", digest).alias("likeness"))
    found = df.select(*columns).where("fingerprint IS NOT NULL")
    return found.where("likeness IS NOT NULL") if verified else found


def _near(
    left: DataFrame,
    right: DataFrame | None,
    kind: Kind,
    k: int,
    *,
    plan: fpdb.JoinPlan | None,
    cell_rows: int,
) -> DataFrame:
    own, other = _distinct(left), None if right is None else _distinct(right)
    chosen = plan or _planned(own, other, kind, k)
    if (chosen.bits, chosen.k) != (kind.bits, k):
        raise fpdb.PlanError(
            f"the plan is made for {chosen.bits} bits and k={chosen.k}, "
            f"expected {kind.bits} bits and k={k}",
            hint="fpdb.integrations.spark.plan makes one for the same question",
        )
    return near(own, other, kind, chosen, cell_rows=cell_rows)


def _planned(left: DataFrame, right: DataFrame | None, kind: Kind, k: int) -> fpdb.JoinPlan:
    cores = max(1, left.sparkSession.sparkContext.defaultParallelism)
    count = max(1, left.count())
    if right is None:
        return fpdb.join_plans(kind.bits, k, count, cores=cores)[0]
    held = max(1, right.count())
    return fpdb.join_plans(kind.bits, k, held, queries=count, cores=cores)[0]


def _distinct(documents: DataFrame) -> DataFrame:
    return documents.select("fingerprint").distinct()


def _groups(documents: DataFrame) -> DataFrame:
    """Name each group of documents that can't be told apart by its first key."""
    names = [name for name in documents.columns if name != "key"]
    return documents.groupBy(*names).agg(F.min("key").alias("lead"))


def _members(documents: DataFrame, groups: DataFrame) -> DataFrame:
    names = [name for name in documents.columns if name != "key"]
    return documents.join(groups, names).select("lead", "key")


def _leads(found: DataFrame, groups: DataFrame, others: DataFrame) -> DataFrame:
    """Put the groups in the place of fingerprints."""
    first = groups.withColumnsRenamed({"fingerprint": "first"})
    second = others.withColumnsRenamed(
        {"fingerprint": "second", "lead": "other_lead", "likeness": "other_likeness"}
    )
    return found.join(first, "first").join(second, "second").drop("first", "second")


def _twins(groups: DataFrame) -> DataFrame:
    """Pair the groups with the same fingerprint, which differ in their sketches."""
    others = groups.withColumnsRenamed({"lead": "other_lead", "likeness": "other_likeness"})
    pairs = groups.join(others, "fingerprint").where("lead < other_lead").drop("fingerprint")
    return pairs.withColumn("distance", F.lit(0))


def _inside(members: DataFrame, *, spanning: bool) -> DataFrame:
    """Pair the documents of each group: with the first one, or each with each."""
    if spanning:
        pairs = members.where("key <> lead").select(
            F.col("lead").alias("key"), F.col("key").alias("other")
        )
    else:
        others = members.withColumnRenamed("key", "other")
        pairs = members.join(others, "lead").where("key < other").drop("lead")
    return pairs.withColumn("distance", F.lit(0))


def _spread(linked: DataFrame, members: DataFrame, others: DataFrame) -> DataFrame:
    """Put the documents in the place of their groups."""
    second = others.withColumnsRenamed({"lead": "other_lead", "key": "other"})
    return linked.join(members, "lead").join(second, "other_lead").drop("lead", "other_lead")


def _same_texts(df: DataFrame, corpus: DataFrame) -> DataFrame:
    """Match short texts with equal ones."""
    sides = [
        side.where("fingerprint IS NULL AND digest IS NOT NULL").select("key", "digest")
        if "digest" in side.columns
        else side.select("key", F.lit(None).cast("binary").alias("digest")).limit(0)
        for side in (df, corpus)
    ]
    second = sides[1].withColumnRenamed("key", "other")
    return sides[0].join(second, "digest").drop("digest").withColumn("distance", F.lit(0))


def _shaped(df: DataFrame, kind: Kind, key: str, other: str) -> DataFrame:
    columns: list[Column] = [F.col(key), F.col(other), F.col("distance")]
    columns.append((1 - F.col("distance") / kind.bits).alias("similarity"))
    if "jaccard" in df.columns:
        columns.append(F.col("jaccard"))
    return df.select(*columns)
