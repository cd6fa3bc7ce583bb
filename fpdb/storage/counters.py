"""The counters of a database, kept beside its header and changed with every write."""

import struct
from typing import NamedTuple

import xxhash

from fpdb.errors import DamagedError

_NUMBERS = struct.Struct("<QQQQ")
_WITH_SKETCHES = struct.Struct("<QQQQQ")
_FORMS = {form.size: form for form in (_NUMBERS, _WITH_SKETCHES)}
_CHECKSUM_BYTES = 8


class Counters(NamedTuple):
    """Part of the file format: four little-endian uint64 and the XXH3 of their bytes.

    A database that keeps sketches has a fifth number, which counts them.
    """

    next_id: int = 0
    documents: int = 0
    short: int = 0
    writes: int = 0
    sketches: int | None = None

    def pack(self) -> bytes:
        """Write the counters."""
        body = _NUMBERS.pack(*self[:4]) if self.sketches is None else _WITH_SKETCHES.pack(*self)
        return body + xxhash.xxh3_64_digest(body)

    @classmethod
    def unpack(cls, value: memoryview | bytes | None) -> "Counters":
        """Read the counters."""
        data = bytes(value or b"")
        body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
        numbers = _FORMS.get(len(body))
        if numbers is None or checksum != xxhash.xxh3_64_digest(body):
            raise DamagedError("the counters are damaged", hint="run `fpdb check`")
        return cls(*numbers.unpack(body))
