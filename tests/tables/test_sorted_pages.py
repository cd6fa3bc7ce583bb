"""Pages against sorted sets, and the bytes of their columns."""

import itertools
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiers import examples

from fpdb.arrays import Rows
from fpdb.errors import DamagedError
from fpdb.storage import Environment, ReadTransaction
from fpdb.storage.number_pages import (
    LARGEST,
    pack_rows,
    summed,
    unpack_rows,
)
from fpdb.tables import sorted_pages
from fpdb.tables.sorted_pages import NumberPages, seek

Row = tuple[int, ...]
TOP = 2**64 - 1

# Name, key columns, columns: a further table, the home table, both at 128 bits, the ids.
SHAPES = [
    ("further", 1, 1),
    ("home", 2, 2),
    ("further-128", 2, 2),
    ("home-128", 3, 3),
    ("ids", 1, 3),
]
KINDS = [NumberPages(*shape) for shape in SHAPES]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    path = tmp_path_factory.mktemp("pages") / "db"
    with Environment.create(path, [name for name, _, _ in SHAPES]) as env:
        yield env


def as_rows(rows: list[Row], width: int) -> Rows:
    array = np.array(sorted(rows), np.uint64).reshape(-1, width)
    return [np.ascontiguousarray(column) for column in array.T]


def entries(txn: ReadTransaction, pages: NumberPages) -> list[tuple[bytes, bytes]]:
    with txn.cursor(pages.name) as cursor:
        return [(bytes(key), bytes(value)) for key, value in cursor]


def content(txn: ReadTransaction, pages: NumberPages, largest: int = LARGEST) -> list[Row]:
    """All rows as they are stored; every page is checked on the way."""
    found: list[Row] = []
    for key, value in entries(txn, pages):
        assert len(value) <= largest
        rows = list(
            zip(
                *(c.tolist() for c in unpack_rows(value, pages.columns, pages.seed_at(key))),
                strict=True,
            )
        )
        assert key == b"".join(number.to_bytes(8, "big") for number in rows[0][: pages._keys])
        found += rows
    keys = [row[: pages._keys] for row in found]
    assert keys == sorted(set(keys))
    return found


@st.composite
def batches(draw: st.DrawFn, width: int, keys: int) -> list[tuple[list[Row], list[Row]]]:
    """Some batches of rows to insert and to remove, dense enough that they meet."""
    number = st.one_of(
        st.integers(0, 60),
        st.integers(2**32 - 3, 2**32 + 3),
        st.integers(TOP - 20, TOP),
        st.integers(0, TOP),
    )
    row = st.tuples(*[number] * width)

    def distinct(rows: list[Row]) -> list[Row]:
        return list({own[:keys]: own for own in rows}.values())

    part = st.lists(row, max_size=60).map(distinct)
    return draw(st.lists(st.tuples(part, part), min_size=1, max_size=6))


@pytest.fixture(params=[False, True], ids=["few", "many"])
def many(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the rows be few for the pages that they come to, or so many that these are merged."""
    if request.param:
        monkeypatch.setattr(sorted_pages, "_MANY", 0)
        monkeypatch.setattr(sorted_pages, "_MERGED", 2)


@pytest.mark.parametrize("pages", KINDS, ids=lambda pages: pages.name)
@settings(max_examples=examples(100), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_splice_agrees_with_a_sorted_set(
    pages: NumberPages, data: st.DataObject, undone: Any, tiny_pages: int, many: None
) -> None:
    width, keys = pages.columns, pages._keys

    with undone() as txn:
        expected: dict[Row, Row] = {}
        for insert, remove in data.draw(batches(width, keys)):
            # Half of what is removed is there; what is removed and inserted ends up inserted.
            there = list(expected.values())[::2] if len(remove) % 2 else []
            gone = list({row[:keys]: row for row in [*remove, *there]}.values())
            pages.splice(txn, as_rows(insert, width), as_rows(gone, width))
            for row in gone:
                expected.pop(row[:keys], None)
            expected |= {row[:keys]: row for row in insert}
            assert content(txn, pages, tiny_pages) == [expected[key] for key in sorted(expected)]
            if asked := sorted({row[:keys] for row in (*insert, *remove, *expected.values())}):
                columns = [np.array(column, np.uint64) for column in zip(*asked, strict=True)]
                assert pages.holds(txn, columns).tolist() == [key in expected for key in asked]


def test_small_pages_merge_and_empty_ones_go(undone: Any) -> None:
    pages = KINDS[0]
    rows = [(number * 2**48,) for number in range(10_000)]
    with undone() as txn:
        pages.fill(txn, [as_rows(rows, 1)])
        assert len(entries(txn, pages)) == 20
        kept = rows[::50]
        pages.splice(txn, pages.empty(), as_rows([row for row in rows if row not in set(kept)], 1))
        assert content(txn, pages) == kept
        assert len(entries(txn, pages)) <= 2
        pages.splice(txn, pages.empty(), as_rows(kept, 1))
        assert entries(txn, pages) == []


FILLS: dict[str, Callable[[np.random.Generator, int, int], Any]] = {
    "uniform": lambda dice, n, w: dice.integers(0, TOP, (n, w), np.uint64),
    "dense": lambda dice, n, w: np.arange(n * w, dtype=np.uint64).reshape(n, w),
    "clustered": lambda dice, n, w: (
        dice.integers(0, 2**20, (n, w), np.uint64) << np.uint64(44)
        | dice.integers(0, 2**8, (n, w), np.uint64)
    ),
    "one prefix": lambda dice, n, w: dice.integers(TOP - 2**30, TOP, (n, w), np.uint64),
}


@pytest.mark.parametrize("kind", FILLS)
@pytest.mark.parametrize("pages", KINDS, ids=lambda pages: pages.name)
def test_fill_makes_full_pages_with_the_content_of_splice(
    pages: NumberPages, kind: str, undone: Any
) -> None:
    width, keys = pages.columns, pages._keys
    array = FILLS[kind](np.random.default_rng(3), 6000, width).tolist()
    rows = list({tuple(row[:keys]): tuple(row) for row in array}.values())

    with undone() as txn:
        pages.fill(txn, [as_rows(rows, width)])
        sizes = [len(value) for _, value in entries(txn, pages)]
        assert content(txn, pages) == sorted(rows)
        # A page may end early because its next row would need wider columns.
        least = 0.97 if kind in ("uniform", "one prefix") else 0.5
        assert min(sizes[:-1], default=LARGEST) >= least * LARGEST
        assert sum(sizes) >= 0.97 * LARGEST * (len(sizes) - 1) or kind == "clustered"
        # What was filled is spliced as if it had been spliced all along.
        pages.splice(txn, as_rows(rows[:2000], width), as_rows(rows[1000:4000], width))
        assert content(txn, pages) == sorted({*rows[:2000], *rows[4000:]})


@pytest.mark.parametrize("pages", KINDS, ids=lambda pages: pages.name)
@pytest.mark.parametrize(("stored", "new"), [(0, 4000), (9000, 20_000), (8000, 300), (5, 4000)])
@pytest.mark.parametrize("place", ["between", "after"])
def test_merged_blocks_leave_full_pages_and_the_content_of_a_dict(
    pages: NumberPages, stored: int, new: int, place: str, undone: Any
) -> None:
    width, keys = pages.columns, pages._keys
    array = np.random.default_rng(5).integers(0, 2**62, (stored + new, width), np.uint64)
    array[stored:, 0] += np.uint64(2**63 if place == "after" else 0)
    array[stored : stored + 50, :keys] = array[:50, :keys]  # which are replaced
    by_key = [(tuple(row[:keys]), tuple(row)) for row in array.tolist()]
    old, come = dict(by_key[:stored]), dict(by_key[stored:])
    rows = as_rows([*come.values()], width)
    cuts = [0, 0, *range(100, new, 3000), len(rows[0])]
    with undone() as txn:
        pages.fill(txn, [as_rows([*old.values()], width)])
        blocks = [[column[a:b] for column in rows] for a, b in itertools.pairwise(cuts)]
        pages.merge(txn, blocks, new)
        assert content(txn, pages) == sorted((old | come).values())
        sizes = [len(value) for _, value in entries(txn, pages)]
        if new > 300:
            assert sum(sizes) >= 0.93 * LARGEST * (len(sizes) - 1)


def test_a_scan_begins_with_the_page_that_the_key_belongs_to(undone: Any) -> None:
    pages = KINDS[0]

    with undone() as txn:
        assert list(pages.scan(txn)) == []
        assert list(pages.scan(txn, pages.key(3))) == []
        pages.fill(txn, [as_rows([(10 + number * 2**40,) for number in range(2000)], 1)])
        firsts = [int.from_bytes(key, "big") for key, _ in entries(txn, pages)]

        def scanned(*first: int) -> list[int]:
            keys = [pages.key(number) for number in first]
            return [int(rows[0][0]) for rows in pages.scan(txn, *keys)]

        assert scanned() == scanned(0) == scanned(firsts[0]) == scanned(firsts[1] - 1) == firsts
        assert scanned(firsts[1]) == scanned(firsts[2] - 1) == firsts[1:]
        assert scanned(TOP) == firsts[-1:]
        with txn.cursor(pages.name) as cursor:
            assert seek(cursor, pages.key(firsts[1] + 1))
            assert bytes(cursor.key()) == pages.key(firsts[1])


# The bytes of a page


SPANS = [0, 1, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**63, TOP]


@st.composite
def any_rows(draw: st.DrawFn) -> Rows:
    """Up to four columns of any spans, the first one sorted."""
    count = draw(st.integers(1, 40))
    found = []
    for position in range(draw(st.integers(1, 4))):
        span = draw(st.one_of(st.sampled_from(SPANS), st.integers(0, TOP)))
        base = draw(st.one_of(st.sampled_from([0, TOP - span]), st.integers(0, TOP - span)))
        numbers = draw(st.lists(st.integers(base, base + span), min_size=count, max_size=count))
        numbers[0], numbers[-1] = base, base + span if count > 1 else base
        found.append(np.array(sorted(numbers) if position == 0 else numbers, np.uint64))
    return found


@settings(max_examples=examples(100))
@given(any_rows())
def test_columns_come_back_whatever_they_span(rows: Rows) -> None:
    value = summed(pack_rows(rows)[0], 5)
    for data in (value, memoryview(value)):
        again = unpack_rows(data, len(rows), 5)
        assert [column.tolist() for column in again] == [column.tolist() for column in rows]
        assert all(column.dtype == np.uint64 for column in again)
        first = unpack_rows(data, len(rows), 5, 1)
        assert [column.tolist() for column in first] == [rows[0].tolist()]
    for other in {1, 2, 3, 4} - {len(rows)}:
        for some in ((), (1,)):
            with pytest.raises(DamagedError, match="another table"):
                unpack_rows(value, other, 5, *some)


@pytest.mark.parametrize(
    ("span", "width"),
    [
        *[(0, 0), (1, 1), (255, 1), (256, 2), (65_535, 2), (65_536, 3), (2**24 - 1, 3), (2**24, 4)],
        *[(2**32 - 1, 4), (2**32, 5), (2**40, 6), (2**48, 7), (2**56 - 1, 7), (2**56, 8), (TOP, 8)],
    ],
)
@pytest.mark.parametrize("base", [0, 77, TOP])
def test_a_column_is_as_narrow_as_its_span(span: int, width: int, base: int) -> None:
    base = min(base, TOP - span)
    rows = [np.array([base, base + span], np.uint64), np.array([base + span, base], np.uint64)]
    value = summed(pack_rows(rows)[0], 5)
    assert len(value) == 8 + 2 * 8 + 2 * 2 * width
    assert value[6:8] == bytes([width * 17, 0])
    assert [c.tolist() for c in unpack_rows(value, 2, 5)] == [
        [base, base + span],
        [base + span, base],
    ]


def test_the_bytes_of_a_page_stay_what_they_are() -> None:
    """The format of released databases: this must not change."""
    rows = [
        np.array([1000, 1001, 1256], np.uint64),
        np.array([5, 5, 5], np.uint64),
        np.array([7, TOP, 2**32], np.uint64),
    ]
    value = summed(pack_rows(rows)[0], 5)
    assert value[4:] == bytes.fromhex(
        "03 00 02 08"
        "e8 03 00 00 00 00 00 00  05 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00"
        "00 00 01 00 00 01"
        "07 00 00 00 00 00 00 00  ff ff ff ff ff ff ff ff  00 00 00 00 01 00 00 00"
    )
    assert value[:4].hex() == "ae75e3c2"
    rows = [np.array([1, 65_537], np.uint64), np.array([2**24 + 8, 9], np.uint64)]
    value = summed(pack_rows(rows)[0], 5)
    assert value[4:] == bytes.fromhex(
        "02 00 33 00  01 00 00 00 00 00 00 00  09 00 00 00 00 00 00 00"
        "00 00 00 00 00 01  ff ff ff 00 00 00"
    )


@pytest.mark.parametrize("length", [0, 1, 7, 8, 15, -1])
def test_a_page_that_is_cut_is_damaged(length: int) -> None:
    value = summed(pack_rows([np.array([0, 7, 99], np.uint64)] * 2)[0], 5)
    with pytest.raises(DamagedError):
        unpack_rows(value[:length], 2, 5)


@pytest.mark.parametrize(
    "body",
    [
        b"\3\0\x09\0" + bytes(8) + bytes(27),
        b"\xff\xff\x08\0" + bytes(8),
        b"\1\0\1\0",
        # Widths that no column has.
        struct.pack("<HHQQ", 4, 0x19, 0, 0) + bytes(4 * 10),
        struct.pack("<HHQQ", 4, 0xF4, 0, 0) + bytes(4 * 19),
    ],
)
def test_a_right_checksum_over_nonsense_is_damaged_too(body: bytes) -> None:
    with pytest.raises(DamagedError, match="a page can't be read"):
        unpack_rows(summed(bytearray(4) + body, 5), 2 if len(body) > 40 else 1, 5)


def test_a_damaged_page_is_reported_by_whoever_reads_it(tmp_path: Path) -> None:
    pages = KINDS[0]
    with Environment.create(tmp_path / "db", [pages.name]) as env:
        with env.write() as txn:
            pages.fill(txn, [as_rows([(number,) for number in range(10)], 1)])
            (key, value), *_ = entries(txn, pages)
            txn.put(pages.name, key, value[:-1] + bytes([value[-1] ^ 1]))
        with env.read() as reader, pytest.raises(DamagedError, match="checksum of a page"):
            list(pages.scan(reader))
        with env.write() as txn, pytest.raises(DamagedError):
            pages.splice(txn, as_rows([(5,)], 1), pages.empty())


def test_a_full_page_is_halved(undone: Any) -> None:
    pages = KINDS[0]
    fit = (LARGEST - 8 - 8) // 8

    with undone() as txn:
        rows = [(number * (TOP // fit),) for number in range(fit)]
        pages.splice(txn, as_rows(rows, 1), pages.empty())
        (page,) = entries(txn, pages)
        assert LARGEST - 8 < len(page[1]) <= LARGEST
        pages.splice(txn, as_rows([(5,)], 1), pages.empty())
        sizes = [len(value) for _, value in entries(txn, pages)]
        assert len(sizes) == 2
        assert abs(sizes[0] - sizes[1]) <= 8
        assert content(txn, pages) == sorted([*rows, (5,)])
