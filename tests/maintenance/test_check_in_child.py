"""`fpdb.check` reads in a child process: whatever the file holds, this process survives."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fpdb
from fpdb import Grams, Recipe, processes
from fpdb.errors import AccessError, WorkerError

pytestmark = pytest.mark.process

TINY = Recipe("tiny", clean=(), segment="whitespace", grams=Grams(minimum=3))
PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database that nobody has open."""
    where = tmp_path / "db"
    with fpdb.create(where, recipe=TINY) as db:
        db.add_fingerprints([f"{n:04d}" for n in range(3000)], [n << 40 | n for n in range(3000)])
        db.add("a", "one two three four")
    return where


def child_that(body: str) -> str:
    """Return the code of a child process in which a function body yields the problems."""
    return (
        "import sys; sys.path[:] = sys.argv[2:]\n"
        "import fpdb.maintenance.check as check, os, resource, signal, time\n"
        "from fpdb.errors import AccessError\n"
        "from fpdb.models import Problem\n"
        "from fpdb.processes import serve\n"
        f"def problems(*_, **__):\n {body}\n yield\n"
        "check.check_view = problems\n"
        "serve(int(sys.argv[1]))\n"
    )


def test_an_error_of_opening_comes_as_it_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_CODE", child_that("raise AccessError('no', hint='go')"))
    with pytest.raises(AccessError, match="no") as caught:
        list(fpdb.check(path))
    assert caught.value.hint == "go"


@pytest.mark.parametrize("limited", [False, True])
def test_memory_that_runs_short_is_damage_only_if_there_was_enough(
    path: Path, monkeypatch: pytest.MonkeyPatch, *, limited: bool
) -> None:
    limit = "resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30)); " if limited else ""
    monkeypatch.setattr(processes, "_CODE", child_that(f"{limit}raise MemoryError"))
    if limited:
        with pytest.raises(WorkerError, match=r"memory ran short.* 2,147,483,648 bytes"):
            list(fpdb.check(path))
    else:
        [problem] = fpdb.check(path)
        assert problem.what.startswith("reading it takes far more memory")


def test_a_file_that_cannot_be_opened_is_a_problem(path: Path) -> None:
    os.truncate(path / "data.mdb", 5 * PAGE)
    [problem] = fpdb.check(path)
    assert problem.where == "data.mdb"
    assert "is cut short" in problem.what


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGXCPU"])
def test_a_signal_is_a_problem(path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    code = child_that(f"yield Problem('keys', 'first'); os.kill(os.getpid(), signal.{name})")
    monkeypatch.setattr(processes, "_CODE", code)
    first, last = fpdb.check(path)
    assert first == ("keys", "first")
    assert name in last.what


def test_a_check_that_somebody_kills_is_an_error(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It isn't complete, and that isn't the database's fault."""
    code = child_that("yield Problem('keys', 'first'); os.kill(os.getpid(), signal.SIGKILL)")
    monkeypatch.setattr(processes, "_CODE", code)
    problems = fpdb.check(path)
    assert next(problems) == ("keys", "first")
    with pytest.raises(WorkerError, match="SIGKILL") as caught:
        next(problems)
    assert caught.value.hint


def test_too_much_memory_is_a_problem(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = child_that("bytearray(1 << 29)").replace(
        "check.check_view", "check._MEMORY = 1 << 28; check.check_view"
    )
    monkeypatch.setattr(processes, "_CODE", code)
    [problem] = fpdb.check(path)
    assert "memory" in problem.what


SLOW = child_that("yield Problem('a', 'b'); time.sleep(60)")


INTERRUPTED = f"""
import signal, sys, fpdb, fpdb.processes
fpdb.processes._CODE = {SLOW!r}
try:
    for problem in fpdb.check(sys.argv[1]):
        print("first", flush=True)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_ends_both(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(path)], stdout=subprocess.PIPE, text=True
    ) as caller:
        assert caller.stdout
        assert caller.stdout.readline() == "first\n"
        caller.send_signal(signal.SIGINT)
        started = time.monotonic()
        assert caller.stdout.read() == "interrupted\n"
        assert time.monotonic() - started < 30


WRITE = """
import itertools, sys, fpdb
with fpdb.open(sys.argv[1]) as db:
    print("open", flush=True)
    for number in itertools.count():
        db.add(str(number % 500), f"one two three four {number}")
"""


def test_a_database_that_others_write_to(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITE, str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        try:
            assert writer.stdout
            assert writer.stdout.readline() == "open\n"
            assert list(fpdb.check(path, deep=True)) == []
        finally:
            writer.kill()
