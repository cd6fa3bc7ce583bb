"""Open files and standard input as bytes: unpacked, within bounds, line by line."""

import contextlib
import io
import itertools
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import IO, Protocol
from weakref import WeakKeyDictionary

from fpdb.errors import MissingExtraError

_CHUNK = 1 << 18
# What was read of standard input already, to see what it is.
_beginnings: "WeakKeyDictionary[IO[bytes], bytes]" = WeakKeyDictionary()
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Progress = Callable[[int], object]
# Called with the number of a file before it is read, if that may have to wait for somebody.
Idle = Callable[[int], object]


class StreamError(Exception):
    """A stream can't be opened or breaks off: says why, and leaves naming it to the caller."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class TooLong:
    """Stands for a line above the limit; its double quotes tell CSV whether a record goes on."""

    quotes: int


class Unpacker(Protocol):
    """Unpacks one member or frame, as the objects of zlib and zstandard do."""

    @property
    def eof(self) -> bool:
        """Whether the end of the member was reached."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What was given beyond that end."""
        ...

    def decompress(self, data: bytes, /) -> bytes:
        """Take some bytes, and give what they hold."""
        ...


def _gzip() -> tuple[Unpacker, type[Exception]]:
    return zlib.decompressobj(wbits=31), zlib.error


def _zstd() -> tuple[Unpacker, type[Exception]]:
    try:
        import zstandard
    except ImportError:
        raise MissingExtraError(
            "zstd is read by the package zstandard, which isn't installed",
            hint="pip install 'fpdb[zstd]'",
        ) from None
    return zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError


@dataclass(frozen=True)
class Packing:
    """A way of compressing, told by a file's suffix or, on standard input, by its first bytes.

    So few bytes are unpacked at a time that a bomb gains a few megabytes and no more: 4 bytes
    of zstd become up to 128 KiB, and a byte of gzip up to 1,032.
    """

    name: str
    suffix: str
    magic: bytes  # no UTF-8, so that no text starts with it
    piece: int
    start: Callable[[], tuple[Unpacker, type[Exception]]]


_PACKINGS = (
    Packing("gzip", ".gz", b"\x1f\x8b", 1024, _gzip),
    Packing("zstd", ".zst", b"\x28\xb5\x2f\xfd", 256, _zstd),
)


def unpacked_name(path: str) -> str:
    """Drop the suffix of a compressed file."""
    packing = _packing(path)
    return path[: -len(packing.suffix)] if packing else path


def check(path: str) -> None:
    """Raise at once what would keep a file from being opened, without opening it.

    A named pipe that is opened and closed again would lose its writer.
    """
    if path == "-":
        return
    with _explained():
        os.stat(path)
        if not os.access(path, os.R_OK):
            raise StreamError("can't be read: Permission denied")
    if packing := _packing(path):
        packing.start()


@contextlib.contextmanager
def opened(
    path: str, progress: Progress | None = None, idle: Idle | None = None
) -> Iterator["io.BufferedReader[_Stream]"]:
    """Open a file, or standard input when the path is "-", past a byte order mark.

    `progress` is told how many bytes, as they lie in the file, were read since it was last told.
    `idle` is called before each read that may have to wait.
    """
    with _binary(path) as file:
        chunks = _chunks(file, progress, _before(file, idle))
        packing = _packing(path)
        if path == "-":
            first = next(chunks, b"")
            chunks = itertools.chain([first] if first else [], chunks)
            packing = packing_of(first)
        if packing:
            chunks = _unpacked(chunks, packing)
        with io.BufferedReader(_Stream(chunks), _CHUNK) as stream:
            if stream.peek(3).startswith(_BYTE_ORDER_MARK):
                stream.read(3)
            yield stream


@contextlib.contextmanager
def raw(
    path: str, progress: Progress | None = None, idle: Idle | None = None
) -> Iterator[Iterator[bytes]]:
    """Open a file or standard input, and give its bytes as they lie there, chunk by chunk."""
    with _binary(path) as file:
        yield _chunks(file, progress, _before(file, idle))


def beginning_of_input(enough: Callable[[bytes], bool]) -> bytes:
    """Read so much of standard input as is enough; whoever opens it next is given that again."""
    with _binary("-") as file:
        found, read = _beginnings.pop(file, b""), _reading(file)
        try:
            while not enough(found) and (chunk := read(_CHUNK)):
                found += chunk
        finally:
            _beginnings[file] = found
    return found


def packing_of(first: bytes) -> Packing | None:
    """Tell by its first bytes how a file is compressed."""
    return next((known for known in _PACKINGS if first.startswith(known.magic)), None)


def lines(
    stream: IO[bytes], largest: int, *, go_on: bool = True
) -> Iterator[tuple[int, str | TooLong, bool]]:
    """Decode and number the lines, with their ends; says whether bytes had to be replaced."""
    return decoded(raw_lines(stream, largest, go_on=go_on))


def raw_lines(stream: IO[bytes], largest: int, *, go_on: bool = True) -> Iterator[bytes | TooLong]:
    """Give the lines as bytes, with their ends.

    A line of more than so many bytes is passed over in bounded memory; not to go on ends there,
    without waiting for the rest of a line that may never end.
    """
    readline, limit = stream.readline, largest + 2
    while line := readline(limit):
        if len(line) > largest:
            ended = line.endswith(b"\n")
            if len(line.rstrip(b"\r\n")) > largest or (len(line) == limit and not ended):
                quotes = line.count(b'"')
                while go_on and not ended:
                    piece = readline(_CHUNK)
                    quotes += piece.count(b'"')
                    ended = not piece or piece.endswith(b"\n")
                yield TooLong(quotes)
                if not go_on:
                    return
                continue
        yield line


def decoded(
    raw: Iterable[bytes | TooLong], first: int = 1
) -> Iterator[tuple[int, str | TooLong, bool]]:
    """Decode lines, and number them from the first one on."""
    for number, line in enumerate(raw, first):
        if isinstance(line, TooLong):
            yield number, line, False
            continue
        try:
            text, replaced = line.decode(), False
        except UnicodeDecodeError:
            text, replaced = line.decode(errors="replace"), True
        yield number, text, replaced


def whole(stream: IO[bytes], largest: int) -> tuple[str, bool] | None:
    """Read and decode all, unless it is more than so many bytes; says if bytes were replaced."""
    # One call would set memory aside for bytes that never come.
    data = bytearray()
    while piece := stream.read(min(largest + 1 - len(data), _CHUNK)):
        data += piece
    if len(data) > largest:
        return None
    try:
        return data.decode(), False
    except UnicodeDecodeError:
        return data.decode(errors="replace"), True


class _Stream(io.RawIOBase):
    """Chunks of bytes as a file that a buffered reader can read."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self._rest:
            self._rest = memoryview(next(self._chunks, b""))
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def _packing(path: str) -> Packing | None:
    return next((packing for packing in _PACKINGS if path.lower().endswith(packing.suffix)), None)


def _binary(path: str) -> contextlib.AbstractContextManager[IO[bytes]]:
    if path == "-":
        if sys.stdin is None:
            raise StreamError("can't be read: standard input is closed")
        return contextlib.nullcontext(sys.stdin.buffer)
    with _explained():
        return open(path, "rb", buffering=0)


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # a ValueError is a path with a NUL
        reason = getattr(error, "strerror", None) or error
        raise StreamError(
            f"can't be read: {reason}", "name a file, or - for standard input"
        ) from None


def _before(file: IO[bytes], idle: Idle | None) -> Callable[[], object] | None:
    """Make what is to be done before each read; regular files never wait."""
    if idle is None:
        return None
    try:
        number = file.fileno()
    except OSError:  # it is no real file
        return None
    return None if stat.S_ISREG(os.fstat(number).st_mode) else partial(idle, number)


def _reading(file: IO[bytes]) -> Callable[[int], bytes]:
    """Read of standard input what is there: its other end may be a person, or a slow crawler."""
    read: Callable[[int], bytes] = getattr(file, "read1", file.read)
    return read


def _chunks(
    file: IO[bytes], progress: Progress | None, before: Callable[[], object] | None
) -> Iterator[bytes]:
    read = _reading(file)
    if beginning := _beginnings.pop(file, b""):
        if progress:
            progress(len(beginning))
        yield beginning
    while True:
        if before:
            before()
        with _explained():
            chunk = read(_CHUNK)
        if not chunk:
            return
        if progress:
            progress(len(chunk))
        yield chunk


def _unpacked(chunks: Iterator[bytes], packing: Packing) -> Iterator[bytes]:
    """Unpack members or frames, one after the other; zeros may fill up the file's end."""
    unpacker, failure = packing.start()
    for chunk in chunks:
        for start in range(0, len(chunk), packing.piece):
            data = chunk[start : start + packing.piece]
            while data:
                if unpacker.eof:
                    if not (data := data.lstrip(b"\0")):
                        break
                    unpacker, failure = packing.start()
                try:
                    output = unpacker.decompress(data)
                except failure as error:
                    raise StreamError(f"is no whole {packing.name} file: {error}") from None
                if output:
                    yield output
                data = unpacker.unused_data if unpacker.eof else b""
    if not unpacker.eof:
        raise StreamError(f"is no whole {packing.name} file: it ends too early")
