"""Fingerprints without their texts, over documents that have more."""

import pytest
from numbered import text_of

import fpdb
from fpdb import Document

META = {"title": "A"}


@pytest.fixture(params=["text", "integer"])
def db(tmp_path, request):
    options = {"keys": request.param, "passages": True}
    with fpdb.create(tmp_path / "db", **options) as database:
        for number in range(3):
            database.add(key(database, number), text_of(number), META)
        yield database
        assert list(database.check()) == []


def key(db, number):
    return number if db.key_type == "integer" else f"k{number}"


def test_the_same_ones_change_nothing(db):
    before = list(db.scan())
    assert all(document.sketch and document.passages for document in before)
    numbers = [document.fingerprint for document in before]
    assert db.add_fingerprints([document.key for document in before], numbers) == 0
    bare = [Document(document.key, fingerprint=document.fingerprint) for document in before]
    for skip in (False, True):
        added = db.add_many(bare * 2, skip_duplicates=skip)
        assert {(each.status, *each.matches) for each in added} == {("unchanged",)}
    assert list(db.scan()) == before


def test_metadata_are_replaced_alone(db):
    old = db[key(db, 1)]
    [added] = db.add_many([Document(old.key, meta={"title": "B"}, fingerprint=old.fingerprint)])
    assert (added.status, db[old.key].meta) == ("replaced", {"title": "B"})
    assert (db[old.key].sketch, db[old.key].passages) == (old.sketch, old.passages)
    assert [match.key for match in db.query(text_of(1))] == [old.key]


def test_less_of_the_same_text_costs_nothing(db):
    old = db[key(db, 1)]
    less = Document(old.key, meta=META, fingerprint=old.fingerprint, digest=old.digest)
    assert [added.status for added in db.add_many([less])] == ["unchanged"]
    other = Document(old.key, meta=META, fingerprint=old.fingerprint, digest=bytes(15) + b"x")
    assert [added.status for added in db.add_many([other])] == ["replaced"]
    assert (db[old.key].sketch, db[old.key].characters) == (None, 0)


def test_another_one_is_another_text(db):
    old = db[key(db, 1)]
    assert db.add_fingerprints([old.key], [old.fingerprint ^ 1]) == 1
    new = db[old.key]
    assert (new.fingerprint, new.sketch, new.digest) == (old.fingerprint ^ 1, None, None)
    assert (new.meta, new.passages) == (None, None)


def test_a_text_and_its_fingerprint_may_come_together(db):
    new, number = key(db, 9), db.recipe.fingerprint(text_of(9))
    both = [Document(new, text_of(9), META), Document(new, fingerprint=number)]
    for together in (both, both[::-1]):
        statuses = [added.status for added in db.add_many(together)]
        assert statuses[0] == ("added" if together is both else "unchanged")
        assert (statuses[1], db[new].meta) == ("unchanged", META)
        assert [match.key for match in db.query(text_of(9))] == [new]
