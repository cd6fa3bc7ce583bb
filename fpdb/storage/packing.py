"""Values as bytes: strict msgpack for what JSON can say, with errors that name the place."""

import math
from typing import Any, NoReturn

import msgpack

from fpdb.errors import DamagedError, InputError

MAX_DEPTH = 32
# An empty list takes one byte here and 64 in memory: what is unpacked holds no more lists and maps
# than metadata can, and no longer ones than a recipe has words.
_MOST_CONTAINERS = 1 << 16
_MOST_ENTRIES = 1 << 22
MIN_INTEGER, MAX_INTEGER = -(2**63), 2**64 - 1


def pack(value: Any, what: str, limit: int, *, binary: bool = False) -> bytes:
    """Return the bytes of a JSON-like value; `what` names it in errors, `limit` is in bytes.

    Only `None`, `bool`, `int` of 64 bits, `float`, `str`, `list` and `dict` with `str` keys pass
    (and `bytes`, if `binary` allows it), so that what is unpacked equals what was packed.
    """
    _require_plain(value, what, MAX_DEPTH, binary=binary)
    packed: bytes = msgpack.packb(value)
    if len(packed) > limit:
        raise InputError(
            f"{what} takes {len(packed):,} bytes when packed, at most {limit:,} are allowed",
            hint="keep large values elsewhere, and store a reference to them",
        )
    return packed


def unpack(data: bytes | memoryview, what: str = "a stored value") -> Any:
    """Return the value that `pack` turned into these bytes, and nothing of any other kind."""
    containers = entries = 0

    def counted(container: Any) -> Any:
        nonlocal containers, entries
        containers += 1
        entries += len(container)
        if containers > _MOST_CONTAINERS or entries > _MOST_ENTRIES:
            raise ValueError("it holds too many values")
        return container

    try:
        return msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            list_hook=counted,
            object_hook=counted,
            max_array_len=min(len(data), _MOST_ENTRIES),
            max_map_len=min(len(data), _MOST_ENTRIES),
            max_ext_len=0,
            ext_hook=_refuse_extension,
        )
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise DamagedError(
            f"{what} can't be unpacked: {str(error) or 'it is nested too deeply'}",
            hint="run `fpdb check` on the database",
        ) from error


def _refuse_extension(code: int, _: bytes) -> NoReturn:
    raise ValueError(f"extension type {code} isn't allowed")


def _require_plain(value: Any, where: str, depth: int, *, binary: bool) -> None:
    match value:
        case None | bool():
            return
        case int() | float():
            _require_number(value, where)
        case str():
            _require_encodable(value, where)
        case bytes() if binary:
            return
        case list() | dict() if depth == 0:
            raise InputError(
                f"{where} lies deeper than {MAX_DEPTH} levels", hint="flatten the value"
            )
        case list():
            for position, item in enumerate(value):
                _require_plain(item, f"{where}[{position}]", depth - 1, binary=binary)
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise InputError(
                        f"{where} has a key of type {type(key).__name__}, expected str",
                        hint="turn the keys into text",
                    )
                _require_encodable(key, f"a key of {where}")
                _require_plain(item, f"{where}[{key!r}]", depth - 1, binary=binary)
        case _:
            raise InputError(
                f"{where} is of type {type(value).__name__}, "
                f"expected None, bool, int, float, str, {'bytes, ' if binary else ''}list or dict",
                hint="turn it into one of these first; a tuple into a list, a date into text",
            )


def _require_number(value: float, where: str) -> None:
    if isinstance(value, int):
        if not MIN_INTEGER <= value <= MAX_INTEGER:
            raise InputError(
                f"{where} is an integer of {value.bit_length()} bits, at most 64 fit",
                hint="store larger numbers as text",
            )
    elif not math.isfinite(value):
        raise InputError(f"{where} is {value}, which JSON can't say", hint="store null, or a text")


def _require_encodable(text: str, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{where} has a lone surrogate (U+{ord(text[error.start]):04X}) "
            f"at position {error.start}, which no UTF-8 can hold",
            hint='decode the source with errors="replace"',
        ) from None
