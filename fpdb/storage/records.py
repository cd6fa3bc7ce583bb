"""The bytes of a document: a checksum and a msgpack list with everything that is kept of it."""

from typing import Any, NamedTuple

import msgpack
import xxhash

from fpdb.errors import DamagedError
from fpdb.storage.packing import unpack

_CHECKSUM_BYTES = 4
LARGEST_META = 1 << 16
LARGEST_KEY = 1 << 16
_LARGEST = LARGEST_META + LARGEST_KEY + 256


class Record(NamedTuple):
    """What is stored of a document; part of the file format, in this order.

    `fingerprint` has the bytes of the number, big-endian, none if the text is short; `digest`
    those of the text, none if only a fingerprint was given; `meta` is packed already;
    `characters` is the length of the text.
    """

    key: str | int
    fingerprint: bytes
    added: int
    digest: bytes
    meta: bytes
    characters: int


def pack_record(record: Record) -> bytes:
    """Write a record."""
    body: bytes = msgpack.packb(tuple(record))
    return _checksum(body) + body


def require_sound(value: memoryview | bytes) -> None:
    """Raise an error if these aren't the bytes that were written."""
    if bytes(value[:_CHECKSUM_BYTES]) != _checksum(value[_CHECKSUM_BYTES:]):
        raise DamagedError("the checksum of a document is wrong", hint="run `fpdb check`")


def unpack_record(value: memoryview | bytes) -> Record:
    """Read a record."""
    require_sound(value)
    if len(value) > _LARGEST:
        raise DamagedError(
            f"a document has {len(value):,} bytes, expected at most {_LARGEST:,}",
            hint="run `fpdb check`",
        )
    fields: Any = unpack(value[_CHECKSUM_BYTES:], "a document")
    if not isinstance(fields, list) or len(fields) != len(Record._fields):
        found = f"{len(fields)} fields" if isinstance(fields, list) else "no list of fields"
        raise DamagedError(
            f"a document has {found}, expected {len(Record._fields)}", hint="run `fpdb check`"
        )
    return Record(*fields)


def _checksum(body: memoryview | bytes) -> bytes:
    return xxhash.xxh3_64_digest(body)[-_CHECKSUM_BYTES:]
