"""Where a merge is made: what its path may be, and what its process may have open."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fpdb
from fpdb.maintenance import merge as merging
from fpdb.models import Problem

pytestmark = pytest.mark.process

TEXT = "the text of {} is as long as it has to be"


@pytest.fixture
def pair(tmp_path: Path) -> list[Path]:
    for name, keys in (("a", "xy"), ("b", "yz")):
        with fpdb.create(tmp_path / name, recipe="char-4") as db:
            list(db.add_many(fpdb.Document(key, TEXT.format(key + name)) for key in keys))
    return [tmp_path / "a", tmp_path / "b"]


def test_a_name_that_is_too_long(pair: list[Path], tmp_path: Path) -> None:
    for length in (256, 300):
        with pytest.raises(fpdb.OpenError, match="too long") as caught:
            fpdb.merge(pair, tmp_path / ("c" * length))
        assert caught.value.hint
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


@pytest.mark.full
def test_more_databases_than_a_process_may_open(tmp_path: Path, run: Callable[..., str]) -> None:
    for number in range(20):
        with fpdb.create(tmp_path / f"a{number}", recipe="char-4") as db:
            db.add_fingerprints([f"key {number}", "key"], [number, number])
    said = run(
        """
        import resource
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        for room in range(30, 40):  # so that each of the calls is refused once
            resource.setrlimit(resource.RLIMIT_NOFILE, (room, hard))
            try:
                fpdb.merge(argv[1:], argv[0])
            except fpdb.OpenError as error:
                print(error, "|", error.hint)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        print(fpdb.merge(argv[1:], argv[0]).documents)
        """,
        tmp_path / "c",
        *(tmp_path / f"a{number}" for number in range(20)),
    )
    *lines, last = said.splitlines()
    assert len(lines) == 10
    assert all("too many files are open | raise the limit" in line for line in lines)
    assert last == "21"


@pytest.mark.slow("a thread writes all the time while two merges run")
def test_databases_that_are_in_use_in_this_process(pair: list[Path], tmp_path: Path) -> None:
    with fpdb.open(pair[0]) as first, fpdb.open(pair[1], readonly=True), first.snapshot():
        stop = threading.Event()
        added = []

        def write() -> None:
            while not stop.is_set():
                added.append(first.add(f"more {len(added)}", TEXT.format(len(added))))

        writer = threading.Thread(target=write)
        writer.start()
        try:
            counts = [fpdb.merge(pair, tmp_path / f"c{n}").documents for n in range(2)]
        finally:
            stop.set()
            writer.join()
        assert counts == sorted(counts)
        assert len(first) == 2 + len(added)
    assert fpdb.merge(pair, tmp_path / "c").documents == 3 + len(added)


def test_the_check_pins_no_snapshot_and_keeps_no_file_open(
    pair: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(path: Path, deep: bool) -> Iterator[Problem]:
        links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
        names = [os.readlink(link) for link in links if os.path.lexists(link)]
        assert not [name for name in names if name.endswith(".mdb")]
        return iter(())

    monkeypatch.setattr(merging, "check", check)
    assert fpdb.merge(pair, tmp_path / "c").documents == 3
