"""Hypothesis: what was written is read, and no bytes at all make a reader fail."""

import csv
import gzip
import io
import json
import sys
import types
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from fpdb.io.files import read_records
from fpdb.io.records import BadRecord, Reading, Record

settings_here = settings(max_examples=examples(150))
# What UTF-8 can't hold is for the tests of bad records.
characters = st.characters(exclude_categories=["Cs"])
texts = st.text(characters, max_size=40)
keys = st.text(characters, min_size=1, max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
plain = st.characters(exclude_categories=["Cs"], exclude_characters="\t\r\n")
# Bytes that look like one of the formats reach further than any.
alike = st.lists(
    st.sampled_from(
        [
            *(b'{"id": 1, "text": "t"}', b'{"id"', b"\\ud800", b"1e999", b"[" * 50, b"x" * 30),
            *(b"url", b"text", b",", b"\t", b'"', b"\n", b"\r\n", b"\r", b"\0", b"\xff"),
            b"\xef\xbb\xbf",
        ]
    ),
    max_size=60,
).map(b"".join)


def read(data, form, **options):
    source = types.SimpleNamespace(buffer=io.BytesIO(data))
    with mock.patch.object(sys, "stdin", source):
        return list(read_records("-", Reading(format=form, **options)))


@settings_here
@given(
    rows=st.lists(
        st.tuples(keys | st.integers(), texts, st.dictionaries(keys, values, max_size=4)),
        max_size=6,
    ),
    ascii_only=st.booleans(),
    end=st.sampled_from(["\n", "\r\n", "\n\n"]),
    pack=st.booleans(),
)
def test_jsonl_comes_back(rows, ascii_only, end, pack):
    rows = [(key, text, {f"m{name}": value for name, value in meta.items()})
            for key, text, meta in rows]  # fmt: skip
    lines = [
        json.dumps({"key": key, "text": text, **meta}, ensure_ascii=ascii_only)
        for key, text, meta in rows
    ]
    data = end.join(lines).encode()
    found = read(gzip.compress(data) if pack else data, "jsonl", meta_field=("*",))
    assert [(record.key, record.text, record.meta) for record in found] == [
        (key, text, meta or None) for key, text, meta in rows
    ]


@settings_here
@given(rows=st.lists(st.tuples(keys, texts, texts), max_size=6), quoting=st.sampled_from([0, 1]))
def test_csv_comes_back(rows, quoting):
    file = io.StringIO(newline="")
    writer = csv.writer(file, quoting=quoting)
    writer.writerow(["url", "text", "more"])
    writer.writerows(rows)
    found = read(file.getvalue().encode(), "csv", meta_field=("more",))
    assert [(record.key, record.text, record.meta) for record in found] == [
        (key, text, {"more": more}) for key, text, more in rows
    ]


@settings_here
@given(
    rows=st.lists(
        st.tuples(
            st.text(plain, min_size=1, max_size=20).filter(lambda key: key[0] != "\ufeff"),
            st.text(plain, max_size=40),
            st.integers(0, 2**128 - 1),
        ),
        max_size=6,
    )
)
def test_tsv_comes_back(rows):
    data = "".join(f"{key}\t{text}\t{number:x}\n" for key, text, number in rows).encode()
    found = read(data, "tsv", key_field="1", text_field=("2",), fingerprint_field="3")
    assert [
        None if isinstance(record, BadRecord) else (record.key, record.text, record.fingerprint)
        for record in found
    ] == [None if opens_a_quote(row[:2]) else row for row in rows]


def opens_a_quote(fields):
    """Return whether a field begins a quote that may end on another line, so that it is refused."""
    return any(field.startswith('"') and field.count('"') % 2 for field in fields)


@pytest.mark.parametrize("form", ["jsonl", "tsv", "csv", "lines", "text"])
@pytest.mark.parametrize("head", [b"", b"url,text\n", b"url\ttext\n"])
@settings_here
@given(data=st.binary(max_size=300) | alike, limit=st.sampled_from([1, 7, 40, 10_000]))
def test_no_bytes_make_a_reader_fail(form, head, data, limit):
    for fields in ({"meta_field": ("*",)}, {"key_field": "1", "text_field": ("2",)}):
        has_fields = form not in {"lines", "text"}
        options = fields if has_fields else {}
        found = read(head + data, form, max_bytes=max(limit, len(head)), **options)
        for record in found:
            assert isinstance(record, Record | BadRecord)
            assert record.source.startswith("-")
            if isinstance(record, Record):
                assert isinstance(record.text, str)
                str(record.key).encode()


@settings_here
@given(
    rows=st.lists(
        st.tuples(st.sampled_from("abcdef"), st.text(st.sampled_from('x,"\n\r\x01é'), max_size=60)),
        max_size=8,
    ),
    limit=st.integers(4, 60),
)
def test_well_written_csv_never_becomes_other_records(rows, limit):
    """However small the limit is: what is read was written, and nobody's text turns into rows."""
    file = io.StringIO(newline="")
    csv.writer(file).writerows(rows)
    fields = {"key_field": "1", "text_field": ("2",)}
    found = read(file.getvalue().encode(), "csv", **fields, max_bytes=limit)
    assert len(found) == len(rows)
    for record, row in zip(found, rows, strict=True):
        assert isinstance(record, BadRecord) or (record.key, record.text) == row
