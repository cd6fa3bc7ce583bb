"""Records that are read as columns are those that are read one by one."""

import json
from dataclasses import replace

import numpy as np
import pyarrow
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from tiers import examples

import fpdb
from fpdb.io import batches, files, streams
from fpdb.io.files import Source, parts_of, read_columns, read_records
from fpdb.io.records import Reading, picker

KEYS = ["a", "", "ключ", 7, -1, 1 << 70, 1.5, True, None, "\ud800", ["b"]]
TEXTS = ["some words", "", "词语", "\ud83d", "tab\t", "\0", 5, None, {"a": 1}]
FIELDS = {"key": KEYS, "id": KEYS, "url": KEYS, "text": TEXTS, "content": TEXTS, "n": [1, "x", []]}
# Lines as no program writes them, or in ways that parsers differ about.
LINES = [
    b"",
    b"  \r",
    b"\xef\xbb\xbf{}",
    b'{"text": "a", "other": "\xff"}',
    b'{"text": "\xff", "key": "b"}',
    b'{"text": "a", "key": 1, "text": "b"}',
    b'{"te\\u0078t": "a", "n": NaN}',
    b'{"text": "a"} x',
    b'{"text": "a", "n": 01}',
    b'{"text": "a", "n": 1e999}',
    b'{"text": "a", "n": "\\ud800"}',
    b'["text"]',
    b"{" * 3000,
    b'{"text": "a", "n": ' + b"[" * 3000 + b"]" * 3000 + b"}",
    b'{"fpdb": 1, "text": "a"}',
    b'{"text": "a"}\r',
    b'{"text": "a"} {"text": "b"}',
    b'{"text":\n"a"}',
    b'{"text": "a"\n}',
    b'{"text": "' + b"long " * 900 + b'"}',
]


@st.composite
def lines(draw):
    if draw(st.booleans()):
        return draw(st.sampled_from(LINES))
    names = draw(st.lists(st.sampled_from(sorted(FIELDS)), max_size=4, unique=True))
    return json.dumps({name: draw(st.sampled_from(FIELDS[name])) for name in names}).encode()


def rows_of(source):
    """The rows of a file, as a reader finds them, or of JSON lines each parsed by itself."""
    if source.form == "jsonl":
        return batches.json_rows(source.lines(), source.reading.max_bytes)
    return (row for block in read_columns(source) for row in block.rows())


def one_by_one(source):
    """The records, as each row makes one."""
    pick = picker(source.reading)
    return [pick(f"{source.path}:{number}", *row) for number, *row in rows_of(source)]


def require_same(path, form, reading):
    source = Source(str(path), str(path), form, replace(reading, format=form))
    expected = one_by_one(source)
    assert [record for part in parts_of([source]) for record in part()] == expected
    # Fields of the metadata are in their order, which equal dictionaries needn't have.
    metas = [getattr(record, "meta", None) for record in read_records(str(path), source.reading)]
    shown = [getattr(record, "meta", None) for record in expected]
    assert list(map(repr, metas)) == list(map(repr, shown))
    return expected


READINGS = [
    Reading(keyed=False, meta_field=("n", "key")),
    Reading(keyed=True),
    Reading(keyed=False, text_field=("content", "text"), key_field="id"),
    Reading(keyed=False, fingerprint_field="key", base="decimal"),
    Reading(keyed=False, text_field="text", meta_field="text"),
    Reading(keyed=False, max_bytes=4000),
    Reading(keyed=False, meta_field="*"),
    Reading(meta_field=("*", "key"), text_field=("content", "text")),
]


@given(
    rows=st.lists(lines(), max_size=12),
    reading=st.sampled_from(READINGS),
    usual=st.booleans(),
    block=st.sampled_from([1, 80, 1 << 20]),
    chunk=st.sampled_from([7, 100, 1 << 18]),
)
@example([b'{"text": "one"}', b'{"text": "two"}'], READINGS[0], True, 80, 100)
@settings(max_examples=examples(150), deadline=None)
def test_lines_of_json(tmp_path_factory, rows, reading, usual, block, chunk):
    path = tmp_path_factory.mktemp("lines") / "in.jsonl"
    # The first block is read in another way, so that rows are in a later one.
    rows = [b'{"text": "first", "key": "k", "id": 1, "content": "c"}'] * (2 * usual) + rows
    path.write_bytes(b"\n".join(rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_LINES_BYTES", block)
        patch.setattr(streams, "_CHUNK", chunk)
        require_same(path, "jsonl", reading)


def test_usual_lines_are_parsed_together(tmp_path, monkeypatch):
    path = tmp_path / "in.jsonl"
    rows = [{"text": f"text {number}", "id": number, "other": [number]} for number in range(2500)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    looked_at, json_object = [], batches.json_object

    def counted(line):
        looked_at.append(line)
        return json_object(line)

    monkeypatch.setattr(files, "_LINES_BYTES", 100)
    monkeypatch.setattr(streams, "_CHUNK", 100)
    monkeypatch.setattr(batches, "json_object", counted)
    keys = [record.key for record in read_records(str(path), Reading(meta_field="*"))]
    assert keys == list(range(2500))
    assert not looked_at


@given(
    rows=st.lists(
        st.lists(st.sampled_from(["a", "", "b c", '"x\ny"', '"', "ключ", "\ufffd"]), max_size=4),
        max_size=8,
    ),
    broken=st.booleans(),
    form=st.sampled_from(["csv", "tsv"]),
)
@settings(max_examples=examples(100), deadline=None)
def test_rows_of_tables(tmp_path_factory, rows, broken, form):
    path = tmp_path_factory.mktemp("rows") / f"in.{form}"
    mark = "," if form == "csv" else "\t"
    lines = [mark.join(row).encode() for row in [["key", "text", "n"], *rows]]
    path.write_bytes(b"\n".join([lines[0], *(line + b"\xff" * broken for line in lines[1:])]))
    require_same(path, form, READINGS[0])


@pytest.mark.process
@given(data=st.data(), reading=st.sampled_from(READINGS[:2]))
@settings(max_examples=examples(100), deadline=None)
def test_rows_of_parquet(tmp_path_factory, data, reading):
    import pyarrow as pa

    keys = st.sampled_from(["a", "", "b", None])
    count = data.draw(st.integers(0, 20))

    def column(values):
        return data.draw(st.lists(values, min_size=count, max_size=count))

    texts = [None if each is None else each.encode() for each in column(keys)]
    broken = [each and each + b"\xff" * data.draw(st.booleans()) for each in texts]
    table = pa.table(
        {
            "key": pa.array(column(keys), pa.string()),
            "id": pa.array(column(st.sampled_from([1, 2, None])), pa.int64()),
            "text": pa.array(broken, pa.binary()),
            "n": pa.array(column(st.sampled_from([1.5, None])), pa.float64()),
        }
    )
    path = tmp_path_factory.mktemp("rows") / "in.parquet"
    parquet.write_table(table, path)
    require_same(path, "parquet", reading)


def test_records_in_memory():
    reading = Reading(keyed=False)
    items = [{"text": "a", "id": 1}, fpdb.Document("k", "b"), {"text": 5}, {"key": ""}]
    found = batches.batch_of(items, 7, reading)
    assert list(found.numbers) == [7, 8, 9, 10]
    assert (found.keys[:2], found.texts) == ([1, "k"], ["a", "b", None, None])
    assert sorted(found.bad) == [2, 3]
    assert "holds a number, expected a text" in found.bad[2].reason


@pytest.mark.process
@pytest.mark.parametrize("marked", [[], [0], [2999], [5, 6, 1700], range(0, 3000, 3), range(3000)])
def test_marked_rows_of_a_parquet_file_are_read_alone(tmp_path, marked):
    texts = [f"text {number}" for number in range(3000)]
    path = str(tmp_path / "a.parquet")
    parquet.write_table(pyarrow.table({"n": range(3000), "text": texts}), path, row_group_size=1001)
    marks = np.zeros(3000, np.bool_)
    marks[list(marked)] = True
    source = Source(path, path, "parquet", Reading(keyed=False), marked=marks)
    found = [text for part in parts_of([source]) for text in part().texts]
    assert found == [texts[number] for number in marked]
