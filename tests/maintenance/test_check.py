"""What `check` says of sound databases, and of every kind of damage."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from damaged import named, problems

import fpdb
from fpdb import Database, Document, Grams, Recipe
from fpdb.arrays import Rows
from fpdb.documents.catalog import View, key_pages
from fpdb.documents.layout import database_names, read_runs, write_runs
from fpdb.maintenance.check import check_view
from fpdb.models import Key, Problem
from fpdb.storage import WriteTransaction
from fpdb.storage.block import Block
from fpdb.storage.format import (
    Counters,
    StoredRun,
    renumbered,
)
from fpdb.storage.number_pages import pack_rows, summed, unpack_rows
from fpdb.tables.bits import as_words, to_array
from fpdb.tables.plan import choose_plan
from fpdb.tables.sorted_pages import NumberPages

RECIPE = Recipe("tiny", clean=(), segment="whitespace", grams=Grams(minimum=3))
DOCUMENTS = 700  # more than one page in each table
TEXTS = {3: "one two three four", 4: "short", 5: "short", 6: "another"}
BARE, WITH_TEXT, SHORT = 11, 3, 4
MISSING = "the entry of the document {} is missing"
OTHERS = "some of its rows aren't those of the documents"


def rows(found: int, expected: int) -> str:
    return f"it has {found:,} rows, expected {expected:,}"


@pytest.fixture(params=[("text", 64), ("integer", 128)], ids=["text", "integer"], scope="module")
def kind(request: pytest.FixtureRequest) -> tuple[str, int]:
    """The kind of keys, and the bits of fingerprints."""
    keys, bits = request.param
    return keys, bits


@pytest.fixture(scope="module")
def keys(kind: tuple[str, int]) -> str:
    return kind[0]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, kind: tuple[str, int]) -> Iterator[Database]:
    """Bare fingerprints, some of them equal, a text, and three short texts."""
    keys, bits = kind
    recipe, dice = RECIPE.with_bits(bits), random.Random(7)
    numbers = [dice.getrandbits(bits) for _ in range(DOCUMENTS)]
    numbers[20:25] = [numbers[BARE]] * 5
    plan = choose_plan(bits, 3)
    with fpdb.create(
        tmp_path_factory.mktemp("check") / "db", recipe=recipe, keys=keys, plan=plan
    ) as database:
        database.add_fingerprints([named(n, keys) for n in range(DOCUMENTS)], numbers)
        added = [Document(named(n, keys), text, {"n": n}) for n, text in TEXTS.items()]
        statuses = [entry.status for entry in database.add_many(added)]
        assert statuses.count("replaced") + statuses.count("short") == len(TEXTS)
        yield database


def key_of(db: Database, number: int) -> Key:
    return named(number, db._catalog.kind)


def places(found: list[Problem]) -> set[str]:
    assert all(problem.what for problem in found)
    return {problem.where for problem in found}


def row_of(db: Database, pages: NumberPages, number: int) -> Rows:
    """The row in a table of the document with this number."""
    document = db[key_of(db, number)]
    assert document.fingerprint is not None
    array = to_array([document.fingerprint], db.plan.bits)
    if pages is db._index.home:
        return [*as_words(array), np.array([document.id], np.uint64)]
    table = db.plan.tables[tables(db).index(pages)]
    return as_words(table.permutation.apply(array))


def stranger(db: Database, pages: NumberPages) -> Rows:
    """A row of no document."""
    return [np.array([12345], np.uint64)] * pages.columns


def tables(db: Database) -> list[NumberPages]:
    return [db._index.home, *db._index.further]


def rewrite(
    txn: WriteTransaction, name: str, change: Callable[[bytes, bytes], tuple[bytes, bytes]]
) -> None:
    """Change the middle entry of a sub-database, key and value."""
    with txn.cursor(name) as cursor:
        entries = [(bytes(key), bytes(value)) for key, value in cursor]
    key, value = entries[len(entries) // 2]
    txn.delete(name, key)
    txn.put(name, *change(key, value))


# Sound databases


def test_a_sound_database_has_no_problems(db: Database) -> None:
    assert len(db) == DOCUMENTS
    assert db.stats().short == 3
    assert all(table.pages > 1 for table in db.stats().tables if table.name != "bands")
    assert db.stats().tables[-1].pages == 1
    with db._environment.read() as txn:
        before = txn.raw.id()
    assert list(db.check()) == []
    with db._environment.read() as txn:
        assert txn.raw.id() == before  # it wrote nothing


# Tables


@pytest.mark.parametrize("table", [1, 3])
def test_a_row_missing_in_a_further_table_is_reported(db: Database, table: int) -> None:
    pages = tables(db)[table]
    row = row_of(db, pages, WITH_TEXT)
    found = problems(db, lambda txn: pages.splice(txn, pages.empty(), row))
    distinct = DOCUMENTS - 3 - 5  # short ones, and equal ones
    assert found == [Problem(pages.name, rows(distinct - 1, distinct))]


@pytest.mark.parametrize("table", [0, 2])
def test_a_row_of_no_document_is_reported(db: Database, table: int) -> None:
    pages = tables(db)[table]
    row = stranger(db, pages)
    found = problems(db, lambda txn: pages.splice(txn, row, pages.empty()))
    assert places(found) == {pages.name}


@pytest.mark.parametrize("number", [BARE, WITH_TEXT], ids=["bare", "with a text"])
def test_an_id_missing_at_home_is_reported(db: Database, number: int) -> None:
    home = db._index.home
    row = row_of(db, home, number)
    found = problems(db, lambda txn: home.splice(txn, home.empty(), row))
    if db._catalog.kind == "integer" and number == WITH_TEXT:
        assert found == [Problem("table-00", MISSING.format(db[key_of(db, number)].id))]
    else:  # with integer keys, only the home table had the fingerprint of a bare document
        long = DOCUMENTS - db.stats().short
        assert Problem("table-00", rows(long - 1, long)) in found
        assert db._catalog.kind == "integer" or len(found) == 1


def under(pages: NumberPages, key: bytes, other: bytes, value: bytes) -> bytes:
    """Forge a page so that its checksum is right under another key."""
    rows = unpack_rows(value, pages.columns, pages.seed_at(key))
    return summed(pack_rows(rows)[0], pages.seed_at(other))


@pytest.mark.parametrize("table", [0, 2])
@pytest.mark.parametrize("by", [1, -1])
def test_a_page_under_a_wrong_key_is_reported(db: Database, table: int, by: int) -> None:
    """Its rows are in order, but whoever looks for its first ones goes to another page."""
    pages = tables(db)[table]

    def shift(key: bytes, value: bytes) -> tuple[bytes, bytes]:
        other = (int.from_bytes(key, "big") + by).to_bytes(len(key), "big")
        return other, under(pages, key, other, value)

    found = problems(db, lambda txn: rewrite(txn, pages.name, shift))
    assert places(found) == {pages.name}
    assert "key" in found[0].what


# Bands


def band_rows(db: Database) -> Rows:
    """The rows of the text in the bands."""
    with db._environment.read() as txn:
        stored = db._catalog.find(txn, key_of(db, WITH_TEXT))
    assert stored
    assert db._index.bands
    rows = db._index.rows(Block.of([stored], db.plan.bits))[1]
    assert len(rows[0]) == db._index.bands.shape.count
    return rows


def bands_of(db: Database) -> NumberPages:
    assert db._index.bands
    return db._index.bands.pages


@pytest.mark.parametrize("some", [slice(0, 1), slice(2, 5), slice(None)], ids=str)
def test_a_document_missing_in_bands_is_one_problem(db: Database, some: slice) -> None:
    bands, all_rows = bands_of(db), band_rows(db)
    gone = [column[some] for column in all_rows]
    found = problems(db, lambda txn: bands.splice(txn, bands.empty(), gone))
    count = len(all_rows[0])
    assert found == [Problem("bands", rows(count - len(gone[0]), count))]


def test_a_row_in_another_band_is_reported(db: Database) -> None:
    bands, own = bands_of(db), [column[:1] for column in band_rows(db)]
    moved = [own[0] ^ np.uint64(1), own[1]]
    found = problems(db, lambda txn: bands.splice(txn, moved, own))
    assert found == [Problem("bands", OTHERS)]


# Documents


def number_bytes(db: Database, number: int) -> bytes:
    return db[key_of(db, number)].id.to_bytes(8, "big")  # type: ignore[union-attr]


@pytest.mark.parametrize("number", [WITH_TEXT, SHORT], ids=["with a text", "short"])
def test_a_missing_record_is_reported(db: Database, number: int) -> None:
    document = db[key_of(db, number)]
    own = number_bytes(db, number)
    found = problems(db, lambda txn: txn.delete("documents", own))
    if db._catalog.kind == "text":
        rest = {"short"} if document.short else {"table-00"}
        rest |= {"bands"} if number == WITH_TEXT else set()
        assert places(found) == {"keys", "counters", *rest}
    elif document.short:
        # Without a record, the document looks like a bare fingerprint that is nowhere.
        assert Problem("table-00", rows(DOCUMENTS - 3, DOCUMENTS - 2)) in found
    elif number == WITH_TEXT:
        assert places(found) == {"bands", "counters"}
    else:
        # With integer keys, documents may lack a record: it looks like one of these.
        assert found == []


def test_a_missing_key_is_reported(db: Database) -> None:
    """The document is found by its fingerprint, and can be neither got nor deleted."""
    number = db[key_of(db, WITH_TEXT)].id
    if db._catalog.kind == "integer":
        row = [np.array([number], np.uint64)] * 3
        ids = db._catalog.ids
        found = problems(db, lambda txn: ids.splice(txn, ids.empty(), row))
        assert found == [
            Problem("ids", f"the row of the document {number} isn't that of its record")
        ]
    else:
        key = str(key_of(db, WITH_TEXT)).encode()
        found = problems(db, lambda txn: key_pages.splice(txn, [], [(key, 0)]))
        assert found == [Problem("keys", rows(DOCUMENTS - 1, DOCUMENTS))]


@pytest.mark.parametrize("other", [b"", b"x"], ids=["missing", "of another text"])
def test_an_entry_of_a_short_text_is_reported(db: Database, other: bytes) -> None:
    def change(txn: WriteTransaction) -> None:
        with txn.cursor("short") as cursor:
            own = [bytes(key) for key, _ in cursor if key[-8:] == number_bytes(db, SHORT)]
        txn.delete("short", own[0])
        if other:
            txn.put("short", other + own[0][1:], b"")

    assert problems(db, change) == [Problem("short", OTHERS if other else rows(2, 3))]


def test_a_record_without_its_key_is_reported(db: Database) -> None:
    """Whatever else leads to it: it can be neither got nor deleted."""

    def orphan(txn: WriteTransaction) -> None:
        value = bytes(txn.get("documents", number_bytes(db, WITH_TEXT)) or b"")
        txn.put("documents", (2**40).to_bytes(8, "big"), renumbered(value, 2**40))

    found = problems(db, orphan)
    if db._catalog.kind == "text":
        assert Problem("keys", rows(DOCUMENTS, DOCUMENTS + 1)) in found
    else:
        assert Problem("ids", f"the row of the document {2**40} isn't that of its record") in found


@pytest.mark.parametrize("column", [1, 2], ids=["fingerprint", "time"])
def test_a_row_of_ids_that_isnt_that_of_the_record_is_reported(db: Database, column: int) -> None:
    if db._catalog.kind == "text":  # it has no rows of ids
        return
    document, ids = db[key_of(db, WITH_TEXT)], db._catalog.ids
    row = [document.id, (document.fingerprint or 0) >> (db.plan.bits - 24), document.added]
    row[column] = (row[column] or 0) ^ 1
    changed = [np.array([number], np.uint64) for number in row]
    found = problems(db, lambda txn: ids.splice(txn, changed, ids.empty()))
    what = f"the row of the document {document.id} isn't that of its record"
    assert found == [Problem("ids", what)]


# Counters


@pytest.mark.parametrize("by", [1, -1])
@pytest.mark.parametrize("name", ["documents", "short"])
def test_counters_that_are_off_are_reported(db: Database, name: str, by: int) -> None:
    have, what = {"documents": (DOCUMENTS, "documents"), "short": (3, "short documents")}[name]

    def alter(txn: WriteTransaction) -> None:
        counters = Counters.unpack(txn.get("counters", b"counters"))
        txn.put("counters", b"counters", counters._replace(**{name: have + by}).pack())

    assert problems(db, alter) == [Problem("counters", f"{have} {what}, expected {have + by}")]


RUN = StoredRun(bytes(range(16)), b"options", 1_750_000_000, finished=True)


def test_a_run_that_is_damaged_or_another_s_is_reported(db: Database) -> None:
    other = RUN._replace(content=bytes(16))

    def alter(txn: WriteTransaction) -> None:
        write_runs(txn, [RUN, other])
        assert {*read_runs(txn)} == {RUN, other}
        txn.put("runs", RUN.content, other.pack())
        txn.put("runs", other.content, other.pack()[:-1] + b"x")
        txn.put("runs", RUN.content[:7], RUN._replace(content=RUN.content[:7]).pack())

    assert [problem.where for problem in problems(db, alter)] == ["runs"] * 3


def test_counters_that_would_give_an_id_twice_are_reported(db: Database) -> None:
    if db._catalog.kind == "integer":  # its ids are its keys
        return

    def alter(txn: WriteTransaction) -> None:
        counters = Counters.unpack(txn.get("counters", b"counters"))
        txn.put("counters", b"counters", counters._replace(next_id=DOCUMENTS - 1).pack())

    assert places(problems(db, alter)) == {"counters"}


# All at once


def test_a_change_of_any_byte_is_reported(tmp_path: Path, keys: str) -> None:
    with fpdb.create(tmp_path / "small", recipe=RECIPE, keys=keys) as database:
        added = [Document(named(n, keys), text, {"n": n}) for n, text in TEXTS.items()]
        list(database.add_many([*added, Document(named(9, keys), fingerprint=2**63)]))
        dice, tried = random.Random(3), 0

        def silent(txn: WriteTransaction, name: str, key: bytes, value: bytes) -> Iterator[int]:
            for at in range(len(value)):
                changed = bytearray(value)
                changed[at] ^= 1 << dice.randrange(8)
                txn.put(name, key, bytes(changed))
                if not list(check_view(View(txn, database._index, database._catalog))):
                    yield at
            txn.put(name, key, value)

        with database._environment.write() as txn:
            for name in database_names(database._index, database._catalog):
                with txn.cursor(name) as cursor:
                    entries = [(bytes(key), bytes(value)) for key, value in cursor]
                for key, value in entries:
                    assert list(silent(txn, name, key, value)) == [], (name, key)
                    tried += len(value)
        assert tried > 300
        assert list(database.check()) == []
