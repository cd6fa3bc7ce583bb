"""The page of an evaluation shows its numbers, and opens the pairs that a recipe gets wrong."""

import pytest
from outlines import Outline, groups_of

import fpdb

WORDS = [f"word{number}" for number in range(900)]


def changed(words, number):
    """Return a text in which every Nth word is another."""
    return " ".join(f"x{word}" if place % number == 0 else word for place, word in enumerate(words))


TEXTS = {
    "a": " ".join(WORDS[:200]),
    "a-near": changed(WORDS[:200], 40),
    "a-far": changed(WORDS[:200], 8),
    "b": " ".join(WORDS[300:500]),
    "b-near": changed(WORDS[300:500], 50),
    "<script>c</script>": " ".join(WORDS[600:]),
}
DOCUMENTS = [fpdb.Document(*item) for item in TEXTS.items()]


def jaccard(one, other):
    sets = [
        {tuple(words[place : place + 3]) for place in range(len(words) - 2)}
        for words in (TEXTS[one].split(), TEXTS[other].split())
    ]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def test_missed_pairs_are_those_of_brute_force():
    found = fpdb.evaluate(DOCUMENTS, similarity=None, k=[0], mistakes=9)
    [quality] = found.recipes
    expected = {("a", "a-near"): 0.8, ("b", "b-near"): 0.8}
    assert {each[:2] for each in quality.mistakes} == expected.keys()
    assert [each.similarity for each in quality.mistakes] == pytest.approx(
        sorted((jaccard(*pair) for pair in expected), reverse=True)
    )
    assert not any(each.wrong for each in quality.mistakes)
    [named] = fpdb.evaluate(DOCUMENTS, similarity=None, k=[0], mistakes=1).recipes
    assert named.mistakes == quality.mistakes[:1]
    assert fpdb.evaluate(DOCUMENTS, similarity=None, k=[0]).recipes[0].mistakes == ()


def test_wrong_pairs_come_first_the_least_similar_first():
    known = [("a", "a-near", False), ("b", "b-near", 0.3), ("a", "a-far", True)]
    found = fpdb.evaluate(DOCUMENTS, known, mistakes=9, k=[3])
    assert found.recipes[0].mistakes == (
        fpdb.models.Mistake("a", "a-near", 0.0, wrong=True),
        fpdb.models.Mistake("b", "b-near", pytest.approx(0.3), wrong=True),
        fpdb.models.Mistake("a", "a-far", 1.0, wrong=False),
    )


def test_the_page_has_titles_dates_hosts_and_links(tmp_path):
    records = [
        {"标题": "First", "when": "2024-03-02", "url": "https://one.example/1"},
        {"标题": "Second", "when": "2024-03-01", "来源": "Two"},
    ]
    documents = [
        fpdb.Document(each.key, each.text, meta)
        for each, meta in zip(DOCUMENTS[:2], records, strict=True)
    ]
    found = fpdb.evaluate(documents, [(*(each.key for each in documents), False)], mistakes=1)
    output = tmp_path / "eval.html"
    fpdb.report_evaluation(found, documents, output, fpdb.Reading(date_field="when"))
    [group] = groups_of(output)
    assert group["title"] == "First"
    page = output.read_text()
    for shown in ("2024-03-02, one.example", "2024-03-01, Two", 'href="https://one.example/1"'):
        assert shown in page


def test_the_page_has_the_mistakes(tmp_path):
    known = [("a", "a-near", False), ("a", "<script>c</script>", True)]
    found = fpdb.evaluate(DOCUMENTS, known, recipes=["web", "words"], mistakes=9, k=[3])
    shown = fpdb.report_evaluation(found, DOCUMENTS, tmp_path / "eval.html")
    groups = groups_of(tmp_path / "eval.html")
    named = {
        (f"{recipe.recipe}: {'wrong' if each.wrong else 'missed'}", each.key, each.other)
        for recipe in found.recipes
        for each in recipe.mistakes
    }
    assert named == {(each["size"], *(keys[0] for keys in each["keys"])) for each in groups}
    assert shown == len(groups) == len(named)
    lows = [each["low"] for each in groups]
    assert lows == sorted(lows)
    [one, *_] = [each for each in groups if each["kind"] == "wrong"]
    assert one["low"] == round(jaccard("a", "a-near"), 4)
    outline = Outline((tmp_path / "eval.html").read_text())
    assert outline.elements["script"] == 1
    rating = found.recipes[0].similar
    assert f"{rating.wrong:,}" in outline.content["td"]


def test_an_evaluation_without_mistakes(tmp_path):
    found = fpdb.evaluate(DOCUMENTS, mistakes=9)
    assert fpdb.report_evaluation(found, DOCUMENTS, tmp_path / "eval.html") == 0
    assert "No pair is wrong, and none is missed." in (tmp_path / "eval.html").read_text()


def test_other_documents_are_refused(tmp_path):
    found = fpdb.evaluate(DOCUMENTS, similarity=None, k=[0], mistakes=9)
    with pytest.raises(fpdb.InputError, match="found no document with the key 'a'"):
        fpdb.report_evaluation(found, DOCUMENTS[2:], tmp_path / "eval.html")
