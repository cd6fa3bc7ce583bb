"""What fingerprint makes of texts, and what columns it takes back."""

import subprocess
import sys

import numpy as np
import pytest

import fpdb
from fpdb.integrations import spark as on_spark
from fpdb.integrations.spark import fingerprints

pytestmark = pytest.mark.spark

TEXT = "the quick brown fox jumps over the lazy dog and then over the fence of the garden"
CHINESE = "网页去重用指纹比较两个页面是否几乎相同，这是一个比较长的句子，里面有很多不同的词语"


def _unsigned(number):
    return number % (1 << 64)


@pytest.fixture(scope="module")
def texts(spark):
    rows = [("a", TEXT, 1), ("b", CHINESE, 2), ("c", "short", 3), ("d", None, 4), ("e", "", 5)]
    return spark.createDataFrame(rows, "url string, body string, rank int")


@pytest.mark.parametrize("bits", [32, 64, 128])
def test_fingerprints_are_those_of_the_recipe(texts, bits):
    recipe = fpdb.recipe("web").with_bits(bits)
    made = on_spark.fingerprint(texts, text="body", key="url", recipe=recipe)
    rows = {row["key"]: row for row in made.collect()}
    for key, text in (("a", TEXT), ("b", CHINESE)):
        own = rows[key]["fingerprint"]
        number = (
            _unsigned(own["high"]) << 64 | _unsigned(own["low"]) if bits == 128 else _unsigned(own)
        )
        assert number == recipe.fingerprint(text)
        assert (
            bytes(rows[key]["sketch"]) == recipe.batch([text], sketches=True).sketches[0].tobytes()
        )
        assert bytes(rows[key]["digest"]) == recipe.digest(text)
        assert rows[key]["characters"] == len(text)
        assert rows[key]["problem"] is None
    for key, text in (("c", "short"), ("e", "")):
        assert rows[key]["fingerprint"] is None
        assert bytes(rows[key]["digest"]) == recipe.digest(text, short=True)
        assert any(rows[key]["digest"]) is bool(text)  # zeros, which match none, if it is empty
        assert rows[key]["problem"] is None
    assert (rows["d"]["fingerprint"], rows["d"]["digest"]) == (None, None)
    assert rows["d"]["problem"] == "found no text"


def test_a_text_that_is_too_large_costs_only_itself(texts):
    recipe = fpdb.recipe("web").replace(largest=100)
    made = on_spark.fingerprint(texts, text="body", key="url", recipe=recipe)
    rows = {row["key"]: row for row in made.collect()}
    assert _unsigned(rows["a"]["fingerprint"]) == recipe.fingerprint(TEXT)
    assert "bytes" in rows["b"]["problem"]
    assert rows["b"]["fingerprint"] is None


def test_a_keyed_recipe_reaches_the_workers_with_its_secret(texts):
    keyed = fpdb.recipe("web").replace(hash=fpdb.Hash(secret=fpdb.Secret(b"0123456789abcdef")))
    texts = texts.withColumnRenamed("body", "text")
    made = on_spark.fingerprint(texts, key="url", recipe=keyed)
    rows = {row["key"]: row for row in made.collect()}
    assert _unsigned(rows["a"]["fingerprint"]) == keyed.fingerprint(TEXT)
    assert keyed.fingerprint(TEXT) != fpdb.recipe("web").fingerprint(TEXT)


def test_fingerprints_are_loaded_into_a_database(texts, tmp_path):
    bad, path = [], tmp_path / "made"
    on_spark.fingerprint(texts, text="body", key="url").write.parquet(str(path))
    fpdb.load(tmp_path / "db", str(path), on_bad=bad.append)
    assert [found.reason for found in bad] == ["found no text"]
    with fpdb.open(tmp_path / "db") as loaded, fpdb.create(tmp_path / "own") as own:
        assert loaded.similarity == own.similarity
        for key, text in (("a", TEXT), ("b", CHINESE), ("c", "short")):
            own.add(key, text)
            found, wanted = loaded[key], own[key]
            assert (found.fingerprint, found.digest) == (wanted.fingerprint, wanted.digest)
            assert found.sketch == wanted.sketch


def test_exports_of_a_database_are_taken(spark, tmp_path):
    numbers = [int(n) for n in np.random.default_rng(1).integers(1 << 62, 1 << 63, 50)]
    numbers += [number ^ 3 for number in numbers[:20]] + [(1 << 64) - 1, (1 << 64) - 2]
    with fpdb.create(tmp_path / "own.fpdb", similarity=None) as database:
        database.add_fingerprints([f"k{n}" for n in range(len(numbers))], numbers)
        wanted = {(min(p[:2]), max(p[:2]), p.distance) for p in database.pairs()}
    path = str(tmp_path / "own.parquet")
    command = [sys.executable, "-m", "fpdb", "export", str(tmp_path / "own.fpdb"), "-o", path]
    subprocess.run(command, check=True)
    df = spark.read.parquet(path)
    found = on_spark.pairs(df).select("key", "other", "distance").collect()
    assert {tuple(row) for row in found} == wanted


def test_questions_by_another_recipe_are_refused(spark, texts):
    own = on_spark.fingerprint(texts, text="body", key="url")
    other = on_spark.fingerprint(texts, text="body", key="url", recipe="char-4")
    with pytest.raises(fpdb.RecipeMismatchError, match=fpdb.recipe("char-4").id):
        on_spark.query(other, own)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda df: on_spark.fingerprint(df, text="none", key="url"), fpdb.InputError, "'none'"),
        (lambda df: on_spark.fingerprint(df, text="body"), fpdb.InputError, "'key'"),
        (
            lambda df: on_spark.fingerprint(df.selectExpr("body", "rank / 2 as key"), text="body"),
            fpdb.InputError,
            "double",
        ),
        (
            lambda df: on_spark.fingerprint(df, text="body", key="url", similarity=2),
            fpdb.InputError,
            "found similarity 2",
        ),
    ],
)
def test_bad_use_is_told_before_anything_runs(texts, call, error, message):
    with pytest.raises(error, match=message):
        call(texts)


@pytest.mark.parametrize("call", [on_spark.dedupe, on_spark.clusters])
def test_a_missing_checkpoint_directory_is_told_at_once(spark, monkeypatch, call):
    monkeypatch.setattr(spark.sparkContext, "getCheckpointDir", lambda: None)
    df = spark.createDataFrame([("a", TEXT, "b")], "key string, text string, other string")
    with pytest.raises(fpdb.InputError, match="no checkpoint directory") as caught:
        call(df)
    assert "setCheckpointDir" in caught.value.hint


def test_workers_without_fpdb_are_named_with_the_cure(spark, texts, monkeypatch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'fpdb':\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Missing())\n"
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}:$PYTHONPATH exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    monkeypatch.setattr(fingerprints, "_PROVEN", set())
    with pytest.raises(fpdb.MissingExtraError, match="has no fpdb") as caught:
        on_spark.fingerprint(texts, text="body", key="url")
    assert "PYSPARK_PYTHON" in caught.value.hint
