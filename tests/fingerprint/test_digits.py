"""Fingerprints as digits: every base, there and back, and what is none."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

import fpdb

BASES = ["hex", "decimal", "signed", "binary"]
fingerprints = st.sampled_from([32, 64, 128]).flatmap(
    lambda bits: st.tuples(st.integers(0, (1 << bits) - 1), st.just(bits))
)


@pytest.mark.parametrize("base", BASES)
@given(fingerprints)
@settings(max_examples=examples(100))
def test_what_is_written_is_read_again(base, given_one):
    number, bits = given_one
    assert fpdb.parse_fingerprint(fpdb.format_fingerprint(number, bits, base), bits, base) == number


@given(fingerprints)
@settings(max_examples=examples(100))
def test_signed_digits_are_those_of_the_same_bytes(given_one):
    number, bits = given_one
    same = int.from_bytes(number.to_bytes(bits // 8, "big"), "big", signed=True)
    assert fpdb.format_fingerprint(number, bits, "signed") == str(same)
    assert fpdb.format_fingerprint(same, bits, "decimal") == str(number)
    assert fpdb.parse_fingerprint(str(number), bits, "signed") == number


def test_digits_of_the_articles():
    assert fpdb.parse_fingerprint("-502157718", 32, "signed") == 2**32 - 502157718
    assert fpdb.parse_fingerprint("01100011", 32, "binary") == 0b01100011
    assert fpdb.format_fingerprint(0b01100011, 32, "binary") == "0" * 24 + "01100011"
    assert fpdb.format_fingerprint(0x63, 32) == "00000063"


@pytest.mark.parametrize("base", BASES)
def test_a_prefix_marks_hex_digits_in_any_base(base):
    assert fpdb.parse_fingerprint("0xfF", 64, base) == 255


@pytest.mark.parametrize(
    ("digits", "bits", "base"),
    [
        ("", 64, "hex"),
        ("-1", 64, "hex"),
        ("-1", 64, "binary"),
        ("-1", 64, "decimal"),
        ("2", 64, "binary"),
        ("0b1", 64, "binary"),
        ("1_0", 64, "decimal"),
        (" 1", 64, "decimal"),
        ("+1", 64, "signed"),
        ("٣", 64, "decimal"),
        ("1" * 129, 128, "binary"),
        (str(1 << 64), 64, "decimal"),
        (str(-(1 << 63) - 1), 64, "signed"),
        ("1" * 33, 32, "binary"),
        ("1", 64, "octal"),
    ],
)
def test_what_is_no_fingerprint(digits, bits, base):
    with pytest.raises(fpdb.InputError, match="found"):
        fpdb.parse_fingerprint(digits, bits, base)
