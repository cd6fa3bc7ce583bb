"""A disk that fails while a database is made: an error of fpdb's, and nothing is left behind."""

import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fpdb
from fpdb.storage import Environment


@pytest.fixture(params=["mkdir", "rename", "fsync", "open"])
def failing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make one of the system's calls fail with an error of a number."""

    def fail(number: int) -> None:
        def refuse(*_: Any, **__: Any) -> None:
            raise OSError(number, os.strerror(number))

        genuine = os.open

        def refuse_drafts(path: Any, flags: int, *more: Any, **options: Any) -> int:
            if flags & os.O_CREAT and ".fpdb-tmp" in str(path):
                refuse()
            return genuine(path, flags, *more, **options)

        monkeypatch.setattr(os, request.param, refuse_drafts if request.param == "open" else refuse)

    return fail


def make(act: str, db: fpdb.Database, made: Path) -> None:
    if act == "create":
        fpdb.create(made)
    elif act == "build":
        with fpdb.Database.build(made):
            pass
    else:
        getattr(db, act)(made)


@pytest.mark.process
@pytest.mark.parametrize("act", ["create", "build", "backup", "compact"])
@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, fpdb.DiskFullError),
        (errno.EIO, fpdb.DamagedError),
    ],
)
def test_a_failing_call(
    act: str,
    number: int,
    expected: type[Exception],
    failing: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = tmp_path / "made"
    with fpdb.create(tmp_path / "db") as db:
        db.add("key", text := "red kites nest above the quarry again this year")
        failing(number)
        with pytest.raises(expected) as caught:
            make(act, db, made)
        assert getattr(caught.value, "hint", "")
        monkeypatch.undo()
        assert os.listdir(tmp_path) == ["db"]
        db.add("other", text)
    with fpdb.create(made) as other:
        assert len(other) == 0


def test_a_lock_file_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fpdb.create(tmp_path / "db").close()
    genuine = os.open

    def refuse(path: Any, *more: Any, **options: Any) -> int:
        if str(path).endswith("fpdb.lock"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return genuine(path, *more, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(fpdb.DiskFullError):
        fpdb.open(tmp_path / "db")


@pytest.mark.process
def test_a_disk_that_is_mounted_to_read(small_disk: Path) -> None:
    Environment.create(small_disk / "db", ["header"]).close()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    for act in (Environment.open, lambda path: Environment.create(path.with_name("new"), [])):
        with pytest.raises(fpdb.AccessError, match="is on a read-only file system") as caught:
            act(small_disk / "db")
        assert "to read only" in caught.value.hint
    with Environment.open(small_disk / "db", readonly=True) as env, env.read() as txn:
        assert txn.entries("header") == 0
