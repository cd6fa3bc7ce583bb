# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Kernels of records: pack those of many documents, and give them their ids.

`fpdb.storage.format` has the layout of a record, and `fpdb.storage.block` defines each result.
"""

from cpython.bytearray cimport PyByteArray_AsString, PyByteArray_FromStringAndSize
from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

cdef extern from "Python.h":
    ctypedef struct PyObject
    object PyObject_CallFunctionObjArgs(object called, ...)
    object PyMemoryView_FromMemory(char *data, Py_ssize_t size, int flags)

cdef enum:
    CHECKSUM = 4
    DIGEST = 16
    SKETCH = 128
    # The bytes of a time of adding.
    TIME = 4
    LATE_TIME = 5
    # The flags of a record.
    HAS_FINGERPRINT = 1
    HAS_DIGEST = 2
    HAS_SKETCH = 4
    HAS_CHARACTERS = 8
    HAS_META = 16
    IS_LATE = 64
    HAS_FURTHER = 128
    MOST_FURTHER = 16


cdef inline Py_ssize_t size_of(uint64_t number) noexcept nogil:
    """Count the bytes of seven bits that a number takes."""
    cdef Py_ssize_t size = 1
    while number > 127:
        number >>= 7
        size += 1
    return size


cdef inline uint8_t *put_number(uint8_t *at, uint64_t number) noexcept nogil:
    while number > 127:
        at[0] = <uint8_t>(number & 127 | 128)
        number >>= 7
        at += 1
    at[0] = <uint8_t>number
    return at + 1


cdef inline bint has_any(const uint8_t *data, int size) noexcept nogil:
    """Return whether any of some times eight bytes isn't zero."""
    cdef uint64_t word, every = 0
    cdef int place
    for place in range(0, size, 8):
        memcpy(&word, data + place, 8)
        every |= word
    return every != 0


cdef struct Strings:
    const uint8_t *data
    const int64_t *ends


cdef inline int64_t begin_of(const Strings *strings, Py_ssize_t place) noexcept nogil:
    return strings.ends[place - 1] if place else 0


cdef inline int64_t length_of(const Strings *strings, Py_ssize_t place) noexcept nogil:
    return strings.ends[place] - begin_of(strings, place)


cdef inline int64_t room_for(const Strings *strings, Py_ssize_t place) noexcept nogil:
    cdef int64_t length = length_of(strings, place)
    return size_of(<uint64_t>length) + length


cdef inline uint8_t *put_string(
    uint8_t *at, const Strings *strings, Py_ssize_t place
) noexcept nogil:
    cdef int64_t length = length_of(strings, place)
    at = put_number(at, length)
    memcpy(at, strings.data + begin_of(strings, place), length)
    return at + length


cdef Strings checked(const uint8_t[::1] data, const int64_t[::1] ends, Py_ssize_t count) except *:
    """Return strings, each of which is there."""
    cdef Strings strings
    cdef Py_ssize_t place
    cdef int64_t last = 0
    cdef bint there = ends.shape[0] == count
    for place in range(count if there else 0):
        there &= ends[place] >= last
        last = ends[place]
    if not there or last > data.shape[0]:
        raise ValueError("a string isn't there")
    strings.data = &data[0] if data.shape[0] else NULL
    strings.ends = &ends[0] if count else NULL
    return strings


def packed(
    list strings not None, const uint8_t[:, ::1] fingerprints not None,
    const uint8_t[::1] short not None, const uint8_t[:, ::1] digests not None,
    const uint8_t[:, ::1] sketches not None, const int64_t[::1] characters not None,
    const int64_t[::1] added not None, int64_t[::1] ends not None,
):
    """Pack records with a place for their checksums, one after the other; write where they end.

    The strings are keys, metadata and each further field.
    """
    cdef Py_ssize_t count = short.shape[0], place, width = fingerprints.shape[1], size
    cdef int64_t total = 0
    cdef int time_bytes
    cdef Strings keys, metas
    cdef Strings[MOST_FURTHER] further
    cdef int number, further_count = len(strings) - 2
    cdef uint64_t marks
    cdef uint8_t flags
    cdef uint8_t *at
    cdef uint8_t *first
    if not (
        0 <= further_count <= MOST_FURTHER
        and fingerprints.shape[0] == digests.shape[0] == sketches.shape[0] == count
        and characters.shape[0] == added.shape[0] == ends.shape[0] == count
        and digests.shape[1] == DIGEST and sketches.shape[1] == SKETCH
    ):
        raise ValueError("the columns are those of other records")
    keys = checked(strings[0][0], strings[0][1], count)
    metas = checked(strings[1][0], strings[1][1], count)
    for number in range(further_count):
        further[number] = checked(strings[number + 2][0], strings[number + 2][1], count)
    with nogil:
        for place in range(count):
            size = CHECKSUM + 1 + DIGEST + SKETCH + width + LATE_TIME
            size += size_of(<uint64_t>characters[place])
            size += room_for(&keys, place) + room_for(&metas, place)
            size += size_of(<uint64_t>1 << further_count)
            for number in range(further_count):
                size += room_for(&further[number], place)
            total += size
    # That is the most that they can take.
    data = PyByteArray_FromStringAndSize(NULL, total)
    at = first = <uint8_t *>PyByteArray_AsString(data)
    with nogil:
        for place in range(count):
            memset(at, 0, CHECKSUM)
            time_bytes = TIME if added[place] < <int64_t>1 << 32 else LATE_TIME
            flags = IS_LATE if time_bytes > TIME else 0
            ends[place] = at - first  # until the flags are known
            at += CHECKSUM + 1
            if has_any(&sketches[place, 0], SKETCH):
                flags |= HAS_DIGEST | HAS_SKETCH
                memcpy(at, &digests[place, 0], DIGEST)
                memcpy(at + DIGEST, &sketches[place, 0], SKETCH)
                at += DIGEST + SKETCH
            elif short[place] or has_any(&digests[place, 0], DIGEST):
                flags |= HAS_DIGEST
                memcpy(at, &digests[place, 0], DIGEST)
                at += DIGEST
            if not short[place]:
                flags |= HAS_FINGERPRINT
                memcpy(at, &fingerprints[place, 0], width)
                at += width
            memcpy(at, &added[place], time_bytes)
            at += time_bytes
            if characters[place]:
                flags |= HAS_CHARACTERS
                at = put_number(at, <uint64_t>characters[place])
            at = put_string(at, &keys, place)
            if length_of(&metas, place):
                flags |= HAS_META
                at = put_string(at, &metas, place)
            marks = 0
            for number in range(further_count):
                marks |= <uint64_t>(length_of(&further[number], place) > 0) << number
            if marks:
                flags |= HAS_FURTHER
                at = put_number(at, marks)
            for number in range(further_count):
                if marks >> number & 1:
                    at = put_string(at, &further[number], place)
            first[ends[place] + CHECKSUM] = flags
            ends[place] = at - first
        total = at - first
    del data[total:]
    return data


def numbered(
    const uint8_t[::1] data not None, const int64_t[::1] ends not None,
    const uint64_t[::1] ids not None, digest, uint64_t seed,
):
    """Return packed records as entries of LMDB: their ids as keys, and records with checksums."""
    cdef Py_ssize_t count = ids.shape[0], place, length, shift
    cdef Strings records = checked(data, ends, count)
    cdef const uint8_t *at
    cdef uint8_t *into
    cdef uint8_t[8] key
    cdef uint64_t checksum
    cdef list entries = []
    for place in range(count):
        at, length = records.data + begin_of(&records, place), length_of(&records, place)
        if length < CHECKSUM:
            raise ValueError("a record isn't there")
        body = PyMemoryView_FromMemory(<char *>at + CHECKSUM, length - CHECKSUM, PyBUF_READ)
        record_seed = <object>(seed ^ ids[place])
        sum = PyObject_CallFunctionObjArgs(digest, <PyObject *>body, <PyObject *>record_seed, NULL)
        checksum = <uint64_t>sum
        value = PyBytes_FromStringAndSize(<char *>at, length)
        into = <uint8_t *>PyBytes_AsString(value)  # nothing else has it yet
        for shift in range(CHECKSUM):
            into[shift] = <uint8_t>(checksum >> 24 - 8 * shift)
        for shift in range(8):
            key[shift] = <uint8_t>(ids[place] >> 56 - 8 * shift)
        entries.append((PyBytes_FromStringAndSize(<char *>key, 8), value))
    return entries
