"""Records that a kernel reads from the leaves of LMDB, compared with LMDB's own answers."""

import random
from pathlib import Path

import numpy as np
import pytest
from twins import defined

from fpdb.documents.catalog import TextCatalog
from fpdb.documents.layout import header_for, layout
from fpdb.errors import DamagedError
from fpdb.storage import Environment, ReadTransaction
from fpdb.storage.block import Block
from fpdb.storage.format import Stored, renumbered

_, HEADER = header_for("web", similarity=0.8, k=None, keys="text")
_, CATALOG = layout(HEADER)
assert isinstance(CATALOG, TextCatalog)


def drawn(dice: random.Random) -> list[Stored]:
    """Documents of many sizes, some of which have pages of their own; a few ids are missing."""
    return [
        Stored(
            number,
            f"key {number} " + "é" * dice.choice([0, 60, 64, 9000]),
            dice.getrandbits(64),
            dice.choice([1, 1 << 33]),
            dice.randbytes(16) if number % 3 else b"",
            dice.randbytes(dice.choice([0, 30, dice.randrange(120), 500, 1900, 2100, 9000])),
            dice.choice([0, 1, 128, 1 << 40]),
            dice.randbytes(128) if number % 5 else b"",
        )
        for number in sorted(dice.sample(range(1 << 34), 3000))
    ]


def require_equal(txn: ReadTransaction, ids: list[int]) -> None:
    asked = np.array(ids, np.uint64)
    found = CATALOG.texts(txn, asked)
    with defined():
        expected = CATALOG.texts(txn, asked)
        keys = CATALOG.keys_of(txn, asked)
    for name in ("fingerprints", "digests", "sketches"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert CATALOG.keys_of(txn, asked) == keys


def test_records_are_read_as_the_definition_reads_them(tmp_path: Path) -> None:
    dice = random.Random(5)
    documents = drawn(dice)
    ids = [each.id for each in documents]
    with Environment.create(tmp_path / "db", CATALOG.names) as environment:
        with environment.write() as txn:
            CATALOG.put_records(txn, Block.of(documents[::2], 64))
            CATALOG.put_records(txn, Block.of(documents[1::2], 64))
            require_equal(txn, ids)
        for part in (1, 2, 7, 500, len(ids)):
            with environment.read() as txn:
                require_equal(txn, sorted(dice.sample(ids, part)))
                require_equal(txn, dice.sample(ids, part))
        with environment.read() as txn, pytest.raises(DamagedError, match="isn't there"):
            CATALOG.texts(txn, np.array([*ids[:9], ids[8] + 1], np.uint64))


@pytest.mark.parametrize(
    "tail",
    [
        b"\5keys",  # less than it says
        b"\x84\x80\x80\x80\x80\x80\x80\x80\x80\1keys",  # of 2**64 bytes
        b"\2\xff\xff",  # no Unicode
        b"",
    ],
)
def test_a_key_that_no_record_has_is_damage(tmp_path: Path, tail: bytes) -> None:
    with Environment.create(tmp_path / "db", CATALOG.names) as environment:
        with environment.write() as txn:
            txn.put("documents", bytes(8), renumbered(bytes(9) + tail, 0))
        with environment.read() as txn, pytest.raises(DamagedError, match="fields"):
            CATALOG.keys_of(txn, np.zeros(1, np.uint64))


def test_a_record_in_the_place_of_another_is_found(tmp_path: Path) -> None:
    ids = list(range(40))
    documents = [Stored(number, f"{number}", 7, 1, bytes(16), sketch=b"1" * 128) for number in ids]
    with Environment.create(tmp_path / "db", CATALOG.names) as environment:
        with environment.write() as txn:
            CATALOG.put_records(txn, Block.of(documents, 64))
            other = bytes(txn.get("documents", (21).to_bytes(8, "big")) or b"")
            txn.put("documents", (20).to_bytes(8, "big"), other)
        with environment.read() as txn, pytest.raises(DamagedError, match="checksum"):
            CATALOG.texts(txn, np.array(ids, np.uint64))
