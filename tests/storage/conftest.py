import os
import subprocess
from collections.abc import Iterator
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
