"""Web archives: the pages of a WARC file, read by FastWARC; what is damaged costs only itself."""

import base64
import hashlib
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fpdb.errors import MissingExtraError
from fpdb.io.html import Page, is_html, media_type
from fpdb.io.records import BadRecord, Reading
from fpdb.io.streams import packing_of

# An HTTP head is stored with the body, and chunks have ends of their own.
_HEAD = 1 << 18
# No record that anybody needs is larger; a larger one may have been made never to end.
_LARGEST_RECORD = 1 << 30
_STEP = 1 << 20
_READ = 1 << 16
# The first read of each attempt to find a record is small, because most attempts fail.
_FIRST_READ = 1 << 10
_MOST_ATTEMPTS = 100_000
# What damage may cost in a file: a file may be made so that each record reaches to its end.
_MOST_REREAD = 1 << 28
_ZEROS = 8
_WARC = re.compile(rb"(?:^|(?<=\n))WARC/1\.")
_KEPT = frozenset({"response", "resource", "conversion"})
_REPORTED = frozenset({"revisit", "request", "metadata", "warcinfo"})
_SNIFFED = 1 << 10
_LARGEST_FIELD = 200
# URIs under which tools store notes about their own work.
_OF_TOOLS = ("metadata:", "urn:", "dns:", "whois:")

_MOST_HEADERS = 200
_LARGEST_HEAD = 1 << 16
_STATUS = re.compile(rb"HTTP/\d(?:\.\d)?[ \t]+(\d{3})\b")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]{0,1000})?\r?\n")
_MOST_CODINGS = 2
_PIECE = 1 << 16


@dataclass(frozen=True)
class Passing:
    """What the reader of an archive calls while it reads.

    `known` returns whether the record with a key and metadata is stored; `passed` is called with
    the reason why a record was skipped: its kind, or "status", "type" or "known".
    """

    known: Callable[[str, Mapping[str, Any]], bool]
    passed: Callable[[str], object]


@dataclass(frozen=True)
class Capture:
    """A record of an archive: its offset in the file, its headers in lower case, and its block.

    The block is empty unless the record is a response, a resource or a conversion.
    """

    place: int
    kind: str
    headers: dict[str, str]
    block: bytes = field(repr=False)


@dataclass(frozen=True)
class Broken:
    """An offset at which no record can be read, and why.

    It isn't `exact` if the damage is somewhere after the record at that offset.
    """

    place: int
    reason: str
    exact: bool = True


def read_pages(
    path: str,
    chunks: Iterator[bytes],
    reading: Reading,
    passing: Passing | None,
) -> Iterator[Page | BadRecord]:
    """Yield the pages of an archive: responses with status 200, resources, and conversions."""
    for found in read_captures(chunks, reading.max_bytes + _HEAD):
        source = f"{path}:{found.place}"
        if isinstance(found, Broken):
            yield BadRecord(source, found.reason)
            continue
        try:
            page = _page(found, source, reading)
        except PageError as error:
            yield BadRecord(source, str(error))
        except _Skipped as why:
            if passing:
                passing.passed(str(why))
        else:
            if passing and passing.known(str(page.key), page.meta or {}):
                passing.passed("known")
            else:
                yield page


def read_captures(
    chunks: Iterator[bytes], largest: int, *, largest_record: int = _LARGEST_RECORD
) -> Iterator[Capture | Broken]:
    """Yield the records of an archive; after a damaged one, search for the next.

    A block of more than `largest` bytes makes its record a broken one, and one of more than
    `largest_record` bytes is not read to its end.
    """
    file = _Rereadable(chunks, largest + _READ)
    packing = packing_of(file.peek(4))
    magic = None if packing is None else packing.magic
    failure: Broken | None = None
    for _ in range(_MOST_ATTEMPTS):
        records = _Records(file, largest, largest_record)
        for found in records:
            if failure:
                yield failure
                failure = None
            yield found
        # Damage after a record is placed exactly when the search comes upon its beginning.
        if records.failure and (failure is None or (not failure.exact and records.failure.exact)):
            failure = records.failure
        if not (records.failure and file.search(magic)):
            break
    if failure and (failure.exact or not file.ends_in_zeros):
        yield failure


class _Rereadable:
    """A file that is read once, and remembers some of what was read, to read it again."""

    def __init__(self, chunks: Iterator[bytes], most: int) -> None:
        self._chunks = chunks
        self._most = most
        self._start = 0  # the offset of the first byte that is remembered
        self._data = bytearray()
        self._position = 0
        self._next_read = _FIRST_READ
        self._reread = 0

    def read(self, size: int = -1) -> bytes:
        """Read some bytes; fewer than `size` doesn't mean the end."""
        size = min(size if size >= 0 else _READ, self._next_read)
        self._next_read = _READ
        place = self._position - self._start
        if place == len(self._data):
            if len(self._data) > self._most:
                surplus = len(self._data) - self._most // 2
                self._drop(surplus)
                place -= surplus
            self._data += next(self._chunks, b"")
        found = bytes(self._data[place : place + size])
        self._position += len(found)
        return found

    def peek(self, size: int) -> bytes:
        """Return the next bytes without reading past them."""
        place = self._position - self._start
        while len(self._data) - place < size and (chunk := next(self._chunks, b"")):
            self._data += chunk
        return bytes(self._data[place : place + size])

    def tell(self) -> int:
        """Return the offset in the file."""
        return self._position

    def seek(self, *_: int) -> int:
        """Refuse to seek; FastWARC requires the method, but never calls it to read."""
        raise OSError("this file can't be searched")

    @property
    def ends_in_zeros(self) -> bool:
        """Whether zeros fill up the end of the file, as some tools write them."""
        return self._data.endswith(bytes(_ZEROS))

    def close(self) -> None:
        """Do nothing; FastWARC requires it."""

    def keep_from(self, offset: int) -> None:
        """Forget what is before an offset."""
        surplus = min(offset, self._position) - self._start
        if surplus > _READ:
            self._drop(surplus)

    def go_back(self, offset: int) -> None:
        """Read again from an offset, if it is remembered, and not too much was read again."""
        if self._start <= offset < self._position and self._reread < _MOST_REREAD:
            self._reread += self._position - offset
            self._position = offset

    def search(self, magic: bytes | None) -> bool:
        """Go to the next place that looks like a record, past this one; return if there is one."""
        self._next_read = _FIRST_READ
        place = self._position - self._start
        while True:
            if magic is None:
                match = _WARC.search(self._data, place)
                found = match.start() if match else -1
            else:
                found = self._data.find(magic, place)
            if found >= 0:
                self._position = self._start + found
                return True
            # The beginning of it may be at the end of what was read; a line end comes before it.
            done = max(place, len(self._data) - 8)
            self._position = self._start + done
            self._drop(max(done - 1, 0))
            place = self._position - self._start
            chunk = next(self._chunks, b"")
            if not chunk:
                return False
            self._data += chunk

    def _drop(self, count: int) -> None:
        del self._data[:count]
        self._start += count


class _Records:
    """The records from one place of a file on, up to the first that is damaged."""

    def __init__(self, file: _Rereadable, largest: int, largest_record: int) -> None:
        self.failure: Broken | None = None
        self._file = file
        self._largest = largest
        self._largest_record = largest_record

    def __iter__(self) -> Iterator[Capture | Broken]:
        from fastwarc.warc import ArchiveIterator

        place = self._file.tell()
        held: Capture | Broken | None = None
        try:
            records = iter(ArchiveIterator(self._file, parse_http=False))
            while record := next(records, None):
                if held:
                    yield held
                    held = None
                place = max(place, record.stream_pos)
                self._file.keep_from(place)
                held = self._capture(record, place)
            if held is None and self._file.tell() > place:
                self.failure = Broken(place, "no record begins here")
        except _DamagedError as error:
            self.failure = Broken(place, str(error))
        except OSError as error:
            reason = f"no record begins here, or it is damaged: {str(error)[:100]}"
            # A length that reaches into the next record is noticed only there.
            if isinstance(held, Capture) and b"\r\n\r\nWARC/1." in held.block:
                length = len(held.block)
                held, reason = None, f"has {length:,} bytes, and then no record begins"
            elif held:
                reason = f"what follows this record is damaged, or no record: {str(error)[:100]}"
            self.failure = Broken(place, reason, exact=held is None)
        if held:
            yield held
        if self.failure:
            self._file.go_back(place + 1)

    def _capture(self, record: Any, place: int) -> Capture | Broken:
        headers: dict[str, str] = {}
        for name, value in record.headers.items():
            headers.setdefault(name.strip().lower(), value.strip())
        kind = headers.get("warc-type", "").lower()
        written = headers.get("content-length", "")
        if not (written.isascii() and written.isdigit() and len(written) <= 18):
            raise _DamagedError(f"found the length {written[:40]!r}, expected a number")
        length = int(written)
        kept = kind in _KEPT and length <= self._largest
        block = _read(record.reader, length) if kept else b""
        got = len(block)
        while got < length and not kept:
            if got > self._largest_record:
                raise _DamagedError(f"goes on for more than {self._largest_record:,} bytes")
            step = record.reader.consume(min(length - got, _STEP))
            if not step:
                break
            got += step
        if got < length:
            raise _DamagedError(f"ends after {got:,} of {length:,} bytes")
        if kind in _KEPT and not kept:
            return Broken(place, f"holds {length:,} bytes, expected at most {self._largest:,}")
        return Capture(place, kind, headers, block)


class _DamagedError(Exception):
    """A record whose bytes can't be what they should be; says why."""


def _read(reader: Any, length: int) -> bytes:
    found = bytearray()
    while len(found) < length and (piece := reader.read(length - len(found))):
        found += piece
    return bytes(found)


class PageError(ValueError):
    """A record whose page can't be read; says why."""


class _Skipped(Exception):  # noqa: N818 - it is no error
    """A record is no page; says why."""


def _page(capture: Capture, source: str, reading: Reading) -> Page:
    headers = capture.headers
    if capture.kind not in _KEPT:
        raise _Skipped(capture.kind if capture.kind in _REPORTED else "other")
    uri = headers.get("warc-target-uri", "").strip()
    if uri.startswith("<") and uri.endswith(">"):  # as wget once wrote them
        uri = uri[1:-1]
    if not uri:
        raise PageError("has no WARC-Target-URI")
    if uri.lower().startswith(_OF_TOOLS):
        raise _Skipped("other")
    body, content_type, status = capture.block, headers.get("content-type", ""), None
    if capture.kind == "response":
        if media_type(content_type) not in {"", "application/http"}:
            raise _Skipped("other")
        body, content_type = _payload(capture.block, reading)
        status = 200
    content_type = content_type or _sniffed(body)
    if not _is_text(content_type):
        raise _Skipped("type")
    html = is_html(content_type)
    meta: dict[str, Any] = {
        "date": headers.get("warc-date"),
        "status": status,
        "digest": headers.get("warc-payload-digest")
        or headers.get("warc-block-digest")
        or _digest(body),
        "type": media_type(content_type),
        "truncated": headers.get("warc-truncated"),
        "html": reading.html_text if html and reading.html != "none" else None,
    }
    meta = {
        name: value[:_LARGEST_FIELD] if isinstance(value, str) else value
        for name, value in meta.items()
        if value
    }
    return Page(source, uri, body, meta, content_type[:_LARGEST_FIELD], html)


def _payload(block: bytes, reading: Reading) -> tuple[bytes, str]:
    """Return the body of an HTTP response, unpacked, and its type."""
    response = parse_response(block)
    if response.status != 200:
        raise _Skipped("status")
    content_type = response.headers.get("content-type", "")
    if content_type and not _is_text(content_type):
        raise _Skipped("type")
    html = is_html(content_type) and reading.html != "none"
    return body_of(response, reading.max_html if html else reading.max_bytes), content_type


def _is_text(content_type: str) -> bool:
    return is_html(content_type) or media_type(content_type) == "text/plain"


def _sniffed(body: bytes) -> str:
    """Return the type of a body that has none: HTML if it begins like it."""
    head = body[:_SNIFFED].lower()
    return "text/html" if b"<html" in head or b"<!doctype html" in head else ""


def _digest(body: bytes) -> str:
    """Digest a body as the headers of an archive do."""
    digest = hashlib.sha1(body, usedforsecurity=False).digest()
    return f"sha1:{base64.b32encode(digest).decode()}"


@dataclass(frozen=True)
class Response:
    """The head of a response, and its body as it was sent."""

    status: int
    headers: dict[str, str]
    body: bytes


def parse_response(block: bytes) -> Response:
    """Split a response into its head and its body."""
    match = _STATUS.match(block)
    if not match:
        raise PageError("holds no HTTP response")
    end = min(
        (place for place in (block.find(b"\r\n\r\n"), block.find(b"\n\n")) if place >= 0),
        default=len(block),
    )
    if end > _LARGEST_HEAD:
        raise PageError(f"has HTTP headers of {end:,} bytes, expected {_LARGEST_HEAD:,}")
    lines = block[:end].split(b"\n")[1:]
    if len(lines) > _MOST_HEADERS:
        raise PageError(f"has {len(lines)} HTTP headers, expected at most {_MOST_HEADERS}")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.decode("utf-8", "replace").partition(":")
        headers.setdefault(name.strip().lower(), value.strip())
    width = 4 if block.startswith(b"\r\n\r\n", end) else 2
    return Response(int(match[1]), headers, block[end + width :])


def body_of(response: Response, largest: int) -> bytes:
    """Join the chunks of a body and unpack it; never more than `largest` bytes."""
    body = response.body
    if "chunked" in response.headers.get("transfer-encoding", "").lower():
        body = _dechunked(body)
    codings = [
        coding.strip()
        for coding in response.headers.get("content-encoding", "").lower().split(",")
        if coding.strip() not in {"", "identity", "none"}
    ]
    if len(codings) > _MOST_CODINGS:
        raise PageError(f"is packed {len(codings)} times, expected at most {_MOST_CODINGS}")
    for coding in reversed(codings):
        body = _decoded(body, coding, largest)
    if len(body) > largest:
        raise PageError(f"holds more than {largest:,} bytes in its body")
    return body


def _dechunked(body: bytes) -> bytes:
    """Join chunks; a body that isn't chunked, against its headers, stays as it is."""
    pieces: list[bytes] = []
    place = 0
    while size := _SIZE.match(body, place):
        length, start = int(size[1], 16), size.end()
        if not length:
            return b"".join(pieces)
        pieces.append(body[start : start + length])
        place = start + length
        if body.startswith(b"\r\n", place):
            place += 2
        elif body.startswith(b"\n", place):
            place += 1
        elif place < len(body):
            raise PageError("has a chunk of another length than it declares")
    if not pieces:
        return body
    if place >= len(body):  # the connection broke off; what came is worth keeping
        return b"".join(pieces)
    raise PageError("has chunks, and then something else")


def _decoded(body: bytes, coding: str, largest: int) -> bytes:
    """Unpack a body; one that isn't packed, against its headers, stays as it is."""
    if coding in {"gzip", "x-gzip"}:
        return _inflated(body, 31, largest) if body.startswith(b"\x1f\x8b") else body
    if coding == "deflate":
        zlib_like = len(body) > 1 and body[0] & 15 == 8 and not (body[0] << 8 | body[1]) % 31
        return _inflated(body, 15 if zlib_like else -15, largest) if body else body
    if coding == "br":
        return _unbrotlied(body, largest) if body else body
    raise PageError(f"is packed as {coding[:40]!r}, expected gzip, deflate or br")


def _inflated(body: bytes, wbits: int, largest: int) -> bytes:
    unpacker = zlib.decompressobj(wbits=wbits)
    try:
        # One byte more than is allowed shows that there is more.
        return unpacker.decompress(body, largest + 1)
    except zlib.error as error:
        raise PageError(f"has a body that can't be unpacked: {error}") from None


def _unbrotlied(body: bytes, largest: int) -> bytes:
    try:
        import brotli
    except ImportError:
        raise MissingExtraError(
            "brotli is read by the package brotli, which isn't installed",
            hint="pip install 'fpdb[web]'",
        ) from None
    unpacker = brotli.Decompressor()
    found = bytearray()
    try:
        for start in range(0, len(body), _PIECE):
            found += unpacker.process(body[start : start + _PIECE], output_buffer_limit=_PIECE)
            while len(found) <= largest and not unpacker.can_accept_more_data():
                found += unpacker.process(b"", output_buffer_limit=_PIECE)
            if len(found) > largest:
                break
    except brotli.error:
        raise PageError("has a body that can't be unpacked: no brotli") from None
    return bytes(found)
