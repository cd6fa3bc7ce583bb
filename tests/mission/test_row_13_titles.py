"""The Java library's titles: ranked by the percentage of bits that they share with another one.

The words of a title are cut by their part of speech. Each votes, up to six times, with a hash of
multiplications; punctuation doesn't.
"""

import json
import re
from collections import Counter
from decimal import ROUND_HALF_UP, Decimal

import pytest

import fpdb

pytestmark = pytest.mark.slow("jieba's tagger takes two seconds to load")

VALUES = [
    (
        "有/v 哪些/r 养/v 猫/n 必须/d 知道/v 的/u 冷/a 知识/n ？/w",
        0x62BEDE4D6C9BD4D6,
    ),
    ("有/v 哪些/r 养/v 猫/n", 0xD8BEFE176CBFD9F6),
    (" ".join(["猫/n"] * 9 + ["狗/n"] * 7), 0x60FEFFDF77FF5A76),
]
TITLE = "有哪些养猫必须知道的冷知识?"
TITLES = {
    "whole": "有哪些养猫必须知道的冷知识",
    "without its end": "有哪些养猫必须知道的冷",
    "half": "有哪些养猫必须知道",
    "a quarter": "有哪些养猫",
    "hardly any": "有哪些",
    "html": "<b>有哪些</b>养猫必须知道的 冷知识&nbsp;！",
    "another": "How to repair a wooden boat",
    "moved": "冷知识：养猫必须知道的有哪些",
    "copy of another": "how to repair a wooden boat",
}


def word_hash(word):
    units = memoryview(word.encode("utf-16-le")).cast("H").tolist()
    units += units[:1] * (3 - len(units))
    number = units[0] << 7
    for unit in units:
        number = (number * 1_000_003 ^ unit) % 2**64
    return number ^ len(units)


def simhash(terms):
    votes, counts = [0] * 64, Counter()
    for word, tag in terms:
        counts[word] += 1
        if counts[word] > 6 or tag == "w":
            continue
        for bit in range(64):
            votes[bit] += 1 if word_hash(word) >> bit & 1 else -1
    return sum(1 << bit for bit, vote in enumerate(votes) if vote >= 0)


def terms_of(title):
    """The terms of a title by jieba's tagger, which stands for that of the library."""
    from jieba import posseg

    cleaned = re.sub(r"&\w+;|\s", "", re.sub(r"<[^>]*>", "", title.lower()))
    return [
        (word, "w" if tag == "x" and not word.isalnum() else tag)
        for word, tag in posseg.lcut(cleaned)
    ]


def percent(distance):
    """The similarity as `String.format("%.2f")` prints it, which rounds halves up."""
    share = 100 * (1 - Decimal(distance) / 64)
    return str(share.quantize(Decimal("0.01"), ROUND_HALF_UP))


@pytest.fixture(scope="module")
def ranking():
    """All titles, the nearest first, and equally near ones by their keys."""
    own = simhash(terms_of(TITLE))
    distances = {key: (own ^ simhash(terms_of(title))).bit_count() for key, title in TITLES.items()}
    return sorted((distance, key) for key, distance in distances.items())


@pytest.fixture
def database(run, tmp_path):
    path, titles = tmp_path / "titles.fpdb", tmp_path / "titles.tsv"
    titles.write_text("".join(f"{key}\t{title}\n" for key, title in TITLES.items()), "utf-8")
    options = ["--key-field", 1, "--text-field", 2, "--recipe", "tagged-title"]
    assert run("ingest", path, titles, *options).code == 0
    return path


@pytest.mark.parametrize(("terms", "value"), VALUES)
def test_terms_have_the_fingerprints_of_the_library(terms, value):
    pairs = [tuple(term.rsplit("/", 1)) for term in terms.split()]
    assert simhash(pairs) == value
    assert fpdb.recipe("tagged-title").fingerprint_segments(pairs) == value


def test_titles_have_the_fingerprints_of_their_terms():
    recipe = fpdb.recipe("tagged-title")
    for title in TITLES.values():
        assert recipe.fingerprint(title) == simhash(terms_of(title))


def test_titles_are_ranked_against_one(run, database, ranking):
    assert ranking[0][0] == 0  # in the article, that without the question mark
    for count in (1, 4, len(TITLES), 100):
        done = run("query", database, "--text", TITLE, "--nearest", count)
        assert (done.code, done.err) == (0, "")
        assert done.rows == [
            ["text", key, str(distance), percent(distance)] for distance, key in ranking[:count]
        ]


def test_ties_go_by_key(run, database):
    done = run("query", database, "--text", TITLES["another"], "--nearest", 2)
    assert done.rows == [
        ["text", "another", "0", "100.00"],
        ["text", "copy of another", "0", "100.00"],
    ]


def test_several_titles_and_json(run, database, ranking, tmp_path):
    asked = tmp_path / "asked.txt"
    asked.write_text(f"{TITLE}\n{TITLES['half']}\n", "utf-8")
    done = run("query", database, asked, "--format", "lines", "--nearest", 3, "--json")
    first, second = map(json.loads, done.out.splitlines())
    assert [(near["distance"], near["key"], near["percent"]) for near in first["matches"]] == [
        (distance, key, float(percent(distance))) for distance, key in ranking[:3]
    ]
    assert (second["matches"][0]["key"], second["matches"][0]["percent"]) == ("half", 100.0)
    assert first["complete"] is True


def test_two_titles_are_compared(run):
    distance = (simhash(terms_of(TITLE)) ^ simhash(terms_of(TITLES["half"]))).bit_count()
    pair = ["-t", TITLE, "-t", TITLES["half"]]
    shown = run("compare", *pair, "--recipe", "tagged-title", "--all").out
    assert f"equal bits   {percent(distance)}%" in shown
