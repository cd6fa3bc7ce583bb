"""Web archives: the pages of a WARC file, read by FastWARC; what is damaged costs only itself."""

import base64
import hashlib
import io
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from fpdb.io.html import Page, is_html, media_type
from fpdb.io.records import BadRecord, Reading
from fpdb.io.responses import HEAD_END, LARGEST_HEAD, PageError, body_of, parse_response
from fpdb.io.streams import Progress, packing_of

# An HTTP head is stored with the body, and chunks have ends of their own.
_HEAD = 1 << 18
# No record that anybody needs is larger; a larger one may have been made never to end.
_LARGEST_RECORD = 1 << 30
_STEP, _PACKED_STEP = 1 << 16, 1 << 14
# What damage may cost in a file: a file may be made so that each record reaches to its end. One
# that does is read twice.
_MOST_REREAD = _LARGEST_RECORD + (1 << 28)
_BEGINNING_OF_RECORD = b"\nWARC/1."
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
        except PageError as error:
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
    packing = packing_of(file.peek(8))
    packed = _Counted(file, progress)
    source, mark = packed, packing.magic if packing else _BEGINNING_OF_RECORD
    if packing and packing.name == "gzip":
        source, mark = _Unpacked(packed), _BEGINNING_OF_RECORD
    reported = doubted = False
    while True:
        records = _Records(source, largest, doubted)
        for found in records:
            reported = False
            yield found
        failure = records.failure
        if failure is None:
            return
        doubted |= failure.reason == _REACHES
        if not reported:
            yield failure
        reported = True
        problem = "a pipe can't be searched"
        if file.seekable():
            try:
                if source.find(mark, records.place):
                    continue
                problem = "too much of it is damaged" if source.reread > _MOST_REREAD else ""
            except OSError as error:
                problem = error.strerror or str(error)
        if problem:
            yield Broken(failure.place, f"what follows isn't read: {problem}")
        return


class _Counted:
    """A file as FastWARC reads it, which counts the bytes: a pipe has no position otherwise."""

    def __init__(self, file: io.BufferedReader, progress: Progress | None) -> None:
        self.file = file
        self._progress = progress
        self._place = 0
        self._seen = 0
        self._taken = 0
        # The head of a record is in here when FastWARC returns the record.
        self._recent: deque[bytes] = deque(maxlen=4)
        self._began = -1  # where the last member began

    @property
    def reread(self) -> int:
        """The bytes that were read more than once."""
        return self._taken - self._seen

    def read(self, size: int = -1) -> bytes:
        """Read what is there, up to some bytes."""
        found = self._take(size)
        self._place += len(found)
        self._taken += len(found)
        if self._place > self._seen:
            if self._progress:
                self._progress(self._place - self._seen)
            self._seen = self._place
        self._recent.append(found)
        return found

    def _take(self, size: int) -> bytes:
        return self.file.read1(size)

    def tell(self) -> int:
        """Return the offset in the file."""
        return self._place

    def seek(self, place: int, _: int = 0) -> int:
        """Go to an offset."""
        self._recent.clear()
        self._go(place)
        return self._place

    def _go(self, place: int) -> None:
        self._place = self.file.seek(place)

    def close(self) -> None:
        """Do nothing; FastWARC requires it."""

    def origin(self, place: int) -> int:
        """Return where in the file on the disk a record begins; no seek goes to before it."""
        return place

    def block_of(self, place: int) -> int:
        """Return where the block begins of a record whose head was read just now."""
        start = place - (self._place - sum(map(len, self._recent)))
        head = b""
        for chunk in self._recent:
            if start >= len(chunk):
                start -= len(chunk)
                continue
            head += chunk
            if found := HEAD_END.search(head, max(start, 0)):
                return place + found.end() - start
        return self._place

    def find(self, mark: bytes, place: int) -> bool:
        """Go to the next record after the one at an offset, by its mark; return if there is one."""
        line_end = mark.startswith(b"\n")
        data = b""
        self.seek(place + 1 - line_end)
        while (at := data.find(mark)) < 0:
            if self.reread > _MOST_REREAD or not (chunk := self._searched()):
                return False
            begun = self._place - len(chunk)
            if begun == self._began and chunk.startswith(mark.lstrip()):
                self.seek(begun)
                return True
            # The beginning of the mark may be at the end of what was read.
            data = data[-len(mark) :] + chunk
        self.seek(self._place - len(data) + at + line_end)
        return True

    def _searched(self) -> bytes:
        return self.read(_STEP)


class _Unpacked(_Counted):
    """The unpacked bytes of a gzip file, whose offsets count them.

    FastWARC unpacks too, but can't go back to a record inside of a member.
    """

    def __init__(self, packed: _Counted) -> None:
        super().__init__(packed.file, None)
        self._packed = packed
        # Where members begin, among the unpacked bytes and in the file.
        self._members: deque[tuple[int, int]] = deque()
        self._ready = b""
        self._begin(b"")

    @property
    def reread(self) -> int:
        """The bytes that were unpacked more than once, or read."""
        return super().reread + self._packed.reread

    def _begin(self, rest: bytes) -> None:
        """Begin a member, of which some bytes may be there already."""
        self._unpacker = zlib.decompressobj(wbits=31)
        self._rest = rest
        self._member = -1

    def _take(self, size: int) -> bytes:
        found, self._ready = self._ready, b""
        while not found:
            if self._unpacker.eof:
                self._begin(self._unpacker.unused_data)
            self._rest = self._rest or self._packed.read(_PACKED_STEP)
            if not self._rest:
                if self._member >= 0:
                    raise OSError("the packed bytes end too early")
                return b""
            if self._member < 0:
                self._rest = self._rest.lstrip(b"\0")  # which may fill up the file
                if not self._rest:
                    continue
                self._began, self._member = self._place, self._packed.tell() - len(self._rest)
                self._members.append((self._began, self._member))
            try:
                found = self._unpacker.decompress(self._rest, _STEP)
            except zlib.error as error:
                raise OSError(str(error)) from None
            self._rest = self._unpacker.unconsumed_tail
        self._ready = found[size:]
        return found[:size]

    def origin(self, place: int) -> int:
        """Return where the member begins that a record begins in; no seek goes to before it."""
        while len(self._members) > 1 and self._members[1][0] <= place:
            self._members.popleft()
        return self._members[0][1] if self._members else 0

    def _go(self, place: int) -> None:
        while len(self._members) > 1 and self._members[-1][0] > place:
            self._members.pop()
        self._begin(b"")
        self._place, self._member = self._members[-1]
        self._began, self._ready = -1, b""
        self._packed.seek(self._member)
        while self._place < place and (found := self._take(min(place - self._place, _STEP))):
            self._taken += len(found)
            self._place += len(found)

    def _searched(self) -> bytes:
        """Return the next bytes, after a damaged member those of the next one."""
        while True:
            try:
                return self.read(_STEP)
            except OSError:
                if not self._packed.find(b"\x1f\x8b\x08", self._member):
                    return b""
                # Nothing before it is searched again.
                self._members.clear()
                self._begin(b"")


class _Records:
    """The records from one place of a file on, up to the first that is damaged.

    Lengths are `doubted` where one before was wrong.
    """

    def __init__(self, file: _Counted, largest: int, doubted: bool) -> None:  # noqa: FBT001
        self.failure: Broken | None = None
        self.place = file.tell()
        self._file = file
        self._largest = largest
        self._doubted = doubted
        self._end = 0
        self._holds_another = False

    def __iter__(self) -> Iterator[Capture | Broken]:
        from fastwarc.warc import ArchiveIterator

        held: Capture | Broken | None = None
        reason = ""
        try:
            for record in chain(ArchiveIterator(self._file, parse_http=False), [None]):
                place = self._file.tell() if record is None else max(self.place, record.stream_pos)
                if held:
                    found, held = held, None
                    self._require_end(place)
                    yield found
                elif record is None and place > self.place:
                    reason = "no record begins here"
                if record is not None:
                    self.place, self._origin = place, self._file.origin(place)
                    held = self._capture(record)
        except PageError as error:
            reason = str(error)
        except OSError as error:
            reason = f"no record begins here, or it is damaged: {str(error)[:100]}"
            # A length that reaches into the next record is noticed only there.
            if held and self._holds_another:
                held, reason = None, _REACHES
            elif held:
                reason = f"what follows this record is damaged, or no record: {str(error)[:100]}"
        if reason:
            self.failure = Broken(self._file.origin(self.place), reason)
        if held:
            yield held

    def _require_end(self, following: int) -> None:
        """Raise PageError if a block holds a record, and none begins where the block ends.

        White space there is skipped by FastWARC, and may be the middle of a record.
        """
        if self._holds_another and following - self._end > _MOST_BETWEEN:
            raise PageError(_REACHES)

    def _capture(self, record: Any) -> Capture | Broken:
        headers: dict[str, str] = {}
        for name, value in record.headers.items():
            headers.setdefault(name.strip().lower(), value.strip())
        kind = headers.get("warc-type", "").lower()
        written = headers.get("content-length", "")
        if not (written.isascii() and written.isdigit() and len(written) <= 18):
            raise PageError(f"found the length {written[:40]!r}, expected a number")
        length = int(written)
        self._end = self._file.block_of(self.place) + length
        kept = length <= self._largest
        block, got, last = bytearray(), 0, b""
        self._holds_another = False
        while got < length and (piece := record.reader.read(min(length - got, _STEP))):
            if kept:
                block += piece
            elif got > _LARGEST_RECORD:
                raise PageError(f"goes on for more than {_LARGEST_RECORD:,} bytes")
            got += len(piece)
            # It may begin in one piece and end in the next.
            last += piece
            self._holds_another |= _BEGINNING_OF_RECORD in last
            last = last[1 - len(_BEGINNING_OF_RECORD) :]
        if got < length:
            raise PageError(f"ends after {got:,} of {length:,} bytes")
        if kind in _KEPT and not kept:
            return Broken(
                self._origin, f"holds {length:,} bytes, expected at most {self._largest:,}"
            )
        capture = Capture(self._origin, kind, headers, bytes(block))
        held = _held_records(capture) if self._holds_another else None
        if held is False and not self._doubted:
            return Broken(self._origin, _HOLDS)
        if held is None:
            return capture
        if self._file.file.seekable():
            raise PageError(_REACHES)
        return Broken(self._origin, _REACHES)


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
        head = HEAD_END.search(block, start, start + LARGEST_HEAD)
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
        raise PageError("has no WARC-Target-URI")
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
