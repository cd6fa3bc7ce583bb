"""Columns hold what was added to them, in memory or in files, wherever there is room."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from fpdb.joins.columns import GrowingColumn, Room
from fpdb.scratch import scratch_folder


@given(
    sizes=st.lists(st.integers(0, 9000), max_size=8),
    memory=st.sampled_from([0, 100_000, 1 << 24]),
    seen=st.booleans(),
)
@settings(max_examples=examples(100), deadline=None)
def test_a_column_has_the_rows_that_were_added(sizes, memory, seen):
    """Also where it can't grow in its place, because somebody sees the rows."""
    views, total = [], sum(sizes)
    with scratch_folder() as scratch:
        column = GrowingColumn(Room(scratch, memory), np.int64, 2)
        for start, size in zip(np.cumsum([0, *sizes]), sizes, strict=False):
            column.add(np.arange(2 * start, 2 * (start + size)).reshape(-1, 2))
            if seen:
                views.append(column.values)
        if column.in_file:
            column.expect(np.arange(total))
        expected = np.arange(2 * total).reshape(-1, 2)
        assert (column.values == expected).all()
        assert all((view == expected[: len(view)]).all() for view in views)
        del column, views


def test_columns_that_are_searched_stay_in_memory_when_others_move_to_files():
    rows = np.ones(20_000, np.int64)
    with scratch_folder() as scratch:
        room = Room(scratch, 10 * rows.nbytes)
        searched = GrowingColumn(room, np.int64, searched=True)
        others = [GrowingColumn(room, np.int64) for _ in range(8)]
        for column in others:
            column.add(rows)
        assert 0 < sum(column.in_file for column in others) < len(others)
        searched.add(np.ones(2 * len(rows), np.int64))
        assert not searched.in_file
        del others, searched, column
