"""An intact page in the place of one of another table raises an error, and is no answer."""

from pathlib import Path

import numpy as np
import pytest

import fpdb
from fpdb.errors import DamagedError
from fpdb.storage.columns import (
    pack_rows,
    page_length,
    raw_column,
    shape_of,
    unpack_rows,
    with_rows,
)

SEED = 2**70 + 5  # of which the lowest 64 bits count


def page(columns: int) -> bytes:
    rng = np.random.default_rng(columns)
    rows = [np.sort(rng.integers(0, 2**64, 50, np.uint64)) for _ in range(columns)]
    return pack_rows(rows, shape_of(rows), SEED)


@pytest.mark.parametrize("found", [1, 2, 3])
@pytest.mark.parametrize("expected", [1, 2, 3])
def test_a_page_with_other_columns(found: int, expected: int) -> None:
    value = page(found)
    assert page_length(value, found) == len(value)
    if found == expected:
        assert len(unpack_rows(value, expected, SEED)) == expected
        assert raw_column(memoryview(value), expected, SEED)[1] == 50
        return
    for read in (
        lambda: unpack_rows(value, expected, SEED),
        lambda: unpack_rows(value, expected, SEED, 1),
        lambda: raw_column(memoryview(value), expected, SEED),
        lambda: with_rows(memoryview(value), expected, SEED, [[5]] * expected),
    ):
        with pytest.raises(DamagedError, match="another table"):
            read()


def test_lengths_that_are_none() -> None:
    assert page_length(b"", 1) == 0
    assert page_length(b"\xff" * 40, 1) == 0


def test_ids_that_are_none(tmp_path: Path) -> None:
    with (
        fpdb.create(tmp_path / "db") as db,
        db._environment.read() as txn,
        pytest.raises(DamagedError, match="64 bits"),
    ):
        db._catalog.record(txn, 1 << 64)
