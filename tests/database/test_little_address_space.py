"""A database under limits of address space: each call works, or raises an error of fpdb."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fpdb

MEGABYTE = 1 << 20
DOCUMENTS = 20_000

SCRIPT = """
import resource, sys
import fpdb
limit = int(sys.argv[2]) << 20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

def query(db):
    return len(db.query_fingerprint(5))

def add(db):
    list(db.add_many(fpdb.Document(f"new {n}", fingerprint=n) for n in range(3000)))

def attempt(name, act):
    try:
        act()
        print(name, "works")
    except fpdb.FpdbError as error:
        assert error.hint
        print(name, "raises", type(error).__name__)

def opened(act, readonly):
    with fpdb.open(sys.argv[1], readonly=readonly) as db:
        act(db)

attempt("query", lambda: opened(query, True))
attempt("add", lambda: opened(add, False))
attempt("check", lambda: list(fpdb.check(sys.argv[1])))
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("little") / "db"
    with fpdb.create(path, recipe="char-4") as db:
        db.add_fingerprints([f"{n}" for n in range(DOCUMENTS)], range(DOCUMENTS))
    return path


def acts(path: Path, megabytes: int) -> dict[str, str]:
    """What each act does under a limit."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path), str(megabytes)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(fpdb.__file__).parent.parent)},
    )
    assert done.returncode == 0, f"{megabytes} MiB: {done.stderr}"
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


@pytest.mark.full
@pytest.mark.process
def test_every_limit_from_400_megabytes(path: Path) -> None:
    found = {megabytes: acts(path, megabytes) for megabytes in (400, 500, 700, 1000, 1500, 2048)}
    assert all(set(each) == {"query", "add", "check"} for each in found.values())
    # Python with numpy takes 200 of them.
    assert all(each["query"] == each["add"] == "works" for each in found.values()), found
