"""What matches at a limit and what doesn't beyond, in which order, and which of equals is taken."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

import fpdb
from fpdb.documents.similarity import Alike
from fpdb.storage.block import Block
from fpdb.storage.format import Stored
from fpdb.tables.bands import Bands

SKETCH = bytes(range(1, 129))


def edited(bins, at=0):
    """SKETCH with so many bins of another value, from one on."""
    number = int.from_bytes(SKETCH, "little")
    for place in range(at, at + bins):
        number ^= 1 << 4 * (place % 256)
    return number.to_bytes(128, "little")


def stored(key, *, bins=0, at=0, bits=0, digest=None):
    """A document that differs from others in so many bins of its sketch and bits."""
    digest = digest or key.encode().ljust(16, b"\1")
    return Stored(0, key, (1 << bits) - 1, 1000, digest, sketch=edited(bins, at))


def found(db, question, **options):
    [matches] = db.query_prepared(Block.of([question], 64), **options)
    assert matches.complete
    return [(match.key, match.similarity, match.distance) for match in matches]


# 1 - d / 240 for d bins counts from .761, .871 and .655 on: see the test of the limits.
@pytest.mark.parametrize(("similarity", "most"), [(0.8, 57), (0.9, 30), (0.7, 82)])
def test_a_pair_at_the_limit_of_similarity_matches_and_one_beyond_does_not(
    tmp_path, similarity, most
):
    # With a band for each six bins, some band of each pair agrees.
    plan = replace(fpdb.plans(64, 3, 1000)[0], bands=Bands(42, 6))
    below, above = stored("below", bins=most + 1), stored("above", bins=most)
    with fpdb.create(tmp_path / "db", similarity=similarity, plan=plan) as db:
        db.add_prepared(Block.of([below, above], 64))
        expected = [("above", pytest.approx(1 - most / 240), 0)]
        assert found(db, stored("question")) == expected
        # These two differ in one bin.
        assert [pair[:3] for pair in db.pairs()] == [("below", "above", 0)]
        db.add_prepared(Block.of([stored("question")], 64))
        pairs = {frozenset(pair[:2]): pair.similarity for pair in db.pairs()}
        assert pairs == {
            frozenset({"below", "above"}): pytest.approx(1 - 1 / 240),
            frozenset({"question", "above"}): pytest.approx(1 - most / 240),
        }
        skipped = db.add_prepared(Block.of([stored("twin")], 64), skip_duplicates=True)
        assert [each.status for each in skipped] == ["duplicate"]
        for bins, status in ((most, "duplicate"), (most + 1, "added")):
            # The other end of the sketch, so that the others are far.
            question = stored(f"{bins}", bins=bins, at=255 - bins)
            [added] = db.add_prepared(Block.of([question], 64), skip_duplicates=True)
            assert added.status == status


@pytest.mark.parametrize("k", [0, 3, 7])
def test_a_pair_at_distance_k_matches_and_one_beyond_does_not(tmp_path, k):
    with fpdb.create(tmp_path / "db", similarity=None, k=k) as db:
        db.add_prepared(Block.of([stored("beyond", bits=k + 1), stored("at", bits=k)], 64))
        assert found(db, stored("question")) == [("at", None, k)]
        assert [pair[:3] for pair in db.pairs()] == ([("beyond", "at", 1)] if k else [])
        hits = db.query_fingerprints([0])
        assert (hits.distances.tolist(), hits.complete.tolist()) == ([k], [True])


def test_matches_are_in_the_order_of_similarity_then_distance_then_key(tmp_path):
    with fpdb.create(tmp_path / "db") as db:
        rows = [("c", 5, 2), ("d", 5, 1), ("b", 5, 1), ("e", 4, 9), ("a", 6, 0)]
        documents = [stored(key, bins=bins, bits=bits) for key, bins, bits in rows]
        db.add_prepared(Block.of(documents, 64))
        same = stored("same", bins=20, digest=b"q" * 16)
        db.add_prepared(Block.of([same], 64))
        question = stored("question", digest=b"q" * 16)
        expected = ["same", "e", "b", "d", "c", "a"]
        for limit in (None, 1, 3, 6):
            assert [key for key, *_ in found(db, question, limit=limit)] == expected[:limit]
        # An equal text is wholly similar, whatever the sketches are.
        assert found(db, question, limit=1) == [("same", 1.0, 0)]


def test_the_nearest_is_the_most_similar_then_the_closest_then_the_first_that_was_added():
    # Of text 0: by similarity, by distance, by id; the last one differs in the id alone.
    rows = [(9, 0.9, 3), (2, 0.9, 4), (7, 0.9, 3), (1, 0.8, 0)]
    others = [(5, 0.7, 1), (4, 0.7, 1)]
    for order in itertools.permutations(rows):
        for cut in range(len(order) + 1):
            nearest = Alike.none()
            for part in ([*order[:cut]], [*order[cut:]]):
                texts = np.array([0] * len(part) + [2] * len(others))
                ids, shares, apart = zip(*part, *others, strict=True)
                columns = np.array(ids, np.uint64), np.array(shares), np.array(apart, np.uint8)
                nearest = nearest.nearer(Alike(texts, *columns, texts < 0))
            assert [*zip(*(column.tolist() for column in nearest[:4]), strict=True)] == [
                (0, 7, 0.9, 3),
                (2, 4, 0.7, 1),
            ]


@pytest.mark.parametrize("new", [pytest.param(True, marks=pytest.mark.process), False])
@pytest.mark.parametrize("keys", ["text", "integer"])
def test_of_databases_that_are_loaded_the_last_added_stays_and_then_the_first(tmp_path, keys, new):
    # When each of three databases got each key, and the database whose document stays.
    times = {1: (5, 5, 5, 0), 2: (5, 6, 6, 1), 3: (6, 5, 6, 0), 4: (4, 5, 6, 2), 5: (6, 7, 5, 1)}
    name = (lambda key: key) if keys == "integer" else str
    paths = [tmp_path / f"{place}" for place in range(3)]
    for place, path in enumerate(paths):
        with fpdb.build(path, keys=keys, similarity=None, k=3) as db:
            for key, row in times.items():
                document = Stored(key, name(key), place, 1000 + row[place])
                db.add_prepared(Block.of([document], 64), newer=True)
    if new:
        fpdb.load(tmp_path / "all", paths)
    else:
        fpdb.load(paths[0], paths[1:])
    with fpdb.open(tmp_path / "all" if new else paths[0], readonly=True) as db:
        stays = {document.key: (document.fingerprint, document.added) for document in db.scan()}
    assert stays == {name(key): (row[-1], 1000 + row[row[-1]]) for key, row in times.items()}


@pytest.mark.parametrize("keys", ["text", "integer"])
def test_a_digest_of_zeros_is_none(tmp_path, keys):
    key = 2 if keys == "integer" else "2"
    with fpdb.create(tmp_path / "db", keys=keys) as db:
        for number in (1, 9):
            digest = bytes(16) if number == 1 else None
            list(db.add_many([fpdb.Document(key, fingerprint=number, digest=digest)]))
            assert (db[key].fingerprint, db[key].digest) == (number, None)
        assert list(db.check()) == []


def test_the_digest_of_an_empty_text_comes_back(tmp_path):
    with fpdb.create(tmp_path / "one") as one, fpdb.create(tmp_path / "two") as two:
        one.add("empty", "")
        list(two.add_many(one.scan()))
        assert two["empty"].digest == one["empty"].digest == bytes(16)
        assert list(two.check()) == []


def test_short_texts_that_come_with_others_are_found_by_their_words(tmp_path):
    texts = ["kites nest", " ".join(f"word{n}" for n in range(20)), "two words", "other words"]
    source = tmp_path / "in.jsonl"
    rows = [{"id": f"{n}", "text": text} for n, text in enumerate(texts)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    fpdb.create(tmp_path / "db").close()
    fpdb.dedupe(source, tmp_path / "out.jsonl", database=tmp_path / "db")
    with fpdb.open(tmp_path / "db", readonly=True) as db:
        assert [[match.key for match in db.query(text)] for text in texts] == [
            ["0"],
            ["1"],
            ["2"],
            ["3"],
        ]
        assert list(db.check()) == []
