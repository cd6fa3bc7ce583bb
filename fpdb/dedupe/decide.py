"""Which records are removed: each is added to an index, unless it resembles one that is there."""

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Marks
from fpdb.database import Database
from fpdb.documents.prepare import GATHERED
from fpdb.errors import InputError
from fpdb.fingerprint import Recipe, preset
from fpdb.ingest import Take
from fpdb.io.files import Part
from fpdb.io.journal import Journal, Spool
from fpdb.io.records import BadRecord, Reading, Record
from fpdb.models import Added, Key, require_choice
from fpdb.processes import mapped
from fpdb.storage import pack, unpack
from fpdb.storage.format import LARGEST_META, FilePlaces, Stored
from fpdb.storage.open_checks import is_vacant

_KEPT, _SHORT, _REMOVED, _BAD = range(4)
_CODES = {"added": _KEPT, "short": _SHORT, "duplicate": _REMOVED}
Codes = NDArray[np.uint8]
Where = Database | str | os.PathLike[str]
_BAD_RECORDS = ("keep", "drop", "fail")
_NEWEST = "newest:"
# A key that is taken gets a number; so it has to leave room for that.
_LONGEST_KEY = 16_000
_RECIPE = "web"
# Characters of the texts that are stored together: records in memory wait until they are.
_CHARACTERS = 1 << 26
# Blocks that are prepared while documents are stored together.
_AHEAD = 32


class Removed(NamedTuple):
    """A record that was left out, and the kept one that it resembles.

    Their keys are followed by their places: the file and the line or row. The similarity is None
    where bits are compared; `distance` is that of the fingerprints.
    """

    key: Key
    source: str
    kept_key: Key
    kept_source: str | None
    similarity: float | None
    distance: int


@dataclass
class Deduplicated:
    """What became of the records so far.

    Of those that were `read`, some are `kept`, some `removed`, because they resemble a kept one.
    `bad` ones can't be compared, and were kept or dropped, as the policy says; `short` ones are
    kept, because their text has hardly any words. `incomplete` counts kept ones whose search a
    budget ended. `invalid_utf8` counts records in which bytes that aren't UTF-8 were replaced by
    U+FFFD to compare them, and `markup` texts that weren't read as HTML but have tags. `stage` is
    "reading", "comparing" or "writing", of which the share `done` is known, or None. At the end
    `marks` says of each record, in the order of reading, whether it stays.
    """

    read: int = 0
    kept: int = 0
    removed: int = 0
    short: int = 0
    bad: int = 0
    incomplete: int = 0
    invalid_utf8: int = 0
    markup: int = 0
    stage: str = "reading"
    done: float | None = None
    marks: Marks | None = field(default=None, repr=False, compare=False)
    started: float = field(default_factory=time.monotonic, repr=False)

    @property
    def seconds(self) -> float:
        """The time since the run began."""
        return time.monotonic() - self.started


class RecordBlock(NamedTuple):
    """Some records that are prepared together, of the input with a number."""

    part: Part
    number: int = 0
    path: str = ""
    shown: str = ""
    records: Sequence[Any] = ()


class PreparedRecords(NamedTuple):
    """What became of the records of a block: marks of the bad ones, and the others' documents.

    Each document has a value by which it is preferred. `damage` says why the rest of the file can't
    be read.
    """

    is_bad: Marks
    bad: list[BadRecord]
    documents: Sequence[Stored]
    values: NDArray[np.float64]
    invalid_utf8: int
    markup: int
    damage: BadRecord | None


@dataclass(frozen=True)
class _Prepare:
    """Reads a block and prepares its documents, in any process."""

    take: Take
    keep: str
    noted: bool

    def __call__(self, block: RecordBlock) -> PreparedRecords:
        records: list[Record | BadRecord] = []
        values: list[float] = []
        damage = None
        for found in block.part():
            place = block.shown + found.source.removeprefix(block.path)
            if isinstance(found, Record):
                each, value = self._adapted(found, place)
                values.append(value)
                records.append(each)
                continue
            bad = dataclasses.replace(found, source=place)
            if found.source == block.path and block.path:
                damage = bad
            else:
                values.append(0.0)
                records.append(bad)
        taken = self.take(partial(iter, records))
        unfit = [each for each in taken.found if isinstance(each, BadRecord)]
        is_bad = np.array([isinstance(each, BadRecord) for each in taken.found], np.bool_)
        if self.keep == "longest":
            preferred = np.array([each.characters for each in taken.prepared], np.float64)
        else:
            preferred = np.array(values, np.float64)[~is_bad]
        good = [each for each in taken.found if not isinstance(each, BadRecord)]
        replaced, markup = sum(each.replaced for each in good), sum(each.markup for each in good)
        return PreparedRecords(is_bad, unfit, taken.prepared, preferred, replaced, markup, damage)

    def _adapted(self, found: Record, place: str) -> tuple[Record | BadRecord, float]:
        """Return a record as it is indexed, and the value by which it is preferred."""
        key = place if found.key is None else str(found.key)
        value = 0.0
        if self.keep.startswith(_NEWEST):
            given = (found.meta or {}).get(self.keep.removeprefix(_NEWEST))
            read = _time_of(given)
            if read is None:
                name, shown = self.keep.removeprefix(_NEWEST), str(given)[:40]
                reason = f"{name} is {shown!r}, expected a number, or a date such as 2026-11-23"
                return BadRecord(place, reason, key=key), 0.0
            value = read
        meta: dict[str, Any] | None = {"source": place} if self.noted else None
        if meta and isinstance(found.key, int):
            meta["key"] = found.key  # for the database it is a text
        return Record(place, key, found.text, found.fingerprint, meta, found.replaced), value


def _time_of(value: object) -> float | None:
    """Return a date or a number as a number; one that is missing is before all others."""
    if value in (None, ""):
        return -np.inf
    if isinstance(value, int | float):
        return float(value)
    with contextlib.suppress(ValueError, OverflowError):
        return float(str(value))
    with contextlib.suppress(ValueError, OverflowError):
        found = datetime.fromisoformat(str(value).strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    return None


class _NotNeededError(Exception):
    """Ends the block that built an index, so that it is removed."""


@dataclass
class Deduplication:
    """The settings of a run, and what became of its records."""

    reading: Reading
    similarity: float | None = None
    k: int | None = None
    recipe: str | Recipe | None = None
    keep: str = "first"
    bad: str = "keep"
    jobs: int = 1
    noted: bool = False
    on_removed: Callable[[Removed], object] | None = None
    on_bad: Callable[[BadRecord], object] | None = None
    on_progress: Callable[[Deduplicated], object] | None = None
    counts: Deduplicated = field(default_factory=Deduplicated)
    damaged: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_choice("bad", self.bad, _BAD_RECORDS)
        if isinstance(self.recipe, str):
            self.recipe = preset(self.recipe)
        newest = self.keep.removeprefix(_NEWEST) if self.keep.startswith(_NEWEST) else ""
        if self.keep not in ("first", "longest") and not newest:
            raise InputError(
                f"found keep {self.keep!r}, expected first, longest or newest:FIELD",
                hint="newest:date keeps the record with the latest date",
            )
        if self.k is not None and self.similarity is not None:
            raise InputError(
                f"found k {self.k} and similarity {self.similarity}, expected one of them",
                hint="k compares fingerprints, similarity compares texts",
            )
        fields = (newest,) if newest else ()
        self.reading = dataclasses.replace(self.reading, keyed=False, meta_field=fields)

    def expect(self, total: int, stage: str) -> None:
        """Begin a stage that reads some bytes."""
        self.counts.stage, self.counts.done = stage, 0.0
        self._read, self._total = 0, max(total, 1)

    def progress(self, count: int) -> None:
        """Count bytes that were read."""
        self._read += count
        self.counts.done = min(self._read / self._total, 1.0)
        if self.counts.stage == "writing":
            self.show()

    def kept(self, codes: Codes) -> Marks:
        """Mark what stays."""
        dropped = [_REMOVED, _BAD] if self.bad == "drop" else [_REMOVED]
        return np.isin(codes, dropped, invert=True)

    def finish(self, marks: Marks) -> None:
        """Count what stays, given all marks."""
        self.counts.marks = marks
        self.counts.kept = int(np.count_nonzero(marks))
        self.show()

    def show(self) -> None:
        """Report the counts so far."""
        if self.on_progress:
            self.on_progress(self.counts)

    @contextlib.contextmanager
    def index(self, folder: Path, given: Where | None) -> Iterator[Database]:
        """Open the database that is given, or build one that is removed in the end."""
        wanted: dict[str, Any] = {"recipe": self.recipe or _RECIPE, "k": self.k}
        wanted["similarity"] = "recipe" if self.similarity is None else self.similarity
        if self.k is not None:
            wanted["similarity"] = None
        with contextlib.ExitStack() as stack:
            if given is None:
                stack.enter_context(contextlib.suppress(_NotNeededError))
                yield stack.enter_context(Database.build(folder / "index", **wanted))
                raise _NotNeededError
            if isinstance(given, Database):
                database = given
            elif is_vacant(given):
                database = stack.enter_context(Database.create(given, **wanted))
                stack.push(partial(_remove_empty, database))
            else:
                recipe = cast("Recipe | None", self.recipe)
                database = stack.enter_context(Database.open(given, recipe=recipe))
            self._require_fit(database)
            yield database

    def _require_fit(self, database: Database) -> None:
        if database.keys != "text":
            raise InputError(
                f"{database.path} has integer keys, expected a database with text keys",
                hint="give another database; it is created if it isn't there",
            )
        if self.k is not None and (database.similarity is not None or database.k != self.k):
            finds = "what is similar" if database.similarity else f"what is within {database.k}"
            raise InputError(
                f"{database.path} finds {finds}, found k={self.k}",
                hint="leave k out, or give another database; it is created if it isn't there",
            )
        if short := database.shortfall(self.similarity):
            raise InputError(
                f"{database.path} {short}", hint="leave the similarity out, or do that first"
            )

    def decided(
        self,
        database: Database,
        blocks: Iterable[RecordBlock],
        journal: Journal,
        spool: Path | None,
    ) -> Iterator[tuple[RecordBlock, Codes]]:
        """Yield blocks without their parts, and what became of their records.

        With a spool, all are read before the first of them is compared.
        """
        if spool is None:
            yield from self._decided_at_once(database, blocks, journal)
            return
        read: list[tuple[RecordBlock, Marks]] = []
        dated = False
        with Spool(spool, database.plan.bits) as documents:
            for block, found in self._prepared(database, blocks):
                documents.add(found.documents, found.values)
                dated |= bool(np.isfinite(found.values).any())
                read.append((block._replace(part=tuple), found.is_bad))
            if read and not dated and self.keep.startswith(_NEWEST):
                raise InputError(
                    f"no record has a date or a number in {self.keep.removeprefix(_NEWEST)!r}",
                    hint="name the field of the date, or keep the first record",
                )
            codes = self._compared(database, documents, journal)
        yield from _spread(read, codes)

    def _decided_at_once(
        self, database: Database, blocks: Iterable[RecordBlock], journal: Journal
    ) -> Iterator[tuple[RecordBlock, Codes]]:
        read: list[tuple[RecordBlock, Marks]] = []
        documents: list[Stored] = []
        characters = 0
        for block, found in self._prepared(database, blocks):
            read.append((block._replace(part=tuple), found.is_bad))
            documents += found.documents
            characters += sum(each.characters for each in found.documents)
            if len(documents) >= GATHERED or characters >= _CHARACTERS:
                yield from _spread(read, self._add(database, documents, journal))
                read, documents, characters = [], [], 0
        yield from _spread(read, self._add(database, documents, journal))

    def _prepared(
        self, database: Database, blocks: Iterable[RecordBlock]
    ) -> Iterator[tuple[RecordBlock, PreparedRecords]]:
        """Prepare blocks, and count records; raise InputError at a bad one that fails the run."""
        counts = self.counts
        take = Take(database.preparer.adapted(self.reading.max_bytes))
        prepare = _Prepare(take, self.keep, self.noted)
        for block, found in mapped(prepare, blocks, self.jobs, _AHEAD):
            counts.read += len(found.is_bad)
            counts.invalid_utf8 += found.invalid_utf8
            counts.markup += found.markup * (self.reading.html == "auto")
            for bad in found.bad:
                self._refuse(bad, fails=self.bad == "fail")
            if found.damage:
                counts.read += 1
                self._refuse(found.damage, fails=self.bad != "drop")
                self.damaged[block.number] = found.damage.reason
            self.show()
            yield block, found
        if counts.read and counts.bad == counts.read:
            raise InputError(
                f"none of the {counts.read:,} records can be compared",
                hint="which field has the text? The reasons are above; in Python, on_bad gets them",
            )

    def _refuse(self, bad: BadRecord, *, fails: bool) -> None:
        if fails:
            raise InputError(
                f"{bad.source}: {bad.reason}",
                hint=bad.hint or "leave it out by dropping what is bad",
            )
        self.counts.bad += 1
        if self.on_bad:
            self.on_bad(bad)

    def _compared(self, database: Database, documents: Spool, journal: Journal) -> Codes:
        """Compare spooled documents in the order of preference, from where the journal ends."""
        self.counts.stage, self.counts.done = "comparing", 0.0
        order = documents.order()
        codes = np.empty(len(order), np.uint8)
        before = np.frombuffer(journal.decided(), np.uint8)
        done = len(before)
        codes[order[:done]] = before
        self._count(before)
        for batch in documents.batches(order[done:], GATHERED):
            codes[order[done : done + len(batch)]] = self._add(database, batch, journal)
            done += len(batch)
            self.counts.done = done / len(order)
            self.show()
        return codes

    def _add(self, database: Database, documents: Sequence[Stored], journal: Journal) -> Codes:
        """Add documents that resemble none that is stored; return what became of each."""
        codes: list[int] = []
        removed: list[Removed] = []

        def note(added: list[Added]) -> FilePlaces:
            some = documents[len(codes) : len(codes) + len(added)]
            new = [_CODES[each.status] for each in added]
            gone = [
                _removed(document, each)
                for document, each in zip(some, added, strict=True)
                if self.noted and each.status == "duplicate"
            ]
            self.counts.incomplete += sum(not each.matches.complete for each in added)
            codes.extend(new)
            removed.extend(gone)
            return journal.note(bytes(new), "".join(map(_line, gone)).encode())

        database.add_prepared(
            documents,
            skip_duplicates=True,
            similarity=self.similarity,
            places=note,
            rename=_renamed,
        )
        found = np.array(codes, np.uint8)
        self._count(found)
        for each in removed:
            if self.on_removed:
                self.on_removed(each)
        return found

    def _count(self, codes: Codes) -> None:
        self.counts.removed += int(np.count_nonzero(codes == _REMOVED))
        self.counts.short += int(np.count_nonzero(codes == _SHORT))
        self.show()


def _spread(
    read: Iterable[tuple[RecordBlock, Marks]], codes: Codes
) -> Iterator[tuple[RecordBlock, Codes]]:
    """Yield blocks with the codes of all their records, given those of the ones that aren't bad."""
    first = 0
    for block, is_bad in read:
        spread = np.full(len(is_bad), _BAD, np.uint8)
        last = first + int(np.count_nonzero(~is_bad))
        spread[~is_bad] = codes[first:last]
        first = last
        yield block, spread


def _removed(document: Stored, added: Added) -> Removed:
    nearest = added.matches[0]
    key, source = _origin(document.key, unpack(document.meta))
    kept_key, kept_source = _origin(nearest.key, nearest.meta)
    return Removed(key, source or "", kept_key, kept_source, nearest.similarity, nearest.distance)


def _origin(key: Key, meta: Any) -> tuple[Key, str | None]:
    """Return the key of an indexed record as it was read, and its place."""
    noted = meta if isinstance(meta, dict) else {}
    return noted.get("key", key), noted.get("source")


def _renamed(document: Stored, number: int) -> Stored:
    """Give another key to a document whose key is taken, and note its own."""
    meta = unpack(document.meta) if document.meta else {}
    key = str(meta.setdefault("key", document.key))
    packed = pack(meta, "metadata", LARGEST_META) if document.meta else b""
    return document._replace(key=f"{key[:_LONGEST_KEY]} #{number}", meta=packed)


def _line(removed: Removed) -> str:
    return json.dumps(removed._asdict()) + "\n"


def _remove_empty(database: Database, kind: type[BaseException] | None, *_: object) -> None:
    """Remove a new database after an error of the input, if nothing is in it.

    Otherwise it would be in the way of another attempt, with another recipe.
    """
    if kind and issubclass(kind, InputError):
        database.remove(only_empty=True)
