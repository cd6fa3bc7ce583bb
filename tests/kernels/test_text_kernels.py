"""The kernels of text give the bits that the Python code defines."""

import itertools
import random
import sys
import threading
import time
import unicodedata

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples
from twins import defined

import fpdb
from fpdb import kernels
from fpdb.fingerprint import segmentation

ANY_CHARACTER = st.characters(exclude_categories=())
LETTERS = st.sampled_from(
    "ab _-.,中文字の１Ａ，。…“”ﬁß\u0301\u200b\u00ad\ud800\n\U0001f600\U00020000กข"
)
TEXTS = st.lists(
    st.one_of(
        st.text(ANY_CHARACTER, max_size=60),
        st.text(LETTERS, max_size=300),
        st.text("ab ", max_size=400),
        st.builds(str.__mul__, st.text(LETTERS, max_size=30), st.integers(1, 300)),
    ),
    max_size=5,
)
SECRET = fpdb.Hash(secret=fpdb.Secret(b"a secret of bytes"))
BASE = fpdb.recipe("web")
RECIPES = [
    BASE,
    BASE.with_bits(128),
    BASE.with_bits(32),
    BASE.replace(tie=1, hash=fpdb.Hash(by="shingle", secret=SECRET.secret)),
    *(
        BASE.replace(weights=fpdb.Weights(by=by, cap=cap))
        for by in ("count", "binary", "log", "sqrt")
        for cap in (0, 3)
    ),
    *(
        BASE.replace(clean=clean)
        for clean in ((), ("lower",), ("tags", "unicode"), ("unicode", "word-characters"))
    ),
]

IDF = fpdb.IdfTable(
    {
        "a": 1.5,
        "中": 0.1234567,
        "b a": 7.0,
        "of": 0.0,
        "\ud800": 2.5,
        "文": 1e-9,
        "": 4.0,
        "ab": 333.3,
    },
    2.7182818,
)
# Recipes of words and of characters.
FEATURES = [
    *(
        fpdb.recipe(name)
        for name in ("char-4", "title", "words", "bigram-32", "submissions", "noisy")
    ),
    *(
        fpdb.recipe("words").replace(
            segment=segment, grams=fpdb.Grams(n=n, minimum=0), bits=bits, weights=weights, hash=own
        )
        for segment, n, bits, weights, own in (
            ("words", 1, 64, fpdb.Weights(by="sqrt"), fpdb.Hash()),
            ("words", 2, 128, fpdb.Weights(by="log", cap=9), SECRET),
            ("whitespace", 1, 32, fpdb.Weights(by="binary"), SECRET),
            ("whitespace", 3, 64, fpdb.Weights(), fpdb.Hash()),
            ("jieba", 1, 128, fpdb.Weights(cap=2), fpdb.Hash()),
            ("jieba", 3, 64, fpdb.Weights(by="log"), SECRET),
            ("jieba", 1, 64, fpdb.Weights(idf=IDF), fpdb.Hash()),
            ("words", 2, 128, fpdb.Weights(by="sqrt", cap=7, idf=IDF), SECRET),
            ("characters", 1, 32, fpdb.Weights(by="log", idf=IDF), SECRET),
            ("characters", 2, 64, fpdb.Weights(idf=fpdb.IdfTable({}, 3.25)), fpdb.Hash()),
            ("characters", 1, 64, fpdb.Weights(by="log"), SECRET),
            ("characters", 3, 128, fpdb.Weights(), SECRET),
            ("characters", 4, 32, fpdb.Weights(by="sqrt"), SECRET),
            ("characters", 5, 64, fpdb.Weights(), fpdb.Hash()),
            ("characters", 100, 64, fpdb.Weights(), SECRET),
            # Hashed by Python; only the votes are in a kernel.
            ("whitespace", 1, 64, fpdb.Weights(by="log"), fpdb.Hash(by="md5", offset=32)),
            ("whitespace", 2, 128, fpdb.Weights(), fpdb.Hash(by="multiply-xor")),
            ("words", 1, 32, fpdb.Weights(by="sqrt", cap=3), fpdb.Hash(by="blake2b")),
        )
    ),
]
FEATURES += [recipe.replace(sketch="features") for recipe in FEATURES]


def same(found, expected):
    """What was found is as expected, which may have more parts."""
    np.testing.assert_array_equal(found.fingerprints, expected.fingerprints)
    np.testing.assert_array_equal(found.features, expected.features)
    np.testing.assert_array_equal(found.short, expected.short)
    if found.sketches is not None:
        np.testing.assert_array_equal(found.sketches, expected.sketches)
    if found.passages is not None:
        assert found.passages == expected.passages


def compare(recipe, texts):
    with defined():
        expected = recipe.batch(texts, sketches=True, passages=True)
    for sketches, passages in itertools.product((False, True), repeat=2):
        found = recipe.batch(texts, sketches=sketches, passages=passages)
        same(found, expected)
        assert (found.sketches is not None, found.passages is not None) == (sketches, passages)
    for text in texts:
        placed = recipe.placed_passages(text)
        with defined():
            for part, expected in zip(placed, recipe.placed_passages(text), strict=True):
                np.testing.assert_array_equal(part, expected)


@settings(max_examples=examples(200))
@given(recipe=st.sampled_from(RECIPES + FEATURES), texts=TEXTS)
def test_any_texts(recipe, texts):
    compare(recipe, texts)


@pytest.mark.parametrize("recipe", {recipe.id: recipe for recipe in RECIPES + FEATURES}.values())
def test_texts_of_every_kind(recipe):
    compare(
        recipe,
        [
            *("", "a", "\x00", "\ud800", "\ud83d\ude00 a b c", "a_b", "中", "中文文中中文"),
            "a" * 64 + " " + "b" * 65 + " " + "c" * 200,
            "a" * 241 + " " + "b" * 300 + " " + "c" * 2000 + "é" * 200,
            *("of the " * 2100, "的" * 4200, "中国人民银行" * 200),
        ],
    )


@pytest.mark.oracle
@pytest.mark.parametrize("bits", [64, 128])
@pytest.mark.parametrize("secret", [None, fpdb.Secret(b"0123456789abcdef")])
def test_one_feature_has_the_hash_of_the_package_xxhash(bits, secret):
    recipe = fpdb.recipe("words").replace(
        segment="whitespace",
        bits=bits,
        clean=(),
        hash=fpdb.Hash(secret=secret),
        grams=fpdb.Grams(minimum=0),
    )
    hashed = xxhash.xxh3_64_intdigest if bits == 64 else xxhash.xxh3_128_intdigest
    generator = random.Random(bits)
    texts = ["".join(generator.choices("abcÿ中\U0001f600", k=size)) for size in range(1, 300)]
    texts += ["".join(generator.choices("abc", k=size)) for size in range(1, 700)]
    expected = [
        hashed(text.encode(), secret.seed if secret else 0) >> (64 * word) & (1 << 64) - 1
        for text in texts
        for word in reversed(range(bits // 64))
    ]
    assert recipe.batch(texts).fingerprints.ravel().tolist() == expected


@settings(max_examples=examples(100))
@given(texts=TEXTS)
@pytest.mark.parametrize("sketch", ["shingles", "features"])
def test_sketches_alone(sketch, texts):
    recipe = fpdb.recipe("char-4").replace(sketch=sketch)
    found = recipe.batch(texts, sketches=True).sketches
    with defined():
        np.testing.assert_array_equal(found, recipe.batch(texts, sketches=True).sketches)


@pytest.mark.slow("texts of half a megabyte")
@pytest.mark.parametrize("alphabet", ["abcde ", "ab", "中文字的是，。 a", "α\u0301β é…"])
@pytest.mark.parametrize("name", ["web", "char-4", "words"])
@pytest.mark.parametrize("size", [65_536, pytest.param(350_000, marks=pytest.mark.full)])
def test_long_texts(name, alphabet, size):
    compare(
        fpdb.recipe(name),
        ["".join(random.Random(size).choices(alphabet, k=size)), "a short one, too"],
    )


@pytest.mark.slow("all characters of Unicode")
@pytest.mark.parametrize(
    "steps",
    [
        ("word-characters", "unicode"),
        pytest.param(("unicode", "letters"), marks=pytest.mark.full),
        pytest.param(("unicode",), marks=pytest.mark.full),
        pytest.param((), marks=pytest.mark.full),
    ],
)
def test_every_character_is_cleaned_as_defined(steps):
    shown = {}
    for number in (*range(0x400), 0xE00, 0xE01, 0x10FF):
        entries = segmentation._entries(steps, "shingles", number).tolist()
        for code, entry in enumerate(entries[:256], number * 256):
            if entry == segmentation._HARD:
                continue
            at = entry - segmentation._SEVERAL
            parts = entries[at + 1 : at + 1 + entries[at]] if at >= 0 else [entry]
            shown[code] = "".join(chr(part & 0x1FFFFF) for part in parts)
    easy = list(shown)
    random.Random(1).shuffle(easy)
    for start in range(0, len(easy), 1000):
        text = "".join(map(chr, easy[start : start + 1000]))
        expected = text
        for step in steps:
            expected = segmentation.STEPS[step](expected)
        assert "".join(shown[ord(each)] for each in text) == expected


def test_characters_that_combine_with_the_one_before_are_hard():
    pairs = (unicodedata.decomposition(chr(code)).split() for code in range(sys.maxunicode + 1))
    second = {int(pair[1], 16) for pair in pairs if len(pair) == 2 and pair[0][0] != "<"}
    second |= {*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)}
    ordered = {code for code in range(sys.maxunicode + 1) if unicodedata.combining(chr(code))}
    for code in second | ordered:
        assert segmentation._combines(chr(code)), hex(code)


@pytest.mark.parametrize(
    "entries",
    [
        [0] * 255,
        [1 << 23, *[0] * 255],
        [(1 << 23) + 256, *[0] * 255],
        [(1 << 23) + 256, *[0] * 255, 1],
        [(1 << 25), *[0] * 255],
        [0xFFFFFFFF, *[0] * 255],
    ],
)
def test_a_kernel_refuses_tables_that_point_outside(entries):
    with pytest.raises(ValueError, match="table"):
        kernels.text.CharacterTable(lambda _: np.array(entries, np.uint32))


def test_frequencies_of_features_too_long_for_the_kernel():
    table = fpdb.IdfTable({"b" * 300: 9.0, "a": 2.0}, 1.0)
    recipe = fpdb.recipe("words").replace(
        weights=fpdb.Weights(idf=table), grams=fpdb.Grams(minimum=0)
    )
    compare(recipe, ["a " + "b" * 300, "a " + "c" * 300, "a a b"])


@pytest.mark.parametrize("ends", [[2], [-1, 1], [1, 0], [1, 1, 1]])
def test_a_kernel_refuses_features_outside_of_their_data(ends):
    values = np.zeros(2 if ends != [2] else 1)
    with pytest.raises(ValueError, match="feature"):
        kernels.text.FactorTable(b"a", np.array(ends, np.int64), values, 0.0)


def test_a_kernel_refuses_arrays_of_other_shapes():
    kernel = BASE._sketch_kernel
    good = np.empty((1, 1), np.uint64), np.empty(1, np.int64), np.empty((1, 128), np.uint8)
    assert kernel.run(["a b c"], *good) == []
    for place, bad in (
        (0, np.empty((2, 1), np.uint64)),
        (0, np.empty((1, 2), np.uint64)),
        (1, np.empty(2, np.int64)),
        (2, np.empty((2, 128), np.uint8)),
        (2, np.empty((1, 127), np.uint8)),
    ):
        with pytest.raises(ValueError, match="shape"):
            kernel.run(["a b c"], *good[:place], bad, *good[place + 1 :])
    for passages in ([], [b"", b""]):
        with pytest.raises(ValueError, match="shape"):
            kernel.run(["a b c"], *good, passages)
    with pytest.raises(TypeError):
        kernel.run([b"a"], *good)
    with pytest.raises(TypeError):
        kernel.passages(b"a")


def test_a_kernel_lets_other_threads_run():
    recipe = fpdb.recipe("char-4")
    text = "".join(random.Random(1).choices("abcdefghij", k=1_000_000))
    recipe.batch([text])
    started = threading.Event()

    def work():
        started.set()
        for _ in range(3):
            recipe.batch([text])

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    turns = 0
    while thread.is_alive():
        time.sleep(0.001)
        turns += 1
    thread.join()
    # If the lock were held, there would be one turn or two between the calls.
    assert turns > 15


def test_hashes_that_are_made_to_collide_are_left_to_the_definition():
    words = (f"w{number}" for number in itertools.count())
    colliding = (word for word in words if not xxhash.xxh3_64_intdigest(word.encode()) & 1023)
    text = " ".join(itertools.islice(colliding, 400))
    recipe = fpdb.recipe("words").replace(segment="whitespace", clean=())
    arrays = np.empty((2, 1), np.uint64), np.empty(2, np.int64), np.empty((0, 128), np.uint8)
    assert recipe._voting_kernel.run([text, "other words"], *arrays) == [0]
    compare(recipe, [text, "other words"])


def test_numbers_of_passages_that_are_made_to_collide_are_left_to_the_definition():
    """Two numbers that alternate hundreds of times, so near each other that they share a place."""
    arrays = np.empty((2, 1), np.uint64), np.empty(2, np.int64), np.empty((0, 128), np.uint8)
    left = []
    for seed in itertools.count():
        words = [f"{seed}w{number}" for number in range(200)]
        numbers = np.sort(BASE.placed_passages(" ".join(words * 2)).numbers)
        if np.diff(numbers).min() < 1 << 26:
            texts = [" ".join(words * 600), "other words"]
            left = BASE._voting_kernel.run(texts, *arrays, [b"", b""])
        if left:
            break
    assert left == [0]
    found = BASE.batch(texts, passages=True)
    with defined():
        same(found, BASE.batch(texts, passages=True))
