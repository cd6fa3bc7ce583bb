"""Responses of HTTP as a crawler stored them: heads, and bodies in chunks or packed."""

import io
import re
import zlib
from collections.abc import Callable
from typing import IO, Any, NamedTuple

from fpdb.io.records import UnfitError

LARGEST_HEAD = 1 << 16
HEAD_END = re.compile(rb"\r\n\r\n|\n\n")
# A line that begins with white space goes on with the one before.
_FOLD = re.compile(rb"\r?\n[ \t]+")
_STATUS = re.compile(rb"HTTP/\d(?:\.\d)?[ \t]+(\d{3})\b")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]{0,1000})?\r?\n")
_MOST_CODINGS = 2


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
    head, *body = HEAD_END.split(block, maxsplit=1)
    if len(head) > LARGEST_HEAD:
        raise UnfitError(f"has HTTP headers of {len(head):,} bytes, expected {LARGEST_HEAD:,}")
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
