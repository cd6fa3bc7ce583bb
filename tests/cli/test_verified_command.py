"""--sketch and --similarity: matches, pairs and clusters that are verified."""

import json
import random

import pytest

import fpdb

WORDS = [f"word{number}" for number in range(300)]


@pytest.fixture
def texts():
    """Ten families of three texts: alike, nearly alike, and less so."""
    dice, found = random.Random(4), {}
    for family in range(10):
        words = dice.choices(WORDS, k=80)
        for number, edits in enumerate((0, 2, 9)):
            other = list(words)
            for _ in range(edits):
                other[dice.randrange(80)] = dice.choice(WORDS)
            found[f"{family}{'abc'[number]}"] = " ".join(other)
    return found


@pytest.fixture
def records(tmp_path, texts):
    path = tmp_path / "texts.jsonl"
    lines = (json.dumps({"url": key, "text": text}) + "\n" for key, text in texts.items())
    path.write_text("".join(lines), "utf-8")
    return path


@pytest.fixture
def stored(tmp_path, records, run):
    path = tmp_path / "crawl.fpdb"
    assert run("create", path, "--sketch", "minhash").code == 0
    done = run("ingest", path, records)
    assert done.code == 0
    return path


def answers(path, ask):
    with fpdb.open(path, readonly=True) as database:
        return ask(database)


def test_query_shows_the_similarity_in_a_further_column(run, stored, texts):
    done = run("query", stored, "--text", texts["0a"], "--similarity", "0.7")
    matches = answers(stored, lambda db: db.query(texts["0a"], min_jaccard=0.7))
    assert len(matches) >= 2
    assert done.rows == [
        ["text", m.key, str(m.distance), f"{m.similarity:.4f}", f"{m.jaccard:.4f}"] for m in matches
    ]


@pytest.mark.process
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_records_are_asked_for(run, stored, records, texts, jobs):
    done = run("query", stored, records, "--similarity", "0.7", "--json", "--jobs", jobs)
    shown = [json.loads(line) for line in done.out.splitlines()]
    expected = answers(stored, lambda db: list(db.query_many(texts.values(), min_jaccard=0.7)))
    assert [each["query"] for each in shown] == list(texts)
    assert [[m["jaccard"] for m in each["matches"]] for each in shown] == [
        [m.jaccard for m in matches] for matches in expected
    ]
    plain = json.loads(run("query", stored, "--text", texts["0a"], "--json").out)
    assert "jaccard" not in plain["matches"][0]


def test_short_texts_find_equal_ones(run, stored):
    run("ingest", stored, "-", stdin=b'{"url": "s", "text": "too short"}\n')
    done = run("query", stored, "--text", "too short", "--similarity", "0.9")
    assert done.rows == [["text", "s", "0", "1.0000", "1.0000"]]


def test_ready_fingerprints_cant_be_verified(run, stored):
    done = run("query", stored, "--fingerprint", "abc", "--similarity", "0.9")
    assert done.code == 2
    assert "--similarity compares texts" in done.err
    line = b'{"key": "k", "fingerprint": 7}\n'
    done = run(
        "query",
        stored,
        "-",
        "--fingerprint-field",
        "fingerprint",
        "--similarity",
        "0.9",
        stdin=line,
    )
    assert (done.code, done.rows) == (0, [])
    assert "-:1: found a ready fingerprint" in done.err


def test_pairs_and_clusters_are_those_of_the_library(run, stored):
    done = run("pairs", stored, "--similarity", "0.7")
    expected = answers(stored, lambda db: list(db.pairs(min_jaccard=0.7)))
    assert done.rows == [
        [pair.key, pair.other, str(pair.distance), f"{pair.jaccard:.4f}"] for pair in expected
    ]
    as_json = run("pairs", stored, "--similarity", "0.7", "--json").out.splitlines()
    assert [json.loads(line) for line in as_json] == [pair._asdict() for pair in expected]
    assert "jaccard" not in json.loads(run("pairs", stored, "--json").out.splitlines()[0])
    clusters = answers(stored, lambda db: list(db.clusters(min_jaccard=0.7)))
    shown = run("clusters", stored, "--similarity", "0.7").rows
    assert [row[2] for row in shown if row[1] == "duplicate"] == [
        key for cluster in clusters for key in cluster.duplicates
    ]


def test_what_resembles_is_not_ingested(run, tmp_path, records):
    path = tmp_path / "db"
    done = run("ingest", path, records, "--skip-duplicates", "--similarity", "0.7")
    assert done.code == 0
    assert "sketch minhash" in done.err  # a new database keeps what the option needs
    assert done.rows
    assert all(len(row) == 4 and float(row[3]) >= 0.7 for row in done.rows)
    assert answers(path, len) == 30 - len(done.rows)


@pytest.mark.parametrize(
    "arguments",
    [
        ("ingest", "texts", "--similarity", "0.7"),
        ("query", "--similarity", "1.2", "--text", "x"),
    ],
)
def test_options_that_dont_go_together(run, stored, arguments):
    command, *rest = arguments
    assert run(command, stored, *rest).code == 2


def test_stats_get_export_and_create_show_sketches(run, stored, tmp_path):
    assert "30 minhash" in run("stats", stored).out
    shown = json.loads(run("get", stored, "0a", "--json").out)
    with fpdb.open(stored) as database:
        assert shown["sketch"] == database["0a"].sketch.hex()
    assert '"sketch"' in run("export", stored).out
    created = json.loads(run("create", tmp_path / "new", "--sketch", "minhash", "--json").out)
    assert created["sketch"] == "minhash"
