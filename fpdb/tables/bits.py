"""Move and count the bits of fingerprints, as Python ints and as numpy arrays.

A fingerprint of up to 64 bits is one uint64 of a one-dimensional array. One of 128 bits is a row
of two, the high word first, so that rows in lexicographic order are fingerprints in numeric order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Column, Marks, Rows, differs
from fpdb.errors import PlanError

_WORD = 64
_WIDEST = 2 * _WORD
# Up to this many of the lowest bits of a number that is to be sorted may give way to its index.
_INDEX_BITS = 24

Fingerprints = NDArray[np.uint64]
Distances = NDArray[np.uint8]


@dataclass(frozen=True)
class Permutation:
    """A reordering of a fingerprint's bits, block by block.

    Blocks are (start, length), counted from the most significant bit of the fingerprint, in the
    order that they have in the permuted one.
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
            if 1 <= end == self.bits <= _WIDEST:
                return
        raise PlanError(
            f"the blocks {self.blocks} don't tile {self.bits} bits",
            hint=f"each bit of 1 to {_WIDEST} must be in exactly one block",
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
        """Permute an array of fingerprints; the identity returns the array itself."""
        if self.identity:
            return array
        if len(array) == 1:  # in a fifth of the time
            return to_array([self.apply_one(to_ints(array)[0])], self.bits)
        permuted = np.zeros_like(array)
        for *masks, by in self.moves:
            if self.bits <= _WORD:
                part = array & masks[0]
                permuted |= part << by if by < _WORD else part >> 2 * _WORD - by
                continue
            high, low = array[:, 0] & masks[0], array[:, 1] & masks[1]
            if by & _WORD:
                high, low = low, high
            left = by & np.uint64(_WORD - 1)
            # Bits that leave a word at the left enter the other one, so bits move right as well.
            permuted[:, 0] |= (high << left | low >> _WORD - left) if left else high
            permuted[:, 1] |= (low << left | high >> _WORD - left) if left else low
        return permuted

    def apply_one(self, fingerprint: int) -> int:
        """Permute one fingerprint."""
        result = 0
        for by, mask in self._masks.items():
            part = fingerprint & mask
            result |= part << by if by >= 0 else part >> -by
        return result

    @cached_property
    def _masks(self) -> dict[int, int]:
        """The bits that travel each distance to the left; one mask for blocks that go together."""
        masks: dict[int, int] = {}
        position = 0
        for start, length in self.blocks:
            mask = ((1 << length) - 1) << (self.bits - start - length)
            masks[start - position] = masks.get(start - position, 0) | mask
            position += length
        return masks

    @cached_property
    def moves(self) -> NDArray[np.uint64]:
        """The masks of bits that go together, as two words, and how far they go to the left.

        Of a fingerprint in one word, both words of a mask are the same.
        """
        low = (1 << _WORD) - 1
        wide = self.bits > _WORD
        return np.array(
            [
                (mask >> _WORD if wide else mask, mask & low, by % (2 * _WORD))
                for by, mask in self._masks.items()
            ],
            np.uint64,
        )


def distances(a: Fingerprints, b: Fingerprints, bits: int) -> Distances:
    """Return the Hamming distances of two arrays, elementwise and broadcast against each other.

    The width is needed: two columns are one fingerprint of 128 bits or two of 64.
    """
    counts: Distances = np.bitwise_count(a ^ b)
    return counts if bits <= _WORD else counts[..., 0] + counts[..., 1]


def to_array(fingerprints: Iterable[int], bits: int) -> Fingerprints:
    if bits <= _WORD:
        return np.array(list(fingerprints), dtype=np.uint64)
    packed = b"".join(value.to_bytes(16, "big") for value in fingerprints)
    return np.frombuffer(packed, dtype=">u8").astype(np.uint64).reshape(-1, 2)


def to_ints(array: Fingerprints) -> list[int]:
    numbers: list[Any] = array.tolist()
    return numbers if array.ndim == 1 else [high << _WORD | low for high, low in numbers]


def as_words(fingerprints: Column) -> Rows:
    """Split fingerprints into columns of 64 bits, the high word first."""
    if fingerprints.ndim == 1:
        return [fingerprints]
    return [np.ascontiguousarray(fingerprints[:, word]) for word in range(fingerprints.shape[1])]


def of_words(words: Sequence[Column]) -> Column:
    """Return the fingerprints whose words are these columns."""
    return words[0] if len(words) == 1 else np.stack(words, axis=-1)


def order(array: Fingerprints, *ties: Column) -> NDArray[np.intp]:
    """Return the indices that sort an array; equal fingerprints by `ties`, then as they came."""
    if len(array) < 2:
        return np.arange(len(array))
    words = as_words(array)
    # A stable sort of everything takes far longer than a quick one and another of the ties.
    sequence, tied = _rough_order(words[0], alone=len(words) + len(ties) == 1)
    tied[:-1] |= tied[1:]
    at = tied.nonzero()[0]
    if len(at):
        rows = sequence[at]
        columns = [column[rows] for column in (*words, *ties)]
        sequence[at] = rows[np.lexsort((rows, *columns[::-1]))]
    return sequence


def _rough_order(column: Column, *, alone: bool) -> tuple[NDArray[np.intp], Marks]:
    """Return indices that sort numbers by their high bits, and mark those like the one before.

    Numbers that are sorted `alone`, by all bits and equal ones as they came, have no marks.
    """
    below = max(len(column) - 1, 1).bit_length()
    if not 0 < len(column) <= 1 << _INDEX_BITS:
        sequence = np.argsort(column)
        return sequence, _tied(column[sequence])
    # Sorting numbers that carry their index takes a fraction of the time of an index sort.
    mask = np.uint64((1 << below) - 1)
    bits = int(column.max()).bit_length() or 1
    keys = column << np.uint64(_WORD - bits)
    keys &= ~mask
    keys |= np.arange(len(column), dtype=np.uint64)
    keys.sort()
    sequence = (keys & mask).astype(np.intp)
    if alone and bits + below <= _WORD:
        return sequence, np.empty(0, np.bool_)
    keys >>= np.uint64(below)
    return sequence, _tied(keys)


def _tied(numbers: Column) -> Marks:
    marks = np.zeros(len(numbers), np.bool_)
    np.equal(numbers[1:], numbers[:-1], out=marks[1:])
    return marks


def distinct(array: Fingerprints) -> Fingerprints:
    """Sort an array, and drop repeated fingerprints."""
    if len(array) < 2:
        return array
    ordered = np.sort(array) if array.ndim == 1 else array[order(array)]
    return ordered[differs(*as_words(ordered))]
