"""All pairs of documents that share passages, in bounded memory."""

import warnings
from collections.abc import Iterator

import numpy as np

from fpdb.arrays import Column, Places, Rows, joined, portions, ranked
from fpdb.documents.catalog import View
from fpdb.errors import IncompleteWarning
from fpdb.fingerprint.winnowing import WINDOW, unpack_passages
from fpdb.joins.pairs import NO_IDS, in_runs, meetings, shared_rows, stored_of
from fpdb.models import PartPair
from fpdb.tables.passages import MOST_OF_A_PASSAGE
from fpdb.tables.sorted_pages import NumberPages

# Pairs that agree in a number, of a range of first documents, that are held at once; and those
# whose documents are read together.
_HELD, _READ = 1 << 23, 1 << 14
_BUCKETS = 1 << 16  # of ids
_SPACING = (WINDOW + 1) / 2  # words for each number, on average


def find_part_pairs(view: View, least: float) -> Iterator[PartPair]:
    """Yield pairs of which one document shares so much of its numbers with the other.

    The first one has the smaller id, and the pairs are in the order of these. The table is read
    again for each part of the pairs that fits into memory.
    """
    [table] = filter(None, [view.index.passages])
    with view.txn.cursor("documents") as cursor:
        last = int.from_bytes(cursor.key()) if cursor.last() else 0
    width = last // _BUCKETS + 1
    pairs_of, skipped = np.zeros(_BUCKETS, np.int64), 0
    for numbers, ids in shared_rows(view, table.pages):
        left, crowds = _meeting(numbers)
        skipped += crowds
        places = (ids // np.uint64(width)).astype(np.int64)
        pairs_of += np.bincount(places, left, _BUCKETS).astype(np.int64)
    if skipped:
        warnings.warn(
            f"some pairs may be missing: {skipped:,} passages are in more than "
            f"{MOST_OF_A_PASSAGE:,} documents each, and lead to none",
            IncompleteWarning,
            stacklevel=3,
        )
    for some in portions(pairs_of, _HELD):
        bounds = some.start * width, some.stop * width - 1
        if pairs_of[some].any():
            yield from _compared(view, _agreeing(view, table.pages, *bounds), least)


def _meeting(numbers: Column) -> tuple[Places, int]:
    """Return how many rows each row meets, those after it, and how many runs are crowds.

    In a crowd it is none.
    """
    left, sizes = in_runs(numbers)
    crowded = sizes > MOST_OF_A_PASSAGE
    crowds = int(np.count_nonzero(crowded & (left == 0)))
    return np.where(crowded, 0, left), crowds


def _agreeing(view: View, pages: NumberPages, low: int, high: int) -> Rows:
    """Return the distinct pairs whose first ids are in a range, and that agree in a row."""
    found: list[Rows] = [[NO_IDS, NO_IDS]]
    for numbers, ids in shared_rows(view, pages):
        inside = (ids >= np.uint64(low)) & (ids <= np.uint64(high))
        found += [pair for _, *pair in meetings(numbers, ids, _meeting(numbers)[0] * inside)]
    return ranked(joined(found))[0]


def _compared(view: View, pairs: Rows, least: float) -> Iterator[PartPair]:
    """Yield the pairs whose documents share enough of their whole numbers."""
    for start in range(0, len(pairs[0]), _READ):
        [ids], names = ranked([np.concatenate([each[start : start + _READ] for each in pairs])])
        documents = stored_of(view, ids)
        numbers = [unpack_passages(stored.passages) for stored in documents]
        for one, two in zip(*(half.tolist() for half in np.split(names, 2)), strict=True):
            common = len(np.intersect1d(numbers[one], numbers[two], assume_unique=True))
            share, other_share = common / len(numbers[one]), common / len(numbers[two])
            if common and max(share, other_share) >= least:
                keys = documents[one].key, documents[two].key
                yield PartPair(*keys, round(common * _SPACING), share, other_share)
