"""The logger `fpdb`: what a program sees of a database without asking for it."""

import logging
from pathlib import Path

import pytest

import fpdb
from fpdb.documents.lookup import to_matches
from fpdb.errors import DamagedError, MovedError


def test_what_happens_to_a_database_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG, "fpdb")
    path = tmp_path / "crawl.fpdb"
    monkeypatch.chdir(tmp_path)
    fpdb.create(path.name).close()
    fpdb.open(path.name, readonly=True).close()
    assert not to_matches((), complete=False).complete
    with fpdb.open(path) as db, pytest.raises(DamagedError), db._environment.read():
        raise DamagedError("the checksum of a page is wrong")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("DEBUG", f"created {path}: recipe web, similarity 0.8"),
        ("DEBUG", f"opened {path} to read: recipe web"),
        ("WARNING", "an answer is incomplete: too many documents are that near"),
        ("DEBUG", f"opened {path}: recipe web"),
        ("ERROR", f"{path} is damaged: the checksum of a page is wrong"),
    ]
    assert {record.name for record in caplog.records} == {"fpdb"}


def test_a_database_that_is_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, moved = tmp_path / "crawl.fpdb", tmp_path / "moved.fpdb"
    with fpdb.create(path) as db:
        db.backup(tmp_path / "copy.fpdb")
        path.rename(tmp_path / "old.fpdb")
        (tmp_path / "copy.fpdb").rename(path)
        db.reopen()
        assert len(db) == len(db) == 0
        for _ in range(2):
            path.rename(moved)
            for _ in range(2):
                with pytest.raises(MovedError):
                    db.add("key", "text")
            moved.rename(path)
            assert not db.delete("key")
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert said[0] == ("WARNING", f"{path} was replaced, and is open again")
    assert said[1:] == []  # the error says it


def test_a_program_that_sets_up_no_logging_gets_nothing_on_its_terminal(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert not to_matches((), complete=False).complete
    assert capfd.readouterr().err == ""
    assert any(isinstance(each, logging.NullHandler) for each in logging.getLogger("fpdb").handlers)
