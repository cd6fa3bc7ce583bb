"""The report of a corpus: its groups of duplicates on a page of one file.

The sources are read twice. The first time, their documents are numbered and brought into a
temporary database, unless there is one with their keys. The second time, the texts of the groups to
show are kept, on disk. So memory grows with the documents in groups, and not with the texts.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

from fpdb.arrays import Marks
from fpdb.database import Database
from fpdb.errors import InputError
from fpdb.fingerprint import Recipe, least_estimate
from fpdb.flow import Flow, Ingested, parse_key
from fpdb.io.files import (
    FORMATS,
    Part,
    Paths,
    check_path,
    meter_of,
    path_names,
    read_parts,
)
from fpdb.io.records import BadRecord, Reading, Record
from fpdb.look.figures import figures, numbers_of
from fpdb.look.groups import NO_DAY, Groups
from fpdb.look.listing import (
    LARGEST_PAIR,
    LEAST_BYTES,
    MOST_GROUPS,
    ListedGroup,
    ListedText,
    rendered,
)
from fpdb.look.page import ReportPage, cards, first_line, percent, plural
from fpdb.look.pair import ComparedTexts
from fpdb.look.texts import TextFile, Texts
from fpdb.models import Document, Key, require_similarity, require_whole, title_in
from fpdb.scratch import draft_file, scratch_folder
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

    The page is one file of at most 5 MB, without parts from elsewhere. The sources are read twice;
    in between, their documents are in a temporary database.

    Args:
        paths: Files and directories with the texts, or one alone.
        output: The file to write; one that is there is replaced.
        reading: How files become documents; by default, their suffixes say it.
        database: Show the groups of this database, and read only the texts from the sources, by
            their keys.
        recipe: How texts are cleaned, if no database is given.
        similarity: The least similarity of near-duplicates; default 0.8, or that of the database.
        top: The most groups that the page shows, up to 1,200: edited ones first, the least similar
            first.
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
        if (store := database) is None:
            index = scratch.path / "index"
            store = stack.enter_context(_built(index, paths, flow, recipe, similarity))
        if (limit := similarity or store.similarity) is None:
            raise InputError(
                "found a database of bits, expected one that finds texts by their similarity",
                hint="create it with a similarity, 0.8 for instance",
            )
        _require_documents(store, path, flow.counts)
        documents = len(store)
        groups = Groups(store.clustering(similarity=similarity, jobs=jobs), limit)
        texts = Texts(store, reading, TextFile(scratch.path / "texts"), paths, packed=True)
        search = _ChosenGroups(groups, texts, (date_field, host_field))
        search.choose(min(top, MOST_GROUPS), kept)
        search.read(paths, jobs, numbered=database is None)
        first = "first" if kept is None else "first that stays"
        data, shown = _page(search, flow.counts, _name(paths), first)
    with draft_file(path) as file:
        file.write(data)
    return Reported(
        path=path,
        counts=flow.counts,
        documents=documents,
        groups=len(groups.starts),
        identical=groups.identical,
        edited=groups.edited,
        shown=shown,
        missing=search.missing,
        size=len(data),
    )


def _name(paths: Sequence[str]) -> str:
    names = ", ".join(Path(path).name or path for path in paths[:3])
    return names + (f" and {len(paths) - 3:,} more" if len(paths) > 3 else "")


@contextlib.contextmanager
def _built(
    path: Path,
    paths: Sequence[str],
    flow: Flow[Ingested],
    recipe: str | Recipe,
    similarity: float | None,
) -> Iterator[Database]:
    """Yield a database of the documents of all sources, numbered in the order of reading."""
    with Database.build(
        path, recipe=recipe, similarity=similarity or "recipe", keys="integer"
    ) as database:
        preparer = database.preparer.adapted(flow.reading.max_bytes)
        first = 0
        for found in flow.prepared(flow.parts(paths), preparer, texts_only=True):
            good = (n for n, each in enumerate(found.records, first) if isinstance(each, Record))
            first += len(found.records)
            documents = zip(found.documents, good, strict=True)
            flow.counts.count(
                database.add_prepared([each._replace(id=n, key=n) for each, n in documents])
            )
            flow.show()
        yield database


def _require_documents(store: Database, path: Path, counts: Ingested) -> None:
    if not len(store):
        bad = counts.bad
        reason = f": none of {plural(bad, 'record')} can be used" if bad else ""
        raise InputError(
            f"found no document for {path}{reason}",
            hint="name files with texts; are the format and the fields right?",
        )


def _page(search: "_ChosenGroups", counts: Ingested, name: str, first: str) -> tuple[bytes, int]:
    """Return the page, and how many groups it shows."""
    store, groups = search.texts.database, search.groups
    limit, documents = groups.similarity or 0.0, len(store)
    rooms = [(search.weight(group), partial(search.listed, group)) for group in search.chosen]
    listed, cut = rendered(rooms)
    compared = f"were compared: {_read(counts)}."
    numbers = [(f"{documents:,}", "documents", compared), *numbers_of(groups, documents, first)]
    page = ReportPage(
        title=f"Duplicates in {name}",
        subtitle=f"{plural(len(groups.starts), 'group')} among {plural(documents, 'document')}, "
        f"with the limit {percent(limit)}",
        top=[cards(numbers), *figures(groups)],
        least=min([limit, *search.shares]),
        kinds=_KINDS,
        groups=listed,
        notes=list(_notes(groups, len(listed), search.missing, cut)),
        footer=f"Made by fpdb with the recipe {store.recipe.name} ({store.recipe.id}).",
    )
    return page.render(), len(listed)


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


def _notes(groups: Groups, shown: int, missing: int, cut: int) -> Iterator[str]:
    every = len(groups.starts)
    if not every:
        yield "No document is a near-duplicate of another one."
    elif shown < every:
        yield (
            f"Of {every:,} groups, the {shown:,} with the least similar texts are here; "
            f"{every - shown:,} more aren't in this file."
        )
    if missing:
        yield (
            f"{plural(missing, 'text of these groups is', 'texts of these groups are')} "
            "missing here: the sources don't hold them, or they have changed."
        )
    if cut:
        yield (
            f"{plural(cut, 'group has', 'groups have')} long texts, of which parts are left out "
            "where the page says so, because a file holds at most 5 MB."
        )


@dataclass
class _Version(ListedText):
    """A text of a group, where its documents are, and what was read of them.

    If one of them stays, its name is the first. `document` is the first that has the text, None if
    it was deleted.
    """

    document: Document | None = None
    row: int = 0
    stays: int = 0
    title: str = ""


@dataclass
class _ChosenGroups:
    """The groups to show, and what the sources say of them: their texts, keys and fields."""

    groups: Groups
    texts: Texts
    fields: tuple[str | None, str | None]
    chosen: list[int] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    missing: int = 0
    _versions: dict[int, list[_Version]] = field(default_factory=dict)
    _wanted: dict[int, _Version] = field(default_factory=dict)

    def choose(self, top: int, kept: Marks | None) -> None:
        """Choose groups: edited ones before those of copies alone, and the least similar first."""
        groups, database = self.groups, self.texts.database
        if kept is not None:
            kept = kept[groups.ids.astype(int)]
        self.chosen = groups.ordered()[:top].tolist()
        for group in self.chosen:
            self._versions[group] = versions = []
            for rows in groups.versions(group, MOST_VERSIONS, kept):
                row = int(groups.originals[rows[0]])
                [key] = database.keys_of(groups.ids[[row]])
                document = None if key is None else database.get(key)
                version = _Version([], len(rows), "", None, document, row, int(rows[0]))
                versions.append(version)
                self._wanted |= dict.fromkeys((row, *rows[:_MOST_NAMED].tolist()), version)

    def read(self, paths: Sequence[str], jobs: int, *, numbered: bool) -> None:
        """Read the sources, whose documents go by their numbers, or else by their keys."""
        groups, keys = self.groups, self.texts.database.keys_of(self.groups.ids)
        rows = {key: row for row, key in enumerate(keys) if key is not None}
        meter = meter_of("read the texts again", paths)
        found = (read_parts(path, self._fields_of(path), progress=meter.add) for path in paths)
        parts = chain.from_iterable(found)
        records = chain.from_iterable(found for _, found in mapped(_records, parts, jobs))
        names: set[str] = set()
        with self.texts.file.written() as add:
            for number, record in enumerate(records):
                if isinstance(record, Record):
                    row = rows.get(number if numbered else self._key(record))
                    if row is not None:
                        names.update(record.meta or {})
                        self._note(row, record, add)
        given = (groups.days < NO_DAY).any(), (groups.hosts >= 0).any()
        for kind, name, there in zip(("date", "host"), self.fields, given, strict=True):
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

    def _key(self, record: Record) -> Key:
        with contextlib.suppress(InputError):
            return parse_key(record.key or 0, self.texts.database.keys)
        return ""  # which no document has

    def _note(self, row: int, record: Record, add: Callable[[str, str], None]) -> None:
        """Keep the fields of a document, and its text if it is to be shown."""
        # The field of the key isn't among the metadata.
        meta = dict.fromkeys(self.texts.reading.keys, record.key) | (record.meta or {})
        self.groups.note(row, *(meta.get(name or "") for name in self.fields))
        version = self._wanted.get(row)
        if version is None:
            return
        # As a text, since a browser rounds large numbers; a path need not be Unicode.
        key = str(record.source if record.key is None else record.key)
        key = key.encode("utf-8", "replace").decode()
        if key not in version.keys:
            version.keys.insert(0 if row == version.stays else len(version.keys), key)
            if version.keys[0] == key:
                version.source = record.source
        if row == version.row and version.document:
            add(str(version.document.key), record.text or "")
            version.title = title_in(record.meta)

    def weight(self, group: int) -> int:
        """Return about how many bytes a group takes: no more, if its texts are alike as usual."""
        found = [each.document for each in self._versions[group][1:]]
        sizes = (each.characters * 3 // 2 for each in found if each)
        return LEAST_BYTES + sum(min(size, LARGEST_PAIR) for size in sizes)

    def listed(self, group: int) -> ListedGroup:
        """Return a group, whose texts are compared with that of the kept document."""
        groups, versions = self.groups, self._versions.pop(group)
        first, *others = [self._text(each) for each in versions]
        lowest, every = 1.0, int(groups.texts[group])
        for version, other in zip(versions[1:], others, strict=True):
            if first is not None and other is not None:
                recipe = self.texts.database.recipe
                version.pair = ComparedTexts(recipe, first, other, first="kept")
                lowest = min(lowest, version.pair.share)
        compared = sum(each.pair is not None for each in versions)
        least = lowest if compared == every - 1 else min(lowest, float(groups.weakest[group]))
        self.shares.append(least)
        size = int(groups.sizes[group])
        label = plural(size, "document") + (f", {every} texts" if 1 < every < size else "")
        return ListedGroup(
            title=first_line(versions[0].title or first or ""),
            kind="edited" if every > 1 else "identical",
            label=label,
            documents=size,
            least=least,
            texts=versions,
            more=every - len(versions),
            # Two texts alone may be less similar than estimated, but are no chain.
            chain=every > 2 and lowest < least_estimate(groups.similarity or 0.0),
            copied=None if others else first,
        )

    def _text(self, version: _Version) -> str | None:
        """Return a text as it was when it was stored, and count it if it isn't there."""
        text, note = self.texts.of(version.document) if version.document else (None, "")
        if text is None or note:
            self.missing += 1
            return None
        return text


def _records(part: Part) -> list[Record | BadRecord]:
    return list(part())
