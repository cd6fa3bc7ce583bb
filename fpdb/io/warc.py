"""Web archives: the pages of a WARC file, unpacked; after damage, reading goes on."""

import contextlib
import io
import itertools
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import IO, Any, NamedTuple

from fpdb.errors import MissingExtraError
from fpdb.io.html import Page, is_html, media_type
from fpdb.io.records import BadRecord, Reading, UnfitError
from fpdb.io.streams import (
    UNWATCHED,
    ZSTD,
    StreamError,
    Watch,
    join_chunks,
    members,
    packing_of,
    unpacked,
    zstd_unpacker,
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
# The bytes that may be read in vain: a file may be made so that each record reaches to its end.
# Beyond these, reading goes on after the bytes in which damage was noticed.
_MOST_WASTED = 1 << 28
_VERSION = b"WARC/"
_BEGINNING_OF_RECORD = b"\nWARC/1."
# Bytes with which a record or a member begins, at most.
_LONGEST_MARK = 10
# The frame that begins a .warc.zst if the others have a dictionary, which may be packed itself.
_DICTIONARY, _LARGEST_DICTIONARY = b"\x5d\x2a\x4d\x18", 1 << 24
# Two line ends, or a few more, follow a block; more white space may be the middle of a record.
_MOST_BETWEEN = 16
_PAGES = frozenset({"response", "resource", "conversion"})
_REPORTED = frozenset({"revisit", "request", "metadata", "warcinfo"})
# What a body of HTML that has no type begins with.
_SNIFFED = 1 << 10
_BEGINNING = re.compile(rb"<html|<!doctype html", re.IGNORECASE)
_LARGEST_FIELD = 200
# URIs under which tools store notes about their own work.
_OF_TOOLS = ("metadata:", "urn:", "dns:", "whois:")


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
    path: str, file: io.BufferedReader, reading: Reading, watch: Watch
) -> Iterator[Page | BadRecord]:
    """Yield the pages of an archive: responses with status 200, resources, and conversions.

    A conversion whose page came before it holds no other page, and would replace that one.
    """
    addresses: set[int] = set()  # hashes, so that very many take little memory
    for record in read_captures(file, reading.max_bytes + _HEAD, watch):
        source = f"{path}:{record.place}"
        if isinstance(record, Broken):
            yield BadRecord(source, record.reason)
            continue
        try:
            page = _page(record, source, reading)
        except UnfitError as error:
            yield BadRecord(source, str(error))
            continue
        if isinstance(page, Page):
            if record.kind != "conversion":
                addresses.add(hash(page.key))
            elif hash(page.key) in addresses:
                page = record.kind
        if isinstance(page, str):
            watch.passed(page)
        elif not watch.known(str(page.key), page.meta or {}):
            yield page


def read_captures(
    file: io.BufferedReader, largest: int, watch: Watch = UNWATCHED
) -> Iterator[Capture | Broken]:
    """Yield the records of an archive; after a damaged one, go on at the next.

    A record whose block would be read but has more than `largest` bytes is Broken.
    """
    archive = _Archive(file, watch)
    damage: Exception | None = None
    while True:
        place = None
        try:
            if damage:
                archive.skip_damage(in_member=isinstance(damage, StreamError))
            if not archive.skip_blank():
                return
            place = archive.begin_record()
            record = _record(archive, place, largest)
        except (UnfitError, StreamError) as error:
            if not damage:
                yield Broken(archive.place if place is None else place, str(error))
            damage = error
        except OSError as error:
            yield Broken(archive.place, f"what follows isn't read: {error.strerror or error}")
            return
        else:
            damage = None
            yield record


class _Archive:
    """The bytes of an archive, unpacked, by their offsets, which go on from member to member.

    In a file that isn't packed, each record is a member.
    """

    def __init__(self, file: io.BufferedReader, watch: Watch) -> None:
        self._file, self._watch = file, watch
        self._packing, place = packing_of(file.peek(_LONGEST_MARK)), 0
        if file.peek(8).startswith(_DICTIONARY):
            size = int.from_bytes(file.read(8)[4:], "little")
            dictionary = file.read(min(size, _LARGEST_DICTIONARY))
            whole = unpacked([dictionary], packing_of(dictionary))
            dictionary = join_chunks(whole, _LARGEST_DICTIONARY)
            self._packing = replace(ZSTD, unpacker=partial(zstd_unpacker, dictionary))
            place = 8 + size
        # How far the file is read, and was read at most; and the bytes that were read in vain.
        self._position = self._furthest = place
        self._wasted = 0
        self._begin(place, place, next(self._chunks(), b""))

    def _begin(self, offset: int, place: int, first: bytes) -> None:
        """Begin a member at a place in the file, from where on the first bytes are read."""
        self._members = deque([(offset, place)])  # the current one, and those begun after it
        self._offset = self._start = offset  # the latter is that of the current record
        self._data = b""
        self._error: StreamError | None = None
        chunks = itertools.chain([first], self._chunks()) if first else iter(())
        if self._packing and first:
            pieces = members(chunks, self._packing)
            self._pieces = ((place + begun, piece) for begun, _, piece in pieces)
        else:
            self._pieces = ((self.place, chunk) for chunk in chunks)

    def _chunks(self) -> Iterator[bytes]:
        while chunk := self._file.read1(_STEP):
            self._position += len(chunk)
            if self._position > self._furthest:
                self._watch.progress(self._position - self._furthest)
            self._furthest = max(self._furthest, self._position)
            yield chunk

    def _fill(self) -> bool:
        """Read more, and return whether there is any; an error is raised again each time."""
        if self._error:
            raise self._error
        try:
            for place, piece in self._pieces:
                end = self._offset + len(self._data)
                if place != self._members[-1][1]:
                    if self._members[-1][0] == end:  # that one is empty
                        self._members.pop()
                    self._members.append((end, place))
                if piece:
                    self._data += piece
                    return True
        except StreamError as error:
            self._error = error
            raise
        return False

    def _take(self, size: int) -> bytes:
        taken, self._data = self._data[:size], self._data[size:]
        self._offset += len(taken)
        return taken

    def _member(self) -> tuple[int, int]:
        """Return the offset and the place of the current member."""
        while len(self._members) > 1 and self._members[1][0] <= self._offset:
            self._members.popleft()
        return self._members[0]

    @property
    def place(self) -> int:
        """Where the current member begins in the file."""
        return self._member()[1]

    def begin_record(self) -> int:
        """Begin a record, and return where in the file it is, or its member."""
        begun, place = self._member()
        self._start = self._offset
        if not self._packing:
            place += self._offset - begun
            self._members[0] = self._offset, place
        return place

    def read(self, size: int) -> bytes:
        """Read up to N bytes of a member; none are at the end."""
        if not self._data:
            self._fill()
        self._member()
        if len(self._members) > 1:
            size = min(size, self._members[1][0] - self._offset)
        return self._take(size)

    def skip_blank(self) -> bool:
        """Skip white space, and return whether anything follows."""
        while True:
            self._take(len(self._data) - len(self._data.lstrip()))
            if self._data or not self._fill():
                return bool(self._data)

    def _begins_record(self) -> bool:
        while len(self._data) < len(_VERSION) and self._fill():
            pass
        return self._data.startswith(_VERSION)

    def begins_member(self) -> bool:
        """Return whether a packed member begins here, and with a record."""
        begins = self._packing is not None and self._begins_record()
        return begins and self._member()[0] == self._offset

    def ends_block(self) -> bool:
        """Return whether a few line ends follow, and then a record, the end, or damage."""
        size = _MOST_BETWEEN + len(_VERSION)
        with contextlib.suppress(StreamError):
            while len(self._data) < size and self._fill():
                pass
        follows = self._data[:size].lstrip()
        is_last = len(self._data) < size
        return follows.startswith(_VERSION) or (is_last and _VERSION.startswith(follows))

    def read_head(self) -> bytes:
        """Read the head of a record, with the empty line at its end."""
        if self._begins_record():
            while not (end := _HEAD_END.search(self._data)):
                if len(self._data) > _LARGEST_HEAD or not self._fill():
                    self._take(len(_VERSION))
                    break
            else:
                return self._take(end.end())
        raise UnfitError("no record begins here")

    def skip_damage(self, *, in_member: bool) -> None:
        """Go to the next record, or to the next member where one can't be unpacked."""
        end, (_, place) = self._offset + len(self._data), self._members[-1]
        is_precise = self._wasted <= _MOST_WASTED
        self._wasted += end - self._start
        if self._packing and is_precise and not in_member:
            self._find_record()
            return
        data = b""
        # A wrong length may have led over records, and wrong bytes over members.
        if is_precise and self._file.seekable():
            self._wasted += self._position - place
            self._position = self._file.seek(place + 1)
        elif is_precise and not self._packing:
            data = self._data
        mark = self._packing.magic if self._packing else re.compile(_BEGINNING_OF_RECORD)
        chunks = self._chunks()
        while not (match := mark.search(data)):
            # The beginning of the mark may be at the end of the bytes before.
            data = data[1 - _LONGEST_MARK :]
            if not (chunk := next(chunks, b"")):
                break
            data += chunk
        at = match.start() if match else len(data)
        data = data[at:] if self._packing else data[at + 1 :]
        place = self._position - len(data)
        self._begin(end if self._packing else place, place, data)

    def _find_record(self) -> None:
        while not self.begins_member():
            at = self._data.find(_BEGINNING_OF_RECORD)
            size = at + 1 if at >= 0 else len(self._data) - len(_BEGINNING_OF_RECORD)
            if size > 0:
                if len(self.read(size)) == at + 1:
                    return
            elif not self._fill():
                self._take(len(self._data))
                return


def _record(archive: _Archive, place: int, largest: int) -> Capture | Broken:
    headers = header_fields(archive.read_head().rstrip())
    kind = headers.get("warc-type", "").lower()
    written = headers.get("content-length", "")
    if not (written.isascii() and written.isdigit() and len(written) <= 18):
        raise UnfitError(f"found the length {written[:40]!r}, expected a number")
    length = int(written)
    fits = length <= largest
    block, size = bytearray(), 0
    # A member that begins with a record ends the one before, whatever its length.
    while size < length and not archive.begins_member():
        if not (piece := archive.read(min(length - size, _STEP))):
            break
        if fits:
            block += piece
        elif size > _LARGEST_RECORD:
            raise StreamError(f"goes on for more than {_LARGEST_RECORD:,} bytes")
        size += len(piece)
    if size < length:
        raise UnfitError(f"ends after {size:,} of {length:,} bytes")
    if (not fits or _BEGINNING_OF_RECORD in block) and not archive.ends_block():
        raise UnfitError("has a length that reaches into the next record")
    if kind in _PAGES and not fits:
        return Broken(place, f"holds {length:,} bytes, expected at most {largest:,}")
    return Capture(place, kind, headers, bytes(block))


def _page(capture: Capture, source: str, reading: Reading) -> Page | str:
    """Return the page of a record, or why it has none."""
    headers = capture.headers
    if capture.kind not in _PAGES:
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
    html = is_html(content_type)
    meta: dict[str, Any] = {
        "date": headers.get("warc-date"),
        "status": status,
        "digest": headers.get("warc-payload-digest") or headers.get("warc-block-digest"),
        "type": media_type(content_type),
        "truncated": headers.get("warc-truncated"),
        "html": ("page" if reading.html == "page" else "main") if html else None,
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
    if coding == "zstd":
        try:
            return join_chunks(unpacked([body], ZSTD), largest)
        except (StreamError, MissingExtraError) as error:
            raise UnfitError(f"has a body that can't be unpacked: {error}") from None
    if coding != "deflate":
        raise UnfitError(f"is packed as {coding[:40]!r}, expected gzip, deflate, br or zstd")
    # Some servers leave out the header of zlib.
    has_header = len(body) > 1 and body[0] & 15 == 8 and not (body[0] << 8 | body[1]) % 31
    try:
        # One byte more than is allowed shows that there is more.
        unpacker = zlib.decompressobj(wbits=15 if has_header else -15)
        return unpacker.decompress(body, largest + 1)
    except zlib.error as error:
        raise UnfitError(f"has a body that can't be unpacked: {error}") from None


def _unpacked(reader: Callable[[IO[bytes]], Any], body: bytes, largest: int) -> bytes:
    """Unpack a body by a reader of FastWARC, and at most one byte more than allowed."""
    content = bytearray()
    try:
        source = reader(io.BytesIO(body))
        while len(content) <= largest and (piece := source.read(largest + 1 - len(content))):
            content += piece
    except OSError as error:
        raise UnfitError(f"has a body that can't be unpacked: {str(error)[:100]}") from None
    return bytes(content)
