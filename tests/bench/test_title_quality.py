"""The measurement of titles: its edits, its lengths and its counts, on a few titles."""

import gzip
import json
import random

import pytest
from modules import modules_of

import fpdb

TEXTS = [
    "Red kites nest above the quarry",
    "Red kites nest above the old quarry",
    "Bakery opens",
    "A bridge is closed until the end of the week",
]


@pytest.fixture
def titles(monkeypatch):
    for module in modules_of("qualities", monkeypatch):
        yield module("titles")


def test_copies_differ_by_one_word_or_character(titles):
    group = titles.Titles("en", TEXTS)
    for title in TEXTS:
        copies = group.edited(title, random.Random(1), ["harbour"])
        words = title.split()
        assert len(copies["word dropped"].split()) == len(words) - 1
        assert len(copies["word inserted"].split()) == len(words) + 1
        assert sorted(copies["word replaced"].split()) != sorted(words)
        changed = copies.get("character changed", title)
        assert sum(a != b for a, b in zip(changed, title, strict=True)) <= 1
        assert copies["suffix added"] == f"{title} - Reuters"
    assert [group.band(title) for title in TEXTS] == [1, 1, 0, 2]
    chinese = titles.Titles("zh", [])
    assert [chinese.band("字" * count) for count in (10, 11, 20, 21)] == [0, 1, 1, 2]


def test_found_copies_and_pairs_are_counted(titles):
    group, recipe = titles.Titles("en", TEXTS), fpdb.recipe("title")
    copies = [(text, "word dropped", text + "!") for text in TEXTS]
    copies.append((TEXTS[0], "suffix added", TEXTS[3]))
    assert titles.recall(recipe, 20, group, copies) == [1, 1, 1, 0]
    assert titles.recall(fpdb.recipe("web"), 3, group, copies) == [0, 0, 1, 0]  # most are short
    assert titles.precision(recipe, 40, group)[:3] == [1, 0, 0]
    right, unclear, wrong, short = titles.precision(recipe, 128, group)
    assert (right + unclear + wrong, wrong, short) == (6, 5, 0)


def test_titles_are_distinct_and_not_empty(titles, tmp_path, monkeypatch):
    (tmp_path / "reuters-en").mkdir()
    rows = [{"title": "RED KITES"}, {"title": "RED KITES "}, {"title": ""}, {"text": "x"}]
    with gzip.open(tmp_path / "reuters-en" / "documents.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    monkeypatch.setenv("FPDB_CORPORA", str(tmp_path))
    assert titles.load("en").texts == ["Red Kites"]
