"""Tables and records in memory: what stays has the same kind, the same types and the same order."""

import datetime
import json

import numpy as np
import pyarrow as pa
import pytest
from tiers import of_gate

import fpdb

pd, pl = of_gate("pandas", "polars")
COUNT = 1200  # more than are read at once


class Dataset:
    """The methods of a Dataset of Hugging Face that fpdb calls, with rows chosen by indices."""

    def __init__(self, table, indices=None, form=None):
        self.table, self.form = table, form
        self.indices = list(range(table.num_rows)) if indices is None else indices

    @property
    def column_names(self):
        return self.table.column_names

    def with_format(self, form):
        return Dataset(self.table, self.indices, form)

    def iter(self, batch_size):
        assert self.form == "arrow"
        for start in range(0, len(self.indices), batch_size):
            yield self.table.take(self.indices[start : start + batch_size])

    def __len__(self):
        return len(self.indices)

    def select(self, indices):
        return Dataset(self.table, [self.indices[place] for place in indices], self.form)

    def add_column(self, name, column):
        return Dataset(self.table.take(self.indices).append_column(name, column))


class ArrowOnly:
    """A table of a library that has nothing but the Arrow interface."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def rows_of(table):
    if isinstance(table, Dataset):
        return table.table.take(table.indices).to_pylist()
    if isinstance(table, pd.DataFrame):
        return pa.Table.from_pandas(table, preserve_index=False).to_pylist()
    return pa.table(table).to_pylist()


KINDS = {
    "pandas": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": pl.from_arrow,
    "pyarrow": lambda table: table,
    "batch": lambda table: table.combine_chunks().to_batches()[0],
    "dataset": Dataset,
    "arrow": ArrowOnly,
    "reader": pa.Table.to_reader,
}


@pytest.fixture
def table(corpus):
    records = corpus(COUNT, edited=0.4)
    day = datetime.datetime(2026, 11, 23, tzinfo=datetime.UTC)
    for record in records:
        record["when"] = day - datetime.timedelta(hours=record["n"])
        record["vector"] = [float(record["n"]), 0.5]
    return pa.Table.from_pylist(records)


@pytest.fixture
def expected(table, tmp_path):
    """What a run over a file of the same records keeps."""
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(row, default=str) + "\n" for row in table.to_pylist()))
    fpdb.dedupe(path, tmp_path / "out.jsonl")
    return [json.loads(line)["n"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]


@pytest.mark.slow("seven kinds of tables of 1,200 rows")
def test_a_table_becomes_one_of_its_kind(table, expected):
    for name, kind in KINDS.items():
        becomes_one_of_its_kind(name, kind(table), table, expected)


@pytest.mark.full
def test_a_relation_of_duckdb_becomes_one_of_its_kind(table, expected):
    import duckdb

    becomes_one_of_its_kind("duckdb", duckdb.from_arrow(table), table, expected)


def becomes_one_of_its_kind(name, given, table, expected):
    removed = []
    found = fpdb.dedupe(given, on_removed=removed.append)
    assert type(found) is (pa.Table if name in ("arrow", "reader") else type(given))
    assert rows_of(found) == table.take(expected).to_pylist()
    assert len(removed) == COUNT - len(expected)
    assert removed[0].source == f"row {int(removed[0].key.removeprefix('doc-')) + 1}"


FIELDS = ["kept_key", "similarity", "own_share"]


@pytest.mark.slow("seven kinds of tables of 1,200 rows")
def test_an_annotated_table_has_three_more_columns(table):
    for name, kind in KINDS.items():
        is_annotated(name, kind(table), table)


@pytest.mark.full
def test_an_annotated_relation_of_duckdb_has_three_more_columns(table):
    import duckdb

    is_annotated("duckdb", duckdb.from_arrow(table), table)


def is_annotated(name, given, table):
    removed = []
    found = fpdb.dedupe(given, annotate=True, on_removed=removed.append)
    assert type(found) is (pa.Table if name in ("arrow", "reader") else type(given))
    rows = [
        {name: None if row[name] != row[name] else row[name] for name in row}
        for row in rows_of(found)
    ]
    assert [list(row) for row in rows] == [[*table.column_names, *FIELDS]] * len(rows)
    said = [[row.pop(name) for name in FIELDS] for row in rows]
    assert rows == table.to_pylist()
    expected = {row["id"]: [row["id"], None, None] for row in rows}
    for each in removed:
        shares = [round(share, 4) for share in (each.similarity, each.own_share)]
        expected[each.key] = [each.kept_key, *shares]
    assert said == list(expected.values())


def test_annotated_splits_have_their_rows(table):
    small = table.slice(0, 60)
    whole = rows_of(fpdb.dedupe(small, annotate=True, bad="drop"))
    splits = DatasetDict(train=Dataset(small.slice(0, 40)), test=Dataset(small.slice(40)))
    found = fpdb.dedupe(splits, annotate=True)
    assert [len(each) for each in found.values()] == [40, 20]
    assert [row for each in found.values() for row in rows_of(each)] == whole


def test_annotated_types_are_the_same_without_a_copy(table):
    small = table.slice(0, 1)
    kinds = [pa.string(), pa.float64(), pa.float64()]
    found = fpdb.dedupe(small, annotate=True)
    assert [found.schema.field(name).type for name in FIELDS] == kinds
    assert fpdb.dedupe(pl.from_arrow(small), annotate=True).schema.dtypes()[-3:] == [
        pl.String,
        pl.Float64,
        pl.Float64,
    ]
    frame = pd.DataFrame({"id": [7], "text": ["a b c"]}, index=[5])
    found = fpdb.dedupe(frame, annotate=True)
    assert found.index.tolist() == [5]
    assert found.dtypes[FIELDS].tolist() == ["int64", "float64", "float64"]
    assert found["kept_key"].tolist() == [7]
    # An empty table has no keys, so nothing says that these are numbers.
    empty = fpdb.dedupe(small.slice(0, 0), annotate=True)
    assert [empty.schema.field(name).type for name in FIELDS] == kinds
    assert frame.columns.tolist() == ["id", "text"]


class DatasetDict(dict):
    """As that of Hugging Face: datasets by the names of their splits."""


@pytest.mark.parametrize("keep", ["first", "longest"])
def test_splits_are_compared_with_each_other(table, keep):
    small, removed = table.slice(0, 60), []
    whole = rows_of(fpdb.dedupe(small, keep=keep))
    splits = DatasetDict(train=Dataset(small.slice(0, 40)), test=Dataset(small.slice(40)))
    found = fpdb.dedupe(splits, keep=keep, on_removed=removed.append)
    assert (type(found), list(found)) == (DatasetDict, ["train", "test"])
    rows = [rows_of(each) for each in found.values()]
    assert rows[0] + rows[1] == whole
    assert [row["n"] < 40 for row in rows[0]] == [True] * len(rows[0])
    assert {each.source.split()[0] for each in removed} == {"train", "test"}


def test_the_field_of_the_text_is_given_by_name():
    frame = pd.DataFrame({"story": ["one two three four five six"] * 2, "text": ["a", "b"]})
    assert len(fpdb.dedupe(frame, text_field="story")) == 1
    assert len(fpdb.dedupe(frame, text_field=["story", "text"])) == 2


def test_types_and_the_index_stay(table):
    small = table.slice(0, 60)
    assert fpdb.dedupe(small).schema.equals(small.schema, check_metadata=True)
    assert fpdb.dedupe(pl.from_arrow(small)).schema == pl.from_arrow(small).schema
    frame = small.to_pandas().set_index(pd.Index(range(1000, 1060), name="own"))
    found = fpdb.dedupe(frame)
    assert (found.dtypes == frame.dtypes).all()
    assert found.index.name == "own"
    assert (found.index == found["n"] + 1000).all()
    assert 10 < len(found) < 60


@pytest.mark.full
def test_a_relation_keeps_its_connection_and_its_types(corpus):
    import duckdb

    rows = pa.Table.from_pylist(corpus(60))
    connection = duckdb.connect()
    connection.register("rows", rows)
    kinds = "n::HUGEINT AS n, uuid() AS u, 'b'::ENUM('a', 'b') AS e, {'n': n} AS s, '1'::JSON AS j"
    relation = connection.sql(f'SELECT "text", id AS "key ""1""", {kinds} FROM rows')
    found = fpdb.dedupe(relation, reading=fpdb.Reading(key_field='key "1"'))
    assert found.columns == relation.columns
    assert found.types == relation.types
    kept = [row["n"] for row in fpdb.dedupe(rows.to_pylist())]
    both = found.set_alias("found").join(connection.table("rows").set_alias("all"), "n")
    assert sorted(both.project("n").fetchall()) == [(n,) for n in kept]
    assert fpdb.dedupe(relation.filter("n < 0")).fetchall() == []


@pytest.mark.parametrize("keep", ["first", "longest", "newest:when", "newest:n"])
def test_the_preferred_rows_stay(corpus, table, tmp_path, keep):
    small = table.slice(0, 200)
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(row, default=str) + "\n" for row in small.to_pylist()))
    fpdb.dedupe(path, tmp_path / "out.jsonl", keep=keep)
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    kept = [json.loads(line)["n"] for line in lines]
    assert fpdb.dedupe(small, keep=keep)["n"].to_pylist() == kept
    records = small.to_pylist()
    assert [each["n"] for each in fpdb.dedupe(records, keep=keep)] == kept


def test_rows_that_cant_be_compared_stay_or_are_dropped():
    text = "a text of some words that is long enough for a sketch of its own and more"
    frame = pd.DataFrame({"id": [1, 2, 3], "text": [text, None, text]})
    bad = []
    assert fpdb.dedupe(frame, on_bad=bad.append)["id"].tolist() == [1, 2]
    assert bad[0].source == "row 2"
    assert fpdb.dedupe(frame, bad="drop")["id"].tolist() == [1]
    with pytest.raises(fpdb.InputError, match="row 2: found no text"):
        fpdb.dedupe(frame, bad="fail")


def test_a_table_without_a_text_is_an_error():
    with pytest.raises(fpdb.InputError, match="found no text: expected the field") as caught:
        fpdb.dedupe(pd.DataFrame({"id": [1], "words": ["a b"]}))
    assert caught.value.hint
    reading = fpdb.Reading(text_field="words")
    assert len(fpdb.dedupe(pd.DataFrame({"words": ["a b"]}), reading=reading)) == 1
    assert fpdb.dedupe(pl.DataFrame({"text": pl.Series([], dtype=pl.String)})).is_empty()


def test_records_are_the_very_same_objects(corpus):
    records = corpus(120)
    kept = list(fpdb.dedupe(iter(records)))
    assert all(any(each is record for record in records) for each in kept)
    documents = [fpdb.Document(each["id"], each["text"]) for each in records]
    counts = []
    found = list(fpdb.dedupe(documents, on_progress=counts.append))
    assert [each.key for each in found] == [each["id"] for each in kept]
    assert counts[-1].kept == len(kept) < 120
    assert counts[-1].removed == 120 - len(kept)


def test_records_are_read_and_yielded_in_turn(corpus, monkeypatch):
    from fpdb.dedupe import decide

    monkeypatch.setattr(decide, "GATHERED", 100)
    read = []

    def source():
        for record in corpus(5000):
            read.append(record)
            yield record

    found = fpdb.dedupe(source(), jobs=1)
    assert read == []
    next(found)
    assert len(read) == 1000
    found.close()


def test_the_memory_of_a_decision_grows_with_the_records_before_it(corpus, monkeypatch):
    from fpdb.dedupe import decide

    records = corpus(3000, edited=0.6)
    whole = list(fpdb.dedupe(records, keep="longest"))
    monkeypatch.setattr(decide, "GATHERED", 100)
    sizes = []

    def choose(self, numbers, *arguments):
        sizes.append(len(numbers))
        return choose_all(self, numbers, *arguments)

    choose_all = decide.Selection.choose
    monkeypatch.setattr(decide.Selection, "choose", choose)
    assert list(fpdb.dedupe(records, keep="longest")) == whole
    assert all(size <= max(100, sum(sizes[:n]) // 8) for n, size in enumerate(sizes))
    assert sum(sizes) == 3000


def test_a_database_remembers_records(corpus, tmp_path):
    records = corpus(200, edited=0.6)
    whole = [each["n"] for each in fpdb.dedupe(records)]
    with fpdb.create(tmp_path / "corpus.fpdb") as db:
        first = list(fpdb.dedupe(records[:100], database=db))
        second = list(fpdb.dedupe(records[100:], database=db))
        assert [each["n"] for each in first + second] == whole
        assert len(db) == len(whole)
    assert list(fpdb.dedupe(records, database=tmp_path / "corpus.fpdb")) == []


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (5, "found 5, expected files, records or a table"),
        (["a", "b"], "found 'a', expected a record"),
        (pd.Series(["a", "b"]), "found Series, expected a table\nhint: pass the whole table"),
        (pl.Series(["a", "b"]), "found Series, expected a table"),
        (pa.array(["a", "b"]), "found StringArray, expected a table"),
        (pd.DataFrame({"story": ["a"]}), r"text_field names another"),
        (
            pd.DataFrame({"text": ["a", "b"], "n": [1, "b"]}),
            r"the table can't be read: .* column n .*\nhint: give each column a name of its own",
        ),
        (pd.DataFrame([["a", "b"]], columns=["text", "text"]), "can't be read: Duplicate column"),
        ([{"text": "a"}, 5], "found 5, expected a record"),
        ("in.jsonl", "no place for the output"),
    ],
)
def test_other_things_are_refused(source, message):
    with pytest.raises(fpdb.InputError, match=message) as caught:
        list(fpdb.dedupe(source))
    assert caught.value.hint


def test_a_table_or_records_have_no_output(corpus, tmp_path):
    records = corpus(3)
    for source in (pd.DataFrame(records), pa.Table.from_pylist(records)):
        with pytest.raises(fpdb.InputError, match=r"found \w+, and an output, which is for files"):
            fpdb.dedupe(source, tmp_path / "out.parquet")
        with pytest.raises(fpdb.InputError, match="write the table that is returned"):
            fpdb.dedupe(source, output_dir=tmp_path / "out")
    with pytest.raises(fpdb.InputError, match=r"found \{.*, expected a path"):
        fpdb.dedupe(iter(records), tmp_path / "out.jsonl")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("rule", [{"within": "no"}, {"source_field": "no"}, {"keep": "newest:no"}])
def test_a_column_that_a_table_lacks_is_named(rule):
    table = pa.table({"text": ["a"], "site": ["b"]})
    with pytest.raises(fpdb.InputError) as caught:
        fpdb.dedupe(table, **rule)
    message = "the table lacks a column: expected the field 'no', there are: 'site', 'text'"
    assert str(caught.value) == message


def test_a_file_for_what_is_removed_needs_files(corpus, tmp_path):
    with pytest.raises(fpdb.InputError, match="no output that is a file"):
        fpdb.dedupe(corpus(3), removed=tmp_path / "removed.jsonl")


def test_documents_are_taken_from_a_dataset(table):
    small = table.slice(0, 30).select(["id", "text", "n"])
    taken = list(fpdb.documents_of(Dataset(small).select(np.arange(0, 30, 2)), meta="*"))
    assert [each.key for each in taken] == [f"doc-{n}" for n in range(0, 30, 2)]
    assert [each.meta for each in taken] == [{"n": n} for n in range(0, 30, 2)]
