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
from hypothesis import assume, example, given, settings
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
@settings(max_examples=examples(100))
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


CUTS = {
    "whitespace": str.split,
    "words": lambda text: re.findall(r"\w+", text),
    "characters": list,
}


def by_blake2b(feature, bits):
    return int.from_bytes(
        hashlib.blake2b(feature.encode(), digest_size=bits // 8).digest(), "little"
    )


def by_md5(offset):
    def hasher(feature, bits):
        return int(hashlib.md5(feature.encode()).hexdigest(), 16) >> offset & ((1 << bits) - 1)

    return hasher


def by_multiply_xor(pad, utf16):
    def hasher(word, bits):
        data = word.encode("utf-16-le" if utf16 else "utf-32-le")
        size = 2 if utf16 else 4
        units = [int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size)]
        while len(units) < pad:
            units.append(units[0])
        value = units[0] << 7
        for unit in units:
            value = (value * 1000003 ^ unit) % (1 << bits)
        return value ^ len(units)

    return hasher


HASHERS = [(Hash(), xxh3), (Hash(by="blake2b"), by_blake2b)]
HASHERS += [(Hash(by="md5", offset=offset), by_md5(offset)) for offset in (0, 32, 96)]
HASHERS += [
    (Hash(by="multiply-xor", pad=pad, utf16=utf16), by_multiply_xor(pad, utf16))
    for pad, utf16 in ((0, False), (3, False), (3, True))
]


def weights_of(recipe, text):
    """The weights of the features of a text without cleaning."""
    parts, weights = recipe.grams, recipe.weights
    kept = [
        segment
        for segment in CUTS[recipe.segment](text)
        if segment not in parts.stop_words and len(segment) >= parts.min_length
    ]
    joiner = "" if recipe.segment == "characters" else " "
    found = damped(Counter(grams(kept, parts.n, joiner)), weights.by, weights.cap)
    if weights.idf:
        return {each: found[each] * IDF.values.get(each, IDF.missing) for each in found}
    return found


@pytest.mark.parametrize("segment", CUTS)
@settings(max_examples=examples(800))
@given(
    bits=st.sampled_from([32, 64, 128]),
    parts=st.builds(
        Grams,
        n=st.integers(1, 7),
        stop_words=st.sampled_from([(), ("the", "新闻"), ("a", " ")]),
        min_length=st.sampled_from([1, 2]),
        minimum=st.just(0),
    ),
    weights=st.builds(
        Weights,
        by=st.sampled_from(["count", "binary", "log", "sqrt"]),
        cap=st.sampled_from([0, 2, 3]),
        idf=st.sampled_from([None, IDF]),
    ),
    hashed=st.sampled_from(HASHERS),
    tie=st.sampled_from([0, 1]),
    text=SENTENCES
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
    | st.lists(st.sampled_from([*WORDS, "😀", "𠀀a", "é"]), max_size=20).map(" ".join),
)
def test_features_of_all_parts_vote_as_the_papers_say(
    segment, bits, parts, weights, hashed, tie, text
):
    choice, hasher = hashed
    assume(choice.offset + bits <= 128)
    recipe = Recipe("own", bits, (), segment, parts, weights, choice, tie=tie)
    expected = weights_of(recipe, text)
    assert recipe.features(text) == pytest.approx(expected)
    batch = recipe.batch([text])
    assert to_int(batch.fingerprints[0]) == majority(expected, bits, tie, hasher)
    assert batch.features[0] == len(expected)


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
@settings(max_examples=examples(100))
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
