"""fpdb create, stats and check; and how every command meets a path that is no database."""

import json
import sys

import pytest
from numbered import text_of

import fpdb
from fpdb.models import Problem

COMMANDS = [
    ["query", "-t", "x"],
    ["get", "key"],
    ["delete", "key"],
    ["export"],
    ["stats"],
    ["check"],
]
EACH = pytest.mark.parametrize("command", COMMANDS, ids=[command[0] for command in COMMANDS])


def call(run, command, path):
    return run(command[0], path, *command[1:])


@pytest.fixture
def path(tmp_path):
    where = tmp_path / "crawl.fpdb"
    with fpdb.create(where) as database:
        for number in range(5):
            database.add(f"u{number}", text_of(number))
        database.add("brief", "too short")
    return where


def test_stats_as_json(run, path):
    shown = json.loads(run("stats", path, "--json").out)
    with fpdb.open(path, readonly=True) as database:
        stats = database.stats()
    assert shown["bytes_per_document"] == round(stats.bytes_used / 6, 2)
    assert shown["tables"][3] == {"name": "table-03", "prefix": 16, "pages": 1}
    assert (shown["documents"], shown["recipe_id"]) == (6, stats.recipe_id)
    assert shown["created"].endswith("Z")


def test_check_prints_problems_and_exits_with_1(run, path, monkeypatch):
    problems = [Problem("table-01", "a row\x1b is missing"), Problem("counters", "no")]
    monkeypatch.setattr(fpdb, "check", lambda path, deep: iter(problems))
    done = run("check", path)
    assert (done.code, done.err) == (1, "")
    assert done.rows == [["table-01", r"a row\x1b is missing"], ["counters", "no"]]
    as_json = run("check", path, "--json")
    assert as_json.code == 1
    assert json.loads(as_json.out.splitlines()[1]) == {"where": "counters", "what": "no"}


@EACH
def test_nothing_at_the_path(run, tmp_path, command):
    done = call(run, command, tmp_path / "absent")
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("error: there is no database at")
    assert "\nhint: " in done.err
    assert not (tmp_path / "absent").exists()


CONTENTS = {
    "nothing": b"",
    "zeros": b"\0" * 4096,
    "foreign": b"SQLite format 3\0" * 600,
    "short": b"\xff" * 100,
}


@pytest.mark.process
@pytest.mark.parametrize("name", CONTENTS)
def test_check_reports_a_broken_data_file_and_refuses_a_foreign_one(run, tmp_path, name):
    (tmp_path / "data.mdb").write_bytes(CONTENTS[name])
    done = run("check", tmp_path)
    if name in {"zeros", "foreign"}:
        assert (done.code, done.out) == (3, "")
        assert "isn't an LMDB file" in done.err
    else:
        assert (done.code, done.err) == (1, "")
        [[where, what]] = done.rows
        assert where == "data.mdb"
        assert what
    assert (tmp_path / "data.mdb").read_bytes() == CONTENTS[name]


@pytest.mark.process
def test_backup_by_a_program_exits_with_its_code(run, path, tmp_path):
    assert run("backup", path, "--", "sh", "-c", "exit 7").code == 7
    assert run("backup", path, "--", "sh", "-c", "kill -9 $$").code == 137
    failed = run("backup", path, "--", "no such program")
    assert failed.code == 3
    assert "no such program can't be run: No such file or directory" in failed.err
    assert run("backup", path).code == 2
    assert run("backup", path, "-o", tmp_path / "copy", "--", "true").code == 2
    assert not (tmp_path / "copy").exists()


@pytest.mark.process
def test_the_database_is_held_while_a_program_copies_it(run, path, tmp_path):
    code = "import os, sys, fpdb; print(fpdb.describe(sys.argv[1]).snapshots.open, end=' ')"
    code += "; print(os.environ['FPDB_BYTES'])"
    seen = tmp_path / "seen"
    words = [sys.executable, "-c", code, path]
    done = run("backup", path, "--", "sh", "-c", f'"$@" > {seen}', "sh", *words)
    assert done.code == 0, done.err
    snapshots, length = map(int, seen.read_text().split())
    assert snapshots == 1
    assert length > (path / "data.mdb").stat().st_size


@pytest.mark.process
def test_summaries_as_json(run, path, tmp_path):
    def last(*arguments):
        done = run(*arguments, "--json")
        assert (done.code, done.err) == (0, ""), done.err
        return json.loads(done.out)

    assert last("backup", path, "-o", tmp_path / "copy")["path"] == str(tmp_path / "copy")
    assert last("delete", path, "u1", "absent") == {"deleted": 1, "absent": 1}
    compacted = last("compact", path, "--replace")
    assert (compacted["documents"], compacted["bytes_before"] > 0) == (5, True)
    file = tmp_path / "all.fpdb.jsonl"
    assert run("export", path, "-o", file, "-q").err == ""
    assert last("load", tmp_path / "loaded", file)["read"] == 5
