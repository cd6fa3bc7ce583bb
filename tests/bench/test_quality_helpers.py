"""The helpers of tools/lab/quality: their texts, their truth, their peers, and their tables."""

import gzip
import json
import random

import numpy as np
import pytest
from modules import modules_of

import fpdb


@pytest.fixture
def helper(monkeypatch):
    """Import one of the modules, which find each other beside themselves."""
    yield from modules_of("qualities", monkeypatch)


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


def test_shingles_of_the_truth_are_those_of_the_sketches(helper):
    own = helper("copies").shingles
    assert own("One, two three-FOUR") == {"one two three", "two three four"}
    assert own("天地玄黄，宇宙") == {"天 地 玄 黄 宇", "地 玄 黄 宇 宙"}
    recipe = fpdb.recipe("web")
    for text in (
        "Ab c d e. f g, h i j k l m n o p",
        "天地玄黄宇宙洪荒日月盈昃 and then ABC 辰宿列张寒来暑往 2026年秋收冬藏",
        "too short",
        "",
    ):
        assert len(own(text)) == len(recipe.shingles(text))


@pytest.mark.parametrize("chinese", [False, True])
def test_edits_change_what_they_say(helper, chinese):
    edits, copies = helper("edits"), helper("copies")
    texts = [
        "".join(
            f"第{a}条，甲乙丙丁{chr(0x5B50 + 37 * a + b)}{chr(0x6210 + 11 * a + b)}戊己{b}。"
            if chinese
            else f"Sentence {a} number {b} has word{a}x{b} and other{a}x{b} things. "
            for b in range(30)
        )
        for a in range(8)
    ]
    origin = edits.source(texts, chinese=chinese, count=8)
    editor = edits.Editor(origin, random.Random(1))
    assert len(origin.passages) == 8
    alike = {}
    for label, edit in edits.EDITS.items():
        own = origin.passages[0]
        text = edit(editor, own)
        assert text != "".join(own), label
        shared = map(copies.shingles, ("".join(own), text))
        alike[label] = copies.jaccard(*shared)
    of_words = [alike[f"{share} % of the words changed"] for share in (1, 2, 4, 8)]
    assert of_words == sorted(of_words, reverse=True)
    assert 0.3 < of_words[-1] < of_words[0] < 1
    assert 0.8 < alike["the last tenth cut"] < 0.95
    assert 0.7 < alike["a fifth of another text added"] < 0.95


def test_answers_are_rated_by_the_similarity_of_their_shingles(helper, folder, monkeypatch):
    copies = helper("copies")

    class Everything:
        def store(self, documents):
            self.count = len(documents)

        def ask(self, document):
            return list(range(self.count))

    words = [f"word{number}" for number in range(600)]
    with gzip.open(folder / "documents.jsonl.gz", "wt", encoding="utf-8") as file:
        for at in (0, 300):
            text = ". ".join(" ".join(words[at + n : at + n + 10]) for n in range(0, 300, 10))
            file.write(json.dumps({"id": at, "text": text}) + "\n")
    monkeypatch.setattr(copies, "Database", lambda path: Everything())
    monkeypatch.setattr(copies.methods, "indexes", lambda similarity: {})
    rated = copies.measure("small-en", lambda words: None)
    assert rated["passages"] == 2
    assert sum(line["pairs"] for line in rated["edits"]) == sum(
        line["fpdb"] for line in rated["edits"]
    )
    edited = len(helper("edits").EDITS) * 2
    reported = rated["reports"]["fpdb"]
    assert reported["reported"] == 2 * edited
    assert 0 < reported["similar"] <= reported["right"] <= edited


def test_rating_pairs_of_others_leaves_equal_ones_out(helper):
    truth = fpdb.joins.evaluation.Truth(
        5, np.array([1, 2, 8, 13]), np.array([0.9, 0.75, 0.6, 0.8]), np.array([0, 1, 2, 3, 0])
    )
    rated = helper("run").rate_pairs(truth, np.array([0, 2, 1, 0, 1]), np.array([1, 0, 3, 4, 2]))
    assert rated == {"reported": 4, "right": 2, "found": [1, 1]}


def test_the_page_has_the_tables_of_the_kept_figures(helper):
    run = helper("run")
    kept, page = json.loads(run.RAW.read_text("utf-8")), run.PAGE.read_text("utf-8")
    assert helper("report").body(kept) in page


def test_what_dedupe_removes_is_compared_with_what_it_keeps(helper):
    words = [f"word{number}" for number in range(60)]
    text, other = " ".join(words), " ".join([*words[:30], "another", *words[31:]])
    equal, similar = helper("removed").shares(
        [text, "something else that stays", f"{text} ", other], 0.8
    )
    assert equal == 1
    assert similar == [55 / 61]


SMALL = {
    "noise": {"NAMES": ["reuters-en"], "SAMPLE": 3},
    "passages": {
        "CORPORA": {"reuters-en": 90},
        "APART": 5,
        "COPIES": 2,
        "PASSAGES": 2,
        "BINS": [99],
    },
    "programs": {"SAMPLE": 3},
    "rewording": {"CORPORA": [("reuters-en", 300)], "STORED": 9},
    "submissions": {"ORIGINALS": 9, "COPIES": 2, "by_copydetect": lambda *_: {}},
}


@pytest.mark.parametrize("name", SMALL)
def test_what_other_pages_quote_is_measured(helper, tmp_path, monkeypatch, name):
    module, dice = helper(name), random.Random(3)
    words = [f"word{number}" for number in range(2000)]
    for corpus in ("reuters-en", "programs"):
        (tmp_path / corpus).mkdir()
        with gzip.open(tmp_path / corpus / "documents.jsonl.gz", "wt") as file:
            for number in range(40):
                text = " ".join([*dice.choices(words, k=100), "and so on."] * 2)
                own = {"id": number, "package": "p", "path": f"{number % 20}.py", "text": text}
                file.write(json.dumps(own) + "\n")
    monkeypatch.setenv("FPDB_CORPORA", str(tmp_path))
    if name == "noise":
        indexes = dict.fromkeys(("datasketch", "rensa"), helper("methods").SimHash())
        monkeypatch.setattr(helper("methods"), "indexes", lambda _: indexes)
    if name == "submissions":
        code = [f"def f{n}(a):\n    return a + {n}\n" for n in range(12)]
        monkeypatch.setattr(module, "sources", lambda: ["".join(dice.sample(code, 10))] * 20)
    for attribute, value in SMALL[name].items():
        monkeypatch.setattr(module, attribute, value)
    assert all("|" in shown or "source" in shown for shown in module.measure(None))
