"""Records, runs and limits of values, byte by byte as reference/format.md describes them."""

import msgpack
import pytest
import xxhash

from fpdb.errors import DamagedError, InputError
from fpdb.storage import format as layout
from fpdb.storage.format import Stored, StoredRun, pack, pack_record, unpack, unpack_record

DIGEST, SKETCH, PASSAGES = bytes(range(16)), bytes(range(128)), bytes(range(10))
PRINT = 0x0123456789ABCDEF
RECORDS = {
    "all there is": (
        Stored(7, "a", PRINT, 258, DIGEST, b"\5", 300, SKETCH, PASSAGES),
        "9f",
        DIGEST + SKETCH + bytes.fromhex("0123456789abcdef 02010000 ac02 0161 0105 010a") + PASSAGES,
    ),
    "a short text with a number, late": (
        Stored(258, 258, None, 1 << 32, DIGEST, b"", 127),
        "6a",
        DIGEST + bytes.fromhex("0000000001 7f 020102"),
    ),
    "a sketch without a digest": (
        Stored(0, "", PRINT, (1 << 32) - 1, b"", b"", 128, SKETCH),
        "0f",
        bytes(16) + SKETCH + bytes.fromhex("0123456789abcdef ffffffff 8001 00"),
    ),
    "a fingerprint": (Stored(1, 0, 1, 0), "21", bytes.fromhex("0000000000000001 00000000 00")),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_has_the_bytes_of_the_page(name: str) -> None:
    stored, flags, fields = RECORDS[name]
    body = bytes.fromhex(flags) + fields
    seed = xxhash.xxh3_64_intdigest(b"documents") ^ stored.id
    expected = xxhash.xxh3_64_digest(body, seed)[4:] + body
    assert pack_record(stored, 64) == expected
    assert unpack_record(expected, stored.id, 64) == stored
    for cut in range(1, len(body)):
        part = body[:cut]
        with pytest.raises(DamagedError):
            unpack_record(xxhash.xxh3_64_digest(part, seed)[4:] + part, stored.id, 64)


def test_a_run_comes_back() -> None:
    for run in (
        StoredRun(DIGEST, b"o", 1_700_000_000, finished=True),
        StoredRun(DIGEST, b"o", 0, finished=False, command="fpdb dedupe"),
    ):
        assert StoredRun.unpack(DIGEST, run.pack()) == run
    assert run.begun == "1970-01-01 00:00 UTC"


def test_metadata_take_at_most_65536_bytes() -> None:
    longest = "x" * 65_533  # after a byte for the kind and two for the length
    assert len(pack(longest, "meta", layout.LARGEST_META)) == 65_536
    with pytest.raises(InputError, match="65,537 bytes"):
        pack(longest + "x", "meta", layout.LARGEST_META)
    with pytest.raises(InputError, match="bytes is not JSON"):
        pack(longest.encode(), "meta", 65_536)


@pytest.mark.parametrize(
    ("value", "fits"),
    [([[1, 2], []], True), ([[1, 2], [1]], False), ([[], [[]]], False)],
    ids=["four in three", "five", "four lists"],
)
def test_a_value_holds_so_many_entries_and_containers(
    monkeypatch: pytest.MonkeyPatch, value: list[object], fits: bool
) -> None:
    monkeypatch.setattr(layout, "_MOST_ENTRIES", 4)
    monkeypatch.setattr(layout, "_MOST_CONTAINERS", 3)
    packed = msgpack.packb(value)
    if fits:
        assert unpack(packed) == value
    else:
        with pytest.raises(DamagedError, match="too many values"):
            unpack(packed)
