"""The measurement of titles: its edits, its lengths and its counts, on a few titles."""

import random

import pytest
from modules import modules_of

import fpdb

TEXTS = [
    "Red kites nest above the quarry",
    "Red kites nest above the old quarry",
    "Bakery opens today",
    "A bridge is closed until the end of the week",
]


@pytest.fixture
def module(monkeypatch):
    yield from modules_of("qualities", monkeypatch)


def test_found_copies_and_answers_are_counted(module, tmp_path):
    titles, copies = module("titles"), module("copies")
    group = titles.Titles("en", TEXTS)
    assert list(map(group.band, TEXTS)) == [2, 2, 1, 3]
    edited = [(number, "word dropped", f"{text}!") for number, text in enumerate(TEXTS)]
    edited += [(2, "word replaced", TEXTS[3]), (0, titles.OTHERWISE, TEXTS[0].upper())]
    found, counts = titles.rate(copies.Database(tmp_path / "db", "title"), group, edited)
    assert found["word dropped", 2] == [True, True]
    assert found["word replaced", 1] == [False]
    assert counts == [2, 0, 0]
    shown = titles.row("own", group, found, counts)
    assert (shown["from 3"], shown["from 8"]) == ("0.500 of 2", "1.000 of 1")
    assert (shown[titles.OTHERWISE], shown["right / unclear / far off"]) == (
        "1.000 of 1",
        "2 / 0 / 0",
    )


@pytest.mark.parametrize(("language", "title"), [("en", "Red kites nest"), ("zh", "新桥今天通车")])
def test_a_title_written_otherwise_has_the_same_features(module, language, title):
    titles = module("titles")
    edits = titles.Titles(language, [title]).edited(title, random.Random(1), ["other"])
    same = fpdb.compare(title, edits[titles.OTHERWISE], recipe="title")
    assert (same.shingle_jaccard, edits[titles.OTHERWISE] == title) == (1, False)
