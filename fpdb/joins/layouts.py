"""In which order the bits of fingerprints stand while they are joined, and how to change it."""

from functools import lru_cache

import numpy as np

from fpdb.storage.columns import Rows
from fpdb.tables import Permutation

Layout = tuple[int, ...]  # which bit of a fingerprint, 0 the highest, stands in which place


def sort_rows(rows: Rows) -> Rows:
    """Sort rows by their first word."""
    if len(rows) == 1:
        return [np.sort(rows[0])]
    order = np.argsort(rows[0])
    return [column[order] for column in rows]


def permute(rows: Rows, permutation: Permutation) -> Rows:
    """Move the bits of all rows."""
    if permutation.identity:
        return rows
    if len(rows) == 1:
        return [permutation.apply(rows[0])]
    both = permutation.apply(np.stack(rows, axis=-1))
    return [np.ascontiguousarray(both[:, word]) for word in range(2)]


@lru_cache(maxsize=256)
def layout_of(permutation: Permutation) -> Layout:
    """Give the order in which a permutation puts the bits."""
    return tuple(
        bit for start, length in permutation.blocks for bit in range(start, start + length)
    )


def led_by(front: Layout, layout: Layout) -> Layout:
    """Move some bits to the front; the others stay in their order."""
    moved = set(front)
    return (*front, *(bit for bit in layout if bit not in moved))


def mask_of(layout: Layout, bits: int) -> int:
    """Make a mask of some bits of a fingerprint."""
    return sum(1 << bits - 1 - bit for bit in layout)


@lru_cache(maxsize=256)
def between(current: Layout, wanted: Layout, bits: int) -> Permutation:
    """Make the permutation that takes rows from one layout to another."""
    place = {bit: at for at, bit in enumerate(current)}
    blocks: list[tuple[int, int]] = []
    for bit in wanted:
        at = place[bit]
        if blocks and sum(blocks[-1]) == at:
            blocks[-1] = (blocks[-1][0], blocks[-1][1] + 1)
        else:
            blocks.append((at, 1))
    return Permutation(bits, tuple(blocks))
