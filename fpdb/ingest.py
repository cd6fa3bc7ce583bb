"""Bring files and streams of documents into a database, or query it with them."""

import dataclasses
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import IO, Any, Literal, NamedTuple, cast

from fpdb.database import Database
from fpdb.documents.prepare import GATHERED, TRANSACTION_BYTES
from fpdb.errors import InputError
from fpdb.flow import Flow, Ingested, Prepared, RecordCounts
from fpdb.io.batches import read_table
from fpdb.io.files import stream_parts
from fpdb.io.paths import Paths, meter_of, path_names
from fpdb.io.records import BadRecord, Reading
from fpdb.io.streams import Watch
from fpdb.models import (
    MOST_BYTES,
    Added,
    Asked,
    Document,
    Key,
    Matches,
    require_similarity,
)
from fpdb.storage.block import Block

# Documents of files are read for as long before they are stored together.
_SECONDS = 1.0
# Records that are looked up together.
_BLOCK = 256


class Answer(NamedTuple):
    """What became of one record that `follow` read.

    `status` is one of `Added`, or "error"; then `error` says why. `matches` are the documents that
    a duplicate resembles; they aren't `complete` if a budget ended the search. `lost_meta` and
    `group` are those of `Added`.
    """

    source: str
    key: Key | None
    status: str
    error: str = ""
    matches: Matches = Matches()
    lost_meta: bool = False
    group: Key | None = None


def ingest(
    database: Database,
    paths: Paths,
    reading: Reading | None = None,
    *,
    skip_duplicates: bool = False,
    similarity: float | None = None,
    jobs: int = 1,
    bad: Literal["drop", "fail"] = "drop",
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
        jobs: The number of threads that read and fingerprint; 0 for one a processor, of a pipe for
            one. The results and their order don't depend on it. With several, what a slow pipe gave
            is stored when more of it comes, or at its end.
        bad: "drop" leaves out records that can't be used; "fail" raises InputError at the first,
            once those before it are stored.
        on_added: Called for each document, once it is durable.
        on_bad: Called for each record that can't be used.
        on_progress: Called with the counts so far, before anything is read and after each
            transaction.

    Returns:
        How many records were read, and what became of them.

    Raises:
        InputError: A path can't be read, no record has the fields, or one may not be bad.
        LockTimeoutError, DiskFullError, ReadOnlyError: As in `Database.add`.
        MissingExtraError: A format needs a package that isn't installed.
        WorkerError: A process that read a file was killed.
    """
    flow = Flow(Ingested(), reading or Reading(), jobs, bad, on_bad, on_progress)
    counts = flow.counts
    is_stored = partial(_is_stored, database, counts)
    watch = Watch(flow.count_bytes, counts.tell, is_stored, counts.skip, counts.leave_out)
    parts = flow.parts(path_names(paths), watch)
    # Records of a pipe are stored as they come.
    seconds = 0.0 if counts.bytes_total is None else _SECONDS
    held: list[Block] = []
    size, count, since = 0, 0, time.monotonic()

    def store() -> None:
        nonlocal held, size, count, since
        documents, held, size, count = held, [], 0, 0
        added: list[Added] = []
        if documents:
            added = database.add_prepared(
                Block.joined(documents), skip_duplicates=skip_duplicates, similarity=similarity
            )
        counts.count(added)
        if on_added:
            for result in added:
                on_added(result)
        flow.show()
        since = time.monotonic()

    # Other writers wait while documents are stored, which mostly takes less time than to read them.
    try:
        for prepared in flow.prepared(parts, database.preparer.adapted(flow.reading.max_bytes)):
            held.append(prepared.documents)
            size += int(prepared.documents.sizes.sum())
            count += len(prepared.documents)
            waited = time.monotonic() - since >= seconds
            if waited or count >= GATHERED or size >= TRANSACTION_BYTES:
                store()
    except Exception:
        store()  # the documents before an error of the reading
        raise
    store()
    return counts


def follow(
    database: Database,
    file: IO[bytes] | None = None,
    reading: Reading | None = None,
    *,
    skip_duplicates: bool = False,
    similarity: float | None = None,
) -> Iterator[Answer]:
    """Add JSON lines as they come; yield what became of each once it is durable.

    It ends at the end of the file. Lines that are there together are stored in a transaction.

    Args:
        database: Where the documents are stored.
        file: What the lines come through: an open file with a descriptor, e.g. a pipe; by default
            standard input. Nothing may have been read of it.
        reading: Which fields mean what, and what of HTML is taken.
        skip_duplicates: Don't add a document that resembles a stored one.
        similarity: The least similarity at which a document is a duplicate.

    Yields:
        An `Answer` for each line: its key, status and matches, or why it can't be used.

    Raises:
        InputError: The file can't be read.
        LockTimeoutError, DiskFullError, ReadOnlyError: As in `Database.add`.
    """
    flow = Flow(Ingested(), reading or Reading())
    preparer = database.preparer.adapted(flow.reading.max_bytes)
    for part in stream_parts(file, flow.reading):
        prepared = flow.prepare(part, preparer=preparer)
        stored = iter(
            database.add_prepared(
                prepared.documents, skip_duplicates=skip_duplicates, similarity=similarity
            )
        )
        for place, key in enumerate(prepared.records.keys):
            source, bad = prepared.records.source(place), prepared.records.bad.get(place)
            if bad:
                yield Answer(source, bad.key, "error", bad.reason)
            else:
                added = next(stored)
                about = added.matches, added.lost_meta, added.group
                yield Answer(source, key, added.status, "", *about)


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
    added_since: float | None = None,
    added_before: float | None = None,
) -> Generator[Asked]:
    """Find the stored documents that resemble each record of files, directories or "-".

    Records need no key; one without goes by the place where it was read. Paths are checked at once.

    Args:
        database: Where to look.
        paths: Files, directories, and "-" for standard input, or one alone.
        reading: How files become records; by default, their suffixes say it.
        k: Compare fingerprints, at most this distance.
        limit: Return the nearest documents of each only, at most this number.
        similarity: The least similarity that counts; by default that of the database.
        jobs: The number of threads; 0 for one a processor, of a pipe for one. The answers and
            their order don't depend on it.
        on_bad: Called for each record that can't be used.
        added_since: As in `Database.query`.
        added_before: As in `Database.query`.

    Returns:
        An iterator of `Asked`: the key or place of a record, and its matches.

    Raises:
        InputError: A path can't be read, or the question can't be answered, as in `Database.query`.
        MissingExtraError: A format needs a package that isn't installed.
    """
    reading = dataclasses.replace(reading or Reading(), keyed=False)
    names = path_names(paths)
    flow = Flow(RecordCounts(), reading, jobs, on_bad=on_bad)
    parts = flow.parts(names, Watch(meter_of("query", names).add, flow.counts.tell), size=_BLOCK)
    sketched = k is None and (similarity or database.similarity) is not None
    preparer = database.preparer.adapted(reading.max_bytes, sketched=sketched)
    require_similarity(similarity)
    database.warn_of_shortfall(similarity)
    near: dict[str, Any] = {"similarity": similarity, "k": k, "limit": limit}
    near |= {"added_since": added_since, "added_before": added_before}
    ask = partial(database.query_prepared, **near)
    return _asked(flow.prepared(parts, preparer, texts_only=similarity is not None, answer=ask))


def _asked(prepared: Iterable[Prepared]) -> Generator[Asked]:
    for part in prepared:
        records, short = part.records, part.documents.short.tolist()
        for place, is_short, near in zip(records.good, short, part.answers, strict=True):
            key = records.keys[place]
            name = records.source(place) if key is None else key
            yield Asked(name, near, is_short, place in records.replaced)


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
        key: The column of the key; by default the first usual one, such as "key" or "id".
        text: The column of the text, or several that are joined; by default "text", "content",
            "body", "正文" or "内容".
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
    for part in read_table(table, "row ", reading):
        for record in part():
            if isinstance(record, BadRecord):
                raise InputError(
                    f"{record.source}: {record.reason}",
                    hint="name other columns, or drop such rows first",
                )
            yield Document(cast("Key", record.key), record.text, record.meta, record.fingerprint)


def _is_stored(database: Database, counts: Ingested, key: str, meta: Mapping[str, Any]) -> bool:
    """Return whether this very record is stored: its key with its metadata; count it then."""
    if database.key_type != "text":
        return False
    try:
        stored = database.get(key)
    except InputError:  # an unusable key, which is reported when it is to be added
        return False
    fields = stored.meta if stored and isinstance(stored.meta, dict) else {}
    is_same = stored is not None and meta.items() <= fields.items()
    if is_same:
        counts.tally("unchanged")
    return is_same
