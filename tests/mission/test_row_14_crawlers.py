"""Crawlers in several processes: a new page against all stored ones, at once and in batches."""

import json
import random
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process
STORIES, VERSIONS, CRAWLERS = 40, 5, 3
# A crawler adds its pages one by one, or some at a time, and prints what is durable. The first one
# crawls until it is killed.
CRAWLER = """
import itertools, json, sys, fpdb
path, file, size, turns = sys.argv[1:]
pages = itertools.chain.from_iterable(itertools.repeat(json.load(open(file)), int(turns)))
with fpdb.open(path) as db:
    while batch := [fpdb.Document(*page) for page in itertools.islice(pages, int(size))]:
        if len(batch) == 1:
            answers = [db.add(batch[0].key, batch[0].text, skip_duplicates=True)]
        else:
            answers = db.add_many(batch, skip_duplicates=True)
        for answer in answers:
            print(answer.key, answer.status, flush=True)
"""


def versions_of_stories():
    """Make stories of 200 words, each in versions that have another word in one or two places."""
    dice = random.Random(14)
    for story in range(STORIES):
        words = [f"word{dice.randrange(10**6)}" for _ in range(200)]
        for _ in range(VERSIONS):
            version = list(words)
            for _ in range(dice.randrange(3)):
                version[dice.randrange(200)] = f"word{dice.randrange(10**6)}"
            yield story, " ".join(version)


@pytest.fixture
def crawlers(tmp_path, run):
    """Start crawlers that meet all stories, each in other versions and another order."""
    db = tmp_path / "crawl.fpdb"
    assert run("create", db).code == 0
    texts, started = list(versions_of_stories()), []
    for number in range(CRAWLERS):
        pages = [
            (f"https://{number}.example/{place}", text) for place, (_, text) in enumerate(texts)
        ]
        random.Random(number).shuffle(pages)
        file = tmp_path / f"{number}.json"
        file.write_text(json.dumps(pages))
        size, turns = ("1", "1") if number % 2 else ("20", "1" if number else "1000000")
        command = [sys.executable, "-c", CRAWLER, str(db), str(file), size, turns]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append((process, dict(pages)))
    yield db, started
    for process, _ in started:
        process.kill()
        process.communicate()


def test_crawlers_store_each_story_once_though_one_is_killed(run, tmp_path, crawlers):
    db, started = crawlers
    victim, victims_pages = started[0]
    answers = [victim.stdout.readline().split() for _ in range(2 * 20 + 1)]
    victim.send_signal(signal.SIGKILL)
    answers += [line.split() for line in victim.stdout]
    assert victim.wait() == -signal.SIGKILL
    for process, pages in started[1:]:
        lines = [line.split() for line in process.stdout]
        assert process.wait() == 0
        assert {key for key, _ in lines} == set(pages)
        answers += lines
    assert {status for _, status in answers} - {"unchanged"} == {"added", "duplicate"}

    assert run("check", db, "--deep").code == 0
    assert run("pairs", db).out == ""
    stored = {row[0] for row in run("get", db, "--prefix", "https").rows}
    added = {key for key, status in answers if status == "added"}
    # The victim may have stored a page whose answer was never read.
    assert added <= stored <= added | set(victims_pages)
    assert len(stored) == STORIES
    visited = {key: pages[key] for _, pages in started for key, _ in answers if key in pages}
    asked = tmp_path / "asked.jsonl"
    asked.write_text(
        "".join(json.dumps({"key": key, "text": text}) + "\n" for key, text in visited.items())
    )
    shown = run("query", db, asked, "--limit", 1)
    assert {row[0] for row in shown.rows} == set(visited)
    assert f"with a match {len(visited):,} (100.0%)" in shown.err
