"""An older meta page that a flipped bit makes the newest is noticed before LMDB takes it."""

import os
import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tiers import examples

import fpdb
from fpdb.errors import DamagedError
from fpdb.storage.lmdb_file import LmdbFile, newest_state, require_intact
from fpdb.storage.open_checks import open_data

PAGE = 4096
LAST_PAGE = 136  # where a meta page has the number of the last page
NUMBER = 144  # where a meta page has the number of its transaction
ROOT = 128  # and the root of the tree of names


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with fpdb.create(tmp_path / "db") as db:
        for number in range(3):
            db.add_fingerprints([f"k{number}"], [number])
        # The last commit grows the file.
        db.add_fingerprints([f"more-{number}" for number in range(2000)], range(2000))
    return tmp_path / "db"


def change(path: Path, place: int, data: bytes) -> None:
    with (path / "data.mdb").open("r+b") as file:
        file.seek(place)
        file.write(data)


def number_in(data: bytes, slot: int, field: int = NUMBER) -> int:
    return int.from_bytes(data[slot * PAGE + field :][:8], "little")


def newest_slot(data: bytes) -> int:
    return 0 if number_in(data, 0) > number_in(data, 1) else 1


def looked_at(path: Path) -> int:
    """Look at a file as opening it does; return the number of its newest transaction."""
    descriptor = open_data(path)
    try:
        return require_intact(descriptor, "data.mdb").transaction
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("slot", [0, 1])
def test_every_flipped_bit_of_a_transaction_number_is_noticed(path: Path, slot: int) -> None:
    whole = (path / "data.mdb").read_bytes()
    looked_at(path)
    for bit in range(64):
        place = slot * PAGE + NUMBER + bit // 8
        change(path, place, bytes([whole[place] ^ 1 << bit % 8]))
        with pytest.raises(DamagedError, match=r"follow each other|older state") as caught:
            looked_at(path)
        assert "fpdb repair" in (caught.value.hint or "")
        change(path, place, whole[place : place + 1])


def older_root(path: Path, data: bytes) -> None:
    """Lead the newest meta page to the older state."""
    slot = newest_slot(data)
    older = data[(1 - slot) * PAGE + ROOT :][:8]
    change(path, slot * PAGE + ROOT, older)


def older_page(path: Path, data: bytes) -> None:
    """Put a copy of the older meta page in the place of the newest."""
    slot = newest_slot(data)
    change(path, slot * PAGE, data[(1 - slot) * PAGE :][:PAGE])


def low_number(path: Path, data: bytes) -> None:
    """Give the newest meta page a number below the older one's, which looks possible."""
    slot = newest_slot(data)
    change(path, slot * PAGE + NUMBER, (number_in(data, slot) - 2).to_bytes(8, "little"))


def another_root(path: Path, data: bytes) -> None:
    """Lead the newest meta page to a page of something else."""
    change(path, newest_slot(data) * PAGE + ROOT, data[newest_slot(data) * PAGE + 80 :][:8])


@pytest.mark.process
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (older_root, "both meta pages lead to the same state"),
        (older_page, "what the last commit added may be lost, what it deleted may be back"),
        (low_number, "LMDB would take an older state"),
        (another_root, "LMDB would take an older state|the same state"),
    ],
)
def test_opening_refuses_another_state_than_the_newest(
    path: Path, tmp_path: Path, spoil: Callable[[Path, bytes], None], message: str
) -> None:
    spoil(path, (path / "data.mdb").read_bytes())
    for readonly in (True, False):
        with pytest.raises(DamagedError, match=message):
            fpdb.open(path, readonly=readonly)
    repaired = fpdb.repair(path, tmp_path / "new")
    problems = [problem.what for problem in repaired.problems if problem.where == "data.mdb"]
    assert any(re.search(message, what) for what in problems)
    assert repaired.documents >= 3


@pytest.mark.process
@pytest.mark.parametrize("documents", [1, 3000])
def test_what_a_failed_write_of_a_meta_page_leaves_is_no_damage(path: Path, documents: int) -> None:
    """LMDB writes the number and the last page of before back then, and leaves the trees."""
    before = (path / "data.mdb").read_bytes()
    with fpdb.open(path) as db:
        db.add_fingerprints([f"last-{number}" for number in range(documents)], range(documents))
    place = (1 - newest_slot(before)) * PAGE + LAST_PAGE
    change(path, place, before[place : place + 16])
    with fpdb.open(path) as db:
        assert len(db) == 2003
        db.add_fingerprints(["again"], [1])
    assert not list(fpdb.check(path))


def test_all_states_of_intact_files_pass(tmp_path: Path) -> None:
    """Also an empty one, a backup, and those that many commits and a compaction leave."""
    with fpdb.create(tmp_path / "db") as db:
        looked_at_by = LmdbFile(os.open(db.path / "data.mdb", os.O_RDONLY))
        try:
            assert newest_state(looked_at_by)[1] == []
            dice = random.Random(3)
            for number in range(40):
                db.add_fingerprints([f"k{n}" for n in range(number)], range(number))
                db.delete(f"k{dice.randrange(40)}")
                newest, faults = newest_state(LmdbFile(looked_at_by._descriptor))
                assert newest is not None
                assert faults == []
        finally:
            looked_at_by.close()
        db.backup(tmp_path / "copy")
        db.compact(tmp_path / "compact")
    for name in ("copy", "compact", "db"):
        looked_at(tmp_path / name)


WRITER = """
import itertools, fpdb
db = fpdb.open(argv[0])
for number in itertools.count():
    db.add_fingerprints([f"{argv[1]}-{number % 50}"], [number])
    db.delete(f"{argv[1]}-{(number + 25) % 50}")
    if not number:
        print("writing", flush=True)
"""


@pytest.mark.process
def test_openings_amid_commits_of_others_raise_no_alarm(
    path: Path,
    start: Callable[..., subprocess.Popen[str]],
    line: Callable[[subprocess.Popen[str]], str],
) -> None:
    writers = [start(WRITER, path, name) for name in ("a", "b")]
    for writer in writers:
        assert line(writer) == "writing"
    seen = set()
    for number in range(examples(100)):
        with fpdb.open(path, readonly=bool(number % 2)) as db:
            assert len(db)
        seen.add(looked_at(path))
    assert all(writer.poll() is None for writer in writers)
    assert len(seen) > 1
