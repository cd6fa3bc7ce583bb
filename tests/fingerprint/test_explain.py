"""How features vote: the explanation of a fingerprint gives the same bits as the batches do."""

import hashlib
import math

import pytest
import xxhash
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiers import examples

import fpdb
from fpdb.fingerprint import PRESETS, to_int

TEXT = "the cat sat on the mat"
# The sixth step of the textbook, on the hashes of fpdb.
SHINGLES = list(dict.fromkeys(TEXT[at : at + 2] for at in range(len(TEXT) - 1)))
UNTAGGED = [name for name in PRESETS if name != "tagged-title"]


@pytest.mark.parametrize("name", UNTAGGED)
@given(st.text(st.characters(max_codepoint=127), max_size=60))
@example("")
@example("a a a b")
@settings(max_examples=examples(100))
def test_votes_are_the_sum_of_features_and_their_signs_the_fingerprint(name, text):
    recipe = fpdb.recipe(name)
    found = recipe.explain(text)
    batch = recipe.batch([text])
    assert found.fingerprint == to_int(batch.fingerprints[0])
    assert (found.bits, found.short) == (recipe.bits, bool(batch.short[0]))
    for bit, vote in enumerate(found.votes):
        signed = [w if number >> bit & 1 else -w for _, w, number in found.features]
        assert vote == math.fsum(signed)
        assert found.fingerprint >> bit & 1 == (vote > 0 or (vote == 0 and recipe.tie == 1))
    weights = recipe.features(text)
    assert [feature for feature, *_ in found.features] == list(weights)
    for feature, weight, _ in found.features:
        assert abs(weight - weights[feature]) <= 0.5 / 4096


def test_the_six_steps_with_two_characters():
    found = fpdb.recipe("bigram-32").explain(TEXT)
    assert [feature for feature, *_ in found.features] == SHINGLES
    assert {feature: weight for feature, weight, _ in found.features if weight > 1} == {
        "th": 2,
        "he": 2,
        "e ": 2,
        "at": 3,
        "t ": 2,
    }
    for feature, _, number in found.features:
        assert number == xxhash.xxh3_64_intdigest(feature.encode()) & 0xFFFFFFFF


def test_hashes_are_those_of_the_recipe():
    [voter] = fpdb.recipe("news-md5").explain("新闻").features
    digest = int(hashlib.md5("新闻".encode()).hexdigest(), 16)
    assert voter == ("新闻", 1, digest >> 32 & (1 << 64) - 1)


def test_the_weakest_bits_come_first():
    found = fpdb.recipe("bigram-32").explain(TEXT)
    sizes = [abs(found.votes[bit]) for bit in found.weakest]
    assert sizes == sorted(sizes)
    assert sorted(found.weakest) == list(range(32))
    # One more occurrence of a feature changes no bit but those that it may outvote.
    recipe = fpdb.recipe("bigram-32")
    changed = (
        recipe.fingerprint(TEXT) ^ recipe.explain({**dict(votes_of(found)), "zz": 2}).fingerprint
    )
    assert changed
    assert all(abs(found.votes[bit]) <= 2 for bit in range(32) if changed >> bit & 1)


def votes_of(found):
    return [(feature, weight) for feature, weight, _ in found.features]


def test_segments_and_features_are_explained_as_well():
    recipe = fpdb.recipe("tagged-title")
    terms = [("有", "v"), ("哪些", "r"), ("养", "v"), ("猫", "n"), ("？", "w")]
    found = recipe.explain(terms)
    assert found.fingerprint == recipe.fingerprint_segments(terms)
    assert [feature for feature, *_ in found.features] == ["有", "哪些", "养", "猫"]
    weights = {"bridge": 2.5, "closed": 1.0}
    web = fpdb.recipe("web")
    assert web.explain(weights).short
    assert votes_of(web.explain(weights)) == list(weights.items())
