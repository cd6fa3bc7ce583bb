# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Kernels of pages of texts: find one, read all, pack them, and put some into a page.

`fpdb.storage.text_pages` has the layout, and defines each result. The caller computes the checksum of a
page, which is compared here. A page that isn't sound is one for the definition, which raises the
error.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize, PyBytes_Size
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

cdef enum:
    LARGEST = 4080
    HEAD = 7
    CHECKSUM = 4
    LONGEST = 511
    MOST_SHARED = 255


cdef struct Reader:
    # A page, and the entry that was read last: its text, its id, and how many bytes of the text
    # are those of the one before.
    const uint8_t *data
    Py_ssize_t size, at, begin
    int left, width, length, shared
    uint64_t number
    uint8_t[512] text


cdef struct Maker:
    # A page that is made, and its last text.
    Py_ssize_t size
    int count, width, length
    uint8_t[4096] data
    uint8_t[512] text


cdef bint opened(Reader *reader, object value, uint64_t digest) except -1:
    """Begin to read a page, which the caller holds; return whether its head is sound."""
    cdef Py_buffer buffer
    cdef uint32_t sum
    cdef uint16_t count
    PyObject_GetBuffer(value, &buffer, PyBUF_SIMPLE)
    reader.data, reader.size = <const uint8_t *>buffer.buf, buffer.len
    PyBuffer_Release(&buffer)
    if reader.size < HEAD:
        return False
    memcpy(&sum, reader.data, 4)
    memcpy(&count, reader.data + CHECKSUM, 2)
    reader.left, reader.width = count, reader.data[CHECKSUM + 2]
    reader.at, reader.length = HEAD, 0
    return sum == <uint32_t>digest and reader.width <= 8


cdef bint advanced(Reader *reader) noexcept nogil:
    """Read the next entry; return whether it is there, sound, and greater than the one before."""
    cdef const uint8_t *data = reader.data
    cdef Py_ssize_t at = reader.at, size = reader.size
    cdef int shared, length
    reader.begin = at
    if not reader.left or at + 2 > size:
        return False
    shared, length = data[at], data[at + 1]
    at += 2
    if length >= 128:
        if at >= size:
            return False
        length = length - 128 + 128 * <int>data[at]
        at += 1
    if (
        at + length + reader.width > size
        or shared > reader.length
        or not 0 < shared + length <= LONGEST
        or compared(reader.text + shared, reader.length - shared, data + at, length) >= 0
    ):
        return False
    memcpy(reader.text + shared, data + at, length)
    reader.shared, reader.length = shared, shared + length
    reader.number = 0
    memcpy(&reader.number, data + at + length, reader.width)
    reader.at = at + length + reader.width
    reader.left -= 1
    return True


cdef inline bint finished(const Reader *reader) noexcept nogil:
    """Return whether all entries were read, and nothing follows them."""
    return not reader.left and reader.at == reader.size


cdef inline int compared(
    const uint8_t *one, Py_ssize_t size, const uint8_t *other, Py_ssize_t other_size
) noexcept nogil:
    """Compare two texts."""
    cdef int order = memcmp(one, other, min(size, other_size))
    return order if order else (size > other_size) - (size < other_size)


cdef bint added(
    Maker *maker, const uint8_t *text, int length, uint64_t number, int shared
) noexcept nogil:
    """Add an entry; return whether it fits. The bytes that it shares are counted if negative."""
    cdef int most = min(min(length, maker.length), <int>MOST_SHARED), tail
    cdef uint8_t *at = maker.data + maker.size
    if shared < 0:
        shared = 0
        while shared < most and text[shared] == maker.text[shared]:
            shared += 1
    tail = length - shared
    if maker.size + 2 + (tail >= 128) + tail + maker.width > LARGEST:
        return False
    at[0], at[1] = shared, tail if tail < 128 else tail % 128 + 128
    at += 2
    if tail >= 128:
        at[0] = tail // 128
        at += 1
    memcpy(at, text + shared, tail)
    memcpy(at + tail, &number, maker.width)
    maker.size = at + tail + maker.width - maker.data
    memcpy(maker.text + shared, text + shared, tail)
    maker.length = length
    maker.count += 1
    return True


cdef object made(Maker *maker):
    """Return a page that was made, with a place for its checksum."""
    cdef uint16_t count = maker.count
    maker.data[0] = maker.data[1] = maker.data[2] = maker.data[3] = 0
    memcpy(maker.data + CHECKSUM, &count, 2)
    maker.data[CHECKSUM + 2] = maker.width
    return PyByteArray_FromStringAndSize(<char *>maker.data, maker.size)


cdef inline int width_of(uint64_t number) noexcept nogil:
    cdef int width = 0
    while number:
        width += 1
        number >>= 8
    return width


cdef tuple entry_at(object entries, Py_ssize_t place):
    """Return an entry whose text isn't too long."""
    cdef tuple entry = entries[place]
    if len(entry) != 2 or not 0 < PyBytes_Size(entry[0]) <= LONGEST:
        raise ValueError("an entry has a text that is too long, or none")
    return entry


def packed(entries, Py_ssize_t first, Py_ssize_t after):
    """Pack sorted entries into a page, as many as fit; return it and the place after the last."""
    cdef Maker maker, narrow
    cdef Py_ssize_t place = first
    cdef int width
    if not 0 <= first <= after <= len(entries):
        raise ValueError("there are fewer entries")
    maker.size, maker.count, maker.width, maker.length = HEAD, 0, 0, 0
    while place < after:
        width = width_of(entries[place][1])
        if width <= maker.width:
            if not pack(&maker, entries, place):
                break
        else:
            # Ids become wider, so those before are packed once more.
            narrow = maker
            maker.size, maker.count, maker.width, maker.length = HEAD, 0, width, 0
            for earlier in range(first, place + 1):
                if not pack(&maker, entries, earlier):
                    return made(&narrow), place
        place += 1
    return made(&maker), place


cdef bint pack(Maker *maker, object entries, Py_ssize_t place) except -1:
    """Add one of some entries; return whether it fits."""
    cdef tuple entry = entry_at(entries, place)
    cdef const uint8_t *text = <const uint8_t *>PyBytes_AsString(entry[0])
    return added(maker, text, <int>PyBytes_Size(entry[0]), entry[1], -1)


def unpacked(value, uint64_t digest):
    """Return the entries of a page, or None if it is one for the definition."""
    cdef Reader reader
    cdef list entries = []
    if not opened(&reader, value, digest):
        return None
    while advanced(&reader):
        text = PyBytes_FromStringAndSize(<char *>reader.text, reader.length)
        entries.append((text, reader.number))
    return entries if finished(&reader) else None


def numbers_of(value, uint64_t digest, list texts not None, Py_ssize_t first):
    """Return the ids that sorted texts lead to, from one on, None for one that isn't there.

    It ends before those after the last text of the page, but the first is always among them. None
    alone is for the definition.
    """
    cdef Reader reader
    cdef Py_ssize_t place = first, count = len(texts)
    cdef list ids = []
    cdef int order
    if not 0 <= first < count:
        raise ValueError("there are fewer texts")
    if not opened(&reader, value, digest):
        return None
    while place < count and advanced(&reader):
        while place < count:
            order = compared(
                reader.text, reader.length, <const uint8_t *>PyBytes_AsString(texts[place]),
                PyBytes_Size(texts[place]),
            )
            if order < 0:
                break
            ids.append(None if order else reader.number)
            place += 1
    if place < count and not finished(&reader):
        return None
    return ids or [None]


def inserted(value, uint64_t digest, entries, Py_ssize_t first, Py_ssize_t after):
    """Return a page with some sorted entries, of which one replaces an old one with its text.

    Return None if the page must be packed anew: if it would overflow, or ids become wider; or if it
    is one for the definition.
    """
    cdef Reader reader
    cdef Maker maker
    cdef tuple entry
    cdef const uint8_t *text = NULL
    cdef int length = 0, shared, order
    cdef uint64_t number = 0
    cdef Py_ssize_t place = first
    cdef bint old = True, adjacent = True
    if not 0 <= first < after <= len(entries):
        raise ValueError("there are fewer entries")
    if not opened(&reader, value, digest):
        return None
    maker.size, maker.count, maker.width, maker.length = HEAD, 0, reader.width, 0
    while True:
        if old and not advanced(&reader):
            if not finished(&reader):
                return None
            reader.length = 0  # all were read
        if text == NULL and place < after:
            entry = entry_at(entries, place)
            text, length = <const uint8_t *>PyBytes_AsString(entry[0]), <int>PyBytes_Size(entry[0])
            number = entry[1]
            if width_of(number) > reader.width:
                return None
        if not reader.length and text == NULL:
            return made(&maker)
        order = (not reader.length) - (text == NULL)
        if not order:
            order = compared(reader.text, reader.length, text, length)
        old = order <= 0
        if order < 0:
            # Behind the same entry as before, it shares as many bytes.
            shared = reader.shared if adjacent else -1
            if not added(&maker, reader.text, reader.length, reader.number, shared):
                return None
            adjacent = True
        else:
            if not added(&maker, text, length, number, -1):
                return None
            text, adjacent = NULL, False
            place += 1
