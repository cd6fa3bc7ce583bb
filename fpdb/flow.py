"""Records on their way from files to a database: read, prepared in threads, and counted."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from typing import Any, Generic, NamedTuple, TypeVar

from fpdb.arrays import Places
from fpdb.documents.prepare import Preparer
from fpdb.errors import InputError
from fpdb.fingerprint.digits import unsigned
from fpdb.io.batches import Part, RecordBatch
from fpdb.io.files import PART, read_parts
from fpdb.io.paths import path_names, size_of
from fpdb.io.records import BadRecord, LeftOut, Reading
from fpdb.io.streams import Watch, announce_encoding
from fpdb.models import Added, Key, has_tags, require_choice
from fpdb.storage.block import Block
from fpdb.threads import mapped

_MOST_DIGITS = 20
# Files whose encodings are announced one by one.
_ANNOUNCED = 3
# Where `Ingested` counts a status under another name.
_COUNTED = {"duplicate": "duplicates", "error": "bad"}


@dataclass
class RecordCounts:
    """What became of the records that were read so far.

    `read` counts all records, also the `bad` ones, which can't be used. `short` ones have hardly
    any words, so no fingerprint. `incomplete` counts documents whose search for near-duplicates a
    budget ended, so that one may have been missed. `invalid_utf8` counts records in which bytes
    that don't fit were replaced by U+FFFD, and `markup` texts that weren't read as
    HTML but have tags. `encodings` counts files whose encoding was found, and isn't UTF-8. Of
    files, `unreadable` ones couldn't be read, or not to their ends; `refused` ones in directories
    aren't text, and `left_out` has the first of both by the reasons. `bytes_read` are bytes as
    they are in the files, of `bytes_total`, which is None if only reading to the end would show it.
    """

    read: int = 0
    short: int = 0
    bad: int = 0
    incomplete: int = 0
    invalid_utf8: int = 0
    markup: int = 0
    encodings: Counter[str] = field(default_factory=Counter)
    unreadable: int = 0
    refused: int = 0
    left_out: LeftOut = field(default_factory=LeftOut)
    bytes_read: int = 0
    bytes_total: int | None = None
    started: float = field(default_factory=time.monotonic, repr=False)

    def tell(self, path: str, names: Sequence[str]) -> None:
        """Count a file that isn't UTF-8 by its likely encodings, and announce the first ones."""
        self.encodings[names[0] if len(names) == 1 else "unknown"] += 1
        if self.encodings.total() <= _ANNOUNCED:
            announce_encoding(path, names)

    def leave_out(self, path: str, reason: str) -> None:
        """Count a file in a directory that isn't text, and keep the names of the first ones."""
        self.refused += 1
        self.left_out.add(path, reason)

    def refuse(self, bad: BadRecord) -> None:
        """Count a record that can't be used, or a file."""
        if bad.is_file:
            self.unreadable += 1
            self.left_out.add(bad.source, bad.reason)
        self.read += not bad.is_file
        self.bad += not bad.is_file

    @property
    def seconds(self) -> float:
        """The time since the reading began."""
        return time.monotonic() - self.started


@dataclass
class Ingested(RecordCounts):
    """What became of the records that were read to be stored.

    Documents are `added` under a new key, `replaced` one with their key, or were stored already,
    `unchanged`; `duplicates` weren't added, because they resemble stored ones; `short` ones were
    added. `lost_meta` counts documents with metadata that were replaced by ones without. `skipped`
    counts records of web archives that hold no page, by the reason.
    """

    added: int = 0
    replaced: int = 0
    unchanged: int = 0
    duplicates: int = 0
    lost_meta: int = 0
    skipped: Counter[str] = field(default_factory=Counter)

    def tally(self, outcome: str, number: int = 1) -> None:
        """Count records that were read, by their outcome, as in `Added` or `Answer`."""
        name = _COUNTED.get(outcome, outcome)
        self.read += number
        setattr(self, name, getattr(self, name) + number)

    def skip(self, why: str) -> None:
        """Count a record of an archive that holds no page."""
        self.skipped[why] += 1

    def count(self, results: Sequence[Added]) -> None:
        """Count the documents that a transaction added."""
        # All at once, because these are stored, whenever Ctrl-C comes.
        for status, number in Counter(added.status for added in results).items():
            self.tally(status, number)
        self.incomplete += sum(not added.matches.complete for added in results)
        self.lost_meta += sum(added.lost_meta for added in results)


class Prepared(NamedTuple):
    """Records that were read together, the documents of the good ones, and answers to these."""

    records: RecordBatch
    documents: Block
    answers: Sequence[Any] = ()


C = TypeVar("C", bound=RecordCounts)


@dataclass
class Flow(Generic[C]):
    """Reads records, and prepares their documents in threads; counts records that can't be used.

    If `bad` is "fail", the first bad record is an InputError, after the records before it.
    """

    counts: C
    reading: Reading
    jobs: int = 1
    bad: str = "drop"
    on_bad: Callable[[BadRecord], object] | None = None
    on_progress: Callable[[C], object] | None = None
    _closed: bool = False

    def __post_init__(self) -> None:
        require_choice("bad", self.bad, ("drop", "fail"))

    def parts(
        self, paths: Iterable[str], watch: Watch | None = None, *, size: int = PART
    ) -> Iterator[Part]:
        """Check all paths at once, and return the parts of their files; count their bytes."""
        paths = path_names(paths)
        counts = self.counts
        watch = watch or Watch(self.count_bytes, counts.tell, leave_out=counts.leave_out)
        watch = replace(watch, stopped=lambda: self._closed)
        opened = [read_parts(path, self.reading, watch, size=size) for path in paths]
        self.counts.bytes_total = size_of(*paths)
        self.show()
        return chain.from_iterable(opened)

    def prepared(
        self,
        parts: Iterable[Part],
        preparer: Preparer,
        *,
        texts_only: bool = False,
        answer: Callable[[Block], Iterable[Any]] | None = None,
    ) -> Iterator[Prepared]:
        """Prepare parts, and yield them in order; bad records are counted and reported.

        `answer` is called for the documents of a part, in the thread that prepared them.
        """
        work = partial(self.prepare, preparer=preparer, texts_only=texts_only, answer=answer)
        # With several threads, records of a slow pipe would wait until more of it comes.
        jobs = self.jobs or int(self.counts.bytes_total is None)
        for _, prepared in mapped(work, parts, jobs, stop=self._close):
            records = prepared.records
            if records.bad and self.bad == "fail":
                place = min(records.bad)
                before = RecordBatch.of(islice(records, place))
                yield Prepared(before, prepared.documents[:place])
            for bad in records.refused():
                self.refuse(bad)
            self.counts.invalid_utf8 += len(records.replaced.difference(records.bad))
            if self.reading.html == "auto":
                self.counts.markup += sum(has_tags(text) for text in records.texts if text)
            yield prepared

    def prepare(
        self,
        part: Part,
        *,
        preparer: Preparer,
        texts_only: bool = False,
        answer: Callable[[Block], Iterable[Any]] | None = None,
    ) -> Prepared:
        """Read a part, and prepare its documents."""
        records = part()
        fill = partial(self._documents, preparer=preparer, texts_only=texts_only)
        documents = records.sifted(fill)
        if records.bad:
            documents = documents[records.good]
        if answer:
            return Prepared(records, documents, list(answer(documents)))
        return Prepared(records, preparer.catalog.packed(documents))

    def _documents(self, records: RecordBatch, *, preparer: Preparer, texts_only: bool) -> Block:
        """Return records as documents; raise InputError if one of them can't be one."""
        if records.fingerprints and texts_only:
            raise InputError(
                "found a ready fingerprint, expected a text, which alone has a similarity",
                hint="query without a similarity",
            )
        # This key is never used.
        keys: list[Key] = [0 if preparer.catalog.kind == "integer" else "query"] * len(records)
        metas = [None] * len(records)
        if self.reading.keyed:
            metas = records.metas
            for place in records.good:
                keys[place] = self._key(records.keys[place], preparer)
        block, _ = filled(preparer, records, keys, metas)
        return block

    def _key(self, key: Key | None, preparer: Preparer) -> Key:
        if key is None:
            raise InputError("found no key")
        key = parse_key(key, preparer.catalog.kind)
        preparer.catalog.check_key(key)
        return key

    def refuse(self, bad: BadRecord) -> None:
        """Count a record that can't be used, or raise InputError if there may be none."""
        self.counts.refuse(bad)
        if self.bad == "fail":
            place = f"{bad.source}: " if bad.source else ""
            raise InputError(
                f"{place}{bad.reason}",
                hint=bad.hint or "drop what is bad",
                parameter="" if bad.hint else "bad",
            )
        if self.on_bad:
            self.on_bad(bad)

    def show(self) -> None:
        """Report the counts so far."""
        if self.on_progress:
            self.on_progress(self.counts)

    def _close(self) -> None:
        self._closed = True

    def count_bytes(self, count: int) -> None:
        """Count bytes that were read."""
        self.counts.bytes_read += count


def filled(
    preparer: Preparer, records: RecordBatch, keys: Sequence[Key], metas: Sequence[Any], **how: Any
) -> tuple[Block, Places]:
    """Make documents of records by `Preparer.filled`; bad ones resemble nothing."""
    bits = preparer.index.plan.bits
    ready = {
        place: unsigned(number, bits) if number < 0 else number
        for place, number in records.fingerprints.items()
    }
    return preparer.filled(keys, records.texts, metas, ready, **how)


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
