"""The picture of who has passages in common with whom has a cell for each pair, and no more."""

import json
import random
import re
from itertools import combinations

import pytest
from outlines import Tree

import fpdb
from fpdb.look import pair

RANDOM = random.Random(60)


def words_of(count):
    return [f"w{RANDOM.randrange(10**6)}" for _ in range(count)]


def pictured(path):
    """Return the labels of the rows of a picture, and the cells, as pairs of keys."""
    pictures = list(Tree(path.read_text("utf-8")).root.all(of="matrix"))
    if not pictures:
        return None
    [picture] = pictures
    labels = [label.text for label in picture.all("text") if label.attributes.get("class")]
    cells = {}
    for cell in picture.all("rect"):
        place = [float(cell.attributes[name]) for name in ("x", "y")]
        named = tuple(cell.attributes.get(name) for name in ("data-of", "data-other"))
        cells[tuple(place)] = named, next(cell.all("title")).text
    return labels, cells


def written(path, texts, classes=None):
    records = [
        {"id": key, "text": text} | ({"class": classes[key]} if classes else {})
        for key, text in texts.items()
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture
def pairs():
    """Return texts, of which each has 40 words of the next one of its three."""
    texts = {f"a/essay-{number}.txt": words_of(60) for number in range(12)}
    keys, linked, commons = list(texts), set(), []
    for place in range(0, 12, 3):
        for one, other in combinations(keys[place : place + 3], 2):
            common = words_of(40)
            texts[one], texts[other] = texts[one] + common, common + texts[other]
            linked |= {(one, other), (other, one)}
            commons.append(" ".join(common))
    return {key: " ".join(words) for key, words in texts.items()}, linked, commons


def test_a_cell_for_each_pair_from_both_sides(pairs, tmp_path):
    texts, linked, commons = pairs
    source, output = written(tmp_path / "texts.jsonl", texts), tmp_path / "out.html"
    fpdb.report(source, output, passages=True)
    labels, cells = pictured(output)
    assert {named for named, _ in cells.values()} == linked
    assert len(cells) == len(linked)
    assert sorted(labels) == sorted(key[2:-4] for key in texts)
    # Those that are connected are beside each other.
    rows = [int(label.removeprefix("essay-")) // 3 for label in labels]
    assert all(len(set(rows[at : at + 3])) == 1 for at in range(0, 12, 3))
    for (x, y), ((of, other), said) in cells.items():
        own, its = (labels.index(key[2:-4]) for key in (of, other))
        assert (y - 18) / 18 == own
        assert (x - min(x for x, _ in cells)) / 18 == its - min(
            labels.index(named[1][2:-4]) for named, _ in cells.values()
        )
        [common] = [part for part in commons if part in texts[of] and part in texts[other]]
        share = len(common) / len(texts[of])
        assert said == f"{labels[own]} · {labels[its]}: {share:.0%}".replace("%", "\u00a0%")


def test_each_text_is_prepared_once_for_all_pairs(tmp_path):
    common = words_of(40)
    texts = {f"{number}": " ".join([*words_of(60), *common]) for number in range(10)}
    source, output = written(tmp_path / "texts.jsonl", texts), tmp_path / "out.html"
    before = pair._placed.cache_info().misses
    fpdb.report(source, output, passages=True)
    assert len(pictured(output)[1]) == 90
    assert pair._placed.cache_info().misses - before == 10


def test_documents_without_a_passage_that_counts_have_no_row(pairs, tmp_path):
    texts, linked, _ = pairs
    keys = list(texts)
    long = " ".join(words_of(50))
    for key in keys[:2]:
        texts[key] += f" {long}"
    source, output = written(tmp_path / "texts.jsonl", texts), tmp_path / "out.html"
    fpdb.report(source, output, passages=True, shortest=50)
    labels, cells = pictured(output)
    assert labels == [key[2:-4] for key in keys[:2]]
    assert {named for named, _ in cells.values()} == {tuple(keys[:2]), tuple(keys[1::-1])} <= linked
    fpdb.report(source, output, passages=True, shortest=51)
    assert pictured(output) is None


def test_documents_are_ordered_by_class_where_a_field_says_it(pairs, tmp_path):
    texts, linked, _ = pairs
    classes = {key: "three" if number % 2 else "four" for number, key in enumerate(texts)}
    source, output = written(tmp_path / "texts.jsonl", texts, classes), tmp_path / "out.html"
    fpdb.report(source, output, fpdb.Reading(host_field="class"), passages=True)
    labels, cells = pictured(output)
    names = [label.split(": ")[0] for label in labels]
    assert len(re.findall("(three )+|(four )+", " ".join([*names, ""]))) == 2
    assert {named for named, _ in cells.values()} == linked


@pytest.mark.parametrize("field", [None, "class"])
def test_many_documents_are_counted_by_class_alone(tmp_path, field):
    texts, classes = {}, {}
    for number in range(62):
        common = words_of(40)
        for side, name in enumerate(("red", "red" if number < 20 else "blue")):
            key = f"{number}-{side}"
            texts[key], classes[key] = " ".join([*words_of(50), *common]), name
    source, output = written(tmp_path / "texts.jsonl", texts, classes), tmp_path / "out.html"
    fpdb.report(source, output, fpdb.Reading(host_field=field), passages=True)
    if field is None:
        assert pictured(output) is None
    else:
        labels, cells = pictured(output)
        assert sorted(labels) == ["blue", "red"]
        assert sorted(said for _, said in cells.values()) == [
            "blue · red: 42",
            "red · blue: 42",
            "red · red: 20",
        ]
