"""The stages of a recipe, run over texts: clean, cut, hash, weigh, vote.

This is the definition, text by text. Kernels do all stages at once for the recipes whose parts they
have, and the votes alone for most others; they leave a few texts to the definition.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import xxhash
from numpy.typing import NDArray

from fpdb import kernels
from fpdb.arrays import Column, items_of
from fpdb.errors import InputError
from fpdb.fingerprint import segmentation
from fpdb.fingerprint.features import DAMPING, Grams, Weights, factor_table
from fpdb.fingerprint.hashing import Digests, Hash, utf8
from fpdb.fingerprint.segmentation import KINDS, Cleaning
from fpdb.fingerprint.sketches import (
    RUN,
    PlacedPassages,
    PlacedShingles,
    common_runs,
    kernel_salts,
    pack_passages,
    passage_numbers,
    placed_shingles,
    places_of,
    sketch,
    tokens_of,
    vote_hashes,
)
from fpdb.models import LARGEST_TEXT, SKETCH_BYTES, Batch, Explanation, Voter
from fpdb.threads import mapped

K = TypeVar("K", bound="kernels.text.TextKernel")

USUAL_K = 3
USUAL_SIMILARITY = 0.8  # of near-duplicates, usually
# Weights are whole multiples of 1/4096, so that their sums are exact in any order and a
# fingerprint is the same on every machine.
UNITS = 4096
# Characters of texts that are processed together: a kernel lets other threads run meanwhile.
_BLOCK = 1 << 19
_ROWS = 1 << 12  # of features whose bits are unpacked at the same time
_COUNTS_TABULATED = 4096  # as in the kernels
_NO_SKETCHES = np.empty((0, SKETCH_BYTES), np.uint8)


class _Hashed(NamedTuple):
    """The features of one text: the bits with which each votes, and its weight."""

    digests: NDArray[np.uint8]
    weights: NDArray[np.float64]
    shingles: Column | None = None  # all hashes in their order, if the features are shingles


@dataclass(frozen=True)
class Stages:
    """The parts of a recipe, and the texts' way through them; caches of it are shared by threads.

    `Recipe` describes the parts.
    """

    name: str
    bits: int = 64
    clean: tuple[str, ...] = ("unicode",)
    segment: str = "jieba"
    grams: Grams = field(default_factory=Grams)
    weights: Weights = field(default_factory=Weights)
    hash: Hash = field(default_factory=Hash)
    tie: int = 0
    largest: int = LARGEST_TEXT
    k: int = USUAL_K
    similarity: float | None = USUAL_SIMILARITY
    sketch: str = "shingles"
    common: tuple[str, ...] = ()

    def batch(
        self, texts: Iterable[str], *, sketches: bool = False, passages: bool = False, jobs: int = 1
    ) -> Batch:
        """Fingerprint texts, and mark those that are too short.

        Args:
            texts: Any iterable of texts.
            sketches: Also return the sketch of each.
            passages: Also return the numbers of each, by which texts that share a passage are
                found.
            jobs: The number of threads; 0 for one a processor. They help where kernels do
                the work, as for most presets.

        Returns:
            Arrays of the same length: `fingerprints`, which mean nothing where `short` is true, and
            the number of `features`.

        Raises:
            InputError: As in `fingerprint`.
        """
        work = partial(self._block, sketched=sketches, numbered=passages)
        blocks = self._blocks(texts)
        # A text alone takes so little time that a generator of threads shows.
        batches = [*map(work, blocks)] if jobs == 1 else [b for _, b in mapped(work, blocks, jobs)]
        if len(batches) == 1:
            return batches[0]
        sketched = [batch.sketches for batch in batches if batch.sketches is not None]
        counts = [batch.shingles for batch in batches if batch.shingles is not None]
        return Batch(
            np.concatenate([batch.fingerprints for batch in batches]),
            np.concatenate([batch.features for batch in batches]),
            np.concatenate([batch.short for batch in batches]),
            np.concatenate(sketched) if sketched else None,
            [numbers for batch in batches for numbers in batch.passages or ()]
            if passages
            else None,
            np.concatenate(counts) if counts else None,
        )

    def shingles(self, text: str) -> NDArray[np.uint64]:
        """Return the hashes of a text's distinct shingles, sorted; its sketch is of this set.

        Those of the common texts aren't in it. If the recipe's sketch is of features, these take
        the place of shingles.
        """
        return self.shingles_many([text])[0]

    def shingles_many(self, texts: Iterable[str]) -> list[NDArray[np.uint64]]:
        """Return the hashes of the distinct shingles of each text, sorted, as `shingles` does."""
        sets: list[Column] = []
        compiled = kernels.enabled and self.sketch == "shingles"
        for block in self._blocks(texts):
            cleaned = self._sketch_cleaning(block) if compiled else None
            hashed = self._sketch_kernel.shingles(cleaned) if cleaned else [None] * len(block)
            for text, data in zip(block, hashed, strict=True):
                sets.append(
                    self._shingles(text)
                    if data is None
                    else np.sort(np.frombuffer(data, np.uint64))
                )
        if self.common:
            return [np.setdiff1d(every, self._uncounted, assume_unique=True) for every in sets]
        return sets

    def placed_shingles(self, text: str) -> tuple[str, PlacedShingles]:
        """Return a text, or what its cleaning leaves of it, and its shingles with their places.

        The places are those in the text itself if each of its words is still there.
        """
        cleaned = self._cleaned(text, self._sketch_cleaning.steps)
        placed, tokens = placed_shingles(cleaned, self._seed), tokens_of(text)
        if len(tokens) != len(placed.starts) or any(
            token.group().isascii() and token.group().casefold() != cleaned[start:stop].casefold()
            for token, start, stop in zip(tokens, placed.starts, placed.stops, strict=True)
        ):
            return cleaned, placed
        starts, stops = places_of(tokens)
        return text, placed._replace(starts=starts, stops=stops)

    def placed_passages(self, text: str) -> PlacedPassages:
        """Return the numbers of a text's passages, and their tokens as `placed_shingles` counts."""
        self._check(text)
        compiled = kernels.enabled and not self.common
        cleaned = self._sketch_cleaning([text]) if compiled else None
        parts = self._sketch_kernel.passages(cleaned[0]) if cleaned else None
        if parts:
            numbers, begins, ends, tokens = parts
            return PlacedPassages(
                np.frombuffer(numbers, np.uint64),
                np.frombuffer(begins, np.int64),
                np.frombuffer(ends, np.int64),
                tokens,
            )
        placed = self._placed(text)
        values, at = passage_numbers(placed.hashes)
        common = None
        if self.common:
            common = common_runs(placed.hashes, self.common_shingles)[at]
        return PlacedPassages(values, at, placed.ends[at + RUN - 1], len(placed.starts), common)

    def features(self, text: str) -> dict[str, float]:
        """Return the features of a text and their weights."""
        tally = self._tally(text)
        return dict(zip(tally, self._hash(tally).weights.tolist(), strict=True))

    def features_many(self, texts: Iterable[str]) -> list[list[str]]:
        """Return the distinct features of each text but those of common ones, without weights."""
        left_out = set(chain.from_iterable(map(self._tally, self.common)))
        tallies = map(self._tally, items_of(texts, "texts"))
        return [[name for name in tally if name not in left_out] for tally in tallies]

    def _blocks(self, texts: Iterable[str]) -> Iterator[list[str]]:
        """Check texts, and divide them into blocks, of which the last may be empty."""
        block: list[str] = []
        size = 0
        for text in texts if type(texts) is list else items_of(texts, "texts"):
            self._check(text)
            block.append(text)
            size += len(text)
            if size >= _BLOCK:
                yield block
                block, size = [], 0
        yield block

    def _block(self, block: list[str], *, sketched: bool, numbered: bool = False) -> Batch:
        """Fingerprint a block of texts by kernels, the texts that they leave out by definition."""
        count = len(block)
        fingerprints = np.empty((count, max(self.bits // 64, 1)), np.uint64)
        features = np.empty(count, np.int64)
        sketches = np.empty((count if sketched else 0, SKETCH_BYTES), np.uint8)
        passages = [b""] * count if numbered else None
        # Outputs that aren't made of the features that vote are made of shingles, afterwards.
        outputs = (
            sketches if self._together or self._featured else _NO_SKETCHES,
            passages if self._together else None,
        )
        left: Sequence[int] = range(count)
        if kernels.enabled and (kernel := self._voting_kernel):
            cleaned = self._cleaning(block)
            if cleaned is not None:
                left = kernel.run(cleaned, fingerprints, features, *outputs)
        votes = self._votes_kernel if kernels.enabled and left else None
        for number in left:
            if votes is not None:
                tally = cast("Mapping[str, int]", self._tally(block[number]))
                digests = list(map(self._digests.__getitem__, tally))
                if votes.vote_counts(digests, list(tally.values()), fingerprints[number]):
                    features[number] = len(digests)
                    if len(outputs[0]):
                        every = np.frombuffer(b"".join(digests), np.uint8)
                        sketches[number] = sketch(self._hashes(every))
                    continue
            hashed = self._features(block[number])
            fingerprints[number] = self._words(self._votes(hashed))
            features[number] = len(hashed.digests)
            _sample(number, self._sampled(hashed), *outputs)
        unfilled, shingles = _NO_SKETCHES if len(outputs[0]) else sketches, features
        if len(unfilled) or (numbered and not self._together):
            counts = self._sample(block, unfilled, passages)
            shingles = counts if len(unfilled) else features
        return Batch(
            fingerprints if self.bits > 64 else fingerprints[:, 0],
            features,
            features < self.grams.minimum,
            sketches if sketched else None,
            passages,
            shingles if sketched else None,
        )

    def _sample(
        self, block: list[str], sketches: NDArray[np.uint8], passages: list[bytes] | None
    ) -> NDArray[np.int64]:
        """Sample the shingles of texts by the kernel, where it leaves one out by definition.

        Return how many distinct ones each text has.
        """
        left: Sequence[int] = range(len(block))
        counts = np.empty(len(block), np.int64)
        compiled = kernels.enabled and not self.common
        cleaned = self._sketch_cleaning(block) if compiled else None
        if cleaned is not None:
            nothing = np.empty((len(block), 0), np.uint64)
            left = self._sketch_kernel.run(cleaned, nothing, counts, sketches, passages)
        sets = self.shingles_many(block) if self.common else []
        for number in left:
            hashes = self._placed(block[number]).hashes
            distinct = sets[number] if sets else np.unique(hashes)
            counts[number] = len(distinct)
            _sample(number, distinct, sketches, None)
            if passages is not None:
                numbers, places = passage_numbers(hashes)
                counted = ~common_runs(hashes, self.common_shingles)[places]
                passages[number] = pack_passages(numbers[counted])
        return counts

    # Cleaning

    @cached_property
    def _sketch_cleaning(self) -> Cleaning:
        # Shingles need the white space between words, and drop everything else themselves.
        steps = [step for step in self.clean if step not in segmentation.JOINING]
        return Cleaning(steps, self._small)

    @cached_property
    def _cleaning(self) -> Cleaning:
        cut = self.segment if self.segment in KINDS else "shingles"
        return Cleaning(self.clean, self._small, cut=cut)

    def _cleaned(self, text: str, steps: Sequence[str]) -> str:
        self._check(text)
        cleaned = segmentation.clean(text, steps)
        if len(cleaned) > len(text) and len(cleaned) > self._small:
            self._require_small(cleaned, "cleaned text")
        return cleaned

    def _check(self, text: object) -> None:
        if not isinstance(text, str):
            path = isinstance(text, os.PathLike)
            raise InputError(
                f"found {type(text).__name__}, expected a text (str)",
                hint="read the file first: path.read_text()"
                if path
                else "decode bytes first: data.decode('utf-8', 'replace')",
            )
        if len(text) > self._small:
            self._require_small(text, "text")

    @cached_property
    def _room(self) -> int:
        """Bytes of the largest text; grams that become strings take up to n times as many."""
        windows = self.segment == "characters" and self.hash.by == "xxh3" and self.grams.n <= 4
        windows = windows and self.bits <= 64 and self.grams.keeps_all and not self.weights.idf
        return self.largest if self.grams.n == 1 or windows else 2 * self.largest // self.grams.n

    @cached_property
    def _small(self) -> int:
        """A text of so few characters fits whatever they are: none has more than 4 bytes."""
        return self._room // (4 * segmentation.HAN_COSTS.get(self.segment, 1))

    def _require_small(self, text: str, what: str) -> None:
        """Raise InputError if a text is too large, or its n-grams would be."""
        size, measure = len(text) if text.isascii() else len(utf8(text)), "bytes"
        cost = segmentation.HAN_COSTS.get(self.segment, 1)
        if cost > 1 and size <= self._room and (han := segmentation.count_han(text)):
            size += 3 * han * (cost - 1)
            measure = f"bytes, with {han:,} Chinese characters counted {cost} times"
        if size > self._room:
            raise InputError(
                f"found a {what} of {size:,} {measure}, expected at most {self._room:,} bytes",
                hint="cut it into documents of their own, or open the database with the same "
                "recipe whose limit is higher: recipe.replace(largest=…)",
            )

    # Kernels

    @cached_property
    def _voting_kernel(self) -> "kernels.text.TextKernel | None":
        """The kernel of a recipe whose parts it has, as of most presets."""
        if self._shingled:
            return self._kernel(kernels.text.ShingleKernel, self._cleaning)
        if self.hash.by != "xxh3" or not self.grams.keeps_all or self.segment not in KINDS:
            return None
        if self.bits > 64:
            return None
        seed = self._seed
        return self._kernel(
            kernels.text.FeatureKernel,
            self._cleaning,
            length=self.grams.n,
            joined=self.segment == "characters",
            seed=seed,
            hasher=lambda feature: xxhash.xxh3_64_intdigest(feature, seed),
            factors=factor_table(self.weights.idf_table()),
            dictionary=segmentation.dictionary_table if self.segment == "jieba" else None,
        )

    @cached_property
    def _votes_kernel(self) -> "kernels.text.TextKernel | None":
        """The kernel of the votes alone, of features that Python cut, hashed and counted."""
        if self._shingled or self._tagged or self.weights.idf is not None:
            return None
        return self._kernel(kernels.text.TextKernel, self._cleaning)

    @cached_property
    def _sketch_kernel(self) -> "kernels.text.ShingleKernel":
        return self._kernel(kernels.text.ShingleKernel, self._sketch_cleaning)

    def _kernel(self, make: Callable[..., K], cleaning: Cleaning, **settings: Any) -> K:
        parts = {"bits": self.bits, "tie": self.tie, "most": self._small}
        salts = kernel_salts(self._seed)
        return make(cleaning.characters, self._weight_table, salts=salts, **parts, **settings)

    @cached_property
    def _weight_table(self) -> "kernels.text.WeightTable":
        masses = self._weigh(np.arange(_COUNTS_TABULATED, dtype=np.float64))
        units = np.rint(masses * UNITS).astype(np.int64)
        return kernels.text.WeightTable(units, masses, self._units)

    def _units(self, count: int) -> int:
        """Return the weight of features that occur N times."""
        return int(np.rint(self._weigh(np.array([count], np.float64)) * UNITS)[0])

    # The definition

    @cached_property
    def _shingled(self) -> bool:
        """Whether the features are the shingles of the sketch, numbers from the start."""
        plain = self.grams.keeps_all and self.weights.idf is None
        return plain and self.segment == "shingles" and self.hash.by == "shingle"

    @cached_property
    def _together(self) -> bool:
        """Whether the shingles that vote are those of sketches and passages as well."""
        same = self._shingled and self._sketch_cleaning.steps == list(self.clean)
        return same and not self.common

    @cached_property
    def _featured(self) -> bool:
        """Whether sketches are of the features that vote."""
        return self.sketch == "features" and not self.common

    @cached_property
    def _uncounted(self) -> Column:
        """The shingles of the common texts, or their features if sketches are of these, sorted."""
        sets = (self._shingles(text) for text in self.common)
        return np.unique(np.concatenate([np.empty(0, np.uint64), *sets]))

    @cached_property
    def common_shingles(self) -> Column:
        """The hashes of the shingles of the common texts, sorted."""
        sets = (self._placed(text).hashes for text in self.common)
        return np.unique(np.concatenate([np.empty(0, np.uint64), *sets]))

    @cached_property
    def _tagged(self) -> bool:
        return self.segment == "jieba-tags"

    @cached_property
    def _seed(self) -> int:
        return self.hash.secret.seed if self.hash.secret else 0

    @cached_property
    def _digests(self) -> Digests:
        return Digests(self.hash.digest(self.bits))

    def _shingles(self, text: str) -> Column:
        """Return the hashes of the distinct shingles of a text, or of its features, sorted."""
        if self.sketch == "features":
            return np.unique(self._sampled(self._features(text)))
        return np.unique(self._placed(text).hashes)

    def _sampled(self, hashed: _Hashed) -> Column:
        """Return the hashes that a sketch is of, if it is of the features that vote."""
        return self._hashes(hashed.digests) if hashed.shingles is None else hashed.shingles

    def _hashes(self, digests: NDArray[np.uint8]) -> Column:
        """Return the lowest 64 of the bits with which each feature votes, as numbers."""
        words = digests.reshape(-1).view(np.uint32 if self.bits == 32 else np.uint64)
        return words[:: max(self.bits // 64, 1)].astype(np.uint64)

    def _placed(self, text: str) -> PlacedShingles:
        return placed_shingles(self._cleaned(text, self._sketch_cleaning.steps), self._seed)

    def _tally(self, text: str) -> Mapping[str, float]:
        """Count the features of a text, or add up the weights of their parts of speech."""
        return self._tally_segments(
            segmentation.CUTS[self.segment](self._cleaned(text, self.clean))
        )

    def _tally_segments(self, segments: segmentation.Segments) -> Mapping[str, float]:
        if self._tagged:
            tagged = cast("Sequence[tuple[str, str]]", segments)
            return self.weights.masses(pair for pair in tagged if self.grams.keeps(pair[0]))
        return Counter(self.grams.features(cast("Sequence[str]", segments)))

    def _features(self, text: str) -> _Hashed:
        if not self._shingled:
            return self._hash(self._tally(text))
        every = placed_shingles(self._cleaned(text, self.clean), self._seed).hashes
        hashes, counts = np.unique(every, return_counts=True)
        weights = self._weigh(counts.astype(np.float64))
        return _Hashed(vote_hashes(hashes, self.bits), weights, every)

    def _hash(self, tally: Mapping[str, float], *, weighed: bool = False) -> _Hashed:
        """Hash the features of a text, and weigh them unless their weights are given."""
        weights = np.array(list(tally.values()), np.float64)
        if not weighed:
            weights = self._weigh(weights)
            if idf := self.weights.idf_table():
                weights *= np.array([idf.values.get(feature, idf.missing) for feature in tally])
        digests = b"".join(map(self._digests.__getitem__, tally))
        return _Hashed(np.frombuffer(digests, np.uint8).reshape(-1, self.bits // 8), weights)

    def _weigh(self, masses: NDArray[np.float64]) -> NDArray[np.float64]:
        """Damp masses, which are counts unless parts of speech have weights of their own."""
        if self.weights.cap and not self._tagged:
            masses = np.minimum(masses, self.weights.cap)
        if self.weights.by == "count":
            return masses
        damp = DAMPING[self.weights.by]
        return np.array([mass and damp(mass) for mass in masses.tolist()], np.float64)

    def _votes(self, hashed: _Hashed) -> NDArray[np.float64]:
        """Let each feature vote for or against each bit with its weight."""
        votes = np.zeros(self.bits)
        units = np.rint(hashed.weights * UNITS)
        for start in range(0, len(units), _ROWS):
            rows = slice(start, start + _ROWS)
            ones = np.unpackbits(hashed.digests[rows], axis=1, bitorder="little")
            votes += units[rows] @ (2.0 * ones - 1)
        return votes

    def _words(self, votes: NDArray[np.float64]) -> Column:
        """Return the words of a fingerprint, the highest first: the majority of the votes."""
        packed = np.packbits(votes >= 0 if self.tie else votes > 0, bitorder="little")
        return packed.view(np.uint32 if self.bits == 32 else np.uint64)[::-1].astype(np.uint64)

    def _batch_of(self, tally: Mapping[str, float], *, weighed: bool = False) -> Batch:
        """Fingerprint one text by the counts of its features, or their given weights."""
        words = self._words(self._votes(self._hash(tally, weighed=weighed)))[np.newaxis]
        features = np.array([len(tally)])
        return Batch(
            words if self.bits > 64 else words[:, 0], features, features < self.grams.minimum
        )

    def _explained(self, tally: Mapping[str, float], *, weighed: bool = False) -> Explanation:
        """Return the votes of features, from their counts or their given weights."""
        hashed = self._hash(tally, weighed=weighed)
        votes = self._votes(hashed)
        shares = (np.rint(hashed.weights * UNITS) / UNITS).tolist()
        hashes = [int.from_bytes(digest.tobytes(), "little") for digest in hashed.digests]
        return Explanation(
            fingerprint=to_int(self._words(votes)),
            bits=self.bits,
            features=tuple(map(Voter, tally, shares, hashes)),
            votes=tuple((votes / UNITS).tolist()),
            short=len(tally) < self.grams.minimum,
        )


def _sample(
    number: int, shingles: Column, sketches: NDArray[np.uint8], passages: list[bytes] | None
) -> None:
    """Fill in the sketch of a text and the numbers of its passages, as far as there is room."""
    if len(sketches):
        sketches[number] = sketch(shingles)
    if passages is not None:
        passages[number] = pack_passages(passage_numbers(shingles)[0])


def to_int(fingerprint: Any) -> int:
    """Return an entry of a fingerprint array as a number."""
    words = np.atleast_1d(fingerprint).tolist()
    return int(words[0]) if len(words) == 1 else int(words[0]) << 64 | int(words[1])
