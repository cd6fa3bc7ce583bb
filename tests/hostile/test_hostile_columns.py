"""Forged Parquet files: each ends as bad records, within bounds, before a good file."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.process

MIB = 1 << 20
LIMIT = 256  # MiB
CODE = 2  # which a reader loads when it needs it, beside its data
WORDS = "again and again the same words "

# Reads files and then a good one; prints what they hold, and by how many MiB they made this process
# or its child grow, at most.
READ = """
import json, resource, sys
from fpdb.io import arrow
from fpdb.io.files import read_records
from fpdb.io.records import BadRecord, Reading

def peaks():
    arrow._decoders.end()
    kinds = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return [resource.getrusage(kind).ru_maxrss / 1024 for kind in kinds]

def read(path, meta):
    records, bad, sizes = 0, {}, 0
    for record in read_records(path, Reading(meta_field=meta)):
        if isinstance(record, BadRecord):
            bad[record.source.removeprefix(path).removeprefix(":")] = record.reason
        else:
            records += 1
            sizes += len(record.text)
    return records, bad, sizes

good = sys.argv[1]
read(good, ())
before = peaks()
for line in sys.stdin:
    meta, path = json.loads(line)
    found = read(path, meta)
    assert read(good, ())[0] == 2
    grown = max(later - earlier for later, earlier in zip(peaks(), before))
    print(json.dumps([grown, *found]), flush=True)
"""


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """Read a forged file and then a good one in one process; return what the forged one holds."""
    good = tmp_path_factory.mktemp("good") / "good.parquet"
    pq.write_table(pa.table({"key": ["a", "b"], "text": ["one text", "another"]}), good)
    with subprocess.Popen(
        [sys.executable, "-c", READ, good], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def reading(path, meta=()):
            process.stdin.write(json.dumps([meta, str(path)]) + "\n")
            process.stdin.flush()
            grown, *found = json.loads(process.stdout.readline())
            assert grown <= LIMIT + CODE
            return found

        yield reading
        process.stdin.close()


def write(path: Path, columns, compression="zstd", **how):
    """Write columns as Parquet; return the path."""
    options = {"compression": compression, "dictionary_pagesize_limit": 1 << 28}
    pq.write_table(pa.table(columns), path, **options, **how)
    return path


def repeated(sizes, rows):
    """Return a column in which texts of some sizes take turns, each stored once."""
    texts = pa.array([(WORDS * (size // len(WORDS) + 1))[:size] for size in sizes])
    places = pa.array([row % len(sizes) for row in range(rows)], pa.int32())
    return pa.DictionaryArray.from_arrays(places, texts)


def keys(rows):
    return [f"k{row}" for row in range(rows)]


def test_texts_that_are_stored_once_are_read_a_few_at_a_time(read, tmp_path):
    path = write(
        tmp_path / "a.parquet", {"key": keys(300), "text": repeated([3 * MIB // 2, 9], 300)}
    )
    assert path.stat().st_size < 30_000
    records, bad, characters = read(path)
    assert (records, bad) == (300, {})
    assert characters == 150 * (3 * MIB // 2 + 9)


def test_rows_that_are_too_large_are_bad_by_themselves(read, tmp_path):
    path = write(tmp_path / "a.parquet", {"key": keys(200), "text": repeated([50, 3_000_000], 200)})
    records, bad, _ = read(path)
    assert records == 100
    reason = f"holds more than {2 * MIB} bytes in one record"
    assert bad == {str(number): reason for number in range(2, 201, 2)}


def test_many_columns_are_one_record(read, tmp_path):
    columns = {f"c{number}": repeated([MIB], 60) for number in range(8)}
    path = write(tmp_path / "a.parquet", {"key": keys(60), "text": keys(60), **columns})
    records, bad, _ = read(path, ["*"])
    assert records == 0
    assert len(bad) == 60
    assert {"holds more than 2097152 bytes in one record"} == set(bad.values())


@pytest.mark.slow("it packs and unpacks more than 256 MiB")
def test_buffers_that_unpack_to_any_size_end_the_file(read, tmp_path):
    size = 300 * MIB
    offsets, content = np.array([0, size, size + 1]), np.zeros(size + 1, np.uint8)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    zeros = pa.Array.from_buffers(pa.large_binary(), 2, buffers)
    # A dictionary or statistics would take pyarrow seconds, and not be in the file in the end.
    how = {"use_dictionary": False, "write_statistics": False}
    path = write(tmp_path / "a.parquet", {"key": ["a", "b"], "text": zeros}, **how)
    assert path.stat().st_size < MIB
    records, bad, _ = read(path)
    assert records == 0
    assert bad[""].startswith("can't be read as a complete Parquet file: ")


def test_nested_values_that_unfold_are_bad_rows(read, tmp_path):
    """Each row is a list of entries of one dictionary."""
    rows, entries = 4, 600
    words = repeated([MIB // 2], entries)
    lists = pa.ListArray.from_arrays([0, 1, entries, entries, entries], words)
    path = write(tmp_path / "a.parquet", {"key": keys(rows), "text": keys(rows), "more": lists})
    records, bad, _ = read(path, ["more"])
    assert records == 3
    [[place, reason]] = bad.items()
    assert place == "2"
    assert "more memory than it may" in reason or "bytes in one record" in reason


def test_rows_without_end_are_not_read(read, tmp_path):
    """Nulls take no room in a file, so it may say that it has any number of them."""
    nulls = pa.Array.from_buffers(pa.null(), 3_000_000, [None])
    path = write(tmp_path / "a.parquet", {"key": nulls, "text": nulls}, None)
    assert path.stat().st_size < 10_000
    records, bad, _ = read(path)
    assert records == 0
    assert "too many for its size" in bad[""]


def test_a_value_that_python_cannot_express_is_a_bad_row(read, tmp_path):
    late = pa.array([0, 1 << 60, 1], pa.timestamp("us"))
    path = write(tmp_path / "a.parquet", {"key": keys(3), "text": keys(3), "day": late})
    records, bad, _ = read(path, ["*"])
    assert (records, list(bad)) == (2, ["2"])
    assert "holds 'day', which can't be read" in bad["2"]
