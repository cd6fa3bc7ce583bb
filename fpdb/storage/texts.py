"""The bytes of a page of texts: sorted, each without what it shares with the one before, and an id.

Part of the file format: docs/reference/format.md has the layout, and none of it may change.
"""

from collections.abc import Sequence

import xxhash

from fpdb import kernels
from fpdb.errors import DamagedError
from fpdb.storage.columns import LARGEST

# A text and the id that it leads to.
TextEntry = tuple[bytes, int]

LONGEST_TEXT = 511  # the longest key of LMDB
HEAD = 7  # checksum, how many texts there are, and the bytes of an id
_CHECKSUM_BYTES = 4
_MOST_SHARED = 255
_LONG = 128  # from here on, a length takes two bytes


def pack_texts(entries: Sequence[TextEntry], first: int, after: int) -> tuple[bytearray, int]:
    """Pack sorted entries into a page, as many as fit; return it and the place after the last.

    Its checksum is written by `columns.summed`.
    """
    if kernels.enabled:
        return kernels.texts.packed(entries, first, after)
    parts: list[bytes] = []
    last, size, width, place = b"", HEAD, 0, first
    for place in range(first, after):
        text, number = entries[place]
        shared = _shared_bytes(last, text)
        rest = text[shared:]
        length = len(rest)
        head = (
            (shared, length)
            if length < _LONG
            else (shared, length % _LONG | _LONG, length // _LONG)
        )
        wider = max(width, (number.bit_length() + 7) // 8)
        size += len(head) + length + wider + (wider - width) * (place - first)
        if size > LARGEST:
            break
        parts.append(bytes(head) + rest)
        last, width = text, wider
    else:
        place = after
    page = bytearray(_CHECKSUM_BYTES)
    page += len(parts).to_bytes(2, "little") + bytes((width,))
    for part, (_, number) in zip(parts, entries[first:place], strict=True):
        page += part + number.to_bytes(width, "little")
    return page, place


def _shared_bytes(last: bytes, text: bytes) -> int:
    """Return how many bytes of a text aren't stored, because the one before begins with them."""
    most = min(len(last), len(text), _MOST_SHARED)
    if last[:most] == text[:most]:
        return most
    differs = int.from_bytes(last[:most]) ^ int.from_bytes(text[:most])
    return most - (differs.bit_length() + 7) // 8


def unpack_texts(value: memoryview | bytes, seed: int) -> list[TextEntry]:
    """Return the entries of a page, or raise DamagedError."""
    if kernels.enabled:
        found = kernels.texts.unpacked(value, xxhash.xxh3_64_intdigest(value[4:], seed))
        if found is not None:
            return found
    data = bytes(value)
    if len(data) < HEAD or int.from_bytes(data[:4], "little") != _checksum(value, seed):
        raise DamagedError("the checksum of a page is wrong", hint="run `fpdb check`")
    try:
        entries, at = _read_entries(data)
    except IndexError:
        at = 0
    if at != len(data):
        raise DamagedError("a page can't be read: it has no texts", hint="run `fpdb check`")
    return entries


def _read_entries(data: bytes) -> tuple[list[TextEntry], int]:
    """Return the entries of a page, and where they end; -1 if they aren't those of a page."""
    entries: list[TextEntry] = []
    width, at, last = data[6], HEAD, b""
    if width > 8:
        return entries, -1
    for _ in range(int.from_bytes(data[4:6], "little")):
        shared, length, at = data[at], data[at + 1], at + 2
        if length >= _LONG:
            length, at = length % _LONG + data[at] * _LONG, at + 1
        after = at + length
        text = last[:shared] + data[at:after]
        at = after + width
        if shared > len(last) or at > len(data) or text <= last or len(text) > LONGEST_TEXT:
            return entries, -1
        entries.append((text, int.from_bytes(data[after:at], "little")))
        last = text
    return entries, at


def find_text(value: memoryview, seed: int, text: bytes) -> int | None:
    """Return the id that a text leads to, if it is on a page."""
    if kernels.enabled:
        found = kernels.texts.found(value, xxhash.xxh3_64_intdigest(value[4:], seed), text)
        if found is not None:
            return found if found >= 0 else None
    return dict(unpack_texts(value, seed)).get(text)


def first_text(value: bytes) -> bytes:
    """Return the first text of a page whose checksum wasn't verified; no bytes if it has none."""
    try:
        entries, _ = _read_entries(value)
    except IndexError:
        return b""
    return entries[0][0] if entries else b""


def _checksum(value: memoryview | bytes, seed: int) -> int:
    return xxhash.xxh3_64_intdigest(value[_CHECKSUM_BYTES:], seed) & 0xFFFFFFFF
