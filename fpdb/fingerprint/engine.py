"""Run the stages of a recipe over texts: clean, cut, hash, weigh, vote.

This is the definition, text by text. Kernels do all stages at once for the recipes whose parts they
have, and the votes alone for most others; they leave a few texts to the definition.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fpdb import kernels
from fpdb.arrays import Column
from fpdb.errors import InputError
from fpdb.fingerprint import segmentation
from fpdb.fingerprint.features import DAMPING, Grams, Weights
from fpdb.fingerprint.hashing import Digests, Hash, hasher, utf8
from fpdb.fingerprint.kernel_tables import KINDS, Cleaning, factor_table
from fpdb.fingerprint.sketches import (
    PlacedShingles,
    kernel_salts,
    placed_shingles,
    plain_text,
    sketch,
    vote_hashes,
)
from fpdb.models import SKETCH_BYTES, Batch, Explanation, Voter
from fpdb.threads import mapped

# Weights are whole multiples of 1/4096, so that their sums are exact in any order and a
# fingerprint is the same on every machine.
UNITS = 4096
# Characters of texts that are processed together: a kernel lets other threads run meanwhile.
_BLOCK = 1 << 19
_ROWS = 1 << 12  # of features whose bits are unpacked at the same time
_COUNTS_TABULATED = 4096  # as in the kernels
_NO_SKETCHES = np.empty((0, SKETCH_BYTES), np.uint8)
_NOTHING = np.empty(0, np.uint64)


class _Hashed(NamedTuple):
    """The features of one text: the bits with which each votes, and its weight."""

    digests: NDArray[np.uint8]
    weights: NDArray[np.float64]
    shingles: Column = _NOTHING  # their hashes, if the features are shingles


class Engine:
    """The stages of a recipe, ready to run; it caches digests, and threads may share it."""

    def __init__(
        self,
        *,
        bits: int,
        clean: tuple[str, ...],
        segment: str,
        grams: Grams,
        weights: Weights,
        hashing: Hash,
        tie: int,
        largest: int,
    ) -> None:
        self._bits = bits
        self._grams = grams
        self._choice = weights
        self._hashing = hashing.by
        self._tie = tie
        self._clean_steps = clean
        self._steps = [segmentation.STEPS[step] for step in clean]
        # Shingles need the white space between words, and drop everything else themselves.
        self._sketch_steps = [
            segmentation.STEPS[step] for step in clean if step not in segmentation.JOINING
        ]
        if segment == "terms":
            self._sketch_steps.append(segmentation.words_of_terms)
        self._seed = hashing.secret.seed if hashing.secret else 0
        self._segment = segment
        self._cut = segmentation.CUTS[segment]
        self._tagged = segment in segmentation.TAGGED
        self._digests = Digests(hashing.digest(bits))
        self._idf = weights.idf_of()
        # Features that are the shingles of the sketch are numbers from the start.
        self._shingled = (
            segment == "shingles"
            and hashing.by == "shingle"
            and grams.keeps_all
            and self._idf is None
        )
        # Grams that do become strings take up to n times the room of the text.
        windows = segment == "characters" and hashing.by == "xxh3" and grams.n <= 4 and bits <= 64
        alone = grams.n == 1 or (windows and grams.keeps_all and self._idf is None)
        self._room = largest if alone else 2 * largest // grams.n
        self._han_cost = segmentation.HAN_COSTS.get(segment, 1)
        # A text of so few characters fits whatever they are: none has more than 4 bytes.
        self._small = self._room // (4 * self._han_cost)

    def batch(self, texts: Iterable[str], *, sketched: bool = False, jobs: int = 1) -> Batch:
        """Fingerprint all texts, and sketch them if asked to."""
        work = partial(self._block, sketched=sketched)
        blocks = self._blocks(texts)
        if jobs == 1:
            batches = list(map(work, blocks))
        else:
            batches = [batch for _, batch in mapped(work, blocks, jobs)]
        if len(batches) == 1:
            return batches[0]
        sketches = [batch.sketches for batch in batches if batch.sketches is not None]
        return Batch(
            np.concatenate([batch.fingerprints for batch in batches]),
            np.concatenate([batch.features for batch in batches]),
            np.concatenate([batch.short for batch in batches]),
            np.concatenate(sketches) if sketched else None,
        )

    def sketches(self, texts: Iterable[str]) -> NDArray[np.uint8]:
        """Sketch all texts: uint8[n, 128], with zeros for a text that has no shingle."""
        return np.concatenate([self._sketch(block) for block in self._blocks(texts)])

    def distinct_shingles(self, texts: Iterable[str]) -> list[Column]:
        """Return the hashes of the distinct shingles of each text, sorted."""
        found: list[Column] = []
        for block in self._blocks(texts):
            cleaned = self._sketch_cleaning(block) if kernels.enabled else None
            if cleaned is None:
                found += map(self._shingles, block)
                continue
            for text, own in zip(block, self._sketch_kernel.shingles(cleaned), strict=True):
                found.append(
                    self._shingles(text) if own is None else np.sort(np.frombuffer(own, np.uint64))
                )
        return found

    def placed_shingles(self, text: str) -> tuple[str, PlacedShingles]:
        """Return the shingles of a text with their places in it, or in the cleaned text.

        The places are those in the text itself if each of its words is still there.
        """
        cleaned = self._clean(text, self._sketch_steps)
        found, own = placed_shingles(cleaned, self._seed), placed_shingles(text)
        if len(own.starts) != len(found.starts):
            return cleaned, found
        sides = ((text, own), (cleaned, found))
        words, kept = (
            [side[slice(*ends)] for ends in zip(at.starts.tolist(), at.stops.tolist(), strict=True)]
            for side, at in sides
        )
        for word, other in zip(words, kept, strict=True):
            if word.isascii() and word.casefold() != other.casefold():
                return cleaned, found
        return text, found._replace(starts=own.starts, stops=own.stops)

    def plain(self, text: str) -> str:
        """Return the words and signs of a text, or nothing if they don't make a shingle."""
        return plain_text(self._clean(text, self._sketch_steps))

    def distinct_features(self, texts: Iterable[str]) -> list[list[str]]:
        """Return the distinct features of each text."""
        return [list(self.tally(text)) for text in texts]

    def batch_of_segments(self, segments: segmentation.Segments) -> Batch:
        """Fingerprint one document that is already cut."""
        return self._batch_of(self._hash(self.tally_segments(segments)))

    def batch_of_features(self, features: Mapping[str, float]) -> Batch:
        """Fingerprint one document by the given weights of its features."""
        return self._batch_of(self._hash(features, weighed=True))

    def weights(self, text: str) -> dict[str, float]:
        """Return the features of a text and their weights."""
        tally = self.tally(text)
        return dict(zip(tally, self._hash(tally).weights.tolist(), strict=True))

    def explain(self, tally: Mapping[str, float], *, weighed: bool = False) -> Explanation:
        """Return the votes of features, from their counts or their given weights."""
        hashed = self._hash(tally, weighed=weighed)
        votes = self._votes(hashed)
        shares = (np.rint(hashed.weights * UNITS) / UNITS).tolist()
        hashes = [int.from_bytes(digest.tobytes(), "little") for digest in hashed.digests]
        return Explanation(
            fingerprint=int.from_bytes(self._packed(votes).tobytes(), "little"),
            bits=self._bits,
            features=tuple(map(Voter, tally, shares, hashes)),
            votes=tuple((votes / UNITS).tolist()),
            short=len(tally) < self._grams.minimum,
        )

    def tally(self, text: str) -> Mapping[str, float]:
        """Count the features of a text, or add up the weights of their parts of speech."""
        return self.tally_segments(self._cut(self._clean(text, self._steps)))

    def tally_segments(self, segments: segmentation.Segments) -> Mapping[str, float]:
        """Count the features of segments, or add up the weights of their parts of speech."""
        if self._tagged:
            tagged = cast("Sequence[tuple[str, str]]", segments)
            return self._choice.masses(pair for pair in tagged if self._grams.keeps(pair[0]))
        return Counter(self._grams.features(cast("Sequence[str]", segments)))

    def _blocks(self, texts: Iterable[str]) -> Iterator[list[str]]:
        """Check texts, and divide them into blocks, of which the last may be empty."""
        block: list[str] = []
        size = 0
        for text in texts:
            self._check(text)
            block.append(text)
            size += len(text)
            if size >= _BLOCK:
                yield block
                block, size = [], 0
        yield block

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

    def _block(self, block: list[str], *, sketched: bool) -> Batch:
        """Fingerprint a block of texts by kernels, the texts that they leave out by definition."""
        count = len(block)
        fingerprints = np.empty((count, max(self._bits // 64, 1)), np.uint64)
        features = np.empty(count, np.int64)
        kernel = self._voting_kernel if kernels.enabled else None
        cleaned = self._cleaning(block) if kernel is not None else None
        together = sketched and self._shingled and self._sketch_steps == self._steps
        sketches = np.empty((count, SKETCH_BYTES), np.uint8) if together else _NO_SKETCHES
        left: Sequence[int] = range(count)
        if kernel is not None and cleaned is not None:
            left = kernel.run(cleaned, fingerprints, features, sketches)
        votes = self._votes_kernel if kernels.enabled and left else None
        for number in left:
            if votes is not None:
                tally = cast("Mapping[str, int]", self.tally(block[number]))
                digests = list(map(self._digests.__getitem__, tally))
                if votes.vote_counts(digests, list(tally.values()), fingerprints[number]):
                    features[number] = len(digests)
                    continue
            hashed = self._features(block[number])
            fingerprints[number] = self._words(hashed)
            features[number] = len(hashed.digests)
            if together:
                sketches[number] = sketch(hashed.shingles)
        return Batch(
            fingerprints if self._bits > 64 else fingerprints[:, 0],
            features,
            features < self._grams.minimum,
            (sketches if together else self._sketch(block)) if sketched else None,
        )

    def _sketch(self, block: list[str]) -> NDArray[np.uint8]:
        """Sketch a block of texts by the kernel, the texts that it leaves out by definition."""
        sketches = np.empty((len(block), SKETCH_BYTES), np.uint8)
        left: Sequence[int] = range(len(block))
        cleaned = self._sketch_cleaning(block) if kernels.enabled else None
        if cleaned is not None:
            nothing = np.empty((len(block), 0), np.uint64), np.empty(len(block), np.int64)
            left = self._sketch_kernel.run(cleaned, *nothing, sketches)
        for number in left:
            sketches[number] = sketch(self._shingles(block[number]))
        return sketches

    @cached_property
    def _cleaning(self) -> Cleaning:
        cut = self._segment if self._segment in KINDS else "shingles"
        return Cleaning(self._clean_steps, self._small, cut=cut)

    @cached_property
    def _sketch_cleaning(self) -> Cleaning:
        steps = [step for step in self._clean_steps if step not in segmentation.JOINING]
        return Cleaning(steps, self._small, extra=self._sketch_steps[len(steps) :])

    @cached_property
    def _voting_kernel(self) -> "kernels.text.TextKernel | None":
        """The kernel of a recipe whose parts it has, as of most presets."""
        if self._shingled:
            return self._shingle_kernel(self._cleaning)
        if self._hashing != "xxh3" or not self._grams.keeps_all or self._segment not in KINDS:
            return None
        seed, xxh3 = self._seed, hasher(self._bits)
        return kernels.text.FeatureKernel(
            self._cleaning.characters,
            self._weight_table,
            bits=self._bits,
            tie=self._tie,
            most=self._small,
            length=self._grams.n,
            joined=self._segment == "characters",
            seed=seed,
            hasher=lambda feature: xxh3(feature, seed),
            factors=factor_table(self._choice.idf_table()),
            dictionary=segmentation.dictionary_table if self._segment == "jieba" else None,
        )

    @cached_property
    def _votes_kernel(self) -> "kernels.text.TextKernel | None":
        """The kernel of the votes alone, of features that Python cut, hashed and counted."""
        if self._shingled or self._tagged or self._idf is not None:
            return None
        return kernels.text.TextKernel(
            self._cleaning.characters,
            self._weight_table,
            bits=self._bits,
            tie=self._tie,
            most=self._small,
        )

    @cached_property
    def _sketch_kernel(self) -> "kernels.text.ShingleKernel":
        return self._shingle_kernel(self._sketch_cleaning)

    def _shingle_kernel(self, cleaning: Cleaning) -> "kernels.text.ShingleKernel":
        return kernels.text.ShingleKernel(
            cleaning.characters,
            self._weight_table,
            bits=self._bits,
            tie=self._tie,
            most=self._small,
            salts=kernel_salts(self._seed),
        )

    @cached_property
    def _weight_table(self) -> "kernels.text.WeightTable":
        masses = self._weigh(np.arange(_COUNTS_TABULATED, dtype=np.float64))
        units = np.rint(masses * UNITS).astype(np.int64)
        return kernels.text.WeightTable(units, masses, self._units)

    def _units(self, count: int) -> int:
        """Return the weight of features that occur N times."""
        return int(np.rint(self._weigh(np.array([count], np.float64)) * UNITS)[0])

    def _clean(self, text: str, steps: Iterable[Callable[[str], str]]) -> str:
        self._check(text)
        cleaned = text
        for step in steps:
            cleaned = step(cleaned)
        if len(cleaned) > len(text) and len(cleaned) > self._small:
            self._require_small(cleaned, "cleaned text")
        return cleaned

    def _require_small(self, text: str, what: str) -> None:
        """Raise InputError if a text is too large, or its n-grams would be."""
        size, found = len(text), "bytes"
        if size > self._room and not text.isascii():
            found = "bytes or more"
        elif not text.isascii():
            size = len(utf8(text))
            if self._han_cost > 1 and (han := segmentation.count_han(text)):
                size += 3 * han * (self._han_cost - 1)
                found = f"bytes, with {han:,} Chinese characters counted {self._han_cost} times"
        if size > self._room:
            raise InputError(
                f"found a {what} of {size:,} {found}, expected at most {self._room:,} bytes",
                hint="cut it into documents of their own, or open the database with the same "
                "recipe whose limit is higher: recipe.replace(largest=…)",
            )

    def _shingles(self, text: str) -> Column:
        """Return the hashes of the distinct shingles of a text, sorted."""
        return np.unique(placed_shingles(self._clean(text, self._sketch_steps), self._seed).hashes)

    def _features(self, text: str) -> _Hashed:
        """Hash and weigh the features of a text."""
        if not self._shingled:
            return self._hash(self.tally(text))
        every = placed_shingles(self._clean(text, self._steps), self._seed).hashes
        hashes, counts = np.unique(every, return_counts=True)
        weights = self._weigh(counts.astype(np.float64))
        return _Hashed(vote_hashes(hashes, self._bits), weights, hashes)

    def _hash(self, tally: Mapping[str, float], *, weighed: bool = False) -> _Hashed:
        """Hash the features of a text, and weigh them unless their weights are given."""
        weights = np.array(list(tally.values()), np.float64)
        if not weighed:
            weights = self._weigh(weights)
            if self._idf is not None:
                weights *= np.array(list(map(self._idf, tally)), np.float64)
        digests = b"".join(map(self._digests.__getitem__, tally))
        return _Hashed(np.frombuffer(digests, np.uint8).reshape(-1, self._bits // 8), weights)

    def _weigh(self, masses: NDArray[np.float64]) -> NDArray[np.float64]:
        """Damp masses, which are counts unless parts of speech have weights of their own."""
        if self._choice.cap and not self._tagged:
            masses = np.minimum(masses, self._choice.cap)
        if self._choice.by == "count":
            return masses
        damp = DAMPING[self._choice.by]
        return np.array([mass and damp(mass) for mass in masses.tolist()], np.float64)

    def _votes(self, hashed: _Hashed) -> NDArray[np.float64]:
        """Let each feature vote for or against each bit with its weight."""
        votes = np.zeros(self._bits)
        units = np.rint(hashed.weights * UNITS)
        for start in range(0, len(units), _ROWS):
            rows = slice(start, start + _ROWS)
            ones = np.unpackbits(hashed.digests[rows], axis=1, bitorder="little")
            votes += units[rows] @ (2.0 * ones - 1)
        return votes

    def _packed(self, votes: NDArray[np.float64]) -> NDArray[np.uint8]:
        """Return the bytes of a fingerprint, the lowest first: the majority of the votes."""
        return np.packbits(votes >= 0 if self._tie else votes > 0, bitorder="little")

    def _words(self, hashed: _Hashed) -> Column:
        """Return the words of a fingerprint, the highest first."""
        packed = self._packed(self._votes(hashed))
        return packed.view(np.uint32 if self._bits == 32 else np.uint64)[::-1].astype(np.uint64)

    def _batch_of(self, hashed: _Hashed) -> Batch:
        words, features = self._words(hashed)[np.newaxis], np.array([len(hashed.digests)])
        return Batch(
            words if self._bits > 64 else words[:, 0], features, features < self._grams.minimum
        )
