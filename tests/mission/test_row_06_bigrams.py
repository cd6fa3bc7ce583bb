"""The six steps: shingles of two characters, weighted by their count, at 32 bits."""

import json
from collections import Counter

import xxhash
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiers import examples

import fpdb

TEXT = "the cat sat on the mat"
SHINGLES = ["th", "he", "e ", " c", "ca", "at", "t ", " s", "sa", " o", "on", "n ", " t", " m"]
SHINGLES.append("ma")
COUNTS = [2, 2, 2, 1, 1, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1]


def simhash(counts):
    hashes = {shingle: xxhash.xxh3_64_intdigest(shingle.encode()) for shingle in counts}
    votes = [
        sum(count if hashes[shingle] >> bit & 1 else -count for shingle, count in counts.items())
        for bit in range(32)
    ]
    return sum(1 << bit for bit, vote in enumerate(votes) if vote > 0)


def test_the_example_has_its_fifteen_shingles_and_their_counts(run):
    shown = run("fingerprint", "--recipe", "bigram-32", "--text", TEXT, "--explain", "--json")
    fields = json.loads(shown.out)
    weights = {row["feature"]: row["weight"] for row in fields["features"]}
    assert weights == dict(zip(SHINGLES, COUNTS, strict=True))
    assert len(fields["votes"]) == 32
    assert int(fields["fingerprint"], 16) == simhash(weights)


@settings(max_examples=examples(200))
@given(st.text("abc 中文", min_size=2, max_size=40))
@example("aa")
@example(TEXT)
def test_the_fingerprint_is_that_of_the_counted_shingles(text):
    counts = Counter(text[at : at + 2] for at in range(len(text) - 1))
    assert fpdb.recipe("bigram-32").fingerprint(text) == simhash(counts)


def test_the_command_prints_32_bits(run):
    shown = run("fingerprint", "--recipe", "bigram-32", "--text", TEXT)
    assert shown.rows[0][0] == f"{simhash(dict(zip(SHINGLES, COUNTS, strict=True))):08x}"
