"""What a source loses: named if it is most of it, and refused if it is more than was allowed."""

import json
import random

import pytest

import fpdb

OPTIONS = ("file", "folder", "removed", "database")


def form(number, blank):
    """A filled-in form: hundred words of its blank, and a name."""
    words = random.Random(blank).choices([f"word{place}" for place in range(3000)], k=100)
    return " ".join([*words, f"name{number}"])


@pytest.fixture
def files(tmp_path):
    """200 forms of two blanks, 30 pages of which none resembles another, and 19 equal ones."""
    forms = [{"site": "ab"[n % 2], "n": -n, "text": form(n, n == 100)} for n in range(200)]
    pages = [{"site": None if n < 9 else 5, "text": form(n, f"page {n}")} for n in range(30)]
    small = [{"text": form(0, "small")}] * 19
    paths = []
    for name, records in {"forms": forms, "pages": pages, "small": small}.items():
        paths.append(tmp_path / f"{name}.jsonl")
        paths[-1].write_text("".join(json.dumps(record) + "\n" for record in records))
    return paths


def records_of(paths):
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def test_a_file_of_which_most_goes_is_named(files, tmp_path):
    counts = fpdb.dedupe(files, tmp_path / "out.jsonl")
    assert counts.losses == [(str(files[0]), 200, 198)]
    [loss] = counts.losses
    assert str(loss) == f"{files[0]}: 198 of 200 records go (99 %)"
    # Half is not more than half; with 20 records, a source counts.
    few = tmp_path / "few.jsonl"
    for copies, losses in [(10, []), (11, [(str(few), 20, 11)])]:
        lines = [json.dumps({"text": form(0, max(0, n - copies))}) + "\n" for n in range(20)]
        few.write_text("".join(lines))
        assert fpdb.dedupe(few, tmp_path / "out.jsonl").losses == losses


def test_a_field_names_the_sources(files, tmp_path):
    counts = fpdb.dedupe(files[:2], tmp_path / "out.jsonl", source_field="site")
    assert counts.losses == [("b", 100, 100), ("a", 100, 98)]
    files[1].write_text('{"text": "a record without a site"}\n{"text": "kites", "site": "a"}\n')
    counts = fpdb.dedupe([*files[1:]] * 2, tmp_path / "out.jsonl", source_field="site")
    assert counts.losses == [("no site", 40, 38)]
    table = tmp_path / "in.csv"
    table.write_text("text,site\n" + f"{form(0, 0)},\n" * 20 + "kites,a\n")
    assert fpdb.dedupe(table, tmp_path / "out.csv", source_field="site").losses == [
        ("no site", 20, 19)
    ]
    records = records_of(files[:1])
    seen = []
    list(fpdb.dedupe(records, on_progress=seen.append))
    assert seen[-1].losses == [("the records", 200, 198)]
    list(fpdb.dedupe(records, on_progress=seen.append, source_field="site", keep="newest:n"))
    assert seen[-1].losses == [("b", 100, 100), ("a", 100, 98)]


def test_what_is_dropped_goes_too(files, tmp_path):
    files[0].write_text('{"words": 1}\n' * 30 + json.dumps({"text": form(1, 1)}))
    assert fpdb.dedupe(files[0], tmp_path / "out.jsonl").losses == []
    counts = fpdb.dedupe(files[0], tmp_path / "out.jsonl", bad="drop")
    assert counts.losses == [(str(files[0]), 31, 30)]


@pytest.mark.parametrize("option", OPTIONS)
def test_too_much_writes_nothing(files, tmp_path, option):
    outputs = {
        "file": {"output": tmp_path / "out.jsonl.gz"},
        "folder": {"output_dir": tmp_path / "out"},
        "removed": {"output": tmp_path / "out.jsonl", "removed": tmp_path / "removed.jsonl"},
        "database": {"output": tmp_path / "out.jsonl", "database": tmp_path / "corpus.fpdb"},
    }[option]
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    with pytest.raises(fpdb.LossError) as caught:
        fpdb.dedupe(files, most=0.98, **outputs)
    assert str(caught.value).startswith("expected that at most 0.98 of a source goes: ")
    assert str(caught.value).endswith(f"{files[0]}: 198 of 200 records go (99 %)")
    assert str(files[1]) not in str(caught.value)
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == before
    assert not (tmp_path / "corpus.fpdb").exists()
    # Exactly the share is allowed, by a source of any size.
    fpdb.dedupe(files, most=0.99, **outputs)
    with pytest.raises(fpdb.LossError, match="18 of 19"):
        fpdb.dedupe(files[2], tmp_path / "few.jsonl", most=0.94)


def test_a_database_with_documents_stays_as_it_is(files, tmp_path):
    database = tmp_path / "corpus.fpdb"
    fpdb.dedupe(files[1], tmp_path / "first.jsonl", database=database)
    for _ in range(2):  # no run is left that has to be finished
        with pytest.raises(fpdb.LossError):
            fpdb.dedupe(files[0], tmp_path / "out.jsonl", database=database, most=0.5)
    with fpdb.open(database) as db:
        assert len(db) == 30
    fpdb.dedupe(files[0], tmp_path / "out.jsonl", database=database)


def test_most_is_a_share_and_not_for_records_one_by_one(files, tmp_path):
    with pytest.raises(fpdb.InputError, match=r"found most 50, expected a share from 0 to 1"):
        fpdb.dedupe(files, tmp_path / "out.jsonl", most=50)
    with pytest.raises(fpdb.InputError, match="yielded before all are read") as caught:
        list(fpdb.dedupe(records_of(files), most=0.5))
    assert caught.value.hint == "give files or a table"
