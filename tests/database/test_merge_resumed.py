"""Merges that are killed, interrupted or out of room: they go on, and the result is the same."""

import os
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdb
from fpdb import Document
from fpdb.storage import drafts

pytestmark = pytest.mark.process

COUNT = 400
# Forks a child that kills itself before it does what changes the disk for the n-th time, for each n
# from the start on, and goes on with what that child left; until a child gets to its end.
KILLS = """
import json, signal
from pathlib import Path
import fpdb.maintenance, fpdb.merging
from fpdb.storage.transactions import WriteTransaction

fpdb.merging.check = lambda path, deep: iter(())  # the test checks what comes of it
sys.modules["fpdb.maintenance.merge"].STEP = 5000
sys.modules["fpdb.maintenance.winners"].KEYS = 200
sys.modules["fpdb.maintenance.winners"].ROWS = 200
a, b, c, rule, first, step = argv
left = 0

def deadly(owner, name):
    real = getattr(owner, name)
    def spied(*args, **options):
        global left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **options)
    setattr(owner, name, spied)

def merge(path):
    return fpdb.merge([a, b], path, on_conflict=rule, memory=1 << 20)

def merge_in_child(path, number):
    child = os.fork()
    if child == 0:
        global left
        left = number
        for owner, name in (
            (WriteTransaction, "__exit__"), (os, "fsync"), (os, "pwrite"), (os, "ftruncate"),
            (Path, "rename"), (Path, "unlink"), (Path, "mkdir"), (Path, "replace"),
        ):
            deadly(owner, name)
        try:
            merge(path)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

number, begun = int(first), []
while (code := merge_in_child(c, number)) < 0:
    if step == "from the start":
        if not os.path.exists(f"{c}/data.mdb"):
            begun.append(merge(c).begun)
        os.rename(c, f"{c}-{number}")
        number += 3
    else:
        begun.append("chained")
        if os.path.exists(f"{c}/data.mdb"):  # it was killed when all was done
            code = 0
            break
        number += 1  # or what is done before the first commit would never come to its end
assert code == 0, code
print(json.dumps(begun))
"""


def make(path: Path, keys: str, first: int) -> None:
    """Make a database with texts, short ones, bare fingerprints and metadata."""
    with fpdb.build(path, keys=keys, recipe="char-4", sketch="minhash") as db:
        numbers = range(first, first + COUNT)
        list(db.add_many([document(number, keys, first) for number in numbers]))


def document(number: int, keys: str, first: int) -> Document:
    key: Any = number if keys == "integer" else f"key {number * 7919 % 10007:05}"
    if number % 3:
        return Document(key, fingerprint=number * 0x9E3779B97F4A7C15 % 2**64)
    if number % 9:
        return Document(key, f"the text of {number} in {first} is as long as is needed", meta=first)
    return Document(key, "short"[: number % 5])


@pytest.fixture(params=["text", "integer"])
def keys(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pair(tmp_path: Path, keys: str) -> list[Path]:
    for name, first in (("a", 0), ("b", COUNT // 2)):
        make(tmp_path / name, keys, first)
    return [tmp_path / "a", tmp_path / "b"]


def contents(path: Path) -> list[Any]:
    """All documents of a sound database, and its counters; ids and times included."""
    assert list(fpdb.check(path, deep=True)) == []
    with fpdb.open(path, readonly=True) as db:
        stats = db.stats()
        counters = stats.documents, stats.short, stats.sketches, stats.plan
        return [counters, *db.scan()]


def left_beside(path: Path) -> list[str]:
    return [name for name in os.listdir(path.parent) if name.startswith(".")]


def test_killed_at_any_point_it_goes_on(
    pair: list[Path], tmp_path: Path, run: Callable[..., str]
) -> None:
    whole = contents(fpdb.merge(pair, tmp_path / "whole", on_conflict="first").path)
    said = run(KILLS, *pair, tmp_path / "c", "first", 1, "from the start")
    begun = eval_list(said)
    assert begun.count("resumed") > len(begun) // 2
    assert "anew" not in begun
    killed = sorted(tmp_path.glob("c-*"))
    assert len(killed) >= len(begun) > 5
    for path in killed[:: len(killed) // 4]:
        assert contents(path) == whole
    assert left_beside(tmp_path / "c") == []


def test_killed_again_and_again_it_gets_to_its_end(
    pair: list[Path], tmp_path: Path, run: Callable[..., str]
) -> None:
    whole = contents(fpdb.merge(pair, tmp_path / "whole").path)
    kills = eval_list(run(KILLS, *pair, tmp_path / "c", "newest", 12, "chained"))
    assert kills
    assert contents(tmp_path / "c") == whole
    assert left_beside(tmp_path / "c") == []


def eval_list(said: str) -> list[str]:
    import json

    found: list[str] = json.loads(said)
    return found


def cut_short(pair: list[Path], path: Path, after: int = 3, **options: Any) -> None:
    """Begin a merge that is interrupted in one of its transactions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fpdb.maintenance.winners.KEYS", 50)
        patch.setattr("fpdb.maintenance.winners.ROWS", 50)
        patch.setattr(sys.modules["fpdb.maintenance.merge"]._Progress, "pack", interrupted(after))
        with pytest.raises(KeyboardInterrupt):
            fpdb.merge(pair, path, **options)


def interrupted(after: int) -> Callable[..., bytes]:
    module = sys.modules["fpdb.maintenance.merge"]
    real, left = module._Progress.pack, [after]

    def pack(progress: Any) -> bytes:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        packed: bytes = real(progress)
        return packed

    return pack


def test_an_interrupted_merge_leaves_a_draft_and_nothing_else(
    pair: list[Path], tmp_path: Path
) -> None:
    cut_short(pair, tmp_path / "c")
    assert sorted(os.listdir(tmp_path)) == [".c.merge", "a", "b"]
    assert drafts.place_of(tmp_path / "c") == tmp_path / ".c.merge"
    merged = fpdb.merge(pair, tmp_path / "c")
    assert merged.begun == "resumed"
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]
    assert contents(merged.path) == contents(fpdb.merge(pair, tmp_path / "d").path)


def test_a_source_that_was_written_to_begins_it_anew(pair: list[Path], tmp_path: Path) -> None:
    cut_short(pair, tmp_path / "c")
    with fpdb.open(pair[1]) as db:
        db.add(10**6 if db.keys == "integer" else "new", "a text that was added in between")
    merged = fpdb.merge(pair, tmp_path / "c")
    assert merged.begun == "anew"
    assert merged.documents == COUNT * 3 // 2 + 1
    assert contents(merged.path) == contents(fpdb.merge(pair, tmp_path / "d").path)


@pytest.mark.parametrize(
    "options", [{"on_conflict": "first"}, {"capacity": 10**8}, {"k": 2}], ids=str
)
def test_another_merge_to_the_same_place_begins_anew(
    pair: list[Path], tmp_path: Path, options: dict[str, Any]
) -> None:
    cut_short(pair, tmp_path / "c")
    assert fpdb.merge(pair, tmp_path / "c", **options).begun == "anew"
    cut_short(pair, tmp_path / "d")
    assert fpdb.merge(pair[::-1], tmp_path / "d").begun == "anew"


def test_it_may_go_on_with_other_memory(pair: list[Path], tmp_path: Path) -> None:
    cut_short(pair, tmp_path / "c", memory=1 << 20)
    merged = fpdb.merge(pair, tmp_path / "c", memory=1 << 24)
    assert merged.begun == "resumed"


def test_a_draft_may_be_removed(pair: list[Path], tmp_path: Path) -> None:
    cut_short(pair, tmp_path / "c")
    subprocess.run(["rm", "-r", tmp_path / ".c.merge"], check=True)
    assert fpdb.merge(pair, tmp_path / "c").begun == "fresh"


def test_a_draft_doesnt_keep_others_from_the_place(pair: list[Path], tmp_path: Path) -> None:
    cut_short(pair, tmp_path / "c")
    fpdb.create(tmp_path / "c").close()
    with pytest.raises(fpdb.DatabaseExistsError):
        fpdb.merge(pair, tmp_path / "c")
    assert left_beside(tmp_path / "c") == [".c.merge"]


def test_what_isnt_a_draft_is_left_alone(pair: list[Path], tmp_path: Path) -> None:
    (tmp_path / ".c.merge").mkdir()
    (tmp_path / ".c.merge" / "letter").write_text("mine")
    with pytest.raises(fpdb.DatabaseExistsError, match="letter"):
        fpdb.merge(pair, tmp_path / "c")
    assert (tmp_path / ".c.merge" / "letter").read_text() == "mine"


def test_two_merges_to_one_place_dont_meet(
    pair: list[Path], tmp_path: Path, start: Callable[..., Any]
) -> None:
    script = """
    import fpdb.merging
    def check(path, deep):
        print("checking", flush=True)
        sys.stdin.readline()
        return iter(())
    fpdb.merging.check = check
    print(fpdb.merge(argv[:2], argv[2]).begun)
    """
    process = start(script, *pair, tmp_path / "c")
    assert process.stdout.readline() == "checking\n"
    with pytest.raises(fpdb.LockTimeoutError) as caught:
        fpdb.merge(pair, tmp_path / "c")
    assert caught.value.hint
    out, err = process.communicate("go on\n", timeout=60)
    assert (out, err) == ("fresh\n", "")
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]


def test_a_conflict_leaves_nothing(pair: list[Path], tmp_path: Path) -> None:
    with pytest.raises(fpdb.KeyConflictError):
        fpdb.merge(pair, tmp_path / "c", on_conflict="error")
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_full_disk_is_an_error_and_the_draft_goes_on(
    pair: list[Path], tmp_path: Path, run: Callable[..., str]
) -> None:
    said = run(
        """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        for room in (60_000, 120_000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
            try:
                fpdb.merge(argv[:2], argv[2])
            except fpdb.StorageError as error:
                print(type(error).__name__, bool(error.hint), os.path.exists(argv[2]))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        print(fpdb.merge(argv[:2], argv[2]).documents)
        """,
        *pair,
        tmp_path / "c",
    )
    lines = said.splitlines()
    assert lines[-1] == str(COUNT * 3 // 2)
    assert len(lines) == 3
    assert all(line.endswith("True False") for line in lines[:2])
    assert contents(tmp_path / "c")
    assert left_beside(tmp_path / "c") == []


def test_an_interrupted_command_says_what_is_left(pair: list[Path], tmp_path: Path) -> None:
    def began() -> bool:
        return (tmp_path / ".c.merge").exists()

    process = subprocess.Popen(
        [sys.executable, "-m", "fpdb", "merge", *pair, "-o", tmp_path / "c"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(fpdb.__file__).parent.parent)},
    )
    while not began() and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert ".c.merge holds what is done" in said
    assert sorted(os.listdir(tmp_path)) == [".c.merge", "a", "b"]
    assert contents(fpdb.merge(pair, tmp_path / "c").path)


def test_memory_doesnt_grow_with_the_documents(
    tmp_path: Path, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fpdb.merging.check", lambda path, deep: iter(()))
    monkeypatch.setattr("fpdb.maintenance.winners.KEYS", 1 << 10)
    monkeypatch.setattr("fpdb.maintenance.winners.ROWS", 1 << 10)
    monkeypatch.setattr("fpdb.maintenance.origins._ENTRIES", 1 << 8)
    monkeypatch.setattr("fpdb.maintenance.origins.BLOCK", 1 << 12)
    peaks = []
    for count in (100, 20_000, 60_000):  # the first time, other things are imported and kept
        for name, first in (("a", 0), ("b", count // 2)):
            with fpdb.build(tmp_path / f"{name}{count}", keys=keys, capacity=1000) as db:
                numbers = np.random.default_rng(first).integers(0, 1 << 64, count, np.uint64)
                names = range(first, first + count)
                db.add_fingerprints(
                    names if keys == "integer" else [f"k{n:09}" for n in names], numbers
                )
        pair = [tmp_path / f"{name}{count}" for name in "ab"]
        tracemalloc.start()
        fpdb.merge(pair, tmp_path / f"c{count}", memory=1 << 20, on_conflict="first")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.3 * peaks[1] + 1_000_000
    assert peaks[2] < 4_000_000
