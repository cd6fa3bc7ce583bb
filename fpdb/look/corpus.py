"""The report of a corpus: its groups of duplicates on a page of one file.

The sources are read twice. The first time, their documents are numbered and compared as columns,
unless there is a database with their keys. The second time, the texts of the groups to
show are kept, on disk. So memory grows with the documents in groups, and not with the texts.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from fpdb.arrays import Marks, Places
from fpdb.database import Database
from fpdb.errors import InputError
from fpdb.fingerprint import Recipe, least_estimate
from fpdb.flow import Flow, Ingested
from fpdb.io.files import FORMATS, Paths, check_path, meter_of, path_names, read_parts
from fpdb.io.records import BadRecord, Reading, Record
from fpdb.joins.columns import Room
from fpdb.look.compared import ComparedFiles
from fpdb.look.figures import overview
from fpdb.look.groups import NO_DAY, Groups
from fpdb.look.listing import ListedGroup, ListedText, rendered
from fpdb.look.page import first_line, percent, plural, write_report
from fpdb.look.pair import ComparedTexts
from fpdb.look.texts import Texts
from fpdb.models import require_similarity, require_whole, title_in
from fpdb.scratch import scratch_folder
from fpdb.threads import mapped

# Of a group, the different texts that are compared, and the copies of each that are named.
MOST_VERSIONS = 10
_MOST_NAMED = 20
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
    their texts, `missing` ones weren't in the sources, or had changed.
    """

    path: Path
    counts: Ingested
    documents: int
    groups: int
    identical: int
    edited: int
    shown: int
    missing: int
    size: int


def report(
    paths: Paths,
    output: str | os.PathLike[str],
    reading: Reading | None = None,
    *,
    database: Database | None = None,
    recipe: str | Recipe = "web",
    similarity: float | None = None,
    top: int = 500,
    date_field: str | None = None,
    host_field: str | None = None,
    kept: Marks | None = None,
    jobs: int = 1,
    strict: bool = False,
    on_bad: Callable[[BadRecord], object] | None = None,
    on_progress: Callable[[Ingested], object] | None = None,
) -> Reported:
    """Write a page that shows the groups of near-duplicates of a corpus, and what differs in them.

    The page is one file of at most 5 MB, without parts from elsewhere. The sources are read twice.

    Args:
        paths: Files and directories with the texts, or one alone.
        output: The file to write; one that is there is replaced.
        reading: How files become documents; by default, their suffixes say it.
        database: Show the groups of this database, and read only the texts from the sources, by
            their keys.
        recipe: How texts are cleaned, if no database is given.
        similarity: The least similarity of near-duplicates; default 0.8, or that of the database.
        top: The most groups that the page shows, if they have room: edited ones first, the least
            similar first.
        date_field: A field with a date, to show when copies appeared.
        host_field: A field with a host or a URL, to show who copies whom.
        kept: Which records stay, as `dedupe` returns it for the same files: of each group the first
            of these is shown as the kept one, and not simply the first one. Not with a database.
        jobs: The number of threads; 0 for one a processor.
        strict: Raise InputError at the first bad record.
        on_bad: Called for each record that can't be used.
        on_progress: Called with the counts so far.

    Returns:
        The counts of what was read and found, and the path and size of the page.

    Raises:
        InputError: A path can't be read, there is no document, or with `strict` a record is bad.
        MissingExtraError: A format needs a package that isn't installed.
    """
    require_whole("top", top, 1)
    require_similarity(similarity)
    paths, path, reading = path_names(paths), Path(output), reading or Reading()
    if database is not None and kept is not None:
        raise InputError(
            "found a database and what is kept of the records of files, expected one of them",
            hint="the documents of a database aren't in the order of the files; leave one out",
        )
    if "-" in paths:
        raise InputError(
            "found standard input, expected files: they are read twice",
            hint="save it to a file first",
        )
    if database is None:
        reading = dataclasses.replace(reading, keyed=False)
    flow = Flow(Ingested(), reading, jobs, strict, on_bad, on_progress)
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder())
        store: Database | ComparedFiles
        if database is None:
            store = ComparedFiles(Room(scratch), recipe, similarity)
            store.fill(flow, paths)
        else:
            store = database
        if (limit := similarity or store.similarity) is None:
            raise InputError(
                "found a database of bits, expected one that finds texts by their similarity",
                hint="create it with a similarity, 0.8 for instance",
            )
        if not len(store):
            bad = plural(flow.counts.bad, "record")
            raise InputError(
                f"found no document for {path}"
                + (f": none of {bad} can be used" if flow.counts.bad else ""),
                hint="name files with texts; are the format and the fields right?",
            )
        groups = Groups(store.clustering(similarity=similarity), limit)
        texts = Texts(store, reading, scratch.path / "texts", paths)
        chosen = _ChosenGroups(groups, texts, kept, top)
        chosen.read((date_field, host_field), jobs)
        return _written(chosen, flow.counts, path)


def _written(chosen: "_ChosenGroups", counts: Ingested, path: Path) -> Reported:
    groups, paths, store = chosen.groups, chosen.texts.files, chosen.texts.database
    every, documents, limit = len(groups.starts), len(store), groups.similarity or 0.0
    listed = rendered([partial(chosen.listed, group) for group in chosen.numbers])
    name = ", ".join(Path(path).name or path for path in paths[:3])
    name += f" and {len(paths) - 3:,} more" if len(paths) > 3 else ""
    first = "first" if chosen.kept is None else "first that stays"
    numbers = [(f"{documents:,}", "documents", f"were compared: {_read(counts)}.")]
    lost = ""
    if missing := len(chosen.missing):
        lost = (
            f"{plural(missing, 'text of these groups is', 'texts of these groups are')} "
            "missing here: the sources don't hold them, or they have changed."
        )
    size = write_report(
        path,
        f"Duplicates in {name}",
        f"{plural(every, 'group')} among {plural(documents, 'document')}, "
        f"with the limit {percent(limit)}",
        overview(groups, documents, numbers, first=first),
        listed,
        kinds=_KINDS,
        every=every,
        none="No document is a near-duplicate of another one.",
        least=min(limit, chosen.lowest),
        note=lost,
        footer=f"Made by fpdb with the recipe {store.recipe.name} ({store.recipe.id}).",
    )
    edited, shown = groups.edited, len(listed)
    return Reported(path, counts, documents, every, groups.identical, edited, shown, missing, size)


def _read(counts: Ingested) -> str:
    """Say what was read, and how much of it can't be compared."""
    if not counts.read:
        return "those of a database, with the texts of the sources"
    notes = [f"{counts.bytes_read / 1e6:,.1f} MB of files"]
    if counts.short:
        notes.append(f"{plural(counts.short, 'text was', 'texts were')} too short to resemble any")
    if counts.invalid_utf8:
        notes.append(f"{plural(counts.invalid_utf8, 'record')} had bytes that aren't UTF-8")
    if counts.bad:
        notes.append(f"{plural(counts.bad, 'record')} couldn't be read")
    return "; ".join(notes)


class _SourceNames(NamedTuple):
    """What the sources say of a document that is shown."""

    key: str
    source: str
    title: str


class _ChosenGroups:
    """The groups to show, and what the sources say of them: their texts, keys and fields."""

    def __init__(
        self, groups: Groups, texts: Texts[Database | ComparedFiles], kept: Marks | None, top: int
    ) -> None:
        self.groups, self.texts = groups, texts
        self.kept = None if kept is None else kept[groups.ids.astype(int)]
        # Edited groups come before groups of copies, and the least similar ones first.
        self.numbers: list[int] = groups.ordered()[:top].tolist()
        self.lowest = 1.0
        self.missing: set[int] = set()
        self._named: dict[int, _SourceNames] = {}
        self._keys = texts.database.keys_of(groups.ids)
        self._wanted: set[int] = set()
        for group in self.numbers:
            for rows in self._versions(group):
                self._wanted.update(rows[:_MOST_NAMED].tolist(), [int(groups.originals[rows[0]])])

    def _versions(self, group: int) -> list[Places]:
        return self.groups.versions(group, MOST_VERSIONS, self.kept)

    def read(self, fields: tuple[str | None, str | None], jobs: int) -> None:
        """Read the sources, whose documents go by their keys, or else by their numbers."""
        groups, paths = self.groups, self.texts.files
        rows = {key: row for row, key in enumerate(self._keys) if key is not None}
        meter = meter_of("read the texts again", paths)
        found = (read_parts(path, self._fields_of(path), progress=meter.add) for path in paths)
        parts = mapped(lambda part: list(part()), chain.from_iterable(found), jobs)
        names: set[str] = set()
        with self.texts.written() as add:
            for number, record in enumerate(chain.from_iterable(part for _, part in parts)):
                if isinstance(record, Record):
                    key = self.texts.key_of(record) if self.texts.reading.keyed else number
                    if key is not None and key in rows:
                        names.update(record.meta or {})
                        self._note(rows[key], record, fields)
                        if rows[key] in self._wanted:
                            add(key, record.text or "")
        given = (groups.days < NO_DAY).any(), (groups.hosts >= 0).any()
        for kind, name, there in zip(("date", "host"), fields, given, strict=True):
            if name and len(groups.ids) and not there:
                raise InputError(
                    f"found no {kind} in the field {name!r}, expected one in some document",
                    hint=f"the fields are: {', '.join(sorted(names)[:20]) or 'none'}",
                )

    def _fields_of(self, path: str) -> Reading:
        """Return how a source is read, with all fields, of which any may be missing."""
        reading = self.texts.reading
        form = check_path(path, reading)
        if form and not FORMATS[form].has_fields:
            return reading
        return dataclasses.replace(reading, meta_field=(*reading.kept, "*"))

    def _note(self, row: int, record: Record, fields: Sequence[str | None]) -> None:
        """Keep the day and the host of a document, and its names if it is to be shown."""
        # The field of the key isn't among the metadata.
        meta = dict.fromkeys(self.texts.reading.keys, record.key) | (record.meta or {})
        self.groups.note(row, *(meta.get(name or "") for name in fields))
        if row in self._wanted:
            # As a text, since a browser rounds large numbers; a path need not be Unicode.
            key = str(record.source if record.key is None else record.key)
            key = key.encode("utf-8", "replace").decode()
            title = first_line(title_in(record.meta) or record.text or "")
            self._named[row] = _SourceNames(key, record.source, title)

    def listed(self, group: int) -> ListedGroup:
        """Return a group, whose texts are compared with that of the kept document."""
        groups, recipe = self.groups, self.texts.database.recipe
        found, bodies, titles = [], [], []
        for rows in self._versions(group):
            row = int(groups.originals[rows[0]])
            named = [
                self._named[each] for each in rows[:_MOST_NAMED].tolist() if each in self._named
            ]
            keys = list(dict.fromkeys(each.key for each in named))
            found.append(ListedText(keys, len(rows), named[0].source if named else ""))
            bodies.append(self._text(row))
            titles.append(self._named[row].title if row in self._named else "")
        first, lowest, every = bodies[0], 1.0, int(groups.texts[group])
        for text, other in zip(found[1:], bodies[1:], strict=True):
            if first is not None and other is not None:
                text.pair = ComparedTexts(recipe, first, other, first="kept")
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
            more=every - len(found),
            # Two texts alone may be less similar than estimated, but are no chain.
            chain=every > 2 and lowest < least_estimate(groups.similarity or 0.0),
            copied=first if every == 1 else None,
        )

    def _text(self, row: int) -> str | None:
        """Return a text as it was when it was stored, and count it if it isn't there."""
        key = self._keys[row]
        document = None if key is None else self.texts.database.get(key)
        text, note = self.texts.of(document) if document else (None, "")
        if text is None or note:
            self.missing.add(row)
            return None
        return text
