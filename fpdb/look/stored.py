"""Stored documents on the pages of the explorer: as a table, and two of them side by side."""

from collections.abc import Iterator, Sequence

from fpdb.fingerprint import distance
from fpdb.fingerprint.digits import format_fingerprint
from fpdb.look.groups import host_of, parse_day
from fpdb.look.page import entry, first_line
from fpdb.look.pair import ComparedSide, comparison
from fpdb.look.visit import Visit, button, hidden, key_link, link, moment
from fpdb.markup import Markup, element, table
from fpdb.models import Document


def listed_documents(
    visit: Visit,
    title: str,
    documents: Sequence[Document],
    origin: Document | ComparedSide | None = None,
    *,
    marked: bool = False,
) -> Markup:
    """Show documents, and how near they are to another one or to a text."""
    near, apart = _apart(visit, origin, documents) if origin else (["fingerprint"], [])
    apart = apart or [[digits_of(visit, each)] for each in documents]
    rows = []
    for each, cells in zip(documents, apart, strict=True):
        row = [_named(visit, each), moment(each.added), f"{each.characters:,}"]
        if marked:
            said = f"Mark {each.key}"
            row.insert(0, entry("", "key", each.key, "checkbox", aria_label=said))
        rows.append([*row, *cells])
    return table([*["mark"] * marked, "key", "added", "characters", *near], rows, title)


def _named(visit: Visit, document: Document) -> Markup:
    """Return a link to a document, with its title, date and host from its metadata."""
    fields, meta = visit.work.fields, document.meta
    host, day = host_of(fields.value("host", meta)), parse_day(fields.value("date", meta))
    known = first_line(fields.title_of(meta)), "" if day is None else f"{day}", host
    said = element("span", " · ".join(filter(None, known)), class_="soft", dir="auto")
    return element("div", key_link(document.key), said)


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


def digits_of(visit: Visit, document: Document) -> Markup:
    """Return the fingerprint of a document."""
    number = document.fingerprint
    if number is None:
        return Markup("short")
    return element("code", format_fingerprint(number, visit.database.plan.bits))


def delete_button(text: str, which: str) -> Markup:
    """Return a button that asks whether documents are to be deleted."""
    return button(text, name="which", value=which, class_="danger")


def stored_pair(
    visit: Visit, first: Document, second: Document, **place: object
) -> Iterator[Markup]:
    """Compare two stored documents, and let a user judge them, who then comes back to a place."""
    yield comparison(visit.database.recipe, visit.side(first), visit.side(second))
    if visit.may_write:
        verdict = visit.decisions.verdict(first.key, second.key)
        buttons = []
        for text, value, same, key in (("Same", "1", True, "s"), ("Different", "0", False, "d")):
            named = {"name": "same", "value": value, "data_key": key}
            buttons.append(button(text, **named, aria_pressed=str(verdict is same).lower()))
        said = "Are they the same?"
        if verdict is not None:
            said = f"Your verdict: {'same' if verdict else 'different'}"
            buttons.append(button("Take it back", name="same", value="-"))
        asked = element("span", said, class_="soft")
        kept = hidden(key=first.key, other=second.key, **place)
        yield visit.form("verdict", asked, *kept, *buttons)
