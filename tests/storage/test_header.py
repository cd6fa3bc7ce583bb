import pickle
from typing import Any

import msgpack
import pytest
import xxhash

from fpdb.errors import DamagedError, FormatError, NotADatabaseError
from fpdb.storage.format import Header, pack_header, require_supported, seed_of, unpack_header

HEADER: dict[str, Any] = {
    "uuid": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    "created": 1_800_000_000,
    "created_by": "0.1.0",
    "keys": "text",
    "recipe": {"name": "web", "bits": 64},
    "recipe_id": "f8d10bc2707e2db8",
    "capacity": 1_000_000,
    "plan": {"k": 3, "tables": [[16, [0, 1, 2, 3]]]},
}


def stored(**changes: Any) -> Header:
    return unpack_header(pack_header({**HEADER, **changes}))


def test_a_header_comes_back_with_magic_and_versions() -> None:
    header = stored()
    assert header == {
        "read_version": 2,
        "write_version": 2,
        "features": [],
        **HEADER,
    }
    require_supported(header, readonly=False)


def test_the_bytes_of_a_header_stay_what_they_are() -> None:
    """The format of released databases: this must not change."""
    data = pack_header({"uuid": "u", "recipe": {}})
    start, body = b"fpdb\x02\x00\x02\x00", b"\x83\xa8features\x90\xa4uuid\xa1u\xa6recipe\x80"
    assert data[:8] == start
    assert data[16:] == body
    digest = xxhash.xxh3_64_intdigest(start + body, seed_of("header", b"header"))
    assert data[8:16] == digest.to_bytes(8)


def test_a_newer_reader_is_asked_for() -> None:
    with pytest.raises(FormatError, match="has format version 3, this fpdb reads 2") as e:
        stored(read_version=3, write_version=3)
    assert "install a newer fpdb" in e.value.hint
    again = pickle.loads(pickle.dumps(e.value))
    assert (str(again), again.hint) == (str(e.value), e.value.hint)


@pytest.mark.parametrize("rest", [b"", b"a checksum of another kind", bytes(1 << 20)])
def test_of_another_version_nothing_but_the_version_is_read(rest: bytes) -> None:
    for version in (0, 1, 3, 9, 65_535):
        data = b"fpdb" + version.to_bytes(2, "little") * 2 + rest
        with pytest.raises(FormatError, match=f"has format version {version}, this fpdb reads 2"):
            unpack_header(data)


def test_the_first_format_is_named() -> None:
    """It had its version in the map, after a checksum."""
    for more in ({}, {str(number): number for number in range(20)}):
        fields = {"magic": "fpdb", "read_version": 1, "write_version": 1, "features": [], **more}
        with pytest.raises(FormatError, match="has format version 1, this fpdb reads 2") as caught:
            unpack_header(bytes(8) + msgpack.packb(fields))
        assert caught.value.hint == "export it with the fpdb that made it, and load that"


@pytest.mark.parametrize(
    ("fields", "kind", "message"),
    [
        ({"features": ["colours"]}, FormatError, "the feature 'colours'"),
        *(
            ({name: None}, DamagedError, f"the header's {name} is of type NoneType")
            for name in ("uuid", "created", "recipe", "plan", "keys")
        ),
    ],
)
def test_fields_that_keep_out(fields: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        require_supported(stored(**fields), readonly=True)


@pytest.mark.parametrize("value", [[1], {"magic": "other"}, {}, "fpd"])
def test_a_foreign_value_with_a_right_checksum(value: Any) -> None:
    body = msgpack.packb(value)
    with pytest.raises(NotADatabaseError, match="no header that fpdb wrote"):
        unpack_header(xxhash.xxh3_64_digest(body, seed_of("header", b"header")) + body)
    start = pack_header({})[:8]
    digest = xxhash.xxh3_64_digest(start + body, seed_of("header", b"header"))
    if not isinstance(value, dict):
        with pytest.raises(DamagedError, match="no map"):
            unpack_header(start + digest + body)
