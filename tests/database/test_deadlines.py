"""A write that isn't complete before its deadline is undone, and the next one isn't."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import fpdb

TEXT = "Red kites nest above the quarry again: wardens counted eleven pairs in April, {}."


@pytest.fixture
def db(tmp_path):
    with fpdb.create(tmp_path / "crawl.fpdb") as database:
        database.add("a", TEXT.format("four more than last year"))
        yield database


def documents(count, slow=0.0):
    """Yield documents, the last of them after some seconds."""
    for number in range(count):
        if number == count - 1:
            time.sleep(slow)
        yield fpdb.Document(f"new{number}", " ".join(f"w{number}x{place}" for place in range(20)))


WRITES = {
    "add": lambda db: db.add("b", "x y z"),
    "add_many": lambda db: list(db.add_many(documents(3))),
    "add_fingerprints": lambda db: db.add_fingerprints(["b"], [7]),
    "delete": lambda db: db.delete("a"),
    "delete_many": lambda db: db.delete_many(["a"]),
}


@pytest.mark.parametrize("name", WRITES)
def test_no_write_begins_after_its_deadline(db, name):
    with fpdb.deadline(time.monotonic() - 1), pytest.raises(fpdb.DeadlineError, match="undone"):
        WRITES[name](db)
    assert list(db) == ["a"]
    WRITES[name](db)
    assert list(db) != ["a"]
    assert list(db.check()) == []


def test_a_transaction_that_is_late_is_undone_whole(db):
    removed = fpdb.database.Writer.remove

    def remove(self, keys):
        count = removed(self, keys)
        time.sleep(0.3)
        return count

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fpdb.database.Writer, "remove", remove)
        with fpdb.deadline(time.monotonic() + 0.1), pytest.raises(fpdb.DeadlineError):
            db.delete("a")
    assert list(db) == ["a"]
    db.add("b", TEXT.format("as ever"))
    assert list(db.check()) == []


def test_transactions_before_the_deadline_stay(db):
    stored = []
    with pytest.raises(fpdb.DeadlineError), fpdb.deadline(time.monotonic() + 0.5):
        stored.extend(added.key for added in db.add_many(documents(4, slow=0.6), transaction=2))
    assert stored == ["new0", "new1"]
    assert sorted(db) == ["a", "new0", "new1"]


def test_a_deadline_ends_with_its_block_and_holds_for_its_thread(db):
    with fpdb.deadline(time.monotonic() - 1):
        with fpdb.deadline(time.monotonic() + 60), pytest.raises(fpdb.DeadlineError):
            db.add("b", "x y z")  # a later one within it holds no longer
        with ThreadPoolExecutor(1) as thread:
            thread.submit(db.add, "c", "x y z").result()
        with pytest.raises(TimeoutError):
            db.add("d", "x y z")
    db.add("e", "x y z")
    assert list(db) == ["a", "c", "e"]


def test_a_writer_waits_for_another_one_until_its_deadline(db):
    with db._environment.write(), fpdb.open(db.path) as other:

        def write():
            began = time.monotonic()
            with fpdb.deadline(began + 0.2), pytest.raises(fpdb.DeadlineError):
                other.add("b", "x y z")
            return time.monotonic() - began

        with ThreadPoolExecutor(1) as thread:
            assert 0.1 < thread.submit(write).result() < 10
