"""What pairs, clusters, query and export write: the same answers in every format."""

import csv
import datetime
import gzip
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fpdb

TEXT = "Red kites nest above the quarry again: wardens counted eleven pairs in April, {} more."


@pytest.fixture(params=["text", "integer", "bits"])
def path(tmp_path, request):
    """Documents that are similar, or in a database of bits near each other."""
    where = tmp_path / "crawl.fpdb"
    kind = "integer" if request.param == "integer" else "text"
    similarity = None if request.param == "bits" else 0.8
    with fpdb.create(where, keys=kind, similarity=similarity) as database:
        names = [1, 2, 3, 4] if kind == "integer" else ["a", "b", "c", "d"]
        for name, word in zip(names, ["four", "four", "five", "four"], strict=True):
            database.add(name, TEXT.format(word), {"n": word})
        database.add(5 if kind == "integer" else "brief", "too short")
    return where


def read_csv(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


COMMANDS = {
    "pairs": ["pairs"],
    "clusters": ["clusters"],
    "query": ["query", "--text", TEXT.format("four"), "--text", "other"],
    "export": ["export"],
}
each_command = pytest.mark.parametrize("name", COMMANDS)


def call(run, path, name, *options):
    command, *rest = COMMANDS[name]
    done = run(command, path, *rest, *options)
    assert done.code == 0, done.err
    return done


@each_command
def test_csv_and_parquet_hold_the_same_rows(run, path, tmp_path, name):
    for suffix in ("csv", "parquet"):
        done = call(run, path, name, "-o", tmp_path / f"out.{suffix}")
        assert done.out == ""
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    cells = read_csv(tmp_path / "out.csv")
    assert rows
    assert [list(row) for row in rows] == [list(row) for row in cells]
    for row, line in zip(rows, cells, strict=True):
        for column, value in row.items():
            if column in ("fingerprint", "added") or (column == "meta" and value is None):
                continue  # written in another way
            assert line[column] == ("" if value is None else str(value))


@each_command
def test_json_lines_and_tsv_are_printed_as_in_a_file(run, path, tmp_path, name):
    call(run, path, name, "-o", tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text() == call(run, path, name, "--json").out
    if name != "export":
        call(run, path, name, "-o", tmp_path / "out.tsv")
        assert (tmp_path / "out.tsv").read_text() == call(run, path, name).out


def test_a_file_is_packed_as_its_suffix_says_and_has_the_mode_of_the_umask(run, path, tmp_path):
    mask = os.umask(0o027)
    try:
        assert run("pairs", path, "-o", tmp_path / "out.csv.gz").code == 0
    finally:
        os.umask(mask)
    assert (tmp_path / "out.csv.gz").stat().st_mode & 0o777 == 0o640
    with gzip.open(tmp_path / "out.csv.gz", "rt") as file:
        assert file.readline() == "key,other,distance,similarity,exact\n"


def test_types_are_those_of_the_values(run, path, tmp_path):
    file = tmp_path / "out.parquet"
    with fpdb.open(path) as database:
        key = pa.uint64() if database.key_type == "integer" else pa.string()
        documents = list(database.scan())
        similar = database.similarity is not None
    call(run, path, "pairs", "-o", file)
    assert pq.read_schema(file).types == [key, key, pa.int32(), pa.float64(), pa.bool_()]
    for name in ("similarity", "exact"):
        column = pq.read_table(file).column(name)
        assert column.null_count == (0 if similar else len(column))
    call(run, path, "query", "-o", file)
    assert pq.read_schema(file).field("key").type == key
    assert pq.read_schema(file).field("complete").type == pa.bool_()
    call(run, path, "export", "-o", file)
    rows = pq.read_table(file).to_pylist()
    assert [(row["key"], row["fingerprint"]) for row in rows] == [
        (each.key, each.fingerprint) for each in documents
    ]
    assert rows[0]["added"] == datetime.datetime.fromtimestamp(documents[0].added, datetime.UTC)
    assert [json.loads(row["meta"]) if row["meta"] else None for row in rows] == [
        each.meta for each in documents
    ]


@each_command
def test_an_empty_database_gives_an_empty_table(run, tmp_path, name):
    path, file = tmp_path / "empty.fpdb", tmp_path / "out.parquet"
    with fpdb.create(path):
        pass
    call(run, path, name, "-o", file)
    assert pq.read_table(file).num_rows == 0


def test_a_spreadsheet_gets_a_mark_and_short_numbers(run, tmp_path):
    cases = ((("键", "值"), b"\xef\xbb\xbf", "0.9512"), (("a", "b"), b"", "0.907"))
    for texts, mark, similarity in cases:
        path, out = tmp_path / f"{texts[0]}.jsonl", tmp_path / "out.csv"
        words = " ".join(map(str, range(41)))
        path.write_text(
            "".join(f'{{"id": "{key}", "text": "{words} {key} end"}}\n' for key in texts)
        )
        assert run("copies", path, "-o", out, "--similarity", 0.5).code == 0
        data = out.read_bytes()
        assert data.startswith(mark + b"key,other,similarity")
        [row] = csv.DictReader(data.decode("utf-8-sig").splitlines())
        assert (row["key"], row["similarity"]) == (texts[0], similarity)
