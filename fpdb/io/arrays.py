"""Read columns of numbers that numpy wrote."""

import io
import sys
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpdb.errors import InputError

_MAGIC = b"\x93NUMPY"
_SUFFIX = ".npy"
# numpy reads as many bytes of a header as it claims to have.
_LARGEST_HEADER = 1 << 14


def is_array(path: str) -> bool:
    """Tell whether a file, or what comes through standard input, is an array that numpy wrote."""
    if path != "-":
        return path.lower().endswith(_SUFFIX)
    stream = sys.stdin.buffer
    return isinstance(stream, io.BufferedReader) and stream.peek(len(_MAGIC)).startswith(_MAGIC)


def _require_header(path: str) -> None:
    if path == "-":
        begin = sys.stdin.buffer.peek(12)[:12] if hasattr(sys.stdin.buffer, "peek") else b""
    else:
        with open(path, "rb") as file:
            begin = file.read(12)
    size = int.from_bytes(begin[8 : 10 if begin[6:7] == b"\x01" else 12], "little")
    if size > _LARGEST_HEADER:
        raise ValueError("a header that no array has")


def read_array(path: str) -> NDArray[Any]:
    """Read an array; one in a file stays there until its parts are needed."""
    try:
        _require_header(path)
        if path == "-":
            found = np.load(io.BytesIO(sys.stdin.buffer.read()), allow_pickle=False)
        else:
            found = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"{path} isn't there", hint="check the path") from None
    except OSError as error:
        raise InputError(
            f"{path} can't be read: {error.strerror}", hint="check the path and its rights"
        ) from None
    except (ValueError, EOFError, OverflowError, MemoryError, SyntaxError, TokenError):
        raise InputError(
            f"{path} can't be read as an array, or is one of objects",
            hint="numpy.save writes such a file from an array of numbers",
        ) from None
    array: NDArray[Any] = found
    if not array.ndim:
        raise InputError(
            f"{path} holds a single value, expected an array", hint="numpy.save(path, array)"
        )
    return array
