"""Bring files and streams of documents into a database, or query it with them.

Reading, fingerprinting and looking up may be done by worker processes; this process stores, in
order.
"""

import dataclasses
import os
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, Self, cast

from fpdb.database import Database
from fpdb.documents.prepare import GATHERED, TRANSACTION_BYTES, Preparer, bytes_of
from fpdb.errors import InputError
from fpdb.fingerprint.digits import unsigned
from fpdb.io.arrow import table_rows
from fpdb.io.files import Part, Paths, meter_of, path_names, read_parts, size_of
from fpdb.io.follow import follow_parts
from fpdb.io.records import BadRecord, Reading, Record, UnfitError, picker
from fpdb.io.warc import Passing
from fpdb.models import (
    MOST_BYTES,
    Added,
    Asked,
    Document,
    Key,
    Matches,
    require_similarity,
)
from fpdb.processes import mapped
from fpdb.storage.format import Stored

_MOST_DIGITS = 20
# Where `Ingested` counts a status under another name.
_COUNTED = {"duplicate": "duplicates", "error": "bad"}
# Documents of files are read for as long before they are stored together.
_SECONDS = 1.0
# Records that are looked up together.
_BLOCK = 256


@dataclass
class Ingested:
    """What became of the records that were read so far.

    `read` counts documents and the `bad` records, which can't be used. Documents are `added` under
    a new key, `replaced` one with their key, or were stored already, `unchanged`; `duplicates`
    weren't added, because they resemble stored ones; `short` ones were added, but have no
    fingerprint. `skipped` counts records of web archives that hold no page, by the reason.
    `incomplete` counts documents whose search for near-duplicates a budget ended, so that one may
    have been missed. `invalid_utf8` counts records in which bytes that aren't UTF-8 were replaced
    by U+FFFD, and `markup` texts that weren't read as HTML but have tags. `bytes_read` are bytes as
    they are in the files, of `bytes_total`, which is None if only reading to the end would show it.
    """

    read: int = 0
    added: int = 0
    replaced: int = 0
    unchanged: int = 0
    duplicates: int = 0
    short: int = 0
    bad: int = 0
    incomplete: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    invalid_utf8: int = 0
    markup: int = 0
    bytes_read: int = 0
    bytes_total: int | None = None
    started: float = field(default_factory=time.monotonic, repr=False)

    @property
    def seconds(self) -> float:
        """The time since the reading began."""
        return time.monotonic() - self.started

    def tally(self, outcome: str, number: int = 1) -> None:
        """Count records that were read, by what became of them, as in `Added` or `Answer`."""
        name = _COUNTED.get(outcome, outcome)
        self.read += number
        setattr(self, name, getattr(self, name) + number)


class Answer(NamedTuple):
    """What became of one record that `follow` read.

    `status` is one of `Added`, or "error"; then `error` says why. `matches` are the documents that
    a duplicate resembles; they aren't `complete` if a budget ended the search.
    """

    source: str
    key: Key | None
    status: str
    error: str = ""
    matches: Matches = Matches()


def ingest(
    database: Database,
    paths: Paths,
    reading: Reading | None = None,
    *,
    skip_duplicates: bool = False,
    similarity: float | None = None,
    jobs: int = 1,
    strict: bool = False,
    on_added: Callable[[Added], object] | None = None,
    on_bad: Callable[[BadRecord], object] | None = None,
    on_progress: Callable[[Ingested], object] | None = None,
) -> Ingested:
    """Add the documents of files, of all files of directories, or of standard input ("-").

    A document whose key is stored replaces the stored one, unless nothing has changed; so an
    ingest that was interrupted can be run again. A page of a web archive that is stored already
    isn't read again.

    Args:
        database: Where the documents are stored, those of a second in a transaction; of a pipe, as
            they come.
        paths: Files, directories and "-", or one alone. All are checked before anything is read.
        reading: How files become documents; by default, their suffixes say it.
        skip_duplicates: Don't add a document that resembles a stored one.
        similarity: The least similarity at which a document is a duplicate.
        jobs: The number of processes that read and fingerprint; 0 for one a processor. The
            results and their order don't depend on it. With several, what a slow pipe gave is
            stored when more of it comes, or at its end; `follow` stores it at once.
        strict: Raise InputError at the first bad record; those before it are stored.
        on_added: Called for each document, once it is durable.
        on_bad: Called for each record that can't be used.
        on_progress: Called with the counts so far, before anything is read and after each
            transaction.

    Returns:
        How many records were read, and what became of them.

    Raises:
        InputError: A path can't be read, no record has the fields, or with `strict` one is bad.
        LockTimeoutError, DiskFullError, ReadOnlyError: As in `Database.add`.
        MissingExtraError: A format needs a package that isn't installed.
        WorkerError: A worker was killed.
    """
    run = Run(strict, on_bad, on_progress, on_added)
    counts, reading = run.counts, reading or Reading()
    archived = _Archived(database, counts)
    paths = path_names(paths)
    passing = Passing(archived.is_stored, archived.skip)
    # A list, so that all paths are checked now.
    opened = [
        read_parts(path, reading, progress=run.count_bytes, passing=passing) for path in paths
    ]
    counts.bytes_total = size_of(*paths)
    take = Take(database.preparer.adapted(reading.max_bytes))
    run.show()
    add = partial(database.add_prepared, skip_duplicates=skip_duplicates, similarity=similarity)
    # What a pipe gives is stored as it comes.
    seconds = 0.0 if counts.bytes_total is None else _SECONDS
    with _UnstoredParts(add, run, reading, seconds) as unstored:
        for _, found in mapped(take, chain.from_iterable(opened), jobs):
            unstored.take(found)
    return counts


def follow(
    database: Database,
    source: str | os.PathLike[str],
    reading: Reading | None = None,
    *,
    skip_duplicates: bool = False,
    similarity: float | None = None,
    on_note: Callable[[str], object] = lambda _: None,
) -> Iterator[Answer]:
    """Add JSON lines as they are written; yield what became of each once it is durable.

    How far the files of a directory are read is stored with their documents, so that a later call
    goes on there.

    Args:
        database: Where the documents are stored; those that are there together, in a transaction.
        source: "-" for standard input, at whose end it ends, or a directory in which files grow.
        reading: Which fields mean what, and what of HTML is taken.
        skip_duplicates: Don't add a document that resembles a stored one.
        similarity: The least similarity at which a document is a duplicate.
        on_note: Called with a line of text when a file is replaced or cut.

    Yields:
        An `Answer` for each line: its key, status and matches, or why it can't be used.

    Raises:
        InputError: The source isn't "-" or a directory.
        LockTimeoutError, DiskFullError, ReadOnlyError: As in `Database.add`.
    """
    reading, source = reading or Reading(), os.fspath(source)
    known = () if source == "-" else database.file_places()
    take = Take(database.preparer.adapted(reading.max_bytes))
    for part, places in follow_parts(source, reading, on_note, known):
        taken = take(part)
        stored = iter(
            database.add_prepared(
                taken.prepared,
                skip_duplicates=skip_duplicates,
                similarity=similarity,
                places=places,
            )
        )
        for found in taken.found:
            if isinstance(found, BadRecord):
                yield Answer(found.source, found.key, "error", found.reason)
            else:
                added = next(stored)
                yield Answer(found.source, added.key, added.status, matches=added.matches)


def query_files(
    database: Database,
    paths: Paths,
    reading: Reading | None = None,
    *,
    k: int | None = None,
    limit: int | None = None,
    similarity: float | None = None,
    jobs: int = 1,
    on_bad: Callable[[BadRecord], object] | None = None,
) -> Generator[Asked, None, None]:
    """Find the stored documents that resemble each record of files, directories or "-".

    Records need no key; one without goes by the place where it was read. Paths are checked at once.

    Args:
        database: Where to look.
        paths: Files, directories, and "-" for standard input, or one alone.
        reading: How files become records; by default, their suffixes say it.
        k: Compare fingerprints, at most this distance.
        limit: Return the nearest documents of each only, at most this number.
        similarity: The least similarity that counts; by default that of the database.
        jobs: The number of processes, each of which opens the database; 0 for one a processor. The
            answers and their order don't depend on it.
        on_bad: Called for each record that can't be used.

    Returns:
        An iterator of `Asked`: the key or place of a record, and its matches.

    Raises:
        InputError: A path can't be read, or the question can't be answered, as in `Database.query`.
        MissingExtraError: A format needs a package that isn't installed.
    """
    reading = dataclasses.replace(reading or Reading(), keyed=False)
    paths = path_names(paths)
    meter = meter_of("query", paths)
    opened = [read_parts(path, reading, size=_BLOCK, progress=meter.add) for path in paths]
    sketched = k is None and (similarity or database.similarity) is not None
    preparer = database.preparer.adapted(reading.max_bytes, sketched=sketched)
    take = Take(preparer, keyed=False, texts_only=similarity is not None)
    ask = _Ask(database, take, k, limit, similarity)
    require_similarity(similarity)
    database.warn_of_shortfall(similarity)
    results = (found for _, found in mapped(ask, chain.from_iterable(opened), jobs))
    return _answers(results, Run(on_bad=on_bad))


def documents_of(
    table: Any,
    *,
    key: str | None = None,
    text: str | Sequence[str] = (),
    meta: str | Sequence[str] = (),
    fingerprint: str | None = None,
) -> Iterator[Document]:
    """Yield the rows of a table as documents: of pandas, polars, Hugging Face or any Arrow table.

    It needs pyarrow, and a bounded amount of memory besides the table.

    Args:
        table: A DataFrame, a table or reader of pyarrow, or an object with the Arrow interface.
        key: The column of the key; by default "key", "id" or "url".
        text: The column of the text, or several that are joined; by default "text", "content" or
            "body".
        meta: The columns that become metadata, or "*" for all others.
        fingerprint: A column of ready fingerprints, in place of texts.

    Raises:
        InputError: A row isn't a document.
        MissingExtraError: pyarrow isn't installed.
    """
    reading = Reading(
        key_field=key,
        text_field=text,
        meta_field=meta,
        fingerprint_field=fingerprint,
        max_bytes=MOST_BYTES,
    )
    pick = picker(reading)
    for number, found, replaced in table_rows(table, reading):
        source = f"row {number}" if number else "the table"
        try:
            if isinstance(found, str):
                raise UnfitError(found)  # noqa: TRY301
            record = pick(source, found, replaced)
        except UnfitError as error:
            raise InputError(
                f"{source}: {error}", hint="name other columns, or drop such rows first"
            ) from None
        yield Document(cast("Key", record.key), record.text, record.meta, record.fingerprint)


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


class Good(NamedTuple):
    """A record that became a document: where it was read, its key, and what its text is like."""

    source: str
    key: Key | None
    replaced: bool
    markup: bool


class Taken(NamedTuple):
    """What became of the records of a part, in order, and the documents of the good ones."""

    found: list[Good | BadRecord]
    prepared: Sequence[Stored]

    def until_bad(self) -> "Taken":
        """Drop what follows the first bad record."""
        for place, each in enumerate(self.found):
            if isinstance(each, BadRecord):
                return Taken(self.found[: place + 1], self.prepared[:place])
        return self


@dataclass(frozen=True)
class Take:
    """Reads a part and prepares its documents, in any process; questions have no keys."""

    preparer: Preparer
    keyed: bool = True
    texts_only: bool = False

    def __call__(self, part: Part) -> Taken:
        """Return what became of the records of a part."""
        found: list[Good | BadRecord] = []
        documents: list[Document] = []
        places: list[int] = []
        for record in part():
            if isinstance(record, BadRecord):
                found.append(record)
                continue
            try:
                documents.append(self._document(record))
            except InputError as error:
                found.append(BadRecord(record.source, str(error), error.hint, record.key))
                continue
            places.append(len(found))
            markup = documents[-1].has_tags
            found.append(Good(record.source, record.key, record.replaced, markup))
        prepared, refused = self.preparer.sift(documents)
        for number, problem in refused:
            place = places[number]
            good = found[place]
            found[place] = BadRecord(good.source, str(problem), problem.hint, good.key)
        return Taken(found, prepared)

    def _document(self, record: Record) -> Document:
        kind, number = self.preparer.catalog.kind, record.fingerprint
        if number is not None and self.texts_only:
            raise InputError(
                "found a ready fingerprint, expected a text, which alone has a similarity",
                hint="query without a similarity",
            )
        if number is not None and number < 0:
            number = unsigned(number, self.preparer.index.plan.bits)
        if not self.keyed:
            key: Key = 0 if kind == "integer" else "query"  # which is never used
            return Document(key, record.text, None, number)
        if record.key is None:
            raise InputError("found no key")
        return Document(parse_key(record.key, kind), record.text, record.meta, number)


@dataclass
class Run:
    """Counts what becomes of records, and reports it."""

    strict: bool = False
    on_bad: Callable[[BadRecord], object] | None = None
    on_progress: Callable[[Ingested], object] | None = None
    on_added: Callable[[Added], object] | None = None
    counts: Ingested = field(default_factory=Ingested)

    def count_bytes(self, count: int) -> None:
        """Count the bytes that were read."""
        self.counts.bytes_read += count

    def count(self, results: Sequence[Added]) -> None:
        """Count what a transaction added, and report it."""
        # All at once, because these are stored, whenever Ctrl-C comes.
        for status, number in Counter(added.status for added in results).items():
            self.counts.tally(status, number)
        self.counts.incomplete += sum(not added.matches.complete for added in results)
        if self.on_added:
            for added in results:
                self.on_added(added)

    def refuse(self, bad: BadRecord) -> None:
        """Count a record that can't be used, or raise InputError if there may be none."""
        self.counts.tally("error")
        if self.strict:
            place = f"{bad.source}: " if bad.source else ""
            raise InputError(
                f"{place}{bad.reason}", hint=bad.hint or "leave strict out to skip bad records"
            )
        if self.on_bad:
            self.on_bad(bad)

    def show(self) -> None:
        """Report the counts so far."""
        if self.on_progress:
            self.on_progress(self.counts)


class _UnstoredParts:
    """Stores what became of parts together: of a second, or of as many documents as it gets.

    Other writers wait while they are stored, which mostly takes less time than to read them. An
    error of the reading ends the block after what was read before is stored.
    """

    def __init__(
        self,
        add: Callable[[Sequence[Stored]], list[Added]],
        run: Run,
        reading: Reading,
        seconds: float,
    ) -> None:
        self._add, self._run, self._seconds = add, run, seconds
        self._counts_markup = reading.html == "auto"
        self._parts: list[Taken] = []
        self._documents = self._bytes = 0
        self._since = time.monotonic()

    def take(self, taken: Taken) -> None:
        """Take a part, and store all that wait if they are enough."""
        if self._run.strict:
            taken = taken.until_bad()
        self._parts.append(taken)
        self._documents += len(taken.prepared)
        self._bytes += sum(map(bytes_of, taken.prepared))
        bad = len(taken.found) > len(taken.prepared)
        if (
            self._documents >= GATHERED
            or self._bytes >= TRANSACTION_BYTES
            or time.monotonic() - self._since >= self._seconds
            or (bad and self._run.strict)
        ):
            self._store()

    def _store(self) -> None:
        parts, self._parts = self._parts, []
        self._documents = self._bytes = 0
        run, counts = self._run, self._run.counts
        run.count(self._add([each for part in parts for each in part.prepared]))
        for each in chain.from_iterable(part.found for part in parts):
            if isinstance(each, BadRecord):
                run.refuse(each)
            else:
                counts.invalid_utf8 += each.replaced
                counts.markup += each.markup and self._counts_markup
        run.show()
        self._since = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._parts and (kind is None or issubclass(kind, Exception)):
            self._store()


@dataclass
class _Archived:
    """Finds which records of web archives are stored, and counts what isn't read."""

    database: Database
    counts: Ingested

    def is_stored(self, key: str, meta: Mapping[str, Any]) -> bool:
        """Return whether this very record is stored: its key with its metadata."""
        if self.database.keys != "text":
            return False
        try:
            stored = self.database.get(key)
        except InputError:  # an unusable key, which is reported when it is to be added
            return False
        own = stored.meta if stored and isinstance(stored.meta, dict) else {}
        known = stored is not None and meta.items() <= own.items()
        if known:
            self.counts.tally("unchanged")
        return known

    def skip(self, why: str) -> None:
        """Count a record that holds no page."""
        self.counts.skipped[why] += 1


@dataclass(frozen=True)
class _Ask:
    """Reads a part and finds what is near its records, in any process: each opens the database."""

    database: Database
    take: Take
    k: int | None
    limit: int | None
    similarity: float | None

    def __call__(self, part: Part) -> list[Asked | BadRecord]:
        """Return what each record of a part matches, and which records can't be used."""
        taken = self.take(part)
        matches = self.database.query_prepared(
            taken.prepared, similarity=self.similarity, k=self.k, limit=self.limit
        )
        answers = zip(taken.prepared, matches, strict=True)
        asked: list[Asked | BadRecord] = []
        for found in taken.found:
            if isinstance(found, BadRecord):
                asked.append(found)
                continue
            document, near = next(answers)
            name = found.source if found.key is None else found.key
            asked.append(Asked(name, near, document.fingerprint is None, found.replaced))
        return asked


def _answers(
    results: Iterable[Sequence[Asked | BadRecord]], run: Run
) -> Generator[Asked, None, None]:
    for found in chain.from_iterable(results):
        if isinstance(found, BadRecord):
            run.refuse(found)
        else:
            yield found
