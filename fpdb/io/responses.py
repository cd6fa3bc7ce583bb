"""An HTTP response as a crawler stored it: its status, its headers, and its body unpacked."""

import re
import zlib
from dataclasses import dataclass

from fpdb.errors import MissingExtraError

_MOST_HEADERS = 200
_LARGEST_HEAD = 1 << 16
_STATUS = re.compile(rb"HTTP/\d(?:\.\d)?[ \t]+(\d{3})\b")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]{0,1000})?\r?\n")
_CODINGS = 2
_PIECE = 1 << 16


class ResponseError(ValueError):
    """A response that can't be read; says why."""


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
        raise ResponseError("holds no HTTP response")
    end = min(
        (place for place in (block.find(b"\r\n\r\n"), block.find(b"\n\n")) if place >= 0),
        default=len(block),
    )
    if end > _LARGEST_HEAD:
        raise ResponseError(f"has HTTP headers of {end:,} bytes, expected {_LARGEST_HEAD:,}")
    lines = block[:end].split(b"\n")[1:]
    if len(lines) > _MOST_HEADERS:
        raise ResponseError(f"has {len(lines)} HTTP headers, expected at most {_MOST_HEADERS}")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.decode("utf-8", "replace").partition(":")
        headers.setdefault(name.strip().lower(), value.strip())
    width = 4 if block.startswith(b"\r\n\r\n", end) else 2
    return Response(int(match[1]), headers, block[end + width :])


def body_of(response: Response, largest: int) -> bytes:
    """Put the chunks of a body together, and unpack it; never more than `largest` bytes."""
    body = response.body
    if "chunked" in response.headers.get("transfer-encoding", "").lower():
        body = _dechunked(body)
    codings = [
        coding.strip()
        for coding in response.headers.get("content-encoding", "").lower().split(",")
        if coding.strip() not in {"", "identity", "none"}
    ]
    if len(codings) > _CODINGS:
        raise ResponseError(f"is packed {len(codings)} times, expected at most {_CODINGS}")
    for coding in reversed(codings):
        body = _decoded(body, coding, largest)
    if len(body) > largest:
        raise ResponseError(f"holds more than {largest:,} bytes in its body")
    return body


def _dechunked(body: bytes) -> bytes:
    """Put chunks together; what isn't chunked, though it says so, stays as it is."""
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
            raise ResponseError("has a chunk of another length than it says")
    if not pieces:
        return body
    if place >= len(body):  # the connection broke off; what came is worth keeping
        return b"".join(pieces)
    raise ResponseError("has chunks, and then something else")


def _decoded(body: bytes, coding: str, largest: int) -> bytes:
    """Unpack a body; one that isn't packed, though it says so, stays as it is."""
    if coding in {"gzip", "x-gzip"}:
        return _inflated(body, 31, largest) if body.startswith(b"\x1f\x8b") else body
    if coding == "deflate":
        zlib_like = len(body) > 1 and body[0] & 15 == 8 and not (body[0] << 8 | body[1]) % 31
        return _inflated(body, 15 if zlib_like else -15, largest) if body else body
    if coding == "br":
        return _unbrotlied(body, largest) if body else body
    raise ResponseError(f"is packed as {coding[:40]!r}, expected gzip, deflate or br")


def _inflated(body: bytes, wbits: int, largest: int) -> bytes:
    unpacker = zlib.decompressobj(wbits=wbits)
    try:
        # One byte more than is allowed tells that there is more.
        return unpacker.decompress(body, largest + 1)
    except zlib.error as error:
        raise ResponseError(f"has a body that can't be unpacked: {error}") from None


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
        raise ResponseError("has a body that can't be unpacked: no brotli") from None
    return bytes(found)
