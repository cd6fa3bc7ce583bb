"""Which records are removed: each is kept, unless it resembles one that is."""

import contextlib
import json
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import IO, Any, Self

import numpy as np
import xxhash

from fpdb.arrays import Marks, Places
from fpdb.database import Database
from fpdb.dedupe.prepare import NEWEST, PreparedRecords, RecordBlock
from fpdb.dedupe.run import BAD, KEPT, REMOVED, SHORT, Codes, Deduplication, Removed
from fpdb.documents.lookup import Search
from fpdb.documents.prepare import GATHERED
from fpdb.errors import InputError
from fpdb.joins.selection import Selection, TextColumns
from fpdb.models import now
from fpdb.scratch import Scratch
from fpdb.storage.format import Stored, StoredRun, unpack_record
from fpdb.storage.origin import origin_of, unpack_meta

# Characters of the texts that are decided together: records in memory wait until they are.
_CHARACTERS = 1 << 26


class Decider:
    """What becomes of the records of one run, compared with a database and with each other."""

    def __init__(
        self,
        run: Deduplication,
        database: Database | None,
        scratch: Scratch,
        *,
        lined: bool = False,
    ) -> None:
        """Begin; what isn't held in memory is in a scratch folder, as long as that is there.

        If wanted, `lines` gets a line about each record that is removed.
        """
        self._run, self._database = run, database
        self._files = contextlib.ExitStack()
        make = self._files.enter_context
        self.lines = make(scratch.file("removed")) if lined else None
        self._told = lined or run.on_removed is not None
        self._noted = self._told or database is not None
        self._preparer = run.preparer(database)
        plan = self._preparer.index.plan
        similarity = run.similarity or self._preparer.header.get("similarity")
        self._bits = plan.bits
        self._selection = Selection(self._preparer.index, Search(plan.k, None, similarity))
        # Records as they are stored, and documents of the database that some of them resemble.
        self._records = _Spool(make(scratch.file("records")))
        self._matches = _Spool(make(scratch.file("matches")))
        self._matched = [np.empty(0, np.int64)]  # of each record, the number of such a document
        self._kept = [np.empty(0, np.int64)]  # the numbers of the records that are kept
        self._count = self._content = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def each(self, blocks: Iterable[RecordBlock]) -> Iterator[tuple[RecordBlock, Codes]]:
        """Yield blocks without their parts, and what became of their records.

        Unless the first of similar records stays, all are read before any is decided.
        """
        if self._run.keep != "first":
            yield from self._ranked(blocks)
            return
        for read, found in self._read(blocks):
            texts = TextColumns.joined([each.texts for each in found])
            numbers = np.arange(self._count - len(texts), self._count)
            yield from _spread(read, self._decide(texts, numbers))

    def _ranked(self, blocks: Iterable[RecordBlock]) -> Iterator[tuple[RecordBlock, Codes]]:
        """Decide the records in the order of preference."""
        read: list[tuple[RecordBlock, Marks]] = []
        parts: list[TextColumns] = []
        values = [np.empty(0)]
        for some, found in self._read(blocks):
            read += some
            parts += [each.texts for each in found]
            values += [each.values for each in found]
        if not read:
            return
        counts, preferred = self._run.counts, np.concatenate(values)
        newest = self._run.keep.removeprefix(NEWEST)
        if newest != self._run.keep and not np.isfinite(preferred).any():
            raise InputError(
                f"no record has a date or a number in {newest!r}",
                hint="name the field of the date, or keep the first record",
            )
        texts, codes = TextColumns.joined(parts), np.empty(len(preferred), np.uint8)
        parts.clear()
        order = (-preferred).argsort(kind="stable")
        counts.stage, counts.done = "comparing", 0.0
        for start in range(0, len(order), GATHERED):
            some_numbers = order[start : start + GATHERED]
            codes[some_numbers] = self._decide(texts[some_numbers], some_numbers)
            counts.done = (start + len(some_numbers)) / len(order)
            self._run.show()
        yield from _spread(read, codes)

    def _read(
        self, blocks: Iterable[RecordBlock]
    ) -> Iterator[tuple[list[tuple[RecordBlock, Marks]], list[PreparedRecords]]]:
        """Yield blocks that are decided together, once they are looked up in the database."""
        read: list[tuple[RecordBlock, Marks]] = []
        found: list[PreparedRecords] = []
        size = characters = 0
        for block, prepared in self._run.prepared(self._preparer, blocks, noted=self._noted):
            read.append((block._replace(part=tuple), prepared.is_bad))
            found.append(prepared)
            size += len(prepared.texts)
            characters += prepared.characters
            if size >= GATHERED or characters >= _CHARACTERS:
                self._take(found)
                yield read, found
                read, found, size, characters = [], [], 0, 0
        if read:
            self._take(found)
            yield read, found

    def _take(self, found: list[PreparedRecords]) -> None:
        """Keep what isn't compared on disk, and look the records up in the database."""
        self._count += sum(len(each.texts) for each in found)
        self._content += sum(each.content for each in found)
        packed = [record for each in found for record in each.packed]
        self._records.add(packed)
        matched = np.full(sum(len(each.texts) for each in found), -1)
        self._matched.append(matched)
        if self._database is None:
            return
        documents = [unpack_record(record, 0, self._bits) for record in packed]
        entries: list[bytes] = []
        answers = self._database.query_prepared(documents, similarity=self._run.similarity, limit=1)
        for place, matches in enumerate(answers):
            self._run.counts.incomplete += not matches.complete
            for match in matches:
                matched[place] = len(self._matches) + len(entries)
                shown = origin_of(match.key, match.meta)
                entry = [match.key, *shown, match.similarity, match.distance]
                entries.append(json.dumps(entry).encode())
        self._matches.add(entries)

    def _decide(self, texts: TextColumns, numbers: Places) -> Codes:
        """Return what becomes of records in this order, given their numbers."""
        if len(self._matched) > 1:
            self._matched = [np.concatenate(self._matched)]
        matched = self._matched[0][numbers]
        kept, crowded = self._selection.choose(texts, matched >= 0)
        self._kept.append(numbers[kept])
        codes = np.where(kept, np.where(texts.short, SHORT, KEPT), REMOVED).astype(np.uint8)
        counts = self._run.counts
        counts.removed += int(np.count_nonzero(~kept))
        counts.short += int(np.count_nonzero(codes == SHORT))
        counts.incomplete += int(np.count_nonzero(crowded))
        if self._told and not kept.all():
            self._tell(texts, numbers, matched, kept)
        self._run.show()
        return codes

    def _tell(self, texts: TextColumns, numbers: Places, matched: Places, kept: Marks) -> None:
        """Say of each record that isn't kept what it resembles most."""
        owners = np.concatenate(self._kept)
        self._kept = [owners]
        near = self._selection.nearest(texts, kept, lambda one: self._record(owners[one]).key)
        lines: list[str] = []
        for place in (~kept).nonzero()[0].tolist():
            own = self._record(numbers[place])
            found: list[list[Any]] = []
            if near.kept[place] >= 0:
                other = self._record(owners[near.kept[place]])
                share = float(near.shares[place])
                shown = origin_of(other.key, unpack_meta(other.meta))
                similarity = None if np.isnan(share) else share
                found.append([other.key, *shown, similarity, int(near.distances[place])])
            if matched[place] >= 0:
                found.append(json.loads(self._matches.read(int(matched[place]))))
            _, *rest = min(found, key=lambda each: (-(each[3] or 0.0), each[4], each[0]))
            key, source = origin_of(own.key, unpack_meta(own.meta))
            removed = Removed(key, source or "", *rest)
            lines.append(json.dumps(removed._asdict()) + "\n")
            if self._run.on_removed:
                self._run.on_removed(removed)
        if self.lines:
            self.lines.write("".join(lines).encode())

    def _record(self, number: int) -> Stored:
        return unpack_record(self._records.read(int(number)), 0, self._bits)

    # With a database

    def require_next(self) -> None:
        """Raise InputError if the database has these records already, or awaits another run."""
        if self._database is not None:
            require_next(self._database, self._stored_run())

    def begin(self) -> None:
        """Store in the database that the outputs are about to come to their places."""
        if self._database is not None:
            self._database.runs.begin(self._stored_run())

    def finish(self) -> None:
        """Add what was kept to the database, in one step."""
        if self._database is not None:
            self._database.runs.finish(self._stored_run(), self._documents())

    def _stored_run(self) -> StoredRun:
        known = f"{self._count} {self._content % (1 << 128):x}"
        content = xxhash.xxh3_128_digest(known.encode())
        return StoredRun(content, self._run.options(), now(), finished=False)

    def _documents(self) -> Iterator[list[Stored]]:
        numbers = np.concatenate(self._kept)
        for start in range(0, len(numbers), GATHERED):
            yield [self._record(number) for number in numbers[start : start + GATHERED]]


class _Spool:
    """Bytes that are appended to a file, and read again by their numbers."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._firsts: list[int] = []
        self._bounds: list[Places] = []
        self._count = self._size = 0

    def __len__(self) -> int:
        return self._count

    def add(self, items: Sequence[bytes]) -> None:
        """Append items."""
        if not items:
            return
        data = b"".join(items)
        self._file.write(data)
        sizes = np.fromiter(map(len, items), np.int64, len(items))
        self._firsts.append(self._count)
        self._bounds.append(self._size + np.concatenate([[0], sizes.cumsum()]))
        self._count += len(items)
        self._size += len(data)

    def read(self, number: int) -> bytes:
        """Return an item."""
        self._file.flush()
        block = bisect_right(self._firsts, number) - 1
        at = number - self._firsts[block]
        start, end = self._bounds[block][at : at + 2].tolist()
        return os.pread(self._file.fileno(), end - start, start)


def require_next(database: Database, own: StoredRun | None = None) -> None:
    """Raise InputError unless a run may be the next one of a database."""
    known = database.runs.known()
    for run in known:
        date = datetime.fromtimestamp(run.time, UTC).strftime("%Y-%m-%d %H:%M UTC")
        if run.finished and own and run.content == own.content:
            raise InputError(
                f"the very same records were added to {database.path} on {date}: each would be "
                "removed for itself",
                hint="keep the output of that run; to make it again, take the database as it was "
                "before, from a backup",
            )
    unfinished = [run for run in known if not run.finished]
    if unfinished and not any(
        own and (run.content, run.options) == (own.content, own.options) for run in unfinished
    ):
        date = datetime.fromtimestamp(unfinished[0].time, UTC).strftime("%Y-%m-%d %H:%M UTC")
        raise InputError(
            f"a run that began to write its outputs on {date} hasn't added them to {database.path}",
            hint="run it again, with the same records and options, or abandon it: its outputs then "
            "stay where they are, and later ones aren't compared with them",
        )


def _spread(
    read: Iterable[tuple[RecordBlock, Marks]], codes: Codes
) -> Iterator[tuple[RecordBlock, Codes]]:
    """Yield blocks with the codes of all their records, given those of the ones that aren't bad."""
    first = 0
    for block, is_bad in read:
        spread = np.full(len(is_bad), BAD, np.uint8)
        last = first + int(np.count_nonzero(~is_bad))
        spread[~is_bad] = codes[first:last]
        first = last
        yield block, spread
