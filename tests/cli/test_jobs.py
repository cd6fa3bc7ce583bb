"""--jobs: the same results in the same order."""

import importlib
import json
import re

import pytest
from numbered import text_of

import fpdb
from fpdb import flow
from fpdb.io.files import read_parts

pytestmark = pytest.mark.process


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
    monkeypatch.setattr(module, "_BLOCK", 7)
    monkeypatch.setattr("fpdb.flow.read_parts", lambda *a, **b: read_parts(*a, **b | {"size": 7}))


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
    numbers = list(map(int, re.findall(r"\.jsonl:(\d+): ", err)))
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
        done = run("ingest", path, "--bad", "fail", "-j", jobs, stdin="".join(lines).encode())
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
    rows = [row[:2] for row in run(*command).rows]
    assert ["p59", "p59"] in rows
    assert rows[-1] == ["m59", "m59"]  # the last of ten equal texts of one word


def test_a_pipe_is_read_by_one_thread_so_that_nothing_waits_for_what_follows(
    run, tmp_path, monkeypatch
):
    def counted(work, items, jobs, **more):
        asked.append(jobs)
        return mapped(work, items, jobs, **more)

    asked, mapped = [], flow.mapped
    monkeypatch.setattr(flow, "mapped", counted)
    (tmp_path / "a.jsonl").write_text(line_of(1))
    for source in ("-", tmp_path / "a.jsonl"):
        for jobs in ([], ["--jobs", 2]):
            stdin = line_of(2).encode()
            assert run("ingest", tmp_path / "a.fpdb", source, *jobs, stdin=stdin).code == 0
    assert asked == [1, 2, 0, 2]
