"""Rows by which documents that may be alike meet: words of a hash, and the place of a document."""

import numpy as np

from fpdb.arrays import Column, Marks, Places, differs
from fpdb.fingerprint.sketches import mix

# Numbers that are mixed at once.
_MIXED = 1 << 15
# A row is a word: the upper bits of a hash, and the place of a document. With more bits for places,
# many documents of a large corpus are compared that have only these bits in common.
PLACE = np.uint64((1 << 30) - 1)


def number_rows(numbers: Column, places: Places) -> Column:
    """Return sorted rows: a hash of each number, and the place of its document."""
    rows = places.astype(np.uint64)
    for start in range(0, len(rows), _MIXED):  # which stay in a cache
        some = slice(start, start + _MIXED)
        rows[some] |= mix(numbers[some]) & ~PLACE
    rows.sort()
    return rows


def row_places(rows: Column) -> Places:
    return (rows & PLACE).view(np.int64)


def repeated(rows: Column) -> Marks:
    """Mark the sorted rows whose number another one has."""
    first = np.append(differs(rows & ~PLACE), True)
    marks: Marks = ~(first[:-1] & first[1:])
    return marks


def only(rows: Column, marks: Marks) -> Column:
    return rows[marks[row_places(rows)]]
