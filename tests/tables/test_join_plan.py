"""Plans of joins: no pair within k is left out, and the arithmetic is that of the page about it."""

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fpdb
from fpdb.errors import PlanError


@given(st.sampled_from((32, 64, 128)), st.integers(0, 7), st.data())
def test_fingerprints_within_k_agree_in_some_prefix(bits, k, data):
    plan = data.draw(st.sampled_from(fpdb.join_plans(bits, k, 1000, cores=1)))
    changed = data.draw(st.sets(st.integers(0, bits - 1), max_size=k))
    differing = sum(1 << bit for bit in changed)
    assert any(not differing & mask for mask in plan.masks)


@pytest.mark.parametrize("bits", [32, 64, 128])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_every_prefix_has_as_many_blocks_as_were_chosen(bits, k):
    for plan in fpdb.join_plans(bits, k, 10, cores=1):
        choose = next(c for c in range(1, bits) if comb(k + c, c) == len(plan.masks))
        assert len(set(plan.masks)) == len(plan.masks)
        for mask in plan.masks:
            assert abs(mask.bit_count() - bits * choose / (k + choose)) < choose
            assert mask < 1 << bits


def test_without_a_distance_there_is_one_table_of_all_bits():
    [plan] = fpdb.join_plans(64, 0, 10)
    assert plan.masks == ((1 << 64) - 1,)
    assert plan.name == "1 table, p=64"


def test_more_documents_take_more_tables_with_longer_prefixes():
    chosen = [fpdb.join_plans(64, 3, 10**n, cores=2)[0] for n in (4, 6, 8, 10)]
    assert [len(plan.masks) for plan in chosen] == sorted(len(plan.masks) for plan in chosen)
    assert len(chosen[0].masks) == 4
    assert len(chosen[-1].masks) > 4


def test_what_a_plan_says_it_takes_is_what_its_costs_make_of_it():
    costs = fpdb.JoinCosts(
        seconds_per_document=1,
        seconds_per_row=10,
        seconds_per_candidate=100,
        bytes_per_row=5,
        start_seconds=7,
    )
    [plan] = [p for p in fpdb.join_plans(64, 3, 1 << 17, cores=4, costs=costs) if p.prefix == 16]
    assert plan.rows == 4 << 17
    assert plan.shuffle_bytes == 5 * (4 << 17)
    # Each of four tables brings each fingerprint together with those of 2**16 that share a prefix.
    assert plan.candidates == 4 * ((1 << 17) * ((1 << 17) - 1) // 2) // (1 << 16)
    assert plan.core_seconds == (1 << 17) + 10 * plan.rows + 100 * plan.candidates
    assert plan.seconds == 7 + plan.core_seconds / 4
    [twice] = [
        p
        for p in fpdb.join_plans(64, 3, 1 << 17, cores=4, machines=2, costs=costs)
        if p.prefix == 16
    ]
    assert twice.seconds == 7 + plan.core_seconds / 8


def test_questions_meet_documents_and_not_each_other():
    [plan] = [p for p in fpdb.join_plans(64, 3, 1 << 20, queries=1 << 10) if p.prefix == 16]
    assert plan.rows == 4 * ((1 << 20) + (1 << 10))
    assert plan.candidates == 4 * (1 << 20) * (1 << 10) >> 16


def test_work_is_cut_into_tasks_that_every_core_has_one_of():
    small = fpdb.join_plans(64, 3, 1000, machines=3, cores=4)[0]
    assert small.tasks == 12
    large = fpdb.join_plans(64, 3, 8 * 10**9, machines=3, cores=4)[0]
    assert large.rows / large.tasks <= 4_000_000


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"bits": 48}, "48 bits"),
        ({"k": 17}, "k = 17"),
        ({"k": -1}, "k = -1"),
        ({"documents": 0}, "0 documents"),
        ({"machines": 0}, "0 machines"),
        ({"cores": 0}, "0 cores"),
        ({"queries": 0}, "0 queries"),
    ],
)
def test_what_makes_no_plan_is_refused(wrong, message):
    asked = {"bits": 64, "k": 3, "documents": 10} | wrong
    with pytest.raises(PlanError, match=message):
        fpdb.join_plans(asked.pop("bits"), asked.pop("k"), asked.pop("documents"), **asked)
