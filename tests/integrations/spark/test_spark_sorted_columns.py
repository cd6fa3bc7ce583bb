"""What Spark writes as sorted columns becomes the database that an ingest makes."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

import fpdb
from fpdb.errors import InputError, PlanError, RecipeMismatchError

pytest.importorskip("pyspark", reason="pyspark isn't installed")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from sorted_files import columns_of, content_of

from fpdb.integrations.spark import fingerprint, write_sorted

LONG = "https://long.example/" + "ä" * 240
TYPES = {"meta": "string", "digest": "binary", "sketch": "binary"}


def documents(keys: str, count: int, seed: int = 3) -> list[fpdb.Document]:
    dice = random.Random(seed)
    own: list[Any] = [
        f"{dice.choice(['a', 'é', '', LONG])}{n}" if keys == "text" else dice.choice([n, n + 2**62])
        for n in range(count)
    ]
    words = [f"word{n}" for n in range(15)]
    own.sort(key=lambda key: str(key).encode() if keys == "text" else key)
    return [
        fpdb.Document(
            key,
            " ".join(dice.choices(words, k=dice.choice([1, 3, 20, 20]))),
            dice.choice([None, {"n": 1, "tags": ["a"]}, "x"]),
        )
        for key in own
    ]


def frame(spark: SparkSession, db: fpdb.Database, bits: int) -> DataFrame:
    """What a database holds, in any order, with the columns that `fingerprint` makes."""
    columns = columns_of(db)["documents"]
    rows = list(zip(*columns.values(), strict=True))
    random.Random(1).shuffle(rows)
    key = "string" if db.keys == "text" else "bigint"
    schema = ", ".join(f"{name} {({'key': key} | TYPES).get(name, 'bigint')}" for name in columns)
    df = spark.createDataFrame(rows, schema)
    if bits == 128:
        wide = F.when(F.col("high").isNotNull(), F.struct("high", "low"))
        df = df.withColumn("fingerprint", wide).drop("high", "low")
    return df


@pytest.mark.parametrize(
    ("keys", "bits", "sketch", "partitions"),
    [
        ("text", 64, "minhash", 3),
        pytest.param("text", 128, None, None, marks=pytest.mark.long),
        pytest.param("integer", 32, None, 2, marks=pytest.mark.long),
        ("integer", 64, "minhash", 5),
    ],
)
def test_what_spark_writes_is_what_an_ingest_makes(
    spark: SparkSession,
    tmp_path: Path,
    keys: str,
    bits: int,
    sketch: str | None,
    partitions: int | None,
) -> None:
    recipe = fpdb.recipe("web").with_bits(bits)
    with fpdb.create(tmp_path / "old", keys=keys, recipe=recipe, sketch=sketch) as db:
        list(db.add_many(documents(keys, 400)))
        columns = str(tmp_path / "columns")
        df = frame(spark, db, bits)
        assert write_sorted(df, columns, recipe=recipe, partitions=partitions) == 400
        files = list((tmp_path / "columns" / "documents").glob("*.parquet"))
        assert len(files) == (partitions or len(files))
        assert fpdb.load_sorted(columns, tmp_path / "new") == 400
        with fpdb.open(tmp_path / "new") as new:
            assert content_of(new) == content_of(db)
            assert set(new.pairs()) == set(db.pairs())
            assert list(new.check()) == []


def test_texts_become_a_database(spark: SparkSession, tmp_path: Path) -> None:
    texts = documents("text", 200, seed=4)
    source = spark.createDataFrame([(d.key, d.text) for d in texts], "key string, text string")
    df = fingerprint(source, recipe="web", sketch="minhash")
    write_sorted(df, str(tmp_path / "columns"), recipe="web", k=5, capacity=50)
    fpdb.load_sorted(tmp_path / "columns", tmp_path / "new")
    with (
        fpdb.create(tmp_path / "old", k=5, capacity=50, sketch="minhash") as db,
        fpdb.open(tmp_path / "new") as new,
    ):
        list(db.add_many(fpdb.Document(d.key, d.text) for d in texts))
        assert new.plan == db.plan
        found = [(d.key, d.fingerprint, d.short, d.sketch) for d in new.scan()]
        assert found == [(d.key, d.fingerprint, d.short, d.sketch) for d in db.scan()]
        assert set(new.clusters(min_jaccard=0.8)) == set(db.clusters(min_jaccard=0.8))


def test_times_and_structures_are_taken(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.sql(
        "select 'a' as key, 7L as fingerprint, timestamp_seconds(1700000000) as added, "
        "named_struct('lang', 'en') as meta, 3 as other"
    )
    assert write_sorted(df, str(tmp_path / "columns"), recipe="web") == 1
    fpdb.load_sorted(tmp_path / "columns", tmp_path / "new")
    with fpdb.open(tmp_path / "new") as new:
        [document] = new.scan()
        assert (document.added, document.meta) == (1_700_000_000, {"lang": "en"})
    manifest = json.loads((tmp_path / "columns" / "manifest.json").read_text())
    assert (manifest["capacity"], manifest["keys"]) == (1_000_000, "text")


def test_nothing_is_a_database_too(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.createDataFrame([], "key bigint, fingerprint bigint")
    assert write_sorted(df, str(tmp_path / "columns"), recipe="web") == 0
    assert fpdb.load_sorted(tmp_path / "columns", tmp_path / "new") == 0
    with fpdb.open(tmp_path / "new") as new:
        assert (len(new), new.keys, list(new.check())) == (0, "integer", [])


GOOD = "('a', 1L, unhex('00'))"
BAD = [
    ("('b', 2L, null), ('b', 3L, null)", "found the key 'b' twice"),
    ("(null, 2L, null)", "found a null as key"),
    ("('', 2L, null)", "found an empty key ''"),
    ("(repeat('x', 70000), 2L, null)", "over 65,536 bytes"),
    ("('b', null, null)", "neither a fingerprint nor a digest for the key 'b'"),
]


@pytest.mark.parametrize(("rows", "message"), BAD, ids=map(str, range(len(BAD))))
def test_what_is_amiss_is_an_error_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path, rows: str, message: str
) -> None:
    df = spark.sql(f"select * from values {GOOD}, {rows} as t(key, fingerprint, digest)")
    with pytest.raises(InputError, match=message) as caught:
        write_sorted(df, str(tmp_path / "columns"), recipe="web", partitions=3)
    assert caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_fit_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "columns"
    numbers = spark.sql("select -1L as key, 7L as fingerprint")
    narrow = spark.sql("select 1L as key, 1L << 32 as fingerprint")
    one = spark.sql("select 1L as key, 7L as fingerprint")
    marked = fingerprint(spark.sql("select 'a' as key, 'b' as text"), recipe="char-4")
    plan = fpdb.plans(64, 5, 1000)[0]
    for df, options, error, message in (
        (numbers, {}, InputError, "found the key -1, expected numbers from 0 on"),
        (narrow, {"recipe": "bigram-32"}, InputError, "more than 32 bits for the key 1"),
        (marked, {}, RecipeMismatchError, "were made by the recipe"),
        (one, {"plan": plan}, PlanError, "made for 64 bits and k=5, expected 64 bits and k=3"),
        (one, {"partitions": 0}, InputError, "found partitions=0, expected 1 to 99,999"),
    ):
        with pytest.raises(error, match=message):
            write_sorted(df, str(path), **({"recipe": "web"} | options))
        assert not path.exists()
    path.mkdir()
    with pytest.raises(InputError, match="there is something at"):
        write_sorted(one, str(path), recipe="web")
    assert path.exists()


def test_a_job_that_fails_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.sql("select 'a' as key, raise_error('boom') as fingerprint").select(
        "key", F.col("fingerprint").cast("bigint")
    )
    with pytest.raises(Exception, match="boom"):
        write_sorted(df, str(tmp_path / "columns"), recipe="web")
    assert list(tmp_path.iterdir()) == []
