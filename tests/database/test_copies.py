"""Copies of a database that is written to; a torment compares all ways to copy one."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fpdb
from fpdb import DamagedError, Database, Document

pytestmark = pytest.mark.process

BATCH = 20
WRITER = """
def number_of(n):
    return n * 0x9E3779B97F4A7C15 % 2**64
with fpdb.open(argv[0]) as db:
    count = len(db)
    print("writing", flush=True)
    while True:
        new = range(count, count + 20)
        list(db.add_many([Document(f"k{n:07}", fingerprint=number_of(n)) for n in new]))
        count += 20
        # What is replaced frees pages, which a plain copy would catch half-way.
        old = range(0, count, 97)
        list(db.add_many([Document(f"k{n:07}", fingerprint=number_of(n), meta=count) for n in old]))
"""


@pytest.fixture
def busy(path: Path, start: Callable[..., Any]) -> Iterator[Path]:
    """A database to which another process writes all the time."""
    with fpdb.create(path) as db:
        db.add_fingerprints(
            [f"k{n:07}" for n in range(2000)], [n * 0x9E3779B97F4A7C15 % 2**64 for n in range(2000)]
        )
    process = start(WRITER, path)
    assert process.stdout.readline() == "writing\n"
    yield path
    assert process.poll() is None, process.stderr.read()
    process.kill()


def require_commit_point(copy: Path, least: int) -> int:
    """A copy is sound, and has all documents up to the end of some batch."""
    with fpdb.open(copy, readonly=True) as db:
        assert list(db.check()) == []
        keys = list(db)
    assert keys == [f"k{n:07}" for n in range(len(keys))]
    assert len(keys) >= least
    assert len(keys) % BATCH == 0
    return len(keys)


def test_a_backup_of_a_busy_database_is_one_of_its_states(busy: Path, tmp_path: Path) -> None:
    with fpdb.open(busy) as db:
        for turn in range(3):
            copy = tmp_path / f"copy {turn}"
            least = len(db)
            db.backup(copy)
            require_commit_point(copy, least)


def test_a_backup_is_private_and_a_database_of_its_own(db: Database, tmp_path: Path) -> None:
    db.add("key", "a short text")
    db.backup(tmp_path / "copy")
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o700
    files = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "copy").iterdir()}
    assert files == dict.fromkeys(("data.mdb", "fpdb.lock", "fpdb.seal"), 0o600)
    with fpdb.open(tmp_path / "copy") as copy:
        copy.add("other", "another short text")
        assert (list(copy), list(db)) == (["key", "other"], ["key"])
        assert copy.stats().uuid == db.stats().uuid


def test_a_backup_never_replaces_anything(db: Database, tmp_path: Path) -> None:
    with pytest.raises(fpdb.DatabaseExistsError):
        db.backup(db.path)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(fpdb.DatabaseExistsError):
        db.backup(tmp_path / "file")
    with pytest.raises(fpdb.DatabaseNotFoundError):
        db.backup(tmp_path / "nowhere" / "copy")


@pytest.mark.parametrize("name", ["documents", "table-00", "table-02"])
def test_damage_is_never_backed_up(path: Path, tmp_path: Path, name: str) -> None:
    with fpdb.create(path) as db:
        list(db.add_many(Document(f"k{n}", fingerprint=n << 40) for n in range(500)))
        with db._environment.write() as txn:
            with txn.cursor(name) as cursor:
                assert cursor.first()
                key, value = bytes(cursor.key()), bytearray(cursor.value())
            value[len(value) // 2] ^= 1
            txn.put(name, key, bytes(value))
        with pytest.raises(DamagedError):
            db.backup(tmp_path / "copy")
    assert os.listdir(tmp_path) == [path.name]


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fpdb", *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(fpdb.__file__).parent.parent)},
    )


def test_a_copy_under_a_hold_may_end_where_it_says(busy: Path, tmp_path: Path) -> None:
    """It has the newest state of when it begins, which may be beyond the end at the start."""
    copy = tmp_path / "copy"
    with fpdb.open(busy, readonly=True) as db:
        least = len(db)
    line = "echo $FPDB_BYTES; sleep 0.2; mkdir $2; head -c $FPDB_BYTES $1/data.mdb > $2/data.mdb"
    size = os.path.getsize(busy / "data.mdb")
    done = command("backup", busy, "--", "sh", "-c", line, "sh", busy, copy)
    assert done.returncode == 0
    assert size <= int(done.stdout) - (1 << 30) <= size + (1 << 24)
    assert re.fullmatch(
        f"{busy}: [0-9.]+ [kM]B larger; compact returns what isn't used\n", done.stderr
    )
    copy.chmod(0o700)
    require_commit_point(copy, least)
