# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The cut of Chinese by jieba's dictionary, HMM off, over a table made of that dictionary."""

from array import array
from math import log

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr

from fpdb.kernels.chinese cimport (
    CONTINUES, FIRST_HAN, HAN_BITS, HANS, KEY_SHIFT, LAST_HAN, LONGEST_RUN, SLOTS_COUNT,
    WEIGHT_MASK, WEIGHTS, WEIGHTS_COUNT, cut_runs, roots_of, slot_of, slots_of,
)

cdef extern from "Python.h":
    Py_UCS4 *PyUnicode_AsUCS4(object text, Py_UCS4 *buffer, Py_ssize_t size, int copy) except NULL

cdef enum:
    LONGEST_WORD = 1024
    MOST_DIGITS = 12
    MOST_PLACES = 1 << 22  # as many as fit into a key


cdef int64_t read_line(
    const uint8_t **next, const uint8_t *end, uint32_t *word, Py_ssize_t *length
) except -1:
    """Read the next line, `word number tag`: write its word, and return the number.

    The length is 0 if a character of the word is none that the dictionary cuts.
    """
    cdef const uint8_t *start = next[0]
    cdef const uint8_t *line = start
    cdef const uint8_t *stop = <const uint8_t *>memchr(line, c"\n", end - line)
    cdef int64_t frequency = 0
    cdef Py_ssize_t size = 0, digits = 0
    cdef bint cut = True, longer
    cdef uint32_t character
    stop = end if stop == NULL else stop
    next[0] = stop + 1
    while line < stop and line[0] != c" " and size < LONGEST_WORD:
        character = 0
        if line[0] >> 4 == 0xE and stop - line > 2:
            character = (line[0] & 0xF) << 12 | (line[1] & 0x3F) << 6 | (line[2] & 0x3F)
        if FIRST_HAN <= character <= LAST_HAN:
            word[size] = character
            line += 3
        else:
            cut = False
            line += 1
        size += 1
    longer = line < stop and line[0] != c" "
    line += 1
    while line < stop and c"0" <= line[0] <= c"9" and digits < MOST_DIGITS:
        frequency = frequency * 10 + line[0] - c"0"
        digits += 1
        line += 1
    if not size or not digits or longer or (line < stop and line[0] != c" "):
        raise ValueError(f"found the line {start[: stop - start]!r:.80}")
    length[0] = size if cut else 0
    return frequency


def make_table(bytes dictionary):
    """Return the table of a dictionary, whose lines are words with their frequency and tag.

    Raises:
        ValueError: A line is another, or the dictionary is too large.
    """
    cdef const uint8_t *begin = dictionary
    cdef const uint8_t *end = begin + len(dictionary)
    cdef const uint8_t *line = begin
    cdef uint32_t word[LONGEST_WORD]
    cdef Py_ssize_t length = 0, place
    cdef int64_t frequency
    cdef uint64_t edges = 0, total = 0, slots = 1, node, key, slot
    cdef dict numbers = {}
    while line < end:
        frequency = read_line(&line, end, word, &length)
        total += frequency
        edges += max(length - 1, 0)
        if frequency and frequency not in numbers:
            numbers[frequency] = len(numbers) + 1
    if not total:
        raise ValueError("found no word")
    # A third of the slots stays empty at least, and more since words have beginnings in common.
    while 2 * slots < 3 * edges + 2:
        slots *= 2
    if WEIGHTS + len(numbers) + 1 + HANS + slots > MOST_PLACES:
        raise ValueError(f"found {edges:,} characters in words")
    log_total = log(total)
    made = array("Q", [len(numbers) + 1, slots])
    weights = array("d", [0.0 - log_total, *(log(count) - log_total for count in numbers)])
    made.frombytes(weights.tobytes())
    made.frombytes(bytes(8 * (HANS + slots)))
    cdef uint64_t[::1] view = made
    cdef uint64_t *table = &view[0]
    cdef uint64_t *hashed = table + slots_of(table)
    line = begin
    while line < end:
        frequency = read_line(&line, end, word, &length)
        if length:
            node = roots_of(table) + word[0] - FIRST_HAN
            for place in range(1, length):
                table[node] |= CONTINUES
                key = node << HAN_BITS | (word[place] - FIRST_HAN)
                slot = slot_of(hashed, slots - 1, key)
                hashed[slot] |= key << KEY_SHIFT
                node = slots_of(table) + slot
            slot = numbers[frequency] if frequency else 0
            table[node] = (table[node] & ~<uint64_t>WEIGHT_MASK) | slot << 1
    return made


def cut(const uint64_t[::1] table, str text):
    """Return the words of runs of Han, and the line feeds between the runs."""
    cdef Py_ssize_t places = table.shape[0], size = len(text), count, place, start = 0
    if (
        places < WEIGHTS
        or table[WEIGHTS_COUNT] > <uint64_t>places
        or table[SLOTS_COUNT] > <uint64_t>places
        or places != slots_of(&table[0]) + <Py_ssize_t>table[SLOTS_COUNT]
    ):
        raise ValueError("found another table than make_table returns")
    cdef double[::1] values = array("d", bytes(8 * min(size, LONGEST_RUN) + 8))
    cdef uint32_t[::1] characters = array("I", bytes(4 * size + 4))
    cdef int32_t[::1] ends = array("i", bytes(4 * size + 4))
    PyUnicode_AsUCS4(text, <Py_UCS4 *>&characters[0], size, 0)
    with nogil:
        count = cut_runs(&table[0], &characters[0], size, &values[0], &ends[0])
    words = []
    for place in range(count):
        words.append(text[start : ends[place]])
        start = ends[place]
    return words
