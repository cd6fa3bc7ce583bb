"""A question about times reads on where a crowd of documents is of other times."""

import time
from pathlib import Path
from typing import Any

import pytest

import fpdb
from fpdb import Database, Document
from fpdb.documents import lookup
from fpdb.models import Matches
from fpdb.tables import bands

TEXTS = {"long": " ".join(f"word{number}" for number in range(60)), "short": "not found"}
OLD, NEW = 1_000, 2_000


@pytest.fixture(autouse=True)
def _few_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "DOCUMENTS", 40)
    for name in ("MOST_OF_A_BAND", "MOST_COMPARED"):
        monkeypatch.setattr(bands, name, 40)


def crowd(path: Path, monkeypatch: pytest.MonkeyPatch, similarity: float | None) -> Database:
    """Return a database of a hundred old copies of each text, and a new one."""
    db = fpdb.create(path, similarity=similarity, k=3)
    for name, text in TEXTS.items():
        monkeypatch.setattr(time, "time", lambda: OLD)
        list(db.add_many(Document(f"{name} {number:02}", text) for number in range(100)))
        monkeypatch.setattr(time, "time", lambda: NEW)
        db.add(f"{name} new", text)
    return db


def answers(db: Database, **options: Any) -> dict[str, list[Matches]]:
    """Return the answers to questions of each kind, by the texts that they are about."""
    asked: dict[str, list[Matches]] = {}
    for name, text in TEXTS.items():
        questions = db.preparer.questions([text] * 200, sketched=True)
        asked[name] = [db.query(text, **options)]
        asked[name] += db.query_prepared(questions[:2], **options)
        asked[name] += db.query_prepared(questions, **options)
    fingerprint = db["long new"].fingerprint
    assert fingerprint is not None
    prints = [db.query_fingerprint(fingerprint, k=k, **options) for k in (0, 3, 64)]
    return asked | {"long": asked["long"] + prints}


@pytest.mark.parametrize("limit", [None, 5])
@pytest.mark.parametrize("similarity", [None, 0.8])
def test_the_new_one_in_a_crowd_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, similarity: float | None, limit: int | None
) -> None:
    with crowd(tmp_path / "db", monkeypatch, similarity) as db:
        for name, replies in answers(db, added_since=NEW, limit=limit).items():
            keys = {(*(match.key for match in matches), matches.complete) for matches in replies}
            assert keys == {(f"{name} new", True)}
        for replies in answers(db, added_before=NEW).values():
            assert {(len(matches), matches.complete) for matches in replies} == {(40, False)}


@pytest.mark.parametrize("similarity", [None, 0.8])
def test_an_answer_that_ends_before_the_new_one_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, similarity: float | None
) -> None:
    monkeypatch.setattr(lookup, "CANDIDATES", 90)
    with crowd(tmp_path / "db", monkeypatch, similarity) as db:
        for name, text in TEXTS.items():
            matches = db.query(text, added_since=NEW)
            assert (len(matches), matches.complete) == (0, False), name
