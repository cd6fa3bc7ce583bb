"""Records that are in another one, as far as the numbers of their passages show."""

from collections.abc import Iterator

import numpy as np

from fpdb.arrays import Column, Places, portions, spans
from fpdb.fingerprint.sketches import unpack_passages
from fpdb.joins.columns import GrowingColumn, GrowingStrings, Room
from fpdb.joins.selection import PLACE, number_rows, row_places
from fpdb.models import PASSAGE_BYTES
from fpdb.tables.passages import MOST_OF_A_PASSAGE

# With fewer numbers, hardly anything is known of the share: half a text may be taken for all.
LEAST_NUMBERS = 6
# Numbers that are looked up at once, and pairs of records that share one.
_ROWS, _MOST_PAIRS = 1 << 20, 1 << 22


class ContainedRecords:
    """The records that are in a larger one that stays.

    Larger ones are decided before smaller ones, and of those with as many numbers the earlier one
    in the given order. A number of very many records leads to none, but counts where one was found.
    """

    def __init__(self, passages: GrowingStrings, order: Places, least: float, room: Room) -> None:
        self._passages, self._least = passages, least
        sizes = passages.sizes[order] // PASSAGE_BYTES
        ranks = np.argsort(-sizes, kind="stable")
        self._records = order[ranks[sizes[ranks] >= LEAST_NUMBERS]]
        self._sizes = passages.sizes[self._records] // PASSAGE_BYTES
        self._stays = np.ones(len(self._records), np.bool_)
        # The place of a row is that of its record among these.
        self._column = GrowingColumn(room, np.uint64)
        for part in portions(self._sizes, _ROWS):
            self._column.add(self._rows_of(part.start, part.stop))
        self._rows = self._column.values
        self._rows.sort()

    def _rows_of(self, start: int, stop: int) -> Column:
        numbers = unpack_passages(b"".join(self._passages.some(self._records[start:stop])))
        return number_rows(numbers, np.repeat(np.arange(start, stop), self._sizes[start:stop]))

    def __iter__(self) -> Iterator[tuple[int, int, float]]:
        """Yield each one with the record that it is in, and its share that is there."""
        for part in portions(self._sizes, _ROWS):
            yield from self._some(part.start, part.stop)

    def _some(self, start: int, stop: int) -> Iterator[tuple[int, int, float]]:
        asked, every = self._rows_of(start, stop), len(self._records)
        heads, places = asked & ~PLACE, row_places(asked)
        firsts = self._rows.searchsorted(heads)
        crowded = self._rows.searchsorted(heads | PLACE, "right") - firsts > MOST_OF_A_PASSAGE
        before = np.where(crowded, 0, self._rows.searchsorted(asked) - firsts)
        if before.sum() > _MOST_PAIRS and stop - start > 1:
            middle = (start + stop) // 2
            yield from self._some(start, middle)
            yield from self._some(middle, stop)
            return
        pairs = np.repeat(places, before) * every + row_places(self._rows[spans(firsts, before)])
        found, shared = np.unique(pairs, return_counts=True)
        ones, others = np.divmod(found, every)
        most = shared + np.bincount(places - start, crowded, stop - start)[ones - start]
        enough = most >= self._least * self._sizes[ones] - 0.5
        order = np.lexsort((others[enough], -shared[enough], ones[enough]))
        both = zip(ones[enough][order].tolist(), others[enough][order].tolist(), strict=True)
        for one, other in both:
            if self._stays[one] and self._stays[other]:
                record, larger = self._records[[one, other]].tolist()
                own, its = map(unpack_passages, self._passages.some(self._records[[one, other]]))
                common = len(np.intersect1d(own, its, assume_unique=True))
                if (share := common / int(self._sizes[one])) >= self._least:
                    self._stays[one] = False
                    yield record, larger, share
