"""Loading all tables at once: whatever the memory, the tables are those of one sort."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fpdb.arrays import joined
from fpdb.storage import Environment, ReadTransaction
from fpdb.tables import Index, Plan
from fpdb.tables.bits import as_words
from fpdb.tables.bulk_load import FingerprintSource, load_tables
from fpdb.tables.plan import choose_plan, home_plan, nested_plan
from fpdb.tables.sorter import ROW_BYTES

PLANS = {
    "home only": home_plan(64, 2, 16),
    "choose 1": choose_plan(64, 3),
    "nested": nested_plan(64, 3),
    "32 bits": choose_plan(32, 3),
    "128 bits": choose_plan(128, 3),
}
TOP = 2**64 - 1


def numbers(bits: int, count: int) -> Any:
    """Random fingerprints: some twice, one many times, and both ends."""
    dice = np.random.default_rng(bits + count)
    words = dice.integers(0, 2**64, (count, 2), np.uint64)
    words[: count // 3] = words[-(count // 3) :]
    words[5 : 5 + count // 4] = words[0]
    words[1], words[2] = 0, TOP
    return words if bits == 128 else words[:, 0] >> np.uint64(64 - bits)


def rows_of(txn: ReadTransaction, index: Index) -> list[list[tuple[int, ...]]]:
    return [[*zip(*joined(pages.scan(txn)), strict=True)] for pages in index.tables]


def source_of(fingerprints: Any, ids: Any) -> FingerprintSource:
    """Return a source of two arrays, some rows at a time."""
    starts = range(0, len(ids), 100)
    return lambda: ((fingerprints[at : at + 100], ids[at : at + 100]) for at in starts)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("runs", [1, 7, 20])
def test_sorted_runs_load_what_one_sort_does(plan: Plan, runs: int, tmp_path: Path) -> None:
    index, array = Index(plan), numbers(plan.bits, 1500)
    ids = np.random.default_rng(1).permutation(5000)[: len(array)].astype(np.uint64)
    memory = 2 * ROW_BYTES * index.home.columns * -(-len(ids) // runs)
    with Environment.create(tmp_path / "db", index.names) as environment:
        with environment.write() as txn:
            load_tables(txn, index, source_of(array, ids), len(ids), memory)
        with environment.read() as txn:
            home, *further = rows_of(txn, index)
    assert home == sorted(zip(*as_words(array), ids, strict=True))
    for table, rows in zip(plan.tables[1:], further, strict=True):
        permuted = as_words(table.permutation.apply(array))
        assert rows == sorted(set(zip(*permuted, strict=True)))


def test_pages_are_full_whatever_the_memory(tmp_path: Path) -> None:
    index, array = Index(choose_plan(64, 3)), numbers(64, 20_000)
    ids = np.arange(len(array), dtype=np.uint64)
    counts = []
    for name, memory in (("one", 1 << 30), ("many", 64 << 10)):
        with Environment.create(tmp_path / name, index.names) as environment:
            with environment.write() as txn:
                load_tables(txn, index, source_of(array, ids), len(ids), memory)
            with environment.read() as txn:
                counts.append([txn.entries(own) for own in index.names])
    assert counts[0] == counts[1]


def test_no_thread_is_left_when_a_load_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, array = Index(choose_plan(64, 3)), numbers(64, 3000)
    ids = np.arange(len(array), dtype=np.uint64)
    reading = []

    def source() -> Iterator[tuple[Any, Any]]:
        for place in range(0, len(ids), 100):
            reading.append(True)
            time.sleep(0.001)
            yield array[place : place + 100], ids[place : place + 100]

    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    def load_and_fail() -> None:
        with (
            Environment.create(tmp_path / "db", index.names) as environment,
            environment.write() as txn,
        ):
            load_tables(txn, index, source, len(ids))

    before = threading.active_count()
    monkeypatch.setattr(type(index.home), "fill", fail)
    with pytest.raises(KeyboardInterrupt) as caught:
        load_and_fail()
    reading.clear()
    time.sleep(0.05)
    assert not reading
    assert threading.active_count() == before
    assert caught.value  # the traceback, which holds the frames, is still there
