"""Exact Jaccard of the word sets of all pairs, above 0.8, at a cost that follows the texts."""

import random
import time
from itertools import combinations

import pytest

DICE = random.Random()
COLUMNS = ("--key-field", 1, "--text-field", 3, "--recipe", "news-md5", "--similarity", 0.8)


@pytest.fixture(autouse=True)
def the_same_numbers():
    DICE.seed(10)


def jaccard(one, other):
    return len(one & other) / len(one | other)


def word_sets(count, share):
    """Make sets of 5 to 40 words, a share of them an older one with some words exchanged."""
    sets = []
    for _ in range(count):
        words = {f"w{DICE.randrange(5000)}" for _ in range(DICE.randrange(5, 40))}
        if sets and DICE.random() < share:
            words = set(DICE.choice(sets))
            for _ in range(DICE.randrange(4)):
                words.discard(min(words, key=hash_of))
                words.add(f"w{DICE.randrange(5000)}")
        sets.append(words)
    return sets


def hash_of(word):
    return int(word[1:]) * 7919 % 5003


def write_table(path, sets):
    lines = []
    for number, words in enumerate(sets):
        texts = sorted(words) + DICE.sample(sorted(words), len(words) // 3)  # some come twice
        DICE.shuffle(texts)
        lines.append(f"u{number}\ttitle {number}\t{' '.join(texts)}\n")
    path.write_text("".join(lines))
    return path


def test_all_pairs_above_four_fifths_have_their_exact_similarity(run, tmp_path):
    sets = word_sets(400, 0.7)
    shown = run("copies", write_table(tmp_path / "news.tsv", sets), *COLUMNS)
    expected = {
        (f"u{one}", f"u{other}"): share
        for (one, first), (other, second) in combinations(enumerate(sets), 2)
        if (share := jaccard(first, second)) >= 0.8
    }
    assert {(one, other): float(share) for one, other, share in shown.rows} == {
        pair: pytest.approx(share, abs=5e-5) for pair, share in expected.items()
    }
    assert len(expected) > 100
    assert sum(0.8 < share < 1 for share in expected.values()) > 50
    assert f"pairs {len(expected)}; " in shown.err


def test_twenty_thousand_texts_take_seconds(run, tmp_path):
    # All pairs are 200 million, which the definition compares in minutes.
    sets = word_sets(20_000, 0)
    for number in range(0, 20_000, 200):
        sets[number] = sets[number + 1] | {"another"}
    table = write_table(tmp_path / "news.tsv", sets)
    start = time.process_time()
    shown = run("copies", table, *COLUMNS)
    seconds = time.process_time() - start
    # Of n + 1 words, n from 5 on are shared.
    pairs = {(f"u{number}", f"u{number + 1}") for number in range(0, 20_000, 200)}
    assert {(one, other) for one, other, _ in shown.rows} == pairs
    assert seconds < 10
