"""Read columns of numbers that numpy wrote."""

import io
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpdb.errors import InputError

_MAGIC = b"\x93NUMPY"
_SUFFIX = ".npy"


def is_array(path: str) -> bool:
    """Tell whether a file, or what comes through standard input, is an array that numpy wrote."""
    if path != "-":
        return path.lower().endswith(_SUFFIX)
    stream = sys.stdin.buffer
    return isinstance(stream, io.BufferedReader) and stream.peek(len(_MAGIC)).startswith(_MAGIC)


def read_array(path: str) -> NDArray[Any]:
    """Read an array; one in a file stays there until its parts are needed."""
    try:
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
    except (ValueError, EOFError):
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
