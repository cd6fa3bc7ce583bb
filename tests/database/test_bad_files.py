"""Files that are cut, lost or another program's are never changed; and the most tables."""

import os
from dataclasses import replace
from pathlib import Path

import lmdb
import pytest
from tiers import TIER

import fpdb
from fpdb import FpdbError, Recipe
from fpdb.errors import DamagedError, NotADatabaseError, PlanError
from fpdb.tables import choose_bands
from fpdb.tables.plan import choose_plan

COUNT = 2000


@pytest.fixture
def closed(path: Path, tiny: Recipe) -> Path:
    """The path of a database that nobody has open."""
    with fpdb.create(path, recipe=tiny, plan=choose_plan(64, 3)) as db:
        db.add_fingerprints([f"{n:05d}" for n in range(COUNT)], range(COUNT))
        db.add("text", "some words that are more than three")
    return path


def refused(
    path: Path, kind: type[FpdbError], message: str, ways: tuple[bool, ...] = (True, False)
) -> None:
    """Try to open, read-only or not; the data file stays as it is."""
    before = (path / "data.mdb").read_bytes()
    for readonly in ways:
        with pytest.raises(kind, match=message) as caught:
            fpdb.open(path, readonly=readonly)
        assert caught.value.hint
    assert (path / "data.mdb").read_bytes() == before


def sound(path: Path) -> None:
    with fpdb.open(path) as db:
        assert len(db) == COUNT + 1
        assert list(db.check()) == []
        assert [match.key for match in db.query_fingerprint(77, k=0)] == ["00077"]
        assert db.query("some words that are more than three", k=0)[0].key == "text"


@pytest.mark.process
@pytest.mark.slow("each length is verified in a process, as a copy is")
def test_a_data_file_that_was_cut_anywhere(closed: Path) -> None:
    whole = (closed / "data.mdb").read_bytes()
    last = len(whole) - 1
    lengths = [1, 15, 16, 100, 151, 4095, 4096, 4097, 8191, 8192, 8193, last - 4095, last]
    lengths += range(8192 + 4096, last, last // 4)
    for place, length in enumerate(lengths if TIER == "full" else lengths[::3]):
        os.truncate(closed / "data.mdb", length)
        refused(closed, DamagedError, "is cut short", ways=(place % 2 == 0,))
        (closed / "data.mdb").write_bytes(whole)
    sound(closed)


@pytest.mark.process
def test_an_lmdb_environment_of_another_program(path: Path) -> None:
    with lmdb.open(str(path), lib_version=0, max_dbs=2) as raw, raw.begin(write=True) as txn:
        txn.put(b"a", b"1", db=raw.open_db(b"theirs", txn=txn))
    refused(path, NotADatabaseError, "no sub-database header")
    with lmdb.open(str(path), lib_version=0, max_dbs=2) as raw, raw.begin(write=True) as txn:
        txn.put(b"header", b"something quite different", db=raw.open_db(b"header", txn=txn))
    refused(path, NotADatabaseError, "no header that fpdb wrote")


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "readonly"),
    [
        ("documents", True),
        ("keys", False),
        ("short", True),
        ("table-00", True),
        ("table-03", False),
    ],
)
def test_a_lost_sub_database(closed: Path, name: str, readonly: bool) -> None:
    with lmdb.open(str(closed), lib_version=0, max_dbs=80) as raw, raw.begin(write=True) as txn:
        txn.drop(raw.open_db(name.encode(), txn=txn, create=False))
    refused(closed, NotADatabaseError, f"no sub-database {name}", ways=(readonly,))


def test_the_most_tables_that_a_plan_can_have(path: Path, tiny: Recipe) -> None:
    with pytest.raises(PlanError, match="a plan of 84 tables; at most 64 are kept") as caught:
        choose_plan(64, 3, choose=6)
    assert caught.value.hint
    plan = choose_plan(64, 3, blocks=64)
    with fpdb.create(path, recipe=tiny, plan=plan) as db:
        db.add("a", "some words that are more than three")
        assert len(db.stats().tables) == 64 + 1  # and the bands
        assert list(db.check()) == []
        assert [match.key for match in db.query("some words that are more than three")] == ["a"]
    with fpdb.open(path) as db:
        assert replace(db.plan, bands=None) == plan
        assert db.plan.bands == choose_bands(0.8, 1_000_000)
