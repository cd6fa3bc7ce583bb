"""Parts of the input give, one after the other, what reading it in one go gives."""

import gzip
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpdb.io import files, streams
from fpdb.io.files import read_parts, read_records
from fpdb.io.records import BadRecord, Reading, Record

LINES = st.sampled_from(
    [
        b'{"key": "a", "text": "x"}\n',
        b'{"key": 7, "text": "y", "more": [1]}\r\n',
        b'{"key": "\xff", "text": "z"}\n',
        b'{"key": "b", "text": "\xff"}\n',
        b"\n",
        b"no json\n",
        b'"' * 90 + b"\n",
        b'{"key": "long", "text": "' + b"x" * 90 + b'"}\n',
        b"a\tb\n",
    ]
)


def whole(path, **options):
    return list(read_records(str(path), Reading(**options)))


def in_parts(path, size=files.PART, watch=streams.UNWATCHED, **options):
    """Read part by part, each as another process would get it."""
    found = []
    for part in read_parts(str(path), Reading(**options), watch, size=size):
        found += part()
    return found


@given(st.lists(LINES, max_size=12), st.integers(1, 5), st.sampled_from(["jsonl", "lines"]))
def test_lines_are_those_of_the_whole(tmp_path_factory, lines, size, form):
    path = tmp_path_factory.mktemp("parts") / "some.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b"".join(lines))
    options = {"format": form, "max_bytes": 80}
    assert in_parts(path, size=size, **options) == whole(path, **options)


@pytest.mark.parametrize("form", ["tsv", "csv"])
@pytest.mark.parametrize(
    "rows", [b"key,text\na,b\n", b"", b"no\n1\n2\n", b'key,text\n"a\nb",c\nd,e']
)
def test_tables_are_read_from_their_beginning_on(tmp_path, form, rows):
    path = tmp_path / f"some.{form}"
    path.write_bytes(rows.replace(b",", b"\t") if form == "tsv" else rows)
    assert in_parts(path, size=1) == whole(path)


def test_a_directory_of_everything(tmp_path):
    folder = tmp_path / "texts"
    (folder / "deep").mkdir(parents=True)
    for number in range(7):
        (folder / f"{number}.txt").write_text(f"text {number}")
    (folder / "3.jsonl").write_text('{"key": "a", "text": "b"}\nbad\n')
    (folder / "4.txt.gz").write_bytes(gzip.compress(b"packed"))
    (folder / "5.txt.gz").write_bytes(gzip.compress(b"broken")[:-9])
    (folder / "deep" / "6.csv").write_text("key,text\na,b\n")
    (folder / "out").symlink_to(tmp_path)
    (folder / "large.txt").write_text("x" * 100)
    for size in (1, 2, 3, 100):
        told = []
        found = in_parts(folder, size=size, max_bytes=80, watch=streams.Watch(told.append))
        assert found == whole(folder, max_bytes=80)
        assert sum(told) == sum(
            entry.stat().st_size for entry in folder.rglob("*") if entry.is_file()
        )
    assert sum(isinstance(record, BadRecord) for record in found) == 4


def test_a_broken_file_gives_what_came_before_the_break(tmp_path):
    path = tmp_path / "some.jsonl.gz"
    lines = b"".join(b'{"key": "%d", "text": "%d"}\n' % (n, n * 7919) for n in range(3000))
    path.write_bytes(gzip.compress(lines)[:-2000])
    found = in_parts(path)
    assert found == whole(path)
    assert isinstance(found[0], Record)
    assert isinstance(found[-1], BadRecord)


def test_parts_are_bounded_by_their_bytes_too(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "PART_BYTES", 100)
    path = tmp_path / "some.txt"
    path.write_text("x" * 30 + "\n" + "y" * 300 + "\n" + "zz\n" * 60)
    found = [list(part()) for part in read_parts(str(path), Reading(format="lines"))]
    assert [len(records) for records in found] == [62]
    (tmp_path / "some").mkdir()
    for number in range(6):
        (tmp_path / "some" / f"{number}.txt").write_text("x" * 40)
    found = [list(part()) for part in read_parts(str(tmp_path / "some"))]
    assert [len(records) for records in found] == [3, 3]


def test_a_slow_pipe_gives_its_parts_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_PART_SECONDS", 0.0)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = threading.Semaphore()

    def write():
        with pipe.open("wb", buffering=0) as file:
            for number in range(4):
                assert read.acquire(timeout=60)
                file.write(b"line %d\n" % number)

    thread = threading.Thread(target=write)
    thread.start()
    found = []
    for part in read_parts(str(pipe), Reading(format="lines")):
        found.append([record.text for record in part()])
        read.release()
    thread.join()
    assert found == [[f"line {number}"] for number in range(4)]
