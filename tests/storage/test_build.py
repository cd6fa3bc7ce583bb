"""A database that is built beside its place: complete after the block, or not there at all."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fpdb.errors import DatabaseExistsError, StorageError
from fpdb.storage import Environment

NAMES = ("header", "documents")


def build(path: Path) -> None:
    with Environment.build(path, NAMES, {"header": {b"a": b"1"}}) as built:
        with built.write() as txn:
            txn.put("documents", b"key", b"value")
        assert not path.exists()
        assert built.path.parent.parent == path.parent


def test_it_appears_whole_behind_the_block(tmp_path: Path) -> None:
    path = tmp_path / "db"
    build(path)
    assert os.listdir(tmp_path) == ["db"]
    assert path.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o600}
    with Environment.open(path) as environment:
        with environment.read() as txn:
            assert bytes(txn.get("header", b"a") or b"") == b"1"
            assert bytes(txn.get("documents", b"key") or b"") == b"value"
        with environment.write() as txn:
            txn.put("documents", b"more", b"")


def test_a_block_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with Environment.build(tmp_path / "db", NAMES) as built:
            with built.write() as txn:
                txn.put("documents", b"key", b"value")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_who_is_slower_is_told(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with pytest.raises(DatabaseExistsError), Environment.build(path, NAMES):
        build_quickly(path)
    with Environment.open(path) as environment, environment.read() as txn:
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
    assert draft == "db"
    assert rest == ["rename", tmp_path.name]


def test_what_a_maker_that_was_killed_at_its_end_left_is_removed_by_the_next(
    tmp_path: Path, start: Callable[..., Any]
) -> None:
    process = start(
        """
        import os, signal, fpdb.scratch
        fpdb.scratch._remove = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        with Environment.build(argv[0], ("header",)):
            pass
        """,
        tmp_path / "db",
    )
    assert process.wait(60) == -signal.SIGKILL
    assert len(os.listdir(tmp_path)) == 3  # a scratch folder and its claim, too
    with pytest.raises(DatabaseExistsError), Environment.build(tmp_path / "db", NAMES):
        raise AssertionError
    assert os.listdir(tmp_path) == ["db"]


def test_a_transaction_that_outlives_the_block_keeps_the_database_from_appearing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "db"
    held: list[Any] = []

    def build_and_read() -> None:
        with Environment.build(path, NAMES) as built:
            held.append(built.read())
            held[0].__enter__()

    with pytest.raises(StorageError, match="a transaction is still open") as caught:
        build_and_read()
    assert caught.value.hint
    assert os.listdir(tmp_path) == []
    build(path)
    held[0].__exit__(None, None, None)
    with Environment.open(path) as environment:
        assert environment.path == path
