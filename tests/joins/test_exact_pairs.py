"""Exact joins, against every pair of sets compared by Python's own sets and fractions."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

import fpdb
from fpdb.errors import InputError
from fpdb.joins import evaluation, exact
from fpdb.joins.evaluation import Truth, exact_truth
from fpdb.joins.exact import Limit, sets_of, similar_sets

# Shares that pairs of small sets have exactly, and some next to them.
SHARES = [Fraction(*pair) for pair in [(1, 9), (1, 3), (1, 2), (2, 3), (3, 4), (4, 5), (9, 10)]]
SHARES += [Fraction(1), Fraction(4, 5) + Fraction(1, 10**17), Fraction(4, 5) - Fraction(1, 10**17)]


@st.composite
def collections(draw):
    """Draw sets, many of which are copies of others, changed ones, and parts."""
    element = st.integers(0, draw(st.integers(2, 50)))
    sets = [draw(st.frozensets(element, max_size=25))]
    for _ in range(draw(st.integers(0, 14))):
        model = draw(st.sampled_from(sets))
        sets.append(
            draw(
                st.one_of(
                    st.just(model),
                    st.frozensets(element, max_size=2).map(model.symmetric_difference),
                    st.frozensets(element, max_size=9).map(model.intersection),
                    st.frozensets(element, max_size=25),
                )
            )
        )
    return sets


limits = st.builds(Limit, st.sampled_from(SHARES), st.booleans())


def arranged(sets, texts=None):
    flat = np.array([element for own in sets for element in own], np.int64)
    counts = np.array(list(map(len, sets)), np.int64)
    return sets_of(flat, counts, [""] * len(sets) if texts is None else texts)


def share_of(one, other, *, containment):
    whole = min(len(one), len(other)) if containment else len(one | other)
    return Fraction(len(one & other), whole) if whole else Fraction(0)


def expected(sets, limit):
    found = {}
    for one, other in combinations(sets, 2):
        share = share_of(one, other, containment=limit.containment)
        if one and other and share >= limit.share:
            found[frozenset([one, other])] = len(one & other)
    return found


@settings(max_examples=examples(240))
@given(collections(), limits)
def test_every_pair_of_distinct_sets_is_found_once(sets, limit):
    sets = list(dict.fromkeys(sets))
    computed = arranged(sets)
    named = dict(zip(computed.places.tolist(), sets, strict=True))
    found = similar_sets(computed, limit)
    assert all(len(named[one]) <= len(named[other]) for one, other, _ in rows(found))
    pairs = {frozenset([named[one], named[other]]): common for one, other, common in rows(found)}
    assert len(pairs) == len(found.first)
    assert pairs == expected(sets, limit)


@settings(max_examples=examples(100))
@given(collections(), limits)
def test_little_room_changes_nothing(sets, limit):
    sets = list(dict.fromkeys(sets))
    usual = similar_sets(arranged(sets), limit)
    with pytest.MonkeyPatch.context() as patch:
        for name, size in (("_GATHERED", 3), ("_MAPPED", 2), ("_BITS", 64)):
            patch.setattr(exact, name, size)
        tight = similar_sets(arranged(sets), limit)
    assert rows(tight) == rows(usual)


def rows(found):
    return sorted(zip(*(column.tolist() for column in found), strict=True))


WORDS = list("abcdefghijklmnopqrst")


@settings(max_examples=examples(200))
@given(st.lists(st.lists(st.sampled_from(WORDS), max_size=12), max_size=12), limits, st.data())
def test_pairs_of_documents_are_those_of_their_words(texts, limit, data):
    texts += data.draw(st.lists(st.sampled_from(texts), max_size=4)) if texts else []
    documents = [fpdb.Document(number, " ".join(words)) for number, words in enumerate(texts)]
    options = {"of": "features", "recipe": "news-md5", "containment": limit.containment}
    found = list(fpdb.exact_pairs(documents, limit.share, **options))
    sets = list(map(set, texts))
    wanted = []
    for one, other in combinations(range(len(texts)), 2):
        first, second = sets[one], sets[other]
        share = share_of(first, second, containment=limit.containment)
        if first and second and share >= limit.share:
            row = (one, other, float(share), len(first & second), len(first), len(second))
            wanted.append(row)
    assert found == wanted


def test_the_limit_is_the_number_as_it_is_written():
    # Four of five words are shared.
    documents = [fpdb.Document("one", "a b c d e"), fpdb.Document("other", "a b c d")]

    def found(similarity, **options):
        pairs = fpdb.exact_pairs(documents, similarity, of="features", recipe="charikar", **options)
        return [pair.similarity for pair in pairs]

    assert found(0.8) == found(Fraction(4, 5)) == [0.8]
    assert found(0.8000000000000002) == []
    assert found(1, containment=True) == [1.0]


def test_a_recipe_without_a_similarity_compares_its_features():
    documents = [fpdb.Document("one", "a b c"), fpdb.Document("other", "c b a")]
    assert [pair.common for pair in fpdb.exact_pairs(documents, recipe="news-md5")] == [3]
    assert list(fpdb.exact_pairs(documents, recipe="web")) == []


def test_shingles_are_those_that_compare_counts():
    texts = ["the cat sat on the mat and purred", "the cat sat on a mat and purred", "the cat sat"]
    documents = [fpdb.Document(number, text) for number, text in enumerate(texts)]
    web = fpdb.recipe("web")
    for pair in fpdb.exact_pairs(documents, 0.01):
        compared = fpdb.compare(texts[pair.key], texts[pair.other], recipe=web)
        assert pair.similarity == compared.shingle_jaccard
    [whole, part] = list(fpdb.exact_pairs(documents, 1, containment=True))
    assert (whole.key, whole.other, whole.common, whole.size, whole.other_size) == (0, 2, 1, 6, 1)
    assert (part.key, part.other) == (1, 2)


def test_texts_without_shingles_are_pairs_if_they_are_equal_and_not_empty():
    texts = ["", "two words", "", "two words", "words two", "三个字", " ", " "]
    documents = [fpdb.Document(number, text) for number, text in enumerate(texts)]
    assert [(pair.key, pair.other) for pair in fpdb.exact_pairs(documents)] == [(1, 3)]


def test_copies_come_in_order_and_in_bounded_parts(monkeypatch):
    monkeypatch.setattr(exact, "_PAIRS", 10)
    texts = ["a b c d e", "a b c d f", "v w x y z"] * 30
    documents = [fpdb.Document(number, text) for number, text in enumerate(texts)]
    pairs = [
        pair[:2] for pair in fpdb.exact_pairs(documents, 0.6, of="features", recipe="charikar")
    ]
    assert pairs == sorted(pairs)
    alike = [number for number in range(90) if number % 3 < 2]
    others = [number for number in range(90) if number % 3 == 2]
    assert pairs == sorted([*combinations(alike, 2), *combinations(others, 2)])


@pytest.mark.parametrize("similarity", [0, -0.5, 1.0001, float("nan"), float("inf"), "much"])
def test_a_limit_that_no_share_has_is_an_error(similarity):
    with pytest.raises(InputError, match="expected a number above 0, at most 1"):
        fpdb.exact_pairs([], similarity)


def test_other_wrong_arguments_are_errors_at_once():
    with pytest.raises(InputError, match="expected one of shingles, features"):
        fpdb.exact_pairs([], of="words")
    with pytest.raises(InputError, match="'a' has no text"):
        list(fpdb.exact_pairs([fpdb.Document("a", fingerprint=1)]))
    with pytest.raises(InputError, match="found 'a text', expected a document"):
        list(fpdb.exact_pairs(["a text"]))


@pytest.mark.parametrize("of", ["shingles", "features"])
def test_too_many_elements_are_an_error(monkeypatch, of):
    monkeypatch.setattr(exact, "MOST_ELEMENTS", 9)
    documents = [fpdb.Document(number, "a b c d e f") for number in range(2)]
    with pytest.raises(InputError, match=f"found more than 9 {of}"):
        list(fpdb.exact_pairs(documents * 2, of=of))


@settings(max_examples=examples(200))
@given(collections(), st.sampled_from(SHARES))
def test_the_truth_is_the_similarity_of_all_pairs_that_differ(sets, share):
    found = exact_truth(arranged(sets), share)
    pairs = zip(*(side.tolist() for side in found.pairs()), strict=True)
    known = dict(zip(pairs, found.jaccards.tolist(), strict=True))
    wanted = {}
    for one, other in combinations(range(len(sets)), 2):
        same = sets[one] == sets[other]
        assert (found.classes[one] == found.classes[other]) == same
        own = share_of(sets[one], sets[other], containment=False)
        if not same and own >= share:
            wanted[one, other] = float(own)
    assert known == wanted
    assert (np.diff(found.codes) > 0).all()


def test_empty_sets_are_equal_if_their_texts_are():
    found = exact_truth(arranged([[], [1, 2], [], []], [5, 9, 5, 7]), 0.5)
    assert found.classes[0] == found.classes[2]
    assert len(set(found.classes.tolist())) == 3


def test_a_pair_is_looked_up_in_either_order():
    found = Truth(4, np.array([2, 7]), np.array([0.75, 0.5]), np.arange(4))
    first, second = np.array([0, 2, 3, 0]), np.array([2, 0, 1, 1])
    assert found.look_up(first, second).tolist() == [0.75, 0.75, 0.5, 0.0]
    none = np.empty(0, np.int64)
    assert exact_truth(arranged([]), 0.5).look_up(none, none).size == 0


def test_too_many_true_pairs_are_an_error(monkeypatch):
    monkeypatch.setattr(evaluation, "MOST_PAIRS", 24)
    with pytest.raises(InputError, match="found 25 similar pairs"):
        exact_truth(arranged([[1, 2, 3], [1, 2, 3, 4]] * 5), 0.5)
