"""The parts that all pages of the explorer share: the frame, links, forms, and the database."""

import hmac
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import urlencode

from fpdb.database import Database
from fpdb.errors import DocumentNotFoundError, InputError
from fpdb.fingerprint.digits import format_fingerprint
from fpdb.flow import parse_key
from fpdb.look.background import Background
from fpdb.look.decisions import Decisions
from fpdb.look.groups import Groups
from fpdb.look.page import allowed, first_line, language_of, plural, resource, whole_page
from fpdb.look.pair import text_cell
from fpdb.look.texts import Texts
from fpdb.look.why import ComparedSide
from fpdb.markup import Markup, element
from fpdb.models import Document, Key, title_in

ROWS = 50
EXCERPT = 5_000
_LONGEST_KEY = 1_000
_PAGES = {
    "overview": "Overview",
    "groups": "Groups",
    "near": "Near a text",
    "documents": "Documents",
}


@dataclass(frozen=True)
class Visit:
    """A request: the name of a page, its fields, the token of its forms, and what it may do.

    A visit that was `posted` may change something, and so must have the token.
    """

    page: str
    fields: Mapping[str, Sequence[str]]
    token: str
    posted: bool
    may_write: bool

    def get(self, name: str) -> str:
        """Return a field as it was given."""
        return (self.fields.get(name) or [""])[-1]

    def whole(self, name: str) -> int:
        """Return a field that is a whole number below 2**64, or -1 if it is none."""
        try:
            return int(parse_key(self.get(name), "integer"))
        except InputError:
            return -1

    def number(self, name: str, default: float) -> float:
        """Return a field that is a number from 0, or the default if it is none."""
        try:
            found = float(self.get(name))
        except ValueError:
            return default
        return found if 0 <= found < 1e18 else default


@dataclass(frozen=True)
class ServedPage:
    """The answer to a visit."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def sent_to(place: str) -> ServedPage:
    """Return an answer that leads to another page."""
    return ServedPage(status=303, headers={"Location": place, "Cache-Control": "no-store"})


def address(page: str, /, **fields: object) -> str:
    """Return the address of a page, without the fields that are empty."""
    given = {name: str(value) for name, value in fields.items() if value not in (None, "")}
    return f"{page}?{urlencode(given)}" if given else page


def link(text: str, page: str, /, **fields: object) -> Markup:
    """Return a link to a page."""
    return element("a", text, href=address(page, **fields))


def key_link(key: Key) -> Markup:
    """Return a link to the page of a document."""
    shown = str(key)
    cut = shown if len(shown) <= _LONGEST_KEY else f"{shown[:_LONGEST_KEY]}…"
    return element("a", cut, href=address("document", key=key), class_="name", dir="auto")


def hidden(**fields: object) -> list[Markup]:
    """Return fields of a form that aren't shown; of a list, each value."""
    return [
        element("input", type="hidden", name=name, value=value)
        for name, values in fields.items()
        for value in (values if isinstance(values, list) else [values])
    ]


def button(text: str, **attributes: object) -> Markup:
    """Return a button that sends its form."""
    return element("button", text, type="submit", **attributes)


def form(page: str, *content: str, token: str = "", class_: str = "tools") -> Markup:
    """Return a form; one with a token is posted."""
    method = "post" if token else "get"
    given = hidden(token=token) if token else []
    return element("form", *given, *content, action=page, method=method, class_=class_)


def pager(*given: Markup | None) -> Markup:
    """Return links to other pages of a list."""
    links = [each for each in given if each is not None]
    return element("nav", *links, class_="pager", aria_label="Pages of the list")


def pages_of(visit: Visit, total: int, /, **fields: object) -> tuple[slice, Markup]:
    """Return the part of a list that a visit sees, and links to the pages before and after it."""
    number, pages = max(visit.whole("page"), 1), -(-total // ROWS)
    links = pager(
        link("‹ Before", visit.page, page=number - 1, **fields) if number > 1 else None,
        element("span", f"page {number:,} of {pages:,}", class_="soft"),
        link("After ›", visit.page, page=number + 1, **fields) if number < pages else None,
    )
    return slice((number - 1) * ROWS, number * ROWS), links if pages > 1 else Markup()


def moment(seconds: float | None) -> str:
    """Return a time, in UTC."""
    return f"{datetime.fromtimestamp(seconds or 0, UTC):%Y-%m-%d %H:%M}"


def excerpt(text: str | None) -> list[Markup]:
    """Return the beginning of a text, and how much more there is."""
    if text is None:
        return []
    shown = text_cell(language_of(text), text[:EXCERPT])
    rest = len(text) - EXCERPT
    more = [element("p", plural(rest, "further character"), class_="soft")] if rest > 0 else []
    return [shown, *more]


@dataclass(frozen=True)
class Context:
    """The database, its groups, texts and decisions, which all pages share."""

    database: Database
    background: Background
    texts: Texts
    decisions: Decisions
    write: bool
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    def token(self, session: str) -> str:
        """Return the token that forms of a session have."""
        return hmac.digest(self.secret, session.encode(), "sha256").hex()

    @property
    def groups(self) -> Groups | None:
        """The groups, once they are found."""
        return self.background.found.groups if self.background.found else None

    def framed(
        self, title: str, *content: str, page: str = "", refresh: int = 0, status: int = 200
    ) -> ServedPage:
        """Return a page, which runs no program and fetches nothing."""
        style = resource("page.css")
        links = [
            element("a", name, href=place, aria_current="page" if place == page else None)
            for place, name in _PAGES.items()
        ]
        recipe = self.database.recipe
        footer = f"{self.database.path}, recipe {recipe.name} ({recipe.id}). " + (
            "Decisions may be made here." if self.write else "Nothing can be changed here."
        )
        heading = element("h1", title, dir="auto", lang=language_of(title))
        html = whole_page(
            f"{title} · fpdb",
            style,
            element("a", "To the content", href="#content", class_="skip"),
            element("nav", *links, aria_label="Pages"),
            element("main", heading, *content, id="content"),
            element("footer", element("p", footer)),
        )
        headers = {
            "Content-Type": "text/html; charset=utf-8",
            "Content-Security-Policy": f"default-src 'none'; style-src {allowed(style)}; "
            "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Opener-Policy": "same-origin",
        } | ({"Refresh": str(refresh)} if refresh else {})
        return ServedPage(html, status, headers)

    def status(self, visit: Visit) -> Iterator[Markup]:
        """Say when the groups were found, and what is under way."""
        work, found = self.background, self.background.found
        if work.stage:
            said = f"{work.stage}, {time.time() - work.started:.0f} s since the start"
            yield element("p", said, class_="note", role="status")
            return
        if work.error:
            yield element("p", f"Groups can't be found: {work.error}", class_="note")
        said = ""
        if found:
            said = f"Found at {moment(found.began)} UTC in {found.seconds:.0f} s."
            before, now = found.documents, len(self.database)
            if now != before:
                said += f" There were {before:,} documents then, and are {now:,} now."
        again = element("span", said, class_="soft")
        yield form("again", again, button("Look again"), token=visit.token)

    def found(self, key: str) -> Document:
        """Return the document with a key of a form, or raise DocumentNotFoundError."""
        return self.database[parse_key(key, self.database.keys)]

    def title(self, document: Document) -> str:
        """Return the title of a document: of its metadata, or the beginning of its text."""
        title = title_in(document.meta)
        if not self.texts.address and not title:
            title = self.texts.of(document)[0] or ""
        return first_line(title) or str(document.key)

    def side(self, document: Document) -> ComparedSide:
        """Return a document to be compared."""
        text, note = self.texts.of(document)
        return ComparedSide(
            key_link(document.key), text, document.fingerprint, document.sketch, note
        )

    def group(self, visit: Visit) -> tuple[Groups, int]:
        """Return the groups, and which of them a document is in that a visit names by its id."""
        found = self.groups.group_of(visit.whole("of")) if self.groups else None
        if self.groups is None or found is None:
            raise DocumentNotFoundError("found no group of this document", hint="look again")
        return self.groups, found

    def group_link(self, document: Document) -> list[Markup]:
        """Return a link to the group of a document, if it is in one."""
        if self.groups is None or self.groups.group_of(document.id or 0) is None:
            return []
        return [element("p", link("The group of this document", "group", of=document.id))]

    def digits(self, fingerprint: int) -> str:
        """Return a fingerprint as it is written."""
        return format_fingerprint(fingerprint, self.database.plan.bits)
