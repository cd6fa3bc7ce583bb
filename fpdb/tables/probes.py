"""Decide which flipped prefixes find every fingerprint within k.

A table is searched with radius r: it is probed with its prefix as it is, and with every change
of at most r bits. Radius -1 skips the table. Radii cover k if no way to change k bits of a
fingerprint changes more than r bits in the prefix of every table.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, combinations, combinations_with_replacement
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.errors import PlanError

# With more probes, reading all of the home table is the better query.
MOST_PROBES = 20_000
# Beyond this many counts, trying all ways to change k bits takes longer than it saves.
MOST_COUNTS = 8_000_000


class TableProbes(NamedTuple):
    """The probes of one query in one table: its prefix, changed by each of the masks.

    A mask changes the prefix as a number: bit 0 is the last bit of the prefix.
    """

    table: int
    masks: tuple[int, ...]


@lru_cache(64)
def find_probes(prefixes: tuple[int, ...], k: int) -> tuple[TableProbes, ...]:
    """Choose few probes that leave nothing within k out, or raise PlanError if they are too many.

    The prefixes of the tables are masks of the bits of the unpermuted fingerprint.
    """
    widths = [prefix.bit_count() for prefix in prefixes]
    radii = _find_radii(prefixes, widths, k)
    count = _count_probes(widths, radii)
    if count > MOST_PROBES:
        raise PlanError(
            f"k = {k} takes {count:,} probes on these tables; at most {MOST_PROBES:,} are made",
            hint="use a smaller k, or build tables for a larger one",
        )
    return tuple(
        TableProbes(table, _changes(width, radius))
        for table, (width, radius) in enumerate(zip(widths, radii, strict=True))
        if radius >= 0
    )


def _count_probes(widths: Sequence[int], radii: Sequence[int]) -> int:
    return sum(
        comb(width, flips)
        for width, radius in zip(widths, radii, strict=True)
        for flips in range(radius + 1)
    )


def _changes(width: int, radius: int) -> tuple[int, ...]:
    """Return all masks of at most `radius` out of `width` bits, those with few bits first."""
    single = [1 << bit for bit in range(width)]
    return tuple(
        sum(chosen) for flips in range(radius + 1) for chosen in combinations(single, flips)
    )


def _find_radii(prefixes: Sequence[int], widths: Sequence[int], k: int) -> list[int]:
    longest = max(prefix.bit_length() for prefix in prefixes)
    # Bits that are in the same prefixes are alike. (np.unique would load numpy.ma for 15 ms.)
    marks = {tuple(prefix >> bit & 1 for prefix in prefixes) for bit in range(longest)}
    groups = np.array(sorted(marks), np.uint8)
    shared = int(groups.sum(axis=1).max())
    ways = comb(len(groups) + k - 1, k)
    if shared == 1 or k == 0 or ways * len(prefixes) > MOST_COUNTS:
        return _by_sum(widths, k, shared)
    chosen = chain.from_iterable(combinations_with_replacement(range(len(groups)), k))
    changed = groups[np.fromiter(chosen, np.intp).reshape(ways, k)].sum(axis=1, dtype=np.uint8)
    changed = np.minimum(changed, np.array(widths, np.uint8))
    choices = [_by_sum(widths, k, shared), _by_enumeration(changed, widths)]
    return min(choices, key=lambda radii: _count_probes(widths, radii))


def _by_sum(widths: Sequence[int], k: int, shared: int) -> list[int]:
    """Lower radii as long as their sum alone proves that they cover.

    A changed bit is in at most `shared` prefixes. To escape a table takes r + 1 of them, so the
    sum of all r + 1 being over k * shared leaves no escape.
    """
    needed = k * shared + 1
    for radius in range(k + 1):
        radii = [min(radius, width) for width in widths]
        if sum(radii) + len(radii) >= needed:
            break
    for _ in range(sum(radii) + len(radii) - needed):
        # The table with the most probes at its radius is lowered; of equals, the one with the
        # shortest prefix: it reads the most.
        flips = [
            (comb(width, radius) if radius >= 0 else 0, -width, table)
            for table, (width, radius) in enumerate(zip(widths, radii, strict=True))
        ]
        radii[max(flips)[2]] -= 1
    return radii


def _by_enumeration(changed: NDArray[np.uint8], widths: Sequence[int]) -> list[int]:
    """Lower radii, from equal ones, as long as every way to change k bits stays covered.

    `changed` counts, for each way, the bits that fall on each table's prefix. The last table is
    lowered as far as possible, then the one before.
    """
    enough = int(changed.min(axis=1).max())
    radii = [min(enough, width) for width in widths]
    covers = (changed <= np.array(radii)).sum(axis=1)
    for table in reversed(range(len(widths))):
        while radii[table] >= 0:
            escaping = changed[:, table] == radii[table]
            if (covers[escaping] == 1).any():
                break
            covers -= escaping
            radii[table] -= 1
    return radii
