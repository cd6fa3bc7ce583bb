"""The bytes of files and of standard input: opened, decompressed, within bounds, cut into lines."""

import contextlib
import functools
import importlib
import io
import itertools
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import IO, Any, cast

import numpy as np

from fpdb import kernels
from fpdb.arrays import Places
from fpdb.errors import InputError, MissingExtraError
from fpdb.io.encodings import UTF8, as_utf8, few_replaced, forced, is_utf8, is_utf16
from fpdb.progress import announce

_CHUNK = 1 << 18
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# How files begin that aren't text, but may lack NULs there, with their cures.
_MAGIC = {
    b"%PDF-": "is a PDF: give its name the suffix .pdf",
    b"PK\x03\x04": "is an archive: Word's are read as .docx, tables of Excel as CSV",
    b"\xd0\xcf\x11\xe0": "is a document of an old Word or Excel: save it as .docx, text or CSV",
    b"\x89PNG": "is a picture",
    b"\xff\xd8\xff": "is a picture",
    b"GIF8": "is a picture",
}
# The bytes in which NULs are looked for.
BEGINNING = 8192
_LONG_LINE = 100
# A byte order mark and a carriage return are no part of a line.
UNCOUNTED = 4
[_LINE_FEED] = b"\n"

# A compressed file may unpack to this many bytes and, beyond these, to this many times its size;
# and to this much white space in a row, as part of which an empty member or frame counts.
_UNPACKED, _MOST_TIMES = 1 << 23, 10_000
_MOST_BLANK, _MEMBER = 1 << 20, 32
# The memory that xz may take; zstd has the same limit of its own.
_WINDOW = 1 << 27

# The formats of files, by their suffixes.
SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".tsv": "tsv",
    ".csv": "csv",
    ".parquet": "parquet",
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".docx": "docx",
    ".odt": "odt",
    ".pdf": "pdf",
    ".warc": "warc",
    ".wacz": "wacz",
}

# What makes a file that can be read of one that can't.
CURES = {
    ".arc": "warcio recompress makes a WARC file of it",
    ".doc": "save it as .docx, or as text",
    ".rtf": "save it as .docx, or as text",
    ".xls": "save it as CSV",
    ".xlsx": "save it as CSV",
    ".arrow": "save it as Parquet",
    ".feather": "save it as Parquet",
}

Line = tuple[int, "str | TooLong", bool]
NOT_DECODED = "holds bytes that don't fit its encoding; encoding names another"


def ignore(*_: object) -> None:
    """Take no notice."""


def announce_encoding(path: str, names: Sequence[str]) -> None:
    """Say in which encoding a file is read, or in which ones it may be."""
    if len(names) > 1:
        fits = ", ".join(names[:3])
        announce(f"{path}: isn't UTF-8, but fits {fits}; encoding names one")
    else:
        announce(f"{path}: read as {names[0]}")


@dataclass(frozen=True)
class Watch:
    """What is called while files are read.

    - `progress`: with the number of bytes, as they are in the file, since the last call
    - `tell`: with the path of a file, and its encoding, if it was found and isn't UTF-8; or with
      several that are likely
    - `known`: whether the record of an archive with a key and metadata is stored, and so isn't read
    - `passed`: with the reason why one holds no page: its kind, "status" or "type"
    - `leave_out`: with the path of a file in a directory that isn't text, and the reason
    - `stopped`: whether nobody waits for pages any more, since a part of them would take seconds
    """

    progress: Callable[[int], object] = ignore
    tell: Callable[[str, Sequence[str]], object] = announce_encoding
    known: Callable[[str, Mapping[str, Any]], object] = ignore
    passed: Callable[[str], object] = ignore
    leave_out: Callable[[str, str], object] = ignore
    stopped: Callable[[], object] = ignore


UNWATCHED = Watch()


class StreamError(Exception):
    """A stream that can't be opened, or breaks off; the caller names the file."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class TooLong:
    """A line above the limit; its double quotes decide whether a record of CSV goes on."""

    quotes: int


@dataclass(frozen=True)
class Packing:
    """A way of compressing, which a file's suffix shows, or the first bytes of standard input.

    Pieces of `piece` bytes are decompressed at a time, so that a bomb gains some megabytes and no
    more: 4 bytes of zstd become up to 128 KiB, a byte of gzip up to 1,032, one of xz up to 7,000,
    and 40 bytes of bzip2 up to 46 MB.
    """

    name: str
    suffix: str
    magic: re.Pattern[bytes]  # with at most 10 bytes, with which no text begins
    piece: int
    # These make a file that is compressed into another; and an object that decompresses one member
    # or frame, with the error that it raises.
    packer: Callable[[IO[bytes]], contextlib.AbstractContextManager[Any]]
    unpacker: Callable[[], tuple[Any, type[Exception]]]


def _gzip_packer(file: IO[bytes]) -> contextlib.AbstractContextManager[Any]:
    import gzip  # which only an export needs

    return gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6)


def _gzip_unpacker() -> tuple[Any, type[Exception]]:
    return zlib.decompressobj(wbits=31), zlib.error


def _xz_unpacker() -> tuple[Any, type[Exception]]:
    import lzma

    return lzma.LZMADecompressor(lzma.FORMAT_XZ, _WINDOW), lzma.LZMAError


def _packer(module: str) -> Callable[[IO[bytes]], Any]:
    return lambda file: importlib.import_module(module).open(file, "wb")


def _bzip2_unpacker() -> tuple[Any, type[Exception]]:
    import bz2

    return bz2.BZ2Decompressor(), OSError


def _zstd_packer(file: IO[bytes]) -> Any:
    return _zstandard().ZstdCompressor().stream_writer(file, closefd=False)


def zstd_unpacker(dictionary: bytes = b"") -> tuple[Any, type[Exception]]:
    return _zstd_reader(dictionary).decompressobj(), _zstandard().ZstdError


@functools.cache
def _zstd_reader(dictionary: bytes) -> Any:
    zstandard = _zstandard()
    known = zstandard.ZstdCompressionDict(dictionary) if dictionary else None
    return zstandard.ZstdDecompressor(dict_data=known)


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        raise MissingExtraError(
            "zstd is read and written by the package zstandard, which isn't installed",
            hint="pip install 'fpdb-store[zstd]'",
        ) from None
    return zstandard


# What follows the level, in ASCII, is the mark of a block, or that of an empty file.
_BZIP2 = re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)")
ZSTD = Packing("zstd", ".zst", re.compile(rb"\x28\xb5\x2f\xfd"), 256, _zstd_packer, zstd_unpacker)
_PACKINGS = (
    Packing("gzip", ".gz", re.compile(rb"\x1f\x8b\x08"), 4096, _gzip_packer, _gzip_unpacker),
    Packing("xz", ".xz", re.compile(rb"\xfd7zXZ\0"), 256, _packer("lzma"), _xz_unpacker),
    Packing("bzip2", ".bz2", _BZIP2, 32, _packer("bz2"), _bzip2_unpacker),
    ZSTD,
)


def packed(file: IO[bytes], path: str) -> contextlib.AbstractContextManager[Any]:
    """Return a file that is compressed into a file for a block, as the suffix of its path says."""
    packing = _packing(path)
    return packing.packer(file) if packing else contextlib.nullcontext(file)


def unpacked_name(path: str) -> str:
    """Drop the suffix of a compressed file."""
    packing = _packing(path)
    return path[: -len(packing.suffix)] if packing else path


def suffix_of(path: str) -> str:
    """Return the suffix that says the format of a file, which may be compressed."""
    return PurePath(unpacked_name(path)).suffix.lower()


def packing_of(first: bytes) -> Packing | None:
    """Return how a file is compressed, by its first bytes."""
    return next((known for known in _PACKINGS if known.magic.match(first)), None)


def check_file(path: str) -> None:
    """Raise InputError at once if a file can't be opened, without opening it.

    A named pipe that is opened and closed again would lose its writer.
    """
    if path == "-":
        return
    with named(path), explained():
        os.stat(path)
        if not os.access(path, os.R_OK):
            raise StreamError("can't be read: Permission denied")
    if packing := _packing(path):
        packing.unpacker()


def opened(path: str) -> contextlib.AbstractContextManager[io.BufferedReader]:
    """Open a file to read its bytes, or take standard input ("-")."""
    if path == "-":
        if sys.stdin is None:
            raise StreamError("can't be read: standard input is closed")
        return contextlib.nullcontext(cast("io.BufferedReader", sys.stdin.buffer))
    with explained():
        return open(path, "rb")


def _raw_chunks(path: str, watch: Watch = UNWATCHED) -> Iterator[bytes]:
    """Yield the bytes of a file, or of standard input ("-"), as they are there."""
    with opened(path) as file:
        while True:
            with explained():
                # What is there is enough: the other end may be a person, or a slow crawler.
                chunk = file.read1(_CHUNK)
            if not chunk:
                return
            watch.progress(len(chunk))
            yield chunk


def saved(path: str, place: str) -> str:
    """Save the bytes of a pipe, or of standard input ("-"), as they come, to a new file.

    Return its path, whose suffix shows how it is packed.
    """
    data = _raw_chunks(path)
    first = next(data, b"")
    packing = packing_of(first)
    place += packing.suffix if packing else ""
    with open(place, "wb") as file:
        file.writelines(itertools.chain([first], data))
    return place


def chunks(path: str, watch: Watch = UNWATCHED) -> Iterator[bytes]:
    """Yield the bytes of a file, or of standard input ("-"), decompressed, or raise StreamError."""
    data = _raw_chunks(path, watch)
    packing = _packing(path)
    if path == "-":
        first = next(data, b"")
        packing = packing_of(first)
        data = itertools.chain([first], data) if first else data
    return unpacked(data, packing)


@contextlib.contextmanager
def named(path: str, hint: str = "") -> Iterator[None]:
    """Turn a StreamError into an InputError that names the file."""
    try:
        yield
    except StreamError as error:
        raise InputError(f"{path} {error}", hint=error.hint or hint) from None


def line_ends(data: bytes) -> Places:
    """Return where lines end, after their line feeds."""
    # Among short lines, numpy is as fast.
    if kernels.enabled and data.count(b"\n", 0, BEGINNING) < BEGINNING // _LONG_LINE:
        return np.frombuffer(kernels.lines.line_ends(data), np.int64)
    ends: Places = np.flatnonzero(np.frombuffer(data, np.uint8) == _LINE_FEED) + 1
    return ends


def raw_lines(
    chunks: Iterable[bytes], largest: int, *, begun: bool = False
) -> Iterator[bytes | TooLong]:
    """Cut bytes into lines, without line feeds, as they come; of too long ones, a mark is left.

    A file that has `begun` before these bytes has no byte order mark in them.
    """
    # What is there of a line, and the quotes of one that is too long already.
    held, quotes = bytearray(), -1

    def checked(line: bytes) -> bytes | TooLong:
        too_long = len(line.removesuffix(b"\r")) > largest
        return TooLong(line.count(b'"')) if too_long else line

    def ended() -> bytes | TooLong:
        if quotes >= 0:
            return TooLong(quotes + held.count(b'"'))
        return checked(bytes(held) if begun else bytes(held).removeprefix(_BYTE_ORDER_MARK))

    for chunk in chunks:
        first, *lines = chunk.split(b"\n")
        held += first
        if lines:
            yield ended()
            held, quotes, begun = bytearray(lines.pop()), -1, True
            yield from lines if max(map(len, lines), default=0) <= largest else map(checked, lines)
        if quotes >= 0 or len(held) > largest + UNCOUNTED:
            quotes = max(quotes, 0) + held.count(b'"')
            held.clear()
    if held or quotes >= 0:
        yield ended()


def decoded(raw: Iterable[bytes | TooLong], first: int = 1) -> Iterator[Line]:
    """Decode lines, number them, and yield whether bytes of each were replaced."""
    for number, line in enumerate(raw, first):
        if isinstance(line, TooLong):
            yield number, line, False
        else:
            yield number, *decode_line(line)


def text_chunks(path: str, encoding: str | None, watch: Watch) -> Iterator[bytes]:
    """Yield a file of text, decompressed, as UTF-8; raise StreamError if it is none."""
    data = chunks(path, watch)
    first = next(data, b"")
    if reason := _unfit(first):
        raise StreamError(f"isn't text: it {reason}")
    tell = functools.partial(watch.tell, path)
    yield from as_utf8(itertools.chain([first], data), encoding, tell)


def _unfit(first: bytes) -> str:
    """Name the kind of a file that begins so and isn't text, and a cure."""
    if packing := packing_of(first):
        return (
            f"is packed by {packing.name}: unpack it, or give its name the suffix {packing.suffix}"
        )
    return next((why for magic, why in _MAGIC.items() if first.startswith(magic)), "")


def reason_of_binary(first: bytes) -> str:
    """Return why a file that begins so is no text, such as a picture; empty if it may be one."""
    binary = b"\0" in first[:BEGINNING] and not is_utf16(first)
    return _unfit(first) or "has NUL bytes: export it as text or HTML" * binary


def one_text(path: str, data: Iterable[bytes], largest: int) -> tuple[str, bool]:
    """Decode chunks of UTF-8 as one text, and return whether bytes of it were replaced.

    It may end in half a character. Raise StreamError if a file is no text, or too long; a pipe may
    have any characters.
    """
    whole = join_chunks(data, largest)
    if path != "-" and b"\0" in whole[:BEGINNING]:
        raise StreamError("isn't text: it has NUL bytes; export it as text or HTML")
    text = forced(whole, UTF8).removeprefix("\ufeff")
    if text.isascii() and not whole.isascii() and not whole.startswith(_BYTE_ORDER_MARK):
        raise StreamError(NOT_DECODED)  # what is half of a character here may be one of another
    # A file may say U+FFFD itself.
    replaced = "\ufffd" in text and not is_utf8(whole)
    if replaced and not few_replaced(text):
        raise StreamError(NOT_DECODED)
    return text, replaced


def join_chunks(data: Iterable[bytes], largest: int) -> bytes:
    """Join chunks, or raise StreamError if they have more than `largest` bytes."""
    whole = bytearray()
    for chunk in data:
        whole += chunk
        if len(whole) > largest:
            raise too_long(largest)
    return bytes(whole)


def decode_line(data: bytes) -> tuple[str, bool]:
    """Decode UTF-8, and return whether bytes were replaced."""
    try:
        return data.decode(), False
    except UnicodeDecodeError:
        return data.decode(errors="replace"), True


def _packing(path: str) -> Packing | None:
    return next((packing for packing in _PACKINGS if path.lower().endswith(packing.suffix)), None)


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn an error of the system into a StreamError."""
    try:
        yield
    except (OSError, ValueError) as error:  # a ValueError is a path with a NUL
        reason = getattr(error, "strerror", None) or error
        raise StreamError(
            f"can't be read: {reason}", "name a file, or - for standard input"
        ) from None


def too_long(largest: int) -> StreamError:
    """Return the error that a text has more than `largest` bytes."""
    return StreamError(
        f"holds more than {largest} bytes in one text",
        "cut it into parts; is each text on a line of its own?",
    )


def members(data: Iterable[bytes], packing: Packing) -> Iterator[tuple[int, int, bytes]]:
    """Decompress members or frames, one after the other; zeros may fill up the file's end.

    Yield pieces, which may be empty, with where their member begins, and how much was read.
    """
    unpacker, failure = packing.unpacker()
    begun = read = 0
    for chunk in data:
        for start in range(0, len(chunk), packing.piece):
            piece = chunk[start : start + packing.piece]
            read += len(piece)
            while piece:
                if unpacker.eof:
                    if not (piece := piece.lstrip(b"\0")):
                        break
                    unpacker, failure = packing.unpacker()
                    begun = read - len(piece)
                    yield begun, read, b""  # so that an error is known to be in this one
                try:
                    output = unpacker.decompress(piece)
                except failure as error:
                    raise StreamError(f"is no complete {packing.name} file: {error}") from None
                yield begun, read, output
                piece = unpacker.unused_data if unpacker.eof else b""
    if not unpacker.eof:
        raise StreamError(f"is no complete {packing.name} file: it ends too early")


def unpacked(data: Iterable[bytes], packing: Packing | None) -> Iterator[bytes]:
    """Decompress a file, if it is packed.

    A few kilobytes may be made to unpack to white space for minutes: there is a bound to that, and
    to how many times larger a file may become.
    """
    if packing is None:
        yield from data
        return
    size = blank = last = 0
    for begun, read, output in members(data, packing):
        size += len(output)
        blank = 0 if output and not output.isspace() else blank + len(output)
        blank += _MEMBER * (begun != last)
        last = begun
        if blank > _MOST_BLANK:
            raise StreamError("holds too much white space, or too many empty parts")
        if size > _UNPACKED + _MOST_TIMES * read:
            raise StreamError(f"unpacks to more than {_MOST_TIMES:,} times its size")
        if output:
            yield output
