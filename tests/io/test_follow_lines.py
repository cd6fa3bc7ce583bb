"""Following a directory or standard input: lines as they come, moved and cut files, long lines."""

import os
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpdb.errors import InputError
from fpdb.io import follow
from fpdb.io.files import walk
from fpdb.io.follow import follow_parts
from fpdb.io.records import BadRecord, Reading
from fpdb.io.streams import LineCutter, decoded


def line(key, text="text"):
    return f'{{"key": "{key}", "text": "{text}"}}\n'


class Folder:
    """A directory that is followed, and looked at step by step."""

    looks = 0

    def __init__(self, root, *, max_bytes=1000):
        self.root = root
        self.told = []
        self._parts = follow_parts(str(root), Reading(max_bytes=max_bytes), self.told.append)

    def new(self):
        """Give the records of the next part; a test that finds none in a few looks fails."""
        Folder.looks = 0
        return [
            each.reason if isinstance(each, BadRecord) else (each.key, each.source)
            for each in next(self._parts).part()
        ]

    def write(self, name, text, mode="a"):
        with (self.root / name).open(mode) as file:
            file.write(text)


@pytest.fixture(autouse=True)
def few_looks(monkeypatch):
    """Don't sleep between two looks at a directory, and fail after a few that find nothing."""

    def look(_):
        Folder.looks += 1
        assert Folder.looks < 5

    monkeypatch.setattr("time.sleep", look)


def source(folder, name, number):
    return f"{folder.root / name}:{number}"


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "crawled"
    root.mkdir()
    return Folder(root)


def test_files_that_appear_and_grow(folder):
    folder.write("a.jsonl", line("one"))
    assert folder.new() == [("one", source(folder, "a.jsonl", 1))]
    folder.write("a.jsonl", line("two") + line("three"))
    assert folder.new() == [
        ("two", source(folder, "a.jsonl", 2)),
        ("three", source(folder, "a.jsonl", 3)),
    ]
    (folder.root / "later").mkdir()
    folder.write("later/b.ndjson", line("four"))
    assert folder.new() == [("four", source(folder, "later/b.ndjson", 1))]


def test_a_line_without_an_end_is_waited_for(folder):
    folder.write("a.jsonl", line("one") + '{"key": "tw')
    assert folder.new() == [("one", source(folder, "a.jsonl", 1))]
    folder.write("a.jsonl", 'o", "text": "x"}')
    folder.write("b.jsonl", line("other"))
    assert folder.new() == [("other", source(folder, "b.jsonl", 1))]
    folder.write("a.jsonl", "\n")
    assert folder.new() == [("two", source(folder, "a.jsonl", 2))]


def test_a_file_that_is_cut_or_written_anew_is_read_from_its_beginning(folder):
    folder.write("a.jsonl", line("one") + line("two"))
    folder.new()
    folder.write("a.jsonl", line("x"), "w")
    assert folder.new() == [("x", source(folder, "a.jsonl", 1))]
    assert folder.told == [
        f"{folder.root}/a.jsonl isn't what it was: read from its beginning again"
    ]
    folder.write("a.jsonl", line("longer than before") + line("y"), "w")
    assert [key for key, _ in folder.new()] == ["longer than before", "y"]
    assert len(folder.told) == 2


def test_a_file_that_is_moved_is_read_on_under_its_new_name(folder):
    folder.write("a.jsonl", line("one"))
    folder.new()
    folder.write("a.jsonl", line("two"))
    (folder.root / "a.jsonl").rename(folder.root / "a.jsonl.1")
    folder.write("a.jsonl", line("three"))
    assert sorted(key for _ in range(2) for key, _ in folder.new()) == ["three", "two"]
    assert not folder.told


def test_a_file_that_is_moved_during_a_look_is_read_before_what_replaced_it(folder, monkeypatch):
    folder.write("a.jsonl", line("one"))
    folder.new()
    folder.write("a.jsonl", line("two"))
    (folder.root / "a.jsonl").rename(folder.root / "z.jsonl")
    folder.write("a.jsonl", line("three"))
    looks = []

    def without_the_moved(root):
        looks.append(root)
        return [each for each in walk(root) if len(looks) > 1 or each.name != "z.jsonl"]

    monkeypatch.setattr(follow, "walk", without_the_moved)
    assert [key for _ in range(2) for key, _ in folder.new()] == ["two", "three"]


def test_new_files_are_read_while_others_vanish_all_the_time(folder, monkeypatch):
    names = [f"{number}.jsonl" for number in range(20)]
    for name in names:
        folder.write(name, line(name))
        folder.new()
    folder.write("new.jsonl", line("new"))

    def vanishing(root):
        (folder.root / names.pop()).unlink()
        return walk(root)

    monkeypatch.setattr(follow, "walk", vanishing)
    assert [key for key, _ in folder.new()] == ["new"]


def test_other_files_are_left_alone(tmp_path):
    for name in ("a.txt", "b.jsonl.gz", ".hidden.jsonl", "_part.jsonl"):
        (tmp_path / name).write_text(line(name))
    (tmp_path / "c.jsonl").write_text(line("c"))
    assert [key for key, _ in Folder(tmp_path).new()] == ["c"]


def test_what_is_wrong_with_a_file_is_said_once(tmp_path):
    root = tmp_path / "crawled"
    root.mkdir()
    (tmp_path / "outside.jsonl").write_text(line("secret"))
    (root / "link.jsonl").symlink_to(tmp_path / "outside.jsonl")
    folder = Folder(root)
    assert folder.new() == ["is a link that leads out of the directory"]
    folder.write("a.jsonl", line("one"))
    assert folder.new() == [("one", source(folder, "a.jsonl", 1))]


def test_a_line_that_is_too_long_is_a_bad_record(tmp_path):
    folder = Folder(tmp_path, max_bytes=50)
    folder.write("a.jsonl", line("one") + line("two", "x" * 100) + line("three"))
    assert [each if isinstance(each, str) else each[0] for each in folder.new()] == [
        "one",
        "holds more than 50 bytes in one line",
        "three",
    ]


def test_only_a_directory_or_standard_input_can_be_followed(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text(line("one"))
    with pytest.raises(InputError, match="no directory"):
        Folder(file)


@given(
    st.lists(st.binary(max_size=12).map(lambda data: data.replace(b"\n", b"")), max_size=8),
    st.lists(st.integers(0, 80), max_size=6),
    st.booleans(),
)
def test_lines_are_the_same_however_the_bytes_come(lines, cuts, ended):
    data = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    cutter, found = LineCutter(8), []
    for start, end in pairwise(places):
        found += cutter.feed(data[start:end])
    found += cutter.finish()
    expected = data.split(b"\n")
    if not expected[-1]:
        expected.pop()
    if expected:
        expected[0] = expected[0].removeprefix(b"\xef\xbb\xbf")
    texts = [text if isinstance(text, str) else None for _, text, _ in decoded(found)]
    assert texts == [
        each.decode(errors="replace") if len(each.removesuffix(b"\r")) <= 8 else None
        for each in expected
    ]


def test_memory_is_bounded_while_a_line_has_no_end():
    cutter = LineCutter(1000)
    for _ in range(100):
        cutter.feed(b"x" * 500)
        assert len(cutter._rest) <= 1500
    found = cutter.feed(b"\nshort\n")
    assert [len(each) if isinstance(each, bytes) else None for each in found] == [None, 5]


def test_a_file_that_is_replaced_while_it_is_opened_waits_for_its_turn(folder, monkeypatch):
    folder.write("a.jsonl", line("one"))
    real = os.fstat

    def another(number):
        monkeypatch.setattr(os, "fstat", real)
        found = list(real(number))
        found[1] += 1  # the inode
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", another)
    assert folder.new() == [("one", source(folder, "a.jsonl", 1))]
