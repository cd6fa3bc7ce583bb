"""Archives are read record by record, and what is broken in them costs only itself."""

import bz2
import gzip
import io
import json
import lzma
import random
import re
import struct
import sys
import time
import zipfile
import zlib

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples
from warcs import chunked, http, packed, page, record

from fpdb.io import warc
from fpdb.io.files import read_parts, read_records
from fpdb.io.records import BadRecord, Reading, Record, UnfitError
from fpdb.io.streams import Watch
from fpdb.io.warc import Broken, Capture, body_of, parse_response, read_captures

pytestmark = pytest.mark.process

LIMIT = 1 << 20


class Pipe(io.BytesIO):
    """Bytes that come a few at a time, and only once."""

    def readinto(self, buffer):
        return super().readinto(memoryview(buffer)[:7])

    def seekable(self):
        return False


def captures(data, largest=LIMIT, file=io.BytesIO):
    return list(read_captures(io.BufferedReader(file(data), 10), largest))


def read(tmp_path, data, name="a.warc", **options):
    path = tmp_path / name
    path.write_bytes(data)
    return list(read_records(str(path), Reading(**options)))


def uris(found):
    return [each.headers["warc-target-uri"] for each in found if isinstance(each, Capture)]


def broken(found):
    return [(each.place, each.reason) for each in found if isinstance(each, Broken)]


SOME = [record(f"http://a.example/{n}", http(page(f"{n}"))) for n in range(6)]
ALL = [f"http://a.example/{n}" for n in range(6)]


def with_dictionary(pack):
    """Pack records as the Archive Team does: their dictionary is in a frame before them."""
    dictionary = zstandard.train_dictionary(1000, SOME * 20)
    stored = pack(dictionary.as_bytes())
    packer = zstandard.ZstdCompressor(dict_data=dictionary)
    frames = b"".join(map(packer.compress, SOME))
    return struct.pack("<II", 0x184D2A5D, len(stored)) + stored + frames


PLAIN = b"".join(SOME)
WHOLE = {
    "plain": PLAIN,
    "members": packed(*SOME) + b"\0" * 40_000,  # which fill up the file
    "one": gzip.compress(PLAIN),
    "cut anywhere": packed(*(PLAIN[start : start + 333] for start in range(0, len(PLAIN), 333))),
    "zstd": b"".join(map(zstandard.compress, SOME)),
    "with a dictionary": with_dictionary(lambda dictionary: dictionary),
    "with a packed dictionary": with_dictionary(zstandard.compress),
}


@pytest.mark.parametrize("file", [io.BytesIO, Pipe])
@pytest.mark.parametrize("packing", WHOLE)
def test_records_and_their_places(packing, file):
    found = captures(WHOLE[packing], file=file)
    assert uris(found) == ALL
    assert [each.block for each in found] == [http(page(f"{n}")) for n in range(6)]
    sizes = {"plain": list(map(len, SOME)), "members": [len(gzip.compress(r)) for r in SOME]}
    if packing in sizes:
        assert [each.place for each in found] == [sum(sizes[packing][:n]) for n in range(6)]


DAMAGE = [
    lambda data: data[:40] + b"\xff" * 20 + data[60:],  # the packed bytes
    lambda data: data[:-6] + b"\0\0\0\0" + data[-2:],  # the checksum
    lambda data: data[: len(data) // 2],  # half of it is lost
    lambda data: b"",
    lambda data: b"nothing that anybody packed",
    lambda data: gzip.compress(b"no record at all\r\n\r\n"),
    lambda data: gzip.compress(b"WARC/1.0\r\nContent-Length: x\r\n\r\n"),
    lambda data: gzip.compress(b"WARC/1.0\r\nno colon\r\n\r\n"),
    lambda data: gzip.compress(b"WARC/1.0\r\n" + b"a: b\r\n" * 300 + b"\r\n"),
    lambda data: gzip.compress(b"WARC/1.0\r\n" + b"a: b" * 50_000),
    lambda data: gzip.compress(record(length=10)),
    lambda data: gzip.compress(record(length=100_000)),
    lambda data: gzip.compress(record(length=10**17)),
    lambda data: gzip.compress(record(length=int("9" * 18))),
]


@pytest.mark.parametrize("damage", range(len(DAMAGE)))
@pytest.mark.parametrize("place", [0, 2, 5])
def test_a_damaged_member_costs_itself(damage, place):
    members = [gzip.compress(each) for each in SOME]
    members[place] = DAMAGE[damage](members[place])
    found = captures(b"".join(members))
    if place == 0 and not members[0].startswith(b"\x1f\x8b"):
        # What begins so isn't compressed.
        assert not members[0] or not uris(found)
        return
    good = [uri for uri in uris(found) if uri in ALL]
    assert good == [uri for n, uri in enumerate(ALL) if n != place]
    wrong = broken(found)
    if members[place]:
        before = sum(map(len, members[: max(place - 1, 0)]))
        after = sum(map(len, members[: place + 1]))
        assert len(wrong) == 1
        assert wrong[0][0] in range(before, after)


@pytest.mark.parametrize(
    "bad",
    [
        record("http://bad.example/", length=10),
        record("http://bad.example/", length=len(http()) + 20),
        record("http://bad.example/", length=10**12),
        record("http://bad.example/", length=-5),
        b"garbage in a line\r\nand another\r\n\r\n",
        b"\0" * 5000 + b"\n",
        b"WARC/1.0\r\n" + b"x: y\r\n" * 1000 + b"\r\n",
    ],
)
@pytest.mark.parametrize("place", [0, 3, 6])
def test_damage_in_a_plain_file_costs_itself(bad, place):
    data = b"".join([*SOME[:place], bad, *SOME[place:]])
    found = captures(data)
    assert [uri for uri in uris(found) if "bad" not in uri] == ALL
    assert len(broken(found)) >= 1
    start = sum(map(len, SOME[:place]))
    assert broken(found)[0][0] in range(start, start + len(bad))


@pytest.mark.parametrize("hostile", [record(length=10**9) * 3000, b"\nWARC/1." * 200_000])
def test_what_is_read_in_vain_is_bounded(monkeypatch, hostile):
    # Each claims all of the rest, or a head without end: reading from each would be quadratic.
    monkeypatch.setattr(warc, "_MOST_WASTED", 1 << 22)
    taken = []

    class Counting(io.BytesIO):
        def readinto(self, buffer):
            taken.append(super().readinto(buffer))
            return taken[-1]

    assert broken(captures(hostile, file=Counting))
    assert sum(taken) < 2 * len(hostile) + (1 << 22) + LIMIT + (1 << 17)


def padded(number, size):
    """A page whose body is mostly white space."""
    return record(f"http://a.example/{number}", http(page(f"{number}") + " " * size))


PACKINGS = {"plain": b"".join, "one": lambda records: gzip.compress(b"".join(records)),
            "members": lambda records: packed(*records)}  # fmt: skip


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("place", [0, 7, 19])
@pytest.mark.parametrize("length", [10, 400, 15_000, 40_000, 250_000, 10**8, 10**15])
def test_a_length_that_lies_loses_no_other_member(packing, place, length):
    # It reaches into a text or white space, over some records, or over the end; blocks that are
    # kept, and blocks that would be too large, or larger than any.
    for size in (0, 30_000):
        records = [padded(number, size) for number in range(20)]
        lying = record("http://bad.example/", length=length)
        data = PACKINGS[packing]([*records[:place], lying, *records[place:]])
        captured = captures(data, largest=100_000)
        good = [f"http://a.example/{number}" for number in range(20)]
        sound = [uri for uri in uris(captured) if "bad" not in uri]
        if packing != "one":
            assert sound == good
            assert len(broken(captured)) == 1
            continue
        # Within a member, the records that begin before the false end are lost, and no others.
        starts = {good[n]: sum(map(len, records[place:n])) for n in range(place, 20)}
        reach = length - len(http()) - len(b"\r\n\r\n")
        assert sound == [uri for uri in good if starts.get(uri, reach) >= reach]
        assert len(broken(captured)) == 1


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_pipe_is_read_on_after_damage(packing):
    wrong = record("http://bad.example/", length=10)
    captured = captures(PACKINGS[packing]([*SOME[:3], wrong, *SOME[3:]]), file=Pipe)
    assert [uri for uri in uris(captured) if "bad" not in uri] == ALL
    assert len(broken(captured)) == 1
    endless = record("http://bad.example/", length=10**15)
    captured = captures(PACKINGS[packing]([*SOME[:3], endless, *SOME[3:]]), file=Pipe)
    # Only a member shows where the next record is.
    assert uris(captured) == (ALL if packing == "members" else ALL[:3])
    assert len(broken(captured)) == 1


def test_a_pipe_is_read_on_after_a_member_that_cannot_be_unpacked():
    # Those that begin in the same bytes that were read may be lost with it.
    large = gzip.compress(record("http://large.example/", random.Random(1).randbytes(1 << 18)))
    spoilt = bytearray(gzip.compress(SOME[0]))
    spoilt[-6] ^= 1
    captured = captures(bytes(spoilt) + large + packed(*SOME[1:]), file=io.BytesIO)
    assert uris(captured) == ["http://large.example/", *ALL[1:]]
    captured = captures(bytes(spoilt) + large + packed(*SOME[1:]), file=Pipe)
    assert uris(captured)[-5:] == ALL[1:]
    assert len(broken(captured)) == 1


@pytest.mark.parametrize("pack", [bz2.compress, lzma.compress], ids=["bzip2", "xz"])
def test_archives_of_other_packings_are_read_on_after_damage(pack):
    members = list(map(pack, SOME))
    assert uris(captures(b"".join(members))) == ALL
    members[3] = members[3][:-20]
    captured = captures(b"".join(members))
    assert uris(captured) == [*ALL[:3], *ALL[4:]]
    assert len(broken(captured)) == 1


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_record_may_hold_others(packing):
    # A page may quote an archive, and its author adds no records by that.
    for size in (0, 30_000):
        quoting = record("http://good.example/", http(b"".join(SOME) + b" " * size))
        found = captures(PACKINGS[packing]([quoting, *SOME, quoting]))
        assert uris(found) == ["http://good.example/", *ALL, "http://good.example/"]
        assert not broken(found)
        found = captures(PACKINGS[packing]([quoting, *SOME, quoting]), largest=1000)
        assert uris(found) == ALL
        assert len(broken(found)) == 2


def test_a_file_that_cannot_be_read_to_its_end():
    class Failing(io.BytesIO):
        def readinto(self, buffer):
            if self.tell() > 1000:
                raise OSError(5, "Input/output error")
            return super().readinto(memoryview(buffer)[:100])

    for data in (b"".join(SOME), gzip.compress(random.Random(1).randbytes(9000))):
        assert "Input/output error" in broken(captures(data, file=Failing))[-1][1]


def test_a_bomb_is_given_up_and_what_follows_is_read(monkeypatch):
    bomb = gzip.compress(record("http://bad.example/", b"x" * (1 << 23)))
    monkeypatch.setattr(warc, "_LARGEST_RECORD", 1 << 21)
    found = captures(bomb + packed(*SOME))
    assert uris(found) == ALL
    assert "goes on for more than" in broken(found)[0][1]


def test_bytes_that_look_like_members_are_tried_a_bounded_number_of_times(monkeypatch):
    data = b"\x1f\x8b\x08" * 1000 + packed(*SOME)
    assert uris(captures(data)) == ALL
    monkeypatch.setattr(warc, "_MOST_WASTED", 500)
    data += packed(*SOME) + gzip.compress(record(block=random.Random(1).randbytes(1 << 17)))
    found = captures(data + packed(*SOME))
    # What was read with the damage is lost, and the members after it are not.
    assert uris(found)[-6:] == ALL
    assert len(uris(found)) in range(6, 14)
    assert len(broken(found)) == 1


@settings(max_examples=examples(150))
@given(st.data())
def test_any_damage_ends_and_is_told(data):
    pack = data.draw(st.booleans())
    whole = bytearray(packed(*SOME[:3]) if pack else b"".join(SOME[:3]))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(whole) - 1))
        end = data.draw(st.integers(start, min(len(whole), start + 60)))
        whole[start:end] = data.draw(st.binary(max_size=30))
        if not whole:
            return
    found = captures(bytes(whole))
    sound = [each for each in found if isinstance(each, Capture)]
    assert len(sound) <= 6
    assert all(isinstance(each, Capture | Broken) for each in found)


@settings(max_examples=examples(150))
@given(st.binary(max_size=300))
def test_any_bytes_are_an_archive(data):
    captures(data)
    captures(b"\x1f\x8b" + data)
    captures(b"WARC/1.0\r\n" + data)


def deflated(body, wbits):
    packer = zlib.compressobj(wbits=wbits)
    return packer.compress(body) + packer.flush()


BODY = page().encode()


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (BODY, []),
        (gzip.compress(BODY), ["Content-Encoding: gzip"]),
        (BODY, ["Content-Encoding: gzip"]),
        (b"", ["Content-Encoding: gzip, br"]),
        (deflated(BODY, 15), ["Content-Encoding: deflate"]),
        (deflated(BODY, -15), ["Content-Encoding: deflate"]),
        (brotli.compress(BODY), ["content-encoding: br"]),
        (chunked(BODY), ["Transfer-Encoding: chunked"]),
        (chunked(BODY)[:-5], ["Transfer-Encoding: chunked"]),
        (BODY, ["Transfer-Encoding: chunked"]),
        (chunked(gzip.compress(BODY)), ["Transfer-Encoding: chunked", "Content-Encoding: gzip"]),
        (gzip.compress(brotli.compress(BODY)), ["Content-Encoding: br, gzip"]),
    ],
)
def test_bodies(body, headers):
    assert body_of(parse_response(http(body, headers=headers)), LIMIT) == (body and BODY)


@pytest.mark.parametrize(
    ("body", "headers", "reason"),
    [
        (b"\x1f\x8bnothing", ["Content-Encoding: gzip"], "unpacked"),
        (b"nothing", ["Content-Encoding: br"], "unpacked"),
        (b"x", ["Content-Encoding: compress"], "compress"),
        (b"x", ["Content-Encoding: gzip, gzip, gzip"], "3 times"),
        (b"5\r\nabcdefgh\r\n0\r\n\r\n", ["Transfer-Encoding: chunked"], "chunk"),
        (b"5\r\nabcde\r\nnothing", ["Transfer-Encoding: chunked"], "chunk"),
        (gzip.compress(b"x" * (LIMIT + 1)), ["Content-Encoding: gzip"], "more than"),
        (brotli.compress(b"x" * (1 << 28), quality=1), ["Content-Encoding: br"], "more than"),
        (b"x" * (LIMIT + 1), [], "more than"),
    ],
)
def test_bodies_that_cannot_be_read(body, headers, reason):
    with pytest.raises(UnfitError, match=reason):
        body_of(parse_response(http(body, headers=headers)), LIMIT)


def test_what_is_no_response_and_the_bounds_of_headers():
    for block in (b"", b"HTTPX/1.1 200 OK\r\n\r\n", b"HTTP/1.1 two\r\n\r\n"):
        with pytest.raises(UnfitError, match="no HTTP response"):
            parse_response(block)
    with pytest.raises(UnfitError, match="HTTP headers"):
        parse_response(http(headers=["a: " + "b" * 100_000]))
    assert parse_response(b"HTTP/1.0 200\n\nbody").body == b"body"
    assert parse_response(b"HTTP/1.1 302\r\nLocation: x").status == 302
    folded = parse_response(b"HTTP/1.1 200\r\na: b\r\n  c\r\na: d\r\n\r\n")
    assert folded.headers == {"a": "b c"}


def test_what_is_taken(tmp_path):
    plain = ["Content-Type: text/plain; charset=gbk"]
    data = [
        record(None, b"software: tests", kind="warcinfo"),
        record("http://a.example/", headers=["WARC-Payload-Digest: sha1:ABC"]),
        record("http://a.example/", b"GET / HTTP/1.1\r\n\r\n", kind="request"),
        record("http://a.example/moved", http(status="302 Found")),
        record("http://a.example/picture", http(b"\x89PNG", media="image/png")),
        record("http://a.example/again", b"", kind="revisit"),
        record("http://a.example/x", http(media="application/xhtml+xml")),
        record("http://a.example/untyped", http(media="")),
        record(
            "http://a.example/plain", http("红鸢".encode("gbk"), media="text/plain; charset=gbk")
        ),
        record("http://a.example/file", "红鸢".encode("gbk"), kind="resource", headers=plain),
        record("http://a.example/wet", b"words", kind="conversion"),
        record("<http://a.example/angles>"),
        record("metadata://tool/log", b"log", kind="resource"),
        record("dns:a.example", b"1.2.3.4", headers=["Content-Type: text/dns"]),
        record("", http()),
        record("http://a.example/cut", headers=["WARC-Truncated: length"]),
    ]
    passed = []
    path = tmp_path / "a.warc.gz"
    path.write_bytes(packed(*data))
    asked = []
    watch = Watch(known=lambda key, _: asked.append(key), passed=passed.append)
    parts = read_parts(str(path), watch=watch)
    found = [each for part in parts for each in part()]
    records = {
        each.key.removeprefix("http://a.example/"): each
        for each in found
        if isinstance(each, Record)
    }
    assert list(records) == ["", "x", "untyped", "plain", "file", "wet", "angles", "cut"]
    assert records[""].meta == {
        "date": "2026-03-01T12:00:00Z",
        "status": 200,
        "digest": "sha1:ABC",
        "type": "text/html",
        "html": "main",
        "title": "Kites",
    }
    assert "wardens counted eleven" in records["x"].text
    assert records["untyped"].text == records["x"].text
    assert records["plain"].text == records["file"].text == "红鸢"
    assert "status" not in records["file"].meta
    assert records["cut"].meta["truncated"] == "length"
    assert "digest" not in records["x"].meta
    assert [each.reason for each in found if isinstance(each, BadRecord)] == [
        "has no WARC-Target-URI"
    ]
    assert sorted(passed) == sorted(
        ["warcinfo", "request", "status", "type", "revisit", "other", "other"]
    )
    assert len(asked) == 8


def test_a_conversion_is_read_where_its_page_was_not(tmp_path):
    text = {"kind": "conversion", "headers": ["Content-Type: text/plain"]}
    data = [
        record("http://a.example/early", b"a conversion before its page", **text),
        record("http://a.example/page", http(page("the page"))),
        record("http://a.example/early", http(page("the page"))),
        record("http://a.example/page", b"a conversion after its page", **text),
        record("http://a.example/picture", http(b"\x89PNG", media="image/png")),
        record("http://a.example/picture", b"a conversion of a picture", **text),
    ]
    path = tmp_path / "a.warc"
    path.write_bytes(b"".join(data))
    passed = []
    watch = Watch(passed=passed.append)
    found = [each for part in read_parts(str(path), watch=watch) for each in part()]
    texts = {each.key.rpartition("/")[2]: each.text for each in found}
    assert texts.keys() == {"early", "page", "picture"}
    assert "the page" in texts["page"]
    assert "the page" in texts["early"]
    assert texts["picture"] == "a conversion of a picture"
    assert sorted(passed) == ["conversion", "type"]


def test_sources_and_markup(tmp_path):
    found = read(tmp_path, b"".join(SOME))
    assert [each.source for each in found][1] == f"{tmp_path}/a.warc:{len(SOME[0])}"
    links = "<a href=x>Read on</a>" + page()
    [whole] = read(tmp_path, record(block=http(links)), html="page")
    assert "Read on" in whole.text
    assert whole.meta["html"] == "page"
    [large] = read(tmp_path, record(), max_bytes=100)
    assert "more than 100 bytes" in large.reason


@pytest.mark.parametrize("name", ["a.warc", "a.warc.gz"])
def test_names_tell_archives_and_bytes_tell_packing(tmp_path, name):
    assert len(read(tmp_path, b"".join(SOME), name)) == 6
    assert len(read(tmp_path, packed(*SOME), name)) == 6
    assert [each.key for each in read_records(str(tmp_path))] == ALL


def test_html_files_and_fields(tmp_path):
    (tmp_path / "a.html").write_bytes(page("nine").encode("utf-16"))
    (tmp_path / "b.htm").write_text(page("four"))
    (tmp_path / "c.txt").write_text(page("five"))
    found = {each.key: each.text for each in read_records(str(tmp_path))}
    assert [("<p>" in text, key) for key, text in found.items()] == [
        (False, "a.html"),
        (False, "b.htm"),
        (True, "c.txt"),
    ]
    assert "counted nine pairs" in found["a.html"]
    every = {each.key: each.text for each in read_records(str(tmp_path), Reading(html="main"))}
    assert not any("<p>" in text for text in every.values())
    none = [each.text for each in read_records(str(tmp_path / "b.htm"), Reading(format="text"))]
    assert none == [page("four")]
    [large] = read_records(str(tmp_path / "b.htm"), Reading(max_bytes=20))
    assert "more than 20 bytes" in large.reason
    (tmp_path / "d.jsonl").write_text('{"key": 1, "text": "<p>some <b>words</b>"}\n{"key": 2}\n')
    options = {"html": "page"}
    first, bad = read_records(str(tmp_path / "d.jsonl"), Reading(**options))
    assert first.text == "some words"
    assert isinstance(bad, BadRecord)
    parts = read_parts(str(tmp_path / "d.jsonl"), Reading(**options))
    assert [each for part in parts for each in part()] == [first, bad]
    (tmp_path / "e.csv").write_text("key,text\n1,<p>some <b>words</b>\n")
    [row] = read_records(str(tmp_path / "e.csv"), Reading(**options))
    assert row.text == "some words"


def zipped(files, compression=zipfile.ZIP_STORED):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


LISTED = "\n".join(
    [
        '{"format":"json-pages-1.0","id":"pages","title":"All Pages"}',
        "no JSON",
        "[1]",
        '{"url":"http://a.example/none","title":"From the list","ts":"2026-03-01T12:00:00Z"}',
        '{"url":"http://a.example/0","title":"Not this one"}',
        '{"url":7,"title":[]}',
    ]
)
UNTITLED = record("http://a.example/none", http(page("seven").replace("<title>Kites</title>", "")))


def test_a_zip_of_archives_is_read_with_the_titles_of_its_pages(tmp_path):
    files = {
        "datapackage.json": "{}",
        "pages/pages.jsonl": LISTED,
        "archive/a.warc.gz": packed(*SOME[:2]),
        "archive/b.warc": UNTITLED,
        "indexes/index.cdx.gz": b"",
        "other.warc.gz": packed(SOME[5]),
    }
    records = read(tmp_path, zipped(files), "crawl.wacz")
    assert [each.key for each in records] == [*ALL[:2], "http://a.example/none"]
    assert [each.meta["title"] for each in records] == ["Kites", "Kites", "From the list"]
    assert records[0].source == f"{tmp_path}/crawl.wacz/archive/a.warc.gz:0"
    assert "seven" in records[2].text


def test_what_is_wrong_with_a_zip_of_archives_is_said(tmp_path):
    def reason(data):
        [bad] = read(tmp_path, data, "crawl.wacz")
        assert isinstance(bad, BadRecord)
        return bad.reason

    whole = zipped({"archive/a.warc.gz": packed(*SOME)})
    assert "as a ZIP" in reason(b"not a zip")
    assert "as a ZIP" in reason(whole[:-9])
    assert "no WARC file" in reason(zipped({"a.warc.gz": b""}))
    files = {"archive/a.warc": SOME[0]}
    assert "packed or encrypted" in reason(zipped(files, zipfile.ZIP_DEFLATED))
    # What is damaged inside is skipped, and the rest is read.
    at = whole.index(b"\x1f\x8b", 100)
    records = read(tmp_path, whole[: at + 20] + b"\0\0\0\0" + whole[at + 24 :], "crawl.wacz")
    kinds = [type(each) for each in records]
    assert kinds.count(Record) >= 4
    assert BadRecord in kinds
    # Of two archives, one has a header that says it is longer, or a dictionary that is cut off.
    longer = bytearray(zipped({"archive/a.warc": SOME[0], "archive/b.warc": UNTITLED}))
    longer[28:30] = b"\xff\xff"
    cut = b"\x5d\x2a\x4d\x18\x99\0\0\0\x28\xb5\x2f\xfd"
    dictionary = zipped({"archive/a.warc.zst": cut, "archive/b.warc": UNTITLED})
    for data, part in ((bytes(longer), "its header"), (dictionary, "zstd")):
        bad, page = read(tmp_path, data, "crawl.wacz")
        assert isinstance(bad, BadRecord)
        assert part in bad.reason
        assert page.key == "http://a.example/none"


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=8))
def test_no_change_of_a_zip_of_archives_ends_the_reading(tmp_path_factory, changes):
    data = bytearray(zipped({"pages/pages.jsonl": LISTED, "archive/a.warc": UNTITLED}))
    for place, value in changes:
        data[-1 - place % len(data)] = value
    path = tmp_path_factory.mktemp("changed") / "crawl.wacz"
    path.write_bytes(data)
    for each in read_records(str(path), Reading()):
        assert isinstance(each, Record | BadRecord)


def test_lists_of_pages_cost_little_whatever_they_hold(tmp_path):
    def titles(*lists, compression=zipfile.ZIP_DEFLATED):
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as archive:
            archive.writestr("archive/a.warc", UNTITLED)
            for number, listed in enumerate(lists):
                archive.writestr(f"pages/{number}.jsonl", listed, compression)
        [page] = read(tmp_path, data.getvalue(), "crawl.wacz")
        assert isinstance(page, Record)
        return page.meta.get("title")

    def line(title):
        return json.dumps({"url": "http://a.example/none", "title": title}) + "\n"

    assert titles(line("From\n the list")) == "From the list"
    assert titles(line("x" * 70_000)) is None  # a line that long has other things in it
    assert titles(line("x" * 7000)) == "x" * 200
    assert titles(line("\ud800 bad")) == "? bad"
    assert titles(line("t"), compression=zipfile.ZIP_LZMA) is None
    # What is listed after many megabytes isn't looked for.
    began = time.process_time()
    assert titles(*["{}\n" * (1 << 21)] * 5, line("t")) is None
    assert time.process_time() - began < 2


def test_files_of_a_zip_that_overlap_are_read_once(tmp_path):
    data = bytearray(zipped({"archive/a.warc": b"".join(SOME), "archive/b.warc": SOME[0]}))
    # The second name leads to the first file, and both are said to be much longer.
    entries = [match.start() for match in re.finditer(b"PK\1\2", data)]
    assert len(entries) == 2
    data[entries[1] + 42 : entries[1] + 46] = bytes(4)
    for entry in entries:
        data[entry + 20 : entry + 28] = (1 << 30).to_bytes(4, "little") * 2
    records = read(tmp_path, bytes(data), "crawl.wacz")
    assert [each.key for each in records if isinstance(each, Record)] == ALL


def test_bodies_in_zstd_are_read_where_the_package_is(tmp_path, monkeypatch):
    body = zstandard.compress(page("nine").encode())
    data = record("http://a.example/z", http(body, headers=["Content-Encoding: zstd"]))
    [found] = read(tmp_path, data)
    assert "nine" in found.text
    bomb = zstandard.compress(b" " * (1 << 24))
    data = record("http://a.example/z", http(bomb, headers=["Content-Encoding: zstd"]))
    [bad] = read(tmp_path, data)
    assert isinstance(bad, BadRecord)
    data = record("http://a.example/z", http(body[:-3], headers=["Content-Encoding: zstd"]))
    [bad] = read(tmp_path, data)
    assert "can't be unpacked" in bad.reason
    monkeypatch.setitem(sys.modules, "zstandard", None)
    [bad] = read(tmp_path, record("u", http(body, headers=["Content-Encoding: zstd"])))
    assert "zstandard" in bad.reason
