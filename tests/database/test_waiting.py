"""Who waits while another process writes, and for how long: only those who write."""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fpdb
from fpdb import LockTimeoutError, StorageError
from fpdb.storage import lock

pytestmark = pytest.mark.process

TEXT = "red kites nest above the quarry again this year"
WRITER = """
import signal
db = fpdb.open(argv[0])
with db._environment.write():
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.fixture
def filled(path: Path, tiny: fpdb.Recipe) -> Path:
    with fpdb.create(path, recipe=tiny) as db:
        db.add("a", TEXT)
    return path


@pytest.fixture
def stopped(filled: Path, start: Callable[..., subprocess.Popen[str]]) -> Iterator[int]:
    """A process that is stopped inside a write transaction."""
    process = start(WRITER, filled)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    yield process.pid
    process.kill()


def test_opening_and_reading_dont_wait(filled: Path, stopped: int) -> None:
    began = time.monotonic()
    with fpdb.open(filled, timeout=0.1) as db:
        assert [match.key for match in db.query(TEXT)] == ["a"]
        assert len(db) == 1
        assert db.stats().documents == 1
        holder = rf"process {stopped} \(stopped\) holds it"
        with pytest.raises(LockTimeoutError, match=holder) as caught:
            db.add("b", TEXT)
        assert caught.value.pid == stopped
        assert f"`kill -CONT {stopped}` lets it go on" in caught.value.hint
        assert time.monotonic() - began < 20  # a writer waits 30 s, if nothing else is said
        os.kill(stopped, signal.SIGKILL)
        os.waitid(os.P_PID, stopped, os.WEXITED | os.WNOWAIT)
        assert db.add("b", TEXT).status == "added"
        with db.snapshot() as snapshot:
            db.delete("b")
            assert "b" in snapshot


def test_a_forked_child_reads_at_once(
    filled: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    with fpdb.open(filled) as db:
        db.delete("nothing")
        writer = start(WRITER, filled)
        os.waitid(os.P_PID, writer.pid, os.WSTOPPED | os.WNOWAIT)
        child = os.fork()
        if child == 0:
            began, code = time.monotonic(), 1
            try:
                code = int(len(db.query(TEXT)) != 1 or time.monotonic() - began > 20)
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_write_within_a_snapshot_that_began_beside_a_writer(filled: Path, stopped: int) -> None:
    with fpdb.open(filled) as db:
        with db.snapshot():
            os.kill(stopped, signal.SIGKILL)
            os.waitid(os.P_PID, stopped, os.WEXITED | os.WNOWAIT)
            with pytest.raises(StorageError, match="must be opened anew, for writing"):
                db.add("b", TEXT)
        assert db.add("b", TEXT).status == "added"


@pytest.mark.parametrize("terminal", [False, True])
def test_a_waiting_command_prints_for_whom(filled: Path, stopped: int, terminal: bool) -> None:
    code = "from fpdb.storage import lock; lock.ANNOUNCED_SECONDS = 0.5; "
    code += "from fpdb.cli import main; main()"
    own, other = pty.openpty() if terminal else os.pipe()
    command = [sys.executable, "-c", code, "delete", filled, "a"]
    with subprocess.Popen(command, stderr=other, start_new_session=True) as process:
        os.close(other)
        said = b""
        while b"\n" not in said:
            said += os.read(own, 1000)
        os.kill(stopped, signal.SIGKILL)
        assert process.wait(60) == 0
    os.close(own)
    # On a slow machine, progress is shown on a terminal before it.
    line = said.decode().strip().rpartition("\r")[2]
    assert line.startswith(f"waiting at most 30 s for process {stopped} (stopped), which writes to")
    assert f"`kill -CONT {stopped}` lets it go on" in line
    assert lock.ANNOUNCED_SECONDS == 2
