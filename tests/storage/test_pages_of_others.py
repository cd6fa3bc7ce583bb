"""An intact page in the place of one of another table raises an error, and is no answer."""

from pathlib import Path

import numpy as np
import pytest

import fpdb
from fpdb.errors import DamagedError
from fpdb.storage.number_pages import (
    pack_rows,
    summed,
    unpack_rows,
)

SEED = 2**70 + 5  # of which the lowest 64 bits count


def page(columns: int) -> bytes:
    rng = np.random.default_rng(columns)
    rows = [np.sort(rng.integers(0, 2**64, 50, np.uint64)) for _ in range(columns)]
    return summed(pack_rows(rows)[0], SEED)


@pytest.mark.parametrize("found", [1, 2, 3])
@pytest.mark.parametrize("expected", [1, 2, 3])
def test_a_page_with_other_columns(found: int, expected: int) -> None:
    value = page(found)
    if found == expected:
        assert len(unpack_rows(value, expected, SEED)) == expected
        return
    for read in (
        lambda: unpack_rows(value, expected, SEED),
        lambda: unpack_rows(value, expected, SEED, 1),
    ):
        with pytest.raises(DamagedError, match="another table"):
            read()


def test_ids_that_are_none(tmp_path: Path) -> None:
    with (
        fpdb.create(tmp_path / "db") as db,
        db._environment.read() as txn,
        pytest.raises(DamagedError, match="64 bits"),
    ):
        db._catalog.record(txn, 1 << 64)
