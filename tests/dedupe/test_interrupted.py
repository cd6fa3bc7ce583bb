"""Runs that end early are done again, and nothing is missing or removed for itself."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fpdb
from fpdb.dedupe import decide, files
from fpdb.documents import writer
from fpdb.documents.catalog import Catalog
from fpdb.documents.runs import Runs


class StoppedError(Exception):
    """Ends a run where a test wants it to end."""


@pytest.fixture
def small_batches(monkeypatch):
    for module, name in [
        (decide, "GATHERED"),
        (decide, "TOGETHER"),
        (decide, "STORED"),
        (writer, "ADDED_TOGETHER"),
    ]:
        monkeypatch.setattr(module, name, 20)


@pytest.fixture
def deliveries(corpus, jsonl):
    records = corpus(160, edited=0.5)
    return jsonl("one.jsonl", records[:80]), jsonl("two.jsonl", records[80:])


def expected(folder, paths, **options):
    """What an uninterrupted run writes: the kept records, and the lines about the removed ones."""
    folder.mkdir()
    out, removed = folder / "out.jsonl", folder / "removed.jsonl"
    fpdb.dedupe(paths, out, database=folder / "corpus.fpdb", removed=removed, **options)
    return out.read_bytes(), removed.read_bytes()


def stop(patch, where):
    """Let the next run end at a place."""

    def fail(*_, **__):
        raise StoppedError

    if where == "reading":
        patch.setattr(decide.Decider, "_look_up", fail)
    elif where == "writing":
        patch.setattr(files, "write_rows", fail)
    elif where == "before its outputs are moved":
        patch.setattr(Runs, "begin", fail)
    elif where == "when it begins to move them":
        patch.setattr(Path, "replace", fail)
    elif where == "when one was moved":
        real = Path.replace
        moved = []

        def move(*one):
            moved.append(one)
            if len(moved) == 2:
                raise StoppedError
            real(*one)

        patch.setattr(Path, "replace", move)
    elif where == "when they are in their places":
        patch.setattr(Runs, "finish", fail)
    elif where == "in the last transaction":
        real_write = Catalog.put_records
        calls = []

        def add(*arguments):
            calls.append(1)
            if len(calls) == 3:
                raise StoppedError
            return real_write(*arguments)

        patch.setattr(Catalog, "put_records", add)


PLACES = (
    "reading",
    "writing",
    "before its outputs are moved",
    "when it begins to move them",
    "when one was moved",
    "when they are in their places",
    "in the last transaction",
)
MOVING = PLACES[3:]


@pytest.fixture
def interrupted(tmp_path, deliveries, monkeypatch, small_batches):
    """A function that begins a run, ends it at a place, and returns its options."""

    def run(where, **given):
        options = {"database": tmp_path / "corpus.fpdb", "removed": tmp_path / "removed.jsonl"}
        options |= {"output": tmp_path / "out.jsonl"} | given
        with monkeypatch.context() as patch:
            stop(patch, where)
            with pytest.raises(StoppedError):
                fpdb.dedupe(deliveries, **options)
        with fpdb.open(tmp_path / "corpus.fpdb") as db:
            assert len(db) == 0
            assert [run.finished for run in db.runs.known()] == [False] * (where in MOVING)
        return options

    return run


def of_whole_run(tmp_path, out, wanted, kept):
    """Check the output, the database, and that nothing else is left."""
    assert out.read_bytes() == wanted
    with fpdb.open(tmp_path / "corpus.fpdb") as db:
        assert len(db) == kept
        assert [run.finished for run in db.runs.known()] == [True]
        assert list(db.check()) == []
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("keep", ["first", "longest"])
@pytest.mark.parametrize("where", PLACES)
def test_the_same_call_does_all_again(tmp_path, deliveries, interrupted, where, keep):
    wanted, removed = expected(tmp_path / "whole", deliveries, keep=keep)
    options = interrupted(where, keep=keep)
    counts = fpdb.dedupe(deliveries, **options)
    of_whole_run(tmp_path, tmp_path / "out.jsonl", wanted, counts.kept)
    assert (tmp_path / "removed.jsonl").read_bytes() == removed
    assert (counts.read, counts.removed) == (160, removed.count(b"\n"))


@pytest.mark.parametrize("where", [PLACES[1], PLACES[4], PLACES[6]])
@pytest.mark.parametrize("how", ["output", "folder", "renamed", "packed", "records", "touched"])
def test_another_call_with_the_same_records_does_so_too(
    tmp_path, deliveries, interrupted, where, how
):
    """Another output, a folder, other names, packed otherwise, records in place of files."""
    wanted = expected(tmp_path / "whole", deliveries)[0]
    options = interrupted(where) | {"removed": None}
    out = options["output"] = tmp_path / "other.jsonl"
    given = list(deliveries)
    if how == "folder":
        options |= {"output": None, "output_dir": tmp_path / "clean"}
    elif how == "renamed":
        given = [path.rename(tmp_path / f"new-{path.name}") for path in given]
    elif how == "packed":
        packed = tmp_path / "all.jsonl.gz"
        packed.write_bytes(gzip.compress(b"".join(path.read_bytes() for path in given)))
        given = [packed]
    elif how == "touched":
        for path in given:
            os.utime(path, (1, 1))
    if how == "records" and where in MOVING:
        with pytest.raises(fpdb.InputError, match="that began to write its outputs"):
            list(fpdb.dedupe([{"text": "a"}], database=tmp_path / "corpus.fpdb"))
        return
    if how == "records":
        lines = b"".join(path.read_bytes() for path in given).splitlines()
        found = fpdb.dedupe(map(json.loads, lines), database=options["database"])
        out.write_text("".join(json.dumps(each) + "\n" for each in found))
    else:
        fpdb.dedupe(given, **options)
    if how == "folder":
        out.write_bytes(b"".join((tmp_path / "clean" / path.name).read_bytes() for path in given))
    # What the first run left beside its own output is removed by the next one there.
    fpdb.dedupe(tmp_path / "whole" / "out.jsonl", tmp_path / "out.jsonl")
    of_whole_run(tmp_path, out, wanted, wanted.count(b"\n"))


@pytest.mark.parametrize("other", [{}, {"similarity": 0.9}, {"lose": 0}])
@pytest.mark.parametrize("where", MOVING)
def test_another_run_is_refused_until_it_is_abandoned(
    tmp_path, deliveries, interrupted, where, other
):
    options = interrupted(where)
    left = {path: path.read_bytes() for path in tmp_path.glob("*.jsonl")}
    given = deliveries if other else deliveries[:1]
    options |= {"output": tmp_path / "next.jsonl", "removed": None} | other
    with pytest.raises(fpdb.InputError, match=r"a run that began .* on 20\d\d-") as caught:
        fpdb.dedupe(given, **options)
    assert "run it again, with the same records and options, or abandon it" in caught.value.hint
    assert {path: path.read_bytes() for path in tmp_path.glob("*.jsonl")} == left
    counts = fpdb.dedupe(given, **options, abandon=True)
    assert left.items() <= {path: path.read_bytes() for path in tmp_path.glob("*.jsonl")}.items()
    of_whole_run(tmp_path, tmp_path / "next.jsonl", options["output"].read_bytes(), counts.kept)


@pytest.mark.parametrize("how", ["again", "another output", "packed", "other options", "reversed"])
def test_a_run_that_would_remove_its_own_records_is_an_error(tmp_path, deliveries, how):
    out, database = tmp_path / "out.jsonl", tmp_path / "corpus.fpdb"
    first, options = deliveries[0], {}
    fpdb.dedupe(first, out, database=database)
    data = out.read_bytes()
    if how == "packed":
        first = tmp_path / "one.jsonl.gz"
        first.write_bytes(gzip.compress(deliveries[0].read_bytes()))
    elif how == "reversed":
        first = tmp_path / "reversed.jsonl"
        first.write_bytes(b"".join(deliveries[0].read_bytes().splitlines(keepends=True)[::-1]))
    elif how == "other options":
        options = {"keep": "longest", "similarity": 0.9}
    target = out if how == "again" else tmp_path / "other.jsonl"
    message = "is there already" if how == "again" else r"were added to .* on 20\d\d-\d\d-\d\d "
    with pytest.raises(fpdb.InputError, match=message) as caught:
        fpdb.dedupe(first, target, database=database, **options)
    assert caught.value.hint
    assert out.read_bytes() == data
    assert how == "again" or not target.exists()


def test_a_delivery_that_has_an_earlier_one_in_it_is_deduplicated(tmp_path, deliveries):
    database = tmp_path / "corpus.fpdb"
    first = fpdb.dedupe(deliveries[0], tmp_path / "one-clean.jsonl", database=database)
    both = fpdb.dedupe(deliveries, tmp_path / "both-clean.jsonl", database=database)
    whole = fpdb.dedupe(deliveries, tmp_path / "whole.jsonl")
    assert first.kept + both.kept == whole.kept
    # Of nothing that is kept, a second run removes nothing for itself.
    copies = tmp_path / "copies.jsonl"
    copies.write_bytes(deliveries[0].read_bytes().splitlines(keepends=True)[0])
    for name in ("c", "d"):
        assert (
            fpdb.dedupe(
                copies, tmp_path / name, fpdb.Reading(format="jsonl"), database=database
            ).kept
            == 0
        )


@pytest.mark.parametrize("keep", ["first", "longest"])
def test_an_iterator_that_is_closed_adds_nothing(tmp_path, corpus, small_batches, keep):
    records = corpus(300)
    with fpdb.create(tmp_path / "corpus.fpdb") as db:
        found = fpdb.dedupe(records, database=db, keep=keep)
        for _ in range(5):
            next(found)
        with pytest.raises(fpdb.LockTimeoutError, match="another run is adding to"):
            next(fpdb.dedupe(records, database=db))
        found.close()
        assert (len(db), db.runs.known()) == (0, [])
        kept = list(fpdb.dedupe(records, database=db, keep=keep))
        assert len(db) == len(kept) == len(list(fpdb.dedupe(records, keep=keep)))
        with pytest.raises(fpdb.InputError, match="each would be removed for itself"):
            list(fpdb.dedupe(records, database=db, keep=keep))


@pytest.mark.process
def test_runs_stay_in_compacted_and_copied_databases(tmp_path, deliveries):
    for number, path in enumerate(deliveries):
        database = tmp_path / f"{number}.fpdb"
        fpdb.dedupe(path, tmp_path / f"clean-{number}.jsonl", database=database)
    with fpdb.open(tmp_path / "0.fpdb") as db:
        db.compact(tmp_path / "compact.fpdb")
    fpdb.load(tmp_path / "all.fpdb", [tmp_path / "compact.fpdb", tmp_path / "1.fpdb"])
    for path in deliveries:
        with pytest.raises(fpdb.InputError, match="each would be removed for itself"):
            fpdb.dedupe(path, tmp_path / "new.jsonl", database=tmp_path / "all.fpdb")


@pytest.mark.parametrize("how", ["files", pytest.param("table", marks=pytest.mark.gate), "records"])
def test_progress_ends_before_the_database_is_changed(tmp_path, corpus, jsonl, how):
    records = corpus(50)
    database = tmp_path / "corpus.fpdb"
    path = jsonl("in.jsonl", records)

    def dedupe(output, **more):
        if how == "files":
            return fpdb.dedupe(path, output, database=database, **more)
        source = records
        if how == "table":
            import pandas

            source = pandas.DataFrame(records)
        return list(fpdb.dedupe(source, database=database, **more))

    stored = []

    def count(_):
        with fpdb.open(database, readonly=True) as db:
            stored.append(len(db))

    dedupe(tmp_path / "out.jsonl", on_progress=count)
    with fpdb.open(database, readonly=True) as db:
        assert len(db) > 0 == max(stored)

    def fail(counts):
        if counts.kept:
            raise StoppedError

    shutil.rmtree(database)
    with pytest.raises(StoppedError):
        dedupe(tmp_path / "next.jsonl", on_progress=fail)
    dedupe(tmp_path / "next.jsonl")


def test_an_error_gives_the_command_of_a_run_until_it_finishes(tmp_path, deliveries, interrupted):
    interrupted("when they are in their places", command="make \udc80clean")
    other = tmp_path / "other.jsonl"
    other.write_bytes(deliveries[0].read_bytes())
    with pytest.raises(fpdb.InputError) as caught:
        fpdb.dedupe(other, tmp_path / "next.jsonl", database=tmp_path / "corpus.fpdb")
    assert "run it again, by make ?clean, or abandon it" in caught.value.hint
    fpdb.dedupe(deliveries, tmp_path / "out.jsonl", database=tmp_path / "corpus.fpdb")
    with fpdb.open(tmp_path / "corpus.fpdb") as db:
        assert [run.command for run in db.runs.known()] == [""]
        assert db.stats().unfinished == ()


def test_of_two_runs_on_the_same_output_the_last_one_stays_whole(tmp_path, deliveries):
    out = tmp_path / "out.jsonl"
    wanted, _ = expected(tmp_path / "first", deliveries[:1])
    second, _ = expected(tmp_path / "second", deliveries[1:])
    shutil.rmtree(tmp_path / "first")
    shutil.rmtree(tmp_path / "second")
    written = []

    def begin(_):
        if not written:
            written.append(out)
            fpdb.dedupe(deliveries[1], out)
            assert out.read_bytes() == second

    fpdb.dedupe(deliveries[0], out, on_progress=begin)
    assert (written, out.read_bytes()) == ([out], wanted)
    names = ["one.jsonl", "out.jsonl", "two.jsonl"]
    assert sorted(each.name for each in tmp_path.iterdir()) == names


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
    assert not list(tmp_path.glob(".*"))


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
