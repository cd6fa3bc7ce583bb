"""What a document takes on disk, so that no change of a layout costs more unnoticed."""

import random
from pathlib import Path

import numpy as np
import pytest

import fpdb
from fpdb import Database

COUNT = 20_000
# As many fingerprints as a page of a database of a million has in its range.
NUMBERS = np.random.default_rng(3).integers(0, 2**58, COUNT, np.uint64)


def bytes_of(db: Database, *names: str) -> float:
    with db._environment.read() as txn:
        return sum(map(txn.bytes_of, names)) / COUNT


def test_fingerprints_loaded_with_integer_keys(tmp_path: Path) -> None:
    with fpdb.build(tmp_path / "db", similarity=None, keys="integer", k=3) as db:
        db.add_fingerprints(np.arange(COUNT, dtype=np.uint64), NUMBERS)
    with fpdb.open(tmp_path / "db") as db:
        # A fingerprint of 58 bits in a page of hundreds takes 7 bytes, and an id below 65,536 two.
        assert bytes_of(db, "table-00") < 9.4
        # The id, 24 bits of the fingerprint, and no time: all are equal.
        assert bytes_of(db, "ids") < 5.5


@pytest.mark.parametrize(("step", "most"), [(COUNT, 112), (1000, 120)])
def test_text_keys_of_50_bytes(tmp_path: Path, step: int, most: float) -> None:
    """Record and key, without text, metadata and sketch; loaded, and added in any order."""
    dice = random.Random(4)
    keys = [f"https://www.example.org/pages/{dice.getrandbits(80):020x}" for _ in range(COUNT)]
    assert {len(key) for key in keys} == {50}
    with fpdb.create(tmp_path / "db", similarity=None) as db:
        for start in range(0, COUNT, step):
            db.add_fingerprints(keys[start : start + step], NUMBERS[start : start + step])
        assert bytes_of(db, "documents", "keys") < most
