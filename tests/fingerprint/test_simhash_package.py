"""The preset simhash-py beside the real PyPI package simhash."""

import warnings

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiers import examples

import fpdb

with warnings.catch_warnings(action="ignore"):
    import simhash


MIXED = st.text(st.sampled_from("abcABC 123_-.,\n\t你好世界新闻　！éİßﬁ😀𠀀"), max_size=200)


@pytest.mark.slow("the package hashes each window in Python")
@settings(max_examples=examples(500))
@given(st.text() | MIXED)
@example("")
@example("İstanbul ẞtraße ǅ")
@example("\x00\x1f\x7f\u2028")
@example("龥鿌鿍鿿㐀𠀀")
@example("Übermäßig viele Wörter, 你好　世界！　呼噜。" * 30)
def test_simhash_py_is_bit_equal_to_the_package(text):
    assert fpdb.recipe("simhash-py").fingerprint(text) == simhash.Simhash(text).value


@given(st.lists(st.text() | MIXED, max_size=12))
def test_simhash_py_is_bit_equal_in_batches(texts):
    found = fpdb.recipe("simhash-py").fingerprint_many(texts).tolist()
    assert found == [simhash.Simhash(text).value for text in texts]


# With numpy 2 the package itself fails on whole weights above 255.
@given(st.dictionaries(st.text(max_size=8), st.integers(0, 255), max_size=40))
def test_simhash_py_weighs_given_features_as_the_package_does(features):
    recipe = fpdb.recipe("simhash-py").replace(grams=fpdb.Grams(minimum=0))
    assert recipe.fingerprint_features(features) == simhash.Simhash(features).value
