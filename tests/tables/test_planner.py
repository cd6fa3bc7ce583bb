"""Plans: the known designs, what they cost, and proof that their probes leave nothing out."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpdb.errors import FpdbError, PlanError
from fpdb.tables import probes
from fpdb.tables.bits import Fingerprints, Permutation, to_array, to_ints
from fpdb.tables.plan import (
    Plan,
    Table,
    TableProbes,
    choose_plan,
    home_plan,
    nested_plan,
)
from fpdb.tables.planner import Costs, Estimate, estimate, plans

SMALL = [
    home_plan(8, 0, 8),
    home_plan(8, 1, 5),
    choose_plan(8, 1),
    choose_plan(8, 3),
    choose_plan(8, 7),
    choose_plan(8, 3, blocks=2),
    choose_plan(10, 2),
    choose_plan(10, 2, choose=2),
    choose_plan(10, 3, sizes=(4, 1, 3, 2)),
    choose_plan(10, 3, choose=3),
    choose_plan(10, 4, blocks=3, choose=2),
    choose_plan(12, 3, choose=2),
    nested_plan(10, 1),
    nested_plan(12, 2),
    nested_plan(12, 3, outer=3, inner=2),
]
PAPER = [
    (choose_plan(64, 3), 4, 16, 262_144),
    (nested_plan(64, 3), 16, 28, 64),
    (choose_plan(64, 3, choose=2), 10, 25, 512),
    (choose_plan(64, 3, choose=3), 20, 31, 8),
]


def named(plan: Plan) -> str:
    return f"{plan.bits} bits, k={plan.k}, {plan.name}"


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
    return to_ints(changes[~found], bits)


def count(plan: Plan, k: int) -> int:
    return sum(len(masks) for _, masks in plan.probes(k))


@pytest.mark.parametrize("plan", SMALL, ids=named)
@pytest.mark.parametrize("more", range(-1, 5))
def test_no_change_within_k_is_missed(plan: Plan, more: int) -> None:
    k = min(max(plan.k + more, 0), plan.bits)
    assert missed(plan.tables, plan.probes(k), k) == []


@pytest.mark.parametrize("plan", SMALL, ids=named)
@pytest.mark.parametrize("more", range(5))
def test_the_proof_by_sums_alone_is_sound_too(
    plan: Plan, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "MOST_COUNTS", 0)
    k = min(plan.k + more, plan.bits)
    assert missed(plan.tables, replace(plan).probes(k), k) == []


@st.composite
def any_tables(draw: st.DrawFn) -> tuple[Table, ...]:
    bits = draw(st.integers(2, 9))
    tables = [Table(Permutation(bits, ((0, bits),)), draw(st.integers(1, bits)))]
    for _ in range(draw(st.integers(0, 5))):
        blocks = tuple((bit, 1) for bit in draw(st.permutations(range(bits))))
        tables.append(Table(Permutation(bits, blocks), draw(st.integers(1, bits))))
    return tuple(tables)


@given(any_tables(), st.integers(0, 9))
def test_whatever_the_tables_are_nothing_is_missed(tables: tuple[Table, ...], k: int) -> None:
    k = min(k, tables[0].permutation.bits)
    plan = Plan(tables[0].permutation.bits, 0, tables)
    assert missed(tables, plan.probes(k), k) == []


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


@pytest.mark.parametrize("plan", [plan for plan in SMALL if len(plan.tables) > 1], ids=named)
def test_each_table_is_needed(plan: Plan) -> None:
    probes = plan.probes()
    for at in range(len(probes)):
        assert missed(plan.tables, [*probes[:at], *probes[at + 1 :]], plan.k)


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


@pytest.mark.parametrize("bits", [32, 64, 128])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_at_full_width_no_change_of_a_sample_is_missed(bits: int, k: int) -> None:
    generator = np.random.default_rng(bits * k)
    for plan in plans(bits, k, 1_000_000):
        for more in range(2):
            flips = generator.permuted(np.tile(np.arange(bits), (1000, 1)), axis=1)[:, : k + more]
            changes = to_array((sum(1 << int(bit) for bit in row) for row in flips), bits)
            try:
                probes = plan.probes(k + more)
            except PlanError:
                break
            assert missed(plan.tables, probes, k + more, changes) == []


@pytest.mark.parametrize(("plan", "tables", "prefix", "candidates"), PAPER)
def test_the_designs_of_the_paper(plan: Plan, tables: int, prefix: int, candidates: int) -> None:
    assert len(plan.tables) == tables
    assert plan.prefix == prefix
    assert plan.name == f"{tables} tables, p={prefix}"
    assert [masks for _, masks in plan.probes()] == [(0,)] * tables
    expected = estimate(plan, 2**34)
    assert expected.probes == tables
    assert expected.candidates_per_probe <= candidates
    assert plan in plans(64, 3, 2**34)


def test_candidates_at_two_to_the_34() -> None:
    four, sixteen = (estimate(plan, 2**34) for plan, *_ in PAPER[:2])
    assert four.candidates_per_probe == 262_144
    assert four.candidates == 1_048_576
    assert sixteen.candidates_per_probe == 64


def test_five_blocks_counted_from_the_low_end() -> None:
    plan = Plan.from_blocks((16, 12, 12, 12, 12), k=4)
    assert plan == choose_plan(64, 4, sizes=(16, 12, 12, 12, 12))
    known = {
        0x0123456789ABCDEF: [3567, 2748, 1929, 1110, 291],
        0xFEDCBA9876543210: [528, 1347, 2166, 2985, 65244],
    }
    for fingerprint, keys in known.items():
        prefixes = [
            table.permutation.apply_one(fingerprint) >> (64 - table.prefix) for table in plan.tables
        ]
        assert prefixes[::-1] == keys
    assert count(plan, 4) == 5


def test_probes_for_a_larger_k_on_four_tables() -> None:
    plan = choose_plan(64, 3)
    assert [count(plan, k) for k in range(9)] == [1, 2, 3, 4, 20, 36, 52, 68, 188]


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (choose_plan(64, 3, choose=2), [10, 81, 381]),
        (choose_plan(64, 3, choose=3), [20, 198, 1058]),
        (nested_plan(64, 3), [16, 146, 902]),
        (choose_plan(64, 4, sizes=(16, 12, 12, 12, 12)), [4, 5, 17]),
    ],
)
def test_probes_for_a_larger_k_on_other_designs(plan: Plan, expected: list[int]) -> None:
    assert all(count(plan, k) <= most for k, most in enumerate(expected, start=3))


def test_a_smaller_k_spares_the_tables_that_read_the_most() -> None:
    plan = choose_plan(64, 4, sizes=(12, 12, 12, 12, 16))
    assert [table for table, _ in plan.probes(0)] == [4]
    assert [table for table, _ in plan.probes(1)] == [0, 4]
    assert [table for table, _ in choose_plan(64, 3).probes(1)] == [0, 1]


def test_masks_start_with_the_prefix_itself_and_repeat_nothing() -> None:
    for index, masks in choose_plan(64, 3).probes(5):
        assert masks[0] == 0
        assert len(set(masks)) == len(masks)
        assert max(masks) < 2**16
        assert index in range(4)


def test_probes_are_found_once() -> None:
    plan = choose_plan(64, 3)
    assert plan.probes(4) is plan.probes(4)
    assert plan.probes() is plan.probes(3)


def test_more_probes_than_are_worth_it() -> None:
    plan = choose_plan(64, 3)
    with pytest.raises(PlanError, match="probes") as caught:
        plan.probes(30)
    assert "build tables for a larger one" in caught.value.hint
    for k in (-1, 65):
        with pytest.raises(PlanError, match=f"k = {k}"):
            plan.probes(k)


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
    costs = [estimate(plan, 1_000_000).seconds_per_document for plan in offered]
    assert costs == sorted(costs)


def test_plans_that_others_beat_at_everything_are_left_out() -> None:
    assert [plan.name for plan in plans(128, 1, 1_000_000)] == ["2 tables, p=64"]


def test_the_best_plan_grows_with_the_documents() -> None:
    for documents in (1_000_000, 10_000_000):
        assert plans(64, 3, documents)[0].name == "4 tables, p=16"
    best = plans(64, 3, 8_000_000_000)[0]
    assert best.prefix > 16
    assert len(best.tables) > 4


def test_the_best_plan_follows_the_measured_costs() -> None:
    slow_inserts = Costs(seconds_per_insert=1e-3)
    slow_probes = Costs(seconds_per_probe=1e-3)
    assert len(plans(64, 3, 10_000_000, costs=slow_inserts)[0].tables) < 4
    assert estimate(plans(64, 3, 10_000_000, costs=slow_probes)[0], 10_000_000).probes == 4


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


@pytest.mark.parametrize(
    ("bits", "k", "documents"), [(48, 3, 1), (64, 17, 1), (64, -1, 1), (64, 3, 0)]
)
def test_what_cannot_be_planned(bits: int, k: int, documents: int) -> None:
    with pytest.raises(PlanError) as caught:
        plans(bits, k, documents)
    assert caught.value.hint
    assert isinstance(caught.value, FpdbError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "build",
    [
        lambda: choose_plan(8, 8),
        lambda: choose_plan(8, 1, choose=0),
        lambda: choose_plan(8, 1, blocks=0),
        lambda: choose_plan(8, 1, blocks=2, choose=3),
        lambda: choose_plan(8, 1, sizes=(4, 3)),
        lambda: choose_plan(8, 1, sizes=(8, 0)),
        lambda: choose_plan(8, 1, sizes=()),
        lambda: nested_plan(8, 1, outer=8, inner=8),
        lambda: home_plan(8, 1, 9),
        lambda: home_plan(8, 9, 8),
        lambda: Plan(8, 1, ()),
        lambda: Plan(8, 1, choose_plan(8, 1).tables[1:]),
        lambda: Plan(8, 1, (*choose_plan(8, 1).tables, *choose_plan(10, 1).tables)),
    ],
    ids=[
        "more blocks than bits",
        "none chosen",
        "no blocks",
        "more chosen than blocks",
        "sizes too small",
        "an empty block",
        "no sizes",
        "too fine a second cut",
        "prefix too long",
        "k too large",
        "no tables",
        "no home table",
        "two widths",
    ],
)
def test_what_is_no_plan(build: Callable[[], Plan]) -> None:
    with pytest.raises(PlanError) as caught:
        build()
    assert caught.value.hint


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
    ]


@pytest.mark.parametrize("data", broken(), ids=str)
def test_broken_data_is_no_plan(data: Any) -> None:
    with pytest.raises(PlanError) as caught:
        Plan.from_dict(data)
    assert caught.value.hint


def test_what_is_held_are_the_bits_of_the_prefix() -> None:
    plan = nested_plan(64, 3)
    for table in plan.tables:
        assert table.held.bit_count() == 28
        assert table.permutation.apply_one(table.held) == (2**28 - 1) << 36
    for one, other in combinations(choose_plan(64, 3).tables, 2):
        assert one.held & other.held == 0


def test_estimates_grow_with_what_they_depend_on() -> None:
    plan = choose_plan(64, 3)
    small, large = estimate(plan, 1_000_000), estimate(plan, 100_000_000)
    assert small == Estimate(
        tables=4,
        prefix=16,
        probes=4,
        candidates_per_probe=1_000_000 / 65_536,
        candidates=4_000_000 / 65_536,
        bytes=40_800_000,
        seconds=small.seconds,
        insert_seconds=small.insert_seconds,
    )
    assert large.seconds > small.seconds
    assert estimate(plan, 1_000_000, k=7).probes == 68
    assert estimate(plan, 1_000_000, k=7).seconds > small.seconds
    assert estimate(plan, 0).bytes == 0
    # Once a database outgrows the memory, its pages come from the disk.
    cramped = estimate(plan, 1_000_000, costs=Costs(bytes_of_memory=1e6))
    assert cramped.seconds > small.seconds
    assert cramped.insert_seconds > small.insert_seconds


def test_costs_are_plain_data() -> None:
    costs = Costs(seconds_per_probe=1e-6)
    assert Costs.from_dict(json.loads(json.dumps(costs.to_dict()))) == costs
    assert Costs.from_dict({"seconds_per_probe": 1e-6}) == costs
    for wrong in (
        {"speed": 1},
        {"bytes_per_id": -1},
        {"bytes_per_id": "8"},
        {"bytes_per_id": float("nan")},
    ):
        with pytest.raises(PlanError, match="no cost") as caught:
            Costs.from_dict(wrong)
        assert "bytes_per_id" in caught.value.hint
