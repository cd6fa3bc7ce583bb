"""A check in small parts finds random damage, bad headers and bad records, in little memory."""

import random
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from damaged import named, problems
from tiers import examples

import fpdb
from fpdb import Database, Document, Grams, Recipe
from fpdb.arrays import Rows
from fpdb.documents.catalog import key_pages
from fpdb.maintenance import check as checking
from fpdb.models import Problem
from fpdb.storage import WriteTransaction
from fpdb.storage.format import (
    pack_header,
    pack_record,
    renumbered,
    seed_of,
    unpack_header,
    unpack_record,
)
from fpdb.storage.number_pages import summed, unpack_rows
from fpdb.tables import plans
from fpdb.tables.plan import choose_plan
from fpdb.tables.sorted_pages import NumberPages

RECIPE = Recipe("tiny", clean=(), segment="whitespace", grams=Grams(minimum=3))
DOCUMENTS = 600  # more than one page in each table
SEEDS = 15

Row = tuple[Any, ...]


@pytest.fixture(params=[("text", 64), ("integer", 128)], ids=["text", "integer"], scope="module")
def db(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Database]:
    """Bare fingerprints, many of them equal, some with metadata, and short texts."""
    (keys, bits), dice = request.param, random.Random(5)
    numbers = [dice.getrandbits(bits) for _ in range(DOCUMENTS)]
    numbers[50:80] = numbers[20:50]
    numbers[100:140] = numbers[99:100] * 40
    path = tmp_path_factory.mktemp("bounded") / "db"
    recipe, plan = RECIPE.with_bits(bits), choose_plan(bits, 2)
    with fpdb.create(path, recipe=recipe, keys=keys, plan=plan, k=2) as database:
        database.add_fingerprints([named(n, keys) for n in range(DOCUMENTS)], numbers)
        some = [
            *(Document(named(n, keys), fingerprint=numbers[n], meta={"n": n}) for n in range(90)),
            *(Document(named(n, keys), f"text {n % 3}") for n in range(590, 600)),
            *(Document(named(n, keys), f"a text of {n} words") for n in range(580, 590)),
        ]
        assert len(list(database.add_many(some))) == len(some)
        yield database


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks and groups so small that every comparison takes many of them."""
    monkeypatch.setattr(checking, "ROWS", 100)
    monkeypatch.setattr(checking, "RECORDS", 30)


def number_pages(db: Database) -> list[NumberPages]:
    """The tables of fingerprints, and that of integer keys."""
    by_key = db._catalog.by_key
    return [*db._index.tables, *([by_key] if isinstance(by_key, NumberPages) else [])]


# Damage


def wide_page(rows: Rows, seed: int) -> bytearray:
    """Return a page of any rows, in columns of eight bytes."""
    head = struct.pack("<IHH", 0, len(rows[0]), 0x8888 & (1 << 4 * len(rows)) - 1)
    columns = b"".join(column.tobytes() for column in rows)
    return summed(bytearray(head + bytes(8 * len(rows)) + columns), seed)


class Damager:
    """Changes random entries so that what is stored no longer agrees."""

    def __init__(self, txn: WriteTransaction, db: Database, dice: random.Random) -> None:
        self.txn, self.db, self.dice = txn, db, dice

    def some_entry(self, name: str) -> tuple[bytes, bytes]:
        with self.txn.cursor(name) as cursor:
            entries = [(bytes(key), bytes(value)) for key, value in cursor]
        return self.dice.choice(entries)

    def page(self) -> None:
        """Change the rows of a page; its key stays, or follows them."""
        dice = self.dice
        pages = dice.choice(number_pages(self.db))
        key, value = self.some_entry(pages.name)
        rows = list(
            zip(
                *(c.tolist() for c in unpack_rows(value, pages.columns, pages.seed_at(key))),
                strict=True,
            )
        )
        at, other = dice.sample(range(len(rows)), 2)
        column = dice.randrange(min(pages.columns, 2))  # a bare document may have any time
        kind = dice.choice(["drop", "thin", "add", "twice", "swap", "change", "cut", "flip"])
        if kind == "drop":
            del rows[at]
        elif kind == "thin":
            rows = rows[1::2]
        elif kind == "add":
            rows.insert(at, tuple(dice.getrandbits(30) for _ in range(pages.columns)))
        elif kind == "twice":
            rows[at:at] = [rows[other]] * dice.randrange(1, 3)
        elif kind == "swap":
            rows[at], rows[other] = rows[other], rows[at]
        elif kind == "change":
            changed = rows[at][column] ^ 1 << dice.randrange(32)
            rows[at] = (*rows[at][:column], changed, *rows[at][column + 1 :])
        if kind != "swap" and dice.random() < 0.5:
            rows.sort()
        self.txn.delete(pages.name, key)
        if kind == "cut":
            return
        columns = [np.array(numbers, np.uint64) for numbers in zip(*rows, strict=True)]
        if dice.random() < 0.9:
            key = pages.first_key(columns)
        data = wide_page(columns, pages.seed_at(key))
        if kind == "flip":
            data = data[:-1] + bytes([data[-1] ^ 1])
        self.txn.put(pages.name, key, data)

    def entry(self) -> None:
        """Drop an entry of `short`, or exchange two; or do so with a key."""
        if self.db.key_type == "text" and self.dice.random() < 0.7:
            self.key()
            return
        name = "short"
        one, other = self.some_entry(name), self.some_entry(name)
        kind = self.dice.choice(["drop", "exchange", "add"])
        if kind == "drop" or one[1] == other[1]:
            self.txn.delete(name, one[0])
        elif kind == "exchange":
            self.txn.put(name, one[0], other[1])
            self.txn.put(name, other[0], one[1])
        else:
            self.txn.put(name, one[0] + b"!", one[1])

    def key(self) -> None:
        """Drop a text key or add one, let two lead to each other's document, or damage a page."""
        entries = [entry for page in key_pages.scan(self.txn) for entry in page]
        one, other = self.dice.sample(entries, 2)
        kind = self.dice.choice(["drop", "exchange", "add", "flip", "moved"])
        if kind == "drop":
            key_pages.splice(self.txn, [], [one])
        elif kind == "exchange":
            key_pages.splice(self.txn, sorted([(one[0], other[1]), (other[0], one[1])]), [])
        elif kind == "add":
            key_pages.splice(self.txn, [(one[0] + b"!", one[1])], [])
        else:
            key, value = self.some_entry("keys")
            if kind == "moved":
                self.txn.delete("keys", key)
                self.txn.put("keys", key + b"!", value)
            else:
                self.txn.put("keys", key, value[:-1] + bytes([value[-1] ^ 1]))

    def record(self) -> None:
        """Give a document another fingerprint."""
        number = self.db[named(self.dice.randrange(90), self.db.key_type)].id
        name = number.to_bytes(8)
        record = unpack_record(self.txn.get("documents", name) or b"", number, self.db.plan.bits)
        record = record._replace(fingerprint=(record.fingerprint or 0) ^ 1 << 7)
        self.txn.put("documents", name, pack_record(record, self.db.plan.bits))


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("seed", range(examples(20)))
def test_random_damage_is_found(db: Database, seed: int) -> None:
    dice = random.Random(seed)

    def change(txn: WriteTransaction) -> None:
        damager = Damager(txn, db, dice)
        for _ in range(dice.choice([1, 1, 2, 4])):
            dice.choice([damager.page, damager.page, damager.entry, damager.record])()

    assert problems(db, change)


def test_an_empty_page_is_reported(db: Database) -> None:
    for pages in number_pages(db):
        with db._environment.read() as txn, txn.cursor(pages.name) as cursor:
            assert cursor.first()
            key = (int.from_bytes(cursor.key()) + 1).to_bytes(pages.key_width)
        page = wide_page(pages.empty(), pages.seed_at(key))
        found = problems(db, lambda txn: txn.put(pages.name, key, page))  # noqa: B023
        what = f"page {key.hex()} has the wrong key, expected "
        assert found[0] == Problem(pages.name, what)
        # Lookups that end on the empty page don't find the rows of the page before.
        assert {problem.where for problem in found} == {pages.name}


@pytest.mark.parametrize(
    "change",
    [
        lambda body: bytes([body[0] ^ 1]) + body[1:],  # a fingerprint where no flag says so
        lambda body: bytes([body[0] ^ 32]) + body[1:],  # a key of the other kind
        lambda body: bytes([body[0] | 128]) + body[1:],
        lambda body: bytes([body[0] | 64]) + body[1:],  # a time of five bytes, which takes one more
        lambda body: body[:-1],
        lambda body: body + b"\0",
        lambda body: b"",
    ],
    ids=["fingerprint", "kind of key", "unknown", "time", "shorter", "longer", "empty"],
)
def test_a_record_with_fields_of_another_kind_is_reported(
    db: Database, change: Callable[[bytes], bytes]
) -> None:
    """Whoever wrote it gave it a fine checksum."""
    number = db[named(7, db.key_type)].id.to_bytes(8)

    def rewrite(txn: WriteTransaction) -> None:
        body = change(bytes(txn.get("documents", number) or b"")[4:])
        checksum = xxhash.xxh3_64_digest(body, seed_of("documents", number))[-4:]
        txn.put("documents", number, checksum + body)

    found = problems(db, rewrite)
    what = f"the document {int.from_bytes(number)}: its fields aren't those of a document"
    assert found == [Problem("documents", what)]


def test_a_record_under_no_id_is_reported(db: Database) -> None:
    with db._environment.read() as txn:
        value = bytes(txn.get("documents", db[named(7, db.key_type)].id.to_bytes(8)) or b"")
    found = problems(db, lambda txn: txn.put("documents", b"\1\2", renumbered(value, 0x0102)))
    what = "the document 0102…: its fields aren't those of a document"
    assert found == [Problem("documents", what)]


# Memory


def peak(path: Path) -> int:
    with fpdb.open(path) as db:
        assert not problems(db, lambda _: tracemalloc.start())
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return size


@pytest.mark.full
@pytest.mark.parametrize("keys", ["text", "integer"])
def test_memory_doesnt_grow_with_the_documents(
    tmp_path_factory: pytest.TempPathFactory,
    keys: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checking, "ROWS", 1 << 12)
    monkeypatch.setattr(checking, "RECORDS", 1 << 10)
    peaks = []
    for count in (100, 5_000, 25_000):  # the first time, other things are imported and kept
        path = tmp_path_factory.mktemp("large") / "db"
        with fpdb.create(path, recipe=RECIPE, keys=keys, plan=choose_plan(64, 1), k=1) as db:
            numbers = np.random.default_rng(count).integers(0, 1 << 64, count, np.uint64)
            db.add_fingerprints([named(n, keys) for n in range(count)], numbers)
        peaks.append(peak(path))
    assert peaks[2] < 1.3 * peaks[1] + 500_000
    assert peaks[2] < 4_000_000


# The header


def header_problems(db: Database, change: Callable[[dict[str, Any]], None]) -> list[Problem]:
    with db._environment.read() as txn:
        head = unpack_header(txn.get("header", b"header") or b"")
    change(head)
    return problems(db, lambda txn: txn.put("header", b"header", pack_header(head)))


def test_a_damaged_header_is_reported(db: Database) -> None:
    with db._environment.read() as txn:
        data = bytearray(txn.get("header", b"header") or b"")
    data[-1] ^= 1
    found = problems(db, lambda txn: txn.put("header", b"header", bytes(data)))
    assert [problem.where for problem in found] == ["header"]
    assert "checksum" in found[0].what


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("uuid", 5, "uuid is of type int, expected str"),
        ("created", "today", "created is of type str, expected int"),
        ("capacity", "1 M", "capacity is of type str, expected int"),
        ("recipe_id", None, "recipe_id is of type NoneType, expected str"),
        ("recipe_id", "0" * 16, "recipe_id is '0000000000000000', expected"),
        ("keys", "colours", "the header names 'colours' keys, expected"),
        ("plan", {"bits": 64}, "this is no plan"),
        ("plan", choose_plan(64, 1).to_dict(), "bands of sketches or a similarity, expected both"),
        ("plan", plans(64, 1, 10, similarity=0.8)[0].to_dict(), "plan is '2 tables"),
        ("similarity", None, "bands of sketches or a similarity, expected both"),
        ("similarity", "0.8", "similarity '0.8'"),
        ("recipe", {"name": "tiny", "segment": "by mood"}, "segment is 'by mood'"),
        ("features", ["colours"], "feature 'colours'"),
    ],
)
def test_a_header_that_doesnt_fit_is_reported(
    db: Database, field: str, value: Any, what: str
) -> None:
    found = header_problems(db, lambda head: head.update({field: value}))
    assert {problem.where for problem in found} == {"header"}
    assert any(what in problem.what for problem in found), found


def test_a_recipe_of_another_width_is_reported(db: Database) -> None:
    other = RECIPE.with_bits({32: 64, 64: 128, 128: 32}[db.plan.bits])
    found = header_problems(
        db, lambda head: head.update(recipe=other.to_dict(), recipe_id=other.id)
    )
    what = f"bits is {other.bits}, expected {db.plan.bits}"
    assert found == [Problem("header", what)]


def test_the_header_of_a_keyed_recipe_is_sound(tmp_path: Path) -> None:
    keyed = RECIPE.replace(hash=fpdb.Hash(secret=fpdb.Secret(b"0123456789abcdef")))
    with fpdb.create(tmp_path / "keyed", recipe=keyed) as database:
        assert list(database.check()) == []
