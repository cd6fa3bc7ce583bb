"""Loading ready fingerprints in bulk, and databases, from the command line."""

import json
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import fpdb

DICE = np.random.default_rng(17)


@pytest.fixture
def prints(tmp_path):
    """A file of 3,000 fingerprints under their numbers, and these."""
    numbers = DICE.integers(0, 2**64, 3000, np.uint64).tolist()
    lines = (
        f'{{"key": {key}, "fingerprint": "{number:x}"}}\n' for key, number in enumerate(numbers)
    )
    (tmp_path / "ready.jsonl").write_text("".join(lines))
    return tmp_path / "ready.jsonl", dict(enumerate(numbers))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"


def stored(path):
    with fpdb.open(path, readonly=True) as db:
        assert list(db.check()) == []
        return {document.key: document.fingerprint for document in db.scan()}


def load(run, path, source, *options, **streams):
    return run("load", path, source, *options, **streams)


def test_records_become_a_database_of_integers(run, path, prints):
    file, numbers = prints
    done = load(run, path, file, "--key-type", "integer")
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("read 3,000, added 3,000; ")
    assert stored(path) == numbers
    assert fpdb.open(path).stats().capacity == 1_000_000
    assert load(run, path, file).err.startswith("read 3,000, unchanged 3,000")


def test_records_that_are_all_bad_leave_no_database(run, tmp_path, path):
    (tmp_path / "prints.jsonl").write_text('{"key": "a", "hash": "0"}\n' * 2)
    refused = load(run, path, tmp_path / "prints.jsonl")
    assert refused.code == 3
    assert "--fingerprint-field names another" in refused.err
    assert f"error: no record can be used, so {path} isn't created" in refused.err
    assert not path.exists()
    fpdb.create(path, similarity=None).close()
    refused = load(run, path, tmp_path / "prints.jsonl")
    assert refused.code == 3
    assert "read 2, bad 2" in refused.err
    assert "error: none of 2 records can be used" in refused.err


TEXT = "Red kites nest above the quarry again: wardens counted eleven pairs in April, four more."


def test_a_text_is_no_record(run, tmp_path, path):
    (tmp_path / "a.txt").write_text("a text")
    done = load(run, path, tmp_path / "a.txt")
    assert done.code == 3
    assert "a.txt is text, expected records with keys and fingerprints" in done.err
    assert not path.exists()


def test_foreign_fingerprints_take_no_texts(run, tmp_path, path, prints):
    """They would be compared with fingerprints by web, with which they have nothing to do."""
    file, numbers = prints
    assert load(run, path, file, "-k", 4, "--key-type", "integer").code == 0
    (tmp_path / "texts.jsonl").write_text(json.dumps({"key": 7, "text": TEXT}) + "\n")
    for refused in (
        run("query", path, "--text", TEXT),
        run("query", path, tmp_path / "texts.jsonl"),
        run("ingest", path, tmp_path / "texts.jsonl"),
    ):
        assert refused.code == 3
        assert "expected a fingerprint: without a recipe, a text has none" in refused.err
    assert stored(path) == numbers
    with fpdb.open(path) as db:
        assert (db.k, db.similarity, db.recipe.name) == (4, None, "none")
        assert db.query_fingerprint(numbers[5])[0].key == 5
        with pytest.raises(fpdb.InputError, match="without a recipe"):
            db.add(9000, TEXT)
    again = load(run, path, file, "-k", 3)
    assert (again.code, "was created for k=4, found k=3" in again.err) == (3, True)
    found = run("query", path, "--fingerprint", f"{numbers[5]:x}")
    assert found.rows == [[f"{numbers[5]:x}", "5", "0"]]


@pytest.mark.parametrize(("name", "bits"), [("none-32", 32), ("none", 64), ("none-128", 128)])
def test_foreign_fingerprints_of_any_width(run, tmp_path, path, name, bits):
    (tmp_path / "wide.tsv").write_text(f"a\t{(1 << bits) - 1:x}\n")
    fields = ("--key-field", 1, "--fingerprint-field", 2)
    assert load(run, path, tmp_path / "wide.tsv", *fields, "--recipe", name).code == 0
    assert stored(path) == {"a": (1 << bits) - 1}
    copied = run("export", path, "--output", tmp_path / "x.fpdb.jsonl")
    assert (copied.code, load(run, tmp_path / "copy", tmp_path / "x.fpdb.jsonl").code) == (0, 0)
    assert fpdb.open(tmp_path / "copy").recipe == fpdb.recipe(name)


def test_records_become_a_database(run, tmp_path, path):
    lines = [json.dumps({"key": f"k{n}", "fingerprint": f"{n:016x}"}) for n in range(900)]
    lines[7:7] = ["{no json", json.dumps({"key": "wide", "fingerprint": "1" + "0" * 16})]
    lines[20:20] = [json.dumps({"fingerprint": "00"}), json.dumps({"key": "none"})]
    lines.append(json.dumps({"key": "long" * 20_000, "fingerprint": "0" * 16}))
    (tmp_path / "ready.jsonl").write_text("".join(f"{line}\n" for line in lines))
    done = load(run, path, tmp_path / "ready.jsonl")
    assert done.code == 4
    assert stored(path) == {f"k{number}": number for number in range(900)}
    *bad, summary = done.err.splitlines()
    assert [line.split(": ")[0].rsplit(":")[-1] for line in bad] == ["8", "9", "21", "22", "905"]
    assert summary.startswith("read 905, added 900, bad 5; ")
    assert "bad 5; " in summary
    strict = load(run, tmp_path / "strict", tmp_path / "ready.jsonl", "--bad", "fail")
    assert strict.code == 3
    assert not (tmp_path / "strict").exists()


def test_ctrl_c_leaves_no_half_of_a_database(start, tmp_path, path):
    process = start("load", path, "-", "--format", "jsonl")
    # More than a pipe holds: once it is written, some of it has been read.
    process.stdin.write(b'{"key": "a", "fingerprint": "00"}\n' * 10_000)
    process.stdin.flush()
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".db.*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"interrupted: a new database isn't there" in err
    assert list(tmp_path.iterdir()) == []


def test_compact_writes_another_database(run, tmp_path, path, prints):
    load(run, path, prints[0], "--key-type", "integer", "--quiet")
    with fpdb.open(path) as db:
        db.delete_many(range(0, 3000, 2))
    before = stored(path)
    done = run("compact", path, "--output", tmp_path / "new", "--capacity", "2e8", "-k", 2)
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith(f"{tmp_path / 'new'}: 1,500 documents, ")
    assert stored(tmp_path / "new") == before
    with fpdb.open(tmp_path / "new") as new:
        assert (new.k, new.stats().capacity) == (2, 200_000_000)
    assert run("compact", path, "--output", tmp_path / "new").code == 3


@pytest.fixture
def pair(tmp_path):
    for name, keys in (("a", "xy"), ("b", "yz")):
        with fpdb.create(tmp_path / name, recipe="char-4") as db:
            db.add_fingerprints(list(keys), [ord(name) << 20, ord(name) << 40])
    return tmp_path / "a", tmp_path / "b"


@pytest.mark.process
def test_databases_become_one_or_are_added(run, pair, tmp_path):
    done = run("load", tmp_path / "c", *pair)
    assert done.err.startswith("read 4, added 3, unchanged 1; ")
    done = run("load", pair[0], pair[1], "--json")
    counts = json.loads(done.out)
    assert (done.err, counts["read"], counts["added"]) == ("", 2, 1)
    assert stored(pair[0]) == stored(tmp_path / "c")
    assert run("load", tmp_path / "d", *pair, "--recipe", "web").code == 3
    assert run("load", tmp_path / "d", pair[0], __file__).code == 3
    assert not (tmp_path / "d").exists()


@pytest.mark.process
def test_an_interrupted_copy_leaves_nothing(run, pair, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("heapq.merge", interrupt)
        assert run("load", tmp_path / "c", *pair).code == 130
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    assert run("load", tmp_path / "c", *pair).code == 0


@pytest.mark.process
@pytest.mark.parametrize("there", [False, True])
def test_a_load_that_is_killed_leaves_nothing(start, tmp_path, path, there):
    few = DICE.integers(0, 2**64, 3000, np.uint64)
    np.save(tmp_path / "few.npy", few)
    np.save(tmp_path / "many.npy", DICE.integers(0, 2**64, 500_000, np.uint64))
    if there:
        fpdb.load(path, tmp_path / "few.npy")
    process = start("load", path, tmp_path / "many.npy", "--memory", "1M")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None and not _writes(process.pid):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert path.exists() == there
    if there:
        assert stored(path) == dict(enumerate(few.tolist()))
    fpdb.load(path, tmp_path / "few.npy")
    assert len(stored(path)) == 3000 * (1 + there)
    left = {file.name for file in tmp_path.iterdir()}
    assert left == {"few.npy", "many.npy", "db"}
    assert {file.name for file in path.iterdir()} <= {
        "data.mdb",
        "lock.mdb",
        "fpdb.lock",
        "fpdb.seal",
    }


def _writes(pid):
    """Return whether a process has written a megabyte or more."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"]) > 1 << 20
