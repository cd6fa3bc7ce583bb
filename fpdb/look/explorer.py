"""The explorer: pages over a database, each visited with the token of its session."""

import contextlib
import hmac
import secrets
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Self

from fpdb.database import Database
from fpdb.errors import DocumentNotFoundError, FpdbError, ReadOnlyError
from fpdb.io.files import check_path
from fpdb.io.records import Reading
from fpdb.look.background import Background
from fpdb.look.decisions import Decisions
from fpdb.look.fields import ShownFields
from fpdb.look.pages import PAGES, POSTED
from fpdb.look.texts import Texts, split_sources
from fpdb.look.visit import ServedPage, Visit, served
from fpdb.markup import Markup, element
from fpdb.scratch import scratch_folder


class Explorer:
    """Pages over a database: its groups, what is near a text and why, and decisions.

    Groups are looked for in a child process when it is made, and pages show them once they are
    there. `texts` are files with the texts, found by their keys, or one URL with {key} in the place
    of the key. Unless it may `write`, no page changes anything.
    """

    def __init__(
        self,
        database: Database,
        *,
        texts: Iterable[str] = (),
        reading: Reading | None = None,
        write: bool = False,
    ) -> None:
        files, url = split_sources(list(texts))
        reading = reading or Reading()
        for path in files:
            check_path(path, reading)
        self._stack = contextlib.ExitStack()
        packed = self._stack.enter_context(scratch_folder()).path / "texts"
        found = Texts(database, reading, packed, files, url)
        self._work = Background(found, ShownFields.of(reading))
        self._decisions = Decisions(database)
        self._write = write and not database.readonly
        self._secret = secrets.token_bytes(32)
        self._work.start()

    def close(self) -> None:
        """End the child process, and remove the packed texts."""
        self._work.close()
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def answer(
        self,
        page: str,
        fields: Mapping[str, Sequence[str]],
        *,
        session: str = "",
        posted: bool = False,
        may_write: bool = False,
    ) -> ServedPage:
        """Return a page by its name, given the fields of a form; errors are pages too.

        What is `posted` must have the token of the session, which all forms have.
        """
        page, token = page or "overview", hmac.digest(self._secret, session.encode(), "sha256")
        may_write = may_write and self._write
        visit = Visit(self._work, self._decisions, page, fields, token.hex(), posted, may_write)
        answer = (POSTED if posted else PAGES).get(page)
        try:
            given = visit.get("token").encode()
            if posted and not hmac.compare_digest(given, visit.token.encode()):
                raise ReadOnlyError(
                    "the form has no valid token",
                    hint="open the page again, and send it from there",
                )
            if posted and page in ("delete", "verdict") and not may_write:
                raise ReadOnlyError(
                    "this explorer only reads", hint="start one that may write", parameter="write"
                )
            if answer is None:
                said = element("p", "The links above lead to all pages.")
                return visit.framed("There is no such page", said, status=404)
            return answer(visit)
        except FpdbError as error:
            statuses = {DocumentNotFoundError: 404, ReadOnlyError: 403}
            status = next((n for kind, n in statuses.items() if isinstance(error, kind)), 400)
            return visit.framed("That didn't work", *_said(str(error), error.hint), status=status)

    @staticmethod
    def problem(message: str, hint: str, status: int) -> ServedPage:
        """Return a page about a request that gets no other, for people who may see nothing else."""
        if status == HTTPStatus.NOT_FOUND:
            said = element("p", "Open the address that fpdb gave when it began.")
            return served("There is no such page", Markup(), said, status=status)
        return served("That didn't work", Markup(), *_said(message, hint), status=status)


def _said(message: str, hint: str | None) -> list[Markup]:
    """Return what went wrong, and what helps."""
    return [element("p", message, class_="warn"), *([element("p", hint)] if hint else [])]
