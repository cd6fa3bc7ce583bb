"""Join the rows of documents whose keys are numbers: those on which `ids` and the tables agree.

Both are read range by range of their ids, in bounded memory, for neither is in the other's order. A
document that has a record needs neither of the two.
"""

import time
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fpdb.documents.integer_keys import IntegerCatalog
from fpdb.maintenance.salvaging import END, Source, Span
from fpdb.maintenance.scan import as_array, records
from fpdb.models import Key, Problem
from fpdb.storage import ReadTransaction, WriteTransaction
from fpdb.storage.columns import Column, Rows
from fpdb.tables import Index
from fpdb.tables.bits import Fingerprints
from fpdb.tables.pages import Pages

_ROW_BYTES = 128  # what a row takes while its range is joined
_SAMPLED = 64  # one row of so many says where ranges are cut
_BLOCK = 1 << 18
_HIGH_BITS = 32

Chosen = NDArray[np.bool_]


class Rejoined:
    """The rows of `ids` and of the home table that make up documents."""

    def __init__(
        self,
        txn: ReadTransaction,
        index: Index,
        catalog: IntegerCatalog,
        source: Source,
        memory: int,
    ) -> None:
        self._txn = txn
        self._index = index
        self._catalog = catalog
        self._source = source
        self._most = max(memory // _ROW_BYTES, 1)
        self._below = np.uint64(min(index.plan.bits, 64) - _HIGH_BITS)
        self._now = int(time.time())
        # Rows of the home table that belong to no document, and those that it lacks.
        self._strange: set[tuple[int, ...]] = set()
        self._extra: list[Rows] = []
        self._undated = 0
        self._unread: list[Span] = []
        self._damaged = np.array(sorted(source.lost_records), np.uint64)
        self._spoilt: list[Span] = []
        self.documents = self.placed = 0
        self.lost: list[Key] = []
        self.problems: list[Problem] = []

    def write(self, into: WriteTransaction, lost_records: int | None) -> None:
        """Write `ids`; `lost_records` says how many documents lost their record, if it's known."""
        ranges = self._cut()
        self._unread = self._source.lost_spans(self._catalog.ids.name)
        self._spoilt = self._doubt(lost_records)
        self._catalog.ids.fill(into, (self._range(low, high) for low, high in ranges))
        home = self._index.home.name
        if self._strange:
            what = f"{len(self._strange)} rows belong to no document, or to one that is lost"
            self.problems.append(Problem(home, what))
        if self._undated:
            what = f"{self._undated} documents have lost their time of adding, and have this one"
            self.problems.append(Problem(self._catalog.ids.name, what))

    def places(self) -> Iterator[tuple[Fingerprints, Column]]:
        """Give the fingerprints of all documents with their ids, whenever it is called."""
        strange = np.array(sorted({row[-1] for row in self._strange}), np.uint64)
        parts, size = [self._index.home.empty()], 0
        for rows in self._source.pages(self._index.home):
            keep = np.ones(len(rows[0]), np.bool_)
            for place in _among(rows[-1], strange).nonzero()[0].tolist():
                keep[place] = tuple(column.item(place) for column in rows) not in self._strange
            parts.append(_chosen(rows, keep))
            size += len(rows[0])
            if size >= _BLOCK:
                yield _block(parts)
                parts, size = [self._index.home.empty()], 0
        yield _block([*parts, *self._extra])

    def _cut(self) -> list[Span]:
        """Cut the ids into ranges whose rows are joined at once."""
        samples, most = [np.empty(0, np.uint64)], 0
        for pages, column in ((self._catalog.ids, 0), (self._index.home, -1)):
            count = 0
            for rows in self._source.pages(pages):
                samples.append(rows[column][::_SAMPLED])
                count += len(rows[0])
            most = max(most, count)
        sample = np.sort(np.concatenate(samples))
        ranges = -(-2 * most // self._most)
        places = np.linspace(0, max(len(sample) - 1, 0), ranges + 1).astype(np.intp)[1:-1]
        inner = sample[places].tolist() if len(sample) else []
        return list(pairwise(sorted({0, END, *inner})))

    def _doubt(self, lost_records: int | None) -> list[Span]:
        """Find where documents have lost their records, so that what is left isn't all of them.

        Where nobody knows which of the documents had a record, all stay, and that is a problem.
        """
        known = len(self._damaged)
        spans = self._source.lost_spans("documents")
        if not spans or (lost_records is not None and lost_records <= known):
            return []
        numbers = sum(
            self._inside(rows[0], spans) for rows in self._source.pages(self._catalog.ids)
        )
        stored = records(self._txn, self._catalog, self._index.plan.bits)
        bare = numbers - sum(self._inside(block.ids, spans) for block in stored)
        if lost_records is not None and bare <= lost_records - known:
            return spans
        count = "some" if lost_records is None else f"{lost_records - known:,}"
        for low, high in spans:
            what = (
                f"{count} of the documents from {low} to {high - 1} had a text or metadata, which "
                "are lost; what is left of them are fingerprints"
            )
            self.problems.append(Problem("documents", what))
        return []

    @staticmethod
    def _inside(ids: Column, spans: list[Span]) -> int:
        return int(np.count_nonzero(_within(ids, spans)))

    def _range(self, low: int, high: int) -> Rows:
        """Join the rows of a range, and give those of `ids`."""
        ids = self._gather(self._catalog.ids, 0, low, high)
        home = self._gather(self._index.home, -1, low, high)
        stored = self._stored(low, high)
        ids = self._without_repeated(ids)
        added, agrees = self._agreement(home, ids)
        own = _among(home[-1], stored[0])
        lost = _among(home[-1], self._damaged) | _within(home[-1], self._spoilt)
        bare = agrees & ~own & ~lost
        twice = _repeated(home[-1], bare)
        bare &= ~twice
        self._keep_places(home, bare, stored)
        rows = [
            np.concatenate(pair)
            for pair in zip(
                (home[-1][bare], home[0][bare] >> self._below, added[bare]),
                (stored[0], stored[3] >> self._below, stored[2]),
                strict=True,
            )
        ]
        order = np.argsort(rows[0], kind="stable")
        rows = [column[order] for column in rows]
        self.lost += ids[0][~_among(ids[0], rows[0])].tolist()
        self.documents += len(rows[0])
        self.placed += int(np.count_nonzero(bare)) + int(np.count_nonzero(stored[1]))
        return rows

    def _gather(self, pages: Pages, column: int, low: int, high: int) -> Rows:
        """Read the rows with ids in a range, in the order of these."""
        parts = [pages.empty()]
        for rows in self._source.pages(pages):
            inside = _within(rows[column], [(low, high)])
            if inside.any():
                parts.append(_chosen(rows, inside))
        rows = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
        order = np.argsort(rows[column], kind="stable")
        return [sorted_column[order] for sorted_column in rows]

    def _stored(self, low: int, high: int) -> Rows:
        """Give of the records of a range id, whether there is a fingerprint, time, and words."""
        words = len(self._index.home.empty()) - 1
        parts: list[Rows] = [[np.empty(0, np.uint64)] * (3 + words)]
        for block in records(self._txn, self._catalog, self._index.plan.bits, first=low):
            rows = [block.ids, block.placed.astype(np.uint64), block.added, *block.words]
            parts.append(_chosen(rows, _within(block.ids, [(low, high)])))
            if len(block.ids) and int(block.ids[-1]) >= high:
                break
        return [np.concatenate(columns) for columns in zip(*parts, strict=True)]

    def _without_repeated(self, ids: Rows) -> Rows:
        """Leave out ids that stand twice; which of their rows is right, nobody can tell."""
        twice = _repeated(ids[0], np.ones(len(ids[0]), np.bool_))
        if twice.any():
            what = f"{int(np.count_nonzero(twice))} rows have the id of another one"
            self.problems.append(Problem(self._catalog.ids.name, what))
        return _chosen(ids, ~twice)

    def _agreement(self, home: Rows, ids: Rows) -> tuple[Column, Chosen]:
        """Give the times of rows of the home table, and say which of them belong to documents."""
        added = np.full(len(home[0]), self._now, np.uint64)
        listed = _among(home[-1], ids[0])
        at = ids[0].searchsorted(home[-1][listed])
        added[listed] = ids[2][at]
        agrees = listed.copy()
        agrees[listed] = ids[1][at] == home[0][listed] >> self._below
        undated = ~listed & _within(home[-1], self._unread)
        self._undated += int(np.count_nonzero(undated))
        return added, agrees | undated

    def _keep_places(self, home: Rows, bare: Chosen, stored: Rows) -> None:
        """Note which rows of the home table don't belong there, and which are missing."""
        placed, wanted = stored[1] == 1, [*stored[3:], stored[0]]
        right = _among(home[-1], stored[0][placed])
        own = _chosen(wanted, placed)
        at = own[-1].searchsorted(home[-1][right])
        for column, other in zip(home, own, strict=True):
            right[right.nonzero()[0][column[right] != other[at]]] = False
            at = own[-1].searchsorted(home[-1][right])
        right &= ~_repeated(home[-1], right)
        strange = _chosen(home, ~bare & ~right)
        self._strange.update(zip(*(column.tolist() for column in strange), strict=True))
        missing = placed & ~_among(stored[0], home[-1][right])
        if missing.any():
            self._extra.append(_chosen(wanted, missing))


def _chosen(rows: Rows, chosen: Chosen) -> Rows:
    return [column[chosen] for column in rows]


def _within(ids: Column, spans: list[Span]) -> Chosen:
    inside = np.zeros(len(ids), np.bool_)
    for low, high in spans:
        if low < high:
            inside |= (ids >= np.uint64(low)) & (ids <= np.uint64(high - 1))
    return inside


def _among(ids: Column, known: Column) -> Chosen:
    """Say which ids are among others, which are sorted."""
    if not len(known):
        return np.zeros(len(ids), np.bool_)
    at = known.searchsorted(ids)
    at[at == len(known)] = 0
    found: Chosen = known[at] == ids
    return found


def _repeated(ids: Column, counted: Chosen) -> Chosen:
    """Say which of sorted ids stand there more than once, among those that count."""
    own = ids[counted]
    same = np.zeros(len(own), np.bool_)
    same[1:] = own[1:] == own[:-1]
    same[:-1] |= same[1:]
    repeated = np.zeros(len(ids), np.bool_)
    repeated[counted] = same
    return repeated


def _block(parts: list[Rows]) -> tuple[Fingerprints, Column]:
    *words, ids = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return as_array(words), ids
