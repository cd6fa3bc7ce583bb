"""What a database finds is the same one by one and as a table of pyarrow, pandas or polars."""

import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import fpdb
from fpdb.documents.results import Results

BOAT = "Somebody repaired a wooden boat in winter, and it took as long as winters take there."
TEXTS = [
    BOAT,
    f"{BOAT} Then summer came.",
    "冬天修好了一条木船，夏天下水，大家都来看热闹。" * 2,
    BOAT,
]


@pytest.fixture(params=["text", "integer"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[fpdb.Database]:
    keys: Any = map(str, count()) if request.param == "text" else count(1 << 63)
    with fpdb.create(tmp_path / "db", similarity=0.5, keys=request.param) as db:
        list(db.add_many(map(fpdb.Document, keys, TEXTS)))
        yield db


ASKED: dict[str, Callable[[fpdb.Database], Results[Any]]] = {
    "pairs": lambda db: db.pairs(),
    "clusters": lambda db: db.clusters(),
    "query_many": lambda db: db.query_many([*TEXTS, "nothing like them is stored here", ""]),
}


def rows_of(name: str, found: list[Any]) -> list[tuple[Any, ...]]:
    if name == "pairs":
        return [tuple(pair) for pair in found]
    if name == "clusters":
        return [
            (place, "keep" if key == cluster.representative else "duplicate", key)
            for place, cluster in enumerate(found, 1)
            for key in cluster.keys
        ]
    return [
        (place, match.key, match.id, match.distance, match.similarity)
        for place, matches in enumerate(found)
        for match in matches
    ]


@pytest.mark.gate
@pytest.mark.parametrize("name", ASKED)
def test_a_table_has_what_is_found(database: fpdb.Database, name: str) -> None:
    ask = ASKED[name]
    rows = rows_of(name, list(ask(database)))
    assert len(rows) >= 3
    table = ask(database).to_arrow()
    assert [tuple(row.values()) for row in table.to_pylist()] == rows
    assert str(table.schema.field("key").type) == (
        "string" if database.key_type == "text" else "uint64"
    )
    assert list(ask(database).to_pandas().itertuples(index=False, name=None)) == rows
    assert ask(database).to_polars().rows() == rows


@pytest.mark.parametrize("name", ASKED)
def test_an_empty_table_has_the_same_columns(database: fpdb.Database, name: str) -> None:
    whole = ASKED[name](database).to_arrow()
    database.delete_many(list(database))
    empty = ASKED[name](database).to_arrow()
    assert (empty.num_rows, empty.schema) == (0, whole.schema)


@pytest.mark.gate
def test_a_table_has_what_was_not_iterated(database: fpdb.Database) -> None:
    pairs = database.pairs()
    first = next(pairs)
    rest = pairs.to_polars().rows()
    assert sorted([tuple(first), *rest]) == sorted(map(tuple, database.pairs()))


def test_pairs_of_bits_have_no_similarity(database: fpdb.Database) -> None:
    table = database.pairs(k=20).to_arrow()
    assert table.num_rows
    assert table["similarity"].null_count == table.num_rows


def test_closed_results_end_their_transaction(database: fpdb.Database) -> None:
    pairs = database.pairs()
    next(pairs)
    assert database.stats().snapshots.open == 1
    pairs.close()
    assert database.stats().snapshots.open == 0
    assert list(pairs) == []


@pytest.mark.parametrize("package", ["pyarrow", "polars"])
def test_a_missing_package_is_named(
    database: fpdb.Database, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(fpdb.MissingExtraError, match=package):
        database.pairs().to_polars()
