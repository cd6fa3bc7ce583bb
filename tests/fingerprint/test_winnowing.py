"""Numbers of passages, against plain Python and what they promise."""

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from shingles import mixed, shingle_hash, shingles_of

import fpdb
from fpdb.fingerprint.sketches import RUN, WINDOW
from fpdb.models import PASSAGE_BYTES

WEB = fpdb.recipe("web")
# What two texts must have in common: each of its shingles is whole, one of words has three.
WORDS, SIGNS = RUN + WINDOW + 1, RUN + WINDOW + 3
TEXTS = st.one_of(
    st.text(alphabet="ab_9 ,.\n-漢字仮名พ", max_size=200),
    st.builds(str.__mul__, st.text(alphabet="ab 漢字", max_size=40), st.integers(1, 20)),
)


def numbers_of(text):
    """Return the numbers of a clean text and where they begin, by the words of the definition."""
    hashes = list(map(shingle_hash, shingles_of(text)))
    runs = []
    for start in range(len(hashes) - RUN + 1):
        run = 0
        for each in hashes[start : start + RUN]:
            run = (run * 0x9E3779B97F4A7C15 + each) % 2**64
        runs.append(run)
    chosen = {}
    for start in range(max(len(runs) - WINDOW, 0) + 1 if runs else 0):
        window = runs[start : start + WINDOW]
        number = mixed(min(window)) >> 64 - 8 * PASSAGE_BYTES
        chosen.setdefault(number, start + window.index(min(window)))
    return chosen


def set_of(packed):
    return {packed[at : at + PASSAGE_BYTES] for at in range(0, len(packed), PASSAGE_BYTES)}


@given(TEXTS)
@example("")
@example("one two")
@example("of the " * 100)
@example("漢" * 100)
def test_numbers_are_those_of_the_plain_definition(text):
    expected = numbers_of(text)
    recipe = WEB.replace(clean=())
    placed = recipe.placed_passages(text)
    assert placed.numbers.dtype == np.uint64
    assert placed.numbers.tolist() == list(expected)
    assert placed.begins.tolist() == list(expected.values())
    shingles = recipe.placed_shingles(text)[1]
    assert placed.ends.tolist() == [shingles.ends[at + RUN - 1] for at in expected.values()]
    assert placed.tokens == len(shingles.starts)
    [packed] = recipe.batch([text], passages=True).passages
    assert packed == b"".join(each.to_bytes(PASSAGE_BYTES) for each in sorted(expected))


def text_around(passage, seed, joined):
    """Return a passage with other tokens before and after it."""
    generator = random.Random(seed)
    tokens = [chr(generator.randrange(0x4E00, 0x9000)) for _ in range(2 * generator.randrange(60))]
    middle = len(tokens) // 2
    return joined.join([*tokens[:middle], *passage, *tokens[middle:]])


@given(st.integers(0), st.integers(0), st.integers(0), st.booleans(), st.integers(2, 3000))
def test_texts_that_share_a_passage_share_a_number(seed, first, second, spaced, vocabulary):
    generator = random.Random(seed)
    passage = [
        f"w{generator.randrange(vocabulary)}"
        if spaced
        else chr(0x5000 + generator.randrange(vocabulary))
        for _ in range(WORDS if spaced else SIGNS)
    ]
    texts = [text_around(passage, each, " " if spaced else "") for each in (first, second)]
    one, other = map(set_of, WEB.batch(texts, passages=True).passages)
    assert one & other


@given(st.integers(0, 2**32), st.integers(0, 3000))
def test_no_window_of_a_text_is_without_a_number(seed, size):
    generator = random.Random(seed)
    text = " ".join(f"w{generator.randrange(1 << 30)}" for _ in range(size))
    placed = WEB.placed_passages(text)
    runs = max(size - 2 - RUN + 1, 0)
    assert bool(len(placed.numbers)) is bool(runs)
    places = [-1, *placed.begins.tolist(), runs]
    assert all(0 < there - here <= WINDOW for here, there in pairwise(places) if runs >= WINDOW)
    # Of random hashes, winnowing keeps two in a window and one.
    if size > 1000:
        assert len(placed.numbers) == pytest.approx(2 * runs / (WINDOW + 1), rel=0.25)


def test_numbers_are_even():
    text = " ".join(map(str, range(100_000)))
    numbers = WEB.placed_passages(text).numbers
    counts = np.bincount((numbers >> np.uint64(36)).astype(np.int64), minlength=16)
    assert len(counts) == 16
    assert abs(counts - counts.mean()).max() < 5 * counts.mean() ** 0.5


@pytest.mark.parametrize(
    ("text", "count"),
    [
        *(("", 0), ("the " * (RUN + 1), 0), ("the " * (RUN + 2), 1), ("the " * 5000, 1)),
        *(("漢" * (RUN + 3), 0), ("漢" * (RUN + 4), 1), ("\ud800 " * 50, 0)),
        (" ".join(map(str, range(WORDS))), 1),
    ],
)
def test_texts_of_every_size(text, count):
    for recipe in (WEB, WEB.with_bits(128), fpdb.recipe("char-4"), fpdb.recipe("words")):
        batch = recipe.batch([text, "x", text], passages=True)
        assert batch.sketches is None
        first, short, second = batch.passages
        assert first == second
        assert len(first) == PASSAGE_BYTES * count
        assert short == b""
        assert len(recipe.placed_passages(text).numbers) == count
    assert WEB.batch([text]).passages is None
    assert WEB.batch([], passages=True).passages == []


def test_a_text_has_the_same_numbers_alone_and_in_any_batch():
    generator = random.Random(1)
    sizes = [generator.randrange(900) for _ in range(900)]
    texts = [" ".join(generator.choices("abcdefgh", k=size)) for size in sizes]
    assert 2 * sum(sizes) > 1 << 19  # more than one block
    together = WEB.batch(texts, sketches=True, passages=True).passages
    assert [WEB.batch([text], passages=True).passages[0] for text in texts] == together


def test_all_recipes_with_the_same_cleaning_have_the_same_numbers_and_a_secret_other_ones():
    text = "A text of SOME words, of which every recipe makes the same numbers, but for the keyed"
    [expected] = WEB.batch([text], passages=True).passages
    assert expected
    for name in ("web-128", "char-4", "words", "title"):
        assert fpdb.recipe(name).batch([text], passages=True).passages == [expected], name
    keyed = WEB.replace(hash=fpdb.Hash(by="shingle", secret=fpdb.Secret(b"0123456789abcdef")))
    assert keyed.batch([text], passages=True).passages != [expected]
