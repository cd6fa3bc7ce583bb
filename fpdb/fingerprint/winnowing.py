"""Numbers of passages: texts that share a passage share a number, by which documents are found.

A number is made by winnowing (Schleimer, Wilkerson and Aiken, 2003). Of the shingles of a text in
their order, RUN in a row make one hash; of WINDOW such hashes in a row the smallest is chosen. So
two texts that have RUN + WINDOW - 1 shingles in a row in common share a number for certain: a
passage of RUN + WINDOW + 1 words, or of two signs more. Shorter ones are often found, too.

What is chosen depends on what is near it alone. A share of all hashes, such as those that end with
some zeros, would leave gaps of any length.
"""

from typing import NamedTuple

import numpy as np

from fpdb.arrays import Column, Places
from fpdb.fingerprint.sketches import ODD, mix
from fpdb.models import PASSAGE_BYTES

# They are part of the format: other ones make other numbers. Shorter runs are stock phrases that
# many documents have, longer ones don't bear edits. 30 characters in a row are found for certain.
RUN, WINDOW = 4, 23
_BRIDGED = 3  # numbers of a passage that may have changed between two that are shared
_UNUSED = 8 - PASSAGE_BYTES
_SHIFT = np.uint64(8 * _UNUSED)


class PlacedPassages(NamedTuple):
    """The distinct numbers of a text in its order, and the tokens that each is made of.

    These are the tokens from its entry in `begins` on that come before that in `ends`, of all the
    `tokens` of the text; a number that occurs several times has the first place.
    """

    numbers: Column
    begins: Places
    ends: Places
    tokens: int

    def words_of(self, documents: Places, shared: Places, count: int) -> Places:
        """Estimate how many tokens each of N documents has, by the numbers that it shares.

        The columns have a row for each document and the place of a number of the text that it has,
        sorted. Numbers with hardly any others between them are of one passage, in which some words
        may be changed. It ends half way between its last number and the next one, on average, and
        with the text if it has the last one.
        """
        if not len(shared):
            return np.zeros(count, np.int64)
        apart = (shared[1:] - shared[:-1] > _BRIDGED + 1) | (documents[1:] != documents[:-1])
        edge = np.ones(1, np.bool_)
        firsts, lasts = (shared[np.concatenate(marks)] for marks in ([edge, apart], [apart, edge]))
        owners = documents[np.concatenate([edge, apart])]
        starts, stops = self.begins[firsts], self.ends[lasts]
        before = self.begins[np.maximum(firsts - 1, 0)]  # where the number before begins
        after = self.ends[np.minimum(lasts + 1, len(self.ends) - 1)]
        starts = np.minimum((before + 1 + starts) // 2, starts)
        starts[firsts == 0] = 0
        stops = np.maximum((stops + after) // 2, stops)
        stops[lasts + 1 == len(self.ends)] = self.tokens
        # Passages that overlap, since others were changed between them, count once.
        same = owners[1:] == owners[:-1]
        starts[1:] = np.where(same, np.maximum(starts[1:], stops[:-1]), starts[1:])
        words = np.zeros(count, np.int64)
        np.add.at(words, owners, np.maximum(stops - starts, 0))
        return words


def passage_numbers(hashes: Column) -> tuple[Column, Places]:
    """Return the distinct numbers of a text in its order, and where the shingles of each begin.

    Args:
        hashes: Those of its shingles, in their order.
    """
    count = max(len(hashes) - RUN + 1, 0)
    if not count:
        return np.empty(0, np.uint64), np.empty(0, np.int64)
    runs = np.zeros(count, np.uint64)
    for step in range(RUN):
        runs = runs * ODD + hashes[step : step + count]
    windows = np.lib.stride_tricks.sliding_window_view(runs, min(WINDOW, count))
    places = np.unique(windows.argmin(axis=1) + np.arange(len(windows)))
    # The smallest of many hashes is small, but a number may be anything.
    numbers = mix(runs[places]) >> _SHIFT
    firsts = np.sort(np.unique(numbers, return_index=True)[1])
    return numbers[firsts], places[firsts]


def pack_passages(numbers: Column) -> bytes:
    """Return numbers sorted, 5 bytes each, the highest byte first."""
    rows = np.sort(numbers).astype(">u8").view(np.uint8).reshape(-1, 8)
    return rows[:, _UNUSED:].tobytes()


def unpack_passages(packed: bytes) -> Column:
    """Return packed numbers."""
    rows = np.zeros((len(packed) // PASSAGE_BYTES, 8), np.uint8)
    rows[:, _UNUSED:] = np.frombuffer(packed, np.uint8).reshape(-1, PASSAGE_BYTES)
    return rows.view(">u8")[:, 0].astype(np.uint64)
