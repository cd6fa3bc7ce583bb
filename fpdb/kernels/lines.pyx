# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Kernels of lines: where they end; and how long each is, how many spaces it has, and its hash.

`fpdb.io.streams` and `fpdb.fingerprint.paragraphs` define the results.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr

from fpdb.kernels.hashes cimport LONGEST_HASHED, hash64

cdef extern from "Python.h":
    char *PyBytes_AsString(object data) except NULL
    object PyBytes_FromStringAndSize(const char *data, Py_ssize_t size)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL


cdef struct Text:
    const uint8_t *data
    Py_ssize_t size


cdef int64_t feeds(const uint8_t *data, Py_ssize_t size, int64_t *ends) noexcept nogil:
    """Count the line feeds of some bytes, and write where they end, if there is room for that."""
    cdef const uint8_t *at = data
    cdef const uint8_t *end = data + size
    cdef int64_t count = 0
    while at < end:
        at = <const uint8_t *>memchr(at, 10, end - at)
        if at == NULL:
            break
        at += 1
        if ends != NULL:
            ends[count] = at - data
        count += 1
    return count


def line_ends(bytes data not None):
    """Return where lines end, after their line feeds."""
    cdef const uint8_t *first = <const uint8_t *>PyBytes_AsString(data)
    cdef Py_ssize_t size = len(data)
    cdef int64_t count = feeds(first, size, NULL)
    ends = PyBytes_FromStringAndSize(NULL, count * sizeof(int64_t))
    feeds(first, size, <int64_t *>PyBytes_AsString(ends))
    return ends


cdef inline bint is_space(uint8_t code) noexcept nogil:
    return code == 32 or 9 <= code <= 13


cdef uint64_t measured(
    const uint8_t *at, Py_ssize_t size, uint64_t seed, int64_t *spaces
) noexcept nogil:
    """Count the spaces of a line, and return a hash of it in lower case; of an empty one, 0."""
    cdef uint8_t[LONGEST_HASHED] folded
    cdef Py_ssize_t place, part
    cdef int64_t count = 0
    cdef uint8_t code
    if not size:
        seed = 0
    while size > 0:
        part = min(size, LONGEST_HASHED)
        for place in range(part):
            code = at[place]
            count += code == 32
            folded[place] = code | (<uint8_t>(code - 65) < 26) << 5
        seed = hash64(folded, part, seed)
        at += part
        size -= part
    spaces[0] = count
    return seed


cdef void measure(const Text *text, uint64_t seed, int64_t *columns, int64_t total) noexcept nogil:
    """Fill the columns of the lines of a text: sizes, spaces and hashes, one after the other."""
    cdef const uint8_t *at = text.data
    cdef const uint8_t *end = at + text.size
    cdef const uint8_t *last
    cdef const uint8_t *next_line
    while at <= end:
        next_line = <const uint8_t *>memchr(at, 10, end - at) if at < end else NULL
        next_line = last = end if next_line == NULL else next_line
        while at < last and is_space(at[0]):
            at += 1
        while at < last and is_space((last - 1)[0]):
            last -= 1
        columns[0] = last - at
        columns[2 * total] = <int64_t>measured(at, last - at, seed, columns + total)
        columns += 1
        at = next_line + 1


def measured_lines(list texts, uint64_t seed):
    """Return how many lines each text has, and the columns of all lines."""
    cdef tuple alive = tuple(texts)
    cdef Py_ssize_t count = len(alive), number
    cdef int64_t total = 0
    cdef int64_t *column
    cdef Text *all_texts = <Text *>malloc((count + 1) * sizeof(Text))
    counts = PyBytes_FromStringAndSize(NULL, count * sizeof(int64_t))
    cdef int64_t *sizes = <int64_t *>PyBytes_AsString(counts)
    if all_texts == NULL:
        raise MemoryError
    try:
        for number in range(count):
            text = alive[number]
            if isinstance(text, bytes):
                all_texts[number].data = <const uint8_t *>PyBytes_AsString(text)
                all_texts[number].size = len(<bytes>text)
            else:
                all_texts[number].data = <const uint8_t *>PyUnicode_AsUTF8AndSize(
                    text, &all_texts[number].size
                )
        with nogil:
            for number in range(count):
                sizes[number] = 1 + feeds(all_texts[number].data, all_texts[number].size, NULL)
                total += sizes[number]
        columns = PyBytes_FromStringAndSize(NULL, 3 * total * sizeof(int64_t))
        column = <int64_t *>PyBytes_AsString(columns)
        with nogil:
            for number in range(count):
                measure(all_texts + number, seed, column, total)
                column += sizes[number]
        return counts, columns
    finally:
        free(all_texts)
