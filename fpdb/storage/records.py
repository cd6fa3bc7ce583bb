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
    if len(value) > _LARGEST:
        raise DamagedError(
            f"a document has {len(value):,} bytes, expected at most {_LARGEST:,}",
            hint="run `fpdb check`",
        )
    fields: Any = unpack(value[_CHECKSUM_BYTES:], "a document")
    whole = len(Record._fields)
    if not isinstance(fields, list) or len(fields) not in {whole - 1, whole}:
        found = f"{len(fields)} fields" if isinstance(fields, list) else "no list of fields"
        raise DamagedError(
            f"a document has {found}, expected {whole - 1}, or {whole} with a sketch",
            hint="run `fpdb check`",
        )
    return Record(*fields)


def record_length(value: bytes) -> int:
    """Say how many bytes of these the record has that they begin with, 0 if there is none."""
    unpacker = msgpack.Unpacker(max_buffer_size=len(value) + 1, raw=True, max_ext_len=0)
    unpacker.feed(value[_CHECKSUM_BYTES:])
    try:
        unpacker.skip()
    except (ValueError, RecursionError, msgpack.UnpackException):
        return 0
    return _CHECKSUM_BYTES + int(unpacker.tell())


def _checksum(body: memoryview | bytes) -> bytes:
    return xxhash.xxh3_64_digest(body)[-_CHECKSUM_BYTES:]
