"""The bytes of a page of texts: sorted, each without the prefix of the one before, and an id.

Part of the file format: docs/reference/format.md has the layout, and none of it may change.
"""

from bisect import bisect_right
from collections.abc import Sequence

import xxhash

from fpdb import kernels
from fpdb.errors import DamagedError
from fpdb.storage.number_pages import LARGEST

# A text and the id that it leads to.
TextEntry = tuple[bytes, int]

LONGEST_TEXT = 511  # the longest key of LMDB
HEAD = 7  # checksum, how many texts there are, and the bytes of an id
_CHECKSUM_BYTES = 4
_MOST_SHARED = 255
_LONG = 128  # from here on, a length takes two bytes


def pack_texts(entries: Sequence[TextEntry], first: int = 0) -> tuple[bytearray, int]:
    """Pack sorted entries, from one on, into a page, as many as fit.

    Return it and the place after the last.
    Its checksum is written by `number_pages.summed`.
    """
    if kernels.enabled:
        return kernels.text_pages.packed(entries, first, len(entries))
    parts: list[bytes] = []
    last, size, width = b"", HEAD, 0
    for text, number in entries[first:]:
        shared, most = 0, min(len(last), len(text), _MOST_SHARED)
        while shared < most and last[shared] == text[shared]:
            shared += 1
        length = len(text) - shared
        lengths = (length,) if length < _LONG else (length % _LONG | _LONG, length // _LONG)
        wider = max(width, (number.bit_length() + 7) // 8)
        size += 1 + len(lengths) + length + wider + (wider - width) * len(parts)
        if size > LARGEST:
            break
        parts.append(bytes((shared, *lengths)) + text[shared:])
        last, width = text, wider
    place = first + len(parts)
    page = bytearray(_CHECKSUM_BYTES)
    page += len(parts).to_bytes(2, "little") + bytes((width,))
    for part, (_, number) in zip(parts, entries[first:place], strict=True):
        page += part + number.to_bytes(width, "little")
    return page, place


def unpack_texts(value: memoryview | bytes, seed: int) -> list[TextEntry]:
    """Return the entries of a page, or raise DamagedError."""
    if kernels.enabled:
        texts = kernels.text_pages.unpacked(value, xxhash.xxh3_64_intdigest(value[4:], seed))
        if texts is not None:
            return texts
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


def find_texts(
    value: memoryview, seed: int, texts: list[bytes], first: int = 0
) -> list[int | None]:
    """Return the ids that sorted texts lead to, from one on, None for one that isn't on the page.

    It ends before those after the last text of the page, but the first is always among them.
    """
    if kernels.enabled:
        digest = xxhash.xxh3_64_intdigest(value[4:], seed)
        numbers = kernels.text_pages.numbers_of(value, digest, texts, first)
        if numbers is not None:
            return numbers
    known = dict(unpack_texts(value, seed))
    after = bisect_right(texts, max(known), first) if known else first
    return [known.get(text) for text in texts[first : max(after, first + 1)]]


def _checksum(value: memoryview | bytes, seed: int) -> int:
    return xxhash.xxh3_64_intdigest(value[_CHECKSUM_BYTES:], seed) & 0xFFFFFFFF
