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
        "magic": "fpdb",
        "read_version": 1,
        "write_version": 1,
        "features": [],
        **HEADER,
    }
    require_supported(header, readonly=False)


def test_the_bytes_of_a_header_stay_what_they_are() -> None:
    """The format of released databases: this must not change."""
    data = pack_header({"uuid": "u", "recipe": {}})
    body = (
        b"\x86\xa5magic\xa4fpdb\xacread_version\x01\xadwrite_version\x01\xa8features\x90"
        b"\xa4uuid\xa1u\xa6recipe\x80"
    )
    assert data[8:] == body
    assert data[:8] == xxhash.xxh3_64_intdigest(body, seed_of("header", b"header")).to_bytes(8)


def test_further_fields_are_kept() -> None:
    header = stored(counter=5)
    require_supported(header, readonly=False)
    assert header["counter"] == 5


def test_a_newer_reader_is_asked_for() -> None:
    with pytest.raises(FormatError, match="has format version 2, this fpdb reads 1 to 1") as e:
        require_supported(stored(read_version=2, write_version=2), readonly=True)
    again = pickle.loads(pickle.dumps(e.value))
    assert (str(again), again.hint) == (str(e.value), e.value.hint)


def test_a_newer_writer_may_still_be_read() -> None:
    header = stored(write_version=2)
    require_supported(header, readonly=True)
    with pytest.raises(FormatError, match="needs a writer of version 2") as caught:
        require_supported(header, readonly=False)
    assert "readonly=True" in caught.value.hint


def test_a_newer_database_may_lack_what_this_version_expects() -> None:
    data = pack_header({"read_version": 9, "write_version": 9})
    with pytest.raises(FormatError):
        require_supported(unpack_header(data), readonly=True)


def test_an_unknown_feature_keeps_out() -> None:
    with pytest.raises(FormatError, match="the feature 'colours'"):
        require_supported(stored(features=["colours"]), readonly=True)


def test_an_old_database_asks_for_an_upgrade() -> None:
    with pytest.raises(FormatError, match="has format version 0"):
        require_supported(stored(read_version=0), readonly=True)


@pytest.mark.parametrize("name", ["uuid", "created", "recipe", "plan", "keys"])
def test_a_field_of_the_wrong_type_is_damage(name: str) -> None:
    with pytest.raises(DamagedError, match=f"the header's {name} is of type NoneType"):
        require_supported(stored(**{name: None}), readonly=True)


def test_every_flipped_bit_is_seen() -> None:
    data = pack_header(HEADER)
    for bit in range(8 * len(data)):
        broken = bytearray(data)
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises((DamagedError, NotADatabaseError)):
            unpack_header(bytes(broken))


@pytest.mark.parametrize("value", [[1], {"magic": "other"}, {}, "fpd"])
def test_a_foreign_header_with_a_right_checksum_is_foreign(value: Any) -> None:
    body = msgpack.packb(value)
    with pytest.raises(NotADatabaseError):
        unpack_header(xxhash.xxh3_64_digest(body, seed_of("header", b"header")) + body)


@pytest.mark.parametrize("data", [b"", b"short", b"something quite different"])
def test_bytes_of_another_program_are_foreign(data: bytes) -> None:
    with pytest.raises(NotADatabaseError, match="no header that fpdb wrote"):
        unpack_header(data)
