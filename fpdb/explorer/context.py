"""What all pages share: the database, its groups and texts, and what a visit may do."""

import hmac
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from fpdb.database import Database
from fpdb.explorer.comparison import ComparedSide
from fpdb.explorer.decisions import Decisions
from fpdb.explorer.findings import Background
from fpdb.explorer.parts import (
    ServedPage,
    Visit,
    button,
    form,
    framed,
    key_link,
    link,
    moment,
    title_in,
)
from fpdb.explorer.texts import Texts
from fpdb.fingerprint.digits import format_fingerprint
from fpdb.ingest import parse_key
from fpdb.models import Document
from fpdb.report.page import Markup, element, title_of


@dataclass(frozen=True)
class Context:
    """What all pages share."""

    database: Database
    background: Background
    texts: Texts
    decisions: Decisions
    write: bool
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    def token(self, session: str) -> str:
        """Return the token that forms of a session have."""
        return hmac.digest(self.secret, session.encode(), "sha256").hex()

    def may_write(self, visit: Visit) -> bool:
        """Return whether a visit may make decisions."""
        return self.write and visit.may_write

    def framed(self, title: str, *content: str, page: str = "", **more: int) -> ServedPage:
        """Return a page of this database."""
        recipe = self.database.recipe
        footer = f"{self.database.path}, recipe {recipe.name} ({recipe.id}). " + (
            "Decisions may be made here." if self.write else "Nothing can be changed here."
        )
        return framed(title, *content, page=page, footer=footer, **more)

    def status(self, visit: Visit) -> Iterator[Markup]:
        """Say when the groups were found, and what is under way."""
        work = self.background
        if work.stage:
            seconds = time.time() - work.started
            yield element(
                "p", f"{work.stage}, {seconds:.0f} s since the start", class_="note", role="status"
            )
        if work.error:
            yield element("p", f"Groups can't be found: {work.error}", class_="note")
        if work.stage:
            return
        said = ""
        if groups := work.groups:
            said = f"Found at {moment(groups.at)} UTC in {groups.seconds:.0f} s."
            before = work.counts.documents if work.counts else 0
            if (now := len(self.database)) != before:
                said += f" There were {before:,} documents then, and are {now:,} now."
        again = button("Look again")
        said_so = element("span", said, class_="soft")
        yield form("again", said_so, again, token=self.token(visit.session))

    def found(self, key: str) -> Document:
        """Return the document with a key of a form, or raise DocumentNotFoundError."""
        return self.database[parse_key(key, self.database.keys)]

    def title(self, document: Document) -> str:
        """Return the title of a document: of its metadata, or the beginning of its text."""
        text = None
        if not self.texts.address and not title_in(document):
            text = self.texts.of(document).text
        return title_of(title_in(document) or text or "") or str(document.key)

    def side(self, document: Document) -> ComparedSide:
        """Return a document to be compared."""
        found = self.texts.of(document)
        name = key_link(document.key)
        return ComparedSide(name, found.text, document.fingerprint, document.sketch, found.note)

    def group_link(self, document: Document) -> list[Markup]:
        """Return a link to the group of a document, if it is in one."""
        groups = self.background.groups
        if groups is None or groups.group_of(document.id or 0) is None:
            return []
        return [element("p", link("The group of this document", "group", of=document.id))]

    def digits(self, fingerprint: int) -> str:
        """Return a fingerprint as it is written."""
        return format_fingerprint(fingerprint, self.database.plan.bits)
