"""The parts that all pages of the explorer share: the frame, links, forms, and the database."""

import hmac
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from urllib.parse import urlencode

from fpdb.database import Database
from fpdb.errors import InputError
from fpdb.fingerprint.digits import format_fingerprint
from fpdb.flow import parse_key
from fpdb.look.background import Background
from fpdb.look.decisions import Decisions
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

    def get(self, name: str, default: str = "") -> str:
        """Return a field as it was given, or the default if it is empty."""
        found = self.fields.get(name) or [default]
        return found[-1] or default

    def whole(self, name: str) -> int | None:
        """Return a field that is a whole number below 2**64, or None if it is none."""
        try:
            found = parse_key(self.get(name), "integer")
        except InputError:
            return None
        return int(found)

    def place(self) -> int:
        """Return the number of the page of a list."""
        return max(self.whole("page") or 1, 1)

    def number(self, name: str, default: float, least: float = 0) -> float:
        """Return a field that is a number, or the default if it is none."""
        try:
            found = float(self.get(name))
        except ValueError:
            return default
        return found if least <= found < 1e18 else default


@dataclass(frozen=True)
class ServedPage:
    """The answer to a visit."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def framed(
    title: str, *content: str, page: str = "", footer: str = "", refresh: int = 0, status: int = 200
) -> ServedPage:
    """Return a page, which runs no program and fetches nothing."""
    style = _style()
    links = [
        element("a", name, href=place, aria_current="page" if place == page else None)
        for place, name in _PAGES.items()
    ]
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


@cache
def _style() -> str:
    return resource("page.css") + resource("explorer.css")


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


def pager(page: str, number: int, total: int, /, **fields: object) -> Markup:
    """Return links to the pages before and after one of a list."""
    pages = -(-total // ROWS)
    before = [link("‹ Before", page, page=number - 1, **fields)] if number > 1 else []
    after = [link("After ›", page, page=number + 1, **fields)] if number < pages else []
    place = element("span", f"page {number:,} of {pages:,}", class_="soft")
    return paged(*before, place, *after) if pages > 1 else Markup()


def paged(*links: Markup) -> Markup:
    """Return links to other pages of a list."""
    return element("nav", *links, class_="pager", aria_label="Pages of the list")


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
        found = element("span", said, class_="soft")
        yield form("again", found, button("Look again"), token=visit.token)

    def found(self, key: str) -> Document:
        """Return the document with a key of a form, or raise DocumentNotFoundError."""
        return self.database[parse_key(key, self.database.keys)]

    def title(self, document: Document) -> str:
        """Return the title of a document: of its metadata, or the beginning of its text."""
        title = title_in(document.meta)
        if not self.texts.address and not title:
            title = self.texts.of(document).text or ""
        return first_line(title) or str(document.key)

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
