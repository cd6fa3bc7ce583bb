"""The commands of the store as processes: signals, pipes, terminals, several at once."""

import json
import os
import pty
import re
import signal

import pytest
from numbered import keys_in, text_of
from waiting import wait_for

import fpdb

pytestmark = pytest.mark.process


def line_of(number):
    return (json.dumps({"key": f"u{number:05d}", "text": text_of(number)}) + "\n").encode()


def finished(process, stdin=None):
    out, err = process.communicate(stdin, timeout=60)
    return process.returncode, out.decode(), err.decode()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "crawl.fpdb"


def stored_in(path):
    try:
        return len(keys_in(path))
    except fpdb.FpdbError:
        return 0


@pytest.mark.slow("it ingests twice in a process")
def test_an_interrupted_ingest_keeps_what_it_stored_and_can_be_run_again(start, path):
    process = start("ingest", path)
    process.stdin.write(b"".join(map(line_of, range(2500))))
    process.stdin.flush()
    wait_for(lambda: stored_in(path) >= 2000)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    lines = err.decode().splitlines()
    assert "Traceback" not in err.decode()
    assert "interrupted: " in err.decode()
    stored = len(keys_in(path))
    assert stored >= 2000
    counted = [line for line in lines if line.startswith("read ")]
    assert len(counted) == 1
    # An interrupt between a commit and its count leaves more stored than counted, never less.
    added = int(re.search(r"added ([\d,]+)", counted[0])[1].replace(",", ""))
    assert 1000 <= added <= stored
    code, _, err = finished(start("ingest", path), b"".join(map(line_of, range(2500))))
    assert code == 0
    assert f"added {2500 - stored:,}, unchanged {stored:,}" in err
    with fpdb.open(path) as database:
        assert list(database.check()) == []


def test_ingest_goes_on_when_nobody_reads_its_duplicates(start, path, tmp_path):
    file = tmp_path / "same.jsonl"
    same = text_of(1)
    records = ({"key": f"{'k' * 200}{n}", "text": same} for n in range(3000))
    lines = [json.dumps(record) for record in records]
    file.write_text("\n".join([*lines, json.dumps({"key": "last", "text": text_of(2)})]), "utf-8")
    process = start("ingest", path, file, "--skip-duplicates")
    process.stdout.close()
    err = process.stderr.read().decode()
    assert process.wait(60) == 0
    assert "read 3,001, added 2, duplicates 2,999 (99.9%)" in err
    assert keys_in(path)[-1] == "last"


def test_two_ingests_at_once_create_one_database(start, path):
    both = [start("ingest", path, "--skip-duplicates") for _ in range(2)]
    lines = b"".join(map(line_of, range(300)))
    for process in both:
        process.stdin.write(lines)
    ended = [finished(process) for process in both]
    assert [code for code, _, _ in ended] == [0, 0]
    assert sum("created" in err for _, _, err in ended) == 1
    assert len(keys_in(path)) == 300


def test_progress_and_standard_input_of_a_terminal(start, path, tmp_path):
    main, terminal = pty.openpty()
    try:
        process = start("ingest", path, stdin=terminal)
        code, out, err = finished(process)
        assert (code, out) == (2, "")
        assert "name a file, or - for standard input" in err
    finally:
        os.close(terminal)
        os.close(main)
    assert not path.exists()
