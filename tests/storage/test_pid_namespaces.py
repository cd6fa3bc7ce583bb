"""Two containers that share a directory, and not their process ids."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fpdb.storage import Environment

pytestmark = pytest.mark.process

PRELUDE = """
import os, sys
from fpdb.errors import FpdbError
from fpdb.storage import Environment
say = lambda *words: print(*words, flush=True)
"""

READER = (
    PRELUDE
    + """
with Environment.open(sys.argv[1]) as env, env.read() as txn:
    say("pinned", os.getpid())
    sys.stdin.readline()
    say(all(txn.get("documents", bytes([number])) == b"old" * 500 for number in range(100)))
"""
)

WRITER = (
    PRELUDE
    + """
try:
    env = Environment.open(sys.argv[1])
except FpdbError as error:
    say(type(error).__name__, error, "|", error.hint)
    sys.exit()
env._shared.environment.reader_check()
for turn in range(50):
    with env.write() as txn:
        for number in range(100):
            txn.put("documents", bytes([number]), b"new" * 500)
say("written", os.getpid())
"""
)


@pytest.fixture
def contained() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start Python with process ids of its own, as a container does, behind `before`."""
    unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], check=False).returncode:
        pytest.skip("process ids of one's own need unshare and its privileges")
    started = []

    def start(code: str, path: Path, before: str = "") -> subprocess.Popen[str]:
        # The shell stays process 1 of the new ids if it has something to do after Python.
        command = f'{before} "$@"; exit $?' if before else 'exec "$@"'
        process = subprocess.Popen(
            [*unshare, "sh", "-c", command, "sh", sys.executable, "-c", code, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def filled(closed: Path) -> Path:
    with Environment.open(closed) as env, env.write() as txn:
        for number in range(100):
            txn.put("documents", bytes([number]), b"old" * 500)
    return closed


def test_the_same_id_twice_is_refused_with_a_cure(
    filled: Path, contained: Callable[..., subprocess.Popen[str]]
) -> None:
    reader = contained(READER, filled)
    assert reader.stdout is not None
    assert reader.stdout.readline() == "pinned 1\n"
    out, _ = contained(WRITER, filled).communicate(timeout=60)
    assert "OpenError" in out
    assert "another container with the same process id (1)" in out
    assert "share one PID namespace" in out
    assert reader.communicate("go on\n", timeout=60)[0] == "True\n"


def test_different_ids_respect_each_others_snapshots(
    filled: Path, contained: Callable[..., subprocess.Popen[str]]
) -> None:
    reader = contained(READER, filled)
    assert reader.stdout is not None
    assert reader.stdout.readline() == "pinned 1\n"
    writer = contained(WRITER, filled, before="true & wait;")
    out, _ = writer.communicate(timeout=60)
    name, pid = out.split()
    assert (name, pid == "1") == ("written", False)
    assert reader.communicate("go on\n", timeout=60)[0] == "True\n"
