"""Collect what a report shows: the groups of a corpus, and the texts of those that are chosen.

The sources are read twice. The first time, their documents are numbered and brought into a
temporary database, unless there is one with their keys. The second time, the texts of the chosen
groups are kept, on disk. So memory grows with the documents in groups, and not with the texts.
"""

import contextlib
import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from email.utils import parsedate
from itertools import chain
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Marks, Places, run_starts
from fpdb.database import Database
from fpdb.errors import InputError
from fpdb.fingerprint import Recipe
from fpdb.flow import Flow, Ingested, parse_key
from fpdb.io.files import FORMATS, Part, check_path, meter_of, read_parts
from fpdb.io.records import BadRecord, Reading, Record
from fpdb.joins import Clustering
from fpdb.models import Key
from fpdb.report.page import title_of
from fpdb.scratch import scratch_folder
from fpdb.threads import mapped

# Of a group, the different texts that are compared, and the copies of each that are named.
MOST_VERSIONS = 10
MOST_NAMED = 20
_DATE = re.compile(r"\s*(\d{4})(?:(\d\d)(\d\d)\b|\D{1,2}(\d{1,2})\D{1,2}(\d{1,2}))")
_FIRST_YEAR, _LAST_YEAR = 1000, 2999
_MILLISECONDS = 1e11
_TITLES = ("title", "headline", "name")
_MOST_FIELDS = 100
_LONGEST_HOST = 253


@dataclass
class Version:
    """A text of a group and the documents that have it; of these, `named` and where they were read.

    If one of them stays, its name is the first. `place` is None if the text wasn't in the sources,
    or has changed.
    """

    copies: int
    named: list[tuple[Key, str]] = field(default_factory=list)
    title: str = ""
    place: tuple[int, int] | None = None
    stays: int | None = None


@dataclass
class Group:
    """Documents that are similar, by their texts, of which the first one is that of the kept one.

    `least` is the least similarity of two of them that are similar, estimated. Not all of its
    different texts may be among the `versions`.
    """

    size: int
    texts: int
    least: float
    versions: list[Version]


@dataclass
class Gathered:
    """What a report shows: counts of documents, groups and pairs, and the groups that are chosen.

    `copies` counts the copies by the day on which they appeared, and `copying` by the host that
    was first and the one that has a copy.
    """

    name: str
    counts: Ingested
    documents: int
    similarity: float
    recipe: Recipe
    clusters: int
    identical: int
    edited: int
    shares: Sequence[int]
    sizes: Counter[int]
    groups: list[Group]
    copies: Counter[date] | None = None
    copying: Counter[tuple[str, str]] | None = None
    missing: int = 0
    texts: IO[bytes] | None = None

    def text_of(self, version: Version) -> str | None:
        """Return a text, or None if it wasn't in the sources."""
        if version.place is None or self.texts is None:
            return None
        start, size = version.place
        self.texts.seek(start)
        return self.texts.read(size).decode("utf-8", "surrogatepass")


@contextlib.contextmanager
def collected(
    paths: Sequence[str],
    reading: Reading,
    *,
    database: Database | None,
    recipe: str | Recipe,
    similarity: float | None,
    top: int,
    date_field: str | None,
    host_field: str | None,
    kept: Marks | None,
    jobs: int,
    flow: Flow[Ingested],
) -> Iterator[Gathered]:
    """Collect what a report shows; the texts are there until the block ends."""
    if "-" in paths:
        raise InputError(
            "found standard input, expected files: they are read twice",
            hint="save it to a file first",
        )
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder())
        texts = stack.enter_context(scratch.file("texts"))
        if database is None:
            flow.reading = reading = dataclasses.replace(reading, keyed=False)
            new = Database.build(
                scratch.path / "index",
                recipe=recipe,
                similarity="recipe" if similarity is None else similarity,
                keys="integer",
            )
            store = stack.enter_context(new)
            _fill(store, paths, flow)
        else:
            store = database
        if store.similarity is None:
            raise InputError(
                "found a database of bits, expected one that finds texts by their similarity",
                hint="create it with a similarity, 0.8 for instance",
            )
        found = store.clustering(similarity=similarity, jobs=jobs)
        choice = _ChosenGroups(store, found, top, kept)
        fields = {"date": date_field, "host": host_field}
        search = _SourceTexts(
            store, found, wanted=choice.wanted, texts=texts, reading=reading, fields=fields
        )
        search.read(paths, jobs, numbered=database is None)
        edited = found.originals == np.arange(len(found.ids))
        firsts, sizes = np.unique(found.firsts, return_counts=True)
        yield Gathered(
            name=", ".join(Path(path).name or path for path in paths[:3])
            + (f" and {len(paths) - 3:,} more" if len(paths) > 3 else ""),
            counts=flow.counts,
            documents=len(store),
            similarity=similarity or store.similarity or 0.0,
            recipe=store.recipe,
            clusters=len(firsts),
            identical=int((~edited).sum()),
            edited=int(edited.sum()) - len(firsts),
            shares=found.shares.tolist(),
            sizes=Counter(sizes.tolist()),
            groups=choice.groups,
            copies=search.copies_by_day() if date_field else None,
            copying=search.copies_by_host() if host_field else None,
            missing=search.missing,
            texts=texts,
        )


def _fill(database: Database, paths: Sequence[str], flow: Flow[Ingested]) -> None:
    """Add the documents of all sources, numbered in the order in which they are read."""
    parts = flow.parts(paths)
    preparer = database.preparer.adapted(flow.reading.max_bytes)
    first = 0
    for found in flow.prepared(parts, preparer, texts_only=True):
        good = (n for n, each in enumerate(found.records, first) if isinstance(each, Record))
        first += len(found.records)
        documents = zip(found.documents, good, strict=True)
        flow.counts.count(
            database.add_prepared([each._replace(id=n, key=n) for each, n in documents])
        )
        flow.show()


class GroupColumns:
    """Groups by columns, which have a value for each: sizes, different texts, least similarity.

    The rows of a group are together in the `order`, from one of the `starts` on.
    """

    def __init__(self, found: Clustering) -> None:
        self.found = found
        self.order: Places = np.argsort(found.firsts, kind="stable")
        self.starts: Places = run_starts(found.firsts[self.order])
        self.sizes: Places = np.diff(self.starts, append=len(self.order))
        own = found.originals == np.arange(len(found.ids))
        self.texts = self.reduced(np.add, own.astype(np.int64))
        self.least = self.reduced(np.minimum, found.least)

    def reduced(self, by: np.ufunc, column: NDArray[Any]) -> NDArray[Any]:
        """Return a value for each group of a column by row."""
        ordered = column[self.order]
        return by.reduceat(ordered, self.starts) if len(ordered) else ordered

    def rows(self, group: int) -> Places:
        """Return the rows of a group's documents, the first one first."""
        return self.order[self.starts[group] :][: self.sizes[group]]


class _ChosenGroups:
    """The groups to show: edited ones before those of copies alone, and the least similar first."""

    def __init__(self, database: Database, found: Clustering, top: int, kept: Marks | None) -> None:
        self._found = found
        self._kept = None if kept is None else np.isin(found.ids, kept.nonzero()[0])
        self.groups: list[Group] = []
        self.wanted: dict[int, tuple[Version, bytes | None]] = {}
        every = GroupColumns(found)
        chosen = np.lexsort((-every.sizes, every.least, every.texts == 1))[:top]
        for number in chosen.tolist():
            rows = every.rows(number)
            texts, least = int(every.texts[number]), float(every.least[number])
            self.groups.append(Group(len(rows), texts, least, self._versions(database, rows)))

    def _versions(self, database: Database, members: Places) -> list[Version]:
        """Return the texts of a group to show: that of the kept one and those that differ most."""
        stays = members[:1] if self._kept is None else members[self._kept[members]][:1]
        originals, copies = np.unique(self._found.originals[members], return_counts=True)
        first = int(originals.searchsorted(self._found.originals[stays].max(initial=0)))
        order = np.argsort(self._found.least[originals], kind="stable")
        others = order[order != first][: MOST_VERSIONS - 1]
        versions = []
        for place in [first, *sorted(others.tolist())]:
            original = int(originals[place])
            version = Version(int(copies[place]), stays=next(iter(stays.tolist()), None))
            same = members[self._found.originals[members] == original]
            [key] = database.keys_of(self._found.ids[[original]])
            stored = database.get(key) if key is not None else None
            for member in np.union1d(same[:MOST_NAMED], np.intersect1d(same, stays)).tolist():
                digest = stored.digest if stored and member == original else None
                self.wanted[member] = version, digest
            versions.append(version)
        return versions


class _SourceTexts:
    """Reads the sources, and keeps what of the documents in groups is to be shown."""

    def __init__(
        self,
        database: Database,
        found: Clustering,
        *,
        wanted: dict[int, tuple[Version, bytes | None]],
        texts: IO[bytes],
        reading: Reading,
        fields: dict[str, str | None],
    ) -> None:
        self._database = database
        self._found = found
        self._wanted = wanted
        self._texts = texts
        self._reading = reading
        self._fields = fields
        self._days = np.zeros(len(found.ids), np.int32)
        self._hosts = np.full(len(found.ids), -1, np.int32)
        self._numbers: dict[str, int] = {}
        self._fields_seen: set[str] = set()
        self.missing = 0

    def read(self, paths: Sequence[str], jobs: int, *, numbered: bool) -> None:
        """Read the sources, whose documents go by their numbers, or else by their keys."""
        # All fields, since a table that lacks the field of a title or a date is no bad one.
        everything = dataclasses.replace(self._reading, meta_field=(*self._reading.kept, "*"))
        meter = meter_of("read the texts again", paths)
        parts = chain.from_iterable(
            read_parts(
                path,
                everything if _has_fields(path, self._reading) else self._reading,
                progress=meter.add,
            )
            for path in paths
        )
        records = chain.from_iterable(found for _, found in mapped(_records, parts, jobs))
        places = self._by_number(records) if numbered else self._by_key(records)
        for place, record in places:
            self._note(place, record)
        kept = {id(version): version for version, _ in self._wanted.values()}
        self.missing = sum(version.place is None for version in kept.values())
        for what, name in self._fields.items():
            given = self._days.any() if what == "date" else (self._hosts >= 0).any()
            if name and not given and len(self._found.ids):
                there = ", ".join(sorted(self._fields_seen)[:20]) or "none"
                raise InputError(
                    f"found no {what} in the field {name!r}, expected one in some document",
                    hint=f"the fields are: {there}",
                )

    def _by_number(self, records: Iterable[Record | BadRecord]) -> Iterator[tuple[int, Record]]:
        ids = self._found.ids.tolist()
        place = 0
        for number, record in enumerate(records):
            if place == len(ids):
                return
            if number == ids[place]:
                if isinstance(record, Record):
                    yield place, record
                place += 1

    def _by_key(self, records: Iterable[Record | BadRecord]) -> Iterator[tuple[int, Record]]:
        keys = self._database.keys_of(self._found.ids)
        places = {key: place for place, key in enumerate(keys)}
        for record in records:
            if isinstance(record, BadRecord) or record.key is None:
                continue
            with contextlib.suppress(InputError):
                place = places.get(parse_key(record.key, self._database.keys))
                if place is not None:
                    yield place, record

    def _note(self, place: int, record: Record) -> None:
        """Keep what is to be shown of a document."""
        meta = record.meta or {}
        if self._fields["date"] and (day := parse_day(self._value(record, "date"))):
            self._days[place] = day.toordinal()
        if self._fields["host"] and (host := host_of(self._value(record, "host"))):
            self._hosts[place] = self._numbers.setdefault(host, len(self._numbers))
        if len(self._fields_seen) < _MOST_FIELDS:
            self._fields_seen.update(meta)
        version, digest = self._wanted.get(place, (None, None))
        if version is None:
            return
        key = record.source if record.key is None else record.key
        if key not in (name for name, _ in version.named):
            version.named.insert(
                0 if place == version.stays else len(version.named), (key, record.source)
            )
        text = record.text or ""
        if digest is None or self._database.recipe.digest(text) != digest:
            return
        data = text.encode("utf-8", "surrogatepass")
        version.place = self._texts.seek(0, 2), len(data)
        self._texts.write(data)
        title = next((meta[name] for name in _TITLES if isinstance(meta.get(name), str)), "")
        version.title = title_of(title or text)

    def _value(self, record: Record, what: str) -> object:
        """Return what a field holds; that of the key isn't among the metadata."""
        name = self._fields[what] or ""
        found = (record.meta or {}).get(name)
        return record.key if found is None and name in self._reading.keys else found

    def copies_by_day(self) -> Counter[date]:
        """Count the documents that aren't the first of their group by their day."""
        _, copies = self._sides()
        days = self._days[copies]
        return Counter(map(date.fromordinal, days[days > 0].tolist()))

    def copies_by_host(self) -> Counter[tuple[str, str]]:
        """Count the documents that aren't the first of their group, by its host and theirs."""
        sources, copies = self._sides()
        names = list(self._numbers)
        pairs = zip(self._hosts[sources].tolist(), self._hosts[copies].tolist(), strict=True)
        return Counter(
            (names[one], names[other]) for one, other in pairs if one >= 0 and other >= 0
        )

    def _sides(self) -> tuple[Places, Places]:
        """Return the copies, and for each the first of its group: by date, and as it was read."""
        days = np.where(self._days > 0, self._days, np.iinfo(np.int32).max)
        order = np.lexsort((days, self._found.firsts))
        starts = run_starts(self._found.firsts[order])
        sources = np.repeat(order[starts], np.diff(starts, append=len(order)))
        later = sources != order
        return sources[later], order[later]


def _has_fields(path: str, reading: Reading) -> bool:
    form = check_path(path, reading)
    return not form or FORMATS[form].has_fields


def _records(part: Part) -> list[Record | BadRecord]:
    return list(part())


def parse_day(value: object) -> date | None:
    """Return the day of a date in one of the usual forms, or None."""
    found: date | None = None
    with contextlib.suppress(ValueError, OverflowError, OSError, TypeError, IndexError):
        if isinstance(value, date):
            found = value.date() if isinstance(value, datetime) else value
        elif isinstance(value, str) and (match := _DATE.match(value)):
            year, month, day, month_apart, day_apart = match.groups()
            found = date(int(year), int(month or month_apart), int(day or day_apart))
        elif isinstance(value, str) and not value.strip().isdecimal():
            found = date(*(parsedate(value.partition(".")[0] + " +0000") or ())[:3])
        elif isinstance(value, int | float | str):
            seconds = float(value) / (1000 if float(value) > _MILLISECONDS else 1)
            found = datetime.fromtimestamp(seconds, UTC).date()
    return found if found and _FIRST_YEAR <= found.year <= _LAST_YEAR else None


def host_of(value: object) -> str:
    """Return the host of a URL, or the name of one as it is."""
    name = "" if value is None else str(value).strip()
    with contextlib.suppress(ValueError):
        name = (urlsplit(name).hostname or name) if "://" in name else name
    return name[:_LONGEST_HOST]
