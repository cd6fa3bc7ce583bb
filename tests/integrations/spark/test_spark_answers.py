"""Spark gives the answers of a database with the same documents, compared as sets."""

import contextlib
import importlib
import random
from itertools import combinations

import pytest

import fpdb
from fpdb.integrations import spark as on_spark
from fpdb.integrations.spark import near

# The package has a function of this name.
dedupe = importlib.import_module("fpdb.integrations.spark.dedupe")

pytestmark = pytest.mark.spark

LIKE = 0.8


def _documents(seed=5, count=250):
    """Texts with near and exact copies among them, short ones and empty ones."""
    chance = random.Random(seed)
    words = [f"word{number}" for number in range(400)]
    texts = []
    for _ in range(count):
        base = [chance.choice(words) for _ in range(chance.randint(0, 120))]
        for _ in range(chance.choice([1, 1, 1, 2, 3])):
            text = list(base)
            for _ in range(chance.choice([0, 0, 1, 2])):
                if text:
                    text[chance.randrange(len(text))] = chance.choice(words)
            texts.append(" ".join(text))
    texts += [
        "网页去重用指纹比较两个页面是否几乎相同" * 3,
        "网页去重用指纹比较两个页面是否几乎相同" * 3,
        *("short words: four", "Short words four", "none", "none", "", ""),
    ]
    return [(f"k{number:04}", text) for number, text in enumerate(texts)]


@contextlib.contextmanager
def _made(spark, folder, bits, similarity):
    """Give the same documents in a DataFrame and in a database."""
    documents = _documents()
    recipe = fpdb.recipe("web").with_bits(bits)
    options = {"recipe": recipe, "similarity": similarity}
    with fpdb.create(folder / "own.fpdb", **options) as database:
        for _ in database.add_many(fpdb.Document(key, text) for key, text in documents):
            pass
        texts = spark.createDataFrame(documents, "key string, text string")
        made = on_spark.fingerprint(texts, **options)
        made.write.parquet(str(folder / "made.parquet"))
        yield spark.read.parquet(str(folder / "made.parquet")), database, documents


@pytest.fixture(scope="module")
def both64(spark, tmp_path_factory):
    with _made(spark, tmp_path_factory.mktemp("both"), 64, LIKE) as both:
        yield both


@pytest.fixture(params=[(32, None), (128, None), (128, 0.7)])
def both(request, spark, tmp_path):
    with _made(spark, tmp_path, *request.param) as both:
        yield both


def _rows(df):
    return [tuple(row) for row in df.collect()]


def _same(found, wanted):
    assert len(found) == len(set(found))
    assert set(found) == wanted
    assert wanted


def _wanted(pairs):
    return {(min(pair[:2]), max(pair[:2]), *pair[2:4]) for pair in pairs}


def test_pairs_of_other_widths(both):
    df, database, _ = both
    _same(_rows(on_spark.pairs(df)), _wanted(database.pairs()))


def test_pairs_of_bits_where_there_are_sketches(both64):
    df, database, _ = both64
    _same(_rows(on_spark.pairs(df, k=5)), _wanted(database.pairs(k=5)))


def test_similar_pairs(both64):
    df, database, _ = both64
    _same(_rows(on_spark.pairs(df)), _wanted(database.pairs()))
    wanted = {pair for pair in _wanted(database.pairs()) if pair[3] >= fpdb.least_estimate(0.9)}
    found = {row for row in _rows(on_spark.pairs(df, similarity=0.9)) if row in wanted}
    assert len(found) > 0.9 * len(wanted)


def _questions(spark, documents, database):
    texts = [text if place % 2 else f"{text} more" for place, (_, text) in enumerate(documents)]
    questions = [(f"q{place}", text) for place, text in enumerate(texts[::3])]
    asked = on_spark.fingerprint(
        spark.createDataFrame(questions, "key string, text string"),
        recipe=database.recipe,
        similarity=database.similarity,
    )
    return questions, asked


def _answers(database, questions, k):
    found = database.query_many([text for _, text in questions], k=k)
    return {
        (key, match.key, match.distance, match.similarity)
        for (key, _), matches in zip(questions, found, strict=True)
        for match in matches
    }


@pytest.mark.parametrize("k", [None, 3, 5])
def test_queries(both64, spark, k):
    df, database, documents = both64
    questions, asked = _questions(spark, documents, database)
    wanted = _answers(database, questions, k)
    short = {key for key, text in documents if len(text) < 30}
    assert any(answer[1] in short for answer in wanted)
    _same(_rows(on_spark.query(asked, df, k=k)), wanted)


@pytest.mark.parametrize("search", [{}, {"k": 3}])
def test_clusters(both64, search):
    df, database, _ = both64
    pairs = on_spark.pairs(df, spanning=True, **search)
    found: dict[str, set[str]] = {}
    for representative, key in _rows(on_spark.clusters(pairs)):
        found.setdefault(representative, set()).add(key)
    wanted = {frozenset(cluster.keys) for cluster in database.clusters(**search, chains=True)}
    assert {frozenset(keys) for keys in found.values()} == wanted
    assert all(first == min(keys) for first, keys in found.items())


def test_a_crowded_band_is_divided_and_connects_what_is_similar(spark, monkeypatch):
    monkeypatch.setattr(near, "_CROWD", 20)
    chance = random.Random(3)
    form = [f"word{number}" for number in range(150)]
    texts = [" ".join([*form, *(f"x{chance.getrandbits(40)}" for _ in "ab")]) for _ in range(300)]
    rows = [(f"k{number:03}", text) for number, text in enumerate([*texts, texts[7]])]
    df = on_spark.fingerprint(spark.createDataFrame(rows, "key string, text string")).cache()
    with pytest.warns(fpdb.IncompleteWarning, match="compared with about 20"):
        divided = on_spark.pairs(df)
    found = _rows(divided.select("key", "other"))
    assert len(found) == len(set(found))
    # Each row meets about twenty in each of nine bands, where a join of all has 45,150 pairs.
    assert 300 < len(found) < 9 * 300 * 25
    assert ("k007", "k300") in found
    with pytest.warns(fpdb.IncompleteWarning):
        clusters = on_spark.clusters(on_spark.pairs(df, spanning=True))
    assert _rows(clusters.groupBy("representative").count()) == [("k000", 301)]


def test_questions_meet_their_part_of_a_crowd_and_what_equals_them(spark, monkeypatch):
    monkeypatch.setattr(near, "_CROWD_OF_QUERY", 20)
    chance = random.Random(4)
    form = [f"word{number}" for number in range(150)]
    texts = [" ".join([*form, f"x{chance.getrandbits(40)}"]) for _ in range(200)]
    rows = [(f"k{number:03}", text) for number, text in enumerate(texts)]
    corpus = on_spark.fingerprint(spark.createDataFrame(rows, "key string, text string")).cache()
    asked = corpus.selectExpr("concat('q', key) AS key", *corpus.columns[1:]).where("key < 'qk050'")
    asked = asked.withMetadata("fingerprint", corpus.schema["fingerprint"].metadata)
    with pytest.warns(fpdb.IncompleteWarning, match="compared with about 20"):
        found = _rows(on_spark.query(asked, corpus).select("query", "key"))
    assert {(f"qk{number:03}", f"k{number:03}") for number in range(50)} < set(found)
    assert 50 < len(found) < 50 * 200


def test_spanning_pairs_connect_copies_with_as_few_rows_as_there_are(spark):
    rows = [(f"copy{number:04}", 7) for number in range(300)] + [("near", 7 ^ 1 << 60)]
    df = spark.createDataFrame(rows, "key string, fingerprint bigint")
    found = _rows(on_spark.pairs(df, spanning=True).select("key", "other", "distance"))
    assert len(found) == 300
    assert ("copy0000", "near", 1) in found
    assert {pair[0] for pair in found} == {"copy0000"}
    assert on_spark.pairs(df).count() == 301 * 300 // 2
    assert {row[0] for row in _rows(on_spark.clusters(on_spark.pairs(df, spanning=True)))} == {
        "copy0000"
    }


def test_a_crowded_prefix_leaves_no_pair_out(spark):
    chance = random.Random(9)
    # All share their first sixteen bits, and some are near each other.
    numbers = {chance.getrandbits(46) | 0x1234 << 48 for _ in range(3000)}
    numbers |= {number ^ 1 << chance.randrange(46) for number in list(numbers)[:300]}
    df = spark.createDataFrame(
        [(number, number) for number in sorted(numbers)], "key bigint, fingerprint bigint"
    )
    found = [tuple(row) for row in on_spark.pairs(df).select("key", "other").collect()]
    wanted = {(a, b) for a, b in combinations(sorted(numbers), 2) if (a ^ b).bit_count() <= 3}
    _same(found, wanted)


def test_integer_keys(spark, tmp_path):
    chance = random.Random(2)
    numbers = [chance.getrandbits(64) for _ in range(500)]
    numbers += [number ^ 1 << chance.randrange(64) for number in numbers[:50]]
    with fpdb.create(tmp_path / "db", similarity=None, keys="integer") as database:
        database.add_fingerprints(range(len(numbers)), numbers)
        wanted = {(min(p[:2]), max(p[:2]), p.distance) for p in database.pairs()}
    rows = [
        (key, number - (1 << 64) if number >> 63 else number) for key, number in enumerate(numbers)
    ]
    df = spark.createDataFrame(rows, "key bigint, fingerprint bigint")
    _same(_rows(on_spark.pairs(df).select("key", "other", "distance")), wanted)


def _edited(chance):
    """Texts of which many are near an earlier one, and some about as similar as they must be."""
    words = [f"word{number}" for number in range(400)]
    texts = ["", "short", "short"]
    for _ in range(300):
        text = " ".join(chance.choices(words, k=600))
        if chance.random() < 0.6 and len(texts) > 3:
            earlier = chance.choice(texts[3:]).split()
            for _ in range(chance.choice([0, 1, 2, 5, 8, 20, 22, 24, 26, 400])):
                earlier[chance.randrange(len(earlier))] = chance.choice(words)
            text = " ".join(earlier)
        texts.append(text)
    return texts


@pytest.mark.parametrize("settings", [{}, {"similarity": 0.95}, {"similarity": None}])
@pytest.mark.parametrize("divided", [False, True])
def test_what_stays_is_what_stays_of_records(spark, monkeypatch, settings, divided):
    if divided:
        monkeypatch.setattr(dedupe, "_TOGETHER", 10)
        monkeypatch.setattr(dedupe, "_SENT", 10)
    chance = random.Random(35)
    texts = _edited(chance)
    rows = [(f"{number:04}", text, number) for number, text in enumerate(texts)]
    chance.shuffle(rows)
    df = spark.createDataFrame([*rows, (None, texts[3], -1)], "key string, text string, n int")
    found = on_spark.dedupe(df, recipe="words", **settings)
    assert found.columns == df.columns
    records = [{"id": key, "text": text, "n": n} for key, text, n in sorted(rows)]
    own = {"k": 3} if settings == {"similarity": None} else settings
    expected = {record["n"] for record in fpdb.dedupe(records, recipe="words", **own)}
    assert len(expected) < len(records)
    assert {row.n for row in found.collect()} == {*expected, -1}
