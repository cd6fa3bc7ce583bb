"""Shingles and sketches, against plain Python and the exact Jaccard similarity."""

import numpy as np
import pytest
import xxhash
from hypothesis import example, given
from hypothesis import strategies as st
from shingles import mixed, salted, shingle_hash, shingles_of
from twins import defined

import fpdb
from fpdb.fingerprint import sketches

WEB = fpdb.recipe("web")
TEXTS = st.text(alphabet="ab_9 ,.\n-漢字仮名พ", max_size=200)


@given(TEXTS, st.integers(0, 3))
@example(f"x {'abcde' * 1000} y {'abc' * 700} 漢 z", 0)
def test_shingles_are_those_of_the_plain_definition(text, seed):
    expected = [shingle_hash(tokens, seed) for tokens in shingles_of(text)]
    assert sketches.placed_shingles(text, seed).hashes.tolist() == expected
    keyed = WEB.replace(clean=())
    assert keyed.shingles(text).tolist() == sorted(map(shingle_hash, set(shingles_of(text))))


@given(TEXTS, st.integers(0, 3))
def test_strings_of_shingles_are_their_tokens_and_hash_alike(text, seed):
    strings, expected = sketches.shingle_strings(text), shingles_of(text)
    assert [string.replace(" ", "") for string in strings] == ["".join(each) for each in expected]
    for string, tokens in zip(strings, expected, strict=True):
        assert sketches.hash_shingle(string, seed).tolist() == [shingle_hash(tokens, seed)]
    assert len(set(strings)) == len(set(expected))
    assert sketches.hash_shingle("one two three").tolist() == [
        shingle_hash(("one", "two", "three"))
    ]


def sketches_of(recipe, texts):
    return recipe.batch(texts, sketches=True).sketches


@given(st.lists(TEXTS, max_size=8), st.data())
def test_a_sketch_does_not_depend_on_its_neighbours(texts, data):
    together = sketches_of(WEB, texts)
    order = data.draw(st.permutations(range(len(texts))))
    assert (sketches_of(WEB, [texts[at] for at in order]) == together[list(order)]).all()
    for text, row in zip(texts, together, strict=True):
        assert bool(row.any()) == bool(len(WEB.shingles(text)))
    assert WEB.batch(texts).sketches is None


def test_fewer_than_fifteen_units_have_no_sketch():
    assert not sketches_of(WEB, ["two words", "四個漢字", "…!"]).any()
    assert sketches_of(WEB, ["these three words", "這是五個字", "one 三個字 two"]).any(axis=1).all()


def test_a_secret_keys_the_sketch():
    text = "some words that a secret turns into other bits"
    keyed = WEB.replace(name="keyed", hash=fpdb.Hash(secret=fpdb.Secret(b"0123456789abcdef")))
    found = sketches.sketch_jaccard(sketches_of(WEB, [text]), sketches_of(keyed, [text]))
    assert found[0] < 0.2


@pytest.mark.parametrize("name", ["char-4", "simhash-py", "tagged-title"])
def test_steps_that_join_words_are_left_out_for_shingles(name):
    recipe = fpdb.recipe(name)
    text = "these are six words with spaces"
    assert len(recipe.shingles(text)) == 4


@pytest.mark.parametrize("jaccard", [0.2, 0.5, 0.8, 0.95])
@pytest.mark.parametrize(
    ("size", "pairs"), [(5, 1500), (20, 1000), (100, 500), (1000, 200), (10000, 60)]
)
def test_the_estimate_is_unbiased_and_errs_as_the_formula_says(size, pairs, jaccard):
    rng = np.random.default_rng(size + round(100 * jaccard))
    left, right, exact = [], [], []
    for _ in range(pairs):
        mean = 2 * size * jaccard / (1 + jaccard)
        shared = int(mean + rng.random())
        values = rng.integers(2**64, size=2 * size, dtype=np.uint64)
        left.append(values[:size])
        right.append(np.concatenate([values[:shared], values[size : 2 * size - shared]]))
        exact.append(sketches.exact_shares(np.sort(left[-1]), np.sort(right[-1]))[0])
    rows = [np.array(list(map(sketches.sketch, sets))) for sets in (left, right)]
    errors = sketches.sketch_jaccard(*rows) - exact
    expected = np.mean(np.square(list(map(sketches.standard_error, exact)))) ** 0.5
    # The rounds draw without replacement from few shingles, so that the estimate errs less.
    assert abs(errors.mean()) <= 3 * errors.std() / pairs**0.5
    assert (0.5 if size <= 20 else 0.7) * expected < errors.std() < 1.25 * expected


def test_equal_sets_agree_wholly_and_nothing_agrees_with_no_sketch():
    texts = ["a text with some words", "a text", "a text with some words"]
    rows = sketches_of(WEB, texts)
    found = sketches.sketch_jaccard(rows[[0, 0, 1]], rows[[2, 1, 1]])
    assert found[0] == 1
    assert np.isnan(found[1:]).all()


def test_sketches_of_single_texts_are_compared():
    texts = ["a text with some words", "a text with some more words", "a text"]
    rows = sketches_of(WEB, texts)
    single = [row.tobytes() if row.any() else b"" for row in rows]
    for one, first in zip(single, rows, strict=True):
        expected = sketches.sketch_jaccard(rows, first)
        found = [fpdb.sketch_jaccard(other, one) for other in single]
        np.testing.assert_array_equal(found, expected)
    assert isinstance(fpdb.sketch_jaccard(single[0], single[1]), float)


@given(st.binary(min_size=128, max_size=128), st.binary(min_size=128, max_size=128))
def test_the_estimate_counts_the_half_bytes_that_differ(left, right):
    rows = [np.frombuffer(each, np.uint8) for each in (left, right)]
    apart = sum(a != b for a, b in zip(left.hex(), right.hex(), strict=True))
    found = sketches.sketch_jaccard(*rows)
    first, second = (np.array([np.zeros_like(row), row, ~row]) for row in rows)
    places = np.array([1, 2, 0, 1]), np.array([1, 1, 1, 2])
    of_rows = sketches.jaccard_of_rows(first, places[0], second, places[1])
    expected = sketches.sketch_jaccard(first[places[0]], second[places[1]])
    np.testing.assert_array_equal(of_rows, expected)
    if any(left) and any(right):
        assert found == pytest.approx(max(0.0, 1 - apart / 256 * 16 / 15)) == of_rows[0]
    else:
        assert np.isnan(found)


@given(st.integers(0, 2**32), st.integers(0, 256), st.sampled_from([0.0, 0.5, 0.8, 0.95, 1.0]))
def test_no_similar_pair_differs_in_more_low_bits_than_similar_ones_may(seed, edited, similarity):
    chance = np.random.default_rng(seed)
    one, two = chance.integers(0, 16, (2, 20, sketches.BINS), np.uint8)
    same = chance.permuted(np.arange(sketches.BINS) >= edited)
    two[:, same] = one[:, same]
    packed = [rows[:, ::2] | rows[:, 1::2] << 4 for rows in (one, two)]
    every = np.arange(20)
    low = [sketches.low_bits(rows) for rows in packed]
    apart = sketches.low_bits_apart(low[0], every, low[1], every)
    assert apart.tolist() == ((one ^ two) & 1).sum(axis=1).tolist()
    least = sketches.least_estimate(similarity)
    similar = sketches.sketch_jaccard(*packed) >= least
    assert similar.tolist() == ((one != two).sum(axis=1) <= sketches.most_apart(least)).tolist()


def plain_sketch(hashes):
    """The definition: sixteen rounds in which every shingle falls into one of 256 bins.

    The smallest hash of the first round that fills a bin wins; in a bin that stays empty, that of
    all shingles for that bin. Of each winner the lowest four bits are kept.
    """
    winners = {}
    for number in range(16):
        filled = set(winners)
        for each in hashes:
            value = mixed((each + salted(number, 1)) % 2**64)
            place, low = value >> 56, value % 2**52
            if place not in filled:
                winners[place] = min(winners.get(place, low), low)
    bins = [
        winners[place]
        if place in winners
        else min(mixed(each ^ salted(place, 2)) % 2**52 for each in hashes)
        for place in range(256)
    ]
    return bytes(bins[at] % 16 | bins[at + 1] % 16 << 4 for at in range(0, 256, 2))


@pytest.mark.parametrize("size", [1, 2, 15, 100, 600])
def test_a_sketch_is_that_of_the_plain_definition(size):
    text = " ".join(f"w{number * number % 1009}" for number in range(size + 2))
    hashes = sorted({shingle_hash(tokens) for tokens in shingles_of(text)})
    expected = plain_sketch(hashes)
    assert sketches.sketch(np.array(hashes, np.uint64)).tobytes() == expected
    assert sketches_of(WEB, [text])[0].tobytes() == expected
    with defined():
        assert sketches_of(WEB, [text])[0].tobytes() == expected


# Of each similarity: its standard error, and the most bins that may differ, worked out by hand from
# explanation/similarity.md: e.g. at .8, p = .8 + .2 / 16 = .8125, the error is
# (.8125 * .1875 / 256) ** .5 * 16 / 15 = .02602, and 1 - d / 240 >= .8 - 1.5 * .02602 up to d = 57.
LIMITS = [
    (0.5, 0.03327, 131),
    (0.6, 0.03227, 107),
    (0.65, 0.03130, 95),
    (0.7, 0.02997, 82),
    (0.8, 0.02602, 57),
    (0.9, 0.01943, 30),
    (0.95, 0.01409, 17),
    (1.0, 0.0, 0),
]


@pytest.mark.parametrize(("similarity", "error", "most"), LIMITS)
def test_the_limits_are_those_of_the_page(similarity, error, most):
    assert sketches.standard_error(similarity) == pytest.approx(error, abs=6e-6)
    assert fpdb.least_estimate(similarity) == pytest.approx(similarity - 1.5 * error, abs=1e-5)
    assert sketches.most_apart(fpdb.least_estimate(similarity)) == most


def differing(bins):
    """Two sketches whose first bins differ, each in one of its four bits, in turn."""
    one = bytes(range(100, 228))
    two = int(one.hex(), 16)
    for place in range(bins):
        two ^= 1 << place % 4 << 4 * (255 - place)
    return one, two.to_bytes(128)


@pytest.mark.parametrize(
    ("bins", "estimate"), [(0, 1.0), (1, 239 / 240), (57, 183 / 240), (239, 1 / 240), (240, 0.0)]
)
def test_an_estimate_is_one_less_a_240th_for_each_bin_that_differs(bins, estimate):
    one, two = differing(bins)
    assert fpdb.sketch_jaccard(one, two) == pytest.approx(estimate, abs=1e-12)
    rows = [np.frombuffer(each, np.uint8)[np.newaxis] for each in (one, two)]
    zero = np.zeros(1, np.int64)
    for found in (
        sketches.sketch_jaccard(*rows),
        sketches.jaccard_of_rows(rows[0], zero, rows[1], zero),
    ):
        assert found.tolist() == [pytest.approx(estimate, abs=1e-12)]


def test_exact_shares_of_shingles():
    first, second = WEB.shingles("a b c d e"), WEB.shingles("x b c d e")
    assert sketches.exact_shares(first, second) == (2 / 4, 2 / 3)
    assert sketches.exact_shares(first, WEB.shingles("a b c d")) == (2 / 3, 1)
    assert sketches.exact_shares(first, first) == (1, 1)
    assert sketches.exact_shares(first, WEB.shingles("a b")) == (None, None)


OWN = {
    "word sets": fpdb.recipe("words").replace(segment="words", grams=fpdb.Grams()),
    "characters": fpdb.recipe("char-4").replace(bits=32, grams=fpdb.Grams(n=2)),
    "tokens": fpdb.recipe("submissions").replace(bits=128, sketch="shingles"),
    "hashed by Python": fpdb.recipe("simhash-py"),
    "weighed by tags": fpdb.recipe("tagged-title"),
}


@pytest.mark.parametrize("recipe", OWN.values(), ids=OWN)
def test_a_sketch_of_features_is_of_the_bits_with_which_they_vote(recipe):
    own = recipe.replace(sketch="features")
    assert own.id != recipe.id
    texts = ["if a > b: return a, 中文", "if b > a: return b + 1, 中文字", "x"]
    found = own.batch(texts, sketches=True)
    assert (found.fingerprints == recipe.batch(texts).fingerprints).all()
    for text, row in zip(texts, found.sketches, strict=True):
        votes = {voter.hash % 2**64 for voter in own.explain(text).features}
        assert own.shingles(text).tolist() == sorted(votes)
        assert (row == sketches.sketch(own.shingles(text))).all()
    compared = fpdb.compare(*texts[:2], recipe=own)
    assert compared.shingle_jaccard == pytest.approx(compared.jaccard)


@pytest.mark.parametrize("hashed", [None, xxhash.xxh3_128_digest])
def test_short_texts_of_the_same_features_have_one_digest(hashed):
    recipe = OWN["word sets"].replace(sketch="features")
    texts, given = ["a b", "A, b!", "a c", "…", "…\n", " \n"], [hashed] if hashed else []
    one, same, other, sign, line, nothing = recipe.digests(texts, [True] * 6, *given)
    assert one == same != other
    assert sign == line != nothing
    assert nothing == bytes(16)
    assert (one == recipe.digest("a b", short=True)) == (hashed is None)
