"""Find the keys that several databases have, block by block in their order, and who keeps them."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.documents import Stored
from fpdb.errors import DamagedError, KeyConflictError
from fpdb.maintenance.origins import Origin
from fpdb.storage.columns import Column, Rows

RULES = ("newest", "first", "error")
# Keys that are held of all databases together.
KEYS = 1 << 16
ROWS = 1 << 18

# A text key as it is stored, the place of its database among all, and its id there.
_Found = tuple[bytes, int, bytes]


class Keys(NamedTuple):
    """The next keys with their new ids, and the old ids that are dropped of each database."""

    entries: list[tuple[bytes, bytes]]
    dropped: list[Column]


class Ids(NamedTuple):
    """The next rows of ids, and those that are dropped of each database."""

    rows: Rows
    dropped: list[Column]


def text_winners(origins: Sequence[Origin], rule: str, after: bytes) -> Iterator[Keys]:
    """Decide for each text key behind one which database keeps its document."""
    for block in _key_blocks(origins, after):
        dropped: list[list[int]] = [[] for _ in origins]
        repeated = len({key for key, _, _ in block}) < len(block)
        kept = _decided(block, origins, rule, dropped) if repeated else block
        entries = [
            (key, (int.from_bytes(number) + origins[place].base).to_bytes(8))
            for key, place, number in kept
        ]
        yield Keys(entries, [np.array(numbers, np.uint64) for numbers in dropped])


def _key_blocks(origins: Sequence[Origin], after: bytes) -> Iterator[list[_Found]]:
    """Read all keys in their order; equal ones are never in two blocks."""
    streams = [origin.entries("keys", after) for origin in origins]
    held: list[list[_Found]] = [[] for _ in origins]
    share = max(KEYS // len(origins), 1)
    while True:
        for place, stream in enumerate(streams):
            if not held[place]:
                read = islice(stream, share)
                held[place] = [(bytes(key), place, bytes(number)) for key, number in read]
        ends = [found[-1][0] for found in held if found]
        if not ends:
            return
        block: list[_Found] = []
        for place, found in enumerate(held):
            cut = bisect_right(found, min(ends), key=itemgetter(0))
            block += found[:cut]
            held[place] = found[cut:]
        block.sort()
        yield block


def _decided(
    block: list[_Found], origins: Sequence[Origin], rule: str, dropped: list[list[int]]
) -> Iterator[_Found]:
    for _, group in groupby(block, key=itemgetter(0)):
        rivals = list(group)
        winner = rivals[0]
        if len(rivals) > 1:
            numbers = [(place, int.from_bytes(number)) for _, place, number in rivals]
            winner = rivals[_winner(origins, numbers, rule)]
            for place, number in numbers:
                if place != winner[1]:
                    dropped[place].append(number)
        yield winner


def _winner(origins: Sequence[Origin], rivals: list[tuple[int, int]], rule: str) -> int:
    """Say which of several documents with one key stays; the first of equals."""
    if rule == "first":
        return 0
    stored = [_document(origins[place], number) for place, number in rivals]
    if rule == "error":
        _require_alike(origins, rivals, stored)
        return 0
    times = [document.added for document in stored]
    return times.index(max(times))


def _document(origin: Origin, number: int) -> Stored:
    with origin.txn.going_on():
        stored = origin.catalog.load(origin.txn, number)
    if stored is None:
        raise DamagedError(
            f"{origin.path}: a key leads to no document", hint=f"run `fpdb check` on {origin.path}"
        )
    return stored


def _require_alike(
    origins: Sequence[Origin], rivals: list[tuple[int, int]], stored: list[Stored]
) -> None:
    """Refuse documents with one key that differ in more than the time when they were added."""
    first, *others = (document._replace(id=0, added=0) for document in stored)
    for (place, _), other in zip(rivals[1:], others, strict=True):
        if other != first:
            paths = origins[rivals[0][0]].path, origins[place].path
            raise KeyConflictError(
                f"{paths[0]} and {paths[1]} have different documents with the key {first.key!r}",
                hint="merge with on_conflict newest or first, or delete one of them",
                key=first.key,
                paths=paths,
            )


def integer_winners(origins: Sequence[Origin], rule: str, after: int) -> Iterator[Ids]:
    """Decide for each integer key behind one which database keeps its document."""
    for rows, places in _id_blocks(origins, after):
        ids, _, added = rows
        # Of equal ids the one that stays comes first.
        ties = [places, ~added] if rule == "newest" else [places]
        order = np.lexsort([*ties, ids])
        ids = ids[order]
        later = np.zeros(len(ids), np.bool_)
        later[1:] = ids[1:] == ids[:-1]
        if rule == "error" and later.any():
            _require_same(origins, ids, places[order], later)
        lost = places[order][later]
        dropped = [ids[later][lost == place] for place in range(len(origins))]
        yield Ids([column[order][~later] for column in rows], dropped)


def _id_blocks(origins: Sequence[Origin], after: int) -> Iterator[tuple[Rows, Column]]:
    """Read the rows of all ids in their order, with the place of their database among all."""
    streams = [_larger(origin.rows(after), max(ROWS // len(origins), 1)) for origin in origins]
    held: list[Rows] = [[np.empty(0, np.uint64)] * 3 for _ in origins]
    while True:
        for place, stream in enumerate(streams):
            if not len(held[place][0]):
                held[place] = next(stream, held[place])
        ends = [int(rows[0][-1]) for rows in held if len(rows[0])]
        if not ends:
            return
        parts: list[Rows] = []
        places: list[Column] = []
        for place, rows in enumerate(held):
            cut = int(rows[0].searchsorted(np.uint64(min(ends)), "right"))
            parts.append([column[:cut] for column in rows])
            places.append(np.full(cut, place, np.uint64))
            held[place] = [column[cut:] for column in rows]
        yield _joined(parts), np.concatenate(places)


def _larger(pages: Iterator[Rows], count: int) -> Iterator[Rows]:
    """Join pages until they have so many rows."""
    parts: list[Rows] = []
    size = 0
    for rows in pages:
        parts.append(rows)
        size += len(rows[0])
        if size >= count:
            yield _joined(parts)
            parts, size = [], 0
    if parts:
        yield _joined(parts)


def _joined(parts: list[Rows]) -> Rows:
    return [np.concatenate(columns) for columns in zip(*parts, strict=True)]


def _require_same(
    origins: Sequence[Origin], ids: Column, places: Column, later: NDArray[np.bool_]
) -> None:
    for at in later.nonzero()[0].tolist():
        rivals = [(int(places[at + step]), int(ids[at])) for step in (-1, 0)]
        stored = [_document(origins[place], number) for place, number in rivals]
        _require_alike(origins, rivals, stored)
