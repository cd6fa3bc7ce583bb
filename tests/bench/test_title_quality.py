"""The measurement of titles: its edits, its lengths and its counts, on a few titles."""

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


def test_found_copies_and_pairs_are_counted(titles):
    group, recipe = titles.Titles("en", TEXTS), fpdb.recipe("title")
    copies = [(text, "word dropped", text + "!") for text in TEXTS]
    copies.append((TEXTS[0], "suffix added", TEXTS[3]))
    assert titles.recall(recipe, 20, group, copies) == [1, 1, 1, 0]
    assert titles.recall(fpdb.recipe("web"), 3, group, copies) == [0, 0, 1, 0]  # most are short
    assert titles.precision(recipe, 40, group)[:3] == [1, 0, 0]
    right, unclear, wrong, short = titles.precision(recipe, 128, group)
    assert (right + unclear + wrong, wrong, short) == (6, 5, 0)
