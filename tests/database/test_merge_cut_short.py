"""Merges that are killed, out of room or not alone: nothing half-made appears."""

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdb
from fpdb import Document
from fpdb.documents import catalog
from fpdb.maintenance import merge as merging
from fpdb.maintenance import rebuild

pytestmark = pytest.mark.process

COUNT = 100
# Forks a child that kills itself before it does what changes the disk for the n-th time, for each n
# from the start on, until a child gets to its end.
KILLS = """
import importlib, signal
from pathlib import Path
from fpdb.storage import WriteTransaction

importlib.import_module("fpdb.maintenance.merge").check = lambda path, deep: iter(())
*pair, c = argv
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

def merge_in_child(path, number):
    child = os.fork()
    if child == 0:
        global left
        left = number
        for owner, name in (
            (WriteTransaction, "__exit__"), (WriteTransaction, "put_many"), (os, "fsync"),
            (Path, "rename"), (Path, "unlink"), (Path, "mkdir"),
        ):
            deadly(owner, name)
        try:
            fpdb.merge(pair, path, keep="first")
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

number = 1
while (code := merge_in_child(f"{c}-{number}", number)) < 0:
    number += 1
assert code == 0, code
print(number)
"""


@pytest.fixture(params=["text", pytest.param("integer", marks=pytest.mark.full)])
def keys(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pair(tmp_path: Path, keys: str) -> list[Path]:
    """Two databases with texts, short ones, bare fingerprints and metadata."""
    for name, first in (("a", 0), ("b", COUNT // 2)):
        with fpdb.build(tmp_path / name, keys=keys, recipe="char-4") as db:
            list(db.add_many(document(n, keys, first) for n in range(first, first + COUNT)))
    return [tmp_path / "a", tmp_path / "b"]


def document(number: int, keys: str, first: int) -> Document:
    key: Any = number if keys == "integer" else f"key {number * 7919 % 10007:05}"
    if number % 3:
        return Document(key, fingerprint=number * 0x9E3779B97F4A7C15 % 2**64)
    if number % 9:
        return Document(key, f"the text of {number} in {first} is as long as is needed", meta=first)
    return Document(key, "short"[: number % 5])


def contents(path: Path) -> list[Any]:
    """All documents of an intact database, and its counters; ids and times included."""
    with fpdb.open(path, readonly=True) as db:
        assert list(db.check()) == []
        stats = db.stats()
        return [(stats.documents, stats.short, stats.sketches, stats.plan), *db.scan()]


@pytest.mark.slow("a process is killed at several moments of a merge")
def test_a_killed_merge_leaves_all_or_nothing(
    pair: list[Path], tmp_path: Path, run: Callable[..., str]
) -> None:
    expected = contents(fpdb.merge(pair, tmp_path / "whole", keep="first").path)
    tries = int(run(KILLS, *pair, tmp_path / "c"))
    assert tries > 5
    made = sorted(tmp_path.glob("c-*"))
    assert 0 < len(made) < tries
    for path in made:
        assert contents(path) == expected
    missing = next(tmp_path / f"c-{n}" for n in range(1, tries) if tmp_path / f"c-{n}" not in made)
    assert contents(fpdb.merge(pair, missing, keep="first").path) == expected
    assert list(tmp_path.glob(f".{missing.name}.*")) == []


def test_two_merges_to_one_path_make_one_database(
    pair: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:

        def second_merge(path: Path, *, deep: bool) -> Any:
            patch.undo()
            fpdb.merge(pair[:1], tmp_path / "c")
            return iter(())

        patch.setattr(merging, "check", second_merge)
        with pytest.raises(fpdb.DatabaseExistsError) as caught:
            fpdb.merge(pair, tmp_path / "c")
    assert caught.value.hint
    assert contents(tmp_path / "c")[0][0] == COUNT
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]


def test_a_full_disk_is_an_error_and_leaves_nothing(
    pair: list[Path], tmp_path: Path, run: Callable[..., str]
) -> None:
    said = run(
        """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        for room in (40_000, 80_000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
            try:
                fpdb.merge(argv[:2], argv[2])
            except fpdb.StorageError as error:
                print(type(error).__name__, bool(error.hint), os.path.exists(argv[2]))
        """,
        *pair,
        tmp_path / "c",
    )
    assert [line.endswith("True False") for line in said.splitlines()] == [True, True]
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


@pytest.mark.full
def test_memory_doesnt_grow_with_the_documents(
    tmp_path: Path, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "check", lambda path, deep: iter(()))
    monkeypatch.setattr(rebuild, "BLOCK", 1 << 12)
    monkeypatch.setattr(catalog, "_BLOCK", 1 << 10)
    peaks = []
    for count in (100, 10_000, 30_000):  # the first time, other things are imported and kept
        for name, first in (("a", 0), ("b", count // 2)):
            with fpdb.build(tmp_path / f"{name}{count}", keys=keys, capacity=1000) as db:
                numbers = np.random.default_rng(first).integers(0, 1 << 64, count, np.uint64)
                names = range(first, first + count)
                db.add_fingerprints(
                    names if keys == "integer" else [f"k{n:09}" for n in names], numbers
                )
        pair = [tmp_path / f"{name}{count}" for name in "ab"]
        tracemalloc.start()
        fpdb.merge(pair, tmp_path / f"c{count}", memory=1 << 20, keep="first")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.3 * peaks[1] + 1_000_000
    assert peaks[2] < 4_000_000
