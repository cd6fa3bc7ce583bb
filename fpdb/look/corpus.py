"""The report of a corpus: its groups of duplicates, or its copied parts, on a page of one file.

The sources are read twice. The first time, their documents are numbered, and compared as columns or
stored in a scratch database with passages, unless there is a database with their keys. The second
time, the texts to show are kept, on disk. So memory grows with the documents in groups or pairs,
and not with the texts.
"""

import contextlib
import dataclasses
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fpdb.arrays import Marks
from fpdb.database import Database
from fpdb.errors import IncompleteWarning, InputError
from fpdb.fingerprint import Recipe
from fpdb.flow import Flow, Ingested
from fpdb.io.paths import Paths, files_of, path_names
from fpdb.io.records import BadRecord, Reading
from fpdb.joins.clusters import Clustering
from fpdb.joins.columns import Room
from fpdb.look.fields import date_origin
from fpdb.look.figures import bars, by_day, by_host, overview
from fpdb.look.groups import Groups, Parts
from fpdb.look.listing import ListedGroup, rendered, write_report
from fpdb.look.matrix import who_with_whom
from fpdb.look.page import cards, folded, percent, plural, writing_note
from fpdb.look.pair import ColouredText, ComparedTexts, SharedTexts, common_passage
from fpdb.look.sources import MOST_NAMED, ComparedFiles, Sources, Texts, numbered_texts
from fpdb.markup import Markup, element
from fpdb.models import Key, require_similarity, require_whole
from fpdb.scratch import require_output, scratch_folder

# Of a group, the different texts that are compared.
MOST_VERSIONS = 10
# On one line, so that the list begins on the first screen.
_NUMBERS = "Numbers and pictures"
# Of `write_report`.
_GROUPS: dict[str, Any] = {
    "kinds": {"edited": "edited", "identical": "identical only", "open": "no verdict yet"},
    "none": "No document is a near-duplicate of another one. A smaller similarity finds more; "
    "copied passages have a report of their own.",
}
_PARTS: dict[str, Any] = {
    "kinds": {"part": "a passage is elsewhere", "whole": "nearly all is elsewhere"},
    "none": "No document has a passage of another one. A smaller least share finds more.",
    "noun": "document",
    "orders": {
        "given": "longest passages first",
        "similar": "largest share first",
        "large": "most documents first",
        "title": "by title",
    },
}
_WHOLE = 0.8
# What documents are called without an order of dates, and when their parts aren't shown.
_SHARES, _FURTHER = "Has passages in common", "Further documents with common passages"
# Of so few documents, pairs are decided by their texts whose estimate is this part of the limit.
_MOST_DECIDED, _ESTIMATED = 2_000, 0.25
# A passage is named that so many documents have, or a third of all; the documents that are asked
# for it, and its characters that are shown.
_FEWEST, _MANY, _MOST_ASKED, _QUOTED = 5, 50, 100, 80


@dataclass(frozen=True)
class Reported:
    """Counts of what a report shows: documents, groups and copies, and how much is in the file.

    Of the documents that could go, `identical` ones have the text of an earlier one of their group,
    and `edited` ones another. `shown` of the `groups` are in the file, which has `size` bytes. Of
    their texts, `missing` ones weren't in the sources, or had changed. Of the dates of the
    documents in groups, `unread` ones can't be read.

    With passages, a group is a document with the others that have parts of it, except those with
    later dates. `pairs` counts the pairs of documents; none is `identical` or `edited`.
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
    shortest: int | None = None,
    limit: int = 500,
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
        recipe: How texts are cleaned, if no database is given. Its `common` texts, such as an
            assignment that all were given, count for nobody.
        similarity: The least similarity of near-duplicates; default 0.8, or that of the database.
        passages: Show which documents have passages in common instead; where their dates differ,
            the earlier one is shown as the source of the other.
        least: With passages, the least share of one of two documents that the other one has.
        shortest: With passages, how many words the shortest one has that counts, or characters of
            a script without spaces; default 6 and 12.
        limit: The most groups that the page shows, if they have room: edited ones first, the least
            similar first; or documents with passages of others, those with the longest ones first.
        kept: Which records stay, as `dedupe` returns it for the same files: each of these is
            the kept one of a group, with what resembles it. Not with a database.
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
    require_whole("limit", limit, 1)
    require_whole("shortest", shortest, 1)
    similarity = require_similarity(similarity)
    paths, path, reading = path_names(paths), Path(output), reading or Reading()
    require_output(path, files_of(paths))
    _require_fit(paths, kept, similarity, database=database is not None, passages=passages)
    if database is None:
        reading = dataclasses.replace(reading, keyed=False)
    flow = Flow(Ingested(), reading, jobs, bad, on_bad, on_progress)
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder())
        store: Database | ComparedFiles | None = database
        if store is None:
            store = _compared(
                flow, paths, scratch, recipe, similarity, kept=kept, passages=passages
            )
        threshold = similarity or store.similarity or 0.0
        if not threshold and not passages:
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
        texts = Texts(store, reading, scratch / "texts", paths)
        shown: _ChosenGroups | _ChosenParts
        if passages and isinstance(store, Database):
            decided = least if len(store) <= _MOST_DECIDED else None
            estimate = least if decided is None else least * _ESTIMATED
            parts = Parts(store.passage_pairs(least=estimate), Room(scratch))
            shown = _ChosenParts(parts, texts, limit, shortest, decided)
        else:
            groups = Groups(_clustering(texts, similarity, jobs), threshold)
            shown = _ChosenGroups(groups, texts, kept, limit)
        shown.sources.read(jobs)
        return _written(shown, store, flow.counts, paths, path)


def _require_fit(
    paths: list[str],
    kept: Marks | None,
    similarity: float | None,
    *,
    database: bool,
    passages: bool,
) -> None:
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
    scratch: Path,
    recipe: str | Recipe,
    similarity: float | None,
    *,
    kept: Marks | None,
    passages: bool,
) -> Database | ComparedFiles:
    """Return the documents of files under their numbers, ready to be compared."""
    if passages:
        place = scratch / "passages.fpdb"
        database = Database.create(
            place, recipe=recipe, similarity=None, keys="integer", passages=True
        )
        for numbers, block in numbered_texts(flow, paths, database.preparer):
            ids = numbers.astype(np.uint64)
            database.add_prepared(
                dataclasses.replace(block, ids=ids, keys=ids.tolist(), packed=None)
            )
        return database
    files = ComparedFiles(Room(scratch), recipe, similarity, kept)
    files.fill(flow, paths)
    return files


def _clustering(
    texts: Texts[Database | ComparedFiles], similarity: float | None, jobs: int
) -> Clustering:
    """Find the groups, by the texts of those documents that a first search finds to be near."""
    store, wanted = texts.database, set[Key]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteWarning)  # the second one says so as well
        clustering = store.clustering(similarity=similarity, texts=wanted.add)
    if not wanted:
        return clustering
    with texts.written() as add:
        for key, record in texts.records(texts.reading, jobs):
            if key in wanted:
                add(key, record.text or "")
    with texts.opened() as stored:
        return store.clustering(
            similarity=similarity, texts=lambda key: next(iter(stored(key)), None)
        )


def _written(
    shown: "_ChosenGroups | _ChosenParts",
    store: Database | ComparedFiles,
    counts: Ingested,
    paths: Sequence[str],
    path: Path,
) -> Reported:
    sources, documents, recipe = shown.sources, len(store), store.recipe
    numbers = [(f"{documents:,}", "documents", f"were compared: {_read(counts)}.")]
    listed = rendered([partial(shown.listed, number) for number in shown.chosen()])
    title, subtitle, pictures, more = shown.described(documents, numbers)
    missing, unread = len(sources.missing), sources.origins.unread
    notes = [
        *shown.notes(),
        sources.origins.unread_note,
        writing_note(sources.writings, recipe.clean),
        *_not_compared(counts),
    ]
    if missing:
        notes.append(
            f"{plural(missing, 'text of these groups is', 'texts of these groups are')} "
            "missing here: the sources don't hold them, or they have changed."
        )
    further = f" and {len(paths) - 3:,} more" if len(paths) > 3 else ""
    size = write_report(
        path,
        f"{title} in {', '.join(Path(source).name or source for source in paths[:3])}{further}",
        subtitle,
        [folded(_NUMBERS, *pictures), *shown.glance()],
        listed,
        every=shown.every,
        notes=notes,
        footer=f"Made by fpdb with the recipe {recipe.name} ({recipe.id}).",
        **more,
    )
    counted = (documents, shown.every, *shown.copies, len(listed), missing, unread, size)
    return Reported(path, counts, *counted, pairs=shown.pairs)


def _not_compared(counts: Ingested) -> Iterator[str]:
    """Yield lines about the files that aren't on the page, the first ones by their names."""
    if counts.refused:
        yield f"Not compared: {plural(counts.refused, 'file')} in folders, which aren't text."
    if counts.unreadable:
        yield f"{plural(counts.unreadable, 'file')} couldn't be read, or not to the end."
    for names, reason in counts.left_out.named():
        yield Markup(f"{element('bdi', names)}: {element('span', reason)}")


def _read(counts: Ingested) -> str:
    if not counts.read:
        return "those of a database, with the texts of the sources"
    size = counts.bytes_read / 1e6
    notes = [f"{size:,.{1 if size >= 1 else 3}f} MB of files"]
    if counts.short:
        match = plural(counts.short, "short text matches", "short texts match")
        notes.append(f"{match} texts of the same words only")
    if counts.invalid_utf8:
        notes.append(f"{plural(counts.invalid_utf8, 'record')} had bytes that don't fit")
    if counts.bad:
        notes.append(f"{plural(counts.bad, 'record')} couldn't be read")
    return "; ".join(notes)


# The title of a page, its subtitle, its pictures, and what else `write_report` takes.
_Description = tuple[str, str, Iterator[Markup], dict[str, Any]]


class _ChosenGroups:
    """The groups to show, with what the sources say of them."""

    pairs = 0

    def __init__(
        self, groups: Groups, texts: Texts[Database | ComparedFiles], kept: Marks | None, limit: int
    ) -> None:
        self.groups, self.every = groups, len(groups.starts)
        self.copies = groups.identical, groups.edited
        self._first = "first" if kept is None else "first that stays"
        # Edited groups come before groups of copies, and the least similar ones first.
        self._versions = {
            group: groups.versions(group, MOST_VERSIONS)
            for group in groups.ordered()[:limit].tolist()
        }
        wanted: set[int] = set()
        for rows in chain.from_iterable(self._versions.values()):
            wanted.update(rows[:MOST_NAMED].tolist(), [int(groups.originals[rows[0]])])
        self.sources = Sources(texts, texts.database.keys_of(groups.ids), groups, wanted)

    def chosen(self) -> list[int]:
        return list(self._versions)

    def notes(self) -> list[str]:
        return []

    def glance(self) -> list[Markup]:
        return []

    def described(self, documents: int, numbers: Sequence[tuple[str, str, str]]) -> _Description:
        limit = percent(self.groups.similarity or 0.0)
        subtitle = f"{plural(self.every, 'group')} among {plural(documents, 'document')}, "
        pictures = overview(self.groups, documents, numbers, first=self._first)
        return "Duplicates", f"{subtitle}with the limit {limit}", pictures, _GROUPS

    def listed(self, group: int) -> ListedGroup:
        """Return a group, whose texts are compared with that of the kept document."""
        groups, sources = self.groups, self.sources
        versions, recipe = self._versions[group], sources.texts.database.recipe
        texts = [sources.listed(rows.tolist()) for rows in versions]
        originals = [int(groups.originals[rows[0]]) for rows in versions]
        bodies = [sources.text(row) for row in originals]
        first, lowest, every = bodies[0], 1.0, int(groups.texts[group])
        for variant, other in zip(texts[1:], bodies[1:], strict=True):
            if first is not None and other is not None:
                variant.pair = ComparedTexts(recipe, first, other)
                lowest = min(lowest, variant.pair.share)
        compared = sum(text.pair is not None for text in texts)
        exact = self.groups.estimated == 0 or compared == every - 1
        least = lowest if compared == every - 1 else min(lowest, float(groups.weakest[group]))
        size = int(groups.sizes[group])
        return ListedGroup(
            title=sources.title(originals[0]),
            kind="edited" if every > 1 else "identical",
            label=plural(size, "document") + (f", {every} texts" if 1 < every < size else ""),
            documents=size,
            least=least,
            texts=texts,
            exact=exact,
            more=every - len(texts),
            copied=first if every == 1 else None,
        )


class _ChosenParts:
    """The documents to show with others that have parts of them, and what is known of them."""

    copies = 0, 0

    def __init__(
        self,
        parts: Parts,
        texts: Texts[Database | ComparedFiles],
        limit: int,
        shortest: int | None,
        least: float | None,
    ) -> None:
        self.parts, self._limit, self._shortest, self._least = parts, limit, shortest, least
        self.sources = Sources(texts, parts.keys, parts, range(len(parts.keys)))

    def chosen(self) -> list[int]:
        """Return the documents, those with the longest passages first, now that days are known."""
        parts = self.parts
        if self._least is not None:
            parts.decide(self._least, self._contained)
        parts.settle()
        self.every, self.pairs = len(parts.starts), parts.pairs
        self._ordered = int(np.count_nonzero(parts.is_source))
        order = np.argsort(-parts.words[parts.starts], kind="stable")
        return list(order[: self._limit].tolist())

    def _shared(self, row: int, other: int) -> SharedTexts | None:
        """Return what two documents have in common, if their texts are there."""
        text, other_text = self.sources.text(row), self.sources.text(other)
        if text is None or other_text is None:
            return None
        return SharedTexts(self.sources.texts.database.recipe, text, other_text, self._shortest)

    def _contained(self, row: int, other: int) -> float:
        shared = self._shared(row, other)
        return 0.0 if shared is None else shared.contained

    def described(self, documents: int, numbers: Sequence[tuple[str, str, str]]) -> _Description:
        kinds = ["of earlier ones"] * (self._ordered > 0)
        kinds += ["in common with others"] * (self._ordered < self.pairs)
        have = plural(self.every, "document has", "documents have")
        subtitle = f"{have} passages {' or '.join(kinds)}, among {documents:,}"
        pictures = _parts_overview(self.parts, self.every, self._ordered, numbers)
        return "Copied passages", subtitle, pictures, _PARTS

    def notes(self) -> list[str]:
        """Say which pairs have an order, where it is from, and what many documents have."""
        if not self.pairs:
            return []
        common = self._common()
        if not self._ordered:
            return [
                *common,
                "No pair has two different dates, so nobody knows which document was first.",
            ]
        fields = [date_origin(field) for field, _ in self.parts.day_fields.most_common()]
        said = (
            f"{self._ordered:,} of {plural(self.pairs, 'pair')} have different dates: there, the "
            f"earlier document counts as the source. The dates are from {', '.join(fields)}. "
            "They may be wrong, and both documents may have a third one as their source."
        )
        return [*common, said]

    def glance(self) -> list[Markup]:
        keys = [self.sources.key(row) for row in range(len(self.parts.keys))]
        return who_with_whom(self.parts, keys, self._shared)

    def _common(self) -> Iterator[Markup]:
        """Name the longest passage that many documents have: all may have been given it."""
        documents = len(self.sources.texts.database)
        least = min(max(documents // 3, _FEWEST), _MANY)
        if (met := self.parts.most_met(least - 1, _MOST_ASKED)) is None:
            return
        text, *texts = (self.sources.text(row) for row in (met[0], *met[1]))
        recipe = self.sources.texts.database.recipe
        passage, count = common_passage(recipe, text or "", list(filter(None, texts)))
        if count + 1 < least:
            return
        said = f"At least {plural(count + 1, 'document')} have one passage:"
        quoted = f"“{passage[:_QUOTED]}{'…' * (len(passage) > _QUOTED)}”"
        cure = "If all were given it, name a file with it by --common: then it counts for nobody."
        parts = element("span", said), element("bdi", quoted), element("span", cure)
        yield Markup(" ".join(parts))

    def listed(self, place: int) -> ListedGroup | None:
        """Return a document with others, of which each has a part that those before haven't.

        There is none if it has no passage that is long enough.
        """
        parts, sources = self.parts, self.sources
        start, end = np.append(parts.starts, len(parts.documents))[place : place + 2].tolist()
        row = int(parts.documents[start])
        shown, coloured = dict[int, SharedTexts | None](), ColouredText()
        missing = False
        for at in range(start, end):
            if coloured.complete:
                break
            if (source := self._shared(row, int(parts.partners[at]))) is None:
                missing = True
            elif coloured.add(source):
                shown[at] = source
        if not shown and not missing:
            self.every -= 1
            return None
        shown = shown or {start: None}
        is_copy = parts.is_source[list(shown)].any()
        texts = [sources.listed([row], "Has passages of others" if is_copy else _SHARES)]
        for at, shared in shown.items():
            role = "Source" if parts.is_source[at] else _SHARES
            texts.append(sources.listed([int(parts.partners[at])], role))
            texts[-1].pair = shared
        unshown = [int(parts.partners[at]) for at in range(start, end) if at not in shown]
        share, count = coloured.share or float(parts.shares[place]), len(shown)
        said = [plural(count, "other document"), *(first.size for first in coloured.sources[:1])]
        return ListedGroup(
            title=sources.title(row),
            kind="whole" if share >= _WHOLE else "part",
            label=", ".join(said),
            documents=count,
            least=share,
            texts=texts,
            exact=bool(coloured.sources),
            coloured=coloured,
            further=sources.listed(unshown, _FURTHER) if unshown else None,
        )


def _parts_overview(
    parts: Parts, every: int, ordered: int, numbers: Sequence[tuple[str, str, str]]
) -> Iterator[Markup]:
    """Yield numbers and pictures of common passages, and which hosts have them."""
    whole = int(np.count_nonzero(parts.shares >= _WHOLE))
    nearly = f"have at least {percent(_WHOLE)} in common with another one."
    yield cards(
        [
            *numbers,
            (f"{every:,}", "with common passages", "are listed below."),
            (f"{whole:,}", "nearly whole", nearly),
            (f"{parts.pairs:,}", "pairs", "of documents with a passage in common."),
            (f"{ordered:,}", "pairs in order", "have different dates."),
        ]
    )
    said = (
        "Passages of 28 words or 30 Chinese characters are always found, and shorter ones often; "
        "equal words count, and no paraphrase."
    )
    yield element("p", said, class_="soft")
    shares = np.bincount((parts.shares * 10).astype(int), minlength=11)
    shares[9] += shares[10]
    rows = [(f"{10 * n}–{10 * n + 10}", int(count)) for n, count in enumerate(shares[:10])]
    said = "How much of each document is in the one other that has most of it, estimated."
    pictures = [bars("Documents by share, in percent", said, rows, "documents")]
    if dated := parts.by_day(np.unique(parts.documents[parts.is_source])):
        pictures.append(by_day("When copies appeared", "Copies with a date.", dated, "copies"))
    yield element("section", *pictures, class_="figures")
    said = "A document with parts of several others counts for each of these."
    yield from by_host(parts.host_pairs(), said, words=True)
