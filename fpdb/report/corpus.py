"""The report of a corpus: its groups of duplicates on a page of one file."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fpdb.arrays import Marks
from fpdb.database import Database
from fpdb.errors import InputError
from fpdb.fingerprint import Recipe, least_estimate
from fpdb.flow import Flow, Ingested
from fpdb.io.files import Paths, path_names
from fpdb.io.records import BadRecord, Reading
from fpdb.models import require_similarity, require_whole
from fpdb.report.figures import by_day, by_similarity, by_size
from fpdb.report.gather import Gathered, collected
from fpdb.report.page import Markup, ReportPage, cards, element, percent, plural, table
from fpdb.report.views import MOST_GROUPS, group_views
from fpdb.scratch import draft_file

_MOST_HOSTS = 20


@dataclass(frozen=True)
class Reported:
    """What a report shows: counts of documents, groups and copies, and what of them is in the file.

    Of the documents that could go, `identical` ones have the text of an earlier one of their group,
    and `edited` ones another. `shown` of the `groups` are in the file, which has `size` bytes. Of
    those, `missing` texts weren't in the sources, or had changed.
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
        jobs: The number of processes; 0 for one a processor.
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
    if database is not None and kept is not None:
        raise InputError(
            "found a database and what is kept of the records of files, expected one of them",
            hint="the documents of a database aren't in the order of the files; leave one out",
        )
    flow = Flow(Ingested(), reading or Reading(), jobs, strict, on_bad, on_progress)
    path = Path(output)
    with collected(
        path_names(paths),
        reading or Reading(),
        database=database,
        recipe=recipe,
        similarity=similarity,
        top=min(top, MOST_GROUPS),
        date_field=date_field,
        host_field=host_field,
        kept=kept,
        jobs=jobs,
        flow=flow,
    ) as found:
        if not found.documents:
            bad = found.counts.bad
            reason = f": none of {plural(bad, 'record')} can be used" if bad else ""
            raise InputError(
                f"found no document for {path}{reason}",
                hint="name files with texts; are the format and the fields right?",
            )
        page = _page(found, "first" if kept is None else "first that stays")
    data = page.render()
    with draft_file(path) as file:
        file.write(data)
    return Reported(
        path=path,
        counts=found.counts,
        documents=found.documents,
        groups=found.clusters,
        identical=found.identical,
        edited=found.edited,
        shown=len(page.groups),
        missing=found.missing,
        size=len(data),
    )


def _page(found: Gathered, first: str) -> ReportPage:
    groups, left_out = group_views(found)
    documents, copies = found.documents, found.identical + found.edited
    numbers = [
        (f"{documents:,}", "documents", f"were compared: {_read(found)}."),
        (
            f"{found.clusters:,}",
            "groups",
            (
                "of documents that are near-duplicates of each other, or of one between them. The "
                f"{first} of each group counts as the kept one."
            ),
        ),
        (
            f"{found.identical:,}",
            "identical copies",
            "have exactly the text of an earlier document of their group.",
        ),
        (
            f"{found.edited:,}",
            "edited copies",
            "resemble an earlier document of their group, and have a text of their own.",
        ),
        (
            percent(copies / documents if documents else 0.0),
            "could go",
            f"if only one document of each group stays: {copies:,} of {documents:,}.",
        ),
    ]
    figures = [by_similarity(found.shares, found.similarity), by_size(found.sizes)]
    if found.copies is not None:
        said = (
            f"{plural(sum(found.copies.values()), 'document')} with a date that came after the "
            "first one of their group."
        )
        figures.append(by_day("When copies appeared", said, found.copies, "copies"))
    top = [
        cards(numbers),
        element(
            "p",
            "Two documents count as near-duplicates from an estimated similarity of "
            f"{percent(least_estimate(found.similarity))} on, so that few pairs of "
            f"{percent(found.similarity)} are missed. It is the share of their runs of three "
            "words, or five Chinese characters, that is in both.",
            class_="soft",
        ),
        element("section", *figures, class_="figures"),
    ]
    if found.copying is not None:
        top.append(_by_host(found.copying))
    return ReportPage(
        title=f"Duplicates in {found.name}",
        subtitle=f"{plural(found.clusters, 'group')} among {plural(documents, 'document')}, "
        f"with the limit {percent(found.similarity)}",
        top=top,
        similarity=found.similarity,
        kinds={
            "edited": "edited",
            "identical": "identical only",
            "chain": "chains",
            "open": "no verdict yet",
        },
        groups=groups,
        notes=[*_notes(found, len(groups)), *left_out],
        footer=f"Made by fpdb with the recipe {found.recipe.name} ({found.recipe.id}).",
    )


def _read(found: Gathered) -> str:
    """Say what was read, and what of it can't be compared."""
    counts = found.counts
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


def _notes(found: Gathered, shown: int) -> Iterator[str]:
    if not found.clusters:
        yield "No document is a near-duplicate of another one."
    elif shown < found.clusters:
        yield (
            f"Of {found.clusters:,} groups, the {shown:,} with the least similar texts are here; "
            f"{found.clusters - shown:,} more aren't in this file."
        )
    if found.missing:
        yield (
            f"{plural(found.missing, 'text of these groups is', 'texts of these groups are')} "
            "missing here: the sources don't hold them, or they have changed."
        )


def _by_host(copying: Counter[tuple[str, str]]) -> Markup:
    others = [(pair, count) for pair, count in copying.most_common() if pair[0] != pair[1]]
    own = sum(copying.values()) - sum(count for _, count in others)
    rows = [(one, other, f"{count:,}") for (one, other), count in others[:_MOST_HOSTS]]
    more = len(others) - len(rows)
    return element(
        "section",
        element("h3", "Who has copies of whom"),
        element(
            "p",
            "The first document of a group, by its date or else as it was read, is taken for the "
            f"source of the others. {plural(own, 'copy is', 'copies are')} of the same host."
            + (f" {plural(more, 'further pair')} of hosts aren't listed." if more else ""),
        ),
        table(("first at", "then at", "documents"), rows, "Who has copies of whom"),
    )
