"""Each field of a document comes back, whichever way the document goes."""

import io
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdb
from fpdb import Database, Document
from fpdb.cli.output import document_dict
from fpdb.documents.prepare import OF_TEXT
from fpdb.integrations.server.messages import StoredDocument
from fpdb.models import CARRIED, FIELDS, KEEPER, SHOWN
from fpdb.storage.block import Block
from fpdb.storage.format import FURTHER, FURTHER_AT, OPTIONAL_AT, Stored

# A value of each field.
VALUES: dict[str, Any] = {
    "digest": b"d" * 16,
    "characters": 300,
    "meta": {"n": [1, None]},
    "sketch": bytes(range(128)),
    "passages": b"12345" * 40,
}
ALONE = [{name: value} for name, value in VALUES.items()]
KEYS: dict[str, Callable[[int], Any]] = {"text": "https://a.example/{}".format, "integer": int}
WORDS = "The library lends books for four weeks; whoever keeps them longer pays a small fee. "
PASSAGED = {"similarity": 0.8, "passages": True}

# Reading a database that was made by another process starts one that checks it.
pytestmark = pytest.mark.process


def documents(keys: str) -> list[Document]:
    """Documents with all fields, with one of them, and with none; a last one is short."""
    some = [VALUES, *ALONE, {}]
    made = [
        Document(KEYS[keys](n), fingerprint=n << 60 | n, added=5 + n, **values)
        for n, values in enumerate(some)
    ]
    return [*made, Document(KEYS[keys](99), added=9, short=True, digest=b"s" * 16)]


def seen(database: Database) -> dict[Any, Document]:
    assert list(database.check()) == []
    return {document.key: replace(document, id=None) for document in database.scan()}


def created(path: Path, keys: str) -> Database:
    return fpdb.create(path, keys=keys, **PASSAGED)


def replaced(database: Database, path: Path) -> None:
    with created(path, database.key_type) as other:
        list(other.add_many([Document(key, WORDS, "another") for key in database]))
        list(other.add_many(list(database.scan())))


def loaded(database: Database, path: Path) -> None:
    with created(path, database.key_type):
        fpdb.load(path, database.path)


def dumped(database: Database, path: Path) -> None:
    file = io.BytesIO()
    database.dump(file)
    fpdb.load(path, io.BytesIO(file.getvalue()))


WAYS: dict[str, Callable[[Database, Path], object]] = {
    "replaced": replaced,
    "compacted": lambda database, path: database.compact(path),
    "copied": lambda database, path: database.backup(path),
    "loaded together": lambda database, path: fpdb.load(path, [str(database.path)]),
    "loaded into another": loaded,
    "exported": dumped,
    "repaired": lambda database, path: fpdb.repair(database.path, path),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("keys", KEYS)
def test_every_field_comes_back(tmp_path: Path, keys: str, way: str) -> None:
    held = {document.key: document for document in documents(keys)}
    with created(tmp_path / "db", keys) as database:
        list(database.add_many(held.values()))
        assert seen(database) == held
        assert [added.status for added in database.add_many(held.values())] == ["unchanged"] * len(
            held
        )
        WAYS[way](database, tmp_path / "new")
    with fpdb.open(tmp_path / "new") as other:
        assert seen(other) == held


def test_columns_of_texts_have_the_fields_that_are_made_of_a_text(tmp_path: Path) -> None:
    texts = {"a": WORDS * 9, "b": "short", "c": ""}
    with created(tmp_path / "one", "text") as one, created(tmp_path / "many", "text") as many:
        list(one.add_many(Document(key, text) for key, text in texts.items()))
        records = [{"key": key, "text": text} for key, text in texts.items()]
        list(fpdb.dedupe(records, database=many))
        for key in texts:
            for field in CARRIED:
                assert getattr(many[key], field.name) == getattr(one[key], field.name)
        assert all(getattr(one["a"], name) for name in OF_TEXT)


def names(every: Iterable[Any]) -> list[str]:
    return [field.name for field in every]


def test_every_field_is_in_the_table() -> None:
    assert list(VALUES) == names(FIELDS)
    known = ["id", "key", "fingerprint", "added"]
    assert list(Stored._fields[:OPTIONAL_AT]) == known
    assert {*Stored._fields} == {*known, *names(FIELDS), KEEPER.name}
    assert {*names(fields(Document))} == {*known, *names(FIELDS), "text", "short", "group"}
    # The last ones have one order.
    further = Stored._fields[FURTHER_AT:] == FURTHER
    assert further
    every = [*names(FIELDS), KEEPER.name], [*names(fields(Document))[:-1], KEEPER.name]
    assert {tuple(some[-len(FURTHER) :]) for some in every} == {FURTHER}


def test_what_is_shown_of_a_document_is_the_same_everywhere() -> None:
    assert StoredDocument.__struct_fields__ == (*SHOWN, "group")
    assert tuple(document_dict(Document("k", fingerprint=1, added=0), 64)) == SHOWN


def test_the_size_of_a_transaction_counts_what_may_be_long() -> None:
    bare = Stored(0, "k", 1, 0)
    for field in FIELDS:
        if field.form == "value" or field.several:
            block = Block.of([bare, bare._replace(**{field.name: b"123456"})], 64)
            assert np.diff(block.sizes).tolist() == [6]
