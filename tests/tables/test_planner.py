"""Plans: the known designs, what they cost, and proof that their probes leave nothing out."""

import contextlib
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import comb
from typing import Any

import numpy as np
import pytest
from blocks import plan_of_blocks
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from fpdb.errors import PlanError
from fpdb.tables import planner, probes
from fpdb.tables.bits import Fingerprints, Permutation, to_ints
from fpdb.tables.plan import (
    Bands,
    Plan,
    Table,
    TableProbes,
    choose_plan,
    home_plan,
    nested_plan,
)
from fpdb.tables.planner import (
    JoinPlan,
    best_plan,
    chance_matches,
    choose_bands,
    estimate_cost,
    join_plans,
    plans,
)

PAPER = [
    (choose_plan(64, 3), 4, 16, 262_144),
    (nested_plan(64, 3), 16, 28, 64),
    (choose_plan(64, 3, choose=2), 10, 25, 512),
    (choose_plan(64, 3, choose=3), 20, 31, 8),
]


def missed(
    tables: Sequence[Table],
    probes: Sequence[TableProbes],
    k: int,
    changes: Fingerprints | None = None,
) -> list[int]:
    """All changes of at most k bits that no probe finds. Permuting a change permutes its bits."""
    bits = tables[0].permutation.bits
    if changes is None:
        changes = np.arange(2**bits, dtype=np.uint64)
        changes = changes[np.bitwise_count(changes) <= k]
    found = np.zeros(len(changes), dtype=bool)
    for index, masks in probes:
        table = tables[index]
        moved = table.permutation.apply(changes)
        high, width = (moved, bits) if bits <= 64 else (moved[:, 0], 64)
        prefixes = high >> np.uint64(width - table.prefix)
        found |= np.isin(prefixes, np.array(masks, dtype=np.uint64))
    return to_ints(changes[~found])


def count(plan: Plan, k: int) -> int:
    return sum(len(masks) for _, masks in plan.probes(k))


@st.composite
def any_tables(draw: st.DrawFn) -> tuple[Table, ...]:
    bits = draw(st.integers(2, 9))
    tables = [Table(Permutation(bits, ((0, bits),)), draw(st.integers(1, bits)))]
    for _ in range(draw(st.integers(0, 5))):
        blocks = tuple((bit, 1) for bit in draw(st.permutations(range(bits))))
        tables.append(Table(Permutation(bits, blocks), draw(st.integers(1, bits))))
    return tuple(tables)


@pytest.mark.parametrize("counts", [probes.MOST_COUNTS, 0], ids=["", "by sums alone"])
@settings(max_examples=examples(100))
@given(tables=any_tables(), k=st.integers(0, 9))
def test_whatever_the_tables_are_nothing_is_missed(
    tables: tuple[Table, ...], k: int, counts: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probes, "MOST_COUNTS", counts)
        probes.find_probes.cache_clear()
        k = min(k, tables[0].permutation.bits)
        plan = Plan(tables[0].permutation.bits, 0, tables)
        assert missed(tables, plan.probes(k), k) == []


def fewest(plan: Plan, k: int) -> int:
    """How many probes the best radii take: all are tried, on all ways to change k bits."""
    held = [table.held for table in plan.tables]
    widths = [mask.bit_count() for mask in held]
    changes = [number for number in range(1 << plan.bits) if number.bit_count() <= k]
    ways = {tuple((number & mask).bit_count() for mask in held) for number in changes}
    counts = []
    for radii in itertools.product(*(range(-1, min(k, width) + 1) for width in widths)):
        if all(any(a <= b for a, b in zip(way, radii, strict=True)) for way in ways):
            pairs = zip(widths, radii, strict=True)
            counts.append(sum(comb(width, n) for width, radius in pairs for n in range(radius + 1)))
    return min(counts)


@pytest.mark.parametrize(
    ("plan", "radii"),
    [
        (choose_plan(9, 1, 3, 2), (0, 1, 2, 3)),
        (choose_plan(8, 1, 4, 2), (0, 2, 3)),
        (choose_plan(12, 3), (0, 1, 2, 3, 4)),
        (nested_plan(8, 1), (0, 1, 2)),
        (plan_of_blocks([6, 3, 2], 2), (0, 1, 2)),
        (home_plan(8, 2, 5), (0, 1, 2, 3, 5)),
        # The second table at radius 2 is all there is, in four probes.
        (Plan(12, 0, (*home_plan(12, 0, 12).tables, *home_plan(12, 0, 2).tables)), (4,)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_no_radii_take_fewer_probes(plan: Plan, radii: tuple[int, ...]) -> None:
    for k in radii:
        assert count(plan, k) == fewest(plan, k)
        assert missed(plan.tables, plan.probes(k), k) == []
    # Of six pairs of four blocks, three leave no block out; sums alone take four.
    assert count(choose_plan(8, 1, 4, 2), 1) == 3


def test_the_limits_of_probes_and_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (probes.MOST_PROBES, probes.MOST_COUNTS) == (20_000, 8_000_000)
    # Eight bits change: two in each of four prefixes of 16 bits, or one in three of them and more
    # in one. So three tables take 1 + 16 probes, and the last 1 + 16 + 120.
    for most, fits in ((188, True), (187, False)):
        monkeypatch.setattr(probes, "MOST_PROBES", most)
        probes.find_probes.cache_clear()
        with contextlib.nullcontext() if fits else pytest.raises(PlanError, match="188 probes"):
            assert count(choose_plan(64, 3), 8) == 188
    home = choose_plan(128, 0).tables
    assert home[0].prefix == 64
    assert Plan(128, 0, home * 64).name == "64 tables, p=64"
    with pytest.raises(PlanError, match="65 tables; at most 64"):
        Plan(128, 0, home * 65)
    assert Plan(128, 0, home).name == "1 table, p=64"
    assert Plan(128, 0, home * 2, Bands(1, 1)).name == "2 tables, p=64; 1 band of 1 bin"
    assert Plan(128, 0, home * 2, Bands(2, 2)).name == "2 tables, p=64; 2 bands of 2 bins"


def test_a_small_nested_plan_by_hand() -> None:
    """Of three bits the first two lead, then the last: before what remains, and its other half."""
    tables = nested_plan(3, 1).tables
    assert [(table.permutation.blocks, table.prefix) for table in tables] == [
        (((0, 3),), 3),
        (((0, 3),), 2),
        (((2, 1), (0, 2)), 2),
        (((2, 1), (1, 1), (0, 1)), 2),
    ]


@pytest.mark.parametrize("more", range(2))
def test_each_probe_is_needed(more: int) -> None:
    """Guards the checks above: they must notice when a single probe is gone."""
    plan = choose_plan(12, 3)
    probes = plan.probes(plan.k + more)
    for at, (table, masks) in enumerate(probes):
        for mask in masks:
            fewer = TableProbes(table, tuple(other for other in masks if other != mask))
            left = [*probes[:at], fewer, *probes[at + 1 :]]
            assert missed(plan.tables, left, plan.k + more)


@settings(max_examples=examples(100))
@given(st.sampled_from([32, 64, 128]), st.integers(0, 6), st.integers(0, 3), st.data())
def test_at_full_width_the_prefix_of_a_near_one_is_probed(
    bits: int, k: int, more: int, data: st.DataObject
) -> None:
    plan = data.draw(st.sampled_from(plans(bits, k, 1_000_000)))
    try:
        probes = plan.probes(k + more)
    except PlanError:
        return
    query = data.draw(st.integers(0, 2**bits - 1))
    flips = data.draw(st.sets(st.integers(0, bits - 1), max_size=k + more))
    near = query ^ sum(1 << bit for bit in flips)

    def prefix(fingerprint: int, table: Table) -> int:
        return table.permutation.apply_one(fingerprint) >> (bits - table.prefix)

    assert any(
        prefix(query, plan.tables[index]) ^ mask == prefix(near, plan.tables[index])
        for index, masks in probes
        for mask in masks
    )


@pytest.mark.parametrize(("plan", "tables", "prefix", "candidates"), PAPER)
def test_the_designs_of_the_paper(plan: Plan, tables: int, prefix: int, candidates: int) -> None:
    assert len(plan.tables) == tables
    assert plan.prefix == prefix
    assert plan.name == f"{tables} tables, p={prefix}"
    assert [masks for _, masks in plan.probes()] == [(0,)] * tables
    expected = estimate_cost(plan, 2**34)
    assert expected.probes == tables
    assert expected.candidates_per_probe <= candidates
    assert plan in plans(64, 3, 2**34)


def test_probes_for_a_larger_k_on_four_tables() -> None:
    plan = choose_plan(64, 3)
    assert [count(plan, k) for k in range(9)] == [1, 2, 3, 4, 20, 36, 52, 68, 188]


@pytest.mark.parametrize("k", [30, -1, 65])
def test_more_probes_than_are_worth_it(k: int) -> None:
    with pytest.raises(PlanError, match=f"k = {k}"):
        choose_plan(64, 3).probes(k)


@pytest.mark.parametrize("bits", [32, 64, 128])
@pytest.mark.parametrize("k", range(9))
def test_all_plans_offered_are_whole(bits: int, k: int) -> None:
    offered = plans(bits, k, 1_000_000)
    assert offered
    assert len({plan.name for plan in offered}) == len(offered)
    for plan in offered:
        assert (plan.bits, plan.k) == (bits, k)
        assert plan.tables[0].permutation.identity
        assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    costs = [estimate_cost(plan, 1_000_000).seconds_per_document for plan in offered]
    assert costs == sorted(costs)


def test_the_best_plan_grows_with_the_documents() -> None:
    for documents in (1_000_000, 10_000_000):
        assert plans(64, 3, documents)[0].name == "4 tables, p=16"
    best = plans(64, 3, 8_000_000_000)[0]
    assert best.prefix > 16
    assert len(best.tables) > 4


@pytest.mark.parametrize(("bits", "k"), planner._USUAL)
def test_the_usual_plans_are_the_best_that_a_search_finds(bits: int, k: int) -> None:
    _, least, most = planner._USUAL[bits, k]
    for documents in {least, 2 * least, 1_000_000, most // 2, most, 10 * most}:
        assert best_plan(bits, k, documents) == plans(bits, k, documents)[0]
    assert best_plan(bits, k, most, similarity=0.8).bands == choose_bands(0.8, most)


def test_equal_fingerprints_need_one_table() -> None:
    (plan,) = plans(64, 0, 1_000_000)
    assert len(plan.tables) == 1
    assert plan.probes() == (TableProbes(0, (0,)),)
    assert count(plan, 1) == 33


def test_what_no_tables_can_do_names_what_they_can() -> None:
    with pytest.raises(PlanError, match="k = 16 in 32 bits") as caught:
        plans(32, 16, 1_000_000)
    largest = int(caught.value.hint.split("k can be ")[1].split(";")[0])
    assert plans(32, largest, 1_000_000)
    with pytest.raises(PlanError):
        plans(32, largest + 1, 1_000_000)


def test_what_cannot_be_planned() -> None:
    two = choose_plan(8, 1).tables
    wrong: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
        *((plans, each) for each in [(48, 3, 1), (64, 25, 1), (64, -1, 1), (64, 3, 0)]),
        # More blocks than bits, none chosen, and more chosen than there are.
        *((choose_plan, each) for each in [(8, 8), (8, 1, None, 0), (8, 1, 2, 3)]),
        *((home_plan, each) for each in [(8, 1, 9), (8, 9, 8)]),
        # No tables, no home table, two widths.
        *((Plan, (8, 1, each)) for each in [(), two[1:], (*two, *choose_plan(10, 1).tables)]),
        *((Bands, each) for each in [(0, 6), (6, 0), (-1, 6), (43, 6), (1, 15), (257, 1)]),
        *((chance_matches, each) for each in [(48, 3, 1), (64, -1, 1), (64, 65, 1), (64, 3, 0)]),
        *((join_plans, each) for each in [(48, 3, 10), (64, 25, 10), (64, -1, 10), (64, 3, 0)]),
        (partial(join_plans, queries=0), (64, 3, 10)),
    ]
    for make, arguments in wrong:
        with pytest.raises(PlanError) as caught:
            make(*arguments)
        assert caught.value.hint
        assert isinstance(caught.value, ValueError)


def broken() -> list[Any]:
    whole = choose_plan(64, 3).to_dict()
    table = whole["tables"][1]
    return [
        None,
        [],
        {},
        {**whole, "bits": "64"},
        {**whole, "bits": 32},
        {**whole, "k": True},
        {**whole, "k": -1},
        {**whole, "tables": None},
        {**whole, "tables": []},
        {**whole, "tables": [table]},
        {**whole, "tables": [*whole["tables"], {**table, "prefix": 0}]},
        {**whole, "tables": [*whole["tables"], {**table, "prefix": 65}]},
        {**whole, "tables": [*whole["tables"], {**table, "blocks": [[0, 16]]}]},
        {**whole, "tables": [*whole["tables"], {**table, "blocks": [[0, 16, 2]]}]},
        {**whole, "tables": [*whole["tables"], {**table, "blocks": [0, 64]}]},
        {**whole, "tables": [*whole["tables"], {"prefix": 16}]},
        {**whole, "bands": 5},
        {**whole, "bands": {"count": 6}},
        {**whole, "bands": {"count": 6, "bins": 8.0}},
        {**whole, "bands": {"count": 60, "bins": 8}},
    ]


@pytest.mark.parametrize("data", broken(), ids=str)
def test_broken_data_is_no_plan(data: Any) -> None:
    with pytest.raises(PlanError) as caught:
        Plan.from_dict(data)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("similarity", "documents", "expected"),
    [
        *(
            (0.9, 10**n, Bands(*shape))
            for n, shape in enumerate([(4, 6), (5, 7), (5, 8), (6, 9)], 6)
        ),
        *(
            (0.8, 10**n, Bands(*shape))
            for n, shape in enumerate([(9, 6), (12, 7), (15, 8), (18, 9)], 6)
        ),
        *((0.7, 10**n, Bands(29, 7)) for n in (6, 7, 8, 9)),
        (0.8, 1000, Bands(4, 3)),
        (0.5, 1_000_000, Bands(37, 4)),
        (1.0, 1_000_000, Bands(1, 5)),
    ],
)
def test_bands_chosen_for_a_similarity(similarity: float, documents: int, expected: Bands) -> None:
    """The first rows are the table of explanation/similarity.md."""
    assert choose_bands(similarity, documents) == expected


def test_recall_and_chance_by_hand() -> None:
    # A bin agrees with p = .8 + .2 / 16 = .8125, a band with p ** 6, and nine miss what all miss.
    bands = Bands(9, 6)
    assert bands.recall(0.8) == pytest.approx(1 - (1 - 0.8125**6) ** 9, abs=1e-12)
    assert bands.recall(0.8) == pytest.approx(0.9528, abs=5e-5)
    assert Bands(8, 6).recall(0.8) == pytest.approx(0.9337, abs=5e-5)
    assert bands.suffice(0.8)
    assert not bands.suffice(0.79)
    assert not Bands(8, 6).suffice(0.8)
    assert [bands.needed(similarity) for similarity in (0.8, 0.9, 0.7, 1.0)] == [9, 4, 21, 1]
    # Six bins of four bits are one in 2 ** 24.
    assert (bands.bits, bands.chance(1 << 24)) == (24, 9.0)


@given(st.floats(0.5, 1.0), st.integers(1, 1_000_000_000))
def test_chosen_bands_find_what_is_similar_and_little_else(
    similarity: float, documents: int
) -> None:
    try:
        bands = choose_bands(similarity, documents)
    except PlanError:
        assert similarity < 0.7
        return
    assert bands.recall(similarity) >= 0.95
    assert bands.recall(min(1.0, similarity + 0.1)) >= bands.recall(similarity)
    assert bands.chance(documents) <= 1000
    # One band less finds too few, and one bin less compares too many.
    assert bands.count == 1 or Bands(bands.count - 1, bands.bins).recall(similarity) < 0.95
    if bands.bins > 1:
        fewer = bands.bins - 1
        count = next(n for n in range(1, 257) if Bands(n, fewer).recall(similarity) >= 0.95)
        assert Bands(count, fewer).chance(documents) > 1
    assert choose_bands(similarity, documents) == bands
    assert Plan.from_dict(replace(choose_plan(64, 3), bands=bands).to_dict()).bands == bands


def test_a_similarity_that_no_bands_find_names_one_that_some_do() -> None:
    with pytest.raises(PlanError, match=r"the similarity 0\.1, .* 1,000,000") as caught:
        choose_bands(0.1, 1_000_000)
    assert "fpdb.exact_pairs" in caught.value.hint
    least = float(str(caught.value).partition("at least ")[2].partition(":")[0])
    assert choose_bands(least, 1_000_000)
    with pytest.raises(PlanError):
        choose_bands(least - 0.01, 1_000_000)


@given(st.sampled_from((32, 64, 128)), st.integers(0, 7), st.data())
def test_fingerprints_within_k_agree_in_some_prefix(bits: int, k: int, data: st.DataObject) -> None:
    plan = data.draw(st.sampled_from(join_plans(bits, k, 1000)))
    changed = data.draw(st.sets(st.integers(0, bits - 1), max_size=k))
    differing = sum(1 << bit for bit in changed)
    assert any(not differing & mask for mask in plan.masks)


def test_a_join_by_hand() -> None:
    assert join_plans(64, 0, 10) == [JoinPlan(64, 0, 10, ((1 << 64) - 1,))]
    # More documents take longer prefixes, which need more masks; few queries need fewer.
    small, large = join_plans(64, 3, 1000)[0], join_plans(64, 3, 8 * 10**9)[0]
    queried = join_plans(64, 3, 8 * 10**9, queries=10)[0]
    assert len(small.masks) == 4
    assert len(large.masks) > len(queried.masks)


def test_false_matches_by_hand() -> None:
    assert chance_matches(32, 3, 10**6) == pytest.approx(1.28, abs=0.005)
    assert chance_matches(64, 3, 10**6) == pytest.approx(2.4e-9, rel=0.02)
    assert chance_matches(128, 0, 1) == 2.0**-128
    assert chance_matches(32, 32, 7) == 7


def test_estimates_grow_with_the_documents_the_probes_and_the_bands() -> None:
    [plan, *_], [banded, *_] = (plans(64, 3, 10**6, similarity=each) for each in (None, 0.8))
    assert banded == replace(plan, bands=Bands(9, 6))
    assert banded.name == "4 tables, p=16; 9 bands of 6 bins"
    small, large = estimate_cost(plan, 10**6), estimate_cost(plan, 10**8)
    assert (small.probes, small.candidates) == (4, 4_000_000 / 65_536)
    assert (small.bytes, small.key_bytes, small.memory_share) == (40_800_000, 110_000_000, 1.0)
    assert large.seconds > small.seconds
    assert estimate_cost(replace(plan, k=7), 10**6).probes == 68
    cost = estimate_cost(banded, 10**6)
    assert cost.bytes > small.bytes
    assert cost.insert_seconds > small.insert_seconds
    assert small.similar_seconds is None
    assert cost.seconds_per_document == (cost.similar_seconds or 0) + cost.insert_seconds
    cramped = estimate_cost(plan, 10**9)
    assert cramped.memory_share < 1
    assert cramped.insert_seconds > small.insert_seconds
