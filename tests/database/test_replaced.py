"""Databases that are compacted in place, moved and removed under those who use them."""

import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from waiting import wait_for

import fpdb
from fpdb import Database, Document, MovedError, Recipe
from fpdb.integrations.batcher import again_if_moved
from fpdb.storage import drafts

Run = Callable[..., str]

TEXT = "nine words of a text that is long enough"


def made(path: Path, recipe: Recipe, *keys: str) -> Path:
    with fpdb.create(path, recipe=recipe) as db:
        add(db, *keys)
    return path


def add(db: Database, *keys: str) -> None:
    list(db.add_many([Document(key, f"{TEXT} {key}") for key in keys]))


def keys_at(path: Path) -> set[object]:
    with fpdb.open(path, readonly=True) as db:
        assert not list(db.check())
        return set(db)


def test_compacting_without_a_path_replaces_the_database(db: Database, path: Path) -> None:
    add(db, *map(str, range(3000)))
    db.delete_many(map(str, range(2900)))
    before, mode = db.stats(), 0o750
    path.chmod(mode)
    with db.snapshot() as snapshot:
        db.compact()
        assert len(snapshot) == 100
        for use in (db.__len__, lambda: add(db, "new")):
            with pytest.raises(MovedError, match="was moved, removed or replaced") as caught:
                use()
            assert caught.value.hint == "open it again; in Python, db.reopen() does"
        db.reopen()
        assert len(snapshot) == 100
    after = db.stats()
    assert after.bytes < before.bytes
    assert (after.uuid, after.created, after.documents) == (before.uuid, before.created, 100)
    add(db, "new")
    assert len(keys_at(path)) == 101
    assert path.stat().st_mode & 0o777 == mode
    assert os.listdir(path.parent) == [path.name]


def test_a_file_that_comes_while_a_database_is_compacted_stays(
    db: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(db, "a")
    genuine = drafts.seal

    def late(draft: Path) -> None:
        (path / "notes.txt").write_text("mine")
        genuine(draft)

    monkeypatch.setattr(drafts, "seal", late)
    with pytest.raises(fpdb.OpenError, match=r"notes\.txt"):
        db.compact()
    assert (path / "notes.txt").read_text() == "mine"
    assert os.listdir(path.parent) == [path.name]


def test_another_plan_asks_for_a_new_handle(db: Database, path: Path) -> None:
    add(db, "a")
    db.compact(capacity=10**9)
    with pytest.raises(MovedError, match="with other tables"):
        db.reopen()
    with pytest.raises(MovedError):
        add(db, "b")
    assert keys_at(path) == {"a"}


def test_a_handle_is_reopened_on_a_restored_copy(db: Database, path: Path) -> None:
    add(db, "first")
    copy, moved = path.with_name("copy"), path.with_name("moved")
    db.backup(copy)
    add(db, "second")
    path.rename(moved)
    with pytest.raises(MovedError, match="moved or removed: there is no database at"):
        db.reopen()
    copy.rename(path)
    db.reopen()
    add(db, "third")
    assert set(db) == keys_at(path) == {"first", "third"}
    assert keys_at(moved) == {"first", "second"}


def test_a_database_that_is_gone_has_no_size(db: Database, path: Path) -> None:
    drafts.remove(path)
    for use in (db.stats, lambda: db.backup(path.with_name("copy"))):
        with pytest.raises(MovedError, match="was moved, removed or replaced"):
            use()
    assert not path.with_name("copy").exists()


def test_threads_reopen_together(db: Database, path: Path) -> None:
    errors: list[BaseException] = []
    turns = [0, 0, 0]
    over = threading.Event()

    def work(number: int) -> None:
        try:
            while not over.is_set():
                key = f"{number} {turns[number]}"
                for use in (partial(add, db, key), partial(db.get, key)):
                    again_if_moved(db, use)
                turns[number] += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    with fpdb.open(path) as other:
        for _ in range(10):
            other.compact()
            other.reopen()
            before = [*turns]  # each thread has the database that is there now before the next one
            wait_for(lambda: errors or all(now > old + 1 for now, old in zip(turns, before)))  # noqa: B023, B905
    over.set()
    for thread in threads:
        thread.join()
    assert not errors
    assert set(db) == keys_at(path)


def test_what_a_hold_no_longer_protects_is_an_error(db: Database, path: Path) -> None:
    with pytest.raises(MovedError, match="while it was held"), db.hold():
        db.compact()


def test_a_file_system_that_cant_exchange_directories_is_an_error(db: Database, path: Path) -> None:
    with pytest.raises(fpdb.StorageError, match="file system can't exchange") as caught:
        drafts.exchange(path, Path("/proc/self"))
    assert "compact it to another path" in caught.value.hint
    assert len(db) == 0


def test_a_writer_that_waits_while_a_database_is_replaced_gets_an_error(
    db: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(db, "own")
    threads, errors = [], list[Exception]()
    exchange = drafts.exchange

    def write() -> None:
        try:
            add(db, "late")
        except MovedError as error:
            errors.append(error)

    def slow(first: Path, second: Path) -> None:
        thread = threading.Thread(target=write)
        thread.start()
        threads.append(thread)
        thread.join(0.1)  # it waits for the lock, by now or soon
        exchange(first, second)

    monkeypatch.setattr(drafts, "exchange", slow)
    db.compact()
    threads[0].join()
    assert len(errors) == 1
    assert keys_at(path) == {"own"}


@pytest.mark.process
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_kill_at_the_exchange_leaves_one_of_both(
    db: Database, path: Path, moment: str, run: Run
) -> None:
    add(db, "a", "b")
    db.delete("b")
    before = path.stat().st_ino
    run(
        """
        import signal
        from fpdb.storage import drafts
        exchange = drafts.exchange
        def killed(first, second):
            if argv[1] == "after":
                exchange(first, second)
            os.kill(os.getpid(), signal.SIGKILL)
        drafts.exchange = killed
        if os.fork():
            os.wait()
        else:
            fpdb.open(argv[0]).compact()
        """,
        path,
        moment,
    )
    assert (path.stat().st_ino == before) == (moment == "before")
    assert keys_at(path) == {"a"}
    assert len(os.listdir(path.parent)) == 3
    db.reopen()
    db.compact()
    assert os.listdir(path.parent) == [path.name]
    assert keys_at(path) == {"a"}


@pytest.fixture
def replaced(path: Path) -> tuple[Path, Path]:
    """A database, and one of another recipe and other tables, which is moved to its place later."""
    with fpdb.create(path) as old:
        add(old, "old")
    with fpdb.create(path.with_name("other"), recipe="char-4", k=5, capacity=1000) as other:
        add(other, "other")
    return path, path.with_name("other")


def move_to_the_place_of(path: Path, other: Path) -> Path:
    moved = path.rename(path.with_name("moved"))
    other.rename(path)
    return moved


def test_a_moved_database_that_a_reader_has_open_gets_what_is_added_to_it(
    replaced: tuple[Path, Path],
) -> None:
    path, _ = replaced
    with fpdb.open(path, readonly=True):
        moved = move_to_the_place_of(*replaced)
        with fpdb.open(moved) as db:
            add(db, "new")
    assert (keys_at(path), keys_at(moved)) == ({"other"}, {"old", "new"})


def test_an_empty_database_is_removed_and_its_writers_get_an_error(
    tmp_path: Path, tiny: Recipe
) -> None:
    path = made(tmp_path / "empty", tiny)
    with fpdb.open(path) as db, fpdb.open(path) as other:
        assert other.remove(only_empty=True)
        assert not path.exists()
        with pytest.raises(MovedError):
            add(db, "lost")
    with fpdb.open(made(path, tiny, "stored")) as db:
        assert not db.remove(only_empty=True)
        assert len(db) == 1
