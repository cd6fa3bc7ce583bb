"""Read texts from files or standard input: whole, or one from each line; gzip by its suffix."""

import contextlib
import gzip
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, cast

from fpdb.errors import InputError

LARGEST_TEXT = 1 << 24
_PIECE = 1 << 20


@dataclass(frozen=True)
class Text:
    """A text, where it came from, and whether bytes that are no UTF-8 had to be replaced."""

    source: str
    text: str
    replaced: bool = False


def read_text(path: str, largest: int = LARGEST_TEXT) -> Text:
    """Read one file, or standard input when the path is "-", as one text."""
    with _open(path) as stream, _named(path):
        return _decode(path, _bounded(_read(stream, largest + 1), largest, path))


def read_lines(path: str, largest: int = LARGEST_TEXT) -> Iterator[Text]:
    """Read a text from each line of a file, or of standard input when the path is "-"."""
    with _open(path) as stream:
        number = 0
        while True:
            number += 1
            source = f"{path}:{number}"
            with _named(path):
                line = stream.readline(largest + 2)
            if not line:
                return
            yield _decode(source, _bounded(line.rstrip(b"\r\n"), largest, source))


def _open(path: str) -> contextlib.AbstractContextManager[IO[bytes]]:
    if path == "-":
        return contextlib.nullcontext(sys.stdin.buffer)
    try:
        opened = gzip.open(path) if path.endswith(".gz") else open(path, "rb")  # noqa: SIM115
    except (OSError, ValueError) as error:  # no file's name has a NUL or half a surrogate pair
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"{path} can't be read: {reason}", hint="name a file, or - for standard input"
        ) from None
    return cast("contextlib.AbstractContextManager[IO[bytes]]", opened)


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Name the file when reading it fails."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is no whole gzip file: {error}") from None
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}") from None


def _read(stream: IO[bytes], size: int) -> bytes:
    """Read so many bytes, or all; one call would set memory aside for bytes that never come."""
    data = bytearray()
    while piece := stream.read(min(size - len(data), _PIECE)):
        data += piece
    return bytes(data)


def _bounded(data: bytes, largest: int, source: str) -> bytes:
    if len(data) > largest:
        raise InputError(
            f"{source} holds more than {largest} bytes in one text",
            hint=f"--max-bytes {4 * largest} allows more; is each text on a line of its own?",
        )
    return data


def _decode(source: str, data: bytes) -> Text:
    try:
        return Text(source, data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return Text(source, data.decode("utf-8-sig", "replace"), replaced=True)
