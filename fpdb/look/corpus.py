"""The report of a corpus: its groups of duplicates, or its copied parts, on a page of one file.

The sources are read twice. The first time, their documents are numbered, and compared as columns or
stored in a scratch database with passages, unless there is a database with their keys. The second
time, the texts to show are kept, on disk. So memory grows with the documents in groups or pairs,
and not with the texts.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from fpdb.arrays import Marks, Places
from fpdb.database import Database
from fpdb.errors import InputError
from fpdb.fingerprint import Recipe, least_estimate
from fpdb.flow import Flow, Ingested
from fpdb.io.files import Paths, path_names
from fpdb.io.records import BadRecord, Reading
from fpdb.joins.columns import Room
from fpdb.look import parts
from fpdb.look.compared import ComparedFiles
from fpdb.look.fields import ShownFields
from fpdb.look.figures import overview
from fpdb.look.groups import Groups
from fpdb.look.listing import ListedGroup, rendered
from fpdb.look.page import folded, percent, plural, write_report
from fpdb.look.pair import ComparedTexts
from fpdb.look.sources import MOST_NAMED, Sources
from fpdb.look.texts import Texts
from fpdb.models import require_similarity, require_whole
from fpdb.scratch import Scratch, scratch_folder

# Of a group, the different texts that are compared.
MOST_VERSIONS = 10
# On one line, so that the list begins on the first screen.
_NUMBERS = "Numbers and pictures"
_KINDS = {
    "edited": "edited",
    "identical": "identical only",
    "chain": "chains",
    "open": "no verdict yet",
}


@dataclass(frozen=True)
class Reported:
    """Counts of what a report shows: documents, groups and copies, and how much is in the file.

    Of the documents that could go, `identical` ones have the text of an earlier one of their group,
    and `edited` ones another. `shown` of the `groups` are in the file, which has `size` bytes. Of
    their texts, `missing` ones weren't in the sources, or had changed. Of the dates of the
    documents in groups, `unread` ones can't be read.

    With passages, a group is a document that has parts of earlier ones, its sources, and `pairs`
    counts these; none is `identical` or `edited`.
    """

    path: Path
    counts: Ingested
    documents: int
    groups: int
    identical: int
    edited: int
    shown: int
    missing: int
    unread: int
    size: int
    pairs: int = 0


def report(
    paths: Paths,
    output: str | os.PathLike[str],
    reading: Reading | None = None,
    *,
    database: Database | None = None,
    recipe: str | Recipe = "web",
    similarity: float | None = None,
    passages: bool = False,
    least: float = 0.1,
    top: int = 500,
    kept: Marks | None = None,
    jobs: int = 1,
    bad: Literal["drop", "fail"] = "drop",
    on_bad: Callable[[BadRecord], object] | None = None,
    on_progress: Callable[[Ingested], object] | None = None,
) -> Reported:
    """Write a page that shows the groups of near-duplicates of a corpus, and what differs in them.

    The page is one file of at most 5 MB, without parts from elsewhere. The sources are read twice.

    Args:
        paths: Files and directories with the texts, or one alone.
        output: The file to write; one that is there is replaced.
        reading: How files become documents, and which fields have the titles, dates, hosts and
            links to show; by default, their suffixes and usual names say it.
        database: Show the groups of this database, and read only the texts from the sources, by
            their keys.
        recipe: How texts are cleaned, if no database is given.
        similarity: The least similarity of near-duplicates; default 0.8, or that of the database.
        passages: Show which documents have parts of earlier ones instead, and whose these are.
        least: With passages, the least share of one of two documents that the other one has.
        top: The most groups that the page shows, if they have room: edited ones first, the least
            similar first; or documents with parts of others, those with the longest ones first.
        kept: Which records stay, as `dedupe` returns it for the same files: of each group the first
            of these is shown as the kept one, and not simply the first one. Not with a database.
        jobs: The number of threads; 0 for one a processor.
        bad: "drop" leaves out records that can't be used; "fail" raises InputError at the first.
        on_bad: Called for each record that can't be used.
        on_progress: Called with the counts so far.

    Returns:
        The counts of what was read and found, and the path and size of the page.

    Raises:
        InputError: A path can't be read, there is no document, or a record may not be bad.
        MissingExtraError: A format needs a package that isn't installed.
    """
    require_whole("top", top, 1)
    require_similarity(similarity)
    paths, path, reading = path_names(paths), Path(output), reading or Reading()
    _require_fit(paths, kept, similarity, database=database is not None, passages=passages)
    if database is None:
        reading = dataclasses.replace(reading, keyed=False)
    flow = Flow(Ingested(), reading, jobs, bad, on_bad, on_progress)
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder())
        store: Database | ComparedFiles | None = database
        if store is None:
            store = _compared(flow, paths, scratch, recipe, similarity, passages=passages)
        limit = similarity or store.similarity or 0.0
        if not limit and not passages:
            raise InputError(
                "found a database of bits, expected one that finds texts by their similarity",
                hint="create it with a similarity, 0.8 for instance",
            )
        if not len(store):
            unusable = plural(flow.counts.bad, "record")
            raise InputError(
                f"found no document for {path}"
                + (f": none of {unusable} can be used" if flow.counts.bad else ""),
                hint="name files with texts; are the format and the fields right?",
            )
        texts = Texts(store, reading, scratch.path / "texts", paths)
        fields = ShownFields.of(reading)
        if passages and isinstance(store, Database):
            found = parts.Parts(store.passage_pairs(least=least), Room(scratch))
            sources = Sources(texts, found.keys, found, range(len(found.keys)))
            sources.read(fields, jobs)
            found.settle()
            return _parts_written(found, sources, top, flow.counts, path)
        groups = Groups(store.clustering(similarity=similarity), limit)
        chosen = _ChosenGroups(groups, texts, kept, top)
        chosen.sources.read(fields, jobs)
        return _written(chosen, flow.counts, path)


def _require_fit(
    paths: list[str],
    kept: Marks | None,
    similarity: float | None,
    *,
    database: bool,
    passages: bool,
) -> None:
    """Raise InputError if arguments exclude each other, or the sources can't be read twice."""
    if database and kept is not None:
        raise InputError(
            "found a database and what is kept of the records of files, expected one of them",
            hint="the documents of a database aren't in the order of the files; leave one out",
        )
    if "-" in paths:
        raise InputError(
            "found standard input, expected files: they are read twice",
            hint="save it to a file first",
        )
    if passages and (similarity is not None or kept is not None):
        raise InputError(
            "found passages, and what says which documents are near-duplicates",
            hint="leave the passages, or the similarity and what is kept out",
        )


def _compared(
    flow: Flow[Ingested],
    paths: list[str],
    scratch: Scratch,
    recipe: str | Recipe,
    similarity: float | None,
    *,
    passages: bool,
) -> Database | ComparedFiles:
    """Return the documents of files under their numbers, ready to be compared."""
    if passages:
        place = scratch.path / "passages.fpdb"
        database = Database.create(
            place, recipe=recipe, similarity=None, keys="integer", passages=True
        )
        parts.fill(flow, paths, database)
        return database
    files = ComparedFiles(Room(scratch), recipe, similarity)
    files.fill(flow, paths)
    return files


def _written(chosen: "_ChosenGroups", counts: Ingested, path: Path) -> Reported:
    groups, store = chosen.groups, chosen.sources.texts.database
    every, documents, limit = len(groups.starts), len(store), groups.similarity or 0.0
    listed = rendered([partial(chosen.listed, group) for group in chosen.numbers])
    first = "first" if chosen.kept is None else "first that stays"
    numbers = [(f"{documents:,}", "documents", f"were compared: {_read(counts)}.")]
    size = write_report(
        path,
        f"Duplicates in {_name(chosen.sources)}",
        f"{plural(every, 'group')} among {plural(documents, 'document')}, "
        f"with the limit {percent(limit)}",
        [folded(_NUMBERS, *overview(groups, documents, numbers, first=first))],
        listed,
        kinds=_KINDS,
        every=every,
        none="No document is a near-duplicate of another one. A smaller similarity finds more; "
        "copied parts of texts have a report of their own.",
        least=min(limit, chosen.lowest),
        **_notes(chosen.sources),
    )
    missing = len(chosen.sources.missing)
    copies = groups.identical, groups.edited
    unread = groups.unread
    return Reported(path, counts, documents, every, *copies, len(listed), missing, unread, size)


def _parts_written(
    found: parts.Parts, sources: Sources, top: int, counts: Ingested, path: Path
) -> Reported:
    documents, every, pairs = len(sources.texts.database), len(found.starts), len(found.copies)
    listed = parts.listed_copies(found, sources, top)
    numbers = [(f"{documents:,}", "documents", f"were compared: {_read(counts)}.")]
    size = write_report(
        path,
        f"Copied parts in {_name(sources)}",
        f"{plural(every, 'document has', 'documents have')} parts of earlier ones, among "
        f"{documents:,}",
        [folded(_NUMBERS, *parts.parts_overview(found, numbers))],
        listed,
        kinds=parts.KINDS,
        every=every,
        none="No document has a part of another one. A smaller least share finds more.",
        noun="document",
        orders=parts.ORDERS,
        **_notes(sources),
    )
    missing = len(sources.missing)
    shown = len(listed), missing, found.unread
    return Reported(path, counts, documents, every, 0, 0, *shown, size, pairs)


def _name(sources: Sources) -> str:
    paths = sources.texts.files
    more = f" and {len(paths) - 3:,} more" if len(paths) > 3 else ""
    return ", ".join(Path(path).name or path for path in paths[:3]) + more


def _notes(sources: Sources) -> dict[str, Any]:
    """Return what a page says at its top of texts that are missing, and at its end."""
    recipe, missing = sources.texts.database.recipe, len(sources.missing)
    notes = [sources.origins.unread_note]
    if missing:
        notes.append(
            f"{plural(missing, 'text of these groups is', 'texts of these groups are')} "
            "missing here: the sources don't hold them, or they have changed."
        )
    return {"notes": notes, "footer": f"Made by fpdb with the recipe {recipe.name} ({recipe.id})."}


def _read(counts: Ingested) -> str:
    """Say what was read, and how much of it can't be compared."""
    if not counts.read:
        return "those of a database, with the texts of the sources"
    notes = [f"{counts.bytes_read / 1e6:,.1f} MB of files"]
    if counts.short:
        notes.append(f"{plural(counts.short, 'text was', 'texts were')} too short to resemble any")
    if counts.invalid_utf8:
        notes.append(f"{plural(counts.invalid_utf8, 'record')} had bytes that don't fit")
    if counts.bad:
        notes.append(f"{plural(counts.bad, 'record')} couldn't be read")
    return "; ".join(notes)


class _ChosenGroups:
    """The groups to show, with what the sources say of them."""

    def __init__(
        self, groups: Groups, texts: Texts[Database | ComparedFiles], kept: Marks | None, top: int
    ) -> None:
        self.groups = groups
        self.kept = None if kept is None else kept[groups.ids.astype(int)]
        # Edited groups come before groups of copies, and the least similar ones first.
        self.numbers: list[int] = groups.ordered()[:top].tolist()
        self.lowest = 1.0
        wanted: set[int] = set()
        for group in self.numbers:
            for rows in self._versions(group):
                wanted.update(rows[:MOST_NAMED].tolist(), [int(groups.originals[rows[0]])])
        self.sources = Sources(texts, texts.database.keys_of(groups.ids), groups, wanted)

    def _versions(self, group: int) -> list[Places]:
        return self.groups.versions(group, MOST_VERSIONS, self.kept)

    def listed(self, group: int) -> ListedGroup:
        """Return a group, whose texts are compared with that of the kept document."""
        groups, sources = self.groups, self.sources
        found, bodies, titles = [], [], []
        for rows in self._versions(group):
            row = int(groups.originals[rows[0]])
            found.append(sources.listed(rows.tolist()))
            bodies.append(sources.text(row))
            titles.append(sources.title(row))
        recipe = sources.texts.database.recipe
        first, lowest, every = bodies[0], 1.0, int(groups.texts[group])
        for text, other in zip(found[1:], bodies[1:], strict=True):
            if first is not None and other is not None:
                text.pair = ComparedTexts(recipe, first, other)
                lowest = min(lowest, text.pair.share)
        compared = sum(each.pair is not None for each in found)
        least = lowest if compared == every - 1 else min(lowest, float(groups.weakest[group]))
        self.lowest = min(self.lowest, least)
        size = int(groups.sizes[group])
        return ListedGroup(
            title=titles[0],
            kind="edited" if every > 1 else "identical",
            label=plural(size, "document") + (f", {every} texts" if 1 < every < size else ""),
            documents=size,
            least=least,
            texts=found,
            exact=compared == every - 1,
            more=every - len(found),
            # Two texts alone may be less similar than estimated, but are no chain.
            chain=every > 2 and lowest < least_estimate(groups.similarity or 0.0),
            copied=first if every == 1 else None,
        )
