"""Any text at all gives a result or an error of fpdb, never anything else."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import fpdb
from fpdb.fingerprint import PRESETS

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=100)
NASTY = st.text(
    st.sampled_from("\x00\ud800\udfff\ud83d\ude00\u0301\u200b\u202e\ufeff<>&;#/!-中文 a\n\x1b\x9b"),
    max_size=60,
)


def outcome(recipe, text):
    """The fingerprint of a text, or the error that fpdb raised."""
    try:
        return recipe.fingerprint(text)
    except fpdb.FpdbError as error:
        return error


@pytest.mark.slow("the preset tagged-title loads jieba's tagger")
@pytest.mark.parametrize("name", PRESETS)
@given(text=ANY_TEXT | NASTY)
@example(text="")
@example(text="\x00")
@example(text="\ud800")
@example(text="\ud83d\ude00")
@example(text="中\ud800文\x00<b>\udfff&#xd800;")
@example(text="\ufeff")
def test_every_preset_takes_any_text(name, text):
    recipe = fpdb.recipe(name)
    found = outcome(recipe, text)
    if isinstance(found, fpdb.FpdbError):
        assert str(found)
        assert found.hint
    else:
        assert 0 <= found < 1 << recipe.bits
        assert found == recipe.fingerprint(text)


@pytest.mark.parametrize("name", sorted(PRESETS.keys() - {"ascii-mt"}))
@given(first=ANY_TEXT | NASTY, second=ANY_TEXT | NASTY)
def test_every_preset_compares_any_texts(name, first, second):
    recipe = fpdb.recipe(name)
    found = fpdb.compare(first, second, recipe=recipe)
    assert 0 <= found.distance <= recipe.bits
    assert 0 <= found.cosine <= 1
    assert 0 <= found.jaccard <= 1
    assert 0 <= found.value_ratio <= 1
    assert found == fpdb.compare(second, first, recipe=recipe)
