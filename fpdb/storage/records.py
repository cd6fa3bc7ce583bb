"""The bytes of a document: a checksum and a msgpack list with everything that is kept of it."""

from typing import Any, NamedTuple

import msgpack
import xxhash

from fpdb.errors import DamagedError
from fpdb.storage.packing import unpack

_CHECKSUM_BYTES = 4
LARGEST_META = 1 << 16
LARGEST_KEY = 1 << 16


class Record(NamedTuple):
    """What is stored of a document; part of the file format, in this order.

    `fingerprint` has the bytes of the number, big-endian, none if the text is short; `digest`
    those of the text, none if only a fingerprint was given; `meta` is packed already;
    `characters` is the length of the text; `sketch` stands only in databases that keep sketches,
    and has no bytes if the document has none.
    """

    key: str | int
    fingerprint: bytes
    added: int
    digest: bytes
    meta: bytes
    characters: int
    sketch: bytes | None = None


def pack_record(record: Record) -> bytes:
    """Write a record."""
    body: bytes = msgpack.packb(tuple(record[:-1] if record.sketch is None else record))
    return _checksum(body) + body


def require_sound(value: memoryview | bytes) -> None:
    """Raise an error if these aren't the bytes that were written."""
    if bytes(value[:_CHECKSUM_BYTES]) != _checksum(value[_CHECKSUM_BYTES:]):
        raise DamagedError("the checksum of a document is wrong", hint="run `fpdb check`")


def unpack_record(value: memoryview | bytes) -> Record:
    """Read a record."""
    require_sound(value)
    fields: Any = unpack(value[_CHECKSUM_BYTES:], "a document")
    try:
        return Record(*fields)
    except TypeError:
        raise DamagedError(
            f"a document has {len(fields)} fields, expected 6, or 7 with a sketch",
            hint="run `fpdb check`",
        ) from None


def _checksum(body: memoryview | bytes) -> bytes:
    return xxhash.xxh3_64_digest(body)[-_CHECKSUM_BYTES:]
