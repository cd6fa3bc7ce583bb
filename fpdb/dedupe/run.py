"""The settings of a run that removes near-duplicates, and the counts of its records."""

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Column, Marks
from fpdb.database import Database
from fpdb.dedupe.prepare import Prepare, RecordBlock, RecordColumns, no_source
from fpdb.documents import layout
from fpdb.documents.prepare import Preparer
from fpdb.errors import InputError, LossError
from fpdb.fingerprint import Recipe, preset
from fpdb.flow import RecordCounts
from fpdb.io.records import BadRecord, Reading
from fpdb.joins.columns import Room
from fpdb.joins.preference import Preference
from fpdb.models import (
    DIGEST_BYTES,
    Key,
    TextsByKey,
    require_choice,
    require_share,
    require_similarity,
    require_whole,
)
from fpdb.scratch import scratch_folder
from fpdb.storage.format import StoredRun
from fpdb.storage.open_checks import is_vacant
from fpdb.threads import count_jobs, mapped

KEPT, SHORT, REMOVED, BAD = range(4)
OPEN = 4  # until the texts are compared
Codes = NDArray[np.uint8]
Where = Database | str | os.PathLike[str]
_BAD_RECORDS = ("keep", "drop", "fail")
_SAME_KEY = ("keep", "replace")
_RECIPE = "web"
# Of a text of 840 bytes: the seconds of reading, comparing and writing on one processor, and bytes
# of its columns, which have room to grow.
SIZE, _SECONDS, _BYTES = 840, 22e-6, 350
# Blocks that are prepared while others are compared with each other, or with a database.
AHEAD, _AHEAD_OF_LOOKUP = 32, 256
# A source with fewer records isn't named for what it loses: where a quarter of all records goes,
# one of 20 loses more than half by chance in 1 of 250 cases, and one of 10 in 1 of 50.
_LEAST_SOURCE = 20
# Sources that are named one by one.
_NAMED = 10


class Work(NamedTuple):
    """What cleaning a corpus takes: the time on some processors, and the bytes of its columns."""

    seconds: float
    jobs: int
    bytes: int


def estimate_work(documents: int) -> Work:
    """Estimate the work for a corpus whose texts have `SIZE` bytes, as Parquet."""
    jobs = count_jobs(0)
    return Work(documents * _SECONDS / jobs, jobs, documents * _BYTES)


class Removed(NamedTuple):
    """A record that was left out, and the kept one that it resembles.

    Their keys are followed by their places: the file and the line or row. The similarity is None
    where bits are compared; `distance` is that of the fingerprints. It is exact near the limit,
    unless it is `estimated` because a document of the database has no text here. `own_share` is
    the share of the record's own shingles that the kept one lacks: as exact as the similarity, and
    None where bits are compared, or with a document of the database that has another text, unless
    both texts were compared.
    """

    key: Key
    source: str
    kept_key: Key
    kept_source: str | None
    similarity: float | None
    distance: int
    estimated: bool = False
    own_share: float | None = None


class SourceLoss(NamedTuple):
    """A source, how many records it has, and how many of these go."""

    source: str
    records: int
    removed: int

    def __str__(self) -> str:
        share = int(100 * self.removed / self.records)  # 100 % are all of them
        return f"{self.source}: {self.removed:,} of {self.records:,} records go ({share} %)"


@dataclass
class Deduplicated(RecordCounts):
    """What became of the records so far.

    Some are `kept`, and some `removed` because they resemble a kept one; at the end, `copies` of
    these have the very text of another record, or of a document of the database, and outputs that
    are files have `bytes_saved` fewer than their inputs. Of all, `delivered` have a key that the
    database had, and `estimated` resemble one of its documents by an estimate that is near the
    limit, as no text is known. Of the shingles of all removed records, `own_share` is the share
    that the kept ones lack which each resembles; those that resemble a document of the database
    don't count, and it is None if none do, or bits are compared. Of the kept ones, `replaced` take
    the place of the document with their key, and `meanwhile` counts those that aren't added,
    because they resemble a document that somebody else has added since they were compared;
    on_progress comes too early for it. `bad` ones were kept or dropped, as the policy says; `short`
    ones are kept. Of the records that are written, `cut_records` lost paragraphs, which had
    `cut_characters` together. `stage` is "counting" paragraphs, "reading", "comparing" or
    "writing", of which the share `done` is known, or None. At the end `marks` says of each record,
    in the order of reading, whether it stays; `paths` names the files that were read; and `losses`
    names the sources of which more than half goes, those that lose most records first, unless they
    have fewer than 20.
    """

    kept: int = 0
    removed: int = 0
    copies: int = 0
    delivered: int = 0
    estimated: int = 0
    own_share: float | None = None
    replaced: int = 0
    meanwhile: int = 0
    bytes_saved: int | None = None
    cut_records: int = 0
    cut_characters: int = 0
    stage: str = "reading"
    done: float | None = None
    losses: list[SourceLoss] = field(default_factory=list)
    marks: Marks | None = field(default=None, repr=False, compare=False)
    paths: list[str] = field(default_factory=list, repr=False, compare=False)


@dataclass
class Deduplication:
    """The settings of a run, and the counts of its records."""

    reading: Reading
    similarity: float | None = None
    k: int | None = None
    recipe: str | Recipe | None = None
    keep: str = "first"
    bad: str = "keep"
    jobs: int = 0
    memory: int | None = None
    folder: str | os.PathLike[str] | None = None
    abandon: bool = False
    same_key: str | None = None
    texts: TextsByKey | None = None
    lose: float | None = None
    within: str | None = None
    source_field: str | None = None
    most: float | None = None
    annotate: bool = False
    cut: int | None = None
    command: str = ""
    on_removed: Callable[[Removed], object] | None = None
    on_bad: Callable[[BadRecord], object] | None = None
    on_progress: Callable[[Deduplicated], object] | None = None
    counts: Deduplicated = field(default_factory=Deduplicated)
    damaged: dict[int, str] = field(default_factory=dict)
    preference: Preference = field(init=False)
    replaces: bool = field(init=False)

    def __post_init__(self) -> None:
        require_choice("bad", self.bad, _BAD_RECORDS)
        require_choice("same_key", self.same_key or "keep", _SAME_KEY)
        if isinstance(self.recipe, str):
            self.recipe = preset(self.recipe)
        self.preference = Preference.of(self.keep)
        usual = "replace" if self.preference.dated else "keep"
        self.replaces = (self.same_key or usual) == "replace"
        require_whole("memory", self.memory, 0)
        require_whole("cut", self.cut, 2)
        if self.folder is not None and not Path(self.folder).is_dir():
            raise InputError(
                f"there is no folder {self.folder} for temporary files",
                hint="create it first, or leave it out",
                parameter="tmp",
            )
        self.similarity = require_similarity(self.similarity, self.k)
        require_share("lose", self.lose)
        require_share("most", self.most)
        wanted = dict.fromkeys([self.preference.field, self.within, self.source_field])
        fields = [name for name in wanted if name]
        self.reading = dataclasses.replace(self.reading, keyed=False, meta_field=fields)

    @contextlib.contextmanager
    def room(self, scratch: Path | None = None) -> Iterator[Room]:
        """Make room for the columns of the records, in files if they need more than the memory.

        The files are in the given folder, or else in a scratch folder that is there already.
        """
        with contextlib.ExitStack() as stack:
            if self.folder is not None or scratch is None:
                beside = None if self.folder is None else Path(self.folder, "fpdb")
                scratch = stack.enter_context(scratch_folder(beside))
            yield Room(scratch, self.memory)

    def expect(self, total: int, stage: str) -> None:
        """Begin a stage that reads some bytes."""
        self.counts.stage, self.counts.done = stage, 0.0
        self._read, self._total = 0, max(total, 1)
        self.counts.bytes_total = total

    def progress(self, count: int) -> None:
        """Count bytes that were read."""
        self._read += count
        self.counts.done = min(self._read / self._total, 1.0)
        if self.counts.stage == "reading":
            self.counts.bytes_read = self._read
        if self.counts.stage == "writing":
            self.show()

    def keepers(self, codes: Codes) -> Marks:
        """Mark the records that stay."""
        dropped = [REMOVED, BAD] if self.bad == "drop" else [REMOVED]
        return np.isin(codes, dropped, invert=True)

    def written(self, codes: Codes) -> Marks:
        """Mark the records that are written: those that stay, and annotated ones that go."""
        stays = codes == REMOVED if self.annotate else np.zeros(len(codes), np.bool_)
        return self.keepers(codes) | stays

    def weigh(self, losses: list[SourceLoss]) -> None:
        """Name the sources that lose most; raise LossError if one loses more than it may."""
        losses = sorted(losses, key=lambda loss: -loss.removed)
        self.counts.losses = [
            loss for loss in losses if 2 * loss.removed > loss.records >= _LEAST_SOURCE
        ]
        most = 1.0 if self.most is None else self.most
        if excessive := [loss for loss in losses if loss.removed / loss.records > most]:
            raise LossError(
                f"expected that at most {most:.4g} of a source goes: "
                + "; ".join(worst_losses(excessive)),
                hint="look at what is removed without this limit; then raise it, or leave these "
                "sources out",
                parameter="most",
            )

    def finish(self, marks: Marks) -> None:
        """Count the records that stay, given all marks."""
        self.counts.marks = marks
        self.counts.kept = int(np.count_nonzero(marks))
        self.show()

    def show(self) -> None:
        """Report the counts so far."""
        if self.on_progress:
            self.on_progress(self.counts)

    @contextlib.contextmanager
    def opened(self, where: Where | None) -> Iterator[Database | None]:
        """Open the database, if there is one, and be the only run that adds to it."""
        if where is None:
            if self.same_key is not None:
                raise InputError(
                    "found a choice among documents with the same key, but no database",
                    hint="records of one delivery are compared by their texts alone",
                    parameter="same_key",
                )
            if self.texts is not None:
                raise InputError(
                    "found texts of documents, but no database that these are in",
                    hint="leave the texts out: those of the records are at hand",
                    parameter="texts",
                )
            yield None
            return
        if self.within is not None:
            raise InputError(
                f"found within {self.within!r} and a database, which keeps no such field",
                hint="give the records of each value a database of their own",
                parameter="within",
            )
        with contextlib.ExitStack() as stack:
            if isinstance(where, Database):
                database = where
            elif is_vacant(where):
                database = stack.enter_context(Database.create(where, **self._wanted()))
                stack.push(partial(_remove_empty, database))
            else:
                recipe = cast("Recipe | None", self.recipe)
                database = stack.enter_context(Database.open(where, recipe=recipe))
            self._require_fit(database)
            stack.enter_context(database.runs.alone())
            if self.abandon:
                database.runs.abandon()
            yield database

    def _wanted(self) -> dict[str, Any]:
        similarity = None if self.k is not None else self.similarity or "recipe"
        return {"recipe": self.recipe or _RECIPE, "k": self.k, "similarity": similarity}

    def preparer(self, database: Database | None) -> Preparer:
        """Return the preparer of records, for a database or as for a new one."""
        if database is not None:
            return database.preparer
        recipe, described = layout.header_for(**self._wanted())
        return Preparer(described, *layout.layout(described), recipe)

    def least_similarity(self, preparer: Preparer) -> float | None:
        """Return the least similarity of removed records, or None if bits are compared."""
        similarity: float | None = self.similarity or preparer.header.get("similarity")
        for name, value in (("lose", self.lose), ("texts", self.texts)):
            if value is not None and not similarity:
                raise InputError(
                    f"found {name} {value!r:.40}, but fingerprints are compared, which show "
                    "nothing of it",
                    hint="leave it out, or compare texts: by a similarity, and not by k",
                    parameter=name,
                )
        return similarity

    def require_values(self, groups: Column, sources: Collection[str]) -> None:
        """Raise InputError if no record has a value that must be equal, or one of its source."""
        unsourced = {no_source(self.source_field)} if self.source_field else None
        for name, lacks, hint, parameter in (
            (self.within, len(groups) and not groups.any(), "whose values must be equal", "within"),
            (self.source_field, {*sources} == unsourced, "of the source", "source_field"),
        ):
            if lacks:
                raise InputError(
                    f"no record has a value in {name!r}",
                    hint=f"name the field {hint}",
                    parameter=parameter,
                )

    def _require_fit(self, database: Database) -> None:
        none = database.preparer.questions([], sketched=False)
        list(database.query_prepared(none, similarity=self.similarity))  # which needs sketches
        if database.key_type != "text":
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

    def options(self) -> bytes:
        """Return a digest of the options that decide which records stay."""
        recipe = self.recipe.id if isinstance(self.recipe, Recipe) else ""
        known = [self.similarity, self.k, recipe, self.keep, self.bad]
        known += [choice for choice in (self.same_key, self.lose) if choice is not None]
        known += ["texts"] * (self.texts is not None)
        known += [f"cut {self.cut}"] * (self.cut is not None)
        return hashlib.blake2b(repr(known).encode(), digest_size=DIGEST_BYTES).digest()

    def prepared(
        self,
        preparer: Preparer,
        blocks: Iterable[RecordBlock],
        *,
        keyed: bool,
        stored: bool,
        shingled: bool,
    ) -> Iterator[tuple[RecordBlock, RecordColumns]]:
        """Prepare blocks, and count records; raise InputError at a bad one that fails the run."""
        counts = self.counts
        adapted = preparer.adapted(self.reading.max_bytes)
        wanted = keyed, stored, shingled
        prepare = Prepare(adapted, self.preference, *wanted, self.within, self.source_field)
        ahead = _AHEAD_OF_LOOKUP if stored else AHEAD
        for block, columns in mapped(prepare, blocks, self.jobs, ahead):
            counts.read += int(np.count_nonzero(~columns.is_bad))
            counts.invalid_utf8 += columns.invalid_utf8
            counts.markup += columns.markup * (self.reading.html == "auto")
            for bad in columns.bad:
                if self.bad == "fail" or (bad.is_file and self.bad != "drop"):
                    raise InputError(
                        f"{bad.source}: {bad.reason}",
                        hint=bad.hint or "drop what is bad",
                        parameter="" if bad.hint else "bad",
                    )
                counts.refuse(bad)
                if self.on_bad:
                    self.on_bad(bad)
                if bad.is_file:
                    self.damaged[block.number] = bad.reason
            self.show()
            yield block, columns
        if counts.read and counts.bad == counts.read:
            raise InputError(
                f"none of the {counts.read:,} records can be compared, the last: {bad.reason}",
                hint="name fields that they have; in Python, on_bad gets all reasons",
            )


def worst_losses(losses: Sequence[SourceLoss]) -> list[str]:
    """Say how much the first sources lose, and how many more there are."""
    more = [f"{len(losses) - _NAMED:,} more sources"] * (len(losses) > _NAMED)
    return [*map(str, losses[:_NAMED]), *more]


def require_next(database: Database, new: StoredRun | None = None) -> None:
    """Raise InputError unless a run may be the next one of a database."""
    known = database.runs.known()
    for run in known:
        if run.finished and new and run.content == new.content:
            raise InputError(
                f"the very same records were added to {database.path} on {run.begun}: each would "
                "be removed for itself",
                hint="keep the output of that run; to make it again, take the database as it was "
                "before, from a backup",
            )
    unfinished = [run for run in known if not run.finished]
    if unfinished and not any(
        new and (run.content, run.options) == (new.content, new.options) for run in unfinished
    ):
        command = f", by {unfinished[0].command:.1000}," * bool(unfinished[0].command)
        raise InputError(
            f"a run that began to write its outputs on {unfinished[0].begun} hasn't added them to "
            f"{database.path}",
            hint=f"run it again{command or ', with the same records and options,'} or abandon it: "
            "its outputs then stay where they are, and later ones aren't compared with them",
        )


def _remove_empty(database: Database, kind: type[BaseException] | None, *_: object) -> None:
    """Remove a new database after an error of the input, if nothing is in it.

    Otherwise it would be in the way of another attempt, with another recipe.
    """
    if kind and issubclass(kind, InputError):
        database.remove(only_empty=True)
