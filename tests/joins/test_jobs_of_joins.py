"""Joins with several jobs: the same pairs in the same order, all of one moment."""

import itertools

import numpy as np
import pytest

import fpdb
from fpdb import Document
from fpdb.joins import join, pairs

pytestmark = pytest.mark.process


def similar_documents(count):
    """Documents of which each shares all but two words with some others."""
    generator = np.random.default_rng(5)
    for number in range(count):
        words = [f"word{place}of{number % 17}" for place in range(80)]
        for place in generator.integers(80, size=1):
            words[place] = f"other{number}"
        yield Document(f"u{number}", " ".join(words))


def of_texts(path, count=120):
    db = fpdb.create(path)
    list(db.add_many(similar_documents(count)))
    return db


def of_bits(path, count=400):
    generator = np.random.default_rng(6)
    numbers = generator.integers(1 << 64, size=30, dtype=np.uint64)[np.arange(count) % 30]
    numbers ^= np.uint64(1) << generator.integers(0, 64, count, np.uint64)
    db = fpdb.create(path, similarity=None, keys="integer")
    db.add_fingerprints(np.arange(count), numbers)
    return db


@pytest.mark.slow("each join starts workers")
@pytest.mark.parametrize("make", [of_texts, of_bits])
def test_pairs_and_clusters_are_the_same_whatever_the_number_of_jobs(tmp_path, monkeypatch, make):
    monkeypatch.setattr(pairs, "_PAIRS", 150)
    monkeypatch.setattr(join, "_CHUNK", 100)
    with make(tmp_path / "db") as db:
        found = list(db.pairs())
        assert len(found) > 300
        assert list(db.pairs(jobs=2)) == found
        clusters = list(db.clusters(keep="longest"))
        assert len(clusters) > 10
        assert db.delete_duplicates(keep="longest", jobs=2) == clusters
        assert list(db.clusters()) == []


@pytest.mark.slow("each join starts workers")
def test_pairs_are_those_of_one_moment(tmp_path, monkeypatch):
    monkeypatch.setattr(pairs, "_PAIRS", 20)
    with of_texts(tmp_path / "db") as db, fpdb.open(tmp_path / "db") as other:
        expected = list(db.pairs())
        assert len(expected) > 300  # more than are read ahead
        with db.snapshot() as snapshot:
            found = db.pairs(jobs=2)
            first = next(found)
            assert other.delete_many([f"u{number}" for number in range(120)]) == 120
            assert [first, *found] == expected
            assert list(snapshot.pairs(jobs=2)) == expected
        assert list(db.pairs(jobs=2)) == []


def test_what_is_too_much_to_be_sent_is_compared_here(tmp_path, monkeypatch):
    with of_bits(tmp_path / "db") as db:
        expected = list(db.pairs())
        given_up = []

        def mapped_here(work, items, _):
            for item in items:
                result = work(item)
                given_up.append(result is None)
                yield item, result

        monkeypatch.setattr(join, "mapped", mapped_here)
        monkeypatch.setattr(join, "_HELD", 800)
        assert list(db.pairs(jobs=2)) == expected
        assert set(given_up) == {True, False}


def test_damage_that_a_worker_finds_is_raised(tmp_path):
    with of_texts(tmp_path / "db", 40) as db:
        with db._environment.write() as txn:
            key, value = next(
                (bytes(key), bytearray(value)) for key, value in txn.cursor("documents")
            )
            value[-1] ^= 1
            txn.put("documents", key, bytes(value))
        with pytest.raises(fpdb.DamagedError, match="checksum of a document"):
            list(db.pairs(jobs=2))


def test_a_document_that_is_missing_is_damage(tmp_path):
    with of_texts(tmp_path / "db", 40) as db:
        key = next(iter(db.pairs())).other
        with db._environment.write() as txn:
            txn.delete("documents", db[key].id.to_bytes(8, "big"))
        with pytest.raises(fpdb.DamagedError, match="isn't there"):
            list(db.pairs())


def test_wrong_jobs_are_errors(tmp_path):
    with of_bits(tmp_path / "db", 40) as db:
        for ask in (db.pairs, db.clusters):
            with pytest.raises(fpdb.InputError, match="found jobs -1"):
                list(ask(jobs=-1))


@pytest.mark.slow("three times workers are started")
def test_questions_are_the_same_whatever_the_number_of_jobs(tmp_path, monkeypatch):
    texts = [document.text for document in similar_documents(150)] * 9
    with of_texts(tmp_path / "db") as db:
        expected = list(itertools.islice(db.query_many(texts), 150)) * 9
        assert list(db.query_many(texts, jobs=2)) == expected
        with db.snapshot() as snapshot:
            db.delete_many([f"u{number}" for number in range(120)])
            assert list(snapshot.query_many(texts, jobs=2)) == expected
        assert not any(db.query_many(texts, jobs=2))
    with fpdb.build(tmp_path / "new") as db:
        list(db.add_many(similar_documents(120)))
        assert [[match.key for match in found] for found in db.query_many(texts, jobs=2)] == [
            [match.key for match in found] for found in expected
        ]


def test_answers_with_very_many_matches_come_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("fpdb.queries._MATCHES", 30)
    monkeypatch.setattr(
        "fpdb.database.mapped", lambda work, items, _, **__: ((item, work(item)) for item in items)
    )
    texts = [document.text for document in similar_documents(150)]
    with of_texts(tmp_path / "db") as db:
        assert list(db.query_many(texts, jobs=2)) == list(db.query_many(texts))
