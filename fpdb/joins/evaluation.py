"""Evaluate recipes: their precision and recall, against known pairs or the exact similarity of all.

Every pair of documents within the largest k is rated, so nothing depends on tables or on chance;
only the distances of other pairs are sampled. Similar pairs are those that a database finds: the
bands are rated as well.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from fpdb.arrays import Marks, Places, among, joined
from fpdb.documents.similarity import Shares
from fpdb.errors import InputError
from fpdb.fingerprint import Recipe, preset
from fpdb.fingerprint.sketches import has_sketch
from fpdb.joins.exact import Limit, Sets, copied, sets_of_texts, similar_sets
from fpdb.joins.join import near_rows
from fpdb.joins.pairs import TextsInColumns, similar_pairs
from fpdb.models import Batch, Document, Key, require_similarity, text_of
from fpdb.progress import tracked
from fpdb.storage.block import TextColumns, digest_rows
from fpdb.tables import choose_bands
from fpdb.tables.bits import Distances, as_words, distances

# Two keys, and how similar they are.
KnownPair = tuple[Key, Key, float | bool]

MOST_DOCUMENTS = 100_000
# Pairs that are held in memory.
MOST_PAIRS = 1 << 24
_SAMPLED = 1 << 20


class Rating(NamedTuple):
    """The quality of the pairs that are reported at one k, or at a similarity, where k is None.

    `equal` counts the pairs of equal texts, which count nowhere else. Of the other `reported`
    pairs, some are `right`, some `wrong`, and those between are neither; `found` counts the true
    ones. `precision` is right / (right + wrong), `recall` the share of the true pairs that is
    found; either is None if it would divide by zero.
    """

    k: int | None
    equal: int
    reported: int
    right: int
    wrong: int
    found: int
    precision: float | None
    recall: float | None
    f1: float | None


class Mistake(NamedTuple):
    """A pair that a recipe reports though it is `wrong`, or else doesn't report though it is true.

    `similarity` is the true one.
    """

    key: Key
    other: Key
    similarity: float
    wrong: bool


@dataclass(frozen=True)
class RecipeQuality:
    """The quality of a recipe: how well it separates duplicates from other documents.

    `ratings` has one entry for each k; `similar` rates the pairs that a database with this
    `similarity` finds, and both are None if that wasn't requested. `short` counts the texts with
    too few features, which have no pairs, `unsketched` those without a sketch. Distance d occurs
    `true_distances[d]` times among the true pairs, and `other_distances[d]` times among random
    pairs that aren't true. `bit_shares` has for each bit, the lowest first, the share of the
    fingerprints in which it is set; about one half is best. `mistakes` are as many as requested:
    wrong pairs, the least similar first, then missed ones, the most similar first.
    """

    recipe: str
    recipe_id: str
    bits: int
    short: int
    unsketched: int
    ratings: tuple[Rating, ...]
    similarity: float | None
    similar: Rating | None
    true_distances: tuple[int, ...]
    other_distances: tuple[int, ...]
    bit_shares: tuple[float, ...]
    mistakes: tuple[Mistake, ...] = ()


@dataclass(frozen=True)
class Thresholds:
    """The similarities that make a pair true, right or wrong in an evaluation of recipes.

    Pairs from `truth_from` on are true and should be found. Of the reported pairs, those from
    `right_from` on are right, those below `wrong_below` wrong; pairs between are neither.
    """

    truth_from: float = 0.8
    right_from: float = 0.7
    wrong_below: float = 0.5

    def __post_init__(self) -> None:
        if not 0.1 <= self.wrong_below <= self.right_from <= self.truth_from <= 1:
            raise InputError(
                f"found wrong_below {self.wrong_below}, right_from {self.right_from} and "
                f"truth_from {self.truth_from}, expected .1 to 1, each no larger than the next",
                hint="pairs between wrong_below and right_from are neither right nor wrong",
            )


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation: how many near-duplicates each recipe finds.

    `exact` is True if pairs are true by the Jaccard similarity of their shingles, False if they
    come from a list. `true` counts the pairs that should be found, `equal` the pairs of equal
    texts, which are left out.
    """

    documents: int
    exact: bool
    true: int
    equal: int
    thresholds: Thresholds
    recipes: tuple[RecipeQuality, ...]


_USUAL = Thresholds()


def evaluate(
    documents: Iterable[Document],
    pairs: Iterable[KnownPair] | None = None,
    *,
    recipes: Sequence[Recipe | str] = ("web",),
    k: Iterable[int] = range(13),
    similarity: float | Literal["recipe"] | None = "recipe",
    thresholds: Thresholds = _USUAL,
    mistakes: int = 0,
) -> Evaluation:
    """Measure how well recipes find near-duplicates, and nothing else.

    Rated are the pairs that a database finds by their similarity, and those within each k. Recall
    is the share of the true pairs that are found. Precision is the share of right pairs among the
    right and wrong ones. Pairs of equal texts count for neither.

    Args:
        documents: The documents to compare; each has a text.
        pairs: Two keys and their Jaccard similarity, or True for duplicates and False for others.
            Pairs that aren't listed count as different. Without a list, the truth is the exact
            Jaccard similarity of all pairs: of their shingles, after the first recipe has cleaned
            the texts.
        recipes: Recipes, or names of presets.
        k: The distances at which to rate.
        similarity: Rate also the pairs that a database with this similarity finds; None: bits only.
            By default it is that of each recipe.
        thresholds: Which similarities make a pair true, right or wrong.
        mistakes: The most wrong pairs and the most missed ones to name, of each recipe: among those
            that are found by similarity, or without one within the largest k.

    Returns:
        The counts of true and equal pairs, and of each recipe its `ratings` by k, and `similar`.

    Raises:
        InputError: A document has no text, two have the same key, or there are more than 100,000.
    """
    chosen = [preset(recipe) if isinstance(recipe, str) else recipe for recipe in recipes]
    if not chosen:
        raise InputError("found no recipe, expected at least one")
    if similarity != "recipe":
        similarity = require_similarity(similarity)
    ks, bits = sorted(set(k)), min(recipe.bits for recipe in chosen)
    if not ks or ks[0] < 0 or ks[-1] > bits:
        raise InputError(f"found the distances {ks}, expected some from 0 to at most {bits}")
    keys, texts = _read(documents)
    if pairs is None:
        sets = sets_of_texts(chosen[0], texts, "shingles", _without_spaces)
        truth = exact_truth(sets, thresholds.wrong_below)
    else:
        truth = listed_truth(keys, texts, pairs)
    apart, sizes = ~truth.equal(*truth.pairs()), np.bincount(truth.classes)
    qualities = (
        rate(
            recipe,
            texts,
            truth,
            ks,
            thresholds,
            similarity=recipe.similarity if similarity == "recipe" else similarity,
            named=(keys, mistakes),
        )
        for recipe in chosen
    )
    return Evaluation(
        documents=len(texts),
        exact=pairs is None,
        true=int((apart & (truth.jaccards >= thresholds.truth_from)).sum()),
        equal=int((sizes * (sizes - 1) // 2).sum()),
        thresholds=thresholds,
        recipes=tuple(qualities),
    )


def rate(
    recipe: Recipe,
    texts: Sequence[str],
    truth: "Truth",
    ks: Sequence[int],
    thresholds: Thresholds,
    *,
    similarity: float | None = None,
    named: tuple[Sequence[Key], int] = ((), 0),
) -> RecipeQuality:
    """Fingerprint all texts by a recipe, and rate the pairs that it reports.

    `named` has the keys of the texts, and how many wrong and missed pairs to name.
    """
    read = tracked(texts, f"fingerprint by {recipe.name}", "text", len(texts))
    batch = recipe.batch(read, sketches=similarity is not None)
    first, second = truth.pairs()
    apart = ~truth.equal(first, second)
    sought = int((apart & (truth.jaccards >= thresholds.truth_from)).sum())
    usable = ~batch.short[first] & ~batch.short[second]
    first, second, apart = first[usable], second[usable], apart[usable]
    jaccards = truth.jaccards[usable]
    known = distances(batch.fingerprints[first], batch.fingerprints[second], recipe.bits)
    keys, most = named
    every = _Tally(truth, thresholds, ks[-1], 0 if similarity else most)
    [long] = (~batch.short).nonzero()
    for one, other, apart_by in near_rows(as_words(batch.fingerprints[long]), ks[-1]):
        every.add(long[one], long[other], apart_by)
    similar, tally = None, every
    if similarity is not None:
        tally = _Tally(truth, thresholds, 0, most)
        for one, other in _similar(recipe, batch, texts, similarity):
            tally.add(one, other, np.zeros_like(one))
        similar = tally.rating(0, sought)._replace(k=None)
    true = apart & (jaccards >= thresholds.truth_from)
    first, second = _sampled(batch, truth)
    sampled = distances(batch.fingerprints[first], batch.fingerprints[second], recipe.bits)
    return RecipeQuality(
        recipe=recipe.name,
        recipe_id=recipe.id,
        bits=recipe.bits,
        short=int(batch.short.sum()),
        unsketched=0 if batch.sketches is None else int((~has_sketch(batch.sketches)).sum()),
        ratings=tuple(every.rating(k, sought) for k in ks),
        similarity=similarity,
        similar=similar,
        true_distances=tuple(np.bincount(known[true], minlength=recipe.bits + 1).tolist()),
        other_distances=tuple(np.bincount(sampled, minlength=recipe.bits + 1).tolist()),
        bit_shares=_bit_shares(batch, recipe.bits),
        mistakes=tuple(tally.mistakes(keys)),
    )


class _Tally:
    """Counts pairs by distance: equal ones, and of the others all, right, wrong and true ones."""

    def __init__(
        self, truth: "Truth", thresholds: Thresholds, largest: int, named: int = 0
    ) -> None:
        """Count up to the largest distance, and keep some pairs to name."""
        self._named = named
        self._true: list[tuple[Places, Places]] = []
        self._wrong: list[tuple[Places, Places, Shares]] = []
        self._truth = truth
        self._thresholds = thresholds
        self._counts = np.zeros((5, largest + 1), np.int64)

    def add(self, first: Places, second: Places, distances: Places | Distances) -> None:
        """Count pairs by the truth about them."""
        jaccards = self._truth.look_up(first, second)
        apart = ~self._truth.equal(first, second)
        limits = self._thresholds
        kinds: list[Marks] = [
            ~apart,
            apart,
            apart & (jaccards >= limits.right_from),
            apart & (jaccards < limits.wrong_below),
            apart & (jaccards >= limits.truth_from),
        ]
        width = self._counts.shape[1]
        self._counts += [np.bincount(distances[kind], minlength=width) for kind in kinds]
        if self._named:
            *_, wrong, true = kinds
            self._true.append((first[true], second[true]))
            held = [*self._wrong, (first[wrong], second[wrong], jaccards[wrong])]
            columns = [np.concatenate(column) for column in zip(*held, strict=True)]
            order = np.argsort(columns[2], kind="stable")[: self._named]
            one, other, shares = (column[order] for column in columns)
            self._wrong = [(one, other, shares)]

    def mistakes(self, keys: Sequence[Key]) -> Iterator[Mistake]:
        """Yield the wrong pairs and the missed ones, as many of each as are to be named."""
        for one, other, shares in self._wrong:
            for row in zip(one.tolist(), other.tolist(), shares.tolist(), strict=True):
                yield Mistake(keys[row[0]], keys[row[1]], row[2], wrong=True)
        if not self._named:
            return
        truth = self._truth
        first, second = truth.pairs()
        missed = (truth.jaccards >= self._thresholds.truth_from) & ~truth.equal(first, second)
        for pairs in self._true:
            missed &= ~truth.reported(*pairs)
        [places] = missed.nonzero()
        order = np.argsort(-truth.jaccards[places], kind="stable")[: self._named]
        for place in places[order].tolist():
            share = float(truth.jaccards[place])
            yield Mistake(keys[first[place]], keys[second[place]], share, wrong=False)

    def rating(self, k: int, sought: int) -> Rating:
        """Rate the pairs within k; `sought` is the number of true pairs."""
        equal, reported, right, wrong, hits = self._counts[:, : k + 1].sum(axis=1).tolist()
        precision = right / (right + wrong) if right + wrong else None
        recall = hits / sought if sought else None
        f1 = None
        if precision is not None and recall is not None:
            f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        return Rating(k, equal, reported, right, wrong, hits, precision, recall, f1)


def _read(documents: Iterable[Document]) -> tuple[list[Key], list[str]]:
    texts: dict[Key, str] = {}
    for document in documents:
        text = text_of(document)
        if document.key in texts:
            raise InputError(
                f"found two documents with the key {document.key!r}",
                hint="give each document a key of its own",
            )
        if len(texts) == MOST_DOCUMENTS:
            raise InputError(
                f"found more than {MOST_DOCUMENTS:,} documents to compare with each other",
                hint="evaluate a part of them",
            )
        texts[document.key] = text
    return list(texts), list(texts.values())


def _similar(
    recipe: Recipe, batch: Batch, texts: Sequence[str], similarity: float
) -> Iterator[tuple[Places, Places]]:
    """Yield the pairs of texts that a database finds by their similarity; a short one has none."""
    usable = np.flatnonzero(~batch.short)
    if batch.sketches is None or not len(usable):
        return
    numbers = tracked(usable.tolist(), f"digest by {recipe.name}", "text", len(usable))
    digests = [recipe.digest(texts[number]) for number in numbers]
    columns = TextColumns(
        batch.fingerprints[usable],
        digest_rows(digests),
        batch.sketches[usable],
        batch.short[usable],
    )
    shape = choose_bands(similarity, len(texts))
    compared = TextsInColumns(columns, shape, np.arange(len(usable)))
    for first, second, *_ in similar_pairs(compared, similarity):
        yield usable[first.astype(np.int64)], usable[second.astype(np.int64)]


def _sampled(batch: Batch, truth: "Truth") -> tuple[Places, Places]:
    """Draw pairs that aren't known to be similar or equal; all of them if there are few."""
    usable = np.flatnonzero(~batch.short)
    if len(usable) ** 2 <= _SAMPLED:
        above, below = np.triu_indices(len(usable), 1)
    else:
        above, below = np.random.default_rng(0).integers(len(usable), size=(2, _SAMPLED))
    first, second = usable[above], usable[below]
    jaccards = truth.look_up(first, second)
    unlike = (jaccards == 0) & ~truth.equal(first, second)
    return first[unlike], second[unlike]


def _bit_shares(batch: Batch, bits: int) -> tuple[float, ...]:
    """Return for each bit, the lowest first, the share of fingerprints in which it is set."""
    usable = as_words(batch.fingerprints[~batch.short])
    if not len(usable[0]):
        return (0.0,) * bits
    ones = (usable[-1 - bit // 64] >> np.uint64(bit % 64) & np.uint64(1) for bit in range(bits))
    return tuple(float(column.mean()) for column in ones)


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
    # Texts that are equal but for white space are of one class.
    classes: dict[str, int] = {}
    same = [classes.setdefault(_without_spaces(text), len(classes)) for text in texts]
    return Truth(len(keys), codes, jaccards, np.array(same, np.int64))


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
    similar = similar_sets(sets, Limit.of(at_least))
    copies = np.bincount(sets.places, minlength=len(sets.sizes))
    pairs = int((copies[similar.first] * copies[similar.second]).sum())
    if pairs > MOST_PAIRS:
        raise InputError(
            f"found {pairs:,} similar pairs, expected at most {MOST_PAIRS:,}",
            hint="evaluate a part of the documents, with fewer copies",
        )
    none = np.empty(0, np.int64)
    first, second, common = joined([(none, none, none), *copied(sets, similar)])
    sizes = sets.sizes[sets.places]
    jaccards = common / (sizes[first] + sizes[second] - common)
    return Truth(count, _encode(first, second, count), jaccards, sets.places)
