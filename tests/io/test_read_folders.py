"""Directories: all their files in order, keys that don't depend on where they lie."""

import gzip
import json
import os

import pytest

import fpdb
from fpdb.errors import InputError
from fpdb.io.files import read_records, read_texts
from fpdb.io.paths import size_of
from fpdb.io.records import BadRecord, Reading
from fpdb.io.streams import Watch


def fill(folder, **files):
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def described(folder, **options):
    return [
        (record.source.removeprefix(f"{folder}/"), getattr(record, "key", None))
        for record in read_records(str(folder), Reading(**options))
    ]


@pytest.mark.process
def test_every_file_by_its_suffix(tmp_path):
    fill(
        tmp_path,
        b_txt=b"text",
        README=b"text",
        a__z_html=b"text",
        a__b__c_jsonl_gz=gzip.compress(b'{"id": 1, "text": "t"}\n{}\n'),
        c_tsv=b"url\ttext\nu\tt\n",
        d_csv=b"url,text\nu,t\n",
        _hidden=b"text",
        _git__config=b"text",
    )
    assert described(tmp_path) == [
        ("README", "README"),
        ("a/b/c.jsonl.gz:1", 1),
        ("a/b/c.jsonl.gz:2", None),
        ("a/z.html", "a/z.html"),
        ("b.txt", "b.txt"),
        ("c.tsv:2", "u"),
        ("d.csv:2", "u"),
    ]
    assert described(f"{tmp_path}/")[0][1] == "README"
    told = []
    list(read_records(str(tmp_path), watch=Watch(told.append)))
    assert sum(told) == size_of(str(tmp_path)) > 50


def test_what_holds_no_documents_is_left_out_and_counted(tmp_path, caplog):
    (tmp_path / "store").mkdir()
    fpdb.create(tmp_path / "store" / "own.fpdb").close()
    fill(
        tmp_path,
        a_txt=b"text",
        b_jsonl=b'{"id": "k", "text": "t"}',
        x_jpg=b"\xff\xd8\xff\xe0\0\x10JFIF\0",
        store__y_zip=b"PK\x03\x04\x14" + b"x" * 40,
        z_xls=b"\xd0\xcf\x11\xe0" + b"x" * 40,
        **{f"photo{number:02}_png": b"\x89PNG" for number in range(11)},
        store__other=b"a NUL\0",
        utf16_txt="text".encode("utf-16"),
        _hidden=b"text",
    )
    (tmp_path / "~$open.docx").touch()
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "_temporary").mkdir()
    (tmp_path / "_temporary" / "part.jsonl").write_bytes(b"{}")
    told = []
    found = list(read_records(str(tmp_path), watch=Watch(told.append)))
    with fpdb.create(tmp_path.with_suffix(".fpdb")) as database:
        counts = fpdb.ingest(database, tmp_path)
    assert counts.refused == 15
    del caplog.records[6:]
    assert [getattr(record, "key", None) for record in found] == ["a.txt", "k", "utf16.txt"]
    assert found[-1].text == "text"
    assert sum(told) == size_of(str(tmp_path))
    counts = "databases 1, files that aren't text 15, hidden files, or with _ 4"
    photos = ", ".join(f"{tmp_path}/photo{number:02}.png" for number in range(10))
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}: left out: {counts}",
        f"{photos}, …: is a picture",
        f"{tmp_path}/store/other: has NUL bytes: export it as text or HTML",
        f"{tmp_path}/store/y.zip: is an archive: Word's are read as .docx, tables of Excel as CSV",
        f"{tmp_path}/z.xls: isn't text: save it as CSV",
        f"{tmp_path}/utf16.txt: read as utf-16-le",
    ]


@pytest.mark.parametrize("content", [b"%PDF-1.7 x", b"x" * 4000 + b"\0 x"])
def test_what_is_no_text_is_refused_by_name(tmp_path, content):
    (tmp_path / "named.txt").write_bytes(content)
    [bad] = read_records(str(tmp_path / "named.txt"))
    assert bad.reason.startswith("isn't text: ")
    with pytest.raises(InputError, match="isn't text"):
        list(read_texts(str(tmp_path / "named.txt")))


def test_a_format_for_all(tmp_path):
    fill(tmp_path, a_txt=b"one\ntwo\n", b__c_jsonl=b"{}\n")
    assert described(tmp_path, format="lines") == [
        ("a.txt:1", "a.txt:1"),
        ("a.txt:2", "a.txt:2"),
        ("b/c.jsonl:1", "b/c.jsonl:1"),
    ]


def test_fields_are_for_the_files_that_have_them(tmp_path):
    fill(tmp_path, a_txt=b"text", b_jsonl=b'{"n": "k", "t": "t"}', c_tsv=b"u\tt\n")
    assert described(tmp_path, key_field="n", text_field=("t",)) == [
        ("a.txt", "a.txt"),
        ("b.jsonl:1", "k"),
        ("c.tsv", None),
    ]


def test_links(tmp_path):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    fill(outside, a_txt=b"secret")
    fill(tmp_path / "inside-too", a_txt=b"secret")
    fill(inside, a_txt=b"text", b__c_txt=b"text")
    (inside / "link.txt").symlink_to("a.txt")
    (inside / "loop").symlink_to(inside)
    (inside / "out").symlink_to(outside)
    (inside / "out.txt").symlink_to(outside / "a.txt")
    (inside / "out2.txt").symlink_to("../inside-too/a.txt")
    (inside / "round.txt").symlink_to("round.txt")
    os.mkfifo(inside / "pipe.txt")
    found = list(read_records(str(inside)))
    assert [record.key for record in found if not isinstance(record, BadRecord)] == [
        "a.txt",
        "b/c.txt",
        "link.txt",
    ]
    assert [
        (record.source.removeprefix(f"{inside}/"), record.reason)
        for record in found
        if isinstance(record, BadRecord)
    ] == [
        ("out", "is a link that leads out of the directory"),
        ("out.txt", "is a link that leads out of the directory"),
        ("out2.txt", "is a link that leads out of the directory"),
        ("round.txt", "can't be read: Too many levels of symbolic links"),
    ]
    (tmp_path / "to").symlink_to(inside)
    assert described(tmp_path / "to")[0] == ("a.txt", "a.txt")


def test_names_that_are_no_unicode(tmp_path):
    with open(os.fsencode(tmp_path) + b"/a\xff.txt", "wb") as file:
        file.write(b"text")
    [bad] = read_records(str(tmp_path))
    assert "no valid Unicode" in bad.reason


def test_a_tree_deeper_than_the_stack(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    depth = 1500
    for _ in range(depth):
        os.mkdir("d")
        os.chdir("d")
    with open("a.txt", "wb") as file:
        file.write(b"text")
    os.chdir(tmp_path)
    try:
        [record] = read_records(".")
        assert record.key == "d/" * depth + "a.txt"
    finally:  # whoever clears the folder may recurse
        while os.path.isdir("d"):
            os.rename("d", "old")
            if os.path.isdir("old/d"):
                os.rename("old/d", "d")
            else:
                os.unlink("old/a.txt")
            os.rmdir("old")


def test_a_folder_without_permission(tmp_path, monkeypatch):
    fill(tmp_path, a__b_txt=b"text", c_txt=b"text")
    listdir = os.listdir

    def refuse(path):
        if str(path).endswith("/a"):
            raise PermissionError(13, "Permission denied")
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refuse)
    bad, good = read_records(str(tmp_path))
    assert bad == BadRecord(f"{tmp_path}/a", "can't be read: Permission denied", is_file=True)
    assert good.key == "c.txt"


def test_one_path_may_be_given_alone(tmp_path):
    """As a string or as a path, in every function that reads files into or with a database."""
    folder = tmp_path / "lines"
    folder.mkdir()
    file = folder / "in.jsonl"
    text = " ".join(f"word{n}" for n in range(30))
    file.write_text(json.dumps({"key": "a", "text": text}) + "\n")
    with fpdb.create(tmp_path / "db") as db:
        for given in (file, str(file), [file], [str(file), file]):
            counts = fpdb.ingest(db, given)
            assert counts.read == (len(given) if isinstance(given, list) else 1)
            [[name, matches, *_], *_] = fpdb.query_files(db, given)
            assert (name, [match.key for match in matches]) == ("a", ["a"])
            assert fpdb.report(given, tmp_path / "page.html").documents >= 1
