"""fpdb follow: each line has its answer, at once, in order, and once it is stored."""

import json
import os
import signal
import subprocess

import pytest

import fpdb
from fpdb.cli import render

SECONDS = 60
KITES = (
    "After a mild winter, the birds of prey came back to the valley earlier than in other years. "
    "Red kites nest above the quarry again: wardens counted eleven pairs in April, {} more."
)
BRIDGE = "The old bridge at Lindow is closed, because the river has washed out one of its piers."


def page(key, text):
    return {"url": key, "text": text}


class Talk:
    """A conversation with a process that follows its standard input."""

    def __init__(self, process):
        self.process = process

    def say(self, *records):
        for record in records:
            line = record if isinstance(record, str) else json.dumps(record)
            self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def hear(self, count=1):
        return [json.loads(self.process.stdout.readline()) for _ in range(count)]

    def end(self):
        out, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, out.decode(), err.decode()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "crawl.fpdb"


@pytest.fixture
def talk(start, path):
    return Talk(start("follow", path, "--skip-duplicates"))


def test_the_summary_counts_lost_metadata(talk, path):
    with fpdb.create(path) as database:
        database.add("a", KITES.format("four"), {"host": "a.example"})
    talk.say(page("a", KITES.format("four")), page("b", BRIDGE))
    assert [each["status"] for each in talk.hear(2)] == ["replaced", "added"]
    _, _, err = talk.end()
    assert err.endswith("\nstored metadata removed, which --meta-field gives anew: 1\n")


def test_each_line_is_answered_before_the_next_is_sent(talk, path):
    talk.say(page("a", KITES.format("four")))
    assert talk.hear() == [{"key": "a", "status": "added", "source": "-:1"}]
    with fpdb.open(path, readonly=True) as database:
        assert "a" in database  # it is stored once it is answered
    talk.say(page("b", KITES.format("five")))
    [verdict] = talk.hear()
    assert (verdict["key"], verdict["status"], verdict["duplicate_of"]) == ("b", "duplicate", "a")
    with fpdb.open(path, readonly=True) as database:
        [nearest] = database.query(KITES.format("five"))
        assert verdict["distance"] == nearest.distance
        assert 0.76 <= verdict["similarity"] == nearest.similarity < 1
    talk.say(page("a", KITES.format("four")), page("a", BRIDGE), page("c", "not found"))
    assert [each["status"] for each in talk.hear(3)] == ["unchanged", "replaced", "short"]
    code, out, err = talk.end()
    assert (code, out) == (0, "")
    assert err.splitlines()[-1] == (
        "read 5, added 1, replaced 1, unchanged 1, duplicates 1 (20.0%), short 1"
    )


@pytest.fixture
def follow(run, path, tmp_path):
    """Follow lines that are all there, in this process."""

    def follow_lines(*records, options=(), end="\n"):
        lines = [each if isinstance(each, str) else json.dumps(each) for each in records]
        file = tmp_path / "lines.jsonl"
        file.write_text("\n".join(lines) + end)
        with file.open("rb") as stdin:
            done = run("follow", path, *options, stdin=stdin)
        assert done.code == 0, done.err
        return [json.loads(line) for line in done.out.splitlines()], done.err

    return follow_lines


def test_a_broken_line_is_answered_in_its_place_and_the_stream_goes_on(follow):
    records = page("a", BRIDGE), "broken", "", page("b", 7), page("", "x"), page("c", "short")
    verdicts, err = follow(*records, options=["--skip-duplicates"])
    assert [(each["key"], each["status"], each["source"]) for each in verdicts] == [
        ("a", "added", "-:1"),
        (None, "error", "-:2"),
        (None, "error", "-:4"),
        (None, "error", "-:5"),
        ("c", "short", "-:6"),
    ]
    assert verdicts[1]["error"].startswith("isn't JSON")
    assert "bad 3" in err


def test_a_document_that_no_database_takes_is_answered_with_its_key(follow, path):
    with fpdb.create(path, keys="integer"):
        pass
    (first, second), _ = follow(page("a", BRIDGE), page(7, BRIDGE))
    assert (first["key"], first["status"]) == ("a", "error")
    assert "expected a whole number" in first["error"]
    assert second == {"key": 7, "status": "added", "source": "-:2"}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_with_what_was_answered_stored(talk, path, number, code):
    talk.say(page("a", BRIDGE))
    talk.hear()
    talk.process.send_signal(number)
    assert talk.process.wait(SECONDS) == code
    lines = talk.process.stderr.read().splitlines()
    if code:
        assert lines.pop() == b"interrupted: answered documents are stored"
    assert lines[-1].startswith(b"read 1, added 1")
    with fpdb.open(path) as database:
        assert list(database) == ["a"]
        assert not list(database.check())


def test_a_second_signal_changes_nothing(run, path, monkeypatch):
    """`timeout` sends SIGTERM twice: to the program, and to its group."""

    def terminated(*_, **__):
        os.kill(os.getpid(), signal.SIGTERM)
        yield

    def note(text):
        os.kill(os.getpid(), signal.SIGTERM)
        written(text)

    written = render.note
    monkeypatch.setattr(fpdb, "follow", terminated)
    monkeypatch.setattr(render, "note", note)
    before = signal.getsignal(signal.SIGTERM)
    try:
        done = run("follow", path)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert done.code == 0
    assert done.err.splitlines()[-1].startswith("read 0")


def test_whoever_stops_listening_ends_it(talk):
    talk.say(page("a", BRIDGE))
    talk.hear()
    talk.process.stdout.close()
    talk.say(page("b", "another text that is short"))
    assert talk.process.wait(SECONDS) == 0
    assert b"Traceback" not in talk.process.stderr.read()


def test_lines_of_a_file_that_come_again_are_unchanged(start, path, tmp_path):
    """As after a restart, when tail begins at the first line again."""
    crawled = tmp_path / "crawled.jsonl"
    crawled.write_text(json.dumps(page("a", BRIDGE)) + "\n" + json.dumps(page("b", KITES)) + "\n")
    tail = ["tail", "-n", "+1", "-F", crawled]
    for status in ("added", "unchanged"):
        with subprocess.Popen(tail, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as source:
            talk = Talk(start("follow", path, stdin=source.stdout))
            assert [each["status"] for each in talk.hear(2)] == [status] * 2
            if status == "unchanged":
                with crawled.open("a") as file:
                    file.write(json.dumps(page("c", KITES.format("nine"))) + "\n")
                assert [each["key"] for each in talk.hear()] == ["c"]
            source.kill()
            assert talk.process.wait(SECONDS) == 0


def test_lines_come_through_any_pipe(path):
    reader, writer = os.pipe()
    with fpdb.create(path) as database, open(reader, "rb") as file:
        answers = fpdb.follow(database, file)
        os.write(writer, json.dumps(page("a", BRIDGE)).encode() + b"\n")
        assert next(answers)[:3] == ("-:1", "a", "added")
        os.write(writer, json.dumps(page("b", BRIDGE)).encode())  # which has no end yet
        os.close(writer)
        assert [(each.key, each.status) for each in answers] == [("b", "added")]
