"""A database that is built beside its place: complete after the block, or not there at all."""

import os
import shutil
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
    build(tmp_path / "db")  # leaves alone what somebody is at work on
    shutil.rmtree(tmp_path / "db")
    assert draft.exists()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert os.listdir(tmp_path) == [draft.name]
    build(tmp_path / "db")
    assert os.listdir(tmp_path) == ["db"]


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
    assert len(os.listdir(tmp_path)) == 2
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


def test_a_finished_database_is_no_draft(tmp_path: Path) -> None:
    build(tmp_path / ".db.finished.new")
    build(tmp_path / "db")
    assert sorted(os.listdir(tmp_path)) == [".db.finished.new", "db"]


def test_the_claim_lasts_until_the_data_are_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed: list[bool] = []
    fsync = os.fsync

    def spy(descriptor: int) -> None:
        file = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if file.name == "data.mdb":
            claimed.append((file.parents[1] / "unfinished").exists())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    build(tmp_path / "db")
    assert claimed == [True]


def test_a_child_that_is_forked_in_the_block_changes_nothing(
    tmp_path: Path, run: Callable[..., str]
) -> None:
    said = run(
        """
        import os
        for number, leave in enumerate((lambda: None, lambda: sys.exit(0))):
            try:
                with Environment.build(f"{argv[0]}-{number}", ("header",)) as built:
                    child = os.fork()
                    if child == 0:
                        leave()
                    else:
                        os.waitpid(child, 0)
                        with built.write() as txn:
                            txn.put("header", b"key", b"value")
            except Exception as error:
                print(type(error).__name__, flush=True)
                os._exit(0)
        """,
        tmp_path / "db",
    )
    assert said == "ClosedError\n"
    assert sorted(os.listdir(tmp_path)) == ["db-0", "db-1"]
    for name in ("db-0", "db-1"):
        with Environment.open(tmp_path / name) as environment, environment.read() as txn:
            assert bytes(txn.get("header", b"key") or b"") == b"value"
