"""Lines about the removed records, which are told in any order and read in that of the records."""

import json
from collections.abc import Iterator

import numpy as np

from fpdb.arrays import Places
from fpdb.dedupe.run import Removed
from fpdb.documents.prepare import GATHERED
from fpdb.joins.columns import GrowingColumn, GrowingStrings, Room

# The fields of a line about a paragraph that is cut.
_CUT = ("key", "source", "kept_key", "kept_source", "characters")


def cut_line(*values: object) -> bytes:
    """Return a line about a paragraph: the record, the one that keeps it, and its characters."""
    return json.dumps(dict(zip(_CUT, values, strict=True))).encode() + b"\n"


class RemovedLines:
    """A line for each of some records, by their numbers."""

    def __init__(self, room: Room) -> None:
        self._lines = GrowingStrings(room)
        # Of each record, the number of its line, or -1.
        self._line_of = GrowingColumn(room, np.int64)

    def expect(self, count: int) -> None:
        """Make room for the next records, which have no lines yet."""
        self._line_of.add(np.full(count, -1))

    def add(self, number: int, removed: Removed) -> None:
        fields = removed._asdict()
        for name in ("similarity", "own_share"):
            fields[name] = fields[name] and round(fields[name], 4)
        self._line_of.values[number] = len(self._lines)
        self._lines.add([json.dumps(fields).encode() + b"\n"])

    def chosen(self, numbers: Places) -> Iterator[bytes | None]:
        """Yield the lines of records, or None for one that stays."""
        places = self._line_of.values[numbers]
        lines = iter(self._lines.chosen(places[places >= 0]))
        return (None if place < 0 else next(lines) for place in places.tolist())

    def all(self) -> Iterator[bytes]:
        """Yield all lines, some together."""
        order = self._line_of.values[self._line_of.values >= 0]
        for start in range(0, len(order), GATHERED):
            yield b"".join(self._lines.chosen(order[start : start + GATHERED]))
