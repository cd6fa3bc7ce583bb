"""Bad use: each is one named error with a hint that cures, and nothing stored is lost by it."""

import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdb
from fpdb import Database, Document
from fpdb.documents.layout import database_names
from fpdb.errors import (
    ClosedError,
    DamagedError,
    DatabaseExistsError,
    DocumentNotFoundError,
    FormatError,
    FpdbError,
    InputError,
    PlanError,
    ReadOnlyError,
    RecipeError,
    RecipeMismatchError,
)
from fpdb.storage.format import pack_header
from fpdb.storage.seal import seal
from fpdb.tables.plan import choose_plan

Run = Callable[..., str]
Entries = dict[str, list[tuple[bytes, bytes]]]

TEXT = "the quick brown fox jumps over the lazy dog"
BOTH_WAYS = pytest.mark.parametrize("readonly", [False, True], ids=["writable", "read-only"])


def fill(db: Database) -> None:
    """A text, a short text, metadata, and fingerprints that take several pages."""
    dice = random.Random(5)
    integer = db.stats().keys == "integer"
    names: list[Any] = list(range(900)) if integer else [f"page/{n:03d}" for n in range(900)]
    db.add_fingerprints(names, [dice.getrandbits(db.plan.bits) for _ in names])
    list(db.add_many([Document(names[3], TEXT, {"n": 1}), Document(names[4], "short")]))


def entries(db: Database) -> Entries:
    """Everything that a database holds, byte by byte."""
    names = database_names(db._index, db._catalog)
    found: Entries = {}
    with db._environment.read() as txn:
        for name in names:
            with txn.cursor(name) as cursor:
                found[name] = [(bytes(key), bytes(value)) for key, value in cursor]
    return found


def refused(error: type[FpdbError], use: Callable[[], Any]) -> FpdbError:
    """Use it badly; the error must be of this very class."""
    with pytest.raises(error) as caught:
        use()
    assert type(caught.value) is error
    assert str(caught.value)
    assert len(caught.value.hint) > 10
    return caught.value


def files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir() if file.name != "lock.mdb"}


@pytest.fixture
def filled(db: Database) -> Database:
    fill(db)
    return db


@pytest.fixture
def closed(filled: Database) -> Path:
    """The path of a database with documents that nobody has open."""
    filled.close()
    return filled.path


# Creating


def test_a_database_isnt_created_over_another(closed: Path) -> None:
    before = files(closed)
    refused(DatabaseExistsError, lambda: fpdb.create(closed))
    assert files(closed) == before


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (RecipeError, {"recipe": "no such recipe"}),
        (PlanError, {"k": -1}),
        (PlanError, {"k": 25}),
        (PlanError, {"recipe": "bigram-32", "k": 16}),
        (InputError, {"capacity": 0}),
        (PlanError, {"plan": fpdb.plans(128, 3, 1000)[0]}),
        (PlanError, {"k": 3, "plan": fpdb.plans(64, 2, 1000)[0]}),
        (InputError, {"keys": "both"}),
    ],
    ids=str,
)
def test_what_cant_be_created_leaves_nothing_behind(
    tmp_path: Path, error: type[FpdbError], options: dict[str, Any]
) -> None:
    refused(error, lambda: fpdb.create(tmp_path / "db", **options))
    assert list(tmp_path.iterdir()) == []


# Headers


def rewrite_header(db: Database, **changes: Any) -> None:
    with db._environment.write() as txn:
        txn.put("header", b"header", pack_header({**db._header, **changes}))


def test_a_database_for_newer_writers_can_be_read(filled: Database) -> None:
    before = entries(filled)
    rewrite_header(filled, write_version=3)
    error = refused(FormatError, lambda: fpdb.open(filled.path))
    assert "needs a writer of version 3" in str(error)
    assert error.hint == "open it to read only, or install a newer fpdb"
    with fpdb.open(filled.path, readonly=True) as reader:
        assert len(list(reader)) == 900
        assert [match.key for match in reader.query(TEXT)] == ["page/003"]
        assert list(reader.check()) == []
    after = entries(filled)
    assert {**after, "header": None} == {**before, "header": None}


@BOTH_WAYS
@pytest.mark.parametrize(
    ("error", "changes"),
    [
        (DamagedError, {"keys": "of another kind"}),
        (DamagedError, {"keys": 5}),
        (DamagedError, {"plan": []}),
        (DamagedError, {"similarity": None}),
        (InputError, {"similarity": "0.8"}),
        (DamagedError, {"plan": choose_plan(64, 3).to_dict()}),  # which has no bands
        (PlanError, {"plan": {}}),
        (PlanError, {"plan": {"bits": 64, "k": 3, "tables": []}}),
    ],
    ids=str,
)
def test_a_header_that_says_nonsense_is_refused(
    filled: Database, error: type[FpdbError], changes: dict[str, Any], readonly: bool
) -> None:
    rewrite_header(filled, **changes)
    refused(error, lambda: fpdb.open(filled.path, readonly=readonly))
    rewrite_header(filled)
    with fpdb.open(filled.path, readonly=readonly) as again:
        assert list(again.check()) == []


# Wrong arguments: of a database with either kind of keys


WRONG_KEYS: dict[str, list[Any]] = {
    "text": ["", 5, None, b"bytes", "x" * 65_537, "half a pair \ud800", ("a",)],
    "integer": ["5", -1, 2**64, 1.0, None, True],
}
WRONG_NUMBERS: list[Any] = [2**64, -1, 1.5, "12", None, 2**200]


@pytest.fixture(params=["text", "integer"])
def either(request: pytest.FixtureRequest, db: Database, numbered: Database) -> Database:
    chosen = {"text": db, "integer": numbered}[str(request.param)]
    fill(chosen)
    return chosen


def wrong_uses(db: Database) -> list[tuple[type[FpdbError], Callable[[], Any]]]:
    kind = db.stats().keys
    good: Any = 7000 if kind == "integer" else "new"
    uses: list[tuple[type[FpdbError], Callable[[], Any]]] = []
    if kind == "integer":
        uses.append((InputError, lambda: list(db.scan(prefix="a"))))
    for key in WRONG_KEYS[kind]:
        uses += [
            (InputError, lambda key=key: db.add(key, TEXT)),
            (InputError, lambda key=key: db.add(key, TEXT, skip_duplicates=True)),
            (InputError, lambda key=key: list(db.add_many([Document(key, fingerprint=1)]))),
            (InputError, lambda key=key: db.add_fingerprints([good, key], [1, 2])),
            (InputError, lambda key=key: db.delete(key)),
            (InputError, lambda key=key: db.delete_many([next(iter(db)), key])),
            (InputError, lambda key=key: db.get(key)),
            (InputError, lambda key=key: key in db),
        ]
    for number in WRONG_NUMBERS:
        uses += [
            (InputError, lambda n=number: db.query_fingerprint(n)),
            (InputError, lambda n=number: db.add_fingerprints([good], [n])),
        ]
        if number is not None:
            wrong = Document(good, fingerprint=number)
            uses.append((InputError, lambda d=wrong: list(db.add_many([d]))))
    for text in (b"text", 3, ["text"]):
        wrong = Document(good, text, fingerprint=1)
        uses.append((InputError, lambda d=wrong: list(db.add_many([d]))))
    for array in (np.zeros(1, np.int64), np.zeros((1, 2), np.uint64), np.zeros(1, np.float64)):
        uses.append((InputError, lambda a=array: db.add_fingerprints([good], a)))
    for use in (
        lambda some: db.add_fingerprints(some, [1, 2]),
        lambda some: db.add_fingerprints([good, next(iter(db))], some),
        lambda some: list(db.add_many([some])),
        lambda some: list(db.query_many(some)),
    ):
        uses += [(InputError, lambda use=use, some=some: use(some)) for some in ("ab", b"ab", 3)]
    for name, wrong in (("memory", 1000), ("memory", "1G"), ("memory", True), ("k", "5")):
        uses.append((InputError, lambda o={name: wrong}: db.compact(f"{db.path}-new", **o)))
    uses.append((InputError, lambda: db.add_fingerprints([good], [1], memory=1000)))
    for name, value in (("k", 3.5), ("k", "3"), ("k", True), ("limit", 1.5)):
        uses.append((InputError, lambda o={name: value}: db.query_fingerprint(0, **o)))
    for k in (-1, 65):
        uses += [
            (PlanError, lambda k=k: db.query(TEXT, k=k)),
            (PlanError, lambda k=k: db.query("short", k=k)),
            (PlanError, lambda k=k: list(db.query_many([TEXT], k=k))),
            (PlanError, lambda k=k: db.query_fingerprint(1, k=k)),
            (PlanError, lambda k=k: db.query_fingerprints([1], k=k)),
        ]
    for k in (-1, 65, 40):  # a join needs the tables, which a query doesn't
        uses += [(PlanError, lambda k=k: db.pairs(k=k)), (PlanError, lambda k=k: db.clusters(k=k))]
    for limit in (0, -1):
        uses += [
            (InputError, lambda n=limit: db.query(TEXT, limit=n)),
            (InputError, lambda n=limit: db.query("short", limit=n)),
            (InputError, lambda n=limit: list(db.query_many([], limit=n))),
            (InputError, lambda n=limit: db.query_fingerprint(1, limit=n)),
        ]
    return [
        *uses,
        (InputError, lambda: db.add_fingerprints([good], [1, 2])),
        (InputError, lambda: list(db.add_many([Document(good, TEXT), Document(good)]))),
        (InputError, lambda: list(db.add_many([Document(good, TEXT), Document(good, "", b"x")]))),
        (InputError, lambda: db.add(good, TEXT, {1: 2})),
        (InputError, lambda: db.add(good, TEXT, "x" * (1 << 16))),
        (InputError, lambda: db.add(good, TEXT, object())),
        (DocumentNotFoundError, lambda: db[good]),
        (RecipeMismatchError, lambda: fpdb.open(db.path, recipe="web")),
        (RecipeMismatchError, lambda: fpdb.open(db.path, k=2)),
        (RecipeError, lambda: fpdb.open(db.path, recipe="no such recipe")),
    ]


def test_a_wrong_argument_changes_nothing(either: Database) -> None:
    before = entries(either)
    uses = wrong_uses(either)
    assert len(uses) > 80
    for error, use in uses:
        refused(error, use)
    assert entries(either) == before
    assert list(either.check()) == []


WRITES: list[Callable[[Database], Any]] = [
    lambda db: db.add("new", TEXT),
    lambda db: db.add("page/003", "another text of several words"),
    lambda db: list(db.add_many([Document("new", fingerprint=1)], skip_duplicates=True)),
    lambda db: db.add_fingerprints(["new"], [1]),
    lambda db: db.delete("page/003"),
    lambda db: db.delete_many(["page/003", "page/004"]),
]
READS: list[Callable[[Database], Any]] = [
    lambda db: db.query(TEXT),
    lambda db: db.query("short"),
    lambda db: db.query_fingerprint(0),
    lambda db: list(db.query_many([TEXT])),
    lambda db: db.get("page/003"),
    lambda db: db["page/003"],
    lambda db: "page/003" in db,
    len,
    list,
    lambda db: list(db.scan()),
    lambda db: db.stats(),
    lambda db: list(db.check()),
]


def test_a_read_only_handle_changes_nothing(filled: Database) -> None:
    before = entries(filled)
    with fpdb.open(filled.path, readonly=True) as reader:
        for write in WRITES:
            refused(ReadOnlyError, lambda write=write: write(reader))
        for read in READS:
            read(reader)
    assert entries(filled) == before


def test_a_closed_handle_neither_reads_nor_writes(filled: Database) -> None:
    before = entries(filled)
    with fpdb.open(filled.path) as other:
        pass
    for use in (*WRITES, *READS):
        refused(ClosedError, lambda use=use: use(other))
    assert entries(filled) == before


# The machine says no


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

AS_NOBODY = """
import json, tempfile
from fpdb.errors import AccessError
with tempfile.TemporaryDirectory() as folder:
    # What is imported on first use may lie where only root can read it.
    fpdb.create(folder + "/db", recipe=TINY).close()
    fpdb.open(folder + "/db").close()
os.setegid(65534)
os.seteuid(65534)

def attempt(use):
    try:
        with use() as db:
            print(json.dumps(["opened", len(db), ""]))
    except AccessError as error:
        assert type(error) is AccessError
        print(json.dumps(["refused", str(error), error.hint]))
"""


@pytest.fixture
def reachable(closed: Path) -> Iterator[Path]:
    """A database in a directory that lets every user through, as pytest's own doesn't."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        copy = shutil.copytree(closed, Path(folder, "db"))
        seal(copy)  # as another user, this Python can't start the process that verifies it
        yield copy


@needs_root
@pytest.mark.parametrize("parent", [False, True], ids=["inside", "beside"])
def test_a_read_only_directory_is_refused(reachable: Path, run: Run, parent: bool) -> None:
    """Its owner may not write it: neither open what lacks its lock files, nor create."""
    if parent:
        what = "attempt(lambda: fpdb.create(argv[0] + '-new', recipe=TINY))"
    else:
        for name in ("lock.mdb", "fpdb.lock"):
            (reachable / name).unlink(missing_ok=True)
        for file in (reachable, *reachable.iterdir()):
            os.chown(file, 65534, 65534)
        seal(reachable)  # which names the time of this change
        reachable.chmod(0o500)
        what = "attempt(lambda: fpdb.open(argv[0]))"
    before = files(reachable)
    if '"opened"' in (out := run(AS_NOBODY + what, reachable)):
        pytest.skip("the file system lets another user write a read-only directory")
    outcome, message, hint = json.loads(out)
    assert outcome == "refused"
    assert "user 65534 may not" in message
    assert "enter" not in message
    assert hint
    assert files(reachable) == before
    assert sorted(file.name for file in reachable.parent.iterdir()) == ["db"]
    if not parent:
        reachable.chmod(0o700)
        assert run(AS_NOBODY + what, reachable) == '["opened", 900, ""]\n'
