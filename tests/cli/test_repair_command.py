"""fpdb repair: what it prints, where, and its exit codes."""

import json
from pathlib import Path

import pytest

import fpdb
from fpdb.storage.format import unpack_record
from fpdb.storage.open_checks import open_data
from fpdb.storage.survey import Survey

PAGE = 4096


@pytest.fixture
def path(tmp_path):
    where = tmp_path / "crawl.fpdb"
    with fpdb.create(where, recipe="char-4") as db:
        db.add_fingerprints([f"u{n}" for n in range(400)], range(400))
    return where


def lose_leaf(path: Path) -> set[str]:
    """Overwrite a page of records, and return the keys that were on it."""
    with Survey(open_data(path)) as survey:
        leaf = list(dict.fromkeys(entry.page for entry in survey.entries("documents")))[1]
        keys = {
            unpack_record(entry.value, int.from_bytes(entry.key), 64).key
            for entry in survey.entries("documents")
            if entry.page == leaf
        }
    with (path / "data.mdb").open("r+b") as file:
        file.seek(leaf * PAGE)
        file.write(b"\xff" * PAGE)
    return keys


@pytest.mark.process
def test_a_sound_database(run, path, tmp_path):
    done = run("repair", path, "--output", tmp_path / "new")
    assert (done.code, done.out) == (0, "")
    assert done.err == f"{tmp_path / 'new'}: 400 documents\n"
    assert run("check", tmp_path / "new", "--deep").code == 0


def test_what_is_lost_is_printed(run, path, tmp_path):
    keys = lose_leaf(path)
    done = run("repair", path, "-o", tmp_path / "new")
    assert done.code == 1
    assert {what for where, what in done.rows if where == "lost"} == keys
    assert any(where == "documents" for where, _ in done.rows)
    assert done.err.endswith(f"{400 - len(keys)} documents; {len(keys)} lost\n")
    as_json = run("repair", path, "-o", tmp_path / "other", "--json")
    assert as_json.code == 1
    lines = [json.loads(line) for line in as_json.out.splitlines()]
    assert {line["what"] for line in lines if line["where"] == "lost"} == keys
    assert len(list(fpdb.open(tmp_path / "new", readonly=True))) == 400 - len(keys)


def test_what_is_lost_of_the_last_commit_is_unknown(run, path, tmp_path):
    size = (path / "data.mdb").stat().st_size
    with (path / "data.mdb").open("r+b") as file:
        file.truncate(size - 3 * PAGE)
    done = run("repair", path, "-o", tmp_path / "new")
    assert done.code == 1
    assert done.err.endswith("400 documents; an unknown number lost\n")
    assert any("the last commit" in what for _, what in done.rows)


def test_a_lost_header(run, path, tmp_path):
    data = (path / "data.mdb").read_bytes()
    (path / "data.mdb").write_bytes(data.replace(b"recipe_id", b"epicer_id"))
    done = run("repair", path, "-o", tmp_path / "new")
    assert done.code == 3
    assert "hint: restore a backup" in done.err
