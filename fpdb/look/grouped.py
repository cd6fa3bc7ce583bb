"""The pages of the explorer with groups: their list, one of them, and all as a table."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from datetime import date

from fpdb.arrays import Places
from fpdb.errors import DocumentNotFoundError
from fpdb.look.groups import NO_DAY, Groups
from fpdb.look.listing import heading
from fpdb.look.page import button, choice, entry, keyboard, messages, percent, plural
from fpdb.look.pair import excerpt
from fpdb.look.visit import ROWS, ServedPage, Visit, address, delete_button, hidden, link
from fpdb.markup import Markup, as_cell, element
from fpdb.models import Document

_SHARES = (
    "The percentage of a group says how similar its first text and the least similar one are. "
    "≈ marks an estimate."
)
_ORDERS = {
    "least": "least similar first",
    "similar": "most similar first",
    "large": "largest first",
    "new": "newest first",
}
# The labels, names and kinds of the fields that filter groups.
_FILTERS = (
    ("Documents", "least_size", "number"),
    ("to", "most_size", "number"),
    ("Similarity in %", "least_share", "number"),
    ("to", "most_share", "number"),
    ("Host", "host", "search"),
    ("From", "least_day", "date"),
    ("to", "most_day", "date"),
)
EXCERPT = 5_000
# Groups of a page that shows their texts, too; and the texts of one that are compared.
_OPENED, _MOST_TEXTS = 10, 10
# Documents of a table for Excel.
_SAVED = 50_000
_HEADS = ("group", "percent", "size", "title", "key", "date and host", "link")


def groups_page(visit: Visit) -> ServedPage:
    """Show the groups within limits, fifty at a time, or ten with their texts."""
    groups = visit.groups
    if groups is None:
        return visit.framed("Groups", *visit.status(), refresh="2")
    if not len(groups.starts):
        none = visit.nothing("No document is a near-duplicate of another one.")
        return visit.framed("Groups", *visit.status(), none)
    limits, chosen, opened = _limits(visit), _chosen(visit, groups), visit.get("open")
    rows = _OPENED if opened else ROWS
    seen, links = visit.part(len(chosen), rows, **limits, open=opened)
    fields = [
        entry(label, name, limits[name], kind, min=0 if kind == "number" else None)
        for label, name, kind in _FILTERS
        if groups.similarity is not None or not name.endswith("_share")
    ]
    order = choice("Sort", "order", visit.get("order"), _ORDERS)
    lines = [_line(visit, groups, group, opened=bool(opened)) for group in chosen[seen].tolist()]
    none = element("p", "No group fits these limits. ", link("Show all groups", "groups"))
    other = "Close all" if opened else "Open all"
    return visit.framed(
        "Groups",
        *visit.status(),
        element("form", *fields, order, button("Filter"), action="groups", class_="tools"),
        element("p", f"{len(chosen):,} of {plural(len(groups.starts), 'group')}", role="status"),
        element("p", _SHARES, class_="soft"),
        element("ol", *lines, class_="list") if lines else none,
        links,
        element(
            "p",
            link(other, "groups", **limits, open="" if opened else "1"),
            " · ",
            element("a", "Save as CSV", href=address("table", **limits), data_table=""),
        ),
        keyboard(),
    )


def _limits(visit: Visit) -> dict[str, object]:
    return {name: visit.get(name) for name in (*(name for _, name, _ in _FILTERS), "order")}


def _chosen(visit: Visit, groups: Groups) -> Places:
    order = visit.get("order") if visit.get("order") in _ORDERS else "least"
    return groups.ordered(order, groups.within({name: visit.get(name) for name in _limits(visit)}))


def _line(visit: Visit, groups: Groups, group: int, *, opened: bool) -> Markup:
    rows = groups.rows(group)
    documents = visit.documents(visit.database.keys_of(groups.ids[rows[:3]].tolist()))
    days = dict.fromkeys(
        date.fromordinal(int(day)).isoformat()
        for day in (groups.first_days[group], groups.last_days[group])
        if 0 < day < NO_DAY
    )
    texts = int(groups.texts[group])
    inner = heading(
        "same" if texts == 1 else _share(visit, groups, group),
        visit.title(documents[0]) if documents else "deleted",
        plural(len(rows), "document"),
        [str(document.key) for document in documents],
        f"{' to '.join(days)}, {plural(texts, 'text')}",
    )
    head = element("a", *inner, href=_place(visit, groups, group), class_="head")
    shown = _texts(visit, visit.versions(groups, group, 2)) if opened else ()
    return element("li", head, *shown, class_="group")


def _place(visit: Visit, groups: Groups, group: int) -> str:
    return address("group", of=groups.ids[groups.rows(group)[0]], **_limits(visit))


def _share(visit: Visit, groups: Groups, group: int) -> str:
    """Return how near the least similar pair of a group is."""
    least = float(groups.weakest[group])
    if groups.similarity is None:
        return plural(round((1 - least) * visit.database.plan.bits), "bit")
    pair = visit.versions(groups, group, 2)
    if len(pair) != 2:
        return percent(least, exact=False)
    return visit.shares(pair[0], pair[1:])[0]


def _texts(visit: Visit, shown: Sequence[Document]) -> Iterator[Markup]:
    """Show the text of a group, or two of them beside each other."""
    if len(shown) > 1:
        yield visit.comparison(shown[0], shown[1])
    elif shown:
        text, note = visit.text(shown[0])
        yield element("p", note, class_="soft")
        yield from excerpt(text, EXCERPT)


def group_page(visit: Visit) -> ServedPage:
    """Show a group: its first text beside another one of it, and its documents."""
    groups, group = visit.group()
    rows = groups.rows(group)
    versions = visit.versions(groups, group, _MOST_TEXTS)
    if not versions or versions[0].id != groups.ids[groups.firsts[rows[0]]]:
        raise DocumentNotFoundError("the first document of this group was deleted")
    first, *variants = versions
    said = f"{plural(len(rows), 'document')} with "
    said += plural(int(groups.texts[group]), "different text")
    number = min(max(visit.whole("text"), 1), max(len(variants), 1))
    place = {"of": visit.whole("of"), "text": number, **_limits(visit)}
    seen, links = visit.part(len(rows), ROWS, **place)
    return visit.framed(
        visit.title(first),
        _neighbours(visit, groups, group),
        element("p", f"{said}."),
        *(_tabs(visit, versions, number, place) if len(variants) > 1 else ()),
        *_texts(visit, [first, *variants[number - 1 : number]]),
        element("h2", "Documents"),
        _members(visit, groups.ids[rows[seen]].tolist(), first),
        links,
        keyboard(),
    )


def _neighbours(visit: Visit, groups: Groups, group: int) -> Markup:
    chosen = _chosen(visit, groups)
    parts = [link("All groups", "groups", **_limits(visit))]
    if len(at := (chosen == group).nonzero()[0]):
        place = int(at[0])
        for text, key, other in (("‹ Previous", "k", place - 1), ("Next ›", "j", place + 1)):
            if 0 <= other < len(chosen):
                href = _place(visit, groups, int(chosen[other]))
                parts.append(element("a", text, href=href, data_key=key))
        said = f"group {place + 1:,} of {len(chosen):,}"
        parts.append(element("span", said, class_="soft"))
    parts.append(button("Print this group", kind="button", data_print=""))
    return element("nav", *parts, class_="pager", aria_label="Groups")


def _tabs(
    visit: Visit, versions: Sequence[Document], shown: int, place: Mapping[str, object]
) -> Iterator[Markup]:
    """Return links to all texts of a group but the one that is shown."""
    first, *variants = versions
    shares = visit.shares(first, variants)
    said = "Compare the first text with"
    parts = [element("span", said, class_="soft")]
    keys = {shown + 1: "n", shown - 1: "p"}
    for number, share in enumerate(shares, 1):
        href = address("group", **dict(place) | {"text": number})
        current = "true" if number == shown else None
        text = f"{number}: {share}"
        key = keys.get(number)
        parts.append(element("a", text, href=href, aria_current=current, data_key=key))
    yield element("div", *parts, class_="tabs", role="group", aria_label=said)


def _members(visit: Visit, ids: Sequence[int], first: Document) -> Markup:
    """Show documents of a group, to be marked if they may be deleted."""
    documents = visit.documents(visit.database.keys_of(ids))
    marked = visit.may_write
    shown = visit.listed_documents("Documents of the group", documents, first, marked=marked)
    if not marked:
        return shown
    return visit.form(
        "delete",
        shown,
        *hidden(of=visit.whole("of")),
        delete_button("Delete the marked …", "marked"),
        delete_button("Keep the marked, delete the others …", "others"),
        class_="members",
    )


def groups_table(visit: Visit) -> ServedPage:
    """Return the groups within limits as a table for Excel, as far as a request has time for."""
    groups, fields = visit.groups, visit.work.fields
    if groups is None:
        raise DocumentNotFoundError("the groups aren't found yet", hint="try again later")
    lines = io.StringIO()
    writer, left = csv.writer(lines), _SAVED
    said = messages(visit.get("language"))
    writer.writerow(said.get(head, head) for head in _HEADS)
    for number, group in enumerate(_chosen(visit, groups).tolist(), 1):
        rows = groups.rows(group)[:left]
        left -= len(rows)
        head = number, f"{groups.weakest[group] * 100:.1f}", int(groups.sizes[group])
        for document in visit.documents(visit.database.keys_of(groups.ids[rows].tolist())):
            meta = document.meta
            named = fields.title_of(meta), str(document.key), fields.note(meta), fields.link(meta)
            writer.writerow((*head, *map(as_cell, named)))
        if not left:
            break
    headers = {
        "Content-Type": "text/csv; charset=utf-8",
        "Content-Disposition": 'attachment; filename="groups.csv"',
        "Cache-Control": "no-store",
    }
    return ServedPage(lines.getvalue().encode("utf-8-sig", "replace"), headers=headers)
