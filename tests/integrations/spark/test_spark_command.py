"""The commands of `fpdb spark`, on the Spark of all tests, and one in a process of its own."""

import json
import os
import random
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

import fpdb
from fpdb.cli import main

pytestmark = pytest.mark.spark

LIKE = 0.8


def _texts():
    """Return texts with near and exact copies among them, and some that are too short."""
    chance = random.Random(7)
    words = [f"word{number}" for number in range(300)]
    texts = []
    for _ in range(80):
        base = [chance.choice(words) for _ in range(chance.choice([2, 40, 80, 120]))]
        for _ in range(chance.choice([1, 1, 2, 4])):
            text = list(base)
            for _ in range(chance.choice([0, 0, 1, 2])):
                text[chance.randrange(len(text))] = chance.choice(words)
            texts.append(" ".join(text))
    return [(f"k{number:04}", text) for number, text in enumerate(texts)]


TEXTS = _texts()


def _write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


@pytest.fixture(scope="module")
def folder(java, tmp_path_factory):
    """A directory with documents as JSON lines and in a database, and their fingerprints.

    The fingerprints are written by a process with a Spark of its own.
    """
    folder = tmp_path_factory.mktemp("command")
    records = [{"url": key, "text": text} for key, text in TEXTS]
    _write_lines(folder / "pages.jsonl", [*records, {"url": "empty", "text": None}])
    _write_lines(
        folder / "new.jsonl",
        [{"url": f"q{place}", "text": text} for place, (_, text) in enumerate(TEXTS[::5])],
    )
    with fpdb.create(folder / "own.fpdb", capacity=len(TEXTS)) as database:
        for _ in database.add_many(fpdb.Document(key, text) for key, text in TEXTS):
            pass
    command = [sys.executable, "-m", "fpdb", "spark", "fingerprint", "pages.jsonl"]
    done = subprocess.run(
        [*command, "prints.parquet", "--key-field", "url"],
        check=False,
        cwd=folder,
        env={**os.environ, "MASTER": "local[2]"},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 4, done.stderr  # done, but a record was bad
    short = sum(fpdb.recipe("web").batch([text for _, text in TEXTS]).short)
    counts = f"documents {len(TEXTS) + 1}, short {short}, problems 1 (see its column problem)"
    assert f"prints.parquet: {counts}\n" in done.stderr
    return folder


@pytest.fixture
def database(folder):
    with fpdb.open(folder / "own.fpdb", readonly=True) as database:
        yield database


@pytest.fixture
def command(spark, folder, monkeypatch, capfd):
    """Run a command in this process, and return its messages and the rows that it wrote."""

    def run(*arguments, code=0):
        monkeypatch.setattr(sys, "argv", ["fpdb", "spark", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        _, err = capfd.readouterr()
        assert (ended.value.code or 0) == code, err
        assert "Traceback" not in err
        return err, pq.read_table(arguments[-1]).to_pylist() if code == 0 else []

    return run


def test_fingerprints_are_written_with_what_is_wrong(folder):
    rows = {row["key"]: row for row in pq.read_table(folder / "prints.parquet").to_pylist()}
    batch = fpdb.recipe("web").batch([text for _, text in TEXTS])
    for (key, _), own, short in zip(TEXTS, batch.fingerprints.tolist(), batch.short, strict=True):
        assert rows[key]["fingerprint"] == (None if short else own - (own >> 63 << 64))
    assert rows["empty"]["problem"] == "found no text"


def test_fingerprints_are_loaded_into_a_database(folder, database, tmp_path):
    bad = []
    fpdb.load(tmp_path / "db", str(folder / "prints.parquet"), on_bad=bad.append)
    assert [found.reason for found in bad] == ["found no text"]
    with fpdb.open(tmp_path / "db") as loaded:
        assert loaded.similarity == LIKE
        for key, _ in TEXTS:
            found, wanted = loaded[key], database[key]
            assert (found.fingerprint, found.digest) == (wanted.fingerprint, wanted.digest)
            assert found.sketch == wanted.sketch


@pytest.mark.parametrize("options", [{}, {"k": 3}])
def test_pairs_are_those_of_a_database(command, folder, database, tmp_path, options):
    given = [f"--{name}={value}" for name, value in options.items()]
    err, rows = command("pairs", folder / "prints.parquet", *given, tmp_path / "pairs")
    found = database.pairs(**options)
    wanted = {(*sorted((pair.key, pair.other)), pair.distance, pair.similarity) for pair in found}
    names = ("key", "other", "distance", "similarity")
    assert {tuple(row[name] for name in names) for row in rows} == wanted
    assert f"pairs {len(wanted)}\n" in err
    assert (
        "plan: k=3, " if options else f"plan: similarity=0.8, {database.plan.bands.name}"
    ) in err


@pytest.mark.parametrize("ready", [False, True])
def test_clusters_are_those_of_a_database(command, folder, database, tmp_path, ready):
    source = folder / "prints.parquet"
    if ready:
        command("pairs", source, tmp_path / "pairs")
        source = tmp_path / "pairs"
    _, rows = command("clusters", source, tmp_path / "clusters")
    found = {}
    for row in rows:
        found.setdefault(row["representative"], set()).add(row["key"])
    assert {frozenset(keys) for keys in found.values()} == {
        frozenset(cluster.keys) for cluster in database.clusters()
    }
    assert not (tmp_path / "clusters.checkpoints").exists()


def test_matches_are_those_of_a_database(command, folder, database, tmp_path):
    command("fingerprint", folder / "new.jsonl", "--key-field", "url", tmp_path / "new")
    _, rows = command("query", tmp_path / "new", folder / "prints.parquet", tmp_path / "matches")
    wanted = {
        (f"q{place}", match.key, match.distance)
        for place, (_, text) in enumerate(TEXTS[::5])
        for match in database.query(text)
    }
    assert {(row["query"], row["key"], row["distance"]) for row in rows} == wanted


def test_wrong_input_is_an_error_and_leaves_nothing(command, folder, tmp_path):
    (tmp_path / "there").mkdir()
    err, _ = command("pairs", folder / "prints.parquet", tmp_path / "there", code=3)
    assert "there exists already" in err
    err, _ = command("pairs", tmp_path / "absent.parquet", tmp_path / "out", code=3)
    assert "absent.parquet" in err
    err, _ = command("fingerprint", folder / "pages.jsonl", tmp_path / "out", code=3)
    assert "expected 'key' among them" in err
    assert not (tmp_path / "out").exists()
