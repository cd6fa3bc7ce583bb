import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fpdb
from fpdb import Database, Grams, Recipe

TINY = """
from fpdb import Document, Grams, Recipe
TINY = Recipe("tiny", clean=(), segment="whitespace", grams=Grams(minimum=3))
"""


@pytest.fixture(scope="session")
def tiny() -> Recipe:
    """A recipe whose features are plain words; fewer than three are short."""
    return Recipe("tiny", clean=(), segment="whitespace", grams=Grams(minimum=3))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db"


@pytest.fixture
def db(path: Path, tiny: Recipe) -> Iterator[Database]:
    with fpdb.create(path, recipe=tiny) as database:
        yield database


@pytest.fixture
def numbered(tmp_path: Path, tiny: Recipe) -> Iterator[Database]:
    """A database with integer keys."""
    with fpdb.create(tmp_path / "numbered", recipe=tiny, keys="integer") as database:
        yield database


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a script in a process of its own, with its arguments as `argv`."""
    processes: list[subprocess.Popen[str]] = []

    def start_script(script: str, *argv: object) -> subprocess.Popen[str]:
        preamble = "import os, sys, time\nimport fpdb\nargv = sys.argv[1:]\n" + TINY
        process = subprocess.Popen(
            [sys.executable, "-c", preamble + textwrap.dedent(script), *map(str, argv)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(fpdb.__file__).parent.parent)},
        )
        processes.append(process)
        return process

    yield start_script
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def run(start: Callable[..., subprocess.Popen[str]]) -> Callable[..., str]:
    """Run a script to its end in a process of its own, and return what it printed."""

    def run_script(script: str, *argv: object) -> str:
        process = start(script, *argv)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, f"exit code {process.returncode}\n{out}\n{err}"
        return out

    return run_script
