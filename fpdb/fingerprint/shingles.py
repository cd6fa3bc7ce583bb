"""Cut clean texts into shingles, three words or five Chinese characters in a row, as hashes.

A shingle begins at each token and spans fifteen units: a word counts five, a sign of a script
without spaces three. So one rule serves both kinds of script, and texts that mix them. White space
and punctuation only part the tokens; they are in no shingle.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]

SPAN = 15
WORD_UNITS, SIGN_UNITS = 5, 3
_LONGEST = -(-SPAN // SIGN_UNITS)  # the most tokens in a shingle
_LETTER, _SIGN = 1, 2
# A longer run of letters counts as several words, so that the memory stays bounded: no language
# has such words, but base64 and the like have.
_LONGEST_WORD = 64
# Chinese, Japanese, and the Asian scripts that put no spaces between words.
_SIGNS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]+"
)
# Characters, and texts, that are worked on together: enough to spread the cost of a numpy call,
# little enough for the processor's caches. A longer text is taken in pieces.
_CHARACTERS = 1 << 16
_TEXTS = 256
# From this code on, no character is a letter.
_NO_LETTERS = 0x40000
_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio, as in splitmix64

_SHIFTS = tuple(map(np.uint64, (30, 27, 31)))
_FACTORS = tuple(map(np.uint64, (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)))


@dataclass(frozen=True, eq=False)
class Shingles:
    """The shingles of a few texts, one text after the other; `counts` tells how many each has.

    `first` is the number of the first of these texts. Those of a long text come in several parts.
    """

    first: int
    hashes: U64
    counts: I64


@dataclass(frozen=True, eq=False)
class _Tokens:
    """Tokens in a row: the hash of each, its units, and the text that it stands in."""

    hashes: U64
    units: I64
    owners: I64

    def last(self, count: int) -> "_Tokens":
        return _Tokens(self.hashes[-count:], self.units[-count:], self.owners[-count:])

    def __add__(self, other: "_Tokens") -> "_Tokens":
        return _Tokens(
            np.concatenate([self.hashes, other.hashes]),
            np.concatenate([self.units, other.units]),
            np.concatenate([self.owners, other.owners]),
        )


_NOTHING = _Tokens(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64))


def mix(values: U64) -> U64:
    """Spread numbers over all 64 bits (the finisher of splitmix64)."""
    mixed = values >> _SHIFTS[0]
    mixed ^= values
    mixed *= _FACTORS[0]
    rest = mixed >> _SHIFTS[1]
    mixed ^= rest
    mixed *= _FACTORS[1]
    np.right_shift(mixed, _SHIFTS[2], out=rest)
    mixed ^= rest
    return mixed


def salts(count: int, seed: int) -> U64:
    """Give numbers that look random, the same ones for the same seed."""
    return mix(np.arange(1, count + 1, dtype=np.uint64) * _ODD + np.uint64(seed))


def shingles(texts: Sequence[str], seed: int = 0) -> Iterator[Shingles]:
    """Hash all shingles of clean texts, in order and in parts of bounded size."""
    for first, block in _blocks(texts):
        if len(block) == 1 and len(block[0]) > _CHARACTERS:
            yield from _long(first, block[0], seed)
            continue
        tokens = _tokens(_codes("\n".join(block)), seed)
        ends = np.cumsum([len(text) + 1 for text in block])
        tokens = _Tokens(
            tokens.hashes, tokens.units, np.searchsorted(ends, tokens.owners, side="right")
        )
        hashes, owners = _join(tokens)
        yield Shingles(first, hashes, np.bincount(owners, minlength=len(block)))


def distinct_shingles(text: str, seed: int = 0) -> U64:
    """Give the set of a clean text's shingles, sorted."""
    parts = [part.hashes for part in shingles([text], seed)]
    hashes = np.sort(np.concatenate(parts))
    fresh = np.ones(len(hashes), np.bool_)
    fresh[1:] = hashes[1:] != hashes[:-1]
    return hashes[fresh]


def exact_jaccard(first: U64, second: U64) -> float | None:
    """Give the Jaccard similarity of two sets of shingles; without shingles there is none."""
    if not len(first) or not len(second):
        return None
    both = np.sort(np.concatenate([first, second]))
    shared = int(np.count_nonzero(both[1:] == both[:-1]))
    return shared / (len(both) - shared)


def _blocks(texts: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    first, size = 0, 0
    for number, text in enumerate(texts):
        if number > first and (size + len(text) > _CHARACTERS or number - first == _TEXTS):
            yield first, texts[first:number]
            first, size = number, 0
        size += len(text)
    if first < len(texts):
        yield first, texts[first:]


def _long(number: int, text: str, seed: int) -> Iterator[Shingles]:
    """Hash a long text piece by piece; what begins in one piece may end in the next."""
    held = _NOTHING
    start = 0
    while start < len(text):
        codes = _codes(text[start : start + _CHARACTERS])
        if start + len(codes) < len(text):
            codes = codes[: _cut(codes)]
        start += len(codes)
        tokens = _tokens(codes, seed)
        known = len(held.hashes)
        tokens = held + _Tokens(tokens.hashes, tokens.units, np.zeros_like(tokens.units))
        hashes, _ = _join(tokens, known)
        yield Shingles(number, hashes, np.array([len(hashes)]))
        held = tokens.last(_LONGEST - 1)


def _cut(codes: NDArray[np.uint32]) -> int:
    """Find where a piece can end without a word being torn that would be whole otherwise."""
    others = np.flatnonzero(_kinds()[codes] != _LETTER)
    word = int(others[-1]) + 1 if len(others) else 0
    return word + (len(codes) - word) // _LONGEST_WORD * _LONGEST_WORD


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _tokens(codes: NDArray[np.uint32], seed: int) -> _Tokens:
    """Cut into tokens; in the place of its owner, each has the position where it begins."""
    kinds = _kinds()[codes]
    kept = np.flatnonzero(kinds)
    if not len(kept):
        return _NOTHING
    own = kinds[kept]
    begins = own == _SIGN
    begins[0] = True
    begins[1:] |= (np.diff(kept) > 1) | (own[:-1] == _SIGN)
    runs = np.flatnonzero(begins)
    lengths = np.diff(np.append(runs, len(kept)))
    places = np.arange(len(kept)) - np.repeat(runs, lengths)
    if lengths.max() > _LONGEST_WORD:
        places %= _LONGEST_WORD
        runs = np.flatnonzero(places == 0)
    letters = mix(codes[kept] * _ODD + _word_salts(seed)[places])
    units = np.where(own[runs] == _SIGN, SIGN_UNITS, WORD_UNITS)
    return _Tokens(mix(np.add.reduceat(letters, runs)), units, kept[runs])


def _join(tokens: _Tokens, known: int = 0) -> tuple[U64, I64]:
    """Join the tokens from each one on until they span enough; give hashes and owners.

    Shingles that end among the first `known` tokens are left out: they were given before.
    """
    count = len(tokens.hashes)
    spent = np.concatenate([[0], np.cumsum(tokens.units)])
    hashes = np.zeros(count, np.uint64)
    lengths = np.zeros(count, np.int64)
    span = np.zeros(count, np.int64)
    for step, factor in enumerate(_factors()[:count]):
        at = count - step
        wanting = span[:at] < SPAN
        if not wanting.any():
            break
        hashes[:at] += np.where(wanting, tokens.hashes[step:] * factor, np.uint64(0))
        span[:at] = np.where(wanting, spent[step + 1 :] - spent[:at], span[:at])
        lengths[:at] += wanting
    last = np.arange(count) + lengths - 1
    whole = (span >= SPAN) & (tokens.owners == tokens.owners[last]) & (last >= known)
    return mix(hashes[whole] + lengths[whole].astype(np.uint64)), tokens.owners[whole]


@cache
def _factors() -> tuple[np.uint64, ...]:
    """Odd numbers, one for each place in a shingle, because the order of tokens matters."""
    return tuple(salts(_LONGEST, 0) | np.uint64(1))


@cache
def _word_salts(seed: int) -> U64:
    return salts(_LONGEST_WORD, seed)


@cache
def _kinds() -> NDArray[np.uint8]:
    """Tell of every character whether it is a letter of a word, a sign or neither."""
    kinds = np.zeros(sys.maxunicode + 1, np.uint8)
    every = "".join(map(chr, range(_NO_LETTERS)))
    for found in re.finditer(r"\w+", every):
        kinds[found.start() : found.end()] = _LETTER
    for found in _SIGNS.finditer(every):
        part = kinds[found.start() : found.end()]
        part[part == _LETTER] = _SIGN
    return kinds
