"""Paragraphs that many texts have: counted in all records, then cut from all but the first text."""

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from fpdb.arrays import Column, Marks, Places, Rows, among, differs, joined, run_starts
from fpdb.dedupe.prepare import RecordBlock, group_hashes, run_hash
from fpdb.dedupe.run import AHEAD, Deduplication
from fpdb.errors import InputError
from fpdb.fingerprint.paragraphs import Paragraphs, paragraphs, without
from fpdb.io.batches import RecordBatch
from fpdb.io.raw import changed
from fpdb.io.streams import ignore
from fpdb.joins.columns import GrowingColumn, Room
from fpdb.tables.sorter import BLOCK, Sorter
from fpdb.threads import mapped

_HALF = np.uint64(32)
# Of the places in which hashes are counted.
_MOST_BITS = 22


class Cuts:
    """The paragraphs that records of a run lose, by the numbers of the records.

    At least `least` different texts have each of them, among records with an equal value in a
    field, if one is given. The first of these texts keeps them, wherever it comes again.
    """

    def __init__(self, run: Deduplication, least: int, room: Room) -> None:
        reading = run.reading
        if reading.all_html or len(reading.texts) > 1:
            kind = "HTML" if reading.all_html else "texts of several fields"
            raise InputError(
                f"found {kind}, expected plain texts in one field, to cut paragraphs from",
                hint="write such texts to a file first, and clean that",
                parameter="cut",
            )
        self._run, self._least, self._room = run, least, room
        # Called with a record that is edited: for each cut, who keeps it, and its characters.
        self.tell: Callable[[int, list[tuple[int, int]]], object] = ignore
        self._seed, self._hashed = secrets.randbits(64), run_hash()
        # Of all records.
        self._lines = GrowingColumn(room, np.int64)
        self._firsts: list[int] = []  # of each input
        # Of each cut the record, its first line and the one after its last, and who keeps it.
        self._cuts = [GrowingColumn(room, np.uint64) for _ in range(3)]
        self.marks: Marks = np.empty(0, np.bool_)  # the records that lose something

    def count(self, blocks: Iterable[RecordBlock]) -> None:
        """Read all records, and find the paragraphs that they lose."""
        texts, sizes = GrowingColumn(self._room, np.uint64, searched=True), Counter[int]()
        rows = [GrowingColumn(self._room, np.uint64) for _ in range(3)]
        for block, (numbers, counted) in mapped(self._counted, blocks, self._run.jobs, AHEAD):
            lines = counted.starts.astype(np.uint64) << _HALF | counted.ends.astype(np.uint64)
            records = (counted.owners + len(texts)).astype(np.uint64)
            for column, values in zip(rows, (counted.hashes, records, lines), strict=True):
                column.add(values)
            texts.add(counted.texts)
            self._lines.add(numbers)
            sizes[block.number] += len(numbers)
            self._run.show()
        with self._sorter(keys=3) as sorter, self._sorter(keys=2) as cuts:
            for frequent in _frequent(rows, self._least):
                sorter.add(frequent)
            for runs in _whole_runs(sorter.rows()):
                cuts.add(self._losses(runs, texts.values))
            for losses in cuts.rows():
                for column, values in zip(self._cuts, losses, strict=True):
                    column.add(values)
        self.marks = np.zeros(len(texts), np.bool_)
        self.marks[self._cuts[0].values] = True
        self._firsts = np.cumsum([0, *(sizes[at] for at in range(max(sizes, default=0)))]).tolist()
        for column in (*rows, texts):
            column.clear()

    def _sorter(self, *, keys: int) -> Sorter:
        return Sorter(self._room.folder, 3, keys, self._room.left // 3)

    def _counted(self, block: RecordBlock) -> tuple[Places, Paragraphs]:
        batch = block.read()
        if batch.damage:
            batch = RecordBatch()
        counted = paragraphs([text or "" for text in batch.texts], self._seed)
        if self._run.within is not None:
            groups = group_hashes(batch, self._run.within, self._hashed)
            counted = counted._replace(hashes=counted.hashes ^ groups[counted.owners])
        return np.array(batch.numbers, np.int64), counted

    def _losses(self, rows: Rows, texts: Column) -> Rows:
        """Return which records lose which lines, and which record keeps them."""
        starts = run_starts(rows[0])
        counts = np.diff(starts, append=len(rows[0]))
        are_frequent = np.repeat(counts >= self._least, counts)
        hashes, records, lines = (column[are_frequent] for column in rows)
        starts, sources = run_starts(hashes), texts[records]
        if not len(starts):
            return [records, lines, records]
        counts = np.diff(starts, append=len(hashes))
        order = np.lexsort((sources, hashes))
        different = differs(hashes[order], sources[order]).astype(np.int64)
        are_many = np.add.reduceat(different, starts) >= self._least
        firsts = np.repeat(starts, counts)
        lost = np.repeat(are_many, counts) & (sources != sources[firsts])
        return [records[lost], lines[lost], records[firsts][lost]]

    def shortened(self, blocks: Iterable[RecordBlock]) -> Iterator[RecordBlock]:
        """Yield the same blocks, whose records come without their cuts."""
        for block in blocks:
            yield block._replace(read=partial(self._read, block))

    def _read(self, block: RecordBlock) -> RecordBatch:
        batch = block.read()
        if batch.damage:
            return batch
        first, *after = self._firsts[block.number : block.number + 2]
        lines = self._lines.values[first : after[0] if after else None]
        numbers = np.array(batch.numbers, np.int64)
        if not among(numbers, lines).all():
            raise changed(block.source)
        return self.shorten(batch, first + lines.searchsorted(numbers))

    def shorten(self, batch: RecordBatch, records: Places) -> RecordBatch:
        """Cut the texts of records, given their numbers."""
        for place in self.marks[records].nonzero()[0].tolist():
            batch.texts[place] = self.left(int(records[place]), batch.texts[place] or "")
        return batch

    def left(self, record: int, text: str) -> str:
        """Return the rest of a record's text."""
        return self._cut(record, text)[0]

    def edit(self, record: int, text: str) -> str:
        """Return the rest of a record's text; count and tell the cuts."""
        left, lost = self._cut(record, text)
        self._run.counts.cut_records += 1
        self._run.counts.cut_characters += sum(size for _, size in lost)
        self.tell(record, lost)
        return left

    def _cut(self, record: int, text: str) -> tuple[str, list[tuple[int, int]]]:
        """Return the rest of a record's text; of each cut who keeps it, and its characters."""
        ends = np.array([record, record + 1], np.uint64)
        first, last = self._cuts[0].values.searchsorted(ends).tolist()
        packed, keepers = (column.values[first:last].tolist() for column in self._cuts[1:])
        left, sizes = without(text, [(lines >> 32, lines & 0xFFFFFFFF) for lines in packed])
        return left, list(zip(keepers, sizes, strict=True))


def counted(run: Deduplication, room: Room, blocks: Iterable[RecordBlock]) -> Cuts | None:
    """Return the cuts of records, if there are to be any; only then the blocks are read."""
    if run.cut is None:
        return None
    cuts = Cuts(run, run.cut, room)
    cuts.count(blocks)
    return cuts


def _frequent(columns: Sequence[GrowingColumn], least: int) -> Iterator[Rows]:
    """Yield rows, but for most of those whose first number less than N have: these needn't sort."""
    hashes = columns[0].values
    shift = np.uint64(64 - min(max(len(hashes).bit_length(), 1), _MOST_BITS))
    counts = np.zeros(1 << int(64 - shift), np.int64)
    places = range(0, len(hashes), BLOCK)
    for start in places:
        part = (hashes[start : start + BLOCK] >> shift).astype(np.int64)
        counts += np.bincount(part, minlength=len(counts))
    for start in places:
        many = counts[hashes[start : start + BLOCK] >> shift] >= least
        yield [column.values[start : start + BLOCK][many] for column in columns]


def _whole_runs(blocks: Iterable[Rows]) -> Iterator[Rows]:
    """Yield sorted rows in blocks, none of which ends between two with the same first number."""
    held: list[Rows] = []
    for block in blocks:
        rows = joined([*held, block])
        if not len(rows[0]):
            continue
        last = int(run_starts(rows[0])[-1])
        yield [column[:last] for column in rows]
        held = [[column[last:] for column in rows]]
    yield from held
