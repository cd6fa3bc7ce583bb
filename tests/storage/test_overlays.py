"""A database in the lower layer of an overlay, as in the image of a container."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fpdb.errors import AccessError
from fpdb.storage import Environment

pytestmark = pytest.mark.process

Start = Callable[..., subprocess.Popen[str]]
Line = Callable[[subprocess.Popen[str]], str]

DOCUMENTS = 1000


def mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], check=False, capture_output=True, text=True)
    if os.geteuid() or done.returncode:
        pytest.skip(f"no overlay can be mounted here: {done.stderr}")


@pytest.fixture(params=["one disk", "two disks"])
def layered(request: pytest.FixtureRequest, closed: Path) -> Iterator[Path]:
    """A database that is in the lower layer only."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in ("lower", "upper", "work", "merged"):
            (root / name).mkdir()
        mounts = [root / "merged"]
        if request.param == "two disks":
            mount("-t", "tmpfs", "-o", "size=16m", "fpdb-test", str(root / "lower"))
            mounts.append(root / "lower")
        try:
            subprocess.run(["cp", "-a", closed, root / "lower" / "db"], check=True)
            layers = f"lowerdir={root}/lower,upperdir={root}/upper,workdir={root}/work"
            mount("-t", "overlay", "-o", layers, "fpdb-test", str(root / "merged"))
            yield root / "merged" / "db"
        finally:
            for point in mounts:
                subprocess.run(["umount", point], check=False, capture_output=True)


READER = """
env = Environment.open(argv[0], readonly=True)
while True:
    with env.read() as txn:
        print(txn.entries("documents"), flush=True)
    sys.stdin.readline()
"""


def write(path: Path, first: int, commits: int) -> None:
    with Environment.open(path) as env:
        for number in range(first, first + commits):
            with env.write() as txn:
                txn.put("documents", b"new" + bytes([number]), b"")


def test_a_reader_that_was_first_sees_what_is_written(
    layered: Path, start: Start, line: Line
) -> None:
    reader = start(READER, layered)
    assert reader.stdin
    assert int(line(reader)) == DOCUMENTS
    for first, commits in ((0, 1), (1, 3), (4, 1)):
        write(layered, first, commits)
        reader.stdin.write("\n")
        reader.stdin.flush()
        assert int(line(reader)) == DOCUMENTS + first + commits


def test_another_users_is_refused(layered: Path) -> None:
    for file in (layered.parents[1] / "lower" / "db").iterdir():
        os.chown(file, 65534, 65534)
    with pytest.raises(AccessError, match="belongs to user 65534"):
        Environment.open(layered, readonly=True)
    assert not list((layered.parents[1] / "upper").rglob("*.mdb"))
