"""One transaction of many documents: the pages that it touches, and the bytes of a record."""

import gc
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

import fpdb
from fpdb import Document, Grams, Recipe
from fpdb.documents.writer import Writer
from fpdb.errors import DamagedError
from fpdb.models import LATEST, PASSAGE_BYTES
from fpdb.storage import WriteTransaction
from fpdb.storage.format import (
    Counters,
    Stored,
    marks_in,
    pack_record,
    seed_of,
    unpack_record,
)
from fpdb.tables.plan import choose_plan

TINY = Recipe("tiny", clean=(), segment="whitespace", grams=Grams(minimum=3))


@pytest.fixture
def puts(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, bytes]]:
    """Count how often each key of each sub-database is written."""
    counted: Counter[tuple[str, bytes]] = Counter()
    original = WriteTransaction.put

    def put(self: WriteTransaction, name: str, key: bytes, value: Any) -> None:
        counted[name, bytes(key)] += 1
        original(self, name, key, value)

    monkeypatch.setattr(WriteTransaction, "put", put)
    return counted


@pytest.mark.parametrize("keys", ["text", "integer"])
def test_a_batch_touches_each_page_of_each_table_once(
    tmp_path: Path, keys: str, puts: Counter[tuple[str, bytes]]
) -> None:
    dice = np.random.default_rng(1)
    numbers = dice.integers(0, 2**64, 20_000, np.uint64).tolist()
    names = [n if keys == "integer" else f"{n:06d}" for n in range(20_000)]
    options: dict[str, Any] = {"recipe": TINY, "keys": keys, "plan": choose_plan(64, 3)}
    with fpdb.create(tmp_path / "db", similarity=None, **options) as db:
        db.add_fingerprints(names[:19_000], numbers[:19_000])
        pages = {table.name: table.pages for table in db.stats().tables}
        puts.clear()
        assert db.add_fingerprints(names[19_000:], numbers[19_000:]) == 1000
        written = Counter(name for name, _ in puts)
        # A page that overflows gives rows to the one before, which may be written already.
        assert max(puts.values()) <= 2
        for name, before in pages.items():
            # Some pages are full and split, and no page is left out of a batch this large.
            after = next(table.pages for table in db.stats().tables if table.name == name)
            assert before < after
            assert before * 0.9 < written[name] <= after
        puts.clear()
        assert db.delete_many(names[::20]) == 1000
        assert set(puts.values()) == {1}
        # Only the metadata change: the tables stay as they are.
        puts.clear()
        list(db.add_many([Document(names[1], meta=1, fingerprint=numbers[1])]))
        assert not [name for name, _ in puts if name.startswith("table")]
        # What is unchanged isn't written at all, but for the counters.
        puts.clear()
        assert db.add_fingerprints(names[19_000:19_010], numbers[19_000:19_010]) <= 1
        assert {name for name, _ in puts} <= {"counters", "documents", "keys", "ids", *pages}
        assert list(db.check()) == []


@pytest.mark.parametrize("keys", ["text", "integer"])
def test_a_batch_touches_each_page_of_the_bands_once(
    tmp_path: Path, keys: str, puts: Counter[tuple[str, bytes]]
) -> None:
    dice = np.random.default_rng(2)
    documents = [
        Document(n if keys == "integer" else f"{n:06d}", fingerprint=n, sketch=dice.bytes(128))
        for n in range(2000)
    ]
    with fpdb.create(tmp_path / "db", recipe=TINY, keys=keys) as db:
        list(db.add_many(documents[:1900]))
        before = db.stats().tables[-1].pages
        assert before > 10
        puts.clear()
        list(db.add_many(documents[1900:]))
        assert max(puts.values()) <= 2
        pages = db.stats().tables[-1].pages
        assert before * 0.9 < sum(name == "bands" for name, _ in puts) <= pages
        # Only the metadata change, or all but the sketch: the bands stay as they are.
        puts.clear()
        list(db.add_many(replace(each, meta=1, fingerprint=7) for each in documents[:20]))
        assert "bands" not in {name for name, _ in puts}
        # Another sketch in the place of one: its old rows go, with the new ones.
        puts.clear()
        list(db.add_many(replace(each, sketch=dice.bytes(128)) for each in documents[:20]))
        assert {puts[key] for key in puts if key[0] == "bands"} == {1}
        assert db.delete_many([each.key for each in documents[::10]]) == 200
        assert list(db.check()) == []


def test_a_record_is_read_whole_and_as_its_own_only() -> None:
    record = Stored(
        5, "https://ü.example/" * 3, 1 << 56 | 9, 1_750_000_000, b"d" * 16, b"\x81\xa1a\1", 7
    )
    data = pack_record(record, 64)
    assert unpack_record(data, 5, 64) == unpack_record(memoryview(data), 5, 64) == record
    for number in (4, 6, 5 + 2**32):
        with pytest.raises(DamagedError) as caught:
            unpack_record(data, number, 64)
        assert caught.value.hint
    for length in (0, 3, 4, 5, len(data) - 1):
        with pytest.raises(DamagedError):
            unpack_record(data[:length], 5, 64)


def test_the_bytes_of_a_record_stay_what_they_are() -> None:
    """The format of released databases: this must not change."""
    digest, sketch = b"d" * 16, bytes(range(128))
    data = pack_record(Stored(1, "k", 0x0102, 1000, digest, b"", 3), 16)
    assert data[4:] == b"\x0b" + digest + b"\1\2" + b"\xe8\3\0\0" + b"\3" + b"\1k"
    assert data[:4].hex() == "2b38217d"
    # With metadata and a sketch, whose digest is zeros if there is none.
    data = pack_record(Stored(1, "k", 0x0102, 1000, b"", b"m" * 300, 300, sketch), 16)
    marks = bytes(16) + sketch
    assert data[4:] == (
        b"\x1f" + marks + b"\1\2" + b"\xe8\3\0\0" + b"\xac\2" + b"\1k" + b"\xac\2" + b"m" * 300
    )
    # A short text with a number as its key, added late.
    data = pack_record(Stored(258, 258, None, 1 << 32, digest), 16)
    assert data[4:] == b"\x62" + digest + bytes(4) + b"\1" + b"\2\1\2"
    # With passages, whose flag is the first of the further ones.
    data = pack_record(Stored(1, "k", 0x0102, 1000, digest, b"m", 3, b"", b"p" * 10), 16)
    marks = digest + b"\1\2" + b"\xe8\3\0\0" + b"\3" + b"\1k"
    assert data[4:] == b"\x9b" + marks + b"\1m" + b"\1" + b"\x0a" + b"p" * 10


@given(
    key=st.text(min_size=1, max_size=300) | st.integers(0, 2**64 - 1),
    fingerprint=st.none() | st.integers(0, 2**64 - 1),
    added=st.integers(0, LATEST),
    digest=st.binary(min_size=16, max_size=16) | st.just(b""),
    meta=st.binary(max_size=300),
    characters=st.integers(0, 2**63),
    sketch=st.binary(min_size=128, max_size=128) | st.just(b""),
    passages=st.binary(max_size=60).map(lambda data: data * PASSAGE_BYTES),
)
@settings(max_examples=examples(200))
def test_records_come_back_whole(**fields: Any) -> None:
    record = Stored(7, **fields)
    if record.fingerprint is not None and not any(record.digest):
        record = record._replace(digest=b"")
    elif record.sketch and not record.digest:
        record = record._replace(digest=bytes(16))
    data = pack_record(record, 64)
    assert unpack_record(data, 7, 64) == record
    # What bulk loads read of it without the rest.
    ids, marks, fingerprints = marks_in(np.array([7], np.uint64), [memoryview(data)], 64)
    wanted = record.digest.ljust(16, b"\0") + record.sketch.ljust(128, b"\0")
    found = [(7, wanted, record.fingerprint)] if record.fingerprint is not None else []
    assert [*zip(ids.tolist(), map(bytes, marks), fingerprints.tolist(), strict=True)] == found


def test_what_no_record_says_is_damage() -> None:
    def broken(body: bytes) -> bytes:
        return xxhash.xxh3_64_digest(body, seed_of("documents"))[-4:] + body

    time = bytes(4)
    assert unpack_record(broken(b"\0" + time + b"\1k"), 0, 64) == Stored(0, "k", None, 0)
    for body in (
        b"\x80" + time + b"\1k",  # further flags that aren't there
        b"\x80" + time + b"\1k\0",  # none of them
        b"\x80" + time + b"\1k\1\0",  # passages of no bytes
        b"\x80" + time + b"\1k\1\4pppp",  # less than one
        b"\x80" + time + b"\1k\x80\1\1x",  # an unknown one
        b"\4" + bytes(128) + time + b"\1k",  # a sketch without a digest
        b"\0" + time + b"\1k ",  # more than a record
        b"\0" + time + b"\2k",  # less
        b"\0" + time + b"\1\xff",  # a key that isn't UTF-8
        b"\0" + time + b"\xff" * 10 + b"\1k",  # a number without an end
        b"\x10" + time + b"\1k\0",  # metadata of no bytes
    ):
        with pytest.raises(DamagedError, match="fields"):
            unpack_record(broken(body), 0, 64)


def test_the_bytes_of_counters_stay_what_they_are() -> None:
    counters = Counters(2**64 - 1, 3, 2, 7)
    data = counters.pack()
    assert len(data) == 40
    assert Counters.unpack(data) == Counters.unpack(memoryview(data)) == counters
    assert data[:32] == b"\xff" * 8 + b"\3" + bytes(7) + b"\2" + bytes(7) + b"\7" + bytes(7)
    for cut in (None, b"", data[:-1], data + b"x", data[:-1] + b"x"):
        with pytest.raises(DamagedError, match="the counters are damaged"):
            Counters.unpack(cut)


def test_damaged_counters_stop_a_write_before_it_begins(tmp_path: Path) -> None:
    with fpdb.create(tmp_path / "db", recipe=TINY) as db:
        db.add("a", "one two three")
        with db._environment.write() as txn:
            txn.put("counters", b"counters", bytes(40))
        with pytest.raises(DamagedError, match="counters"):
            db.add("b", "one two three")
        assert db.get("b") is None
        assert [match.key for match in db.query("one two three")] == ["a"]


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_is_off_while_documents_are_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: bool
) -> None:
    seen: list[bool] = []

    def add(*_: Any, **__: Any) -> None:
        seen.append(gc.isenabled())
        raise LookupError

    monkeypatch.setattr(Writer, "add", add)
    with fpdb.create(tmp_path / "db") as db:
        prepared = db.preparer.prepare([fpdb.Document("a", "some words of a text")])
        if not on:
            gc.disable()
        try:
            with pytest.raises(LookupError):
                db.add_prepared(prepared)
            assert (seen, gc.isenabled()) == ([False], on)
        finally:
            gc.enable()
