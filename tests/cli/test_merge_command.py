"""fpdb merge: what it says, where, and its exit codes."""

import json

import pytest

import fpdb


@pytest.fixture
def pair(tmp_path):
    for name, keys in (("a", "xy"), ("b", "yz")):
        with fpdb.create(tmp_path / name, recipe="char-4") as db:
            db.add_fingerprints(list(keys), [ord(name) << 20, ord(name) << 40])
    return tmp_path / "a", tmp_path / "b"


@pytest.mark.process
def test_what_was_taken_as_json(run, pair, tmp_path):
    done = run("merge", *pair, "-o", tmp_path / "b c", "--keep", "first")
    assert done.err.startswith(f"{pair[0]}: taken 2\n{pair[1]}: taken 1, dropped 1\n")
    done = run("merge", *pair, "-o", tmp_path / "c", "--keep", "first", "--json")
    found = json.loads(done.out)
    assert (done.err, found["path"], found["documents"]) == ("", str(tmp_path / "c"), 3)
    assert found["sources"][1] == {"path": str(pair[1]), "documents": 1, "dropped": 1}


def test_errors(run, pair, tmp_path):
    assert run("merge", *pair, "-o", tmp_path / "c", "--keep", "error").code == 2
    assert run("merge", *pair, "-o", pair[0]).code == 3
    assert run("merge", *pair).code == 2
    assert run("merge", "-o", tmp_path / "c").code == 2
    assert run("merge", *pair, "-o", tmp_path / "c", "--keep", "oldest").code == 2
    assert not (tmp_path / "c").exists()


@pytest.mark.process
def test_an_interrupted_merge_leaves_nothing(run, pair, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("heapq.merge", interrupt)
        assert run("merge", *pair, "-o", tmp_path / "c").code == 130
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    assert run("merge", *pair, "-o", tmp_path / "c").code == 0
