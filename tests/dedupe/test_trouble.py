"""Records that can't be compared, files that can't be read or written, unfit databases."""

import errno
import gzip
import json
from collections import Counter

import pytest
from pyarrow import parquet

import fpdb
from fpdb.dedupe import decide, files
from fpdb.tables import choose_bands
from fpdb.tables.bands import BandTable

GOOD = " ".join(f"word{number}" for number in range(40))
BAD_LINES = [b"no JSON", b"[]", b'{"id": 1}', b'{"id": [], "text": "x y z"}', b'{"text": 5}']


@pytest.fixture
def mixed(tmp_path):
    path = tmp_path / "in.jsonl"
    good = json.dumps({"id": "good", "text": GOOD}).encode()
    path.write_bytes(b"\n".join([BAD_LINES[0], good, *BAD_LINES[1:], good]))
    return path


@pytest.mark.parametrize("keep", ["first", "longest"])
@pytest.mark.parametrize("bad", ["keep", "drop"])
def test_bad_records_are_kept_or_dropped(tmp_path, mixed, bad, keep):
    found = []
    out = tmp_path / "out.jsonl"
    counts = fpdb.dedupe(mixed, out, bad=bad, on_bad=found.append, keep=keep)
    lines = mixed.read_bytes().split(b"\n")
    assert [each.source for each in found] == [f"{mixed}:{n}" for n in (1, 3, 4, 5, 6)]
    expected = lines[:-1] if bad == "keep" else lines[1:2]
    assert out.read_bytes().removesuffix(b"\n") == b"\n".join(expected)
    assert (counts.read, counts.bad, counts.removed, counts.kept) == (7, 5, 1, len(expected))


@pytest.mark.parametrize("database", [True, False])
def test_a_bad_record_may_fail_the_run_before_anything_is_stored(tmp_path, mixed, database):
    path = tmp_path / "corpus.fpdb" if database else None
    with pytest.raises(fpdb.InputError, match=r"in\.jsonl:1: isn't JSON"):
        fpdb.dedupe(mixed, tmp_path / "out.jsonl", bad="fail", database=path)
    assert not (tmp_path / "out.jsonl").exists()
    assert not list(tmp_path.glob(".*"))
    assert path is None or not path.exists()


@pytest.mark.parametrize("bad", ["keep", "drop"])
def test_it_is_an_error_if_all_records_are_bad(tmp_path, bad):
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\n".join(BAD_LINES))
    message = "none of the 5 records can be compared, the last: the field 'text' holds a number"
    with pytest.raises(fpdb.InputError, match=message) as caught:
        fpdb.dedupe(path, tmp_path / "out.jsonl", bad=bad)
    assert caught.value.hint
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("empty", [b"", b"\n", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("form", ["csv", "tsv"])
def test_a_table_without_a_header_has_no_records(tmp_path, empty, form):
    sources = [tmp_path / f"{number}.{form}" for number in range(3)]
    lines = [
        f"id,text\n{key},{key} {GOOD}\n".replace(",", "," if form == "csv" else "\t")
        for key in "ab"
    ]
    for path, data in zip(sources, [empty, *(line.encode() for line in lines)], strict=True):
        path.write_bytes(data)
    out = tmp_path / f"out.{form}"
    fpdb.dedupe(sources, out, similarity=1.0)
    assert out.read_text() == lines[0] + lines[1].splitlines(keepends=True)[1]
    fpdb.dedupe(sources[:1], out)
    assert out.read_bytes() == b""
    sources[2].write_text(lines[0].replace("text", "body", 1))
    with pytest.raises(fpdb.InputError, match=r"has other columns than .*1"):
        fpdb.dedupe(sources, out)


def test_a_line_that_is_too_long_stays_as_it_is(tmp_path):
    path = tmp_path / "in.jsonl"
    line = json.dumps({"id": 1, "text": GOOD * 100}).encode()
    path.write_bytes(line + b"\n" + json.dumps({"id": 2, "text": GOOD}).encode())
    counts = fpdb.dedupe(path, tmp_path / "out.jsonl", fpdb.Reading(max_bytes=2000))
    assert counts.bad == 1
    assert (tmp_path / "out.jsonl").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("bad", ["keep", "drop"])
def test_a_file_that_is_cut_short_fails_unless_its_rest_may_be_dropped(tmp_path, corpus, bad):
    data = "".join(json.dumps(each) + "\n" for each in corpus(400, edited=0)).encode()
    path, other, out = tmp_path / "in.jsonl.gz", tmp_path / "other.jsonl", tmp_path / "out.jsonl"
    path.write_bytes(gzip.compress(data)[:-6000])
    other.write_bytes(data[-30_000:].partition(b"\n")[2])
    if bad == "keep":
        with pytest.raises(fpdb.InputError, match="ends too early") as caught:
            fpdb.dedupe([path, other], out)
        assert caught.value.hint == "drop what is bad"
        assert not out.exists()
        return
    counts = fpdb.dedupe([path, other], out, bad="drop")
    assert (counts.bad, counts.unreadable) == (0, 1)
    found = out.read_bytes()
    lines = data.splitlines(keepends=True)
    start = found[: -len(other.read_bytes())]
    assert found.endswith(other.read_bytes()[-1000:])
    assert start == b"".join(lines)[: len(start)]
    assert len(start) > 50_000


@pytest.mark.process
def test_a_parquet_file_that_is_damaged_fails_with_its_name(tmp_path, corpus):
    import pyarrow

    path = tmp_path / "in.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(corpus(300)), path, row_group_size=50)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 2000] = bytes(2000)
    path.write_bytes(data)
    with pytest.raises(fpdb.InputError, match=r"in\.parquet"):
        fpdb.dedupe(path, tmp_path / "out.parquet")
    path.write_bytes(b"PAR1")
    with pytest.raises(fpdb.InputError, match=r"in\.parquet"):
        fpdb.dedupe(path, tmp_path / "out.parquet")
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_an_error_after_which_it_goes_on(tmp_path, corpus, jsonl, monkeypatch):
    path, out = jsonl("in.jsonl", corpus(60)), tmp_path / "out.jsonl"

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_rows", fail)
        with pytest.raises(fpdb.DiskFullError):
            fpdb.dedupe(path, out, database=tmp_path / "corpus.fpdb")
    assert not out.exists()
    counts = fpdb.dedupe(path, out, database=tmp_path / "corpus.fpdb")
    fpdb.dedupe(path, tmp_path / "whole.jsonl")
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert counts.read == 60


def test_a_folder_that_isnt_there_is_an_error(tmp_path, mixed):
    with pytest.raises(fpdb.FpdbError, match="there is no folder"):
        fpdb.dedupe(mixed, tmp_path / "no" / "out.jsonl")
    with pytest.raises(fpdb.FpdbError, match="there is no folder"):
        fpdb.dedupe(mixed, tmp_path / "out.jsonl", removed=tmp_path / "no" / "removed.jsonl")
    assert list(tmp_path.iterdir()) == [mixed]


@pytest.mark.parametrize(
    ("created", "asked", "error", "message"),
    [
        ({"keys": "integer"}, {}, fpdb.InputError, "integer keys"),
        ({}, {"k": 3}, fpdb.InputError, "finds what is similar, found k=3"),
        ({"similarity": None, "k": 4}, {"k": 3}, fpdb.InputError, "within 4, found k=3"),
        ({"similarity": None}, {"similarity": 0.9}, fpdb.InputError, "keeps no sketches"),
        ({}, {"similarity": 0.5}, fpdb.InputError, "from 0.8, and 19% of what is similar from 0.5"),
        ({}, {"recipe": "code"}, fpdb.RecipeMismatchError, "was created with the recipe web"),
    ],
)
def test_a_database_must_fit(tmp_path, mixed, created, asked, error, message):
    path = tmp_path / "corpus.fpdb"
    fpdb.create(path, **created).close()
    with pytest.raises(error, match=message) as caught:
        fpdb.dedupe(mixed, tmp_path / "out.jsonl", database=path, **asked)
    assert caught.value.hint
    assert sorted(tmp_path.iterdir()) == [path, mixed]


@pytest.mark.parametrize("similarity", [0.8, 0.9])
def test_a_database_fits_a_similarity_that_its_bands_find(tmp_path, mixed, similarity):
    path = tmp_path / "corpus.fpdb"
    fpdb.create(path, similarity=0.81).close()
    counts = fpdb.dedupe(mixed, tmp_path / "out.jsonl", database=path, similarity=similarity)
    assert counts.removed == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"keep": "newest"},
            r"found keep 'newest', expected first, longest, newest:FIELD or source:FIELD=A,B,\*",
        ),
        ({"keep": "newest:"}, r"expected first, longest, newest:FIELD or source:FIELD=A,B,\*"),
        ({"bad": "skip"}, "expected one of keep, drop, fail"),
        ({"k": 3, "similarity": 0.9}, "expected one of them"),
        ({"similarity": 1.5}, "at most 1"),
        ({"jobs": -1}, "found jobs -1"),
        ({"output_dir": "elsewhere"}, "no place for the output, or two"),
        ({"output": None}, "no place for the output, or two"),
        ({"source": []}, "found no files"),
        ({"source": 5}, "found 5, expected a path"),
    ],
)
def test_bad_arguments_are_named(tmp_path, mixed, options, message):
    given = {"source": mixed, "output": tmp_path / "out.jsonl"} | options
    with pytest.raises(fpdb.InputError, match=message) as caught:
        fpdb.dedupe(**given)
    assert caught.value.hint
    assert list(tmp_path.iterdir()) == [mixed]


def test_a_database_of_ready_documents_counts(tmp_path, mixed):
    with fpdb.create(tmp_path / "corpus.fpdb") as db:
        db.add("stored", GOOD, {"title": "kites"})
        removed = []
        counts = fpdb.dedupe(mixed, tmp_path / "out.jsonl", database=db, on_removed=removed.append)
    assert counts.removed == 2
    assert {(each.kept_key, each.kept_source) for each in removed} == {("stored", None)}


def test_metadata_of_users_mean_nothing(tmp_path, mixed):
    """Fields that have the names which a run itself notes are those of users."""
    meta = {"source": "mine.jsonl:7", "key": "theirs"}
    with fpdb.create(tmp_path / "corpus.fpdb") as db:
        db.add("stored", GOOD, meta)
        removed = []
        fpdb.dedupe(mixed, tmp_path / "out.jsonl", database=db, on_removed=removed.append)
        assert {(each.kept_key, each.kept_source) for each in removed} == {("stored", None)}
        assert db["stored"].meta == meta


def test_what_a_run_notes_is_read_as_it_was_written(tmp_path, mixed):
    removed = []
    with fpdb.create(tmp_path / "corpus.fpdb") as db:
        fpdb.dedupe(mixed, tmp_path / "out.jsonl", database=db)
        assert db["good"].meta == {"source": f"{mixed}:2"}
        db.add("copy", "another text of some words " * 9, db["good"].meta)
        other = tmp_path / "other.jsonl"
        rows = [GOOD, "another text of some words " * 9]
        other.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
        fpdb.dedupe(other, tmp_path / "new.jsonl", database=db, on_removed=removed.append)
    assert [each[2:4] for each in removed] == [("good", f"{mixed}:2"), ("copy", None)]


@pytest.mark.parametrize("most", [10_000, 1])
def test_kept_records_that_a_crowd_may_resemble_are_counted(tmp_path, jsonl, monkeypatch, most):
    """Two texts have half of their shingles in common: some bands agree, and no text is similar."""
    monkeypatch.setattr("fpdb.joins.selection.MOST_OF_A_BAND", most)
    monkeypatch.setattr(decide, "_together", lambda _: 1)
    texts = []
    for number in range(40):
        words = [f"word{place}" for place in range(200)]
        for place in range(0, 200, 16):
            words[(place + 5 * number) % 200] = f"own{number}x{place}"
        texts.append(" ".join(words))
    table, met, incomplete = BandTable(choose_bands(0.8, 1_000_000)), Counter(), 0
    for sketch in fpdb.recipe("web").batch(texts, sketches=True).sketches:
        numbers = set(table.numbers(sketch.tobytes(), b""))
        incomplete += any(met[number] > most for number in numbers)
        met.update(numbers)
    files = [
        jsonl(f"{number}.jsonl", [{"text": text}]) for number, text in enumerate([*texts, texts[3]])
    ]
    counts = fpdb.dedupe(files, tmp_path / "out.jsonl")
    assert (counts.kept, counts.removed, counts.incomplete) == (40, 1, incomplete)
    assert bool(incomplete) == (most == 1)


def test_an_answer_of_the_database_that_is_cut_is_counted(tmp_path, jsonl, monkeypatch):
    with fpdb.create(tmp_path / "db") as database:
        list(database.add_many(fpdb.Document(f"{number}", "too short") for number in range(4)))
    for most, incomplete in ((4, 0), (3, 1)):
        monkeypatch.setattr("fpdb.documents.lookup.DOCUMENTS", most)
        source = jsonl("in.jsonl", [{"id": most, "text": "too short"}])
        counts = fpdb.dedupe(source, tmp_path / f"{most}.jsonl", database=tmp_path / "db")
        assert (counts.removed, counts.incomplete) == (1, incomplete)
