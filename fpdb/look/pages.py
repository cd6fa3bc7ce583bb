"""The pages of groups and of documents, one or all of them, and of what is near a text."""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from html import escape
from itertools import islice

from fpdb.errors import DocumentNotFoundError
from fpdb.fingerprint import distance, sketch_jaccard, to_int
from fpdb.fingerprint.digits import parse_fingerprint
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
    pager,
    pages_of,
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
    groups = context.groups
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
    seen, links = pages_of(visit, len(chosen), **given)
    fields = [
        entry(label, name, given[name], kind, min=0 if kind == "number" else None)
        for label, name, kind in _FILTERS
        if groups.similarity is not None or not name.endswith("_share")
    ]
    return context.framed(
        "Groups",
        *context.status(visit),
        form("groups", *fields, choice("Sort", "order", given["order"], _ORDERS), button("Filter")),
        element("p", f"{len(chosen):,} of {plural(len(groups.starts), 'group')}", role="status"),
        element("p", _WEAKEST_LINK, class_="soft"),
        element("ol", *(_line(context, groups, g) for g in chosen[seen].tolist()), class_="list"),
        links,
        page="groups",
    )


def _line(context: Context, groups: Groups, group: int) -> Markup:
    rows = groups.rows(group)
    ids = groups.ids[rows[:3]].tolist()
    keys = [key for key in context.database.keys_of(ids) if key is not None]
    kept = context.database.get(keys[0]) if keys else None
    days = dict.fromkeys(
        date.fromordinal(int(day)).isoformat()
        for day in (groups.first_days[group], groups.last_days[group])
        if 0 < day < NO_DAY
    )
    least, texts = float(groups.weakest[group]), int(groups.texts[group])
    share = percent(least)
    if groups.similarity is None:
        share = plural(round((1 - least) * context.database.plan.bits), "bit")
    inner = heading(
        "same" if texts == 1 else share,
        context.title(kept) if kept else "deleted",
        plural(len(rows), "document"),
        [str(key) for key in keys],
        f"{' to '.join(days)}, {plural(texts, 'text')}",
    )
    place = address("group", of=ids[0])
    return element("li", element("a", *inner, href=place, class_="head"), class_="group")


def group_page(context: Context, visit: Visit) -> ServedPage:
    """Show a group: its first text beside another one of it, and its documents."""
    groups, group = context.group(visit)
    rows = groups.rows(group)
    pair = [int(same[0]) for same in groups.versions(group, 2)]
    keys = context.database.keys_of(groups.ids[pair].tolist())
    found = [context.database.get(key) for key in keys if key is not None]
    shown = [document for document in found if document is not None]
    if not shown or keys[0] is None:
        raise DocumentNotFoundError("the first document of this group was deleted")
    said = f"{plural(len(rows), 'document')} with "
    said += plural(int(groups.texts[group]), "different text")
    if len(rows) > 2:
        said += ". Pairs connect them, so not all of them need be near each other"
    seen, links = pages_of(visit, len(rows), of=visit.whole("of"))
    return context.framed(
        context.title(shown[0]),
        element("p", f"{said}."),
        *(_pair(context, visit, shown) if len(shown) > 1 else excerpt(context.side(shown[0]).text)),
        element("h2", "Documents"),
        _members(context, visit, groups.ids[rows[seen]].tolist(), shown[0]),
        links,
        page="groups",
    )


def _members(context: Context, visit: Visit, ids: Sequence[int], first: Document) -> Markup:
    """Show documents of a group, to be marked if decisions may be made."""
    lines = []
    for key in context.database.keys_of(ids):
        document = None if key is None else context.database.get(key)
        if document is None:
            continue
        line = [
            key_link(document.key),
            moment(document.added),
            f"{document.characters:,}",
            *_apart(context, first, document),
            "the first"
            if document.key == first.key
            else link("compare", "compare", key=first.key, other=document.key),
        ]
        if visit.may_write:
            said = f"Mark {document.key}"
            line.insert(0, entry("", "key", document.key, "checkbox", aria_label=said))
        lines.append(line)
    near = ["distance"] if context.database.similarity is None else ["similarity", "distance"]
    head = [*["mark"] * visit.may_write, "key", "added", "characters", *near, "texts"]
    inner = table(head, lines, "Documents of the group")
    if not visit.may_write:
        return inner
    others = "Keep the marked, delete the others …"
    return form(
        "delete",
        inner,
        *hidden(of=visit.whole("of")),
        button("Delete the marked …", name="which", value="marked", class_="danger"),
        button(others, name="which", value="others", class_="danger"),
        token=visit.token,
        class_="members",
    )


def _apart(context: Context, first: Document, other: Document) -> Iterator[str]:
    """Yield how near two documents are: by their sketches, and by their fingerprints."""
    if context.database.similarity is not None:
        share = sketch_jaccard(first.sketch, other.sketch) if first.sketch and other.sketch else -1
        yield percent(share) if share >= 0 else "–"
    known = first.fingerprint is not None and other.fingerprint is not None
    yield str(distance(first.fingerprint or 0, other.fingerprint or 0)) if known else "–"


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
    prefix, after, kind = visit.get("prefix"), visit.get("after"), context.database.keys
    start = parse_key(after, kind) if after else None
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
    label, given = "Keys from" if kind == "integer" else "Keys that begin with", visit.get("prefix")
    more = None
    if len(found) == ROWS:
        more = link("After ›", "documents", prefix=given, after=found[-1].key)
    return context.framed(
        "Documents",
        form("documents", entry(label, "prefix", given, "search"), button("Show")),
        table(("key", "added", "characters", "fingerprint"), rows, "Documents"),
        element("p", "" if rows else "There are none."),
        pager(more),
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
    kind, given = visit.get("kind") or "text", visit.get("text")
    # As it was given, for it is sent again; a first line end is dropped by browsers.
    text, label = Markup("\n" + escape(given)), "What to look for"
    box = element("textarea", text, name="text", required="", aria_label=label, rows=9)
    said = (
        "Paste a text, the HTML of a page or a fingerprint, to see which stored documents are "
        "near, and why. It isn't stored."
    )
    return context.framed(
        "Near a text",
        element("p", said, class_="soft"),
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
    again, found = hidden(text=given, kind=kind), _matches(matches, action)
    yield form("near", *again, found, token=visit.token, class_="members")
    if chosen:
        own = ComparedSide(element("span", "What you pasted"), text, number, sketch)
        yield comparison(database.recipe, own, context.side(context.found(chosen)))
    elif kind == "html":
        yield from excerpt(text)
