"""An evaluation names the pairs that a recipe gets wrong."""

import pytest

import fpdb
from fpdb.joins import evaluation

WORDS = [f"word{number}" for number in range(900)]


def changed(words, number):
    """Return a text in which every Nth word is another."""
    return " ".join(f"x{word}" if place % number == 0 else word for place, word in enumerate(words))


TEXTS = {
    "a": " ".join(WORDS[:200]),
    "a-near": changed(WORDS[:200], 40),
    "a-far": changed(WORDS[:200], 8),
    "b": " ".join(WORDS[300:500]),
    "b-near": changed(WORDS[300:500], 50),
    "<script>c</script>": " ".join(WORDS[600:]),
}
DOCUMENTS = [fpdb.Document(*item) for item in TEXTS.items()]


def jaccard(one, other):
    sets = [
        {tuple(words[place : place + 3]) for place in range(len(words) - 2)}
        for words in (TEXTS[one].split(), TEXTS[other].split())
    ]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def test_missed_pairs_are_those_of_brute_force():
    found = fpdb.evaluate(DOCUMENTS, similarity=None, k=[0], mistakes=9)
    [quality] = found.recipes
    expected = {("a", "a-near"): 0.8, ("b", "b-near"): 0.8}
    assert {each[:2] for each in quality.mistakes} == expected.keys()
    assert [each.similarity for each in quality.mistakes] == pytest.approx(
        sorted((jaccard(*pair) for pair in expected), reverse=True)
    )
    assert not any(each.wrong for each in quality.mistakes)
    [named] = fpdb.evaluate(DOCUMENTS, similarity=None, k=[0], mistakes=1).recipes
    assert named.mistakes == quality.mistakes[:1]
    assert fpdb.evaluate(DOCUMENTS, similarity=None, k=[0]).recipes[0].mistakes == ()


def test_wrong_pairs_come_first_the_least_similar_first():
    known = [("a", "a-near", False), ("b", "b-near", 0.3), ("a", "a-far", True)]
    found = fpdb.evaluate(DOCUMENTS, known, mistakes=9, k=[3])
    assert found.recipes[0].mistakes == (
        evaluation.Mistake("a", "a-near", 0.0, wrong=True),
        evaluation.Mistake("b", "b-near", pytest.approx(0.3), wrong=True),
        evaluation.Mistake("a", "a-far", 1.0, wrong=False),
    )
