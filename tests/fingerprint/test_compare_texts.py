"""The comparison of two texts: estimates from the bits, and exact values from the features."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fpdb
from fpdb import Grams, Recipe, Weights

WORDS = Recipe("words", clean=(), segment="whitespace")


def test_exact_values_are_those_of_the_vector_space_model():
    found = fpdb.compare("a a b", "a b b c", recipe=WORDS)
    assert found.jaccard == pytest.approx(2 / 3)
    assert found.cosine == pytest.approx((2 * 1 + 1 * 2) / math.sqrt(5 * 6))


def test_exact_cosine_uses_the_recipe_s_weights():
    recipe = WORDS.replace(weights=Weights(by="log"))
    a, b = 1 + math.log(2), 1 + math.log(3)
    found = fpdb.compare("a a b", "a b b b", recipe=recipe)
    assert found.cosine == pytest.approx((a + b) / (math.hypot(a, 1) * math.hypot(1, b)))


@pytest.mark.parametrize("bits", [32, 64, 128])
def test_estimates_follow_from_the_distance(bits):
    recipe = WORDS.with_bits(bits)
    first, second = "the cat sat on the mat", "the cat sat on a mat"
    found = fpdb.compare(first, second, recipe=recipe)
    left, right = recipe.fingerprint(first), recipe.fingerprint(second)
    assert found.distance == bin(left ^ right).count("1") > 0
    assert found.bits_equal == 1 - found.distance / bits
    assert found.angle == pytest.approx(180 * found.distance / bits)
    assert found.cosine_estimate == pytest.approx(math.cos(math.radians(found.angle)))
    assert found.value_ratio == min(left, right) / max(left, right)


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1).map(" ".join))
def test_equal_texts_agree_in_everything(text):
    found = fpdb.compare(text, text, recipe=WORDS)
    assert (found.distance, found.bits_equal, found.angle, found.cosine_estimate) == (0, 1, 0, 1)
    assert (found.jaccard, found.value_ratio, found.equal) == (1, 1, True)
    assert found.cosine == pytest.approx(1)


@pytest.mark.parametrize(
    ("first", "second", "short"),
    [("a b", "a b", False), ("a", "a b", True), ("a b", "a", True), ("", "", True)],
)
def test_a_comparison_with_a_short_text_says_so(first, second, short):
    recipe = WORDS.replace(grams=Grams(minimum=2))
    assert fpdb.compare(first, second, recipe=recipe).short is short


def test_empty_texts_are_equal():
    found = fpdb.compare("", " ")
    assert (found.cosine, found.jaccard, found.equal, found.short) == (1, 1, True, True)
    assert fpdb.compare("", "word", recipe=fpdb.recipe("words")).cosine == 0


def test_distances_are_of_two_fingerprints():
    assert fpdb.distance((1 << 128) - 1, 0) == 128
    for pair in ((-1, 0), (0, -1)):
        with pytest.raises(fpdb.InputError, match="found a negative number"):
            fpdb.distance(*pair)


def test_shingles_have_an_exact_similarity_and_an_estimate_with_its_error():
    web = fpdb.recipe("web")
    words = [f"word{number}" for number in range(200)]
    other = [*words[:190], *map("other{}".format, range(10))]
    found = fpdb.compare(" ".join(words), " ".join(other), recipe=web)
    sets = [set(zip(each, each[1:], each[2:], strict=False)) for each in (words, other)]
    assert found.shingle_jaccard == len(sets[0] & sets[1]) / len(sets[0] | sets[1])
    assert found.sketch_error is not None
    assert found.sketch_jaccard == pytest.approx(found.shingle_jaccard, abs=4 * found.sketch_error)
    assert 0.005 < found.sketch_error < 0.034


def test_texts_without_shingles_have_neither():
    found = fpdb.compare("a b", "a b", recipe=WORDS)
    assert (found.shingle_jaccard, found.sketch_jaccard, found.sketch_error) == (None, None, None)
