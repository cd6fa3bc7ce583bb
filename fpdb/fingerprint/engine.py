"""Run the stages of a recipe over texts: clean, cut and hash, weigh, vote.

Arrays carry the work wherever they can. Where kernels are built, they do all stages of a text at
once for the recipes whose parts they have.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fpdb import kernels
from fpdb.arrays import Column, Places, joined
from fpdb.errors import InputError
from fpdb.fingerprint import segmentation
from fpdb.fingerprint.compiled import KINDS, Cleaning, factor_table
from fpdb.fingerprint.features import DAMPING
from fpdb.fingerprint.hashing import LONGEST_WINDOW, Digests, hasher, utf8, window_hashes
from fpdb.fingerprint.sketches import (
    CountedShingles,
    PlacedShingles,
    count_shingles,
    distinct_shingles,
    placed_shingles,
    plain_text,
    shingle_kernel,
    sketch_counted,
    sketch_texts,
    vote_hashes,
)
from fpdb.models import SKETCH_BYTES, Batch, Explanation, Voter
from fpdb.threads import mapped

if TYPE_CHECKING:
    from fpdb.fingerprint.recipe import Recipe

# Weights are whole multiples of 1/4096, so that their sums are exact in any order and a
# fingerprint is the same on every machine.
UNITS = 4096
# Characters of texts, and rows of features, that are processed together: enough to spread the cost
# of a numpy call, few enough to stay in the processor's caches.
_BLOCK = 1 << 17
_ROWS = 1 << 11
_EXACT_IN_SINGLE = 1 << 24  # sums of whole numbers are exact below this
_COUNTS_TABULATED = 4096  # as in the kernels
_NO_SKETCHES = np.empty((0, SKETCH_BYTES), np.uint8)


class _Features(NamedTuple):
    """The hashed features of several texts, text after text; text i has `counts[i]` of them."""

    digests: NDArray[np.uint8]
    weights: NDArray[np.float64]
    counts: Places


class Engine:
    """The stages of a recipe, ready to run; it caches digests, and threads may share it."""

    def __init__(self, recipe: "Recipe") -> None:
        cut, grams, weights, hashing = recipe.segment, recipe.grams, recipe.weights, recipe.hash
        self._bits = recipe.bits
        self._grams = grams
        self._choice = weights
        self._tie = recipe.tie
        self._recipe_steps = recipe.clean
        self._steps = [segmentation.STEPS[step] for step in recipe.clean]
        # Shingles need the white space between words, and drop everything else themselves.
        self._sketch_steps = [
            segmentation.STEPS[step] for step in recipe.clean if step not in segmentation.JOINING
        ]
        if cut == "terms":
            self._sketch_steps.append(segmentation.words_of_terms)
        self._seed = hashing.secret.seed if hashing.secret else 0
        self._cut_name = cut
        self._cut = segmentation.CUTS[cut]
        # Where segments are features, their order doesn't matter.
        self._count = segmentation.COUNTS.get(cut) if grams.n == 1 and grams.keeps_all else None
        self._tagged = cut in segmentation.TAGGED
        self._digests = Digests(hashing.digest(recipe.bits))
        self._idf = weights.idf_of()
        counts = range(1, _COUNTS_TABULATED)
        self._damped = np.array([0.0, *map(DAMPING[weights.by], counts)])
        plain = grams.keeps_all and self._idf is None
        self._windowed = (
            cut == "characters"
            and hashing.by == "xxh3"
            and recipe.bits <= 64
            and grams.n <= LONGEST_WINDOW
            and plain
        )
        # Features that are the shingles of the sketch are numbers from the start.
        self._shingled = cut == "shingles" and hashing.by == "shingle" and plain
        self._hashed_strings = hashing.by == "xxh3" and grams.keeps_all
        # Grams that do become strings take up to n times the room of the text.
        alone = self._windowed or grams.n == 1
        self._room = recipe.largest if alone else 2 * recipe.largest // grams.n
        self._han_cost = segmentation.HAN_COSTS.get(cut, 1)
        # A text of so few characters fits whatever they are: none has more than 4 bytes.
        self._small = self._room // (4 * self._han_cost)

    @property
    def in_kernels(self) -> bool:
        """Whether kernels do nearly all of the work, so that threads do it side by side."""
        if not kernels.enabled or self._voting_kernel is None:
            return False
        return not self._cleaning.before and not self._sketch_cleaning.before

    def batch(self, texts: Iterable[str], *, sketched: bool = False, jobs: int = 1) -> Batch:
        """Fingerprint all texts, and sketch them if asked to."""
        work = partial(self._block, sketched=sketched)
        batches = [batch for _, batch in mapped(work, self._blocks(texts), jobs)]
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
        parts: list[NDArray[np.uint8]] = []
        for block in self._blocks(texts):
            parts.append(np.empty((len(block), SKETCH_BYTES), np.uint8))
            self._sketch(block, parts[-1])
        return np.concatenate(parts)

    def distinct_shingles(self, texts: Iterable[str]) -> list[Column]:
        """Return the hashes of the distinct shingles of each text, sorted."""
        cleaned = (self._clean(block, self._sketch_steps) for block in self._blocks(texts))
        return [own for block in cleaned for own in distinct_shingles(block, self._seed)]

    def placed_shingles(self, text: str) -> tuple[str, PlacedShingles]:
        """Return the shingles of a text with their places in it, or in what cleaning leaves of it.

        The places are those in the text itself if each of its words is still there.
        """
        [cleaned] = self._clean(next(self._blocks([text])), self._sketch_steps)
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
        [cleaned] = self._clean(next(self._blocks([text])), self._sketch_steps)
        return plain_text(cleaned)

    def distinct_features(self, texts: Iterable[str]) -> list[list[str]]:
        """Return the distinct features of each text."""
        cleaned = (self._clean(block, self._steps) for block in self._blocks(texts))
        return [list(self._tally_text(text)) for block in cleaned for text in block]

    def batch_of_segments(self, documents: Iterable[segmentation.Segments]) -> Batch:
        """Fingerprint documents that are already cut."""
        return self._vote(self._hash([self.tally_segments(segments) for segments in documents]))

    def batch_of_features(self, documents: Iterable[Mapping[str, float]]) -> Batch:
        """Fingerprint documents by the given weights of their features."""
        return self._vote(self._hash(list(documents), weighed=True))

    def weights(self, text: str) -> dict[str, float]:
        """Return the features of a text and their weights."""
        tally = self.tally(text)
        return dict(zip(tally, self._hash([tally]).weights.tolist(), strict=True))

    def explain(self, tally: Mapping[str, float], *, weighed: bool = False) -> Explanation:
        """Return the votes of features, from their counts or their given weights."""
        hashed = self._hash([tally], weighed=weighed)
        units = np.rint(hashed.weights * UNITS)
        sums = np.zeros(self._bits)
        for top in range(0, len(units), _ROWS):
            rows = slice(top, top + _ROWS)
            ones = np.unpackbits(hashed.digests[rows], axis=1, bitorder="little")
            sums += units[rows] @ (2.0 * ones - 1)
        votes = (sums / UNITS).tolist()
        hashes = [int.from_bytes(digest.tobytes(), "little") for digest in hashed.digests]
        ahead = [vote > 0 or (vote == 0 and self._tie == 1) for vote in votes]
        return Explanation(
            fingerprint=sum(1 << bit for bit, one in enumerate(ahead) if one),
            bits=self._bits,
            features=tuple(map(Voter, tally, (units / UNITS).tolist(), hashes)),
            votes=tuple(votes),
            short=len(tally) < self._grams.minimum,
        )

    def tally(self, text: str) -> Mapping[str, float]:
        """Count the features of a text, or add up the weights of their parts of speech."""
        [cleaned] = self._clean(next(self._blocks([text])), self._steps)
        return self._tally_text(cleaned)

    def _blocks(self, texts: Iterable[str]) -> Iterator[list[str]]:
        """Check texts, and divide them into blocks, of which the last may be empty."""
        block: list[str] = []
        size = 0
        for text in texts:
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
            block.append(text)
            size += len(text)
            if size >= _BLOCK:
                yield block
                block, size = [], 0
        yield block

    def _block(self, block: list[str], *, sketched: bool) -> Batch:
        if not kernels.enabled:
            return self._defined(block, sketched=sketched)
        kernel = self._voting_kernel
        together = sketched and self._shingled and self._sketch_steps == self._steps
        sketches = np.empty((len(block), SKETCH_BYTES), np.uint8) if sketched else None
        if kernel is None:
            batch = self._defined(block, sketched=False)
            fingerprints, features = batch.fingerprints, batch.features
        else:
            fingerprints = np.empty((len(block), max(self._bits // 64, 1)), np.uint64)
            features = np.empty(len(block), np.int64)
            both = sketches if together and sketches is not None else _NO_SKETCHES
            cleaned = self._cleaning(block)
            left = (
                range(len(block))
                if cleaned is None
                else kernel.run(cleaned, fingerprints, features, both)
            )
            for number in left:
                own = self._defined([block[number]], sketched=together)
                fingerprints[number], features[number] = own.fingerprints[0], own.features[0]
                if together and sketches is not None and own.sketches is not None:
                    sketches[number] = own.sketches[0]
            if self._bits <= 64:
                fingerprints = fingerprints[:, 0]
        if sketches is not None and not together:
            self._sketch(block, sketches)
        return Batch(fingerprints, features, features < self._grams.minimum, sketches)

    def _sketch(self, block: list[str], sketches: NDArray[np.uint8]) -> None:
        """Sketch texts into the rows of an array."""
        size = len(block)
        cleaned = self._sketch_cleaning(block) if kernels.enabled else None
        left: Sequence[int] = range(size)
        if cleaned is not None:
            nothing = np.empty((size, 0), np.uint64), np.empty(size, np.int64)
            left = self._sketch_kernel.run(cleaned, *nothing, sketches)
        if left:
            chosen = self._clean([block[number] for number in left], self._sketch_steps)
            sketches[list(left)] = sketch_texts(chosen, self._seed)

    @cached_property
    def _cleaning(self) -> Cleaning:
        cut = self._cut_name if self._cut_name in KINDS else "shingles"
        return Cleaning(self._recipe_steps, self._small, cut=cut)

    @cached_property
    def _sketch_cleaning(self) -> Cleaning:
        steps = [step for step in self._recipe_steps if step not in segmentation.JOINING]
        return Cleaning(steps, self._small, extra=self._sketch_steps[len(steps) :])

    @cached_property
    def _voting_kernel(self) -> "kernels.text.TextKernel | None":
        """The kernel of a recipe whose parts it has, which are most of the presets."""
        if self._shingled:
            return self._shingle_kernel(self._cleaning)
        if not self._hashed_strings or self._cut_name not in KINDS:
            return None
        seed, xxh3 = self._seed, hasher(self._bits)
        return kernels.text.FeatureKernel(
            self._cleaning.characters,
            self._weight_table,
            bits=self._bits,
            tie=self._tie,
            most=self._small,
            length=self._grams.n,
            joined=self._cut_name == "characters",
            compared=not self._windowed,
            seed=seed,
            hasher=lambda feature: xxh3(feature, seed),
            factors=factor_table(self._choice.idf_table()),
            dictionary=segmentation.dictionary_table if self._cut_name == "jieba" else None,
        )

    @cached_property
    def _sketch_kernel(self) -> "kernels.text.TextKernel":
        return self._shingle_kernel(self._sketch_cleaning)

    def _shingle_kernel(self, cleaning: Cleaning) -> "kernels.text.TextKernel":
        return shingle_kernel(
            cleaning.characters,
            self._weight_table,
            bits=self._bits,
            tie=self._tie,
            most=self._small,
            seed=self._seed,
        )

    @cached_property
    def _weight_table(self) -> "kernels.text.WeightTable":
        counts = np.arange(len(self._damped), dtype=np.float64)
        masses = self._weigh(counts)
        units = np.rint(masses * UNITS).astype(np.int64)
        return kernels.text.WeightTable(units, masses, self._units)

    def _units(self, count: int) -> int:
        """Return the weight of features that occur N times."""
        return int(np.rint(self._weigh(np.array([count], np.float64)) * UNITS)[0])

    def _defined(self, block: list[str], *, sketched: bool) -> Batch:
        """Do without kernels what these do for a block; it defines their results."""
        cleaned = self._clean(block, self._steps)
        shared: Sequence[CountedShingles] | None = None
        if self._shingled:
            shared = list(count_shingles(cleaned, self._seed))
            features = self._hash_shingles(shared)
        elif self._windowed:
            features = self._hash_windows(cleaned)
        else:
            features = self._hash([self._tally_text(each) for each in cleaned])
        if not sketched:
            return self._vote(features)
        if self._sketch_steps != self._steps:
            cleaned, shared = self._clean(block, self._sketch_steps), None
        sketches = (
            sketch_texts(cleaned, self._seed)
            if shared is None
            else sketch_counted(shared, len(cleaned))
        )
        return self._vote(features, sketches)

    def _clean(self, block: list[str], steps: Iterable[Callable[[str], str]]) -> list[str]:
        cleaned = block
        for step in steps:
            cleaned = list(map(step, cleaned))
        for before, after in zip(block, cleaned, strict=True):
            if len(after) > len(before) and len(after) > self._small:
                self._require_small(after, "cleaned text")
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
                hint="cut it into documents of their own, or take a recipe with a higher `largest`",
            )

    def _tally_text(self, cleaned: str) -> Mapping[str, float]:
        return self._count(cleaned) if self._count else self.tally_segments(self._cut(cleaned))

    def tally_segments(self, segments: segmentation.Segments) -> Mapping[str, float]:
        """Count the features of segments, or add up the weights of their parts of speech."""
        if self._tagged:
            tagged = cast("Sequence[tuple[str, str]]", segments)
            return self._choice.masses(pair for pair in tagged if self._grams.keeps(pair[0]))
        return Counter(self._grams.features(cast("Sequence[str]", segments)))

    def _hash(self, tallies: Sequence[Mapping[str, float]], *, weighed: bool = False) -> _Features:
        """Hash the features of texts, and weigh them unless their weights are given."""
        sizes = np.fromiter(map(len, tallies), np.int64, len(tallies))
        total = int(sizes.sum())
        values = chain.from_iterable(tally.values() for tally in tallies)
        weights = np.fromiter(values, np.float64, total)
        if not weighed:
            weights = self._weigh(weights)
            if self._idf is not None:
                features = map(self._idf, chain.from_iterable(tallies))
                weights *= np.fromiter(features, np.float64, total)
        digests = b"".join(map(self._digests.__getitem__, chain.from_iterable(tallies)))
        rows = np.frombuffer(digests, np.uint8).reshape(-1, self._bits // 8)
        return _Features(rows, weights, sizes)

    def _hash_shingles(self, parts: Sequence[CountedShingles]) -> _Features:
        """Hash shingles that are counted."""
        nothing = CountedShingles(0, np.empty(0, np.uint64), *np.empty((2, 0), np.int64))
        hashes, occurrences, counts = joined([part[1:] for part in parts] or [nothing[1:]])
        weights = self._weigh(occurrences.astype(np.float64))
        return _Features(vote_hashes(hashes, self._bits), weights, counts)

    def _hash_windows(self, cleaned: list[str]) -> _Features:
        """Hash all windows of characters at once."""
        length, seed = self._grams.n, self._seed
        hashes = window_hashes("".join(cleaned), length, seed)
        pieces, start = [], 0
        for text in cleaned:
            # A text shorter than the window is one window of its own.
            pieces.append(
                hashes[start : start + len(text) - length + 1]
                if len(text) >= length
                else window_hashes(text, max(len(text), 1), seed)
            )
            start += len(text)
        counted = [np.unique_counts(piece) for piece in pieces]
        values = [np.empty(0, np.uint64), *(piece.values for piece in counted)]
        counts = [np.empty(0, np.int64), *(piece.counts for piece in counted)]
        return _Features(
            np.concatenate(values).view(np.uint8).reshape(-1, 8)[:, : self._bits // 8],
            self._weigh(np.concatenate(counts).astype(np.float64)),
            np.fromiter((len(piece.values) for piece in counted), np.int64, len(counted)),
        )

    def _weigh(self, masses: NDArray[np.float64]) -> NDArray[np.float64]:
        """Damp masses, which are counts unless parts of speech have weights of their own."""
        if self._choice.cap and not self._tagged:
            masses = np.minimum(masses, self._choice.cap)
        if self._choice.by == "count":
            return masses
        if not self._tagged and masses.max(initial=0) < _COUNTS_TABULATED:
            return self._damped[masses.astype(np.intp)]
        return np.array([DAMPING[self._choice.by](mass) for mass in masses.tolist()], np.float64)

    def _vote(self, features: _Features, sketches: NDArray[np.uint8] | None = None) -> Batch:
        """Let every feature vote on every bit with its weight, and take the majority."""
        digests, weights, counts = features
        units = np.rint(weights * UNITS)
        ends = np.cumsum(counts)
        running = np.concatenate([[0.0], np.cumsum(units)])
        starts = ends - counts
        totals = running[ends] - running[starts]
        exact = totals < _EXACT_IN_SINGLE
        texts = list(zip(starts.tolist(), ends.tolist(), exact.tolist(), strict=True))
        votes = np.zeros((len(texts), self._bits))
        place = 0
        for top in range(0, len(units), _ROWS):
            bottom = top + _ROWS
            bits = np.unpackbits(digests[top:bottom], axis=1, bitorder="little").astype(np.float32)
            single = units[top:bottom].astype(np.float32)
            while place < len(texts) and texts[place][0] < bottom:
                start, end, in_single = texts[place]
                first, last = max(start, top), min(end, bottom)
                rows = slice(first - top, last - top)
                if in_single:
                    votes[place] += single[rows] @ bits[rows]
                else:
                    votes[place] += units[first:last] @ bits[rows].astype(np.float64)
                if end > bottom:
                    break
                place += 1
        ahead = 2 * votes - totals[:, None]
        packed = np.packbits(ahead >= 0 if self._tie else ahead > 0, 1, bitorder="little")
        if self._bits == 32:
            words = packed.view(np.uint32)[:, 0].astype(np.uint64)
        elif self._bits == 64:
            words = packed.view(np.uint64)[:, 0]
        else:
            words = np.ascontiguousarray(packed.view(np.uint64)[:, ::-1])
        return Batch(words, counts, counts < self._grams.minimum, sketches)
