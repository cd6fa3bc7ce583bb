"""Sorted columns become the database that an ingest makes, or none at all."""

import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fpdb
from fpdb import Database, Document, Recipe
from fpdb.errors import (
    DatabaseExistsError,
    InputError,
    PlanError,
    RecipeError,
    RecipeMismatchError,
    TooNewError,
)

pa = pytest.importorskip("pyarrow", reason="pyarrow isn't installed")
pq = pytest.importorskip("pyarrow.parquet")

import sorted_files  # noqa: E402 - it needs pyarrow
from sorted_files import content_of, write_columns, write_sorted_columns  # noqa: E402

HEAD = "https://long.example/" + "ä" * 229  # 479 bytes
WORDS = [f"word{number}" for number in range(30)]

text_keys = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5),
    # Near the length from which on keys are kept by a digest, and with a common beginning.
    st.builds(
        lambda head, length, tail: head + "b" * length + tail,
        st.sampled_from([HEAD, HEAD[:-1]]),
        st.integers(0, 40),
        st.sampled_from(["", "a", "z", "ü", "\U0001f600"]),
    ),
)
integer_keys = st.one_of(st.integers(0, 9), st.integers(0, 2**64 - 1))


def documents_of(keys: list[Any], recipe: Recipe, dice: random.Random) -> list[Document]:
    documents = []
    for key in keys:
        meta = dice.choice([None, None, {"lang": "en", "n": [1, None]}, "x", 0, False])
        text = " ".join(dice.choices(WORDS, k=dice.choice([0, 1, 20, 20, 20])))
        number = dice.getrandbits(recipe.bits)
        documents.append(
            dice.choice(
                [
                    Document(key, text, meta),
                    Document(key, fingerprint=number, meta=meta),
                    Document(key, fingerprint=number, sketch=dice.randbytes(128)),
                    Document(key, fingerprint=dice.choice([1, 2, 2**recipe.bits - 1])),
                ]
            )
        )
    return documents


def made(path: Path, keys: str, documents: list[Document], **options: Any) -> Database:
    """A database of documents that are added in the order of their keys."""
    database = fpdb.create(path, keys=keys, **options)
    if keys == "text":
        documents = sorted(documents, key=lambda document: str(document.key).encode())
    list(database.add_many(documents))
    return database


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
@pytest.mark.parametrize("keys", ["text", "integer"])
@pytest.mark.parametrize("bits", [32, 64, 128])
def test_what_is_loaded_equals_what_is_ingested(
    tmp_path_factory: pytest.TempPathFactory, bits: int, keys: str, data: st.DataObject
) -> None:
    own = data.draw(st.lists(text_keys if keys == "text" else integer_keys, unique=True))
    dice = random.Random(data.draw(st.integers(0, 2**32)))
    recipe = fpdb.recipe("web").with_bits(bits)
    sketch = dice.choice([None, "minhash"])
    place = tmp_path_factory.mktemp("sorted")
    documents = documents_of(own, recipe, dice)
    with made(place / "old", keys, documents, recipe=recipe, sketch=sketch, capacity=9) as db:
        write_sorted_columns(place / "columns", db, dice)
        assert fpdb.load_sorted(place / "columns", place / "new") == len(db)
        with fpdb.open(place / "new") as new:
            assert content_of(new) == content_of(db)
            assert list(new.scan()) == list(db.scan())
            assert set(new.pairs()) == set(db.pairs())
            for document in documents[:5]:
                number = document.fingerprint
                if number is not None:
                    assert sorted(new.query_fingerprint(number)) == sorted(
                        db.query_fingerprint(number)
                    )
            assert list(new.check()) == []
            assert next(new.add_many([Document(2**63 if keys == "integer" else "é", "x")]))
            assert list(new.check()) == []


@pytest.fixture
def old(tmp_path: Path) -> Database:
    dice = random.Random(5)
    keys = [f"https://a.example/{number}" for number in range(60)]
    return made(tmp_path / "old", "text", documents_of(keys, fpdb.recipe("web"), dice))


@pytest.fixture
def numbered(tmp_path: Path) -> Database:
    dice = random.Random(6)
    documents = documents_of([*range(0, 600, 10), 2**64 - 1], fpdb.recipe("web-128"), dice)
    return made(tmp_path / "old", "integer", documents, recipe="web-128", sketch="minhash")


def swapped(name: str, *columns: str) -> Callable[..., None]:
    """Change the places of two rows."""

    def change(found: Any, manifest: Any) -> None:
        for column in columns:
            rows = found[name][column]
            rows[10], rows[11] = rows[11], rows[10]

    return change


def put(name: str, column: str, value: Any, row: int = 10) -> Callable[..., None]:
    def change(found: Any, manifest: Any) -> None:
        rows = found[name][column]
        rows[row] = value(rows) if callable(value) else value

    return change


def left_out(name: str, row: int = 10) -> Callable[..., None]:
    def change(found: Any, manifest: Any) -> None:
        for rows in found[name].values():
            del rows[row]

    return change


def said(**fields: Any) -> Callable[..., None]:
    return lambda found, manifest: manifest.update(fields)


def renamed(name: str, column: str, to: str) -> Callable[..., None]:
    def change(found: Any, manifest: Any) -> None:
        found[name][to] = found[name].pop(column)

    return change


FILE = r"/part-00000.parquet, row 11: "
NEXT = r"/part-00000.parquet, row 12: "
DAMAGED: list[tuple[Callable[..., None], str]] = [
    (swapped("documents", "key"), "documents" + NEXT + "found a lower key"),
    (swapped("documents", "fingerprint"), "table-00 has other fingerprints and ids"),
    (put("documents", "key", lambda rows: rows[9]), "documents" + FILE + "found the same key"),
    (put("documents", "key", ""), "documents" + FILE + "found the key ''"),
    (put("documents", "key", None), "documents" + FILE + "the key is null"),
    (put("documents", "key", "https://a.example/18" + "x" * 70_000), "found a key of 70,020 bytes"),
    (put("documents", "fingerprint", 77), "table-00 has other fingerprints and ids"),
    (put("documents", "digest", b"short"), FILE + "found a digest of 5 bytes, expected 16"),
    (put("documents", "meta", "{"), FILE + "the metadata aren't JSON"),
    (put("documents", "meta", "NaN"), FILE + "metadata is nan"),
    (put("documents", "meta", '"' + "x" * 70_000 + '"'), FILE + "metadata takes 70,005 bytes"),
    (put("documents", "characters", -1), FILE + "found no number of characters"),
    (put("documents", "added", -1), FILE + "found no seconds since 1970"),
    (left_out("documents", 59), "documents has 59 documents, .* expected 60"),
    (said(documents=61), "documents has 60 documents, .* expected 61"),
    (said(short=60), "short, expected 60 and 60"),
    (swapped("table-00", "fingerprint", "id"), "table-00" + NEXT + "found a lower fingerprint"),
    (left_out("table-00"), r"table-00 has \d+ rows, expected \d+ fingerprints and ids"),
    (put("table-00", "id", 60), "table-00" + FILE + "found an id beyond the 60 documents"),
    (put("table-00", "id", -1), "table-00" + FILE + "found an id beyond the 60 documents"),
    (put("table-00", "id", lambda rows: rows[11]), "table-00 has other fingerprints and ids"),
    (put("table-00", "id", None), "table-00" + FILE + "the id is null"),
    (put("table-01", "fingerprint", lambda rows: rows[9]), "table-01" + FILE + "found the same"),
    (put("table-01", "fingerprint", lambda rows: rows[10] + 1), "table-01 has other distinct"),
    (left_out("table-02"), r"table-02 has \d+ rows, expected \d+ distinct fingerprints"),
    (renamed("table-03", "fingerprint", "value"), "found the columns value, expected fingerprint"),
    (
        renamed("documents", "characters", "length"),
        "columns key, .*length, expected key, and maybe",
    ),
    (renamed("documents", "digest", "sketch"), "columns key, .*sketch, expected key, and maybe"),
    (said(keys="integer"), "found the column key of the type string, expected whole numbers"),
    (said(keys="uuid"), "found keys='uuid'"),
    (said(sketch="simhash"), "found sketch='simhash'"),
    (said(capacity=True), "manifest.json: found True as capacity, expected int"),
    (said(recipe_id="0000"), "was written with the recipe 0000, found web"),
    (said(format=2), "has the format 2, this fpdb reads 1"),
    (said(format="1"), "names no format"),
    (said(format=0), "names no format"),
    (said(capacity=0), "found capacity=0, expected at least 1"),
    (said(plan=fpdb.plans(64, 5, 1000)[0].to_dict()), "columns holds documents, .*, expected"),
    (said(plan={}), "this is no plan"),
    (said(recipe={"name": "web"}), "recipe"),
]
WRONG = (InputError, PlanError, RecipeError, RecipeMismatchError, TooNewError)


@pytest.mark.parametrize(("change", "message"), DAMAGED, ids=map(str, range(len(DAMAGED))))
def test_what_is_amiss_is_an_error_and_no_database(
    tmp_path: Path, old: Database, change: Callable[..., None], message: str
) -> None:
    write_sorted_columns(tmp_path / "columns", old, change=change)
    with pytest.raises(WRONG, match=message) as caught:
        fpdb.load_sorted(tmp_path / "columns", tmp_path / "new")
    assert caught.value.hint or "row" in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["columns", "old"]


WIDE: list[tuple[Callable[..., None], str]] = [
    (swapped("documents", "key"), "documents" + NEXT + "found a lower key"),
    (put("documents", "key", lambda rows: rows[9]), "documents" + FILE + "found the same key"),
    (put("documents", "high", None, 60), "row 61: the fingerprint is half null"),
    (put("documents", "sketch", b"1", 60), "row 61: found a sketch of 1 bytes, expected 128"),
    (swapped("table-00", "high", "low", "id"), "table-00" + NEXT + "found a lower fingerprint"),
    (put("table-00", "low", lambda rows: rows[10] ^ 1), "table-00 has other fingerprints and ids"),
    (put("table-00", "id", 5), "table-00 has other fingerprints and ids"),
    (put("table-01", "low", lambda rows: rows[10] ^ 1), "table-01 has other distinct fingerprints"),
    (renamed("table-01", "low", "fingerprint"), "found the columns high, fingerprint, expected"),
]


@pytest.mark.parametrize(("change", "message"), WIDE, ids=map(str, range(len(WIDE))))
def test_so_it_is_with_wide_fingerprints_and_integer_keys(
    tmp_path: Path, numbered: Database, change: Callable[..., None], message: str
) -> None:
    list(numbered.add_many([Document(2**64 - 1, fingerprint=2**127)]))
    write_sorted_columns(tmp_path / "columns", numbered, change=change)
    with pytest.raises(InputError, match=message):
        fpdb.load_sorted(tmp_path / "columns", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_narrow_fingerprint_has_no_high_bits(tmp_path: Path) -> None:
    with made(tmp_path / "old", "integer", [Document(7, fingerprint=1)], recipe="bigram-32") as db:
        for name in ("documents", "table-00"):
            write_sorted_columns(
                tmp_path / name, db, change=put(name, "fingerprint", 1 << 32, row=0)
            )
            with pytest.raises(InputError, match="row 1: found a fingerprint of more than 32 bits"):
                fpdb.load_sorted(tmp_path / name, tmp_path / "new")


def test_files_that_are_missing_cut_or_strange_are_told(tmp_path: Path, old: Database) -> None:
    columns, new = tmp_path / "columns", tmp_path / "new"

    def refused(message: str, error: type[Exception] = InputError) -> None:
        with pytest.raises(error, match=message):
            fpdb.load_sorted(columns, new)
        assert not new.exists()

    refused("manifest.json can't be read: No such file")
    write_sorted_columns(columns, old, random.Random(1))
    manifest = columns / "manifest.json"
    for broken in ("", "{", "[1]", "[" * 100_000, "1" * 5000, " " * (1 << 26) + "{}"):
        content = manifest.read_text()
        manifest.write_text(broken)
        refused("isn't JSON|names no format")
        manifest.write_text(content)
    (columns / "table-09").mkdir()
    refused("columns holds documents, .*table-09, expected")
    (columns / "table-09").rmdir()
    (columns / "table-01" / "note.txt").touch()
    refused("found .*table-01/note.txt, expected files whose names end in .parquet")
    (columns / "table-01" / "note.txt").rename(columns / "table-01" / ".note.txt")
    last = max((columns / "table-01").glob("*.parquet"))
    whole = last.read_bytes()
    last.write_bytes(whole[:-20])
    refused(f"{last} can't be read as a whole Parquet file")
    last.write_bytes(whole[:40] + b"\0" * 40 + whole[80:])
    refused("table-01")
    last.unlink()
    refused("table-01 has")
    last.mkdir()
    refused("table-01")
    last.rmdir()
    last.write_bytes(whole)
    assert fpdb.load_sorted(columns, new) == 60
    assert list(fpdb.check(new, deep=True)) == []
    with pytest.raises(DatabaseExistsError):
        fpdb.load_sorted(columns, new)


def test_a_recipe_is_compared_and_its_secret_must_be_given(tmp_path: Path) -> None:
    hash_part = fpdb.Hash(by="xxh3", secret=fpdb.Secret(b"a secret of 16 bytes or more"))
    keyed = fpdb.recipe("web").replace(hash=hash_part)
    with made(tmp_path / "old", "text", [Document("a", fingerprint=1)], recipe=keyed) as db:
        write_sorted_columns(tmp_path / "columns", db)
    with pytest.raises(RecipeError, match="no secret was given"):
        fpdb.load_sorted(tmp_path / "columns", tmp_path / "new")
    with pytest.raises(RecipeMismatchError, match="was written with the recipe"):
        fpdb.load_sorted(tmp_path / "columns", tmp_path / "new", recipe="web")
    assert fpdb.load_sorted(tmp_path / "columns", tmp_path / "new", recipe=keyed) == 1


def test_only_keys_are_needed_and_numbers_may_have_no_sign(tmp_path: Path) -> None:
    with made(tmp_path / "old", "integer", [Document(2**63, fingerprint=2**63 + 5)]) as db:
        write_sorted_columns(tmp_path / "columns", db)
    key = pa.array([2**63], pa.uint64())
    number = pa.array([2**63 + 5], pa.uint64()).dictionary_encode()
    table = pa.table({"key": key, "fingerprint": number})
    pq.write_table(table, tmp_path / "columns" / "documents" / "part-00000.parquet")
    before = int(fpdb.load_sorted(tmp_path / "columns", tmp_path / "new"))
    with fpdb.open(tmp_path / "new") as new:
        assert [document.key for document in new.scan()] == [2**63]
        assert next(new.scan()).added is not None
        assert len(new) == before == 1


def bare(directory: Path, count: int) -> None:
    """Write bare fingerprints as columns, in one file and one row group each."""
    dice = np.random.default_rng(1)
    array = np.unique(dice.integers(0, 2**64, count, np.uint64))
    plan = fpdb.plans(64, 3, count)[0]
    recipe = fpdb.recipe("web")

    def write(name: str, **columns: Any) -> None:
        plain = {name: column.view(np.int64).tolist() for name, column in columns.items()}
        write_columns(directory / name, plain)

    keys = np.arange(len(array), dtype=np.uint64)
    write("documents", key=keys, fingerprint=array)
    write("table-00", fingerprint=array, id=keys)
    for at, table in enumerate(plan.tables[1:], 1):
        write(f"table-{at:02d}", fingerprint=np.sort(table.permutation.apply(array)))
    manifest = {"recipe": recipe.to_dict(), "recipe_id": recipe.id, "plan": plan.to_dict()}
    manifest |= {"format": 1, "keys": "integer", "sketch": None, "capacity": count}
    manifest |= {"documents": len(array), "short": 0}
    (directory / "manifest.json").write_text(json.dumps(manifest))


def test_memory_does_not_grow_with_the_columns(tmp_path: Path) -> None:
    peaks = []
    for count in (300_000, 900_000):
        columns = tmp_path / f"columns-{count}"
        bare(columns, count)
        arrow = pa.total_allocated_bytes()
        tracemalloc.start()
        fpdb.load_sorted(columns, tmp_path / f"new-{count}")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert pa.total_allocated_bytes() - arrow < 1 << 22  # nothing is kept
    assert peaks[1] < peaks[0] * 1.2 < 16 << 20


def test_the_helper_writes_what_it_says(old: Database) -> None:
    """Otherwise the tests above would compare a database with itself."""
    columns = sorted_files.columns_of(old)
    assert len(columns["documents"]["key"]) == 60
    assert len(columns["table-00"]["id"]) == 60 - old.stats().short > 0
    assert old.stats().short > 0
