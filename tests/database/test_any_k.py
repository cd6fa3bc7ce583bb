"""A query has any k, and finds the nearest documents at any distance: brute force agrees."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

import fpdb
from fpdb.documents import lookup
from fpdb.tables import scans
from fpdb.tables.bits import to_array

RECIPES = {32: "bigram-32", 64: "words", 128: "web-128"}
CASES = [(32, "text"), (64, "text"), (64, "integer"), (128, "text"), (128, "integer")]
EVERY_KIND = pytest.mark.parametrize(("bits", "keys"), CASES)


@pytest.fixture
def small_parts(monkeypatch):
    """Few rows and few queries at a time, so that small databases have several parts."""
    monkeypatch.setattr(scans, "_ROWS", 50)
    monkeypatch.setattr(scans, "_QUERIES", 3)


def create(path, bits, keys="text"):
    return fpdb.create(path, recipe=RECIPES[bits], similarity=None, keys=keys, capacity=1000)


def named(keys, number):
    return number if keys == "integer" else f"document {number:03d}"


def brute_force(stored, query, k, limit=None):
    near = sorted(((query ^ number).bit_count(), key) for key, number in stored.items())
    return [entry for entry in near if entry[0] <= k][:limit]


def entries(matches):
    assert matches.complete
    return [(match.distance, match.key) for match in matches]


def changed(path, bits, keys):
    """A database with copies, from which some documents went and in which some were replaced."""
    dice = random.Random(bits)
    numbers = [dice.getrandbits(bits) for _ in range(150)] + [0, 2**bits - 1]
    stored = {named(keys, at): dice.choice(numbers) for at in range(250)}
    db = create(path, bits, keys)
    db.add_fingerprints([*stored], to_array(stored.values(), bits))
    for key in dice.sample(sorted(stored), 40):
        del stored[key]
        assert db.delete(key)
    replaced = {key: dice.getrandbits(bits) for key in dice.sample(sorted(stored), 40)}
    list(db.add_many(fpdb.Document(key, fingerprint=number) for key, number in replaced.items()))
    return db, stored | replaced, numbers


@pytest.mark.usefixtures("small_parts")
@EVERY_KIND
def test_every_k_finds_what_brute_force_does(tmp_path, bits, keys):
    db, stored, numbers = changed(tmp_path / "db", bits, keys)
    queries = numbers[-4:]
    with db, db.snapshot() as snapshot:
        ids = {key: db[key].id for key in stored}
        for k in range(bits + 1):
            hits = db.query_fingerprints(to_array(queries, bits), k=k)
            rows = zip(*(column.tolist() for column in hits[:3]), strict=True)
            expected = [brute_force(stored, query, k) for query in queries]
            assert [*rows] == [
                (place, ids[key], apart)
                for place, near in enumerate(expected)
                for apart, key in sorted(near, key=lambda entry: (entry[0], ids[entry[1]]))
            ]
            assert hits.complete.all()
            query, near = queries[k % 4], expected[k % 4]
            assert entries(db.query_fingerprint(query, k=k)) == near
            assert entries(snapshot.query_fingerprint(query, k=k, limit=3)) == near[:3]


@pytest.mark.usefixtures("small_parts")
@EVERY_KIND
def test_the_nearest_are_found_whatever_their_distance(tmp_path, bits, keys):
    db, stored, numbers = changed(tmp_path / "db", bits, keys)
    with db:
        for limit in (1, 2, 7, 100, 1000):
            for query in numbers[:5]:
                near = db.query_fingerprint(query, k=bits, limit=limit)
                assert entries(near) == brute_force(stored, query, bits, limit)
            hits = db.query_fingerprints(to_array(numbers[:5], bits), k=bits, limit=limit)
            assert hits.complete.all()
            assert len(hits.ids) == 5 * min(limit, len(stored))


@settings(max_examples=examples(100))
@given(
    stored=st.lists(st.integers(0, 15) | st.integers(0, 2**32 - 1), max_size=40),
    queries=st.lists(st.integers(0, 15) | st.integers(0, 2**32 - 1), max_size=10),
    k=st.integers(0, 32),
    limit=st.none() | st.integers(1, 50),
)
def test_any_documents_are_found_as_by_brute_force(tmp_path_factory, stored, queries, k, limit):
    with create(tmp_path_factory.mktemp("any") / "db", 32) as db:
        # Keys in another order than ids.
        documents = {f"key {len(stored) - at:02d}": number for at, number in enumerate(stored)}
        db.add_fingerprints([*documents], np.array(stored, np.uint64))
        for query in queries:
            near = db.query_fingerprint(query, k=k, limit=limit)
            assert entries(near) == brute_force(documents, query, k, limit)


def test_texts_are_queried_with_any_k(tmp_path):
    texts = [" ".join(f"word{number * step % 97}" for number in range(40)) for step in range(1, 12)]
    for similarity in (None, 0.8):
        path = tmp_path / f"{similarity}.fpdb"
        with fpdb.create(path, similarity=similarity, capacity=1000) as db:
            stored = {f"text {number:02d}": text for number, text in enumerate(texts)}
            list(db.add_many(fpdb.Document(key, text) for key, text in stored.items()))
            numbers = {key: db.recipe.fingerprint(text) for key, text in stored.items()}
            expected = [brute_force(numbers, numbers["text 03"], 64, 5)] * 2
            assert entries(db.query(texts[3], k=64, limit=5)) == expected[0]
            assert [
                entries(near) for near in db.query_many([texts[3]] * 2, k=64, limit=5)
            ] == expected


def test_a_larger_k_reads_all_rows_where_probes_would_exceed_their_budget(tmp_path, monkeypatch):
    assert lookup.CANDIDATES == 1_000_000
    monkeypatch.setattr(lookup, "CANDIDATES", 100)
    dice = random.Random(7)
    stored = {f"document {at:04d}": dice.getrandbits(64) for at in range(2000)}
    with create(tmp_path / "db", 64) as db:
        db.add_fingerprints([*stored], to_array(stored.values(), 64))
        for k in (4, 9, 16, 24):
            assert entries(db.query_fingerprint(5, k=k)) == brute_force(stored, 5, k)


@pytest.mark.usefixtures("small_parts")
def test_an_answer_ends_after_ten_thousand_documents_or_a_larger_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(lookup, "DOCUMENTS", 40)
    stored = {f"document {at:03d}": (0, 1, 3)[at // 100] for at in range(300)}
    with create(tmp_path / "db", 32) as db:
        db.add_fingerprints([*stored], np.array([*stored.values()], np.uint64))
        everything = db.query_fingerprint(0, k=32)
        assert (len(everything), everything.complete) == (40, False)
        assert {match.distance for match in everything} == {0}
        hits = db.query_fingerprints(np.zeros(2, np.uint64), k=32)
        assert (len(hits.ids), hits.complete.tolist()) == (80, [False, False])
        # Sixty of a hundred copies are read, so the first by their keys may be others.
        cut = db.query_fingerprint(0, k=32, limit=20)
        assert (len(cut), cut.complete) == (20, False)
        assert not db.query_fingerprint(0, k=32, limit=159).complete
        assert entries(db.query_fingerprint(0, k=32, limit=160)) == brute_force(stored, 0, 32, 160)
        assert entries(db.query_fingerprint(0, k=32, limit=999)) == brute_force(stored, 0, 32)
        hits = db.query_fingerprints(np.zeros(2, np.uint64), k=32, limit=20)
        assert hits.ids.tolist() == [*range(20)] * 2
        assert hits.complete.all()
