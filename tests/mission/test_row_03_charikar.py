"""The Python class SimHash with 128 bits: its values, its distance and its ratio of two values."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import fpdb

VALUES = json.loads((Path(__file__).parent / "values.json").read_text("utf-8"))["charikar"]
MULTIPLIER = 1_000_003


def string_hash(token, bits):
    number = ord(token[0]) << 7
    for letter in token:
        number = (number * MULTIPLIER ^ ord(letter)) % 2**bits
    return number ^ len(token)


def simhash(text, bits):
    counts = Counter(text.split())
    hashes = {token: string_hash(token, bits) for token in counts}
    votes = [
        sum(count if hashes[token] >> bit & 1 else -count for token, count in counts.items())
        for bit in range(bits)
    ]
    return sum(1 << bit for bit, vote in enumerate(votes) if vote >= 0)


@pytest.fixture
def recipe_64(tmp_path):
    file = tmp_path / "charikar-64.toml"
    file.write_text('base = "charikar"\nbits = 64\n')
    return file


def test_the_command_gives_the_values_of_the_class(run, recipe_64):
    for case in VALUES["cases"]:
        recipe = "charikar" if case["bits"] == 128 else recipe_64
        shown = run("fingerprint", "--recipe", recipe, "--text", case["text"])
        assert shown.code == 0
        assert int(shown.rows[0][0], 16) == int(case["fingerprint"], 16), case
    assert len(VALUES["cases"]) == 14


@pytest.mark.parametrize("bits", [64, 128])
@given(text=st.text("ab 中Ü\t", max_size=30))
@example(text="This is a test string for testing")
def test_any_text_has_the_bits_of_the_class(bits, text):
    assert fpdb.recipe("charikar").with_bits(bits).fingerprint(text) == simhash(text, bits)


def test_compare_shows_distance_and_ratio_of_the_class(run):
    ratios = {tuple(row[:2]): row[3] for row in VALUES["value_ratio"]}
    for one, other, bits, distance in VALUES["hamming"]:
        arguments = ("compare", "--recipe", "charikar", "--text", one, "--text", other, "--all")
        fields = json.loads(run(*arguments, "--json").out)
        assert (bits, fields["distance"]) == (128, distance)
        assert fields["value_ratio"] == pytest.approx(ratios[one, other], rel=1e-12)
        text = run(*arguments).out
        assert f"{distance} of 128 bits" in text
        assert f"value ratio  {fields['value_ratio']}" in text
    assert len(ratios) == 2
