"""Plans for several machines: the arithmetic by hand, and what grows and shrinks with what."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fpdb
from fpdb.errors import PlanError

COSTS = fpdb.Costs(
    seconds_per_query=1.0,
    seconds_per_probe=0.0,
    seconds_per_candidate=0.0,
    seconds_per_insert=1.0,
    seconds_per_cold_page=0.0,
    bytes_of_memory=1e6,
    bytes_per_byte=1.0,
    bytes_per_id=8.0,
    seconds_per_loaded_row=2.0,
    seconds_per_merged_row=3.0,
    seconds_per_text_key=100.0,
    bytes_per_text_key=50.0,
)
FREE_CANDIDATES = fpdb.JoinCosts(
    seconds_per_document=1.0,
    seconds_per_row=10.0,
    seconds_per_candidate=0.0,
    bytes_per_row=20.0,
    start_seconds=5.0,
    bytes_per_second_per_machine=1000.0,
)


def test_the_arithmetic_by_hand():
    found = fpdb.fleet_plan(
        64, 3, 1_000_001, machines=4, cores=2, costs=COSTS, join_costs=FREE_CANDIDATES
    )
    # With inserts alone to pay for, two tables are the fewest there are.
    assert found.each.plan.name == "2 tables, p=32"
    assert found.each.documents == 250_001
    assert found.whole.documents == 1_000_001
    assert found.each.estimate.bytes == 250_001 * (2 * 8 + 8)
    assert found.each.file_bytes == 250_001 * (24 + 50)
    assert found.file_bytes == 4 * 250_001 * 74
    assert found.seconds_per_query == 0.5
    assert found.each.load_seconds == 250_001 * (2 * 2 + 100)
    assert found.whole.merge_seconds == 1_000_001 * (2 * 3 + 100)
    assert found.whole.memory_share == 1e6 / (1_000_001 * 24)
    # Four tables of the join: no design has fewer rows.
    join = found.join
    assert join.rows == 4_000_004
    assert join.work_seconds == 1_000_001 * (1 + 4 * 10) / 8
    # A quarter of what each machine makes belongs to itself.
    assert join.network_seconds == 4_000_004 * 20 / 4 * 0.75 / 1000
    assert join.seconds == 5 + join.work_seconds + join.network_seconds


def test_integer_keys_take_no_room_and_no_time():
    found = fpdb.fleet_plan(64, 3, 1000, machines=1, cores=1, keys="integer", costs=COSTS)
    assert found.whole.file_bytes == found.whole.estimate.bytes == 24_000
    assert found.whole.load_seconds == 4000
    assert found.each == found.whole


def test_the_parts_are_the_plans_that_there_are_anyway():
    found = fpdb.fleet_plan(64, 3, 10**9, machines=10, cores=4, queries=1000)
    assert found.each.plan == fpdb.plans(64, 3, 10**8)[0]
    assert found.whole.plan == fpdb.plans(64, 3, 10**9)[0]
    [first, *_] = fpdb.join_plans(64, 3, 10**9, queries=1000, machines=10, cores=4)
    assert found.join == first


def test_a_join_on_one_machine_needs_no_network():
    assert fpdb.fleet_plan(64, 3, 10**6, machines=1, cores=1).join.network_seconds == 0


def test_a_slow_network_prefers_fewer_rows():
    slow = fpdb.JoinCosts(bytes_per_second_per_machine=1.0)
    many = 10**10
    usual = fpdb.join_plans(64, 3, many, machines=100, cores=4)[0]
    found = fpdb.join_plans(64, 3, many, machines=100, cores=4, costs=slow)[0]
    assert found.rows < usual.rows


def test_a_database_has_a_largest_size():
    assert fpdb.fleet_plan(64, 3, 8 * 10**9, machines=1, keys="integer").whole.fits
    assert not fpdb.fleet_plan(64, 3, 8 * 10**9, machines=1, keys="text").whole.fits


@given(
    st.integers(1, 10**11),
    st.integers(1, 5000),
    st.integers(1, 64),
    st.sampled_from(["text", "integer"]),
)
def test_more_machines_have_less_to_do(documents, machines, cores, keys):
    few = fpdb.fleet_plan(64, 3, documents, machines=machines, cores=cores, keys=keys)
    many = fpdb.fleet_plan(64, 3, documents, machines=2 * machines, cores=cores, keys=keys)
    assert machines * few.each.documents >= documents
    assert many.each.documents <= few.each.documents
    # The best plan for fewer documents may answer no sooner, but never costs more with its insert.
    after, before = many.each.estimate, few.each.estimate
    assert after.seconds_per_document <= before.seconds_per_document
    assert (
        many.join.work_seconds + many.join.network_seconds
        <= (few.join.work_seconds + few.join.network_seconds)
        or machines == 1
    )
    assert many.whole == few.whole


@given(st.integers(1, 10**10), st.integers(1, 1000))
def test_more_documents_take_longer(documents, machines):
    less = fpdb.fleet_plan(64, 3, documents, machines=machines, cores=2)
    more = fpdb.fleet_plan(64, 3, 2 * documents, machines=machines, cores=2)
    assert more.join.seconds >= less.join.seconds
    assert more.each.documents >= less.each.documents
    assert more.each.estimate.seconds_per_document >= less.each.estimate.seconds_per_document


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"machines": 0}, "0 machines"),
        ({"cores": 0}, "0 cores"),
        ({"documents": 0}, "0 documents"),
        ({"queries": 0}, "0 queries"),
        ({"keys": "url"}, "'url'"),
        ({"bits": 48}, "48 bits"),
        ({"k": 17}, "k = 17"),
    ],
)
def test_what_makes_no_plan_for_machines_is_refused(wrong, message):
    asked = {"bits": 64, "k": 3, "documents": 10, "machines": 2} | wrong
    with pytest.raises(PlanError, match=message):
        fpdb.fleet_plan(asked.pop("bits"), asked.pop("k"), asked.pop("documents"), **asked)


def test_costs_of_a_join_come_and_go_as_plain_data():
    costs = fpdb.JoinCosts(seconds_per_row=1e-6)
    assert fpdb.JoinCosts.from_dict(json.loads(json.dumps(costs.to_dict()))) == costs
    assert fpdb.JoinCosts.from_dict({"seconds_per_row": 1e-6}) == costs


@pytest.mark.parametrize(
    "wrong",
    [
        {"seconds_per_row": -1},
        {"seconds_per_row": "1"},
        {"seconds_per_row": float("nan")},
        {"seconds_per_row": True},
        {"seconds_per_probe": 1},
        {"bytes_per_second_per_machine": 0},
    ],
)
def test_what_is_no_cost_of_a_join_is_refused(wrong):
    with pytest.raises(PlanError, match="is no cost"):
        fpdb.JoinCosts.from_dict(wrong)
