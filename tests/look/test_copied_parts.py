"""A report of copied parts shows what plain search for common runs of words finds."""

import json
import random
import re
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest
from outlines import Tree

import fpdb
from fpdb.joins.columns import Room
from fpdb.look.groups import Parts
from fpdb.models import PartPair

CERTAIN, LEAST = 28, 6  # words of a passage that is found for certain, and that is shown at all
IN_COMMON = "Has passages in common"
RANDOM = random.Random(8)


def words_of(count):
    return [f"w{RANDOM.randrange(10**6)}" for _ in range(count)]


@pytest.fixture(scope="module")
def texts():
    """Texts by their keys: of their own words, or with runs of words of others between these."""
    texts = {f"source-{number}": words_of(RANDOM.randrange(80, 200)) for number in range(16)}
    for number in range(20):
        copy = words_of(20)
        for key in RANDOM.sample(sorted(texts), RANDOM.randrange(1, 4)):
            start = RANDOM.randrange(30)
            copy += texts[key][start : start + RANDOM.randrange(30, 60)] + words_of(9)
        texts[f"copy-{number}"] = copy
    return {key: " ".join(words) for key, words in texts.items()}


def common_runs(text, other):
    """Return the longest runs of words that both texts have, by definition."""
    own, its = text.split(), f" {other} "
    places = [0, *(at for at in range(1, len(own)) if f" {own[at - 1]} {own[at]} " not in its)]
    runs = (" ".join(own[start:end]) for start, end in pairwise([*places, len(own)]))
    return [run for run in runs if f" {run} " in its and len(run.split()) >= CERTAIN]


def copies_of(path):
    """Yield for each document of a report its key, text, parts by other, passages and roles."""
    for box in Tree(path.read_text("utf-8")).root.all("article"):
        [names], [coloured] = box.all(of="names"), box.all(of="coloured")
        first, *others = names.children
        shown = [first, *(each for each in others if "data-text" in each.attributes)]
        key, *sources = [next(each.all(of="name")).text for each in shown]
        roles = [next(each.all("b")).text for each in shown]
        parts = {source: [] for source in sources}
        for mark in coloured.all("mark"):
            parts[sources[int(mark.attributes["data-source"]) - 1]].append(mark.text)
        passages = {
            source: [
                re.sub(r"\s+", " ", "".join(c for c in cell.children if isinstance(c, str))).strip()
                for cell in section.all(of="text")
            ]
            for source, section in zip(sources, box.all("section"), strict=True)
        }
        yield key, coloured.text, parts, passages, roles


@pytest.mark.parametrize(("dated", "stored"), [(False, True), (True, False)])
def test_all_parts_are_shown(texts, tmp_path, dated, stored):
    source, output = tmp_path / "texts.jsonl", tmp_path / "out.html"
    # With dates, the order is that of the days, and not that of the file.
    keys = sorted(texts) if dated else list(texts)
    days = {
        key: f"2024-{1 + number // 28:02}-{1 + number % 28:02}" for number, key in enumerate(texts)
    }
    records = [{"id": key, "text": texts[key], "day": days[key], "at": key[0]} for key in keys]
    source.write_text("".join(json.dumps(each) + "\n" for each in records))
    reading = fpdb.Reading(date_field="day", host_field="at") if dated else None
    options = {"reading": reading}
    if stored:
        options["database"] = fpdb.create(tmp_path / "a.fpdb", passages=True)
        fpdb.ingest(options["database"], source)
    found = fpdb.report(source, output, passages=True, least=0.01, **options)
    assert (found.documents, found.shown, found.missing) == (36, found.groups, 0)
    order, shown = list(texts), {}
    for key, text, parts, passages, roles in copies_of(output):
        assert text == texts[key]
        shown[key] = parts
        assert set(roles) == ({"Source", "Has passages of others"} if dated else {IN_COMMON})
        for other, own in parts.items():
            assert not dated or order.index(other) < order.index(key)
            assert own
            assert all(part in texts[other] for part in own)
            lengths = [len(passage.split()) for passage in passages[other]]
            assert lengths == sorted(lengths, reverse=True)
            assert min(lengths) >= LEAST
            assert all(f" {each} " in f" {texts[other]} " for each in passages[other])
    for number, key in enumerate(texts):
        marked = {
            word for own in shown.get(key, {}).values() for part in own for word in part.split()
        }
        # Without dates, a document is shown with the later ones, too.
        for other in order[:number] if dated else set(order) - {key}:
            for run in common_runs(texts[key], texts[other]):
                # A source that has few words more than another one has no colour.
                assert len(set(run.split()) - marked) <= 5


def essay_of(path, text, created=None):
    with zipfile.ZipFile(path, "w") as archive:
        body = f"<w:p><w:t>{text}</w:t></w:p>"
        archive.writestr("word/document.xml", f'<w:document xmlns:w="w">{body}</w:document>')
        if created:
            dates = f"<dcterms:created>{created}T08:00:00Z</dcterms:created>"
            archive.writestr("docProps/core.xml", dates)


@pytest.mark.process
@pytest.mark.parametrize("days", [(), (2, 1, 3), (1, 2, 2)])
def test_who_was_first_is_said_by_dates_alone(tmp_path, days):
    """An essay made of two others is shown with both, and is the source of none by its name."""
    folder, output = tmp_path / "essays", tmp_path / "out.html"
    folder.mkdir()
    own, other = (" ".join(words_of(200)) for _ in range(2))
    essays = {"both": f"{own[:600]} {other[:500]}", "one": own, "two": other}
    for (key, text), day in zip(essays.items(), days or [None] * 3, strict=True):
        essay_of(folder / f"{key}.docx", text, day and f"2024-03-0{day}")
    # Files that are named, as by a pattern, have their dates, too.
    found = fpdb.report(folder if days else sorted(folder.iterdir()), output, passages=True)
    shown = {
        Path(key).stem: dict(zip([key, *(Path(each).stem for each in parts)], roles, strict=True))
        for key, _, parts, _, roles in copies_of(output)
    }
    roles = {key: list(named.values()) for key, named in shown.items()}
    others = {key: list(named)[1:] for key, named in shown.items()}
    page = output.read_text()
    assert found.pairs == 2
    if not days:
        assert others == {"both": ["one", "two"], "one": ["both"], "two": ["both"]}
        assert {role for named in roles.values() for role in named} == {IN_COMMON}
        assert "so nobody knows which document was first" in page
        assert "3 documents have passages in common with others, among 3" in page
    elif days == (2, 1, 3):
        assert others == {"both": ["one"], "two": ["both"]}
        assert {tuple(each) for each in roles.values()} == {("Has passages of others", "Source")}
        assert "2 documents have passages of earlier ones, among 3" in page
        assert "2 of 2 pairs have different dates" in page
        assert "The dates are from the property “created” of files." in page
    else:
        assert others == {"one": ["both"], "two": ["both"]}


ASSIGNMENT = " ".join(f"task{number}" for number in range(60))


def written_essays(folder, texts):
    folder.mkdir()
    for key, text in texts.items():
        (folder / f"{key}.txt").write_text(text)
    return folder


@pytest.fixture
def essays(tmp_path):
    """Essays with one assignment at different places, of which one has a passage of another."""
    texts = {}
    for number in range(8):
        own, place = words_of(120), RANDOM.randrange(120)
        texts[f"essay-{number}"] = " ".join([*own[:place], ASSIGNMENT, *own[place:]])
    copied = " ".join(words_of(50))
    texts["essay-2"] += f" {copied}"
    texts["essay-5"] = f"{copied} {texts['essay-5']}"
    return written_essays(tmp_path / "essays", texts), copied


def test_what_all_were_given_counts_for_nobody(essays, tmp_path):
    (folder, copied), output = essays, tmp_path / "out.html"
    found = fpdb.report(folder, output, passages=True)
    assert (found.groups, found.pairs) == (8, 28)
    page = output.read_text()
    assert "At least 8 documents have one passage:" in page
    assert f"“{ASSIGNMENT[:80]}…”" in page
    recipe = fpdb.recipe("web").replace(common=(ASSIGNMENT,))
    found = fpdb.report(folder, output, passages=True, recipe=recipe)
    assert (found.groups, found.pairs) == (2, 1)
    assert "have one passage" not in output.read_text().split("<script>")[0]
    for key, text, parts, passages, _ in copies_of(output):
        assert ASSIGNMENT in text
        [[part]], [shown] = parts.values(), passages.values()
        assert (part.strip(), shown) == (copied, [copied])
        share = len(copied) / (len(text.strip()) - len(ASSIGNMENT))
        assert f"{share:.0%}" in output.read_text().replace("\u00a0", ""), key


def test_a_passage_of_two_alone_is_not_named_as_common(texts, tmp_path):
    folder = written_essays(tmp_path / "essays", texts)
    fpdb.report(folder, tmp_path / "out.html", passages=True)
    assert "have one passage" not in (tmp_path / "out.html").read_text().split("<script>")[0]


def test_only_passages_of_the_least_length_count(tmp_path):
    long, short = " ".join(words_of(60)), " ".join(words_of(35))
    texts = {"both": f"{long} {' '.join(words_of(40))} {short}"}
    texts |= {
        "one": f"{long} {' '.join(words_of(30))}",
        "other": f"{' '.join(words_of(30))} {short}",
    }
    folder, output = written_essays(tmp_path / "essays", texts), tmp_path / "out.html"
    for shortest, expected in (
        (None, {"both": {"one", "other"}, "one": {"both"}, "other": {"both"}}),
        (36, {"both": {"one"}, "one": {"both"}}),
        (61, {}),
    ):
        found = fpdb.report(folder, output, passages=True, shortest=shortest)
        shown = {
            Path(key).stem: {Path(each).stem for each in parts}
            for key, _, parts, _, _ in copies_of(output)
        }
        assert shown == expected
        assert found.groups == found.shown == len(expected)


def test_a_source_counts_where_it_adds_a_passage(tmp_path):
    """Of copies of one text, the first one is shown; the others add nothing to it."""
    words = words_of(200)
    texts = {f"copy-{number}": " ".join(words) for number in range(12)}
    texts["copy-11"] = " ".join([*words[:150], *words_of(2), *words[152:]])
    folder, output = written_essays(tmp_path / "essays", texts), tmp_path / "out.html"
    fpdb.report(folder, output, passages=True)
    assert "11 other documents" not in output.read_text()
    for key, _, parts, _, _ in copies_of(output):
        assert len(parts) == 1, key


def test_a_source_of_few_more_words_has_no_colour(tmp_path):
    words = words_of(186)
    texts = {"text": [*words, *words_of(40)], "first": [*words[:180], *words_of(40)]}
    for least, size in (("few", 185), ("more", 186)):
        texts[least] = [*words[150:size], *words_of(40)]
        folder = written_essays(
            tmp_path / least, {key: " ".join(own) for key, own in texts.items()}
        )
        fpdb.report(folder, tmp_path / "out.html", passages=True)
        parts = {Path(key).stem: parts for key, _, parts, _, _ in copies_of(tmp_path / "out.html")}
        expected = {"first"} if least == "few" else {"first", "more"}
        assert {Path(key).stem for key in parts["text"]} == expected
        del texts[least]


def test_shares_count_what_is_reworded_as_well(tmp_path):
    """With a word of each ten changed, only the end is long enough to count verbatim."""
    words, output = words_of(200), tmp_path / "out.html"
    changed = [f"x{place}" if place % 10 == 9 else word for place, word in enumerate(words)]
    texts = {"one": " ".join(words), "other": " ".join(changed)}
    texts["one"] += " " + (same := " ".join(words_of(60)))
    texts["other"] += f" {same}"
    fpdb.report(written_essays(tmp_path / "essays", texts), output, passages=True, shortest=10)
    page = output.read_text().replace("\u00a0", " ")
    found = re.search(r"are in both, verbatim: (\d+) % .*? Reworded as well: (\d+) % of", page)
    letters = len(same) / len(texts["one"])
    assert abs(int(found[1]) / 100 - letters) < 0.02
    # Of ten words one was changed.
    assert abs(int(found[2]) / 100 - (1 - 0.1 * (1 - letters))) < 0.02


def test_texts_in_other_characters_are_hinted_at_and_found(tmp_path):
    output = tmp_path / "out.html"
    pair = "图书馆从下个月开始延长开放时间这个决定是听了许多读者的意见以后才做的"
    other = "圖書館從下個月開始延長開放時間這個決定是聽了許多讀者的意見以後才做的"
    ends = ["".join(chr(0x4E00 + RANDOM.randrange(900)) for _ in range(40)) for _ in range(2)]
    folder = written_essays(tmp_path / "essays", {"jian": pair + ends[0], "fan": other + ends[1]})
    said = "1 text is in traditional characters, 1 in simplified ones"
    found = fpdb.report(folder, output, passages=True)
    assert (found.pairs, output.read_text().count(said)) == (0, 1)
    found = fpdb.report(folder, output, passages=True, recipe="web-zh")
    assert (found.pairs, output.read_text().count(said)) == (1, 0)
    (folder / "fan.txt").unlink()
    (folder / "more.txt").write_text(pair + ends[1])
    fpdb.report(folder, output, passages=True)
    assert said not in output.read_text()


@pytest.mark.parametrize(("words", "most"), [(10, 4096), (1000, 512)])
@pytest.mark.parametrize("more", [0, 1])
def test_texts_decide_about_so_many_pairs_and_words(tmp_path, words, most, more):
    count = most + more  # texts of 200 words, or of 20,000, of which about 16,000 are compared
    found = Parts(
        [PartPair(number, -number, words, 0.05, 0.05) for number in range(1, count + 1)],
        Room(tmp_path),
    )
    asked = []

    def contained(row, other):
        asked.append((row, other))
        return 0.1 * (row % 4 == 0)

    found.decide(0.1, contained)
    assert len(asked) == len(set(asked)) == (0 if more else count)
    found.settle()
    assert found.pairs == (0 if more else count // 2)
