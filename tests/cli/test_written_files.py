"""Files that commands write: whole, or the old ones as they were; and nothing stays of a kill."""

import json
import os
import signal
import time

import pytest

import fpdb
from fpdb.look.explorer import Explorer

TEXT = "Red kites nest above the old quarry again this spring: wardens counted eleven pairs"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with records, bad ones and a database, and a temporary directory."""
    (tmp_path / "work").mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    records = [{"key": f"{number}", "text": f"{TEXT} {number}"} for number in range(20)]
    with open("good.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    with open("mixed.jsonl", "w", encoding="utf-8") as file:
        file.write(json.dumps(records[0]) + "\nno json\n")
    with open("bad.jsonl", "w", encoding="utf-8") as file:
        file.write("no json\nnor this\n")
    open("empty.jsonl", "w", encoding="utf-8").close()
    with fpdb.create("a.fpdb") as database:
        database.add("key", TEXT)
    return tmp_path / "work"


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("report empty.jsonl", "out.html"),
        ("report bad.jsonl", "out.html"),
        ("report --bad fail mixed.jsonl", "out.html"),
        ("report absent.jsonl", "out.html"),
        ("report --db absent.fpdb good.jsonl", "out.html"),
        ("report --date-field day good.jsonl", "out.html"),
        ("query a.fpdb bad.jsonl", "out.jsonl"),
        ("query a.fpdb absent.jsonl", "out.parquet"),
        ("query a.fpdb -k 90 good.jsonl", "out.csv"),
        ("copies bad.jsonl", "out.csv"),
        ("copies absent.jsonl", "out.parquet"),
        ("pairs absent.fpdb", "out.csv"),
        ("clusters absent.fpdb", "out.csv"),
        ("export absent.fpdb", "out.jsonl"),
        ("export absent.fpdb", "out.parquet"),
    ],
)
def test_a_command_that_fails_leaves_the_old_file(run, folder, command, output, old):
    if old:
        (folder / output).write_text("old")
    before = sorted(os.listdir())
    done = run(*command.split(), "-o", output)
    assert done.code in (2, 3)
    assert sorted(os.listdir()) == before
    assert not old or (folder / output).read_text() == "old"
    assert os.listdir("../temporary") == []


def explore():
    """Explore a database with texts, until they are packed."""
    database = fpdb.open("a.fpdb", readonly=True)
    explorer = Explorer(database, texts=["good.jsonl"])
    for _ in range(1000):
        if explorer._work.texts.packed:
            return explorer
        time.sleep(0.01)
    raise AssertionError


ACTS = {
    "report": lambda: fpdb.report("good.jsonl", "out.html"),
    "explore": explore,
    "backup": lambda: fpdb.open("a.fpdb").backup("copy.fpdb"),
}


def killed(act, moment):
    """Fork a process that is killed in an act, at a call of a function."""
    child = os.fork()
    if child == 0:
        try:
            setattr(os, moment, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
            unclosed = act()
            os.kill(os.getpid(), signal.SIGKILL)
            del unclosed
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


@pytest.mark.process
@pytest.mark.parametrize(
    ("act", "moment"),
    [
        ("report", "fsync"),  # of the temporary database
        ("report", "replace"),  # of the page
        ("export", "fsync"),
        ("export", "replace"),
        ("explore", "replace"),
        ("backup", "fsync"),
    ],
)
def test_what_a_killed_act_left_is_removed_by_the_next(run, folder, act, moment):
    def export():
        assert run("export", "a.fpdb", "-o", "out.jsonl").code == 0

    acts = ACTS | {"export": export}
    before = sorted(os.listdir())
    killed(acts[act], moment)
    left = [name for name in (*os.listdir(), *os.listdir("../temporary")) if name not in before]
    assert left
    assert all(name.endswith((".fpdb-new", ".fpdb-tmp")) for name in left), left
    found = acts[act]()
    if act == "explore":
        assert len(os.listdir("../temporary")) == 2  # a folder and its claim
        found.close()
    made = {"report": ["out.html"], "export": ["out.jsonl"], "backup": ["copy.fpdb"], "explore": []}
    assert sorted(os.listdir()) == sorted([*before, *made[act]])
    assert os.listdir("../temporary") == []
