"""The online judge's C++: pairs of programs, which are duplicates at a distance below 3.

32 bits: each ASCII character votes with the output of a Mersenne twister that has its code's place.
"""

import json
import random
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pytest

import fpdb

VALUES = [
    ("hello", 0x9055E268),
    ("hello world", 0xD255E208),
    ("The quick brown fox jumps over the lazy dog", 0x9A45E70D),
    ("The quick brown fox jumped over the lazy dog", 0x9245E70D),
    ("int main(){return 0;}", 0x064DCFBF),
]
OUTPUTS = np.random.RandomState(19260817).randint(0, 1 << 32, 129, np.uint64).tolist()
DICE = random.Random(5)
LETTERS = [chr(code) for code in range(32, 127) if chr(code) != '"']


def simhash(program):
    votes = [
        sum(1 if OUTPUTS[ord(character)] >> bit & 1 else -1 for character in program)
        for bit in range(32)
    ]
    return sum(1 << bit for bit, vote in enumerate(votes) if vote >= 0)


def percent(distance):
    """The share of equal bits; a half of a hundredth is rounded up."""
    share = 100 * (1 - Decimal(distance) / 32)
    return str(share.quantize(Decimal("0.01"), ROUND_HALF_UP))


def submissions(count):
    """Pairs of programs: a copy with up to four other characters, or another program."""
    for _ in range(count):
        program = "".join(DICE.choices(LETTERS, k=DICE.randrange(50, 400)))
        copy = list(program)
        for _ in range(DICE.randrange(5)):
            copy[DICE.randrange(len(copy))] = DICE.choice(LETTERS)
        yield program, DICE.choice(["".join(copy), "".join(DICE.choices(LETTERS, k=300))])


PAIRS = list(submissions(300))
LINES = "".join(f"{first}\t{second}\n" for first, second in PAIRS).encode()
JUDGED = [(simhash(first) ^ simhash(second)).bit_count() for first, second in PAIRS]


@pytest.mark.parametrize(("program", "value"), VALUES)
def test_programs_have_the_fingerprints_of_the_class(run, program, value):
    assert simhash(program) == value
    assert fpdb.recipe("ascii-mt").fingerprint(program) == value
    shown = run("fingerprint", "--recipe", "ascii-mt", "--text", program)
    assert shown.rows[0][0] == f"{value:08x}"


@pytest.mark.parametrize("source", ["file", "standard input"])
def test_each_pair_of_a_stream_gets_its_verdict(run, tmp_path, source):
    path, stdin = "-", LINES
    if source == "file":
        path, stdin = tmp_path / "pairs.tsv", b""
        path.write_bytes(LINES)
    done = run("compare", path, "--recipe", "ascii-mt", "-k", 2, stdin=stdin)
    assert done.code == 0
    assert done.rows == [
        [str(number), str(distance), percent(distance), "1" if distance < 3 else "0"]
        for number, distance in enumerate(JUDGED, 1)
    ]
    duplicates = sum(distance < 3 for distance in JUDGED)
    assert 50 < duplicates < 250
    assert done.err.startswith(f"pairs 300, duplicates {duplicates} ({duplicates / 300:.1%}); ")


def test_fingerprints_that_the_class_made_are_judged_too(run):
    columns = "".join(f"{simhash(a)}\t{simhash(b)}\n" for a, b in PAIRS).encode()
    fields = ["--fingerprint-field", 1, "--fingerprint-field", 2, "--base", "decimal"]
    done = run("compare", "-", *fields, "--recipe", "ascii-mt", "-k", 2, "--json", stdin=columns)
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [(row["distance"], row["duplicate"]) for row in rows] == [
        (distance, distance < 3) for distance in JUDGED
    ]


def test_what_is_not_ascii_is_refused(run):
    done = run("compare", "-", "-r", "ascii-mt", stdin="hello\thellö\nhello\thello\n".encode())
    assert (done.code, [row[0] for row in done.rows]) == (4, ["2"])
    assert "-:1: the feature 'ö' isn't an ASCII character" in done.err
    alone = run("compare", "-", "-r", "ascii-mt", stdin="你好\thello\n".encode())
    assert (alone.code, alone.out) == (3, "")
    with pytest.raises(fpdb.InputError, match="isn't an ASCII character"):
        fpdb.compare("hello", "hellö", recipe="ascii-mt")
