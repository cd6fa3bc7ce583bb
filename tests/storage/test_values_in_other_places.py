"""A value that is intact, but lies where another one belongs, is an error at its first read."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

import fpdb
from fpdb import DamagedError, Database, Document
from fpdb.documents.catalog import key_pages
from fpdb.storage.format import Counters, pack_header, unpack_header

pytestmark = pytest.mark.slow("its cases damage databases value by value, 5 s together")

COUNT = 2000
NUMBERS = np.random.default_rng(8).integers(0, 2**64, COUNT, np.uint64)
TEXT = "the library lends books for four weeks and whoever keeps them longer pays a fee "
# No two of them resemble each other, or the pairs would take most of the time.
TEXTS = [" ".join(f"{number * place:x}" for place in range(9, 40)) for number in range(1, 301)]


def named(keys: str, number: int) -> Any:
    return number if keys == "integer" else f"k{number:05d}"


@pytest.fixture(params=["text", "integer"], scope="module")
def sound(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    path = tmp_path_factory.mktemp("sound") / "db"
    with fpdb.create(path, recipe="char-4", keys=request.param) as made:
        made.add_fingerprints([named(made.key_type, n) for n in range(COUNT)], NUMBERS)
        list(
            made.add_many(
                Document(named(made.key_type, COUNT + n), text, {"n": n})
                for n, text in enumerate(TEXTS)
            )
        )
        for number in range(COUNT + 300, COUNT + 310):
            made.add(named(made.key_type, number), f"a b {number}")
        yield made


@pytest.fixture
def db(sound: Database, tmp_path: Path) -> Iterator[Database]:
    sound.backup(tmp_path / "db")
    with fpdb.open(tmp_path / "db") as copy:
        yield copy


def entries(db: Database, name: str) -> list[tuple[bytes, bytes]]:
    with db._environment.read() as txn, txn.cursor(name) as cursor:
        return [(bytes(key), bytes(value)) for key, value in cursor]


def exchange(db: Database, name: str, other: str | None = None, place: int = 1) -> None:
    """Put two values in the place of each other: of one sub-database, or of two."""
    one = entries(db, name)[place]
    two = entries(db, other)[place] if other else entries(db, name)[place + 1]
    with db._environment.write() as txn:
        txn.put(name, one[0], two[1])
        txn.put(other or name, two[0], one[1])


def read_everything(db: Database) -> dict[str, Callable[[], object]]:
    """Name each way of reading, so that a failure says which one answered."""
    keys = [named(db.key_type, number) for number in range(COUNT + 310)]
    return {
        "scan": lambda: list(db.scan()),
        "gets": lambda: [db.get(key) for key in keys[1::3]],
        "queries": lambda: [db.query_fingerprint(int(number)) for number in NUMBERS[::15]],
        "batch": lambda: db.query_fingerprints(NUMBERS),
        "pairs": lambda: list(db.pairs(k=db.k)),
        "similar queries": lambda: [db.query(text) for text in TEXTS[::6]],
        "similar batch": lambda: list(db.query_many(TEXTS)),
        "similar pairs": lambda: list(db.pairs()),
    }


def refusing(db: Database) -> set[str]:
    refused = set()
    for name, read in read_everything(db).items():
        try:
            read()
        except DamagedError:
            refused.add(name)
    return refused


def second_key(db: Database) -> None:
    """Put a page under a second key, too."""
    (first, _), (_, other) = entries(db, "table-01")[1:3]
    with db._environment.write() as txn:
        txn.put("table-01", first, other)


BITS = {"queries", "batch", "pairs"}
SIMILAR = {"similar queries", "similar batch", "similar pairs"}


@pytest.mark.parametrize(
    ("spoil", "wrong"),
    [
        (lambda db: exchange(db, "table-00"), BITS),
        (lambda db: exchange(db, "table-01", "table-02"), BITS),  # with the same columns
        (second_key, BITS),
        (lambda db: exchange(db, "bands"), SIMILAR),
    ],
    ids=["one table", "two tables", "a second key", "bands"],
)
def test_pages_of_tables(db: Database, spoil: Callable[[Database], None], wrong: set[str]) -> None:
    spoil(db)
    assert refusing(db) >= wrong
    assert any("page" in problem.what for problem in db.check())


def test_records_of_other_ids(db: Database) -> None:
    exchange(db, "documents")
    assert refusing(db) >= {"scan", "gets"}
    with pytest.raises(DamagedError):
        db.compact(db.path.with_name("compacted"))
    assert not db.path.with_name("compacted").exists()


def test_ids_that_are_none(db: Database) -> None:
    with db._environment.read() as txn, pytest.raises(DamagedError, match="64 bits"):
        db._catalog.record(txn, 1 << 64)


def test_keys_that_lead_elsewhere(tmp_path: Path) -> None:
    with fpdb.create(tmp_path / "db", recipe="char-4") as db:
        for number in range(3):
            db.add(f"k{number}", TEXT * 2 + str(number))
        with db._environment.write() as txn:
            key_pages.splice(txn, [(b"k1", 2), (b"k2", 1)], [])
            txn.delete("documents", bytes(8))
        for read in (
            lambda: db["k1"],
            lambda: list(db.scan(prefix="k1")),
            lambda: db.add("k1", TEXT),
        ):
            with pytest.raises(DamagedError, match="leads to the document"):
                read()
        with pytest.raises(DamagedError, match="isn't there"):
            db.get("k0")


def test_a_short_text_that_is_another(db: Database) -> None:
    (one, _), (two, _) = entries(db, "short")[:2]
    digests = {one[:16]: one, two[:16]: two}
    texts = [f"a b {number}" for number in range(COUNT + 300, COUNT + 310)]
    assert all(db.query(text) for text in texts)
    with db._environment.write() as txn:
        for key in digests.values():
            txn.delete("short", key)
        txn.put("short", one[:16] + two[16:], b"")
        txn.put("short", two[:16] + one[16:], b"")
    wrong = 0
    for text in texts:
        try:
            assert db.query(text)
        except DamagedError:
            wrong += 1
    assert wrong == 2


def test_header_and_counters_belong_to_their_sub_databases(db: Database) -> None:
    header, counters = dict(entries(db, "header")), dict(entries(db, "counters"))
    body = header[b"header"][8:]
    assert header[b"header"] == pack_header(unpack_header(header[b"header"]))
    assert header[b"header"][:8] != xxhash.xxh3_64_digest(body)
    forged = counters[b"counters"][:32] + xxhash.xxh3_64_digest(counters[b"counters"][:32])
    with pytest.raises(DamagedError):
        Counters.unpack(forged)
