"""Which records are removed: each is kept, unless it resembles one that is."""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Self

import numpy as np
import xxhash

from fpdb.arrays import Marks, Places
from fpdb.database import Database
from fpdb.dedupe.prepare import NEWEST, RecordBlock, RecordColumns, unpack_key
from fpdb.dedupe.run import BAD, KEPT, REMOVED, SHORT, Codes, Deduplication, Removed
from fpdb.documents.lookup import Search
from fpdb.documents.prepare import GATHERED
from fpdb.errors import InputError
from fpdb.joins.columns import GrowingColumn, GrowingStrings, GrowingTexts
from fpdb.joins.selection import Nearest, Selection
from fpdb.models import Key, now
from fpdb.scratch import Scratch
from fpdb.storage.format import Stored, StoredRun
from fpdb.storage.origin import origin_of, pack_origin
from fpdb.tables.bits import to_ints

# Characters of the texts that are decided together: records in memory wait until they are.
_CHARACTERS = 1 << 26
_Read = list[tuple[RecordBlock, Marks]]


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
        """Begin; the columns of records are in a scratch folder, as long as that is there.

        If wanted, `lines` gets a line about each record that is removed.
        """
        self._run, self._database = run, database
        self.lines = scratch.file("removed") if lined else None
        self._told = lined or run.on_removed is not None
        self._preparer = run.preparer(database)
        index = self._preparer.index
        similarity = run.similarity or self._preparer.header.get("similarity")
        self._bits = index.plan.bits
        self._texts = GrowingTexts(scratch, self._bits)
        search = Search(index.plan.k, None, similarity)
        self._selection = Selection(index, search, self._texts, scratch)
        self._numbers = GrowingColumn(scratch, "numbers", np.int64)
        self._characters = GrowingColumn(scratch, "characters", np.int64)
        self._keys = GrowingStrings(scratch, "keys")
        # Of each record, the number of a document of the database that it resembles.
        self._matched = GrowingColumn(scratch, "matched", np.int64)
        self._matches = GrowingStrings(scratch, "matches")
        self._shown: list[str] = []  # how the places of records begin,
        self._firsts: list[int] = []  # from these ones on
        self._content = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.lines:
            self.lines.close()

    def each(self, blocks: Iterable[RecordBlock]) -> Iterator[tuple[RecordBlock, Codes]]:
        """Yield blocks without their parts, and what became of their records.

        Unless the first of similar records stays, all are read before any is decided.
        """
        if self._run.keep != "first":
            yield from self._ranked(blocks)
            return
        decided = 0
        for read, _ in self._read(blocks):
            count = len(self._texts)
            yield from _spread(read, self._decide(np.arange(decided, count)))
            decided = count

    def _ranked(self, blocks: Iterable[RecordBlock]) -> Iterator[tuple[RecordBlock, Codes]]:
        """Decide the records in the order of preference."""
        read: _Read = []
        values = [np.empty(0)]
        for some, found in self._read(blocks):
            read += some
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
        codes = np.empty(len(preferred), np.uint8)
        order = (-preferred).argsort(kind="stable")
        counts.stage, counts.done = "comparing", 0.0
        for start in range(0, len(order), GATHERED):
            some_numbers = order[start : start + GATHERED]
            codes[some_numbers] = self._decide(some_numbers)
            counts.done = (start + len(some_numbers)) / len(order)
            self._run.show()
        yield from _spread(read, codes)

    def _read(self, blocks: Iterable[RecordBlock]) -> Iterator[tuple[_Read, list[RecordColumns]]]:
        """Yield blocks that are decided together, once they are looked up in the database."""
        read: _Read = []
        found: list[RecordColumns] = []
        size = characters = 0
        stored = self._database is not None
        for block, columns in self._run.prepared(self._preparer, blocks, stored=stored):
            read.append((block._replace(part=tuple), columns.is_bad))
            found.append(columns)
            self._add(block, columns)
            size += len(columns.texts)
            characters += int(columns.characters.sum())
            if size >= GATHERED or characters >= _CHARACTERS:
                self._look_up()
                yield read, found
                read, found, size, characters = [], [], 0, 0
        if read:
            self._look_up()
            yield read, found

    def _add(self, block: RecordBlock, columns: RecordColumns) -> None:
        """Add the columns of a block to those of all records."""
        if not self._shown or self._shown[-1] != block.shown:
            self._shown.append(block.shown)
            self._firsts.append(len(self._texts))
        self._texts.add(columns.texts)
        self._numbers.add(columns.numbers)
        self._characters.add(columns.characters)
        self._keys.add(columns.keys, columns.key_sizes)
        self._content += columns.content

    def _look_up(self) -> None:
        """Look the records up in the database that weren't yet."""
        start = len(self._matched)
        matched = np.full(len(self._texts) - start, -1)
        if self._database is not None:
            documents = self._stored(np.arange(start, len(self._texts)))
            similarity, entries = self._run.similarity, list[bytes]()
            answers = self._database.query_prepared(documents, similarity=similarity, limit=1)
            for place, matches in enumerate(answers):
                self._run.counts.incomplete += not matches.complete
                for match in matches:
                    matched[place] = len(self._matches) + len(entries)
                    shown = origin_of(match.key, match.meta)
                    entry = [match.key, *shown, match.similarity, match.distance]
                    entries.append(json.dumps(entry).encode())
            self._matches.add(b"".join(entries), np.array(list(map(len, entries)), np.int64))
        self._matched.add(matched)

    def _decide(self, numbers: Places) -> Codes:
        """Return what becomes of records in this order, given their numbers."""
        matched = self._matched.values[numbers]
        kept, crowded = self._selection.choose(numbers, matched >= 0)
        short = self._texts.all.short[numbers]
        codes = np.where(kept, np.where(short, SHORT, KEPT), REMOVED).astype(np.uint8)
        counts = self._run.counts
        counts.removed += int(np.count_nonzero(~kept))
        counts.short += int(np.count_nonzero(codes == SHORT))
        counts.incomplete += int(np.count_nonzero(crowded))
        if self._told and not kept.all():
            self._tell(numbers, matched, kept, self._selection.nearest(numbers, kept, self._key))
        self._run.show()
        return codes

    def _tell(self, numbers: Places, matched: Places, kept: Marks, near: Nearest) -> None:
        """Say of each record that isn't kept what it resembles most."""
        lines: list[str] = []
        for place in (~kept).nonzero()[0].tolist():
            found: list[list[Any]] = []
            if near.kept[place] >= 0:
                other, share = int(near.kept[place]), float(near.shares[place])
                shown = [self._key(other), self._shown_key(other), self._place(other)]
                similarity = None if np.isnan(share) else share
                found.append([*shown, similarity, int(near.distances[place])])
            if matched[place] >= 0:
                found.append(json.loads(self._matches[int(matched[place])]))
            _, *rest = min(found, key=lambda each: (-(each[3] or 0.0), each[4], each[0]))
            own = int(numbers[place])
            removed = Removed(self._shown_key(own), self._place(own), *rest)
            lines.append(json.dumps(removed._asdict()) + "\n")
            if self._run.on_removed:
                self._run.on_removed(removed)
        if self.lines:
            self.lines.write("".join(lines).encode())

    def _place(self, number: int) -> str:
        """Return where a record was read."""
        shown = self._shown[int(np.searchsorted(self._firsts, number, "right")) - 1]
        return f"{shown}{self._numbers.values[number]}"

    def _shown_key(self, number: int) -> Key:
        """Return the key of a record as it was read, or its place if it has none."""
        key = unpack_key(self._keys[number])
        return self._place(number) if key is None else key

    def _key(self, number: int) -> str:
        return str(self._shown_key(number))

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
        """Add the kept records to the database, in one step."""
        if self._database is not None:
            kept = self._selection.kept
            parts = (kept[start : start + GATHERED] for start in range(0, len(kept), GATHERED))
            self._database.runs.finish(self._stored_run(), map(self._stored, parts))

    def _stored_run(self) -> StoredRun:
        known = f"{len(self._texts)} {self._content % (1 << 128):x}"
        content = xxhash.xxh3_128_digest(known.encode())
        return StoredRun(content, self._run.options(), now(), finished=False)

    def _stored(self, numbers: Places) -> list[Stored]:
        """Return records as a database stores them."""
        texts, present = self._texts.all[numbers], now()
        side, stored = texts.side, []
        fingerprints = to_ints(side.fingerprints, self._bits)
        for place, number in enumerate(numbers.tolist()):
            short, key = bool(texts.short[place]), self._shown_key(number)
            digest, sketch = side.digests[place].tobytes(), side.sketches[place].tobytes()
            # For the database, the key is a text.
            origin = pack_origin(self._place(number), key if isinstance(key, int) else None)
            stored.append(
                Stored(
                    id=0,
                    key=str(key),
                    fingerprint=None if short else fingerprints[place],
                    added=present,
                    digest=digest if short or any(digest) else b"",
                    meta=origin,
                    characters=int(self._characters.values[number]),
                    sketch=sketch if any(sketch) else b"",
                )
            )
        return stored


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


def _spread(read: _Read, codes: Codes) -> Iterator[tuple[RecordBlock, Codes]]:
    """Yield blocks with the codes of all their records, given those of the ones that aren't bad."""
    first = 0
    for block, is_bad in read:
        spread = np.full(len(is_bad), BAD, np.uint8)
        last = first + int(np.count_nonzero(~is_bad))
        spread[~is_bad] = codes[first:last]
        first = last
        yield block, spread
