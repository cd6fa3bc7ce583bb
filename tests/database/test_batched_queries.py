"""Batches of queries answer as single queries do, within their budgets and in bounded memory."""

import tracemalloc

import numpy as np
import pytest
from blocks import plan_of_blocks
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

import fpdb
from fpdb import queries
from fpdb.documents import lookup
from fpdb.tables import batch, sorted_pages
from fpdb.tables.bits import to_array
from fpdb.tables.plan import choose_plan, home_plan, nested_plan

pytestmark = pytest.mark.slow("its cases compare databases with brute force, 4 s together")

PLANS = {
    "32 bits, home only": home_plan(32, 1, 8),
    "32 bits, 2 of 4 blocks": choose_plan(32, 2, choose=2),
    "64 bits, home only": home_plan(64, 2, 12),
    "64 bits, 4 blocks": choose_plan(64, 3),
    "64 bits, nested": nested_plan(64, 3),
    "64 bits, blocks of many sizes": plan_of_blocks((40, 13, 11), 2),
    "128 bits, 4 blocks": choose_plan(128, 3),
    "128 bits, one long block": plan_of_blocks((70, 58), 1),
}
WORDS = [f"word{number}" for number in range(16)]


def create(path, plan, keys="integer"):
    recipe = fpdb.recipe("web").with_bits(plan.bits)
    return fpdb.create(path, recipe=recipe, k=plan.k, plan=plan, keys=keys)


def crowd(dice, bits, count, bases=10, most=7):
    """Fingerprints near a few bases, which share bits and are often equal."""
    found = []
    for base in dice.integers(bases, size=count).tolist():
        number = int.from_bytes(np.random.default_rng(base).bytes(bits // 8), "big")
        for place in dice.integers(bits, size=dice.integers(most)).tolist():
            number ^= 1 << place
        found.append(number)
    return found


def rows(hits):
    return list(zip(hits.queries.tolist(), hits.distances.tolist(), hits.ids.tolist(), strict=True))


def rows_alone(db, queries, **options):
    """Ask for one fingerprint after the other; return the rows, and whether each has all."""
    single = [db.query_fingerprint(query, **options) for query in queries]
    found = [(place, m.distance, m.id) for place, each in enumerate(single) for m in each]
    return found, [matches.complete for matches in single]


def brute_force(stored, queries, k):
    return sorted(
        (place, (query ^ number).bit_count(), key)
        for place, query in enumerate(queries)
        for key, number in enumerate(stored)
        if (query ^ number).bit_count() <= k
    )


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(sorted_pages, "_TAKEN", 7)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_batch_and_single_queries_and_brute_force_agree(tmp_path, monkeypatch, plan):
    # So few documents would be scanned for a k above the plan's.
    monkeypatch.setattr(lookup, "scan_is_better", lambda *_: False)
    dice = np.random.default_rng(plan.bits + len(plan.tables))
    stored = crowd(dice, plan.bits, 700)
    with create(tmp_path / "db", plan) as db:
        db.add_fingerprints(range(len(stored)), stored)
        queries = crowd(dice, plan.bits, 40) + stored[:5] + stored[:2] + [0, 2**plan.bits - 1]
        for k in range(plan.k + 3):
            expected = brute_force(stored, queries, k)
            hits = db.query_fingerprints(to_array(queries, plan.bits), k=k)
            assert rows(hits) == expected
            assert hits.complete.all()
            assert rows_alone(db, queries, k=k)[0] == expected


@settings(max_examples=examples(100))
@given(
    queries=st.lists(st.integers(0, 2**32 - 1), max_size=50),
    flips=st.lists(st.tuples(st.integers(0, 49), st.integers(0, 31)), max_size=60),
    k=st.integers(0, 4),
    limit=st.none() | st.integers(1, 4),
)
def test_any_batch_answers_as_brute_force_does(tmp_path_factory, queries, flips, k, limit):
    stored = [queries[at % len(queries)] ^ (1 << bit) for at, bit in flips] if queries else [1]
    with create(tmp_path_factory.mktemp("any") / "db", choose_plan(32, 2)) as db:
        db.add_fingerprints(range(len(stored)), stored)
        expected = brute_force(stored, queries, k)
        if limit is not None:
            expected = [
                row
                for at, row in enumerate(expected)
                if at < limit or expected[at - limit][0] != row[0]
            ]
        assert rows(db.query_fingerprints(queries, k=k, limit=limit)) == expected


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(
    ("bits", "budget"), [(64, 0), (128, 50), (64, 600), (128, 2000), (64, 100_000)]
)
def test_a_batch_has_the_budgets_of_single_queries(tmp_path, monkeypatch, bits, budget):
    monkeypatch.setattr(lookup, "CANDIDATES", budget)
    monkeypatch.setattr(lookup, "DOCUMENTS", 40)
    dice = np.random.default_rng(budget)
    stored = crowd(dice, bits, 1500, bases=3)
    stored += [stored[0]] * 60
    with create(tmp_path / "db", choose_plan(bits, 3)) as db:
        db.add_fingerprints(range(len(stored)), stored)
        queries = [*crowd(dice, bits, 30, bases=5), stored[0], stored[0], stored[1]]
        for limit in (None, 1, 30, 60):
            hits = db.query_fingerprints(queries, limit=limit)
            assert (rows(hits), hits.complete.tolist()) == rows_alone(db, queries, limit=limit)


@pytest.mark.parametrize(("keys", "few"), [("text", 0), ("integer", 1000)])
def test_query_many_answers_as_query_does(tmp_path, monkeypatch, keys, few):
    dice = np.random.default_rng(5)
    texts = [" ".join(dice.choice(WORDS, size=14)) for _ in range(30)]
    texts += [*texts[:9], *(text + " indeed" for text in texts[:9])] + [
        "short",
        "",
        "too short",
    ] * 3
    name = str if keys == "text" else int
    with fpdb.create(tmp_path / "db", keys=keys, capacity=1000) as db:
        documents = [
            fpdb.Document(name(100 - place), text, {"n": place}) for place, text in enumerate(texts)
        ]
        assert len(list(db.add_many(documents))) == len(texts)
        asked = [*texts, *texts[:20], "never stored", "nothing of this was ever stored anywhere"]
        expected = {
            (k, limit): [db.query(text, k=k, limit=limit) for text in asked]
            for k in (None, 0, 5)
            for limit in (None, 1, 3)
        }
        assert any(len(matches) > 1 for matches in expected[5, None])
        assert any(match.meta for matches in expected[5, None] for match in matches)
        monkeypatch.setattr(lookup, "FEW", few)
        for held in (100_000, 1):
            monkeypatch.setattr(queries, "_MATCHES", held)
            for (k, limit), answers in expected.items():
                found = list(db.query_many(asked, k=k, limit=limit))
                assert found == answers
                complete = [matches.complete for matches in answers]
                assert [matches.complete for matches in found] == complete


def test_copies_of_one_fingerprint_take_bounded_time_and_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(lookup, "DOCUMENTS", 50)
    hot = 0x0123456789ABCDEF
    dice = np.random.default_rng(8)
    stored = dice.integers(0, 1 << 64, 40_000, dtype=np.uint64)
    stored[:20_000] = hot
    with create(tmp_path / "db", choose_plan(64, 3)) as db:
        db.add_fingerprints(range(len(stored)), stored)
        queries = np.full(1000, hot, np.uint64)
        queries[::2] ^= np.uint64(1)
        tracemalloc.start()
        hits = db.query_fingerprints(queries)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(hits.ids) == 50 * len(queries)
        assert not hits.complete.any()
        # Not a thousand times twenty thousand rows.
        assert peak < 20 << 20
        [single] = [db.query_fingerprint(hot)]
        assert (len(single), single.complete) == (50, False)
        assert [match.id for match in single] == hits.ids[50:100].tolist()
        nearest = db.query_fingerprints(queries, limit=1)
        assert nearest.ids.tolist() == [0] * 1000
        assert nearest.distances.tolist() == [1, 0] * 500


def test_the_memory_of_a_batch_does_not_grow_with_its_candidates(tmp_path):
    dice = np.random.default_rng(9)
    # All in one bucket of the home table, and few near another.
    stored = dice.integers(0, 1 << 48, 60_000, dtype=np.uint64)
    with create(tmp_path / "db", choose_plan(64, 3)) as db:
        db.add_fingerprints(range(len(stored)), stored)
        queries = stored[:300]
        tracemalloc.start()
        hits = db.query_fingerprints(queries, k=0)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert hits.ids.tolist() == list(range(300))
        assert peak < 16 << 20  # the candidates are 18 million


def test_an_answer_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(batch, "MOST_HITS", 100)
    with create(tmp_path / "db", choose_plan(64, 3)) as db:
        db.add_fingerprints(range(20), [7] * 20)
        with pytest.raises(fpdb.InputError, match="has 120 hits, at most 100") as caught:
            db.query_fingerprints([7] * 6)
        assert caught.value.hint
        assert len(db.query_fingerprints([7] * 6, limit=3).ids) == 18


@pytest.mark.slow("a crowd has more near fingerprints than are held at once")
@pytest.mark.parametrize(("bits", "limit"), [(64, 2), (128, None)])
def test_a_crowd_is_asked_in_halves(tmp_path, monkeypatch, bits, limit):
    """Queries with more near fingerprints than are held at once get the same answers."""
    monkeypatch.setattr("fpdb.tables.batch._HELD", 500)
    monkeypatch.setattr(lookup, "FEW", 4)
    numbers = [number << 30 for number in range(256)] + [7 << 30] * 30
    with create(tmp_path / "db", choose_plan(bits, 4)) as db:
        db.add_fingerprints(range(len(numbers)), numbers)
        expected, _ = rows_alone(db, numbers[:80], k=4, limit=limit)
        assert len(expected) > 500 or limit
        hits = db.query_fingerprints(to_array(numbers[:80], bits), k=4, limit=limit)
        assert hits.complete.all()
        assert rows(hits) == expected


def test_no_queries_and_no_documents_give_empty_columns(tmp_path):
    with fpdb.create(tmp_path / "db") as db:
        for queries in ([], [1, 2, 3]):
            hits = db.query_fingerprints(queries)
            assert [len(column) for column in hits] == [0, 0, 0, len(queries)]
            assert [column.dtype for column in hits] == [np.int64, np.uint64, np.uint8, np.bool_]
            assert hits.complete.all()
