"""Paths of any bytes work, or are refused by an error of fpdb; and so is a disk without inodes."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fpdb
from fpdb import Database
from fpdb.errors import DiskFullError, FpdbError, OpenError
from fpdb.storage.open_checks import disk_named

TEXT = "one two three four five six seven eight nine ten"
NAMES = {
    "no UTF-8": os.fsdecode(b"caf\xe9"),
    "a line feed": "two\nlines",
    "an escape": "\x1b[2J",
    "a dash": "-",
    "253 bytes": "\u00e9" * 126 + "x",
    "a trailing slash": "x/",
}
BAD = {
    "half a surrogate pair": "x\ud800",
    "a NUL": "x\0y",
    "empty": "",
    "256 bytes": "x" * 256,
    "long": "/".join(["x" * 200] * 30),
    "a link to itself": "loop",
}


@pytest.fixture
def made(tmp_path: Path) -> Any:
    os.symlink("loop", tmp_path / "loop")
    (tmp_path / "a.jsonl").write_text('{"key": "a", "fingerprint": "00"}\n')
    with fpdb.create(tmp_path / "made") as database:
        database.add("a", TEXT)
        yield database


@pytest.mark.process
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_database_may_have_any_name(made: Database, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = f"{folder}/{name}"
    with fpdb.create(path) as db:
        db.add("a", TEXT)
        db.backup(f"{path.rstrip('/')}.2")
    assert list(fpdb.check(path)) == []
    with fpdb.open(os.fsencode(f"{path.rstrip('/')}.2"), readonly=True) as db:  # type: ignore[arg-type]
        assert len(db) == 1
    file = folder / f"{name.rstrip('/')[:100]}.txt"
    file.write_text(TEXT)
    assert fpdb.ingest(made, str(file)).bad == (not _encodes(name))


def _encodes(name: str) -> bool:
    return name.isascii() or name == NAMES["253 bytes"]


USES: dict[str, Callable[[Database, str], object]] = {
    "create": lambda _, path: fpdb.create(path),
    "open": lambda _, path: fpdb.open(path),
    "check": lambda _, path: list(fpdb.check(path)),
    "backup": lambda db, path: db.backup(path),
    "compact": lambda db, path: db.compact(path),
    "copy from": lambda db, path: fpdb.load(db.path.with_name("m"), [db.path, path]),
    "copy": lambda db, path: fpdb.load(path, db.path),
    "repair": lambda db, path: fpdb.repair(db.path, path),
    "repair from": lambda db, path: fpdb.repair(path, db.path.with_name("r")),
    "ingest": fpdb.ingest,
    "load": lambda db, path: fpdb.load(path, str(db.path.with_name("a.jsonl"))),
    "load from": lambda db, path: fpdb.load(db.path.with_name("l"), path),
    "load from Parquet": lambda db, path: fpdb.load(db.path.with_name("l"), f"{path}.parquet"),
    "recipe": lambda _, path: fpdb.read_recipe(path),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_path_that_cannot_be_is_refused(
    made: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    use: Callable[[Database, str], object],
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    before = sorted(os.listdir(tmp_path))
    for kind, name in BAD.items():
        with pytest.raises(FpdbError) as caught:
            use(made, f"{tmp_path}/{name}" if name else name)
        assert caught.value.hint, kind
        assert sorted(os.listdir(tmp_path)) == before
        assert not os.listdir(tmp_path / "work")


def test_a_working_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    (tmp_path / "work").rmdir()
    with pytest.raises(OpenError):
        fpdb.create("x")


def test_free_bytes_are_not_named_where_inodes_are_lacking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimpleNamespace(f_bavail=1000, f_frsize=4096, f_files=50, f_favail=0)
    monkeypatch.setattr(os, "statvfs", lambda _: disk)
    with pytest.raises(DiskFullError, match="no inode is left") as full, disk_named(tmp_path):
        raise OSError(errno.ENOSPC, "")
    assert "4,096,000" not in str(full.value)
    disk.f_files = 0  # some file systems don't count inodes
    with pytest.raises(DiskFullError, match="4,096,000 bytes are free"), disk_named(tmp_path):
        raise OSError(errno.ENOSPC, "")
