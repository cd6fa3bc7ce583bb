"""Run scripts in processes of their own: a plugin, for tests of what several processes do."""

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fpdb

Start = Callable[..., subprocess.Popen[str]]
_PREAMBLE = """
import os, sys, time
import fpdb
from fpdb import Document, Grams, Recipe
from fpdb.storage import Environment
argv = sys.argv[1:]
TINY = Recipe("tiny", clean=(), segment="whitespace", grams=Grams(minimum=3))
"""


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a script in a process of its own, with its arguments as `argv`."""
    processes: list[subprocess.Popen[str]] = []

    def start_script(script: str, *argv: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", _PREAMBLE + textwrap.dedent(script), *map(str, argv)],
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
def run(start: Start) -> Callable[..., str]:
    """Run a script to its end in a process of its own, and return what it printed."""

    def run_script(script: str, *argv: object) -> str:
        process = start(script, *argv)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, f"exit code {process.returncode}\n{out}\n{err}"
        return out

    return run_script


@pytest.fixture
def line() -> Callable[[subprocess.Popen[str]], str]:
    """Read one line that a started script prints."""

    def read_line(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        text = process.stdout.readline().strip()
        if not text:
            time.sleep(0.1)
            assert process.stderr is not None
            raise AssertionError(process.stderr.read())
        return text

    return read_line
