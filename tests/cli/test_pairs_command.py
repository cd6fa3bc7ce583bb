"""fpdb pairs and fpdb clusters: near-duplicates of a whole database, shown and deleted."""

import json
import signal
from itertools import combinations
from random import Random

import pytest

import fpdb

WORDS = "Red kites nest above the quarry again: wardens counted eleven pairs in April, {} more"


@pytest.fixture
def path(tmp_path):
    where = tmp_path / "crawl.fpdb"
    with fpdb.create(where, similarity=None) as database:
        number = database.recipe.fingerprint(WORDS)
        for key, change in (("a", 0), ("b", 1), ("other", ~0 % 2**64), ("a again", 0), ("far", 7)):
            database.add_fingerprints([key], [number ^ change])
        database.add("short", "too short")
        database.add("short too", "too short")
    return where


def keys_in(path):
    with fpdb.open(path, readonly=True) as database:
        return sorted(database)


def test_pairs_are_lines_of_two_keys_and_a_distance(run, path):
    done = run("pairs", path)
    assert done.code == 0
    assert sorted(map(tuple, done.rows)) == [
        ("a", "a again", "0"),
        ("a", "b", "1"),
        ("a", "far", "3"),
        ("a again", "far", "3"),
        ("b", "a again", "1"),
        ("b", "far", "2"),
    ]
    assert done.err.startswith("pairs 6; ")


def test_pairs_as_json(run, path):
    done = run("pairs", path, "-k", 0, "--json")
    pair = {"key": "a", "other": "a again", "distance": 0}
    assert json.loads(done.out) == pair


@pytest.mark.process
def test_jobs_change_nothing(run, path):
    for command in ("pairs", "clusters"):
        assert run(command, path, "--jobs", 2).out == run(command, path).out != ""


def test_clusters_are_lines_that_awk_can_cut(run, path):
    done = run("clusters", path)
    assert done.rows == [
        ["1", "keep", "a"],
        ["1", "duplicate", "b"],
        ["1", "duplicate", "a again"],
        ["1", "duplicate", "far"],
    ]
    assert done.err.startswith("clusters 1, duplicates 3; ")
    assert keys_in(path) == sorted(["a", "a again", "b", "far", "other", "short", "short too"])


@pytest.mark.process
def test_duplicates_are_deleted_and_printed(run, path):
    done = run("clusters", path, "--delete-duplicates")
    assert [row[2] for row in done.rows if row[1] == "duplicate"] == ["b", "a again", "far"]
    assert done.err.startswith("clusters 1, deleted 3; ")
    assert keys_in(path) == ["a", "other", "short", "short too"]
    assert run("check", path).code == 0


@pytest.mark.parametrize("command", ["pairs", "clusters"])
def test_an_empty_database_has_none(run, tmp_path, command):
    fpdb.create(tmp_path / "empty").close()
    done = run(command, tmp_path / "empty")
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith(f"{command} 0")


def test_the_longest_is_kept(run, tmp_path):
    with fpdb.create(tmp_path / "db") as database:
        database.add("short one", WORDS)
        database.add("long one", WORDS + "  ")
    done = run("clusters", tmp_path / "db", "--keep", "longest")
    assert done.rows == [["1", "keep", "long one"], ["1", "duplicate", "short one"]]


def test_pairs_stream_until_the_reader_has_enough(start, tmp_path):
    """A hundred thousand equal documents are five milliards of pairs; nobody waits for them."""
    with fpdb.create(tmp_path / "db", keys="integer", similarity=None) as database:
        database.add_fingerprints(range(100_000), [5] * 100_000)
    process = start("pairs", tmp_path / "db")
    lines = [process.stdout.readline() for _ in range(1_000)]
    assert lines[0] == b"0\t1\t0\n"
    assert len(set(lines)) == 1_000
    process.send_signal(signal.SIGINT)
    process.stdout.close()
    assert process.wait(60) in (0, 130)


NEWS = [
    ("http://a/1", "first", "rain falls on the old bridge and boats wait below it"),
    ("http://a/2", "second", "rain falls on the old bridge and boats wait below"),
    ("http://a/3", "third", "it below wait boats and bridge old the on falls rain"),
    ("http://a/4", "fourth", "quite another story"),
    ("http://a/5", "fifth", ""),
]
WORDS_OF_NEWS = ["--recipe", "news-md5", "--of", "features", "--key-field", 1, "--text-field", 3]


@pytest.fixture
def news(tmp_path):
    path = tmp_path / "news.tsv"
    path.write_text("".join("\t".join(row) + "\n" for row in NEWS), "utf-8")
    return path


def test_texts_are_compared_exactly_without_a_database(run, news):
    done = run("pairs", "--exact", news, *WORDS_OF_NEWS, "--similarity", 0.9)
    assert done.code == 0
    assert done.rows == [
        ["http://a/1", "http://a/2", "0.9091"],
        ["http://a/1", "http://a/3", "1.0000"],
        ["http://a/2", "http://a/3", "0.9091"],
    ]
    assert done.err.startswith("pairs 3; ")
    shingles = run("pairs", "--exact", news, "--key-field", 1, "--text-field", 3, "-q")
    assert (shingles.rows, shingles.err) == ([["http://a/1", "http://a/2", "0.8889"]], "")


def test_above_and_containment(run, news):
    def similarities(*options):
        return [row[2] for row in run("pairs", "--exact", news, *WORDS_OF_NEWS, *options).rows]

    assert similarities("--similarity", 1) == ["1.0000"]
    assert similarities("--similarity", 1, "--containment") == ["1.0000"] * 3
    # 10 of 11 words, a fraction that no decimal is.
    assert len(similarities("--similarity", 0.909, "--above")) == 3
    assert len(similarities("--similarity", 0.9091)) == 1
    done = run("pairs", "--exact", news, *WORDS_OF_NEWS, "--similarity", 1, "--above")
    assert (done.code, done.out) == (3, "")
    assert "error: found the similarity 1.0, expected a number above 0, below 1" in done.err


def test_exact_pairs_as_json_have_the_counts(run, news):
    done = run("pairs", "--exact", news, *WORDS_OF_NEWS, "--json", "-q")
    first, second, similarity = "http://a/1", "http://a/2", 10 / 11
    assert json.loads(done.out.splitlines()[0]) == {
        "key": first,
        "other": second,
        "similarity": similarity,
        "common": 10,
        "size": 11,
        "other_size": 10,
    }


@pytest.mark.parametrize("keys", ["text", "integer"])
def test_with_a_database_only_its_documents_are_compared_by_its_recipe(run, tmp_path, keys):
    texts = [" ".join(text.split()) for _, _, text in NEWS[:3]]
    lines = [json.dumps({"id": number, "text": text}) for number, text in enumerate(texts)]
    if keys == "integer":
        lines.append('{"id": "one", "text": "a text"}')
    (tmp_path / "texts.jsonl").write_text("\n".join([*lines, "no record"]) + "\n", "utf-8")
    with fpdb.create(tmp_path / "a.fpdb", recipe="news-md5", keys=keys) as database:
        for number in (0, 2):
            database.add(number if keys == "integer" else str(number), texts[number])
    done = run(
        "pairs", tmp_path / "a.fpdb", "--exact", tmp_path / "texts.jsonl", "--of", "features"
    )
    assert done.rows == [["0", "2", "1.0000"]]
    assert f"texts.jsonl:{len(lines) + 1}: isn't JSON" in done.err
    assert ("'one', expected a whole number" in done.err) == (keys == "integer")
    assert done.err.splitlines()[-2:] == [
        "not in the database, and not compared: 1",
        f"bad records: {len(lines) - 2}",
    ]


def test_the_pairs_of_the_news_script_are_found(run, tmp_path):
    """The script compared the words of all news with all others, and printed those above 0.8."""
    random = Random(610)
    words = [f"w{number}" for number in range(3000)]
    contents = [random.choices(words, k=random.randint(1, 60)) for _ in range(200)]
    for _ in range(200):
        copy = list(random.choice(contents))
        for place in random.sample(range(len(copy)), len(copy) // random.randint(6, 20)):
            copy[place] = random.choice(words)
        contents.append(random.sample(copy, len(copy)))
    path = tmp_path / "news.tsv"
    lines = [f"u{number}\tt\t{' '.join(content)}\n" for number, content in enumerate(contents)]
    path.write_text("".join(lines), "utf-8")
    sets = [(f"u{number}", set(content)) for number, content in enumerate(contents)]
    expected = []
    at_the_limit = 0
    for (url, first), (other, second) in combinations(sets, 2):
        similarity = float(len(first & second)) / float(len(first | second))
        at_the_limit += similarity == 0.8
        if similarity > 0.8:
            expected.append([url, other, f"{similarity:.4f}"])
    assert len(expected) > 100
    assert at_the_limit
    done = run("pairs", "--exact", path, *WORDS_OF_NEWS, "--similarity", 0.8, "--above")
    assert done.rows == expected
