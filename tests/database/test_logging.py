"""The logger `fpdb`: what a program sees of a database without asking for it."""

import logging
from pathlib import Path

import pytest

import fpdb
from fpdb.documents.lookup import to_matches
from fpdb.errors import MovedError


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


def test_an_answer_that_is_incomplete_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert to_matches((), complete=True).complete
    assert caplog.records == []
    assert not to_matches((), complete=False).complete
    [record] = caplog.records
    assert record.getMessage() == "an answer is incomplete: too many documents are that near"


def test_a_program_that_sets_up_no_logging_gets_nothing_on_its_terminal(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert not to_matches((), complete=False).complete
    assert capfd.readouterr().err == ""
    assert any(isinstance(each, logging.NullHandler) for each in logging.getLogger("fpdb").handlers)
