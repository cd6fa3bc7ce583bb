"""Charikar's SimHash: weighted features become the signs of f sums; ties are 0 or 1."""

import hashlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiers import examples

import fpdb

WIDTHS = [32, 64, 128]


def simhash(weights, bits, tie):
    """Add the weight of each feature to the sum of a bit where its hash has 1, else subtract it."""
    sums = [0] * bits
    for feature, weight in weights.items():
        digest = hashlib.blake2b(feature.encode(), digest_size=bits // 8).digest()
        number = int.from_bytes(digest, "little")
        for bit in range(bits):
            sums[bit] += weight if number >> bit & 1 else -weight
    return sum(1 << bit for bit in range(bits) if sums[bit] > 0 or (sums[bit] == 0 and tie))


def recipe(bits, tie):
    grams = fpdb.Grams(minimum=0)
    return fpdb.Recipe(
        "mine",
        bits=bits,
        clean=(),
        segment="whitespace",
        grams=grams,
        hash=fpdb.Hash(by="blake2b"),
        tie=tie,
    )


@pytest.mark.parametrize("bits", WIDTHS)
@settings(max_examples=examples(100))
@given(
    weights=st.dictionaries(st.text("abc新闻", min_size=1), st.integers(0, 9), max_size=6),
    tie=st.sampled_from([0, 1]),
)
@example(weights={}, tie=0)
@example(weights={}, tie=1)
@example(weights={"a": 2, "b": 1, "c": 1}, tie=0)
@example(weights={"a": 2, "b": 1, "c": 1}, tie=1)
@example(weights={"a": 0.25, "b": 0.125, "c": 0.125}, tie=1)
def test_weighted_features_become_the_signs_of_their_sums(bits, weights, tie):
    assert recipe(bits, tie).fingerprint_features(weights) == simhash(weights, bits, tie)


@pytest.mark.parametrize("tie", [0, 1])
@pytest.mark.parametrize("bits", WIDTHS)
def test_the_command_reads_width_and_tie_from_a_recipe(run, tmp_path, bits, tie):
    file = tmp_path / "mine.toml"
    file.write_text(
        f'name = "mine"\nbits = {bits}\ntie = {tie}\nclean = []\nsegment = "whitespace"\n'
        '[grams]\nminimum = 1\n[hash]\nby = "blake2b"\n'
    )
    text = "kite kite fox owl"  # a tie where fox and owl together are against kite
    shown = run("fingerprint", "--recipe", file, "--text", text)
    expected = simhash({"kite": 2, "fox": 1, "owl": 1}, bits, tie)
    assert int(shown.rows[0][0], 16) == expected
    assert len(shown.rows[0][0]) == bits // 4
    assert expected != simhash({"kite": 2, "fox": 1, "owl": 1}, bits, 1 - tie)
