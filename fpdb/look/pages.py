"""The pages of groups and of documents, one or all of them, and of what is near a text."""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from html import escape
from itertools import islice

from fpdb.arrays import Places
from fpdb.errors import DocumentNotFoundError
from fpdb.fingerprint import distance, sketch_jaccard
from fpdb.fingerprint.digits import parse_fingerprint
from fpdb.fingerprint.recipe import to_int
from fpdb.flow import parse_key
from fpdb.io.html import html_text
from fpdb.look.forms import (
    EXCERPT,
    ROWS,
    Context,
    ServedPage,
    Visit,
    address,
    button,
    excerpt,
    form,
    hidden,
    key_link,
    link,
    moment,
    paged,
    pager,
)
from fpdb.look.groups import NO_DAY, Groups, parse_day
from fpdb.look.listing import heading
from fpdb.look.page import choice, entry, facts, percent, plural
from fpdb.look.why import ComparedSide, comparison
from fpdb.markup import Markup, element, table
from fpdb.models import Document, Key, Match

_WEAKEST_LINK = (
    "A group is as near as its weakest link: of its pairs that are near enough to connect it, the "
    "least near. Texts that only others connect may be further apart."
)
_KINDS = {"text": "a text", "html": "HTML", "fingerprint": "a fingerprint"}
_FAR = 1 << 40
_SAID = {
    None: "Are they the same?",
    True: "Your verdict: same",
    False: "Your verdict: different",
}
_ORDERS = {
    "least": "weakest link first",
    "similar": "strongest links first",
    "large": "largest first",
    "new": "newest first",
}
# The labels, names and kinds of the fields that filter groups.
_FILTERS = (
    ("Documents", "least_size", "number"),
    ("to", "most_size", "number"),
    ("Weakest link in %", "least_share", "number"),
    ("to", "most_share", "number"),
    ("Host", "host", "search"),
    ("From", "first_day", "date"),
    ("to", "last_day", "date"),
)


def groups_page(context: Context, visit: Visit) -> ServedPage:
    """Show the groups within limits, fifty at a time."""
    groups = context.background.groups
    if groups is None:
        return context.framed("Groups", *context.status(visit), page="groups", refresh=2)
    given = {name: visit.get(name) for _, name, _ in _FILTERS}
    given["order"] = visit.get("order") if visit.get("order") in _ORDERS else "least"
    first, last = parse_day(given["first_day"]), parse_day(given["last_day"])
    kept = groups.within(
        sizes=(visit.number("least_size", 0), visit.number("most_size", _FAR)),
        shares=(
            visit.number("least_share", 0) / 100,
            (visit.number("most_share", 100) + 1) / 100 - 1e-9,
        ),
        days=(first.toordinal() if first else 0, last.toordinal() if last else _FAR),
        host=given["host"].lower(),
    )
    chosen = groups.ordered(given["order"], kept)
    number = visit.place()
    fields = [
        entry(label, name, given[name], kind, **({"min": 0} if kind == "number" else {}))
        for label, name, kind in _FILTERS
        if context.database.similarity is not None or not name.endswith("_share")
    ]
    items = [
        _group_line(context, groups, group)
        for group in chosen[(number - 1) * ROWS : number * ROWS].tolist()
    ]
    return context.framed(
        "Groups",
        *context.status(visit),
        form("groups", *fields, choice("Sort", "order", given["order"], _ORDERS), button("Filter")),
        element("p", f"{len(chosen):,} of {plural(len(groups.starts), 'group')}", role="status"),
        element("p", _WEAKEST_LINK, class_="soft"),
        element("ol", *items, class_="list"),
        pager("groups", number, len(chosen), **given),
        page="groups",
    )


def _group_line(context: Context, groups: Groups, group: int) -> Markup:
    rows = groups.rows(group)
    ids = groups.ids[rows[:3]].tolist()
    keys = [key for key in context.database.keys_of(ids) if key is not None]
    kept = context.database.get(keys[0]) if keys else None
    days = [
        date.fromordinal(int(day)).isoformat()
        for day in (groups.first_days[group], groups.last_days[group])
        if 0 < day < NO_DAY
    ]
    least, texts = float(groups.weakest[group]), int(groups.texts[group])
    share = plural(round((1 - least) * context.database.plan.bits), "bit")
    if context.database.similarity is not None:
        share = percent(least)
    marks = " to ".join(dict.fromkeys(days)) + f", {plural(texts, 'text')}"
    inner = heading(
        "same" if texts == 1 else share,
        context.title(kept) if kept else "deleted",
        plural(len(rows), "document"),
        [str(key) for key in keys],
        marks,
    )
    place = address("group", of=ids[0])
    return element("li", element("a", *inner, href=place, class_="head"), class_="group")


def group_page(context: Context, visit: Visit) -> ServedPage:
    """Show a group: its first text beside another one of it, and its documents."""
    groups = context.background.groups
    number = visit.whole("of")
    group = None if groups is None else groups.group_of(number)
    if groups is None or group is None:
        raise DocumentNotFoundError("found no group of this document")
    rows = groups.rows(group)
    pair = [int(same[0]) for same in groups.versions(group, 2)]
    keys = context.database.keys_of(groups.ids[pair].tolist())
    found = [context.database.get(key) for key in keys if key is not None]
    shown = [document for document in found if document is not None]
    if not shown or keys[0] is None:
        raise DocumentNotFoundError("the first document of this group was deleted")
    texts = plural(int(groups.texts[group]), "different text")
    chain = "Pairs connect them, so not all of them need be near each other."
    chain = chain if len(rows) > 2 else ""
    return context.framed(
        context.title(shown[0]),
        element("p", f"{plural(len(rows), 'document')} with {texts}. {chain}"),
        *(_pair(context, visit, shown) if len(shown) > 1 else excerpt(context.side(shown[0]).text)),
        element("h2", "Documents"),
        _members(context, visit, groups, rows, shown[0]),
        pager("group", visit.place(), len(rows), of=number),
        page="groups",
    )


def _members(
    context: Context, visit: Visit, groups: Groups, rows: Places, first: Document
) -> Markup:
    """Show the documents of a group, to be marked if decisions may be made."""
    page = visit.place()
    ids = groups.ids[rows[(page - 1) * ROWS : page * ROWS]].tolist()
    lines = []
    for key in context.database.keys_of(ids):
        document = None if key is None else context.database.get(key)
        if document is None:
            continue
        mark = entry("", "key", document.key, "checkbox", aria_label=f"Mark {document.key}")
        other = link("compare", "compare", key=first.key, other=document.key)
        line = (
            mark,
            key_link(document.key),
            moment(document.added),
            f"{document.characters:,}",
            *_apart(first, document),
            "the first" if document.key == first.key else other,
        )
        lines.append(line)
    head = ("mark", "key", "added", "characters", "similarity", "distance", "texts")
    left_out = set() if visit.may_write else {0}
    left_out |= set() if context.database.similarity is not None else {4}
    shown = [
        [cell for place, cell in enumerate(line) if place not in left_out]
        for line in (head, *lines)
    ]
    inner = table(shown[0], shown[1:], "Documents of the group")
    if not visit.may_write:
        return inner
    others = "Keep the marked, delete the others …"
    return form(
        "delete",
        inner,
        *hidden(of=int(groups.ids[rows[0]])),
        button("Delete the marked …", name="which", value="marked", class_="danger"),
        button(others, name="which", value="others", class_="danger"),
        token=visit.token,
        class_="members",
    )


def _apart(first: Document, other: Document) -> tuple[str, str]:
    """Return how near two documents are: by their sketches, and by their fingerprints."""
    share = sketch_jaccard(first.sketch, other.sketch) if first.sketch and other.sketch else -1
    bits = "–"
    if first.fingerprint is not None and other.fingerprint is not None:
        bits = str(distance(first.fingerprint, other.fingerprint))
    return percent(share) if share >= 0 else "–", bits


def _pair(context: Context, visit: Visit, pair: Sequence[Document]) -> Iterator[Markup]:
    """Compare two stored documents, and let a user judge them."""
    first, second = pair
    yield comparison(context.database.recipe, context.side(first), context.side(second))
    if visit.may_write:
        verdict = context.decisions.verdict(first.key, second.key)
        buttons = [
            button(text, name="same", value=value, aria_pressed=str(verdict is same).lower())
            for text, value, same in (("Same", "1", True), ("Different", "0", False))
        ]
        if verdict is not None:
            buttons.append(button("Take it back", name="same", value="-"))
        yield form(
            "verdict",
            element("span", _SAID[verdict], class_="soft"),
            *hidden(key=first.key, other=second.key),
            *buttons,
            token=visit.token,
            class_="verdict",
        )


def compare_page(context: Context, visit: Visit) -> ServedPage:
    """Show two documents beside each other."""
    pair = [context.found(visit.get(name)) for name in ("key", "other")]
    content = [*_pair(context, visit, pair), *context.group_link(pair[0])]
    return context.framed("Two documents", *content, page="documents")


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
        table(("key", "added", "characters", "fingerprint"), rows, "Documents"),
        element("p", "" if rows else "There are none."),
        paged(*more),
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
        *hidden(key=document.key),
        button("Delete …", name="which", value="marked", class_="danger"),
        token=visit.token,
        class_="verdict",
    )
    return context.framed(
        context.title(document),
        facts(given),
        *([delete] if visit.may_write else []),
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
    return table(("similarity", "distance", "key", "texts"), rows, "Documents that are near")


def near_page(context: Context, visit: Visit) -> ServedPage:
    """Show what is near a text, and why; the forms bring the text with the next visit again."""
    kind, given = visit.get("kind", "text"), visit.get("text")
    # As it was given, for it is sent again; a first line end is dropped by browsers.
    text = Markup("\n" + escape(given))
    label = "What to look for"
    box = element("textarea", text, name="text", required="", aria_label=label, rows=9)
    return context.framed(
        "Near a text",
        element(
            "p",
            "Paste a text, the HTML of a page or a fingerprint, to see which stored documents "
            "are near, and why. It isn't stored.",
            class_="soft",
        ),
        form(
            "near",
            element("label", box, class_="field"),
            choice("This is", "kind", kind, _KINDS),
            button("Find what is near"),
            token=visit.token,
        ),
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
    found = _matches(matches, action)
    yield form("near", *again, found, token=visit.token, class_="members")
    if chosen:
        own = ComparedSide(element("span", "What you pasted"), text, number, sketch)
        yield comparison(database.recipe, own, context.side(context.found(chosen)))
    elif kind == "html":
        yield from excerpt(text)
