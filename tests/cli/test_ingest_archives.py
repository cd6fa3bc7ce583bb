"""Archives are ingested: their pages are found, and a second run redoes next to nothing."""

import subprocess
import sys

import pytest
from warcs import http, packed, page, record

import fpdb

pytestmark = pytest.mark.process

RECORDS = [record(f"http://a.example/{n}", http(page(f"{n}", f"Page {n}"))) for n in range(40)]


@pytest.mark.parametrize("jobs", [1, 2])
def test_ingest_and_again(run, tmp_path, jobs):
    path, archive = tmp_path / "a.fpdb", tmp_path / "a.warc.gz"
    request = record("http://a.example/1", b"GET", kind="request")
    archive.write_bytes(
        packed(*RECORDS, request) + b"garbage" + packed(record("http://b.example/"))
    )
    done = run("ingest", path, archive, "--jobs", jobs)
    assert done.code == 4, done.err
    offset = len(packed(*RECORDS, request))
    assert f"{archive}:{offset}: is no complete gzip file: " in done.err
    assert "read 42, added 41, bad 1;" in done.err
    assert "records of archives that hold no page: 1 of type request\n" in done.err
    with fpdb.open(path) as db:
        stored = db["http://a.example/7"]
        assert stored.meta["title"] == "Page 7"
        assert stored.fingerprint == db.recipe.fingerprint(fpdb.html_text(page("7")).text)
    again = run("ingest", path, archive, "--jobs", jobs)
    assert "unchanged 41, " in again.err


@pytest.mark.parametrize("meta", [["a", "list"], "a string", 5, {"date": ["a list"]}])
def test_a_page_replaces_a_document_with_other_metadata(run, tmp_path, meta):
    path, archive = tmp_path / "a.fpdb", tmp_path / "a.warc"
    archive.write_bytes(RECORDS[0])
    with fpdb.create(path) as db:
        db.add("http://a.example/0", "a text", meta)
    done = run("ingest", path, archive)
    assert (done.code, "replaced 1; " in done.err) == (0, True)
    with fpdb.open(path) as db:
        assert db["http://a.example/0"].meta["title"] == "Page 0"


def test_pages_that_are_stored_are_not_read_again(run, tmp_path):
    path, archive = tmp_path / "a.fpdb", tmp_path / "a.warc"
    archive.write_bytes(b"".join(RECORDS[:3]))
    assert "added 3" in run("ingest", path, archive).err
    # Without a parser there is nothing that could read them.
    code = (
        "import sys\n"
        "from fpdb.io import html\n"
        "def html_text(*_, **__): raise SystemExit('read again')\n"
        "html.html_text = html_text\n"
        "from fpdb.cli import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", code, "ingest", str(path), str(archive)]
    again = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    assert "unchanged 3;" in again.stderr
    command += ["--html", "page"]
    other = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    assert "read again" in other.stderr


def test_query_and_strict(run, tmp_path):
    path, archive = tmp_path / "a.fpdb", tmp_path / "a.warc"
    archive.write_bytes(RECORDS[0] + b"garbage\r\n" + RECORDS[1])
    done = run("ingest", path, archive, "--bad", "fail")
    assert done.code == 3
    assert f"error: {archive}:{len(RECORDS[0])}: no record begins here" in done.err
    archive.write_bytes(RECORDS[0])
    assert run("ingest", path, archive).code == 0
    asked = run("query", path, archive)
    assert asked.out == "http://a.example/0\thttp://a.example/0\t1.00\n"
    file = tmp_path / "a.html"
    file.write_text(page("0"))
    assert "http://a.example/0\t1.00\n" in run("query", path, file).out
