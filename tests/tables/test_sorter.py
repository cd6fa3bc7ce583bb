"""Rows sorted in runs on the disk are those of one sort; of equal keys the last stays."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpdb.tables import sorter
from fpdb.tables.sorter import ROW_BYTES, RowFile, Sorter


def columns_of(rows: list[tuple[int, ...]], columns: int) -> Any:
    table = np.array(rows, np.uint64).reshape(len(rows), columns)
    return [np.ascontiguousarray(table[:, at]) for at in range(columns)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sorted")


def sorted_rows(
    folder: Path, blocks: list[list[tuple[int, ...]]], columns: int, keys: int, memory: int
) -> list[tuple[int, ...]]:
    with Sorter(folder, columns, keys, memory) as rows:
        for block in blocks:
            rows.add(columns_of(block, columns))
        return [row for part in rows.rows() for row in zip(*map(list, part), strict=True)]


NUMBERS = st.one_of(st.integers(0, 3), st.sampled_from([2**63, 2**64 - 1]))


@given(data=st.data(), columns=st.integers(1, 3), held=st.integers(1, 40))
def test_the_last_row_of_each_key_comes_in_order(
    folder: Path, data: st.DataObject, columns: int, held: int
) -> None:
    keys = data.draw(st.integers(1, columns))
    row = st.tuples(*[NUMBERS] * columns)
    blocks = data.draw(st.lists(st.lists(row, max_size=60), max_size=6))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorter, "_LEAST", 1)
        found = sorted_rows(folder, blocks, columns, keys, held * ROW_BYTES * columns)
    last = {row[:keys]: row for block in blocks for row in block}
    assert found == [last[key] for key in sorted(last)]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("order", ["random", "ascending", "descending", "one value"])
def test_many_runs_are_merged(folder: Path, order: str) -> None:
    dice = np.random.default_rng(3)
    numbers = dice.integers(0, 2**64, 50_000, np.uint64)
    if order != "random":
        numbers.sort()
    if order == "descending":
        numbers = numbers[::-1]
    if order == "one value":
        numbers[:] = 7
    ids = np.arange(len(numbers), dtype=np.uint64)
    with Sorter(folder, 2, 2, 2 * ROW_BYTES * 1000) as rows:
        for at in range(0, len(ids), 300):
            rows.add([numbers[at : at + 300], ids[at : at + 300]])
        parts = list(rows.rows())
    sequence = np.lexsort((ids, numbers))
    assert np.array_equal(np.concatenate([part[0] for part in parts]), numbers[sequence])
    assert np.array_equal(np.concatenate([part[1] for part in parts]), ids[sequence])
    assert max(len(part[0]) for part in parts) <= 64 * 50  # as there are 50 runs


def test_a_file_has_the_blocks_that_its_memory_does_not_hold(folder: Path) -> None:
    blocks = [columns_of([(n, n * n) for n in range(size)], 2) for size in (0, 5, 100, 3)]
    for memory in (0, 80, 1 << 20):
        with RowFile(folder, 2, memory) as rows:
            for block in blocks:
                rows.append(block)
            assert len(rows) == 108
            for _ in range(2):
                for found, block in zip(rows, blocks, strict=True):
                    assert [column.tolist() for column in found] == [
                        column.tolist() for column in block
                    ]
            assert [column.tolist() for column in rows.part(2, 10, 12)] == [[10, 11], [100, 121]]
            assert list(folder.iterdir()) == []
