"""A visit to a page of the explorer: the frame of the pages, their links, forms and documents."""

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import urlencode

from fpdb.database import Database
from fpdb.errors import DocumentNotFoundError, InputError
from fpdb.fingerprint import Recipe, distance, sketch_jaccard
from fpdb.fingerprint.digits import format_fingerprint
from fpdb.fingerprint.sketches import exact_shares
from fpdb.flow import parse_key
from fpdb.look.background import Background
from fpdb.look.groups import Groups
from fpdb.look.page import (
    button,
    entry,
    first_line,
    folded,
    language_of,
    page_policy,
    percent,
    program_of,
    shown_key,
    whole_page,
)
from fpdb.look.pair import ComparedTexts, excerpt
from fpdb.markup import Markup, element, table
from fpdb.models import Document, Key

ROWS = 50
# How long a page looks for words before it shows what it has.
_SEARCH_SECONDS = 0.8
# So that a page takes less than a second: the characters of texts that are compared for one page,
# and of each of two beside each other; the shingles of a text whose features are shown, and these.
_COMPARED, COMPARED_AT_ONCE = 4_000_000, 40_000
_MOST_SHINGLES, _NAMED = 1_500, 12
_PLACES = {
    "overview": "Overview",
    "groups": "Groups",
    "near": "Near a text",
    "documents": "Documents",
}


@dataclass(frozen=True)
class ServedPage:
    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Visit:
    """A request for a page, with its fields, and everything that pages show and change.

    A visit that was `posted` may change something, and so must have the token of its forms.
    """

    work: Background
    page: str
    fields: Mapping[str, Sequence[str]]
    token: str
    posted: bool
    may_write: bool

    @property
    def database(self) -> Database:
        return self.work.texts.database

    @property
    def groups(self) -> Groups | None:
        return self.work.findings.groups if self.work.findings else None

    def get(self, name: str) -> str:
        return (self.fields.get(name) or [""])[-1]

    def whole(self, name: str) -> int:
        """Return a field that is a whole number below 2**64, or -1 if it is none."""
        try:
            return int(parse_key(self.get(name), "integer"))
        except InputError:
            return -1

    def document(self, name: str) -> Document:
        """Return the document with the key in a field, or raise DocumentNotFoundError."""
        key = parse_key(self.get(name), self.database.key_type)
        if (document := self.database.get(key)) is None:
            raise DocumentNotFoundError(
                f"found no document with the key {key!r}",
                hint="it may have been deleted; search for it under Documents",
            )
        return document

    def documents(self, keys: Iterable[Key | None]) -> list[Document]:
        """Return the documents with some keys that are still there."""
        documents = [None if key is None else self.database.get(key) for key in keys]
        return [document for document in documents if document is not None]

    def title(self, document: Document) -> str:
        """Return the title of a document: of its metadata, or the beginning of its text."""
        title = self.work.fields.title_of(document.meta) or self.quick_text(document)
        return first_line(title) or str(document.key)

    def text(self, document: Document) -> tuple[str | None, str]:
        """Return the text of a document, or None, and a note on it; a pasted one has its own."""
        if document.text is not None:
            return document.text, ""
        return self.work.texts.of(document)

    def quick_text(self, document: Document) -> str:
        """Return a text that is there, and as it was when it was stored; or else nothing."""
        text, note = self.text(document)
        return "" if note else text or ""

    def shares(self, first: Document, compared: Sequence[Document]) -> list[str]:
        """Return how similar documents are to a first one: exactly if their texts are at hand."""
        left, texts = _COMPARED, [self.quick_text(first)]
        for other in compared:
            left -= other.characters
            texts.append(self.quick_text(other) if texts[0] and left > 0 else "")
        first_shingles, *shingled = self.database.recipe.shingles_many(texts)
        shares = []
        for other, shingles in zip(compared, shingled, strict=True):
            share, _ = exact_shares(first_shingles, shingles)
            exact = share is not None
            if share is None and first.sketch and other.sketch:
                share = max(sketch_jaccard(first.sketch, other.sketch), 0.0)
            shares.append("–" if share is None else percent(share, exact=exact))
        return shares

    def group(self) -> tuple[Groups, int]:
        """Return the groups, and which of them the document is in whose id is given."""
        group = self.groups.group_of(self.whole("of")) if self.groups else None
        if self.groups is None or group is None:
            raise DocumentNotFoundError(
                "found no group of this document", hint="choose one under Groups"
            )
        return self.groups, group

    def versions(self, groups: Groups, group: int, most: int) -> list[Document]:
        """Return a document of each text of a group: the first, and then the least similar ones."""
        ids = groups.ids[[int(same[0]) for same in groups.versions(group, most)]]
        return self.documents(self.database.keys_of(ids))

    def group_link(self, document: Document) -> list[Markup]:
        if self.groups is None or self.groups.group_of(document.id or 0) is None:
            return []
        return [element("p", link("The group of this document", "group", of=document.id))]

    def form(self, page: str, *content: str, class_: str = "verdict") -> Markup:
        """Return a form that is posted, and so may change something."""
        token = hidden(token=self.token)
        return element("form", *token, *content, action=page, method="post", class_=class_)

    def nothing(self, said: str) -> Markup:
        """Say why there is nothing to show: how an empty database is filled, or what is found."""
        if not len(self.database):
            command = element("code", f"fpdb ingest {self.database.path} FILE")
            said = "This database is empty. In a terminal, this fills it:"
            return element("p", element("span", said), " ", command)
        if least := self.database.similarity:
            said += f" This database finds what is similar from {percent(least)} on."
        return element("p", said)

    def matching(
        self, words: Sequence[str], prefix: str, after: Key | None
    ) -> tuple[list[Document], Key | None]:
        """Return what a page has time to find with all words, and where to go on, if anywhere."""
        documents: list[Document] = []
        texts = self.work.texts
        last, until = after, time.monotonic() + _SEARCH_SECONDS
        with contextlib.ExitStack() as stack:
            searched = words and texts.files and texts.packed
            stored = stack.enter_context(texts.opened()) if searched else None
            for document in self.database.scan(prefix=prefix, after=after):
                if len(documents) == ROWS or (last != after and time.monotonic() > until):
                    return documents, last
                last = document.key
                said = f"{last}\n{document.meta or ''}".casefold()
                missing = [word for word in words if word not in said]
                if missing and stored:
                    said = "".join(stored(last)[:1]).casefold()
                if all(word in said for word in missing):
                    documents.append(document)
        return documents, None

    def part(self, total: int, rows: int, **fields: object) -> tuple[slice, Markup]:
        """Return which part of a list is seen, and links to the pages before and after it."""
        number, pages = max(self.whole("page"), 1), -(-total // rows)
        links = [element("span", f"page {number:,} of {pages:,}", class_="soft")]
        if number > 1:
            links.insert(0, link("‹ Before", self.page, page=number - 1, **fields))
        if number < pages:
            links.append(link("After ›", self.page, page=number + 1, **fields))
        shown = element("nav", *links, class_="pager", aria_label="Pages of the list")
        return slice((number - 1) * rows, number * rows), shown if pages > 1 else Markup()

    def status(self) -> Iterator[Markup]:
        """Say when the groups were found, and what is under way."""
        work, findings = self.work, self.work.findings
        if work.stage:
            said = f"{work.stage}, {time.time() - work.started:.0f} s since the start"
            yield element("p", said, class_="note", role="status")
            return
        if work.error:
            yield element("p", f"Groups can't be found: {work.error}", class_="note")
        said = ""
        if findings:
            said = f"Found at {moment(findings.began)} UTC in {findings.seconds:.0f} s."
            before, now = findings.documents, len(self.database)
            if now != before:
                said += f" There were {before:,} documents then, and are {now:,} now."
        again = element("span", said, class_="soft"), button("Look again")
        yield self.form("again", *again, class_="tools")

    def framed(self, title: str, *content: str, refresh: str = "", status: int = 200) -> ServedPage:
        links = []
        for place, name in _PLACES.items():
            current = "page" if place in (self.page, f"{self.page}s") else None
            links.append(element("a", name, href=place, aria_current=current))
        recipe = self.database.recipe
        footer = (
            f"{self.database.path}, {recipe.name} ({recipe.id})",
            "Documents can be deleted here." if self.may_write else "Nothing can be changed here.",
        )
        return served(
            title,
            element("nav", *links, aria_label="Pages"),
            *content,
            footer=footer,
            refresh=refresh,
            status=status,
        )

    def listed_documents(
        self,
        label: str,
        documents: Sequence[Document],
        first: Document | None = None,
        *,
        marked: bool = False,
    ) -> Markup:
        """Show documents, and how near they are to a first one or to a text that isn't stored."""
        rows, fields = list[list[str]](), self.work.fields
        shares = self.shares(first, documents) if first else ["–"] * len(documents)
        by_bits = self.database.similarity is None or set(shares) == {"–"}
        for document, share in zip(documents, shares, strict=True):
            about = first_line(fields.title_of(document.meta)), fields.note(document.meta)
            said = element("span", ", ".join(filter(None, about)), class_="soft", dir="auto")
            spoken = f"Mark {document.key}"
            mark = [entry("", "key", document.key, "checkbox", aria_label=spoken)] * marked
            name = element("div", key_link(document.key), said)
            row = [*mark, name, moment(document.added), f"{document.characters:,}"]
            if first is None:
                row.append(self.digits_of(document))
            else:
                apart = "–"
                if first.fingerprint is not None and document.fingerprint is not None:
                    apart = f"{distance(first.fingerprint, document.fingerprint)}"
                row += [apart if by_bits else share, _chosen_link(first, document)]
            rows.append(row)
        near = ["distance" if by_bits else "similarity", "texts"] if first else ["fingerprint"]
        return table([*["mark"] * marked, "key", "added", "characters", *near], rows, label)

    def comparison(self, first: Document, second: Document) -> Markup:
        """Show two texts beside each other, and why they are near."""
        recipe, names, texts = self.database.recipe, [], []
        for side in (first, second):
            text, note = self.text(side)
            name = element("span", "What you pasted") if side.id is None else key_link(side.key)
            said = element("p", note, class_="warn") if note else ""
            names.append(element("div", element("b", name), said))
            texts += [] if text is None else [text]
        parts = [element("div", *names, class_="names")]
        if len(texts) == 2:
            compared = ComparedTexts(recipe, *texts, most=COMPARED_AT_ONCE)
            parts.append(element("p", *compared.sentence, class_="facts"))
            parts.append(element("div", *compared.drawn()))
        else:
            parts += excerpt("".join(texts), COMPARED_AT_ONCE)
        return element("section", *parts, _why(recipe, (first, second), texts))

    def digits_of(self, document: Document) -> Markup:
        number = document.fingerprint
        if number is None:
            return Markup("short")
        return element("code", format_fingerprint(number, self.database.plan.bits))


def served(
    title: str,
    nav: Markup,
    *content: str,
    footer: Iterable[str] = (),
    refresh: str = "",
    status: int = 200,
) -> ServedPage:
    """Return a page, which runs no program but that for keys and its language, fetching nothing."""
    heading = element("h1", title, dir="auto", lang=language_of(title))
    program = program_of("explore.js")
    html = whole_page(
        f"{title} · fpdb",
        element("a", "To the content", href="#content", class_="skip"),
        nav,
        element("main", heading, *content, id="content"),
        element("footer", *(element("p", line) for line in footer)),
        element("script", Markup(program)),
    )
    headers = {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": f"{page_policy(program)}; form-action 'self'; "
        "frame-ancestors 'none'",
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Opener-Policy": "same-origin",
    }
    return ServedPage(html, status, headers | ({"Refresh": refresh} if refresh else {}))


def address(page: str, /, **fields: object) -> str:
    """Return the address of a page, without the fields that are empty."""
    filled = {name: str(value) for name, value in fields.items() if value not in (None, "")}
    return f"{page}?{urlencode(filled)}" if filled else page


def link(text: str, page: str, /, **fields: object) -> Markup:
    return element("a", text, href=address(page, **fields))


def key_link(key: Key) -> Markup:
    href = address("document", key=key)
    return element("a", shown_key(key), href=href, class_="name", dir="auto")


def hidden(**fields: object) -> list[Markup]:
    """Return fields of a form that aren't shown; of a list, each value."""
    return [
        element("input", type="hidden", name=name, value=value)
        for name, values in fields.items()
        for value in (values if isinstance(values, list) else [values])
    ]


def moment(seconds: float | None) -> str:
    return f"{datetime.fromtimestamp(seconds or 0, UTC):%Y-%m-%d %H:%M}"


def _chosen_link(first: Document, other: Document) -> str:
    """Return a way to see the texts of two documents beside each other."""
    if first.id is None:
        return button("show", name="match", value=other.key)
    if first.key == other.key:
        return "the first"
    return link("compare", "compare", key=first.key, other=other.key)


def delete_button(text: str, which: str) -> Markup:
    return button(text, name="which", value=which, class_="danger")


def _why(recipe: Recipe, documents: Sequence[Document], texts: Sequence[str]) -> Markup:
    """Explain how near two documents are: by sketches, bits and features."""
    facts = []
    sketches = [document.sketch for document in documents if document.sketch]
    if len(sketches) == 2:
        said = percent(max(sketch_jaccard(*sketches), 0.0), exact=False)
        facts.append(f"By their sketches, with which fpdb searches, they are {said} similar.")
    numbers = [document.fingerprint for document in documents if document.fingerprint is not None]
    if len(numbers) == 2:
        apart = distance(*numbers)
        facts.append(f"Their fingerprints differ in {apart} of {recipe.bits} bits.")
    inner = [element("p", " ".join(facts))] if facts else []
    inner += [element("p", element("code", format_fingerprint(n, recipe.bits))) for n in numbers]
    if max(map(len, recipe.shingles_many(texts)), default=0) > _MOST_SHINGLES:
        inner.append(element("p", "The texts are too long to show their features."))
    elif len(texts) == 2:
        inner.append(_features(*map(recipe.features, texts)))
    return folded("Why: features and bits", *inner)


def _features(first: dict[str, float], second: dict[str, float]) -> Markup:
    lists, weights = [], second | first
    for where, names in (
        ("in both", first.keys() & second.keys()),
        ("only in the first", first.keys() - second.keys()),
        ("only in the second", second.keys() - first.keys()),
    ):
        items = []
        for name in sorted(names, key=lambda name: (-weights[name], name))[:_NAMED]:
            weight = element("span", f" × {weights[name]:.3g}", class_="soft")
            items.append(element("li", element("bdi", name[:80]), weight))
        title = element("h4", f"Features {where}: {len(names):,}")
        lists.append(element("div", title, element("ul", *items)))
    return element("div", *lists, class_="figures")
