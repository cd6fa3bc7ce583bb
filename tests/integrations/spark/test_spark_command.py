"""The commands of `fpdb spark`: on the Spark of all tests, and with one of their own."""

import contextlib
import csv
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fpdb
from fpdb.cli import main

LIKE = 0.8
FILES = (".parquet", ".jsonl", ".csv", "columns")
PROBLEMS = [
    {"key": "empty", "text": None},
    {"text": "a text that has no name, and so can't be found by anything that asks for it"},
]


def _texts(seed=7, count=80):
    """Texts with near and exact copies among them, and some that are too short."""
    chance = random.Random(seed)
    words = [f"word{number}" for number in range(300)]
    texts = []
    for _ in range(count):
        base = [chance.choice(words) for _ in range(chance.choice([2, 40, 80, 120]))]
        for _ in range(chance.choice([1, 1, 2, 4])):
            text = list(base)
            for _ in range(chance.choice([0, 0, 1, 2])):
                text[chance.randrange(len(text))] = chance.choice(words)
            texts.append(" ".join(text))
    return [(f"k{number:04}", text) for number, text in enumerate(texts)]


TEXTS = _texts()
QUESTIONS = [(f"q{number}", text) for number, (_, text) in enumerate(TEXTS[::5])]


@pytest.fixture(scope="module")
def folder(spark, tmp_path_factory):
    """A directory with the same documents as JSON lines, as Parquet and in a database."""
    folder = tmp_path_factory.mktemp("command")
    records = [{"key": key, "text": text} for key, text in TEXTS]
    lines = [*map(json.dumps, records), *map(json.dumps, PROBLEMS), "no JSON at all"]
    (folder / "pages.jsonl").write_text("\n".join(lines) + "\n")
    names, texts = zip(*QUESTIONS, strict=True)
    pq.write_table(pa.table({"name": names, "body": texts}), folder / "questions.parquet")
    with fpdb.create(folder / "own.fpdb", sketch="minhash") as database:
        for _ in database.add_many(fpdb.Document(key, text) for key, text in TEXTS):
            pass
    return folder


@pytest.fixture
def database(folder):
    with fpdb.open(folder / "own.fpdb", readonly=True) as database:
        yield database


@pytest.fixture
def command(folder, monkeypatch, capfd):
    """Run a command in this process, on the Spark that runs already; give what it printed."""

    def run(*arguments, code=0):
        # Java's own directory is another.
        placed = [folder / a if a.endswith(FILES) else a for a in arguments]
        monkeypatch.setattr(sys, "argv", ["fpdb", "spark", *map(str, placed)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        assert (ended.value.code or 0) == code, err
        assert "Traceback" not in err
        assert not [path for path in folder.iterdir() if ".fpdb-" in path.name]
        return out, err

    return run


@pytest.fixture(scope="module")
def prints(folder, spark):
    """The fingerprints of the documents, as a process of its own makes them."""
    done = _process(
        folder, "fingerprint", "pages.jsonl", "-o", "prints.parquet", "--sketch", "minhash"
    )
    assert done.returncode == 0, done.stderr
    return done


def _process(folder, *arguments, environment=None, **options):
    """Run a command with a Spark of its own."""
    master = [] if "--master" in arguments else ["--master", "local[2]"]
    return subprocess.run(
        [sys.executable, "-m", "fpdb", "spark", *map(str, arguments), *master],
        check=False,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        **options,
    )


def _pairs(database, like=None):
    found = database.pairs(min_jaccard=like)
    return {(*sorted((pair.key, pair.other)), pair.distance) for pair in found}


def _written(path):
    return pq.read_table(path).to_pylist()


def _lines(path, most=None):
    """The lines of all files of a directory, or the first ones of each."""
    parts = sorted(path.glob("part-*"))
    return [line for part in parts for line in part.read_text().splitlines()[:most]]


def _rows(out):
    return [line.split("\t") for line in out.splitlines()]


def test_fingerprints_are_written_and_what_is_wrong_is_named(prints, folder):
    rows = {row["key"]: row for row in _written(folder / "prints.parquet")}
    batch = fpdb.recipe("web").batch([text for _, text in TEXTS])
    for (key, _), own, short in zip(TEXTS, batch.fingerprints.tolist(), batch.short, strict=True):
        found = rows[key]["fingerprint"]
        assert found == (None if short else own - (own >> 63 << 64))
    assert "empty: found no text\n" in prints.stderr
    assert prints.stderr.count("(no key): found no key\n") == 2
    short = int(batch.short.sum())
    sizes = f"documents {len(TEXTS) + 3}, short {short}, problems 3; "
    assert f"prints.parquet: {sizes}" in prints.stderr
    assert prints.stdout == ""


def test_java_says_next_to_nothing(prints):
    assert "log4j" not in prints.stderr
    assert "WARN " not in prints.stderr
    assert "FutureWarning" not in prints.stderr
    assert len(prints.stderr.splitlines()) <= 6


def test_pairs_are_those_of_a_database(command, prints, database):
    out, err = command("pairs", "prints.parquet")
    assert {(key, other, int(at)) for key, other, at in _rows(out)} == _pairs(database)
    assert f"pairs {len(_pairs(database))}; " in err


def test_plan_and_sizes_come_first(command, prints, folder, database):
    _, err = command("pairs", "prints.parquet", "-k", "4", "-o", "planned.parquet")
    lines = err.splitlines()
    assert re.fullmatch(r"Spark 4\S+, local-cluster.*, 2 cores", lines[0])
    assert "prints.parquet: documents" in err
    names = [line.split("  ")[0] for line in lines]
    place = names.index("fingerprints")
    planned = ["fingerprints", "plan", "rows", "candidates", "tasks", "time"]
    assert names[place : place + 6] == planned
    distinct = len({f for _, f in _fingerprints(database)})
    assert f"{distinct} distinct ones of 64 bits" in lines[place]
    assert "k=4, " in lines[place + 1]
    assert lines[-1].startswith(f"{folder}/planned.parquet: pairs ")


def _fingerprints(database):
    found = ((key, document) for key, document in zip(*_gotten(database), strict=True))
    return [(key, d.fingerprint) for key, d in found if d.fingerprint is not None]


def _gotten(database):
    keys = [key for key, _ in TEXTS]
    return keys, [database.get(key) for key in keys]


def test_verified_pairs_of_texts_as_json(command, database):
    out, err = command("pairs", "pages.jsonl", "--min-jaccard", str(LIKE), "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert {(f["key"], f["other"], f["distance"]) for f in found} == _pairs(database, LIKE)
    assert all(set(f) == {"key", "other", "distance", "similarity", "jaccard"} for f in found)
    assert min(f["jaccard"] for f in found) >= LIKE
    assert "problems 3" in err


@pytest.mark.parametrize(
    "suffix",
    ["parquet", *(pytest.param(form, marks=pytest.mark.long) for form in ("jsonl", "csv"))],
)
def test_pairs_go_to_files_of_any_format(command, prints, folder, database, suffix):
    command("pairs", "prints.parquet", "-o", f"any.{suffix}")
    path = folder / f"any.{suffix}"
    match suffix:
        case "parquet":
            found = _written(path)
        case "jsonl":
            found = list(map(json.loads, _lines(path)))
        case _:
            heads = _lines(path, 1)
            assert heads == ["key,other,distance,similarity"] * len(heads)
            found = list(csv.DictReader([heads[0], *_lines(path)]))
            found = [row for row in found if row["key"] != "key"]
    pairs = {(row["key"], row["other"], int(row["distance"])) for row in found}
    assert pairs == _pairs(database)
    assert (path / "_SUCCESS").exists()


def test_clusters_of_fingerprints_and_of_pairs(command, prints, folder, database):
    wanted = {frozenset(cluster.keys) for cluster in database.clusters()}
    out, err = command("clusters", "prints.parquet")
    assert _clusters(_rows(out)) == wanted
    assert [row[0] for row in _rows(out)] == sorted(row[0] for row in _rows(out))
    duplicates = sum(map(len, wanted)) - len(wanted)
    assert f"clusters {len(wanted)}, duplicates {duplicates}; " in err
    command("pairs", "prints.parquet", "--spanning", "-o", "spanning.parquet")
    assert len(_written(folder / "spanning.parquet")) < len(_pairs(database))
    _, err = command("clusters", "spanning.parquet", "-o", "clusters.parquet")
    rows = [(row["representative"], row["key"]) for row in _written(folder / "clusters.parquet")]
    assert _clusters(rows) == wanted
    assert f"clusters.parquet: clusters {len(wanted)}, duplicates {duplicates}; " in err


def _clusters(rows):
    found = {}
    for representative, key in rows:
        found.setdefault(representative, set()).add(key)
    assert all(name == min(keys) for name, keys in found.items())
    return {frozenset(keys) for keys in found.values()}


def test_matches_are_those_of_a_database(command, prints, folder, database):
    asked = ("questions.parquet", "--key-field", "name", "--text-field", "body")
    # The fields are those of both, so the corpus has its own names here.
    table = pq.read_table(folder / "prints.parquet").rename_columns({"key": "name"})
    pq.write_table(table, folder / "named.parquet")
    out, _ = command("query", asked[0], "named.parquet", *asked[1:])
    matches = database.query_many([text for _, text in QUESTIONS])
    wanted = {
        (name, match.key, str(match.distance), f"{match.similarity:.4f}")
        for (name, _), found in zip(QUESTIONS, matches, strict=True)
        for match in found
    }
    assert set(map(tuple, _rows(out))) == wanted


def test_sorted_columns_become_a_database(command, prints, folder, database):
    command("sorted", "prints.parquet", "-o", "columns", "--recipe", "web")
    assert fpdb.load_sorted(folder / "columns", folder / "loaded.fpdb") == len(TEXTS)
    with fpdb.open(folder / "loaded.fpdb", readonly=True) as loaded:
        assert _pairs(loaded) == _pairs(database)


def test_keys_that_look_like_formulas_are_guarded_in_csv(command, folder):
    text = "one and the same text, which is long enough to have a fingerprint of its own"
    rows = [{"key": key, "text": text} for key in ("=1+1", '-a"b', "plain")]
    (folder / "odd.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for name, guard in (("guarded", []), ("plain", ["--no-csv-guard"])):
        command("pairs", "odd.jsonl", "-o", f"{name}.csv", *guard)
        found = {cell for row in csv.reader(_lines(folder / f"{name}.csv")) for cell in row}
        keys = {"=1+1", '-a"b', "plain"} if guard else {"'=1+1", "'-a\"b", "plain"}
        assert keys <= found


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["pairs", "nowhere.parquet"], "Path does not exist", "workers must reach"),
        (["pairs", "pages.jsonl", "--format", "parquet"], "pages.jsonl", "--format"),
        (["pairs", "pages.jsonl", "-o", "questions.parquet"], "exists already", "another"),
        (
            ["pairs", "questions.parquet"],
            "the columns name, body, expected 'key' or",
            "--key-field",
        ),
        (["pairs", "prints.parquet", "-k", "40"], "k = 40", "k from 0"),
        (["query", "odd.jsonl", "prints.parquet", "--recipe", "char-4"], "recipe", "the same"),
    ],
)
def test_errors_are_told_in_two_lines(command, prints, folder, arguments, message, hint):
    (folder / "odd.jsonl").write_text('{"key": "a", "text": "a text that is long enough"}\n')
    _, err = command(*arguments, code=3)
    last, cure = err.splitlines()[-2:]
    assert last.startswith("error: ")
    assert message in last
    assert cure.startswith("hint: ")
    assert hint in cure


@pytest.mark.parametrize(
    "arguments",
    [
        ["pairs", "prints.parquet", "--recipe", "web"],
        ["pairs", "prints.parquet", "--master", "local[2]"],
        ["pairs", "prints.parquet", "--conf", "spark"],
        ["pairs", "prints.parquet", "--json", "-o", "new.parquet"],
        ["pairs", "prints.parquet", "--output-format", "csv"],
        ["clusters", "spanning.parquet", "-k", "3"],
    ],
)
def test_what_does_not_fit_is_wrong_usage(command, prints, folder, arguments):
    pairs = pa.table({"key": ["a"], "other": ["b"]})
    if not (folder / "spanning.parquet").exists():
        pq.write_table(pairs, folder / "spanning.parquet")
    _, err = command(*arguments, code=2)
    assert "Usage: " in err


def test_a_job_that_fails_leaves_nothing(command, prints, folder, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("the disk of a worker is gone")

    def pairs(df, *_, **__):
        return df.mapInArrow(lambda rows: map(broken, rows), "key string, other string")

    monkeypatch.setattr("fpdb.integrations.spark.pairs", pairs)
    _, err = command("pairs", "prints.parquet", "-o", "broken.parquet", code=3)
    assert "error: Spark failed: RuntimeError: the disk of a worker is gone\n" in err
    assert not (folder / "broken.parquet").exists()


def test_without_java(folder, tmp_path):
    done = _process(folder, "pairs", "x", environment={"JAVA_HOME": str(tmp_path)})
    assert done.returncode == 3
    assert done.stderr.startswith("error: Spark needs Java, found none in JAVA_HOME, which is ")
    assert "hint: install a Java of 17 or later" in done.stderr


def test_with_an_old_java(folder, tmp_path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    done = _process(folder, "pairs", "x", environment={"JAVA_HOME": str(tmp_path)})
    assert done.returncode == 3
    assert 'Spark needs Java 17 or later, found version "11.0.2"' in done.stderr


def test_without_pyspark(monkeypatch, tmp_path):
    code = "import sys; sys.modules['pyspark'] = None; from fpdb.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "spark", "pairs", "x"],
        check=False,
        capture_output=True,
        encoding="utf-8",
        cwd=tmp_path,
    )
    assert done.returncode == 3
    assert "pip install 'fpdb[spark]'" in done.stderr


def test_the_command_line_starts_without_pyspark():
    code = "import fpdb.cli, sys; print(*{'pyspark', 'py4j', 'pyarrow'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert done.stdout.split() == []


@pytest.mark.long
def test_spark_submit_runs_the_commands(java, prints, folder, database):
    import pyspark

    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    (folder / "job.py").write_text("from fpdb.cli import main\n\nmain()\n")
    home = folder / "work of workers"
    home.mkdir()
    for part in submit.parents[1].iterdir():
        (home / part.name).symlink_to(part)
    job = ["job.py", "spark", "pairs", "prints.parquet", "-o", "submitted.parquet"]
    done = subprocess.run(
        [submit, "--master", "local-cluster[1,1,1024]", "--conf", "spark.ui.enabled=false", *job],
        check=False,
        cwd=folder,
        env={
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_HOSTNAME": "localhost",
            "PYSPARK_PYTHON": sys.executable,
        },
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    # Spark has one stream for what a program prints, whatever it is.
    assert re.search(r"Spark 4.*, local-cluster\[1,1,1024\], ", done.stdout)
    assert "submitted.parquet: pairs " in done.stdout
    rows = _written(folder / "submitted.parquet")
    assert {(r["key"], r["other"], r["distance"]) for r in rows} == _pairs(database)


@pytest.mark.long
def test_an_interrupted_command_leaves_no_process_and_no_file(java, folder):
    slow = folder / "slow.parquet"
    texts = [f"{number} {TEXTS[number % 99][1]}" for number in range(60_000)]
    pq.write_table(pa.table({"key": list(map(str, range(len(texts)))), "text": texts}), slow)
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "fpdb",
            "spark",
            "pairs",
            slow,
            "-o",
            "slow",
            "--master",
            "local[2]",
        ],
        cwd=folder,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    )
    try:
        while "Spark 4" not in process.stderr.readline():
            assert process.poll() is None
        time.sleep(3)  # it fingerprints by now
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, err = process.communicate(timeout=120)
        assert process.returncode == 130, err
        assert "Traceback" not in err
        assert _left(process.pid) == []
        assert [path.name for path in folder.iterdir() if path.name.startswith("slow")] == [
            slow.name
        ]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _left(group):
    """The processes of a group that still run, a while after its end."""
    for _ in range(100):
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = path.read_text().rpartition(")")[2].split()
                if int(fields[2]) == group and fields[0] != "Z":
                    found.append(path.parent.name)
        if not found:
            return []
        time.sleep(0.1)
    return found
