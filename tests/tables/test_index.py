"""The permutation tables against brute force, without documents around them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from blocks import plan_of_blocks

from fpdb.arrays import Rows
from fpdb.storage import Environment, ReadTransaction, WriteTransaction, number_pages
from fpdb.tables import Index
from fpdb.tables import sorted_pages as pages_module
from fpdb.tables.bits import Fingerprints, to_array, to_ints
from fpdb.tables.bulk_load import load_tables
from fpdb.tables.index import HIGH_BITS
from fpdb.tables.plan import choose_plan, home_plan, nested_plan

PLENTY = 10**9

PLANS = {
    "home only": home_plan(64, 2, 16),
    "choose 1": choose_plan(64, 3),
    "choose 2": choose_plan(64, 3, choose=2),
    "nested": nested_plan(64, 3),
    "32 bits": choose_plan(32, 3),
    "32 bits, sizes by hand": plan_of_blocks((3, 20, 9), 2),
    "128 bits": choose_plan(128, 3),
    "128 bits, choose 2": choose_plan(128, 2, choose=2),
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    names = [f"table-{number:02d}{level}" for number in range(16) for level in ("", "-recent")]
    with Environment.create(tmp_path_factory.mktemp("index") / "db", names) as env:
        yield env


def fill(txn: WriteTransaction, index: Index, fingerprints: Fingerprints, ids: Any) -> None:
    load_tables(txn, index, lambda: [(fingerprints, ids)], len(ids))


def words(dice: np.random.Generator, bits: int, count: int) -> Fingerprints:
    array = dice.integers(0, 2**64, (count, 2), np.uint64)
    return array if bits == 128 else array[:, 0] >> np.uint64(64 - bits)


def numbered(index: Index, numbers: list[int], first: int = 0) -> Rows:
    ids = np.arange(first, first + len(numbers), dtype=np.uint64)
    return [to_array(numbers, index.plan.bits), ids]


@pytest.mark.parametrize("bits", [32, 64, 128])
@pytest.mark.parametrize("where", ["home", "further"])
def test_a_probe_reads_its_range_to_both_ends(
    bits: int, where: str, undone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dense fingerprints, so that ranges of four begin and end where pages do."""
    # The table with the longer prefix answers for k = 0.
    sizes = (bits - 2, 2) if where == "home" else (2, bits - 2)
    plan = plan_of_blocks(sizes, 1)
    index = Index(plan)
    table = 0 if where == "home" else 1
    assert [probes.table for probes in plan.probes(0)] == [table]
    step = 1 if bits < 128 else 2**62
    stored = [
        plan.tables[table].permutation.inverse.apply_one(place * step) for place in range(400)
    ]

    for largest in range(60, 100, 3):
        monkeypatch.setattr(number_pages, "LARGEST", largest)
        monkeypatch.setattr(pages_module, "LARGEST", largest)
        with undone() as txn:
            fill(txn, index, *numbered(index, stored))
            for number in stored:
                assert index.near(txn, number, 0, PLENTY).distances == {number: 0}


@pytest.mark.parametrize("bits", [64, 128])
def test_a_budget_that_ends_the_search_is_declared(bits: int, undone: Any) -> None:
    dice = np.random.default_rng(6)
    plan = choose_plan(bits, 3)
    index = Index(plan)
    # All share their highest quarter, and differ after it.
    head = int(dice.integers(2**16)) << (bits - 16)
    stored = [head | n >> 32 for n in to_ints(words(dice, bits, 5000))]

    with undone() as txn:
        fill(txn, index, *numbered(index, stored))
        read = _candidates(txn, index, stored[2500])
        for own in (stored[0], stored[2500], max(stored)):
            for budget in (0, 1, 100, 1000, 4000):
                found = index.near(txn, own, 3, budget)
                assert not found.complete
                assert found.distances[own] == 0
                assert all((n ^ own).bit_count() == d <= 3 for n, d in found.distances.items())
            assert index.near(txn, own, 3, PLENTY).complete
        # What isn't stored isn't found because a budget ran out.
        assert head ^ 5 not in index.near(txn, head ^ 5, 0, 0).distances
        # The budget counts what is read: with just enough of it the answer is complete.
        assert index.near(txn, stored[2500], 3, read).complete
        assert not index.near(txn, stored[2500], 3, read - 1).complete


@pytest.mark.parametrize("plan", ["choose 1", "choose 2", "128 bits"])
def test_a_crowd_in_one_table_hides_nothing_that_another_finds(plan: str, undone: Any) -> None:
    index = Index(PLANS[plan])
    dice = np.random.default_rng(9)
    bits = index.plan.bits
    [own] = to_ints(words(dice, bits, 1))
    routes = index.routes(index.plan.k)

    for crowded, route in enumerate(routes):
        # All of the crowd share the query's prefix in one table, and change many other bits.
        permuted = route.permutation.apply_one(own)
        below = route.below.bit_length()
        crowd = {permuted ^ int(n) for n in dice.integers(0, 1 << min(below, 62), 3000)}
        back = route.permutation.inverse
        stored = [back.apply_one(n) for n in crowd if (n ^ permuted).bit_count() > index.plan.k]
        # The original differs in one bit of that prefix, so only another table finds it.
        original = back.apply_one(permuted ^ 1 << bits - 1)

        with undone() as txn:
            fill(txn, index, *numbered(index, [*stored, original]))
            found = index.near(txn, own, index.plan.k, 1500)
            assert not found.complete
            assert found.distances == {original: 1}, crowded
            # What the other tables don't need is enough for the crowd.
            found = index.near(txn, own, index.plan.k, 10_000)
            assert (found.complete, found.distances) == (True, {original: 1})


def _candidates(txn: ReadTransaction, index: Index, number: int) -> int:
    """The smallest budget that lets a query finish, by bisection."""
    low, high = 0, PLENTY
    while low < high:
        middle = (low + high) // 2
        if index.near(txn, number, 3, middle).complete:
            high = middle
        else:
            low = middle + 1
    return low


@pytest.mark.parametrize("bits", [32, 64, 128])
@pytest.mark.parametrize("number", [0, 77, None], ids=["lowest", "within", "highest"])
def test_the_ids_of_one_fingerprint_span_pages(bits: int, number: int | None, undone: Any) -> None:
    index = Index(home_plan(bits, 1, 8))
    hot = 2**bits - 1 if number is None else number
    others = [n for n in (0, 76, 78, 2**bits - 2, 2**bits - 1) if n != hot]
    ids = [*range(0, 10_000, 2), 2**32, 2**64 - 1]

    with undone() as txn:
        fill(txn, index, to_array([hot] * len(ids), bits), np.array(ids, np.uint64))
        index.update(txn, [numbered(index, others, 50_001)])
        assert len(list(index.home.scan(txn))) > 3
        assert list(index.ids(txn, hot, 1 << 20)) == ids
        for place, other in enumerate(others):
            assert list(index.ids(txn, other, 1 << 20)) == [50_001 + place]
        assert list(index.ids(txn, 12_345, 1 << 20)) == []
        assert index.near(txn, hot, 0, PLENTY).distances == {hot: 0}
        gone = [to_array([hot] * 3000, bits), np.array(ids[:3000], np.uint64)]
        index.update(txn, [numbered(index, [])], [gone])
        assert list(index.ids(txn, hot, 1 << 20)) == ids[3000:]


@pytest.mark.parametrize("bits", [32, 64, 128])
def test_a_document_is_located_by_its_id_and_the_highest_bits(bits: int, undone: Any) -> None:
    index = Index(home_plan(bits, 1, 8))
    below = bits - HIGH_BITS
    dice = np.random.default_rng(2)
    placed: list[tuple[int, int]] = []
    number = 0
    for high in (0, 1, 5, 2**23, 2**24 - 2, 2**24 - 1):
        lows = sorted(
            {0, (1 << below) - 1, *(int(n) % (1 << below) for n in dice.integers(0, 2**63, 40))}
        )
        for low in lows:
            # Long runs of equal fingerprints among single ones.
            for _ in range(900 if low in (lows[0], lows[-1]) else 3):
                placed.append((high << below | low, number))
                number += 1
    ids = dice.permutation(number).astype(np.uint64)
    ids[0], ids[-1] = 2**64 - 1, 2**63

    with undone() as txn:
        fill(txn, index, to_array([fingerprint for fingerprint, _ in placed], bits), ids)
        for place in [0, number - 1, *range(0, number, 37)]:
            fingerprint, own = placed[place][0], int(ids[place])
            assert index.locate(txn, fingerprint >> below, own) == fingerprint
        for high, own in ((0, number + 5), (5, number + 5), (2**24 - 1, 2**64 - 2), (3, 4)):
            assert index.locate(txn, high, own) is None
        # The right id under other bits isn't there.
        assert index.locate(txn, 0, int(ids[-1])) is None


def test_a_wide_run_is_crossed_in_few_steps(undone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a run of equal fingerprints nor a crowd of near ones makes locating slow."""
    index = Index(home_plan(64, 1, 8))
    crowd = [5 << 64 - HIGH_BITS | n for n in range(3000)]
    run = [5 << 64 - HIGH_BITS | 3000] * 100_000
    last = 5 << 64 - HIGH_BITS | 3001
    steps = 0
    original = pages_module.seek

    def counting(*arguments: Any) -> bool:
        nonlocal steps
        steps += 1
        return original(*arguments)

    monkeypatch.setattr("fpdb.tables.index.seek", counting)

    with undone() as txn:
        fill(txn, index, *numbered(index, [*crowd, *run, last], 10))
        pages = sum(1 for _ in index.home.scan(txn))
        assert pages > 50
        assert index.locate(txn, 5, 10 + 103_000) == last
        assert steps < 20
