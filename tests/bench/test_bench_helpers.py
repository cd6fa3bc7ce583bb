"""The bench's helpers: its exact answers are exact, and its tables have the measured figures."""

import itertools
import json

import numpy as np
import pytest
from modules import modules_of
from pyarrow import parquet


@pytest.fixture
def helper(monkeypatch):
    """Import one of the bench's modules, which find each other beside themselves."""
    yield from modules_of("benchmarks", monkeypatch)


def all_pairs(fingerprints):
    apart = np.bitwise_count(fingerprints[:, None] ^ fingerprints[None, :])
    return np.argwhere(np.triu(apart <= 3, 1))


@pytest.mark.parametrize("data", ["uniform", "clustered"])
def test_pairs_are_those_of_each_with_each(helper, data):
    workloads = helper("workloads")
    stored = getattr(workloads, data)(np.random.default_rng(1), 3_000)
    expected = all_pairs(stored)
    column, counts = workloads.distinct(stored)
    pairs = workloads.exact_pairs(column)
    assert workloads.pairs_of_documents(column, counts, pairs) == len(expected)
    assert pairs.tolist() == sorted(map(list, column[all_pairs(column)].tolist()))
    assert len(expected) >= 3


@pytest.mark.full
def test_check_queries_get_exact_answers(helper, tmp_path):
    workloads = helper("workloads")
    workload = workloads.make(tmp_path / "work", "clustered", 2_000, checks=50)
    stored, check = (np.load(workload.folder / f"{name}.npy") for name in ("stored", "check"))
    near = np.argwhere(np.bitwise_count(check[:, None] ^ stored[None, :]) <= 3)
    assert workload.answers.tolist() == near.tolist()
    assert len(near) >= 25


def test_a_wrong_answer_is_reported(helper, tmp_path):
    store, workloads = helper("store"), helper("workloads")
    answers = np.array([[0, 4], [1, 7], [3, 9]])
    workload = workloads.Workload(tmp_path, "uniform", 10, 8, answers)
    np.save(tmp_path / "by-many.npy", answers[::-1])
    assert store.wrong(tmp_path, workload, {}, distinct=False) == ""
    np.save(tmp_path / "by-one.npy", answers[[0, 2]])
    assert "2 matches, 3 expected" in store.wrong(tmp_path, workload, {}, distinct=False)


@pytest.mark.process
@pytest.mark.full  # its answers are FAISS's
@pytest.mark.slow("it starts each side four times")
def test_the_store_is_measured_beside_sqlite(helper):
    records, versions = helper("store").measure([5_000], ["uniform"], 1, ["sqlite"])
    rows = {(record["row"], record["side"], record["cores"]) for record in records}
    assert {("join", "sqlite", "one"), ("adds", "fpdb", "one"), ("load", "fpdb", "all")} <= rows
    assert [record for record in records if "stopped" in record] == []
    assert {version.split()[0] for version in versions} == {"SQLite", "fpdb"}


def test_sides_take_turns_and_what_fails_or_is_slow_isnt_repeated(helper):
    paired, calls = helper("paired"), []

    def failing():
        calls.append("failing")
        raise paired.MissingError("no such package")

    def counted():
        calls.append("counted")
        return {"seconds": float(len(calls)), "name": "a"}

    found = paired.in_turn({"failing": failing, "counted": counted}, 3)
    assert calls == ["failing", "counted", "counted", "counted"]
    assert {name: paired.median(results) for name, results in found.items()} == {
        "counted": {"seconds": 3.0, "name": "a"}
    }
    assert len(paired.in_turn({"slow": counted}, 3, slow=0)["slow"]) == 1


def test_the_page_has_the_tables_of_the_kept_figures(helper):
    run = helper("run")
    kept, page = json.loads(run.RAW.read_text("utf-8")), run.PAGE.read_text("utf-8")
    assert set(kept) == set(run.SUITES)
    # Paragraphs of the page are wrapped.
    flat = " ".join(page.split())
    shown = {suite: " ".join(run.body(kept[suite], page=True).split()) for suite in kept}
    assert [suite for suite in kept if shown[suite] not in flat] == []
    assert [suite for suite in kept if kept[suite]["machine"] not in flat] == []


def test_similar_texts_are_measured_beside_bits(helper, monkeypatch):
    similarity = helper("similarity")
    monkeypatch.setattr(similarity, "BATCH", 100)
    rows = similarity.rows_of(500, 1)
    assert len({row["row"] for row in rows}) == len(rows) == 7
    [file, size] = [row for row in rows if row["row"].startswith("bytes")]
    similar, bits = (int(size[name].split()[0]) for name in ("similarity 0.8", "bits, k = 3"))
    assert int(file["similarity 0.8"].split()[0]) > similar > bits + 128


@pytest.fixture
def mixes(helper, monkeypatch):
    """Texts of sentences that differ in every word, so that edits alone make texts similar."""
    texts = helper("texts")

    def corpus(name):
        dice = np.random.default_rng(3)
        if name.endswith("zh"):
            kinds = ["".join(map(chr, dice.integers(0x4E00, 0x9FA5, 30))) for _ in range(3_000)]
            return ["".join(f"{each}。" for each in kinds)], "made up"
        kinds = [" ".join(map(str, dice.integers(1 << 30, size=9))) for _ in range(3_000)]
        return ["".join(f"{each}. " for each in kinds)], "made up"

    monkeypatch.setattr(texts, "corpus", corpus)
    return {language: texts.Mixes(language, 100) for language in texts.LANGUAGES}


def test_what_is_found_of_texts_is_judged(mixes):
    for mix in mixes.values():
        assert len(mix.texts) == 100
        assert all(2_900 < len(text.encode()) < 3_600 for text in mix.texts)
        assert 5 < len(mix.similar) <= len(mix.right) <= 20
        assert all(number % 5 == 4 for number in mix.right)
        assert mix.rate(mix.similar) == (1, 1)
        assert mix.rate([*mix.similar, 0, 1]) == (1, len(mix.similar) / (len(mix.similar) + 2))
        assert mix.rate([]) == (0, 0)


def test_it_doesnt_matter_which_document_of_a_group_a_tool_keeps(helper, tmp_path):
    corpus = helper("dedupe").Corpus(tmp_path / "corpus.parquet", 400)
    rows = parquet.read_table(tmp_path / "corpus.parquet").to_pylist()
    shingles = [set(itertools.pairwise(itertools.pairwise(row["text"].split()))) for row in rows]
    near = {
        (one, other)
        for one, other in itertools.combinations(range(400), 2)
        if len(shingles[one] & shingles[other]) >= 0.8 * len(shingles[one] | shingles[other])
    }
    assert set(zip(corpus.similar[::2], corpus.similar[1::2], strict=True)) == near
    for order in (range(400), range(399, -1, -1)):
        kept = set()
        for number in order:
            if not any((number, each) in near or (each, number) in near for each in kept):
                kept.add(number)
        assert corpus.rate(kept) == (1, 1)
    pair = min(near)
    found, right = corpus.rate(kept.union(pair))
    assert 0.95 < found < 1
    assert right == 1
    assert corpus.rate(range(400))[0] == 0
    assert corpus.rate([])[1] < 0.7


@pytest.mark.slow("it fingerprints two hundred texts with simhash")
@pytest.mark.parametrize(("name", "least"), [("fpdb", 0.9), ("fpdb bits 7", 0.5), ("simhash", 0.1)])
def test_sides_find_similar_texts(helper, mixes, tmp_path, name, least):
    sides = helper("sides.texts_with")
    for language, mix in mixes.items():
        folder = tmp_path / language
        folder.mkdir()
        found = sides.SIDES[name](language, folder, len(mix.texts))(mix.texts)
        recall, precision = mix.rate(found)
        assert recall >= least
        assert precision == 1
