"""fpdb pairs and fpdb clusters: near-duplicates of a whole database, shown and deleted."""

import signal

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


def test_pairs_that_share_a_part(run, tmp_path):
    path = tmp_path / "parts.fpdb"
    with fpdb.create(path, passages=True) as database:
        words = [f"word{place}" for place in range(100)]
        database.add("whole", " ".join(words))
        database.add("half", " ".join(words[:50] + [f"new{place}" for place in range(50)]))
        database.add("other", " ".join(f"other{place}" for place in range(50)))
    [[key, other, count, share, other_share]] = run("pairs", path, "--passages").rows
    assert (key, other) == ("whole", "half")
    assert 25 <= int(count) <= 75
    assert 0.2 <= float(share) <= 0.8
    assert 0.2 <= float(other_share) <= 0.8
    assert not run("pairs", path, "--passages", "--least", "0.95").rows
    assert run("pairs", path, "--passages", "-k", 3).code == 2


def test_a_list_ends_where_the_reader_wants(run, path):
    first = run("pairs", path).rows
    done = run("pairs", path, "--limit", 2)
    assert (done.rows, done.err.startswith("pairs 2 (the --limit); ")) == (first[:2], True)
    nearest = sorted(int(row[2]) for row in first)
    assert [int(row[2]) for row in run("pairs", path, "--sort").rows] == nearest
    [row] = run("pairs", path, "--sort", "-n", 1).rows
    assert row == ["a", "a again", "0"]
    assert len(run("get", path, "--limit", 3).rows) == 3
    assert [row[0] for row in run("get", path, "--prefix", "a", "-n", 1).rows] == ["a"]


def test_the_largest_clusters_come_first(run, tmp_path):
    with fpdb.create(tmp_path / "db", keys="integer", similarity=None) as database:
        for number in (1, 1, 1 << 20, 1 << 20, 1 << 20):
            database.add_fingerprints([len(database)], [number])
    for options in (["--sort"], ["--sort", "--limit", 1]):
        rows = run("clusters", tmp_path / "db", "-k", 0, *options).rows
        assert rows[:3] == [["1", "keep", "2"], ["1", "duplicate", "3"], ["1", "duplicate", "4"]]
        assert len(rows) == (3 if "--limit" in options else 5)
