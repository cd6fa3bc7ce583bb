"""Columns and tables of pandas, polars and pyarrow stand wherever lists and arrays do."""

import numpy as np
import pyarrow as pa
import pytest
from tiers import of_gate

import fpdb
from fpdb.errors import InputError

pd, pl = of_gate("pandas", "polars")

TEXTS = [" ".join(f"word{place}of{n}" for place in range(15)) for n in range(2500)]
WEB = fpdb.recipe("web")
COLUMNS = {
    "pandas": pd.Series,
    "pandas object": lambda values: pd.Series(values, dtype=object),
    "pandas index": pd.Index,
    "polars": pl.Series,
    "arrow array": pa.array,
    "arrow chunks": lambda values: pa.chunked_array([values[:700], values[700:]]),
    "arrow dictionary": lambda values: pa.array(values).dictionary_encode(),
    "list": list,
}
NUMBERS = COLUMNS | {
    "pandas": lambda values: pd.Series(values, dtype="uint64"),
    "pandas index": lambda values: pd.Index(values, dtype="uint64"),
    "pandas nullable": lambda values: pd.Series(values, dtype="UInt64"),
    "polars": lambda values: pl.Series(values, dtype=pl.UInt64),
    "arrow array": lambda values: pa.array(values, pa.uint64()),
    "arrow chunks": lambda values: pa.chunked_array(
        [pa.array(values[:700], pa.uint64()), pa.array(values[700:], pa.uint64())]
    ),
    "arrow dictionary": lambda values: pa.array(values, pa.uint64()).dictionary_encode(),
    "numpy": lambda values: np.array(values, np.uint64),
}
TABLES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}
WITH_NULLS = ["pandas", "pandas object", "polars", "arrow array", "arrow chunks"]
each_column = pytest.mark.parametrize("make", COLUMNS.values(), ids=COLUMNS)
each_number = pytest.mark.parametrize("make", NUMBERS.values(), ids=NUMBERS)
each_table = pytest.mark.parametrize("make", TABLES.values(), ids=TABLES)


@pytest.fixture(scope="module")
def expected():
    return WEB.fingerprint_many(TEXTS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.fpdb"


@each_column
def test_texts(make, path, expected):
    column = make(TEXTS)
    assert np.array_equal(WEB.fingerprint_many(column), expected)
    assert np.array_equal(WEB.batch(column).fingerprints, expected)
    with fpdb.create(path) as db:
        db.add_fingerprints([str(n) for n in range(len(TEXTS))], expected)
        found = [matches[0].key for matches in db.query_many(make(TEXTS[:1200]), k=0)]
    assert found == [str(n) for n in range(1200)]


@each_number
def test_fingerprints(make, path, expected):
    numbers = make(expected.tolist())
    with fpdb.create(path) as db:
        assert db.add_fingerprints([str(n) for n in range(len(TEXTS))], numbers) == len(TEXTS)
        assert len(db.query_fingerprints(numbers).ids) >= len(TEXTS)
        assert db.keys_of(make(list(range(5)))) == [str(n) for n in range(5)]


@each_column
def test_text_keys(make, path, expected):
    names = [f"https://a.example/{n}" for n in range(len(TEXTS))]
    with fpdb.create(path) as db:
        assert db.add_fingerprints(make(names), expected) == len(TEXTS)
        assert sorted(db) == sorted(names)
        assert db.delete_many(make(names[:1500])) == 1500


@each_number
def test_integer_keys(make, path, expected):
    numbers = [2**64 - 1 - n for n in range(len(TEXTS))]
    with fpdb.create(path, keys="integer") as db:
        assert db.add_fingerprints(make(numbers), expected) == len(TEXTS)
        assert list(db) == sorted(numbers)
        assert db.delete_many(make(numbers[:1500])) == 1500


@pytest.mark.parametrize("name", WITH_NULLS)
def test_nulls_are_refused(name, path):
    texts = COLUMNS[name]([*TEXTS[:1000], None, None])
    with pytest.raises(InputError, match="expected a text"):
        WEB.batch(texts)
    keys = COLUMNS[name](["a", None, *"cdefghij"])
    with fpdb.create(path) as db, pytest.raises(InputError, match="found the key"):
        db.add_fingerprints(keys, list(range(10)))


@pytest.mark.parametrize(
    "numbers",
    [
        pd.Series([1, None]),
        pd.Series([1, None], dtype="UInt64"),
        pl.Series([1.5, 2.5]),
        pl.Series([1, None]),
        pa.array([1, None]),
    ],
)
def test_numbers_that_lost_their_bits_are_refused(path, numbers):
    with fpdb.create(path) as db, pytest.raises(InputError, match="fractions"):
        db.add_fingerprints(["a", "b"], numbers)


def test_a_series_is_taken_by_its_places(expected):
    column = pd.Series(TEXTS, dtype=object, index=np.linspace(0, 1, len(TEXTS)))
    assert np.array_equal(WEB.fingerprint_many(column), expected)


@pytest.mark.parametrize("make", [pd.Series, pl.Series, pa.array], ids=["pd", "pl", "pa"])
def test_negative_numbers_are_refused(make, path):
    with fpdb.create(path) as db, pytest.raises(InputError, match="negative") as raised:
        db.add_fingerprints(["a", "b"], make([1, -2]))
    assert "view(numpy.uint64)" in raised.value.hint


@each_table
def test_a_table_is_no_column(make):
    with pytest.raises(InputError, match="found a table") as raised:
        WEB.batch(make({"text": TEXTS[:3]}))
    assert "documents_of" in raised.value.hint


@each_table
def test_documents_of_a_table(make, path):
    table = make({"url": ["a", "b"], "title": ["one", "two"], "content": TEXTS[:2], "n": [1, 2]})
    assert list(fpdb.documents_of(table)) == [
        fpdb.Document("a", TEXTS[0]),
        fpdb.Document("b", TEXTS[1]),
    ]
    joined = list(fpdb.documents_of(table, text=["title", "content"], meta="n"))
    assert joined[0] == fpdb.Document("a", f"one\n{TEXTS[0]}", {"n": 1})
    assert next(fpdb.documents_of(table, key="title", text="content", meta="*")).meta == {
        "n": 1,
        "url": "a",
    }
    with fpdb.create(path) as db:
        found = db.add_many(fpdb.documents_of(table), skip_duplicates=True)
        assert [each.status for each in found] == ["added", "added"]


def test_documents_of_ready_fingerprints():
    table = pa.table({"id": [1, 2], "fp": pa.array([2**64 - 1, 0], pa.uint64())})
    assert [each.fingerprint for each in fpdb.documents_of(table, fingerprint="fp")] == [
        2**64 - 1,
        0,
    ]


def test_documents_of_streams_and_batches():
    batch = pa.record_batch({"key": ["a", "b"], "text": ["x", "y"]})
    reader = pa.RecordBatchReader.from_batches(batch.schema, iter([batch, batch]))
    assert [each.key for each in fpdb.documents_of(batch)] == ["a", "b"]
    assert [each.key for each in fpdb.documents_of(reader)] == ["a", "b", "a", "b"]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"link": ["a"], "text": ["x"]}, "found no key"),
        ({"key": ["a", None], "text": ["x", "y"]}, "row 2: found no key"),
        ({"key": ["a", "b"], "text": ["x", None]}, "row 2: found no text"),
        ({"key": ["a"], "text": [7]}, "holds a number, expected a text"),
    ],
)
def test_a_row_that_is_no_document_is_an_error(table, said):
    with pytest.raises(InputError, match=said):
        list(fpdb.documents_of(pa.table(table)))


def test_what_is_no_table_is_refused():
    with pytest.raises(InputError, match="expected a table"):
        list(fpdb.documents_of([{"key": "a"}]))
