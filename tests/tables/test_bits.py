"""Permutations and distances, against oracles that look at one bit at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpdb.errors import PlanError
from fpdb.tables.bits import Permutation, distances, distinct, order, to_array, to_ints

WIDTHS = (32, 64, 128)


def permuted_bit_by_bit(permutation: Permutation, fingerprint: int) -> int:
    digits = format(fingerprint, f"0{permutation.bits}b")
    return int("".join(digits[start : start + length] for start, length in permutation.blocks), 2)


@st.composite
def permutations(draw: st.DrawFn, widths: tuple[int, ...] = WIDTHS) -> Permutation:
    bits = draw(st.sampled_from(widths))
    cuts = sorted(draw(st.sets(st.integers(1, bits - 1), max_size=8)))
    blocks = [(low, high - low) for low, high in zip([0, *cuts], [*cuts, bits], strict=True)]
    return Permutation(bits, tuple(draw(st.permutations(blocks))))


def fingerprints(bits: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, 2**bits - 1), max_size=20)


@given(permutations(), st.data())
def test_scalars_and_arrays_agree_with_the_oracle(
    permutation: Permutation, data: st.DataObject
) -> None:
    values = data.draw(fingerprints(permutation.bits))
    array = to_array(values, permutation.bits)
    expected = [permuted_bit_by_bit(permutation, value) for value in values]
    assert [permutation.apply_one(value) for value in values] == expected
    assert to_ints(permutation.apply(array)) == expected
    assert [permutation.inverse.apply_one(value) for value in expected] == values
    assert to_ints(permutation.inverse.apply(permutation.apply(array))) == values
    assert to_ints(array) == values


def test_the_identity_costs_no_copy() -> None:
    array = to_array([1, 2, 3], 64)
    permutation = Permutation(64, ((0, 16), (16, 48)))
    assert permutation.identity
    assert permutation.apply(array) is array
    assert permutation.inverse.apply(array) is array
    assert not Permutation(64, ((16, 48), (0, 16))).identity


@pytest.mark.parametrize(
    ("bits", "blocks"),
    [
        (64, ()),
        (64, ((0, 63),)),
        (64, ((0, 65),)),
        (64, ((0, 32), (31, 33))),
        (64, ((0, 32), (33, 31))),
        (64, ((0, 32), (0, 32))),
        (64, ((0, 64), (64, 0))),
        (64, ((-1, 65),)),
        (0, ()),
        (129, ((0, 129),)),
    ],
)
def test_blocks_must_tile(bits: int, blocks: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(PlanError, match="tile") as caught:
        Permutation(bits, blocks)
    assert caught.value.hint


@given(st.sampled_from(WIDTHS), st.data())
def test_distances_count_differing_bits(bits: int, data: st.DataObject) -> None:
    pairs = data.draw(st.lists(st.tuples(*[st.integers(0, 2**bits - 1)] * 2), max_size=10))
    a, b = (to_array([pair[side] for pair in pairs], bits) for side in (0, 1))
    assert distances(a, b, bits).tolist() == [(x ^ y).bit_count() for x, y in pairs]
    square = distances(a[:, np.newaxis], b[np.newaxis], bits)
    assert square.tolist() == [[(x ^ y).bit_count() for _, y in pairs] for x, _ in pairs]


@given(st.sampled_from(WIDTHS), st.data())
def test_order_is_numeric_order(bits: int, data: st.DataObject) -> None:
    near = st.integers(0, 3) | st.integers(2**bits - 3, 2**bits - 1) | st.integers(0, 2**bits - 1)
    values = data.draw(st.lists(near, max_size=20))
    ids = data.draw(st.permutations(range(len(values))))
    array = to_array(values, bits)
    assert array.shape == ((len(values), 2) if bits == 128 else (len(values),))
    assert to_ints(array[order(array)]) == sorted(values)
    assert to_ints(distinct(array)) == sorted(set(values))
    rows = order(array, np.array(ids, dtype=np.uint64)).tolist()
    assert [(values[row], ids[row]) for row in rows] == sorted(zip(values, ids, strict=True))
    # Without ties, equal ones stay as they came.
    assert order(array).tolist() == sorted(range(len(values)), key=values.__getitem__)
