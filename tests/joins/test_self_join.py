"""All pairs and clusters of a database, against a comparison of all with all."""

import itertools

import numpy as np
import pytest
from blocks import plan_of_blocks
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

import fpdb
from fpdb import Cluster, Pair
from fpdb.errors import InputError, PlanError
from fpdb.joins import clusters, join, pairs
from fpdb.tables.plan import choose_plan, home_plan, nested_plan

PLANS = {
    "4 blocks": choose_plan(64, 3),
    "3 blocks": choose_plan(64, 3, 3),
    "2 blocks": choose_plan(64, 3, 2),
    "nested": nested_plan(64, 3),
    "2 of 5": choose_plan(64, 3, choose=2),
    "home": home_plan(64, 0, 32),
    "narrow": choose_plan(32, 1),
    "narrow home": home_plan(32, 1, 8),
    "wide": choose_plan(128, 3),
    "uneven": plan_of_blocks((30, 20, 9, 5), 3),
}


def drawn(generator, bits, count):
    """Fingerprints near a few bases, with many pairs of each distance, and some equal ones."""
    bases = [int.from_bytes(generator.bytes(bits // 8), "big") for _ in range(8)]
    found = []
    for _ in range(count):
        number = bases[generator.integers(len(bases))]
        for _ in range(generator.integers(8)):
            number ^= 1 << int(generator.integers(bits))
        found.append(number)
    return found


def make(path, numbers, plan, keys="integer"):
    recipe = fpdb.recipe("web").with_bits(plan.bits)
    db = fpdb.create(path, recipe=recipe, similarity=None, k=plan.k, plan=plan, keys=keys)
    names = range(len(numbers)) if keys == "integer" else [f"key {n}" for n in range(len(numbers))]
    db.add_fingerprints(names, numbers)
    return db


def brute(numbers, k, bits):
    """All pairs within k, compared one by one."""
    return [
        Pair(a, b, apart, None)
        for (a, one), (b, other) in itertools.combinations(enumerate(numbers), 2)
        if (apart := (one ^ other).bit_count()) <= k
    ]


def components(count, found):
    """The connected ones of two and more, by a plain union-find."""
    parents = list(range(count))

    def root(number):
        while parents[number] != number:
            number = parents[number]
        return number

    for pair in found:
        low, high = sorted((root(pair.key), root(pair.other)))
        parents[high] = low
    trees = {}
    for number in range(count):
        trees.setdefault(root(number), []).append(number)
    return [Cluster(own[0], tuple(own[1:])) for own in trees.values() if len(own) > 1]


@pytest.fixture(params=["as it is", "small chunks", "everything cut"])
def sizes(request, monkeypatch):
    """Bounds so small that every way through the join is taken."""
    if request.param != "as it is":
        small = {"_CHUNK": 60, "_GATHERED": 100, "_TOGETHER": 40, "_CROWD": 20}
        for module, sizes in (
            (join, small | {"_TILE": 32, "_PAIRS": 50}),
            (pairs, {"_ROWS": 7, "_NEAR": 20, "_PAIRS": 9}),
            (clusters, {"_CONNECTIONS": 20}),
        ):
            for name, size in sizes.items():
                monkeypatch.setattr(module, name, size)
    if request.param == "everything cut":
        monkeypatch.setattr(join, "_SORT", 1.0)


@pytest.mark.parametrize("name", PLANS)
def test_each_pair_is_found_once(tmp_path, sizes, name):
    plan = PLANS[name]
    numbers = drawn(np.random.default_rng(len(name)), plan.bits, 110)
    numbers += [*numbers[:9], *[numbers[7]] * 6, 0, (1 << plan.bits) - 1]
    with make(tmp_path / "db", numbers, plan) as db:
        for k in (0, plan.k, plan.k + 1, plan.k + 3):
            try:
                found = list(db.pairs(k=k))
            except PlanError:
                assert k > plan.k + 1
                continue
            expected = brute(numbers, k, plan.bits)
            assert sorted(found) == expected
            assert list(db.clusters(k=k, chains=True)) == components(len(numbers), expected)


@settings(max_examples=examples(100))
@given(
    st.lists(st.integers(0, 255).map(lambda n: (n & 15) * 0x1000_2000_4000_8001 ^ n), max_size=30),
    st.integers(0, 6),
    st.sampled_from(sorted(PLANS)),
)
def test_pairs_of_any_fingerprints(tmp_path_factory, numbers, k, name):
    plan = PLANS[name]
    numbers = [number & (1 << plan.bits) - 1 for number in numbers]
    with make(tmp_path_factory.mktemp("any") / "db", numbers, plan) as db:
        try:
            plan.probes(k)
        except PlanError:
            with pytest.raises(PlanError):
                db.pairs(k=k)
            return
        expected = brute(numbers, k, plan.bits)
        assert sorted(db.pairs(k=k)) == expected
        assert list(db.clusters(k=k, chains=True)) == components(len(numbers), expected)


def test_a_hot_fingerprint_is_one_cluster(tmp_path):
    random = np.random.default_rng(4).integers(0, 1 << 64, 30_000, np.uint64)
    numbers = np.append(np.full(30_000, random[5]), random)
    numbers[7] ^= np.uint64(6)
    with make(tmp_path / "db", numbers, PLANS["4 blocks"]) as db:
        for chains in (False, True):
            [cluster] = db.clusters(chains=chains)
            assert cluster.keys == (*range(30_000), 30_005)
        # Half a billion pairs are there; they come one after the other.
        first = list(itertools.islice(db.pairs(), 50_000))
        assert len(set(first)) == 50_000
        assert {pair.distance for pair in first} == {0}


def test_a_hot_bucket_of_near_fingerprints(tmp_path, sizes):
    """All of them differ in the last bits only, so that no cut divides them."""
    numbers = list(range(64, 128))
    with make(tmp_path / "db", numbers, PLANS["4 blocks"]) as db:
        for k in (3, 6):
            assert sorted(db.pairs(k=k)) == brute(numbers, k, 64)


def test_short_texts_have_no_pairs(tmp_path):
    with fpdb.create(tmp_path / "db") as db:
        assert [db.add(key, "not found").status for key in "ab"] == ["short", "short"]
        assert list(db.pairs()) == list(db.clusters()) == []


@pytest.mark.parametrize("k", [-1, 65, 2.5, True])
def test_a_k_that_cannot_be_is_refused_at_once(tmp_path, k):
    with make(tmp_path / "db", [1, 2], PLANS["4 blocks"]) as db:
        with pytest.raises((InputError, PlanError)):
            db.pairs(k=k)
        with pytest.raises((InputError, PlanError)):
            db.clusters(k=k)


def test_keeping_something_else_is_refused(tmp_path):
    db = make(tmp_path / "db", [1, 2], PLANS["4 blocks"])
    with db, pytest.raises(InputError, match="expected first, longest, newest:FIELD or source"):
        db.clusters(keep="shortest")


TEXT = "The library lends books for four weeks; whoever keeps them longer pays a small fee"


def test_the_longest_text_is_kept(tmp_path):
    with fpdb.create(tmp_path / "db") as db:
        for key, text in (("a", TEXT), ("b", TEXT + "   "), ("c", TEXT + " "), ("d", TEXT + " . ")):
            db.add(key, text)
        number = db["a"].fingerprint
        db.add_fingerprints(["bare"], [number])
        assert list(db.clusters(k=0)) == [Cluster("a", ("b", "c", "d", "bare"))]
        # b and d are equally long, and b was added first.
        assert list(db.clusters(k=0, keep="longest")) == [Cluster("b", ("a", "c", "d", "bare"))]


def test_the_newest_date_in_the_metadata_is_kept(tmp_path):
    days = {"a": {"day": "2026-01-02"}, "b": {"day": "2026-01-10"}, "c": None, "d": ["day"]}
    with fpdb.create(tmp_path / "db") as db:
        for key, meta in days.items():
            db.add(key, TEXT, meta)
        assert list(db.clusters(keep="newest:day")) == [Cluster("b", ("a", "c", "d"))]
        missing = "no document of a cluster has a date or a number in 'date'"
        with pytest.raises(InputError, match=missing):
            db.delete_duplicates(keep="newest:date")
        with pytest.raises(InputError, match=missing):
            next(db.clusters(keep="newest:date"))
        assert len(db) == 4
        db.delete_duplicates(keep="newest:day")
        assert list(db) == ["b"]


def test_duplicates_are_deleted_together(tmp_path, monkeypatch):
    monkeypatch.setattr(fpdb.database, "BATCH", 3)
    numbers = [1, 1, 1, 1, 1, 2**40, 2**50, 2**50]
    with make(tmp_path / "db", numbers, PLANS["4 blocks"]) as db:
        assert db.delete_duplicates(k=0) == [Cluster(0, (1, 2, 3, 4)), Cluster(6, (7,))]
        assert list(db) == [0, 5, 6]
        assert list(db.check()) == []
        assert db.delete_duplicates(k=0) == []
