"""Documents that are packed from columns: the same bytes as from one after the other."""

import random
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples
from twins import defined

import fpdb
from fpdb import kernels
from fpdb.arrays import Strings
from fpdb.documents import writer
from fpdb.storage.block import Block, entries_of
from fpdb.storage.format import Stored, StoredRun, pack_record, unpack_record
from fpdb.storage.origin import pack_origin, pack_origins, renamed

SEEDS = st.integers(0, 2**32 - 1)
RUN = StoredRun(b"c" * 16, b"o" * 16, 1, finished=False)


def drawn(dice: random.Random, number: int, bits: int) -> list[Stored]:
    def one() -> Stored:
        short = dice.random() < 0.2
        digest = dice.randbytes(16) if dice.random() < 0.7 else bytes(16) if short else b""
        return Stored(
            id=0,
            key="k" * dice.choice([1, 30, 127, 128, 510, 511, 20_000]) + str(dice.randrange(9)),
            fingerprint=None if short else dice.getrandbits(bits),
            added=dice.choice([0, 1_700_000_000, 1 << 32, (1 << 40) - 1]),
            digest=digest or (bytes(16) if short else b""),
            meta=dice.randbytes(dice.choice([0, 0, 1, 127, 128, 300])),
            characters=dice.choice([0, 1, 127, 128, 1 << 14, (1 << 63) - 1]),
            sketch=dice.randbytes(128) if dice.random() < 0.6 else b"",
            passages=b"" if short else dice.randbytes(6 * dice.choice([0, 0, 1, 30])),
        )

    return [one() for _ in range(number)]


@settings(max_examples=examples(200))
@given(seed=SEEDS, bits=st.sampled_from([32, 64, 128]))
def test_records_are_packed_as_one_by_one(seed: int, bits: int) -> None:
    dice = random.Random(seed)
    documents = drawn(dice, dice.randrange(20), bits)
    columns = Block.of(documents, bits)
    keepers = [dice.choice([b"", dice.randbytes(8)]) for _ in documents]
    columns = replace(columns, further={**columns.further, "keeper": keepers})
    pairs = zip(documents, keepers, strict=True)
    documents = [document._replace(keeper=keeper) for document, keeper in pairs]
    assert list(columns.rows()) == documents
    ids = np.array([dice.getrandbits(dice.randint(1, 64)) for _ in documents], np.uint64)
    found = entries_of(columns.pack(bits), ids)
    expected = [each._replace(id=own) for each, own in zip(documents, ids.tolist(), strict=True)]
    assert [(int.from_bytes(key), value) for key, value in found] == [
        (each.id, pack_record(each, bits)) for each in expected
    ]
    with defined():
        assert entries_of(columns.pack(bits), ids) == found


@settings(max_examples=examples(200))
@given(seed=SEEDS, bits=st.sampled_from([32, 64, 128]))
def test_parts_of_a_block_have_the_documents_of_a_list(seed: int, bits: int) -> None:
    dice = random.Random(seed)
    documents = drawn(dice, dice.randint(1, 20), bits)
    block, cut = Block.of(documents, bits), dice.randrange(len(documents) + 1)
    places = dice.sample(range(len(documents)), dice.randrange(len(documents) + 1))
    assert list(block[:cut].rows()) == documents[:cut]
    chosen = block[np.array(places, np.int64)]
    assert list(chosen.rows()) == [documents[place] for place in places]
    assert list(Block.joined([block[cut:], chosen]).rows()) == [
        *documents[cut:],
        *(documents[place] for place in places),
    ]
    others = dict(zip(places, drawn(dice, len(places), bits), strict=True))
    replaced = block.with_rows(others, bits)
    assert list(replaced.rows()) == [
        others.get(place, document) for place, document in enumerate(documents)
    ]
    assert list(block.rows()) == documents


def test_every_field_is_drawn() -> None:
    values = zip(*drawn(random.Random(1), 400, 64), strict=True)
    drawn_ones = {name for name, some in zip(Stored._fields, values, strict=True) if any(some)}
    assert drawn_ones == {*Stored._fields} - {"id", "keeper"}  # a block of others lacks keepers


@pytest.mark.skipif(not kernels.available, reason="of the kernels")
def test_columns_of_other_records_are_refused() -> None:
    columns = Block.of(drawn(random.Random(1), 9, 64), 64)
    records = columns.pack(64)
    other = replace(columns, metas=[b""])
    with pytest.raises(ValueError, match="string"):
        other.pack(64)
    other = replace(columns, characters=np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="columns"):
        other.pack(64)
    some = list(range(10, 80, 10))
    for ends in ([*some, 90, len(records.data) + 1], [*some, 9, 8]):
        with pytest.raises(ValueError, match="string"):
            entries_of(Strings(records.data, np.array(ends)), np.arange(9, dtype=np.uint64))
    with pytest.raises(ValueError, match="record"):
        entries_of(Strings(records.data, np.arange(9) + 1), np.arange(9, dtype=np.uint64))


def test_origins_are_packed_as_one_by_one() -> None:
    sources = ["", "a:1", "ä" * 20, "x" * 31, "x" * 32, "x" * 255, "x" * 256, "x" * 70_000]
    packed = pack_origins([source.encode() for source in sources])
    assert packed == list(map(pack_origin, sources))


@pytest.mark.parametrize("compiled", [True, False])
def test_taken_keys_are_those_of_the_definition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, compiled: bool
) -> None:
    """One after the other: a key that is stored, or was given before, gets the next number."""
    monkeypatch.setattr(kernels, "enabled", compiled and kernels.available)
    monkeypatch.setattr(writer, "ADDED_TOGETHER", 25)
    dice = random.Random(3)
    known: dict[str, int] = {}
    with fpdb.create(tmp_path / "db") as db:
        for _ in range(4):
            keys = [dice.choice(["k", "k #3", "k #9", f"{dice.random()}"]) for _ in range(60)]
            keys[7] = f"k #{len(known) + 2}"  # a key that an earlier document is given
            documents = [
                Stored(0, key, dice.getrandbits(64), 5, dice.randbytes(16), pack_origin(key))
                for key in keys
            ]
            parts = [documents[start : start + 10] for start in range(0, 60, 10)]
            new = [Block.of(part, 64) for part in parts]
            numbers = count(len(known))
            wanted = []
            for own, document in enumerate(documents, len(known)):
                free = document
                while str(free.key) in known:
                    free = renamed(document, next(numbers))
                known[str(free.key)] = own
                wanted.append(free._replace(id=own))
            assert db.runs.finish(RUN, db.runs.next_id(), lambda *_, new=new: ((), new)) == 60
            with db._transaction() as txn:
                assert list(islice(db._catalog.records(txn), wanted[0].id, None)) == wanted
                assert dict(db._catalog.key_entries(txn)) == {
                    key.encode(): own for key, own in known.items()
                }
        assert not list(db.check())
    assert unpack_record(pack_record(wanted[0], 64), wanted[0].id, 64) == wanted[0]
