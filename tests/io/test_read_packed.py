"""Compressed input: whole, cut anywhere, damaged, and far larger than it looks."""

import bz2
import gzip
import io
import json
import lzma
import random
import sys
import time
import types
import zlib

import pytest
import zstandard

from fpdb.io import streams
from fpdb.io.files import read_records
from fpdb.io.records import BadRecord, Record

pytestmark = pytest.mark.slow("its cases unpack bombs, 4 s together")


PACK = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "zst": zstandard.ZstdCompressor().compress,
}
suffixes = pytest.mark.parametrize("suffix", PACK)
RANDOM = random.Random(1)
LINES = [
    json.dumps({"id": number, "text": RANDOM.randbytes(40).hex()}).encode() + b"\n"
    for number in range(500)
]


def read(tmp_path, data, suffix, name="a.jsonl"):
    path = tmp_path / f"{name}.{suffix}"
    path.write_bytes(data)
    return list(read_records(str(path)))


@suffixes
def test_whole_and_in_parts(tmp_path, suffix):
    pack = PACK[suffix]
    whole = pack(b"".join(LINES))
    parts = b"".join(pack(b"".join(LINES[at : at + 7])) for at in range(0, len(LINES), 7))
    tiny = b"".join(pack(line) for line in LINES)
    for data in (whole, parts, tiny, whole + pack(b""), pack(b"") + whole, whole + bytes(600)):
        assert [record.key for record in read(tmp_path, data, suffix)] == list(range(500))


def test_skippable_frames_and_streamed_ones(tmp_path):
    skippable = (0x184D2A50).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"hello"
    streamed = zstandard.ZstdCompressor().compressobj()
    data = b"".join(map(streamed.compress, LINES)) + streamed.flush()
    for framed in (data + skippable, skippable + data + skippable):
        found = read(tmp_path, framed, "zst")
        assert [record.key for record in found] == list(range(500))


def in_blocks(lines):
    """Compress with zstd so that not all lines share one block."""
    packer = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    data = b"".join(
        packer.compress(line) + packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) for line in lines
    )
    return data + packer.flush()


@suffixes
def test_cut_anywhere(tmp_path, suffix):
    data = in_blocks(LINES) if suffix == "zst" else PACK[suffix](b"".join(LINES))
    sizes = {*range(0, len(data), 400), *range(20), *range(len(data) - 4, len(data))}
    for size in sorted(sizes):
        *good, bad = read(tmp_path, data[:size], suffix)
        assert [record.key for record in good] == list(range(len(good)))
        assert isinstance(bad, BadRecord)
        assert bad.source.endswith(f"a.jsonl.{suffix}")
        assert bad.reason.endswith("it ends too early")
    assert len(good) == 500  # only the checksum is missing


@suffixes
def test_damaged_anywhere(tmp_path, suffix):
    data = PACK[suffix](b"".join(LINES))
    for at in range(0, len(data), 800):
        damaged = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
        found = read(tmp_path, damaged, suffix)  # bare zstd has no checksum that would tell
        assert all(isinstance(record, Record | BadRecord) for record in found)
    damaged = data[:4000] + bytes(64) + data[4064:] + data
    found = read(tmp_path, damaged, suffix)
    assert any(isinstance(record, BadRecord) for record in found)


@suffixes
def test_what_is_not_compressed_at_all(tmp_path, suffix):
    for data in (b'{"id": 1, "text": "t"}\n', b"\0", b"\n"):
        [bad] = read(tmp_path, data, suffix)
        assert "is no complete " in bad.reason
    found = read(tmp_path, PACK[suffix](b"".join(LINES)) + b"rubbish", suffix)
    assert [type(record) for record in found] == [Record] * 500 + [BadRecord]


def test_a_window_that_takes_too_much_memory(tmp_path):
    parameters = zstandard.ZstdCompressionParameters(window_log=30, enable_ldm=True)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    zstd = packer.compress(b"".join(LINES)) + packer.flush()
    xz = bytearray(lzma.compress(b"".join(LINES)))
    xz[16] = 36  # the dictionary has 1 GiB
    xz[20:24] = zlib.crc32(xz[12:20]).to_bytes(4, "little")
    for data, suffix in ((zstd, "zst"), (xz, "xz")):
        [bad] = read(tmp_path, data, suffix)
        assert "emory" in bad.reason


@suffixes
def test_standard_input_tells_by_its_first_bytes(monkeypatch, suffix):
    for data in (PACK[suffix](b"".join(LINES)), b"".join(LINES)):
        monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(data)))
        assert [record.key for record in read_records("-")] == list(range(500))


def skipped(size):
    return (0x184D2A50).to_bytes(4, "little") + size.to_bytes(4, "little") + bytes(size)


MANY = {
    "empty lines": ("jsonl.zst", lambda: PACK["zst"](b"\n" * (32 << 20))),
    "empty lines of CSV": ("csv.zst", lambda: PACK["zst"](b"key,text\n" + b"\r\n" * (2 << 20))),
    "empty frames": ("jsonl.zst", lambda: skipped(0) * 100_000),
    "empty members": ("jsonl.gz", lambda: PACK["gz"](b"") * 100_000),
    "frames of an empty line": ("jsonl.zst", lambda: PACK["zst"](b"\n") * 100_000),
    "a line again and again": ("jsonl.zst", lambda: PACK["zst"](b"x" * (32 << 20))),
    "empty lines of xz": ("jsonl.xz", lambda: PACK["xz"](b"\n" * (32 << 20))),
    "blocks of bzip2": ("jsonl.bz2", lambda: PACK["bz2"](b"x" * (45 << 20)) * 20),
    "empty files of bzip2": ("jsonl.bz2", lambda: PACK["bz2"](b"") * 100_000),
}


@pytest.mark.parametrize(("name", "make"), MANY.values(), ids=MANY)
def test_what_unpacks_to_next_to_nothing_ends_soon_and_the_next_file_is_read(tmp_path, name, make):
    (tmp_path / f"a.{name}").write_bytes(make())
    (tmp_path / "b.jsonl").write_bytes(b"".join(LINES))
    start = time.process_time()
    found = list(read_records(str(tmp_path)))
    assert time.process_time() - start < 5
    bad = [each for each in found if isinstance(each, BadRecord)]
    assert "white space" in bad[-1].reason or "times its size" in bad[-1].reason
    assert all(each.source.startswith(f"{tmp_path}/a.{name}") for each in bad)
    assert len(found) - len(bad) == len(LINES)


@suffixes
def test_white_space_and_empty_parts_among_lines_are_no_reason_to_stop(
    tmp_path, suffix, monkeypatch
):
    pack = PACK[suffix]
    data = b"".join(pack(line + b"\n" * 60_000) + pack(b"") * 100 for line in LINES[:8])
    assert len(read(tmp_path, data, suffix)) == 8
    monkeypatch.setattr(streams, "_UNPACKED", 1 << 20)
    # Pages that are nearly the same become a thousandth, and are no reason either.
    alike = b"".join(b'{"id": %d, "text": "%s"}\n' % (n, b"page " * 10_000) for n in range(50))
    assert len(read(tmp_path, pack(alike), suffix)) == 50


def test_a_packing_is_a_row_of_the_table(tmp_path):
    assert {packing.suffix.removeprefix(".") for packing in streams._PACKINGS} == PACK.keys()
    for suffix, pack in PACK.items():
        path = tmp_path / f"a.jsonl.{suffix}"
        with path.open("wb") as file, streams.packed(file, path.name) as target:
            target.write(b"".join(LINES))
        assert path.read_bytes()[:3] == pack(b"")[:3]
        assert [record.key for record in read_records(str(path))] == list(range(500))


@pytest.mark.parametrize("level", range(1, 10))
def test_bzip2_of_any_level_is_recognised_and_no_text_is(level):
    for data in (b"", b"text"):
        packing = streams.packing_of(bz2.compress(data, level))
        assert packing is not None
        assert packing.name == "bzip2"
    assert streams.packing_of(b"BZh9 is a text") is None
