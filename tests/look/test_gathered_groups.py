"""A report shows the groups that brute force finds, with their texts, dates and hosts."""

import json
import random
from datetime import date, datetime
from itertools import combinations

import numpy as np
import pytest
from outlines import groups_of

import fpdb
from fpdb.look.fields import host_of, parse_day

WORDS = [f"word{number}" for number in range(4000)]


def text_of(number, *, changed=()):
    """Return a text of 150 words of its own, of which some are changed."""
    words = [WORDS[(number * 151 + place * 7) % len(WORDS)] for place in range(150)]
    for place in changed:
        words[place] = f"changed{number}x{place}"
    return " ".join(words)


CORPUS = {
    "a": text_of(1),
    "a-copy": text_of(1),
    "a-edited": text_of(1, changed=[70]),
    "b": text_of(2),
    "c": text_of(3),
    "c-more": text_of(3, changed=[10, 60, 110]),
    "d": text_of(4),
    "d-copy": text_of(4),
    "d-copy-2": text_of(4),
    "short": "few words",
}


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "news.jsonl"
    records = [
        {
            "id": key,
            "text": text,
            "title": f"Title of {key}",
            "day": f"2024-0{1 + number % 3}-11",
            "url": f"https://{'ab'[number % 2]}.example/{key}",
        }
        for number, (key, text) in enumerate(CORPUS.items())
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def report(source, **options):
    output = source.parent / "report.html"
    found = fpdb.report(str(source), output, **options)
    return found, groups_of(output)


def similarity(one, other):
    sets = [
        {tuple(words[place : place + 3]) for place in range(len(words) - 2)}
        for words in (one.split(), other.split())
    ]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def test_groups_are_those_of_brute_force(source):
    found, groups = report(source)
    expected = {
        frozenset(group)
        for group in (["a", "a-copy", "a-edited"], ["c", "c-more"], ["d", "d-copy", "d-copy-2"])
    }
    pairs = {
        frozenset(pair)
        for pair in combinations(CORPUS, 2)
        if "short" not in pair and similarity(*(CORPUS[key] for key in pair)) >= 0.8
    }
    assert pairs == {frozenset(pair) for group in expected for pair in combinations(group, 2)}
    shown = [[key for keys in group["keys"] for key in keys] for group in groups]
    assert set(map(frozenset, shown)) == expected
    assert (found.documents, found.groups, found.identical, found.edited) == (10, 3, 3, 2)
    assert (found.shown, found.missing, found.counts.short) == (3, 0, 1)
    # Edited ones first, the least similar first, and copies last.
    assert [group["keys"][0][0] for group in groups] == ["c", "a", "d"]
    assert [group["kind"] for group in groups] == ["edited", "edited", "identical"]
    assert groups[0]["low"] == round(similarity(CORPUS["c"], CORPUS["c-more"]), 4)
    assert [group["title"] for group in groups] == ["Title of c", "Title of a", "Title of d"]


@pytest.mark.parametrize(
    ("stay", "shown"),
    [
        ("a b c d", [["c"], ["a", "a-copy"], ["d", "d-copy", "d-copy-2"]]),
        ("a-edited d-copy-2", [["c"], ["a-edited"], ["d-copy-2", "d", "d-copy"]]),
        ("a-copy c-more", [["c-more"], ["a-copy", "a"], ["d", "d-copy", "d-copy-2"]]),
        ("", [["c"], ["a", "a-copy"], ["d", "d-copy", "d-copy-2"]]),
    ],
)
def test_what_stays_is_shown_as_kept(source, stay, shown):
    _, groups = report(source, kept=np.array([key in stay.split() for key in CORPUS]))
    assert [group["keys"][0] for group in groups] == shown
    assert sum(group["documents"] for group in groups) == 8
    assert all(rows for group in groups for rows in group["rows"][1:])


def test_what_can_not_be_shown(source, tmp_path):
    kept = np.ones(len(CORPUS), bool)  # of records by their numbers, and not of documents by ids
    with (
        fpdb.create(tmp_path / "db") as db,
        fpdb.create(tmp_path / "bits", similarity=None) as bits,
    ):
        for given, said in (
            ({"database": db, "kept": kept}, "one of them"),
            ({"database": bits}, "a database of bits"),
            ({"reading": fpdb.Reading(date_field="when")}, "found no date in the field 'when'"),
            ({"reading": fpdb.Reading(host_field="site")}, "found no host"),
        ):
            with pytest.raises(fpdb.InputError, match=said) as error:
                report(source, **given)
        assert error.value.hint == "the fields are: day, title, url"
    with pytest.raises(fpdb.InputError, match="read twice"):
        fpdb.report("-", source.parent / "report.html")
    assert not (source.parent / "report.html").exists()


def test_a_database_has_the_groups_and_the_sources_the_texts(source, tmp_path):
    with fpdb.create(tmp_path / "db") as db:
        fpdb.ingest(db, str(source))
        _, own = report(source)
        found, groups = report(source, database=db)
        for group in own + groups:
            del group["text"]  # it has the place in the sources
        assert groups == own
        lines = source.read_text().splitlines(keepends=True)
        source.write_text("".join(line for line in lines if '"c"' not in line))
        found, groups = report(source, database=db)
    assert (found.groups, found.missing) == (3, 1)
    [without] = [group for group in groups if group["keys"][1:] == [["c-more"]]]
    assert without["keys"][0] == []
    assert without["rows"] == [None, None]


def test_a_text_that_has_changed_since_it_was_stored_is_missing(source, tmp_path):
    with fpdb.create(tmp_path / "db") as db:
        fpdb.ingest(db, str(source))
        source.write_text(source.read_text().replace("changed3x60", "other"))
        assert report(source, database=db)[0].missing == 1


def test_records_without_keys_and_with_equal_keys(tmp_path):
    source = tmp_path / "lines.jsonl"
    texts = [text_of(1), text_of(1, changed=[3]), text_of(2), text_of(2)]
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    _, groups = report(source)
    assert [group["keys"] for group in groups] == [
        [[f"{source}:1"], [f"{source}:2"]],
        [[f"{source}:3", f"{source}:4"]],
    ]
    source.write_text("".join(json.dumps({"id": "same", "text": text}) + "\n" for text in texts))
    found, _ = report(source)
    assert (found.identical, found.edited) == (1, 1)


@pytest.mark.parametrize("keep", ["first", "longest"])
def test_all_texts_of_a_group_resemble_the_one_that_stays(tmp_path, keep):
    """The groups of a chain have each one record that `dedupe` keeps, and all that it removes."""
    source = tmp_path / "chain.jsonl"
    chain = [text_of(1, changed=range(0, 5 * step, 5)) for step in range(0, 13, 3)]
    source.write_text(
        "".join(json.dumps({"id": str(n), "text": text}) + "\n" for n, text in enumerate(chain))
    )
    assert similarity(chain[0], chain[-1]) < 0.7
    kept = fpdb.dedupe(str(source), tmp_path / "rest.jsonl", keep=keep).marks
    found, groups = report(source, kept=kept)
    assert found.identical + found.edited == len(chain) - kept.sum()
    for group in groups:
        first, *others = (int(key) for keys in group["keys"] for key in keys)
        assert kept[first]
        assert not kept[others].any()
        assert all(similarity(chain[first], chain[other]) >= 0.8 for other in others)


def test_at_most_so_many_groups_and_texts(source, tmp_path):
    found, _ = report(source, limit=1)
    assert (found.groups, found.shown) == (3, 1)
    assert "This page shows 1 of 3 groups." in found.path.read_text()
    many = tmp_path / "many.jsonl"
    texts = [text_of(1, changed=[n]) for n in range(15)]
    many.write_text("".join(json.dumps({"id": n, "text": t}) + "\n" for n, t in enumerate(texts)))
    _, [group] = report(many)
    assert (len(group["keys"]), group["documents"]) == (10, 15)
    assert "5 further texts left out" in group["text"]


def test_days_and_hosts(source):
    found, _ = report(source, reading=fpdb.Reading(date_field="day", host_field="url"))
    page = found.path.read_text()
    # Of "a" and its two copies in January, February and March, the first is the source of both.
    assert "2024-02-11: 2; 2024-03-11: 3<" in page
    assert "<tr><td>a.example</td><td>b.example</td><td>" in page
    assert "nobody knows which was first.</p>" not in page
    assert found.unread == 0


@pytest.mark.parametrize("day", ["2024-01-11", "soon", None])
def test_who_was_first_is_said_only_where_dates_differ(source, day):
    """Hosts without an order are in the order of their names, and unread dates are counted."""
    lines = [json.loads(line) | {"day": day} for line in source.read_text().splitlines()]
    lines[0]["day"] = "2024-01-11"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found, _ = report(source, reading=fpdb.Reading(date_field="day", host_field="url"))
    page = found.path.read_text()
    assert ">first at<" not in page
    assert "<tr><td>a.example</td><td>b.example</td><td>3</td>" in page
    assert found.unread == (7 if day == "soon" else 0)
    assert ("7 dates of these documents can&#x27;t be read, such as “soon”." in page) == (
        day == "soon"
    )


@pytest.mark.process
@pytest.mark.slow("workers start")
def test_jobs_change_nothing(source):
    before = report(source)[0].path.read_bytes()
    assert report(source, jobs=2)[0].path.read_bytes() == before


def test_a_file_that_fails_leaves_the_page_that_was_there(source, tmp_path):
    (tmp_path / "report.html").write_text("old")
    source.write_text(source.read_text() + "no json\n")
    with pytest.raises(fpdb.InputError, match="isn't JSON"):
        report(source, bad="fail")
    assert (tmp_path / "report.html").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["news.jsonl", "report.html"]


def test_large_numbers_and_odd_paths(tmp_path):
    source = tmp_path / "numbers.jsonl"
    numbers = [2**64 - 1, 2**53 + 1]
    source.write_text("".join(json.dumps({"id": n, "text": text_of(1)}) + "\n" for n in numbers))
    _, [group] = report(source)
    assert group["keys"][0] == [str(number) for number in numbers]
    odd = tmp_path / "caf\udce9.jsonl"
    odd.write_text("".join(json.dumps({"text": text_of(n)}) + "\n" for n in (1, 1)))
    _, [group] = report(odd)
    assert group["keys"][0] == [f"{tmp_path}/caf?.jsonl:{line}" for line in (1, 2)]


@pytest.mark.parametrize(
    ("given", "day"),
    [
        ("2024-02-29T10:00:00Z", date(2024, 2, 29)),
        ("20240229", date(2024, 2, 29)),
        ("2024年2月9日", date(2024, 2, 9)),
        ("2024/2/9 08:00", date(2024, 2, 9)),
        ("Thu, 29 Feb 2024 10:00:00 GMT", date(2024, 2, 29)),
        ("26-FEB-1987 15:01:01.79", date(1987, 2, 26)),
        (1709200000, date(2024, 2, 29)),
        (1709200000000, date(2024, 2, 29)),
        ("1709200000", date(2024, 2, 29)),
        (datetime(2024, 2, 29, 1), date(2024, 2, 29)),
        ("2024-13-40", None),
        ("soon", None),
        ("", None),
        ([1], None),
        (float("nan"), None),
        (1e300, None),
    ],
)
def test_dates(given, day):
    assert parse_day(given) == day


def test_hosts():
    names = {
        "https://A.example:80/x": "a.example",
        "a.example": "a.example",
        "http://[": "http://[",
    }
    assert {name: host_of(name) for name in names} == names
    assert host_of(None) == ""


@pytest.mark.parametrize(
    "names",
    [("title", "published", "host", "url"), ("标题", "日期", "来源", "链接"), ("t", "d", "h", "u")],
)
def test_usual_fields_are_found(tmp_path, names):
    """Titles, dates, hosts and links are shown from their usual fields, or from those named."""
    source = tmp_path / "news.jsonl"
    shown = [("First", "2024-03-02", "two.example", "https://two.example/1")]
    shown.append(("Second", "2024-03-01", "one.example", "javascript:alert(1)"))
    records = [
        {"id": each[0], "text": text_of(1)} | dict(zip(names, each, strict=True)) for each in shown
    ]
    source.write_text("".join(json.dumps(record) + "\n" for record in records))
    kinds = "title_field", "date_field", "host_field", "url_field"
    named = dict(zip(kinds, names, strict=True)) if names[0] == "t" else {}
    [group] = report(source, reading=fpdb.Reading(**named))[1]
    assert group["title"] == "First"
    assert "2024-03-02, two.example" in group["text"]
    page = (tmp_path / "report.html").read_text()
    assert 'href="https://two.example/1"' in page
    assert "javascript:" not in page
    assert "<td>one.example</td><td>two.example</td><td>1</td>" in page


def test_equal_short_texts_are_groups_and_empty_ones_are_none(tmp_path):
    texts = [
        "Thanks!",
        " Thanks!",
        "",
        "",
        "谢谢",
        "page not found",
        "谢谢",
        "page not there",
        "42",
    ]
    source = tmp_path / "notes.jsonl"
    lines = [json.dumps({"key": f"n{place}", "text": text}) for place, text in enumerate(texts)]
    source.write_text("\n".join([*lines, json.dumps({"key": "last", "text": "page not found"})]))
    made = fpdb.report(source, tmp_path / "page.html")
    assert (made.groups, made.identical, made.edited) == (3, 3, 0)
    groups = {
        frozenset(key for keys in group["keys"] for key in keys)
        for group in groups_of(tmp_path / "page.html")
    }
    assert groups == {frozenset(["n0", "n1"]), frozenset(["n4", "n6"]), frozenset(["n5", "last"])}


def near_the_limit(count):
    """Return texts of one kind, many of which only seem to have a similarity of .8 to others."""
    dice = random.Random(4)
    texts = []
    for number in range(count):
        words = text_of(number % 3).split()
        for place in dice.sample(range(150), dice.choice([1, 2, 3, 4])):
            words[place] = f"changed{number}x{place}"
        texts.append(" ".join(words))
    return texts


@pytest.mark.parametrize("stored", [False, True])
def test_no_pair_is_shown_that_is_less_similar_than_the_limit(tmp_path, stored):
    texts = {f"key {number}": text for number, text in enumerate(near_the_limit(60))}
    path, database = tmp_path / "news.jsonl", None
    records = [json.dumps({"id": key, "text": text}) for key, text in texts.items()]
    path.write_text("\n".join(["no record", *records]))
    with fpdb.create(tmp_path / "a.fpdb") as db:
        list(db.add_many(fpdb.Document(key, text) for key, text in texts.items()))
        estimated = list(db.clusters())
        if stored:
            database = db
        _, groups = report(path, database=database)
    shown = [[key for keys in group["keys"] for key in keys] for group in groups]
    least = [
        min(similarity(texts[first], texts[key]) for key in others) for first, *others in shown
    ]
    assert min(least) >= 0.8
    assert [group["low"] for group in groups] == [round(low, 4) for low in least]
    assert any(
        similarity(texts[cluster.representative], texts[key]) < 0.8
        for cluster in estimated
        for key in cluster.duplicates
    )
    sizes = dict[str, int]()
    for text in texts.values():
        first = next((it for it in sizes if similarity(text, it) >= 0.8), text)
        sizes[first] = sizes.get(first, 0) + 1
    assert sorted(group["documents"] for group in groups) == sorted(
        size for size in sizes.values() if size > 1
    )
    page = (tmp_path / "report.html").read_text()
    assert "near-duplicates from a similarity of 80\u00a0% on." in page


def test_where_a_text_is_missing_its_similarity_is_estimated(tmp_path):
    texts = {f"key {number}": text for number, text in enumerate(near_the_limit(60))}
    path = tmp_path / "news.jsonl"
    records = [json.dumps({"id": key, "text": text}) for key, text in texts.items()]
    path.write_text("\n".join(records[:40]))
    with fpdb.create(tmp_path / "a.fpdb") as db:
        list(db.add_many(fpdb.Document(key, text) for key, text in texts.items()))
        report(path, database=db)
    assert "Where a text is missing, an estimate of 76" in (tmp_path / "report.html").read_text()
