"""Decide which flipped prefixes find every fingerprint within k.

A table is searched with radius r: it is probed with its prefix as it is, and with every change
of at most r bits. Radius -1 skips the table. Radii cover k if no way to change k bits of a
fingerprint changes more than r bits in the prefix of every table.
"""

from collections.abc import Sequence
from itertools import chain, combinations, combinations_with_replacement
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.errors import PlanError

# With more probes, reading all of the home table is the better query.
MOST_PROBES = 20_000
# Beyond this many counts the exact search would take longer than what it saves.
MOST_COUNTS = 8_000_000
# Weights on the ways that few tables cover; none is best for all plans, so the best is taken.
_CAUTIONS = (1, 2, 4)

_Counts = NDArray[np.uint8]


class TableProbes(NamedTuple):
    """The probes of one query in one table: its prefix, changed by each of the masks.

    A mask changes the prefix as a number: bit 0 is the last bit of the prefix.
    """

    table: int
    masks: tuple[int, ...]


def find_probes(prefixes: Sequence[int], k: int) -> tuple[TableProbes, ...]:
    """Choose few probes that leave nothing within k out.

    The prefixes of the tables are masks of the bits of the unpermuted fingerprint.

    Raises:
        PlanError: The probes are too many.
    """
    widths = [prefix.bit_count() for prefix in prefixes]
    found = _radii(prefixes, k)
    count = sum(map(_ball, widths, found))
    if count > MOST_PROBES:
        raise PlanError(
            f"k = {k} takes {count:,} probes on these tables; at most {MOST_PROBES:,} are made",
            hint="ask for a smaller k, or build tables for a larger one",
        )
    return tuple(
        TableProbes(table, _changes(width, radius))
        for table, (width, radius) in enumerate(zip(widths, found, strict=True))
        if radius >= 0
    )


def _radii(prefixes: Sequence[int], k: int) -> tuple[int, ...]:
    """Find small radii that cover k."""
    if k == 0:
        widest = max(range(len(prefixes)), key=lambda table: prefixes[table].bit_count())
        return tuple(0 if table == widest else -1 for table in range(len(prefixes)))
    groups = _groups(prefixes)
    deepest = int(groups.sum(axis=1).max(initial=1))
    counts = comb(len(groups) + k - 1, k) * len(prefixes)
    if deepest == 1 or counts > MOST_COUNTS:
        return _by_pigeonhole(prefixes, k, deepest)
    return _by_enumeration(prefixes, k, groups)


def _ball(width: int, radius: int) -> int:
    """Count the values of `width` bits within `radius` of one."""
    return sum(comb(width, flips) for flips in range(radius + 1))


def _shell(width: int, radius: int) -> int:
    """Count the values of `width` bits at a distance of `radius` from one."""
    return comb(width, radius) if radius >= 0 else 0


def _changes(width: int, radius: int) -> tuple[int, ...]:
    """Return all masks of at most `radius` out of `width` bits, those with few bits first."""
    single = [1 << bit for bit in range(width)]
    return tuple(
        sum(chosen) for flips in range(radius + 1) for chosen in combinations(single, flips)
    )


def _groups(prefixes: Sequence[int]) -> _Counts:
    """Return one row for each group of bits that are in the same prefixes: a mark per table.

    A group whose tables are among those of another is left out: changing a bit of the other
    does at least as much harm.
    """
    width = max(prefix.bit_length() for prefix in prefixes)
    kinds = {
        frozenset(table for table, prefix in enumerate(prefixes) if prefix >> bit & 1)
        for bit in range(width)
    }
    rows = [
        [table in group for table in range(len(prefixes))]
        for group in sorted(kinds, key=sorted)
        if not any(group < other for other in kinds)
    ]
    return np.array(rows, dtype=np.uint8)


def _by_pigeonhole(prefixes: Sequence[int], k: int, deepest: int) -> tuple[int, ...]:
    """Lower radii as long as their sum alone proves that they cover.

    A changed bit counts in at most `deepest` prefixes. To escape all tables takes r + 1 of them
    in each, so the sum of all r + 1 being over k * deepest leaves no escape.
    """
    widths = [prefix.bit_count() for prefix in prefixes]
    needed = k * deepest + 1

    def total(radius: int) -> int:
        return sum(min(radius, width) + 1 for width in widths)

    radius = next((radius for radius in range(k) if total(radius) >= needed), k)
    found = [min(radius, width) for width in widths]
    for _ in range(sum(found) + len(found) - needed):
        # The largest shell goes first; of equals that of the shortest prefix: it reads the most.
        shells = [
            (_shell(width, radius), -width, table)
            for table, (width, radius) in enumerate(zip(widths, found, strict=True))
        ]
        found[max(shells)[2]] -= 1
    return tuple(found)


def _by_enumeration(prefixes: Sequence[int], k: int, groups: _Counts) -> tuple[int, ...]:
    """Lower radii as long as every way to change k bits stays covered."""
    widths = [prefix.bit_count() for prefix in prefixes]
    ways = combinations_with_replacement(range(len(groups)), k)
    chosen = np.fromiter(chain.from_iterable(ways), dtype=np.intp).reshape(-1, k)
    changed = np.zeros((len(chosen), len(prefixes)), dtype=np.uint8)
    for column in range(k):
        changed += groups[chosen[:, column]]
    changed = np.minimum(changed, np.array(widths, dtype=np.uint8))
    found = [_lower(changed, widths, caution) for caution in _CAUTIONS]
    return min(found, key=lambda radii: sum(map(_ball, widths, radii)))


def _lower(changed: _Counts, widths: Sequence[int], caution: int) -> tuple[int, ...]:
    """Lower radii, from equal ones, until none can be lowered.

    `changed` counts, for each way to change k bits, those that fall on each table's prefix.
    """
    enough = int(changed.min(axis=1).max())
    found = [min(enough, width) for width in widths]
    covers = (changed <= np.array(found)).sum(axis=1)
    # From the last to the first, so that of equals the home table is kept.
    lowerable = list(reversed(range(len(widths))))
    while lowerable:
        shells = {table: _shell(widths[table], found[table]) for table in lowerable}
        largest = max(shells.values()) / 2
        harms: dict[int, float] = {}
        for table in [table for table in lowerable if shells[table] >= largest]:
            left = covers[changed[:, table] == found[table]] - 1
            if (left == 0).any():
                # Nor can it be lowered later, when even less covers.
                lowerable.remove(table)
            else:
                harms[table] = float((1.0 / left**caution).sum()) / shells[table]
        if harms:
            table = min(harms, key=harms.__getitem__)
            covers -= changed[:, table] == found[table]
            found[table] -= 1
            if found[table] < 0:
                lowerable.remove(table)
    return tuple(found)
