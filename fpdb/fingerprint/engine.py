"""Run the stages of a recipe over batches of texts, on arrays wherever they can carry the work."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from fpdb.errors import InputError
from fpdb.fingerprint import clean, minhash, segment
from fpdb.fingerprint.hashing import Digests, encode
from fpdb.fingerprint.shingles import distinct_shingles
from fpdb.fingerprint.weights import in_units
from fpdb.fingerprint.windows import LONGEST, window_hashes
from fpdb.models import Batch

if TYPE_CHECKING:
    from fpdb.fingerprint.recipe import Recipe

# Texts are taken together up to this many characters: enough to spread the cost of a numpy
# call, little enough to stay in the processor's caches.
_BLOCK = 1 << 17
# Feature rows that vote together, so that their bits stay in the cache as well.
_ROWS = 1 << 11
# Whole numbers below this are exact in single precision, and so is every sum that stays below.
_EXACT_IN_SINGLE = 1 << 24


@dataclass(frozen=True, eq=False)
class _Bags:
    """The features of several texts, one after the other; `rows` of them belong to each text.

    `features` counts the distinct ones; only where plain counts weigh may one have several rows.
    """

    digests: NDArray[np.uint8]
    masses: NDArray[np.float64]
    rows: NDArray[np.int64]
    features: NDArray[np.int64]
    idf: NDArray[np.float64] | None = None


class Engine:
    """A recipe made ready to run; it remembers digests, and may be shared by threads."""

    def __init__(self, recipe: "Recipe") -> None:
        self._recipe = recipe
        self._steps = [clean.STEPS[step] for step in recipe.clean]
        parting = [clean.STEPS[step] for step in recipe.clean if step not in clean.JOINING]
        self._sketch_steps = parting if len(parting) < len(self._steps) else None
        self._seed = recipe.hash.secret.seed if recipe.hash.secret else 0
        self._cut = segment.CUTS[recipe.segment]
        # Where segments are features, their order doesn't matter, and counting may be faster.
        alone = recipe.grams.n == 1 and recipe.grams.whole_segments
        self._count = segment.COUNTS.get(recipe.segment) if alone else None
        self._tagged = recipe.segment in segment.TAGGED
        self._digests = Digests(recipe.hash.digest(recipe.bits))
        self._idf = recipe.weights.idf_of()
        # Equal features may vote one by one where their count is their weight.
        self._repeats = recipe.weights.by == "count" and not recipe.weights.cap
        # Windows of a few characters need not become strings at all; those that do take as much
        # as the text, over and over.
        self._windowed = (
            recipe.segment == "characters"
            and recipe.hash.by == "xxh3"
            and recipe.bits <= 64
            and recipe.grams.n <= LONGEST
            and recipe.grams.whole_segments
            and self._idf is None
        )
        grams = 1 if self._windowed else recipe.grams.n
        self._room = recipe.largest if grams == 1 else 2 * recipe.largest // grams
        self._han_cost = segment.HAN_COSTS.get(recipe.segment, 1)

    def batch(self, texts: Iterable[str], *, sketched: bool = False) -> Batch:
        """Fingerprint all texts, and sketch them if asked to; each is cleaned once for both."""
        make_bags = self._window_bags if self._windowed else self._text_bags
        batches = []
        for block in _blocks(texts):
            cleaned = self._clean(block, self._steps)
            batch = self._sign(make_bags(cleaned))
            if sketched:
                batch = replace(batch, sketches=self._sketch_block(block, cleaned))
            batches.append(batch)
        return _joined(batches, self._recipe.bits, sketched=sketched)

    def sketches(self, texts: Iterable[str]) -> NDArray[np.uint8]:
        """Sketch all texts: uint8[n, 128], with zeros for a text that has no shingle."""
        found = [self._sketch_block(block) for block in _blocks(texts)]
        return np.concatenate([np.zeros((0, minhash.SIZE), np.uint8), *found])

    def distinct_shingles(self, text: str) -> NDArray[np.uint64]:
        """Give the set of hashes that a text's sketch stands for, sorted."""
        [cleaned] = self._clean([text], self._sketch_steps or self._steps)
        return distinct_shingles(cleaned, self._seed)

    def _sketch_block(
        self, texts: list[str], cleaned: list[str] | None = None
    ) -> NDArray[np.uint8]:
        if cleaned is None or self._sketch_steps is not None:
            cleaned = self._clean(texts, self._sketch_steps or self._steps)
        return minhash.sketch_texts(cleaned, self._seed)

    def batch_of_segments(self, documents: Iterable[segment.Segments]) -> Batch:
        """Fingerprint documents that are cut already."""
        return self._sign(self._bags([self._tally(segments) for segments in documents]))

    def batch_of_features(self, documents: Iterable[Mapping[str, float]]) -> Batch:
        """Fingerprint documents whose features and weights are known already."""
        tallies = list(documents)
        bags = self._bags(tallies)
        return self._sign(bags, bags.masses)

    def weights(self, text: str) -> dict[str, float]:
        """Give the features of a text and how much each counts."""
        [cleaned] = self._clean([text], self._steps)
        tally = self._tally_text(cleaned)
        return dict(zip(tally, self._weights(self._bags([tally])).tolist(), strict=True))

    def _clean(self, texts: list[str], steps: Iterable[clean.Step]) -> list[str]:
        cleaned = texts
        for step in steps:
            cleaned = list(map(step, cleaned))
        for before, text in zip(texts, cleaned, strict=True):
            if len(text) > len(before):
                self.require_small(text, "cleaned text")
        return cleaned

    def require_small(self, text: str, what: str = "text") -> None:
        """Refuse a text that is too large, or whose n-grams would be."""
        if len(text) <= self._room // (4 * self._han_cost):  # no character has more than 4 bytes
            return
        size, found = len(text), "characters"
        if size <= self._room and not text.isascii():
            size, found = len(encode(text)), "bytes"
            if self._han_cost > 1 and (han := segment.count_han(text)):
                size += 3 * han * (self._han_cost - 1)
                found = f"bytes, with {han:,} Chinese characters counted {self._han_cost} times"
        if size > self._room:
            raise InputError(
                f"found a {what} of {size:,} {found}, expected at most {self._room:,} bytes",
                hint="cut it into documents of their own, or take recipe.replace(largest=…)",
            )

    def _tally_text(self, cleaned: str) -> Mapping[str, float]:
        return self._count(cleaned) if self._count else self._tally(self._cut(cleaned))

    def _tally(self, segments: segment.Segments) -> Mapping[str, float]:
        """Count the features, or add up the weights of their parts of speech."""
        if self._tagged:
            tagged = cast("Sequence[tuple[str, str]]", segments)
            keeps = self._recipe.grams.keeps
            return self._recipe.weights.masses(pair for pair in tagged if keeps(pair[0]))
        return Counter(self._recipe.grams.features(cast("Sequence[str]", segments)))

    def _text_bags(self, cleaned: list[str]) -> _Bags:
        return self._bags([self._tally_text(text) for text in cleaned])

    def _bags(self, tallies: Sequence[Mapping[str, float]]) -> _Bags:
        sizes = np.fromiter(map(len, tallies), np.int64, len(tallies))
        total = int(sizes.sum())
        values = chain.from_iterable(tally.values() for tally in tallies)
        masses = np.fromiter(values, np.float64, total)
        digests = b"".join(map(self._digests.__getitem__, chain.from_iterable(tallies)))
        idf = None
        if self._idf is not None:
            idf = np.fromiter(map(self._idf, chain.from_iterable(tallies)), np.float64, total)
        width = self._recipe.bits // 8
        rows = np.frombuffer(digests, np.uint8).reshape(-1, width)
        return _Bags(rows, masses, sizes, sizes, idf)

    def _window_bags(self, cleaned: list[str]) -> _Bags:
        length, seed = self._recipe.grams.n, self._seed
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
        if self._repeats:
            for piece in pieces:
                piece.sort()
            distinct = [
                1 + np.count_nonzero(piece[1:] != piece[:-1]) if len(piece) else 0
                for piece in pieces
            ]
            masses = np.ones(sum(map(len, pieces)))
        else:
            merged = [np.unique_counts(piece) for piece in pieces]
            pieces = [piece.values for piece in merged]
            distinct = list(map(len, pieces))
            masses = np.concatenate([piece.counts for piece in merged]).astype(np.float64)
        digests = np.concatenate(pieces).view(np.uint8).reshape(-1, 8)
        return _Bags(
            digests[:, : self._recipe.bits // 8],
            masses,
            np.fromiter(map(len, pieces), np.int64, len(pieces)),
            np.array(distinct, np.int64),
        )

    def _weights(self, bags: _Bags) -> NDArray[np.float64]:
        choice = self._recipe.weights
        masses = bags.masses
        if choice.cap and not self._tagged:
            masses = np.minimum(masses, choice.cap)
        weights = choice.damp(masses)
        return weights if bags.idf is None else weights * bags.idf

    def _sign(self, bags: _Bags, weights: NDArray[np.float64] | None = None) -> Batch:
        """Let every feature vote on every bit with its weight, and take the majority."""
        units = in_units(self._weights(bags) if weights is None else weights)
        ends = np.cumsum(bags.rows)
        starts = ends - bags.rows
        running = np.concatenate([[0.0], np.cumsum(units)])
        totals = running[ends] - running[starts]
        votes = self._votes(bags.digests, units, starts.tolist(), ends.tolist(), totals.tolist())
        ahead = 2 * votes - totals[:, None]
        packed = np.packbits(ahead >= 0 if self._recipe.tie else ahead > 0, 1, bitorder="little")
        short = bags.features < self._recipe.grams.minimum
        return Batch(_words(packed, self._recipe.bits), bags.features, short)

    def _votes(
        self,
        digests: NDArray[np.uint8],
        units: NDArray[np.float64],
        starts: list[int],
        ends: list[int],
        totals: list[float],
    ) -> NDArray[np.float64]:
        """Add up, for every text and bit, the weights of the features that have this bit."""
        votes = np.zeros((len(totals), self._recipe.bits))
        text = 0
        for top in range(0, len(units), _ROWS):
            bottom = top + _ROWS
            bits = np.unpackbits(digests[top:bottom], axis=1, bitorder="little").astype(np.float32)
            single = units[top:bottom].astype(np.float32)
            while text < len(totals) and starts[text] < bottom:
                first, last = max(starts[text], top), min(ends[text], bottom)
                rows = slice(first - top, last - top)
                if totals[text] < _EXACT_IN_SINGLE:
                    votes[text] += single[rows] @ bits[rows]
                else:
                    votes[text] += units[first:last] @ bits[rows].astype(np.float64)
                if ends[text] > bottom:
                    break
                text += 1
        return votes


def _words(packed: NDArray[np.uint8], bits: int) -> NDArray[np.uint64]:
    if bits == 32:
        return packed.view(np.uint32)[:, 0].astype(np.uint64)
    words = packed.view(np.uint64)
    return words[:, 0] if bits == 64 else np.ascontiguousarray(words[:, ::-1])


def _blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    block: list[str] = []
    size = 0
    for text in texts:
        block.append(text)
        size += len(text)
        if size >= _BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def _joined(batches: list[Batch], bits: int, *, sketched: bool) -> Batch:
    if len(batches) == 1:
        return batches[0]
    if not batches:
        shape = (0, 2) if bits == 128 else (0,)
        return Batch(
            np.empty(shape, np.uint64),
            np.empty(0, np.int64),
            np.empty(0, np.bool_),
            np.empty((0, minhash.SIZE), np.uint8) if sketched else None,
        )
    sketches = [batch.sketches for batch in batches if batch.sketches is not None]
    return Batch(
        np.concatenate([batch.fingerprints for batch in batches]),
        np.concatenate([batch.features for batch in batches]),
        np.concatenate([batch.short for batch in batches]),
        np.concatenate(sketches) if sketched else None,
    )
