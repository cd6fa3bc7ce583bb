"""A budget that ends a search hides no duplicate of another table, and every answer says so."""

import json

import numpy as np
import pytest

import fpdb
from fpdb.documents import lookup

KITES = "Red kites nest above the quarry again: wardens counted eleven pairs in April, four more."
BRIDGE = "The old bridge at Lindow is closed, because the river has washed out one of its piers."
OTHER = "Snow fell on the hills above the reservoir last night, and more is forecast for tonight."
BUDGET = 2000


@pytest.fixture(autouse=True)
def budget(monkeypatch):
    monkeypatch.setattr(lookup, "CANDIDATES", BUDGET)


@pytest.fixture
def path(tmp_path):
    """A database of bits: crowds share the first 16 bits of two texts; one has an original."""
    path = tmp_path / "crawl.fpdb"
    dice = np.random.default_rng(5)
    with fpdb.create(path, similarity=None, k=3) as database:
        kites, bridge = (database.recipe.fingerprint(text) for text in (KITES, BRIDGE))
        for name, number in (("k", kites), ("b", bridge)):
            crowd = number & ~((1 << 48) - 1) | dice.integers(0, 1 << 48, 3 * BUDGET, np.uint64)
            database.add_fingerprints([f"{name}{n}" for n in range(len(crowd))], crowd)
        # Two bits away, one of them among those that the crowd shares.
        database.add_fingerprints(["original"], [kites ^ (1 << 63 | 1)])
    return path


@pytest.fixture
def pages(tmp_path):
    file = tmp_path / "pages.jsonl"
    texts = {"reprint": KITES, "new": BRIDGE, "other": OTHER}
    lines = [json.dumps({"key": key, "text": text}) for key, text in texts.items()]
    file.write_text("\n".join(lines) + "\n")
    return file


def test_the_summary_of_ingest_counts_what_was_incomplete(run, path, pages):
    done = run("ingest", path, pages, "--skip-duplicates")
    assert done.rows == [["reprint", "original", "2"]]
    assert "duplicates 1 (33.3%), incomplete 2; " in done.err
    again = run("ingest", path, pages)  # which searches nothing
    assert "incomplete" not in again.err


def test_each_line_of_follow_says_if_its_answer_is_incomplete(run, path, pages, monkeypatch):
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pages.open("rb") as stdin:
        done = run("follow", path, "--skip-duplicates", stdin=stdin)
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert [(each["key"], each["status"], each.get("complete", True)) for each in answers] == [
        ("reprint", "duplicate", False),
        ("new", "added", False),
        ("other", "added", True),
    ]
    assert ", incomplete 2\n" in done.err
