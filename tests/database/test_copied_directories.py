"""A data file that was copied is verified before anything in it is served, and only once."""

import fcntl
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fpdb
from fpdb import DamagedError, Database, Document, NotADatabaseError
from fpdb.storage import seal
from fpdb.storage.open_checks import LOCK_FILE
from fpdb.storage.seal import SEAL_FILE

pytestmark = pytest.mark.process


@pytest.fixture
def closed(path: Path, db: Database) -> Path:
    list(
        db.add_many(
            Document(f"key {n}", f"words {n} of a text which {n * 7} is enough") for n in range(500)
        )
    )
    db.close()
    return path


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The directories that are verified, in this order."""
    seen: list[Path] = []
    whole = fpdb.check  # before it is replaced where the name is looked up

    def check(path: Path, *, deep: bool) -> Iterator[fpdb.models.Problem]:
        assert deep
        seen.append(path)
        return whole(path, deep=deep)

    monkeypatch.setattr("fpdb.maintenance.check.check", check)
    return seen


def torn_copy(path: Path, copy: Path) -> Path:
    """Copy a database while somebody writes: the head of its file later than the tail."""
    with fpdb.open(path) as db:
        for turn in range(5):
            changes = (Document(f"key {n}", f"other {turn} words {n} here") for n in range(400))
            list(db.add_many(changes))
            if turn == 3:
                early = (path / "data.mdb").read_bytes()
    late = bytearray((path / "data.mdb").read_bytes())
    shutil.copytree(path, copy)
    pages = range(2 * 4096, len(early), 4096)
    changed = [at for at in pages if early[at : at + 4096] != late[at : at + 4096]]
    for at in changed[len(changed) // 2 :]:
        late[at : at + 4096] = early[at : at + 4096]
    (copy / "data.mdb").write_bytes(late)
    return copy


@pytest.mark.parametrize("readonly", [False, True])
def test_a_copy_is_verified_once(
    closed: Path, tmp_path: Path, verified: list[Path], readonly: bool
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(closed, copy)
    for _ in range(3):
        with fpdb.open(copy, readonly=readonly) as db:
            assert len(db) == 500
    assert verified == [copy]


def test_what_fpdb_made_is_not_verified(
    closed: Path, tmp_path: Path, verified: list[Path], tiny: fpdb.Recipe
) -> None:
    with fpdb.open(closed) as db:
        db.backup(tmp_path / "backup")
        db.compact(tmp_path / "compact")
    with fpdb.build(tmp_path / "built", recipe=tiny) as db:
        db.add("a", "some words that are more than three")
    closed.rename(tmp_path / "moved")
    for name in ("backup", "compact", "built", "moved"):
        with fpdb.open(tmp_path / name) as db:
            # What a writer adds to the file leaves it the file that it is.
            list(
                db.add_many(
                    Document(f"new {n}", f"new words {n} of a text which {n}") for n in range(2000)
                )
            )
        fpdb.open(tmp_path / name).close()
    assert verified == []


def test_a_data_file_alone_is_verified(closed: Path, tmp_path: Path, verified: list[Path]) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(closed / "data.mdb", copy)
    fpdb.open(copy).close()
    assert verified == [copy]
    assert (copy / SEAL_FILE).stat().st_mode & 0o777 == 0o600


def test_a_copy_over_an_old_copy_is_verified(
    closed: Path, tmp_path: Path, verified: list[Path]
) -> None:
    copy = tmp_path / "copy"
    for turn in range(2):
        shutil.copytree(closed, copy, dirs_exist_ok=True)  # keeps the inodes that are there
        fpdb.open(copy).close()
        assert verified == [copy] * (turn + 1)


@pytest.mark.parametrize("readonly", [False, True])
def test_a_data_file_over_that_of_an_old_copy_is_verified(
    closed: Path, tmp_path: Path, verified: list[Path], readonly: bool
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(closed, copy)
    for turn in range(2):
        fpdb.open(copy, readonly=readonly).close()
        assert verified == [copy] * (turn + 1)
        fpdb.open(copy, readonly=readonly).close()
        assert verified == [copy] * (turn + 1)
        shutil.copy2(closed / "data.mdb", copy)  # keeps the inode, and restores the time


def test_what_a_killed_writer_leaves_is_not_verified(
    closed: Path, verified: list[Path], start: Callable[..., subprocess.Popen[str]]
) -> None:
    script = """
    db = fpdb.open(argv[0])
    db.add("new", "some new words by a process which are enough")
    os.kill(os.getpid(), 9)
    """
    assert start(script, closed).wait(timeout=60) == -9
    with fpdb.open(closed, readonly=True) as db:
        assert "new" in db
    with fpdb.open(closed) as db, fpdb.open(closed, readonly=True):
        db.add("newer", "some newer words by this process which are enough")
    fpdb.open(closed).close()
    assert verified == []


def test_each_of_two_writers_may_close_first(
    closed: Path, verified: list[Path], start: Callable[..., subprocess.Popen[str]]
) -> None:
    script = """
    with fpdb.open(argv[0]) as db:
        db.add("theirs", "some new words by a process which are enough")
    """
    with fpdb.open(closed) as db:
        db.add("first", "some other words by this process which are enough")
        assert start(script, closed).wait(timeout=60) == 0
        db.add("last", "some newer words by this process which are enough")
    assert (closed / SEAL_FILE).read_bytes().count(b"writing") == 0
    fpdb.open(closed).close()
    assert verified == []


def test_who_opens_meanwhile_leaves_the_seal_to_who_closes(closed: Path) -> None:
    with fpdb.open(closed) as db, (closed / LOCK_FILE).open() as opening:
        db.add("last", "some newer words by this process which are enough")
        fcntl.flock(opening, fcntl.LOCK_EX)  # as an opening does, for some milliseconds
        ending = threading.Timer(0.1, fcntl.flock, (opening, fcntl.LOCK_UN))
        ending.start()
        db.close()
        ending.join()
    assert seal.is_sealed(closed)
    assert b"writing" not in (closed / SEAL_FILE).read_bytes()


@pytest.mark.parametrize("readonly", [False, True])
def test_a_torn_copy_is_refused(closed: Path, tmp_path: Path, readonly: bool) -> None:
    copy = torn_copy(closed, tmp_path / "copy")
    for _ in range(2):
        with pytest.raises((DamagedError, NotADatabaseError)) as caught:
            fpdb.open(copy, readonly=readonly)
        assert "is a copy that isn't complete" in f"{caught.value} {caught.value.hint}"
        assert "fpdb backup" in caught.value.hint
    fpdb.open(closed, readonly=readonly).close()


def test_a_copy_that_was_cut_short_is_called_a_copy(closed: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(closed, copy)
    with (copy / "data.mdb").open("r+b") as file:
        file.truncate(file.seek(0, 2) // 2)
    with pytest.raises(DamagedError, match=r"a copy that isn't complete: .*is cut short") as caught:
        fpdb.open(copy)
    assert "fpdb backup" in caught.value.hint


@pytest.mark.full
def test_of_many_processes_one_verifies(
    closed: Path, tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(closed, copy)
    script = """
    from fpdb.maintenance import check as module
    check = module.check
    def counted(path, deep):
        print("verified", flush=True)
        time.sleep(0.5)
        return check(path, deep=deep)
    module.check = counted
    with fpdb.open(argv[0]) as db:
        db.add(argv[1], f"some new words by {argv[1]} which are enough")
    """
    processes = [start(script, copy, number) for number in range(4)]
    said = [process.communicate(timeout=60) for process in processes]
    assert [err for _, err in said] == [""] * 4
    assert sorted(out for out, _ in said) == ["", "", "", "verified\n"]
    with fpdb.open(copy) as db:
        assert len(db) == 504


def test_a_file_with_the_inode_of_the_sealed_one_is_another(closed: Path) -> None:
    data = closed / "data.mdb"
    content = data.read_bytes()
    seal.seal(closed)
    if not (closed / SEAL_FILE).read_bytes():
        pytest.skip("this file system has no time of birth")
    for _ in range(20):
        data.unlink()
        data.write_bytes(content)  # often gets the inode that has just become free
        assert not seal.is_sealed(closed)
        time.sleep(0.005)  # births are dated in steps of a few milliseconds


def test_without_a_time_of_birth_each_opening_verifies(
    closed: Path, verified: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seal, "_birth", lambda _: "")
    for turn in range(2):
        fpdb.open(closed).close()
        assert verified == [closed] * (turn + 1)
