"""Clusters as columns are those of `clusters`, with the copies and similarities of `pairs`."""

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
    shares, least = Counter(), {}
    for pair in pairs:
        if {pair.key, pair.other} <= kept:
            shares[int(pair.similarity * 100 + 1e-9)] += 1
            for key in (pair.key, pair.other):
                least[key] = min(least.get(key, 1.0), pair.similarity)
    shares[100] += copies
    assert {n: count for n, count in enumerate(found.shares.tolist()) if count} == {
        n: count for n, count in shares.items() if count
    }
    assert [least.get(name, 1.0) for name in at] == found.least.tolist()


def test_no_clusters(tmp_path):
    with fpdb.create(tmp_path / "db") as db:
        found = db.clustering()
        assert (len(found.ids), int(found.shares.sum())) == (0, 0)
        db.add("a", " ".join(WORDS))
        assert np.array_equal(db.clustering().ids, [])


@pytest.mark.parametrize("asked", [{}, {"k": 6}], ids=["similarity", "bits"])
@pytest.mark.parametrize("keep", ["first", "longest"])
def test_all_documents_of_a_tight_cluster_match_the_one_to_keep(tmp_path, asked, keep):
    words = WORDS[:60]
    # Each text differs from the one before it by two words more, and from the first by many.
    texts = {n: " ".join(WORDS[100 : 100 + 2 * n] + words[2 * n :]) for n in range(24)}
    with fpdb.create(tmp_path / "db", keys="integer") as db:
        list(db.add_many(fpdb.Document(number, text) for number, text in texts.items()))
        near = {(pair.key, pair.other) for pair in db.pairs(**asked)}
        expected = []
        for cluster in db.clusters(**asked, keep=keep):
            whole = set(cluster.keys)
            while whole:
                best = max(whole, key=lambda n: (len(texts[n]) * (keep == "longest"), -n))
                part = {n for n in whole if (min(n, best), max(n, best)) in near} | {best}
                whole -= part
                if len(part) > 1:
                    expected.append((best, *sorted(part - {best})))
        found = [each.keys for each in db.clusters(**asked, keep=keep, tight=True)]
        assert found == expected
        assert len(found) > 1
        assert db.delete_duplicates(**asked, keep=keep, tight=True) == [
            fpdb.Cluster(best, tuple(others)) for best, *others in expected
        ]
