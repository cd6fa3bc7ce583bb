"""The parts of which pages are made: the frame, links, forms, tables of documents."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from html import escape
from urllib.parse import urlencode

from fpdb.models import Document, Key
from fpdb.report.page import Markup, allowed, element, language_of, plural, resource

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
    """A request: the name of a page, its fields, the session it belongs to, and what it may do.

    A visit that was `posted` may change something, and so must have the token of its session.
    """

    page: str
    fields: Mapping[str, Sequence[str]]
    session: str = ""
    posted: bool = False
    may_write: bool = False

    def get(self, name: str, default: str = "") -> str:
        """Return a field as it was given, or the default if it is empty."""
        found = self.fields.get(name) or [default]
        return found[-1] or default

    def number(self, name: str, default: float, least: float = 0) -> float:
        """Return a field that is a number, or the default if it is none."""
        try:
            found = float(self.get(name))
        except ValueError:
            return default
        return found if least <= found < 1e18 else default


@dataclass(frozen=True)
class ServedPage:
    """What a visit is answered with."""

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
    head = element(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        element("title", f"{title} · fpdb"),
        element("style", Markup(style)),
    )
    heading = element("h1", title, dir="auto", lang=language_of(title))
    body = element(
        "body",
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
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Opener-Policy": "same-origin",
    } | ({"Refresh": str(refresh)} if refresh else {})
    html = f"<!doctype html>\n{element('html', head, body, lang='en')}\n"
    return ServedPage(html.encode("utf-8", "replace"), status, headers)


@cache
def _style() -> str:
    return resource("page.css") + resource("explorer.css", "fpdb.explorer")


def sent_to(place: str) -> ServedPage:
    """Return an answer that leads to another page."""
    return ServedPage(status=303, headers={"Location": place, "Cache-Control": "no-store"})


def address(page: str, /, **fields: object) -> str:
    """Return the address of a page, without the fields that are empty."""
    given = {
        name.rstrip("_"): str(value) for name, value in fields.items() if value not in (None, "")
    }
    return f"{page}?{urlencode(given)}" if given else page


def link(text: str, page: str, /, **fields: object) -> Markup:
    """Return a link to a page."""
    return element("a", text, href=address(page, **fields))


def key_link(key: Key) -> Markup:
    """Return a link to the page of a document."""
    shown = str(key)
    cut = shown if len(shown) <= _LONGEST_KEY else f"{shown[:_LONGEST_KEY]}…"
    return element("a", cut, href=address("document", key=key), class_="name", dir="auto")


def entry(label: str, name: str, value: object = "", kind: str = "text", **more: object) -> Markup:
    """Return a field of a form with its label."""
    shown = Markup(f'<input type="{kind}" name="{name}" value="{escape(str(value))}"')
    given = "".join(
        f' {word.replace("_", "-")}="{escape(str(content))}"' for word, content in more.items()
    )
    return element(
        "label", *([element("span", label)] if label else []), Markup(f"{shown}{given}>")
    )


def hidden(**fields: object) -> Markup:
    """Return fields of a form that aren't shown; of a list, each value."""
    return Markup(
        "".join(
            f'<input type="hidden" name="{name.rstrip("_")}" value="{escape(str(value))}">'
            for name, values in fields.items()
            for value in (values if isinstance(values, list) else [values])
        )
    )


def choice(label: str, name: str, value: str, choices: Mapping[str, str]) -> Markup:
    """Return a choice of a form with its label."""
    options = [
        element("option", text, value=each, selected="" if each == value else None)
        for each, text in choices.items()
    ]
    return element("label", element("span", label), element("select", *options, name=name))


def button(text: str, **attributes: object) -> Markup:
    """Return a button that sends its form."""
    return element("button", text, type="submit", **attributes)


def form(page: str, *content: str, token: str = "", class_: str = "tools") -> Markup:
    """Return a form; one with a token is posted."""
    method = "post" if token else "get"
    given = [hidden(token=token)] if token else []
    return element("form", *given, *content, action=page, method=method, class_=class_)


def pager(page: str, number: int, total: int, /, **fields: object) -> Markup:
    """Return links to the pages before and after one of a list."""
    pages = -(-total // ROWS)
    if pages < 2:
        return Markup()
    before = [link("‹ Before", page, page=number - 1, **fields)] if number > 1 else []
    after = [link("After ›", page, page=number + 1, **fields)] if number < pages else []
    place = element("span", f"page {number:,} of {pages:,}", class_="soft")
    return element("nav", *before, place, *after, class_="pager", aria_label="Pages of the list")


def facts(given: Mapping[str, str]) -> Markup:
    """Return names with what they are, without those that are empty."""
    rows = [
        element("dt", name) + element("dd", value, dir="auto")
        for name, value in given.items()
        if value
    ]
    return element("dl", *map(Markup, rows))


def wide_table(head: Sequence[str], rows: Iterable[Sequence[str]], label: str) -> Markup:
    """Return a table that is as wide as it must be."""
    header = element("tr", *(element("th", name, scope="col") for name in head))
    lines = [element("tr", *(element("td", cell) for cell in row)) for row in rows]
    inner = element("table", element("thead", header), element("tbody", *lines))
    # It can be scrolled by the keyboard, so it needs a name.
    return element("div", inner, class_="wide", role="region", aria_label=label, tabindex=0)


def moment(seconds: float | None) -> str:
    """Return a time, in UTC."""
    return f"{datetime.fromtimestamp(seconds or 0, UTC):%Y-%m-%d %H:%M}"


def title_in(document: Document) -> str:
    """Return the title that metadata have, or nothing."""
    meta = document.meta if isinstance(document.meta, dict) else {}
    titles = (meta.get(name) for name in ("title", "headline", "name"))
    return next((title for title in titles if isinstance(title, str)), "")


def excerpt(text: str | None) -> list[Markup]:
    """Return the beginning of a text, and how much more there is."""
    if text is None:
        return []
    shown = element("div", text[:EXCERPT], class_="text", dir="auto", lang=language_of(text))
    rest = len(text) - EXCERPT
    more = [element("p", plural(rest, "further character"), class_="soft")] if rest > 0 else []
    return [shown, *more]
