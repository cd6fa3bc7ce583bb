"""Several processes on one database store nothing twice; torments show that nothing is lost."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fpdb import Database

pytestmark = pytest.mark.process

Start = Callable[..., subprocess.Popen[str]]


def say(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        assert process.stderr is not None
        raise AssertionError(process.stderr.read())
    return line.strip()


STEPPER = """
db, name = fpdb.open(argv[0]), argv[1]
print("ready", flush=True)
for line in sys.stdin:
    page = " ".join(f"word{(int(line) * 31 + n * n) % 9973}" for n in range(30))
    print(db.add(f"{name}-{int(line)}", page, skip_duplicates=True).status, flush=True)
"""


def test_two_crawlers_in_step_store_each_page_once(db: Database, path: Path, start: Start) -> None:
    steppers = [start(STEPPER, path, name) for name in "ab"]
    for process in steppers:
        assert hear(process) == "ready"
    for page in range(100):
        for process in steppers:
            say(process, str(page))
        assert sorted(map(hear, steppers)) == ["added", "duplicate"]
    assert len(db) == 100
    assert list(db.check()) == []
