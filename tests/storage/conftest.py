import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fpdb.storage import Environment

NAMES = ("header", "documents")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db"


@pytest.fixture
def env(path: Path) -> Iterator[Environment]:
    with Environment.create(path, NAMES) as environment:
        yield environment


@pytest.fixture
def closed(path: Path) -> Path:
    """The path of a database that nobody has open."""
    with Environment.create(path, NAMES) as environment, environment.write() as txn:
        for number in range(1000):
            txn.put("documents", number.to_bytes(8), bytes(100))
    return path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that is soon full."""
    path = tmp_path / "small"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "fpdb-test", str(path)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a small tmpfs can't be mounted here")
    yield path
    subprocess.run(["umount", str(path)], check=True)


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a script in a process of its own, with its arguments as `argv`."""
    processes: list[subprocess.Popen[str]] = []

    def start_script(
        script: str, *argv: object, stdin: int = subprocess.DEVNULL
    ) -> subprocess.Popen[str]:
        preamble = "import sys\nargv = sys.argv[1:]\nfrom fpdb.storage import Environment\n"
        process = subprocess.Popen(
            [sys.executable, "-c", preamble + textwrap.dedent(script), *map(str, argv)],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
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
