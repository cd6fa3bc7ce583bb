"""The first look: which k finds texts of a Jaccard similarity, and which tables serve it."""

import pytest

from fpdb.errors import InputError
from fpdb.tables import estimate, first_look, plans
from fpdb.tables.plan import choose_plan


def test_a_lower_similarity_takes_a_larger_k() -> None:
    steps = [1.0, 0.95, 0.9, 0.8, 0.75, 0.7, 0.6, 0.5]
    assert [first_look(64, 3, step) for step in steps] == [6, 6, 7, 7, 8, 9, 12, 15]
    assert [first_look(128, 3, step) for step in steps] == [12, 12, 14, 14, 16, 18, 24, 30]
    assert [first_look(32, 3, step) for step in steps] == [3, 3, 4, 4, 4, 5, 6, 8]


def test_it_is_never_below_the_databases_own_k() -> None:
    assert first_look(64, 10, 0.9) == 10


@pytest.mark.parametrize("least", [0.49, 0.1, 0.0])
def test_below_a_half_k_has_to_be_given(least: float) -> None:
    with pytest.raises(InputError, match=r"expected at least 0\.5"):
        first_look(64, 3, least)


@pytest.mark.parametrize(("bits", "query_k"), [(32, 4), (64, 7), (64, 9), (128, 14)])
@pytest.mark.parametrize("documents", [1000, 1_000_000, 100_000_000])
def test_tables_chosen_for_a_wider_k_are_no_worse_for_it(
    bits: int, query_k: int, documents: int
) -> None:
    plain, wide = plans(bits, 3, documents)[0], plans(bits, 3, documents, query_k=query_k)
    costs = [estimate(plan, documents, query_k).seconds_per_document for plan in wide]
    assert costs == sorted(costs)
    assert costs[0] <= estimate(plain, documents, query_k).seconds_per_document
    assert {plan.k for plan in wide} == {3}


def test_a_k_that_isnt_wider_changes_nothing() -> None:
    for query_k in (0, 3):
        assert plans(64, 3, 1_000_000, query_k=query_k) == plans(64, 3, 1_000_000)


def test_if_no_tables_serve_the_wider_k_they_are_those_for_k() -> None:
    assert plans(32, 3, 1_000_000, query_k=30) == plans(32, 3, 1_000_000)


def test_the_usual_tables_serve_the_usual_first_look() -> None:
    assert plans(64, 3, 1_000_000, query_k=7)[0] == choose_plan(64, 3)
