"""MinHash sketches: 128 bytes of a text, from which the Jaccard similarity is estimated.

The sketch is made by fast similarity sketching (Dahlgaard, Knudsen and Thorup, 2017): in each round
every shingle falls into one bin, and fills it if no earlier round did; of several the smallest
hash wins. Bins that stay empty are filled directly, by the smallest of all shingles' hashes for
that bin. So two texts agree in a bin with a probability that is their Jaccard similarity. Of
each winner only four bits are kept (b-bit minwise hashing, Li and König, 2010): bins that
differ agree by accident once in sixteen times, which the estimate subtracts.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fpdb.fingerprint.shingles import I64, U64, Shingles, mix, salts, shingles

# 256 bins of 4 bits: 512 of 2 and 1024 of 1 take as many bytes and err less, by a quarter at most,
# but cost two and four times the time.
BINS = 256
BITS = 4
SIZE = BINS * BITS // 8
_BY_ACCIDENT = 2.0**-BITS
# With few shingles no number of rounds fills all bins; sixteen do for a hundred of them.
_ROUNDS = 16
# The value of a bin: the round above, the shingle's hash below. So a lower round wins, and the
# sketch of two parts of a text is the smaller value of each bin.
_ROUND_SHIFT = np.uint64(52)
_HASH = np.uint64((1 << 52) - 1)
_BIN_SHIFT = np.uint64(64 - 8)
_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
_ROUND_SALTS = salts(_ROUNDS, 1)
_BIN_SALTS = salts(BINS, 2)
# The lowest bit of each bin in a word of a packed sketch.
_LOWEST = np.uint64(0x1111111111111111)


def sketch_texts(texts: Sequence[str], seed: int = 0) -> NDArray[np.uint8]:
    """Sketch clean texts, as uint8[n, 128]; the row of a text without shingles is all zeros."""
    packed = np.zeros((len(texts), SIZE), np.uint8)
    long: U64 | None = None  # the bins of a long text, while its parts come
    owner = -1
    for part in shingles(texts, seed):
        bins = _fill(part)
        rows = slice(part.first, part.first + len(bins))
        if part.first == owner and long is not None:
            bins = np.minimum(bins, long)
        packed[rows] = _pack(bins)
        long, owner = bins, part.first
    return packed


def estimate(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Estimate the Jaccard similarity of sketches, row by row; nan where a row is all zeros."""
    left, right = (np.ascontiguousarray(sketches).view(np.uint64) for sketches in (first, second))
    differing: U64 = left ^ right
    differing |= differing >> np.uint64(2)
    differing |= differing >> np.uint64(1)
    apart = np.bitwise_count(differing & _LOWEST).sum(axis=-1, dtype=np.int64)
    similar = np.clip(1 - apart / BINS / (1 - _BY_ACCIDENT), 0.0, 1.0)
    return np.where(has_sketch(first) & has_sketch(second), similar, np.nan)


def has_sketch(sketches: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Tell which rows are sketches: a text without shingles has none."""
    return np.asarray(sketches.any(axis=-1))


def standard_error(jaccard: float) -> float:
    """Give the standard error of the estimate for texts of this similarity, at most .033."""
    agreeing = jaccard + (1 - jaccard) * _BY_ACCIDENT
    return float((agreeing * (1 - agreeing) / BINS) ** 0.5 / (1 - _BY_ACCIDENT))


def _fill(part: Shingles) -> U64:
    """Fill the bins of some texts; those of a text without shingles stay empty."""
    texts = len(part.counts)
    bins = np.full(texts * BINS, _EMPTY, np.uint64)
    owners = np.repeat(np.arange(texts), part.counts)
    hashes = part.hashes
    table = bins.reshape(texts, BINS)
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


def _fill_directly(table: U64, owners: I64, hashes: U64) -> None:
    """Give every bin that is still empty the smallest hash of all shingles for this bin."""
    order = np.lexsort((hashes, owners))
    owners, hashes = owners[order], hashes[order]
    # A text of one phrase over and over has many shingles, but few distinct ones.
    fresh = np.ones(len(hashes), np.bool_)
    fresh[1:] = (hashes[1:] != hashes[:-1]) | (owners[1:] != owners[:-1])
    owners, hashes = owners[fresh], hashes[fresh]
    counts = np.bincount(owners, minlength=len(table))
    starts = np.cumsum(counts) - counts
    rows, empty = np.nonzero((table == _EMPTY) & (counts > 0)[:, None])
    sizes = counts[rows]
    firsts = np.cumsum(sizes) - sizes
    which = np.arange(int(sizes.sum())) + np.repeat(starts[rows] - firsts, sizes)
    values = mix(hashes[which] ^ np.repeat(_BIN_SALTS[empty], sizes)) & _HASH
    last = np.uint64(_ROUNDS) << _ROUND_SHIFT
    table[rows, empty] = np.minimum.reduceat(values, firsts) | last


def _pack(table: U64) -> NDArray[np.uint8]:
    """Keep the lowest bits of each bin, two bins to a byte; nothing of a text with empty bins."""
    low = (table & np.uint64((1 << BITS) - 1)).astype(np.uint8)
    packed: NDArray[np.uint8] = low[:, 0::2] | low[:, 1::2] << np.uint8(BITS)
    packed[table[:, 0] == _EMPTY] = 0
    return packed
