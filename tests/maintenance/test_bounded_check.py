"""A check in small parts finds what a comparison of whole sets finds, and takes little memory."""

import contextlib
import random
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
import xxhash

import fpdb
from fpdb import Database, Document, Grams, Recipe
from fpdb.arrays import Rows
from fpdb.documents.catalog import IntegerCatalog, View, key_bytes
from fpdb.errors import DamagedError
from fpdb.maintenance import check as checking
from fpdb.maintenance import scan
from fpdb.maintenance.check import check_view
from fpdb.models import Key, Problem
from fpdb.storage import ReadTransaction, WriteTransaction
from fpdb.storage.columns import Shape, pack_rows, unpack_rows
from fpdb.storage.format import (
    Counters,
    Stored,
    pack_header,
    pack_record,
    unpack_header,
    unpack_record,
)
from fpdb.tables.bits import as_words, to_array
from fpdb.tables.pages import Pages
from fpdb.tables.plan import choose_plan

RECIPE = Recipe("tiny", clean=(), segment="whitespace", grams=Grams(minimum=3))
DOCUMENTS = 600  # more than one page in each table
SEEDS = 15

Row = tuple[Any, ...]
RECORD = ("key", "fingerprint", "added", "digest", "meta", "characters")


@pytest.fixture(params=["text", "integer"], scope="module")
def keys(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[32, 64, 128], ids=["32 bits", "64 bits", "128 bits"], scope="module")
def db(
    tmp_path_factory: pytest.TempPathFactory, keys: str, request: pytest.FixtureRequest
) -> Iterator[Database]:
    """Bare fingerprints, many of them equal, some with metadata, and short texts."""
    bits, dice = request.param, random.Random(5)
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
    monkeypatch.setattr(scan, "ROWS", 100)
    monkeypatch.setattr(scan, "RECORDS", 30)
    monkeypatch.setattr(checking, "HELD", 50)


def named(number: int, keys: str) -> Key:
    return number if keys == "integer" else f"page/{number:04d}"


# The naive check: everything at once, as sets


class Naive:
    """Says what is wrong with whole tables in memory."""

    def __init__(self, txn: ReadTransaction, db: Database) -> None:
        self.txn, self.db = txn, db
        self.problems: list[Problem] = []
        self.run()

    def tell(self, where: str, what: str) -> None:
        self.problems.append(Problem(where, what))

    def run(self) -> None:
        index, catalog = self.db._index, self.db._catalog
        tables = {pages.name: self.rows(pages) for pages in (index.home, *index.further)}
        ids = self.rows(catalog.ids) if isinstance(catalog, IntegerCatalog) else None
        found = self.records()
        home = tables[index.home.name]
        if found is None:
            return
        # id, key, fingerprint, time and digest of each document
        documents = [(r.id, r.key, r.fingerprint, r.added, r.digest) for r in found]
        if isinstance(catalog, IntegerCatalog):
            if ids is None or home is None:
                return
            documents = self.with_bare(documents, ids, home)
        else:
            names = {(key_bytes(str(key)), packed(number)) for number, key, *_ in documents}
            self.compare("keys", self.entries("keys"), names)
        short = {(digest + packed(n), b"") for n, _, data, _, digest in documents if data is None}
        self.compare("short", self.entries("short"), short)
        self.count(documents, len(short))
        placed = [(data, n) for n, _, data, *_ in documents if data is not None]
        fingerprints = to_array([number for number, _ in placed], index.plan.bits)
        numbers = np.array([n for _, n in placed], np.uint64)
        self.compare(index.home.name, home, as_set([*as_words(fingerprints), numbers]))
        for table, pages in zip(index.plan.tables[1:], index.further, strict=True):
            expected = as_set(as_words(table.permutation.apply(fingerprints)))
            self.compare(pages.name, tables[pages.name], expected)

    def rows(self, pages: Pages) -> set[Row] | None:
        rows: list[Row] = []
        sound = True
        with self.txn.cursor(pages.name) as cursor:
            for key, value in cursor:
                try:
                    columns = unpack_rows(value, pages.columns)
                except DamagedError as error:
                    self.tell(pages.name, f"page {bytes(key).hex()}: {error}")
                    sound = False
                    continue
                first = pages.first_key(columns) if len(columns[0]) else b""
                if key != first:
                    what = f"page {bytes(key).hex()} has the wrong key, expected {first.hex()}"
                    self.tell(pages.name, what)
                rows += zip(*(column.tolist() for column in columns), strict=True)
        if rows != sorted(rows):
            self.tell(pages.name, "rows aren't in order")
        if len(set(rows)) != len(rows):
            self.tell(pages.name, f"{len(rows) - len(set(rows))} rows are stored twice")
        return set(rows) if sound else None

    def records(self) -> list[Stored] | None:
        found: list[Stored] | None = []
        with self.txn.cursor("documents") as cursor:
            for name, value in cursor:
                try:
                    record = unpack_record(value, int.from_bytes(name), self.db.plan.bits)
                except DamagedError as error:
                    self.tell("documents", f"the document {int.from_bytes(name)}: {error}")
                    found = None
                else:
                    if found is not None:
                        found.append(record)
        return found

    def with_bare(self, documents: list[Row], ids: set[Row], home: set[Row]) -> list[Row]:
        bits, where = self.db.plan.bits, self.db._index.home.name
        places: dict[int, list[int]] = {}
        for *words, number in sorted(home):
            fingerprint = words[0] if len(words) == 1 else words[0] << 64 | words[1]
            places.setdefault(number, []).append(fingerprint)
        left = {document[0]: document for document in documents}
        found = []
        for number, high, added in sorted(ids):
            known = left.pop(number, None)
            own = [place for place in places.get(number, []) if place >> (bits - 32) == high]
            if known:
                found.append(known)
                if ((known[2] or 0) >> (bits - 32), known[3]) != (high, added):
                    what = f"the row of the document {number} isn't that of its record"
                    self.tell("ids", what)
            elif own:
                found.append((number, number, own[0], added, b""))
            else:
                self.tell(where, f"the document {number} is in no table")
        for number in left:
            self.tell("ids", f"the row of the document {number} is missing")
        return found + list(left.values())

    def count(self, documents: list[Row], short: int) -> None:
        counters = Counters.unpack(self.txn.get("counters", b"counters"))
        if counters.documents != len(documents):
            self.tell("counters", f"{len(documents)} documents, expected {counters.documents}")
        if counters.short != short:
            self.tell("counters", f"{short} short documents, expected {counters.short}")
        last = max((document[0] for document in documents), default=0)
        if self.db.keys == "text" and documents and last >= counters.next_id:
            self.tell("counters", f"the id {last} is taken, the next is {counters.next_id}")

    def entries(self, name: str) -> set[Row]:
        with self.txn.cursor(name) as cursor:
            return {(bytes(key), bytes(value)) for key, value in cursor}

    def compare(self, where: str, found: set[Row] | None, expected: set[Row]) -> None:
        if found is None:
            return
        for row in expected - found:
            self.tell(where, f"the row {shown(row)} of a document is missing")
        for row in found - expected:
            self.tell(where, f"the row {shown(row)} belongs to no document")


def packed(number: int) -> bytes:
    return number.to_bytes(8)


def as_set(rows: Rows) -> set[Row]:
    return set(zip(*(column.tolist() for column in rows), strict=True))


def shown(row: Row) -> str:
    return ", ".join(part.hex() if isinstance(part, bytes) else str(part) for part in row)


# Damage


class Damager:
    """Spoils a database at random."""

    def __init__(self, txn: WriteTransaction, db: Database, dice: random.Random) -> None:
        self.txn, self.db, self.dice = txn, db, dice
        self.tables = [db._index.home, *db._index.further, *db._catalog.pages]

    def once(self) -> None:
        kinds: list[Callable[[], None]] = [self.page] * 4 + [self.record, self.entry, self.counters]
        self.dice.choice(kinds)()

    def some_entry(self, name: str) -> tuple[bytes, bytes] | None:
        with self.txn.cursor(name) as cursor:
            entries = [(bytes(key), bytes(value)) for key, value in cursor]
        return self.dice.choice(entries) if entries else None

    def page(self) -> None:
        """Change the rows of a page; its key stays, or follows them."""
        dice, pages = self.dice, self.dice.choice(self.tables)
        entry = self.some_entry(pages.name)
        if entry is None:
            return
        key, value = entry
        try:
            rows = list(zip(*(c.tolist() for c in unpack_rows(value, pages.columns)), strict=True))
        except DamagedError:
            return
        if not rows:
            return
        at, other = dice.randrange(len(rows)), dice.randrange(len(rows))
        column = dice.randrange(pages.columns)
        kind = dice.choice(["drop", "thin", "add", "twice", "swap", "change", "mix", "cut", "flip"])
        if kind == "drop":
            del rows[at]
        elif kind == "thin":
            rows = [row for row in rows if dice.random() < 0.8]
        elif kind == "add":
            rows.insert(at, tuple(dice.getrandbits(30) for _ in range(pages.columns)))
        elif kind == "twice":
            rows[at:at] = [rows[other]] * dice.randrange(1, 3)
        elif kind == "swap":
            rows[at], rows[other] = rows[other], rows[at]
        elif kind == "change":
            rows[at] = replaced(rows[at], column, rows[at][column] ^ 1 << dice.randrange(32))
        elif kind == "mix":
            rows[at], rows[other] = (
                replaced(rows[at], column, rows[other][column]),
                replaced(rows[other], column, rows[at][column]),
            )
        if dice.random() < 0.5:
            rows.sort()
        self.txn.delete(pages.name, key)
        if kind == "cut" or not rows:
            return
        columns = [np.array(numbers, np.uint64) for numbers in zip(*rows, strict=True)]
        shape = Shape([0] * len(columns), [8] * len(columns), 0)
        data = pack_rows(columns, shape)
        if kind == "flip":
            data = data[:-1] + bytes([data[-1] ^ 1])
        if dice.random() < 0.9:
            key = pages.first_key(columns)
        self.txn.put(pages.name, key, data)

    def record(self) -> None:
        dice, entry = self.dice, self.some_entry("documents")
        if entry is None:
            return
        name, value = entry
        try:
            record = unpack_record(value, int.from_bytes(name), self.db.plan.bits)
        except DamagedError:
            return
        kind = dice.choice(["drop", "fingerprint", "time", "copy", "flip", "short", "digest"])
        if kind == "drop":
            self.txn.delete("documents", name)
            return
        if kind == "fingerprint" and record.fingerprint:
            at = dice.randrange(self.db.plan.bits // 8)
            record = record._replace(fingerprint=record.fingerprint ^ 1 << 8 * at)
        elif kind == "time":
            record = record._replace(added=record.added + 1)
        elif kind == "copy":
            name = packed(dice.choice([dice.randrange(DOCUMENTS), dice.getrandbits(40)]))
        elif kind == "short":
            record = record._replace(fingerprint=None)
        elif kind == "digest":
            record = record._replace(digest=bytes(16))
        data = pack_record(record, self.db.plan.bits)
        # Of a record that can't be read hardly anything follows: let it be rare.
        if kind == "flip" and dice.random() < 0.2:
            data = data[:-1] + bytes([data[-1] ^ 1])
        self.txn.put("documents", name, data)

    def entry(self) -> None:
        names = ["short", *({"keys"} & set(self.db._catalog.names))]
        name = self.dice.choice(names)
        one, other = self.some_entry(name), self.some_entry(name)
        if one is None or other is None:
            return
        kind = self.dice.choice(["drop", "exchange", "add", "shift"])
        if kind == "drop":
            self.txn.delete(name, one[0])
        elif kind == "exchange":
            self.txn.put(name, one[0], other[1])
            self.txn.put(name, other[0], one[1])
        elif kind == "add":
            self.txn.put(name, one[0] + b"!", one[1])
        else:  # the same bytes, but cut elsewhere
            self.txn.delete(name, one[0])
            self.txn.put(name, one[0][:-1], one[0][-1:] + one[1])

    def counters(self) -> None:
        counters = Counters.unpack(self.txn.get("counters", b"counters"))
        name = self.dice.choice(["documents", "short", "next_id"])
        changed = counters._replace(**{name: max(getattr(counters, name) - 1, 0)})
        self.txn.put("counters", b"counters", changed.pack())


def replaced(row: Row, column: int, value: int) -> Row:
    return (*row[:column], value, *row[column + 1 :])


class Undone(Exception):  # noqa: N818 - it is no error
    """Ends a transaction without a trace."""


def both(db: Database, seed: int) -> tuple[list[Problem], list[Problem]]:
    """What the two checks say of the same damage."""
    dice = random.Random(seed)
    with contextlib.suppress(Undone), db._environment.write() as txn:
        damager = Damager(txn, db, dice)
        for _ in range(dice.choice([0, 1, 1, 2, 3, 8])):
            damager.once()
        found = list(check_view(View(txn, db._index, db._catalog)))
        naive = Naive(txn, db).problems
        raise Undone
    return found, naive


# Both find the same


def require_same(found: list[Problem], naive: list[Problem], seed: int) -> None:
    """The same places are damaged, and whatever is counted or read alone is reported alike."""
    places = {problem.where for problem in naive}
    if "table-00" in places:
        # With integer keys, a document isn't counted as lost because the home table lacks it; and
        # a home table that can't be read can't be compared with the further ones.
        naive = [p for p in naive if p.where in {"table-00", "ids", "documents", "keys", "short"}]
        places = {problem.where for problem in naive}
    assert {problem.where for problem in found} >= places, seed
    assert bool(found) == bool(naive), seed
    exact = ("page ", "the document ", "the row of the document ", "rows are")
    for problem in naive:
        if problem.what.startswith(exact) and problem.where not in {"table-00", "counters"}:
            assert problem in found, seed


@pytest.mark.usefixtures("in_parts")
def test_random_damage_is_found_in_small_parts_as_in_one(db: Database) -> None:
    damaged = 0
    for seed in range(SEEDS):
        found, naive = both(db, seed)
        require_same(found, naive, seed)
        damaged += bool(naive)
    assert damaged > SEEDS / 2


def test_random_damage_is_found_in_one_part_too(db: Database) -> None:
    for seed in range(1000, 1000 + SEEDS):
        require_same(*both(db, seed), seed)


@pytest.mark.usefixtures("in_parts")
def test_more_differences_than_memory_is_set_aside_for(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of one bucket are named, and the number of rows says that there are more."""
    monkeypatch.setattr(checking, "COMPARED", 1)
    pages = db._index.further[0]
    with contextlib.suppress(Undone), db._environment.write() as txn:
        with txn.cursor(pages.name) as cursor:
            assert cursor.first()
            rows = len(unpack_rows(cursor.value(), pages.columns)[0])
            cursor.delete()
        found = list(check_view(View(txn, db._index, db._catalog)))
        raise Undone
    assert {problem.where for problem in found} == {pages.name}
    *named, last = (problem.what for problem in found)
    assert 0 < len(named) < rows
    assert last.startswith("it has ")
    assert last.endswith("; only some of the rows that differ are named")


@pytest.mark.usefixtures("in_parts")
def test_tables_of_another_database_are_wrong_altogether(db: Database) -> None:
    """All buckets differ, and are read in groups."""

    def exchange(txn: WriteTransaction, pages: Pages) -> None:
        with txn.cursor(pages.name) as cursor:
            entries = [
                (bytes(key), unpack_rows(bytes(value), pages.columns)) for key, value in cursor
            ]
        for key, rows in entries:
            txn.delete(pages.name, key)
            changed = [rows[0] ^ np.uint64(1 << 20), *rows[1:]]
            order = np.lexsort(changed[::-1])
            changed = [column[order] for column in changed]
            data = pack_rows(changed, Shape([0] * pages.columns, [8] * pages.columns, 0))
            txn.put(pages.name, pages.first_key(changed), data)

    for pages in (db._index.home, db._index.further[-1], *db._catalog.pages):
        with contextlib.suppress(Undone), db._environment.write() as txn:
            exchange(txn, pages)
            found = list(check_view(View(txn, db._index, db._catalog)))
            require_same(found, Naive(txn, db).problems, 0)
            assert len(found) > DOCUMENTS / 2
            raise Undone


def test_of_a_sound_database_nothing_is_read_again(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gather(*_: Any) -> None:
        raise AssertionError("rows are compared one by one")

    monkeypatch.setattr(checking._Comparison, "_rows_in", gather)
    assert list(db.check()) == []


def test_an_empty_page_is_reported(db: Database) -> None:
    for pages in (db._index.home, *db._index.further, *db._catalog.pages):
        with contextlib.suppress(Undone), db._environment.write() as txn:
            with txn.cursor(pages.name) as cursor:
                assert cursor.first()
                key = (int.from_bytes(cursor.key()) + 1).to_bytes(pages.key_width)
            txn.put(
                pages.name,
                key,
                pack_rows(pages.empty(), Shape([0] * pages.columns, [8] * pages.columns, 0)),
            )
            found = list(check_view(View(txn, db._index, db._catalog)))
            raise Undone
        what = f"page {key.hex()} has the wrong key, expected "
        assert found[0] == Problem(pages.name, what)
        # Lookups that end on the empty page don't find the rows of the page before.
        assert {problem.where for problem in found} == {pages.name}


def test_an_id_that_stands_twice_doesnt_hide_a_row_of_no_document(db: Database) -> None:
    """It has two rows in `ids` and two at home, but only one of these belongs to it."""
    catalog, home = db._catalog, db._index.home
    if not isinstance(catalog, IntegerCatalog) or db.plan.bits == 32:
        return  # of 32 bits, `ids` has all
    document = db[200]
    assert document.fingerprint is not None
    fingerprints = to_array([document.fingerprint ^ 1], db.plan.bits)
    with contextlib.suppress(Undone), db._environment.write() as txn:
        row = [*as_words(fingerprints), np.array([200], np.uint64)]
        home.splice(txn, row, home.empty())
        with txn.cursor("ids") as cursor:
            entries = [(bytes(key), unpack_rows(bytes(value), 3)) for key, value in cursor]
        key, rows = next(entry for entry in reversed(entries) if entry[1][0][0] <= 200)
        at = int(rows[0].searchsorted(200))
        rows = [np.insert(column, at, column[at]) for column in rows]
        rows[2][at + 1] += np.uint64(1)
        txn.put("ids", key, pack_rows(rows, Shape([0] * 3, [8] * 3, 0)))
        found = list(check_view(View(txn, db._index, db._catalog)))
        naive = Naive(txn, db).problems
        raise Undone
    short = db.stats().short
    require_same(found, naive, 0)
    rows = len(db) - short
    assert Problem(home.name, f"it has {rows + 1:,} rows, expected {rows:,}") in found


@pytest.mark.parametrize(
    "change",
    [
        {"key": None},
        {"fingerprint": b"123"},
        {"fingerprint": None},
        {"added": -1},
        {"added": "today"},
        {"digest": "text"},
        {"meta": None},
        {"characters": "many"},
    ],
    ids=str,
)
def test_a_record_with_fields_of_another_kind_is_reported(
    db: Database, change: dict[str, Any]
) -> None:
    """Whoever wrote it gave it a fine checksum."""
    number = db[named(7, db.keys)].id.to_bytes(8)
    with contextlib.suppress(Undone), db._environment.write() as txn:
        fields = msgpack.unpackb((txn.get("documents", number) or b"")[4:])
        for name, value in change.items():
            fields[RECORD.index(name)] = value
        body = msgpack.packb(fields)
        txn.put("documents", number, xxhash.xxh3_64_digest(body)[-4:] + body)
        found = list(check_view(View(txn, db._index, db._catalog)))
        raise Undone
    what = f"the document {int.from_bytes(number)}: its fields aren't those of a document"
    assert found == [Problem("documents", what)]


def test_a_record_under_no_id_is_reported(db: Database) -> None:
    with contextlib.suppress(Undone), db._environment.write() as txn:
        value = bytes(txn.get("documents", db[named(7, db.keys)].id.to_bytes(8)) or b"")
        txn.put("documents", b"\1\2", value)
        found = list(check_view(View(txn, db._index, db._catalog)))
        raise Undone
    what = "the document 0102…: its fields aren't those of a document"
    assert found == [Problem("documents", what)]


# Digests


def test_digests_differ_in_the_buckets_of_what_differs() -> None:
    mixer, dice = scan.Mixer(), np.random.default_rng(3)
    rows = [dice.integers(0, 1 << 64, 5000, np.uint64) for _ in range(2)]
    one, other = scan.Digest(), scan.Digest()
    mixed = mixer.rows(rows)
    one.add(mixed)
    other.add(mixed[::-1][:3000])
    other.add(mixed[::-1][3000:])
    assert not one.differs(other).any()
    rows[1][7] ^= np.uint64(1)
    extra = mixer.rows([column[7:8] for column in rows])
    other.add(extra)
    assert one.differs(other).nonzero()[0].tolist() == scan.buckets_of(extra).tolist()


def test_any_single_row_that_differs_is_found() -> None:
    """Rows that differ in one bit, are exchanged, dropped or repeated change the digest."""
    mixer, dice = scan.Mixer(), np.random.default_rng(5)
    rows = [dice.integers(0, 1 << 64, 300, np.uint64) for _ in range(2)]
    plain = scan.Digest()
    plain.add(mixer.rows(rows))
    for place in range(300):
        for bit in (0, 31, 63):
            changed = [column.copy() for column in rows]
            changed[bit % 2][place] ^= np.uint64(1 << bit)
            exchanged = [column.copy() for column in rows]
            exchanged[0][[place, place - 1]] = exchanged[0][[place - 1, place]]
            dropped = [np.delete(column, place) for column in rows]
            repeated = [np.append(column, column[place]) for column in rows]
            for others in (changed, exchanged, dropped, repeated):
                digest = scan.Digest()
                digest.add(mixer.rows(others))
                assert plain.differs(digest).any()


def test_rows_with_exchanged_numbers_have_another_mix() -> None:
    mixer = scan.Mixer()
    one, other = np.arange(1000, dtype=np.uint64), np.arange(1000, 2000, dtype=np.uint64)
    mixes = [mixer.rows(rows) for rows in ([one, other], [other, one], [one], [other])]
    assert len({number for mixed in mixes for number in mixed.tolist()}) == 4000


def test_each_mixer_has_seeds_of_its_own() -> None:
    rows = [np.arange(10, dtype=np.uint64)]
    assert (scan.Mixer().rows(rows) != scan.Mixer().rows(rows)).all()


# Memory


def peak(path: Path, damage: bool) -> int:
    with fpdb.open(path) as db, contextlib.suppress(Undone), db._environment.write() as txn:
        if damage:
            pages = db._index.further[0]
            entry = Damager(txn, db, random.Random(1)).some_entry(pages.name)
            assert entry is not None
            txn.delete(pages.name, entry[0])
        tracemalloc.start()
        count = sum(1 for _ in check_view(View(txn, db._index, db._catalog)))
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (count > 0) == damage
        raise Undone
    return size


@pytest.mark.full
@pytest.mark.parametrize("damage", [False, True], ids=["sound", "damaged"])
def test_memory_doesnt_grow_with_the_documents(
    tmp_path_factory: pytest.TempPathFactory,
    keys: str,
    damage: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scan, "ROWS", 1 << 12)
    monkeypatch.setattr(scan, "RECORDS", 1 << 10)
    monkeypatch.setattr(checking, "COMPARED", 1 << 11)
    monkeypatch.setattr(checking, "HELD", 1 << 12)
    peaks = []
    for count in (100, 5_000, 25_000):  # the first time, other things are imported and kept
        path = tmp_path_factory.mktemp("large") / "db"
        with fpdb.create(path, recipe=RECIPE, keys=keys, plan=choose_plan(64, 1), k=1) as db:
            numbers = np.random.default_rng(count).integers(0, 1 << 64, count, np.uint64)
            db.add_fingerprints([named(n, keys) for n in range(count)], numbers)
        peaks.append(peak(path, damage))
    assert peaks[2] < 1.3 * peaks[1] + 500_000
    assert peaks[2] < 4_000_000


# The header


def header_problems(db: Database, change: Callable[[dict[str, Any]], None]) -> list[Problem]:
    with contextlib.suppress(Undone), db._environment.write() as txn:
        head = unpack_header(txn.get("header", b"header") or b"")
        change(head)
        txn.put("header", b"header", pack_header(head))
        found = list(check_view(View(txn, db._index, db._catalog)))
        raise Undone
    return found


def test_a_damaged_header_is_reported(db: Database) -> None:
    with contextlib.suppress(Undone), db._environment.write() as txn:
        data = bytearray(txn.get("header", b"header") or b"")
        data[-1] ^= 1
        txn.put("header", b"header", bytes(data))
        found = list(check_view(View(txn, db._index, db._catalog)))
        raise Undone
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
        ("plan", choose_plan(64, 1).to_dict(), "the plan is 2 tables"),
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
