"""fpdb get and delete: by key, by prefix, by age, from files."""

import json
import re
import time

import pytest
from numbered import keys_in, text_of

import fpdb

KEYS = ["https://a.example/1", "https://a.example/2", "https://b.example/1", "short"]


@pytest.fixture
def path(tmp_path):
    where = tmp_path / "crawl.fpdb"
    with fpdb.create(where) as database:
        for number, key in enumerate(KEYS[:3]):
            database.add(key, text_of(number), {"n": number, "t": "标题"} if number else None)
        database.add("short", "too short")
    return where


@pytest.fixture
def numbered(tmp_path):
    where = tmp_path / "numbered.fpdb"
    with fpdb.create(where, keys="integer") as database:
        database.add_fingerprints([7, 8, 9], [1, 2, 3])
    return where


def test_get_prints_what_is_stored(run, path):
    done = run("get", path, KEYS[1], "short", KEYS[0])
    assert (done.code, done.err) == (0, "")
    number = f"{fpdb.recipe('web').fingerprint(text_of(1)):016x}"
    assert [row[:3] for row in done.rows] == [
        [KEYS[1], "1", number],
        ["short", "3", "short"],
        [KEYS[0], "0", done.rows[2][2]],
    ]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row[3]) for row in done.rows)
    assert [json.loads(row[4]) for row in done.rows] == [{"n": 1, "t": "标题"}, None, None]


def test_get_as_json(run, path):
    shown = [json.loads(line) for line in run("get", path, "--json", *KEYS[2:]).out.splitlines()]
    assert [list(each) for each in shown] == [
        ["key", "id", "fingerprint", "short", "added", "characters", "meta"]
    ] * 2
    assert (shown[0]["fingerprint"], shown[0]["short"]) == (
        f"{fpdb.recipe('web').fingerprint(text_of(2)):016x}",
        False,
    )
    assert (shown[1]["fingerprint"], shown[1]["short"], shown[1]["meta"]) == (None, True, None)


def test_prefix_lists(run, path, numbered):
    assert [row[0] for row in run("get", path, "--prefix", "https://a.").rows] == KEYS[:2]
    assert [row[0] for row in run("get", path, "--prefix", "").rows] == KEYS
    assert run("get", path, "--prefix", "x").out == ""
    assert [row[0] for row in run("get", numbered, "--prefix", "").rows] == ["7", "8", "9"]
    assert run("get", numbered, "--prefix", "7").code == 3


def test_missing_keys_are_an_error_after_what_was_found(run, path):
    done = run("get", path, "nope", KEYS[0], "neither")
    assert (done.code, [row[0] for row in done.rows]) == (3, [KEYS[0]])
    assert done.err.splitlines()[0] == f"error: {path} has no document 'nope', 'neither'"
    many = run("get", path, *(f"x{n}" for n in range(9)))
    assert many.err.splitlines()[0].endswith("'x4' and 4 more")


def test_integer_keys(run, numbered):
    assert [row[:3] for row in run("get", numbered, "8").rows] == [["8", "8", f"{2:016x}"]]
    assert run("get", numbered, "10").code == 3
    wrong = run("get", numbered, "eight")
    assert (wrong.code, "expected a whole number" in wrong.err) == (3, True)
    assert run("delete", numbered, "8", "10").err == "deleted: 1, not found: 1\n"
    assert keys_in(numbered) == [7, 9]


@pytest.mark.parametrize("from_stdin", [False, True])
def test_delete_keys_from_a_file(run, path, tmp_path, from_stdin):
    file = tmp_path / "keys.txt"
    file.write_bytes(f"{KEYS[0]}\r\n\n{KEYS[2]}\n{KEYS[2]}\nnope".encode())
    done = run("delete", path, "--keys-from", "-" if from_stdin else file, stdin=file.read_bytes())
    assert done.err == "deleted: 2, not found: 1\n"
    assert keys_in(path) == [KEYS[1], "short"]


def test_delete_by_prefix(run, path):
    dry = run("delete", path, "--prefix", "https://a.", "--dry-run")
    assert [row[0] for row in dry.rows] == KEYS[:2]
    assert dry.err == "would be deleted: 2\n"
    assert keys_in(path) == KEYS
    done = run("delete", path, "--prefix", "https://a.")
    assert (done.code, done.out, done.err) == (0, "", "deleted: 2\n")
    assert keys_in(path) == KEYS[2:]


@pytest.mark.process
def test_delete_by_age(run, path, monkeypatch):
    assert run("delete", path, "--older-than", "1h", "--dry-run").out == ""
    later = time.time() + 90_000
    monkeypatch.setattr("time.time", lambda: later)
    with fpdb.open(path) as database:
        database.add("new", text_of(20))
    assert [row[0] for row in run("delete", path, "--older-than", "1d", "--dry-run").rows] == KEYS
    both = ["--older-than", "1d", "--prefix", "https://a."]
    assert [row[0] for row in run("delete", path, "--dry-run", *both).rows] == KEYS[:2]
    assert run("delete", path, *both).err == "deleted: 2\n"
    assert keys_in(path) == [KEYS[2], "new", "short"]
    assert run("delete", path, "--older-than", "1d").err == "deleted: 2\n"
    assert keys_in(path) == ["new"]
    assert run("check", path).code == 0
