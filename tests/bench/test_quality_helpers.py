"""The helpers of tools/quality: their texts, their truth, their peers, and their tables."""

import gzip
import importlib
import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import fpdb

FOLDER = Path(__file__).parents[2] / "tools" / "qualities"


@pytest.fixture
def helper(monkeypatch):
    """Import one of the modules, which find each other beside themselves."""
    monkeypatch.syspath_prepend(FOLDER)
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(FOLDER)):
            del sys.modules[name]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Make a corpus of four English texts, one of them empty, with a table of pairs."""
    place = tmp_path / "small-en"
    place.mkdir()
    texts = ["one two three four five six", "One two  three four five seven", "", "eight nine ten"]
    with gzip.open(place / "documents.jsonl.gz", "wt", encoding="utf-8") as file:
        for number, text in enumerate(texts):
            file.write(json.dumps({"id": number, "text": text}) + "\n")
    (place / "pairs.tsv").write_text("a\tb\tj\n0\t1\t0.6000\n0\t3\t0.0000\n")
    monkeypatch.setenv("FPDB_CORPORA", str(tmp_path))
    return place


def test_the_truth_of_a_corpus_is_checked_against_its_pairs(helper, folder):
    corpora = helper("corpora")
    corpus = corpora.load("small-en")
    assert corpus.keys == ["0", "1", "2", "3"]
    assert corpus.truth.jaccards.tolist() == [0.6]
    assert corpus.check() == 2
    (folder / "pairs.tsv").write_text("a\tb\tj\n0\t1\t0.7000\n")
    with pytest.raises(SystemExit, match=r"1 pairs of pairs\.tsv have another similarity"):
        corpora.load("small-en").check()


def test_chinese_shingles_have_five_characters_without_white_space(helper):
    corpora = helper("corpora")
    assert corpora.characters("天地 玄黄，宇\n宙") == {"天地玄黄，", "地玄黄，宇", "玄黄，宇宙"}
    assert corpora.words("One, two three-FOUR") == {"one two three", "two three four"}


def test_the_text_of_a_page_is_found_in_a_template_too(helper):
    page = (
        "<!-- licence --><p>a &amp; b</p><script>var x = 1;</script><style>p {}</style>"
        '<script type="text/x-handlebars-template"><b>hidden</b></script>'
    )
    assert helper("corpora").extracted(page).split() == ["a", "&", "b", "hidden"]


def test_pairs_of_the_package_simhash_are_those_within_k(helper):
    texts = ["the quick brown fox jumps over it", "The quick brown fox jumps over it!", "no kin"]
    (first, second), failed = helper("peers").simhash_pairs([*texts, "a" * 400])
    assert (first.tolist(), second.tolist()) == ([0], [1])
    assert failed in (0, 1)  # with numpy 2 the package can't take the last


def test_rating_pairs_of_others_counts_as_a_recipe_is_rated(helper):
    truth = fpdb.joins.truth.Truth(
        5, np.array([1, 2, 8, 13]), np.array([0.9, 0.75, 0.6, 0.8]), np.array([0, 1, 2, 3, 0])
    )
    rated = helper("run").rate_pairs(truth, np.array([0, 2, 1, 0, 1]), np.array([1, 0, 3, 4, 2]))
    assert {name: rated[name] for name in ("equal", "reported", "right", "wrong", "found")} == {
        "equal": 1,
        "reported": 4,
        "right": 2,
        "wrong": 1,
        "found": 1,
    }
    assert (rated["precision"], rated["recall"]) == (2 / 3, 0.5)


def test_tables_say_what_is_reached(helper):
    report = helper("report")
    rating = {
        "equal": 2,
        "reported": 5,
        "right": 4,
        "wrong": 1,
        "found": 3,
        "precision": 0.8,
        "recall": 0.75,
    }
    each = {
        "documents": 1000,
        "true": 4,
        "equal": 2,
        "short": 1,
        "failed": 9,
        "recipes": {report.DEFAULT: [rating] * 13},
        "wide": [rating] * 25,
        "similar": rating,
        "sure": {**rating, "recall": 0.98},
        "hashes": {report.DEFAULT: [rating, {**rating, "recall": 0.25}]},
        "peers": {"simhash": {**rating, "recall": 0.5}, "datasketch": rating},
        "tags": {"short": 7, **rating},
    }
    raw = {"versions": ["fpdb 1"], "corpora": {"small-en": each}}
    body = report.body(raw)
    assert "| small-en | 1,000 | 4 | 2 | 1 |" in body
    assert (
        "| small-en | recall at k = 3 | .750 | .550 | yes | simhash: .500; on 9 texts it fails |"
        in body
    )
    assert "| small-en | precision at k = 3, equal texts counted | .857 | .950 | **no** |" in body
    assert "| small-en | similar: found of the pairs from .85 on | .980 | .970 | yes |" in body
    assert "| small-en | similar: right from .7 on of all reported | .800 | .980 | **no** |" in body
    assert f"| {report.DEFAULT} | .800 / .500 (.250 to .750) |" in body
    assert "finds 7 of 1,000 pages too short" in body


def test_the_default_is_among_the_candidates(helper):
    recipes, report = helper("recipes"), helper("report")
    chosen = recipes.candidates(["some text of a few words"])
    assert chosen[report.DEFAULT] == recipes.DEFAULT == fpdb.recipe("web")
    assert len({recipe.id for recipe in chosen.values()}) == len(chosen)
    assert report.DEFAULT in recipes.rehashed()


def test_the_curves_of_the_picture_are_where_the_shares_are(helper):
    words = [f"word{number}" for number in range(60)]
    texts = [" ".join([*words[:at], f"new{at}", *words[at + 1 :]]) for at in range(0, 60, 5)]
    documents = [fpdb.Document(number, text) for number, text in enumerate(texts)]
    [quality] = fpdb.evaluate(documents, k=range(9), similarity=0.9).recipes
    root = ET.fromstring(helper("picture").draw(["12 documents & more"], quality))
    assert any(element.text == "12 documents & more" for element in root.iter())
    space = "{http://www.w3.org/2000/svg}"
    names = [title.text for title in root.iter(f"{space}title")]
    for name in ("recall", "similar recall", "true pairs", "other pairs, drawn at random", "bits"):
        assert name in names
    [recall] = [line for line in root.iter(f"{space}polyline") if line[0].text == "recall"]
    points = [tuple(map(float, point.split(","))) for point in recall.get("points").split()]
    shares = [rating.recall for rating in quality.ratings]
    assert len(set(shares)) > 2
    for (x, y), rating in zip(points, quality.ratings, strict=True):
        assert x == pytest.approx(62 + 312 * rating.k / 8, abs=0.06)
        assert y == pytest.approx(360 - 220 * rating.recall, abs=0.06)
