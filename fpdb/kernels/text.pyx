# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Kernels of text: clean, cut, hash, count, vote and sketch in one pass.

`fpdb.fingerprint` defines in Python the result of each of them. A kernel returns the numbers of the
texts that it leaves out: its caller takes the definition.

Threads fingerprint texts side by side: a kernel holds the interpreter's lock only while it looks
for the characters of the texts, which it copies unless they are ASCII.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from fpdb.kernels.chinese cimport LONGEST_RUN, cut_runs
from fpdb.kernels.hashes cimport LONGEST_HASHED, hash64

cdef extern from "Python.h":
    Py_ssize_t PyUnicode_GetLength(object text) except -1
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    object PyBytes_FromStringAndSize(const char *data, Py_ssize_t size)
    uint32_t *PyUnicode_AsUCS4(
        object text, uint32_t *codes, Py_ssize_t size, int with_null
    ) except NULL

cdef enum:
    BINS = 256
    SKETCH_BYTES = 128
    ROUNDS = 16
    BIN_SHIFT = 56
    ROUND_SHIFT = 52
    BLOCKS = 0x1100
    ASCII = 0x80
    NOTHING = 0x80
    MORE = 0xFF
    # The parts of an entry of `CharacterTable`: the code, its kind, and marks of other entries.
    CODE = 0x1FFFFF
    KIND_SHIFT = 21
    LETTER = 1
    SIGN = 2
    SEVERAL = 1 << 23
    HARD = 1 << 24
    MOST_OF_ONE = 256  # characters that cleaning makes of one
    LONGEST_WORD = 64
    LONGEST_SHINGLE = 5
    SPAN = 15
    WORD_UNITS = 5
    SIGN_UNITS = 3
    RUN = 4
    WINDOW = 23
    NUMBER_BYTES = 5
    FINE_BITS = 8 * NUMBER_BYTES - 32
    LANES = 8
    MOST_IN_LANES = 0xFF  # of the features that one byte of a lane adds up
    MOST_AT_ONCE = 15
    TABULATED = 4096
    # A text made to collide would take quadratic time; the definition sorts.
    MOST_PROBES = 16

cdef double UNITS = 4096.0
# Up to here, the definition adds up without rounding.
cdef double MOST_UNITS = 2251799813685248.0  # 2 ** 51
cdef double ROUNDER = 4503599627370496.0  # 2 ** 52: from here on, doubles are whole numbers
cdef uint64_t EMPTY = 0xFFFFFFFFFFFFFFFF
cdef uint64_t HASH = (<uint64_t>1 << ROUND_SHIFT) - 1
cdef uint64_t LOWEST_OF_BYTES = 0x0101010101010101
cdef uint64_t ODD = 0x9E3779B97F4A7C15


_is_ascii = str.isascii


cdef struct Text:
    const uint8_t *ascii  # its characters where all are ASCII, else NULL
    Py_ssize_t start  # where they begin among the copied ones
    Py_ssize_t size


cdef struct Buffer:
    void *data
    size_t size


cdef struct Scratch:
    Buffer texts
    Buffer codes  # the characters of all texts that aren't ASCII
    # Of one text:
    Buffer wide  # its characters if they are ASCII
    Buffer tokens  # hashes of tokens, then those of features
    Buffer seconds  # the second words of hashes of 128 bits
    Buffer units
    Buffer occurrences  # how often each distinct feature occurs
    Buffer slots  # a hash table of distinct features
    Buffer bytes  # the text of the features, as UTF-8
    Buffer starts  # where each piece begins and ends there
    Buffer stops
    Buffer firsts  # where each distinct feature occurs first
    Buffer run  # of Han
    Buffer words
    Buffer values
    Buffer runs  # the hashes of shingles in a row
    Buffer numbers  # those chosen of them
    Buffer places  # of the shingles where these begin
    # Of all texts:
    Buffer packed  # numbers
    Buffer ends  # where those of each text end


cdef struct Votes:
    int64_t sums[128]  # the weights of the features that vote for each bit
    uint64_t lanes[16]  # small counts of features, not yet in the sums: a byte for each bit
    uint32_t in_lanes
    int64_t total


cdef void *room(Buffer *buffer, size_t size) noexcept nogil:
    """Return a buffer of at least N bytes, with its content; NULL if there is no memory."""
    cdef void *data
    if buffer.size < size:
        size += size // 2
        data = realloc(buffer.data, size)
        if data == NULL:
            return NULL
        buffer.data, buffer.size = data, size
    return buffer.data


cdef void drop(Scratch *scratch) noexcept nogil:
    cdef Buffer *buffers = <Buffer *>scratch
    cdef size_t number
    for number in range(sizeof(Scratch) // sizeof(Buffer)):
        free(buffers[number].data)


cdef inline uint64_t mix(uint64_t value) noexcept nogil:
    """Return what `sketches.mix` does for one number."""
    value = (value ^ (value >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    value = (value ^ (value >> 27)) * <uint64_t>0x94D049BB133111EB
    return value ^ (value >> 31)


cdef const uint32_t *characters_of(const Text *text, Scratch *scratch) noexcept nogil:
    """Return the characters of a text, or NULL if there is no memory."""
    cdef Py_ssize_t place
    cdef uint32_t *codes
    if text.ascii == NULL:
        return <uint32_t *>scratch.codes.data + text.start
    codes = <uint32_t *>room(&scratch.wide, (text.size + 1) * sizeof(uint32_t))
    if codes != NULL:
        for place in range(text.size):
            codes[place] = text.ascii[place]
    return codes


cdef class CharacterTable:
    """The result of cleaning each character, and its kind: tables of 256 characters.

    `source` is called with the number of a table that is needed for the first time. It returns 256
    entries, uint32, and after them those that are several characters: how many follow, and these.
    """

    cdef uint32_t *blocks[BLOCKS]
    cdef object source
    cdef bint signs  # whether there is any among the characters loaded

    def __cinit__(self, source):
        memset(self.blocks, 0, sizeof(self.blocks))
        self.source = source
        self.load(0)

    def __dealloc__(self):
        cdef int number
        for number in range(BLOCKS):
            free(self.blocks[number])

    cdef int load(self, uint32_t number) except -1:
        cdef const uint32_t[::1] entries = self.source(number)
        cdef Py_ssize_t place, at, size = entries.shape[0]
        cdef uint32_t *block
        if size < 256:
            raise ValueError("found a table of too few characters")
        for place in range(size):
            self.signs |= entries[place] >> KIND_SHIFT == SIGN
        for place in range(256):
            if entries[place] >= SEVERAL and entries[place] != HARD:
                at = <Py_ssize_t>entries[place] - SEVERAL
                if at < 256 or at >= min(size, CODE) or entries[at] >= min(size - at, MOST_OF_ONE):
                    raise ValueError("found characters that are outside of their table")
        block = <uint32_t *>malloc(size * sizeof(uint32_t))
        if block == NULL:
            raise MemoryError
        memcpy(block, &entries[0], size * sizeof(uint32_t))
        if self.blocks[number] == NULL:
            self.blocks[number] = block
        else:  # another thread was faster
            free(block)
        return 0

    cdef int prepare(self, const uint32_t *codes, Py_ssize_t count) except -1:
        """Load the tables of all these characters."""
        cdef Py_ssize_t place = 0
        while True:
            with nogil:
                while place < count and self.blocks[codes[place] >> 8] != NULL:
                    place += 1
            if place == count:
                return 0
            self.load(codes[place] >> 8)


cdef inline void add_weight(Votes *votes, uint64_t digest, int64_t units, int word) noexcept nogil:
    cdef int bit
    for bit in range(64):
        votes.sums[word * 64 + bit] += units & -<int64_t>((digest >> bit) & 1)


cdef inline void add_lanes(
    Votes *votes, const uint64_t *lanes, int64_t unit, int word
) noexcept nogil:
    cdef int lane, byte
    for lane in range(LANES):
        for byte in range(8):
            votes.sums[word * 64 + byte * 8 + lane] += (
                <int64_t>((lanes[lane] >> (8 * byte)) & 0xFF) * unit
            )


cdef int64_t add_single(
    Votes *votes, const uint64_t *digests, const uint32_t *occurrences, int64_t count, int64_t unit,
    int word,
) noexcept nogil:
    """Add the votes of all features that occur once, and return how many they are."""
    cdef uint64_t lanes[LANES]
    cdef uint64_t digest, single
    cdef int64_t start = 0, place, singles = 0
    cdef int bit
    while start < count:
        memset(lanes, 0, sizeof(lanes))
        for place in range(start, min(start + MOST_IN_LANES, count)):
            single = occurrences[place] == 1
            singles += single
            digest = digests[place] & (0 - single)
            for bit in range(LANES):
                lanes[bit] += (digest >> bit) & LOWEST_OF_BYTES
        add_lanes(votes, lanes, unit, word)
        start += MOST_IN_LANES
    return singles


cdef uint64_t majority(const Votes *votes, int word, int tie) noexcept nogil:
    cdef uint64_t ahead = 0
    cdef int64_t difference
    cdef int bit
    for bit in range(64):
        difference = 2 * votes.sums[word * 64 + bit] - votes.total
        if difference > 0 or (tie and difference == 0):
            ahead |= <uint64_t>1 << bit
    return ahead


cdef class WeightTable:
    """The weights of features, in whole units, by how often they occur.

    `damp` returns those of counts beyond the table. `masses` are the weights before they become
    whole units, for features that have a factor each.
    """

    cdef int64_t table[TABULATED]
    cdef double masses[TABULATED]
    cdef object damp

    def __cinit__(self, const int64_t[::1] table, const double[::1] masses, damp):
        if table.shape[0] != TABULATED or masses.shape[0] != TABULATED:
            raise ValueError("found a table of another size than kernels are made for")
        memcpy(self.table, &table[0], sizeof(self.table))
        memcpy(self.masses, &masses[0], sizeof(self.masses))
        self.damp = damp

    cdef inline int64_t of(self, uint32_t count) noexcept nogil:
        """Return a weight, or -1 after an error."""
        return self.table[count] if count < TABULATED else self.many(count)

    cdef int64_t many(self, uint32_t count) noexcept with gil:
        try:
            return self.damp(count)
        except Exception:
            return -1


cdef class FactorTable:
    """Factors of features by their bytes: inverse document frequencies."""

    cdef const uint8_t[::1] data  # all features in a row
    cdef const int64_t[::1] ends
    cdef const double[::1] values
    cdef double missing
    cdef uint32_t *slots
    cdef uint64_t mask
    cdef bint usable

    def __cinit__(
        self, const uint8_t[::1] data, const int64_t[::1] ends, const double[::1] values,
        double missing,
    ):
        cdef int64_t number, count = ends.shape[0], start = 0
        cdef int64_t probes = MOST_PROBES * (count + 64)
        cdef uint64_t slot
        if count != values.shape[0] or count >> 31:
            raise ValueError("found another number of factors than of features")
        self.data, self.ends, self.values, self.missing = data, ends, values, missing
        self.mask = 15
        while self.mask < <uint64_t>count * 2:
            self.mask = self.mask * 2 + 1
        self.slots = <uint32_t *>calloc(self.mask + 1, sizeof(uint32_t))
        if self.slots == NULL:
            raise MemoryError
        self.usable = True
        for number in range(count):
            if not start <= ends[number] <= data.shape[0]:
                raise ValueError("found a feature that is outside of the data")
            size = ends[number] - start
            if 0 < size <= LONGEST_HASHED:
                slot = hash64(&data[start], size, 0) & self.mask
                while self.slots[slot] and probes:
                    slot = (slot + 1) & self.mask
                    probes -= 1
                self.slots[slot] = <uint32_t>number + 1
            else:
                self.usable = self.usable and not size  # no feature is empty
            start = ends[number]
        self.usable = self.usable and probes > 0

    def __dealloc__(self):
        free(self.slots)

    cdef double of(self, const uint8_t *feature, uint32_t size) noexcept nogil:
        """Return the factor of a feature, or a negative one where the definition must find it."""
        cdef uint64_t slot
        cdef int64_t number, start
        if not self.usable or size > LONGEST_HASHED:
            return -1
        slot = hash64(feature, size, 0) & self.mask
        while self.slots[slot]:
            number = self.slots[slot] - 1
            start = self.ends[number - 1] if number else 0
            if self.ends[number] - start == size and not memcmp(&self.data[start], feature, size):
                return self.values[number]
            slot = (slot + 1) & self.mask
        return self.missing


cdef bint equal(
    Scratch *scratch, const uint32_t *stops, int64_t first, int64_t second
) noexcept nogil:
    """Return whether two features have the same bytes."""
    cdef const uint32_t *starts = <uint32_t *>scratch.starts.data
    cdef const uint8_t *data = <uint8_t *>scratch.bytes.data
    cdef uint32_t size = stops[first] - starts[first]
    return stops[second] - starts[second] == size and not memcmp(
        data + starts[first], data + starts[second], size
    )


cdef int64_t distinct(
    Scratch *scratch, uint64_t *hashes, int64_t count, const uint32_t *stops
) noexcept nogil:
    """Count features by their hashes: keep the distinct ones in front, and return their number.

    If `stops` has the ends of features, those with equal hashes are compared. Return -1 where there
    is no memory, or where many hashes were made to collide.
    """
    cdef uint64_t mask = 15
    cdef uint32_t *slots
    cdef uint32_t *occurrences
    cdef uint32_t *firsts
    cdef uint32_t entry
    cdef uint64_t slot
    cdef int64_t place, total = 0, probes = MOST_PROBES * (count + 64)
    while mask < <uint64_t>count * 2:
        mask = mask * 2 + 1
    slots = <uint32_t *>room(&scratch.slots, (mask + 1) * sizeof(uint32_t))
    occurrences = <uint32_t *>room(&scratch.occurrences, (count + 1) * sizeof(uint32_t))
    firsts = <uint32_t *>room(&scratch.firsts, (count + 1) * sizeof(uint32_t))
    if slots == NULL or occurrences == NULL or firsts == NULL or count >> 32:
        return -1
    memset(slots, 0, (mask + 1) * sizeof(uint32_t))
    for place in range(count):
        slot = hashes[place] & mask
        while True:
            entry = slots[slot]
            if not entry:
                hashes[total] = hashes[place]
                occurrences[total] = 1
                firsts[total] = <uint32_t>place
                total += 1
                slots[slot] = <uint32_t>total
                break
            entry -= 1
            if hashes[entry] == hashes[place] and (
                stops == NULL or equal(scratch, stops, firsts[entry], place)
            ):
                occurrences[entry] += 1
                break
            slot = (slot + 1) & mask
            probes -= 1
            if not probes:
                return -1
    return total


cdef int64_t pack(Scratch *scratch, int64_t count, int64_t end) noexcept nogil:
    """Append the numbers of a text, sorted, to the packed ones, which end here.

    Return where they end then; -1 where there is no memory, or where many were made to collide.
    """
    cdef const uint64_t *numbers = <uint64_t *>scratch.numbers.data
    cdef uint64_t *ordered = <uint64_t *>room(&scratch.runs, (count + 1) * sizeof(uint64_t))
    cdef uint32_t *places = <uint32_t *>room(&scratch.slots, (count + 1) * sizeof(uint32_t))
    cdef uint8_t *packed = <uint8_t *>room(&scratch.packed, end + count * NUMBER_BYTES + 1)
    cdef uint64_t number
    cdef uint32_t before = 0
    cdef int64_t place, at, moves = MOST_PROBES * (count + 64)
    cdef int byte
    if ordered == NULL or places == NULL or packed == NULL or count >> 32:
        return -1
    # Numbers are even, so each is put near its place at once, and moved a little.
    memset(places, 0, (count + 1) * sizeof(uint32_t))
    for place in range(count):
        places[(numbers[place] >> FINE_BITS) * count >> 32] += 1
    for place in range(count):
        before += places[place]
        places[place] = before
    for place in range(count):
        at = (numbers[place] >> FINE_BITS) * count >> 32
        places[at] -= 1
        ordered[places[at]] = numbers[place]
    for place in range(count):
        number = ordered[place]
        at = place
        while at and ordered[at - 1] > number:
            ordered[at] = ordered[at - 1]
            at -= 1
        ordered[at] = number
        moves -= place - at
        if moves < 0:
            return -1
    for place in range(count):
        if place and ordered[place] == ordered[place - 1]:
            continue
        for byte in range(NUMBER_BYTES):
            packed[end + byte] = <uint8_t>(ordered[place] >> (8 * (NUMBER_BYTES - 1 - byte)))
        end += NUMBER_BYTES
    return end


cdef struct Salts:
    uint64_t letters[LONGEST_WORD]
    uint64_t places[LONGEST_SHINGLE]
    uint64_t rounds[ROUNDS]
    uint64_t bins[BINS]
    uint64_t votes[2]


cdef class TextKernel:
    """The part that kernels of texts share: reading a batch, votes and sketches of features."""

    cdef CharacterTable characters
    cdef WeightTable weights
    cdef int words  # of a fingerprint
    cdef uint64_t mask
    cdef int tie
    cdef int64_t most  # characters of a text that cleaning lengthens
    cdef Salts salts

    def __cinit__(
        self, CharacterTable characters not None, WeightTable weights not None, *,
        int bits, int tie, int64_t most, const uint64_t[::1] salts, **_,
    ):
        if salts.shape[0] * sizeof(uint64_t) != sizeof(Salts):
            raise ValueError("found another number of salts than kernels are made for")
        memcpy(&self.salts, &salts[0], sizeof(Salts))
        if bits not in (32, 64, 128):
            raise ValueError(f"found {bits} bits, expected 32, 64 or 128")
        self.characters, self.weights, self.tie, self.most = characters, weights, tie, most
        self.words = 2 if bits == 128 else 1
        self.mask = 0xFFFFFFFF if bits == 32 else EMPTY

    def run(
        self, list texts, uint64_t[:, ::1] fingerprints, int64_t[::1] features,
        uint8_t[:, ::1] sketches, list passages=None,
    ):
        """Fill in the fingerprints of texts, their sketches and the numbers of their passages.

        Arrays without columns or rows aren't filled. Return the numbers of texts left out.
        """
        cdef tuple held = tuple(texts)  # which nobody changes without the lock
        cdef Py_ssize_t count = len(held), number
        cdef Scratch scratch
        cdef const Text *text
        cdef const uint32_t *codes
        cdef bint voted = fingerprints.shape[1] != 0, sketched = sketches.shape[0] != 0
        cdef bint numbered = passages is not None
        cdef int64_t chosen = 0, start = 0, end = 0
        cdef int64_t *ends
        if (
            fingerprints.shape[0] != count or features.shape[0] != count
            or fingerprints.shape[1] not in (0, self.words)
            or sketches.shape[0] not in (0, count) or sketches.shape[1] != SKETCH_BYTES
            or numbered and len(passages) != count
        ):
            raise ValueError("found arrays of another shape than the texts")
        memset(&scratch, 0, sizeof(scratch))
        try:
            self.read(held, count, &scratch)
            ends = <int64_t *>room(&scratch.ends, count * sizeof(int64_t) if numbered else 0)
            if numbered and count and ends == NULL:
                raise MemoryError
            with nogil:
                for number in range(count):
                    text = <Text *>scratch.texts.data + number
                    codes = characters_of(text, &scratch)
                    features[number] = -1 if codes == NULL else self.one(
                        &scratch,
                        codes,
                        text.size,
                        &fingerprints[number, 0] if voted else NULL,
                        &sketches[number, 0] if sketched else NULL,
                        &chosen if numbered else NULL,
                    )
                    if numbered:
                        if features[number] >= 0:
                            end = pack(&scratch, chosen, start)
                            if end < 0:
                                features[number] = -1
                            else:
                                start = end
                        ends[number] = start
            start = 0
            for number in range(count if numbered else 0):
                passages[number] = PyBytes_FromStringAndSize(
                    <const char *>scratch.packed.data + start, ends[number] - start
                )
                start = ends[number]
            return [number for number in range(count) if features[number] < 0]
        finally:
            drop(&scratch)

    def vote_counts(self, list digests, list counts, uint64_t[::1] fingerprint):
        """Let features vote, of which the hashes and counts are given.

        Return whether all weights could be computed.
        """
        cdef Py_ssize_t place, count = len(digests), size = self.words * 8
        cdef Scratch scratch
        cdef uint64_t *columns[2]
        cdef uint32_t *occurrences
        if self.mask != EMPTY:
            size = 4
        if len(counts) != count or fingerprint.shape[0] != self.words:
            raise ValueError("found arrays of another shape than the features")
        memset(&scratch, 0, sizeof(scratch))
        try:
            columns[0] = <uint64_t *>room(&scratch.tokens, (count + 1) * sizeof(uint64_t))
            columns[1] = <uint64_t *>room(&scratch.seconds, (count + 1) * sizeof(uint64_t))
            occurrences = <uint32_t *>room(&scratch.occurrences, (count + 1) * sizeof(uint32_t))
            if columns[0] == NULL or columns[1] == NULL or occurrences == NULL:
                raise MemoryError
            for place in range(count):
                digest = <bytes?>digests[place]
                if len(digest) != size:
                    raise ValueError("found a hash of another width than the fingerprint")
                occurrences[place] = counts[place]
                columns[0][place] = 0
                memcpy(&columns[0][place], <const char *>digest, min(size, <Py_ssize_t>8))
                if size > 8:
                    memcpy(&columns[1][place], <const char *>digest + 8, 8)
            return self.vote(
                None, &scratch, columns[0], columns[1], NULL, count, &fingerprint[0]
            )
        finally:
            drop(&scratch)

    cdef int read(self, tuple texts, Py_ssize_t count, Scratch *scratch) except -1:
        """Find the characters of all texts, and load the tables for them."""
        cdef Py_ssize_t size, number, end = 0
        cdef Text *entries = <Text *>room(&scratch.texts, (count + 1) * sizeof(Text))
        cdef uint32_t *codes
        if entries == NULL:
            raise MemoryError
        for number in range(count):
            text = texts[number]
            if _is_ascii(text):
                entries[number].ascii = <const uint8_t *>PyUnicode_AsUTF8AndSize(
                    text, &entries[number].size
                )
                continue
            size = PyUnicode_GetLength(text)
            codes = <uint32_t *>room(&scratch.codes, (end + size + 1) * sizeof(uint32_t))
            if codes == NULL:
                raise MemoryError
            PyUnicode_AsUCS4(text, codes + end, size, 0)
            entries[number].ascii, entries[number].start, entries[number].size = NULL, end, size
            end += size
        if end:
            self.characters.prepare(<uint32_t *>scratch.codes.data, end)
        return 0

    cdef int64_t one(
        self, Scratch *scratch, const uint32_t *codes, Py_ssize_t size, uint64_t *fingerprint,
        uint8_t *sketch, int64_t *chosen,
    ) noexcept nogil:
        """Do one text, and return the number of its distinct features, or -1 if it can't."""
        return -1

    cdef bint vote(
        self, FactorTable factors, Scratch *scratch, const uint64_t *digests,
        const uint64_t *seconds, const uint32_t *stops, int64_t count, uint64_t *fingerprint,
    ) noexcept nogil:
        """Let distinct features vote; return whether all weights could be computed."""
        cdef const uint32_t *occurrences = <uint32_t *>scratch.occurrences.data
        cdef const uint64_t *columns[2]
        cdef Votes votes
        cdef int64_t place, units, singles = 0, unit = self.weights.table[1]
        cdef uint32_t times
        cdef int word, bit
        cdef bint alike = factors is None
        columns[0], columns[1] = digests, seconds
        memset(&votes, 0, sizeof(votes))
        for word in range(self.words if alike else 0):
            singles = add_single(&votes, columns[word], occurrences, count, unit, word)
        votes.total = singles * unit
        for place in range(count if singles < count else 0):
            times = occurrences[place]
            if alike and times == 1:
                continue
            if alike:
                units = self.weights.of(times)
            else:
                units = self.factored(factors, scratch, stops, place, votes.total)
            if units < 0:
                return False
            votes.total += units
            if alike and times <= MOST_AT_ONCE and units == times * unit:
                if votes.in_lanes + times > MOST_IN_LANES:
                    self.empty_lanes(&votes)
                votes.in_lanes += times
                for word in range(self.words):
                    for bit in range(LANES):
                        votes.lanes[word * LANES + bit] += (
                            ((columns[word][place] >> bit) & LOWEST_OF_BYTES) * times
                        )
            else:
                for word in range(self.words):
                    add_weight(&votes, columns[word][place], units, word)
        self.empty_lanes(&votes)
        # The high word comes first.
        for word in range(self.words):
            fingerprint[self.words - 1 - word] = majority(&votes, word, self.tie) & self.mask
        return True

    cdef int64_t factored(
        self, FactorTable factors, Scratch *scratch, const uint32_t *stops, int64_t place,
        int64_t total,
    ) noexcept nogil:
        """Return the weight of a feature with a factor, or -1 where the definition must do it."""
        cdef uint32_t first = (<uint32_t *>scratch.firsts.data)[place]
        cdef uint32_t start = (<uint32_t *>scratch.starts.data)[first]
        cdef uint32_t times = (<uint32_t *>scratch.occurrences.data)[place]
        cdef double weight = factors.of(<uint8_t *>scratch.bytes.data + start, stops[first] - start)
        if weight < 0 or times >= TABULATED:
            return -1
        weight = self.weights.masses[times] * weight * UNITS
        # Round as numpy does: of two whole numbers that are as near, to the even one.
        return <int64_t>((weight + ROUNDER) - ROUNDER) if weight < MOST_UNITS - total else -1

    cdef void empty_lanes(self, Votes *votes) noexcept nogil:
        cdef int word
        for word in range(self.words if votes.in_lanes else 0):
            add_lanes(votes, votes.lanes + word * LANES, self.weights.table[1], word)
        memset(votes.lanes, 0, sizeof(votes.lanes))
        votes.in_lanes = 0

    cdef void sketch(self, const uint64_t *hashes, int64_t count, uint8_t *packed) noexcept nogil:
        """Write the sketch of hashes."""
        cdef uint64_t bins[BINS]
        cdef int64_t place, empty = BINS
        cdef int number
        cdef uint64_t value, least, before
        memset(packed, 0, SKETCH_BYTES)
        if not count:
            return
        memset(bins, 0xFF, sizeof(bins))
        for number in range(ROUNDS):
            for place in range(count):
                value = mix(hashes[place] + self.salts.rounds[number])
                least = (value & HASH) | (<uint64_t>number << ROUND_SHIFT)
                value >>= BIN_SHIFT
                # Without branches, which no processor could predict.
                before = bins[value]
                empty -= before == EMPTY
                bins[value] = least if least < before else before
            if not empty:
                break
        for number in range(BINS):
            if bins[number] == EMPTY:
                least = EMPTY
                for place in range(count):
                    value = mix(hashes[place] ^ self.salts.bins[number]) & HASH
                    least = value if value < least else least
                bins[number] = least
            packed[number // 2] |= (bins[number] & 0xF) << (4 * (number % 2))


cdef class ShingleKernel(TextKernel):
    """Fingerprints and sketches of texts by their shingles."""

    # The hashes of letters that are ASCII before and after cleaning; 0 for any other character.
    cdef uint64_t ascii[LONGEST_WORD][ASCII]

    def __cinit__(self, CharacterTable characters, WeightTable _, **__):
        cdef int place, code
        cdef uint32_t entry
        for code in range(ASCII):
            entry = characters.blocks[0][code]
            for place in range(LONGEST_WORD if entry >> KIND_SHIFT == LETTER else 0):
                self.ascii[place][code] = mix((entry & CODE) * ODD + self.salts.letters[place])

    cdef int64_t one(
        self, Scratch *scratch, const uint32_t *codes, Py_ssize_t size, uint64_t *fingerprint,
        uint8_t *sketch, int64_t *chosen,
    ) noexcept nogil:
        """Do one text, and return the number of its distinct shingles, or -1 if it can't."""
        cdef int64_t count = self.shingled(scratch, codes, size, chosen), place
        cdef const uint64_t *hashes
        cdef uint64_t *digests
        cdef uint64_t *seconds
        if count < 0:
            return -1
        hashes = <uint64_t *>scratch.tokens.data
        if fingerprint != NULL:
            digests = <uint64_t *>room(&scratch.seconds, 2 * (count + 1) * sizeof(uint64_t))
            if digests == NULL:
                return -1
            seconds = digests + count
            for place in range(count):
                digests[place] = mix(hashes[place] + self.salts.votes[0])
            if self.words == 2:
                for place in range(count):
                    seconds[place] = mix(hashes[place] + self.salts.votes[1])
            if not self.vote(None, scratch, digests, seconds, NULL, count, fingerprint):
                return -1
        if sketch != NULL:
            self.sketch(hashes, count, sketch)
        return count

    def shingles(self, list texts):
        """Return the hashes of the distinct shingles of each text as bytes; None if left out."""
        cdef tuple held = tuple(texts)
        cdef Py_ssize_t total = len(held), number
        cdef int64_t count
        cdef Scratch scratch
        cdef const Text *text
        cdef const uint32_t *codes
        cdef list sets = []
        memset(&scratch, 0, sizeof(scratch))
        try:
            self.read(held, total, &scratch)
            for number in range(total):
                with nogil:
                    text = <Text *>scratch.texts.data + number
                    codes = characters_of(text, &scratch)
                    count = -1 if codes == NULL else self.shingled(
                        &scratch, codes, text.size, NULL
                    )
                sets.append(
                    None if count < 0 else PyBytes_FromStringAndSize(
                        <const char *>scratch.tokens.data, count * sizeof(uint64_t)
                    )
                )
            return sets
        finally:
            drop(&scratch)

    def passages(self, text):
        """Return the parts of `PlacedPassages` of a text, or None if it is left out."""
        cdef int64_t count, chosen = -1, number, place
        cdef const uint32_t *codes
        cdef const uint8_t *units
        cdef int64_t *begins
        cdef int64_t *ends
        cdef uint64_t *numbers
        cdef int span
        cdef Scratch scratch
        memset(&scratch, 0, sizeof(scratch))
        try:
            self.read((text,), 1, &scratch)
            with nogil:
                codes = characters_of(<Text *>scratch.texts.data, &scratch)
                count = -1 if codes == NULL else self.cut(
                    &scratch, codes, (<Text *>scratch.texts.data).size
                )
                if count >= 0:
                    chosen = self.winnow(&scratch, self.join(&scratch, count))
                if chosen >= 0:
                    numbers = <uint64_t *>scratch.numbers.data
                    chosen = distinct(&scratch, numbers, chosen, NULL)
            ends = <int64_t *>room(&scratch.ends, (chosen + 1) * sizeof(int64_t))
            if chosen < 0 or (chosen and ends == NULL):
                return None
            begins, units = <int64_t *>scratch.places.data, <uint8_t *>scratch.units.data
            for number in range(chosen):
                begins[number] = begins[(<uint32_t *>scratch.firsts.data)[number]]
                place = begins[number] + RUN - 1
                span = 0
                while span < SPAN:
                    span += units[place]
                    place += 1
                ends[number] = place
            return (
                (<char *>scratch.numbers.data)[:chosen * sizeof(uint64_t)],
                (<char *>begins)[:chosen * sizeof(int64_t)],
                (<char *>ends)[:chosen * sizeof(int64_t)],
                count,
            )
        finally:
            drop(&scratch)

    cdef int64_t winnow(self, Scratch *scratch, int64_t count) noexcept nogil:
        """Choose numbers of passages by the shingles; return how many, or -1 without memory."""
        cdef const uint64_t *hashes = <uint64_t *>scratch.tokens.data
        cdef uint64_t *runs = <uint64_t *>room(&scratch.runs, (count + 1) * sizeof(uint64_t))
        cdef uint64_t *numbers = <uint64_t *>room(&scratch.numbers, (count + 1) * sizeof(uint64_t))
        cdef int64_t *places = <int64_t *>room(&scratch.places, (count + 1) * sizeof(int64_t))
        cdef uint64_t run = 0, leaving = 0, factor = 1, value = EMPTY
        cdef int64_t window, place, other, least = 0, chosen = 0
        if runs == NULL or numbers == NULL or places == NULL:
            return -1
        for place in range(RUN):
            factor *= ODD
        for place in range(min(count, <int64_t>RUN - 1)):
            run = run * ODD + hashes[place]
        count = max(count - RUN + 1, <int64_t>0)
        window = min(count, <int64_t>WINDOW)
        for place in range(count):
            run = run * ODD + (hashes[place + RUN - 1] - leaving * factor)
            leaving = hashes[place]
            runs[place] = run
            if run < value:
                least, value = place, run
                if place < window - 1:
                    continue
            elif place - least >= window:
                least += 1
                value = runs[least]
                for other in range(least + 1, place + 1):
                    # Without branches, which no processor could predict.
                    least = other if runs[other] < value else least
                    value = runs[other] if runs[other] < value else value
            elif place != window - 1:
                continue
            numbers[chosen] = mix(value) >> (64 - 8 * NUMBER_BYTES)
            places[chosen] = least
            chosen += 1
        return chosen

    cdef int64_t shingled(
        self, Scratch *scratch, const uint32_t *codes, Py_ssize_t size, int64_t *chosen
    ) noexcept nogil:
        """Hash the distinct shingles of a text; return how many there are, or -1.

        Before, choose the numbers of its passages unless `chosen`, their count, is NULL.
        """
        cdef int64_t count = self.cut(scratch, codes, size)
        if count < 0:
            return -1
        count = self.join(scratch, count)
        if chosen != NULL:
            chosen[0] = self.winnow(scratch, count)
            if chosen[0] < 0:
                return -1
        return distinct(scratch, <uint64_t *>scratch.tokens.data, count, NULL)

    cdef inline int word(
        self, const uint32_t *codes, Py_ssize_t count, uint64_t *result
    ) noexcept nogil:
        """Hash the ASCII letters that a word begins with, and return how many there are."""
        cdef uint64_t value, sum = 0
        cdef int length = 0, most = <int>min(count, LONGEST_WORD)
        while length < most and codes[length] < ASCII:
            value = self.ascii[length][codes[length]]
            if not value:
                break
            sum += value
            length += 1
        result[0] = sum
        return length

    cdef int64_t cut(
        self, Scratch *scratch, const uint32_t *codes, Py_ssize_t end
    ) noexcept nogil:
        """Clean a text and hash its tokens; return how many there are, or -1."""
        cdef uint32_t *const *blocks = self.characters.blocks
        cdef const uint32_t *several
        cdef uint64_t *tokens = NULL
        cdef uint8_t *units = NULL
        cdef uint64_t sum = 0
        cdef uint32_t entry, code, kind, more
        cdef int64_t count = 0, capacity = 0, cleaned = 0
        cdef int length = 0  # of the word that isn't finished
        cdef Py_ssize_t place = 0
        while place < end:
            # Each character that is left may be a token, and the next one may become several.
            if cleaned + end - place + MOST_OF_ONE > capacity:
                capacity = 2 * (cleaned + MOST_OF_ONE) + end - place
                tokens = <uint64_t *>room(&scratch.tokens, capacity * sizeof(uint64_t))
                units = <uint8_t *>room(&scratch.units, capacity)
                if tokens == NULL or units == NULL:
                    return -1
            if not length:
                length = self.word(codes + place, end - place, &sum)
                place += length
                cleaned += length
                if place == end:
                    break
            entry = blocks[codes[place] >> 8][codes[place] & 0xFF]
            more = 1
            several = &entry
            if entry >= SEVERAL:
                if entry & HARD:
                    return -1
                several = &blocks[codes[place] >> 8][entry & CODE]
                more = several[0]
                several += 1
            cleaned += more
            place += 1
            while more:
                entry = several[0]
                kind = entry >> KIND_SHIFT
                code = entry & CODE
                several += 1
                more -= 1
                if length and (kind != LETTER or length == LONGEST_WORD):
                    tokens[count] = mix(sum)
                    units[count] = WORD_UNITS
                    count += 1
                    length = 0
                if not kind:
                    continue
                if kind == LETTER:
                    if not length:
                        sum = 0
                    sum += mix(code * ODD + self.salts.letters[length])
                    length += 1
                else:
                    tokens[count] = mix(mix(code * ODD + self.salts.letters[0]))
                    units[count] = SIGN_UNITS
                    count += 1
        if length:
            tokens[count] = mix(sum)
            units[count] = WORD_UNITS
            count += 1
        return count if cleaned <= end or cleaned <= self.most else -1

    cdef int64_t join(self, Scratch *scratch, int64_t count) noexcept nogil:
        """Turn the hashes of tokens into those of shingles, and return how many there are."""
        cdef uint64_t *tokens = <uint64_t *>scratch.tokens.data
        cdef const uint8_t *units = <uint8_t *>scratch.units.data
        cdef uint64_t hash
        cdef int64_t place, shingles = 0
        cdef int step, span
        for place in range(count):
            hash = span = 0
            for step in range(LONGEST_SHINGLE):
                if place + step == count:
                    return shingles
                hash += tokens[place + step] * self.salts.places[step]
                span += units[place + step]
                if span >= SPAN:
                    tokens[place] = mix(hash + step + 1)
                    shingles += 1
                    break
        return shingles


cdef inline size_t write_code(uint8_t *data, uint32_t code) noexcept nogil:
    """Write a character as UTF-8, and return its bytes; half of a pair is one, too."""
    if code < 0x80:
        data[0] = <uint8_t>code
        return 1
    if code < 0x800:
        data[0] = <uint8_t>(0xC0 | code >> 6)
        data[1] = <uint8_t>(0x80 | code & 0x3F)
        return 2
    if code < 0x10000:
        data[0] = <uint8_t>(0xE0 | code >> 12)
        data[1] = <uint8_t>(0x80 | code >> 6 & 0x3F)
        data[2] = <uint8_t>(0x80 | code & 0x3F)
        return 3
    data[0] = <uint8_t>(0xF0 | code >> 18)
    data[1] = <uint8_t>(0x80 | code >> 12 & 0x3F)
    data[2] = <uint8_t>(0x80 | code >> 6 & 0x3F)
    data[3] = <uint8_t>(0x80 | code & 0x3F)
    return 4


cdef struct Pieces:
    # The pieces of a text: where each begins and ends in what is written so far.
    uint8_t *data
    uint32_t *starts
    uint32_t *stops
    uint32_t *run
    size_t size
    int64_t count
    int64_t characters  # that the buffers have room for


cdef bint reserve(Scratch *scratch, Pieces *pieces, int64_t characters) noexcept nogil:
    """Make room for pieces of N characters in all, with a space before each."""
    pieces.data = <uint8_t *>room(&scratch.bytes, 5 * characters + 1)
    pieces.starts = <uint32_t *>room(&scratch.starts, (characters + 1) * sizeof(uint32_t))
    pieces.stops = <uint32_t *>room(&scratch.stops, (characters + 1) * sizeof(uint32_t))
    pieces.run = <uint32_t *>room(&scratch.run, (characters + 1) * sizeof(uint32_t))
    pieces.characters = characters
    return (
        pieces.data != NULL and pieces.starts != NULL and pieces.stops != NULL
        and pieces.run != NULL and not (5 * characters) >> 32
    )


cdef inline void begin(Pieces *pieces) noexcept nogil:
    """Begin a piece, with a space after the one before: so that grams are in a row."""
    if pieces.count:
        pieces.data[pieces.size] = c" "
        pieces.size += 1
    pieces.starts[pieces.count] = <uint32_t>pieces.size


cdef inline void finish(Pieces *pieces) noexcept nogil:
    pieces.stops[pieces.count] = <uint32_t>pieces.size
    pieces.count += 1


cdef class FeatureKernel(TextKernel):
    """Fingerprints and sketches of characters or words, or several in a row, hashed by XXH3.

    They have at most 64 bits. Letters make words and signs are cut by the dictionary, which is loaded when the first one
    comes; without one, texts with signs are left out.
    `joined` joins characters instead. `hasher` hashes features that are long.
    """

    cdef int64_t length
    cdef bint joined
    cdef uint64_t seed
    cdef uint8_t ascii[ASCII]  # these when they are clean: another one, nothing, or more
    cdef object hasher
    cdef FactorTable factors
    cdef object dictionary
    cdef const uint64_t[::1] table
    cdef bint loaded

    def __cinit__(
        self, CharacterTable characters, WeightTable _, *, int64_t length, bint joined,
        uint64_t seed, hasher, FactorTable factors, dictionary, **__,
    ):
        cdef uint32_t code, entry
        if length < 1 or self.words > 1:
            raise ValueError(f"found features of {length} pieces, expected at least one")
        self.length, self.joined = length, joined
        self.seed, self.hasher, self.dictionary = seed, hasher, dictionary
        self.factors = factors
        for code in range(ASCII):
            entry = characters.blocks[0][code]
            if entry >= SEVERAL and entry != HARD and not characters.blocks[0][entry & CODE]:
                self.ascii[code] = NOTHING
            else:
                self.ascii[code] = entry if entry < ASCII else MORE

    cdef int read(self, tuple texts, Py_ssize_t count, Scratch *scratch) except -1:
        TextKernel.read(self, texts, count, scratch)
        if self.characters.signs and self.dictionary is not None:
            table = self.dictionary()
            # Another thread that was faster may be reading its table.
            if table is not None and not self.loaded:
                self.table = table
                self.loaded = self.table.shape[0] > 0
            self.dictionary = None
        return 0

    cdef int64_t one(
        self, Scratch *scratch, const uint32_t *codes, Py_ssize_t size, uint64_t *fingerprint,
        uint8_t *sketch, int64_t *chosen,
    ) noexcept nogil:
        cdef int64_t count = self.cut(scratch, codes, size), place, last
        cdef const uint32_t *starts = <uint32_t *>scratch.starts.data
        cdef const uint32_t *stops = <uint32_t *>scratch.stops.data
        cdef const uint8_t *data = <uint8_t *>scratch.bytes.data
        cdef uint64_t *hashes
        cdef uint32_t length
        if count < 0 or chosen != NULL:
            return -1
        last = min(self.length, count) - 1
        # Where features end: characters in a row end where the next one starts.
        stops = (starts + 1 if self.joined else stops) + max(last, 0)
        count -= last
        if last < 0:
            count = 0
        hashes = <uint64_t *>room(&scratch.tokens, (count + 1) * sizeof(uint64_t))
        if hashes == NULL:
            return -1
        for place in range(count):
            length = stops[place] - starts[place]
            if length > LONGEST_HASHED:
                if not self.hash_long(data + starts[place], length, &hashes[place]):
                    return -1
            else:
                hashes[place] = hash64(data + starts[place], length, self.seed)
        count = distinct(scratch, hashes, count, stops)
        if count < 0:
            return -1
        if fingerprint != NULL and not self.vote(
            self.factors, scratch, hashes, NULL, stops, count, fingerprint
        ):
            return -1
        if sketch != NULL:
            for place in range(count if self.mask != EMPTY else 0):
                hashes[place] &= self.mask
            self.sketch(hashes, count, sketch)
        return count

    cdef bint hash_long(self, const uint8_t *data, uint32_t size, uint64_t *hash) noexcept with gil:
        try:
            hash[0] = self.hasher(data[:size])
            return True
        except Exception:
            return False

    cdef int64_t cut(
        self, Scratch *scratch, const uint32_t *codes, Py_ssize_t end
    ) noexcept nogil:
        """Clean a text and write its pieces; return how many there are, or -1."""
        cdef uint32_t *const *blocks = self.characters.blocks
        cdef const uint32_t *several
        cdef Pieces pieces
        cdef uint32_t entry, code, kind, more
        cdef int64_t cleaned = 0, run = 0
        cdef bint within = False  # a word
        cdef Py_ssize_t place = 0
        pieces.size = pieces.count = 0
        if not reserve(scratch, &pieces, end):
            return -1
        while place < end:
            if self.joined:
                place += self.join_ascii(codes + place, end - place, &pieces)
                cleaned = pieces.count
                if place == end:
                    break
            entry = blocks[codes[place] >> 8][codes[place] & 0xFF]
            more = 1
            several = &entry
            if entry >= SEVERAL:
                if entry & HARD:
                    return -1
                several = &blocks[codes[place] >> 8][entry & CODE]
                more = several[0]
                several += 1
            cleaned += more
            place += 1
            if cleaned + end - place > pieces.characters and not reserve(
                scratch, &pieces, 2 * cleaned + end - place
            ):
                return -1
            while more:
                code, kind = several[0] & CODE, several[0] >> KIND_SHIFT
                several += 1
                more -= 1
                if self.joined:
                    pieces.starts[pieces.count] = <uint32_t>pieces.size
                    pieces.size += write_code(pieces.data + pieces.size, code)
                    pieces.count += 1
                    continue
                if within and kind != LETTER:
                    finish(&pieces)
                    within = False
                if run and kind != SIGN:
                    if not self.cut_run(scratch, &pieces, run):
                        return -1
                    run = 0
                if kind == LETTER:
                    if not within:
                        begin(&pieces)
                        within = True
                    pieces.size += write_code(pieces.data + pieces.size, code)
                elif kind:
                    pieces.run[run] = code
                    run += 1
        if self.joined:
            pieces.starts[pieces.count] = <uint32_t>pieces.size
        if within:
            finish(&pieces)
        if run and not self.cut_run(scratch, &pieces, run):
            return -1
        return pieces.count if cleaned <= end or cleaned <= self.most else -1

    cdef inline Py_ssize_t join_ascii(
        self, const uint32_t *codes, Py_ssize_t count, Pieces *pieces
    ) noexcept nogil:
        """Write the ASCII characters that a text begins with, and return how many there are."""
        cdef Py_ssize_t place = 0
        cdef uint8_t *data = pieces.data + pieces.size
        cdef uint32_t *starts = pieces.starts + pieces.count
        cdef uint32_t start = <uint32_t>pieces.size, written = 0
        cdef uint8_t byte
        while place < count and codes[place] < ASCII:
            byte = self.ascii[codes[place]]
            if byte == MORE:
                break
            data[written] = byte
            starts[written] = start + written
            written += byte != NOTHING
            place += 1
        pieces.size += written
        pieces.count += written
        return place

    cdef bint cut_run(self, Scratch *scratch, Pieces *pieces, int64_t size) noexcept nogil:
        """Write the words of a run of Han."""
        cdef int32_t *ends = <int32_t *>room(&scratch.words, size * sizeof(int32_t))
        cdef double *values = <double *>room(
            &scratch.values, (min(size, <int64_t>LONGEST_RUN) + 1) * sizeof(double)
        )
        cdef int64_t count, word
        cdef int32_t place = 0
        if ends == NULL or values == NULL or not self.loaded or size >> 31:
            return False
        count = cut_runs(&self.table[0], pieces.run, size, values, ends)
        for word in range(count):
            begin(pieces)
            while place < ends[word]:
                pieces.size += write_code(pieces.data + pieces.size, pieces.run[place])
                place += 1
            finish(pieces)
        return True
