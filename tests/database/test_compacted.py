"""Compacted databases: their tables are made anew of the records and the first table."""

from pathlib import Path
from typing import Any

import pytest

import fpdb
from fpdb.maintenance.check import check
from fpdb.tables import levels


@pytest.mark.process
@pytest.mark.parametrize("options", [{"keys": "integer", "similarity": None}, {"groups": True}])
def test_a_compacted_database_has_the_recent_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(levels, "_LEAST", 1)
    monkeypatch.setattr(levels, "_MANY", 1000)

    def recent(db: fpdb.Database) -> int:
        with db._environment.read() as txn:
            return sum(txn.entries(pages.recent.name) for pages in db._index.pages)

    with fpdb.create(tmp_path / "db", passages=True, **options) as db:
        for start in range(0, 600, 200):
            keys = range(start, start + 200)
            texts = (" ".join(f"w{key * word}" for word in range(20)) for key in keys)
            made: list[Any] = [key if db.key_type == "integer" else str(key) for key in keys]
            list(db.add_many(map(fpdb.Document, made, texts)))
        db.delete_many(made[::2])
        assert recent(db)
        db.compact(tmp_path / "new")
        with fpdb.open(tmp_path / "new") as copy:
            assert not recent(copy)
            assert len(copy) == len(db) == 500
            assert list(check(copy.path, deep=True)) == []


@pytest.mark.process
def test_a_damaged_table_is_made_anew(tmp_path: Path) -> None:
    with fpdb.create(tmp_path / "db") as db:
        db.add("a", "the text of a document that is stored")
        for name in (db._index.further[0].name, "bands"):
            with db._environment.write(10) as txn:
                with txn.cursor(name) as cursor:
                    cursor.first()
                    key, value = bytes(cursor.key()), bytearray(cursor.value())
                value[-1] ^= 1
                txn.put(name, key, bytes(value))
        assert len(list(db.check())) == 2
        db.compact(tmp_path / "new")
        assert list(check(tmp_path / "new", deep=True)) == []
