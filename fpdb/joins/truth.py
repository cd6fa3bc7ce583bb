"""The exact Jaccard similarity of all pairs of texts that reach a threshold, and who is equal.

Of two sets as similar as the threshold, at least one of the rarest elements of either is in both,
so only these few are looked up, and only what they lead to is compared as a whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fpdb.errors import InputError

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
Bools = NDArray[np.bool_]

# What is gathered at once, and how much is taken on at all: it is held in memory.
_GATHERED = 1 << 21
MOST_ELEMENTS = 1 << 25
MOST_PAIRS = 1 << 24
# Jaccard similarities are fractions; a threshold that is one of them must let it pass.
_ROUNDING = 1e-9
_ODD = np.uint64(0x9E3779B97F4A7C15)
_OTHER = np.uint64(0xBF58476D1CE4E5B9)


@dataclass(frozen=True, eq=False)
class Truth:
    """What is known of pairs of documents, which are numbers below `documents`.

    `codes` names pairs in ascending order, each as the smaller number times `documents` plus the
    larger; `jaccards` belongs to them. Documents of the same class are equal; their pairs may
    be missing.
    """

    documents: int
    codes: I64
    jaccards: NDArray[np.float64]
    classes: I64

    def pairs(self) -> tuple[I64, I64]:
        """Give the two documents of each pair."""
        first, second = np.divmod(self.codes, max(self.documents, 1))
        return first, second

    def equal(self, first: I64, second: I64) -> Bools:
        """Tell which pairs are of equal documents."""
        same: Bools = self.classes[first] == self.classes[second]
        return same

    def equal_pairs(self) -> int:
        """Count the pairs of equal documents."""
        sizes = np.bincount(self.classes)
        return int((sizes * (sizes - 1) // 2).sum())

    def look_up(self, first: I64, second: I64) -> NDArray[np.float64]:
        """Give the similarity of pairs, 0 where none is known."""
        wanted = encode(first, second, self.documents)
        if not len(self.codes):
            return np.zeros(len(wanted))
        places = np.minimum(self.codes.searchsorted(wanted), len(self.codes) - 1)
        return np.where(self.codes[places] == wanted, self.jaccards[places], 0.0)


def encode(first: I64, second: I64, documents: int) -> I64:
    """Name pairs by one number each, in whatever order their documents come."""
    return np.minimum(first, second) * documents + np.maximum(first, second)


def check_size(elements: int) -> None:
    """Raise if there are more elements than memory should hold."""
    if elements > MOST_ELEMENTS:
        raise InputError(
            f"found more than {MOST_ELEMENTS:,} shingles, too many to compare all texts with "
            "each other",
            hint="evaluate a part of the documents, or give a table of pairs",
        )


@dataclass(frozen=True, eq=False)
class _Sets:
    """Sets of elements that are in two sets or more, as numbers that grow with their frequency.

    Set i has the elements from `starts[i]` to `starts[i + 1]`, in ascending order. `sizes` counts
    all elements, also those that are in no other set.
    """

    elements: NDArray[np.int32]
    starts: I64
    sizes: I64
    distinct: int


def exact_truth(hashes: U64, counts: I64, at_least: float, texts: I64) -> Truth:
    """Compute the similarity of all pairs of sets that reach a threshold.

    `hashes` are the elements of one set after the other, repeated or not; `counts` says how many
    belong to each. An empty set resembles nothing, and equals those with the same number in
    `texts`.
    """
    check_size(len(hashes))
    elements, owners = _distinct(hashes, counts)
    classes = _classes(elements, owners, texts)
    # Of equal sets one is compared, and the others follow it.
    first = np.full(len(counts), -1, np.int64)
    first[classes[::-1]] = np.arange(len(counts))[::-1]
    chosen = first[classes] == np.arange(len(counts))
    kept = chosen[owners]
    sets = _ranked(elements[kept], owners[kept], len(counts))
    parts = list(_similar(sets, at_least))
    codes = np.concatenate([part[0] for part in parts]) if parts else np.empty(0, np.int64)
    jaccards = np.concatenate([part[1] for part in parts]) if parts else np.empty(0)
    codes, jaccards = _sorted(codes, jaccards)
    return Truth(len(counts), *_expanded(codes, jaccards, classes), classes)


def _distinct(hashes: U64, counts: I64) -> tuple[U64, I64]:
    """Drop what a set has twice; give the elements in ascending order, with their sets."""
    owners = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    order = np.argsort(hashes, kind="stable")
    hashes, owners = hashes[order], owners[order]
    fresh = np.ones(len(hashes), np.bool_)
    fresh[1:] = (hashes[1:] != hashes[:-1]) | (owners[1:] != owners[:-1])
    return hashes[fresh], owners[fresh]


def _classes(elements: U64, owners: I64, texts: I64) -> I64:
    """Give the same number to equal sets, and only to them."""
    # Sums of scattered numbers tell sets apart as well as a digest of 128 bits would.
    spread = (elements ^ (elements >> np.uint64(31))) * _ODD
    spread ^= spread >> np.uint64(29)
    count = len(texts)
    digests = np.zeros((3, count), np.uint64)
    order = np.argsort(owners, kind="stable")
    sizes = np.bincount(owners, minlength=count)
    there = np.flatnonzero(sizes)
    if len(there):
        starts = (np.cumsum(sizes) - sizes)[there]
        digests[0, there] = np.add.reduceat(spread[order], starts)
        spread = (spread ^ (spread >> np.uint64(32))) * _OTHER
        digests[1, there] = np.add.reduceat(spread[order] ^ spread[order] >> np.uint64(30), starts)
    digests[2] = sizes
    empty = sizes == 0
    digests[0, empty] = texts[empty].astype(np.uint64)
    order = np.lexsort(digests)
    fresh = np.zeros(count, np.bool_)
    fresh[1:] = (digests[:, order[1:]] != digests[:, order[:-1]]).any(axis=0)
    classes = np.empty(count, np.int64)
    classes[order] = np.cumsum(fresh)
    return classes


def _ranked(elements: U64, owners: I64, count: int) -> _Sets:
    """Rank the elements by how many sets have them, and gather them by set."""
    sizes = np.bincount(owners, minlength=count)
    fresh = np.ones(len(elements), np.bool_)
    fresh[1:] = elements[1:] != elements[:-1]
    names = np.cumsum(fresh) - 1
    frequencies = np.bincount(names) if len(names) else np.empty(0, np.int64)
    shared = frequencies > 1
    ranks = np.zeros(len(frequencies), np.int64)
    ranks[np.argsort(np.where(shared, frequencies, np.iinfo(np.int64).max), kind="stable")] = (
        np.arange(len(frequencies))
    )
    kept = shared[names]
    distinct = int(shared.sum())
    codes = np.sort(owners[kept] * max(distinct, 1) + ranks[names[kept]])
    starts = codes.searchsorted(np.arange(count + 1) * max(distinct, 1))
    return _Sets((codes % max(distinct, 1)).astype(np.int32), starts, sizes, distinct)


def _similar(sets: _Sets, at_least: float) -> Iterator[tuple[I64, NDArray[np.float64]]]:
    """Give the pairs of different sets that reach the threshold, some perhaps twice."""
    count = len(sets.sizes)
    there = np.diff(sets.starts)
    needed = np.ceil(at_least * sets.sizes - _ROUNDING).astype(np.int64)
    # A set's own elements come first, for they are the rarest, but lead nowhere.
    leading = np.clip(sets.sizes - needed + 1 - (sets.sizes - there), 0, there)
    owners = np.repeat(np.arange(count), leading)
    before = np.cumsum(leading) - leading
    places = np.arange(len(owners)) - np.repeat(before - sets.starts[:-1], leading)
    elements = sets.elements[places]
    posted = np.argsort(elements, kind="stable")  # within an element by set
    listed = owners[posted]
    ends = np.cumsum(np.bincount(elements, minlength=sets.distinct))[elements]
    position = np.empty(len(posted), np.int64)
    position[posted] = np.arange(len(posted))
    following = ends - position - 1
    total = np.cumsum(following)
    marks = np.zeros(sets.distinct, np.bool_)
    begin = 0
    while begin < len(owners):
        done = int(total[begin - 1]) if begin else 0
        end = max(begin + 1, int(total.searchsorted(done + _GATHERED, "right")))
        lengths = following[begin:end]
        inner = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        others = listed[np.repeat(position[begin:end] + 1, lengths) + inner]
        codes = np.sort(np.repeat(owners[begin:end], lengths) * count + others)
        fresh = np.ones(len(codes), np.bool_)
        fresh[1:] = codes[1:] != codes[:-1]
        yield from _verified(sets, marks, codes[fresh], at_least)
        begin = end


def _verified(
    sets: _Sets, marks: Bools, codes: I64, at_least: float
) -> Iterator[tuple[I64, NDArray[np.float64]]]:
    """Compare pairs as a whole; `marks` is room for one set, and left empty."""
    count = len(sets.sizes)
    first, second = np.divmod(codes, count)
    small = np.minimum(sets.sizes[first], sets.sizes[second])
    large = np.maximum(sets.sizes[first], sets.sizes[second])
    able = small >= at_least * large - _ROUNDING
    first, second, codes = first[able], second[able], codes[able]
    edges = np.flatnonzero(np.diff(first, prepend=-1, append=-1)).tolist() if len(first) else []
    for begin, end in pairwise(edges):
        one = int(first[begin])
        own = sets.elements[sets.starts[one] : sets.starts[one + 1]]
        marks[own] = True
        others = second[begin:end]
        common = np.empty(len(others), np.int64)
        for part in _parts(sets.starts[others + 1] - sets.starts[others]):
            common[part] = _common(sets, marks, others[part])
        marks[own] = False
        jaccards = common / (sets.sizes[one] + sets.sizes[others] - common)
        reached = jaccards >= at_least - _ROUNDING
        if reached.any():
            yield codes[begin:end][reached], jaccards[reached]


def _parts(lengths: I64) -> Iterator[slice]:
    """Cut into slices that are gathered at once."""
    total = np.cumsum(lengths)
    begin = 0
    while begin < len(lengths):
        done = int(total[begin - 1]) if begin else 0
        end = max(begin + 1, int(total.searchsorted(done + _GATHERED, "right")))
        yield slice(begin, end)
        begin = end


def _common(sets: _Sets, marks: Bools, others: I64) -> I64:
    """Count the marked elements of each set."""
    begins = sets.starts[others]
    lengths = sets.starts[others + 1] - begins
    before = np.cumsum(lengths) - lengths
    places = np.arange(int(lengths.sum())) + np.repeat(begins - before, lengths)
    marked = np.concatenate([[0], np.cumsum(marks[sets.elements[places]])])
    found: I64 = marked[before + lengths] - marked[before]
    return found


def _expanded(
    codes: I64, jaccards: NDArray[np.float64], classes: I64
) -> tuple[I64, NDArray[np.float64]]:
    """Give each pair of sets for all that equal them."""
    count = len(classes)
    if not len(codes):
        return codes, jaccards
    members = np.argsort(classes, kind="stable")
    sizes = np.bincount(classes)
    begins = np.cumsum(sizes) - sizes
    one, other = (classes[side] for side in np.divmod(codes, count))
    copies = sizes[one] * sizes[other]
    if copies.sum() > MOST_PAIRS:
        raise InputError(
            f"found {int(copies.sum()):,} similar pairs, expected at most {MOST_PAIRS:,}",
            hint="evaluate a part of the documents, with fewer copies",
        )
    inner = np.arange(int(copies.sum())) - np.repeat(np.cumsum(copies) - copies, copies)
    up, down = np.divmod(inner, np.repeat(sizes[other], copies))
    first = members[np.repeat(begins[one], copies) + up]
    second = members[np.repeat(begins[other], copies) + down]
    return _sorted(encode(first, second, count), np.repeat(jaccards, copies))


def _sorted(codes: I64, values: NDArray[np.float64]) -> tuple[I64, NDArray[np.float64]]:
    """Sort pairs and drop what is there twice."""
    order = np.argsort(codes, kind="stable")
    codes, values = codes[order], values[order]
    fresh = np.ones(len(codes), np.bool_)
    fresh[1:] = codes[1:] != codes[:-1]
    return codes[fresh], values[fresh]
