"""The bytes of header, counters, records and values; docs/reference/format.md has their layouts.

All of it is part of the file format. LMDB's own bytes are in lmdb_file, pages are in
number_pages and text_pages.
"""

import contextlib
import json
import mmap
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, NoReturn

import msgpack
import numpy as np
import xxhash
from numpy.typing import NDArray

from fpdb import kernels
from fpdb.arrays import Column
from fpdb.errors import DamagedError, FormatError, InputError, NotADatabaseError
from fpdb.models import (
    DIGEST_BYTES,
    FIELDS,
    GROUPS,
    KEEPER,
    LATEST,
    MINHASH,
    PASSAGES,
    SKETCH_BYTES,
    Field,
    Key,
)

ID_BYTES = 8
LARGEST_KEY = 1 << 16
LARGEST_META = 1 << 16
MAX_DEPTH = 32
# An empty list takes one byte here and 64 in memory: an unpacked value has no more lists and maps
# than metadata can, and no longer ones than a recipe has words.
_MOST_CONTAINERS = 1 << 16
_MOST_ENTRIES = 1 << 22
# How many times larger than the limit a value may be that is packed, to say how large it is.
_EXCESS = 4
_SIZED = (str, bytes, bytearray, memoryview)
_JSON = json.JSONEncoder(allow_nan=False)


def pack(value: Any, what: str, limit: int, *, binary: bool = False) -> bytes:
    """Pack a value of JSON, or of JSON and `bytes` if it is binary; a tuple becomes a list.

    `what` names it in errors, and at most `limit` bytes are packed.
    """
    try:
        # A value that shares its parts may be far larger than in memory.
        most = _EXCESS * limit
        packed: bytes = b"" if _size(value, most) > most else msgpack.packb(value)
        if 0 < len(packed) <= limit:
            if not binary:
                _JSON.encode(value)
            unpack(packed, what)  # which refuses what only msgpack can hold
    except (DamagedError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(
            f"{what} can't be stored: {error}",
            hint="use None, bool, numbers of 64 bits, str, list and dict with str keys; turn all "
            "else into text first",
        ) from None
    if not 0 < len(packed) <= limit:
        size = f"{len(packed):,}" if packed else f"more than {most:,}"
        raise InputError(
            f"{what} takes {size} bytes when packed, at most {limit:,} are allowed",
            hint="keep large values elsewhere, and store a reference to them",
        )
    return packed


def _size(value: Any, limit: int, levels: int = MAX_DEPTH) -> int:
    """Return how many bytes a value takes at least, or a number above the limit."""
    if isinstance(value, dict):
        items = [*value, *value.values()]
    elif isinstance(value, list | tuple):
        items = list(value)
    else:
        return 1 + len(value) if isinstance(value, _SIZED) else 1
    if not levels:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    size = 1
    for item in items:
        size += 1 + len(item) if type(item) is str else _size(item, limit - size, levels - 1)
        if size > limit:
            break
    return size


def unpack(data: bytes | memoryview, what: str = "a stored value") -> Any:
    """Unpack a value, or raise DamagedError for bytes that `pack` can't have written."""
    containers = entries = 0

    def counted(container: Any) -> Any:
        nonlocal containers, entries
        containers += 1
        entries += len(container)
        if containers > _MOST_CONTAINERS or entries > _MOST_ENTRIES:
            raise ValueError("it holds too many values")
        return container

    try:
        return msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            list_hook=counted,
            object_hook=counted,
            max_array_len=min(len(data), _MOST_ENTRIES),
            max_map_len=min(len(data), _MOST_ENTRIES),
            max_ext_len=0,
            ext_hook=_refuse_extension,
        )
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise DamagedError(
            f"{what} can't be unpacked: {str(error) or 'it is nested too deeply'}",
        ) from error


def _refuse_extension(code: int, _: bytes) -> NoReturn:
    raise ValueError(f"extension type {code} isn't allowed")


Header = dict[str, Any]

MAGIC = b"fpdb"
# Magic, and the lowest versions of programs that may read and write.
_START = struct.Struct("<4sHH")
# The first format, which was never released, had all of that in its map, after the checksum.
_FIRST_FORMAT = re.compile(rb".{8}[\x80-\x8f\xde].{0,2}\xa5magic\xa4fpdb", re.DOTALL)


def seed_of(name: str, key: bytes | memoryview = b"") -> int:
    """Return the seed of the checksum of a value: its sub-database, and the end of its key.

    So a value that is intact has a wrong checksum in the place of another one.
    """
    return xxhash.xxh3_64_intdigest(name.encode()) ^ int.from_bytes(key[-8:])


_HEADER_SEED = seed_of("header", b"header")
_COUNTERS_SEED = seed_of("counters", b"counters")
RECORD_SEED = seed_of("documents")  # without the id
READ_VERSION = 2  # the version that this code can read; an older fpdb must export its own
WRITE_VERSION = 2  # the highest version that this code can write
FEATURES = [MINHASH, PASSAGES, GROUPS]

MAX_HEADER_BYTES = 1 << 25  # a recipe may carry a table of word weights
CHECKSUM_BYTES = 8
_RESTORE = "restore the database from a backup"

HEADER_FIELDS: dict[str, type] = {
    "uuid": str,
    "created": int,
    "created_by": str,
    "keys": str,
    "recipe": dict,
    "recipe_id": str,
    "plan": dict,
    "capacity": int,
}


def pack_header(header: Mapping[str, Any]) -> bytes:
    """Pack a header; features and versions are added unless they are given."""
    fields = {"features": [], **header}
    versions = [
        fields.pop(name, version)
        for name, version in (("read_version", READ_VERSION), ("write_version", WRITE_VERSION))
    ]
    start = _START.pack(MAGIC, *versions)
    body = pack(fields, "header", MAX_HEADER_BYTES, binary=True)
    return start + xxhash.xxh3_64_digest(start + body, _HEADER_SEED) + body


def unpack_header(data: bytes | memoryview) -> Header:
    """Unpack a header; raise FormatError if it is of a version that this code can't read.

    The version comes before all that a checksum covers: what follows it is as that version has it.
    """
    data = bytes(data[: MAX_HEADER_BYTES + 2 * _START.size])
    start, checksum = data[: _START.size], data[_START.size : _START.size + CHECKSUM_BYTES]
    body = data[_START.size + CHECKSUM_BYTES :]
    if not start.startswith(MAGIC) or len(start) < _START.size or len(body) > MAX_HEADER_BYTES:
        if _FIRST_FORMAT.match(data):
            raise _unsupported(1)
        raise NotADatabaseError(
            "found no header that fpdb wrote", hint="give the path of a directory that fpdb created"
        )
    _, read, write = _START.unpack(start)
    readable = read == READ_VERSION
    # Where the rest is right, the version itself is damaged.
    proper = start if readable else _START.pack(MAGIC, READ_VERSION, WRITE_VERSION)
    fits = checksum == xxhash.xxh3_64_digest(proper + body, _HEADER_SEED)
    if not (readable or fits):
        raise _unsupported(read)
    if not (readable and fits):
        raise DamagedError("the header's checksum is wrong", hint=_RESTORE)
    header = unpack(body, "the header")
    if not isinstance(header, dict):
        raise DamagedError("the header is no map", hint=_RESTORE)
    return {**header, "read_version": read, "write_version": write}


def _unsupported(version: int) -> FormatError:
    hint = "export it with the fpdb that made it, and load that"
    if version > READ_VERSION:
        hint = f"install a newer fpdb, or {hint}"
    return FormatError(
        f"the database has format version {version}, this fpdb reads {READ_VERSION}", hint=hint
    )


def require_supported(header: Header, *, readonly: bool) -> None:
    """Raise an error unless this version of fpdb may open a database with such a header."""
    # A newer version may lack any other field.
    _require_fields(header, {"write_version": int, "features": list})
    write = header["write_version"]
    if write > WRITE_VERSION and not readonly:
        raise FormatError(
            f"the database needs a writer of version {write}, this fpdb is one of {WRITE_VERSION}",
            hint="open it to read only, or install a newer fpdb",
        )
    for name in header["features"]:
        if name not in FEATURES:
            raise FormatError(
                f"the database uses the feature {name!r}, which this fpdb doesn't support",
                hint="install a newer fpdb",
            )
    _require_fields(header, HEADER_FIELDS)


def _require_fields(header: Header, fields: dict[str, type]) -> None:
    for name, kind in fields.items():
        value = header.get(name)
        if type(value) is not kind:
            raise DamagedError(
                f"the header's {name} is of type {type(value).__name__}, expected {kind.__name__}",
                hint=_RESTORE,
            )


_COUNTERS = {8 * count: struct.Struct(f"<{count}Q") for count in (4, 5)}


class Counters(NamedTuple):
    """The counters of a database, which change with every write."""

    next_id: int = 0
    documents: int = 0
    short: int = 0
    writes: int = 0
    sketches: int | None = None

    def pack(self) -> bytes:
        numbers = self[:4] if self.sketches is None else self
        body = _COUNTERS[8 * len(numbers)].pack(*numbers)
        return body + xxhash.xxh3_64_digest(body, _COUNTERS_SEED)

    @classmethod
    def unpack(cls, value: memoryview | bytes | None) -> "Counters":
        """Unpack the counters, or raise DamagedError."""
        data = bytes(value or b"")
        body = data[:-CHECKSUM_BYTES]
        form = _COUNTERS.get(len(body))
        if form is None or data != body + xxhash.xxh3_64_digest(body, _COUNTERS_SEED):
            raise DamagedError("the counters are damaged")
        return cls(*form.unpack(body))


RUNS = "runs"


class StoredRun(NamedTuple):
    """A run that adds what it keeps of some records: which ones, how, and when.

    `content`, its key, is a digest of the records, whatever files they are in, and `options` one of
    how they are compared. While it isn't finished, its outputs may be in their places, and its
    documents aren't stored; then all of them are. The command, if there is one, finishes it.
    """

    content: bytes
    options: bytes
    time: int
    finished: bool
    command: str = ""

    @property
    def begun(self) -> str:
        """When it began."""
        return datetime.fromtimestamp(self.time, UTC).strftime("%Y-%m-%d %H:%M UTC")

    def pack(self) -> bytes:
        """Pack all but the content, with a checksum that covers that too."""
        body: bytes = msgpack.packb([*self[1:4], *filter(None, [self.command])])
        return xxhash.xxh3_64_digest(body, seed_of(RUNS, self.content)) + body

    @classmethod
    def unpack(cls, key: memoryview | bytes, value: memoryview | bytes) -> "StoredRun":
        """Unpack a key and its value, or raise DamagedError."""
        body = value[CHECKSUM_BYTES:]
        if bytes(value[:CHECKSUM_BYTES]) != xxhash.xxh3_64_digest(body, seed_of(RUNS, key)):
            raise DamagedError("the record of a run is damaged")
        fields = unpack(body, "the record of a run")
        kinds = [type(field) for field in fields] if isinstance(fields, list) else []
        if (
            len(key) != DIGEST_BYTES
            or kinds[:3] != [bytes, int, bool]
            or kinds[3:] not in ([], [str])
        ):
            raise DamagedError("the record of a run has other fields")
        return cls(bytes(key), *fields)


_NO_DIGEST = bytes(DIGEST_BYTES)
_RECORD_CHECKSUM_BYTES = 4
# Digest and sketch, if there are any, come after a byte of flags.
_MARKS_AT = _RECORD_CHECKSUM_BYTES + 1
# The flags of a record: its parts; whether its key is a number, and its time takes five bytes;
# and whether flags of further fields follow, with these, at its end.
_FINGERPRINT, _DIGEST, _SKETCH, _CHARACTERS, _META, _NUMBER, _LATE, _FURTHER = (
    1 << bit for bit in range(8)
)
_LARGEST_RECORD = LARGEST_META + LARGEST_KEY + (1 << 26)


class Stored(NamedTuple):
    """A document as it is stored, or ready to be stored.

    `fingerprint` is None if the text is short; another field is empty, or 0, if there is none. The
    digest of a short text that equals no other is zeros. The `id` of a document with a text key is
    assigned when it is written. Fields from `passages` on are the further ones, all of them bytes.
    `keeper` is the packed id of another document, in whose group it is.
    """

    id: int
    key: Key
    fingerprint: int | None
    added: int
    digest: bytes = b""
    meta: bytes = b""
    characters: int = 0
    sketch: bytes = b""
    passages: bytes = b""
    keeper: bytes = b""

    def holds_what(self, other: "Stored") -> bool:
        """Return whether two documents with the same key are equal but for id, time and keeper."""
        return self == other._replace(id=self.id, added=self.added, keeper=self.keeper)

    def has_text_of(self, other: "Stored") -> bool:
        """Return whether two documents have the same text, or both the same fingerprint alone."""
        mine, its = (
            (document.fingerprint, document.digest, document.sketch) for document in (self, other)
        )
        return mine == its

    def completed(self, stored: "Stored") -> "Stored":
        """Return a document with what it lacks and a stored one has of the same text.

        A bare fingerprint lacks metadata too; it counts as that of the text which has it.
        """
        if self.fingerprint != stored.fingerprint or self.digest not in (b"", stored.digest):
            return self
        return self._replace(
            digest=stored.digest,
            meta=self.meta if self.meta or self.digest else stored.meta,
            characters=self.characters or stored.characters,
            sketch=self.sketch or stored.sketch,
            passages=self.passages or stored.passages,
        )


# The places of the fields that a bare document lacks, and of the further ones.
OPTIONAL_AT: Final = 4
FURTHER_AT: Final = 8
FURTHER = Stored._fields[FURTHER_AT:]
_FURTHER_FIELDS: tuple[Field, ...] = *FIELDS[1 - len(FURTHER) :], KEEPER
_NO_FURTHER = [b""] * len(FURTHER)


def pack_record(stored: Stored, bits: int) -> bytes:
    """Pack the record of a document with a fingerprint of N bits."""
    number, key, fingerprint, added, digest, meta, characters, sketch, *further = stored
    flags, marks, tail = 0, digest, b""
    if sketch:
        flags |= _DIGEST | _SKETCH
        marks = (digest or _NO_DIGEST) + sketch
    elif digest:
        flags |= _DIGEST
    if fingerprint is not None:
        flags |= _FINGERPRINT
        marks += fingerprint.to_bytes(bits // 8, "big")
    time = added.to_bytes(4 if added < 1 << 32 else 5, "little")
    if len(time) > 4:
        flags |= _LATE
    if characters:
        flags |= _CHARACTERS
        time += _varint(characters)
    if isinstance(key, str):
        name = key.encode()
    else:
        flags |= _NUMBER
        name = key.to_bytes((key.bit_length() + 7) // 8, "big")
    if meta:
        flags |= _META
        tail = _varint(len(meta)) + meta
    if further != _NO_FURTHER:
        flags |= _FURTHER
        tail += _varint(_marks_of(further))
        tail += b"".join(_varint(len(value)) + value for value in further if value)
    body = b"%c%b%b%b%b%b" % (flags, marks, time, _varint(len(name)), name, tail)
    return _record_checksum(body, number) + body


def _marks_of(further: Iterable[bytes]) -> int:
    return sum(1 << place for place, value in enumerate(further) if value)


def _varint(number: int) -> bytes:
    """Pack a number into bytes of seven bits, the lowest first; all but the last are above 127."""
    packed = b""
    while number > 127:
        packed += bytes((number & 127 | 128,))
        number >>= 7
    return packed + bytes((number,))


def _read_varint(data: memoryview | bytes, at: int) -> tuple[int, int]:
    """Return a number that `_varint` packed, and the place after it."""
    number = shift = 0
    while (byte := data[at]) > 127:
        number |= (byte & 127) << shift
        shift += 7
        at += 1
        if shift > 63:
            raise ValueError("a number has more than 64 bits")
    return number | byte << shift, at + 1


def require_checksum(value: memoryview | bytes, number: int) -> None:
    """Raise DamagedError unless a value is an intact record, and that of an id."""
    checksum = _record_checksum(value[_RECORD_CHECKSUM_BYTES:], number)
    if bytes(value[:_RECORD_CHECKSUM_BYTES]) != checksum:
        raise DamagedError("the checksum of a document is wrong")


def require_all_intact(values: Sequence[memoryview], ids: Sequence[int]) -> None:
    """Raise DamagedError unless all values are intact records, and those of some ids."""
    width = _RECORD_CHECKSUM_BYTES
    if not all(
        value[:width] == _record_checksum(value[width:], number)
        for value, number in zip(values, ids, strict=True)
    ):
        raise DamagedError("the checksum of a document is wrong")


def renumbered(value: memoryview | bytes, number: int) -> bytes:
    """Return an intact record as that of another id."""
    body = bytes(value[_RECORD_CHECKSUM_BYTES:])
    return _record_checksum(body, number) + body


def unpack_record(value: memoryview | bytes, number: int, bits: int) -> Stored:
    """Unpack the record of an id, or raise DamagedError."""
    require_checksum(value, number)
    if len(value) <= _LARGEST_RECORD:
        with contextlib.suppress(IndexError, ValueError):
            return _read_record(bytes(value), number, bits)
    raise DamagedError("its fields aren't those of a document")


def _read_record(data: bytes, number: int, bits: int) -> Stored:
    flags, at = data[_RECORD_CHECKSUM_BYTES], _MARKS_AT
    fingerprint, digest, sketch, characters, meta = None, b"", b"", 0, b""
    further: Sequence[bytes] = ()
    if flags & _DIGEST:
        digest, at = data[at : at + DIGEST_BYTES], at + DIGEST_BYTES
    if flags & _SKETCH:
        sketch, at = data[at : at + SKETCH_BYTES], at + SKETCH_BYTES
    if flags & _FINGERPRINT:
        fingerprint, at = int.from_bytes(data[at : at + bits // 8]), at + bits // 8
        if digest == _NO_DIGEST:
            digest = b""
    after = at + (5 if flags & _LATE else 4)
    added, at = int.from_bytes(data[at:after], "little"), after
    if flags & _CHARACTERS:
        characters, at = _read_varint(data, at)
    length, at = _read_varint(data, at)
    name, at = data[at : at + length], at + length
    if flags & _META:
        length, at = _read_varint(data, at)
        meta, at = data[at : at + length], at + length
    if flags & _FURTHER:
        further, at = _read_further(data, at)
    key: Key = int.from_bytes(name) if flags & _NUMBER else name.decode()
    if (
        flags & (_DIGEST | _SKETCH) == _SKETCH  # a sketch comes with a digest
        or at != len(data)
        or added > LATEST
        or (flags & _META and not meta)
    ):
        raise ValueError("it isn't a record")
    return Stored(number, key, fingerprint, added, digest, meta, characters, sketch, *further)


def _read_further(data: bytes, at: int) -> tuple[Sequence[bytes], int]:
    """Return the further fields of a record, given the place of their flags, and their end."""
    further = _NO_FURTHER.copy()
    marks, at = _read_varint(data, at)
    for place in range(marks.bit_length()):
        if marks >> place & 1:
            length, at = _read_varint(data, at)
            further[place], at = data[at : at + length], at + length
    fits = all(map(Field.fits, _FURTHER_FIELDS, (value or None for value in further)))
    if not (fits and 0 < marks == _marks_of(further)):
        raise ValueError("a further field isn't one")
    return further, at


# Ids, digests with sketches (zeros for missing ones), and fingerprints.
Marked = tuple[Column, NDArray[np.uint8], Column]


def intact_heads(cursor: Any, ids: Column, page: int, bits: int) -> bytearray | None:
    """Return for `marks_in` the heads of records by their ids, which are on leaves of N bytes.

    None is returned without kernels, or if a record is missing or isn't intact. Leaves that are
    larger than the pages of the system, from another machine, don't begin at their multiples.
    """
    if not kernels.enabled or page > mmap.PAGESIZE:
        return None
    digest, end = xxhash.xxh3_64_intdigest, _head_bytes(bits)
    return kernels.number_pages.record_heads(cursor, ids, digest, RECORD_SEED, page, end)


def intact_keys(cursor: Any, ids: Column, page: int, bits: int) -> list[str] | None:
    """Return the keys in records, as `intact_heads` does their heads; None if one is no text."""
    if not kernels.enabled or page > mmap.PAGESIZE:
        return None
    digest, keys = xxhash.xxh3_64_intdigest, list[str]()
    read = kernels.number_pages.record_heads
    heads = read(cursor, ids, digest, RECORD_SEED, page, 0, keys, bits // 8)
    return None if heads is None else keys


def _head_bytes(bits: int) -> int:
    return _MARKS_AT + DIGEST_BYTES + SKETCH_BYTES + bits // 8


def marks_in(ids: Column, values: list[memoryview] | bytearray, bits: int) -> Marked:
    """Return ids, marks and fingerprints of the records that have a fingerprint.

    The records, or their heads, are known to be intact.
    """
    end = _head_bytes(bits)
    if isinstance(values, bytearray):
        packed = values
    elif kernels.enabled:
        packed = kernels.number_pages.heads(values, end)
    else:
        packed = bytearray().join([bytes(value[:end]).ljust(end, b"\0") for value in values])
    rows = np.frombuffer(packed, np.uint8).reshape(-1, end)
    printed = rows[:, _RECORD_CHECKSUM_BYTES] & _FINGERPRINT != 0
    if not printed.all():
        rows, ids = rows[printed], ids[printed]
    flags, marks = rows[:, _RECORD_CHECKSUM_BYTES], rows[:, _MARKS_AT:]
    digested, sketched = flags & _DIGEST != 0, flags & _SKETCH != 0
    at = digested * DIGEST_BYTES + sketched * SKETCH_BYTES
    words = np.take_along_axis(marks, at[:, None] + np.arange(bits // 8), axis=1)
    fingerprints = words.view(">u4" if bits == 32 else ">u8").astype(np.uint64)
    marks = marks[:, : DIGEST_BYTES + SKETCH_BYTES]
    marks[~digested, :DIGEST_BYTES] = 0
    marks[~sketched, DIGEST_BYTES:] = 0
    return ids, marks, fingerprints if bits == 128 else fingerprints[:, 0]


def _record_checksum(body: memoryview | bytes, number: int) -> bytes:
    return xxhash.xxh3_64_digest(body, RECORD_SEED ^ number)[-_RECORD_CHECKSUM_BYTES:]
