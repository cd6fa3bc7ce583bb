"""The measurement of main contents: its rates and its two designs, on made pages."""

import gzip
import json

import pytest
from modules import modules_of

BIRDS = [
    [
        f"{bird} nest above the quarry again, as they did in the years before the mill was closed.",
        f"Wardens counted {count} pairs of {bird} in April; two nests can be seen from the road.",
    ]
    for count, bird in enumerate(
        ["Kites", "Owls", "Crows", "Rooks", "Wrens", "Larks", "Swifts", "Gulls", "Terns", "Finches"]
    )
]


@pytest.fixture
def pages(monkeypatch):
    for module in modules_of("qualities", monkeypatch):
        yield module("pages")


def test_rates_count_words_and_runs_of_characters(pages):
    truth = pages.units("Red kites nest. Red kites!", chinese=False)
    assert truth == {"red": 2, "kites": 2, "nest": 1}
    assert pages.rate(truth, truth) == (1, 1, 1)
    assert pages.rate(pages.units("red owls", chinese=False), truth) == (2 / 7, 1 / 2, 1 / 5)
    assert pages.rate(pages.units("", chinese=False), truth) == (0, 0, 0)
    assert pages.units("红鸢 又来", chinese=True) == {"红鸢又": 1, "鸢又来": 1}


def test_a_method_is_measured(pages, tmp_path, monkeypatch):
    (tmp_path / "html-en").mkdir()
    rows = [
        {"id": str(number), "html": f"<p>{' '.join(own)}", "article_body": "\n".join(own)}
        for number, own in enumerate(BIRDS)
    ]
    with gzip.open(tmp_path / "html-en" / "pages.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    monkeypatch.setenv("FPDB_CORPORA", str(tmp_path))
    found = pages.load("html-en")
    assert 0 < sum(page.held_out for page in found) < len(found)
    assert pages.measured(lambda html: html[3:], found, chinese=False)[:4] == [1, 1, 1, 1]
    assert pages.measured(lambda _: "", found, chinese=False)[:4] == [0, 0, 0, 0]
