"""Decide which flipped prefixes find every fingerprint within k.

A table is searched with radius r: it is probed with its prefix as it is, and with every change
of at most r bits. Radius -1 leaves the table alone. Radii cover k if no way to change k bits of a
fingerprint changes more than r bits in the prefix of every table.
"""

from collections.abc import Sequence
from itertools import chain, combinations, combinations_with_replacement
from math import comb

import numpy as np
from numpy.typing import NDArray

# Beyond this many counts the exact search would take longer than what it saves.
MOST_COUNTS = 8_000_000
# How strongly to spare what few tables cover; none is best for all plans, so the best is taken.
CAUTIONS = (1, 2, 4)

Rows = NDArray[np.uint8]


def radii(prefixes: Sequence[int], k: int) -> tuple[int, ...]:
    """Find small radii that cover k, for prefixes given as masks of the bits they hold."""
    if k == 0:
        widest = max(range(len(prefixes)), key=lambda table: prefixes[table].bit_count())
        return tuple(0 if table == widest else -1 for table in range(len(prefixes)))
    groups = _groups(prefixes)
    deepest = int(groups.sum(axis=1).max(initial=1))
    counts = comb(len(groups) + k - 1, k) * len(prefixes)
    if deepest == 1 or counts > MOST_COUNTS:
        return _by_pigeonhole(prefixes, k, deepest)
    return _by_enumeration(prefixes, k, groups)


def ball(width: int, radius: int) -> int:
    """How many values of `width` bits lie within `radius` of one."""
    return sum(comb(width, flips) for flips in range(radius + 1))


def _shell(width: int, radius: int) -> int:
    """How many values of `width` bits lie at a distance of `radius` from one."""
    return comb(width, radius) if radius >= 0 else 0


def masks(width: int, radius: int) -> tuple[int, ...]:
    """All changes of at most `radius` out of `width` bits, the smallest first."""
    single = [1 << bit for bit in range(width)]
    return tuple(
        sum(chosen) for flips in range(radius + 1) for chosen in combinations(single, flips)
    )


def _groups(prefixes: Sequence[int]) -> Rows:
    """Which tables hold a bit, one row per group of bits that are held alike.

    A group whose tables are among those of another is left out: changing a bit of the other
    does at least as much harm.
    """
    width = max(prefix.bit_length() for prefix in prefixes)
    held = {
        frozenset(table for table, prefix in enumerate(prefixes) if prefix >> bit & 1)
        for bit in range(width)
    }
    rows = [
        [table in group for table in range(len(prefixes))]
        for group in sorted(held, key=sorted)
        if not any(group < other for other in held)
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
        # The dearest shell goes first; between equals, the shortest prefix: it reads the most.
        shells = [
            (_shell(width, radius), -width, table)
            for table, (width, radius) in enumerate(zip(widths, found, strict=True))
        ]
        found[max(shells)[2]] -= 1
    return tuple(found)


def _by_enumeration(prefixes: Sequence[int], k: int, groups: Rows) -> tuple[int, ...]:
    """Lower radii as long as each single way to change k bits stays covered."""
    widths = [prefix.bit_count() for prefix in prefixes]
    ways = combinations_with_replacement(range(len(groups)), k)
    chosen = np.fromiter(chain.from_iterable(ways), dtype=np.intp).reshape(-1, k)
    changed = np.zeros((len(chosen), len(prefixes)), dtype=np.uint8)
    for column in range(k):
        changed += groups[chosen[:, column]]
    changed = np.minimum(changed, np.array(widths, dtype=np.uint8))
    found = [_lower(changed, widths, caution) for caution in CAUTIONS]
    return min(found, key=lambda radii: sum(map(ball, widths, radii)))


def _lower(changed: Rows, widths: Sequence[int], caution: int) -> tuple[int, ...]:
    """Lower radii, from equal ones, until no further one can be lowered.

    `changed` counts, for each way to change k bits, those that fall on each table's prefix.
    """
    enough = int(changed.min(axis=1).max())
    found = [min(enough, width) for width in widths]
    covers = (changed <= np.array(found)).sum(axis=1)
    # From the last to the first, so that of equals the home table is kept.
    lowerable = list(reversed(range(len(widths))))
    while lowerable:
        shells = {table: _shell(widths[table], found[table]) for table in lowerable}
        dear = max(shells.values()) / 2
        harms: dict[int, float] = {}
        for table in [table for table in lowerable if shells[table] >= dear]:
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
