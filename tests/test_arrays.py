"""The small helpers for columns of numbers, against plain Python."""

from itertools import combinations, groupby

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fpdb.arrays import (
    among,
    differs,
    following,
    gathered,
    in_runs,
    joined,
    ranked,
    run_starts,
    spans,
    unique,
)
from fpdb.tables.bits import as_words, of_words

numbers = st.lists(st.integers(0, 5), max_size=30)


def _column(values: list[int]) -> np.ndarray:
    return np.array(values, np.uint64)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=30))
def test_rows_that_differ_begin_runs(rows: list[tuple[int, int]]) -> None:
    columns = [_column([row[at] for row in rows]) for at in range(2)]
    runs = [len(list(run)) for _, run in groupby(rows)]
    starts = [sum(runs[:at]) for at in range(len(runs))]
    assert run_starts(*columns).tolist() == starts
    assert differs(*columns).nonzero()[0].tolist() == starts


@given(numbers, numbers)
def test_sets_of_numbers(values: list[int], known: list[int]) -> None:
    assert unique(_column(values)).tolist() == sorted(set(values))
    marks = among(_column(values), unique(_column(known)))
    assert marks.tolist() == [value in known for value in values]


@given(numbers)
def test_rows_meet_those_after_them_in_their_run(values: list[int]) -> None:
    values.sort()
    after, sizes = in_runs(_column(values))
    assert sizes.tolist() == [values.count(value) for value in values]
    pairs = [
        pair
        for pair in combinations(range(len(values)), 2)
        if len({values[at] for at in pair}) == 1
    ]
    assert [*zip(*(column.tolist() for column in following(after)), strict=True)] == pairs


# Those of small numbers fit into one word together, others don't.
words = st.sampled_from([0, 1, 2, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1])


@given(st.integers(1, 3).flatmap(lambda width: st.lists(st.tuples(*[words] * width), min_size=1)))
def test_ranks_are_places_among_the_distinct_rows(rows: list[tuple[int, ...]]) -> None:
    distinct, places = ranked([_column(list(column)) for column in zip(*rows, strict=True)])
    expected = sorted(set(rows))
    assert [*zip(*(column.tolist() for column in distinct), strict=True)] == expected
    assert [expected[place] for place in places.tolist()] == rows


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 4)), max_size=10))
def test_spans_are_the_places_of_runs(runs: list[tuple[int, int]]) -> None:
    starts, counts = (np.array([run[at] for run in runs], np.int64) for at in range(2))
    expected = [start + step for start, count in runs for step in range(count)]
    assert spans(starts, counts).tolist() == expected


@given(st.lists(numbers, max_size=8), st.integers(1, 20))
def test_small_blocks_are_gathered_into_larger_ones(parts: list[list[int]], least: int) -> None:
    blocks = list(gathered(([_column(part), _column(part)] for part in parts), least))
    assert all(len(block[0]) >= least for block in blocks[:-1])
    rows = [number for part in parts for number in part]
    columns = joined(blocks) if blocks else [_column([])] * 2
    assert [column.tolist() for column in columns] == [rows, rows]


def test_fingerprints_are_columns_of_words() -> None:
    narrow = _column([3, 1, 2])
    wide = np.arange(6, dtype=np.uint64).reshape(3, 2)
    assert as_words(narrow) == [narrow]
    assert [word.tolist() for word in as_words(wide)] == [[0, 2, 4], [1, 3, 5]]
    for array in (narrow, wide):
        assert of_words(as_words(array)).tolist() == array.tolist()
