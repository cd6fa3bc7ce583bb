# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Kernels of text: what `fpdb.fingerprint` defines in numpy and Python, in one pass."""

from libc.stdint cimport int64_t, uint64_t

cdef enum:
    BINS = 256
    BIN_SHIFT = 56
    ROUND_SHIFT = 52

cdef uint64_t EMPTY = 0xFFFFFFFFFFFFFFFF
cdef uint64_t HASH = (<uint64_t>1 << ROUND_SHIFT) - 1


cdef inline uint64_t mix(uint64_t value) noexcept nogil:
    """Return what `sketches.mix` does for one number."""
    value = (value ^ (value >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    value = (value ^ (value >> 27)) * <uint64_t>0x94D049BB133111EB
    return value ^ (value >> 31)


cdef bint fill_text(
    const uint64_t *hashes, int64_t count, const uint64_t *salts, int64_t rounds, uint64_t *bins
) noexcept nogil:
    cdef int64_t number, place, empty = BINS
    cdef uint64_t value, high
    cdef uint64_t *bin
    for number in range(rounds):
        high = <uint64_t>number << ROUND_SHIFT
        for place in range(count):
            value = mix(hashes[place] + salts[number])
            bin = &bins[value >> BIN_SHIFT]
            value = (value & HASH) | high
            if value < bin[0]:
                empty -= bin[0] == EMPTY
                bin[0] = value
        if not empty:
            return True
    return False


def fill_rounds(
    const uint64_t[::1] hashes, const int64_t[::1] counts, const uint64_t[::1] salts,
    uint64_t[:, ::1] table,
):
    """Fill the bins of texts by the rounds of the sketch; return whether none stays empty."""
    cdef int64_t text, count, start = 0
    cdef bint full = True
    if table.shape[0] != counts.shape[0] or table.shape[1] != BINS:
        raise ValueError("found a table of another shape than texts and bins")
    with nogil:
        for text in range(counts.shape[0]):
            count = counts[text]
            if count < 0 or count > hashes.shape[0] - start:
                break
            if count and not fill_text(
                &hashes[0] + start, count, &salts[0], salts.shape[0], &table[text, 0]
            ):
                full = False
            start += count
    if start != hashes.shape[0]:
        raise ValueError("found counts that don't add up to the hashes")
    return full
