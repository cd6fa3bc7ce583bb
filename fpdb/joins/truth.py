"""The truth about a corpus: which pairs of texts are similar, computed exactly or from a list.

If two sets are as similar as a threshold, they share at least one of the rarest elements of either.
So only these few elements are looked up, and only sets that share one are compared in full.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Column, Marks, Places, differs, joined, portions, spans, unique
from fpdb.documents.similarity import Shares
from fpdb.errors import InputError
from fpdb.fingerprint import Recipe
from fpdb.models import Key

KnownPair = tuple[Key, Key, float | bool]

# Elements that are gathered at once, and limits of what is held in memory.
_GATHERED = 1 << 21
MOST_ELEMENTS = 1 << 25
MOST_PAIRS = 1 << 24
# Jaccard similarities are fractions; a threshold that equals one of them must let it pass.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Truth:
    """The known similarities of pairs of documents, which are numbers below `documents`.

    `codes` names pairs in ascending order, each as the smaller number times `documents` plus the
    larger; `jaccards` has their similarities. Documents of the same class are equal; their pairs
    may be missing.
    """

    documents: int
    codes: Places
    jaccards: Shares
    classes: Places

    def pairs(self) -> tuple[Places, Places]:
        """Return the two documents of each pair."""
        first, second = np.divmod(self.codes, max(self.documents, 1))
        return first, second

    def equal(self, first: Places, second: Places) -> Marks:
        """Mark the pairs of equal documents."""
        same: Marks = self.classes[first] == self.classes[second]
        return same

    def equal_pairs(self) -> int:
        """Count the pairs of equal documents."""
        sizes = np.bincount(self.classes)
        return int((sizes * (sizes - 1) // 2).sum())

    def look_up(self, first: Places, second: Places) -> Shares:
        """Return the similarity of pairs, 0 where none is known."""
        wanted = _encode(first, second, self.documents)
        if not len(self.codes):
            return np.zeros(len(wanted))
        places = np.minimum(self.codes.searchsorted(wanted), len(self.codes) - 1)
        return np.where(self.codes[places] == wanted, self.jaccards[places], 0.0)


def shingle_truth(recipe: Recipe, texts: Sequence[str], at_least: float) -> Truth:
    """Compute the similarity of all pairs from the shingles that a recipe's cleaning leaves."""
    shingles: list[Column] = []
    total = 0
    for text in texts:
        shingles.append(recipe.shingles(text))
        total += len(shingles[-1])
        if total > MOST_ELEMENTS:
            raise InputError(
                f"found more than {MOST_ELEMENTS:,} shingles, too many to compare all texts with "
                "each other",
                hint="evaluate a part of the documents, or give a table of pairs",
            )
    counts = np.array([len(own) for own in shingles], np.int64)
    hashes = np.concatenate([np.empty(0, np.uint64), *shingles])
    return exact_truth(hashes, counts, at_least, classes_of(texts))


def listed_truth(keys: Sequence[Key], texts: Sequence[str], pairs: Iterable[KnownPair]) -> Truth:
    """Take the similarity of pairs from a list; a pair may be listed again with the same value."""
    numbers = {key: number for number, key in enumerate(keys)}
    known: dict[int, float] = {}
    for one, other, value in pairs:
        for key in (one, other):
            if key not in numbers:
                raise InputError(
                    f"a pair names the document {key!r}, which isn't there",
                    hint="the keys of the pairs must be those of the documents",
                )
        jaccard = float(value)
        if not 0 <= jaccard <= 1:
            raise InputError(
                f"found the similarity {value!r} of {one!r} and {other!r}, expected 0 to 1"
            )
        first, second = sorted((numbers[one], numbers[other]))
        code = first * len(keys) + second
        if known.setdefault(code, jaccard) != jaccard:
            raise InputError(
                f"found two similarities of {one!r} and {other!r}: {known[code]:g}, {jaccard:g}"
            )
    codes = np.array(sorted(known), np.int64)
    jaccards = np.array([known[code] for code in sorted(known)], np.float64)
    return Truth(len(keys), codes, jaccards, classes_of(texts))


def classes_of(texts: Sequence[str]) -> Places:
    """Return the same number for texts that are equal but for white space."""
    numbers: dict[str, int] = {}
    bare = ("".join(text.split()) for text in texts)
    return np.array([numbers.setdefault(text, len(numbers)) for text in bare], np.int64)


def _encode(first: Places, second: Places, documents: int) -> Places:
    """Name each pair by one number, whatever the order of its documents."""
    return np.minimum(first, second) * documents + np.maximum(first, second)


@dataclass(frozen=True, eq=False)
class _Sets:
    """Sets of numbered elements; a higher number is a more frequent element.

    Set i has the elements from `starts[i]` to `starts[i + 1]`, in ascending order.
    """

    elements: NDArray[np.int32]
    starts: Places
    sizes: Places
    distinct: int


def exact_truth(hashes: Column, counts: Places, at_least: float, texts: Places) -> Truth:
    """Compute the similarity of all pairs of sets that reach a threshold.

    `hashes` has the elements of one set after the other, repeated or not; `counts` how many belong
    to each set. An empty set resembles nothing, and equals those with the same number in `texts`.
    """
    elements, owners = _distinct_elements(hashes, counts)
    classes = _classes(elements, owners, texts)
    # Of equal sets one is compared, for all of them.
    first = np.full(len(counts), -1, np.int64)
    first[classes[::-1]] = np.arange(len(counts))[::-1]
    kept = (first[classes] == np.arange(len(counts)))[owners]
    sets = _ranked(elements[kept], owners[kept], len(counts))
    codes, jaccards = joined([(np.empty(0, np.int64), np.empty(0)), *_similar(sets, at_least)])
    return Truth(len(counts), *_expanded(codes, jaccards, classes), classes)


def _distinct_elements(hashes: Column, counts: Places) -> tuple[Column, Places]:
    """Return the distinct elements of each set, in ascending order, with their sets."""
    owners = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    order = np.argsort(hashes, kind="stable")
    hashes, owners = hashes[order], owners[order]
    fresh = differs(hashes, owners)
    return hashes[fresh], owners[fresh]


def _classes(elements: Column, owners: Places, texts: Places) -> Places:
    """Return the same number for equal sets, and for empty ones with the same number in `texts`."""
    elements = elements[np.argsort(owners, kind="stable")]
    ends = np.cumsum(np.bincount(owners, minlength=len(texts))).tolist()
    numbers: dict[bytes | int, int] = {}
    classes: list[int] = []
    start = 0
    for end, text in zip(ends, texts.tolist(), strict=True):
        own = elements[start:end].tobytes()
        name = blake2b(own, digest_size=16).digest() if own else text
        classes.append(numbers.setdefault(name, len(numbers)))
        start = end
    return np.array(classes, np.int64)


def _ranked(elements: Column, owners: Places, count: int) -> _Sets:
    """Rank the elements by how many sets have them, and group them by set."""
    names = np.cumsum(differs(elements)) - 1
    frequencies = np.bincount(names)
    distinct = len(frequencies)
    ranks = np.empty(distinct, np.int64)
    ranks[np.argsort(frequencies, kind="stable")] = np.arange(distinct)
    codes = np.sort(owners * distinct + ranks[names])
    sizes = np.bincount(owners, minlength=count)
    starts = np.append(0, np.cumsum(sizes))
    return _Sets((codes % max(distinct, 1)).astype(np.int32), starts, sizes, distinct)


def _similar(sets: _Sets, at_least: float) -> Iterator[tuple[Places, Shares]]:
    """Yield the pairs of different sets that reach the threshold, some perhaps twice."""
    count = len(sets.sizes)
    needed = np.ceil(at_least * sets.sizes - _ROUNDING).astype(np.int64)
    leading = np.minimum(sets.sizes - needed + 1, sets.sizes)
    owners = np.repeat(np.arange(count), leading)
    elements = sets.elements[spans(sets.starts[:-1], leading)]
    posted = np.argsort(elements, kind="stable")  # by element, then by set
    listed = owners[posted]
    ends = np.cumsum(np.bincount(elements, minlength=sets.distinct))[elements]
    position = np.empty(len(posted), np.int64)
    position[posted] = np.arange(len(posted))
    following = ends - position - 1
    marks = np.zeros(sets.distinct, np.bool_)
    for some in portions(following, _GATHERED):
        lengths = following[some]
        others = listed[spans(position[some] + 1, lengths)]
        codes = unique(np.repeat(owners[some], lengths) * count + others)
        yield from _compared(sets, marks, codes, at_least)


def _compared(
    sets: _Sets, marks: Marks, codes: Places, at_least: float
) -> Iterator[tuple[Places, Shares]]:
    """Compare pairs in full; `marks` is scratch space for one set, all False on return."""
    count = len(sets.sizes)
    first, second = np.divmod(codes, count)
    edges = np.flatnonzero(np.diff(first, prepend=-1, append=-1)).tolist()
    for begin, end in pairwise(edges):
        one = int(first[begin])
        own = sets.elements[sets.starts[one] : sets.starts[one + 1]]
        marks[own] = True
        others = second[begin:end]
        common = np.empty(len(others), np.int64)
        for part in portions(sets.starts[others + 1] - sets.starts[others], _GATHERED):
            common[part] = _common(sets, marks, others[part])
        marks[own] = False
        jaccards = common / (sets.sizes[one] + sets.sizes[others] - common)
        reached = jaccards >= at_least - _ROUNDING
        if reached.any():
            yield codes[begin:end][reached], jaccards[reached]


def _common(sets: _Sets, marks: Marks, others: Places) -> Places:
    """Count the marked elements of each set."""
    begins = sets.starts[others]
    lengths = sets.starts[others + 1] - begins
    ends = np.cumsum(lengths)
    marked = np.concatenate([[0], np.cumsum(marks[sets.elements[spans(begins, lengths)]])])
    found: Places = marked[ends] - marked[ends - lengths]
    return found


def _expanded(codes: Places, jaccards: Shares, classes: Places) -> tuple[Places, Shares]:
    """Repeat each pair of sets for all sets that equal them."""
    count = len(classes)
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
    up, down = np.divmod(spans(np.zeros_like(copies), copies), np.repeat(sizes[other], copies))
    first = members[np.repeat(begins[one], copies) + up]
    second = members[np.repeat(begins[other], copies) + down]
    codes = _encode(first, second, count)
    order = np.argsort(codes, kind="stable")
    codes, jaccards = codes[order], np.repeat(jaccards, copies)[order]
    fresh = differs(codes)
    return codes[fresh], jaccards[fresh]
