"""Where a merge is made: what stands in its way, what it leaves, and what its process may open."""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fpdb
from fpdb.models import Problem

pytestmark = pytest.mark.process

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
TEXT = "the text of {} is as long as it has to be"


@pytest.fixture
def pair(tmp_path: Path) -> list[Path]:
    for name, keys in (("a", "xy"), ("b", "yz")):
        with fpdb.create(tmp_path / name, recipe="char-4", sketch="minhash") as db:
            list(db.add_many(fpdb.Document(key, TEXT.format(key + name)) for key in keys))
    return [tmp_path / "a", tmp_path / "b"]


def a_file(draft: Path) -> None:
    draft.touch()


def a_link(draft: Path) -> None:
    (draft.parent / "elsewhere").mkdir()
    draft.symlink_to("elsewhere")


def a_link_to_nothing(draft: Path) -> None:
    draft.symlink_to("nothing")


def a_claim_that_is_a_link(draft: Path) -> None:
    draft.mkdir(mode=0o700)
    (draft / "unfinished").symlink_to(draft.parent / "a" / "data.mdb")


def a_claim_that_is_a_directory(draft: Path) -> None:
    (draft / "unfinished").mkdir(parents=True)
    draft.chmod(0o700)


@pytest.mark.parametrize(
    "put",
    [a_file, a_link, a_link_to_nothing, a_claim_that_is_a_link, a_claim_that_is_a_directory],
)
def test_what_cant_be_a_draft_is_an_error(
    pair: list[Path], tmp_path: Path, put: Callable[[Path], None]
) -> None:
    put(tmp_path / ".c.merge")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(fpdb.DatabaseExistsError, match="isn't the draft") as caught:
        fpdb.merge(pair, tmp_path / "c")
    assert caught.value.hint
    assert sorted(os.listdir(tmp_path)) == before
    assert list(fpdb.check(pair[0])) == []


def test_a_draft_that_others_may_change_is_refused(pair: list[Path], tmp_path: Path) -> None:
    draft = tmp_path / ".c.merge"
    draft.mkdir()
    draft.chmod(0o777)
    with pytest.raises(fpdb.AccessError, match="can be changed by others"):
        fpdb.merge(pair, tmp_path / "c")
    draft.chmod(0o700)
    assert fpdb.merge(pair, tmp_path / "c").documents == 3


@needs_root
def test_the_draft_of_another_user_is_refused(pair: list[Path], tmp_path: Path) -> None:
    draft = tmp_path / ".c.merge"
    draft.mkdir(mode=0o700)
    os.chown(draft, 65534, 65534)
    with pytest.raises(fpdb.AccessError, match="can be changed by others"):
        fpdb.merge(pair, tmp_path / "c")


def test_a_draft_that_is_moved_to_its_place_at_that_moment(
    pair: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.lstat

    def lstat(path: Path) -> os.stat_result:
        if path == tmp_path / ".c.merge":
            path.rmdir()
            shutil.copytree(pair[0], tmp_path / "c")
        return real(path)

    monkeypatch.setattr("fpdb.storage.drafts.os.lstat", lstat)
    with pytest.raises(fpdb.DatabaseExistsError, match="already"):
        fpdb.merge(pair, tmp_path / "c")


def test_a_name_that_is_too_long(pair: list[Path], tmp_path: Path) -> None:
    for length in (250, 255, 300):
        with pytest.raises(fpdb.OpenError, match="too long") as caught:
            fpdb.merge(pair, tmp_path / ("c" * length))
        assert caught.value.hint
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


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
    for room, line in enumerate(lines, 30):
        assert f"too many files are open, this process may have {room} | raise that limit" in line
    assert last == "21"


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
            counts = [fpdb.merge(pair, tmp_path / f"c{n}").documents for n in range(3)]
        finally:
            stop.set()
            writer.join()
        assert counts == sorted(counts)
        assert len(first) == 2 + len(added)
        for number in range(3):
            assert list(fpdb.check(tmp_path / f"c{number}", deep=True)) == []
    assert fpdb.merge(pair, tmp_path / "c").documents == 3 + len(added)


def test_the_check_pins_no_snapshot_and_keeps_no_file_open(
    pair: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(path: Path, deep: bool) -> Iterator[Problem]:
        links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
        names = [os.readlink(link) for link in links if os.path.lexists(link)]
        assert not [name for name in names if name.endswith(".mdb")]
        return iter(())

    monkeypatch.setattr("fpdb.merging.check", check)
    assert fpdb.merge(pair, tmp_path / "c").documents == 3


def test_what_a_kill_behind_the_move_leaves_disturbs_nobody(
    pair: list[Path], tmp_path: Path
) -> None:
    path = fpdb.merge(pair, tmp_path / "c").path
    for name in ("unfinished", "aside-0", "aside-1"):
        (path / name).write_bytes(bytes(8))
    assert list(fpdb.check(path, deep=True)) == []
    shutil.copytree(path, tmp_path / "copied")
    with fpdb.open(path) as db:
        db.compact(tmp_path / "compact")
        db.backup(tmp_path / "backup")
        db.add("later", TEXT.format("later"))
    assert fpdb.merge([path, pair[0]], tmp_path / "merged").documents == 4
    for name in ("copied", "compact", "backup"):
        with fpdb.open(tmp_path / name) as db:
            assert len(db) == 3
            assert list(db.check()) == []
    with pytest.raises(fpdb.DatabaseExistsError):
        fpdb.merge(pair, path)


def test_what_is_set_aside_is_named_on_the_disk_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numpy as np

    from fpdb.storage.aside import Numbers

    synced: list[Path] = []
    monkeypatch.setattr("fpdb.storage.aside.sync", synced.append)
    numbers = Numbers(tmp_path / "aside-0")
    numbers.add(np.array([3, 2], np.uint64))
    assert synced == [tmp_path]
    numbers.add(np.array([1], np.uint64))
    assert synced == [tmp_path]
    numbers.sort()
    assert synced == [tmp_path, tmp_path]
    assert numbers.read().tolist() == [1, 2, 3]
