"""Metadata of a document: a value of its caller, or where fpdb itself read a record.

Of the latter the names are bytes, which no value of a caller holds; so the fields of users never
mean anything to fpdb.
"""

from collections.abc import Sequence
from typing import Any

import msgpack

from fpdb.models import Key
from fpdb.storage.format import Stored, unpack

# A key that is taken gets a number; so it has to leave room for that.
_LONGEST_KEY = 16_000


class Origin(dict[str, Any]):
    """Where `dedupe` read a record: its `source`, and its `key` if it is stored under another.

    `newest` has the field by which the newest record was kept, with its value as a number.
    """


def pack_origin(source: str, key: Key | None = None, newest: dict[str, Any] | None = None) -> bytes:
    """Pack where a record was read, as metadata."""
    fields = {b"source": source, b"key": key, b"newest": newest}
    packed: bytes = msgpack.packb(
        {name: value for name, value in fields.items() if value is not None}
    )
    return packed


def pack_origins(sources: Sequence[bytes]) -> list[bytes]:
    """Pack where records were read whose keys are their own."""
    sizes = set(map(len, sources))
    heads = {size: pack_origin("x" * size).removesuffix(b"x" * size) for size in sizes}
    return [heads[len(source)] + source for source in sources]


def unpack_meta(meta: bytes) -> object:
    """Return metadata as they were added, or an `Origin`."""
    if not meta:
        return None
    value = unpack(meta, "metadata")
    if type(value) is dict and b"source" in value:
        return Origin({name.decode(): value for name, value in value.items()})
    return value


def origin_of(key: Key, meta: object) -> tuple[Key, str | None]:
    """Return the key of a stored document as it was read, and its place if that is known."""
    known = meta if isinstance(meta, Origin) else {}
    return known.get("key", key), known.get("source")


def fields_of(meta: bytes) -> dict[str, Any]:
    """Return the fields of metadata, of an `Origin` those by which the newest record was kept."""
    value = unpack_meta(meta)
    if isinstance(value, Origin):
        value = value.get("newest")
    return value if isinstance(value, dict) else {}


def renamed(document: Stored, number: int) -> Stored:
    """Give another key to a document whose key is taken, and note its own."""
    value = unpack_meta(document.meta)
    (key, _), meta = origin_of(document.key, value), document.meta
    if isinstance(value, Origin):
        meta = pack_origin(value["source"], key, value.get("newest"))
    return document._replace(key=f"{str(key)[:_LONGEST_KEY]} #{number}", meta=meta)
