"""Differences of two texts are exact, readable, and take little time for any text."""

import random
import time
from difflib import SequenceMatcher

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from fpdb.look.differences import MOST_WORDS, differences

STORY = (
    "Red kites nest above the quarry again: wardens counted eleven pairs in April, four more than "
    "last year. Their young will fly before the summer is over."
)


def changes(text, other):
    return [(each.text, each.other) for each in differences(text, other).pieces if not each.same]


def spaceless(text):
    return "".join(text.split())


REWRITTEN = [
    f"{STORY} {end}"
    for end in ("alpha beta gamma the delta epsilon zeta", "one two three the four five six")
]


@pytest.mark.parametrize(
    ("text", "other", "changed"),
    [
        (STORY, STORY.replace("eleven", "twelve"), ("eleven ", "twelve ")),
        ("红鸢今年又筑巢，数出十一对。", "红鸢今年又筑巢，数出十二对。", ("一", "二")),
        (STORY, STORY.replace("again", "again, as in every year"), ("", ", as in every year")),
        # Few equal words in a rewritten passage are a part of it.
        (*REWRITTEN, tuple(each.removeprefix(f"{STORY} ") for each in REWRITTEN)),
        # A sentence begins with a word.
        (STORY, STORY.replace("Their", "One is blind. Their"), ("", "One is blind. ")),
        (STORY.replace("Their", "One is blind. Their"), STORY, ("One is blind. ", "")),
        ("甲乙丙。丁戊己。", "甲乙丙。庚辛。丁戊己。", ("", "庚辛。")),
        ("", "a", ("", "a")),
    ],
)
def test_what_changed_is_read_as_a_reader_would(text, other, changed):
    assert changes(text, other) == [changed]


SENTENCES = [" ".join(f"s{number}w{word}" for word in range(9)) + "." for number in range(5)]


@pytest.mark.parametrize(
    ("order", "moved"),
    [((0, 1, 2, 3, 4), ()), ((1, 2, 3, 4, 0), (0,)), ((0, 4, 1, 2, 3), (4,))],
)
def test_sentences_in_another_order_were_moved(order, moved):
    text, other = " ".join(SENTENCES), " ".join(SENTENCES[number] for number in order)
    found = differences(text, other)
    assert (found.only, found.other_only) == (0, 0)
    assert found.moved == pytest.approx(len(moved) / 5)
    pieces = [each for each in found.pieces if not each.same]
    assert all(each.moved for each in pieces)
    for side in ("text", "other"):
        parts = [getattr(each, side).strip() for each in pieces]
        assert list(filter(None, parts)) == [SENTENCES[number] for number in moved]


def test_a_stock_phrase_was_not_moved():
    phrase, longer = "中国特色社会主义", "中国特色社会主义的文化建设"
    rest = "".join(chr(0x5000 + number) for number in range(40))
    for part, moved in ((phrase, 0), (longer, len(longer) / (40 + len(longer)))):
        assert differences(part + rest, rest + part).moved == pytest.approx(moved)


def test_two_sentences_were_not_moved_to_the_place_of_one():
    sentence = SENTENCES[0]
    rest = " ".join(SENTENCES[1:])
    found = differences(f"{sentence} {sentence} {rest}", f"{rest} {sentence}")
    words = len(f"{sentence} {sentence} {rest}".replace(".", " .").split())
    assert found.moved == found.only == pytest.approx(10 / words)
    assert found.other_only == 0


def test_what_was_moved_is_in_both_texts_and_long():
    """By its definition: each moved run of six words of one text is a run of the other."""
    random_words = random.Random(3)
    for _ in range(60):
        words = [random_words.choice("abcdefgh") * 3 for _ in range(80)]
        others = words[:]
        for _ in range(4):
            start, size, to = (random_words.randrange(n) for n in (80, 25, 60))
            part = others[start : start + size]
            del others[start : start + size]
            others[to:to] = part
        text, other = " ".join(words), " ".join(others)
        for own, its, side in ((text, other, "text"), (other, text, "other")):
            pieces = differences(text, other).pieces
            assert spaceless("".join(getattr(each, side) for each in pieces)) == spaceless(own)
            for each in pieces:
                part = getattr(each, side)
                if each.moved and part:
                    assert len(part.split()) >= 6
                    # Two moved runs beside each other are one part.
                    first = " ".join(part.split()[:6])
                    assert first in its


def test_the_shares_that_only_one_text_has():
    found = differences(STORY, STORY.replace("eleven", "twelve"))
    assert found.only == found.other_only == pytest.approx(1 / 31)
    found = differences(STORY, STORY.replace("again", "again, as in every year before"))
    assert found.only == 0 < found.other_only < 0.2
    assert differences("a", "").only == 1.0
    assert differences("", "").pieces == ()
    found = differences(STORY, STORY.replace(" ", "\n  "))
    assert [each.same for each in found.pieces] == [True]


PARTS = st.lists(
    st.sampled_from(["a", "b", "c d", "红", "鸢", "!", " ", "\n", "x" * 50, "é\u0301"])
)


@settings(max_examples=examples(200))
@given(PARTS, PARTS)
def test_pieces_make_both_texts(parts, others):
    text, other = " ".join(parts), "".join(others)
    found = differences(text, other)
    # A text of white space alone has nothing to compare.
    assert "".join(each.text for each in found.pieces) == (text if text.strip() else "")
    assert "".join(each.other for each in found.pieces) == (other if other.strip() else "")
    assert all(spaceless(each.text) == spaceless(each.other) for each in found.pieces if each.same)
    assert 0 <= found.only <= 1
    assert 0 <= found.other_only <= 1


@pytest.mark.oracle
def test_as_many_equal_words_as_difflib_finds():
    """The subsequence is a longest one, so that difflib never finds more."""
    chance = random.Random(5)
    for _ in range(20):
        words = [str(chance.randrange(60)) for _ in range(120)]
        others = [w if chance.random() < 0.9 else str(chance.randrange(60)) for w in words]
        blocks = SequenceMatcher(None, words, others, autojunk=False).get_matching_blocks()
        found = differences(" ".join(words), " ".join(others))
        equal = sum(len(each.text.split()) for each in found.pieces if each.same)
        # Some equal words are taken for a part of the changes around them.
        assert equal > 0.93 * sum(block.size for block in blocks)


HOSTILE = {
    "two words, at random": " ".join(random.Random(1).choice("ab") for _ in range(50_000)),
    "one word": "spam " * 20_000,
    "one line of letters": "x" * 1_000_000,
    "shuffled words": " ".join(
        random.Random(2).sample([str(n % 5000) for n in range(17_000)], 17_000)
    ),
    "shuffled characters": "".join(
        chr(0x4E00 + random.Random(n).randrange(2000)) for n in range(33_000)
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_takes_long(name):
    text = HOSTILE[name]
    other = "".join(random.Random(3).sample(text, len(text))) if len(text) < 200_000 else text[1:]
    before = time.process_time()
    found = differences(text, other)
    assert time.process_time() - before < 2
    assert sum(len(each.text) for each in found.pieces) + found.uncompared == len(text)


def test_long_texts_are_cut():
    text = "word " * (MOST_WORDS + 7)
    found = differences(text, text + "more")
    assert (found.uncompared, found.other_uncompared) == (35, 39)
