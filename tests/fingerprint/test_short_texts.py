"""The guard against texts with too few features, and inputs of the wrong type."""

import pytest

import fpdb
from fpdb import Grams, InputError, Recipe, ShortTextError

ENOUGH = "one two three four five six seven eight"


def test_a_text_with_fewer_features_than_the_minimum_is_short():
    recipe = fpdb.recipe("web")
    assert recipe.fingerprint(ENOUGH)
    with pytest.raises(ShortTextError) as caught:
        recipe.fingerprint("one two three four five six seven")
    assert str(caught.value) == (
        "the text has 5 distinct features, the recipe web expects at least 6"
    )
    assert "recipe.batch(texts)" in caught.value.hint
    assert isinstance(caught.value, InputError | ValueError)
    assert isinstance(caught.value, fpdb.FpdbError)


@pytest.mark.parametrize("name", ["web", "web-128", "char-4", "bigram-32"])
@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_text_is_short_and_never_silently_zero(name, text):
    recipe = fpdb.recipe(name)
    if name == "bigram-32" and text:
        assert recipe.fingerprint(text)
    else:
        with pytest.raises(ShortTextError, match="the text has 0 distinct features"):
            recipe.fingerprint(text)


@pytest.mark.parametrize("name", ["charikar", "ascii-mt", "news-md5", "tagged-title"])
def test_recipes_without_a_minimum_sign_the_empty_text_with_ties(name):
    recipe = fpdb.recipe(name)
    assert recipe.grams.minimum == 0
    assert recipe.fingerprint("") == (1 << recipe.bits) - 1


def test_batches_mark_short_texts_and_count_features():
    texts = [
        ENOUGH,
        "short",
        "",
        ENOUGH + " nine",
        "x " * 20,
        "一二三四五六七八九",
        "一二三四五六七八九十",
    ]
    batch = fpdb.recipe("web").batch(texts)
    assert batch.short.tolist() == [False, True, True, False, True, True, False]
    assert batch.features.tolist() == [6, 0, 0, 7, 1, 5, 6]
    batch = fpdb.recipe("words").batch(texts[:5])
    assert batch.short.tolist() == [False, True, True, False, True]
    assert batch.features.tolist() == [8, 1, 0, 9, 1]


def test_many_fingerprints_name_the_short_text():
    with pytest.raises(ShortTextError, match="text 2 of the batch has 0 distinct features"):
        fpdb.recipe("web").fingerprint_many([ENOUGH, ENOUGH, "short", "also"])


def test_ready_segments_give_what_the_recipe_s_own_cut_gives():
    words = ENOUGH.split()
    for name, segments in (
        ("words", words),
        ("web", map(" ".join, zip(words, words[1:], words[2:], strict=False))),
    ):
        recipe = fpdb.recipe(name)
        assert recipe.fingerprint_segments(list(segments)) == recipe.fingerprint(ENOUGH)
    pairs = Recipe("pairs", segment="words", grams=Grams(n=2))
    assert pairs.fingerprint_segments(words) == pairs.fingerprint(ENOUGH)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_ready_characters_give_what_the_text_gives(n):
    recipe = Recipe("own", clean=(), segment="characters", grams=Grams(n=n))
    assert recipe.fingerprint_segments(list(ENOUGH)) == recipe.fingerprint(ENOUGH)


@pytest.mark.parametrize(
    ("name", "segments"),
    [
        ("web", "养猫"),
        ("tagged-title", "养猫"),
        *(("tagged-title", [some]) for some in ("猫", ("猫",), ("猫", "n", "x"), ("猫", None), 3)),
        *(("web", ["a", some]) for some in (("猫", "n"), 3, b"a", None)),
    ],
)
def test_segments_of_another_kind_are_refused(name, segments):
    with pytest.raises(InputError, match="expected a") as caught:
        fpdb.recipe(name).fingerprint_segments(segments)
    assert "(word, tag)" in caught.value.hint


def test_one_string_is_not_many_texts():
    for take in (fpdb.recipe("web").batch, fpdb.recipe("web").fingerprint_many):
        with pytest.raises(InputError, match="found 'a text', expected several texts"):
            take("a text")


@pytest.mark.parametrize("weight", [-1, -0.001, float("nan"), float("inf")])
def test_weights_of_one_s_own_are_numbers_from_zero(weight):
    with pytest.raises(InputError, match="negative, too large or no number"):
        Recipe("own").fingerprint_features({"a": 1.0, "b": weight})


def test_weights_whose_sum_is_not_exact_are_refused():
    most = float(1 << 39)
    assert Recipe("own").fingerprint_features({"a": most, "b": 1.0})
    with pytest.raises(InputError, match="the weights add up to more than"):
        Recipe("own").fingerprint_features({"a": most, "b": most})
