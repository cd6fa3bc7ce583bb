"""Groups and times on the command line: create, ingest, get, export, query, delete, compact."""

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from numbered import text_of
from pyarrow import parquet

import fpdb
from fpdb import Document
from fpdb.models import Group

DAY = 86_400
NEWS = text_of(1)
TEXTS = {"a": NEWS, "b": NEWS + " tail", "c": text_of(2)}
GROUPS = [["a", "a", "added"], ["b", "a", "added"], ["c", "c", "added"]]


def pages(texts: dict[str, str]) -> bytes:
    records = [{"key": key, "text": text} for key, text in texts.items()]
    return "".join(f"{json.dumps(record)}\n" for record in records).encode()


@pytest.fixture
def path(tmp_path: Path, run: Any) -> Path:
    where = tmp_path / "news.fpdb"
    assert run("create", where, "--groups").code == 0
    return where


def test_ingest_writes_the_group_of_each_document(run: Any, path: Path, tmp_path: Path) -> None:
    out = tmp_path / "groups.tsv"
    done = run("ingest", path, "-", "--groups-out", out, stdin=pages(TEXTS))
    assert (done.code, done.out) == (0, "")
    assert [line.split("\t") for line in out.read_text().splitlines()] == GROUPS
    again = tmp_path / "again.jsonl.gz"
    more = pages({"b": TEXTS["b"], "d\t": NEWS + " end"})
    done = run("ingest", path, "-", "--skip-duplicates", "--groups-out", again, stdin=more)
    assert done.rows[0][:2] == ["d\\t", "a"]
    lines = gzip.decompress(again.read_bytes()).splitlines()
    assert [json.loads(line) for line in lines] == [
        {"key": "b", "group": "a", "status": "unchanged"},
        {"key": "d\t", "group": "a", "status": "duplicate"},
    ]


def test_bad_records_cost_no_groups(run: Any, path: Path, tmp_path: Path) -> None:
    out = tmp_path / "groups.tsv"
    done = run("ingest", path, "-", "--groups-out", out, stdin=pages(TEXTS) + b"no JSON\n")
    assert done.code == 4
    assert [line.split("\t") for line in out.read_text().splitlines()] == GROUPS
    assert run("ingest", path, "-", "--groups-out", out, stdin=b"no JSON\n").code == 3
    assert len(out.read_text().splitlines()) == 3


def test_ingest_refuses_a_file_for_groups_that_it_cant_write(run: Any, tmp_path: Path) -> None:
    source = tmp_path / "pages.jsonl"
    source.write_bytes(pages(TEXTS))
    plain, grouped = tmp_path / "plain.fpdb", tmp_path / "grouped.fpdb"
    fpdb.create(plain).close()
    done = run("ingest", plain, source, "--groups-out", tmp_path / "out.tsv")
    assert done.code == 3
    assert "keeps none" in done.err
    assert not (tmp_path / "out.tsv").exists()
    fpdb.create(grouped, groups=True).close()
    assert run("ingest", grouped, source, "--groups-out", "-").code == 2
    assert run("ingest", grouped, source, "--groups-out", source).code == 3
    assert source.read_bytes() == pages(TEXTS)


@pytest.mark.process
def test_get_export_query_and_follow_name_groups(run: Any, path: Path, tmp_path: Path) -> None:
    run("ingest", path, "-", stdin=pages(TEXTS))
    assert [row[4] for row in run("get", path, "b", "c").rows] == ["a", "c"]
    assert json.loads(run("get", path, "b", "--json").out)["group"] == "a"
    lines = run("export", path, "--json").out.splitlines()
    assert [json.loads(line)["group"] for line in lines] == ["a", "a", "c"]
    for suffix in ("tsv", "csv", "parquet"):
        assert run("export", path, "--output", tmp_path / f"out.{suffix}").code == 0
    rows = [line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines()]
    assert [row[-1] for row in rows] == ["group", "a", "a", "c"]
    assert parquet.read_table(tmp_path / "out.parquet")["group"].to_pylist() == ["a", "a", "c"]
    question = ["query", path, "--text", TEXTS["b"]]
    assert sorted(row[1:] for row in run(*question).rows) == [
        ["a", run(*question).rows[1][2], "a"],
        ["b", "1.00", "a"],
    ]
    [answer] = map(json.loads, run(*question, "--json").out.splitlines())
    assert [match["group"] for match in answer["matches"]] == ["a", "a"]
    bits = run("query", path, "--text", TEXTS["b"], "--nearest", 1).rows
    assert bits == [["text", "b", "0", "100.00", "a"]]
    assert json.loads(followed(path, pages({"d": TEXTS["b"] + " more"})))["group"] == "a"


def followed(path: Path, lines: bytes) -> bytes:
    command = [sys.executable, "-m", "fpdb", "follow", str(path)]
    return subprocess.run(command, check=True, input=lines, capture_output=True).stdout


def test_without_groups_none_is_named(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "plain.fpdb"
    with fpdb.create(path) as database:
        database.add("a", NEWS)
    assert "group" not in run("get", path, "a", "--json").out
    assert "group" not in run("export", path, "--json").out
    assert len(run("get", path, "a").rows[0]) == 5
    assert "group" not in run("query", path, "--text", NEWS, "--json").out
    assert run("compact", path, "--output", tmp_path / "new.fpdb", "--groups").code == 0
    assert run("get", tmp_path / "new.fpdb", "a").rows[0][4] == "a"
    done = run("create", tmp_path / "bits.fpdb", "--similarity", "off", "--groups")
    assert done.code == 3
    assert "database of bits" in done.err


@pytest.fixture
def dated(tmp_path: Path) -> Path:
    """Three versions, and a fingerprint, that were added on four days."""
    where = tmp_path / "dated.fpdb"
    now = int(time.time())
    with fpdb.create(where, keys="integer", groups=True, passages=True) as database:
        versions = [NEWS, NEWS + " b", NEWS + " b c"]
        documents = [
            Document(number, text, added=now - (4 - number) * DAY)
            for number, text in enumerate(versions, 1)
        ]
        number = database.recipe.fingerprint(NEWS)
        documents.append(Document(4, fingerprint=number, added=now))
        list(database.add_many(documents))
    return where


@pytest.mark.parametrize(
    ("times", "keys"),
    [
        (("--since", "36h"), [3, 4]),
        (("--until", "36h"), [1, 2]),
        (("--since", "60h", "--until", "30h"), [2]),
        (("--since", "2001-09-09T01:46:41Z", "--until", "2001-09-09T01:46:42+00:00"), []),
        (("--until", "2001-09-09"), []),
    ],
)
def test_since_and_until_choose_by_the_time_of_adding(
    run: Any, dated: Path, tmp_path: Path, times: tuple[str, ...], keys: list[int]
) -> None:
    texts = [key for key in keys if key < 4]
    assert [int(row[0]) for row in run("get", dated, *times).rows] == keys
    exported = run("export", dated, "--json", *times).out.splitlines()
    assert [json.loads(line)["key"] for line in exported] == keys
    portable = tmp_path / "part.fpdb.jsonl"
    assert run("export", dated, "--output", portable, *times).code == 0
    assert run("load", tmp_path / "part.fpdb", portable).code == 0
    with fpdb.open(tmp_path / "part.fpdb") as database:
        assert list(database) == keys
    for more in ((), ("--passages",)):
        found = run("query", dated, "--text", NEWS, *more, *times).rows
        assert sorted(int(row[1]) for row in found) == texts
    for more in (("-k", 64), ("--nearest", 4)):
        found = run("query", dated, "--text", NEWS, *more, *times).rows
        assert sorted(int(row[1]) for row in found) == keys
    if keys:
        [nearest] = run("query", dated, "--text", NEWS, "--nearest", 1, *times).rows
        assert int(nearest[1]) in keys
    number = f"{fpdb.recipe('web').fingerprint(NEWS):x}"
    found = run("query", dated, "--fingerprint", number, "-k", 20, *times).rows
    assert sorted(int(row[1]) for row in found) == keys


def test_a_time_is_a_date_a_time_or_an_age(run: Any, dated: Path) -> None:
    done = run("get", dated, "--since", "yesterday")
    assert done.code == 2
    assert "2026-11-30" in done.err
    assert run("get", dated, "3", "--since", "1d").code == 2


def test_delete_by_age_keeps_groups_right(run: Any, dated: Path) -> None:
    assert run("get", dated, "3").rows[0][4] == "1"
    assert run("delete", dated, "--older-than", "60h").code == 0
    assert [row[4] for row in run("get", dated, "2", "3", "4").rows] == ["2", "2", "4"]
    with fpdb.open(dated) as database:
        assert database.group(3) == Group(2, (3,))
        database.add(9, text_of(7))  # which checks the others
        assert not list(database.check())
        assert database.group(3) == Group(2, (3,))
