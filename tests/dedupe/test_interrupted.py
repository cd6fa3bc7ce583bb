"""Runs that end early: with a database they go on, without one nothing is left of them."""

import json
import os
import random
import subprocess
import sys
import time

import pytest

import fpdb
from fpdb.dedupe import decide, files
from fpdb.io import journal

SMALL = "from fpdb.dedupe import decide; decide.GATHERED = 20\nfrom fpdb.cli import main; main()"


class StoppedError(Exception):
    """Ends a run where a test wants it to end."""


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(decide, "GATHERED", 20)


@pytest.fixture
def deliveries(corpus, jsonl):
    records = corpus(300, edited=0.5)
    return jsonl("one.jsonl", records[:150]), jsonl("two.jsonl", records[150:])


def expected(folder, paths, **options):
    """What an uninterrupted run writes: what stays, and what is said of the rest."""
    folder.mkdir()
    out, removed = folder / "out.jsonl", folder / "removed.jsonl"
    fpdb.dedupe(paths, out, database=folder / "corpus.fpdb", removed=removed, **options)
    return out.read_bytes(), removed.read_bytes()


@pytest.mark.parametrize("keep", ["first", "longest"])
@pytest.mark.parametrize("after", ["write", "commit"])
def test_a_run_that_fails_anywhere_goes_on(
    tmp_path, deliveries, monkeypatch, small_batches, keep, after
):
    wanted = expected(tmp_path / "whole", deliveries, keep=keep)
    out, removed = tmp_path / "out.jsonl", tmp_path / "removed.jsonl"
    calls = 0

    def run(stop):
        nonlocal calls
        calls = 0
        real = journal.Journal.note

        def note(*arguments):
            nonlocal calls
            calls += 1
            if after == "commit" and calls == stop:
                raise StoppedError
            found = real(*arguments)
            if after == "write" and calls == stop:
                raise StoppedError
            return found

        with monkeypatch.context() as patch:
            patch.setattr(journal.Journal, "note", note)
            return fpdb.dedupe(
                deliveries, out, database=tmp_path / "corpus.fpdb", removed=removed, keep=keep
            )

    for stop in (3, 1, 4):
        with pytest.raises(StoppedError):
            run(stop)
        assert not out.exists()
        assert not removed.exists()
    counts = run(0)
    assert calls == 15 - 2 - 0 - 3
    assert (out.read_bytes(), removed.read_bytes()) == wanted
    assert (counts.read, counts.removed) == (300, wanted[1].count(b"\n"))
    assert not (tmp_path / "out.jsonl.part").exists()
    with fpdb.open(tmp_path / "corpus.fpdb") as db:
        assert len(db) == counts.kept
        assert db.file_places() == []


def killed(command, folder, chance):
    """Run a command, and kill it once it has noted some more decisions; return whether it ended."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def decided():
        return sum(path.stat().st_size for path in folder.glob("journal-*.decisions"))

    more = None
    while process.poll() is None:
        try:
            more = decided() + chance.randint(1, 60) if more is None else more
            if decided() >= more:
                time.sleep(chance.random() / 1000)
                process.kill()
                break
        except FileNotFoundError:
            continue
    error = process.communicate()[1]
    assert process.returncode in (0, -9), error.decode()
    return process.returncode == 0


@pytest.mark.process
@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(3, marks=pytest.mark.slow("four processes load fpdb")),
        pytest.param(40, marks=pytest.mark.full),
    ],
)
def test_a_run_that_is_killed_goes_on(tmp_path, deliveries, kills):
    wanted = expected(tmp_path / "whole", deliveries)
    out, removed = tmp_path / "out.jsonl", tmp_path / "removed.jsonl"
    command = [sys.executable, "-c", SMALL, "dedupe", *map(str, deliveries), "-o", str(out)]
    command += ["--db", str(tmp_path / "corpus.fpdb"), "--removed", str(removed), "-q"]
    chance = random.Random(kills)
    done = 0
    while done < kills:
        if killed(command, tmp_path / "out.jsonl.part", chance):
            # Begin again, with another database.
            assert (out.read_bytes(), removed.read_bytes()) == wanted
            command[command.index("--db") + 1] = str(tmp_path / f"corpus-{done}.fpdb")
            out.unlink()
        done += 1
    subprocess.run(command, check=True)
    assert (out.read_bytes(), removed.read_bytes()) == wanted
    assert not (tmp_path / "out.jsonl.part").exists()


def stop_at(monkeypatch, number):
    real = journal.Journal.note
    calls = []

    def note(*arguments):
        calls.append(1)
        if len(calls) == number:
            raise StoppedError
        return real(*arguments)

    monkeypatch.setattr(journal.Journal, "note", note)


@pytest.fixture
def interrupted(tmp_path, deliveries, monkeypatch, small_batches):
    """A run with a database that ended after two batches; return how to run it again."""

    def run(**options):
        options = {"database": tmp_path / "corpus.fpdb"} | options
        return fpdb.dedupe(deliveries, tmp_path / "out.jsonl", **options)

    with monkeypatch.context() as patch:
        stop_at(patch, 3)
        with pytest.raises(StoppedError):
            run()
    return run


@pytest.mark.parametrize("options", [{"keep": "longest"}, {"similarity": 0.9}, {"bad": "drop"}])
def test_other_options_cant_go_on(tmp_path, interrupted, options):
    with pytest.raises(fpdb.InputError, match="other inputs or options") as caught:
        interrupted(**options)
    assert "same inputs and options" in caught.value.hint
    assert interrupted().read == 300


def test_inputs_that_changed_cant_go_on(deliveries, interrupted):
    data, status = deliveries[1].read_bytes(), deliveries[1].stat()
    deliveries[1].write_bytes(data + b"{}\n")
    with pytest.raises(fpdb.InputError, match="other inputs or options"):
        interrupted()
    with open(deliveries[1], "r+b") as file:
        file.truncate(len(data))
    os.utime(deliveries[1], ns=(status.st_atime_ns, status.st_mtime_ns))
    assert interrupted().read == 300


def test_a_journal_that_is_gone_is_an_error(tmp_path, interrupted):
    (folder,) = tmp_path.glob("*.part")
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(fpdb.InputError, match="is gone or was changed"):
        interrupted()
    (tmp_path / "elsewhere").rename(folder)
    assert interrupted().read == 300


def test_another_database_doesnt_take_the_journal(tmp_path, interrupted):
    for other in (tmp_path / "other.fpdb", None):
        with pytest.raises(fpdb.InputError, match="an interrupted run with another database"):
            interrupted(database=other)
    assert interrupted().read == 300


def test_an_output_that_is_there_isnt_replaced_by_what_is_left(tmp_path, deliveries):
    out, database = tmp_path / "out.jsonl", tmp_path / "corpus.fpdb"
    fpdb.dedupe(deliveries, out, database=database)
    data = out.read_bytes()
    with pytest.raises(fpdb.InputError, match="is there already"):
        fpdb.dedupe(deliveries, out, database=database)
    assert out.read_bytes() == data
    assert not list(tmp_path.glob("*.part"))
    fpdb.dedupe(deliveries, out)  # which compares with nothing but the inputs
    assert out.read_bytes() == data


def test_standard_input_goes_on_if_it_is_the_same(tmp_path, deliveries, monkeypatch, small_batches):
    data = b"".join(path.read_bytes() for path in deliveries)
    wanted = expected(tmp_path / "whole", deliveries)[0]

    def run(given):
        out, database = tmp_path / "out.jsonl", tmp_path / "corpus.fpdb"
        with monkeypatch.context() as patch, open(given, "rb") as file:
            patch.setattr(sys, "stdin", type("", (), {"buffer": file}))
            return fpdb.dedupe("-", out, database=database)

    whole, other = tmp_path / "whole.jsonl", tmp_path / "other.jsonl"
    whole.write_bytes(data)
    other.write_bytes(data[:-100])
    with monkeypatch.context() as patch:
        stop_at(patch, 5)
        with pytest.raises(StoppedError):
            run(whole)
    with pytest.raises(fpdb.InputError, match="other inputs"):
        run(other)
    assert run(whole).read == 300
    assert (tmp_path / "out.jsonl").read_bytes() == wanted


def test_a_second_run_on_the_same_output_is_refused(tmp_path, deliveries):
    out = tmp_path / "out.jsonl"
    second = []

    def begin(_):
        if not second:
            with pytest.raises(fpdb.LockTimeoutError, match="another run is writing") as caught:
                fpdb.dedupe(deliveries[1], out)
            second.append(caught.value)

    fpdb.dedupe(deliveries[0], out, on_progress=begin)
    assert second[0].hint
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "one.jsonl",
        "out.jsonl",
        "two.jsonl",
    ]


def test_what_a_killed_run_left_is_removed(tmp_path, deliveries):
    folder = tmp_path / "out.jsonl.part"
    (folder / ".index.abc.new").mkdir(parents=True)
    (folder / "dedupe.lock").touch()
    (folder / "journal.decisions").write_bytes(b"\0" * 500)
    (folder / "output-0").write_bytes(b"half")
    fpdb.dedupe(deliveries[0], tmp_path / "out.jsonl")
    assert not folder.exists()
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) < 150


@pytest.mark.parametrize("when", ["reading", "writing"])
def test_an_input_that_changes_meanwhile_is_an_error(tmp_path, deliveries, when):
    path = deliveries[0]
    lines = path.read_bytes().splitlines(keepends=True)

    def change(counts):
        if counts.stage == when and counts.read:
            path.write_bytes(b"".join(lines[:-2]) if when == "reading" else b"".join(lines[::-1]))

    with pytest.raises(fpdb.InputError, match="isn't what it was"):
        fpdb.dedupe(path, tmp_path / "out.jsonl", on_progress=change)
    assert not (tmp_path / "out.jsonl").exists()
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.process
def test_a_run_that_gets_sigterm_leaves_nothing(tmp_path, jsonl, corpus):
    jsonl("in.jsonl", corpus(20))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "fpdb", "dedupe", str(pipe), "-o", str(tmp_path / "out.jsonl")]
    process = subprocess.Popen([*command, "--format", "jsonl"], stderr=subprocess.PIPE)
    with open(pipe, "wb") as file:  # which waits until it is read
        file.write((tmp_path / "in.jsonl").read_bytes())
        file.flush()
        process.terminate()
        error = process.communicate()[1].decode()
    assert process.returncode == 130
    assert error == "interrupted: nothing was written\n"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["in.jsonl", "pipe"]


@pytest.mark.process
def test_a_pipe_is_read_like_a_file(tmp_path, jsonl, corpus):
    path = jsonl("in.jsonl.gz", corpus(50))
    removed = tmp_path / "removed.jsonl"
    command = [sys.executable, "-m", "fpdb", "dedupe", "-", "-o", str(tmp_path / "out.jsonl")]
    with path.open("rb") as file:
        subprocess.run([*command, "--removed", str(removed), "-q"], stdin=file, check=True)
    fpdb.dedupe(path, tmp_path / "plain.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "plain.jsonl").read_bytes()
    rows = [json.loads(line) for line in removed.read_text().splitlines()]
    assert all(row["source"].startswith("-:") for row in rows)


@pytest.mark.parametrize("step", ["first move", "second move", "end"])
def test_a_run_that_ends_while_its_files_are_moved_goes_on(tmp_path, deliveries, monkeypatch, step):
    wanted = expected(tmp_path / "whole", deliveries)
    out, removed = tmp_path / "out.jsonl", tmp_path / "removed.jsonl"
    options = {"database": tmp_path / "corpus.fpdb", "removed": removed}
    real = fpdb.Database.add_prepared
    moves = []

    def stop(*_):
        moves.append(1)
        if step == ("first move", "second move")[len(moves) - 1]:
            raise StoppedError

    def add(self, documents, **given):
        if step == "end" and not documents:
            raise StoppedError
        return real(self, documents, **given)

    with monkeypatch.context() as patch:
        patch.setattr(files, "sync", stop)
        patch.setattr(fpdb.Database, "add_prepared", add)
        with pytest.raises(StoppedError):
            fpdb.dedupe(deliveries, out, **options)
    fpdb.dedupe(deliveries, out, **options)
    assert (out.read_bytes(), removed.read_bytes()) == wanted
    assert not (tmp_path / "out.jsonl.part").exists()
