"""fpdb ingest: every format, every option, and what becomes of records that can't be used."""

import json

import pytest
from numbered import keys_in, text_of

import fpdb


def pages(numbers):
    return [{"url": f"https://a.example/{n}", "text": text_of(n), "lang": "en"} for n in numbers]


def jsonl(records):
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def summary(done):
    """The counts of the summary on standard error."""
    line = next(line for line in done.err.splitlines() if line.startswith("read "))
    counts, rate = line.split("; ")
    assert rate.endswith(" documents/s")
    pairs = (part.partition(" (")[0].rsplit(" ", 1) for part in counts.split(", "))
    return {name: int(count.replace(",", "")) for name, count in pairs}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "crawl.fpdb"


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "pages.jsonl"
    file.write_bytes(jsonl(pages(range(5))))
    return file


def test_a_database_in_the_directory_is_no_document(run, tmp_path, path, source):
    """Its data.mdb, lock.mdb and seal were stored as texts."""
    (tmp_path / "_SUCCESS").touch()
    done = run("ingest", path, tmp_path)
    assert (done.code, summary(done)) == (0, {"read": 5, "added": 5})
    left = f"{tmp_path}: left out: databases 1, hidden files, or with _ 1"
    assert left in done.err.splitlines()
    assert left in run("query", path, tmp_path).err.splitlines()


def test_a_database_is_created_with_the_defaults_and_that_is_said(run, path, source):
    done = run("ingest", path, source)
    assert (done.code, done.out) == (0, "")
    assert done.err.splitlines()[0] == f"created {path}: recipe web, similarity 0.8"
    assert summary(done) == {"read": 5, "added": 5}
    assert keys_in(path) == [f"https://a.example/{n}" for n in range(5)]


@pytest.mark.parametrize(("asked", "least"), [(0.6, 0.6), (0.8, 0.8), (0.95, 0.8)])
def test_a_new_database_finds_all_that_is_asked_for(run, path, source, asked, least):
    done = run("ingest", path, source, "--skip-duplicates", "--similarity", asked)
    assert done.code == 0
    assert done.err.splitlines()[0] == f"created {path}: recipe web, similarity {least}"
    assert "warning" not in done.err
    with fpdb.open(path, readonly=True) as database:
        assert database.similarity == least


def test_ingesting_again_changes_nothing_and_a_new_text_replaces(run, path, source, tmp_path):
    run("ingest", path, source)
    again = run("ingest", path, source)
    assert "created" not in again.err
    assert summary(again) == {"read": 5, "unchanged": 5}
    changed = jsonl([pages([0])[0] | {"text": text_of(99)}])
    assert summary(run("ingest", path, "-", stdin=changed)) == {"read": 1, "replaced": 1}


def test_duplicates_are_skipped_and_said(run, path, source):
    run("ingest", path, source)
    copies = jsonl([{"key": f"copy{n}", "text": text_of(n)} for n in (3, 50)])
    done = run("ingest", path, "--skip-duplicates", stdin=copies)
    assert done.rows == [["copy3", "https://a.example/3", "1.00"]]
    assert summary(done) == {"read": 2, "added": 1, "duplicates": 1}
    assert ", duplicates 1 (50.0%); " in done.err
    as_json = run("ingest", path, "--skip-duplicates", "--json", "--quiet", stdin=copies)
    assert as_json.err == ""
    shown = json.loads(as_json.out)
    assert (shown["key"], shown["status"]) == ("copy3", "duplicate")
    assert shown["matches"][0] == {
        "key": "https://a.example/3",
        "id": 3,
        "distance": 0,
        "similarity": 1.0,
        "meta": None,
        "exact": True,
    }


def test_bad_records_cost_only_themselves(run, path, tmp_path):
    file = tmp_path / "mixed.jsonl"
    good = pages(range(4))
    lines = [json.dumps(good[0]), "{no json", json.dumps(good[1]), '{"text": "no key"}', "[]"]
    lines += [json.dumps({"key": "k" * 70_000, "text": text_of(8)}), json.dumps(good[2])]
    lines += [
        json.dumps({"key": "m", "text": text_of(9), "big": "x" * 70_000}),
        json.dumps(good[3]),
    ]
    file.write_text("\n".join(lines), "utf-8")
    done = run("ingest", path, file, "--meta-field", "big")
    assert done.code == 4
    assert summary(done) == {"read": 9, "added": 4, "bad": 5}
    said = [line.split(": ")[0] for line in done.err.splitlines()[1:-1]]
    assert said == [f"{file}:{number}" for number in (2, 4, 5, 6, 8)]
    assert keys_in(path) == [page["url"] for page in good]


def test_records_that_are_bad_alike_are_shown_a_few_times(run, path):
    stdin = b'{"title": "a"}\n' * 250 + b'{"key": "k", "text": "a good one"}\n'
    *lines, last = run("ingest", path, "--quiet", stdin=stdin).err.splitlines()
    usual = " or ".join(map(repr, ("key", "id", "url", "doc_id", "uuid", "编号", "序号")))
    reason = f"found no key: expected the field {usual}, there are: 'title'"
    more = "; --key-field names another"
    assert lines == [f"-:{n}: {reason}{more}" for n in range(1, 4)]
    assert last.startswith("further ones like this are only counted: found no key")


@pytest.mark.parametrize("bad", ["{no json", json.dumps({"key": "k" * 70_000, "text": text_of(8)})])
def test_strict_keeps_everything_before_the_first_bad_one(run, path, bad):
    good = [json.dumps(page) for page in pages(range(20))]
    stdin = "\n".join([*good[:7], bad, *good[7:]]).encode()
    done = run("ingest", path, "--bad", "fail", stdin=stdin)
    assert done.code == 3
    assert "error: -:8: " in done.err
    assert "\nhint: " in done.err
    assert summary(done)["added"] == 7
    assert len(keys_in(path)) == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.jsonl"], "absent.jsonl can't be read"),
        (["-", "--format", "tsv", "--key-field", "1"], "columns"),
        (["-", "-r", "wep"], "found no recipe 'wep'"),
    ],
)
def test_errors_before_the_first_record_create_nothing(run, path, arguments, message):
    done = run("ingest", path, *arguments)
    assert (done.code, done.out) == (3, "")
    assert message in done.err
    assert not path.exists()


def marked_up(number):
    """Return a page; of every other one, the first element ends long after the beginning."""
    style = f"<style>{'p { margin: 0 } ' * 200}</style>" * (number % 2)
    return f"<div>{style}<p>{text_of(number)}</p><ul><li>one</li><li>two</li></ul></div>"


def test_texts_with_tags_are_warned_of_once(run, path, tmp_path):
    file = tmp_path / "pages.jsonl"
    records = [{"key": str(number), "text": marked_up(number)} for number in range(3000)]
    file.write_bytes(jsonl(records))
    done = run("ingest", path, file)
    (warning,) = [line for line in done.err.splitlines() if line.startswith("warning: ")]
    assert "--html main" in warning
    assert done.err.index(warning) < done.err.index("read 3,000")
    assert "texts with tags, which --html main would read: 3,000\n" in done.err
    assert run("ingest", path, file, "--quiet").err == ""


@pytest.mark.parametrize("first", [["{}\n"], ["{}\n", "--bad", "fail"]])
def test_a_first_attempt_that_fails_leaves_no_database(run, path, source, first):
    content, *options = first
    (path.parent / "wrong.jsonl").write_text(content)
    done = run("ingest", path, path.parent / "wrong.jsonl", "-r", "char-4", *options)
    assert (done.code, path.exists()) == (3, False)
    assert "created" not in done.err
    assert run("ingest", path, source, "-r", "web").code == 0
    # A database that was there before, or that has a document, stays.
    assert run("ingest", path, path.parent / "wrong.jsonl").code == 3
    fpdb.create(path.parent / "empty.fpdb").close()
    assert run("ingest", path.parent / "empty.fpdb", path.parent / "wrong.jsonl").code == 3
    assert (len(keys_in(path)), keys_in(path.parent / "empty.fpdb")) == (5, [])


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_no_database_is_made_before_a_key_is_known(run, path, suffix):
    file = path.parent / f"news.{suffix}"
    if suffix == "csv":
        file.write_text(f"号码,正文\n甲,{text_of(1)}\n", "utf-8")
    else:
        file.write_bytes(jsonl([{"号码": "甲", "正文": text_of(1)}] * 2))
    done = run("ingest", path, file)
    assert (done.code, path.exists()) == (3, False)
    assert "found no key" in done.err
    assert ("the file can't be used" if suffix == "csv" else "none of 2 records") in done.err
    assert not any(said in done.err for said in ("created", "removed", "can't be read"))
    assert run("ingest", path, file, "--key-field", "号码").code == 0


def test_metadata_that_is_removed_is_counted(run, path, source):
    assert run("ingest", path, source, "--meta-field", "*").code == 0
    with fpdb.open(path) as database:
        count = sum(document.meta is not None for document in database.scan())
    assert count
    done = run("ingest", path, source)
    assert f"stored metadata removed, which --meta-field gives anew: {count}\n" in done.err
    assert "metadata removed" not in run("ingest", path, source).err
    assert run("ingest", path, source, "--meta-field", "*").code == 0
    assert json.loads(run("ingest", path, source, "--json").out)["lost_meta"] == count
