"""Files in the portable form: told by how they begin, and opened whatever packs them."""

import contextlib
import io
import os
import stat
from collections.abc import Iterator
from typing import IO

from fpdb.errors import InputError
from fpdb.io import streams
from fpdb.io.streams import Progress, StreamError

# The first field of the first line, and so how it begins, as no record of another tool does.
PORTABLE = "fpdb_portable"
BEGINNING = f'{{"{PORTABLE}":'.encode()
_MARK = b"\xef\xbb\xbf"
# So many bytes tell how a file is packed, and so many hold a block of zstd, whatever is in it.
_MAGIC, _ENOUGH = 4, 1 << 18


def is_portable(path: str) -> bool:
    """Tell whether a file, or standard input, begins as the portable form does.

    Standard input is given again to whoever opens it next. A named pipe isn't opened: it can be
    only once.
    """
    try:
        if path == "-":
            first = streams.beginning_of_input(lambda found: _verdict(found) is not None)
        elif stat.S_ISREG(os.stat(path).st_mode):
            with open(path, "rb") as file:
                first = file.read(io.DEFAULT_BUFFER_SIZE)
                if _verdict(first) is None:
                    first += file.read(_ENOUGH)
        else:
            return False
    except (OSError, ValueError, StreamError):
        return False  # whoever reads it says why
    return _verdict(first) is True


def _verdict(first: bytes) -> bool | None:
    """Tell whether a file that begins so has the portable form; None if only more of it tells."""
    packing = streams.packing_of(first)
    begun = _unpacked(first, packing) if packing else first
    if begun.removeprefix(_MARK).startswith(BEGINNING):
        return True
    open_yet = (_MARK + BEGINNING).startswith(begun) or BEGINNING.startswith(begun)
    few = len(first) < _MAGIC or (open_yet and len(first) < _ENOUGH)
    return None if few else False


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
