"""`fpdb report`, from files to a page."""

import html
import json

import pytest

WORDS = " ".join(f"word{number}" for number in range(100))
TEXTS = {"a": WORDS, "b": WORDS.replace("word50 ", "other "), "c": WORDS, "d": "others " * 20}


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "pages.jsonl"
    path.write_text(
        "".join(json.dumps({"id": key, "body": text}) + "\n" for key, text in TEXTS.items())
    )
    return path


def test_a_page_is_written(run, source, tmp_path):
    done = run("report", source, "-o", tmp_path / "out.html")
    assert (done.code, done.out) == (0, "")
    assert "documents 4, groups 1, identical 1, edited 1\n" in done.err
    assert f"{tmp_path}/out.html: 1 group, " in done.err
    assert (tmp_path / "out.html").read_text().startswith("<!doctype html>")


@pytest.mark.process
def test_the_page_names_files_that_were_left_out(run, source, tmp_path):
    folder = tmp_path / "essays"
    folder.mkdir()
    source.rename(folder / "pages.jsonl")
    (folder / "论文.xls").write_bytes(b"x")
    (folder / "<旧>.doc").write_bytes(b"\xd0\xcf\x11\xe0")
    for number in range(12):
        (folder / f"{number:02}.jpg").write_bytes(b"\xff\xd8\xff")
    (folder / "broken.docx").write_bytes(b"PK")
    done = run("report", folder, "-o", tmp_path / "out.html")
    assert done.code == 4
    page = html.unescape((tmp_path / "out.html").read_text())
    assert "Not compared: 14 files in folders, which aren't text." in page
    assert "1 file couldn't be read, or not to the end." in page
    cure = "isn't text: save it as CSV"
    photos = ", ".join(f"{folder}/{number:02}.jpg" for number in range(10))
    for names, reason in ((f"{folder}/论文.xls", cure), (f"{photos}, …", "is a picture")):
        assert f"<bdi>{names}</bdi>: <span>{reason}</span>" in page
        assert f"{names}: {reason}\n" in done.err
    assert f"<bdi>{folder}/broken.docx</bdi>: <span>can't be read as a complete document:" in page
    assert "<旧>.doc" not in (tmp_path / "out.html").read_text()


def test_a_database(run, source, tmp_path):
    assert run("ingest", tmp_path / "a.fpdb", source).code == 0
    source.write_text(source.read_text().replace('"b"', '"x"'))
    done = run("report", source, "--db", tmp_path / "a.fpdb", "-o", tmp_path / "out.html")
    assert "documents 4, groups 1, identical 1, edited 1" in done.err
    assert "weren't found in the sources, or have changed: 1" in done.err
    done = run("report", source, "--db", tmp_path / "a.fpdb", "--recipe", "web")
    assert done.code == 2


def test_copied_parts(run, source, tmp_path):
    output = tmp_path / "out.html"
    done = run("report", source, "--passages", "-o", output)
    assert (done.code, done.out) == (0, "")
    assert f"documents 4, with passages of others 3, pairs 3\n{output}: 3 documents, " in done.err
    done = run("report", source, "--passages", "--least", "1", "-o", output, "--json", "-q")
    assert json.loads(done.out)["pairs"] == 1  # as b differs
    for arguments in (["--least", ".5"], ["--passages", "--similarity", ".5"]):
        assert run("report", source, "-o", output, *arguments).code == 2
    assert run("create", tmp_path / "plain.fpdb").code == 0
    assert run("ingest", tmp_path / "plain.fpdb", source).code == 0
    done = run("report", source, "--passages", "--db", tmp_path / "plain.fpdb", "-o", output)
    assert done.code == 3
    assert "keeps no passages" in done.err
