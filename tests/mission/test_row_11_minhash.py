"""MinHash: two sets have the same smallest hash as often as they are similar."""

import json
import random
import re
import statistics

import fpdb

DICE = random.Random(11)
RECIPE = 'base = "news-md5"\nname = "word-sets"\nsimilarity = 0.8\nsketch = "features"\n'


def jaccard(one, other):
    return len(one & other) / len(one | other)


def shingles(text):
    words = text.split()
    return {tuple(words[at : at + 3]) for at in range(len(words) - 2)}


def pair_of_texts():
    """Make two texts of 150 words, of which the second has some others, one by one or together."""
    words = [f"word{DICE.randrange(10**6)}" for _ in range(120)]
    changed = list(words)
    for _ in range(DICE.randrange(20)):
        changed[DICE.randrange(120)] = f"word{DICE.randrange(10**6)}"
    changed[: DICE.randrange(50)] = []
    return " ".join(words), " ".join(changed)


PAIRS = [pair_of_texts() for _ in range(120)]


def check_estimates(rows, least):
    """Check exact values, estimates and their standard errors as a normal error would be."""
    errors = [(estimate - exact) / error for exact, estimate, error in rows]
    assert min(exact for exact, _, _ in rows) < least
    assert statistics.mean(abs(error) <= 1 for error in errors) > 0.56  # 0.68
    assert statistics.mean(abs(error) <= 2 for error in errors) > 0.90  # 0.95
    assert max(map(abs, errors)) < 4.5
    assert abs(statistics.mean(errors)) < 0.3  # of 120 errors: 0 within 0.09
    assert 0.01 < statistics.median(error for _, _, error in rows) < 0.04


def test_the_estimate_of_shingles_is_within_its_error():
    rows = []
    for one, other in PAIRS:
        shown = fpdb.compare(one, other)
        assert shown.shingle_jaccard == jaccard(shingles(one), shingles(other))
        rows.append((shown.shingle_jaccard, shown.sketch_jaccard, shown.sketch_error))
    check_estimates(rows, 0.4)


def test_the_estimate_of_word_sets_is_within_its_error(tmp_path):
    file = tmp_path / "word-sets.toml"
    file.write_text(RECIPE)
    recipe = fpdb.read_recipe(file)
    rows = []
    for one, other in PAIRS:
        shown = fpdb.compare(one, other, recipe=recipe)
        assert shown.jaccard == jaccard(set(one.split()), set(other.split()))
        rows.append((shown.jaccard, shown.sketch_jaccard, shown.sketch_error))
    check_estimates(rows, 0.7)


def test_compare_prints_the_estimate_and_its_error_beside_the_exact_value(run):
    one, other = PAIRS[0]
    arguments = ("compare", "--text", one, "--text", other, "--all")
    fields = json.loads(run(*arguments, "--json").out)
    number = r"(\d\.\d{4})"
    line = re.search(
        rf"similarity +{number} exact, {number} ± {number} estimated", run(*arguments).out
    )
    assert [float(part) for part in line.groups()] == [
        round(fields[name], 4) for name in ("shingle_jaccard", "sketch_jaccard", "sketch_error")
    ]
    assert float(line[1]) == round(jaccard(shingles(one), shingles(other)), 4)
