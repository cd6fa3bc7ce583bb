"""The header of a database: what made it, what it needs, and who may open it.

A header is a plain dict. On disk it is an xxh3 checksum of eight big-endian bytes, followed by
a msgpack map whose first entry is the magic. Two numbers decide who may open a database: a
program may read it if its own number reaches `read_version`, and write it if it reaches
`write_version`. A feature that a program doesn't know keeps it out altogether.
"""

from collections.abc import Mapping
from typing import Any

import xxhash

from fpdb.errors import DamagedError, NotADatabaseError, TooNewError, UpgradeRequiredError
from fpdb.storage.packing import pack, unpack

Header = dict[str, Any]

MAGIC = "fpdb"
READ_VERSION = 1  # part of the format: the highest version that this code can read
WRITE_VERSION = 1  # part of the format: the highest version that this code can write
OLDEST_VERSION = 1  # what is older needs an upgrade first
MINHASH = "minhash"  # records hold sketches
FEATURES: frozenset[str] = frozenset({MINHASH})

MAX_HEADER_BYTES = 1 << 25  # a recipe may carry a whole table of word weights
CHECKSUM_BYTES = 8

FIELDS: dict[str, type] = {
    "uuid": str,
    "created": int,
    "created_by": str,
    "keys": str,
    "recipe": dict,
    "plan": dict,
}


def encode(header: Mapping[str, Any]) -> bytes:
    """Return the bytes of a header; magic and versions are filled in unless they are given."""
    complete = {
        "magic": MAGIC,
        "read_version": READ_VERSION,
        "write_version": WRITE_VERSION,
        "features": [],
        **header,
    }
    body = pack(complete, "header", MAX_HEADER_BYTES, binary=True)
    return _checksum(body) + body


def decode(data: bytes | memoryview) -> Header:
    """Return the header in these bytes, of whatever version it is."""
    if len(data) > MAX_HEADER_BYTES + CHECKSUM_BYTES:
        raise _foreign(f"a header of {len(data):,} bytes, expected at most {MAX_HEADER_BYTES:,}")
    stored = bytes(data)
    checksum, body = stored[:CHECKSUM_BYTES], stored[CHECKSUM_BYTES:]
    if _checksum(body) != checksum:
        if MAGIC.encode() in body[:32]:
            raise DamagedError(
                f"the header's checksum is {_checksum(body).hex()}, expected {checksum.hex()}",
                hint="restore the database from a backup",
            )
        raise _foreign("no header that fpdb wrote")
    header = unpack(body, "the header")
    if not isinstance(header, dict):
        raise _foreign(f"a header of type {type(header).__name__}, expected a map")
    if header.get("magic") != MAGIC:
        raise _foreign(f"a header with the magic {header.get('magic')!r}, expected {MAGIC!r}")
    return header


def require_openable(header: Header, *, readonly: bool) -> None:
    """Raise an error that says what to do, unless this version may open such a database."""
    _require_versions(header, readonly=readonly)
    for name in header["features"]:
        if not isinstance(name, str):
            raise DamagedError(
                f"the header names a feature of type {type(name).__name__}, expected str",
                hint="restore the database from a backup",
            )
    unknown = [name for name in header["features"] if name not in FEATURES]
    if unknown:
        raise TooNewError(
            f"the database uses the feature {unknown[0]!r}, which this fpdb doesn't know",
            hint="install a newer fpdb",
            found=str(unknown[0]),
            supported=", ".join(sorted(FEATURES)) or "none",
        )
    for name, kind in FIELDS.items():
        _require_field(header, name, kind)


def _require_versions(header: Header, *, readonly: bool) -> None:
    _require_field(header, "read_version", int)
    _require_field(header, "write_version", int)
    _require_field(header, "features", list)
    read, write = header["read_version"], header["write_version"]
    if read > READ_VERSION:
        raise TooNewError(
            f"the database needs a reader of version {read}, this fpdb is one of {READ_VERSION}",
            hint="install a newer fpdb",
            found=read,
            supported=READ_VERSION,
        )
    if read < OLDEST_VERSION:
        raise UpgradeRequiredError(
            f"the database has version {read}, this fpdb reads {OLDEST_VERSION} and above",
            hint="export it with the fpdb that made it (--format portable), and ingest the export",
            found=read,
            supported=OLDEST_VERSION,
        )
    if write > WRITE_VERSION and not readonly:
        raise TooNewError(
            f"the database needs a writer of version {write}, this fpdb is one of {WRITE_VERSION}",
            hint="open it with readonly=True, or install a newer fpdb",
            found=write,
            supported=WRITE_VERSION,
        )


def _require_field(header: Header, name: str, kind: type) -> None:
    value = header.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise DamagedError(
            f"the header's {name} is of type {type(value).__name__}, expected {kind.__name__}",
            hint="restore the database from a backup",
        )


def _checksum(body: bytes) -> bytes:
    return xxhash.xxh3_64_digest(body)


def _foreign(found: str) -> NotADatabaseError:
    return NotADatabaseError(
        f"found {found}", hint="give the path of a directory that fpdb created"
    )
