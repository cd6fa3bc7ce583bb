"""What becomes a record of JSONL, lines and texts, and what is said about what doesn't."""

import gzip
import io
import json
import os
import re
import sys
import types

import pytest

from fpdb.errors import InputError
from fpdb.io.files import FORMATS, read_parts, read_records, read_texts
from fpdb.io.paths import size_of
from fpdb.io.records import BadRecord, Reading, Record
from fpdb.io.streams import NOT_DECODED, Watch


def put(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def read(tmp_path, content, name="a.jsonl", **options):
    """Read a file of such content; sources without its folder."""
    path = put(tmp_path, name, content)
    found = list(read_records(path, Reading(**options)))
    folder = f"{tmp_path}/"
    assert all(record.source.startswith(folder) for record in found)
    return [
        BadRecord(record.source.removeprefix(folder), record.reason)
        if isinstance(record, BadRecord)
        else record
        for record in found
    ]


def only(found):
    assert len(found) == 1
    return found[0]


def stdin(monkeypatch, data):
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(data)))


def test_an_object_becomes_a_record(tmp_path):
    path = put(tmp_path, "a.jsonl", '{"id": 7, "text": "網頁"}\n')
    assert list(read_records(path)) == [Record(f"{path}:1", 7, "網頁", None, None, False)]


@pytest.mark.parametrize(
    ("line", "key", "text"),
    [
        ({"key": "k", "id": 1, "url": "u", "text": "t", "content": "c"}, "k", "t"),
        ({"id": 1, "url": "u", "content": "c", "body": "b"}, 1, "c"),
        ({"key": None, "id": None, "url": "u", "text": None, "body": "b"}, "u", "b"),
        ({"url": "u", "text": "a\ud800b"}, "u", "a\ud800b"),
        ({"id": -(2**70), "text": "t"}, -(2**70), "t"),
    ],
)
def test_defaults_in_order(tmp_path, line, key, text):
    record = only(read(tmp_path, json.dumps(line)))
    assert (record.key, record.text, record.meta, record.fingerprint) == (key, text, None, None)


def test_texts_are_joined_in_the_given_order(tmp_path):
    line = '{"url": "u", "title": "T", "content": "C"}'
    for names, text in ((("title", "content"), "T\nC"), (("content", "title"), "C\nT")):
        assert only(read(tmp_path, line, text_field=names)).text == text


def test_metadata(tmp_path):
    line = '{"url": "u", "text": "t", "n": {"a": [1, null]}, "host": "h", "fp": "ff"}'
    for names, meta in (
        ((), None),
        (("host",), {"host": "h"}),
        (("host", "none"), {"host": "h"}),
        (("none",), None),
        (("*",), {"n": {"a": [1, None]}, "host": "h", "fp": "ff"}),
        (("text",), {"text": "t"}),
    ):
        assert only(read(tmp_path, line, meta_field=names)).meta == meta
    record = only(read(tmp_path, line, fingerprint_field="fp", meta_field=("*",)))
    assert record.meta == {"text": "t", "n": {"a": [1, None]}, "host": "h"}


@pytest.mark.parametrize(
    ("value", "base", "expected"),
    [
        ("0Xff", "decimal", 255),
        ("10", "decimal", 10),
        (11, "hex", 11),
        ("f" * 32, "hex", 2**128 - 1),
        (-1, "hex", None),
        (-1, "signed", -1),
        ("-502157718", "signed", -502157718),
        ("01100011", "binary", 99),
        (True, "hex", None),
        ("1_0", "decimal", None),
        ("", "hex", None),
        ("0x0xff", "hex", None),
        ("9" * 5000, "decimal", None),
    ],
)
def test_ready_fingerprints(tmp_path, value, base, expected):
    fields = {"fingerprint_field": "fp", "base": base}
    record = only(read(tmp_path, json.dumps({"id": 1, "fp": value}), **fields))
    if expected is None:
        assert "the field 'fp' holds " in record.reason
        assert "expected a fingerprint: up to " in record.reason
        assert len(record.reason) < 200
    else:
        assert (record.text, record.fingerprint) == (None, expected)


def test_fingerprint_and_text(tmp_path):
    line = '{"id": 1, "text": "t", "fp": 9}'
    record = only(read(tmp_path, line, fingerprint_field="fp", text_field=("text",)))
    assert (record.text, record.fingerprint) == ("t", 9)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"id": 1, "text": "t"', "isn't JSON: Expecting ',' delimiter at column"),
        ("no", "isn't JSON: Expecting value at column 1"),
        ('[{"id": 1}]', "is JSON, but no object"),
        ("[" * 100_000, "is nested too deeply"),
        (f'{{"id": {"9" * 5000}, "text": "t"}}', "holds a JSON number with too many digits"),
        ('{"text": "t", "ID": 1}', "there are: 'ID', 'text'; key_field names another"),
        ('{"id": 1, "Text": "t"}', "found no text: expected the field 'text' or 'content' or"),
        ("{}", "there are: none"),
        ('{"id": true, "text": "t"}', "'id' holds true or false, expected a string or a whole"),
        ('{"id": "", "text": "t"}', "the field 'id' is empty"),
        ('{"id": "a\\ud800", "text": "t"}', "the field 'id' is no valid Unicode"),
        (b'{"id": "a\xff", "text": "t"}', "holds bytes that don't fit its encoding"),
        ('{"id": 1, "text": ["t"]}', "the field 'text' holds a list, expected a text"),
    ],
)
def test_a_bad_record_is_named_and_the_next_is_read(tmp_path, line, reason):
    line = line if isinstance(line, bytes) else line.encode()
    good = b'{"id": 5, "text": "t"}\n'
    first, bad, last = read(tmp_path, good + line + b"\n" + good)
    assert (first.key, last.key) == (5, 5)
    assert bad.source == "a.jsonl:2"
    assert reason in bad.reason


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        (
            "a.json",
            b'\xef\xbb\xbf\n [{"id": 1},\n{"id": 2}]\n',
            "is a JSON array, expected JSON lines",
        ),
        (
            "a.tsv",
            b"id;text\n1;t\n",
            "the header line has one column, 'id;text': separated by ';'?",
        ),
    ],
)
def test_a_file_of_another_format_is_one_bad_record(tmp_path, name, content, reason):
    assert reason in only(read(tmp_path, content, name)).reason
    [bad] = (each for part in read_parts(put(tmp_path, name, content)) for each in part())
    assert reason in bad.reason


def test_a_first_line_with_a_bracket_is_one_bad_record_of_several(tmp_path):
    first, second = read(tmp_path, b'[INFO] begin\n{"id": 1, "text": "t"}\n')
    assert (first.source, second.key) == ("a.jsonl:1", 1)


def test_byte_order_mark_line_ends_and_empty_lines(tmp_path):
    content = b'\xef\xbb\xbf{"id": 1, "text": "t"}\r\n\r\n  \n{"id": 2, "text": "t"}'
    found = read(tmp_path, content)
    assert [(record.key, record.source[-2:]) for record in found] == [(1, ":1"), (2, ":4")]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_a_line_is_as_long_as_allowed_or_skipped(tmp_path, end):
    line = b'{"id": 1, "text": "%s"}'
    fits, over = (line % (b"x" * (1000 - len(line) + 2 + more)) for more in (0, 1))
    first, bad, last = read(tmp_path, fits + b"\n" + over + b"\n" + fits + end, max_bytes=1000)
    assert (len(first.text), len(last.text)) == (979, 979)
    assert bad == BadRecord("a.jsonl:2", "holds more than 1000 bytes in one line")
    assert isinstance(only(read(tmp_path, over + end, max_bytes=1000)), BadRecord)


def test_lines(tmp_path):
    path = put(tmp_path, "a.txt", b"one\r\n\ntwo\x81\tx")
    assert list(read_records(path, Reading(format="lines"))) == [
        Record(f"{path}:1", f"{path}:1", "one", None, None, False),
        BadRecord(f"{path}:3", NOT_DECODED),
    ]
    assert only(read(tmp_path, b"long", "b.txt", format="lines", max_bytes=3)).source == "b.txt:1"


def test_a_file_is_one_text(tmp_path):
    path = put(tmp_path, "a.txt.gz", gzip.compress(b"\xef\xbb\xbfone\r\ntwo\n"))
    assert list(read_records(path)) == [Record(path, path, "one\r\ntwo\n", None, None, False)]
    assert only(read(tmp_path, b"a\x81", "b.txt")).reason == NOT_DECODED
    bad = only(read(tmp_path, b"1234", "b.txt", max_bytes=3))
    assert bad == BadRecord("b.txt", "holds more than 3 bytes in one text")


@pytest.mark.parametrize("name", ["a.JSONL", "a.ndjson", "a.json", "a.jsonl.gz", "a.b.jsonl.GZ"])
def test_the_suffix_tells_the_format(tmp_path, name):
    content = b'{"id": 1, "text": "t"}\n'
    packed = gzip.compress(content) if name.lower().endswith(".gz") else content
    assert only(read(tmp_path, packed, name)).key == 1


@pytest.mark.process  # columns and pages are decoded by children
@pytest.mark.parametrize("form", FORMATS)
def test_an_empty_file(tmp_path, form):
    found = read(tmp_path, b"", format=form)
    if FORMATS[form].by_path:
        assert only(found).reason.startswith(("can't be read", "is neither a PDF nor a ZIP"))
        return
    assert [record.text for record in found] == ([""] if form in {"text", "html"} else [])


def test_standard_input(monkeypatch):
    line = b'{"id": 1, "text": "t"}\n'
    stdin(monkeypatch, line)
    assert list(read_records("-")) == [Record("-:1", 1, "t", None, None, False)]
    stdin(monkeypatch, gzip.compress(line))
    assert list(read_records("-")) == [Record("-:1", 1, "t", None, None, False)]
    stdin(monkeypatch, b"u\tt\n")
    found = list(read_records("-", Reading(format="tsv", key_field="1", text_field=("2",))))
    assert found == [Record("-:1", "u", "t", None, None, False)]
    stdin(monkeypatch, b"")
    assert list(read_records("-")) == []
    monkeypatch.setattr(sys, "stdin", None)
    assert list(read_records("-")) == [
        BadRecord("-", "can't be read: standard input is closed", is_file=True)
    ]


def test_standard_input_that_arrives_slowly(monkeypatch):
    reading, writing = os.pipe()
    with open(reading, "rb") as end, open(writing, "wb", buffering=0) as start:
        monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=end))
        start.write(b'{"id": 1, "text": "t"}\n{"id"')
        records = read_records("-")
        assert next(records).key == 1  # and doesn't wait for more
        start.write(b': 2, "text": "t"}\n')
        assert next(records).key == 2
        start.close()
        assert list(records) == []


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("none.jsonl", {}, "can't be read: No such file"),
        ("a.dat", {}, "found the suffix '.dat', expected one of .jsonl"),
        ("a.jsonl", {"format": "xml"}, "found the format 'xml', expected one of jsonl"),
        ("a.jsonl", {"max_bytes": 0}, "found max_bytes 0"),
        ("a.jsonl", {"html": "yes"}, "expected one of auto, main"),
        ("a.dat", {"format": "lines", "key_field": "k"}, "each text is all there is"),
    ],
)
def test_a_mistake_of_the_caller_is_an_error_at_once(tmp_path, path, options, message):
    put(tmp_path, "a.dat", "x")
    put(tmp_path, "a.jsonl", "{}")
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_records(f"{tmp_path}/{path}", Reading(**options))
    assert "\n" not in str(caught.value)


def test_a_file_without_permission(tmp_path, monkeypatch):
    path = put(tmp_path, "a.jsonl", "{}")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may read all
    with pytest.raises(InputError, match="Permission denied"):
        read_records(path)


def test_a_file_that_goes_away_is_a_bad_record(tmp_path):
    path = put(tmp_path, "a.jsonl", "{}")
    records = read_records(path)
    os.unlink(path)
    assert only(list(records)).source == path


def test_a_named_pipe_is_read_once(tmp_path):
    path = str(tmp_path / "pipe.jsonl")
    os.mkfifo(path)
    # Opened for both, so that neither side waits for the other.
    held = os.open(path, os.O_RDWR)
    os.write(held, b'{"id": 1, "text": "t"}\n')
    records = read_records(path)
    assert size_of(path) is None
    assert next(records).key == 1
    os.close(held)
    assert list(records) == []


def test_progress_counts_the_bytes_of_the_file(tmp_path):
    path = put(tmp_path, "a.jsonl.gz", gzip.compress(b'{"id": 1, "text": "t"}\n' * 10_000))
    told = []
    assert len(list(read_records(path, watch=Watch(told.append)))) == 10_000
    assert sum(told) == size_of(path) == os.path.getsize(path)
    assert size_of("-") is None
    assert size_of(f"{tmp_path}/none") is None


def test_the_readers_of_texts(tmp_path):
    path = put(tmp_path, "a.txt", b"\xef\xbb\xbfone\n\nthree\r\n")
    assert list(read_texts(path, "lines")) == ["one", "three"]
    assert list(read_texts(path)) == ["one\n\nthree\r\n"]
    for form in (None, "lines"):
        with pytest.raises(InputError, match="holds more than"):
            list(read_texts(path, form, 3))
    broken = put(tmp_path, "a.gz", gzip.compress(b"one\n" * 1000)[:-9])
    for form in (None, "lines"):
        with pytest.raises(InputError, match="is no complete gzip file"):
            list(read_texts(broken, form))
    with pytest.raises(InputError, match="can't be read: Is a directory"):
        list(read_texts(str(tmp_path)))
