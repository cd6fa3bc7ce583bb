"""Several processes on one database: nothing lost, nothing half-visible, nothing twice."""

import hashlib
import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fpdb
from fpdb import Database, Recipe
from fpdb.tables.plan import choose_plan

pytestmark = pytest.mark.process

Start = Callable[..., subprocess.Popen[str]]
Run = Callable[..., str]

NUMBER = """
import hashlib, json, random, select

def number_of(key):
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big")
"""

WRITER = (
    NUMBER
    + """
db, name, dice = fpdb.open(argv[0]), argv[1], random.Random(argv[1])
print("ready", flush=True)
sys.stdin.readline()
kept, number = [], 0
while number < 250:
    documents = []
    for _ in range(dice.choice([1, 1, 7, 60])):
        number += 1
        key = f"{name}-{number:06d}"
        documents.append(Document(key, meta={"of": name}, fingerprint=number_of(key)))
    kept += [added.key for added in db.add_many(documents) if added.status == "added"]
    # One document moves to and fro between two far places, another one comes and goes.
    moved = Document("moving", fingerprint=number_of(f"place {number % 2}"))
    list(db.add_many([moved]))
    db.delete(f"{name}-passing")
    db.add(f"{name}-passing", "some words that are only here for a while " + name)
    if len(kept) > 120 and dice.random() < 0.3:
        gone, kept = kept[:20], kept[20:]
        assert db.delete_many(gone) == 20
print(json.dumps(kept), flush=True)
"""
)

READER = (
    NUMBER
    + """
BLOCKS = [1 << 63, 1 << 47, 1 << 31, 1 << 15]
db = fpdb.open(argv[0], readonly=argv[1] == "readonly")
print("ready", flush=True)
sys.stdin.readline()
rounds = 0

def require_whole(document):
    assert document.fingerprint == number_of(document.key), document
    assert document.meta == {"of": document.key[0]}, document
    found = [(match.key, match.distance) for match in db.query_fingerprint(document.fingerprint)]
    # It may have been deleted since; then it must be gone from everywhere.
    assert (document.key, 0) in found or db.get(document.key) is None, (document, found)
    # With a changed bit in three blocks, the table of the fourth is the one that finds it.
    for block in BLOCKS:
        near = document.fingerprint ^ sum({*BLOCKS} - {block})
        found = [(match.key, match.distance) for match in db.query_fingerprint(near)]
        assert (document.key, 3) in found or db.get(document.key) is None, (document, found)

# Until it gets what the writers have kept, and for a few rounds at least.
while rounds < 5 or not select.select([sys.stdin], [], [], 0)[0]:
    rounds += 1
    seen = [d for n in "ab" for d in db.scan(prefix=f"{n}-0")]
    for document in random.sample(seen, min(len(seen), 30)):
        require_whole(document)
    moving = db.get("moving")
    assert moving.fingerprint in (number_of("place 0"), number_of("place 1"))
    if rounds % 5 == 0:
        assert list(db.check()) == []
        snapshot = db.stats()
        assert snapshot.documents >= 1
acknowledged = json.loads(sys.stdin.readline())
for key in acknowledged:
    document = db[key]
    require_whole(document)
    assert key in [match.key for match in db.query_fingerprint(number_of(key), k=0)]
print(rounds, len(acknowledged), flush=True)
"""
)


def say(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        assert process.stderr is not None
        raise AssertionError(process.stderr.read())
    return line.strip()


@pytest.fixture
def tables(path: Path, tiny: Recipe) -> Iterator[Database]:
    """A database of four tables, each led by a block of 16 bits."""
    with fpdb.create(path, recipe=tiny, plan=choose_plan(64, 3)) as database:
        yield database


@pytest.mark.slow("four processes write and read side by side")
def test_two_writers_and_two_readers(tables: Database, path: Path, start: Start) -> None:
    db = tables
    list(db.add_many([fpdb.Document("moving", fingerprint=_number_of("place 0"))]))
    writers = [start(WRITER, path, name) for name in "ab"]
    readers = [start(READER, path, mode) for mode in ("readonly", "writable")]
    for process in (*writers, *readers):
        assert hear(process) == "ready"
    for process in (*writers, *readers):
        say(process, "go")
    kept = [key for process in writers for key in json.loads(hear(process))]
    for process in readers:
        say(process, json.dumps(kept))
    for process in readers:
        rounds, checked = map(int, hear(process).split())
        assert rounds >= 5
        assert checked == len(kept)
    for process in (*writers, *readers):
        assert process.wait(60) == 0
    assert len(kept) > 200
    assert sorted(db) == sorted([*kept, "moving", "a-passing", "b-passing"])
    assert list(db.check()) == []


def _number_of(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big")


STEPPER = """
db, name = fpdb.open(argv[0]), argv[1]
print("ready", flush=True)
for line in sys.stdin:
    page = " ".join(f"word{(int(line) * 31 + n * n) % 9973}" for n in range(30))
    print(db.add(f"{name}-{int(line)}", page, skip_duplicates=True).status, flush=True)
"""


def test_two_crawlers_in_step_store_each_page_once(db: Database, path: Path, start: Start) -> None:
    steppers = [start(STEPPER, path, name) for name in "ab"]
    for process in steppers:
        assert hear(process) == "ready"
    for page in range(100):
        for process in steppers:
            say(process, str(page))
        assert sorted(map(hear, steppers)) == ["added", "duplicate"]
    assert len(db) == 100
    assert list(db.check()) == []


KILLS = (
    NUMBER
    + """
import os, random, select, signal, time
path, dice = argv[0], random.Random(7)

def work(turn, out):
    with fpdb.open(path) as db:
        number = 0
        while True:
            number += 1
            name = f"{turn:02d}-{number:04d}"
            count = dice.choice([1, 5, 40])
            keys = [f"{name}-{n:02d}" for n in range(count)]
            documents = [Document(key, meta=count, fingerprint=number_of(key)) for key in keys]
            acknowledgement = f"added {name} {count}\\n".encode()
            results = db.add_many(documents)
            next(results)  # what one yields is durable with all of its transaction
            os.write(out, acknowledgement)
            list(results)
            if number % 5 == 0:
                gone = f"{turn:02d}-{number - 3:04d}-00"
                os.write(out, f"deleting {gone}\\n".encode())
                db.delete(gone)

for turn in range(30):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            work(turn, write)
        finally:
            os._exit(1)
    os.close(write)
    assert select.select([read], [], [], 20)[0]
    time.sleep(dice.random() * 0.06)
    os.kill(child, signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    with os.fdopen(read) as lines:
        print(lines.read(), end="", flush=True)
"""
)


def test_thirty_killed_writers_lose_nothing_acknowledged(
    db: Database, path: Path, run: Run
) -> None:
    db.close()
    lines = [line.split() for line in run(KILLS, path).splitlines()]
    added = {line[1]: int(line[2]) for line in lines if line[0] == "added" and len(line) == 3}
    # A deletion that was announced may or may not have come to pass.
    deleted = {line[1] for line in lines if line[0] == "deleting"}
    assert len({name[:2] for name in added}) == 30
    with fpdb.open(path) as again:
        assert list(again.check()) == []
        stored = {document.key: document for document in again.scan()}
        for name, count in added.items():
            keys = {f"{name}-{n:02d}" for n in range(count)} - deleted
            assert keys <= stored.keys()
        for key, document in stored.items():
            assert document.fingerprint == _number_of(key)
        # What wasn't acknowledged is there as a whole transaction or not at all.
        counts = Counter(key[:7] for key in stored)
        for key, document in stored.items():
            missing = document.meta - counts[key[:7]]
            assert missing == (f"{key[:7]}-00" not in stored)
            assert not missing or f"{key[:7]}-00" in deleted
        for key in sorted(stored)[::17]:
            assert key in [match.key for match in again.query_fingerprint(_number_of(key), k=0)]
