"""fpdb copies: exact pairs of texts in files."""

import json

import pytest

NEWS = [
    ("http://a/1", "first", "rain falls on the old bridge and boats wait below it"),
    ("http://a/2", "second", "rain falls on the old bridge and boats wait below"),
    ("http://a/3", "third", "it below wait boats and bridge old the on falls rain"),
    ("http://a/4", "fourth", "quite another story"),
    ("http://a/5", "fifth", ""),
]
FIELDS = ["--key-field", 1, "--text-field", 3]
WORDS = [*FIELDS, "--recipe", "news-md5"]


@pytest.fixture
def news(tmp_path):
    path = tmp_path / "news.tsv"
    path.write_text("".join("\t".join(row) + "\n" for row in NEWS), "utf-8")
    return path


def test_texts_are_compared_exactly_by_words_or_shingles(run, news):
    done = run("copies", news, *WORDS, "--similarity", 0.9)
    assert done.code == 0
    assert done.rows == [
        ["http://a/1", "http://a/2", "0.9091"],
        ["http://a/1", "http://a/3", "1.0000"],
        ["http://a/2", "http://a/3", "0.9091"],
    ]
    assert done.err.startswith("pairs 3; ")
    shingles = run("copies", news, *FIELDS, "-q")
    assert (shingles.rows, shingles.err) == ([["http://a/1", "http://a/2", "0.8889"]], "")


def test_a_pattern_is_of_the_files_that_match(run, news):
    rows = run("copies", news, *FIELDS, "-q").rows
    assert run("copies", news.with_name("n*.tsv"), *FIELDS, "-q").rows == rows != []


def test_the_nearest_pairs_come_first(run, news):
    rows = run("copies", news, *WORDS, "--similarity", 0.9, "--sort").rows
    assert [row[2] for row in rows] == ["1.0000", "0.9091", "0.9091"]
    done = run("copies", news, *WORDS, "--similarity", 0.9, "--sort", "--limit", 1)
    assert (done.rows, done.err.startswith("pairs 1 (the --limit); ")) == (rows[:1], True)


def test_the_limit_and_containment(run, news):
    def similarities(*options):
        return [row[2] for row in run("copies", news, *WORDS, *options).rows]

    assert similarities("--similarity", 1) == ["1.0000"]
    assert similarities("--similarity", 1, "--containment") == ["1.0000"] * 3
    # 10 of 11 words, a fraction that no decimal is.
    assert len(similarities("--similarity", 0.909)) == 3
    assert len(similarities("--similarity", 0.9091)) == 1


def test_json_has_the_counts_and_bad_records_are_counted(run, news):
    done = run("copies", news, "-", *WORDS, "--json", stdin=b"no record")
    assert json.loads(done.out.splitlines()[0]) == {
        "key": "http://a/1",
        "other": "http://a/2",
        "similarity": 10 / 11,
        "common": 10,
        "size": 11,
        "other_size": 10,
    }
    assert (done.code, done.err.splitlines()[-1]) == (4, "bad records: 1")
