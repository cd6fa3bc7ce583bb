"""A snapshot answers as the database did when it began."""

import os

import numpy as np
import pytest

import fpdb

TEXT = "the wardens counted eleven pairs of red kites above the quarry in april this year"


@pytest.fixture
def db(tmp_path):
    with fpdb.create(tmp_path / "db", keys="integer") as database:
        database.add_fingerprints(range(3000), np.arange(3000, dtype=np.uint64) << np.uint64(40))
        database.add(5000, TEXT, {"n": 1})
        database.add(5001, "short")
        yield database


def test_it_answers_as_the_database_does(db):
    numbers = [0, 5 << 40, 77, 1 << 63]
    texts = [TEXT, "short", "no such text at all, with features enough to ask for it in earnest"]
    with db.snapshot() as snapshot:
        for k in (None, 0, 5):
            for limit in (None, 1, 4):
                for number in numbers:
                    assert snapshot.query_fingerprint(
                        number, k=k, limit=limit
                    ) == db.query_fingerprint(number, k=k, limit=limit)
                for text in texts:
                    assert snapshot.query(text, k=k, limit=limit) == db.query(
                        text, k=k, limit=limit
                    )
                found = list(snapshot.query_many(texts * 20, k=k, limit=limit))
                assert found == list(db.query_many(texts * 20, k=k, limit=limit))
                ours = snapshot.query_fingerprints(numbers, k=k, limit=limit)
                theirs = db.query_fingerprints(numbers, k=k, limit=limit)
                assert all(map(np.array_equal, ours, theirs))
        assert snapshot.get(5000) == db.get(5000)
        assert snapshot.get(9999, "none") == "none"
        assert len(snapshot) == len(db) == 3002


def test_it_sees_one_moment(db):
    with db.snapshot() as snapshot:
        db.delete(5000)
        db.add_fingerprints([7000], [123456789])
        assert [match.meta for match in snapshot.query(TEXT)] == [{"n": 1}]
        assert not db.query(TEXT)
        assert not snapshot.query_fingerprint(123456789, k=0)
        assert len(db.query_fingerprint(123456789, k=0)) == 1
        assert (len(snapshot), len(db)) == (3002, 3002)
        assert snapshot.get(7000) is None
    with db.snapshot() as snapshot:
        assert len(snapshot.query_fingerprint(123456789, k=0)) == 1


def test_it_ends_with_its_block(db):
    with db.snapshot() as snapshot:
        pass
    for use in (
        lambda: snapshot.query(TEXT),
        lambda: list(snapshot.query_many([TEXT])),
        lambda: snapshot.query_fingerprint(1),
        lambda: snapshot.query_fingerprints([1]),
        lambda: snapshot.get(1),
        lambda: len(snapshot),
    ):
        with pytest.raises(fpdb.ClosedError, match="has ended") as caught:
            use()
        assert caught.value.hint


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_is_told_that_it_has_none(db):
    with db.snapshot() as snapshot:
        child = os.fork()
        if not child:
            told = 1
            try:
                snapshot.query_fingerprint(1)
            except fpdb.ClosedError:
                told = 0
            finally:
                os._exit(told)
        assert os.waitpid(child, 0)[1] == 0
        assert snapshot.query_fingerprint(0, k=0)
