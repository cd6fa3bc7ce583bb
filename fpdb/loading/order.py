"""Whether rows of sorted columns come in order, and what they add up to."""

import numpy as np

from fpdb.corpus.agreement import Mixer
from fpdb.io.sorted_columns import Part
from fpdb.storage.columns import Column, Rows

AGAIN = "write the columns again; nothing has become of the new database"


def words_of(bits: int) -> tuple[str, ...]:
    """Name the columns of a fingerprint."""
    return ("high", "low") if bits == 128 else ("fingerprint",)


def require_width(part: Part, column: Column, bits: int) -> None:
    """Refuse fingerprints of more than 32 bits where they have so many."""
    if bits == 32:
        part.refuse(column >> np.uint64(bits) > 0, f"found a fingerprint of more than {bits} bits")


class Ascending:
    """Requires rows in ascending order, all of them different."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._last: Rows = []

    def require(self, part: Part, rows: Rows) -> None:
        """Look at the next rows."""
        first = not self._last
        joined = (
            rows if first else [np.concatenate(pair) for pair in zip(self._last, rows, strict=True)]
        )
        same = np.ones(len(joined[0]) - 1, np.bool_)
        below = np.zeros(len(joined[0]) - 1, np.bool_)
        for column in joined:
            before, after = column[:-1], column[1:]
            below |= same & (after < before)
            same &= after == before
        wrong = below | same
        if wrong.any():
            place = int(wrong.argmax())
            raise part.out_of_order(place + first, self._what, twice=bool(same[place]))
        self._last = [column[-1:].copy() for column in rows]


class Total:
    """How many rows there are, and what they add up to when each is mixed to a random number.

    Two sets of rows with the same total are the same, but for a chance of one in 2**64.
    """

    def __init__(self, mixer: Mixer) -> None:
        self._mixer = mixer
        self.rows = 0
        self.sum = 0

    def add(self, rows: Rows) -> None:
        """Count rows."""
        self.rows += len(rows[0])
        self.sum = (self.sum + int(self._mixer.numbers(rows).sum())) % (1 << 64)
