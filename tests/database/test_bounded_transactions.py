"""A transaction is bounded in bytes: four hundred large documents are several of them."""

import importlib
import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import fpdb
from fpdb import Database, Document, InputError
from fpdb.io.files import read_parts
from fpdb.io.records import Reading
from fpdb.storage import Environment

COUNT = 400  # fewer than fill a transaction by their number
META = {"about": "x" * 60_000}  # with all of them, 24 MB
LEAST, MOST = 2, 12  # transactions, which then hold 2 to 12 MB


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Count the write transactions since the last call."""
    begun: list[object] = []
    write = Environment.write

    def counted(self: Environment, *arguments: object) -> object:
        begun.append(self)
        return write(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Environment, "write", counted)

    def count() -> int:
        number = len(begun)
        begun.clear()
        return number

    return count


def documents() -> Iterator[Document]:
    return (Document(f"k{number}", None, META, number << 8) for number in range(COUNT))


def test_documents_are_added_in_several_transactions(
    db: Database, transactions: Callable[[], int]
) -> None:
    transactions()
    assert [added.status for added in db.add_many(documents())] == ["added"] * COUNT
    assert LEAST <= transactions() <= MOST
    small = [Document(f"small {number}", None, None, number) for number in range(COUNT)]
    assert len(list(db.add_many(small))) == COUNT
    assert transactions() == 1


def test_ingest_and_load_use_several_transactions(
    db: Database, tmp_path: Path, transactions: Callable[[], int]
) -> None:
    path = tmp_path / "a.jsonl"
    with path.open("w") as file:
        for number in range(COUNT):
            fields = {"key": f"k{number}", "fp": f"{number << 8:x}", **META}
            file.write(f"{json.dumps(fields)}\n")
    transactions()
    reading = Reading(fingerprint_field="fp", meta_field="about")
    assert fpdb.ingest(db, str(path), reading).added == COUNT
    assert LEAST <= transactions() <= MOST
    dumped = tmp_path / "a.fpdb.jsonl"
    with dumped.open("wb") as out:
        db.dump(out)
    transactions()
    assert fpdb.load(tmp_path / "loaded", str(dumped)).added == COUNT
    assert LEAST <= transactions() <= MOST


def test_a_larger_transaction_takes_more_documents(
    db: Database, transactions: Callable[[], int]
) -> None:
    small = [Document(f"small {number}", None, None, number) for number in range(2500)]
    transactions()
    for size, expected in ((5000, 1), (2000, 2), (700, 4), (1000, 3)):
        stored = db.add_many((each for each in small), transaction=size)
        assert next(stored).key == "small 0"
        assert transactions() == 1
        assert [each.key for each in stored] == [each.key for each in small[1:]]
        assert transactions() == expected - 1
    assert db.stats().documents == 2500
    with pytest.raises(InputError, match="transaction 0"):
        list(db.add_many([], transaction=0))
    # Large ones are stored before they are as many.
    stored = db.add_many(documents(), transaction=10_000)
    assert next(stored).status == "added"
    assert transactions() == 1
    assert len(list(stored)) == COUNT - 1
    assert LEAST <= transactions() <= MOST


def test_an_ingest_gathers_what_it_reads_within_a_second(
    db: Database, tmp_path: Path, transactions: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("fpdb.ingest")
    monkeypatch.setattr(module, "_SECONDS", 1000.0)
    path = tmp_path / "a.jsonl"
    reading = Reading(fingerprint_field="fp")
    lines = [json.dumps({"key": f"k{number}", "fp": f"{number << 8:x}"}) for number in range(3500)]
    path.write_text("\n".join(lines))
    seen: list[int] = []
    transactions()
    counts = fpdb.ingest(db, str(path), reading, on_added=lambda _: seen.append(len(db)))
    assert (counts.added, transactions(), set(seen)) == (3500, 1, {3500})
    # What isn't stored yet isn't counted, and what is counted is stored.
    monkeypatch.setattr(module, "GATHERED", 2000)
    shown: list[tuple[int, int]] = []
    path.write_text("\n".join(lines).replace('"k', '"other ').replace('"other ey"', '"key"'))
    fpdb.ingest(db, str(path), reading, on_progress=lambda c: shown.append((c.added, len(db))))
    assert transactions() == 2
    assert {3500 + added - stored for added, stored in shown} == {0}
    # Without a second to wait for, each part is stored by itself.
    monkeypatch.setattr(module, "_SECONDS", 0.0)
    assert fpdb.ingest(db, str(path), reading).unchanged == 3500
    assert transactions() == 4


def test_what_a_transaction_stored_is_counted_before_a_callback_can_end_the_ingest(
    db: Database, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        "".join(
            f'{{"key": "k{number}", "text": "a word or two {number}"}}\n' for number in range(1500)
        )
    )
    shown: list[fpdb.Ingested] = []

    def end(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fpdb.ingest(db, str(path), on_added=end, on_progress=shown.append)
    assert shown[0].added == len(db) == 1500


def test_what_was_read_before_an_error_is_stored(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = [json.dumps({"key": f"k{number}", "text": f"{number} words"}) for number in range(2500)]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join([*good, "no JSON", *good]))
    with pytest.raises(InputError, match="2501"):
        fpdb.ingest(db, str(path), bad="fail")
    assert len(db) == 2500
    assert db.delete_many([f"k{number}" for number in range(2500)]) == 2500

    def failing(*arguments: Any, **options: Any) -> Iterator[object]:
        yield from islice(read_parts(*arguments, **options), 2)
        raise InputError("the disk is gone", hint="find it")

    module = importlib.import_module("fpdb.ingest")
    monkeypatch.setattr("fpdb.flow.read_parts", failing)
    monkeypatch.setattr(module, "_SECONDS", 1000.0)
    with pytest.raises(InputError, match="the disk is gone"):
        fpdb.ingest(db, str(path))
    assert len(db) == 2000
