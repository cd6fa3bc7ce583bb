"""The counters of a database, kept beside its header and changed with every write."""

import struct
from typing import NamedTuple

import xxhash

from fpdb.errors import DamagedError

_NUMBERS = struct.Struct("<QQQQ")


class Counters(NamedTuple):
    """Part of the file format: four little-endian uint64 and the XXH3 of their bytes."""

    next_id: int = 0
    documents: int = 0
    short: int = 0
    writes: int = 0

    def pack(self) -> bytes:
        """Write the counters."""
        body = _NUMBERS.pack(*self)
        return body + xxhash.xxh3_64_digest(body)

    @classmethod
    def unpack(cls, value: memoryview | bytes | None) -> "Counters":
        """Read the counters."""
        data = bytes(value or b"")
        body, checksum = data[: _NUMBERS.size], data[_NUMBERS.size :]
        if len(body) != _NUMBERS.size or checksum != xxhash.xxh3_64_digest(body):
            raise DamagedError("the counters are damaged", hint="run `fpdb check`")
        return cls(*_NUMBERS.unpack(body))
