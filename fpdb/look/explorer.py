"""The explorer: which pages there are, the overview, and decisions."""

import contextlib
import hmac
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Self

from fpdb.database import Database
from fpdb.errors import DocumentNotFoundError, FpdbError, InputError, ReadOnlyError
from fpdb.flow import parse_key
from fpdb.io.files import check_path
from fpdb.io.records import Reading
from fpdb.look.background import Background, FindingTask
from fpdb.look.decisions import Decisions
from fpdb.look.figures import by_day, figures, numbers_of
from fpdb.look.forms import (
    Context,
    ServedPage,
    Visit,
    address,
    button,
    form,
    hidden,
    key_link,
    link,
    sent_to,
)
from fpdb.look.page import cards, folded, plural
from fpdb.look.pages import (
    compare_page,
    document_page,
    documents_page,
    group_page,
    groups_page,
    near_page,
)
from fpdb.look.texts import TextFile, Texts, split_sources
from fpdb.markup import Markup, element, table
from fpdb.models import Key
from fpdb.scratch import scratch_folder

_SHOWN = 20
# Documents that a request deletes, of whose time that takes a third at most on slow disks.
_DELETED = 50_000


class Explorer:
    """Pages over a database: its groups, what is near a text and why, and decisions.

    Groups are looked for in a child process when it is made, and pages show them once they are
    there. `texts` are files with the texts, found by their keys, or one URL with {key} in the place
    of the key. Unless it may `write`, no page changes anything.
    """

    def __init__(
        self,
        database: Database,
        *,
        texts: Iterable[str] = (),
        reading: Reading | None = None,
        write: bool = False,
        date_field: str | None = None,
        host_field: str | None = None,
    ) -> None:
        files, url = split_sources(list(texts))
        reading = reading or Reading()
        for path in files:
            check_path(path, reading)
        self._stack = contextlib.ExitStack()
        packed = TextFile(self._stack.enter_context(scratch_folder()).path / "texts")
        task = FindingTask(database, files, reading, packed, date_field, host_field)
        found = Texts(database, reading, files, url)
        background = Background(task, found)
        write = write and not database.readonly
        self._context = Context(database, background, found, Decisions(database), write)
        background.start()

    def close(self) -> None:
        """End the child process, and remove the packed texts."""
        self._context.background.close()
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
        context = self._context
        token = context.token(session)
        visit = Visit(page or "overview", fields, token, posted, may_write and context.write)
        answer = (_POSTED if posted else _PAGES).get(visit.page)
        try:
            if posted and not hmac.compare_digest(visit.get("token").encode(), token.encode()):
                raise ReadOnlyError(
                    "the form has no valid token",
                    hint="open the page again, and send it from there",
                )
            if answer in (_delete, _verdict) and not visit.may_write:
                raise ReadOnlyError(
                    "this explorer only reads", hint="start one that may write", parameter="write"
                )
            if answer is None:
                return context.framed("There is no such page", status=404)
            return answer(context, visit)
        except FpdbError as error:
            statuses = {DocumentNotFoundError: 404, ReadOnlyError: 403}
            status = next((n for kind, n in statuses.items() if isinstance(error, kind)), 400)
            content = [element("p", str(error), class_="warn"), element("p", error.hint or "")]
            return context.framed("That didn't work", *content, status=status)


def _overview(context: Context, visit: Visit) -> ServedPage:
    database, found = context.database, context.background.found
    stats = database.stats()
    numbers = [
        (f"{stats.documents:,}", "documents", f"in {stats.bytes / 1e6:,.1f} MB on disk."),
        (f"{stats.short:,}", "short texts", "are found by equal texts only."),
    ]
    shown: list[Markup] = []
    if found:
        numbers += numbers_of(found.groups, found.documents)
        days = by_day("When documents were added", "", found.added, "documents")
        shown = [*figures(found.groups, days), *_crowded(context)]
    return context.framed(
        database.path.name,
        *context.status(visit),
        cards(numbers),
        *shown,
        page="overview",
        refresh=2 if context.background.stage else 0,
    )


def _crowded(context: Context) -> Iterator[Markup]:
    """Show the first bits of fingerprints that most documents have in common."""
    found = context.background.found
    if found is None or not found.crowded:
        return
    keys = context.database.keys_of([document for _, _, document in found.crowded])
    rows = [
        (element("code", bits), f"{count:,}", "deleted" if key is None else key_link(key))
        for (bits, count, _), key in zip(found.crowded, keys, strict=True)
    ]
    said = (
        f"Documents by the first {len(found.crowded[0][0])} bits of their fingerprints, the most "
        f"frequent first; the average is {found.average:,.1f}. Many documents are copies, or texts "
        "with the same boilerplate, and searches within k bits take longer there."
    )
    title, head = "Fingerprints that begin alike", ("first bits", "documents", "one of them")
    yield folded(title, element("p", said, class_="soft"), table(head, rows, title))


def _verdict(context: Context, visit: Visit) -> ServedPage:
    key, other = (context.found(visit.get(name)).key for name in ("key", "other"))
    context.decisions.judge(key, other, same={"1": True, "0": False}.get(visit.get("same")))
    return sent_to(address("compare", key=key, other=other))


def _delete(context: Context, visit: Visit) -> ServedPage:
    """Delete documents after a confirmation, at most as many as a request has time for."""
    keys = _marked(context, visit)
    content: list[Markup] = []
    again = {name: list(visit.fields.get(name, ())) for name in ("of", "which", "key")}
    if visit.get("sure") == str(len(keys)):
        deleted, path = context.decisions.delete(keys[:_DELETED])
        said = f"{plural(deleted, 'document')} deleted. This brings them back:"
        command = f"fpdb load {context.database.path} {path}"
        content = [element("p", said, role="status"), element("p", element("code", command))]
        keys = keys[_DELETED:]
        if not keys:
            return context.framed("Deleted", *content)
        if visit.get("which") == "marked":
            again["key"] = [str(key) for key in keys]
    some = plural(min(len(keys), _DELETED), "document")
    more = len(keys) - _SHOWN
    said = "Before they are deleted, a file beside the database gets what brings them back."
    if len(keys) > _DELETED:
        said += f" A step deletes {_DELETED:,} of them."
    return context.framed(
        f"Delete {some}?",
        *content,
        element("ul", *(element("li", key_link(key)) for key in keys[:_SHOWN])),
        element("p", f"and {more:,} more" if more > 0 else ""),
        element("p", said),
        form(
            "delete",
            *hidden(**again, sure=len(keys)),
            button(f"Delete {some}", class_="danger"),
            link("No, go back", "group" if visit.get("of") else "documents", of=visit.get("of")),
            token=visit.token,
            class_="verdict",
        ),
    )


def _marked(context: Context, visit: Visit) -> list[Key]:
    """Return the keys to delete: those that are marked, or the others of their group."""
    kind = context.database.keys
    marked = dict.fromkeys(parse_key(key, kind) for key in visit.fields.get("key", ()))
    if not marked:
        raise InputError("no document is marked", hint="mark at least one of the group")
    if visit.get("which") != "others":
        return list(marked)
    groups, group = context.group(visit)
    keys = context.database.keys_of(groups.ids[groups.rows(group)].tolist())
    return [key for key in keys if key is not None and key not in marked]


def _again(context: Context, _: Visit) -> ServedPage:
    context.background.start()
    return sent_to("overview")


_PAGES: dict[str, Callable[[Context, Visit], ServedPage]] = {
    "overview": _overview,
    "groups": groups_page,
    "group": group_page,
    "compare": compare_page,
    "documents": documents_page,
    "document": document_page,
    "near": near_page,
}
_POSTED = {"near": near_page, "again": _again, "delete": _delete, "verdict": _verdict}
