"""Evaluate recipes: precision and recall by k, against known pairs or the exact similarity of all.

Every pair of documents within the largest k is rated, so nothing depends on tables or on chance;
only the distances of other pairs are those of a sample.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fpdb.errors import InputError
from fpdb.fingerprint import Recipe, preset
from fpdb.fingerprint.minhash import estimate, has_sketch
from fpdb.joins.groups import Groups, near_in_groups
from fpdb.joins.truth import I64, Bools, Truth, check_size, exact_truth
from fpdb.models import Batch, Document, Evaluation, Key, Rating, RecipeQuality

KnownPair = tuple[Key, Key, float | bool]

MOST_DOCUMENTS = 100_000
_SAMPLED = 1 << 20


@dataclass(frozen=True)
class Thresholds:
    """What counts: a pair is true, right or wrong by its similarity."""

    truth_from: float = 0.8
    right_from: float = 0.7
    wrong_below: float = 0.5
    min_jaccard: float | None = None

    def __post_init__(self) -> None:
        if not 0.1 <= self.wrong_below <= self.right_from <= self.truth_from <= 1:
            raise InputError(
                f"found wrong_below {self.wrong_below}, right_from {self.right_from} and "
                f"truth_from {self.truth_from}, expected .1 to 1, each no larger than the next",
                hint="pairs between wrong_below and right_from are neither right nor wrong",
            )
        if self.min_jaccard is not None and not 0 < self.min_jaccard <= 1:
            raise InputError(f"found min_jaccard {self.min_jaccard}, expected above 0, at most 1")


def evaluate(
    documents: Iterable[Document],
    pairs: Iterable[KnownPair] | None = None,
    *,
    recipes: Sequence[Recipe | str] = ("web",),
    k: Iterable[int] = range(13),
    min_jaccard: float | None = None,
    truth_from: float = 0.8,
    right_from: float = 0.7,
    wrong_below: float = 0.5,
    listed_only: bool = False,
) -> Evaluation:
    """Measure how well recipes tell near-duplicates from other documents.

    Each of `pairs` is two keys and their Jaccard similarity, or True for duplicates and False for
    others; pairs that aren't listed count as different, or not at all with `listed_only`. Without
    `pairs` the truth is the exact Jaccard similarity of all pairs: of their shingles, after the
    first recipe has cleaned the texts.

    Recall is the share of the pairs from `truth_from` on that are within k. Precision is the share
    of right pairs among those within k: right from `right_from` on, wrong below `wrong_below`;
    what lies between isn't counted. Pairs of equal texts count for neither. `min_jaccard` rates
    in addition the pairs within k whose sketches estimate at least this similarity.
    """
    thresholds = Thresholds(truth_from, right_from, wrong_below, min_jaccard)
    chosen = [preset(recipe) if isinstance(recipe, str) else recipe for recipe in recipes]
    if not chosen:
        raise InputError("found no recipe, expected at least one")
    if listed_only and pairs is None:
        raise InputError(
            "found no pairs, but only listed ones are to count",
            hint="give pairs, or leave listed_only out",
        )
    ks = _ascending(k, min(recipe.bits for recipe in chosen))
    keys, texts = _read(documents)
    if pairs is None:
        truth = shingle_truth(chosen[0], texts, wrong_below)
    else:
        truth = listed_truth(keys, texts, pairs)
    first, second = truth.pairs()
    apart = ~truth.equal(first, second)
    qualities = (
        rate(recipe, texts, truth, ks, thresholds, listed_only=listed_only) for recipe in chosen
    )
    return Evaluation(
        documents=len(texts),
        exact=pairs is None,
        true=int((apart & (truth.jaccards >= truth_from)).sum()),
        equal=int((~apart).sum()) if listed_only else truth.equal_pairs(),
        truth_from=truth_from,
        right_from=right_from,
        wrong_below=wrong_below,
        min_jaccard=min_jaccard,
        recipes=tuple(qualities),
    )


def shingle_truth(recipe: Recipe, texts: Sequence[str], at_least: float) -> Truth:
    """Compute the similarity of all pairs from shingles, of texts that the recipe has cleaned."""
    shingles: list[NDArray[np.uint64]] = []
    total = 0
    for text in texts:
        shingles.append(recipe.shingles(text))
        total += len(shingles[-1])
        check_size(total)
    counts = np.fromiter(map(len, shingles), np.int64, len(shingles))
    hashes = np.concatenate([np.empty(0, np.uint64), *shingles])
    del shingles
    return exact_truth(hashes, counts, at_least, classes(texts))


def listed_truth(keys: Sequence[Key], texts: Sequence[str], pairs: Iterable[KnownPair]) -> Truth:
    """Take the similarity of pairs from a list; who is listed twice must be so alike."""
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
        if first == second:
            raise InputError(f"found a pair of {one!r} with itself, expected two documents")
        code = first * len(keys) + second
        if known.setdefault(code, jaccard) != jaccard:
            raise InputError(
                f"found two similarities of {one!r} and {other!r}: {known[code]:g}, {jaccard:g}"
            )
    codes = np.array(sorted(known), np.int64)
    jaccards = np.array([known[code] for code in sorted(known)], np.float64)
    return Truth(len(keys), codes, jaccards, classes(texts))


def rate(
    recipe: Recipe,
    texts: Sequence[str],
    truth: Truth,
    ks: Sequence[int],
    thresholds: Thresholds,
    *,
    listed_only: bool = False,
) -> RecipeQuality:
    """Fingerprint all texts by a recipe, and rate the pairs that it reports."""
    batch = recipe.batch(texts, sketches=thresholds.min_jaccard is not None)
    first, second = truth.pairs()
    apart = ~truth.equal(first, second)
    sought = int((apart & (truth.jaccards >= thresholds.truth_from)).sum())
    usable = ~batch.short[first] & ~batch.short[second]
    first, second, apart = first[usable], second[usable], apart[usable]
    jaccards, distances = truth.jaccards[usable], _distances(batch, first, second)
    every, verified = (_Tally(truth, thresholds, ks[-1]) for _ in range(2))
    near = iter([(first, second, distances)]) if listed_only else _near(batch, ks[-1])
    for columns in near:
        within = columns[2] <= ks[-1]
        found = columns[0][within], columns[1][within], columns[2][within]
        every.add(*found)
        if batch.sketches is not None and thresholds.min_jaccard is not None:
            alike = estimate(batch.sketches[found[0]], batch.sketches[found[1]])
            agreeing = alike >= thresholds.min_jaccard
            verified.add(*(column[agreeing] for column in found))
    true = apart & (jaccards >= thresholds.truth_from)
    if listed_only:
        others = distances[apart & (jaccards < thresholds.wrong_below)]
    else:
        others = _distances(batch, *_sampled(batch, truth))
    return RecipeQuality(
        recipe=recipe.name,
        recipe_id=recipe.id,
        bits=recipe.bits,
        short=int(batch.short.sum()),
        unsketched=0 if batch.sketches is None else int((~has_sketch(batch.sketches)).sum()),
        ratings=every.ratings(ks, sought),
        verified=() if batch.sketches is None else verified.ratings(ks, sought),
        true_distances=_counted(distances[true], recipe.bits),
        other_distances=_counted(others, recipe.bits),
        bit_shares=_bit_shares(batch, recipe.bits),
    )


class _Tally:
    """Counts pairs by their distance: the equal, and of the others all, right, wrong and true."""

    def __init__(self, truth: Truth, thresholds: Thresholds, largest: int) -> None:
        self._truth = truth
        self._thresholds = thresholds
        self._counts = np.zeros((5, largest + 1), np.int64)

    def add(self, first: I64, second: I64, distances: NDArray[np.int64]) -> None:
        """Look pairs up, and count them."""
        jaccards = self._truth.look_up(first, second)
        equal = self._truth.equal(first, second)
        limits = self._thresholds
        kinds: list[Bools] = [
            equal,
            ~equal,
            ~equal & (jaccards >= limits.right_from),
            ~equal & (jaccards < limits.wrong_below),
            ~equal & (jaccards >= limits.truth_from),
        ]
        width = self._counts.shape[1]
        self._counts += [np.bincount(distances[kind], minlength=width) for kind in kinds]

    def ratings(self, ks: Iterable[int], sought: int) -> tuple[Rating, ...]:
        """Rate all that is within each k, when so many true pairs there are to find."""
        totals = self._counts.cumsum(axis=1)
        return tuple(_rating(k, totals[:, k].tolist(), sought) for k in ks)


def _rating(k: int, counts: Sequence[int], sought: int) -> Rating:
    equal, reported, right, wrong, found = counts
    precision = right / (right + wrong) if right + wrong else None
    recall = found / sought if sought else None
    f1 = None
    if precision is not None and recall is not None:
        f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return Rating(k, equal, reported, right, wrong, found, precision, recall, f1)


def _ascending(k: Iterable[int], bits: int) -> list[int]:
    ks = sorted(set(k))
    if not ks or ks[0] < 0 or ks[-1] > bits:
        raise InputError(f"found the distances {ks}, expected some from 0 to at most {bits}")
    return ks


def _read(documents: Iterable[Document]) -> tuple[list[Key], list[str]]:
    texts: dict[Key, str] = {}
    for document in documents:
        if document.text is None:
            raise InputError(f"the document {document.key!r} has no text")
        if document.key in texts:
            raise InputError(
                f"found two documents with the key {document.key!r}",
                hint="keys tell the documents of an evaluation apart; make them differ",
            )
        if len(texts) == MOST_DOCUMENTS:
            raise InputError(
                f"found more than {MOST_DOCUMENTS:,} documents to compare with each other",
                hint="evaluate a part of them",
            )
        texts[document.key] = document.text
    return list(texts), list(texts.values())


def classes(texts: Sequence[str]) -> I64:
    """Give the same number to texts that are equal but for white space."""
    numbers: dict[str, int] = {}
    bare = ("".join(text.split()) for text in texts)
    found = [numbers.setdefault(text, len(numbers)) for text in bare]
    return np.array(found, np.int64)


def _near(batch: Batch, k: int) -> Iterator[tuple[I64, I64, I64]]:
    """Give all pairs of texts within k that aren't short, with their distances."""
    usable = np.flatnonzero(~batch.short)
    everything = Groups(np.zeros(1, np.int64), np.array([len(usable)]))
    if len(usable) < 2:
        return
    for one, other, distances in near_in_groups(_words(batch, usable), everything, k):
        yield usable[one], usable[other], distances.astype(np.int64)


def _words(batch: Batch, chosen: I64) -> list[NDArray[np.uint64]]:
    """Give some fingerprints as columns of words, the highest first."""
    rows = batch.fingerprints[chosen]
    columns = [rows] if rows.ndim == 1 else list(rows.T)
    return [np.ascontiguousarray(column) for column in columns]


def _distances(batch: Batch, first: I64, second: I64) -> I64:
    """Give the distances of pairs."""
    changes = batch.fingerprints[first] ^ batch.fingerprints[second]
    counts: I64 = np.bitwise_count(changes).astype(np.int64)
    return counts if counts.ndim == 1 else np.asarray(counts.sum(axis=1))


def _sampled(batch: Batch, truth: Truth) -> tuple[I64, I64]:
    """Draw pairs that aren't known to be similar, nor equal; all of them if there are few."""
    usable = np.flatnonzero(~batch.short)
    if len(usable) ** 2 <= _SAMPLED:
        above, below = np.triu_indices(len(usable), 1)
    else:
        above, below = np.random.default_rng(0).integers(len(usable), size=(2, _SAMPLED))
    first, second = usable[above], usable[below]
    jaccards = truth.look_up(first, second)
    unlike = (jaccards == 0) & ~truth.equal(first, second)
    return first[unlike], second[unlike]


def _counted(distances: I64, bits: int) -> tuple[int, ...]:
    return tuple(np.bincount(distances, minlength=bits + 1).tolist())


def _bit_shares(batch: Batch, bits: int) -> tuple[float, ...]:
    """Tell for each bit, the lowest first, which share of the fingerprints has it."""
    usable = _words(batch, np.flatnonzero(~batch.short))
    shares: list[float] = []
    for bit in range(bits):
        ones = usable[-1 - bit // 64] >> np.uint64(bit % 64) & np.uint64(1)
        shares.append(float(ones.mean()) if len(ones) else 0.0)
    return tuple(shares)
