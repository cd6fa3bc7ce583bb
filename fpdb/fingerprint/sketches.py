"""Samples of the shingles of a text: a sketch, and the numbers of its passages.

From sketches, 128 bytes each, the Jaccard similarity of two texts is estimated.

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

Texts that share a passage share a number, which is made by winnowing (Schleimer, Wilkerson and
Aiken, 2003). Of the shingles of a text in their order, RUN in a row make one hash; of WINDOW such
hashes in a row the smallest is chosen. So two texts that have RUN + WINDOW - 1 shingles in a row in
common share a number for certain: a passage of RUN + WINDOW + 1 words, or of two signs more.
Shorter ones are often found, too. The choice of a hash depends on its neighbours alone. A share of
all hashes, such as those that end with some zeros, would leave gaps of any length.
"""

import math
import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from fpdb import kernels
from fpdb.arrays import Column, Marks, Places, among
from fpdb.models import PASSAGE_BYTES, SKETCH_BYTES

SPAN = 15
WORD_UNITS, SIGN_UNITS = 5, 3
_LONGEST = -(-SPAN // SIGN_UNITS)  # tokens in a shingle
# A longer run of letters counts as several words: no language has such words, but base64 has.
_LONGEST_WORD = 64
# Signs: characters of Chinese, Japanese, and the Asian scripts without spaces between words.
SIGN_CLASS = (
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
_SIGN = re.compile(SIGN_CLASS)
# A token that is a sign has the group.
_TOKEN = re.compile(rf"(?=\w)({SIGN_CLASS})|(?:(?!{SIGN_CLASS})\w){{1,{_LONGEST_WORD}}}")
ODD = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio, as in splitmix64
_SHIFTS = tuple(map(np.uint64, (30, 27, 31)))
_FACTORS = tuple(map(np.uint64, (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)))

# 512 bins of 2 bits take as many bytes and err less, by a quarter at most, but cost twice the time.
BITS = 4
BINS = 8 * SKETCH_BYTES // BITS
_BY_ACCIDENT = 2.0**-BITS
_MARGIN = 1.5  # in standard errors
# Estimates so many standard errors below or above a similarity leave open which side it is on.
_DOUBT_BELOW, _DOUBT_ABOVE = 3.0, 4.0
# No number of rounds fills all bins with few shingles; sixteen fill them with a hundred.
_ROUNDS = 16
_AT_ONCE = 1 << 12  # shingles that take part in all rounds together
# The value of a bin: the round above, the shingle's hash below. So the smaller value always wins.
_ROUND_SHIFT = np.uint64(52)
_HASH = np.uint64((1 << 52) - 1)
_BIN_SHIFT = np.uint64(56)
_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
_LOWEST = np.uint64(0x1111111111111111)  # the lowest bit of each bin of a packed sketch
_LOWEST_OF_ALL = int("1" * BINS, 16)
LOW_WORDS = BINS // 64  # the lowest bits of all bins
_LOW_SHIFTS = np.uint64(1) << np.arange(BITS, dtype=np.uint64)
# They are part of the format: other ones make other numbers. Shorter runs are stock phrases that
# many documents have, longer ones don't bear edits. 30 characters in a row are found for certain.
RUN, WINDOW = 4, 23
_BRIDGED = 3  # numbers of a passage that may have changed between two that are shared
_UNUSED = 8 - PASSAGE_BYTES
_PASSAGE_SHIFT = np.uint64(8 * _UNUSED)


class PlacedShingles(NamedTuple):
    """The shingles of a text, and where its tokens are.

    Shingle i has the tokens from i on that come before token `ends[i]`. A token has the characters
    from its entry in `starts` to that in `stops`.
    """

    hashes: Column
    ends: Places
    starts: Places
    stops: Places


def mix(values: Column) -> Column:
    """Spread numbers over all 64 bits (the finisher of splitmix64)."""
    mixed = values >> _SHIFTS[0]
    mixed ^= values
    mixed *= _FACTORS[0]
    shifted = mixed >> _SHIFTS[1]
    mixed ^= shifted
    mixed *= _FACTORS[1]
    np.right_shift(mixed, _SHIFTS[2], out=shifted)
    mixed ^= shifted
    return mixed


@cache
def salts(count: int, seed: int) -> Column:
    """Return pseudo-random numbers, the same ones for the same seed."""
    return mix(np.arange(1, count + 1, dtype=np.uint64) * ODD + np.uint64(seed))


_ROUND_SALTS = salts(_ROUNDS, 1)[:, np.newaxis]
_ROUND_NUMBERS = np.arange(_ROUNDS, dtype=np.uint64)[:, np.newaxis] << _ROUND_SHIFT
_BIN_SALTS = salts(BINS, 2)
# Of the hashes that vote on a fingerprint, which must not be those that fill the bins.
_VOTE_SALTS = salts(2, 3)
# One for each place in a shingle, because the order of tokens matters.
_PLACE_FACTORS = salts(_LONGEST, 0) | np.uint64(1)


def is_sign(character: str) -> bool:
    """Return whether a character belongs to a script without spaces, if it is in words at all."""
    return _SIGN.match(character) is not None


def kernel_salts(seed: int) -> Column:
    """Return all salts in the order in which the kernel of shingles takes them."""
    letters, rounds = salts(_LONGEST_WORD, seed), _ROUND_SALTS[:, 0]
    return np.concatenate([letters, _PLACE_FACTORS, rounds, _BIN_SALTS, _VOTE_SALTS])


def sketch(hashes: Column) -> NDArray[np.uint8]:
    """Return the sketch of a set of shingles, 128 bytes; zeros if there is none."""
    if not len(hashes):
        return np.zeros(SKETCH_BYTES, np.uint8)
    bins = np.full(BINS, _EMPTY, np.uint64)
    for start in range(0, len(hashes), _AT_ONCE):
        values = mix(hashes[start : start + _AT_ONCE] + _ROUND_SALTS)
        places = (values >> _BIN_SHIFT).astype(np.intp)
        np.minimum.at(bins, places, values & _HASH | _ROUND_NUMBERS)
    empty = bins == _EMPTY
    bins[empty] = (mix(hashes ^ _BIN_SALTS[empty, np.newaxis]) & _HASH).min(axis=1)
    low = (bins & np.uint64((1 << BITS) - 1)).astype(np.uint8)
    packed: NDArray[np.uint8] = low[0::2] | low[1::2] << np.uint8(BITS)
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
    left, right = (np.ascontiguousarray(rows).view(np.uint64) for rows in (first, second))
    differing: Column = left ^ right
    differing |= differing >> np.uint64(2)
    differing |= differing >> np.uint64(1)
    apart = np.bitwise_count(differing & _LOWEST).sum(axis=-1, dtype=np.int64)
    return _estimates(apart, np.asarray(left.any(axis=-1) & right.any(axis=-1)))


def _estimates(apart: Places, there: Marks) -> NDArray[np.float64]:
    similar = np.clip(1 - apart / BINS / (1 - _BY_ACCIDENT), 0.0, 1.0)
    return np.where(there, similar, np.nan)


def jaccard_of_rows(
    first: NDArray[np.uint8], first_rows: Places, second: NDArray[np.uint8], second_rows: Places
) -> NDArray[np.float64]:
    """Estimate the similarities of rows of two arrays of sketches, as `sketch_jaccard` does."""
    if not kernels.enabled:
        return sketch_jaccard(first[first_rows], second[second_rows])
    left, right = (np.ascontiguousarray(rows).view(np.uint64) for rows in (first, second))
    apart = np.empty(len(first_rows), np.int64)
    kernels.number_pages.bins_apart(left, first_rows, right, second_rows, apart)
    return _estimates(apart, apart >= 0)


def one_jaccard(first: bytes, second: bytes) -> float:
    """Estimate the similarity of two sketches like `sketch_jaccard`; a missing one may be empty."""
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


def doubtful_estimates(similarity: float) -> tuple[float, float]:
    """Return the estimates between which only the texts can show whether they are this similar.

    The first is still in doubt, the second isn't.
    """
    error = standard_error(similarity)
    return similarity - _DOUBT_BELOW * error, similarity + _DOUBT_ABOVE * error


def most_apart(estimate: float) -> int:
    """Return in how many bins two sketches differ at most, if the estimate is at least this."""
    estimates = _estimates(np.arange(BINS + 1), np.ones(1, np.bool_))
    return int(np.count_nonzero(estimates >= estimate)) - 1


def low_bits(sketches: NDArray[np.uint8]) -> Column:
    """Return the lowest bit of each bin, in four words of each sketch."""
    words = np.ascontiguousarray(sketches).view(np.uint64).reshape(-1, BITS) & _LOWEST
    packed: Column = words @ _LOW_SHIFTS
    return packed.reshape(-1, LOW_WORDS)


def low_bits_apart(
    first: Column, first_rows: Places, second: Column, second_rows: Places
) -> Column:
    """Return in how many of the lowest bits some rows differ: in at least as many bins.

    Where all differ, the number may be 0.
    """
    apart = np.bitwise_count(second.take(second_rows, axis=0) ^ first.take(first_rows, axis=0))
    # Four numbers up to 64 are added in the upper byte.
    sums: Column = apart.view(np.uint32)[:, 0] * np.uint32(0x01010101) >> np.uint32(24)
    return sums


def vote_hashes(hashes: Column, bits: int) -> NDArray[np.uint8]:
    """Return the bits with which shingles vote on a fingerprint, uint8[n, bits / 8]."""
    words = np.empty((len(hashes), max(bits // 64, 1)), np.uint64)
    for column, salt in enumerate(_VOTE_SALTS[: words.shape[1]]):
        words[:, column] = mix(hashes + salt)
    return words.view(np.uint8)[:, : bits // 8]


def tokens_of(text: str) -> list[re.Match[str]]:
    """Return the tokens of a clean text."""
    return list(_TOKEN.finditer(text))


def placed_shingles(text: str, seed: int = 0) -> PlacedShingles:
    """Return the shingles of a clean text in their order, with their places."""
    tokens = tokens_of(text)
    spent = np.cumsum([0, *_units(tokens)])
    ends = spent.searchsorted(spent[spent + SPAN <= spent[-1]] + SPAN)
    return PlacedShingles(_join(_hash_tokens(tokens, seed), ends), ends, *places_of(tokens))


def places_of(tokens: Sequence[re.Match[str]]) -> tuple[Places, Places]:
    """Return where tokens begin and end."""
    # Lists of numbers would take more memory than the matches.
    starts = np.fromiter((token.start() for token in tokens), np.int64, len(tokens))
    return starts, np.fromiter((token.end() for token in tokens), np.int64, len(tokens))


def hash_shingle(shingle: str, seed: int = 0) -> Column:
    """Return the hash of a shingle that is a string, in an array."""
    tokens = _hash_tokens(tokens_of(shingle), seed)
    return _join(tokens, np.array([len(tokens)]))


def shingle_strings(text: str) -> list[str]:
    """Return the shingles of a clean text to read, with spaces beside words."""
    tokens = tokens_of(text)
    strings: list[str] = []
    for start, end in enumerate(placed_shingles(text).ends.tolist()):
        strings.append(tokens[start].group())
        for before, token in pairwise(tokens[start:end]):
            strings[-1] += " " * (not (before.lastindex and token.lastindex)) + token.group()
    return strings


def plain_text(text: str) -> str:
    """Return the words and signs of a clean text, or nothing if they don't make a shingle."""
    tokens = tokens_of(text)
    return " ".join([token.group() for token in tokens]) if sum(_units(tokens)) >= SPAN else ""


def _units(tokens: Sequence[re.Match[str]]) -> list[int]:
    return [SIGN_UNITS if token.lastindex else WORD_UNITS for token in tokens]


def _hash_tokens(tokens: Sequence[re.Match[str]], seed: int) -> Column:
    """Hash each token: letters with a salt for their place, added up."""
    if not tokens:
        return np.empty(0, np.uint64)
    words = [token.group() for token in tokens]
    codes = np.frombuffer("".join(words).encode("utf-32-le", "surrogatepass"), np.uint32)
    lengths = np.array(list(map(len, words)))
    starts = lengths.cumsum() - lengths
    places = np.arange(len(codes)) - np.repeat(starts, lengths)
    letters = mix(codes * ODD + salts(_LONGEST_WORD, seed)[places])
    return mix(np.add.reduceat(letters, starts))


def _join(tokens: Column, ends: Places) -> Column:
    """Return the hashes of shingles: shingle i has the tokens from i to `ends[i]`."""
    starts = np.arange(len(ends))
    hashes = (ends - starts).astype(np.uint64)
    for step in range(int(hashes.max(initial=0))):
        inside = starts + step < ends
        hashes[inside] += tokens[starts[inside] + step] * _PLACE_FACTORS[step % _LONGEST]
    return mix(hashes)


def exact_shares(first: Column, second: Column) -> tuple[float, float] | tuple[None, None]:
    """Return the Jaccard similarity of two sets, and the share of the smaller that is in the other.

    There is neither if one of them is empty.
    """
    smaller = min(len(first), len(second))
    if not smaller:
        return None, None
    shared = len(np.intersect1d(first, second, assume_unique=True))
    return shared / (len(first) + len(second) - shared), shared / smaller


class PlacedPassages(NamedTuple):
    """The distinct numbers of a text in its order, and the tokens that each is made of.

    These are the tokens from its entry in `begins` on that come before that in `ends`, of all the
    `tokens` of the text; a number that occurs several times has the first place. Some may be marked
    as `common` ones, which count for nobody.
    """

    numbers: Column
    begins: Places
    ends: Places
    tokens: int
    common: Marks | None = None

    @property
    def counted(self) -> Marks:
        """Marks of the numbers that no common text has."""
        return np.ones(len(self.numbers), np.bool_) if self.common is None else ~self.common

    def words_of(self, documents: Places, shared: Places, count: int) -> Places:
        """Estimate how many tokens each of N documents has, by the numbers that it shares.

        The columns have a row for each document and the place of a number of the text that it has,
        sorted. Numbers with hardly any others between them are of one passage, in which some words
        may be changed. It ends half way between its last number and the next one, on average, and
        with the text if it has the last one.
        """
        if not len(shared):
            return np.zeros(count, np.int64)
        apart = (shared[1:] - shared[:-1] > _BRIDGED + 1) | (documents[1:] != documents[:-1])
        edge = np.ones(1, np.bool_)
        firsts, lasts = (shared[np.concatenate(marks)] for marks in ([edge, apart], [apart, edge]))
        owners = documents[np.concatenate([edge, apart])]
        starts, stops = self.begins[firsts], self.ends[lasts]
        before = self.begins[np.maximum(firsts - 1, 0)]  # where the number before begins
        after = self.ends[np.minimum(lasts + 1, len(self.ends) - 1)]
        starts = np.minimum((before + 1 + starts) // 2, starts)
        starts[firsts == 0] = 0
        stops = np.maximum((stops + after) // 2, stops)
        stops[lasts + 1 == len(self.ends)] = self.tokens
        # Passages that overlap, since others were changed between them, count once.
        same = owners[1:] == owners[:-1]
        starts[1:] = np.where(same, np.maximum(starts[1:], stops[:-1]), starts[1:])
        words = np.zeros(count, np.int64)
        np.add.at(words, owners, np.maximum(stops - starts, 0))
        return words


def passage_numbers(hashes: Column) -> tuple[Column, Places]:
    """Return the distinct numbers of a text in its order, and where the shingles of each begin.

    Args:
        hashes: Those of its shingles, in their order.
    """
    count = max(len(hashes) - RUN + 1, 0)
    if not count:
        return np.empty(0, np.uint64), np.empty(0, np.int64)
    runs = np.zeros(count, np.uint64)
    for step in range(RUN):
        runs = runs * ODD + hashes[step : step + count]
    windows = np.lib.stride_tricks.sliding_window_view(runs, min(WINDOW, count))
    places = np.unique(windows.argmin(axis=1) + np.arange(len(windows)))
    # The smallest of many hashes is small, but a number may be anything.
    numbers = mix(runs[places]) >> _PASSAGE_SHIFT
    firsts = np.sort(np.unique(numbers, return_index=True)[1])
    return numbers[firsts], places[firsts]


def common_runs(hashes: Column, common: Column) -> Marks:
    """Mark the runs of shingles that passages are made of, by their first one, if any is common.

    Args:
        hashes: The shingles of a text, in their order.
        common: Shingles that count for nobody, sorted.
    """
    if len(hashes) < RUN:
        return np.zeros(len(hashes), np.bool_)
    marks = among(hashes, common)
    return np.asarray(np.lib.stride_tricks.sliding_window_view(marks, RUN).any(axis=1))


def pack_passages(numbers: Column) -> bytes:
    """Return numbers sorted, 5 bytes each, the highest byte first."""
    rows = np.sort(numbers).astype(">u8").view(np.uint8).reshape(-1, 8)
    return rows[:, _UNUSED:].tobytes()


def unpack_passages(packed: bytes) -> Column:
    rows = np.zeros((len(packed) // PASSAGE_BYTES, 8), np.uint8)
    rows[:, _UNUSED:] = np.frombuffer(packed, np.uint8).reshape(-1, PASSAGE_BYTES)
    return rows.view(">u8")[:, 0].astype(np.uint64)
