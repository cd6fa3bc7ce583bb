"""Web archives: the pages of a WARC file, unpacked; what is damaged costs only itself."""

import base64
import contextlib
import hashlib
import io
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import IO, Any, NamedTuple

from fpdb.io.html import Page, is_html, media_type
from fpdb.io.records import BadRecord, Reading, UnfitError
from fpdb.io.streams import (
    ZSTD,
    Progress,
    StreamError,
    join_chunks,
    members,
    packing_of,
    unpacked,
)

# Of a head; one of HTTP is stored with the body, and chunks have ends of their own.
_LARGEST_HEAD, _HEAD = 1 << 16, 1 << 18
_HEAD_END = re.compile(rb"\r\n\r\n|\n\n")
# A line that begins with white space goes on with the one before.
_FOLD = re.compile(rb"\r?\n[ \t]+")
_STATUS = re.compile(rb"HTTP/\d(?:\.\d)?[ \t]+(\d{3})\b")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]{0,1000})?\r?\n")
_MOST_CODINGS = 2
# No record that anybody needs is larger; a larger one may have been made never to end.
_LARGEST_RECORD = 1 << 30
_STEP = 1 << 16
# What damage may cost in a file: a file may be made so that each record reaches to its end. One
# that does is read twice.
_MOST_REREAD = _LARGEST_RECORD + (1 << 28)
_VERSION = b"WARC/"
_BEGINNING_OF_RECORD = b"\nWARC/1."
# The frame that begins a .warc.zst if the others have a dictionary, which may be packed itself.
_DICTIONARY, _LARGEST_DICTIONARY = b"\x5d\x2a\x4d\x18", 1 << 24
# Two line ends, or a few more, follow a block.
_MOST_BETWEEN = 16
_REACHES = "has a length that reaches into the next record"
_HOLDS = "holds other records: its length is wrong, or it quotes an archive"
_KEPT = frozenset({"response", "resource", "conversion"})
_REPORTED = frozenset({"revisit", "request", "metadata", "warcinfo"})
_DIGESTS = frozenset({"md5", "sha1", "sha256", "sha512"})
_LENGTH = re.compile(rb"\nContent-Length:[ \t]*(\d{1,18})[ \t]*\r?\n", re.IGNORECASE)
# What a body of HTML that has no type begins with.
_SNIFFED = 1 << 10
_BEGINNING = re.compile(rb"<html|<!doctype html", re.IGNORECASE)
_LARGEST_FIELD = 200
# URIs under which tools store notes about their own work.
_OF_TOOLS = ("metadata:", "urn:", "dns:", "whois:")


@dataclass(frozen=True)
class Passing:
    """What the reader of an archive calls while it reads.

    `known` returns whether the record with a key and metadata is stored, and so isn't read again;
    `passed` is called with the reason why one holds no page: its kind, "status" or "type".
    """

    known: Callable[[str, Mapping[str, Any]], bool]
    passed: Callable[[str], object]


@dataclass(frozen=True)
class Capture:
    """A record of an archive; its block is empty if it is too large, and holds no page."""

    place: int
    kind: str
    headers: dict[str, str]
    block: bytes = field(repr=False)


@dataclass(frozen=True)
class Broken:
    """An offset at which no record can be read, and why."""

    place: int
    reason: str


def read_pages(
    path: str,
    file: io.BufferedReader,
    reading: Reading,
    passing: Passing | None = None,
    progress: Progress | None = None,
) -> Iterator[Page | BadRecord]:
    """Yield the pages of an archive: responses with status 200, resources, and conversions."""
    for found in read_captures(file, reading.max_bytes + _HEAD, progress):
        source = f"{path}:{found.place}"
        if isinstance(found, Broken):
            yield BadRecord(source, found.reason)
            continue
        try:
            page = _page(found, source, reading)
        except UnfitError as error:
            yield BadRecord(source, str(error))
            continue
        if isinstance(page, str):
            if passing:
                passing.passed(page)
        elif not (passing and passing.known(str(page.key), page.meta or {})):
            yield page


def read_captures(
    file: io.BufferedReader, largest: int, progress: Progress | None = None
) -> Iterator[Capture | Broken]:
    """Yield the records of an archive; after a damaged one, search for the next.

    A pipe can't be searched: what follows the first damage is lost. A record whose block would be
    kept but has more than `largest` bytes is Broken.
    """
    archive = _Archive(file, progress)
    reported = doubted = False
    while True:
        start = archive.offset
        try:
            if not archive.skip_blank():
                return
            start = archive.offset
            found = _record(archive, largest, doubted=doubted)
        except (UnfitError, StreamError, OSError) as error:
            reason, origin = str(error), archive.origin(start)
        else:
            reported = False
            yield found
            continue
        doubted |= reason == _REACHES
        if not reported:
            yield Broken(origin, reason)
        reported = True
        problem = "a pipe can't be searched"
        if file.seekable():
            try:
                if archive.find_after(start):
                    continue
                problem = "too much of it is damaged" if archive.reread > _MOST_REREAD else ""
            except OSError as error:
                problem = error.strerror or str(error)
        if problem:
            yield Broken(origin, f"what follows isn't read: {problem}")
        return


class _Archive:
    """The bytes of an archive, unpacked, by their offsets, which go on from member to member.

    A file that isn't packed is one member.
    """

    def __init__(self, file: io.BufferedReader, progress: Progress | None) -> None:
        self.file = file
        self.reread = 0  # the bytes that were read or unpacked more than once
        self._progress = progress
        self._packing, place = packing_of(file.peek(8)), 0
        if file.peek(8).startswith(_DICTIONARY):
            size = int.from_bytes(file.read(8)[4:], "little")
            dictionary = file.read(min(size, _LARGEST_DICTIONARY))
            whole = unpacked([dictionary], packing_of(dictionary))
            self._packing = replace(ZSTD, dictionary=join_chunks(whole, _LARGEST_DICTIONARY))
            place = 8 + size
        # How far the file was read, and unpacked.
        self._read, self._unpacked = 0, place
        self._begin(place, place)

    def _begin(self, offset: int, place: int) -> None:
        """Begin a member; its place is that in the file, which is there already."""
        # Of no record before the current one.
        self._members = deque([(offset, place)])
        self.offset, self._data = offset, b""
        chunks = self._chunks(place)
        self._pieces = ((place, chunk) for chunk in chunks)
        if self._packing:
            found = members(chunks, self._packing)
            self._pieces = ((place + begun, piece) for begun, _, piece in found)

    def _chunks(self, place: int) -> Iterator[bytes]:
        while chunk := self.file.read1(_STEP):
            place += len(chunk)
            if self._progress and place > self._read:
                self._progress(place - self._read)
            self._read = max(self._read, place)
            yield chunk

    def _fill(self) -> bool:
        """Read more, and return whether there is any."""
        end = self.offset + len(self._data)
        for place, piece in self._pieces:
            if place != self._members[-1][1]:
                self._members.append((end, place))
            if piece:
                self.reread += max(0, min(self._unpacked, end + len(piece)) - end)
                self._unpacked = max(self._unpacked, end + len(piece))
                self._data += piece
                return True
        return False

    def read(self, size: int) -> bytes:
        """Read N bytes, or fewer at the end."""
        if not self._data:
            self._fill()
        found, self._data = self._data[:size], self._data[size:]
        self.offset += len(found)
        return found

    def skip_blank(self) -> bool:
        """Skip white space, and return whether anything follows."""
        while True:
            rest = self._data.lstrip()
            self.offset += len(self._data) - len(rest)
            self._data = rest
            if rest or not self._fill():
                return bool(rest)

    def begins_record(self) -> bool:
        """Return whether a record begins here."""
        while len(self._data) < len(_VERSION) and self._fill():
            pass
        return self._data.startswith(_VERSION)

    def read_head(self) -> bytes:
        """Read the head of a record, with the empty line at its end."""
        if self.begins_record():
            while not (found := _HEAD_END.search(self._data)):
                if len(self._data) > _LARGEST_HEAD or not self._fill():
                    break
            else:
                return self.read(found.end())
        raise UnfitError("no record begins here")

    def origin(self, offset: int) -> int:
        """Return where in the file a record is, or its member; no search goes to before it."""
        while len(self._members) > 1 and self._members[1][0] <= offset:
            self._members.popleft()
        begun, place = self._members[0]
        return place if self._packing else place + offset - begun

    def find_after(self, offset: int) -> bool:
        """Go to the first record that begins after an offset, and return whether there is one."""
        if self.reread > _MOST_REREAD:
            return False
        begun, place = self._members[0]
        if not self._packing:
            begun, place = offset, place + offset - begun
        self.file.seek(place)
        self._begin(begun, place)
        try:
            while self.offset <= offset:
                if not self.read(min(offset + 1 - self.offset, _STEP)):
                    return False
            return self._find()
        except StreamError:
            return self._find_member(self._members[-1][1] + 1)

    def _find(self) -> bool:
        while (at := self._data.find(_BEGINNING_OF_RECORD)) < 0:
            # The beginning of the mark may be at the end of what was read.
            self.read(max(0, len(self._data) - len(_BEGINNING_OF_RECORD)))
            count, end = len(self._members), self.offset + len(self._data)
            if self.reread > _MOST_REREAD or not self._fill():
                return False
            first = self._data[end - self.offset :][: len(_VERSION)]
            if len(self._members) > count and _VERSION.startswith(first):
                at = end - self.offset - 1
                break
        self.read(at + 1)
        return True

    def _find_member(self, place: int) -> bool:
        """Go to the next bytes, from a place in the file on, that begin as a member does."""
        magic = self._packing.magic if self._packing else b""
        self.file.seek(place)
        data = b""
        while (at := data.find(magic)) < 0:
            place += max(0, len(data) - len(magic))
            data = data[-len(magic) :]
            if self.reread > _MOST_REREAD or not (chunk := self.file.read1(_STEP)):
                return False
            self.reread += len(chunk)
            data += chunk
        self.file.seek(place + at)
        self._begin(self._unpacked, place + at)
        return True


def _record(archive: _Archive, largest: int, *, doubted: bool) -> Capture | Broken:
    """Read a record; its length is `doubted` where one before was wrong."""
    origin = archive.origin(archive.offset)
    headers = header_fields(archive.read_head().rstrip())
    kind = headers.get("warc-type", "").lower()
    written = headers.get("content-length", "")
    if not (written.isascii() and written.isdigit() and len(written) <= 18):
        raise UnfitError(f"found the length {written[:40]!r}, expected a number")
    length = int(written)
    kept = length <= largest
    block, got, last, holds_another = bytearray(), 0, b"", False
    while got < length and (piece := archive.read(min(length - got, _STEP))):
        if kept:
            block += piece
        elif got > _LARGEST_RECORD:
            raise UnfitError(f"goes on for more than {_LARGEST_RECORD:,} bytes")
        got += len(piece)
        # It may begin in one piece and end in the next.
        last += piece
        holds_another |= _BEGINNING_OF_RECORD in last
        last = last[1 - len(_BEGINNING_OF_RECORD) :]
    if got < length:
        raise UnfitError(f"ends after {got:,} of {length:,} bytes")
    if holds_another:
        _require_end(archive)
    if kind in _KEPT and not kept:
        return Broken(origin, f"holds {length:,} bytes, expected at most {largest:,}")
    capture = Capture(origin, kind, headers, bytes(block))
    held = _held_records(capture) if holds_another else None
    if held is False and not doubted:
        return Broken(origin, _HOLDS)
    if held is None:
        return capture
    if archive.file.seekable():
        raise UnfitError(_REACHES)
    return Broken(origin, _REACHES)


def _require_end(archive: _Archive) -> None:
    """Raise UnfitError if a record neither begins nor ends the file where a block ends."""
    end = archive.offset
    with contextlib.suppress(StreamError, OSError):
        ended = not archive.skip_blank()
        # More white space may be the middle of a record.
        if archive.offset - end <= _MOST_BETWEEN and (ended or archive.begins_record()):
            return
    raise UnfitError(_REACHES)


def _held_records(capture: Capture) -> bool | None:
    """Return whether records of the file are in a block, because its length is wrong.

    Return None if none are, and False if nothing shows whether a page quotes them.
    """
    block = capture.block
    first = _first_record(block)
    if first is None:
        return None
    name, _, digest = capture.headers.get("warc-block-digest", "").partition(":")
    if name.lower() in _DIGESTS:
        found = hashlib.new(name.lower(), block, usedforsecurity=False).digest()
        known = {base64.b32encode(found).decode().rstrip("="), found.hex().upper()}
        return None if digest.strip().rstrip("=").upper() in known else True
    if capture.kind != "response":
        return None if first == 0 else False
    response = parse_response(block)
    begins = len(block) - len(response.body)
    length = response.headers.get("content-length", "")
    if "transfer-encoding" not in response.headers and length.isascii() and length.isdigit():
        if begins + int(length[:18]) == len(block):
            return None
        between = first - begins - int(length[:18])
        if 0 <= between <= _MOST_BETWEEN:
            return True
    # All of the page is an archive.
    return None if first == begins else False


def _first_record(block: bytes) -> int | None:
    """Return where the first of records begins that end, one after the other, with the block."""
    first, after = None, {len(block)}
    starts = [found.start() + 1 for found in re.finditer(_BEGINNING_OF_RECORD, block)]
    if block.startswith(_BEGINNING_OF_RECORD[1:]):
        starts.insert(0, 0)
    for start in reversed(starts):
        head = _HEAD_END.search(block, start, start + _LARGEST_HEAD)
        length = head and _LENGTH.search(block, start, head.end())
        if head and length:
            end = head.end() + int(length[1])
            rest = block[end : end + _MOST_BETWEEN]
            end += len(rest) - len(rest.lstrip(b"\r\n"))
            if end in after:
                after.add(start)
                first = start
    return first


def _page(capture: Capture, source: str, reading: Reading) -> Page | str:
    """Return the page of a record, or why it has none."""
    headers = capture.headers
    if capture.kind not in _KEPT:
        return capture.kind if capture.kind in _REPORTED else "other"
    uri = headers.get("warc-target-uri", "").strip()
    if uri.startswith("<") and uri.endswith(">"):  # as wget once wrote them
        uri = uri[1:-1]
    if not uri:
        raise UnfitError("has no WARC-Target-URI")
    body, content_type, status = capture.block, headers.get("content-type", ""), None
    is_response = capture.kind == "response"
    is_http = media_type(content_type) in {"", "application/http"}
    if uri.lower().startswith(_OF_TOOLS) or (is_response and not is_http):
        return "other"
    if is_response:
        response = parse_response(capture.block)
        status, content_type = response.status, response.headers.get("content-type", "")
        if status != 200:
            return "status"
        if content_type and not _is_text(content_type):
            return "type"
        body = body_of(response, reading.max_bytes)
    if not content_type and _BEGINNING.search(body[:_SNIFFED]):
        content_type = "text/html"
    if not _is_text(content_type):
        return "type"
    html, part = is_html(content_type), "main" if reading.html == "auto" else reading.html
    meta: dict[str, Any] = {
        "date": headers.get("warc-date"),
        "status": status,
        "digest": headers.get("warc-payload-digest") or headers.get("warc-block-digest"),
        "type": media_type(content_type),
        "truncated": headers.get("warc-truncated"),
        "html": part if html and part != "none" else None,
    }
    meta = {
        name: value[:_LARGEST_FIELD] if isinstance(value, str) else value
        for name, value in meta.items()
        if value
    }
    return Page(source, uri, body, meta, content_type[:_LARGEST_FIELD], html)


def _is_text(content_type: str) -> bool:
    return is_html(content_type) or media_type(content_type) == "text/plain"


class Response(NamedTuple):
    """The head of a response, and its body as it was sent."""

    status: int
    headers: dict[str, str]
    body: bytes


def parse_response(block: bytes) -> Response:
    """Split a response into its head and its body."""
    match = _STATUS.match(block)
    if not match:
        raise UnfitError("holds no HTTP response")
    head, *body = _HEAD_END.split(block, maxsplit=1)
    if len(head) > _LARGEST_HEAD:
        raise UnfitError(f"has HTTP headers of {len(head):,} bytes, expected {_LARGEST_HEAD:,}")
    return Response(int(match[1]), header_fields(head), b"".join(body))


def header_fields(head: bytes) -> dict[str, str]:
    """Return the fields of a head by their names in lower case; of equal ones, the first."""
    fields: dict[str, str] = {}
    for line in _FOLD.sub(b" ", head).split(b"\n")[1:]:
        name, _, value = line.decode("utf-8", "replace").partition(":")
        fields.setdefault(name.strip().lower(), value.strip())
    return fields


def body_of(response: Response, largest: int) -> bytes:
    """Join the chunks of a body and unpack it; never more than `largest` bytes.

    A body that isn't chunked or packed, against its headers, stays as it is.
    """
    from fastwarc.stream_io import ChunkedReader

    body = response.body
    chunked = "chunked" in response.headers.get("transfer-encoding", "").lower()
    if chunked and _SIZE.match(body):
        body = _unpacked(ChunkedReader, body, len(body))
    codings = [
        coding.strip()
        for coding in response.headers.get("content-encoding", "").lower().split(",")
        if coding.strip() not in {"", "identity", "none"}
    ]
    if len(codings) > _MOST_CODINGS:
        raise UnfitError(f"is packed {len(codings)} times, expected at most {_MOST_CODINGS}")
    for coding in reversed(codings) if body else ():
        body = _decoded(body, coding, largest)
    if len(body) > largest:
        raise UnfitError(f"holds more than {largest:,} bytes in its body")
    return body


def _decoded(body: bytes, coding: str, largest: int) -> bytes:
    from fastwarc.stream_io import BrotliReader, GzipReader

    if coding in {"gzip", "x-gzip"}:
        return _unpacked(GzipReader, body, largest) if body.startswith(b"\x1f\x8b") else body
    if coding == "br":
        return _unpacked(BrotliReader, body, largest)
    if coding != "deflate":
        raise UnfitError(f"is packed as {coding[:40]!r}, expected gzip, deflate or br")
    # Some servers leave out the header of zlib.
    has_header = len(body) > 1 and body[0] & 15 == 8 and not (body[0] << 8 | body[1]) % 31
    try:
        # One byte more than is allowed shows that there is more.
        unpacker = zlib.decompressobj(wbits=15 if has_header else -15)
        return unpacker.decompress(body, largest + 1)
    except zlib.error as error:
        raise UnfitError(f"has a body that can't be unpacked: {error}") from None


def _unpacked(reader: Callable[[IO[bytes]], Any], body: bytes, largest: int) -> bytes:
    """Return what a reader of FastWARC makes of a body, and at most one byte more than allowed."""
    found = bytearray()
    try:
        source = reader(io.BytesIO(body))
        while len(found) <= largest and (piece := source.read(largest + 1 - len(found))):
            found += piece
    except OSError as error:
        raise UnfitError(f"has a body that can't be unpacked: {str(error)[:100]}") from None
    return bytes(found)
