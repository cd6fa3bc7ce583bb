"""Texts that are about as similar as the usual limit, and the definition of their similarity."""

import random
from functools import cache

from shingles import shingles_of

import fpdb
from fpdb.fingerprint.sketches import standard_error

WEB = fpdb.recipe("web")
WORDS = [f"word{number}" for number in range(3000)]
LIMIT = 0.8


def near_the_limit(seed, count, families=8, length=70, edits=range(7)):
    """Return texts of some families, of which many pairs are a little below or above .8."""
    dice = random.Random(seed)
    bases = [dice.choices(WORDS, k=length) for _ in range(families)]
    texts = []
    for _ in range(count):
        words = list(dice.choice(bases))
        for place in dice.sample(range(length), dice.choice(edits)):
            words[place] = dice.choice(WORDS)
        texts.append(" ".join(words))
    return texts


@cache
def sketched(text):
    """Return the bins of a sketch."""
    [sketch] = WEB.batch([text], sketches=True).sketches
    return [half for byte in sketch.tolist() for half in (byte & 15, byte >> 4)]


@cache
def shingles(text):
    return frozenset(shingles_of(text))


@cache
def jaccard(one, other):
    first, second = shingles(one), shingles(other)
    return len(first & second) / len(first | second)


def estimate(one, other):
    apart = sum(a != b for a, b in zip(sketched(one), sketched(other), strict=True))
    return max(0.0, 1 - apart / 256 * 16 / 15)


def decided(one, other, bands, *, known, limit=LIMIT):
    """Return how similar two texts are, and whether that is exact; None if they don't match."""
    bins, first, second = bands.bins, sketched(one), sketched(other)
    starts = range(0, bins * bands.count, bins)
    if not any(first[at : at + bins] == second[at : at + bins] for at in starts):
        return None
    share, error = estimate(one, other), standard_error(limit)
    if one == other:
        return 1.0, True
    if known:
        exact = jaccard(one, other)
        return (exact, True) if exact >= limit and share >= limit - 3 * error else None
    return (share, False) if share >= limit - 1.5 * error else None
