"""The pages of documents: by their keys, one of them, and those that are near a text."""

import json
from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import islice

from fpdb.explorer.comparison import ComparedSide, comparison
from fpdb.explorer.context import Context
from fpdb.explorer.parts import (
    EXCERPT,
    ROWS,
    ServedPage,
    Visit,
    button,
    choice,
    entry,
    excerpt,
    facts,
    form,
    hidden,
    key_link,
    link,
    moment,
    wide_table,
)
from fpdb.fingerprint.digits import parse_fingerprint
from fpdb.fingerprint.recipe import to_int
from fpdb.ingest import parse_key
from fpdb.io.html import html_text
from fpdb.models import Key, Match
from fpdb.report.page import Markup, element, percent

_KINDS = {"text": "a text", "html": "HTML", "fingerprint": "a fingerprint"}


def documents_page(context: Context, visit: Visit) -> ServedPage:
    """Show the documents by their keys, fifty at a time."""
    prefix, after = visit.get("prefix"), visit.get("after")
    kind = context.database.keys
    start: Key | None = parse_key(after, kind) if after else None
    if kind == "integer":
        first = int(parse_key(prefix, kind)) if prefix else 0
        start, prefix = start or (first - 1 if first else None), ""
    found = list(islice(context.database.scan(prefix=prefix, after=start), ROWS))
    rows = [
        (
            key_link(each.key),
            moment(each.added),
            f"{each.characters:,}",
            "short"
            if each.fingerprint is None
            else element("code", context.digits(each.fingerprint)),
        )
        for each in found
    ]
    label = "Keys from" if kind == "integer" else "Keys that begin with"
    more = []
    if len(found) == ROWS:
        more = [link("After ›", "documents", prefix=visit.get("prefix"), after=found[-1].key)]
    return context.framed(
        "Documents",
        form("documents", entry(label, "prefix", visit.get("prefix"), "search"), button("Show")),
        wide_table(("key", "added", "characters", "fingerprint"), rows, "Documents"),
        element("p", "" if rows else "There are none."),
        element("nav", *more, class_="pager", aria_label="Pages of the list"),
        page="documents",
    )


def document_page(context: Context, visit: Visit) -> ServedPage:
    """Show what is kept of a document, its text, and what is near it."""
    document = context.found(visit.get("key"))
    text = context.side(document)
    database, number = context.database, document.fingerprint
    [found] = database.query_prepared(database.preparer.prepare([document]), limit=ROWS)
    matches = [match for match in found if match.key != document.key]
    meta = "" if document.meta is None else json.dumps(document.meta, ensure_ascii=False)
    given = {
        "key": str(document.key),
        "id": str(document.id),
        "added": f"{moment(document.added)} UTC",
        "characters": f"{document.characters:,}",
        "fingerprint": "none: it is short" if number is None else context.digits(number),
        "metadata": meta[:EXCERPT],
    }
    delete = form(
        "delete",
        hidden(key=document.key),
        button("Delete …", name="which", value="marked", class_="danger"),
        token=context.token(visit.session),
        class_="verdict",
    )
    return context.framed(
        context.title(document),
        facts(given),
        *([delete] if context.may_write(visit) else []),
        *context.group_link(document),
        element("p", text.note, class_="soft"),
        *excerpt(text.text),
        element("h2", "Near it"),
        _matches(matches, lambda each: link("compare", "compare", key=document.key, other=each)),
        page="documents",
    )


def _matches(matches: Sequence[Match], action: Callable[[Key], Markup]) -> Markup:
    if not matches:
        return element("p", "No other stored document is near.")
    rows = [
        (
            "–" if match.similarity is None else percent(match.similarity),
            str(match.distance),
            key_link(match.key),
            action(match.key),
        )
        for match in matches
    ]
    return wide_table(("similarity", "distance", "key", "texts"), rows, "Documents that are near")


def near_page(context: Context, visit: Visit) -> ServedPage:
    """Show what is near a text, and why; the forms bring the text with the next visit again."""
    kind, given = visit.get("kind", "text"), visit.get("text")
    box = Markup('<textarea name="text" required aria-label="What to look for" rows="9">\n')
    fields = [
        element("label", Markup(box + escape(given) + "</textarea>"), class_="field"),
        choice("This is", "kind", kind, _KINDS),
        button("Find what is near"),
    ]
    return context.framed(
        "Near a text",
        element(
            "p",
            "Paste a text, the HTML of a page or a fingerprint, to see which stored documents "
            "are near, and why. It isn't stored.",
            class_="soft",
        ),
        form("near", *fields, token=context.token(visit.session)),
        *(_answers(context, visit, kind, given) if visit.posted and given.strip() else ()),
        page="near",
    )


def _answers(context: Context, visit: Visit, kind: str, given: str) -> Iterator[Markup]:
    database = context.database
    text, sketch, number = None, None, None
    if kind == "fingerprint":
        number = parse_fingerprint(given.strip(), database.plan.bits)
        matches = database.query_fingerprint(number, limit=ROWS)
    else:
        text = html_text(given).text if kind == "html" else given
        batch = database.recipe.batch([text], sketches=True)
        number = None if batch.short[0] else to_int(batch.fingerprints[0])
        sketch = None if batch.sketches is None else batch.sketches[0].tobytes()
        matches = database.query(text, limit=ROWS)
    keys = [str(match.key) for match in matches]
    chosen = visit.get("match") if visit.get("match") in keys else "".join(keys[:1])

    def action(key: Key) -> Markup:
        pressed = str(str(key) == chosen).lower()
        return button("show", name="match", value=key, aria_pressed=pressed)

    yield element("h2", "Near it")
    if not matches.complete:
        yield element("p", "A budget ended the search, so there may be more.", class_="warn")
    again = hidden(text=given, kind=kind)
    table = _matches(matches, action)
    yield form("near", again, table, token=context.token(visit.session), class_="members")
    if chosen:
        own = ComparedSide(element("span", "What you pasted"), text, number, sketch)
        yield comparison(database.recipe, own, context.side(context.found(chosen)))
    elif kind == "html":
        yield from excerpt(text)
