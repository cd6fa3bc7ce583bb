"""fpdb compare: two texts, pairs, and ranks."""

import dataclasses
import json
from decimal import ROUND_HALF_UP, Decimal

import pytest

import fpdb

FIRST = "the cat sat on the mat and looked at the dog"
SECOND = "the cat sat on a mat and looked at the dog"


def percent_of_java(distance):
    """The similarity of two fingerprints of 64 bits as `String.format("%.2f")` rounds it."""
    share = 100 * (1 - Decimal(distance) / 64)
    return float(share.quantize(Decimal("0.01"), ROUND_HALF_UP))


def test_one_likeness_of_two_texts_and_all_measures(run):
    found = fpdb.compare(FIRST, SECOND)
    likeness = f"similarity  {found.shingle_jaccard:.4f} exact"
    assert run("compare", "-t", FIRST, "-t", SECOND).out == f"{likeness}\n"
    every = run("compare", "-t", FIRST, "-t", SECOND, "--all")
    assert (every.code, every.err) == (0, "")
    lines = [line.split(maxsplit=1) for line in every.out.splitlines()]
    estimate = f", {found.sketch_jaccard:.4f} ± {found.sketch_error:.4f} estimated"
    assert lines[0] == f"{likeness}{estimate}".split(maxsplit=1)
    names = {name for name, _ in lines}
    assert names >= {"containment", "distance", "angle", "cosine", "jaccard", "value"}
    bits = run("compare", "-t", FIRST, "-t", SECOND, "-r", "words").out
    distance = fpdb.compare(FIRST, SECOND, recipe=fpdb.recipe("words")).distance
    assert bits == f"distance  {distance} of 64 bits\n"


def test_two_texts_as_json(run):
    found = fpdb.compare(FIRST, SECOND)
    shown = json.loads(run("compare", "--json", "-t", FIRST, "-t", SECOND).out)
    assert fpdb.models.Comparison(**shown) == found


@pytest.mark.parametrize(
    ("options", "first", "second", "distance", "bits"),
    [
        ([], "0xF", "0", 4, 64),
        (["--base", "signed"], "-1", "0", 64, 64),
        (["--base", "signed", "-r", "ascii-mt"], "-502157718", "-369049682", 8, 32),
        (["--base", "binary", "-r", "web-128"], "1" * 128, "0" * 127 + "1", 127, 128),
    ],
)
def test_two_fingerprints(run, options, first, second, distance, bits):
    given = ["compare", "--fingerprint", first, "--fingerprint", second, *options]
    assert run(*given).out == f"distance  {distance} of {bits} bits\n"
    assert json.loads(run(*given, "--json").out) == {"distance": distance, "bits": bits}


def test_files_are_compared_where_files_are_meant(run, tmp_path):
    for name, text in (("a", FIRST), ("b", SECOND)):
        (tmp_path / name).write_text(text, "utf-8")
    done = run("compare", tmp_path / "a", tmp_path / "b")
    assert done == run("compare", "-t", FIRST, "-t", SECOND)
    missing = run("compare", tmp_path / "a", tmp_path / "absent")
    assert missing.code == 3
    assert "absent can't be read: No such file or directory" in missing.err


def test_a_half_of_a_hundredth_is_rounded_up():
    # 6 of 64 bits are 90.625 percent, for which Python's own format gives 90.62.
    web = fpdb.compare(FIRST, SECOND)
    for distance in range(65):
        found = dataclasses.replace(web, distance=distance, bits_equal=1 - distance / 64)
        assert found.percent == percent_of_java(distance)
    assert dataclasses.replace(web, bits_equal=1 - 6 / 64).percent == 90.63


def test_a_tiny_value_ratio_keeps_its_digits(run):
    texts = ["-t", "This is a test string for testing", "-t", "Hello ,World!!!"]
    lines = run("compare", *texts, "-r", "charikar", "--all").out.splitlines()
    assert [line.split()[-1] for line in lines if "ratio" in line] == ["3.300694730308353e-11"]
    assert "82 of 128 bits" in run("compare", *texts, "-r", "charikar").out
