"""The news script: a library of url, title, content and fingerprint, and new articles against it.

64 bits of the MD5 of words, k = 4 in five blocks, the first hit wins.
"""

import hashlib
import json
import random
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

VALUES = json.loads((Path(__file__).parent / "values.json").read_text("utf-8"))["news-md5"]
WORDS = ["the", "a", "of", "in", "国务院", "今天", "发布", "通知", "bridge", "river", "closed"]
BY_NUMBER = {"url": 1, "title": 2, "content": 3, "fingerprint": 4}
BY_NAME = {name: name for name in BY_NUMBER}


@cache
def simhash(title, content):
    votes = [0] * 64
    for word, count in Counter(content.split() + title.split()).items():
        number = int(hashlib.md5(word.encode()).hexdigest(), 16) >> 32
        for bit in range(64):
            votes[bit] += count if number >> bit & 1 else -count
    return sum(1 << bit for bit in range(64) if votes[bit] >= 0)


def article(url, older):
    """Make an article of new words, or of those of an older one with up to three exchanged."""
    words = [f"{DICE.choice(WORDS)}{DICE.randrange(40)}" for _ in range(60)]
    if older and DICE.random() < 0.6:
        words = DICE.choice(older)[2].split()
        for _ in range(DICE.randrange(4)):
            words[DICE.randrange(60)] = DICE.choice(WORDS)
    return url, " ".join(words[:5]), " ".join(words)


DICE = random.Random(9)
LIBRARY = []
for number in range(200):
    LIBRARY.append(article(f"https://library.example/{number}", LIBRARY[:100]))
NEW = [article(f"https://wire.example/{number}", LIBRARY) for number in range(90)]


def write_table(path, rows, *, header=()):
    lines = [[url, title, content, str(simhash(title, content))] for url, title, content in rows]
    path.write_text("".join("\t".join(line) + "\n" for line in [*header, *lines]), "utf-8")
    return path


@pytest.fixture(params=[BY_NUMBER, BY_NAME], ids=["numbered", "named"])
def columns(request):
    return request.param


@pytest.fixture
def tables(tmp_path, columns):
    header = [list(BY_NAME)] if columns is BY_NAME else []
    library = write_table(tmp_path / "library.tsv", LIBRARY, header=header)
    return library, write_table(tmp_path / "new.tsv", NEW, header=header)


@pytest.fixture(params=["text", "fingerprint"])
def fields(request, columns):
    """The options that name the columns of an article, by its text or its ready fingerprint."""
    options = ["--key-field", columns["url"]]
    if request.param == "text":
        return [*options, "--text-field", columns["content"], "--text-field", columns["title"]]
    return [*options, "--fingerprint-field", columns["fingerprint"], "--base", "decimal"]


def near(rows, library):
    """For each article, the urls of the library within 4 bits, with their distance."""
    stored = {url: simhash(title, content) for url, title, content in library}
    for url, title, content in rows:
        number = simhash(title, content)
        distances = {other: (value ^ number).bit_count() for other, value in stored.items()}
        yield url, {other: distance for other, distance in distances.items() if distance <= 4}


def test_the_fingerprints_are_those_of_the_script(run, tmp_path):
    for case in VALUES["cases"]:
        table = tmp_path / "one.tsv"
        table.write_text(f"u\t{case['title']}\t{case['content']}\n", "utf-8")
        columns = ("--key-field", 1, "--text-field", 3, "--text-field", 2)
        shown = run("fingerprint", table, *columns, "--recipe", "news-md5")
        expected = int(case["fingerprint"], 16)
        assert int(shown.rows[0][0], 16) == expected
        assert simhash(case["title"], case["content"]) == expected
    assert len(VALUES["cases"]) == 3


def test_four_bits_take_five_blocks(run, tmp_path):
    shown = run("create", tmp_path / "db", "--recipe", "news-md5")
    settings = dict(line.split(maxsplit=1) for line in shown.out.splitlines())
    assert (settings["k"], settings["plan"]) == ("4", "5 tables, p=12")
    planned = json.loads(run("plan", "-k", 4, "--documents", 2589, "--json").out)["plans"]
    assert [plan["tables"] for plan in planned if plan["chosen"]] == [5]


def summary(outcome, pattern):
    """The numbers of a summary, which ends with the time and the rate, on standard error."""
    line = re.fullmatch(pattern + r"; ([\d.]+) s, ([\d,]+) (\w+)/s", outcome.err.strip())
    assert line, outcome.err
    *counts, _seconds, rate, _unit = line.groups()
    assert int(rate.replace(",", "")) > 0
    return [float(count) for count in counts]


def test_new_articles_are_looked_up_in_the_library(run, tmp_path, tables, fields):
    library, new = tables
    db = tmp_path / "news.fpdb"
    run("create", db, "--recipe", "news-md5")
    added = run("ingest", db, library, *fields)
    assert summary(added, r"read (\d+), added (\d+)") == [len(LIBRARY), len(LIBRARY)]
    wanted = dict(near(NEW, LIBRARY))
    shown = run("query", db, new, *fields, "--limit", 1)
    hits = {url: (other, int(distance)) for url, other, distance in shown.rows}
    assert list(hits) == [url for url in wanted if wanted[url]]
    for url, (other, distance) in hits.items():
        assert distance == wanted[url][other] == min(wanted[url].values())
    pattern = r"queries (\d+), with a match (\d+) \(([\d.]+)%\), matches (\d+)"
    queries, matched, percent, matches = summary(shown, pattern)
    assert (queries, matched, matches) == (len(NEW), len(hits), len(hits))
    assert percent == pytest.approx(100 * len(hits) / len(NEW), abs=0.05)
    assert len(NEW) / 3 < len(hits) < len(NEW)


def test_articles_are_added_and_deleted_by_url(run, tmp_path, tables, fields):
    library, new = tables
    db = tmp_path / "news.fpdb"
    run("create", db, "--recipe", "news-md5")
    run("ingest", db, library, *fields)
    gone = [url for url, _, _ in LIBRARY[::2]]
    assert run("delete", db, *gone).err == f"deleted: {len(gone)}\n"
    assert run("get", db, gone[0]).code != 0
    left = LIBRARY[1::2]
    # Each article is compared with the library, and with the new ones that were added before.
    added, duplicates = list(left), set()
    for row in NEW:
        [(url, hits)] = near([row], added)
        duplicates |= {url} if hits else set()
        added += [] if hits else [row]
    shown = run("ingest", db, new, *fields, "--skip-duplicates")
    assert {url for url, _, _ in shown.rows} == duplicates
    assert 0 < len(duplicates) < len(NEW)
    counts = summary(shown, r"read (\d+), added (\d+), duplicates (\d+) \([\d.]+%\)")
    assert counts == [len(NEW), len(NEW) - len(duplicates), len(duplicates)]
    stored = {row[0]: int(row[2], 16) for row in run("get", db, "--prefix", "https").rows}
    assert stored == {url: simhash(title, content) for url, title, content in added}


def test_a_library_with_ready_fingerprints_is_loaded(run, tmp_path, tables, columns):
    library, new = tables
    db = tmp_path / "news.fpdb"
    ready = ("--fingerprint-field", columns["fingerprint"], "--base", "decimal")
    run("create", db, "--recipe", "news-md5")
    assert run("load", db, library, "--key-field", columns["url"], *ready).code == 0
    shown = run("query", db, new, "--key-field", columns["url"], *ready, "--limit", 1)
    assert [row[0] for row in shown.rows] == [url for url, hits in near(NEW, LIBRARY) if hits]
