"""Databases in processes that have little address space for a map."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fpdb.storage import Environment

pytestmark = pytest.mark.process

Run = Callable[..., str]
MEGABYTE = 1 << 20

LIMITED = """
import resource
from fpdb.errors import FpdbError
def leave(megabytes):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (megabytes << 20), resource.RLIM_INFINITY))
def attempt(act):
    try:
        return act()
    except FpdbError as error:
        return f"{type(error).__name__}: {error.hint}"
def count(env):
    with env.read() as txn:
        return txn.entries("documents")
def add(env):
    with env.write() as txn:
        txn.put("documents", b"new", b"1")
    return count(env)
"""


def fill(path: Path, megabytes: int) -> None:
    with Environment.open(path) as env, env.write() as txn:
        for number in range(megabytes * MEGABYTE // 4096):
            txn.put("documents", b"fill" + number.to_bytes(8), bytes(4000))


def test_a_map_need_not_be_much_larger_than_its_file(run: Run, closed: Path) -> None:
    fill(closed, 64)
    script = """
    size = os.path.getsize(argv[0] + "/data.mdb") >> 20
    for room in (size // 2, size + 4, 2 * size):
        leave(room)
        for act, readonly in ((count, True), (add, False)):
            def both():
                with Environment.open(argv[0], readonly=readonly) as env:
                    return act(env)
            print(attempt(both))
    """
    refused = "OpenError: raise its limit on address space (ulimit -v)"
    documents = 1000 + 64 * MEGABYTE // 4096
    expected = [refused, refused, documents, refused, documents, documents + 1]
    assert run("import os\n" + LIMITED + _dedented(script), closed).splitlines() == list(
        map(str, expected)
    )


def test_a_file_that_outgrows_all_room(run: Run, closed: Path) -> None:
    """The handle is no longer usable then, but becomes so with more room."""
    script = """
    leave(24)
    env = Environment.open(argv[0], readonly=True)
    print(attempt(lambda: count(env)))
    subprocess.run([sys.executable, "-c", argv[1], *sys.argv[1:]], check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (-1, -1)))
    for room in (0, 0, 128):
        leave(room or 16)
        print(attempt(lambda: count(env)))
    """
    grow = """
import sys
from pathlib import Path
from fpdb.storage import Environment
with Environment.open(sys.argv[1]) as env, env.write() as txn:
    for number in range(64 * 256):
        txn.put("documents", b"fill" + number.to_bytes(8), bytes(4000))
"""
    refused = "OpenError: raise its limit on address space (ulimit -v)"
    out = run("import subprocess\n" + LIMITED + _dedented(script), closed, grow)
    assert out.splitlines() == ["1000", refused, refused, str(1000 + 64 * 256)]


def _dedented(script: str) -> str:
    return "".join(line[4:] for line in script.splitlines(keepends=True))
