"""Bring files and streams of documents into a database, or query it with them.

Reading and fingerprinting may be done by worker processes; this process stores, in order.
"""

import dataclasses
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fpdb.database import Database
from fpdb.documents.prepare import Prepared, Preparer
from fpdb.errors import InputError
from fpdb.fingerprint import Recipe, to_int
from fpdb.fingerprint.sketches import SKETCH_BYTES
from fpdb.io import (
    PART,
    BadRecord,
    Part,
    Passing,
    Reading,
    Record,
    Wait,
    follow_parts,
    read_parts,
    size_of,
    table_records,
    wait_for_input,
)
from fpdb.models import LARGEST_TEXT, Added, Document, Key, Matches
from fpdb.processes import Workers, count_jobs

Result = TypeVar("Result")

_LOOK_SECONDS = 0.02
_MOST_DIGITS = 20
# Records that are looked up together.
_BLOCK = 256


class Bad(NamedTuple):
    """A record that can't be used: where it was read, why, and a hint that may cure it."""

    source: str
    reason: str
    hint: str = ""


@dataclass
class Ingested:
    """What became of the records that were read so far.

    `records` counts what was read, `statuses` the documents by the statuses of `Added`, and `bad`
    the records that can't be used. `known` counts pages of web archives that are stored, and so
    aren't read again. `skipped` counts records of web archives that hold no page, by the reason.
    `invalid_utf8` counts records in which bytes that are no UTF-8 were replaced by U+FFFD.
    `bytes_read` are bytes as they are in the files, of `bytes_total`, which is None if only
    reading to the end would show it.
    """

    records: int = 0
    known: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    bad: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    invalid_utf8: int = 0
    bytes_read: int = 0
    bytes_total: int | None = None
    started: float = field(default_factory=time.monotonic, repr=False)

    @property
    def read(self) -> int:
        """The number of documents and bad records that were read."""
        return self.records + self.known

    @property
    def added(self) -> int:
        """The number of documents that were added under a new key."""
        return self.statuses["added"]

    @property
    def replaced(self) -> int:
        """The number of documents that replaced one with the same key."""
        return self.statuses["replaced"]

    @property
    def unchanged(self) -> int:
        """The number of documents that were stored already."""
        return self.statuses["unchanged"] + self.known

    @property
    def duplicates(self) -> int:
        """The number of documents that weren't added, because they resemble stored ones."""
        return self.statuses["duplicate"]

    @property
    def short(self) -> int:
        """The number of documents that were added, but are too short to have a fingerprint."""
        return self.statuses["short"]

    @property
    def seconds(self) -> float:
        """The time since the reading began."""
        return time.monotonic() - self.started


class Answer(NamedTuple):
    """What became of one record that `follow` read.

    `status` is one of `Added`, or "error"; then `error` says why. `matches` are the documents that
    a duplicate resembles.
    """

    source: str
    key: Key | None
    status: str
    error: str = ""
    matches: Matches = Matches()


class Asked(NamedTuple):
    """A record that the database was queried with, and what it matches.

    `name` is the record's key, or where it was read. `short` says that its text has too few
    features for a fingerprint, so that only equal texts match.
    """

    name: Key
    matches: Matches
    short: bool = False
    invalid_utf8: bool = False


def ingest(
    database: Database,
    paths: str | Iterable[str],
    reading: Reading | None = None,
    *,
    skip_duplicates: bool = False,
    min_jaccard: float | None = None,
    jobs: int = 1,
    strict: bool = False,
    on_added: Callable[[Added], object] | None = None,
    on_bad: Callable[[Bad], object] | None = None,
    on_progress: Callable[[Ingested], object] | None = None,
) -> Ingested:
    """Add the documents of files, of all files of directories, or of standard input ("-").

    A document whose key is stored replaces the stored one, unless nothing has changed; so an
    ingest that was interrupted can be run again. A page of a web archive that is stored already
    isn't read again.

    Args:
        database: Where the documents are stored, a thousand or so in a transaction.
        paths: Files, directories and "-". All are checked before anything is read.
        reading: How files become documents; by default, their suffixes say it.
        skip_duplicates: Don't add a document that resembles a stored one.
        min_jaccard: The least similarity at which a document is a duplicate.
        jobs: The number of processes that read and fingerprint; 0 for one a processor. The
            results and their order don't depend on it.
        strict: Raise InputError at the first bad record; those before it are stored.
        on_added: Called for each document, once it is durable.
        on_bad: Called for each record that can't be used.
        on_progress: Called with the counts so far, before anything is read and after each part.
    """
    run = _Ingest(database, skip_duplicates=skip_duplicates, min_jaccard=min_jaccard, strict=strict)
    run.on_added, run.on_bad, run.on_progress = on_added, on_bad, on_progress
    reading = reading or Reading()
    names = [paths] if isinstance(paths, str) else list(paths)
    parts = _open(names, reading, PART, run.count_bytes, Passing(run.is_stored, run.skip))
    sizes = [size_of(name) for name in names]
    if None not in sizes:
        run.counts.bytes_total = sum(size or 0 for size in sizes)
    take = _Take(database.preparer.with_largest(reading.max_bytes), database.keys, strict)
    run.show()
    for taken in _results(parts, take, jobs):
        run.store(taken)
    return run.counts


def follow(
    database: Database,
    source: str,
    reading: Reading | None = None,
    *,
    every: bool = False,
    skip_duplicates: bool = False,
    min_jaccard: float | None = None,
    wait: Wait = wait_for_input,
    on_note: Callable[[str], object] = lambda _: None,
) -> Iterator[Answer]:
    """Add JSON lines as they are written; yield what became of each once it is durable.

    Args:
        database: Where the documents are stored; those that are there together, in a transaction.
        source: "-" for standard input, at whose end it ends, or a directory in which files grow.
        reading: Which fields mean what, and what of HTML is taken.
        every: Read all files of the directory, not only those whose names end in .jsonl or the
            like.
        skip_duplicates: Don't add a document that resembles a stored one.
        min_jaccard: The least similarity at which a document is a duplicate.
        wait: Called with the number of a file, or None, and with seconds, or None: waits until the
            file has something to read or the time has passed, and returns whether to go on.
        on_note: Called with a line of text when a file is replaced or cut.
    """
    reading = reading or Reading()
    parts = follow_parts(source, reading, every=every, wait=wait, note=on_note)
    take = _Take(database.preparer.with_largest(reading.max_bytes), database.keys, strict=False)
    for part in parts:
        records = list(part())
        taken = take(records.copy)
        bad = {each.source: each.reason for each in taken.bad}
        stored = database.add_prepared(
            taken.prepared, skip_duplicates=skip_duplicates, min_jaccard=min_jaccard
        )
        for record in records:
            if record.source in bad:
                key = None if isinstance(record, BadRecord) else record.key
                yield Answer(record.source, key, "error", bad[record.source])
            else:
                added = next(stored)
                yield Answer(record.source, added.key, added.status, matches=added.matches)


def query_files(
    database: Database,
    paths: str | Iterable[str],
    reading: Reading | None = None,
    *,
    k: int | None = None,
    limit: int | None = None,
    min_jaccard: float | None = None,
    jobs: int = 1,
    strict: bool = False,
    on_bad: Callable[[Bad], object] | None = None,
) -> Generator[Asked, None, None]:
    """Find the stored documents near each record of files, directories or standard input ("-").

    Records need no key; one without goes by the place where it was read. What they may hold, and
    what `jobs` means, is as `ingest` says. Paths are checked at once.
    """
    reading = dataclasses.replace(reading or Reading(), keyed=False)
    names = [paths] if isinstance(paths, str) else list(paths)
    parts = _open(names, reading, _BLOCK)
    ask = _Ask(database, k, limit, min_jaccard)
    return _answers(
        _results(parts, ask.fingerprinting(reading.max_bytes), jobs), ask, on_bad, strict=strict
    )


def query_records(
    database: Database,
    records: Iterator[Record],
    *,
    k: int | None = None,
    limit: int | None = None,
    min_jaccard: float | None = None,
    max_bytes: int = LARGEST_TEXT,
) -> Iterator[Asked]:
    """Find the stored documents near each of some records; a bad one is an `InputError`."""
    ask = _Ask(database, k, limit, min_jaccard)
    fingerprint = ask.fingerprinting(max_bytes)
    while True:
        block: list[Record] = []
        try:
            block.extend(islice(records, _BLOCK))
        finally:
            # What was read before an error has its answer before that is raised.
            yield from _answers([fingerprint(block.copy)], ask, None, strict=True)
        if not block:
            return


def documents_of(
    table: Any,
    *,
    key: str | None = None,
    text: str | Sequence[str] = (),
    meta: str | Sequence[str] = (),
    fingerprint: str | None = None,
) -> Iterator[Document]:
    """Yield the rows of a table as documents: of pandas, polars, pyarrow or any Arrow table.

    The columns are named as the fields of `Reading`: the key is "key", "id" or "url" and the text
    "text", "content" or "body" unless others are named, several texts are joined, and "*" keeps
    all other columns as metadata. A row that is no document is an `InputError`. It needs pyarrow,
    and a bounded amount of memory besides the table.
    """
    reading = Reading(
        key_field=key,
        text_field=text,
        meta_field=meta,
        fingerprint_field=fingerprint,
        header=True,
        max_bytes=sys.maxsize // 2,
    )
    for record in table_records(table, reading):
        if isinstance(record, BadRecord) or record.key is None:
            reason = record.reason if isinstance(record, BadRecord) else "found no key"
            raise InputError(
                f"{record.source}: {reason}", hint="name other columns, or drop such rows first"
            )
        yield Document(record.key, record.text, record.meta, record.fingerprint)


def parse_key(key: Key, kind: str) -> Key:
    """Convert a key that was read to the kind of keys that a database has."""
    if kind == "text":
        return str(key)
    number = key if isinstance(key, int) else -1
    if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) <= _MOST_DIGITS:
        number = int(key)
    if not 0 <= number < 1 << 64:
        raise InputError(
            f"found the key {str(key)[:40]!r}, expected a whole number from 0 to 2**64 - 1",
            hint="the keys of this database are integers",
        )
    return number


def _open(
    paths: Sequence[str],
    reading: Reading,
    size: int,
    progress: Callable[[int], object] | None = None,
    passing: Passing | None = None,
) -> Iterator[Part]:
    """Check all paths, and return an iterator over what they hold, `size` records at a time."""
    opened = [
        read_parts(path, reading, size=size, progress=progress, passing=passing) for path in paths
    ]
    return (part for parts in opened for part in parts)


def _results(parts: Iterator[Part], work: Callable[[Part], Result], jobs: int) -> Iterator[Result]:
    """Yield what `work` makes of each part, in order; those before an error come first."""
    if count_jobs(jobs) == 1:
        yield from map(work, parts)
        return
    with Workers(work, jobs) as workers, _ReadAhead(parts) as ahead:
        while True:
            # A source that waits for somebody must not hold up the results that are there.
            part = ahead.next(_LOOK_SECONDS if workers.busy else None)
            if part is not None:
                workers.put(part)
            elif ahead.ended:
                break
            for _, result in workers.ready():
                yield result
        for _, result in workers.rest():
            yield result
    if ahead.error:
        raise ahead.error


class _ReadAhead:
    """Iterates over parts in a thread, a few of them ahead."""

    def __init__(self, parts: Iterator[Part]) -> None:
        self.ended = False
        self.error: BaseException | None = None
        self._parts = parts
        self._closed = False
        self._queue: queue.Queue[Part | None] = queue.Queue(2)

    def __enter__(self) -> "_ReadAhead":
        # A daemon, because it may be reading from a terminal when the program ends.
        threading.Thread(target=self._run, name="fpdb-reader", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        while not self._queue.empty():
            self._queue.get()

    def next(self, seconds: float | None) -> Part | None:
        """Return the next part, or None if there is none within the time, or no more."""
        try:
            part = self._queue.get(timeout=seconds)
        except queue.Empty:
            return None
        self.ended = part is None
        return part

    def _run(self) -> None:
        try:
            for part in self._parts:
                self._queue.put(part)
                if self._closed:
                    return
        except BaseException as error:
            self.error = error
        self._queue.put(None)


class _Taken(NamedTuple):
    """What became of the records of a part; in a strict run, up to the first bad one."""

    read: int
    invalid_utf8: int
    prepared: Prepared
    bad: list[Bad]


@dataclass(frozen=True)
class _Take:
    """Reads a part and prepares its documents for a database, in any process."""

    preparer: Preparer
    keys: str
    strict: bool

    def __call__(self, part: Part) -> _Taken:
        records = list(part())
        documents: dict[int, Document] = {}
        bad: dict[int, Bad] = {}
        for place, record in enumerate(records):
            try:
                documents[place] = _document(record, self.keys)
            except InputError as error:
                bad[place] = Bad(record.source, str(error), error.hint)
                if self.strict:
                    break
        prepared, refused = self.preparer.sift(list(documents.values()))
        places = list(documents)
        for number, problem in refused:
            place = places[number]
            bad[place] = Bad(records[place].source, str(problem), problem.hint)
        if self.strict and bad:
            first = min(bad)
            records, bad = records[: first + 1], {first: bad[first]}
            if refused:
                prepared = self.preparer([documents[place] for place in places if place < first])
        invalid = sum(isinstance(record, Record) and record.replaced for record in records)
        return _Taken(len(records), invalid, prepared, [bad[place] for place in sorted(bad)])


def _document(record: Record | BadRecord, kind: str) -> Document:
    if isinstance(record, BadRecord):
        raise InputError(record.reason)
    if record.key is None:
        raise InputError("found no key")
    return Document(parse_key(record.key, kind), record.text, record.meta, record.fingerprint)


class _Ingest:
    """Stores what was read, and counts it."""

    on_added: Callable[[Added], object] | None = None
    on_bad: Callable[[Bad], object] | None = None
    on_progress: Callable[[Ingested], object] | None = None

    def __init__(
        self,
        database: Database,
        *,
        skip_duplicates: bool,
        min_jaccard: float | None,
        strict: bool,
    ) -> None:
        self.counts = Ingested()
        self._database = database
        self._skip_duplicates = skip_duplicates
        self._min_jaccard = min_jaccard
        self._strict = strict

    def count_bytes(self, count: int) -> None:
        """Count the bytes that were read."""
        self.counts.bytes_read += count

    def is_stored(self, key: str, meta: Mapping[str, Any]) -> bool:
        """Return whether this very record of an archive is stored: its key with its metadata."""
        if self._database.keys != "text":
            return False
        try:
            stored = self._database.get(key)
        except InputError:  # an unusable key, which is reported when it is to be added
            return False
        return stored is not None and meta.items() <= (stored.meta or {}).items()

    def skip(self, why: str) -> None:
        """Count a record of an archive that isn't read."""
        if why == "known":
            self.counts.known += 1
        else:
            self.counts.skipped[why] += 1

    def store(self, taken: _Taken) -> None:
        """Add the documents of a part; a record that can't be added costs only itself."""
        counts = self.counts
        counts.records += taken.read
        counts.invalid_utf8 += taken.invalid_utf8
        for added in self._database.add_prepared(
            taken.prepared, skip_duplicates=self._skip_duplicates, min_jaccard=self._min_jaccard
        ):
            counts.statuses[added.status] += 1
            if self.on_added:
                self.on_added(added)
        for bad in taken.bad:
            counts.bad += 1
            _refuse(bad, self.on_bad, strict=self._strict)
        self.show()

    def show(self) -> None:
        """Report the counts so far."""
        if self.on_progress:
            self.on_progress(self.counts)


def _refuse(bad: Bad, on_bad: Callable[[Bad], object] | None, *, strict: bool) -> None:
    if strict:
        place = f"{bad.source}: " if bad.source else ""
        raise InputError(
            f"{place}{bad.reason}", hint=bad.hint or "leave strict out to skip bad records"
        )
    if on_bad:
        on_bad(bad)


class _Question(NamedTuple):
    """A record to query with; `text` is None once it has a fingerprint."""

    record: Record
    text: str | None
    fingerprint: int | None
    sketch: bytes = b""


@dataclass(frozen=True)
class _Fingerprint:
    """Reads a part and fingerprints its texts, in any process.

    If matches are to be verified, a text without a sketch keeps its text, as a short one does.
    """

    recipe: Recipe
    sketched: bool

    def __call__(self, part: Part) -> list[_Question | Bad]:
        return self._resolved(list(part()))

    def _resolved(self, records: Sequence[Record | BadRecord]) -> list[_Question | Bad]:
        texts = [
            record.text
            for record in records
            if isinstance(record, Record) and record.fingerprint is None and record.text is not None
        ]
        try:
            batch = self.recipe.batch(texts, sketches=self.sketched)
        except InputError as error:
            if len(records) == 1:
                return [Bad(records[0].source, str(error), error.hint)]
            half = len(records) // 2
            return self._resolved(records[:half]) + self._resolved(records[half:])
        numbers = iter(zip(batch.fingerprints, batch.short.tolist(), strict=True))
        sketches = iter(() if batch.sketches is None else batch.sketches)
        found: list[_Question | Bad] = []
        for record in records:
            if isinstance(record, BadRecord):
                found.append(Bad(record.source, record.reason))
            elif record.fingerprint is None:
                number, short = next(numbers)
                sketch = next(sketches).tobytes() if self.sketched else b""
                if short or (self.sketched and not any(sketch)):
                    found.append(_Question(record, record.text, None))
                else:
                    found.append(_Question(record, None, to_int(number), sketch))
            elif self.sketched:
                reason = "found a ready fingerprint, expected a text, by which matches are verified"
                found.append(Bad(record.source, reason, "query without a least similarity"))
            else:
                found.append(_Question(record, None, record.fingerprint))
        return found


@dataclass(frozen=True)
class _Ask:
    """Looks up questions; those that have a fingerprint, together."""

    database: Database
    k: int | None
    limit: int | None
    min_jaccard: float | None

    def fingerprinting(self, max_bytes: int) -> _Fingerprint:
        """Return what prepares parts of records of at most `max_bytes` for this."""
        recipe = self.database.recipe
        if max_bytes > recipe.largest:
            recipe = recipe.replace(largest=max_bytes)
        return _Fingerprint(recipe, self.min_jaccard is not None)

    def __call__(self, block: Sequence[_Question | Bad]) -> Iterator[Asked | Bad]:
        bits = self.database.plan.bits
        asked = [
            each
            for each in block
            if isinstance(each, _Question) and each.fingerprint is not None
            if not each.fingerprint >> bits
        ]
        answers = self.database.query_each(
            [each.fingerprint for each in asked],
            k=self.k,
            limit=self.limit,
            min_jaccard=self.min_jaccard,
            sketches=np.frombuffer(b"".join(each.sketch for each in asked), np.uint8).reshape(
                -1, SKETCH_BYTES
            ),
        )
        for each in block:
            if isinstance(each, Bad):
                yield each
                continue
            record = each.record
            name = record.source if record.key is None else record.key
            try:
                matches = self._matches(each, answers)
            except InputError as error:
                yield Bad(record.source, str(error), error.hint)
            else:
                yield Asked(name, matches, each.fingerprint is None, record.replaced)

    def _matches(self, question: _Question, answers: Iterator[Matches]) -> Matches:
        number = question.fingerprint
        if number is None:
            return self.database.query(
                question.text or "", k=self.k, limit=self.limit, min_jaccard=self.min_jaccard
            )
        if number >> self.database.plan.bits:  # which is an InputError
            return self.database.query_fingerprint(number, k=self.k, limit=self.limit)
        return next(answers)


def _answers(
    blocks: Iterable[list[_Question | Bad]],
    ask: _Ask,
    on_bad: Callable[[Bad], object] | None,
    *,
    strict: bool,
) -> Generator[Asked, None, None]:
    for block in blocks:
        for each in ask(block):
            if isinstance(each, Asked):
                yield each
            else:
                _refuse(each, on_bad, strict=strict)
