import math
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpdb.errors import DamagedError, InputError
from fpdb.storage.format import MAX_DEPTH, pack, unpack

LIMIT = 1 << 20
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.binary(max_size=20)
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=20
)


def same_types(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return all(map(same_types, a, b))
    if isinstance(a, dict):
        return all(same_types(a[key], b[key]) for key in a)
    return True


@given(VALUES)
def test_what_is_unpacked_equals_what_was_packed(value: Any) -> None:
    back = unpack(pack(value, "value", LIMIT, binary=True))
    assert back == value
    assert same_types(back, value)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_cannot_say_is_refused(number: float) -> None:
    with pytest.raises(InputError, match=r"meta\[0\] is .*, which JSON can't hold"):
        pack([number], "meta", LIMIT)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ((1, 2), r"meta is of type tuple, expected"),
        ({"a": [1, {2}]}, r"meta\['a'\]\[1\] is of type set"),
        ({"a": {1: 2}}, r"meta\['a'\] has a key of type int, expected str"),
        ([b"raw"], r"meta\[0\] is of type bytes"),
        ([2**64], r"meta\[0\] is an integer of 65 bits"),
        ([-(2**63) - 1], r"meta\[0\] is an integer of 64 bits"),
        (["a\ud800"], r"meta\[0\] has a lone surrogate \(U\+D800\) at position 1"),
        ({"\udfff": 1}, r"a key of meta has a lone surrogate"),
    ],
)
def test_anything_else_is_refused_with_its_place(value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        pack(value, "meta", LIMIT)
    assert caught.value.hint


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InputError, match=f"deeper than {MAX_DEPTH} levels"):
        pack(value, "meta", LIMIT)


def test_depth_ends_where_it_says() -> None:
    value: list[Any] = []
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    assert unpack(pack(value, "meta", LIMIT)) == value
    with pytest.raises(InputError, match="levels"):
        pack([value], "meta", LIMIT)


def test_size_over_the_limit_says_both_sizes() -> None:
    with pytest.raises(InputError, match="meta takes 103 bytes when packed, at most 50"):
        pack(["x" * 100], "meta", 50)
    assert pack("x" * 30, "meta", 31)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgpack.packb(1) + b"\0",
        msgpack.packb([1, 2])[:-1],
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xffab",
        b"\xa1\xff",
        msgpack.packb({1: 2}),
        msgpack.packb(msgpack.ExtType(5, b"abcd")),
        msgpack.packb(msgpack.ExtType(5, b"")),
        msgpack.packb(msgpack.Timestamp(1)),
        b"\x91" * 100_000,
    ],
)
def test_foreign_bytes_are_damage(data: bytes) -> None:
    with pytest.raises(DamagedError, match="meta can't be unpacked"):
        unpack(data, "meta")


@given(st.binary(max_size=60))
def test_random_bytes_are_a_value_or_damage(data: bytes) -> None:
    try:
        value = unpack(data)
    except DamagedError:
        return
    assert value is None or isinstance(value, (bool, int, float, str, bytes, list, dict))
