"""Parquet files: values of every kind, bad rows, broken files, bounded memory."""

import datetime
import decimal
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fpdb.errors import InputError, MissingExtraError
from fpdb.io import arrow
from fpdb.io.files import read_parts, read_records
from fpdb.io.records import BadRecord, Reading, Record

# A child process decodes the files; any of the tests may be the first to start it.
pytestmark = pytest.mark.process


@pytest.fixture
def write(tmp_path):
    def write_table(name, columns):
        path = tmp_path / name
        pq.write_table(pa.table(columns), path, row_group_size=3)
        return str(path)

    return write_table


def rows(path, **fields):
    return list(read_records(path, Reading(**fields)))


def test_rows_are_records(write):
    columns = {"url": [f"u{n}" for n in range(10)], "text": [f"text {n}" for n in range(10)]}
    path = write("a.parquet", columns | {"n": list(range(10))})
    assert rows(path, meta_field=("*",)) == [
        Record(f"{path}:{n + 1}", f"u{n}", f"text {n}", None, {"n": n}, replaced=False)
        for n in range(10)
    ]
    assert [each.meta for each in rows(path)] == [None] * 10
    assert [record for part in read_parts(path) for record in part()] == rows(path)


def test_fields_and_fingerprints(write):
    path = write(
        "a.parquet",
        {
            "id": pa.array([1, 2, None], pa.uint64()),
            "fp": pa.array([2**64 - 1, 7, 8], pa.uint64()),
            "title": ["a", None, "c"],
        },
    )
    first, second, third = rows(path, fingerprint_field="fp")
    assert (first.key, first.fingerprint, first.text) == (1, 2**64 - 1, None)
    assert second.key == 2
    assert isinstance(third, BadRecord)
    assert "found no key" in third.reason
    titled = rows(path, text_field=("title",))
    assert [isinstance(each, BadRecord) for each in titled] == [False, True, True]


def test_columns_that_are_missing_are_said_once(write):
    path = write("a.parquet", {"link": ["a", "b"], "text": ["x", "y"]})
    [bad] = rows(path)
    assert bad.source == path
    assert "found no key: expected the field 'key' or 'id' or 'url'" in bad.reason
    [bad] = rows(path, key_field="link", meta_field=("lang",))
    assert "'lang'" in bad.reason


def test_values_of_every_kind_are_metadata(write):
    moment = datetime.datetime(2024, 5, 6, 7, 8, 9, 123456, datetime.UTC)
    columns = {
        "key": ["a"],
        "text": pa.array(["x"]).dictionary_encode(),
        "bytes": [b"bytes"],
        "day": [moment.date()],
        "moment": pa.array([moment], pa.timestamp("us", "UTC")),
        "nanos": pa.array([1_715_000_000_123_456_789], pa.int64()).cast(pa.timestamp("ns")),
        "price": [decimal.Decimal("1.50")],
        "list": [[1, None, 3]],
        "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
        "record": [{"inner": moment.date()}],
        "none": pa.nulls(1),
        "yes": [True],
    }
    [record] = rows(write("a.parquet", columns), meta_field=("*",))
    assert record.text == "x"
    assert record.meta == {
        "bytes": "bytes",
        "day": "2024-05-06",
        "moment": "2024-05-06T07:08:09.123456+00:00",
        "nanos": "2024-05-06T12:53:20.123456",
        "price": "1.50",
        "list": [1, None, 3],
        "map": [["a", 1]],
        "record": {"inner": "2024-05-06"},
        "none": None,
        "yes": True,
    }


def test_a_record_that_is_no_utf8_is_bad(write):
    raw = pa.array([b"good", b"b\xffd", b"also good"])
    broken = pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2])
    for text in (raw, broken):
        found = rows(write("a.parquet", {"key": ["a", "b", "c"], "text": text}))
        assert [isinstance(each, BadRecord) for each in found] == [False, True, False]
        assert (found[0].text, found[2].text) == ("good", "also good")
    bad = rows(write("a.parquet", {"key": broken, "text": ["x", "y", "z"]}))
    assert [isinstance(each, BadRecord) for each in bad] == [False, True, False]


def test_a_text_above_the_limit_is_a_bad_record(write):
    path = write("a.parquet", {"key": ["a", "b"], "text": ["x" * 100, "字" * 10]})
    found = [type(each) for each in read_records(path, Reading(max_bytes=99, format="parquet"))]
    assert found == [BadRecord, Record]
    found = list(read_records(path, Reading(max_bytes=29)))
    assert all("more than 29 bytes" in each.reason for each in found)


def test_a_broken_file_is_one_bad_record(write, tmp_path):
    path = tmp_path / "a.parquet"
    whole = write("a.parquet", {"key": [f"{n}" * 50 for n in range(500)], "text": ["x" * 50] * 500})
    data = path.read_bytes()
    for broken in (b"", b"nothing", data[: len(data) // 2], data[:100] + data[200:]):
        path.write_bytes(broken)
        found = list(read_records(whole))
        assert isinstance(found[-1], BadRecord)
        assert "can't be read" in found[-1].reason or "found no key" in found[-1].reason


def test_streams_are_refused(tmp_path, monkeypatch):
    packed = tmp_path / "a.parquet.gz"
    packed.write_bytes(b"x")
    for path, form in (("-", "parquet"), (str(packed), None)):
        with pytest.raises(InputError, match="read from files"):
            read_records(path, Reading(format=form))
    [bad] = read_records(str(tmp_path))
    assert "read from files" in bad.reason


@pytest.mark.parametrize("name", ["a.arrow", "a.feather"])
def test_files_of_arrow_are_refused_with_their_cure(tmp_path, name):
    (tmp_path / name).write_bytes(b"ARROW1\0\0")
    with pytest.raises(InputError, match="found the suffix") as raised:
        read_records(str(tmp_path / name))
    assert raised.value.hint == "save it as Parquet"


def test_without_pyarrow_the_error_names_the_extra(write, monkeypatch):
    path = write("a.parquet", {"key": ["a"], "text": ["x"]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError):
        list(read_records(os.path.dirname(path)))
    with pytest.raises(MissingExtraError) as raised:
        read_records(path)
    assert raised.value.hint == "pip install 'fpdb-store[arrow]'"


MEASURE = """
import resource, sys
from fpdb.io.files import read_records
from fpdb.io.records import Reading
list(read_records(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
count = sum(1 for _ in read_records(sys.argv[2]))
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(count, (after - before) / 1024)
"""


@pytest.mark.process
def test_memory_does_not_grow_with_the_row_group(write, tmp_path):
    small = write("a.parquet", {"key": ["a"], "text": ["x"]})
    large = tmp_path / "large.parquet"
    texts = pa.array([f"{n} " * 200 for n in range(40_000)])  # about 46 MB in one row group
    keys = pa.array([f"{n}" for n in range(40_000)])
    table = pa.table({"key": keys, "text": texts})
    pq.write_table(table, large, row_group_size=1_000_000, use_dictionary=False, compression="none")
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, small, large], capture_output=True, text=True, check=True
    )
    count, grown = done.stdout.split()
    assert int(count) == 40_000
    assert float(grown) < 30


def children():
    """Return the processes that this one started."""
    tasks = Path("/proc/self/task").iterdir()
    return {int(number) for task in tasks for number in (task / "children").read_text().split()}


def test_a_reader_that_is_killed_is_a_bad_record(write):
    columns = {"key": [f"{n}" for n in range(9000)], "text": ["some words"] * 9000}
    large = write("a.parquet", columns)
    small = write("b.parquet", {"key": ["a"], "text": ["x"]})
    arrow._decoders.end()
    before = children()
    found = read_records(large)
    first = next(found)
    [reader] = children() - before
    os.kill(reader, signal.SIGKILL)
    *rest, last = found
    assert all(isinstance(each, Record) for each in (first, *rest))
    assert last.source == large
    assert "killed the process that read it by SIGKILL" in last.reason
    assert [each.key for each in read_records(small)] == ["a"]
