# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Kernels of pages: search one, compare its rows with a query, and put rows into it.

`fpdb.storage.columns` has the layout, and defines each result together with the code beside the
calls. The caller computes the checksum of a page, which is compared here. A page that isn't sound,
or another table's, is one for the definition, which raises the error.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_STRIDES, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove, memset

cdef extern from "Python.h":
    object PyByteArray_FromStringAndSize(const char *data, Py_ssize_t size)
    char *PyByteArray_AsString(object array) except NULL
    object PyBytes_FromStringAndSize(const char *data, Py_ssize_t size)

cdef enum:
    LARGEST = 4080
    HEAD = 8
    CHECKSUM = 4
    MOST_COLUMNS = 4
    # Rows that are put into a page at once.
    MOST_ROWS = 256


cdef struct Page:
    const uint8_t *data
    size_t size
    int64_t count
    uint16_t widths
    int[4] width
    # Where each column begins, and what is added to its numbers.
    size_t[4] start
    uint64_t[4] base


cdef bint opened(Page *page, const Py_buffer *value, int columns, uint64_t digest) noexcept nogil:
    """Read the head of a page; return whether it is sound, and has its columns and some rows."""
    cdef const uint8_t *data = <const uint8_t *>value.buf
    cdef uint32_t sum
    cdef uint16_t count
    cdef size_t at
    cdef int column, width
    page.data, page.size = data, value.len
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
        # The first column is searched in place, so it has a width of machine numbers.
        if width > 8 or (column == 0 and width in (3, 5, 6, 7)) or (column >= columns and width):
            return False
        if column < columns:
            page.width[column], page.start[column], page.base[column] = width, at, 0
            if width < 8:
                memcpy(&page.base[column], data + HEAD + 8 * column, 8)
            at += <size_t>width * count
    return count > 0 and at == page.size


cdef inline uint64_t cell(const Page *page, int column, int64_t row) noexcept nogil:
    """Return a number of a page; its row must be there."""
    cdef uint64_t number = 0
    cdef int width = page.width[column]
    cdef const uint8_t *at = page.data + page.start[column] + row * width
    if width == 8:
        memcpy(&number, at, 8)
    elif width == 4:
        memcpy(&number, at, 4)
    else:
        memcpy(&number, at, width)
    return number + page.base[column]


cdef int64_t bound(const Page *page, uint64_t number, bint right, int64_t low) noexcept nogil:
    """Return the first row whose first number isn't below a number, or is above it."""
    cdef int64_t high = page.count, middle
    cdef uint64_t found
    while low < high:
        middle = (low + high) >> 1
        found = cell(page, 0, middle)
        if found < number or (right and found == number):
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


def near_rows(
    value, int columns, uint64_t digest, uint64_t low, uint64_t high, uint64_t query, int k
):
    """Return how many rows a page has, and those from `low` to `high` within k of a query.

    Equal numbers are one tuple: the bits in which they differ, how many these are, the first row
    and the one after the last. There is None instead of no tuples, and None alone if the page is
    one for the definition.
    """
    cdef Py_buffer buffer
    cdef Page page
    cdef int64_t row, first
    cdef uint64_t number
    cdef int apart
    cdef list found = None
    PyObject_GetBuffer(value, &buffer, PyBUF_SIMPLE)
    try:
        if not opened(&page, &buffer, columns, digest):
            return None
        row = bound(&page, low, False, 0)
        while row < page.count:
            number = cell(&page, 0, row)
            if number > high:
                break
            first = row
            row += 1
            apart = bits_of(number ^ query)
            if apart <= k:
                while row < page.count and cell(&page, 0, row) == number:
                    row += 1
                if found is None:
                    found = []
                found.append((number ^ query, apart, first, row))
        return page.count, found
    finally:
        PyBuffer_Release(&buffer)


def runs(value, int columns, uint64_t digest, list numbers, Py_ssize_t at):
    """Look sorted numbers up in a page, from that one on for which the page was sought.

    Return the place of the first that may be on a later page; and of those that were found, the
    number and the last numbers of its rows, or None for these if the page before may have more.
    Return None alone if the page is one for the definition.
    """
    cdef Py_buffer buffer
    cdef Page page
    cdef uint64_t number, last
    cdef int64_t start, row
    cdef Py_ssize_t first = at, count = len(numbers)
    cdef list found = [], ids
    PyObject_GetBuffer(value, &buffer, PyBUF_SIMPLE)
    try:
        if at < 0 or not opened(&page, &buffer, columns, digest):
            return None
        last = cell(&page, 0, page.count - 1)
        while at < count:
            number = numbers[at]
            if at > first and number >= last:
                break
            start = bound(&page, number, False, 0)
            if start < page.count and cell(&page, 0, start) == number:
                ids = None
                if start > 0:
                    ids = []
                    row = start
                    while row < page.count and cell(&page, 0, row) == number:
                        ids.append(cell(&page, columns - 1, row))
                        row += 1
                found.append((number, ids))
            at += 1
        return at, found
    finally:
        PyBuffer_Release(&buffer)


cdef inline uint64_t number_at(const Py_buffer *column, Py_ssize_t row) noexcept nogil:
    """Return a number of a column of an array."""
    cdef uint64_t number
    memcpy(&number, <const uint8_t *>column.buf + row * column.strides[0], 8)
    return number


def packed(list rows, size_t largest):
    """Pack sorted rows into a page without its checksum; return its size if that is too large."""
    cdef Py_buffer[4] columns
    cdef int count = <int>len(rows), taken = 0, column
    if not 1 <= count <= MOST_COLUMNS:
        raise ValueError("a page has one to four columns")
    try:
        for column in range(count):
            PyObject_GetBuffer(rows[column], &columns[column], PyBUF_STRIDES)
            taken += 1
            if columns[column].ndim != 1 or columns[column].itemsize != 8:
                raise ValueError("a column isn't one of numbers of 64 bits")
            if not 0 < columns[column].shape[0] == columns[0].shape[0]:
                raise ValueError("columns are empty, or of other lengths")
        return packed_columns(columns, count, largest)
    finally:
        for column in range(taken):
            PyBuffer_Release(&columns[column])


cdef object packed_columns(Py_buffer *columns, int count, size_t largest):
    cdef Py_ssize_t rows = columns[0].shape[0], row
    cdef int column
    cdef uint64_t number, low, high
    cdef uint64_t[4] bases
    cdef size_t[4] widths
    cdef size_t size = HEAD + 8 * count
    cdef uint16_t total = <uint16_t>rows, nibbles = 0
    cdef uint8_t *at
    cdef uint8_t *end
    for column in range(count):
        low = high = number_at(&columns[column], 0)
        if column == 0:  # which is sorted, and searched in place: as wide as a machine's number
            high = number_at(&columns[0], rows - 1) - low
            widths[0] = 8 if high >> 32 else 4 if high >> 16 else 2 if high >> 8 else high > 0
        else:
            for row in range(1, rows):
                number = number_at(&columns[column], row)
                low, high = min(low, number), max(high, number)
            widths[column] = 0
            while widths[column] < 8 and high - low >> 8 * widths[column]:
                widths[column] += 1
        bases[column] = 0 if widths[column] == 8 else low
        nibbles |= <uint16_t>(widths[column] << 4 * column)
        size += rows * widths[column]
    if size > largest or rows != total:
        return size
    page = PyByteArray_FromStringAndSize(NULL, size)
    at = <uint8_t *>PyByteArray_AsString(page)
    end = at + size
    memset(at, 0, CHECKSUM)
    memcpy(at + CHECKSUM, &total, 2)
    memcpy(at + CHECKSUM + 2, &nibbles, 2)
    memcpy(at + HEAD, bases, 8 * count)
    at += HEAD + 8 * count
    for column in range(count):
        for row in range(rows):
            number = number_at(&columns[column], row) - bases[column]
            # To write eight bytes is fastest; the next number replaces those that are zeros.
            if at + 8 <= end:
                memcpy(at, &number, 8)
            else:
                memcpy(at, &number, widths[column])
            at += widths[column]
    return page


cdef class RowsToInsert:
    """Rows that are put into pages, columns of numbers of 64 bits, as one array."""

    cdef const uint64_t[:, ::1] rows

    def __cinit__(self, const uint64_t[:, ::1] rows not None):
        self.rows = rows

    def into(self, value, uint64_t digest, Py_ssize_t first, Py_ssize_t after):
        """Return a page with some of the rows, as `columns.with_rows` does, without a checksum.

        Return None if the page must be packed anew, and nothing if it is one for the definition.
        """
        cdef Py_buffer buffer
        PyObject_GetBuffer(value, &buffer, PyBUF_SIMPLE)
        try:
            return self.inserted(&buffer, digest, first, after)
        finally:
            PyBuffer_Release(&buffer)

    def merged(self, value, int keys, uint64_t digest, Py_ssize_t first, Py_ssize_t after):
        """Return the columns of a page with some of the rows, as bytes of uint64, one by one.

        Rows are sorted by their first numbers, the key, and one of these replaces an old one with
        its key. Return None if the page is one for the definition, or isn't sorted.
        """
        cdef Py_buffer buffer
        PyObject_GetBuffer(value, &buffer, PyBUF_SIMPLE)
        try:
            return self.merged_rows(&buffer, keys, digest, first, after)
        finally:
            PyBuffer_Release(&buffer)

    cdef object merged_rows(
        self, const Py_buffer *value, int keys, uint64_t digest, Py_ssize_t first, Py_ssize_t after
    ):
        cdef Page page
        cdef int columns = <int>self.rows.shape[0], column, order
        cdef int64_t most, count = 0, old = 0
        cdef Py_ssize_t new = first
        cdef uint64_t *cells
        cdef object found
        if (
            not 0 <= first <= after <= self.rows.shape[1]
            or not 1 <= keys <= columns
            or not opened(&page, value, columns, digest)
        ):
            return None
        most = page.count + (after - first)
        found = PyByteArray_FromStringAndSize(NULL, 8 * most * columns)
        cells = <uint64_t *>PyByteArray_AsString(found)
        while old < page.count or new < after:
            if new == after:
                order = 1
            elif old == page.count:
                order = -1
            else:
                order = 0
                for column in range(keys):
                    if self.rows[column, new] != cell(&page, column, old):
                        order = -1 if self.rows[column, new] < cell(&page, column, old) else 1
                        break
            for column in range(columns):
                if order > 0:
                    cells[column * most + count] = cell(&page, column, old)
                else:
                    cells[column * most + count] = self.rows[column, new]
            if order >= 0:
                old += 1
            if order <= 0:
                new += 1
            if count > 0:
                order = 0
                for column in range(keys):
                    if cells[column * most + count] != cells[column * most + count - 1]:
                        order = cells[column * most + count] > cells[column * most + count - 1]
                        break
                if not order:
                    return None
            count += 1
        if count < most:
            for column in range(1, columns):
                memmove(cells + column * count, cells + column * most, 8 * count)
        return memoryview(found)[: 8 * count * columns]

    cdef object inserted(
        self, const Py_buffer *value, uint64_t digest, Py_ssize_t first, Py_ssize_t after
    ):
        cdef Page page
        cdef int columns = <int>self.rows.shape[0], column, width
        cdef Py_ssize_t count = after - first, row
        cdef int64_t[MOST_ROWS] places
        cdef int64_t place = 0, before
        cdef uint64_t number
        cdef size_t size, at
        cdef uint16_t total
        cdef uint8_t *data
        cdef const uint8_t *old
        if (
            not 0 <= first < after <= self.rows.shape[1]
            or count > MOST_ROWS
            or not opened(&page, value, columns, digest)
        ):
            return bytearray()
        size = page.size
        for column in range(columns):
            size += count * page.width[column]
        if not page.width[0] or size > LARGEST:
            return None
        for row in range(count):
            number = self.rows[0, first + row]
            place = bound(&page, number, False, place)
            if place == 0 or (place < page.count and cell(&page, 0, place) == number):
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


cdef class RangeSearch:
    """Compares the rows of pages with the queries in whose ranges they are, as `batch` does.

    Queries come in groups with the same range; `bounds` has the first of each group, and the end.
    `read` counts the rows in the ranges of each query, which isn't compared beyond the budget.
    """

    cdef const uint64_t[::1] lows, highs, words
    cdef const int64_t[::1] queries, bounds
    cdef int64_t[::1] read
    cdef int64_t budget, k, most, size, room
    cdef int64_t *places
    cdef uint64_t *changes
    cdef readonly int64_t longest

    def __cinit__(
        self,
        const uint64_t[::1] lows not None,
        const uint64_t[::1] highs not None,
        const int64_t[::1] bounds not None,
        const uint64_t[::1] words not None,
        const int64_t[::1] queries not None,
        int64_t[::1] read not None,
        int64_t budget,
        int64_t k,
        int64_t most,
    ):
        cdef Py_ssize_t place, count = lows.shape[0]
        self.places, self.changes = NULL, NULL
        if highs.shape[0] != count or bounds.shape[0] != count + 1:
            raise ValueError("there are more bounds than ranges")
        if words.shape[0] != queries.shape[0] or bounds[0] < 0 or bounds[count] > words.shape[0]:
            raise ValueError("a group has queries that aren't there")
        for place in range(count):
            if bounds[place] > bounds[place + 1]:
                raise ValueError("the groups aren't in order")
        for place in range(queries.shape[0]):
            if not 0 <= queries[place] < read.shape[0]:
                raise ValueError("a query isn't there")
        self.lows, self.highs, self.bounds = lows, highs, bounds
        self.words, self.queries, self.read = words, queries, read
        self.budget, self.k, self.most = budget, k, most

    def __dealloc__(self):
        free(self.places)
        free(self.changes)

    def compare(self, value, int columns, uint64_t digest, Py_ssize_t done):
        """Compare the rows of a page with the ranges from one on.

        Return the first range that isn't done, and whether it is only on a later page than the
        next. Return None if the page is one for the definition.

        Raises:
            OverflowError: More is found than is held.
        """
        cdef Py_buffer buffer
        cdef Page page
        PyObject_GetBuffer(value, &buffer, PyBUF_SIMPLE)
        try:
            if done < 0 or not opened(&page, &buffer, columns, digest):
                return None
            return self.compared(&page, done)
        finally:
            PyBuffer_Release(&buffer)

    cdef object compared(self, const Page *page, Py_ssize_t done):
        cdef Py_ssize_t own = done
        cdef uint64_t last = cell(page, 0, page.count - 1), number
        cdef int64_t row = 0, end, at, query
        if page.count > self.longest:
            self.longest = page.count
        while own < self.lows.shape[0]:
            if self.lows[own] > last:
                return own, own > done
            row = bound(page, self.lows[own], False, row)
            end = bound(page, self.highs[own], True, row)
            if end > row:
                for at in range(self.bounds[own], self.bounds[own + 1]):
                    self.read[self.queries[at]] += end - row
                for query in range(row, end):
                    number = cell(page, 0, query)
                    # Of the documents with one fingerprint, one is enough.
                    if query > row and number == cell(page, 0, query - 1):
                        continue
                    for at in range(self.bounds[own], self.bounds[own + 1]):
                        if bits_of(number ^ self.words[at]) <= self.k:
                            if self.read[self.queries[at]] <= self.budget:
                                self.keep(self.queries[at], number ^ self.words[at])
            if self.highs[own] >= last:
                return own, False
            own += 1
        return own, True

    cdef int keep(self, int64_t query, uint64_t change) except -1:
        cdef void *more
        cdef int64_t room
        if self.size == self.room:
            if self.size >= self.most:
                raise OverflowError("more is near than is held")
            room = 2 * self.room + 1024
            more = realloc(self.places, 8 * room)
            if more == NULL:
                raise MemoryError
            self.places = <int64_t *>more
            more = realloc(self.changes, 8 * room)
            if more == NULL:
                raise MemoryError
            self.changes = <uint64_t *>more
            self.room = room
        self.places[self.size], self.changes[self.size] = query, change
        self.size += 1
        return 0

    def __len__(self):
        return self.size

    def taken(self):
        """Return what was found, and forget it: queries, and bits in which rows differ there."""
        cdef int64_t size = self.size
        self.size = 0
        return (
            PyBytes_FromStringAndSize(<const char *>self.places, 8 * size),
            PyBytes_FromStringAndSize(<const char *>self.changes, 8 * size),
        )
