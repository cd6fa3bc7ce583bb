"""Wrong clocks, masked arrays, arrays that change, shared metadata; wrong keys and texts."""

import errno
import io
import json
import pickle
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdb
from fpdb import Database, Document, Recipe
from fpdb.cli.output import format_time
from fpdb.database import BATCH
from fpdb.documents.catalog import IntegerCatalog
from fpdb.errors import InputError
from fpdb.models import LATEST

TEXT = "the quick brown fox jumps over the lazy dog"
CLOCKS = {
    "before 1970": (-100.5, 0),
    "2200": (7_258_118_400.0, 7_258_118_400),
    "after 9999": (float(LATEST + 1), LATEST),
    "2^64": (2.0**64, LATEST),
    "before all time": (-(2.0**63), 0),
}
NUMBERS = np.arange(1, 3001, dtype=np.uint64) << np.uint64(40)


@pytest.mark.parametrize("keys", ["text", "integer"])
@pytest.mark.parametrize(("seconds", "stored"), CLOCKS.values(), ids=CLOCKS)
def test_whatever_the_clock_shows_documents_are_stored_and_read(
    tmp_path: Path,
    tiny: Recipe,
    monkeypatch: pytest.MonkeyPatch,
    keys: str,
    seconds: float,
    stored: int,
) -> None:
    monkeypatch.setattr(time, "time", lambda: seconds)
    names: list[Any] = list(range(10, 10 + BATCH + 5))
    one, other = (3, 4) if keys == "integer" else ("3", "4")
    if keys == "text":
        names = [f"page/{name}" for name in names]
    with fpdb.create(tmp_path / "x", recipe=tiny, keys=keys) as db:
        db.add_fingerprints(names, NUMBERS[: len(names)])
        db.add(one, TEXT, {"n": 1})
        list(db.add_many([Document(other, "short")]))
        db.add_fingerprints(names[:1], NUMBERS[-1:])
        assert {document.added for document in db.scan()} == {stored}
        assert db.get(one) is not None
        assert format_time(stored)
        assert format_time(db.stats().created)
        assert list(db.check()) == []
        dumped = io.BytesIO()
        db.dump(dumped)
        db.compact(tmp_path / "smaller")
    with fpdb.open(tmp_path / "smaller") as smaller:
        assert list(smaller.check()) == []
    dumped.seek(0)
    fpdb.load(tmp_path / "y", dumped)
    with fpdb.open(tmp_path / "y", readonly=True) as again:
        assert len(again) == len(names) + 2
        assert {document.added for document in again.scan()} == {stored}


MASK = np.arange(3000) == 7
TAKERS: dict[str, Callable[[Database, Any], object]] = {
    "keys": lambda db, some: db.add_fingerprints(some, NUMBERS),
    "fingerprints": lambda db, some: db.add_fingerprints(NUMBERS, some),
    "queries": lambda db, some: list(db.query_fingerprints(some)),
    "deleted keys": lambda db, some: db.delete_many(some),
    "texts": lambda db, some: db.recipe.batch(some.astype(str)),
}


@pytest.mark.parametrize("take", TAKERS.values(), ids=TAKERS)
def test_masked_values_are_refused_and_a_mask_of_none_is_ignored(
    numbered: Database, take: Callable[[Database, Any], object]
) -> None:
    with pytest.raises(InputError, match="1 masked value") as caught:
        take(numbered, np.ma.masked_array(NUMBERS, MASK))
    assert "compressed" in caught.value.hint
    assert not len(numbered)
    take(numbered, np.ma.masked_array(NUMBERS, False))


@pytest.mark.parametrize("stored", [0, 10])
def test_an_array_that_changes_meanwhile_is_stored_as_it_was(
    numbered: Database, stored: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbered.add_fingerprints(range(stored), range(stored))
    keys, numbers = NUMBERS.copy(), NUMBERS.copy()
    looked_up = IntegerCatalog.ids_of

    def changing(self: IntegerCatalog, *arguments: Any) -> Any:
        # As another thread would at this moment.
        thread = threading.Thread(target=lambda: (keys.fill(5), numbers.fill(6)))
        thread.start()
        thread.join()
        return looked_up(self, *arguments)

    monkeypatch.setattr(IntegerCatalog, "ids_of", changing)
    assert numbered.add_fingerprints(keys, numbers) == len(NUMBERS)
    monkeypatch.undo()
    assert list(numbered.check()) == []
    assert all(document.key == document.fingerprint for document in numbered.scan())


def shared(levels: int, leaf: Any) -> Any:
    for _ in range(levels):
        leaf = [leaf, leaf]
    return leaf


SHARED = {
    "lists": shared(31, []),
    "maps": {"a": [{"b": shared(28, {"c": 1})}]},
    "tuples": shared(30, ()),
    "texts": ["x" * 60_000] * 60_000,
    "names": [{"x" * 60_000: 1}] * 60_000,
    "bytes": [b"x" * 60_000] * 60_000,
}


@pytest.mark.parametrize("meta", SHARED.values(), ids=SHARED)
def test_metadata_that_shares_its_parts_is_counted_as_it_would_be_stored(
    db: Database, meta: Any
) -> None:
    start = time.process_time()
    with pytest.raises(InputError, match="at most 65,536 are allowed"):
        db.add("key", TEXT, meta)
    assert time.process_time() - start < 1
    few = shared(5, [1])
    db.add("key", TEXT, few)
    stored = db.get("key")
    assert stored is not None
    assert stored.meta == json.loads(json.dumps(few))


def test_what_is_an_error_of_the_system_has_its_number(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        fpdb.open(tmp_path / "none")
    assert missing.value.errno == errno.ENOENT
    full = fpdb.DiskFullError("no room", hint="make room", path=tmp_path)
    assert (full.errno, full.filename, str(full)) == (errno.ENOSPC, tmp_path, "no room")
    again = pickle.loads(pickle.dumps(full))
    assert (again.errno, again.path, again.hint) == (errno.ENOSPC, tmp_path, "make room")
    numbers = {errno.ENOENT, errno.EEXIST, errno.EACCES, errno.ENOSPC, errno.ETIMEDOUT}
    kinds = [kind for kind in vars(fpdb.errors).values() if isinstance(kind, type)]
    assert {kind.errno for kind in kinds if issubclass(kind, OSError)} == numbers


@pytest.mark.parametrize("kind", [np.float32, np.float64, Fraction])
def test_a_similarity_is_any_real_number(tmp_path: Path, kind: Any) -> None:
    similarity = kind("0.8")
    with fpdb.create(tmp_path / "db", similarity=similarity, capacity=np.int64(9)) as db:
        assert (db.similarity, type(db.similarity)) == (0.8, float)
        db.add("a", TEXT)
        assert len(db.query(TEXT, similarity=similarity)) == 1
    records = [{"text": TEXT}, {"text": TEXT}]
    assert len(list(fpdb.dedupe(records, similarity=similarity))) == 1


@pytest.mark.parametrize("similarity", [10**400, -(10**400), np.float32("nan")])
def test_a_similarity_that_is_no_share_is_refused(similarity: float) -> None:
    with pytest.raises(fpdb.InputError, match="expected a number above 0, at most 1"):
        list(fpdb.dedupe([{"text": TEXT}], similarity=similarity))


@pytest.mark.parametrize("kind", [np.int64, np.uint8])
def test_a_whole_number_is_any_integral_one(tmp_path: Path, kind: Any) -> None:
    with fpdb.create(tmp_path / "db", k=kind(2)) as db:
        db.add("a", TEXT)
        db.add("b", TEXT)
        assert len(db.query(TEXT, k=kind(0), limit=kind(1))) == 1
    with fpdb.open(tmp_path / "db") as db:
        assert (db.k, type(db.k)) == (2, int)


def test_a_database_without_a_capacity_is_refused(tmp_path: Path) -> None:
    capacity: Any = None
    with pytest.raises(fpdb.InputError, match="capacity None, expected whole numbers"):
        fpdb.create(tmp_path / "db", capacity=capacity)
