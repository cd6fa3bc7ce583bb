"""Rows put between the bytes of a page: the page is what it would be if written anew."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpdb.arrays import Rows
from fpdb.errors import DamagedError
from fpdb.storage.columns import LARGEST, pack_rows, shape_of, unpack_rows, with_rows

TOP = 2**64 - 1
NUMBERS = st.integers(0, 40) | st.integers(2**40, 2**40 + 9) | st.integers(0, TOP)
IDS = st.integers(0, 9) | st.integers(0, 2**20) | st.integers(0, TOP)


def columns_of(rows: list[tuple[int, ...]]) -> Rows:
    return [np.array(column, np.uint64) for column in zip(*rows, strict=True)]


def page_of(rows: list[tuple[int, ...]]) -> bytes:
    columns = columns_of(rows)
    return pack_rows(columns, shape_of(columns), 3)


@given(
    st.sets(NUMBERS, min_size=1, max_size=60),
    st.sets(NUMBERS, min_size=1, max_size=5),
    st.integers(1, 3),
    st.data(),
)
def test_what_is_inserted_is_read(
    stored: set[int], more: set[int], width: int, data: st.DataObject
) -> None:
    def row(number: int) -> tuple[int, ...]:
        return (number, *(data.draw(IDS) for _ in range(width - 1)))

    old, new = [row(number) for number in sorted(stored)], [row(number) for number in sorted(more)]
    page = page_of(old)
    grown = with_rows(
        memoryview(page), width, 3, [list(column) for column in zip(*new, strict=True)]
    )
    if grown is None:
        wide = max(stored) - min(stored) >= 2**32
        assert width > 1 or not wide or stored & more or min(more) < min(stored)
        return
    found = zip(*(column.tolist() for column in unpack_rows(grown, width, 3)), strict=True)
    assert list(found) == sorted([*old, *new])
    assert len(grown) <= LARGEST


def test_a_full_page_takes_no_more() -> None:
    largest = (LARGEST - 16) // 8
    rows = [(number << 54,) for number in range(largest)]
    full, roomy = page_of(rows), page_of(rows[:-1])
    assert len(roomy) + 8 == len(full) == 16 + 8 * largest
    assert with_rows(memoryview(full), 1, 3, [[7]]) is None
    assert with_rows(memoryview(roomy), 1, 3, [[7, 8]]) is None
    assert len(with_rows(memoryview(roomy), 1, 3, [[7]]) or b"") == len(full)


@pytest.mark.parametrize("cut", [0, 5, 30, 100])
def test_a_damaged_page_isnt_continued(cut: int) -> None:
    page = bytearray(page_of([(number << 55,) for number in range(100)]))
    page[cut] ^= 4
    with pytest.raises(DamagedError):
        with_rows(memoryview(page), 1, 3, [[7]])
    with pytest.raises(DamagedError):
        with_rows(memoryview(page)[:cut], 1, 3, [[7]])
