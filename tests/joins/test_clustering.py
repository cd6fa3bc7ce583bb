"""Clusters, also as columns: each duplicate matches the document that stays for it."""

import random
from collections import Counter

import numpy as np
import pytest

import fpdb
from fpdb.joins import clusters

WORDS = [f"word{number}" for number in range(500)]


def corpus(count, chance):
    """Yield texts, of which half are copies of an earlier one, most of them edited."""
    texts = []
    for _ in range(count):
        if texts and chance.random() < 0.5:
            words = chance.choice(texts).split()
            for _ in range(chance.choice([0, 1, 1, 3])):
                words[chance.randrange(len(words))] = chance.choice(WORDS)
            # Signs don't count, so that texts may differ that have the same sketch.
            text = " ".join(words) + chance.choice(["", "", "!"])
        else:
            text = " ".join(chance.choices(WORDS, k=60))
        texts.append(text)
        yield text


@pytest.mark.parametrize("keys", ["integer", "text"])
@pytest.mark.parametrize("held", [10, 1 << 20])
def test_clusters_copies_and_pairs(tmp_path, monkeypatch, keys, held):
    monkeypatch.setattr(clusters, "_CONNECTIONS", held)
    texts = dict(enumerate(corpus(300, random.Random(7))))
    names = {n if keys == "integer" else f"key{n:03}": text for n, text in texts.items()}
    with fpdb.create(tmp_path / "db", keys=keys) as db:
        list(db.add_many(fpdb.Document(name, text) for name, text in names.items()))
        found = db.clustering()
        at = db.keys_of(found.ids)
        groups = {}
        for place, first in enumerate(found.firsts.tolist()):
            groups.setdefault(at[first], []).append(at[place])
        assert groups == {each.representative: list(each.keys) for each in db.clusters()}
        pairs = list(db.pairs())
        assert db.clustering(similarity=0.95).ids.size < found.ids.size
    for place, original in enumerate(found.originals.tolist()):
        same = [n for n in groups[at[found.firsts[place]]] if names[n] == names[at[place]]]
        assert at[original] == same[0]
    # Each text once: of those that only signs tell apart, the first.
    alike, copies = {}, 0
    for name, text in names.items():
        kept = alike.setdefault(text.rstrip("!"), name)
        copies += (
            kept != name and names[kept] != text and at[found.originals[at.index(name)]] == name
        )
    kept = set(alike.values())
    shares = Counter(
        int(pair.similarity * 100 + 1e-9) for pair in pairs if {pair.key, pair.other} <= kept
    )
    shares[100] += copies
    assert {n: count for n, count in enumerate(found.shares.tolist()) if count} == {
        n: count for n, count in shares.items() if count
    }
    near = {(pair.key, pair.other): pair.similarity for pair in pairs}
    firsts = [at[first] for first in found.firsts.tolist()]
    least = [near.get(pair, 1.0) for pair in zip(firsts, at, strict=True)]
    assert least == found.least.tolist()


def test_at_a_similarity_of_one_clusters_have_equal_shingles(tmp_path):
    with fpdb.create(tmp_path / "db") as db:
        for key, end in (("a", ""), ("b", "!"), ("c", " more")):
            db.add(key, " ".join(WORDS[:60]) + end)
        assert [tuple(each.keys) for each in db.clusters(similarity=1.0)] == [("a", "b")]


def test_no_clusters(tmp_path):
    with fpdb.create(tmp_path / "db") as db:
        found = db.clustering()
        assert (len(found.ids), int(found.shares.sum())) == (0, 0)
        db.add("a", " ".join(WORDS))
        assert np.array_equal(db.clustering().ids, [])
        assert [list(db.clusters(keep=keep)) for keep in ("longest", "newest:day")] == [[], []]


def versions(count, words, step):
    """Yield texts, each of which has other words at both ends than the one before it."""
    for start in range(0, count * step, step):
        yield " ".join(WORDS[start : start + words])


@pytest.mark.parametrize("asked", [{}, {"k": 6}], ids=["similarity", "bits"])
@pytest.mark.parametrize("keep", ["first", "longest"])
@pytest.mark.parametrize("read", [3, 1 << 16])
def test_each_duplicate_matches_the_document_that_stays(tmp_path, monkeypatch, asked, keep, read):
    monkeypatch.setattr(clusters, "_READ", read)
    texts = [*versions(24, 60, 2), *corpus(60, random.Random(8))]
    with fpdb.create(tmp_path / "db", keys="integer") as db:
        list(db.add_many(fpdb.Document(number, text) for number, text in enumerate(texts)))
        near = {frozenset((pair.key, pair.other)) for pair in db.pairs(**asked)}
        stay, expected = [], {}
        preferred = sorted(range(len(texts)), key=lambda n: -len(texts[n]) * (keep == "longest"))
        for number in preferred:
            first = next((one for one in stay if {number, one} in near), number)
            expected.setdefault(first, set()).add(number)
            stay += [first] * (first == number)
        found = list(db.clusters(**asked, keep=keep))
        assert {each.representative: {*each.keys} for each in found} == {
            first: keys for first, keys in expected.items() if len(keys) > 1
        }
        assert [list(each.duplicates) for each in found] == [sorted(e.duplicates) for e in found]
        chained = db.clusters(**asked, keep=keep, chains=True)
        assert not near >= {
            frozenset((each.representative, key)) for each in chained for key in each.duplicates
        }
        assert db.delete_duplicates(**asked, keep=keep) == found
        assert sorted(db) == sorted(stay)
        assert list(db.pairs(**asked)) == []


def test_bare_fingerprints_of_integer_keys_are_compared(tmp_path):
    """They have no records: all that is kept of them is in the tables."""
    prints = [(1 << 4 * number) - 1 for number in range(16)]
    with fpdb.create(tmp_path / "db", keys="integer", similarity=None) as db:
        db.add_fingerprints(range(len(prints)), prints)
        assert [each.keys for each in db.clusters(k=4)] == [(n, n + 1) for n in range(0, 16, 2)]
        assert [each.keys for each in db.clusters(k=4, chains=True)] == [tuple(range(16))]
        assert len(db.delete_duplicates(k=4)) == len(db) == 8


def test_of_nine_versions_five_stay(tmp_path):
    with fpdb.create(tmp_path / "db", keys="integer") as db:
        list(db.add_many(fpdb.Document(*each) for each in enumerate(versions(9, 120, 9))))
        groups = db.clustering()
        assert [each.keys for each in db.clusters(chains=True)] == [tuple(range(9))]
        db.delete_duplicates()
        assert sorted(db) == [0, 2, 4, 6, 8]
    assert groups.firsts.tolist() == [0, 0, 2, 2, 4, 4, 6, 6]
