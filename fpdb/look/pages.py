"""The pages of the explorer: the overview, groups, documents, what is near a text, decisions."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from html import escape
from itertools import islice

from fpdb.arrays import Places
from fpdb.errors import DocumentNotFoundError, InputError
from fpdb.fingerprint import distance, to_int
from fpdb.fingerprint.digits import format_fingerprint, parse_fingerprint
from fpdb.flow import parse_key
from fpdb.io.html import html_text
from fpdb.look.figures import by_day, overview
from fpdb.look.groups import NO_DAY, Groups, host_of, parse_day
from fpdb.look.listing import heading
from fpdb.look.page import cards, choice, entry, facts, folded, percent, plural
from fpdb.look.pair import (
    COMPARED_AT_ONCE,
    ColouredText,
    ComparedSide,
    SharedTexts,
    comparison,
    excerpt,
)
from fpdb.look.visit import (
    ROWS,
    ServedPage,
    Visit,
    address,
    button,
    hidden,
    key_link,
    link,
    moment,
    sent_to,
)
from fpdb.markup import Markup, element, table
from fpdb.models import Document, Key

_WEAKEST_LINK = (
    "A group is as near as its weakest link: of its pairs that are near enough to connect it, the "
    "least near. Texts that only others connect may be further apart."
)
_KINDS = {"text": "a text", "html": "HTML", "fingerprint": "a fingerprint"}
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
    ("From", "least_day", "date"),
    ("to", "most_day", "date"),
)
_EXCERPT = 5_000
_NEAR = "Documents that are near"
_SHOWN = 20
# Documents that a request deletes, of whose time that takes a third at most on slow disks.
_DELETED = 50_000
# Documents of a table for Excel.
_SAVED, _SIGNS = 50_000, ("=", "+", "-", "@")


def overview_page(visit: Visit) -> ServedPage:
    """Show the numbers and pictures of the database and its groups."""
    found, stats = visit.work.found, visit.database.stats()
    numbers = [
        (f"{stats.documents:,}", "documents", f"in {stats.bytes / 1e6:,.1f} MB on disk."),
        (f"{stats.short:,}", "short texts", "are found by equal texts only."),
    ]
    shown = iter([cards(numbers)])
    if found:
        days = by_day("When documents were added", "", found.added, "documents")
        shown = overview(found.groups, found.documents, numbers, days)
    content = *visit.status(), *shown
    return visit.framed(visit.database.path.name, *content, refresh=bool(visit.work.stage))


def groups_page(visit: Visit) -> ServedPage:
    """Show the groups within limits, fifty at a time."""
    groups = visit.groups
    if groups is None:
        return visit.framed("Groups", *visit.status(), refresh=True)
    given, chosen = _chosen(visit, groups)
    seen, links = visit.part(len(chosen), **given)
    fields = [
        entry(label, name, given[name], kind, min=0 if kind == "number" else None)
        for label, name, kind in _FILTERS
        if groups.similarity is not None or not name.endswith("_share")
    ]
    order = choice("Sort", "order", given["order"], _ORDERS)
    lines = [_line(visit, groups, each) for each in chosen[seen].tolist()]
    return visit.framed(
        "Groups",
        *visit.status(),
        element("form", *fields, order, button("Filter"), action="groups", class_="tools"),
        element("p", f"{len(chosen):,} of {plural(len(groups.starts), 'group')}", role="status"),
        element("p", _WEAKEST_LINK, class_="soft"),
        element("ol", *lines, class_="list"),
        links,
        element("p", link("Save as CSV", "table", **given)),
    )


def _chosen(visit: Visit, groups: Groups) -> tuple[dict[str, str], Places]:
    """Return the limits and the order that are given, and the groups within these."""
    given = {name: visit.get(name) for _, name, _ in _FILTERS}
    given["order"] = visit.get("order") if visit.get("order") in _ORDERS else "least"
    return given, groups.ordered(given["order"], groups.within(given))


def groups_table(visit: Visit) -> ServedPage:
    """Return the groups within limits as a table for Excel, as far as a request has time for."""
    groups, fields = visit.groups, visit.work.fields
    if groups is None:
        raise DocumentNotFoundError("the groups aren't found yet", hint="try again later")
    lines = io.StringIO()
    writer, left = csv.writer(lines), _SAVED
    writer.writerow(("group", "percent", "size", "title", "key", "date", "host", "link"))
    for number, group in enumerate(_chosen(visit, groups)[1].tolist(), 1):
        rows = groups.rows(group)[:left]
        left -= len(rows)
        head = number, f"{groups.weakest[group] * 100:.1f}", int(groups.sizes[group])
        for each in visit.documents(visit.database.keys_of(groups.ids[rows].tolist())):
            meta = each.meta
            host = host_of(fields.value("host", meta))
            named = fields.title_of(meta), each.key, parse_day(fields.value("date", meta)), host
            cells = ["" if cell is None else str(cell) for cell in (*named, fields.link(meta))]
            # Excel takes a text with such a sign for a formula.
            writer.writerow(
                (*head, *(f"'{cell}" if cell[:1] in _SIGNS else cell for cell in cells))
            )
        if not left:
            break
    headers = {
        "Content-Type": "text/csv; charset=utf-8",
        "Content-Disposition": 'attachment; filename="groups.csv"',
        "Cache-Control": "no-store",
    }
    return ServedPage(lines.getvalue().encode("utf-8-sig", "replace"), headers=headers)


def _line(visit: Visit, groups: Groups, group: int) -> Markup:
    rows = groups.rows(group)
    ids = groups.ids[rows[:3]].tolist()
    found = visit.documents(visit.database.keys_of(ids))
    days = dict.fromkeys(
        date.fromordinal(int(day)).isoformat()
        for day in (groups.first_days[group], groups.last_days[group])
        if 0 < day < NO_DAY
    )
    least, texts = float(groups.weakest[group]), int(groups.texts[group])
    share = percent(least, exact=False)
    if groups.similarity is None:
        share = plural(round((1 - least) * visit.database.plan.bits), "bit")
    elif texts == 2 and len(pair := visit.versions(groups, group, 2)) == 2:
        first = ComparedSide(Markup(), visit.text(pair[0]), None, pair[0].sketch)
        [share] = visit.shares(first, pair[1:])
    inner = heading(
        "same" if texts == 1 else share,
        visit.title(found[0]) if found else "deleted",
        plural(len(rows), "document"),
        [str(each.key) for each in found],
        f"{' to '.join(days)}, {plural(texts, 'text')}",
    )
    place = address("group", of=ids[0])
    return element("li", element("a", *inner, href=place, class_="head"), class_="group")


def group_page(visit: Visit) -> ServedPage:
    """Show a group: its first text beside another one of it, and its documents."""
    groups, group = visit.group()
    rows = groups.rows(group)
    shown = visit.versions(groups, group, 2)
    if not shown or shown[0].id != groups.ids[rows[0]]:
        raise DocumentNotFoundError("the first document of this group was deleted")
    said = f"{plural(len(rows), 'document')} with "
    said += plural(int(groups.texts[group]), "different text")
    if len(rows) > 2:
        said += ". Pairs connect them, so not all of them need be near each other"
    seen, links = visit.part(len(rows), of=visit.whole("of"))
    return visit.framed(
        visit.title(shown[0]),
        element("p", f"{said}."),
        *(_pair(visit, *shown) if len(shown) > 1 else excerpt(visit.side(shown[0]).text, _EXCERPT)),
        element("h2", "Documents"),
        _members(visit, groups.ids[rows[seen]].tolist(), shown[0]),
        links,
    )


def _members(visit: Visit, ids: Sequence[int], first: Document) -> Markup:
    """Show documents of a group, to be marked if decisions may be made."""
    found = visit.documents(visit.database.keys_of(ids))
    shown = _table(visit, "Documents of the group", found, first, marked=visit.may_write)
    if not visit.may_write:
        return shown
    return visit.form(
        "delete",
        shown,
        *hidden(of=visit.whole("of")),
        _delete_button("Delete the marked …", "marked"),
        _delete_button("Keep the marked, delete the others …", "others"),
        class_="members",
    )


def _table(
    visit: Visit,
    title: str,
    documents: Sequence[Document],
    origin: Document | ComparedSide | None = None,
    *,
    marked: bool = False,
) -> Markup:
    """Show documents, and how near they are to another one or to a text."""
    if not documents:
        return element("p", "There are none.")
    near, apart = _apart(visit, origin, documents) if origin else (["fingerprint"], [])
    apart = apart or [[_digits(visit, each)] for each in documents]
    rows = []
    for each, cells in zip(documents, apart, strict=True):
        row = [key_link(each.key), moment(each.added), f"{each.characters:,}"]
        if marked:
            said = f"Mark {each.key}"
            row.insert(0, entry("", "key", each.key, "checkbox", aria_label=said))
        rows.append([*row, *cells])
    return table([*["mark"] * marked, "key", "added", "characters", *near], rows, title)


def _apart(
    visit: Visit, origin: Document | ComparedSide, documents: Sequence[Document]
) -> tuple[list[str], list[list[Markup | str]]]:
    """Return the heads and cells that say how near documents are to another one or to a text."""
    first = origin if isinstance(origin, ComparedSide) else visit.side(origin)
    shares, digits = visit.shares(first, documents), first.fingerprint
    by_bits = visit.database.similarity is None or set(shares) == {"–"}
    cells: list[list[Markup | str]] = []
    for each, share in zip(documents, shares, strict=True):
        cell: list[Markup | str] = [share]
        if by_bits:
            known = digits is not None and each.fingerprint is not None
            cell = [str(distance(digits or 0, each.fingerprint or 0)) if known else "–"]
        if isinstance(origin, ComparedSide):
            cell.append(button("show", name="match", value=each.key))
        elif origin.key == each.key:
            cell.append("the first")
        else:
            cell.append(link("compare", "compare", key=origin.key, other=each.key))
        cells.append(cell)
    return ["distance" if by_bits else "similarity", "texts"], cells


def _delete_button(text: str, which: str) -> Markup:
    return button(text, name="which", value=which, class_="danger")


def _pair(visit: Visit, first: Document, second: Document) -> Iterator[Markup]:
    """Compare two stored documents, and let a user judge them."""
    yield comparison(visit.database.recipe, visit.side(first), visit.side(second))
    if visit.may_write:
        verdict = visit.decisions.verdict(first.key, second.key)
        buttons = [
            button(text, name="same", value=value, aria_pressed=str(verdict is same).lower())
            for text, value, same in (("Same", "1", True), ("Different", "0", False))
        ]
        said = "Are they the same?"
        if verdict is not None:
            said = f"Your verdict: {'same' if verdict else 'different'}"
            buttons.append(button("Take it back", name="same", value="-"))
        asked = element("span", said, class_="soft")
        yield visit.form("verdict", asked, *hidden(key=first.key, other=second.key), *buttons)


def compare_page(visit: Visit) -> ServedPage:
    """Show two documents beside each other."""
    first, second = visit.document("key"), visit.document("other")
    content = [*_pair(visit, first, second), *visit.group_link(first)]
    return visit.framed("Two documents", *content)


def documents_page(visit: Visit) -> ServedPage:
    """Show the documents by their keys, fifty at a time."""
    prefix, after, kind = visit.get("prefix"), visit.get("after"), visit.database.keys
    start = parse_key(after, kind) if after else None
    if kind == "integer":
        first = int(parse_key(prefix, kind)) if prefix else 0
        start, prefix = start or (first - 1 if first else None), ""
    found = list(islice(visit.database.scan(prefix=prefix, after=start), ROWS + 1))
    label, given = "Keys from" if kind == "integer" else "Keys that begin with", visit.get("prefix")
    field = entry(label, "prefix", given, "search")
    last = found[ROWS - 1].key if found[ROWS:] else None
    more = [link("After ›", "documents", prefix=given, after=last)] if found[ROWS:] else []
    return visit.framed(
        "Documents",
        element("form", field, button("Show"), action="documents", class_="tools"),
        _table(visit, "Documents", found[:ROWS]),
        element("p", *more),
    )


def _digits(visit: Visit, document: Document) -> Markup:
    number = document.fingerprint
    if number is None:
        return Markup("short")
    return element("code", format_fingerprint(number, visit.database.plan.bits))


def document_page(visit: Visit) -> ServedPage:
    """Show what is kept of a document, its text, and what is near it."""
    document, database = visit.document("key"), visit.database
    text = visit.side(document)
    [found] = database.query_prepared(database.preparer.prepare([document]), limit=ROWS)
    keys = [match.key for match in found if match.key != document.key]
    meta = "" if document.meta is None else json.dumps(document.meta, ensure_ascii=False)
    fields = visit.work.fields
    url = fields.link(document.meta)
    given = {
        "key": str(document.key),
        "id": str(document.id),
        "title": fields.title_of(document.meta),
        "date": str(fields.value("date", document.meta) or "")[:_EXCERPT],
        "host": host_of(fields.value("host", document.meta)),
        "link": url and element("a", url[:_EXCERPT], href=url, rel="noreferrer"),
        "added": f"{moment(document.added)} UTC",
        "characters": f"{document.characters:,}",
        "fingerprint": _digits(visit, document),
        "metadata": meta[:_EXCERPT],
    }
    delete = [*hidden(key=document.key), _delete_button("Delete …", "marked")]
    return visit.framed(
        visit.title(document),
        facts(given),
        *([visit.form("delete", *delete)] if visit.may_write else []),
        *visit.group_link(document),
        element("p", text.note, class_="soft"),
        *excerpt(text.text, _EXCERPT),
        element("h2", "Near it"),
        _table(visit, _NEAR, visit.documents(keys), document),
        *(_parts(visit, text.text, document.key) if text.text else ()),
    )


def near_page(visit: Visit) -> ServedPage:
    """Show what is near a text, and why; the forms bring the text with the next visit again."""
    kind, given = visit.get("kind") or "text", visit.get("text")
    # As it was given, for it is sent again; a first line end is dropped by browsers.
    text, label = Markup("\n" + escape(given)), "What to look for"
    box = element("textarea", text, name="text", required="", aria_label=label, rows=9)
    said = (
        "Paste a text, the HTML of a page or a fingerprint, to see which stored documents are "
        "near, and why, and which have parts of it if the database keeps passages. It isn't stored."
    )
    return visit.framed(
        "Near a text",
        element("p", said, class_="soft"),
        visit.form(
            "near",
            element("label", box, class_="field"),
            choice("This is", "kind", kind, _KINDS),
            button("Find what is near"),
            class_="tools",
        ),
        *(_answers(visit, kind, given) if visit.posted and given.strip() else ()),
    )


def _answers(visit: Visit, kind: str, given: str) -> Iterator[Markup]:
    database = visit.database
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
    keys = [match.key for match in matches]
    chosen = next((key for key in keys if str(key) == visit.get("match")), (keys or [""])[0])
    own = ComparedSide(element("span", "What you pasted"), text, number, sketch)
    yield element("h2", "Near it")
    if not matches.complete:
        yield element("p", "A budget ended the search, so there may be more.", class_="warn")
    found = _table(visit, _NEAR, visit.documents(keys), own)
    yield visit.form("near", *hidden(text=given, kind=kind), found, class_="members")
    if keys:
        yield comparison(database.recipe, own, visit.side(database[chosen]))
    elif kind == "html":
        yield from excerpt(text, _EXCERPT)
    if text is not None:
        yield from _parts(visit, text)


def _parts(visit: Visit, text: str, own: Key | None = None) -> Iterator[Markup]:
    """Show which other documents have parts of a text, if the database keeps passages.

    The parts are shown as well if the texts of these are there.
    """
    database, coloured = visit.database, ColouredText()
    if not database.preparer.catalog.passaged:
        return
    yield element("h2", "Its parts elsewhere")
    found = database.passages(text, limit=_SHOWN)
    rows, shown = [], list[Markup]()
    for match in [each for each in found if each.key != own]:
        colour = ""
        if not coloured.complete and (side := visit.side(database[match.key])).text:
            shared = SharedTexts(database.recipe, text, side.text or "", most=COMPARED_AT_ONCE)
            if coloured.add(shared):
                colour = element("mark", data_source=len(coloured.sources))
                parts = element("div", *shared.drawn(), class_="shared")
                shown.append(folded(f"{len(shown) + 1}: {match.key}", parts))
        shares = percent(match.share), percent(match.other_share)
        rows.append((colour, key_link(match.key), f"{match.words:,}", *shares))
    if found.boilerplate:
        said = f"{found.boilerplate:,} words or characters of it are in too many documents to say."
        yield element("p", said, class_="soft")
    if not rows:
        yield element("p", "No document has a part of it.")
        return
    head = "", "key", "words or characters, about", "share of this text", "share of that one"
    yield table(head, rows, "Documents with parts of it")
    if shown:
        yield element("section", *coloured.drawn(), *shown, class_="coloured")


def verdict_page(visit: Visit) -> ServedPage:
    """Keep a verdict on two documents, or take it back."""
    key, other = visit.document("key").key, visit.document("other").key
    visit.decisions.judge(key, other, same={"1": True, "0": False}.get(visit.get("same")))
    return sent_to(address("compare", key=key, other=other))


def delete_page(visit: Visit) -> ServedPage:
    """Delete documents after a confirmation, at most as many as a request has time for."""
    every = _marked(visit)
    keys = every[:_DELETED]
    back = link("Go back", "group" if visit.get("of") else "documents", of=visit.get("of"))
    if visit.get("sure") == str(len(keys)):
        deleted, path = visit.decisions.delete(keys)
        said = f"{plural(deleted, 'document')} deleted. This brings them back:"
        command = element("code", f"fpdb load {visit.database.path} {path}")
        content = element("p", said, role="status"), element("p", command), element("p", back)
        return visit.framed("Deleted", *content)
    some = plural(len(keys), "document")
    said = "Before they are deleted, a file beside the database gets what brings them back."
    if len(every) > len(keys):
        said += f" Of {len(every):,}, a step deletes {_DELETED:,}; repeat it for the others."
    shown = [element("li", key_link(key)) for key in keys[:_SHOWN]]
    if len(keys) > _SHOWN:
        shown.append(element("li", f"and {len(keys) - _SHOWN:,} more"))
    again = {name: list(visit.fields.get(name, ())) for name in ("of", "which", "key")}
    return visit.framed(
        f"Delete {some}?",
        element("ul", *shown),
        element("p", said),
        visit.form(
            "delete",
            *hidden(**again, sure=len(keys)),
            button(f"Delete {some}", class_="danger"),
            back,
        ),
    )


def _marked(visit: Visit) -> list[Key]:
    """Return the keys to delete: the marked ones, or the other ones of their group."""
    kind = visit.database.keys
    marked = dict.fromkeys(parse_key(key, kind) for key in visit.fields.get("key", ()))
    if not marked:
        raise InputError("no document is marked", hint="mark at least one of the group")
    if visit.get("which") != "others":
        return list(marked)
    groups, group = visit.group()
    keys = visit.database.keys_of(groups.ids[groups.rows(group)].tolist())
    return [key for key in keys if key is not None and key not in marked]


def again_page(visit: Visit) -> ServedPage:
    """Look for the groups once more."""
    visit.work.start()
    return sent_to("overview")


PAGES: dict[str, Callable[[Visit], ServedPage]] = {
    "overview": overview_page,
    "groups": groups_page,
    "table": groups_table,
    "group": group_page,
    "compare": compare_page,
    "documents": documents_page,
    "document": document_page,
    "near": near_page,
}
POSTED = {"near": near_page, "again": again_page, "delete": delete_page, "verdict": verdict_page}
