"""`fpdb eval`, from files to tables."""

import json

import pytest

import fpdb

BASE = (
    "Red kites nest above the old quarry again this spring: wardens counted eleven pairs in April, "
    "four more than in the year before, and expect that some of them will raise two broods"
)
TEXTS = {
    "a": BASE,
    "b": BASE.replace("eleven", "twelve"),
    "c": BASE.replace(" ", "  "),
    "d": "The bridge at Lindow is closed because the river has washed out one of its three piers",
    "e": "too short",
    "f": "",
}


@pytest.fixture
def documents(tmp_path):
    path = tmp_path / "pages.jsonl"
    records = [json.dumps({"id": key, "text": text}) for key, text in TEXTS.items()]
    path.write_text("\n".join(records) + "\n")
    return path


def test_a_table_of_all_k(run, documents):
    outcome = run("eval", documents, "-k", "3,8-9", "--similarity", "0.8")
    assert outcome.code == 0
    header, *rows = outcome.rows
    assert header[:3] == ["recipe", "similarity", "k"]
    assert header[-3:] == ["precision", "recall", "f1"]
    assert [row[:3] for row in rows] == [
        ["web", "0.8", "-"],
        *(["web", "-", k] for k in ("3", "8", "9")),
    ]
    found = fpdb.evaluate([fpdb.Document(*item) for item in TEXTS.items()], k=[3, 8, 9])
    [quality] = found.recipes
    for row, rating in zip(rows, (quality.similar, *quality.ratings), strict=True):
        assert row[3:8] == [
            str(count)
            for count in (rating.equal, rating.reported, rating.right, rating.wrong, rating.found)
        ]
    assert "6 documents, true pairs 2 (similarity from 0.8" in outcome.err
    assert "left out: pairs of equal texts 1" in outcome.err
    assert "web: texts too short: 2\nweb: texts without a sketch: 2\n" in outcome.err
