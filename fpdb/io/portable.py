"""Files in the portable form: told by how they begin, and opened whatever packs them."""

import contextlib
import io
import os
import stat
import sys
from collections.abc import Iterator
from typing import IO

from fpdb.errors import InputError
from fpdb.io import streams
from fpdb.io.streams import Progress, StreamError

# The first field of the first line, and so how it begins, as no record of another tool does.
PORTABLE = "fpdb_portable"
BEGINNING = f'{{"{PORTABLE}":'.encode()
_MARK = b"\xef\xbb\xbf"


def is_portable(path: str) -> bool:
    """Tell whether a file, or standard input, begins as the portable form does.

    Standard input is looked at and not read. A named pipe isn't opened: it can be only once.
    """
    try:
        first = _first_bytes(path)
        packing = streams.packing_of(first)
        if packing:
            first = _unpacked(first, packing)
    except (OSError, ValueError, StreamError):
        return False  # whoever reads it says why
    return first.removeprefix(_MARK).startswith(BEGINNING)


def _first_bytes(path: str) -> bytes:
    if path != "-":
        if not stat.S_ISREG(os.stat(path).st_mode):
            return b""
        with open(path, "rb") as file:
            return file.read(io.DEFAULT_BUFFER_SIZE)
    stream = getattr(sys.stdin, "buffer", None)
    if isinstance(stream, io.BytesIO):
        return bytes(stream.getbuffer()[stream.tell() :])
    return stream.peek() if isinstance(stream, io.BufferedReader) else b""


def _unpacked(first: bytes, packing: streams.Packing) -> bytes:
    """Unpack as much of some first bytes as tells."""
    unpacker, failure = packing.start()
    found = b""
    for start in range(0, len(first), packing.piece):
        try:
            found += unpacker.decompress(first[start : start + packing.piece])
        except failure:
            break
        if len(found) >= len(_MARK + BEGINNING) or unpacker.eof:
            break
    return found


@contextlib.contextmanager
def portable_file(path: str, progress: Progress | None = None) -> Iterator[IO[bytes]]:
    """Open a file, or standard input, unpacked; what can't be read is an `InputError`."""
    try:
        with streams.opened(path, progress) as stream:
            yield stream
    except StreamError as error:
        raise InputError(f"{path} {error}", hint=error.hint or "copy it again") from None
