"""The truth about a corpus: which pairs of texts are similar, computed exactly or from a list."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fpdb.arrays import Marks, Places, among, joined
from fpdb.documents.similarity import Shares
from fpdb.errors import InputError
from fpdb.fingerprint import Recipe
from fpdb.joins.exact import Limit, Sets, copied, sets_of_texts, similar_sets
from fpdb.models import Key

KnownPair = tuple[Key, Key, float | bool]

# Pairs that are held in memory.
MOST_PAIRS = 1 << 24


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

    def knows(self, first: Places, second: Places) -> Marks:
        """Mark the pairs whose similarity is known."""
        return among(_encode(first, second, self.documents), self.codes)

    def reported(self, first: Places, second: Places) -> Marks:
        """Mark the pairs with a known similarity that are among some pairs."""
        return among(self.codes, np.unique(_encode(first, second, self.documents)))

    def look_up(self, first: Places, second: Places) -> Shares:
        """Return the similarity of pairs, 0 where none is known."""
        wanted = _encode(first, second, self.documents)
        if not len(self.codes):
            return np.zeros(len(wanted))
        places = np.minimum(self.codes.searchsorted(wanted), len(self.codes) - 1)
        return np.where(self.codes[places] == wanted, self.jaccards[places], 0.0)


def shingle_truth(recipe: Recipe, texts: Sequence[str], at_least: float) -> Truth:
    """Compute the similarity of all pairs from the shingles that a recipe's cleaning leaves."""
    return exact_truth(sets_of_texts(recipe, texts, "shingles", _without_spaces), at_least)


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
    bare = map(_without_spaces, texts)
    return np.array([numbers.setdefault(text, len(numbers)) for text in bare], np.int64)


def _without_spaces(text: str) -> str:
    return "".join(text.split())


def _encode(first: Places, second: Places, documents: int) -> Places:
    """Name each pair by one number, whatever the order of its documents."""
    return np.minimum(first, second) * documents + np.maximum(first, second)


def exact_truth(sets: Sets, at_least: float) -> Truth:
    """Compute the similarity of all pairs of sets that reach a threshold.

    An empty set resembles nothing.
    """
    count = len(sets.places)
    found = similar_sets(sets, Limit.of(at_least))
    copies = np.bincount(sets.places, minlength=len(sets.sizes))
    pairs = int((copies[found.first] * copies[found.second]).sum())
    if pairs > MOST_PAIRS:
        raise InputError(
            f"found {pairs:,} similar pairs, expected at most {MOST_PAIRS:,}",
            hint="evaluate a part of the documents, with fewer copies",
        )
    none = np.empty(0, np.int64)
    first, second, common = joined([(none, none, none), *copied(sets, found)])
    sizes = sets.sizes[sets.places]
    jaccards = common / (sizes[first] + sizes[second] - common)
    return Truth(count, _encode(first, second, count), jaccards, sets.places)
