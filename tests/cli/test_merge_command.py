"""fpdb merge: what it says, where, and its exit codes."""

import json

import pytest

import fpdb
from fpdb.storage import drafts


@pytest.fixture
def pair(tmp_path):
    for name, keys in (("a", "xy"), ("b", "yz")):
        with fpdb.create(tmp_path / name, recipe="char-4") as db:
            db.add_fingerprints(list(keys), [ord(name) << 20, ord(name) << 40])
    return tmp_path / "a", tmp_path / "b"


@pytest.mark.process
def test_what_was_taken_is_told(run, pair, tmp_path):
    done = run("merge", *pair, "-o", tmp_path / "c", "--on-conflict", "first")
    assert (done.code, done.out) == (0, "")
    first, second, last = done.err.splitlines()
    assert first == f"{pair[0]}: 2 taken, 0 dropped"
    assert second == f"{pair[1]}: 1 taken, 1 dropped"
    assert last.startswith(f"{tmp_path / 'c'}: 3 documents, 4 tables")


@pytest.mark.process
def test_json_and_quiet(run, pair, tmp_path):
    done = run("merge", *pair, "-o", tmp_path / "c", "--json", "--quiet", "--k", 2)
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out) == {
        "path": str(tmp_path / "c"),
        "documents": 3,
        "begun": "fresh",
        "sources": [
            {"path": str(pair[0]), "documents": 2, "dropped": 0},
            {"path": str(pair[1]), "documents": 1, "dropped": 1},
        ],
    }
    with fpdb.open(tmp_path / "c") as db:
        assert db.k == 2


def test_errors(run, pair, tmp_path):
    done = run("merge", *pair, "-o", tmp_path / "c", "--on-conflict", "error")
    assert (done.code, done.out) == (3, "")
    assert "different documents with the key 'y'" in done.err
    assert "hint: " in done.err
    assert run("merge", *pair, "-o", pair[0]).code == 3
    assert run("merge", *pair, "-o", "-").code == 2
    assert run("merge", *pair).code == 2
    assert run("merge", "-o", tmp_path / "c").code == 2
    assert run("merge", *pair, "-o", tmp_path / "c", "--on-conflict", "oldest").code == 2
    assert not (tmp_path / "c").exists()


@pytest.mark.process
def test_it_says_that_it_went_on(run, pair, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("heapq.merge", interrupt)
        done = run("merge", *pair, "-o", tmp_path / "c")
    assert done.code == 130
    assert done.err.startswith(f"{tmp_path / '.c.merge'} holds what is done")
    done = run("merge", *pair, "-o", tmp_path / "c")
    assert (done.code, done.err.splitlines()[0]) == (
        0,
        "went on with the draft of a merge that was cut short",
    )


def interrupt(*_, **__):
    raise KeyboardInterrupt


def test_a_draft_that_another_is_at_work_on_is_left_to_it(run, pair, tmp_path):
    with drafts._claimed(tmp_path / "c", tmp_path / ".c.merge"):
        done = run("merge", *pair, "-o", tmp_path / "c")
    assert done.code == 3
    assert "another process is making" in done.err
    assert "delete" not in done.err


def test_a_draft_behind_a_link_is_named(run, pair, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to("c")
    with monkeypatch.context() as patch:
        patch.setattr("heapq.merge", interrupt)
        done = run("merge", *pair, "-o", tmp_path / "link")
    assert done.err.startswith(f"{tmp_path / '.c.merge'} holds what is done")
