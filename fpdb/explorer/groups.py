"""The pages of groups: all of them, one of them, and two documents beside each other."""

from collections.abc import Iterator, Sequence
from datetime import date

import numpy as np

from fpdb.arrays import Places
from fpdb.errors import DocumentNotFoundError
from fpdb.explorer.comparison import comparison
from fpdb.explorer.context import Context
from fpdb.explorer.findings import Groups
from fpdb.explorer.parts import (
    ROWS,
    ServedPage,
    Visit,
    address,
    button,
    choice,
    entry,
    excerpt,
    form,
    hidden,
    key_link,
    link,
    moment,
    pager,
    wide_table,
)
from fpdb.fingerprint import distance, sketch_jaccard
from fpdb.models import Document
from fpdb.report.gather import parse_day
from fpdb.report.page import Markup, element, percent, plural

_FAR = 1 << 40
_SAID = {
    None: "Are they the same?",
    True: "Your verdict: same",
    False: "Your verdict: different",
}
_ORDERS = {
    "least": "least similar first",
    "similar": "most similar first",
    "large": "largest first",
    "new": "newest first",
}


def groups_page(context: Context, visit: Visit) -> ServedPage:
    """Show the groups within limits, fifty at a time."""
    groups = context.background.groups
    if groups is None:
        return context.framed("Groups", *context.status(visit), page="groups", refresh=2)
    names = ("least_size", "most_size", "least_share", "most_share", "first_day", "last_day")
    given = {name: visit.get(name) for name in (*names, "host", "order")}
    first, last = parse_day(given["first_day"]), parse_day(given["last_day"])
    order = given["order"] if given["order"] in _ORDERS else "least"
    chosen = groups.chosen(
        sizes=(visit.number("least_size", 0), visit.number("most_size", _FAR)),
        shares=(
            visit.number("least_share", 0) / 100,
            (visit.number("most_share", 100) + 1) / 100 - 1e-9,
        ),
        days=(first.toordinal() if first else 0, last.toordinal() if last else _FAR),
        host=given["host"].lower(),
        order=order,
    )
    number = int(visit.number("page", 1, 1))
    fields = [
        entry("Documents", "least_size", given["least_size"], "number", min=2),
        entry("to", "most_size", given["most_size"], "number", min=2),
        entry("Host", "host", given["host"], "search"),
        entry("From", "first_day", given["first_day"], "date"),
        entry("to", "last_day", given["last_day"], "date"),
        choice("Sort", "order", order, _ORDERS),
        button("Filter"),
    ]
    if context.database.similarity is not None:
        fields[2:2] = [
            entry("Similarity in %", "least_share", given["least_share"], "number", min=0),
            entry("to", "most_share", given["most_share"], "number", min=0),
        ]
    items = [
        _group_line(context, groups, group)
        for group in chosen[(number - 1) * ROWS : number * ROWS].tolist()
    ]
    pages = pager("groups", number, len(chosen), **given)
    return context.framed(
        "Groups",
        *context.status(visit),
        form("groups", *fields),
        element("p", f"{len(chosen):,} of {plural(len(groups.starts), 'group')}", role="status"),
        element("ol", *items, class_="list"),
        pages,
        page="groups",
    )


def _group_line(context: Context, groups: Groups, group: int) -> Markup:
    rows = groups.rows(group)
    ids = groups.found.ids[rows[:3]].tolist()
    keys = [key for key in context.database.keys_of(ids) if key is not None]
    kept = context.database.get(keys[0]) if keys else None
    days = [
        date.fromordinal(int(day)).isoformat()
        for day in (groups.first_days[group], groups.last_days[group])
        if 0 < day < np.iinfo(np.int32).max
    ]
    same = groups.texts[group] == 1
    left = plural(int(groups.texts[group]), "text")
    inner = [
        element(
            "span", "same" if same else _nearness(context, groups.least[group]), class_="share"
        ),
        element("span", context.title(kept) if kept else "deleted", class_="title", dir="auto"),
        element("span", plural(len(rows), "document"), class_="size"),
        element("span", " · ".join(map(str, keys)), class_="keys", dir="auto"),
        element("span", " to ".join(dict.fromkeys(days)) + f", {left}", class_="marks"),
    ]
    place = address("group", of=ids[0])
    return element("li", element("a", *inner, href=place, class_="head"), class_="group")


def _nearness(context: Context, share: float) -> str:
    if context.database.similarity is not None:
        return percent(float(share))
    return plural(round((1 - share) * context.database.plan.bits), "bit")


def group_page(context: Context, visit: Visit) -> ServedPage:
    """Show a group: its first text beside another one of it, and its documents."""
    groups = context.background.groups
    number = int(visit.number("of", -1))
    group = None if groups is None else groups.group_of(number)
    if groups is None or group is None:
        raise DocumentNotFoundError("found no group of this document")
    rows = groups.rows(group)
    keys = context.database.keys_of(groups.found.ids[rows[:1]].tolist())
    # Of the other texts, the one that is the least similar to any of the group.
    own = rows[1:][groups.found.originals[rows[1:]] == rows[1:]]
    if len(own):
        least = own[groups.found.least[own].argmin()]
        keys += context.database.keys_of([int(groups.found.ids[least])])
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
        pager("group", int(visit.number("page", 1, 1)), len(rows), of=number),
        page="groups",
    )


def _members(
    context: Context, visit: Visit, groups: Groups, rows: Places, first: Document
) -> Markup:
    """Show the documents of a group, to be marked if decisions may be made."""
    page = int(visit.number("page", 1, 1))
    ids = groups.found.ids[rows[(page - 1) * ROWS : page * ROWS]].tolist()
    may = context.may_write(visit)
    lines = []
    for key in context.database.keys_of(ids):
        document = None if key is None else context.database.get(key)
        if document is None:
            continue
        mark = entry("", "key", document.key, "checkbox", aria_label=f"Mark {document.key}")
        same = document.key == first.key
        lines.append(
            (
                *([mark] if may else []),
                key_link(document.key),
                moment(document.added),
                f"{document.characters:,}",
                *_apart(context, first, document),
                "the first"
                if same
                else link("compare", "compare", key=first.key, other=document.key),
            )
        )
    near = ["similarity"] if context.database.similarity is not None else []
    head = ["key", "added", "characters", *near, "distance", "texts"]
    inner = wide_table((["mark"] if may else []) + head, lines, "Documents of the group")
    if not may:
        return inner
    return form(
        "delete",
        inner,
        hidden(of=int(groups.found.ids[rows[0]])),
        button("Delete the marked …", name="which", value="marked", class_="danger"),
        button(
            "Keep the marked, delete the others …",
            name="which",
            value="others",
            class_="danger",
        ),
        token=context.token(visit.session),
        class_="members",
    )


def _apart(context: Context, first: Document, other: Document) -> list[str]:
    """Return how near two documents are: the similarity, if it is kept, and the distance."""
    found = []
    if context.database.similarity is not None:
        share = sketch_jaccard(first.sketch, other.sketch) if first.sketch and other.sketch else -1
        found.append(percent(share) if share >= 0 else "–")
    if first.fingerprint is None or other.fingerprint is None:
        return [*found, "–"]
    return [*found, str(distance(first.fingerprint, other.fingerprint))]


def _pair(context: Context, visit: Visit, pair: Sequence[Document]) -> Iterator[Markup]:
    """Compare two stored documents, and let a user judge them."""
    first, second = pair
    yield comparison(context.database.recipe, context.side(first), context.side(second))
    if context.may_write(visit):
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
            hidden(key=first.key, other=second.key),
            *buttons,
            token=context.token(visit.session),
            class_="verdict",
        )


def compare_page(context: Context, visit: Visit) -> ServedPage:
    """Show two documents beside each other."""
    pair = [context.found(visit.get(name)) for name in ("key", "other")]
    content = [*_pair(context, visit, pair), *context.group_link(pair[0])]
    return context.framed("Two documents", *content, page="documents")
