"""The vector space model: exact cosine and Jaccard of two texts, beside the estimates."""

import json
import math
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import fpdb

ONE = "the old bridge is closed and the river has washed out one of the piers of the bridge"
OTHER = "the new bridge is open and the river has not washed out the piers of the bridge yet"


def cosine(one, other):
    product = sum(weight * other.get(word, 0) for word, weight in one.items())
    return product / (math.hypot(*one.values()) * math.hypot(*other.values()))


def jaccard(one, other):
    return len(one.keys() & other.keys()) / len(one.keys() | other.keys())


def counts(text):
    return Counter(text.split())


def logs(text):
    return {word: 1 + math.log(count) for word, count in counts(text).items()}


def pairs_of_two(text):
    return Counter(map("".join, pairwise(text)))


RECIPES = [("charikar", counts), ("news-md5", counts), ("words", logs), ("bigram-32", pairs_of_two)]
TEXTS = st.lists(st.sampled_from(ONE.split()), min_size=1, max_size=20).map(" ".join)


@pytest.mark.parametrize(("recipe", "features"), RECIPES, ids=[name for name, _ in RECIPES])
def test_compare_all_shows_exact_values_beside_estimates(run, recipe, features):
    arguments = ("compare", "--text", ONE, "--text", OTHER, "--recipe", recipe, "--all")
    one, other = features(ONE), features(OTHER)
    fields = json.loads(run(*arguments, "--json").out)
    assert fields["cosine"] == pytest.approx(cosine(one, other), abs=1e-3)  # of rounded weights
    assert fields["jaccard"] == jaccard(one, other)
    lines = dict(line.split(maxsplit=1) for line in run(*arguments).out.splitlines())
    assert lines["cosine"].startswith(f"{fields['cosine']:.4f} exact, ")
    assert lines["cosine"].endswith(f"{fields['cosine_estimate']:.4f} estimated")
    assert lines["jaccard"].startswith(f"{fields['jaccard']:.4f} of the features, exact")
    assert lines["similarity"].endswith("estimated")


@given(one=TEXTS, other=TEXTS)
@example(one=ONE, other=OTHER)
@example(one="a b", other="c d")
@example(one="a a a b", other="b b b a")
def test_cosine_and_jaccard_are_those_of_the_counted_words(one, other):
    shown = fpdb.compare(one, other, recipe=fpdb.recipe("charikar"))
    assert shown.cosine == pytest.approx(cosine(counts(one), counts(other)), abs=1e-9)
    assert shown.jaccard == jaccard(counts(one), counts(other))
