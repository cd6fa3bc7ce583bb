"""What commands do with another user's database: nothing in it changes."""

import os

import pytest

import fpdb

NOBODY = 65534
INSPECTIONS = (("check",), ("check", "--deep"), ("stats",))

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user"),
]


@pytest.fixture
def suspect(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "suspect.fpdb"
    with fpdb.create(path, recipe="char-4") as db:
        db.add_fingerprints([f"u{n}" for n in range(400)], range(400))
    (path / "fpdb.seal").unlink()
    (path / "lock.mdb").unlink()
    return path


def give(path):
    for file in (path, *path.iterdir()):
        os.chown(file, NOBODY, NOBODY, follow_symlinks=False)


def state(path):
    return {file.name: (file.read_bytes(), file.stat().st_uid) for file in path.iterdir()}


@pytest.mark.parametrize("command", INSPECTIONS, ids=" ".join)
def test_an_inspection_is_refused_and_leaves_no_trace(run, suspect, command):
    give(suspect)
    before = state(suspect)
    done = run(command[0], suspect, *command[1:])
    assert (done.code, done.out) == (3, "")
    assert f"belongs to user {NOBODY}" in done.err
    assert state(suspect) == before


def test_a_repair_only_reads(run, suspect):
    give(suspect)
    before = state(suspect)
    done = run("repair", suspect, "--output", "new")
    assert done.code == 0, done.err
    assert state(suspect) == before
