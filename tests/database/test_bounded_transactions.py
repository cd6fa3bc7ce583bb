"""A transaction is bounded in bytes: a thousand large documents are several of them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fpdb
from fpdb import Database, Document
from fpdb.io.files import read_parts
from fpdb.io.records import Reading
from fpdb.storage import Environment

COUNT = 1000
META = {"about": "x" * 60_000}  # with a thousand of them, 60 MB
LEAST, MOST = 7, 30  # transactions, which then hold 2 to 9 MB


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


def test_prepared_documents_are_added_in_several_transactions(
    db: Database, transactions: Callable[[], int]
) -> None:
    prepared = db.preparer.prepare(list(documents()))
    transactions()
    assert len(db.add_prepared(prepared)) == COUNT
    assert LEAST <= transactions() <= MOST
    assert db.add_prepared([]) == []
    assert transactions() == 0


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


@pytest.mark.process
def test_parts_are_bounded_with_their_metadata(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow isn't installed")
    pq = pytest.importorskip("pyarrow.parquet")
    keys = [f"k{number}" for number in range(100)]
    lists = [["x" * 1000] * 200] * 100
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"key": keys, "text": keys, "more": lists}), path)
    parts = [list(part()) for part in read_parts(str(path), Reading(meta_field="*"))]
    assert sum(map(len, parts)) == 100
    assert max(map(len, parts)) <= 21  # of 200 KB each, so 4 MB
