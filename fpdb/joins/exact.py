"""Exact joins: all pairs of sets that share enough, at a cost that doesn't grow with all pairs.

Elements are ranked by how many sets have them, rare ones first. If two sets share as much as a
limit requires, then they share one of the few rarest elements of each (a prefix filter, as in
AllPairs and PPJoin), so only sets that share one of these become candidates. A candidate is dropped
if what follows in either set can't make up for what is missing, or if bitmaps of both sets differ
too much; what remains is counted. Limits are fractions and counts are whole numbers, so nothing is
rounded.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from fractions import Fraction
from hashlib import blake2b
from itertools import islice, pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Column, Marks, Places, joined, portions, spans, unique
from fpdb.errors import InputError
from fpdb.fingerprint import Recipe, preset
from fpdb.fingerprint.stages import USUAL_SIMILARITY
from fpdb.models import Document, ExactPair, Key, require_choice, text_of
from fpdb.progress import WorkStep, show, tracked

Of = Literal["shingles", "features"]

# Elements of all sets together; each takes up to 100 bytes of memory while they are arranged.
MOST_ELEMENTS = 1 << 26
# Texts that are cut at once.
_TEXTS = 256
# Elements and candidates that are gathered at once.
_GATHERED = 1 << 21
# Bits of the bitmap of a set, and sets whose bitmaps are made at once.
_BITS = 512
_MAPPED = 1 << 12
_ODD = np.uint64(0x9E3779B97F4A7C15)
# Pairs of documents that are made at once.
_PAIRS = 1 << 15


def exact_pairs(
    documents: Iterable[Document],
    similarity: float | Fraction | None = None,
    *,
    of: Of | None = None,
    recipe: Recipe | str = "web",
    containment: bool = False,
) -> Iterator[ExactPair]:
    """Find all pairs of documents that are similar enough, exactly, without a database.

    None is missed, and nothing is estimated or rounded: 0.8 is 8/10. The pairs are yielded in the
    order of the documents. Documents without an element are pairs if their texts are equal and not
    empty. Each element takes about 100 bytes of memory, and the time grows with the documents and
    with the pairs that are nearly similar enough.

    Args:
        documents: The documents to compare; each has a text.
        similarity: The least similarity, by default that of the recipe, or 0.8; a fraction such as
            2/3 is `fractions.Fraction(2, 3)`.
        of: What a document is the set of: what its sketch is of, mostly the shingles, or the
            features of the recipe, which are words for most. By default the features of a recipe
            without a similarity, and the shingles otherwise.
        recipe: How texts are cleaned and cut.
        containment: Take for similarity the share of the smaller set that is in the larger one,
            instead of the Jaccard similarity, the share of both together that is in both.

    Yields:
        Pairs of keys with their similarity, and the sizes that it is made of.

    Raises:
        InputError: A document has no text, the similarity isn't above 0 and at most 1, or the texts
            have too many elements.
    """
    recipe = preset(recipe) if isinstance(recipe, str) else recipe
    if of is None:
        of = "features" if recipe.similarity is None else "shingles"
    require_choice("of", of, ("shingles", "features"))
    if similarity is None:
        similarity = recipe.similarity or USUAL_SIMILARITY
    limit = Limit.of(similarity, containment=containment)
    return _exact_pairs(documents, recipe, of, limit)


def _exact_pairs(
    documents: Iterable[Document], recipe: Recipe, of: Of, limit: "Limit"
) -> Iterator[ExactPair]:
    keys: list[Key] = []

    def texts() -> Iterator[str]:
        for document in documents:
            text = text_of(document)
            keys.append(document.key)
            yield text

    sets = sets_of_texts(recipe, texts(), of)
    sizes = sets.sizes[sets.places]
    every = np.arange(len(sets.sizes))
    equal = Similar(every, every, sets.sizes)
    similar = Similar(*joined([equal, similar_sets(sets, limit)]))
    for block in copied(sets, similar):
        first, second = sizes[block.first], sizes[block.second]
        whole = np.minimum(first, second) if limit.containment else first + second - block.common
        # Equal documents without an element share all that they have.
        shares = np.where(whole == 0, 1.0, block.common / np.maximum(whole, 1))
        columns = (column.tolist() for column in (*block, shares, first, second))
        for one, other, common, share, size, other_size in zip(*columns, strict=True):
            yield ExactPair(keys[one], keys[other], share, common, size, other_size)


@dataclass(frozen=True)
class Limit:
    """How much two sets must share at least.

    It is a share of what either of them has, the Jaccard similarity; or, as `containment`, of what
    the smaller has.
    """

    share: Fraction
    containment: bool = False

    @classmethod
    def of(cls, share: float | Fraction, *, containment: bool = False) -> "Limit":
        """Return a limit; a number such as 0.8 is taken as it is written, as 8/10.

        Raises:
            InputError: No share can reach the limit, or every share does.
        """
        try:
            fraction = Fraction(str(share))
        except ValueError:
            fraction = Fraction(0)
        if not 0 < fraction <= 1:
            raise InputError(
                f"found the similarity {share!r}, expected a number above 0, at most 1",
                hint="0.8 is what near-duplicates usually have",
            )
        return cls(fraction, containment)

    def least(self, sizes: Places, share: Fraction | None = None) -> Places:
        """Return the smallest numbers of elements that reach the limit, as shares of others."""
        share = self.share if share is None else share
        # Python's own numbers, because the products may exceed 64 bits.
        products = sizes.astype(object) * share.numerator
        return np.asarray(-(-products // share.denominator), np.int64)


class Similar(NamedTuple):
    """Pairs of sets by their numbers, the smaller first, and how many elements they share."""

    first: Places
    second: Places
    common: Places


@dataclass(frozen=True, eq=False)
class Sets:
    """A collection of sets: which are equal, and what the distinct ones share.

    Set number i of the collection equals distinct set `places[i]`. The distinct ones are in the
    order of their `sizes`. Distinct set p has elements that others have as well, which are
    `elements[starts[p]:starts[p + 1]]`, ranks in ascending order from 0 to `ranks`, the rarest
    first; and before them `alone[p]` elements that no other has.
    """

    places: Places
    sizes: Places
    alone: Places
    elements: NDArray[np.int32]
    starts: Places
    ranks: int


def sets_of(names: Places, counts: Places, texts: Sequence[object]) -> Sets:
    """Arrange sets, which are given one after the other as `counts` elements each.

    Elements are numbers from 0 on without large gaps, and may be repeated within a set. An empty
    set equals those with the same entry in `texts`.
    """
    names, owners = _distinct(names, np.repeat(np.arange(len(counts)), counts))
    classes = _classes(names, owners, texts)
    first = classes == np.arange(len(classes))
    marks = first[owners]
    names, owners = names[marks], owners[marks]
    sizes = np.bincount(owners, minlength=len(classes))
    order = np.argsort(sizes, kind="stable")
    order = order[first[order]]
    places = np.empty(len(classes), np.int64)
    places[order] = np.arange(len(order))
    places, sizes = places[classes], sizes[order]
    frequencies = np.bincount(names)
    lonely = int((frequencies <= 1).sum())
    ranks = np.empty(len(frequencies), np.int64)
    ranks[np.argsort(frequencies, kind="stable")] = np.arange(-lonely, len(frequencies) - lonely)
    names = ranks[names]
    shared = names >= 0
    names, owners = _distinct(names[shared], places[owners[shared]])
    held = np.bincount(owners, minlength=len(order))
    return Sets(
        places=places,
        sizes=sizes,
        alone=sizes - held,
        elements=names.astype(np.int32),
        starts=np.append(0, np.cumsum(held)),
        ranks=len(frequencies) - lonely,
    )


def _distinct(names: Places, owners: Places) -> tuple[Places, Places]:
    """Return the distinct elements of each set, by set and in ascending order."""
    width = int(names.max(initial=0)) + 1
    codes = unique(owners * width + names)
    owners, names = np.divmod(codes, width)
    return names, owners


def _classes(names: Places, owners: Places, texts: Sequence[object]) -> Places:
    """Return for each set the number of the first one that equals it."""
    packed = names.astype(np.int32)
    ends = np.cumsum(np.bincount(owners, minlength=len(texts))).tolist()
    first: dict[object, int] = {}
    classes: list[int] = []
    start = 0
    for number, (end, text) in enumerate(zip(ends, texts, strict=True)):
        elements = packed[start:end].tobytes()
        name = blake2b(elements, digest_size=16).digest() if elements else ("", text)
        classes.append(first.setdefault(name, number))
        start = end
    return np.array(classes, np.int64)


def sets_of_texts(
    recipe: Recipe, texts: Iterable[str], of: Of, label: Callable[[str], str] = str.strip
) -> Sets:
    """Arrange the sets of texts: of their shingles, or of their features.

    Texts without any are equal if their labels are; an empty one equals nothing.
    """
    parts: list[NDArray[Any]] = []
    labels: list[object] = []
    total = 0
    numbers: dict[str, int] = {}
    remaining = iter(
        tracked(texts, "read the texts", "text", len(texts) if isinstance(texts, Sized) else 0)
    )
    while block := list(islice(remaining, _TEXTS)):
        if of == "shingles":
            parts += recipe.shingles_many(block)
        else:
            for features in recipe.features_many(block):
                named = [numbers.setdefault(feature, len(numbers)) for feature in features]
                parts.append(np.array(named, np.int32))
        added = parts[len(labels) :]
        labels += [
            "" if len(elements) else label(text) or number
            for number, (text, elements) in enumerate(zip(block, added, strict=True), len(labels))
        ]
        total += sum(map(len, added))
        if total > MOST_ELEMENTS:
            raise InputError(
                f"found more than {MOST_ELEMENTS:,} {of}, too many to compare all texts with each "
                "other",
                hint="take a part of the documents, or look for near-duplicates by a database",
            )
    counts = np.fromiter(map(len, parts), np.int64, len(parts))
    names: NDArray[Any] = np.concatenate(
        [np.empty(0, np.uint64 if of == "shingles" else np.int32), *parts]
    )
    del parts
    if of == "shingles":
        show(WorkStep("sort", len(names), 0, "shingle"))
        names = np.unique(names, return_inverse=True)[1]
    return sets_of(names, counts, labels)


def similar_sets(sets: Sets, limit: Limit) -> Similar:
    """Return the pairs of distinct sets that reach a limit, by their places in `sets`."""
    join = _Join(sets, limit)
    none = np.empty(0, np.int64)
    similar = [(none, none, none)]
    parts = portions(join.work, _GATHERED)
    for part in tracked(
        parts, "compare all sets", "set", len(join.work), lambda few: int(few.stop - few.start)
    ):
        codes = unique(np.concatenate([none, *join.candidates(part)]))
        first, second = np.divmod(codes, max(len(sets.sizes), 1))
        near = join.near(first, second)
        first, second = first[near], second[near]
        common = _common(sets, first, second)
        reached = common >= join.needed(first, second)
        similar.append((first[reached], second[reached], common[reached]))
    return Similar(*joined(similar))


def copied(sets: Sets, similar: Similar) -> Iterator[Similar]:
    """Yield the pairs of all sets that equal those of `similar`, ordered, a bounded part at once.

    Equal sets are pairs only if `similar` has their place as a pair with itself.
    """
    count = len(sets.places)
    copies = np.bincount(sets.places, minlength=len(sets.sizes))
    members = np.argsort(sets.places, kind="stable")
    begins = np.cumsum(copies) - copies
    apart = similar.first != similar.second
    one = np.concatenate([similar.first, similar.second[apart]])
    other = np.concatenate([similar.second, similar.first[apart]])
    common = np.concatenate([similar.common, similar.common[apart]])
    order = np.argsort(one, kind="stable")
    other, common = other[order], common[order]
    degrees = np.bincount(one, minlength=len(sets.sizes))
    edges = np.cumsum(degrees) - degrees
    work = np.bincount(one[order], copies[other], len(sets.sizes)).astype(np.int64)[sets.places]
    for part in portions(work, _PAIRS):
        numbers = np.arange(part.start, part.stop)
        place = sets.places[numbers]
        edge = spans(edges[place], degrees[place])
        times = copies[other[edge]]
        first = np.repeat(np.repeat(numbers, degrees[place]), times)
        second = members[spans(begins[other[edge]], times)]
        shared = np.repeat(common[edge], times)
        once = first < second
        codes = first[once] * count + second[once]
        order = np.argsort(codes)
        if len(order):
            first, second = np.divmod(codes[order], count)
            yield Similar(first, second, shared[once][order])


class _Join:
    """The postings of a join: which rare elements the smaller and the larger set of a pair have."""

    def __init__(self, sets: Sets, limit: Limit) -> None:
        count = len(sets.sizes)
        largest = int(sets.sizes.max(initial=0))
        self._sets = sets
        self._containment = limit.containment
        of_one = limit.least(np.arange(largest + 1))
        # Elements that both must share, by the size of the smaller, or by the sum of the sizes.
        if limit.containment:
            self._needed = of_one
            small, large = of_one[sets.sizes], np.zeros(count, np.int64)
            ends = np.full(count, count)
        else:
            of_sum = limit.share / (1 + limit.share)  # the share of the sum of both sizes
            self._needed = limit.least(np.arange(2 * largest + 1), of_sum)
            small, large = self._needed[2 * sets.sizes], of_one[sets.sizes]
            ends = np.searchsorted(of_one[sets.sizes], sets.sizes, "right")
        self._owners, self._places, elements = self._leading(small)
        other_owners, self._other_places, their_elements = self._leading(large)
        order = np.argsort(their_elements, kind="stable")  # by element, then by set
        self._other_owners, self._other_places = other_owners[order], self._other_places[order]
        codes = their_elements[order].astype(np.int64) * count + self._other_owners
        order = np.argsort(elements, kind="stable")  # in order, each is found near the one before
        offsets, owners = elements[order].astype(np.int64) * count, self._owners[order]
        self._begins, self._lengths = np.empty((2, len(order)), np.int64)
        self._begins[order] = np.searchsorted(codes, offsets + owners + 1)
        self._lengths[order] = np.searchsorted(codes, offsets + ends[owners])
        self._lengths = np.maximum(self._lengths - self._begins, 0)
        counts = np.bincount(self._owners, minlength=count)
        self._starts = np.append(0, np.cumsum(counts))
        self.work = np.diff(np.append(0, np.cumsum(self._lengths))[self._starts])
        self._maps = _bitmaps(sets)

    def _leading(self, needed: Places) -> tuple[Places, Places, NDArray[np.int32]]:
        """Return the elements of which sets must share one, if they share `needed` elements.

        They come with their sets, and with their places among all elements of these.
        """
        sets = self._sets
        counts = np.clip(sets.sizes - needed + 1, 0, sets.sizes) - sets.alone
        counts = np.maximum(counts, 0)
        owners = np.repeat(np.arange(len(counts)), counts)
        within = spans(np.zeros_like(counts), counts)
        elements = sets.elements[spans(sets.starts[:-1], counts)]
        return owners, sets.alone[owners] + within, elements

    def needed(self, first: Places, second: Places) -> Places:
        """Return how many elements pairs must share."""
        sizes = self._sets.sizes
        total = sizes[first] if self._containment else sizes[first] + sizes[second]
        needed: Places = self._needed[total]
        return needed

    def candidates(self, smaller: slice) -> Iterator[Places]:
        """Yield the pairs of some smaller sets, as codes, perhaps several times."""
        sizes = self._sets.sizes
        postings = slice(self._starts[smaller.start], self._starts[smaller.stop])
        for few in portions(self._lengths[postings], _GATHERED):
            part = slice(postings.start + few.start, postings.start + few.stop)
            lengths = self._lengths[part]
            at = spans(self._begins[part], lengths)
            first, second = np.repeat(self._owners[part], lengths), self._other_owners[at]
            remaining = sizes[first] - np.repeat(self._places[part], lengths)
            remaining = np.minimum(remaining, sizes[second] - self._other_places[at])
            fit = remaining >= self.needed(first, second)
            yield first[fit] * len(sizes) + second[fit]

    def near(self, first: Places, second: Places) -> Marks:
        """Mark the pairs whose bitmaps don't show that they share too little."""
        near = np.empty(len(first), np.bool_)
        sizes, alone = self._sets.sizes, self._sets.alone
        for start in range(0, len(first), _MAPPED):
            part = slice(start, start + _MAPPED)
            one, other = first[part], second[part]
            maps, other_maps = self._maps[one], self._maps[other]
            needed = self.needed(one, other)
            if self._containment:
                missing, most = alone[one], sizes[one] - needed
                differing = maps & ~other_maps
            else:
                missing = alone[one] + alone[other]
                most = sizes[one] + sizes[other] - 2 * needed
                differing = maps ^ other_maps
            missing = missing + np.bitwise_count(differing).sum(axis=1, dtype=np.int64)
            near[part] = missing <= most
        return near


def _bitmaps(sets: Sets) -> Column:
    """Return a bitmap of each set, in which every shared element sets one bit."""
    count = len(sets.sizes)
    maps = np.empty((count, _BITS // 64), np.uint64)
    for start in range(0, count, _MAPPED):
        stop = min(start + _MAPPED, count)
        counts = np.diff(sets.starts[start : stop + 1])
        elements = sets.elements[sets.starts[start] : sets.starts[stop]].astype(np.uint64)
        bits = np.zeros((stop - start, _BITS), np.bool_)
        at = (elements * _ODD >> np.uint64(32)).astype(np.int64) % _BITS
        bits[np.repeat(np.arange(stop - start), counts), at] = True
        maps[start:stop] = np.packbits(bits, axis=1).view(np.uint64)
    return maps


def _common(sets: Sets, first: Places, second: Places) -> Places:
    """Count the elements that pairs share; pairs with the same first set come together."""
    common = np.empty(len(first), np.int64)
    marks = np.zeros(sets.ranks, np.bool_)
    lengths = sets.sizes - sets.alone
    edges = np.flatnonzero(np.diff(first, prepend=-1, append=-1)).tolist()
    for begin, end in pairwise(edges):
        one = int(first[begin])
        elements = sets.elements[sets.starts[one] : sets.starts[one + 1]]
        marks[elements] = True
        for few in portions(lengths[second[begin:end]], _GATHERED):
            part = slice(begin + few.start, begin + few.stop)
            partners = second[part]
            places = spans(sets.starts[partners], lengths[partners])
            marked = np.append(0, np.cumsum(marks[sets.elements[places]]))
            common[part] = np.diff(marked[np.append(0, np.cumsum(lengths[partners]))])
        marks[elements] = False
    return common
