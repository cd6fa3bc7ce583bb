"""Ready fingerprints in bulk: into an empty database, and into one that holds documents."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdb
from fpdb import Database
from fpdb.documents.prepare import LOAD
from fpdb.storage.format import Counters

pytestmark = pytest.mark.slow("its cases build databases of all kinds, 4 s together")

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
        monkeypatch.setattr("fpdb.documents.writer._SHARES", 64)  # numbers come in small blocks
        before = Counters.unpack(_counters(db)).writes
        turn = DICE.permutation(1000)
        assert db.add_fingerprints(np.array(own)[turn], second[turn], memory=1 << 20) == 900
        assert Counters.unpack(_counters(db)).writes - before <= 4
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
    count, memory = 200_000, 4 << 20
    array, keys = fingerprints(64, count), np.arange(count, dtype=np.uint64)
    parts = [slice(start, start + 10_000) for start in range(0, count, 10_000)]
    with fpdb.create(tmp_path / "db", keys="integer", capacity=count) as db:
        tracemalloc.start()
        assert db.add_fingerprints(((keys[i], array[i]) for i in parts), memory=memory) == count
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 2 * memory < count * 64


def loaded(path: Path, bits: int, kind: str, *calls: Any) -> Database:
    recipe = fpdb.recipe("web").with_bits(bits)
    db = fpdb.create(path, recipe=recipe, keys=kind, similarity=None)
    for call in calls:
        db.add_fingerprints(*call, memory=1 << 20)
    return db


@pytest.mark.parametrize(
    ("bits", "kind"), [(32, "integer"), (64, "integer"), (128, "integer"), (64, "text")]
)
def test_one_call_four_calls_and_an_iterator_store_the_same(
    tmp_path: Path, bits: int, kind: str
) -> None:
    own, array = names(DICE.permutation(2000), kind), fingerprints(bits, 2000)
    parts = [(own[at : at + 500], array[at : at + 500]) for at in range(0, 2000, 500)]
    with (
        loaded(tmp_path / "one", bits, kind, (own, array)) as one,
        loaded(tmp_path / "four", bits, kind, *parts) as four,
        loaded(tmp_path / "blocks", bits, kind, (iter(parts),)) as blocks,
    ):
        for db in (one, four, blocks):
            assert content(db) == expected((own, array))
            assert list(db.check()) == []
            for (key, number, *_), place in zip(content(db)[::50], range(40), strict=True):
                near = db.query_fingerprint(number ^ 1 << place % bits % 32)
                assert key in {match.key for match in near}


@pytest.mark.parametrize("ordered", [True, False])
def test_pages_are_as_full_after_four_calls(tmp_path: Path, *, ordered: bool) -> None:
    own, array = DICE.permutation(40_000), fingerprints(64, 40_000)
    if ordered:
        own.sort()
    starts = range(0, len(own), 10_000)
    parts = [(own[at : at + 10_000], array[at : at + 10_000]) for at in starts]
    with (
        loaded(tmp_path / "one", 64, "integer", (own, array)) as one,
        loaded(tmp_path / "four", 64, "integer", *parts) as four,
        loaded(tmp_path / "blocks", 64, "integer", (iter(parts),)) as blocks,
    ):
        pages = [sum(table.pages for table in db.stats().tables) for db in (one, four, blocks)]
        assert pages[2] == pages[0]
        assert pages[1] <= 1.05 * pages[0]
        assert blocks.stats().bytes <= 1.05 * one.stats().bytes


def test_an_iterator_that_fails_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    def broken() -> Iterator[tuple[Any, Any]]:
        yield np.arange(3000, 6000), fingerprints(64, 3000)
        yield np.arange(10), fingerprints(64, 9)

    with fpdb.create(tmp_path / "db", keys="integer") as db:
        first = np.arange(5000), fingerprints(64, 5000)
        db.add_fingerprints(*first)
        with pytest.raises(fpdb.InputError, match="found 10 keys and 9 fingerprints"):
            db.add_fingerprints(broken())
        assert content(db) == expected(first)
        assert list(db.check()) == []


@pytest.mark.parametrize("keys", [[1, 2], np.arange(3), [(1, 2, 3)], ["ab"], 5])
def test_keys_without_fingerprints_are_refused(tmp_path: Path, keys: Any) -> None:
    with (
        fpdb.create(tmp_path / "db", keys="integer") as db,
        pytest.raises(fpdb.InputError, match=r"expected .*pairs? of keys and fingerprints"),
    ):
        db.add_fingerprints(keys)


def test_keys_are_counted_on_from_the_highest(tmp_path: Path) -> None:
    with fpdb.create(tmp_path / "db", keys="integer") as db:
        assert db.add_fingerprints(None, fingerprints(64, 3)) == 3
        db.add_fingerprints([2**64 - 2], [1])
        assert db.add_fingerprints(iter([(None, np.array([2], np.uint64))])) == 1
        assert [document.key for document in db.scan()] == [0, 1, 2, 2**64 - 2, 2**64 - 1]
        with pytest.raises(fpdb.InputError, match="no number left"):
            db.add_fingerprints(None, [3])
        assert db.add_fingerprints(None, np.empty(0, np.uint64)) == 0
        assert db.add_fingerprints(iter([])) == 0
    with (
        fpdb.create(tmp_path / "texts") as db,
        pytest.raises(fpdb.InputError, match="without keys"),
    ):
        db.add_fingerprints(None, [3])


def test_compact_refuses_what_doesnt_fit(tmp_path: Path) -> None:
    with fpdb.create(tmp_path / "db") as db:
        with pytest.raises(fpdb.PlanError):
            db.compact(tmp_path / "new", k=60)
        with pytest.raises(fpdb.DatabaseExistsError):
            db.compact(tmp_path / "db")
        assert not (tmp_path / "new").exists()
