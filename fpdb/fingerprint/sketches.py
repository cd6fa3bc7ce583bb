"""Sketches: 128 bytes of a text, from which the Jaccard similarity of two texts is estimated.

A clean text is cut into shingles, three words or five characters of a script without spaces in a
row. A shingle begins at each token and spans fifteen units: a word counts five, a character of such
a script three. So one rule serves both kinds of script, and texts that mix them. White space and
punctuation only separate tokens; they are in no shingle.

A sketch is made by fast similarity sketching (Dahlgaard, Knudsen and Thorup, 2017): in each round
every shingle falls into one bin; the smallest hash of the first round that fills a bin wins. Bins
that stay empty are filled with the smallest of all shingles' hashes for that bin. So two texts
agree in a bin with a probability that is their Jaccard similarity. Of each winner four bits are
kept (b-bit minwise hashing, Li and König, 2010): bins that differ agree by accident once in 16
times, which the estimate subtracts.
"""

import math
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from fpdb import kernels
from fpdb.arrays import Column, Places, differs, joined, spans, unique
from fpdb.models import SKETCH_BYTES

SPAN = 15
WORD_UNITS, SIGN_UNITS = 5, 3
_SHORTEST, _LONGEST = -(-SPAN // WORD_UNITS), -(-SPAN // SIGN_UNITS)  # tokens in a shingle
_LETTER, _SIGN = 1, 2
# A longer run of letters counts as several words: no language has such words, but base64 has.
_LONGEST_WORD = 64
# Signs: characters of Chinese, Japanese, and the Asian scripts without spaces between words.
_SIGN_CLASS = (
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
_SIGNS = re.compile(f"{_SIGN_CLASS}+")
_TOKEN = re.compile(rf"(?=\w){_SIGN_CLASS}|(?:(?!{_SIGN_CLASS})\w){{1,{_LONGEST_WORD}}}")
# Characters, and texts, that are processed together; a longer text is processed in pieces.
_CHARACTERS = 1 << 16
_TEXTS = 256
_NO_LETTERS = 0x40000  # from this code on, no character is a letter
_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio, as in splitmix64
_SHIFTS = tuple(map(np.uint64, (30, 27, 31)))
_FACTORS = tuple(map(np.uint64, (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)))

# 512 bins of 2 bits take as many bytes and err less, by a quarter at most, but cost twice the time.
BITS = 4
BINS = 8 * SKETCH_BYTES // BITS
_BY_ACCIDENT = 2.0**-BITS
_MARGIN = 1.5  # in standard errors
# No number of rounds fills all bins with few shingles; sixteen fill them with a hundred.
_ROUNDS = 16
# The value of a bin: the round above, the shingle's hash below. So the smaller value always wins.
_ROUND_SHIFT = np.uint64(52)
# Of so few shingles, all rounds are made together: the calls of numpy would take longer than their
# work.
_FEW = 512
_HASH = np.uint64((1 << 52) - 1)
_BIN_SHIFT = np.uint64(56)
_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
_LOWEST = np.uint64(0x1111111111111111)  # the lowest bit of each bin of a packed sketch
_LOWEST_OF_ALL = int("1" * BINS, 16)


class Shingles(NamedTuple):
    """The shingles of texts in a row, `counts` of each; a long text comes in several parts."""

    first: int  # the number of the first text
    hashes: Column
    counts: Places


class CountedShingles(NamedTuple):
    """The distinct shingles of texts in a row, `counts` of each, and how often each occurs."""

    first: int  # the number of the first text
    hashes: Column
    occurrences: Places
    counts: Places


class PlacedShingles(NamedTuple):
    """The shingles of a text, and where its tokens are.

    Shingle i has the tokens from i on that come before token `ends[i]`. A token has the characters
    from its entry in `starts` to that in `stops`.
    """

    hashes: Column
    ends: Places
    starts: Places
    stops: Places


class _Tokens(NamedTuple):
    """Tokens in a row: the hash of each, its units, and the number of its text."""

    hashes: Column
    units: Places
    owners: Places


_NOTHING = _Tokens(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64))


def mix(values: Column) -> Column:
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


@cache
def salts(count: int, seed: int) -> Column:
    """Return pseudo-random numbers, the same ones for the same seed."""
    return mix(np.arange(1, count + 1, dtype=np.uint64) * _ODD + np.uint64(seed))


_ROUND_SALTS = salts(_ROUNDS, 1)
_ROUND_NUMBERS = np.arange(_ROUNDS, dtype=np.uint64)[:, np.newaxis] << _ROUND_SHIFT
_BIN_SALTS = salts(BINS, 2)
# Of the hashes that vote on a fingerprint, which must not be those that fill the bins.
_VOTE_SALTS = salts(2, 3)
# One for each place in a shingle, because the order of tokens matters.
_PLACE_FACTORS = salts(_LONGEST, 0) | np.uint64(1)


def is_sign(character: str) -> bool:
    """Return whether a character belongs to a script without spaces, if it is in words at all."""
    return _SIGNS.match(character) is not None


def shingle_kernel(
    characters: "kernels.text.CharacterTable",
    weights: "kernels.text.WeightTable",
    *,
    bits: int,
    tie: int,
    most: int,
    seed: int,
) -> "kernels.text.ShingleKernel":
    """Return the kernel that does what this module does, from texts to votes and sketches.

    It leaves texts out that grow beyond `most` characters when they are cleaned.
    """
    letters = salts(_LONGEST_WORD, seed)
    every = np.concatenate([letters, _PLACE_FACTORS, _ROUND_SALTS, _BIN_SALTS, _VOTE_SALTS])
    return kernels.text.ShingleKernel(
        characters, weights, bits=bits, tie=tie, most=most, salts=every
    )


def sketch_texts(texts: Sequence[str], seed: int = 0) -> NDArray[np.uint8]:
    """Return the sketches of clean texts, uint8[n, 128]; zeros for a text without shingles."""
    packed = np.zeros((len(texts), SKETCH_BYTES), np.uint8)
    before, bins = -1, np.empty((0, BINS), np.uint64)
    for part in shingles(texts, seed):
        # The parts of a long text come one after the other.
        own = _fill(part.hashes, part.counts)
        bins = np.minimum(bins, own) if part.first == before else own
        before = part.first
        packed[before : before + len(bins)] = _pack(bins)
    return packed


def sketch_counted(parts: Sequence[CountedShingles], texts: int) -> NDArray[np.uint8]:
    """Return what `sketch_texts` does, from shingles that are counted already."""
    packed = np.zeros((texts, SKETCH_BYTES), np.uint8)
    for part in parts:
        bins = np.full((len(part.counts), BINS), _EMPTY, np.uint64)
        if len(bins) > 1:
            bins = _fill(part.hashes, part.counts)
        else:  # maybe a long text
            for start in range(0, len(part.hashes), _CHARACTERS):
                some = part.hashes[start : start + _CHARACTERS]
                bins = np.minimum(bins, _fill(some, np.array([len(some)])))
        packed[part.first : part.first + len(bins)] = _pack(bins)
    return packed


@overload
def sketch_jaccard(first: bytes, second: bytes) -> float: ...


@overload
def sketch_jaccard(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> NDArray[np.float64]: ...


def sketch_jaccard(
    first: NDArray[np.uint8] | bytes, second: NDArray[np.uint8] | bytes
) -> NDArray[np.float64] | float:
    """Estimate the Jaccard similarity of two sketches, or of arrays of sketches, row by row.

    It is nan where there is no sketch: an empty one, or a row of zeros.
    """
    if isinstance(first, bytes) and isinstance(second, bytes):
        return one_jaccard(first, second)
    first, second = (
        np.frombuffer(each or bytes(SKETCH_BYTES), np.uint8) if isinstance(each, bytes) else each
        for each in (first, second)
    )
    left, right = (np.ascontiguousarray(each).view(np.uint64) for each in (first, second))
    differing: Column = left ^ right
    differing |= differing >> np.uint64(2)
    differing |= differing >> np.uint64(1)
    apart = np.bitwise_count(differing & _LOWEST).sum(axis=-1, dtype=np.int64)
    similar = np.clip(1 - apart / BINS / (1 - _BY_ACCIDENT), 0.0, 1.0)
    return np.where(has_sketch(first) & has_sketch(second), similar, np.nan)


def one_jaccard(first: bytes, second: bytes) -> float:
    """Estimate what `sketch_jaccard` does for two sketches; a missing one may be empty."""
    left, right = int.from_bytes(first), int.from_bytes(second)
    if not left or not right:
        return math.nan
    differing = left ^ right
    differing |= differing >> 2
    differing |= differing >> 1
    apart = (differing & _LOWEST_OF_ALL).bit_count()
    return max(0.0, 1 - apart / BINS / (1 - _BY_ACCIDENT))


def has_sketch(sketches: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Mark the rows that are sketches: a text without shingles has none."""
    return np.asarray(sketches.any(axis=-1))


def standard_error(jaccard: float) -> float:
    """Return the standard error of the estimate for texts of this similarity, at most .033."""
    agreeing = jaccard + (1 - jaccard) * _BY_ACCIDENT
    return float((agreeing * (1 - agreeing) / BINS) ** 0.5 / (1 - _BY_ACCIDENT))


def least_estimate(similarity: float) -> float:
    """Return the estimate from which texts count as having a similarity.

    A sharp limit would lose half of the pairs that are just above it. Texts of usual length err
    less than the standard error: this is two of their standard deviations.
    """
    return similarity - _MARGIN * standard_error(similarity)


def _fill(hashes: Column, counts: Places) -> Column:
    """Fill the bins of some texts; those of a text without shingles stay empty."""
    table = np.full((len(counts), BINS), _EMPTY, np.uint64)
    bins = table.reshape(-1)
    owners = np.repeat(np.arange(len(table)), counts)
    if len(hashes) <= _FEW:
        # All rounds at once: the number of the round makes the first one win.
        values = mix(hashes + _ROUND_SALTS[:, np.newaxis])
        at = owners * BINS + (values >> _BIN_SHIFT).astype(np.int64)
        values &= _HASH
        values |= _ROUND_NUMBERS
        np.minimum.at(bins, at.ravel(), values.ravel())
        if (table == _EMPTY).any():
            _fill_directly(table, owners, hashes)
        return table
    for number, salt in enumerate(_ROUND_SALTS):
        if not len(hashes):
            return table
        values = mix(hashes + salt)
        at = owners * BINS + (values >> _BIN_SHIFT).astype(np.int64)
        values = values & _HASH | np.uint64(number) << _ROUND_SHIFT
        np.minimum.at(bins, at, values)
        wanting = (table == _EMPTY).any(axis=1)[owners]
        owners, hashes = owners[wanting], hashes[wanting]
    if len(hashes):
        _fill_directly(table, owners, hashes)
    return table


def _fill_directly(table: Column, owners: Places, hashes: Column) -> None:
    """Fill every bin that is still empty with the smallest hash of all shingles for this bin."""
    order = np.lexsort((hashes, owners))
    owners, hashes = owners[order], hashes[order]
    # A phrase repeated many times has many shingles, but few distinct ones.
    fresh = differs(hashes, owners)
    owners, hashes = owners[fresh], hashes[fresh]
    counts = np.bincount(owners, minlength=len(table))
    starts = np.cumsum(counts) - counts
    rows, empty = np.nonzero((table == _EMPTY) & (counts > 0)[:, None])
    sizes = counts[rows]
    values = mix(hashes[spans(starts[rows], sizes)] ^ np.repeat(_BIN_SALTS[empty], sizes)) & _HASH
    smallest = np.minimum.reduceat(values, np.cumsum(sizes) - sizes)
    table[rows, empty] = smallest | np.uint64(_ROUNDS) << _ROUND_SHIFT


def _pack(table: Column) -> NDArray[np.uint8]:
    """Keep the lowest bits of each bin, two bins to a byte; zeros for a text with empty bins."""
    low = (table & np.uint64((1 << BITS) - 1)).astype(np.uint8)
    packed: NDArray[np.uint8] = low[:, 0::2] | low[:, 1::2] << np.uint8(BITS)
    packed[table[:, 0] == _EMPTY] = 0
    return packed


def shingles(texts: Sequence[str], seed: int = 0) -> Iterator[Shingles]:
    """Yield the hashes of all shingles of clean texts, in order and in parts of bounded size."""
    for first, block in _blocks(texts):
        if len(block) == 1 and len(block[0]) > _CHARACTERS:
            yield from _long(first, block[0], seed)
            continue
        tokens = _tokens(_codes("\n".join(block)), seed)
        ends = np.cumsum([len(text) + 1 for text in block])
        tokens = tokens._replace(owners=ends.searchsorted(tokens.owners, side="right"))
        hashes, owners = _join(tokens)
        yield Shingles(first, hashes, np.bincount(owners, minlength=len(block)))


def distinct_shingles(texts: Sequence[str], seed: int = 0) -> Iterator[Column]:
    """Yield the set of each clean text's shingles, sorted."""
    for _, parts in groupby(shingles(texts, seed), lambda part: part.first):
        first, *more = parts
        if more:  # of one long text
            yield unique(np.concatenate([first.hashes, *(part.hashes for part in more)]))
        else:
            yield from map(unique, np.split(first.hashes, np.cumsum(first.counts)[:-1]))


def count_shingles(texts: Sequence[str], seed: int = 0) -> Iterator[CountedShingles]:
    """Count the shingles of each clean text, those of a long text in one part."""
    for number, parts in groupby(shingles(texts, seed), lambda part: part.first):
        first, *more = parts
        hashes, counts = first.hashes, first.counts
        if more:
            hashes = np.concatenate([hashes, *(part.hashes for part in more)])
            counts = np.array([len(hashes)])
        end = 0
        for count in counts.tolist():
            hashes[end : end + count].sort()
            end += count
        owners = np.repeat(np.arange(len(counts)), counts)
        [places] = differs(hashes, owners).nonzero()
        occurrences = np.empty_like(places)
        occurrences[:-1] = places[1:] - places[:-1]
        occurrences[-1:] = end - places[-1:]
        distinct = np.bincount(owners[places], minlength=len(counts))
        yield CountedShingles(number, hashes[places], occurrences, distinct)


def vote_hashes(hashes: Column, bits: int) -> NDArray[np.uint8]:
    """Return the bits with which shingles vote on a fingerprint, uint8[n, bits / 8]."""
    words = np.empty((len(hashes), max(bits // 64, 1)), np.uint64)
    for column, salt in enumerate(_VOTE_SALTS[: words.shape[1]]):
        words[:, column] = mix(hashes + salt)
    return words.view(np.uint8)[:, : bits // 8]


def hash_tokens(feature: str, seed: int = 0) -> Column:
    """Return the hash of a string's tokens, in an array: what `shingles` has for a shingle."""
    own = _tokens(_codes(feature), seed).hashes
    factors = _PLACE_FACTORS[np.arange(len(own)) % _LONGEST]
    return mix(np.array([(own * factors).sum(dtype=np.uint64) + np.uint64(len(own))]))


def shingle_strings(text: str) -> list[str]:
    """Return the shingles of a clean text to read, with spaces beside words."""
    tokens = _TOKEN.findall(text)
    signs = [_SIGNS.match(token) is not None for token in tokens]
    strings: list[str] = []
    for start in range(len(tokens)):
        joined_tokens, span = "", 0
        for place in range(start, len(tokens)):
            beside_word = place > start and not (signs[place - 1] and signs[place])
            joined_tokens += " " * beside_word + tokens[place]
            span += SIGN_UNITS if signs[place] else WORD_UNITS
            if span >= SPAN:
                strings.append(joined_tokens)
                break
        else:
            break
    return strings


def placed_shingles(text: str, seed: int = 0) -> PlacedShingles:
    """Return the shingles of a clean text in their order, with their places."""
    codes = _codes(text)
    tokens = _tokens(codes, seed)
    starts = tokens.owners
    hashes, _ = _join(tokens._replace(owners=np.zeros_like(starts)))
    spent = np.concatenate([[0], np.cumsum(tokens.units)])
    [kept] = _kinds()[codes].nonzero()
    stops = kept[kept.searchsorted(np.append(starts[1:], len(codes))[: len(starts)]) - 1] + 1
    return PlacedShingles(hashes, spent.searchsorted(spent[: len(hashes)] + SPAN), starts, stops)


def plain_text(text: str) -> str:
    """Return the words and signs of a clean text, or nothing if they don't make a shingle."""
    tokens = _TOKEN.findall(text)
    units = sum(SIGN_UNITS if _SIGNS.match(token) else WORD_UNITS for token in tokens)
    return " ".join(tokens) if units >= SPAN else ""


def exact_shares(first: Column, second: Column) -> tuple[float, float] | tuple[None, None]:
    """Return the Jaccard similarity of two sets, and the share of the smaller that is in the other.

    There is neither if one of them is empty.
    """
    smaller = min(len(first), len(second))
    if not smaller:
        return None, None
    shared = len(np.intersect1d(first, second, assume_unique=True))
    return shared / (len(first) + len(second) - shared), shared / smaller


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
    """Hash a long text piece by piece; a shingle may begin in one piece and end in the next."""
    held = _NOTHING
    start = 0
    while start < len(text):
        codes = _codes(text[start : start + _CHARACTERS])
        if start + len(codes) < len(text):
            codes = codes[: _cut(codes)]
        start += len(codes)
        tokens = _tokens(codes, seed)
        tokens = tokens._replace(owners=np.zeros_like(tokens.units))
        tokens = _Tokens._make(joined([held, tokens]))
        hashes, _ = _join(tokens, len(held.hashes))
        yield Shingles(number, hashes, np.array([len(hashes)]))
        held = _Tokens._make(column[1 - _LONGEST :] for column in tokens)


def _cut(codes: NDArray[np.uint32]) -> int:
    """Return where a piece can end without tearing a word that would otherwise be one token."""
    others = np.flatnonzero(_kinds()[codes] != _LETTER)
    word = int(others[-1]) + 1 if len(others) else 0
    return word + (len(codes) - word) // _LONGEST_WORD * _LONGEST_WORD


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _tokens(codes: NDArray[np.uint32], seed: int) -> _Tokens:
    """Cut into tokens; `owners` has the positions where they begin."""
    kinds = _kinds()[codes]
    kept = np.flatnonzero(kinds)
    if not len(kept):
        return _NOTHING
    own = kinds[kept]
    begins = own == _SIGN
    begins[0] = True
    begins[1:] |= kept[1:] - kept[:-1] > 1
    begins[1:] |= own[:-1] == _SIGN
    [runs] = begins.nonzero()
    lengths = np.empty_like(runs)
    lengths[:-1] = runs[1:] - runs[:-1]
    lengths[-1] = len(kept) - runs[-1]
    places = np.arange(len(kept)) - np.repeat(runs, lengths)
    if lengths.max() > _LONGEST_WORD:
        places %= _LONGEST_WORD
        runs = np.flatnonzero(places == 0)
    letters = mix(codes[kept] * _ODD + salts(_LONGEST_WORD, seed)[places])
    units = np.where(own[runs] == _SIGN, SIGN_UNITS, WORD_UNITS)
    return _Tokens(mix(np.add.reduceat(letters, runs)), units, kept[runs])


def _join(tokens: _Tokens, known: int = 0) -> tuple[Column, Places]:
    """Join the tokens from each one on until they span enough; return hashes and owners.

    Shingles that end among the first `known` tokens are left out: they were returned before.
    """
    count = len(tokens.hashes)
    if count >= _SHORTEST and (tokens.units == WORD_UNITS).all():
        return _join_words(tokens, known)
    # Three words span enough, and so do four or five tokens if some are signs.
    padded = np.zeros(count + _LONGEST - 1, np.uint64)
    padded[:count] = tokens.hashes
    ends = np.empty(count + _LONGEST, np.int64)  # the units of all tokens before each one
    ends[0] = 0
    np.cumsum(tokens.units, out=ends[1 : count + 1])
    ends[count + 1 :] = ends[count]
    hashes = padded[:count] * _PLACE_FACTORS[0]
    lengths = np.ones(count, np.int64)
    for step, factor in enumerate(_PLACE_FACTORS[1:], 1):
        part = padded[step : count + step] * factor
        if step >= _SHORTEST:
            wanting = ends[step : count + step] - ends[:count] < SPAN
            if not wanting.any():
                break
            part *= wanting
            lengths += wanting
        else:
            lengths += 1
        hashes += part
    last = np.arange(count) + lengths - 1
    whole = (ends[last + 1] - ends[:count] >= SPAN) & (last >= known)
    whole &= tokens.owners == tokens.owners[np.minimum(last, count - 1)]
    return mix(hashes[whole] + lengths[whole].astype(np.uint64)), tokens.owners[whole]


def _join_words(tokens: _Tokens, known: int) -> tuple[Column, Places]:
    """Do what `_join` does for words alone, all of whose shingles have the same length."""
    count = len(tokens.hashes) - _SHORTEST + 1
    hashes = tokens.hashes[:count] * _PLACE_FACTORS[0]
    for step in range(1, _SHORTEST):
        hashes += tokens.hashes[step : count + step] * _PLACE_FACTORS[step]
    owners = tokens.owners[:count]
    whole = owners == tokens.owners[_SHORTEST - 1 :]
    whole[: max(known - _SHORTEST + 1, 0)] = False
    return mix(hashes[whole] + np.uint64(_SHORTEST)), owners[whole]


@cache
def _kinds() -> NDArray[np.uint8]:
    """Return for every character whether it is a letter of a word, a sign or neither."""
    kinds = np.zeros(sys.maxunicode + 1, np.uint8)
    every = "".join(map(chr, range(_NO_LETTERS)))
    for found in re.finditer(r"\w+", every):
        kinds[found.start() : found.end()] = _LETTER
    for found in _SIGNS.finditer(every):
        part = kinds[found.start() : found.end()]
        part[part == _LETTER] = _SIGN
    return kinds
