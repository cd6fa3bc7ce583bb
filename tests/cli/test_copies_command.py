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


FORM = " ".join(f"task{number}" for number in range(40))


@pytest.fixture
def essays(tmp_path):
    """Essays that begin with one form; the last one has much of the first."""
    folder, form = tmp_path / "essays", tmp_path / "form.txt"
    folder.mkdir()
    texts = [" ".join(f"own{number}x{word}" for word in range(60)) for number in range(4)]
    texts[3] = f"{texts[0]} {texts[3][:60]}"
    for number, text in enumerate(texts):
        (folder / f"{number}.txt").write_text(f"{FORM} {text}")
    form.write_text(FORM)
    return folder, form


def test_what_all_were_given_makes_no_pair(run, essays):
    folder, form = essays
    usual = ["--similarity", 0.2, "-q"]
    assert len(run("copies", folder, *usual).rows) == 6
    [pair] = run("copies", folder, *usual, "--common", form).rows
    assert pair[:2] == ["0.txt", "3.txt"]
    first, second = folder / "0.txt", folder / "3.txt"
    done = run("copies", folder, *usual, "--common", first, "--common", second)
    assert (done.code, done.rows) == (0, [])
    assert run("copies", folder, "--common", folder / "none.txt").code == 3


@pytest.mark.process
def test_what_all_were_given_is_no_passage(run, essays, tmp_path):
    folder, form = essays
    assert run("create", tmp_path / "a.fpdb", "--passages").code == 0
    assert run("ingest", tmp_path / "a.fpdb", folder).code == 0
    asked = ["query", tmp_path / "a.fpdb", folder / "3.txt", "--passages", "-q"]
    assert {row[1] for row in run(*asked).rows} == {f"{number}.txt" for number in range(4)}
    assert {row[1] for row in run(*asked, "--common", form).rows} == {"0.txt", "3.txt"}
    assert run("query", tmp_path / "a.fpdb", form, "--common", form).code == 2
    output = tmp_path / "out.html"
    wanted = ["report", folder, "--passages", "-o", output]
    assert "with passages of others 4, pairs 6\n" in run(*wanted).err
    assert "with passages of others 2, pairs 1\n" in run(*wanted, "--common", form).err
    assert run(*wanted, "--common", form, "--db", tmp_path / "a.fpdb").code == 2
    assert run("report", folder, "--shortest", 9).code == 2


def test_texts_in_both_kinds_of_chinese_characters_are_hinted_at(run, tmp_path):
    for name, text in (
        ("jian", "图书馆从下个月开始延长开放时间"),
        ("fan", "圖書館從下個月開始延長開放時間"),
    ):
        (tmp_path / f"{name}.txt").write_text(text)
    done = run("copies", tmp_path)
    assert (done.rows, "1 text is in traditional characters" in done.err) == ([], True)
    done = run("copies", tmp_path, "--recipe", "web-zh")
    assert done.rows == [["fan.txt", "jian.txt", "1.0000"]]
    assert "traditional" not in done.err
