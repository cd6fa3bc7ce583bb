"""The explorer: pages over a database, each visited with the token of its session."""

import contextlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from http import HTTPStatus
from pathlib import Path
from typing import Self

from fpdb.database import Database
from fpdb.errors import (
    DiskFullError,
    DocumentNotFoundError,
    FpdbError,
    InputError,
    MovedError,
    ReadOnlyError,
)
from fpdb.fingerprint import to_int
from fpdb.fingerprint.digits import parse_fingerprint
from fpdb.flow import parse_key
from fpdb.io.files import check_path
from fpdb.io.html import html_text
from fpdb.io.records import Reading
from fpdb.look.background import Background
from fpdb.look.fields import ShownFields
from fpdb.look.figures import by_day, overview
from fpdb.look.grouped import EXCERPT, group_page, groups_page, groups_table
from fpdb.look.page import button, cards, choice, entry, facts, folded, percent, plural
from fpdb.look.pair import ColouredText, SharedTexts, excerpt
from fpdb.look.sources import Texts
from fpdb.look.visit import (
    COMPARED_AT_ONCE,
    ROWS,
    ServedPage,
    Visit,
    address,
    delete_button,
    hidden,
    key_link,
    link,
    moment,
    served,
)
from fpdb.markup import Markup, element, table
from fpdb.models import Document, Key
from fpdb.scratch import scratch_folder

_KINDS = {"text": "a text", "html": "HTML", "fingerprint": "a fingerprint"}
_SHOWN = 20
# Documents that a request deletes, of whose time that takes a third at most on slow disks.
_DELETED = 50_000


def overview_page(visit: Visit) -> ServedPage:
    findings, stats = visit.work.findings, visit.database.stats()
    numbers = [
        (f"{stats.documents:,}", "documents", f"in {stats.bytes / 1e6:,.1f} MB on disk."),
        (f"{stats.short:,}", "short texts", "match texts of the same words only."),
    ]
    shown = iter([cards(numbers)] if stats.documents else [visit.nothing("")])
    if findings and stats.documents:
        days = by_day("When documents were added", "", findings.added, "documents")
        shown = overview(findings.groups, findings.documents, numbers, days)
    unread = findings.groups.unread_note if findings else ""
    content = *visit.status(), *shown, *([element("p", unread, class_="note")] if unread else [])
    refresh = "2" if visit.work.stage else ""
    return visit.framed(visit.database.path.name, *content, refresh=refresh)


def compare_page(visit: Visit) -> ServedPage:
    first, second = visit.document("key"), visit.document("other")
    content = [visit.comparison(first, second), *visit.group_link(first)]
    return visit.framed("Two documents", *content)


def documents_page(visit: Visit) -> ServedPage:
    """Show the documents by their keys, fifty at a time, or those with some words."""
    prefix, after, kind = visit.get("prefix"), visit.get("after"), visit.database.key_type
    start = parse_key(after, kind) if after else None
    if kind == "integer":
        first = int(parse_key(prefix, kind)) if prefix else 0
        start, prefix = start or (first - 1 if first else None), ""
    documents, last = visit.matching(visit.get("search").casefold().split(), prefix, start)
    terms = {name: visit.get(name) for name in ("search", "prefix")}
    following = address("documents", **terms, after=last)
    label = "Keys from" if kind == "integer" else "Keys that begin with"
    fields = [
        entry("Search", "search", visit.get("search"), "search", data_key="/"),
        entry(label, "prefix", visit.get("prefix"), "search"),
        button("Show"),
    ]
    shown = [visit.listed_documents("Documents", documents)]
    if not documents:
        shown = [element("p", "No document has it. ", link("Show all documents", "documents"))]
        if not len(visit.database):
            shown = [visit.nothing("")]
        elif last is not None:
            shown = [element("p", f"Nothing yet; the search goes on after {last}.", role="status")]
    more = "After ›" if len(documents) == ROWS else "Search on ›"
    where = "metadata and texts" if visit.work.texts.files else "metadata"
    return visit.framed(
        "Documents",
        element("form", *fields, action="documents", class_="tools"),
        element("p", f"A search looks for all words in keys, titles, {where}.", class_="soft"),
        *shown,
        *([element("p", element("a", more, href=following))] if last is not None else []),
        refresh="" if documents or last is None else f"0; url={following}",
    )


def document_page(visit: Visit) -> ServedPage:
    """Show what is kept of a document, its text, and what is near it."""
    document, database = visit.document("key"), visit.database
    text, note = visit.text(document)
    [matches] = database.query_prepared(database.preparer.prepare([document]), limit=ROWS)
    keys = [match.key for match in matches if match.key != document.key]
    entries = {
        "key": str(document.key),
        "id": str(document.id),
        "added": f"{moment(document.added)} UTC",
        "characters": f"{document.characters:,}",
        "fingerprint": visit.digits_of(document),
    }
    delete = [*hidden(key=document.key), delete_button("Delete …", "marked")]
    return visit.framed(
        visit.title(document),
        facts(entries),
        *_metadata(document),
        *([visit.form("delete", *delete)] if visit.may_write else []),
        *visit.group_link(document),
        element("p", note, class_="soft"),
        *excerpt(text, EXCERPT),
        element("h2", "Near it"),
        _near(visit, keys, document),
        *(_parts(visit, text, document.key) if text else ()),
    )


def _metadata(document: Document) -> Iterator[Markup]:
    meta, shown = document.meta, dict[str, str]()
    for name, value in (meta if isinstance(meta, Mapping) else {"": meta} if meta else {}).items():
        text = str(value)
        href = text if text.startswith(("http://", "https://")) else None
        cell = element("a", text[:EXCERPT], href=href, rel="noreferrer") if href else text[:EXCERPT]
        shown[element("bdi", str(name)[:EXCERPT])] = cell
    if shown:
        yield element("h4", "Metadata")
        yield facts(shown)


def near_page(visit: Visit) -> ServedPage:
    """Show what is near a text, and why; the forms bring the text with the next visit again."""
    kind, pasted = visit.get("kind") or "text", visit.get("text")
    # As it was given, for it is sent again; a first line end is dropped by browsers.
    text, label = Markup("\n" + escape(pasted)), "What to look for"
    box = element("textarea", text, name="text", required="", aria_label=label, rows=9)
    said = (
        "Paste a text, the HTML of a page or a fingerprint, to see which stored documents are "
        "near, and why, and which have passages of it if the database keeps them. It isn't stored."
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
        *(_answers(visit, kind, pasted) if visit.posted and pasted.strip() else ()),
    )


def _answers(visit: Visit, kind: str, pasted: str) -> Iterator[Markup]:
    database = visit.database
    text, sketch, number = None, None, None
    if kind == "fingerprint":
        number = parse_fingerprint(pasted.strip(), database.plan.bits)
        matches = database.query_fingerprint(number, limit=ROWS)
    else:
        text = html_text(pasted).text if kind == "html" else pasted
        batch = database.recipe.batch([text], sketches=True)
        number = None if batch.short[0] else to_int(batch.fingerprints[0])
        sketch = None if batch.sketches is None else batch.sketches[0].tobytes()
        matches = database.query(text, limit=ROWS)
    keys = [match.key for match in matches]
    chosen = next((key for key in keys if str(key) == visit.get("match")), (keys or [""])[0])
    question = Document("", text, fingerprint=number, sketch=sketch)
    yield element("h2", "Near it")
    if not matches.complete:
        yield element("p", "A budget ended the search, so there may be more.", class_="warn")
    members = _near(visit, keys, question)
    yield visit.form("near", *hidden(text=pasted, kind=kind), members, class_="members")
    if keys:
        yield visit.comparison(question, database[chosen])
    elif kind == "html":
        yield from excerpt(text, EXCERPT)
    if text is not None:
        yield from _parts(visit, text)


def _near(visit: Visit, keys: Sequence[Key], question: Document) -> Markup:
    if not keys:
        return visit.nothing("No other document is near.")
    return visit.listed_documents("Documents that are near", visit.documents(keys), question)


def _parts(visit: Visit, text: str, own_key: Key | None = None) -> Iterator[Markup]:
    """Show which other documents have passages of a text, if the database keeps passages.

    The passages are shown as well if the texts of these are there.
    """
    database, coloured = visit.database, ColouredText()
    if not database.preparer.catalog.passaged:
        return
    yield element("h2", "Its passages elsewhere")
    matches = database.passages(text, limit=_SHOWN)
    rows, shown = [], list[Markup]()
    for match in [match for match in matches if match.key != own_key]:
        colour = ""
        if not coloured.complete and (other := visit.text(database[match.key])[0]):
            shared = SharedTexts(database.recipe, text, other, most=COMPARED_AT_ONCE)
            if coloured.add(shared):
                colour = element("mark", data_source=len(coloured.sources))
                parts = element("div", *shared.drawn(), class_="shared")
                shown.append(folded(f"{len(shown) + 1}: {match.key}", parts))
        shares = percent(match.share), percent(match.other_share)
        rows.append((colour, key_link(match.key), f"{match.words:,}", *shares))
    if matches.boilerplate:
        words = f"{matches.boilerplate:,} words or characters"
        said = f"{words} of it are in too many documents to say."
        yield element("p", said, class_="soft")
    if not rows:
        yield element("p", "No document has a passage of it.")
        return
    head = "", "key", "words or characters, about", "share of this text", "share of that one"
    yield table(head, rows, "Documents with passages of it")
    if shown:
        yield element("section", *coloured.drawn(), *shown, class_="coloured")


def delete_page(visit: Visit) -> ServedPage:
    """Delete documents after a confirmation, at most as many as a request has time for."""
    every = _marked(visit)
    keys = every[:_DELETED]
    back = link("Go back", "group" if visit.get("of") else "documents", of=visit.get("of"))
    if visit.get("sure") == str(len(keys)):
        deleted, path = _delete(visit.database, keys)
        said = f"{plural(deleted, 'document')} deleted. This brings them back:"
        command = element("code", f"fpdb load {visit.database.path} {path}")
        content = element("p", said, role="status"), element("p", command), element("p", back)
        return visit.framed("Deleted", *content)
    amount = plural(len(keys), "document")
    said = "Before they are deleted, a file beside the database gets what brings them back."
    if len(every) > len(keys):
        said += f" Of {len(every):,}, a step deletes {_DELETED:,}; repeat it for the others."
    shown = [element("li", key_link(key)) for key in keys[:_SHOWN]]
    if len(keys) > _SHOWN:
        shown.append(element("li", f"and {len(keys) - _SHOWN:,} more"))
    again = {name: list(visit.fields.get(name, ())) for name in ("of", "which", "key")}
    return visit.framed(
        f"Delete {amount}?",
        element("ul", *shown),
        element("p", said),
        visit.form(
            "delete",
            *hidden(**again, sure=len(keys)),
            button(f"Delete {amount}", class_="danger"),
            back,
        ),
    )


def _delete(database: Database, keys: Sequence[Key]) -> tuple[int, Path]:
    """Delete documents; return how many there were, and the file that brings them back."""
    now = f"{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**6}"
    path = database.path.with_name(f"{database.path.name}-deleted-{now}.fpdb.jsonl")
    try:
        path.touch(0o600, exist_ok=False)  # as private as the database
        with path.open("wb") as file:
            return database.delete_many(keys, undo=file), path
    finally:
        if not path.stat().st_size:  # nothing was deleted
            path.unlink()


def _marked(visit: Visit) -> list[Key]:
    """Return the keys to delete: the marked ones, or the other ones of their group."""
    kind = visit.database.key_type
    marked = dict.fromkeys(parse_key(key, kind) for key in visit.fields.get("key", ()))
    if not marked:
        raise InputError("no document is marked", hint="mark at least one of the group")
    if visit.get("which") != "others":
        return list(marked)
    groups, group = visit.group()
    keys = visit.database.keys_of(groups.ids[groups.rows(group)].tolist())
    return [key for key in keys if key is not None and key not in marked]


def again_page(visit: Visit) -> ServedPage:
    visit.work.start()
    return ServedPage(status=303, headers={"Location": "overview", "Cache-Control": "no-store"})


_PAGES: dict[str, Callable[[Visit], ServedPage]] = {
    "overview": overview_page,
    "groups": groups_page,
    "table": groups_table,
    "group": group_page,
    "compare": compare_page,
    "documents": documents_page,
    "document": document_page,
    "near": near_page,
}
_POSTED = {"near": near_page, "again": again_page, "delete": delete_page}


class Explorer:
    """Pages over a database: its groups, what is near a text and why, and deletions.

    Groups are looked for in a child process when it is made, and pages show them once they are
    there. `texts` are files with the texts, found by their keys. Unless it may `write`, no page
    changes anything.
    """

    def __init__(
        self,
        database: Database,
        *,
        texts: Iterable[str] = (),
        reading: Reading | None = None,
        write: bool = False,
    ) -> None:
        files = list(texts)
        reading = reading or Reading()
        for path in files:
            check_path(path, reading)
        self._stack = contextlib.ExitStack()
        packed = self._stack.enter_context(scratch_folder()) / "texts"
        store = Texts(database, reading, packed, files)
        self._work = Background(store, ShownFields(reading))
        self._write = write and not database.readonly
        self._secret = secrets.token_bytes(32)
        self._work.start()

    def close(self) -> None:
        """End the child process, and remove the packed texts."""
        self._work.close()
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def answer(
        self,
        page: str,
        fields: Mapping[str, Sequence[str]],
        *,
        session: str = "",
        posted: bool = False,
        may_write: bool = False,
    ) -> ServedPage:
        """Return a page by its name, given the fields of a form; errors are pages too.

        What is `posted` must have the token of the session, which all forms have.
        """
        page, token = page or "overview", hmac.digest(self._secret, session.encode(), "sha256")
        may_write = may_write and self._write
        visit = Visit(self._work, page, fields, token.hex(), posted, may_write)
        answer = (_POSTED if posted else _PAGES).get(page)
        try:
            sent_token = visit.get("token").encode()
            if posted and not hmac.compare_digest(sent_token, visit.token.encode()):
                raise ReadOnlyError(
                    "the form has no valid token",
                    hint="open the page again, and send it from there",
                )
            if posted and page == "delete" and not may_write:
                raise ReadOnlyError(
                    "this explorer only reads", hint="start one that may write", parameter="write"
                )
            if answer is None:
                said = element("p", "The links above lead to all pages.")
                return visit.framed("There is no such page", said, status=404)
            return answer(visit)
        except MovedError:  # who serves the pages opens the database again
            raise
        except FpdbError as error:
            statuses: dict[type[Exception], int] = {DocumentNotFoundError: 404, ReadOnlyError: 403}
            # They may pass.
            statuses |= {TimeoutError: 503, DiskFullError: 503}
            status = next((n for kind, n in statuses.items() if isinstance(error, kind)), 400)
            return visit.framed("That didn't work", *_said(str(error), error.hint), status=status)

    @staticmethod
    def problem(message: str, hint: str, status: int) -> ServedPage:
        """Return a page about a request that gets no other, for people who may see nothing else."""
        if status == HTTPStatus.NOT_FOUND:
            said = element("p", "Open the address that fpdb gave when it began.")
            return served("There is no such page", Markup(), said, status=status)
        return served("That didn't work", Markup(), *_said(message, hint), status=status)


def _said(message: str, hint: str | None) -> list[Markup]:
    return [element("p", message, class_="warn"), *([element("p", hint)] if hint else [])]
