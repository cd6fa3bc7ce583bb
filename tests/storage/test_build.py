"""A database that is built beside its place: whole behind the block, or not there at all."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fpdb.errors import ClosedError, DatabaseExistsError
from fpdb.storage import Environment

NAMES = ("header", "documents")


def build(path: Path) -> None:
    with Environment.build(path, NAMES, {"header": {b"a": b"1"}}) as built:
        with built.write() as txn:
            txn.put("documents", b"key", b"value")
        assert not path.exists()
        assert built.path.parent == path.parent


def test_it_appears_whole_behind_the_block(tmp_path: Path) -> None:
    path = tmp_path / "db"
    build(path)
    assert os.listdir(tmp_path) == ["db"]
    assert path.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o600}
    with Environment.open(path, NAMES) as environment:
        with environment.read() as txn:
            assert bytes(txn.get("header", b"a") or b"") == b"1"
            assert bytes(txn.get("documents", b"key") or b"") == b"value"
        with environment.write() as txn:
            txn.put("documents", b"more", b"")


def test_its_handle_ends_with_the_block(tmp_path: Path) -> None:
    with Environment.build(tmp_path / "db", NAMES) as built:
        pass
    with pytest.raises(ClosedError):
        built.read()


def test_a_block_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with Environment.build(tmp_path / "db", NAMES) as built:
            with built.write() as txn:
                txn.put("documents", b"key", b"value")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_built_over_a_database(tmp_path: Path) -> None:
    build(tmp_path / "db")
    with pytest.raises(DatabaseExistsError), Environment.build(tmp_path / "db", NAMES):
        raise AssertionError


def test_who_is_slower_is_told(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with pytest.raises(DatabaseExistsError), Environment.build(path, NAMES):
        build_quickly(path)
    with Environment.open(path, NAMES) as environment, environment.read() as txn:
        assert bytes(txn.get("header", b"who") or b"") == b"quick"
    assert os.listdir(tmp_path) == ["db"]


def build_quickly(path: Path) -> None:
    with Environment.build(path, NAMES, {"header": {b"who": b"quick"}}):
        pass


def test_everything_is_synced_before_it_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def spy_fsync(descriptor: int) -> None:
        done.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    def spy_rename(self: Path, target: Any) -> Path:
        done.append("rename")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(Path, "rename", spy_rename)
    build(tmp_path / "db")
    data, draft, *rest = done
    assert data == "data.mdb"
    assert draft.startswith(".db.")
    assert rest == ["rename", tmp_path.name]


def test_the_draft_of_a_killed_build_is_removed_by_the_next(
    tmp_path: Path, start: Callable[..., Any], line: Callable[..., str]
) -> None:
    process = start(
        """
        with Environment.build(argv[0], ("header",)) as built:
            with built.write() as txn:
                txn.put("header", b"key", bytes(100_000))
            print("written", flush=True)
            import time; time.sleep(60)
        """,
        tmp_path / "db",
    )
    assert line(process) == "written"
    [draft] = tmp_path.glob(".db.*.new")
    os.utime(draft, (0, 0))
    build(tmp_path / "db")  # leaves alone what somebody is at work on
    shutil.rmtree(tmp_path / "db")
    assert draft.exists()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert os.listdir(tmp_path) == [draft.name]
    build(tmp_path / "db")
    assert os.listdir(tmp_path) == ["db"]


def test_a_draft_of_this_minute_stays(tmp_path: Path) -> None:
    (tmp_path / ".db.young.new").mkdir()
    (tmp_path / ".db2.old.new").mkdir()
    os.utime(tmp_path / ".db2.old.new", (0, 0))
    build(tmp_path / "db")
    assert sorted(os.listdir(tmp_path)) == [".db.young.new", ".db2.old.new", "db"]
