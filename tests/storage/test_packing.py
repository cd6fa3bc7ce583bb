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


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([math.nan], "Out of range float"),
        ([-math.inf], "Out of range float"),
        ({"a": [1, {2}]}, "can not serialize 'set'"),
        ({"a": {1: 2}}, "int is not allowed for map key"),
        ({"a": {None: 2}}, "NoneType is not allowed for map key"),
        ([b"raw"], "bytes is not JSON"),
        ([2**64], "Integer value out of range"),
        ([-(2**63) - 1], "Integer value out of range"),
        (["a\ud800"], "surrogates not allowed"),
        ({"\udfff": 1}, "surrogates not allowed"),
    ],
)
def test_anything_else_is_refused(value: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"meta can't be stored: .*{message}") as caught:
        pack(value, "meta", LIMIT)
    assert caught.value.hint


def test_a_tuple_is_a_list() -> None:
    assert unpack(pack({"a": (1, 2)}, "meta", LIMIT)) == {"a": [1, 2]}


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InputError, match="nested deeper"):
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
