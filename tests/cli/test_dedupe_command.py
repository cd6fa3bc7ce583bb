"""fpdb dedupe: what it prints, its options, and its exit codes."""

import gzip
import json
import os
import shlex

import pytest
from outlines import groups_of

import fpdb
from fpdb.documents.runs import Runs

TEXTS = [" ".join(f"w{place}x{number}" for place in range(40)) for number in range(3)]


def lines(records):
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.jsonl"
    records = [{"id": place, "text": TEXTS[place % 3], "n": place} for place in range(6)]
    path.write_text(lines(records))
    return path


def ids(path):
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


def test_the_summary_counts(run, tmp_path, source):
    done = run("dedupe", source, "-o", tmp_path / "out.jsonl")
    assert (done.code, done.out) == (0, "")
    summary, removed, own_share, rate = done.err.split("; ")
    assert summary == "read 6, kept 3, removed 3 (50.0%)"
    assert removed.startswith("exact copies 3, edited 0, ")
    assert removed.endswith("B saved")
    assert own_share == "0.0% of what was removed isn't in the record it resembles"
    assert rate.endswith(" records/s\n")
    assert ids(tmp_path / "out.jsonl") == [0, 1, 2]


def test_what_is_removed_goes_to_a_file(run, tmp_path, source, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("-", "removed.csv"):
        done = run("dedupe", source, "-o", "out.jsonl", "--removed", name)
        assert done.code == 2
        assert f"--removed gets a file of JSON lines, found {name}" in done.err
    assert list(tmp_path.iterdir()) == [source]


def test_the_summary_counts_no_bytes_where_an_output_is_larger(run, tmp_path, source):
    packed = tmp_path / "in.jsonl.gz"
    packed.write_bytes(gzip.compress(source.read_bytes() * 20))
    done = run("dedupe", packed, "-o", tmp_path / "out.jsonl")
    assert packed.stat().st_size < (tmp_path / "out.jsonl").stat().st_size
    assert "; exact copies 117, edited 0; 0.0% of" in done.err


def test_the_summary_counts_keys_that_were_delivered_before(run, tmp_path, source):
    dedupe = ("dedupe", source, "--db", tmp_path / "db", "-o")
    assert "delivered before" not in run(*dedupe, tmp_path / "out.jsonl").err
    records = [{"id": place, "text": f"{TEXTS[place]} correction", "n": 9} for place in range(3)]
    source.write_text(lines(records))
    done = run(*dedupe, tmp_path / "next.jsonl")
    assert done.err.startswith("read 3, removed 3 (100.0%); exact copies 0, edited 3, ")
    assert "; 3 under keys that were delivered before; " in done.err
    source.write_text(lines(records[:2]))
    done = run(*dedupe, tmp_path / "last.jsonl", "--same-key", "replace")
    assert done.err.startswith(
        "read 2, replaced 2, kept 2; 2 under keys that were delivered before; "
    )
    done = run("dedupe", source, "-o", tmp_path / "out.jsonl", "--same-key", "keep")
    assert (done.code, "--same-key is about a run with --db" in done.err) == (2, True)
    source.write_text(lines([records[2]]))
    done = run(*dedupe, tmp_path / "newest.jsonl", "--keep", "newest:n")
    assert (done.code, "hint: keep what is stored; or" in done.err) == (3, True)
    assert "(--same-key)" in done.err


def test_files_with_the_texts_of_stored_documents_decide(run, tmp_path, monkeypatch):
    """By keys, or by the places of what had none; a text that isn't there leaves the estimate."""
    monkeypatch.chdir(tmp_path)
    words = [f"word{number}" for number in range(80)]
    first = [
        {"id": "a", "text": " ".join(words[:60])},
        {"text": " ".join(reversed(words))},
        {"id": 7, "text": TEXTS[0]},
    ]
    # Of runs of three words: 52 of 64, 51 of 65 and 50 of 66 in common; and 66 of 79.
    later = [
        *(" ".join(words[start : start + 60]) for start in (0, 6, 7, 8)),
        f"{' '.join(words[:11:-1])} end",
    ]
    (tmp_path / "later.jsonl").write_text(lines({"text": text} for text in later))
    (tmp_path / "first.jsonl").write_text(lines(first))
    (tmp_path / "other.csv").write_text(f"id,text\na,{first[0]['text']}\n7,another\n8,no\n")
    close, part = (0.8125, 0.1034), (0.8354, 0.0149)
    for files, decided, estimated in (
        ([], {}, 4),
        (["first.jsonl"], {2: close, 5: part}, 0),
        (["other.csv"], {2: close}, 1),
        (["other.csv", "first.jsonl"], {2: close, 5: part}, 0),
    ):
        name = "-".join(["db", *files])
        texts = [word for file in files for word in ("--texts", file)]
        dedupe = ("dedupe", "--db", f"{name}.fpdb", *texts, "-o")
        assert run(*dedupe, f"{name}-1.jsonl", "first.jsonl").code == 0
        options = ("--removed", f"{name}.jsonl", "--tmp", tmp_path)
        done = run(*dedupe, f"{name}-2.jsonl", "later.jsonl", *options)
        said = f"; {estimated} like a document of DB by an estimate, without its text"
        assert (said in done.err) is bool(estimated)
        rows = [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        assert sum(row["estimated"] for row in rows) == estimated
        stored = {
            int(row["source"].partition(":")[2]): (row["similarity"], row["own_share"])
            for row in rows
            if row["kept_source"].startswith("first.jsonl") and not row["estimated"]
        }
        assert stored == {1: (1.0, 0.0)} | decided
        kept = (tmp_path / f"{name}-2.jsonl").read_text().splitlines()
        assert [json.loads(line)["text"] for line in kept] == [later[2]] * bool(files)
    done = run(*dedupe, "next.jsonl", "later.jsonl", "--texts", "nowhere.jsonl")
    assert (done.code, "nowhere.jsonl can't be read" in done.err) == (3, True)
    done = run("dedupe", "later.jsonl", "-o", "out.jsonl", "--texts", "first.jsonl")
    assert (done.code, "--texts is about a run with --db" in done.err) == (2, True)
    assert not list(tmp_path.glob("dedupe*"))


def test_json_has_the_counts_and_quiet_none(run, tmp_path, source):
    done = run("dedupe", source, "-o", tmp_path / "out.jsonl", "--json")
    found = json.loads(done.out)
    assert found.pop("seconds") > 0
    expected = {"read": 6, "kept": 3, "removed": 3, "short": 0, "bad": 0, "incomplete": 0}
    size = source.stat().st_size
    saved = size - (tmp_path / "out.jsonl").stat().st_size
    expected |= {"copies": 3, "bytes_saved": saved, "own_share": 0.0}
    expected |= {"delivered": 0, "estimated": 0, "replaced": 0, "meanwhile": 0}
    expected |= {"cut_records": 0, "cut_characters": 0}
    expected |= {"invalid_utf8": 0, "markup": 0, "bytes_read": size, "bytes_total": size}
    expected |= {"encodings": {}, "unreadable": 0, "refused": 0, "left_out": {}, "losses": []}
    assert found == expected
    done = run("dedupe", source, "-o", tmp_path / "out.jsonl", "--quiet")
    assert (done.code, done.out, done.err) == (0, "", "")


def test_what_stays_goes_to_standard_output(run, tmp_path, source):
    done = run("dedupe", source, "-o", "-", "--removed", tmp_path / "removed.jsonl")
    assert [json.loads(line)["id"] for line in done.out.splitlines()] == [0, 1, 2]
    assert done.err.startswith("read 6, kept 3, removed 3 (50.0%); ")
    piped = run("dedupe", "-", "-o", "-", "-q", stdin=source.read_bytes())
    assert (piped.code, piped.out, piped.err) == (0, done.out, "")
    assert run("dedupe", tmp_path / "absent.jsonl", "-o", "-").out == ""


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ((), [0, 1, 2]),
        (("--keep", "newest:n"), [3, 4, 5]),
        (("--keep", "longest"), [0, 1, 2]),
        (("-k", "0"), [0, 1, 2]),
        (("--similarity", "0.95"), [0, 1, 2]),
        (("--recipe", "submissions"), [0]),
        (("--text-field", "n"), None),
    ],
)
def test_options_reach_the_library(run, tmp_path, source, options, kept):
    done = run("dedupe", source, "-o", tmp_path / "out.jsonl", *options)
    if kept is None:
        assert done.code == 3
        assert "none of the 6 records can be compared, the last: the field 'n' holds" in done.err
        assert f"{source}:1: the field 'n' holds a number, expected a text" in done.err
    else:
        assert done.code == 0
        assert ids(tmp_path / "out.jsonl") == kept


def test_standard_input_has_the_format_of_the_output(run, tmp_path):
    rows = "".join(f"{place},{TEXTS[place % 2]}\n" for place in range(4))
    stdin = f"id,text\n{rows}".encode()
    done = run("dedupe", "-", "-o", tmp_path / "out.csv", stdin=stdin)
    assert done.code == 0, done.err
    assert (tmp_path / "out.csv").read_text() == "id,text\n" + "".join(rows.splitlines(True)[:2])


def test_a_failed_first_run_leaves_no_database(run, tmp_path):
    source, database = tmp_path / "in.jsonl", tmp_path / "db"
    source.write_text('{"words": 1}\n')
    dedupe = ("dedupe", source, "-o", tmp_path / "out.jsonl", "--db", database)
    assert run(*dedupe).code == 3
    assert not database.exists()
    source.write_text(lines([{"id": 1, "text": TEXTS[0]}]))
    assert run(*dedupe, "--recipe", "char-4").code == 0


def test_what_is_bad_is_named(run, tmp_path, source):
    source.write_text(source.read_text() + "no JSON\n")
    done = run("dedupe", source, "-o", tmp_path / "out.jsonl", "--bad", "drop")
    assert done.code == 4
    assert f"{source}:7: isn't JSON" in done.err
    assert "bad 1" in done.err
    done = run("dedupe", source, "-o", tmp_path / "failed.jsonl", "--bad", "fail")
    assert done.code == 3
    assert not (tmp_path / "failed.jsonl").exists()


def test_a_line_that_is_too_long_names_the_option(run, tmp_path, source):
    source.write_text(source.read_text() + lines([{"id": 9, "text": "long " * 200}]))
    done = run("dedupe", source, "-o", tmp_path / "out.jsonl", "--max-bytes", "900")
    assert done.code == 4
    assert "holds more than 900 bytes in one line" in done.err
    assert "hint: --max-bytes sets how large a record may be" in done.err


def test_hostile_keys_stay_on_their_line(run, tmp_path):
    keys = ["\x1b[31mred\n\u202egnp", "\u2028", "a"]
    source, removed = tmp_path / "in.jsonl", tmp_path / "removed.jsonl"
    source.write_text(lines({"id": key, "text": TEXTS[0]} for key in keys))
    run("dedupe", source, "-o", tmp_path / "out.jsonl", "--removed", removed)
    text = removed.read_text()
    assert text.isascii()
    rows = [json.loads(line) for line in text.splitlines()]
    assert [(row["key"], row["kept_key"]) for row in rows] == [(key, keys[0]) for key in keys[1:]]


def test_a_terminal_shows_the_stages(run, tmp_path, source, monkeypatch):
    from fpdb.cli import render

    monkeypatch.setattr(render, "_shows_progress", lambda: True)
    monkeypatch.setattr(render, "_QUICK", 0)
    monkeypatch.setattr(render, "_PAUSE", 0)
    done = run("dedupe", source, "-o", tmp_path / "out.jsonl", "--keep", "longest")
    shown = [part.strip() for part in done.err.split("\r")]
    for stage in ("reading: ", "comparing: ", "writing: "):
        assert any(part.startswith(stage) for part in shown)
    assert any("6 records, 3 removed, 100%, 0 s left" in part for part in shown)


def test_paragraphs_are_cut_and_counted(run, tmp_path, monkeypatch):
    from fpdb.cli import render

    notice = " ".join(f"word{number}" for number in range(40))
    texts = [f"{' '.join(f'own{number}x{n}' for n in range(10))}\n{notice}" for number in range(3)]
    source, removed = tmp_path / "in.jsonl", tmp_path / "removed.jsonl"
    source.write_text("".join(json.dumps({"id": n, "text": t}) + "\n" for n, t in enumerate(texts)))
    arguments = "dedupe", source, "-o", tmp_path / "out.jsonl", "--cut", 3
    done = run(*arguments, "--removed", removed)
    assert done.err.startswith(f"read 3, kept 3; {2 * len(notice)} characters cut from 2 records; ")
    lines = [json.loads(line) for line in removed.read_text().splitlines()]
    assert lines == [
        {
            "key": key,
            "source": f"{source}:{key + 1}",
            "kept_key": 0,
            "kept_source": f"{source}:1",
            "characters": len(notice),
        }
        for key in (1, 2)
    ]
    counts = json.loads(run(*arguments, "--json").out)
    assert (counts["cut_records"], counts["cut_characters"]) == (2, 2 * len(notice))
    done = run(*arguments, "--report", tmp_path / "page.html")
    assert (done.code, "compares whole texts" in done.err) == (2, True)
    done = run("dedupe", source, "-o", tmp_path / "out.jsonl", "--cut", 1)
    assert done.code == 2
    monkeypatch.setattr(render, "_shows_progress", lambda: True)
    monkeypatch.setattr(render, "_QUICK", 0)
    monkeypatch.setattr(render, "_PAUSE", 0)
    assert "counting: " in run(*arguments).err


def test_a_report_shows_the_duplicates_of_the_inputs(run, tmp_path, source):
    out, page = tmp_path / "out.jsonl", tmp_path / "page.html"
    done = run("dedupe", source, "-o", out, "--report", page, "--keep", "newest:n")
    assert done.code == 0, done.err
    assert done.err.splitlines()[-1] == f"{page}: 3 of 3 groups"
    assert [group["keys"][0] for group in groups_of(page)] == [
        ["3", "0"],
        ["4", "1"],
        ["5", "2"],
    ]
    done = run("dedupe", source, "-o", out, "--report", page, "-k", "3")
    assert (done.code, "takes no -k" in done.err) == (2, True)
    done = run("dedupe", "-", "-o", out, "--report", page)
    assert (done.code, "reads files again" in done.err) == (2, True)
    done = run("dedupe", source, "-o", out, "--report", tmp_path / "no" / "page.html")
    assert (done.code, "there is no folder" in done.err) == (2, True)


def test_an_encoding_that_was_found_is_said(run, tmp_path):
    source = tmp_path / "in.csv"
    titles = ("今日股市大幅上涨", "明天北京将有大雪", "世界杯决赛即将开始")
    data = "id,text\n" + "".join(f"{n},{title}\n" for n, title in enumerate(titles)) + "9,kites\n"
    source.write_bytes(data.encode("gb18030"))
    for command in (
        ("dedupe", source, "-o", tmp_path / "out.csv"),
        ("report", source, "-o", tmp_path / "out.html"),
    ):
        done = run(*command)
        assert done.err.count("in.csv: read as gb18030") == 1
        assert "files by encoding: gb18030 1" in done.err
        assert json.loads(run(*command, "--json").out)["encodings"] == {"gb18030": 1}
    assert (tmp_path / "out.csv").read_bytes() == data.encode("gb18030")
    source.write_text(data)
    assert "by encoding" not in run(*command).err
    source.write_bytes(b"id,text\n1,caf\xe9 \x81\n2,red kites\n")
    done = run("dedupe", source, "-o", tmp_path / "out.csv", "--bad", "drop")
    assert (done.code, "in.csv:2: holds bytes that don't fit its encoding" in done.err) == (4, True)
    assert (tmp_path / "out.csv").read_bytes() == b"id,text\n2,red kites\n"


def test_an_unfinished_run_is_finished_or_abandoned(run, tmp_path, source):
    class StoppedError(Exception):
        pass

    def fail(*_):
        raise StoppedError

    other = tmp_path / "other.jsonl"
    other.write_text(lines([{"id": 9, "text": TEXTS[1]}]))
    dedupe = ("dedupe", source, "--db", tmp_path / "db", "-o")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runs, "finish", fail)
        with pytest.raises(StoppedError):
            run(*dedupe, tmp_path / "out.jsonl")
    done = run("dedupe", other, "--db", tmp_path / "db", "-o", tmp_path / "next.jsonl")
    assert done.code == 3
    assert "error: a run that began to write its outputs on 20" in done.err
    command = shlex.join(["fpdb", *map(str, dedupe), str(tmp_path / "out.jsonl")])
    assert f"hint: run it again, by cd {shlex.quote(os.getcwd())} && {command}, or " in done.err
    assert f"&& {command}\n" in run("stats", tmp_path / "db").out
    [line] = json.loads(run("stats", tmp_path / "db", "--json").out)["unfinished"]
    assert line.endswith(command)
    done = run("dedupe", other, "--db", tmp_path / "db", "-o", tmp_path / "next.jsonl", "--abandon")
    assert (done.code, ids(tmp_path / "next.jsonl")) == (0, [9])
    assert "unfinished run" not in run("stats", tmp_path / "db").out
    assert ids(tmp_path / "out.jsonl") == [0, 1, 2]
    # Its records aren't in the database, as the option says.
    assert run(*dedupe, tmp_path / "again.jsonl").code == 0
    assert ids(tmp_path / "again.jsonl") == [0, 2]
    done = run("dedupe", source, "-o", tmp_path / "out.jsonl", "--abandon")
    assert (done.code, "--abandon is about a run with --db" in done.err) == (2, True)


def test_a_report_compares_as_the_run_did(run, tmp_path, source):
    out, page, database = tmp_path / "out.jsonl", tmp_path / "page.html", tmp_path / "db"
    done = run("dedupe", source, "-o", out, "--report", page, "--recipe", "words")
    assert (done.code, "--report shows what is similar" in done.err) == (2, True)
    assert not out.exists()
    fpdb.create(database, recipe="words").close()
    done = run("dedupe", source, "-o", out, "--report", page, "--db", database)
    assert (done.code, out.exists()) == (2, False)
    strict = tmp_path / "strict"
    fpdb.create(strict, similarity=0.95).close()
    edited = TEXTS[0].replace("w20x0", "edited")
    source.write_text(lines([{"id": 0, "text": TEXTS[0]}, {"id": 1, "text": edited}]))
    done = run("dedupe", source, "-o", out, "--report", page, "--db", strict)
    assert done.code == 0, done.err
    assert ids(out) == [0, 1]
    assert groups_of(page) == []
    done = run("dedupe", source, "-o", tmp_path / "all.jsonl", "--report", page)
    assert [len(group["keys"]) for group in groups_of(page)] == [2]


def test_directories_and_patterns_are_their_files_of_records(run, tmp_path):
    folder = tmp_path / "parts"
    (folder / "deep").mkdir(parents=True)
    for number, name in enumerate(("a.jsonl", "deep/b.jsonl", "_SUCCESS", ".c.jsonl", "note.txt")):
        (folder / name).write_text(f'{{"id": {number}, "text": "red kites nest here again"}}\n')
    out = tmp_path / "out.jsonl"
    done = run("dedupe", folder, "-o", out)
    assert (done.code, json.loads(out.read_text())["id"]) == (0, 0)
    assert f"{folder}: left out: files without records 1\n" in done.err
    assert f"{folder}: left out: hidden files, or with _ 2\n" in done.err
    for command in (
        ("dedupe", "-o", out),
        ("ingest", tmp_path / "db"),
        ("report", "-o", tmp_path / "r.html"),
    ):
        done = run(*command, f"{folder}/**/*.jsonl")
        assert (done.code, "read 2" in done.err or "documents 2" in done.err) == (0, True)
    assert "No such file" in run("dedupe", f"{folder}/*.csv", "-o", out).err


def test_files_without_records_are_named_with_a_cure(run, tmp_path, source):
    folder = tmp_path / "mixed"
    folder.mkdir()
    (folder / "in.jsonl").write_bytes(source.read_bytes())
    (folder / "essay.txt").write_text("words")
    (folder / "old.doc").write_text("words")
    done = run("dedupe", folder, "-o", tmp_path / "out.jsonl")
    assert done.code == 0
    assert f"{folder}/old.doc: isn't text: save it as .docx, or as text\n" in done.err
    assert "left out: files without records 1\n" in done.err
    assert f"{folder}/essay.txt: is text: fpdb ingest reads it\n" in done.err
