"""Passages that two texts share, against windows of words in Python's own sets."""

import random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiers import examples

import fpdb
from fpdb.fingerprint import passages

WORDS = ["the", "Ferry", "at", "Carrow", "runs", "every", "hour"]
# Few words repeat their windows, many don't.
LISTS = st.sampled_from([2, 3, 7]).flatmap(
    lambda count: st.lists(st.sampled_from(WORDS[:count]), max_size=40)
)
HAN = "今天我们要去公园里散步有哪些养猫必须知道的冷知识"


def windows(words):
    return [tuple(words[place : place + 3]) for place in range(len(words) - 2)]


def covered(words, others):
    """The places of the words that are in a window of three which the other text has as well."""
    there = set(windows(others))
    starts = [place for place, window in enumerate(windows(words)) if window in there]
    return {start + step for start in starts for step in range(3)}


def cut(text, start, end):
    return text[start:end].casefold().split()


@settings(max_examples=examples(200))
@example(list("abcd"), list("abczabczxbcd"), " ")
@given(LISTS, LISTS, st.sampled_from([" ", "\n\t ", ", "]))
def test_passages_cover_what_windows_of_words_share(words, others, between):
    first, second = between.join(words), " ".join(others).upper()
    found = fpdb.overlap(first, second)
    assert (found.text, found.other_text) == (first, second)
    lower, theirs = ([word.casefold() for word in side] for side in (words, others))
    own, other = set(windows(lower)), set(windows(theirs))
    assert found.share == (len(own & other) / len(own) if own else None)
    assert found.other_share == (len(own & other) / len(other) if other else None)
    starts, place = {}, 0
    for number, word in enumerate(words):
        place = first.index(word, place)
        starts[place] = number
        place += len(word)
    met = []
    for passage in found.passages:
        mine = cut(first.replace(",", " "), passage.start, passage.end)
        assert mine == cut(second, passage.other_start, passage.other_end)
        assert len(mine) == passage.words
        met += range(starts[passage.start], starts[passage.start] + passage.words)
    assert len(met) == len(set(met))
    assert met == sorted(covered(lower, theirs))


@settings(max_examples=examples(100))
@given(st.text(alphabet=st.sampled_from("ab 1é\n今天我们½…"), max_size=60) | st.text(max_size=60))
def test_places_are_those_of_the_shingles_of_a_text(text):
    for name in ("web", "char-4", "tagged-title", "submissions"):
        recipe = fpdb.recipe(name).replace(sketch="shingles")
        kept, placed = recipe.placed_shingles(text)
        assert sorted(set(placed.hashes.tolist())) == recipe.shingles(text).tolist()
        assert (placed.starts < placed.stops).all()
        assert not len(placed.stops) or placed.stops[-1] <= len(kept)
        assert (placed.stops[:-1] <= placed.starts[1:]).all()
        assert len(placed.ends) == len(placed.hashes) <= len(placed.starts) == len(placed.stops)
    whole = fpdb.overlap(text, text)
    assert whole.share in (None, 1.0)
    assert len(whole.passages) == (whole.share is not None)


def test_half_of_a_text_is_one_passage_wherever_it_is():
    chosen = random.Random(1).choices([f"word{number}" for number in range(400)], k=900)
    half, rest, others = (" ".join(chosen[start : start + 300]) for start in (0, 300, 600))
    found = fpdb.overlap(f"{half} {rest}", f"{others} {half}")
    [passage] = found.passages
    assert passage.words == 300
    assert found.text[passage.start : passage.end] == half
    assert found.other_text[passage.other_start : passage.other_end] == half
    assert 0.49 < found.share < 0.51


def test_what_was_moved_is_found():
    first, second = HAN[:11], HAN[11:]
    found = fpdb.overlap(f"{first}，{second}", f"{second}。 {first}")
    texts = [found.text[passage.start : passage.end] for passage in found.passages]
    assert texts == [first, second]
    assert [passage.words for passage in found.passages] == [len(first), len(second)]


def test_a_phrase_that_is_repeated_goes_on_with_its_passage():
    phrase = "as the council of lindow said"
    first = f"{phrase} the ferry is closed again and {phrase} the bridge is open now"
    second = f"{phrase} nothing else today but {phrase} the bridge is open now"
    found = fpdb.overlap(first, second)
    longest = max(found.passages)
    assert first[longest.start : longest.end] == f"{phrase} the bridge is open now"
    assert longest.other_start == second.index(phrase, 5)


@pytest.mark.parametrize(
    ("recipe", "first", "kept"),
    [
        ("web", "Ｔhe “Ｆerry”… at CARROW runs", True),
        ("web", "the ferry ½ full", False),  # one becomes two words
        ("tagged-title", "<b>the ferry</b> at carrow runs", False),
        ("submissions", "int ferry = at(carrow); // runs", False),
    ],
)
def test_the_text_itself_is_shown_if_cleaning_keeps_its_words(recipe, first, kept):
    found = fpdb.overlap(first, first, recipe=fpdb.recipe(recipe))
    assert (found.text == first) == kept
    [passage] = found.passages
    assert found.text[passage.start : passage.end]


def test_texts_without_a_shingle_share_nothing():
    found = fpdb.overlap("two words", "")
    assert (found.share, found.other_share, found.passages) == (None, None, ())
    # Where features are compared, their share counts.
    recipe = fpdb.recipe("words").replace(sketch="features")
    found = fpdb.overlap("a b c d", "d c x a e", recipe=recipe)
    assert (found.share, found.other_share, found.passages) == (3 / 4, 3 / 5, ())


@pytest.mark.parametrize("words", [["a"], ["a", "b"], ["a", "b", "c", "d"]])
def test_repetition_takes_time_that_grows_with_the_texts(words):
    texts = [" ".join(random.Random(seed).choices(words, k=20_000)) for seed in (1, 2)]
    found = fpdb.overlap(*texts)
    assert sum(passage.words for passage in found.passages) == 20_000


def test_a_shingle_that_comes_again_is_the_next_one_or_else_the_first():
    def counterparts(first, second):
        columns = (np.array(each, np.uint64) for each in (first, second))
        return passages._counterparts(*columns).tolist()

    assert counterparts([7, 5], [5, 5, 9, 7]) == [3, 0]
    assert counterparts([7, 5, 5, 5], [5, 7, 9, 5, 9, 5]) == [1, 3, 5, 0]
    assert counterparts([1, 5, 6], [5, 9, 5, 6]) == [-1, 2, 3]
    assert counterparts([8, 5, 7], [5, 7, 8, 5]) == [2, 0, 1]
