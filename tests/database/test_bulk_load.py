"""Ready fingerprints in bulk: into an empty database, and into one that holds documents."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdb
from fpdb import Database
from fpdb.documents.prepare import LOAD
from fpdb.storage.format import Counters

pytestmark = pytest.mark.slow("its cases build databases of all kinds, 18 s together")

DICE = np.random.default_rng(11)


def fingerprints(bits: int, count: int) -> Any:
    words = DICE.integers(0, 2**64, (count, 2), np.uint64)
    return words if bits == 128 else words[:, 0] >> np.uint64(64 - bits)


def names(numbers: Any, keys: str) -> Any:
    own = np.asarray(numbers, np.uint64)
    return own if keys == "integer" else [f"page {number}" for number in own.tolist()]


def content(db: Database) -> list[tuple[Any, ...]]:
    return [(d.key, d.fingerprint, d.meta, d.short) for d in db.scan()]


def expected(*loads: tuple[Any, Any]) -> list[tuple[Any, ...]]:
    last: dict[Any, Any] = {}
    for keys, array in loads:
        own = keys.tolist() if isinstance(keys, np.ndarray) else keys
        rows = [row if isinstance(row, list) else [row] for row in array.tolist()]
        last |= dict(zip(own, rows, strict=True))
    return [
        (key, int("".join(f"{word:016x}" for word in row), 16), None, False)
        for key, row in sorted(last.items())
    ]


@pytest.mark.parametrize(
    ("bits", "keys", "step"),
    [  # every two values of different kinds come together in one of them
        (32, "text", LOAD),
        (32, "integer", 350),
        (64, "text", 350),
        (64, "integer", LOAD),
        (128, "text", LOAD),
        (128, "integer", 350),
    ],
)
def test_load_after_load_agrees_with_a_dict(
    tmp_path: Path, bits: int, keys: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fpdb.documents.prepare.LOAD", step)
    recipe = fpdb.recipe("web").with_bits(bits)
    numbers = DICE.permutation(2000)[:1000]
    numbers[7] = numbers[900]  # of a key that comes twice, the last counts
    first = names(numbers, keys), fingerprints(bits, 1000)
    second = names(DICE.permutation(4000)[:1500], keys), fingerprints(bits, 1500)
    with fpdb.create(tmp_path / "db", recipe=recipe, keys=keys) as db:
        assert db.add_fingerprints(*first) == 999
        assert db.add_fingerprints(*first) == 0
        assert content(db) == expected(first)
        assert db.add_fingerprints(*second) == 1500
        assert content(db) == expected(first, second)
        assert db.add_fingerprints(*second) == 0
        # What an interrupted load has stored already counts no more.
        both = {**dict(zip(first[0], first[1].tolist(), strict=True))}
        assert db.add_fingerprints(*first) == len(set(both) & {*second[0]})
        assert content(db) == expected(second, first)
        assert list(db.check()) == []
        assert len(db) == len(content(db))


@pytest.mark.parametrize("keys", ["text", "integer"])
def test_many_changes_are_made_in_portions(
    tmp_path: Path, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fpdb.documents.writer._TOGETHER", 300)
    own, first, second = names(range(1000), keys), fingerprints(64, 1000), fingerprints(64, 1000)
    second[::10] = first[::10]
    more = names(range(500, 1500), keys), fingerprints(64, 1000)
    with fpdb.create(tmp_path / "db", keys=keys) as db:
        db.add_fingerprints(own, first)
        before = Counters.unpack(_counters(db)).writes
        assert db.add_fingerprints(own, second) == 900
        assert Counters.unpack(_counters(db)).writes - before == 4
        assert db.add_fingerprints(*more) == 1000
        assert content(db) == expected((own, second), more)
        assert list(db.check()) == []


def _counters(db: Database) -> bytes:
    with db._environment.read() as txn:
        return bytes(txn.get("counters", b"counters") or b"")


@pytest.mark.parametrize("keys", ["text", "integer"])
def test_ids_lead_to_keys(tmp_path: Path, keys: str) -> None:
    own = names(range(10, 60), keys)
    with fpdb.create(tmp_path / "db", keys=keys) as db:
        db.add_fingerprints(own, np.arange(50, dtype=np.uint64) << np.uint64(58))
        hits = db.query_fingerprints(np.array([3 << 58], np.uint64), k=1)
        expected = [match.key for match in db.query_fingerprint(3 << 58, k=1)]
        assert sorted(map(str, db.keys_of(hits.ids))) == sorted(map(str, expected))
        db.delete(expected[0])
        left = db.keys_of(hits.ids)
        assert left.count(None) == 1
        assert db.keys_of([]) == []


def test_a_load_that_fails_halfway_leaves_the_database_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise MemoryError

    with fpdb.create(tmp_path / "db", keys="integer") as db:
        with monkeypatch.context() as patch:
            patch.setattr("fpdb.tables.sorter.order", broken)
            with pytest.raises(MemoryError):
                db.add_fingerprints(np.arange(5000), fingerprints(64, 5000))
        assert len(db) == 0
        assert list(db.check()) == []
        assert db.add_fingerprints(np.arange(5000), fingerprints(64, 5000)) == 5000


def test_memory_is_about_what_was_asked_for(tmp_path: Path) -> None:
    count = 400_000
    array, keys = fingerprints(64, count), np.arange(count, dtype=np.uint64)
    with fpdb.create(tmp_path / "db", keys="integer") as db:
        tracemalloc.start()
        db.add_fingerprints(keys, array, memory=8 << 20)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 40 << 20  # beside the memory to sort: blocks, and the pages being made
    assert count * 64 > 24 << 20


def test_compact_refuses_what_doesnt_fit(tmp_path: Path) -> None:
    with fpdb.create(tmp_path / "db") as db:
        with pytest.raises(fpdb.PlanError):
            db.compact(tmp_path / "new", k=60)
        with pytest.raises(fpdb.DatabaseExistsError):
            db.compact(tmp_path / "db")
        assert not (tmp_path / "new").exists()
