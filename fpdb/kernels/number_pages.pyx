# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Kernels of pages of numbers: search one, compare its rows with a query, and put rows into it.

`fpdb.storage.number_pages` has the layout, and defines each result together with the code beside
the calls. Cursors and the function that computes checksums are Python objects, which are called. A page
that isn't sound, or another table's, is one for the definition, which raises the error.
"""

from cpython.buffer cimport (
    PyBUF_READ, PyBUF_SIMPLE, PyBUF_STRIDES, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytearray cimport PyByteArray_AsString, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from fpdb.kernels.hashes cimport LONGEST_HASHED, hash64

cdef extern from "Python.h":
    ctypedef struct PyObject
    object PyObject_CallFunctionObjArgs(object called, ...)
    object PyMemoryView_FromMemory(char *data, Py_ssize_t size, int flags)
    object PyUnicode_DecodeUTF8(const char *data, Py_ssize_t size, const char *errors)

cdef enum:
    HEAD = 8
    CHECKSUM = 4
    MOST_COLUMNS = 4
    SKETCH_WORDS = 16
    LOW_WORDS = 4
    SIGNATURE_WORDS = 8
    SIGNATURE_BITS = 64 * SIGNATURE_WORDS
    # The flags of a record, and the bytes of its parts.
    HAS_FINGERPRINT = 1
    HAS_DIGEST = 2
    HAS_SKETCH = 4
    HAS_CHARACTERS = 8
    HAS_NUMBER = 32
    IS_LATE = 64
    DIGEST = 16
    SKETCH = 128
    TIME = 4
    # Rows that are put into a page at once.
    MOST_ROWS = 256
    # A copy that has one of as many rows is searched first.
    HEAD_ROWS = 64

cdef extern from *:
    void __builtin_prefetch(const void *) nogil

cdef uint64_t MOST = 0xFFFFFFFFFFFFFFFF


cdef struct Page:
    const uint8_t *data
    size_t size
    int64_t count
    uint16_t widths
    int[4] width
    # Where each column begins, and the base that is added to its numbers.
    size_t[4] start
    uint64_t[4] base
    # Of eight bytes that end with a number: how many bits are before it, and those that are its.
    int[4] before
    uint64_t[4] mask


cdef int read_bytes(Page *page, object value) except -1:
    """Find the bytes of a page, which the caller holds."""
    cdef Py_buffer buffer
    PyObject_GetBuffer(value, &buffer, PyBUF_SIMPLE)
    page.data, page.size = <const uint8_t *>buffer.buf, buffer.len
    PyBuffer_Release(&buffer)
    return 0


cdef bint opened(Page *page, int columns, uint64_t digest) noexcept nogil:
    """Read the head of a page; return whether it is sound, and has its columns and some rows."""
    cdef const uint8_t *data = page.data
    cdef uint32_t sum
    cdef uint16_t count
    cdef size_t at
    cdef int column, width
    if not 1 <= columns <= MOST_COLUMNS or page.size < <size_t>(HEAD + 8 * columns):
        return False
    memcpy(&sum, data, 4)
    memcpy(&count, data + CHECKSUM, 2)
    memcpy(&page.widths, data + CHECKSUM + 2, 2)
    if sum != <uint32_t>digest:
        return False
    page.count = count
    at = HEAD + 8 * columns
    for column in range(MOST_COLUMNS):
        width = page.widths >> 4 * column & 15
        if width > 8 or (column >= columns and width):
            return False
        if column < columns:
            page.width[column], page.start[column], page.base[column] = width, at, 0
            page.before[column], page.mask[column] = (64 - 8 * width if width else 0), -(width > 0)
            if width < 8:
                memcpy(&page.base[column], data + HEAD + 8 * column, 8)
            at += <size_t>width * count
    return count > 0 and at == page.size


cdef inline uint64_t cell(const Page *page, int column, int64_t row) noexcept nogil:
    """Return a number of a page; its row must be there."""
    cdef uint64_t number
    # More than eight bytes come before a column.
    memcpy(&number, page.data + page.start[column] + (row + 1) * page.width[column] - 8, 8)
    return (number >> page.before[column] & page.mask[column]) + page.base[column]


cdef int64_t bound(const Page *page, uint64_t number, bint right, int64_t low) noexcept nogil:
    """Return the first row whose first number isn't below a number, or is above it."""
    cdef int64_t high = page.count, middle
    cdef uint64_t value
    while low < high:
        middle = (low + high) >> 1
        value = cell(page, 0, middle)
        if value < number or (right and value == number):
            low = middle + 1
        else:
            high = middle
    return low


cdef inline int bits_of(uint64_t number) noexcept nogil:
    """Count the bits that are set."""
    number -= number >> 1 & <uint64_t>0x5555555555555555
    number = (number & <uint64_t>0x3333333333333333) + (number >> 2 & <uint64_t>0x3333333333333333)
    number = number + (number >> 4) & <uint64_t>0x0F0F0F0F0F0F0F0F
    return <int>(number * <uint64_t>0x0101010101010101 >> 56)


cdef struct Wide:
    # A fingerprint: its two words, or of up to 64 bits the same one twice.
    uint64_t high, low


cdef inline Wide changed(Wide one, Wide other) noexcept nogil:
    """Return the bits in which two fingerprints differ."""
    cdef Wide change
    change.high, change.low = one.high ^ other.high, one.low ^ other.low
    return change


cdef inline Wide fingerprint_at(const Page *page, int words, int64_t row) noexcept nogil:
    """Return the fingerprint of a row, whose words are its first columns."""
    cdef Wide number
    number.high = number.low = cell(page, 0, row)
    if words == 2:
        number.low = cell(page, 1, row)
    return number


cdef inline bint is_zero(Wide change) noexcept nogil:
    return not (change.high | change.low)


cdef inline int distance(Wide change, int words) noexcept nogil:
    return bits_of(change.high) + (bits_of(change.low) if words == 2 else 0)


cdef inline object as_number(Wide number, int words):
    return <object>number.high << 64 | number.low if words == 2 else number.high


cdef struct Key:
    # The first numbers of a key; a missing one is 0.
    uint64_t first, second, third


cdef inline bint is_after(Key one, Key other) noexcept nogil:
    if one.first != other.first:
        return one.first > other.first
    if one.second != other.second:
        return one.second > other.second
    return one.third > other.third


cdef inline bint is_before_row(Key key, uint64_t low) noexcept nogil:
    """Return whether no page before that with a key has rows that begin with a number."""
    return key.first < low or (key.first == low and not key.second and not key.third)


cdef uint64_t read_big(const uint8_t *data) noexcept nogil:
    """Return a number of 8 bytes as a key has it, the highest byte first."""
    cdef uint64_t number = 0
    cdef int place
    for place in range(8):
        number = number << 8 | data[place]
    return number


cdef class PageCursor:
    """A cursor of a sub-database, and the page that was read last, which ends with the transaction.

    A function returns the checksum of a page, of 64 bits, given its bytes and a seed.
    """

    cdef object cursor, to_range, back, item, digest, value
    cdef int columns
    cdef uint64_t seed, page_seed
    cdef Key key
    cdef Page page

    def __cinit__(self, cursor, digest, int columns, uint64_t seed):
        self.cursor, self.digest, self.columns, self.seed = cursor, digest, columns, seed
        self.to_range, self.back, self.item = cursor.set_range, cursor.prev, cursor.item

    cdef bint to_key(self, uint64_t number, bint right) except -1:
        """Go to the first page whose key isn't below a number, or doesn't begin with it either."""
        cdef uint8_t[17] key  # it sorts after all that begin with the number
        cdef int place
        memset(key, 255, 17)
        for place in range(8):
            key[place] = <uint8_t>(number >> 56 - 8 * place)
        whole = PyBytes_FromStringAndSize(<char *>key, 17 if right else 8)
        return PyObject_CallFunctionObjArgs(self.to_range, <PyObject *>whole, NULL) is True

    cdef bint to_previous(self) except -1:
        """Go to the page before; return whether there is one."""
        return PyObject_CallFunctionObjArgs(self.back, NULL) is True

    cdef bint to_last(self, uint64_t number) except -1:
        """Go to the last page that doesn't begin after a number; return whether there is any."""
        return self.to_previous() if self.to_key(number, True) else self.cursor.last()

    cdef bint read_key(self) except -1:
        """Read the key of the page; return whether it can be one."""
        cdef Py_buffer buffer
        cdef const uint8_t *data
        cdef bint sound
        cdef tuple entry = <tuple?>PyObject_CallFunctionObjArgs(self.item, NULL)
        self.value = entry[1]
        PyObject_GetBuffer(entry[0], &buffer, PyBUF_SIMPLE)
        data, sound = <const uint8_t *>buffer.buf, buffer.len in (8, 16, 24)
        if sound:
            self.key.first = read_big(data)
            self.key.second = read_big(data + 8) if buffer.len > 8 else 0
            self.key.third = read_big(data + 16) if buffer.len > 16 else 0
            self.page_seed = self.seed ^ read_big(data + buffer.len - 8)
        PyBuffer_Release(&buffer)
        return sound

    cdef bint read_page(self) except -1:
        """Verify the page whose key was read; return whether it is sound and has rows."""
        read_bytes(&self.page, self.value)
        if self.page.size < HEAD:
            return False
        body = PyMemoryView_FromMemory(
            <char *>self.page.data + CHECKSUM, self.page.size - CHECKSUM, PyBUF_READ
        )
        seed = <object>self.page_seed
        digest = PyObject_CallFunctionObjArgs(self.digest, <PyObject *>body, <PyObject *>seed, NULL)
        return opened(&self.page, self.columns, digest)


cdef Wide permuted_by(const uint64_t[:, ::1] moves, Wide number) noexcept:
    """Move the bits of each mask, two words, as many places to the left as the number beside it."""
    cdef Wide moved, part
    cdef uint64_t by, back
    cdef Py_ssize_t place
    moved.high = moved.low = 0
    for place in range(moves.shape[0]):
        # Bits that leave at the left come in at the right, so bits move to the right too.
        part.high, part.low = number.high & moves[place, 0], number.low & moves[place, 1]
        by = moves[place, 2]
        if by & 64:
            part.high, part.low = part.low, part.high
        by &= 63
        back = 64 - by & 63
        if by:
            part.high, part.low = (
                part.high << by | part.low >> back, part.low << by | part.high >> back
            )
        moved.high |= part.high
        moved.low |= part.low
    return moved


cdef class Probes:
    """A table as a query needs it: a permutation and that back, and the changes of its prefix.

    The permutations are masks with distances. Masks of a prefix are those of the first word, and
    `below` has its bits after the prefix.
    """

    cdef const uint64_t[:, ::1] moves, moves_back
    cdef const uint64_t[::1] masks
    cdef uint64_t below

    def __cinit__(
        self, const uint64_t[:, ::1] moves not None, const uint64_t[:, ::1] moves_back not None,
        const uint64_t[::1] masks not None, uint64_t below,
    ):
        if moves.shape[1] != 3 or moves_back.shape[1] != 3:
            raise ValueError("a permutation has three columns")
        self.moves, self.moves_back, self.masks, self.below = moves, moves_back, masks, below

    cdef bint has(self, uint64_t change) noexcept:
        """Return whether a prefix is changed like this."""
        cdef Py_ssize_t place
        for place in range(self.masks.shape[0]):
            if self.masks[place] == change:
                return True
        return False


cdef int64_t next_near(
    const Page *page, int words, int64_t row, Wide wanted, uint64_t high, int k
) noexcept nogil:
    """Return the first row within k of a fingerprint, from one on, up to a first number.

    The number of rows is returned if there is none.
    """
    cdef uint64_t first
    while row < page.count:
        first = cell(page, 0, row)
        if first > high:
            break
        if bits_of(first ^ wanted.high) <= k and (
            words == 1 or distance(changed(fingerprint_at(page, 2, row), wanted), 2) <= k
        ):
            return row
        row += 1
    return page.count


cdef class Nearby:
    """The neighbours of a query: the distances by fingerprints, and ids that the home table has.

    `room` is how many rows may still be read. If more than a few are near, no ids are kept.
    """

    cdef dict distances, ids
    cdef Wide query
    cdef int k, words
    cdef int64_t room, few

    cdef bint look(self, PageCursor at, Probes probes, bint home) except -1:
        """Compare the rows in the ranges of a table; return whether that was possible."""
        cdef Wide permuted = permuted_by(probes.moves, self.query)
        cdef uint64_t low, high
        cdef Key newest, last  # pages: the last one that an earlier range read, and that any did
        cdef Py_ssize_t place, count = probes.masks.shape[0]
        cdef bint there
        cdef list highs = [
            (permuted.high ^ probes.masks[place]) | probes.below for place in range(count)
        ]
        if count > 1:
            highs.sort()
        newest.first = newest.second = newest.third = 0
        last = newest
        for place in range(count):
            high = highs[place]
            low = high & ~probes.below
            # From the last page that doesn't begin after the range back to the first one with it.
            there = at.to_last(high)
            while there:
                if not at.read_key():
                    return False
                if place and not is_after(at.key, newest):
                    break
                if is_after(at.key, last):
                    last = at.key
                if not at.read_page():
                    return False
                self.room -= at.page.count
                if self.room < 0:
                    return False
                # With one range, another table finds all else on its pages that is near.
                if count == 1:
                    self.compare(at, probes, permuted, low, high, home)
                else:
                    self.compare(at, probes, permuted, 0, MOST, home)
                if is_before_row(at.key, low):
                    break
                there = at.to_previous()
            newest = last
        return True

    cdef int compare(
        self, PageCursor at, Probes probes, Wide permuted, uint64_t low, uint64_t high, bint home
    ) except -1:
        """Add the near ones of the rows of a page whose first numbers are in a range."""
        cdef const Page *page = &at.page
        cdef int64_t row = bound(page, low, False, 0), first
        cdef Wide number, change
        while True:
            row = next_near(page, self.words, row, permuted, high, self.k)
            if row == page.count:
                return 0
            number = fingerprint_at(page, self.words, row)
            first, change = row, changed(number, permuted)
            row += 1
            while row < page.count and is_zero(
                changed(fingerprint_at(page, self.words, row), number)
            ):
                row += 1
            near = as_number(
                changed(self.query, permuted_by(probes.moves_back, change)), self.words
            )
            self.distances[near] = distance(change, self.words)
            self.few -= row - first
            # All rows with a prefix that was looked up are read, in the home table with ids.
            if home and self.few >= 0 and probes.has(change.high & ~probes.below):
                known = self.ids.setdefault(near, [])
                for first in range(first, row):
                    known.append(cell(page, at.columns - 1, first))


cdef class NearSearch:
    """Finds the neighbours of a fingerprint in some tables; the first may be the home table.

    Fingerprints have one word or two. If more than a few rows are near, no ids are returned.
    """

    cdef list probes
    cdef int k, words
    cdef int64_t few
    cdef bint home

    def __cinit__(self, list probes not None, int words, int k, int64_t few, bint home):
        if not 1 <= words <= 2:
            raise ValueError("a fingerprint has one word or two")
        self.probes, self.words, self.k, self.few, self.home = probes, words, k, few, home

    def near(self, list cursors not None, query, int64_t room):
        """Return what `Index.near` does: distances, and the ids that the home table has.

        Each table has a list of cursors. None is returned if there is no room for all rows, or a
        page is one for the definition.
        """
        cdef Nearby nearby = Nearby()
        cdef Py_ssize_t place
        if len(cursors) != len(self.probes):
            raise ValueError("each table has cursors")
        nearby.distances, nearby.ids = {}, {}
        nearby.query.low = query & MOST
        nearby.query.high = query >> 64 if self.words == 2 else query
        nearby.k, nearby.words, nearby.room, nearby.few = self.k, self.words, room, self.few
        for place in range(len(cursors)):
            probes = <Probes?>self.probes[place]
            for cursor in <list?>cursors[place]:
                at = <PageCursor?>cursor
                if at.columns < self.words or not nearby.look(at, probes, self.home and not place):
                    return None
        if nearby.few < 0:
            nearby.ids.clear()
        for known in nearby.ids.values():
            (<list>known).sort()
        return nearby.distances, nearby.ids


def unpacked(value, int columns, int wanted, uint64_t digest):
    """Return the first columns of a page, one after the other, as numbers of 64 bits.

    None is returned if the page is one for the definition.
    """
    cdef Page page
    cdef int64_t row
    cdef int column
    cdef uint64_t *at
    read_bytes(&page, value)
    if not 1 <= wanted <= columns or not opened(&page, columns, digest):
        return None
    data = PyByteArray_FromStringAndSize(NULL, 8 * wanted * page.count)
    at = <uint64_t *>PyByteArray_AsString(data)
    for column in range(wanted):
        for row in range(page.count):
            at[row] = cell(&page, column, row)
        at += page.count
    return data


def heads(list values not None, Py_ssize_t size):
    """Return the first N bytes of each value, one after the other; a short one is followed by zeros."""
    cdef Py_buffer buffer
    cdef Py_ssize_t length
    cdef uint8_t *at
    data = PyByteArray_FromStringAndSize(NULL, size * len(values))
    at = <uint8_t *>PyByteArray_AsString(data)
    for value in values:
        PyObject_GetBuffer(value, &buffer, PyBUF_SIMPLE)
        length = min(size, buffer.len)
        memcpy(at, buffer.buf, length)
        memset(at + length, 0, size - length)
        PyBuffer_Release(&buffer)
        at += size
    return data


cdef struct Leaf:
    # A leaf of LMDB, whose layout `fpdb.storage.lmdb_file` has, and the node that was read last.
    const uint8_t *data
    Py_ssize_t size
    int nodes, at


cdef inline uint16_t half(const uint8_t *data) noexcept nogil:
    cdef uint16_t number
    memcpy(&number, data, 2)
    return number


cdef bint is_leaf(Leaf *leaf, const uint8_t *value, Py_ssize_t size) noexcept nogil:
    """Find the page around a value; return whether it is a leaf. The whole of it can be read."""
    cdef int lower
    leaf.data, leaf.size, leaf.at = value - <size_t>value % <size_t>size, size, 0
    lower = half(leaf.data + 12)
    leaf.nodes = (lower - 16) // 2
    return half(leaf.data + 10) == 2 and 16 < lower <= size


cdef const uint8_t *value_in(Leaf *leaf, uint64_t number, Py_ssize_t *length) noexcept nogil:
    """Find the value of a key of 8 bytes, not before the node read last; NULL if it isn't there."""
    cdef int low = leaf.at, high = leaf.nodes, middle
    cdef const uint8_t *node
    cdef Py_ssize_t at
    cdef uint64_t key
    while low < high:
        middle = (low + high) >> 1
        at = half(leaf.data + 16 + 2 * middle)
        node = leaf.data + at
        if at + 16 > leaf.size or half(node + 6) != 8:
            return NULL
        key = read_big(node + 8)
        if key == number:
            leaf.at = middle
            length[0] = half(node) | <Py_ssize_t>half(node + 2) << 16
            # A big value is elsewhere.
            return node + 16 if not half(node + 4) and at + 16 + length[0] <= leaf.size else NULL
        if key < number:
            low = middle + 1
        else:
            high = middle
    return NULL


cdef key_in(const uint8_t *data, Py_ssize_t size, Py_ssize_t width):
    """Return the key in a record with a fingerprint of so many bytes; None if it is no text."""
    cdef uint8_t flags = data[CHECKSUM]
    cdef Py_ssize_t at = CHECKSUM + 1 + TIME
    cdef uint64_t length = 0
    cdef int shift = 0
    at += (flags & HAS_DIGEST > 0) * DIGEST + (flags & HAS_SKETCH > 0) * SKETCH
    at += (flags & HAS_FINGERPRINT > 0) * width + (flags & IS_LATE > 0)
    if flags & HAS_CHARACTERS:
        while at < size and data[at] > 127:
            at += 1
        at += 1
    while at < size and data[at] > 127 and shift < 56:
        length |= <uint64_t>(data[at] & 127) << shift
        shift += 7
        at += 1
    if at >= size or data[at] > 127 or flags & HAS_NUMBER:
        return None
    length |= <uint64_t>(data[at] & 127) << shift
    at += 1
    if length > <uint64_t>(size - at):
        return None
    try:
        return PyUnicode_DecodeUTF8(<const char *>data + at, length, NULL)
    except UnicodeDecodeError:
        return None


def record_heads(
    cursor, const uint64_t[::1] ids not None, digest, uint64_t seed, Py_ssize_t page,
    Py_ssize_t size, list keys=None, Py_ssize_t width=0,
):
    """Return what `heads` does for the records of ids, best sorted, which are on leaves of N bytes.

    Their keys are put into a list, given the width of fingerprints. None is returned if a record
    is missing or its checksum is wrong, or if a wanted key is no text.
    """
    cdef Py_buffer buffer
    cdef Py_ssize_t place, length = 0, taken
    cdef const uint8_t *data
    cdef uint8_t *at
    cdef uint8_t[8] key
    cdef Leaf leaf
    cdef bint known = False
    cdef int shift
    cdef uint64_t checksum
    to_key, value_of = cursor.set_key, cursor.value
    beginnings = PyByteArray_FromStringAndSize(NULL, size * ids.shape[0])
    at = <uint8_t *>PyByteArray_AsString(beginnings)
    for place in range(ids.shape[0]):
        data = value_in(&leaf, ids[place], &length) if known else NULL
        if data == NULL:
            for shift in range(8):
                key[shift] = <uint8_t>(ids[place] >> 56 - 8 * shift)
            if to_key(PyBytes_FromStringAndSize(<char *>key, 8)) is not True:
                return None
            value = value_of()
            PyObject_GetBuffer(value, &buffer, PyBUF_SIMPLE)
            data, length = <const uint8_t *>buffer.buf, buffer.len
            PyBuffer_Release(&buffer)
            known = is_leaf(&leaf, data, page)
        if length < 8:  # fewer than any record
            return None
        if length - CHECKSUM <= LONGEST_HASHED:
            checksum = hash64(data + CHECKSUM, length - CHECKSUM, seed ^ ids[place])
        else:
            body = PyMemoryView_FromMemory(<char *>data + CHECKSUM, length - CHECKSUM, PyBUF_READ)
            record_seed = <object>(seed ^ ids[place])
            sum = PyObject_CallFunctionObjArgs(
                digest, <PyObject *>body, <PyObject *>record_seed, NULL
            )
            checksum = <uint64_t>sum
        if read_big(data) >> 32 != checksum & 0xFFFFFFFF:
            return None
        if keys is not None:
            text = key_in(data, length, width)
            if text is None:
                return None
            keys.append(text)
        taken = min(size, length)
        memcpy(at, data, taken)
        memset(at + taken, 0, size - taken)
        at += size
    return beginnings


def bins_apart(
    const uint64_t[:, ::1] first not None, const int64_t[::1] first_rows not None,
    const uint64_t[:, ::1] second not None, const int64_t[::1] second_rows not None,
    int64_t[::1] counts not None,
):
    """Count the half bytes in which each two sketches differ, given their places; -1 of zeros."""
    cdef Py_ssize_t pair, word, count = first_rows.shape[0]
    cdef uint64_t one, two, apart, every, every_other, sums
    cdef bint there = second_rows.shape[0] == counts.shape[0] == count
    there = there and first.shape[1] == second.shape[1] == SKETCH_WORDS
    for pair in range(count if there else 0):
        there &= 0 <= first_rows[pair] < first.shape[0] and 0 <= second_rows[pair] < second.shape[0]
    if not there:
        raise ValueError("a sketch isn't there")
    with nogil:
        for pair in range(count):
            if pair + 16 < count:  # memory is waited for together
                __builtin_prefetch(&second[second_rows[pair + 16], 0])
                __builtin_prefetch(&second[second_rows[pair + 16], SKETCH_WORDS - 1])
            every = every_other = sums = 0
            for word in range(SKETCH_WORDS):
                one, two = first[first_rows[pair], word], second[second_rows[pair], word]
                every |= one
                every_other |= two
                apart = one ^ two
                apart |= apart >> 2
                apart = (apart | apart >> 1) & <uint64_t>0x1111111111111111
                sums += (apart & <uint64_t>0x0F0F0F0F0F0F0F0F) + (apart >> 4 & <uint64_t>0x0F0F0F0F0F0F0F0F)
            # Each byte has 32 at most, and all of them 256.
            sums = (sums & <uint64_t>0x00FF00FF00FF00FF) + (sums >> 8 & <uint64_t>0x00FF00FF00FF00FF)
            counts[pair] = <int64_t>(sums * <uint64_t>0x0001000100010001 >> 48)
            if not every or not every_other:
                counts[pair] = -1


def common(
    const uint64_t[::1] hashes not None, const int64_t[::1] ends not None,
    uint64_t[:, ::1] signatures not None, const int32_t[::1] firsts not None,
    const int32_t[::1] seconds not None, double least, int64_t[::1] counts not None,
):
    """Count the hashes that each two sets have in common, given where these sorted sets end.

    Fewer may be counted where the Jaccard similarity is below the least. Signatures are filled in.
    """
    cdef Py_ssize_t pair, place, count = firsts.shape[0], sets = signatures.shape[0]
    cdef int64_t one, two, one_end, two_end, total, apart
    cdef uint64_t first, second
    cdef bint there = seconds.shape[0] == counts.shape[0] == count and ends.shape[0] == sets + 1
    there = there and signatures.shape[1] == SIGNATURE_WORDS
    for pair in range(count if there else 0):
        there &= 0 <= firsts[pair] < sets and 0 <= seconds[pair] < sets
        for place in range(2 if there else 0):
            one = seconds[pair] if place else firsts[pair]
            there &= 0 <= ends[one] <= ends[one + 1] <= hashes.shape[0]
    if not there:
        raise ValueError("a set isn't there")
    with nogil:
        for pair in range(count):
            one, one_end = ends[firsts[pair]], ends[firsts[pair] + 1]
            two, two_end = ends[seconds[pair]], ends[seconds[pair] + 1]
            # Hashes that only one set has, at most.
            apart = one_end - one + two_end - two
            apart -= 2 * <int64_t>(least * apart / (1 + least))
            total = 0
            if apart < SIGNATURE_BITS // 2:
                sign(&signatures[firsts[pair], 0], hashes, one, one_end)
                sign(&signatures[seconds[pair], 0], hashes, two, two_end)
                if bits_apart(&signatures[firsts[pair], 0], &signatures[seconds[pair], 0]) > apart:
                    apart = -1
            while one < one_end and two < two_end and apart >= 0:
                first, second = hashes[one], hashes[two]
                total += first == second
                apart -= first != second
                one += first <= second
                two += second <= first
            counts[pair] = total


cdef inline void sign(
    uint64_t *signature, const uint64_t[::1] hashes, int64_t start, int64_t end
) noexcept nogil:
    """Change a bit for each hash of a set in its signature, unless that has been done."""
    cdef int word
    for word in range(SIGNATURE_WORDS):
        if signature[word]:
            return
    for start in range(start, end):
        signature[hashes[start] >> 6 & SIGNATURE_WORDS - 1] ^= <uint64_t>1 << (hashes[start] & 63)


cdef inline int64_t bits_apart(const uint64_t *one, const uint64_t *two) noexcept nogil:
    """Count the bits in which two signatures differ."""
    cdef int word
    cdef int64_t apart = 0
    for word in range(SIGNATURE_WORDS):
        apart += bits_of(one[word] ^ two[word])
    return apart


cdef inline Py_ssize_t head_before(
    const uint64_t[::1] heads, Py_ssize_t at, uint64_t number
) noexcept nogil:
    """Return the last head from one on that is less than a number, or that one."""
    cdef Py_ssize_t after = at + 1, step = 1, middle
    while after < heads.shape[0] and heads[after] < number:
        at, after, step = after, after + step, 2 * step
    after = min(after, heads.shape[0])
    while after - at > 1:
        middle = (at + after) // 2
        if heads[middle] < number:
            at = middle
        else:
            after = middle
    return at


cdef inline Py_ssize_t likely_place(
    const uint64_t[::1] heads, Py_ssize_t at, uint64_t number
) noexcept nogil:
    """Return about where a number is among the rows from a head on; hashes are evenly spread."""
    cdef double share
    if at + 1 >= heads.shape[0] or number <= heads[at]:
        return at * HEAD_ROWS
    share = <double>(number - heads[at]) / <double>(heads[at + 1] - heads[at])
    return at * HEAD_ROWS + <Py_ssize_t>(share * (HEAD_ROWS - 1))


cdef inline Py_ssize_t first_from(
    const uint64_t[::1] rows, Py_ssize_t place, uint64_t number
) noexcept nogil:
    """Return the first row that isn't less than a number, which is near a place."""
    while place > 0 and rows[place - 1] >= number:
        place -= 1
    while place < rows.shape[0] and rows[place] < number:
        place += 1
    return place


def meeting(
    const uint64_t[::1] rows not None, const uint64_t[::1] heads not None,
    const uint64_t[::1] asked not None, uint64_t lower_bits,
    int64_t[::1] starts not None, int64_t[::1] counts not None,
):
    """Find where the rows of each number begin, and how many these are, besides some lower bits.

    Rows and those that ask are sorted; `heads` has each 64th row.
    """
    cdef Py_ssize_t size = rows.shape[0], count = asked.shape[0], i, at = 0, low, step
    cdef uint64_t number
    check_heads(rows, heads)
    if not starts.shape[0] == counts.shape[0] == count:
        raise ValueError("a row isn't there")
    with nogil:
        for i in range(count):
            number = asked[i] & ~lower_bits
            at = head_before(heads, at, number)
            low = starts[i] = first_from(rows, likely_place(heads, at, number), number)
            number, step = number | lower_bits, 1
            while low + step <= size and rows[low + step - 1] <= number:
                low, step = low + step, 2 * step
            while step:
                if low + step <= size and rows[low + step - 1] <= number:
                    low += step
                step >>= 1
            counts[i] = low - starts[i]


cdef int check_heads(const uint64_t[::1] rows, const uint64_t[::1] heads) except -1:
    if (rows.shape[0] + HEAD_ROWS - 1) // HEAD_ROWS != heads.shape[0]:
        raise ValueError("a row isn't there")
    return 0


cdef inline bint few_bits(const uint64_t *one, const uint64_t *two, uint64_t most) noexcept nogil:
    """Return whether few bits of two rows differ; it is wrong only if all do."""
    cdef uint64_t apart, sums = 0
    cdef int word
    for word in range(LOW_WORDS):
        apart = one[word] ^ two[word]
        apart -= apart >> 1 & <uint64_t>0x5555555555555555
        apart = (apart & <uint64_t>0x3333333333333333) + (apart >> 2 & <uint64_t>0x3333333333333333)
        sums += apart + (apart >> 4) & <uint64_t>0x0F0F0F0F0F0F0F0F
    return sums * <uint64_t>0x0101010101010101 >> 56 <= most


def near_rows(
    const uint64_t[::1] rows not None, const uint64_t[::1] heads not None,
    const uint64_t[::1] asked not None, uint64_t lower_bits, int64_t crowd,
    const uint64_t[:, ::1] first not None, const uint64_t[:, ::1] second not None, uint64_t most,
    int64_t[::1] askers not None, int64_t[::1] met not None,
):
    """Write the pairs of a place that asks and one whose row has the same number; return how many.

    Places are the lower bits of rows. Only those pairs are written of which few bits differ. None
    is returned if a number has more rows than a crowd, or if there are too many pairs.
    """
    cdef Py_ssize_t size = rows.shape[0], count = asked.shape[0], i, start, stop, at = 0, place
    cdef Py_ssize_t written = 0, end, pair, room = min(askers.shape[0], met.shape[0])
    cdef Py_ssize_t[64] places
    cdef uint64_t number
    cdef int64_t left
    cdef bint there = first.shape[1] == second.shape[1] == LOW_WORDS, fits = True
    check_heads(rows, heads)
    with nogil:
        for start in range(0, count if size and there else 0, 64):
            stop = min(start + 64, count)  # memory is waited for together
            for i in range(start, stop):
                number = asked[i] & ~lower_bits
                at = head_before(heads, at, number)
                place = places[i - start] = likely_place(heads, at, number)
                __builtin_prefetch(&rows[place])
                __builtin_prefetch(&rows[min(place + 7, size - 1)])
            end = written
            for i in range(start, stop):
                number, left = asked[i] & ~lower_bits, crowd
                if <Py_ssize_t>(asked[i] & lower_bits) < first.shape[0]:
                    __builtin_prefetch(&first[asked[i] & lower_bits, 0])
                place = first_from(rows, places[i - start], number)
                while place < size and rows[place] & ~lower_bits == number:
                    if not left or end == room:
                        fits = False
                        break
                    askers[end], met[end] = asked[i] & lower_bits, rows[place] & lower_bits
                    there &= askers[end] < first.shape[0] and met[end] < second.shape[0]
                    __builtin_prefetch(&second[met[end], 0])
                    place, end, left = place + 1, end + 1, left - 1
            if not there or not fits:
                break
            for pair in range(written, end):
                if few_bits(&first[askers[pair], 0], &second[met[pair], 0], most):
                    askers[written], met[written] = askers[pair], met[pair]
                    written += 1
    if not there:
        raise ValueError("a place isn't there")
    return written if fits else None


def runs(PageCursor at not None, list numbers not None):
    """Return the numbers among sorted ones that rows begin with, and the last numbers of these.

    The last numbers are None if an earlier page may have some. None alone is returned if a page is
    one for the definition.
    """
    cdef list pairs = [], ids
    cdef uint64_t number, last = 0
    cdef int64_t row
    cdef bint there = False
    for number in numbers:
        # All rows of a number before the last one of a page are there, or on earlier pages.
        if not there or number >= last:
            there = at.to_last(number)
            if not there:
                continue
            if not at.read_key() or not at.read_page():
                return None
            last = cell(&at.page, 0, at.page.count - 1)
        row = bound(&at.page, number, False, 0)
        if row < at.page.count and cell(&at.page, 0, row) == number:
            ids = [] if row else None
            while row and row < at.page.count and cell(&at.page, 0, row) == number:
                ids.append(cell(&at.page, at.columns - 1, row))
                row += 1
            pairs.append((number, ids))
    return pairs


cdef struct Column:
    const uint8_t *data
    Py_ssize_t stride


cdef inline uint64_t number_at(const Column *column, Py_ssize_t row) noexcept nogil:
    """Return a number of a column of an array."""
    cdef uint64_t number
    memcpy(&number, column.data + row * column.stride, 8)
    return number


cdef Py_ssize_t read_columns(list columns, Column *cells) except -1:
    """Find the numbers of arrays, which the caller holds; return how many rows there are."""
    cdef Py_buffer buffer
    cdef Py_ssize_t rows = 0
    cdef bint sound
    cdef int column
    if not 1 <= len(columns) <= MOST_COLUMNS:
        raise ValueError("a page has one to four columns")
    for column in range(<int>len(columns)):
        PyObject_GetBuffer(columns[column], &buffer, PyBUF_STRIDES)
        sound = buffer.ndim == 1 and buffer.itemsize == 8 and buffer.shape[0] > 0
        if sound:
            rows = rows if column else buffer.shape[0]
            sound = rows == buffer.shape[0]
            cells[column].data, cells[column].stride = <const uint8_t *>buffer.buf, buffer.strides[0]
        PyBuffer_Release(&buffer)
        if not sound:
            raise ValueError("columns aren't numbers of 64 bits, are empty, or of other lengths")
    return rows


def packed(list columns, Py_ssize_t first, size_t largest):
    """Pack rows, from one on, into a page without its checksum, as many as fit.

    Return the page and the place after the last row.
    """
    cdef Column[4] cells
    cdef int count = <int>len(columns), column
    cdef Py_ssize_t rows = read_columns(columns, cells), row, after = first
    cdef uint64_t number
    cdef uint64_t[4] low, high, lows, highs
    cdef size_t[4] width, widths
    cdef size_t head = HEAD + 8 * count, size, row_bytes = 0, wider
    cdef uint16_t total, nibbles = 0
    cdef uint8_t *at
    cdef uint8_t *end
    if not 0 <= first < rows:
        raise ValueError("the first row isn't there")
    for column in range(count):
        low[column] = high[column] = number_at(&cells[column], first)
        width[column] = 0
    while after < rows and <size_t>(after - first) < largest:
        wider = 0
        for column in range(count):
            number = number_at(&cells[column], after)
            lows[column], highs[column] = min(low[column], number), max(high[column], number)
            widths[column] = width[column]
            while widths[column] < 8 and highs[column] - lows[column] >> 8 * widths[column]:
                widths[column] += 1
            wider += widths[column]
        if head + wider * (after + 1 - first) > largest:
            break
        row_bytes, after = wider, after + 1
        memcpy(low, lows, 32)
        memcpy(high, highs, 32)
        memcpy(width, widths, sizeof(widths))
    if after == first:
        raise ValueError("no row fits")
    total, size = <uint16_t>(after - first), head + row_bytes * (after - first)
    page = PyByteArray_FromStringAndSize(NULL, size)
    at = <uint8_t *>PyByteArray_AsString(page)
    end = at + size
    memset(at, 0, CHECKSUM)
    memcpy(at + CHECKSUM, &total, 2)
    for column in range(count):
        nibbles |= <uint16_t>(width[column] << 4 * column)
        if width[column] == 8:
            low[column] = 0
    memcpy(at + CHECKSUM + 2, &nibbles, 2)
    memcpy(at + HEAD, low, 8 * count)
    at += head
    for column in range(count):
        for row in range(first, after):
            number = number_at(&cells[column], row) - low[column]
            # To write eight bytes is fastest; the next number replaces those that are zeros.
            if at + 8 <= end:
                memcpy(at, &number, 8)
            else:
                memcpy(at, &number, width[column])
            at += width[column]
    return page, after


def merged(list rows, list insert, int keys):
    """Merge rows that are sorted by their first N columns; of equal ones the inserted row stays.

    Return the columns one after the other, each with room for all rows, and how many there are.
    """
    cdef Column[4] old, new
    cdef int count = <int>len(rows), column, side
    cdef Py_ssize_t size = read_columns(rows, old), more = read_columns(insert, new)
    cdef Py_ssize_t total = size + more, row = 0, other = 0, at = 0
    cdef uint64_t one, two
    cdef uint64_t *into
    if not 1 <= keys <= count or len(insert) != count:
        raise ValueError("the rows have other columns than those that are inserted")
    data = PyByteArray_FromStringAndSize(NULL, 8 * count * total)
    into = <uint64_t *>PyByteArray_AsString(data)
    while row < size or other < more:
        side = -1 if other == more else 1
        if row < size and other < more:
            side = 0
            for column in range(keys):
                one, two = number_at(&old[column], row), number_at(&new[column], other)
                if one != two:
                    side = -1 if one < two else 1
                    break
        if side < 0:
            for column in range(count):
                into[column * total + at] = number_at(&old[column], row)
            row += 1
        else:
            for column in range(count):
                into[column * total + at] = number_at(&new[column], other)
            other += 1
            row += side == 0
        at += 1
    return data, at


cdef class RowsToInsert:
    """Rows that are put into pages, columns of numbers of 64 bits, as one array."""

    cdef const uint64_t[:, ::1] rows
    cdef size_t largest  # of a page

    def __cinit__(self, const uint64_t[:, ::1] rows not None, size_t largest):
        self.rows, self.largest = rows, largest

    def insert(self, PageCursor at not None, put, int keys, Py_ssize_t most, Py_ssize_t first):
        """Put rows into the pages that they belong to, from one on; return the first that is left.

        The first N columns are the key. A page that must be packed anew, gets more than
        `most` rows, or is one for the definition, is left with all that come after.
        """
        cdef Py_ssize_t count = self.rows.shape[1], after
        cdef uint32_t checksum
        cdef bytes key, upper, old
        cdef bytearray grown
        if at.columns != self.rows.shape[0] or not 1 <= keys <= at.columns or first < 0:
            raise ValueError("the rows are those of another table")
        most = min(most, MOST_ROWS)
        while first < count:
            key = self.key(keys, first)
            upper = None
            if at.to_range(key) is True:
                upper = bytes(at.cursor.key())
                if upper == key or len(upper) != 8 * keys or not at.to_previous():
                    break
            elif not at.cursor.last():
                break
            if not at.read_key() or not at.read_page():
                break
            after = first + 1
            while after < count and after <= first + most and self.precedes(keys, after, upper):
                after += 1
            if after - first > most:
                break
            grown = self.grown(&at.page, keys, first, after)
            if grown is None:
                break
            body = memoryview(grown)[CHECKSUM:]
            checksum = <uint32_t>(<uint64_t>at.digest(body, at.page_seed))
            memcpy(PyByteArray_AsString(grown), &checksum, CHECKSUM)
            old = bytes(at.cursor.key())
            put(old, grown)
            first = after
        return first

    cdef bytes key(self, int keys, Py_ssize_t row):
        """Return the key of a row as bytes, which sort as its numbers."""
        cdef uint8_t[8 * MOST_COLUMNS] data
        self.write_key(data, keys, row)
        return PyBytes_FromStringAndSize(<char *>data, 8 * keys)

    cdef void write_key(self, uint8_t *data, int keys, Py_ssize_t row) noexcept:
        cdef int column, place
        for column in range(keys):
            for place in range(8):
                data[8 * column + place] = <uint8_t>(self.rows[column, row] >> 56 - 8 * place)

    cdef bint precedes(self, int keys, Py_ssize_t row, bytes upper):
        """Return whether a row comes before a key, if there is one."""
        cdef uint8_t[8 * MOST_COLUMNS] data
        self.write_key(data, keys, row)
        return upper is None or memcmp(data, <const uint8_t *>upper, 8 * keys) < 0

    cdef int against(self, int keys, Py_ssize_t row, const Page *page, int64_t place) noexcept:
        """Return -1 if a row comes before one of a page, 0 if it has its key, and else 1."""
        cdef int column
        cdef uint64_t number
        for column in range(keys):
            number = cell(page, column, place)
            if self.rows[column, row] != number:
                return -1 if self.rows[column, row] < number else 1
        return 0

    cdef object grown(self, const Page *page, int keys, Py_ssize_t first, Py_ssize_t after):
        """Return a page with some rows, whose other bytes remain; None if it must be packed anew.

        It must if it would overflow, a column become wider, or a row come first or have a key that
        is there.
        """
        cdef int columns = <int>self.rows.shape[0], column, width, side
        cdef Py_ssize_t count = after - first, row
        cdef int64_t[MOST_ROWS] places
        cdef int64_t place = 0, before
        cdef uint64_t number
        cdef size_t size = page.size, at
        cdef uint16_t total
        cdef uint8_t *data
        cdef const uint8_t *old
        for column in range(columns):
            size += count * page.width[column]
        if not page.width[0] or size > self.largest:
            return None
        for row in range(count):
            number = self.rows[0, first + row]
            place = bound(page, number, False, place)
            while place < page.count:
                side = self.against(keys, first + row, page, place)
                if side == 0:
                    return None
                if side < 0:
                    break
                place += 1
            if place == 0:
                return None
            places[row] = place
            for column in range(columns):
                width = page.width[column]
                number = self.rows[column, first + row]
                if width < 8 and (
                    number < page.base[column] or (number - page.base[column]) >> 8 * width
                ):
                    return None
        grown = PyByteArray_FromStringAndSize(NULL, size)
        data = <uint8_t *>PyByteArray_AsString(grown)
        at = HEAD + 8 * columns
        memcpy(data, page.data, at)
        for column in range(columns):
            width = page.width[column]
            old, before = page.data + page.start[column], 0
            for row in range(count):
                place = places[row]
                memcpy(data + at, old + before * width, (place - before) * width)
                at += (place - before) * width
                number = self.rows[column, first + row] - page.base[column]
                memcpy(data + at, &number, width)
                at += width
                before = place
            memcpy(data + at, old + before * width, (page.count - before) * width)
            at += (page.count - before) * width
        total = <uint16_t>(page.count + count)
        memcpy(data + CHECKSUM, &total, 2)
        return grown


cdef class Ranges:
    """Reads the pages that have rows in ranges of first numbers, which are sorted.

    Queries come in groups with the same range: `bounds` has the first of each group, and the end.
    `high` and `low` have the words of their fingerprints; those of one word have it twice, and
    `words` says which. Pages are read in the order of the ranges, and hits are held in columns
    until they are taken: a place in `queries`, and the numbers that belong to it.
    """

    cdef const uint64_t[::1] lows, highs, high, low
    cdef const int64_t[::1] queries, bounds
    cdef int64_t[::1] read
    cdef int words
    # The first range that isn't done, and the longest page.
    cdef Py_ssize_t done
    cdef readonly int64_t longest
    # Whether to go on from the page that the cursor is at, the last one that was read.
    cdef bint going
    cdef Key last
    cdef uint64_t *columns[3]
    cdef int64_t size, room, most

    def __cinit__(
        self, const uint64_t[::1] lows not None, const uint64_t[::1] highs not None,
        const int64_t[::1] bounds not None, list words not None,
        const int64_t[::1] queries not None, int64_t[::1] read not None, *_,
    ):
        cdef Py_ssize_t place, count = lows.shape[0]
        if not 1 <= len(words) <= 2:
            raise ValueError("a fingerprint has one word or two")
        self.words, self.high, self.low = <int>len(words), words[0], words[len(words) - 1]
        if highs.shape[0] != count or bounds.shape[0] != count + 1:
            raise ValueError("there are more bounds than ranges")
        if (
            self.high.shape[0] != queries.shape[0] or self.low.shape[0] != queries.shape[0]
            or bounds[0] < 0 or bounds[count] > queries.shape[0]
        ):
            raise ValueError("a group has queries that aren't there")
        for place in range(count):
            if bounds[place] > bounds[place + 1]:
                raise ValueError("the groups aren't in order")
        for place in range(queries.shape[0]):
            if not 0 <= queries[place] < read.shape[0]:
                raise ValueError("a query isn't there")
        self.lows, self.highs, self.bounds = lows, highs, bounds
        self.queries, self.read, self.most = queries, read, <int64_t>1 << 56

    def __dealloc__(self):
        for column in range(3):
            free(self.columns[column])

    def search(self, PageCursor at not None, bint in_turn, int64_t enough):
        """Read the pages of the ranges that aren't done; return whether all are done.

        Return early when enough is found, which must be taken then, and go on in the next call.
        Return None if a page isn't sound. All pages are read in turn, or those of ranges sought.

        Raises:
            OverflowError: More is found than is held.
        """
        cdef bint there
        to_next = at.cursor.next
        while self.done < self.lows.shape[0]:
            PyErr_CheckSignals()
            if self.going:
                there = to_next()
            # The page before the first key that isn't lower; to check if it is needed takes longer.
            elif at.to_key(self.lows[self.done], False):
                there = at.to_previous() or at.cursor.first()
            else:
                there = at.cursor.last()
            if not there:
                break
            if at.columns < self.words or not at.read_key() or not at.read_page():
                return None
            if in_turn and self.longest and not is_after(at.key, self.last):
                return None
            self.last, self.longest = at.key, max(self.longest, at.page.count)
            self.going = not self.read_ranges(at) or in_turn
            if self.size >= enough:
                return False
        return True

    cdef bint read_ranges(self, PageCursor at) except -1:
        """Read the ranges of a page; return whether the next page has nothing of the next range."""
        cdef Py_ssize_t before = self.done
        cdef uint64_t last = cell(&at.page, 0, at.page.count - 1)
        cdef int64_t row = 0, end
        while self.done < self.lows.shape[0] and self.lows[self.done] <= last:
            row = bound(&at.page, self.lows[self.done], False, row)
            end = bound(&at.page, self.highs[self.done], True, row)
            if row < end:
                self.take_rows(at, row, end)
            if self.highs[self.done] >= last:
                return False
            self.done += 1
        return self.done > before

    cdef int take_rows(self, PageCursor at, int64_t first, int64_t after) except -1:
        """Use the rows of a page that are in the next range."""
        raise NotImplementedError

    cdef inline Wide asked(self, Py_ssize_t place) noexcept:
        """Return the fingerprint of a query of a group."""
        cdef Wide query
        query.high, query.low = self.high[place], self.low[place]
        return query

    cdef int keep(self, Py_ssize_t place, uint64_t number, uint64_t beside) except -1:
        cdef uint64_t *more
        cdef int64_t room
        cdef int column
        if self.size == self.room:
            if self.size >= self.most:
                raise OverflowError("more is found than is held")
            room = 2 * self.room + 1024
            for column in range(3):
                more = <uint64_t *>realloc(self.columns[column], 8 * room)
                if more == NULL:
                    raise MemoryError
                self.columns[column] = more
            self.room = room
        self.columns[0][self.size] = self.queries[place]
        self.columns[1][self.size], self.columns[2][self.size] = number, beside
        self.size += 1
        return 0

    def taken(self):
        """Return the columns of the rows that were found, as bytes, and forget these."""
        cdef int64_t size = self.size
        self.size = 0
        return [
            PyBytes_FromStringAndSize(<char *>self.columns[column], 8 * size)
            for column in range(1 + self.words)
        ]


cdef class RangeSearch(Ranges):
    """Compares the rows of ranges with queries: it finds the bits in which rows differ from them.

    `read` counts the rows in the ranges of each query, which isn't compared beyond the budget.
    """

    cdef int64_t budget, k

    def __cinit__(self, _, __, ___, ____, _____, ______, int64_t budget, int64_t k, int64_t most):
        self.budget, self.k, self.most = budget, k, most

    cdef int take_rows(self, PageCursor at, int64_t first, int64_t after) except -1:
        cdef Py_ssize_t place, start = self.bounds[self.done], stop = self.bounds[self.done + 1]
        cdef Wide number, before, change
        cdef int64_t row
        before.high = before.low = 0
        for place in range(start, stop):
            self.read[self.queries[place]] += after - first
        for row in range(first, after):
            number = fingerprint_at(&at.page, self.words, row)
            # Of the documents with one fingerprint, one is enough.
            if row > first and is_zero(changed(number, before)):
                continue
            before = number
            for place in range(start, stop):
                change = changed(number, self.asked(place))
                if distance(change, self.words) <= self.k:
                    if self.read[self.queries[place]] <= self.budget:
                        self.keep(place, change.high, change.low)
        return 0


cdef class IdSearch(Ranges):
    """Finds the last numbers of the rows with some fingerprints.

    They are at most as many of each as `limit` says; `read` counts them.
    """

    cdef int64_t limit

    def __cinit__(self, _, __, ___, ____, _____, ______, int64_t limit):
        self.limit = limit

    cdef int take_rows(self, PageCursor at, int64_t first, int64_t after) except -1:
        cdef Py_ssize_t place, start = self.bounds[self.done], stop = self.bounds[self.done + 1]
        cdef int64_t row
        for place in range(start, stop):
            for row in range(first, after):
                if self.read[self.queries[place]] == self.limit:
                    break
                if is_zero(changed(fingerprint_at(&at.page, self.words, row), self.asked(place))):
                    self.keep(place, cell(&at.page, at.columns - 1, row), 0)
                    self.read[self.queries[place]] += 1
        return 0
