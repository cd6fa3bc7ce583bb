# cython: language_level=3
"""The cut of Chinese as plain C, for this kernel and others.

A table is an array of numbers: a header, the weight of each frequency, an entry for each Han
character that begins words, and a hash table of the entries for longer beginnings. An entry has
the place of the beginning that it continues and its own last character in its upper 37 bits, the
number of its weight in the next 26 (0: it isn't a word), and in the last whether words continue it.
"""

from libc.stdint cimport int32_t, uint32_t, uint64_t

cdef enum:
    # Of the header: the number of weights, that of slots, and the places of what follows it.
    WEIGHTS_COUNT = 0
    SLOTS_COUNT = 1
    WEIGHTS = 2
    FIRST_HAN = 0x4E00
    LAST_HAN = 0x9FD5  # jieba cuts no others by its dictionary
    HANS = 0x9FD5 - 0x4E00 + 1
    HAN_BITS = 15
    KEY_SHIFT = 27
    WEIGHT_MASK = ((1 << 26) - 1) << 1
    CONTINUES = 1
    # jieba builds a graph of all words in a run of Han, so longer runs are cut in pieces.
    LONGEST_RUN = 1 << 14


cdef inline Py_ssize_t roots_of(const uint64_t *table) noexcept nogil:
    return WEIGHTS + <Py_ssize_t>table[WEIGHTS_COUNT]


cdef inline Py_ssize_t slots_of(const uint64_t *table) noexcept nogil:
    return roots_of(table) + HANS


cdef inline bint is_han(uint32_t character) noexcept nogil:
    return FIRST_HAN <= character <= LAST_HAN


cdef inline uint64_t slot_of(
    const uint64_t *slots, uint64_t mask, uint64_t key
) noexcept nogil:
    """Return the slot that has the key, or the empty one where it belongs."""
    cdef uint64_t slot = (key * <uint64_t>0x9E3779B97F4A7C15) >> 32 & mask
    while slots[slot] and slots[slot] >> KEY_SHIFT != key:
        slot = (slot + 1) & mask
    return slot


cdef inline void choose_words(
    const uint64_t *table, const uint32_t *run, Py_ssize_t size, double *values, int32_t *ends
) noexcept nogil:
    """Set the end of the best word at each place, by the same sums in the same order as jieba."""
    cdef const double *weights = <const double *>(table + WEIGHTS)
    cdef Py_ssize_t roots = roots_of(table), slots = slots_of(table)
    cdef Py_ssize_t start, stop, node
    cdef uint64_t mask = table[SLOTS_COUNT] - 1
    cdef uint64_t entry, weight
    cdef double value, best
    cdef bint found
    values[size] = 0.0
    for start in range(size - 1, -1, -1):
        node = roots + run[start] - FIRST_HAN
        entry = table[node]
        weight = (entry & WEIGHT_MASK) >> 1
        # A character that is no word is one where no word begins.
        found = weight != 0
        stop = start + 1
        best = weights[weight] + values[stop]
        ends[start] = <int32_t>stop
        while entry & CONTINUES and stop < size:
            node = slots + <Py_ssize_t>slot_of(
                table + slots, mask, <uint64_t>node << HAN_BITS | (run[stop] - FIRST_HAN)
            )
            entry = table[node]
            weight = (entry & WEIGHT_MASK) >> 1
            stop += 1
            if weight:
                value = weights[weight] + values[stop]
                # Of words of equal value, jieba takes the longest.
                if not found or value >= best:
                    best = value
                    ends[start] = <int32_t>stop
                    found = True
        values[start] = best


cdef inline Py_ssize_t cut_runs(
    const uint64_t *table, const uint32_t *runs, Py_ssize_t size, double *values, int32_t *ends
) noexcept nogil:
    """Write the ends of the words of runs between line feeds, and return their number.

    A character that no dictionary cuts is a word. `ends` has room for as many numbers as there are
    characters, `values` for one more, and for at most LONGEST_RUN + 1.
    """
    cdef Py_ssize_t count = 0, start = 0, place = 0, first = 0, piece
    while start < size:
        piece = min(first + ((start - first) | (LONGEST_RUN - 1)) + 1, size)
        while place < piece and is_han(runs[place]):
            place += 1
        if place == start:
            if runs[place] == c"\n":
                first = place + 1
            place += 1
            ends[count] = <int32_t>place
            count += 1
        else:
            choose_words(table, runs + start, place - start, values, ends + start)
            piece = start
            while piece < place:
                # No more ends are written than characters read.
                piece = start + ends[piece]
                ends[count] = <int32_t>piece
                count += 1
        start = place
    return count
