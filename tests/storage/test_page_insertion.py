"""Rows put between the bytes of a page: the page is what it would be if written anew."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpdb.arrays import Rows
from fpdb.errors import DamagedError
from fpdb.storage.columns import LARGEST, pack_rows, shape_of, unpack_rows, with_rows

TOP = 2**64 - 1


def columns_of(rows: list[tuple[int, ...]]) -> Rows:
    return [np.array(column, np.uint64) for column in zip(*rows, strict=True)]


def page_of(rows: list[tuple[int, ...]]) -> bytes:
    columns = columns_of(rows)
    return pack_rows(columns, shape_of(columns), 3)


SPANS = [0, 255, 2**16 - 1, 2**32 - 1, TOP]


@st.composite
def stored_and_more(draw: st.DrawFn) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Sorted rows with columns of any widths, and more that mostly fit between them."""
    columns = draw(st.integers(1, 3))
    lows = [draw(st.sampled_from([0, 7, 2**40])) for _ in range(columns)]
    spans = [draw(st.sampled_from(SPANS)) for _ in range(columns)]

    def rows(beyond: int) -> st.SearchStrategy[tuple[int, ...]]:
        return st.tuples(
            *(
                st.sampled_from([0, 1, span // 2, span])
                .flatmap(lambda near, span=span: st.integers(max(0, near - 9), min(span, near + 9)))
                .map(lambda number, low=low: min(max(0, low + number + beyond), TOP))
                for low, span in zip(lows, spans, strict=True)
            )
        )

    ends = [tuple(lows), tuple(map(lambda low, span: min(low + span, TOP), lows, spans))]
    old = draw(st.lists(rows(0), max_size=30)) + draw(st.sampled_from([ends, ends[:1]]))
    new = draw(st.lists(rows(draw(st.sampled_from([0, 0, 0, -1, 1]))), min_size=1, max_size=5))
    return sorted(set(old)), sorted(new)


@given(stored_and_more())
def test_what_is_inserted_is_read_and_nothing_is_refused_without_a_reason(
    drawn: tuple[list[tuple[int, ...]], list[tuple[int, ...]]],
) -> None:
    old, new = drawn
    arrays = columns_of(old)
    shape, width = shape_of(arrays), len(arrays)
    grown = with_rows(
        memoryview(page_of(old)), width, 3, [list(column) for column in zip(*new, strict=True)]
    )
    firsts = [row[0] for row in old]
    fits = all(
        base <= number < base + (1 << 8 * size)
        for row in new
        for number, base, size in zip(row, shape.bases, shape.widths, strict=True)
    )
    size = shape.size + sum(shape.widths) * len(new)
    if (
        shape.widths[0] == 0
        or not fits
        or size > LARGEST
        or any(row[0] in firsts or row[0] < firsts[0] for row in new)
    ):
        assert grown is None
        return
    assert grown is not None
    read = [column.tolist() for column in unpack_rows(grown, width, 3)]
    assert sorted(zip(*read, strict=True)) == sorted([*old, *new])
    assert read[0] == sorted(read[0])
    assert len(grown) == size


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
