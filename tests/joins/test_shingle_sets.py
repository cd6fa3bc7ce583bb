"""The similarity of sets of shingles is that of the sets, with kernels and without."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from fpdb import kernels
from fpdb.fingerprint.sketches import doubtful_estimates, standard_error
from fpdb.joins.columns import Room
from fpdb.joins.shingle_sets import ShingleSets
from fpdb.scratch import scratch_folder

hashes = st.integers(0, 12) | st.integers(2**64 - 3, 2**64 - 1)


@given(
    sets=st.lists(st.sets(hashes, min_size=1, max_size=12), min_size=1, max_size=8),
    gap=st.integers(1, 3),
    least=st.sampled_from([0.0, 0.5, 0.8, 1.0]),
    memory=st.sampled_from([0, 1 << 20]),
    compiled=st.booleans(),
)
@settings(max_examples=examples(100), deadline=None)
def test_shares_are_those_of_the_sets(sets, gap, least, memory, compiled):
    numbers = np.arange(len(sets)) * gap + 5
    with scratch_folder() as scratch, pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "enabled", compiled and kernels.enabled)
        shingles = ShingleSets(Room(scratch, memory))
        sorted_sets = [np.array(sorted(one), np.uint64) for one in sets]
        for start in range(0, len(sets), 3):
            shingles.add(numbers[start : start + 3], sorted_sets[start : start + 3])
        assert len(shingles) == len(sets)
        pairs = list(product(range(len(sets)), repeat=2))
        first, second = (numbers[list(places)] for places in zip(*pairs, strict=True))
        shares = shingles.shares(first, second, least).tolist()
    expected = [len(sets[one] & sets[two]) / len(sets[one] | sets[two]) for one, two in pairs]
    assert shares == [share if share >= least else 0.0 for share in expected]


@given(
    size=st.integers(1, 700), other=st.integers(0, 90), own=st.integers(0, 90), seed=st.integers(0)
)
@settings(max_examples=examples(100), deadline=None)
@pytest.mark.skipif(not kernels.enabled, reason="kernels are off")
def test_a_share_is_exact_at_any_limit_up_to_it(size, other, own, seed):
    """Sets like those of texts, at limits on both sides of their similarity."""
    chance = np.random.default_rng(seed)
    hashes = chance.integers(0, 2**64, size + other + own, np.uint64)
    sets = [np.sort(hashes[: size + other]), np.sort(np.delete(hashes, np.s_[size : size + other]))]
    exact = size / (size + other + own)
    with scratch_folder() as scratch:
        shingles = ShingleSets(Room(scratch, 1 << 20))
        shingles.add(np.arange(2), sets)
        first, second = np.arange(2), np.arange(2)[::-1]
        for least in (0.5 * exact, exact - 1e-9, exact, np.nextafter(exact, 2), 1.1 * exact):
            share = exact if least <= exact else 0.0
            assert shingles.shares(first, second, least).tolist() == [share, share]


@pytest.mark.skipif(not kernels.enabled, reason="kernels are off")
def test_places_outside_the_sets_are_refused():
    count = kernels.number_pages.common
    none, hashes = np.empty(1, np.int64), np.arange(4, dtype=np.uint64)
    for first, second, last, words in (
        (2, 0, 4, 8),
        (0, -1, 4, 8),
        (0, 1, 5, 8),
        (0, 1, 1, 8),
        (0, 1, 4, 7),
    ):
        signatures = np.zeros((2, words), np.uint64)
        places = (np.array([place], np.int32) for place in (first, second))
        with pytest.raises(ValueError, match="a set isn't there"):
            count(hashes, np.array([0, 2, last]), signatures, *places, 0.8, none)


def chance(similarity, apart):
    """The chance that sketches of two texts differ in at most N of 256 bins, by the definition.

    A bin agrees if both have the same shingle there, and in one of sixteen other cases.
    """
    differing = (1 - similarity) * 15 / 16
    total, term = 0.0, (1 - differing) ** 256
    for count in range(apart + 1):
        total += term
        term *= (256 - count) / (count + 1) * differing / (1 - differing)
    return total


@pytest.mark.parametrize("similarity", [0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
def test_an_estimate_outside_of_doubt_is_on_the_right_side(similarity):
    """Of pairs at the limit, one in 5,000 is estimated above the doubt, one in 250 below it."""
    least, sure = doubtful_estimates(similarity)
    assert sure - least == pytest.approx(7 * standard_error(similarity))
    most = max(n for n in range(257) if 1 - n / 256 * 16 / 15 >= sure) if sure <= 1 else -1
    assert chance(similarity, most) < 1 / 5000
    most = max(n for n in range(257) if 1 - n / 256 * 16 / 15 >= least)
    assert chance(similarity, most) > 1 - 1 / 250
