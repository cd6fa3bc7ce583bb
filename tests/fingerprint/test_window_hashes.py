"""Hashes of windows computed on arrays, against the xxhash package."""

import numpy as np
import pytest
import xxhash
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiers import examples

from fpdb.fingerprint.hashing import window_hashes

ANY_CHARACTER = st.characters(min_codepoint=0, max_codepoint=0x10FFFF, exclude_categories=())
EVERY_SIZE = st.sampled_from("a\x00\x7f\x80é߿ࠀ中\uffff\U00010000😀\U0010ffff\ud800\udfff")
TEXTS = st.text(ANY_CHARACTER, max_size=40) | st.text(EVERY_SIZE, max_size=40)
SEEDS = st.just(0) | st.integers(0, (1 << 64) - 1)


def one_by_one(text, length, seed):
    windows = [text[at : at + length] for at in range(len(text) - length + 1)]
    return [
        xxhash.xxh3_64_intdigest(window.encode("utf-8", "surrogatepass"), seed)
        for window in windows
    ]


@pytest.mark.parametrize("length", [1, 2, 3, 4])
@settings(max_examples=examples(250))
@given(text=TEXTS, seed=SEEDS)
@example(text="abcd", seed=(1 << 64) - 1)
@example(text="😀😀😀😀", seed=1 << 63)
@example(text="\ud83d\ude00\ud800", seed=0)
def test_windows_hash_to_xxh3_of_their_utf_8(length, text, seed):
    assert window_hashes(text, length, seed).tolist() == one_by_one(text, length, seed)


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_every_mix_of_character_sizes_hashes_alike(length):
    from itertools import product

    text = "".join("".join(mix) for mix in product("aé中😀", repeat=4))
    for seed in (0, 0xFEDCBA9876543210):
        assert window_hashes(text, length, seed).tolist() == one_by_one(text, length, seed)


@pytest.mark.parametrize("length", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [16_383, 16_384, 16_385, 16_388, 40_000])
def test_windows_across_the_bounds_of_chunks_are_all_there(length, size):
    text = "".join(chr(0x4E00 + number % 20_000) for number in range(size))
    assert window_hashes(text, length).tolist() == one_by_one(text, length, 0)


def test_a_text_shorter_than_the_window_has_none():
    for text, length in (("", 1), ("abc", 4)):
        found = window_hashes(text, length)
        assert (found.dtype, len(found)) == (np.dtype(np.uint64), 0)
