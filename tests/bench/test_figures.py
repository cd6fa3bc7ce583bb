"""The pages show the figures that were measured, and what is measured is what is said."""

import json
import os
import sys
from types import SimpleNamespace

import pytest
from modules import modules_of

import fpdb


@pytest.fixture
def bench(monkeypatch):
    """Import a module of tools/lab/bench, which find each other beside themselves."""
    yield from modules_of("benchmarks", monkeypatch)


@pytest.fixture
def quality(monkeypatch):
    yield from modules_of("qualities", monkeypatch)


@pytest.mark.process
@pytest.mark.full  # its answers are FAISS's
@pytest.mark.slow("it starts each side four times")
def test_the_store_is_measured_beside_sqlite(bench):
    records, versions = bench("store").measure([5_000], ["uniform"], 1, ["sqlite"])
    rows = {(record["row"], record["side"], record["cores"]) for record in records}
    assert {("join", "sqlite", "one"), ("adds", "fpdb", "one"), ("load", "fpdb", "all")} <= rows
    assert [record for record in records if "stopped" in record] == []
    assert {version.split()[0] for version in versions} == {"SQLite", "fpdb"}


@pytest.mark.process
@pytest.mark.full
def test_a_load_of_very_many_is_measured_and_leaves_nothing(bench, tmp_path, monkeypatch):
    billion = bench("billion")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    options = SimpleNamespace(documents=20_000, memory=1 << 20, folder=tmp_path)
    [[row]] = billion.run(options)["tables"]
    assert (row["documents"], row["single found"], row["batch found"]) == (
        "20,000",
        "3,000",
        "100,000",
    )
    assert 30 < float(row["bytes each"]) < 60
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SystemExit, match="has room for"):
        billion.run(SimpleNamespace(documents=10**15, memory=1 << 20, folder=tmp_path))


@pytest.mark.process
@pytest.mark.full
def test_a_large_corpus_loses_its_copies_and_leaves_nothing(bench, tmp_path, monkeypatch):
    large = bench("large")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setattr(large, "ROWS", 500)
    options = SimpleNamespace(documents=1_500, memory=1 << 20, folder=tmp_path)
    [[row]] = large.run(options)["tables"]
    assert row["records"] == "1,500"
    # Of the last thousand, a tenth are copies, and a tenth edited ones, of which most are found.
    assert 13.0 < float(row["removed"].removesuffix("%")) < 13.4
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SystemExit, match="has room for"):
        large.run(SimpleNamespace(documents=10**15, memory=1 << 20, folder=tmp_path))


def test_the_page_of_times_has_the_tables_of_the_kept_figures(bench):
    run = bench("run")
    kept, page = json.loads(run.RAW.read_text("utf-8")), run.PAGE.read_text("utf-8")
    assert set(kept) == run.ON_PAGE
    # Paragraphs of the page are wrapped.
    flat = " ".join(page.split())
    shown = {suite: " ".join(run.body(kept[suite], page=True).split()) for suite in kept}
    assert [suite for suite in kept if shown[suite] not in flat] == []
    assert [suite for suite in kept if kept[suite]["machine"] not in flat] == []


def test_the_page_of_quality_has_the_tables_of_the_kept_figures(quality):
    run = quality("run")
    kept, page = json.loads(run.RAW.read_text("utf-8")), run.PAGE.read_text("utf-8")
    assert quality("report").body(kept) in page


def test_shingles_of_the_truth_are_those_of_the_sketches(quality):
    own = quality("copies").shingles
    assert own("One, two three-FOUR") == {"one two three", "two three four"}
    assert own("天地玄黄，宇宙") == {"天 地 玄 黄 宇", "地 玄 黄 宇 宙"}
    for text in (
        "Ab c d e. f g, h i j k l m n o p",
        "天地玄黄宇宙 ABC 辰宿列张 2026年",
        "short",
        "",
    ):
        assert len(own(text)) == len(fpdb.recipe("web").shingles(text))
