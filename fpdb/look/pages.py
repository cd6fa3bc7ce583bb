"""The pages of the explorer: the overview, groups, documents, what is near a text, decisions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape

from fpdb.errors import InputError
from fpdb.fingerprint import to_int
from fpdb.fingerprint.digits import parse_fingerprint
from fpdb.flow import parse_key
from fpdb.io.html import html_text
from fpdb.look.figures import by_day, overview
from fpdb.look.grouped import EXCERPT, group_page, groups_page, groups_table, judged_place
from fpdb.look.groups import host_of
from fpdb.look.page import cards, choice, entry, facts, folded, percent, plural
from fpdb.look.pair import (
    COMPARED_AT_ONCE,
    ColouredText,
    ComparedSide,
    SharedTexts,
    comparison,
    excerpt,
)
from fpdb.look.stored import delete_button, digits_of, listed_documents, stored_pair
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

_KINDS = {"text": "a text", "html": "HTML", "fingerprint": "a fingerprint"}
_SHOWN = 20
# Documents that a request deletes, of whose time that takes a third at most on slow disks.
_DELETED = 50_000


def overview_page(visit: Visit) -> ServedPage:
    """Show the numbers and pictures of the database and its groups."""
    found, stats = visit.work.found, visit.database.stats()
    numbers = [
        (f"{stats.documents:,}", "documents", f"in {stats.bytes / 1e6:,.1f} MB on disk."),
        (f"{stats.short:,}", "short texts", "are found by equal texts only."),
    ]
    shown = iter([cards(numbers)] if stats.documents else [visit.nothing("")])
    if found and stats.documents:
        days = by_day("When documents were added", "", found.added, "documents")
        shown = overview(found.groups, found.documents, numbers, days)
    unread = found.groups.unread_note if found else ""
    content = *visit.status(), *shown, *([element("p", unread, class_="note")] if unread else [])
    refresh = "2" if visit.work.stage else ""
    return visit.framed(visit.database.path.name, *content, refresh=refresh)


def compare_page(visit: Visit) -> ServedPage:
    """Show two documents beside each other."""
    first, second = visit.document("key"), visit.document("other")
    content = [*stored_pair(visit, first, second), *visit.group_link(first)]
    return visit.framed("Two documents", *content)


def documents_page(visit: Visit) -> ServedPage:
    """Show the documents by their keys, fifty at a time, or those with some words."""
    prefix, after, kind = visit.get("prefix"), visit.get("after"), visit.database.keys
    start = parse_key(after, kind) if after else None
    if kind == "integer":
        first = int(parse_key(prefix, kind)) if prefix else 0
        start, prefix = start or (first - 1 if first else None), ""
    found, last = visit.matching(visit.get("search").casefold().split(), prefix, start)
    given = {name: visit.get(name) for name in ("search", "prefix")}
    following = address("documents", **given, after=last)
    label = "Keys from" if kind == "integer" else "Keys that begin with"
    fields = [
        entry("Search", "search", visit.get("search"), "search", data_key="/"),
        entry(label, "prefix", visit.get("prefix"), "search"),
        button("Show"),
    ]
    shown = [listed_documents(visit, "Documents", found)]
    if not found:
        shown = [element("p", "No document has it. ", link("Show all documents", "documents"))]
        if not len(visit.database):
            shown = [visit.nothing("")]
        elif last is not None:
            shown = [element("p", f"Nothing yet; the search goes on after {last}.", role="status")]
    more = "After ›" if len(found) == ROWS else "Search on ›"
    where = "metadata and texts" if visit.work.texts.files else "metadata"
    return visit.framed(
        "Documents",
        element("form", *fields, action="documents", class_="tools"),
        element("p", f"A search looks for all words in keys, titles, {where}.", class_="soft"),
        *shown,
        *([element("p", element("a", more, href=following))] if last is not None else []),
        refresh="" if found or last is None else f"0; url={following}",
    )


def document_page(visit: Visit) -> ServedPage:
    """Show what is kept of a document, its text, and what is near it."""
    document, database = visit.document("key"), visit.database
    text = visit.side(document)
    [found] = database.query_prepared(database.preparer.prepare([document]), limit=ROWS)
    keys = [match.key for match in found if match.key != document.key]
    fields = visit.work.fields
    url = fields.link(document.meta)
    given = {
        "key": str(document.key),
        "id": str(document.id),
        "date": str(fields.value("date", document.meta) or "")[:EXCERPT],
        "host": host_of(fields.value("host", document.meta)),
        "link": _linked(url),
        "added": f"{moment(document.added)} UTC",
        "characters": f"{document.characters:,}",
        "fingerprint": digits_of(visit, document),
    }
    delete = [*hidden(key=document.key), delete_button("Delete …", "marked")]
    return visit.framed(
        visit.title(document),
        facts(given),
        *_metadata(document),
        *([visit.form("delete", *delete)] if visit.may_write else []),
        *visit.group_link(document),
        element("p", text.note, class_="soft"),
        *excerpt(text.text, EXCERPT),
        element("h2", "Near it"),
        _near(visit, keys, document),
        *(_parts(visit, text.text, document.key) if text.text else ()),
    )


def _metadata(document: Document) -> Iterator[Markup]:
    """Show all metadata, in which addresses are links."""
    meta = document.meta
    if meta:
        named = meta if isinstance(meta, Mapping) else {"": meta}
        shown: dict[str, str] = {}
        for name, value in named.items():
            shown[element("bdi", str(name)[:EXCERPT])] = _linked(str(value))
        yield element("h4", "Metadata")
        yield facts(shown)


def _linked(text: str) -> str:
    """Return a text, as a link if it is an address that a browser may open."""
    shown = text[:EXCERPT]
    if not text.startswith(("http://", "https://")):
        return shown
    return element("a", shown, href=text, rel="noreferrer")


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
    found = _near(visit, keys, own)
    yield visit.form("near", *hidden(text=given, kind=kind), found, class_="members")
    if keys:
        yield comparison(database.recipe, own, visit.side(database[chosen]))
    elif kind == "html":
        yield from excerpt(text, EXCERPT)
    if text is not None:
        yield from _parts(visit, text)


def _near(visit: Visit, keys: Sequence[Key], own: Document | ComparedSide) -> Markup:
    """Show documents that are near."""
    if not keys:
        return visit.nothing("No other document is near.")
    return listed_documents(visit, "Documents that are near", visit.documents(keys), own)


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
    if visit.get("of"):
        return sent_to(judged_place(visit))
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
