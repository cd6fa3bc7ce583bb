"""Move and count the bits of fingerprints, as Python ints and as numpy arrays.

A fingerprint of up to 64 bits is one uint64 of a one-dimensional array. One of 128 bits is a row
of two, the high word first, so that rows in lexicographic order are fingerprints in numeric order.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.errors import InputError, PlanError

WORD = 64
WIDEST = 2 * WORD
# So many bits of a number that is to be sorted may give way to its index.
_INDEX_BITS = 24

Fingerprints = NDArray[np.uint64]
# Of one word however wide: the bits that stay, and those that travel left and right, and how far.
Steps = tuple[int, tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]


class Move(NamedTuple):
    """The bits of one source word that travel by one distance into one target word."""

    source: int
    target: int
    mask: int
    left: int
    right: int


@dataclass(frozen=True)
class Permutation:
    """A reordering of a fingerprint's bits, block by block.

    Blocks are (start, length), counted from the most significant bit of the fingerprint, in the
    order in which they stand in the permuted one.
    """

    bits: int
    blocks: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        end = 0
        for start, length in sorted(self.blocks):
            if start != end or length < 1:
                break
            end += length
        else:
            if 1 <= end == self.bits <= WIDEST:
                return
        raise PlanError(
            f"the blocks {self.blocks} don't tile {self.bits} bits",
            hint=f"Each bit of 1 to {WIDEST} must stand in exactly one block.",
        )

    @cached_property
    def identity(self) -> bool:
        """Whether every bit stays where it is."""
        return self._masks.keys() == {0}

    @cached_property
    def inverse(self) -> "Permutation":
        """The permutation that puts every bit back."""
        landed = []
        position = 0
        for start, length in self.blocks:
            landed.append((start, position, length))
            position += length
        return Permutation(self.bits, tuple((at, length) for _, at, length in sorted(landed)))

    def apply(self, array: Fingerprints) -> Fingerprints:
        """Permute an array of fingerprints; the identity hands back the very array."""
        if self.identity:
            return array
        words = array[..., np.newaxis] if self.bits <= WORD else array
        result = np.zeros_like(words)
        for source, target, mask, left, right in self._moves:
            moved = words[..., source] & np.uint64(mask)
            if left:
                moved <<= np.uint64(left)
            elif right:
                moved >>= np.uint64(right)
            result[..., target] |= moved
        return result[..., 0] if self.bits <= WORD else result

    def invert(self, array: Fingerprints) -> Fingerprints:
        """Put an array of permuted fingerprints back; the identity hands back the very array."""
        return self.inverse.apply(array)

    def apply_one(self, fingerprint: int) -> int:
        """Permute one fingerprint."""
        if self.identity:
            return fingerprint
        still, left, right = self.steps
        result = fingerprint & still
        for mask, by in left:
            result |= (fingerprint & mask) << by
        for mask, by in right:
            result |= (fingerprint & mask) >> by
        return result

    def invert_one(self, permuted: int) -> int:
        """Put one permuted fingerprint back."""
        return self.inverse.apply_one(permuted)

    @cached_property
    def _masks(self) -> dict[int, int]:
        """Which bits travel how far to the left; blocks that travel equally far are one mask."""
        masks: dict[int, int] = {}
        position = 0
        for start, length in self.blocks:
            mask = ((1 << length) - 1) << (self.bits - start - length)
            masks[start - position] = masks.get(start - position, 0) | mask
            position += length
        return masks

    @cached_property
    def steps(self) -> Steps:
        """The bits that stay, those that travel left, and those that travel right."""
        masks = self._masks
        left = tuple((mask, by) for by, mask in masks.items() if by > 0)
        right = tuple((mask, -by) for by, mask in masks.items() if by < 0)
        return masks.get(0, 0), left, right

    @cached_property
    def _moves(self) -> tuple[Move, ...]:
        words = 1 if self.bits <= WORD else 2
        moves = []
        for by, mask in self._masks.items():
            for source in range(words):
                for target in range(words):
                    here = _word(mask, words - 1 - source)
                    there = _word(_shift(mask, by), words - 1 - target)
                    local = by + WORD * (target - source)
                    crossing = here & _shift(there, -local)
                    if crossing:
                        moves.append(Move(source, target, crossing, max(local, 0), max(-local, 0)))
        return tuple(moves)


def _shift(value: int, left: int) -> int:
    return value << left if left >= 0 else value >> -left


def _word(value: int, index: int) -> int:
    return value >> WORD * index & ((1 << WORD) - 1)


def distances(a: Fingerprints, b: Fingerprints, bits: int) -> NDArray[np.uint8]:
    """Hamming distances of two arrays, elementwise and broadcast against each other.

    The width has to be said: two columns are one fingerprint of 128 bits or two of 64.
    """
    counts: NDArray[np.uint8] = np.bitwise_count(a ^ b)
    return counts if bits <= WORD else counts[..., 0] + counts[..., 1]


def to_array(fingerprints: Iterable[int], bits: int) -> Fingerprints:
    """Gather fingerprints into an array."""
    values = list(fingerprints)
    for value in (min(values, default=0), max(values, default=0)):
        if not 0 <= value < 1 << bits:
            raise InputError(
                f"{value:#x} is no fingerprint of {bits} bits",
                hint=f"Give whole numbers from 0 to 2**{bits} - 1.",
            )
    if bits <= WORD:
        return np.array(values, dtype=np.uint64)
    packed = b"".join(value.to_bytes(16, "big") for value in values)
    return np.frombuffer(packed, dtype=">u8").astype(np.uint64).reshape(-1, 2)


def to_ints(array: Fingerprints, bits: int) -> list[int]:
    """Take an array of fingerprints apart into Python ints."""
    if bits <= WORD:
        return [int(value) for value in array.tolist()]
    return [high << WORD | low for high, low in array.tolist()]


def order(array: Fingerprints, *ties: NDArray[Any]) -> NDArray[np.intp]:
    """Find the indices that sort an array; equal fingerprints by `ties`, then as they came."""
    words = [array] if array.ndim == 1 else [array[:, 0], array[:, 1]]
    # A stable sort of everything takes far longer than a quick one and another of the ties.
    found, tied = _rough_order(words[0])
    tied[:-1] |= tied[1:]
    at = tied.nonzero()[0]
    if len(at):
        rows = found[at]
        columns = [column[rows] for column in (*words, *ties)]
        found[at] = rows[np.lexsort((rows, *columns[::-1]))]
    return found


def _rough_order(column: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Find indices that sort numbers by their high bits, and mark those like the one before."""
    below = max(len(column) - 1, 1).bit_length()
    if not 0 < len(column) <= 1 << _INDEX_BITS:
        found = np.argsort(column)
        return found, _repeats(column[found])
    # To sort numbers that carry their index takes a fraction of the time of an index sort.
    mask = np.uint64((1 << below) - 1)
    keys = column << np.uint64(WORD - (int(column.max()).bit_length() or 1))
    keys &= ~mask
    keys |= np.arange(len(column), dtype=np.uint64)
    keys.sort()
    found = (keys & mask).astype(np.intp)
    keys >>= np.uint64(below)
    return found, _repeats(keys)


def distinct(array: Fingerprints) -> Fingerprints:
    """Sort an array, and leave out what stands twice."""
    if array.ndim == 1:
        ordered = np.sort(array)
        return ordered[~_repeats(ordered)]
    ordered = array[order(array)]
    return ordered[~(_repeats(ordered[:, 0]) & _repeats(ordered[:, 1]))]


def _repeats(column: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Mark what equals the one before."""
    marks = np.zeros(len(column), np.bool_)
    np.equal(column[1:], column[:-1], out=marks[1:])
    return marks
