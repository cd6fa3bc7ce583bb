"""fpdb export: formats, and what comes back when an export is ingested again."""

import csv
import json

import pytest
from numbered import text_of

import fpdb

HOSTILE = "\x1b]0;owned\x07\u202e\n\t[/],\"'"


@pytest.fixture
def path(tmp_path):
    where = tmp_path / "crawl.fpdb"
    with fpdb.create(where) as database:
        for number in range(5):
            database.add(f"u{number}", text_of(number), {"n": number, "标题": HOSTILE})
        database.add("brief", "too short")
        database.add(HOSTILE, text_of(9))
    return where


def stored(path):
    with fpdb.open(path, readonly=True) as database:
        return {document.key: document for document in database.scan()}


def test_json_lines_hold_what_a_reader_wants(run, path):
    done = run("export", path, "--json")
    shown = {each["key"]: each for each in map(json.loads, done.out.splitlines())}
    assert (done.code, done.err) == (0, "")
    assert not set(done.out) & {"\x1b", "\x07", "\u202e", "\t"}
    for key, document in stored(path).items():
        found = shown.pop(key)
        assert list(found) == ["key", "fingerprint", "short", "added", "characters", "meta"]
        assert found["meta"] == document.meta
        assert found["short"] == document.short
        number = document.fingerprint
        assert found["fingerprint"] == (None if number is None else f"{number:016x}")
    assert not shown


def test_an_export_can_be_ingested_again(run, path, tmp_path):
    file, copy = tmp_path / "all.jsonl", tmp_path / "copy.fpdb"
    done = run("export", path, "--output", file)
    assert (done.code, done.out, done.err) == (0, "", f"{file}: 7 documents\n")
    again = run("ingest", copy, file, "--fingerprint-field", "fingerprint")
    assert (again.code, "added 6" in again.err, "bad 1" in again.err) == (4, True, True)
    wanted = {key: d.fingerprint for key, d in stored(path).items() if not d.short}
    assert {key: d.fingerprint for key, d in stored(copy).items()} == wanted


@pytest.mark.parametrize("form", ["tsv", "csv"])
def test_tables_name_their_columns(run, path, tmp_path, form):
    file = tmp_path / f"all.{form}"
    run("export", path, "-o", file)
    with file.open(encoding="utf-8-sig", newline="") as stream:
        quoting = csv.QUOTE_NONE if form == "tsv" else csv.QUOTE_MINIMAL
        rows = list(csv.reader(stream, delimiter="\t" if form == "tsv" else ",", quoting=quoting))
    assert rows[0] == ["key", "fingerprint", "added", "meta"]
    assert len(rows) == 8
    by_key = {row[0]: row for row in rows[1:]}
    assert by_key["brief"][1] == "short"
    assert json.loads(by_key["u1"][3]) == {"n": 1, "标题": HOSTILE}
    assert "\x1b" not in file.read_text("utf-8")
    fields = ["--key-field", "key", "--fingerprint-field", "fingerprint"]
    assert "added 6" in run("ingest", tmp_path / "copy.fpdb", file, *fields).err


@pytest.mark.process
@pytest.mark.parametrize("form", ["tsv", "csv", "jsonl", "parquet"])
def test_an_export_over_its_database_costs_it_nothing(run, path, tmp_path, form):
    with fpdb.open(path) as database:
        database.delete(HOSTILE)  # whose key tables escape
    file, before = tmp_path / f"all.{form}", stored(path)
    run("export", path, "-o", file)
    done = run("load", path, file)
    assert (done.code, "read 6, unchanged 5, bad 1;" in done.err) == (4, True)
    assert "a short text has no fingerprint, and comes only with the portable form" in done.err
    assert "without sketches" not in done.err
    assert stored(path) == before
    copy = tmp_path / "copy.fpdb"
    fpdb.create(copy).close()
    done = run("load", copy, file)
    assert "5 fingerprints came without sketches" in done.err
    assert "read 6, added 5, bad 1;" in done.err


def test_integer_keys_and_wide_fingerprints(run, tmp_path):
    where = tmp_path / "numbered.fpdb"
    with fpdb.create(where, keys="integer", recipe=fpdb.recipe("web-128")) as database:
        database.add_fingerprints([7, 8], [1, 1 << 127])
    shown = [json.loads(line) for line in run("export", where, "--json").out.splitlines()]
    assert [(each["key"], each["fingerprint"]) for each in shown] == [
        (7, f"{1:032x}"),
        (8, f"{1 << 127:032x}"),
    ]
