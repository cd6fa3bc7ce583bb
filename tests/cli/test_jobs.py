"""--jobs: the same results in the same order, and processes that never outlive their work."""

import contextlib
import importlib
import json
import os
import pickle
import re
import signal
import time
from functools import partial
from pathlib import Path
from random import Random

import pytest
from waiting import wait_for

import fpdb
from fpdb.io.files import PART, read_parts

pytestmark = pytest.mark.process


def text_of(number):
    return " ".join(f"word{place}of{number}" for place in range(15))


def line_of(number):
    return json.dumps({"key": f"u{number:05d}", "text": text_of(number)}) + "\n"


def mixed_lines():
    """Good and bad records, duplicates, short texts and keys that come again."""
    lines = []
    for number in range(60):
        lines.append(json.dumps({"url": f"p{number}", "text": text_of(number), "n": number}))
        match number % 6:
            case 0:
                lines.append("{no json")
            case 1:
                lines.append(json.dumps({"url": f"copy{number}", "text": text_of(number)}))
            case 2:
                lines.append(json.dumps({"url": f"p{number - 1}", "text": text_of(number + 100)}))
            case 3:
                lines.append(json.dumps({"url": f"short{number}", "text": "page not found"}))
            case 4:
                lines.append(json.dumps({"url": "k" * 70_000, "text": text_of(number)}))
            case 5:
                lines.append(json.dumps({"url": f"m{number}", "text": "x", "big": "x" * 70_000}))
    return lines


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "mixed.jsonl"
    file.write_bytes("\n".join(mixed_lines()).encode() + b'\n{"url": "\xff", "text": "\xff"}\n')
    return file


@pytest.fixture
def small_parts(monkeypatch):
    # The name of the module in its package is the function.
    module = importlib.import_module("fpdb.ingest")
    monkeypatch.setattr(module, "read_parts", partial(read_parts, size=7))
    monkeypatch.setattr(module, "_BLOCK", 7)


def rows_in(path):
    with fpdb.open(path, readonly=True) as database:
        return [(d.key, d.id, d.fingerprint, d.short, d.meta) for d in database.scan()]


def without_times(text):
    return re.sub(r"[\d.]+ s, [\d,]+ (documents|fingerprints|queries)/s", "", text)


@pytest.mark.parametrize("options", [[], ["--skip-duplicates", "--json"]])
def test_ingest_gives_the_same_whatever_the_number_of_jobs(
    run, tmp_path, source, small_parts, options
):
    seen = []
    for jobs in (1, 2):
        path = tmp_path / "crawl.fpdb"
        done = run("ingest", path, source, "--meta-field", "*", "--jobs", jobs, *options)
        seen.append((done.code, done.out, without_times(done.err), rows_in(path)))
        path.rename(tmp_path / f"{jobs}.fpdb")
    assert seen[0] == seen[1]
    code, out, err, rows = seen[0]
    assert code == 4
    assert bool(out) is bool(options)
    said = [line for line in err.splitlines() if ".jsonl:" in line]
    numbers = [int(line.split(":")[1]) for line in said]
    assert numbers == sorted(numbers)
    assert 5 < len(numbers) < 31  # a few of each reason
    assert "bad 31" in err
    assert "read 121, added " in err
    assert len(rows) > 50


@pytest.mark.parametrize("bad", ["{no json", json.dumps({"key": "k" * 70_000, "text": text_of(8)})])
def test_strict_stops_at_the_same_record(run, tmp_path, small_parts, bad):
    lines = [line_of(number) for number in range(60)]
    lines[25] = lines[27] = f"{bad}\n"
    seen = []
    for jobs in (1, 2):
        path = tmp_path / "crawl.fpdb"
        done = run("ingest", path, "--strict", "-j", jobs, stdin="".join(lines).encode())
        seen.append((done.code, done.out, without_times(done.err), rows_in(path)))
        path.rename(tmp_path / f"{jobs}.fpdb")
    assert seen[0] == seen[1]
    code, _, err, rows = seen[0]
    assert (code, len(rows)) == (3, 25)
    assert "error: -:26: " in err
    assert "read 26, added 25," in err


def test_query_gives_the_same_whatever_the_number_of_jobs(run, tmp_path, source, small_parts):
    path = tmp_path / "crawl.fpdb"
    run("ingest", path, source)
    command = ["query", path, source, "--text", text_of(3)]
    done = [run(*command, "--json", "--jobs", jobs) for jobs in (1, 2)]
    outcomes = {(each.code, each.out, without_times(each.err)) for each in done}
    assert len(outcomes) == 1
    assert run(*command).rows[-1][:2] == ["p59", "p59"]


@pytest.mark.slow("it starts three workers")
def test_workers_look_ready_fingerprints_up(run, tmp_path, monkeypatch):
    path, file = tmp_path / "ready.fpdb", tmp_path / "prints.tsv"
    random = Random(16)
    numbers = [random.getrandbits(64) for _ in range(600)]
    with fpdb.create(path, keys="integer") as database:
        database.add_fingerprints(range(600), numbers)
    file.write_text("".join(f"q{n}\t{number ^ 3:016x}\n" for n, number in enumerate(numbers)))
    command = ["query", path, file, "--key-field", "1", "--fingerprint-field", "2", "-k", "2"]
    with monkeypatch.context() as patch:
        # This process only prints what the workers found.
        patch.setattr(fpdb.Database, "query_prepared", None)
        done = run(*command, "--jobs", 2)
    assert [row[:3] for row in done.rows] == [[f"q{n}", str(n), "2"] for n in range(600)]
    few = ["query", path, "--format", "tsv", *command[3:-1], "70"]
    wrong = run(*few, "--jobs", 2, stdin=b"q\t0\n")
    assert wrong.err == "error: k = 70 in 64 bits\nhint: use k from 0 to 64\n"


def test_matches_that_a_worker_sends_are_still_marked_as_incomplete():
    sent = fpdb.Matches([fpdb.Match("a", 0, 1, 0.5, {"n": 1})])
    sent.complete = False
    received = pickle.loads(pickle.dumps(sent))
    assert (received, received.complete) == (sent, False)


def children_of(process):
    try:
        return [int(n) for n in _read(f"/proc/{process}/task/*/children").split()]
    except OSError:
        return []


def _read(pattern):
    return " ".join(path.read_text() for path in Path("/").glob(pattern.lstrip("/")))


def runs(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def stored_in(path):
    try:
        with fpdb.open(path, readonly=True) as database:
            return len(database)
    except fpdb.FpdbError:
        return 0


@pytest.fixture
def reading(start, tmp_path):
    """An ingest with two workers that has stored all but the last parts, and waits for more."""
    path = tmp_path / "crawl.fpdb"
    process = start("ingest", path, "--jobs", 2)
    process.stdin.write("".join(map(line_of, range(7 * PART + 200))).encode())
    process.stdin.flush()
    wait_for(lambda: stored_in(path) >= 3 * PART)
    workers = children_of(process.pid)
    assert 1 <= len(workers) <= 2
    return path, process, workers


def is_sound(path):
    with fpdb.open(path) as database:
        return not list(database.check())


def counted_in(err):
    return int(re.search(r"added ([\d,]+)", err.decode())[1].replace(",", ""))


@pytest.mark.slow("a command starts workers and is interrupted")
def test_an_interrupt_ends_all_processes_and_leaves_a_sound_database(reading):
    path, process, workers = reading
    before = time.monotonic()
    for number in (process.pid, *workers):  # as a terminal does
        with contextlib.suppress(ProcessLookupError):  # the first has ended the others
            os.kill(number, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - before < 30
    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in err
    assert b"interrupted: " in err
    assert counted_in(err) <= stored_in(path) <= counted_in(err) + PART
    assert not any(map(runs, workers))
    assert stored_in(path) >= 3 * PART
    assert is_sound(path)


@pytest.mark.slow("a command starts workers and is killed")
def test_a_killed_ingest_takes_its_workers_along(reading):
    path, process, workers = reading
    process.kill()
    process.communicate(timeout=60)
    wait_for(lambda: not any(map(runs, workers)))
    assert stored_in(path) >= 3 * PART
    assert is_sound(path)


@pytest.mark.slow("a command starts workers, is checked, and loses them")
def test_a_killed_worker_is_an_error(reading):
    path, process, workers = reading
    for number in workers:
        os.kill(number, signal.SIGKILL)
    more = "".join(map(line_of, range(8 * PART, 10 * PART))).encode()
    out, err = process.communicate(more, timeout=60)
    assert (process.returncode, out) == (3, b"")
    assert re.search(r"error: the worker process \d+ was killed by SIGKILL\nhint: ", err.decode())
    assert b"Traceback" not in err
    assert is_sound(path)
