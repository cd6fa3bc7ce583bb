"""The bands of sketches against brute force over the bins of all sketches, without documents."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from fpdb.arrays import Rows, Strings
from fpdb.storage import Environment, ReadTransaction
from fpdb.storage.block import Block
from fpdb.storage.format import Stored
from fpdb.tables import bands
from fpdb.tables.bands import Bands, BandTable, Sketched

SHAPES = [Bands(9, 6), Bands(6, 8), Bands(18, 14), Bands(19, 13), Bands(36, 7), Bands(256, 1)]
PLENTY = 1 << 30


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    with Environment.create(
        tmp_path_factory.mktemp("bands") / "db", ["bands", "bands-recent"]
    ) as env:
        yield env


def document(number: int, sketch: bytes = b"", digest: bytes = b"", short: bool = False) -> Stored:
    return Stored(number, number, None if short else 1, 0, digest, sketch=sketch)


def drawn(dice: random.Random, count: int) -> list[Stored]:
    """Documents with sketches near a few, some without one, some without a text, some short."""
    bases = [dice.randbytes(128) for _ in range(5)]
    digests = [dice.randbytes(16) for _ in range(3)]
    found = []
    for number in dice.sample(range(3 * count), count):
        sketch = bytearray(dice.choice(bases))
        for _ in range(dice.choice([0, 3, 40, 200])):
            sketch[dice.randrange(128)] = dice.randrange(256)
        kind = dice.random()
        if kind < 0.8:
            found.append(document(number, bytes(sketch), dice.randbytes(16)))
        else:
            digest = dice.choice(digests) if kind < 0.95 else b""
            found.append(document(number, b"", digest, short=kind > 0.9))
    return found


def keys_of(shape: Bands, stored: Stored) -> list[tuple[object, ...]]:
    """What a document is found by: the bins of each band, or its text."""
    if stored.fingerprint is None:
        return []
    if not stored.sketch:
        return [("text", stored.digest)] if stored.digest else []
    bins = [int(digit, 16) for byte in stored.sketch for digit in f"{byte:02x}"[::-1]]
    return [
        (band, *bins[band * shape.bins : (band + 1) * shape.bins]) for band in range(shape.count)
    ]


def brute(
    shape: Bands,
    stored: Sequence[Stored],
    queries: Sequence[Stored],
    a_band: int = PLENTY,
    compared: int = PLENTY,
) -> list[tuple[list[int], bool]]:
    """Look documents up by their bins, one by one; cut what is popular."""
    holders: dict[tuple[object, ...], list[int]] = {}
    for other in sorted(stored):
        for key in keys_of(shape, other):
            holders.setdefault(key, []).append(other.id)
    answers = []
    for query in queries:
        complete, bands_of = True, Counter[int]()
        for key in keys_of(shape, query):
            found = holders.get(key, [])
            complete &= len(found) <= a_band
            bands_of.update(found[:a_band])
        best = sorted(bands_of, key=lambda own: (-bands_of[own], own))
        answers.append((sorted(best[:compared]), complete and len(best) <= compared))
    return answers


def blocks_of(documents: Sequence[Stored], size: int = 64) -> Iterator[Sketched]:
    """What a load reads of documents that aren't short, some at a time."""
    chosen = [each for each in documents if each.fingerprint is not None]
    for start in range(0, len(chosen), size):
        block = Block.of(chosen[start : start + size], 64)
        yield block.ids, block.sketches, block.digests


def new_rows(table: BandTable, documents: Sequence[Stored]) -> Rows:
    block = Block.of(documents, 64)
    made = table.made(block)
    return [made.data, np.repeat(block.ids, made.sizes)]


def rows_of(txn: ReadTransaction, table: BandTable) -> list[tuple[int, int]]:
    return [
        (number, own)
        for numbers, ids in table.pages.scan(txn)
        for number, own in zip(numbers.tolist(), ids.tolist(), strict=True)
    ]


def expected_rows(table: BandTable, documents: Sequence[Stored]) -> list[tuple[int, int]]:
    return sorted(
        (number, each.id)
        for each in documents
        if each.fingerprint is not None
        for number in table.numbers(each.sketch, each.digest)
    )


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_columns_are_the_numbers_of_each(shape: Bands) -> None:
    table = BandTable(shape)
    dice = random.Random(shape.bins)
    documents = [*drawn(dice, 40), document(0), document(1, b"", bytes(8) + b"\1" + bytes(7))]
    block = Block.of(documents, 64)
    numbers, marks = table.shape.columns(block.sketches, block.digests)
    assert numbers.shape == marks.shape == (42, shape.count + 1)
    for each, own, chosen in zip(documents, numbers, marks, strict=True):
        assert own[chosen].tolist() == table.numbers(each.sketch, each.digest)
        # A digest of zeros is none, whatever its length.
        assert own[chosen].tolist() == table.numbers(each.sketch, each.digest.ljust(16, b"\0"))
    expected = [table.of(each) for each in documents]
    few = Strings.joined([table.made(block[at : at + 5]) for at in range(0, 42, 5)])
    for made in (table.made(block), few):
        assert made.data.tolist() == [number for own in expected for number in own]
        assert made.sizes.tolist() == list(map(len, expected))


def answered(
    txn: ReadTransaction, table: BandTable, queries: Sequence[Stored]
) -> list[tuple[list[int], bool]]:
    return [table.near(txn, table.numbers(each.sketch, each.digest)) for each in queries]


@pytest.mark.parametrize(
    ("a_band", "compared"), [(PLENTY, PLENTY), (30, PLENTY), (PLENTY, 25), (30, 25), (1, 1)]
)
@pytest.mark.parametrize("small", [False, True], ids=["as it is", "all is small"])
@pytest.mark.parametrize("shape", [Bands(9, 6), Bands(12, 1)], ids=lambda shape: shape.name)
def test_near_is_what_brute_force_finds(
    shape: Bands,
    small: bool,
    a_band: int,
    compared: int,
    undone: Any,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if small:
        request.getfixturevalue("tiny_pages")
    monkeypatch.setattr(bands, "MOST_OF_A_BAND", a_band)
    monkeypatch.setattr(bands, "MOST_COMPARED", compared)
    table, dice = BandTable(shape), random.Random(7)
    stored = drawn(dice, 300)
    sketched = [each for each in stored if each.fingerprint is not None]
    queries = sketched[:25]
    queries += [each._replace(sketch=dice.randbytes(128)) for each in sketched[:5]]

    with undone() as txn:
        table.update(txn, new_rows(table, stored))
        assert rows_of(txn, table) == expected_rows(table, stored)
        expected = brute(shape, stored, queries, a_band, compared)
        assert answered(txn, table, queries) == expected
        cut = sum(not complete for _, complete in expected)
        assert cut == 0 if a_band == compared == PLENTY else cut > 0


def test_the_limits_of_a_lookup() -> None:
    assert (bands.MOST_OF_A_BAND, bands.MOST_COMPARED, bands.MOST_BINS) == (10_000, 10_000, 14)


def test_rows_of_a_document_by_hand() -> None:
    """The low half of a byte is the first bin; the last number is for texts without a sketch."""
    table, sketch = BandTable(Bands(2, 3)), bytes.fromhex("214365") + bytes(125)
    assert table.of(document(7, sketch)) == [0x321, 1 << 12 | 0x654]
    assert table.of(document(7, b"", bytes.fromhex("efcdab") + bytes(13))) == [2 << 12 | 0xDEF]
    assert table.of(document(7, sketch, short=True)) == []


def test_a_row_at_the_end_of_a_part_is_loaded(undone: Any) -> None:
    table = BandTable(Bands(1, 1))
    stored = [document(n, bytes([n]) + b"x" * 127) for n in range(16)]
    with undone() as txn:  # the parts end after rows 5 and 11 of 16, and then two more times
        table.load(txn, lambda: blocks_of(stored), 16, 128)
        assert rows_of(txn, table) == [(n, n) for n in range(16)]


def test_runs_over_many_pages(undone: Any, tiny_pages: None) -> None:
    """A number whose rows fill pages, begin one, end one, or are beside those of another."""
    table, dice = BandTable(Bands(2, 14)), random.Random(3)
    popular = [dice.randbytes(7) for _ in range(4)]
    for count in (1, 5, 20, 21, 22, 23, 24, 25, 60, 300):
        stored = [
            document(n, (popular[n % 3] if n % 2 else popular[3]) + dice.randbytes(121))
            for n in range(count)
        ]
        queries = [document(0, each + bytes(120) + b"x") for each in popular]
        queries.append(document(0, dice.randbytes(128)))

        with undone() as txn:
            table.update(txn, new_rows(table, stored))
            assert answered(txn, table, queries) == brute(table.shape, stored, queries)


@pytest.mark.parametrize("memory", [1 << 12, 1 << 15, 1 << 30])
@pytest.mark.parametrize("top", [0, 1 << 63])
@pytest.mark.parametrize("shape", [Bands(9, 6), Bands(18, 14)], ids=lambda shape: shape.name)
def test_a_load_in_parts_is_a_load(shape: Bands, top: int, memory: int, undone: Any) -> None:
    table, stored = BandTable(shape), sorted(drawn(random.Random(4), 500))
    stored = [each._replace(id=each.id + top * (n > 250)) for n, each in enumerate(stored)]
    reads = []

    def source() -> Iterator[Sketched]:
        reads.append(1)
        return blocks_of(stored)

    with undone() as txn:
        table.load(txn, source, len(stored), memory)
        assert rows_of(txn, table) == expected_rows(table, stored)
        assert len(reads) == 1 + 500 * shape.count * 32 // memory
