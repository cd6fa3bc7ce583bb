"""The exact similarity of all pairs, against sets compared one by one."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from fpdb.errors import InputError
from fpdb.joins import truth
from fpdb.joins.exact import sets_of
from fpdb.joins.truth import Truth, exact_truth

THRESHOLDS = [0.3, 0.5, 0.7, 0.8, 1.0]


@st.composite
def collections(draw):
    """Draw sets, many of which are changed copies of others."""
    element = st.integers(0, draw(st.integers(3, 60)))
    sets = [draw(st.lists(element, max_size=25))]
    for _ in range(draw(st.integers(0, 12))):
        if draw(st.booleans()):
            copy = list(draw(st.sampled_from(sets)))
            for place in draw(st.lists(st.integers(0, 24), max_size=3)):
                if place < len(copy):
                    copy[place] = draw(element)
            sets.append(copy)
        else:
            sets.append(draw(st.lists(element, max_size=25)))
    return sets


def computed(sets, at_least, texts=None):
    flat = np.array([element for own in sets for element in own], np.int64)
    counts = np.array([len(own) for own in sets], np.int64)
    return exact_truth(
        sets_of(flat, counts, range(len(sets)) if texts is None else texts), at_least
    )


def expected(sets, at_least):
    found = {}
    for one, other in combinations(range(len(sets)), 2):
        first, second = set(sets[one]), set(sets[other])
        if first and second and first != second:
            jaccard = len(first & second) / len(first | second)
            if jaccard >= at_least:
                found[one, other] = jaccard
    return found


def as_dict(found):
    first, second = found.pairs()
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    return dict(zip(pairs, found.jaccards.tolist(), strict=True))


@settings(max_examples=examples(300))
@given(collections(), st.sampled_from(THRESHOLDS))
def test_every_pair_from_the_threshold_on_is_found_with_its_similarity(sets, at_least):
    found = computed(sets, at_least)
    assert as_dict(found) == pytest.approx(expected(sets, at_least))
    assert (np.diff(found.codes) > 0).all()


@settings(max_examples=examples(100))
@given(collections())
def test_equal_sets_are_of_one_class_and_empty_ones_alone(sets):
    found = computed(sets, 0.5)
    for one, other in combinations(range(len(sets)), 2):
        equal = bool(sets[one]) and set(sets[one]) == set(sets[other])
        assert (found.classes[one] == found.classes[other]) == equal
    first, second = np.triu_indices(len(sets), 1)
    assert found.equal_pairs() == found.equal(first, second).sum()


def test_empty_sets_are_equal_if_their_texts_are():
    found = computed([[], [1, 2], [], []], 0.5, [5, 9, 5, 7])
    assert found.classes[0] == found.classes[2]
    assert len(set(found.classes.tolist())) == 3


def test_look_up_takes_a_pair_in_either_order():
    found = Truth(4, np.array([2, 7]), np.array([0.75, 0.5]), np.arange(4))
    first, second = np.array([0, 2, 3, 0]), np.array([2, 0, 1, 1])
    assert found.look_up(first, second).tolist() == [0.75, 0.75, 0.5, 0.0]


def test_no_sets_and_no_pairs():
    assert as_dict(computed([], 0.5)) == {}
    assert computed([], 0.5).look_up(np.array([], np.int64), np.array([], np.int64)).size == 0
    assert as_dict(computed([[], [], []], 0.5)) == {}


def test_too_much_is_an_error_with_a_cure(monkeypatch):
    sets = [[1, 2, 3], [1, 2, 3, 4]] * 5
    monkeypatch.setattr(truth, "MOST_PAIRS", 24)
    with pytest.raises(InputError, match="found 25 similar pairs") as error:
        computed(sets, 0.5)
    assert "fewer copies" in error.value.hint
