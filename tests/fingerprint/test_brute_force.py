"""Recipes against SimHash spelt out in loops, and batches against texts taken one by one."""

import hashlib
import math
import random
import re
import unicodedata
from collections import Counter

import numpy as np
import pytest
import xxhash
from hypothesis import example, given, settings
from hypothesis import strategies as st
from shingles import shingles_of, vote_hash
from tiers import examples

import fpdb
from fpdb import Grams, Hash, IdfTable, Recipe, Secret, Weights
from fpdb.fingerprint import stages, to_int

WORDS = ["fox", "dog", "the", "a", "news", "新闻", "中国", "经济", "de", "x1", "Über", "2024"]
SENTENCES = st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join)
TEXTS = SENTENCES | st.text(max_size=80)
IDF = IdfTable({"fox": 2.5, "the": 0.0, "新闻": 1.123456, "fox dog": 7.0}, missing=1.75)


def xxh3(feature, bits):
    data = feature.encode("utf-8", "surrogatepass")
    whole = xxhash.xxh3_128_intdigest(data) if bits == 128 else xxhash.xxh3_64_intdigest(data)
    return whole & ((1 << bits) - 1)


def majority(weights, bits, tie=0, hasher=xxh3):
    """SimHash as the papers write it: every feature adds or subtracts its weight at every bit."""
    sums = [0] * bits
    for feature, weight in weights.items():
        units = round(weight * 4096)
        digest = hasher(feature, bits)
        for bit in range(bits):
            sums[bit] += units if digest >> bit & 1 else -units
    return sum(1 << bit for bit in range(bits) if sums[bit] > 0 or (tie and sums[bit] == 0))


def han_runs_cut(text):
    """Words, with jieba itself (HMM off) for the runs of Han."""
    words = []
    for word in re.findall(r"\w+", text):
        for part in re.split("([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+)", word):
            if re.match("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]", part):
                words += reference_tokenizer().lcut(part, HMM=False)
            elif part:
                words.append(part)
    return words


def reference_tokenizer():
    from fpdb.fingerprint.segmentation import jieba_tokenizer

    return jieba_tokenizer()


def plain(text):
    """What Unicode says, for texts without invisible characters and mark bombs."""
    invisible = "[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]"
    return unicodedata.normalize("NFKC", re.sub(invisible, "", text)).casefold()


def damped(counts, by="count", cap=0):
    shapes = {
        "count": float,
        "binary": lambda _count: 1.0,
        "log": lambda count: 1 + math.log(count),
        "sqrt": math.sqrt,
    }
    return {
        feature: shapes[by](min(count, cap) if cap else count) for feature, count in counts.items()
    }


def grams(segments, n, joiner):
    if not segments:
        return []
    return [joiner.join(segments[at : at + n]) for at in range(max(len(segments) - n + 1, 1))]


@pytest.mark.slow("the definition hashes each word and bit in Python")
@pytest.mark.parametrize("bits", [64, 128])
@given(text=TEXTS)
@example(text="_中_文_ 新闻 news_新闻")
@example(text="")
def test_words_is_simhash_of_words_weighted_by_the_log_of_their_count(bits, text):
    weights = damped(Counter(han_runs_cut(plain(text))), "log")
    recipe = fpdb.recipe("words").with_bits(bits)
    batch = recipe.batch([text])
    assert fpdb.fingerprint.to_int(batch.fingerprints[0]) == majority(weights, bits)
    assert batch.features[0] == len(weights)
    assert recipe.features(text) == pytest.approx(weights)


@pytest.mark.parametrize("bits", [32, 64, 128])
@settings(max_examples=examples(60))
@given(text=TEXTS, seed=st.sampled_from([b"", bytes(range(16))]))
@example(text="a 新 b 闻 x1 news_新闻 中国经济 a 新 b 闻 x1", seed=b"")
def test_web_is_simhash_of_shingles_weighted_by_the_log_of_their_count(bits, text, seed):
    secret = Secret(seed) if seed else None
    recipe = fpdb.recipe("web").with_bits(bits).replace(hash=Hash(by="shingle", secret=secret))
    weights = damped(Counter(shingles_of(plain(text))), "log")
    expected = majority(
        weights, bits, hasher=lambda each, bits: vote_hash(each, bits, secret.seed if secret else 0)
    )
    for sketched in (False, True):
        batch = recipe.batch([text, "", text], sketches=sketched)
        assert [to_int(each) for each in batch.fingerprints] == [expected, 0, expected]
        assert batch.features.tolist() == [len(weights), 0, len(weights)]
    # The features as strings take another way to the same bits.
    assert recipe.explain(text).fingerprint == expected
    assert sorted(recipe.features(text).values()) == sorted(weights.values())


@pytest.mark.parametrize("bits", [32, 64, 128])
@pytest.mark.parametrize("tie", [0, 1])
@given(text=SENTENCES)
def test_every_width_and_tie_is_the_majority_of_binary_weights(bits, tie, text):
    recipe = Recipe("own", bits, (), "whitespace", Grams(minimum=0), Weights(by="binary"), tie=tie)
    expected = majority(dict.fromkeys(text.split(), 1.0), bits, tie)
    assert recipe.fingerprint(text) == expected


@pytest.mark.parametrize("by", ["count", "binary", "log", "sqrt"])
@pytest.mark.parametrize("cap", [0, 3])
@pytest.mark.parametrize("n", [1, 2, 3])
@given(text=SENTENCES)
@settings(max_examples=examples(25))
def test_word_grams_are_weighted_by_every_damping_and_cap(by, cap, n, text):
    recipe = Recipe(
        "own", 64, (), "words", Grams(n=n, minimum=0), Weights(by=by, cap=cap, idf=None)
    )
    weights = damped(Counter(grams(re.findall(r"\w+", text), n, " ")), by, cap)
    assert recipe.features(text) == pytest.approx(weights)
    assert recipe.fingerprint(text) == majority(weights, 64)


@pytest.mark.parametrize("by", ["count", "log"])
@pytest.mark.parametrize("n", [1, 2])
@given(text=SENTENCES)
@settings(max_examples=examples(40))
def test_idf_tables_multiply_the_damped_counts(by, n, text):
    recipe = Recipe("own", 64, (), "words", Grams(n=n, minimum=0), Weights(by=by, idf=IDF))
    weights = {
        feature: weight * IDF.values.get(feature, IDF.missing)
        for feature, weight in damped(Counter(grams(re.findall(r"\w+", text), n, " ")), by).items()
    }
    assert recipe.features(text) == pytest.approx(weights)
    assert recipe.fingerprint(text) == majority(weights, 64)


@given(text=SENTENCES)
def test_stop_words_and_short_words_are_dropped_before_grams_are_made(text):
    choice = Grams(n=2, stop_words=("the", "新闻"), min_length=2, minimum=0)
    recipe = Recipe("own", 64, (), "words", choice)
    kept = [word for word in re.findall(r"\w+", text) if word not in {"the", "新闻", "a"}]
    weights = Counter(grams(kept, 2, " "))
    assert recipe.features(text) == weights
    assert recipe.fingerprint(text) == majority(weights, 64)


@given(text=st.text(st.sampled_from("abcde fg"), max_size=60))
def test_stopped_characters_are_dropped_before_windows_are_made(text):
    recipe = Recipe("own", 64, (), "characters", Grams(n=3, stop_words=("a", " "), minimum=0))
    weights = Counter(grams(re.sub("[a ]", "", text), 3, ""))
    assert recipe.fingerprint(text) == majority(weights, 64)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize(("by", "cap"), [("count", 0), ("count", 2), ("log", 0), ("binary", 0)])
@given(text=st.text(max_size=60))
@settings(max_examples=examples(25))
def test_character_windows_of_any_length_are_weighted_as_words_are(n, by, cap, text):
    recipe = Recipe("own", 64, (), "characters", Grams(n=n, minimum=0), Weights(by=by, cap=cap))
    weights = damped(Counter(grams(text, n, "")), by, cap)
    assert recipe.fingerprint(text) == majority(weights, 64)
    assert recipe.batch([text]).features[0] == len(weights)


@pytest.mark.parametrize("bits", [32, 64, 128])
@given(text=SENTENCES)
def test_blake2b_gives_each_feature_a_digest_of_the_fingerprint_s_width(bits, text):
    def hasher(feature, bits):
        digest = hashlib.blake2b(feature.encode(), digest_size=bits // 8).digest()
        return int.from_bytes(digest, "little")

    recipe = Recipe("own", bits, (), "words", Grams(minimum=0), hash=Hash(by="blake2b"))
    weights = Counter(re.findall(r"\w+", text))
    assert recipe.fingerprint(text) == majority(weights, bits, hasher=hasher)


@pytest.mark.parametrize(("bits", "offset"), [(32, 0), (32, 96), (64, 0), (64, 32), (128, 0)])
@given(text=SENTENCES)
def test_md5_takes_its_bits_from_the_offset_on(bits, offset, text):
    def hasher(feature, bits):
        return int(hashlib.md5(feature.encode()).hexdigest(), 16) >> offset & ((1 << bits) - 1)

    recipe = Recipe("own", bits, (), "words", Grams(minimum=0), hash=Hash(by="md5", offset=offset))
    weights = Counter(re.findall(r"\w+", text))
    assert recipe.fingerprint(text) == majority(weights, bits, hasher=hasher)


@pytest.mark.parametrize(("pad", "utf16"), [(0, False), (3, False), (3, True)])
@given(text=st.lists(st.sampled_from([*WORDS, "😀", "𠀀a", "é"]), max_size=20).map(" ".join))
def test_multiply_xor_pads_short_words_and_can_hash_code_units(pad, utf16, text):
    def hasher(word, bits):
        data = word.encode("utf-16-le")
        units = (
            [int.from_bytes(data[at : at + 2], "little") for at in range(0, len(data), 2)]
            if utf16
            else [ord(character) for character in word]
        )
        while len(units) < pad:
            units.append(units[0])
        value = units[0] << 7
        for unit in units:
            value = (value * 1000003 ^ unit) % (1 << bits)
        return value ^ len(units)

    choice = Hash(by="multiply-xor", pad=pad, utf16=utf16)
    recipe = Recipe("own", 64, (), "whitespace", Grams(minimum=0), hash=choice, tie=1)
    assert recipe.fingerprint(text) == majority(Counter(text.split()), 64, 1, hasher)


def mersenne_twister(seed, count):
    """Outputs of MT19937, written down from its definition."""
    state = [seed]
    for index in range(1, 624):
        previous = state[-1]
        state.append((1812433253 * (previous ^ previous >> 30) + index) & 0xFFFFFFFF)
    for index in range(624):
        mixed = (state[index] & 0x80000000) | (state[(index + 1) % 624] & 0x7FFFFFFF)
        state[index] = state[(index + 397) % 624] ^ mixed >> 1 ^ (mixed & 1) * 0x9908B0DF
    return list(map(tempered, state[:count]))


def tempered(value):
    value ^= value >> 11
    value ^= value << 7 & 0x9D2C5680
    value ^= value << 15 & 0xEFC60000
    return value ^ value >> 18


def test_an_empty_feature_hashes_to_zero_by_multiply_xor():
    recipe = Recipe("own", hash=Hash(by="multiply-xor", pad=3, utf16=True))
    assert recipe.fingerprint_features({"": 1.0}) == 0


@pytest.mark.parametrize("seed", [0, 5489, 19260817, (1 << 32) - 1])
@given(text=st.text(st.characters(max_codepoint=127), max_size=60))
@settings(max_examples=examples(30))
def test_mersenne_gives_each_ascii_character_one_output_of_the_twister(seed, text):
    table = mersenne_twister(seed, 128)
    recipe = Recipe(
        "own", 32, (), "characters", Grams(minimum=0), hash=Hash(by="mersenne", seed=seed), tie=1
    )
    expected = majority(Counter(text), 32, 1, lambda feature, _bits: table[ord(feature)])
    assert recipe.fingerprint(text) == expected


def test_own_weights_are_rounded_to_4096ths_and_signed():
    features = {f"f{number}": number / 7 for number in range(100)}
    for bits in (32, 64, 128):
        recipe = Recipe("own", bits)
        assert recipe.fingerprint_features(features) == majority(features, bits)


# Batches


def long_texts():
    """Texts on both sides of every bound inside the stages."""
    source = random.Random(7)
    words = [f"w{number}" for number in range(6000)]
    return [
        "",
        "one",
        " ".join(source.choices(words, k=9000)),  # more feature rows than vote together
        "中文新闻" * 5,
        " ".join(source.choices(words, k=200)),
        "".join(source.choices("abcdefgh", k=40_000)),  # more windows than a chunk holds
        "x" * 150_000,  # more characters than a block holds
        " ".join(source.choices(words, k=40_000)),
        "last one, with a few words of its own and 中文",
    ]


LONG_TEXTS = long_texts()


@pytest.mark.parametrize("name", ["web", "web-128", "words", "char-4", "simhash-py", "charikar"])
def test_batches_give_what_single_texts_give_in_any_order_and_split(name):
    recipe = fpdb.recipe(name)
    alone = [recipe.batch([text]) for text in LONG_TEXTS]
    orders = [range(len(LONG_TEXTS)), [8, 3, 1, 7, 0, 5, 2, 6, 4]]
    for order in orders:
        batch = recipe.batch(iter([LONG_TEXTS[index] for index in order]))
        for place, index in enumerate(order):
            assert np.array_equal(batch.fingerprints[place], alone[index].fingerprints[0])
            assert batch.features[place] == alone[index].features[0]
            assert batch.short[place] == alone[index].short[0]


@pytest.mark.parametrize("name", ["web", "words", "char-4"])
@pytest.mark.parametrize(("block", "rows"), [(1, 1), (10, 7), (100, 64), (1 << 20, 3)])
def test_block_and_row_sizes_never_change_a_fingerprint(monkeypatch, name, block, rows):
    source = random.Random(11)
    texts = [" ".join(source.choices(WORDS, k=source.randrange(60))) for _ in range(60)]
    expected = fpdb.recipe(name).batch(texts)
    monkeypatch.setattr(stages, "_BLOCK", block)
    monkeypatch.setattr(stages, "_ROWS", rows)
    found = fpdb.recipe(name).batch(texts)
    assert np.array_equal(found.fingerprints, expected.fingerprints)
    assert np.array_equal(found.features, expected.features)


@pytest.mark.parametrize("index", [2, 7])
def test_texts_of_many_rows_agree_with_the_loops(index):
    weights = damped(Counter(LONG_TEXTS[index].split()), "log")
    assert len(weights) > stages._ROWS
    assert fpdb.recipe("words").fingerprint(LONG_TEXTS[index]) == majority(weights, 64)


def test_sums_beyond_single_precision_stay_exact():
    # 2^24 units are 4096: one unit more or less decides here, and single precision loses it.
    features = {f"f{number}": 40_000 + number / 4096 for number in range(300)}
    features["last"] = 1 / 4096
    recipe = Recipe("own", 64)
    assert sum(features.values()) * 4096 > 1 << 24
    assert recipe.fingerprint_features(features) == majority(features, 64)
    opposed = {"a": 5000.0, "b": 5000.0 + 1 / 4096}
    assert recipe.fingerprint_features(opposed) == majority(opposed, 64) == xxh3("b", 64)


@pytest.mark.parametrize(("name", "words"), [("web", ()), ("web-128", (2,))])
def test_arrays_hold_unsigned_words_with_the_high_one_first(name, words):
    recipe = fpdb.recipe(name)
    texts = [f"{number} " + " ".join(f"word{at}" for at in range(20)) for number in range(3)]
    for some in (texts, []):
        found = recipe.fingerprint_many(some)
        assert (found.shape, found.dtype) == ((len(some), *words), np.dtype(np.uint64))
        numbers = [int("".join(f"{word:016x}" for word in np.atleast_1d(row)), 16) for row in found]
        assert numbers == [recipe.fingerprint(text) for text in some]


def test_forgetting_digests_changes_nothing(monkeypatch):
    texts = [" ".join(f"w{number + at}" for at in range(30)) for number in range(40)]
    expected = fpdb.recipe("words").fingerprint_many(texts)
    monkeypatch.setattr("fpdb.fingerprint.hashing._DIGESTS_CACHED", 16)
    recipe = fpdb.recipe("words").replace(name="fresh")
    assert np.array_equal(recipe.fingerprint_many(texts), expected)
    assert len(recipe._digests) <= 16
