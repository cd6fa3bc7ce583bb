"""Permutation tables: 4 with a prefix of 16 bits, 16 with one of 28 from nested blocks.

A query at any k finds what a comparison with every stored fingerprint does, wherever its prefix
lies: inside a page, over the border of two, before the first and behind the last.
"""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

import fpdb


@pytest.fixture
def numbers():
    """Random numbers, the same ones in each run of a test."""
    return np.random.default_rng(7)


def near(stored, queries, k):
    """Compare each query with every stored fingerprint."""
    stored = stored.reshape(len(stored), -1)
    rows = []
    for place, query in enumerate(queries.reshape(len(queries), -1)):
        distances = np.bitwise_count(stored ^ query).sum(axis=1)
        rows += [(place, int(distances[key]), int(key)) for key in np.flatnonzero(distances <= k)]
    return sorted(rows)


def flipped(numbers, fingerprints, bits, most):
    """Flip up to `most` of the bits of each fingerprint."""
    changed = fingerprints.copy()
    for row in changed.reshape(len(changed), -1):
        for bit in numbers.integers(0, bits, numbers.integers(0, most + 1)):
            word = len(row) - 1 - bit // 64
            row[word] ^= np.uint64(1) << np.uint64(bit % 64)
    return changed


def fingerprints_of(numbers, count, bits):
    if bits == 128:
        return numbers.integers(0, 2**64, (count, 2), np.uint64)
    return numbers.integers(0, 2**bits, count, np.uint64, endpoint=False)


def answers(db, queries, k):
    hits = db.query_fingerprints(queries, k=k)
    assert hits.complete.all()
    columns = (hits.queries, hits.distances, hits.ids)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_the_planner_has_both_designs(run):
    plans = json.loads(run("plan", "-k", 3, "--documents", "1e6", "--json").out)["plans"]
    names = {plan["name"]: plan["probes"] for plan in plans}
    assert names["4 tables, p=16"] == 4
    assert names["16 tables, p=28"] == 16


def test_the_sixteen_tables_lead_with_a_block_and_a_block_of_the_others():
    [plan] = [plan for plan in fpdb.plans(64, 3, 1_000_000) if len(plan.tables) == 16]
    prefixes = set()
    for table in plan.to_dict()["tables"]:
        bits = [start + place for start, length in table["blocks"] for place in range(length)]
        assert sorted(bits) == list(range(64))
        assert table["prefix"] == 28
        prefixes.add(frozenset(bits[:28]))
    expected = set()
    for block in range(0, 64, 16):
        others = [bit for bit in range(64) if not block <= bit < block + 16]
        for nested in range(0, 48, 12):
            expected.add(frozenset(range(block, block + 16)) | set(others[nested : nested + 12]))
    assert prefixes == expected


PLANS = [(64, 3, 4), (64, 3, 16), (64, 3, 2), (64, 4, 5), (64, 1, None), (32, 2, None)]
PLANS += [(128, 3, 4), (128, 5, None)]


@pytest.mark.parametrize(("bits", "k", "tables"), PLANS)
def test_queries_find_what_a_comparison_with_all_does(tmp_path, numbers, bits, k, tables):
    plans = fpdb.plans(bits, k, 1_000_000)
    plan = next(plan for plan in plans if tables in {None, len(plan.tables)})
    recipe = {32: "none-32", 64: "none", 128: "none-128"}[bits]
    first = fingerprints_of(numbers, 1500, bits)
    stored = np.concatenate([first, flipped(numbers, first, bits, k + 1), first[:100]])
    with fpdb.create(
        tmp_path / "db", recipe=recipe, similarity=None, k=k, keys="integer", plan=plan
    ) as db:
        db.add_fingerprints(range(len(stored)), stored)
        queries = flipped(numbers, first[:150], bits, k)
        for radius in {0, k, k + 1}:
            assert answers(db, queries, radius) == near(stored, queries, radius)
        assert len(near(stored, queries, k)) > len(queries)


def crowded(numbers):
    """Return fingerprints of which many share a prefix, some at both ends of each table."""
    top = 2**64 - 1
    shared = [0xABCD << 48 | int(low) for low in numbers.integers(0, 2**20, 4000)]
    shared += [0xABCD << 48 | int(high) << 36 for high in numbers.integers(0, 2**12, 1000)]
    ends = [0, 1, top, top - 1, 0xABCD << 48, (0xABCE << 48) - 1, 0xABCC << 48, 0xABCE << 48]
    even = [step << 51 for step in range(1 << 13)]
    return np.array([*shared, *ends, *even, *[0x1234_5678_9ABC_DEF0] * 900], np.uint64)


@pytest.mark.process
@pytest.mark.parametrize("tables", [4, 16])
def test_a_prefix_is_found_in_and_between_pages(tmp_path, numbers, tables):
    plan = next(plan for plan in fpdb.plans(64, 3, 1_000_000) if len(plan.tables) == tables)
    stored = crowded(numbers)
    with fpdb.create(tmp_path / "db", similarity=None, k=3, keys="integer", plan=plan) as db:
        # In pieces, so that pages are divided, and not only packed one behind the other.
        for part in np.array_split(numbers.permutation(len(stored)), 7):
            db.add_fingerprints(part.astype(np.uint64), stored[part])
        assert next(fpdb.check(tmp_path / "db"), None) is None
        places = np.linspace(0, len(stored) - 1, 120).astype(int)
        queries = np.concatenate([stored[places], flipped(numbers, stored[places], 64, 3)])
        wanted = near(stored, queries, 3)
        assert answers(db, queries, 3) == wanted
        for place, query in list(enumerate(queries))[::8]:
            found = db.query_fingerprint(int(query), k=3)
            rows = [(place, match.distance, match.key) for match in found]
            assert rows == [row for row in wanted if row[0] == place]


@settings(max_examples=examples(100))
@given(
    stored=st.lists(st.integers(0, 63).map(lambda low: low * (2**58 + 1)), max_size=30),
    query=st.integers(0, 63).map(lambda low: low * (2**58 + 1)),
    k=st.integers(0, 6),
)
def test_few_fingerprints_at_any_k(tmp_path_factory, stored, query, k):
    path = tmp_path_factory.mktemp("few") / "db"
    with fpdb.create(path, similarity=None, k=3, keys="integer") as db:
        db.add_fingerprints(range(len(stored)), np.array(stored, np.uint64))
        rows = sorted((match.distance, match.key) for match in db.query_fingerprint(query, k=k))
    pairs = [((value ^ query).bit_count(), key) for key, value in enumerate(stored)]
    assert rows == sorted(pair for pair in pairs if pair[0] <= k)
