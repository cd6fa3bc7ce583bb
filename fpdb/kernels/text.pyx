# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Kernels of text: clean, cut, hash, count, vote and sketch in one pass.

`fpdb.fingerprint` defines in numpy and Python what each of them returns. A text that a kernel can't
do is one that it returns the number of: its caller takes the definition.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

cdef extern from "Python.h":
    Py_ssize_t PyUnicode_GetLength(object text) except -1
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
    # What an entry of `CharacterTable` holds: the code, its kind, and what else it may be.
    CODE = 0x1FFFFF
    KIND_SHIFT = 21
    LETTER = 1
    SIGN = 2
    SEVERAL = 1 << 23
    HARD = 1 << 24
    STRIDE = 64
    LONGEST_WORD = 64
    LONGEST_SHINGLE = 5
    SPAN = 15
    WORD_UNITS = 5
    SIGN_UNITS = 3
    LANES = 8
    MOST_IN_LANE = 15
    TABULATED = 4096
    # A text made to collide would take quadratic time; the definition sorts.
    MOST_PROBES = 16

cdef uint64_t EMPTY = 0xFFFFFFFFFFFFFFFF
cdef uint64_t HASH = (<uint64_t>1 << ROUND_SHIFT) - 1
cdef uint64_t LOWEST_OF_BYTES = 0x0101010101010101
cdef uint64_t ODD = 0x9E3779B97F4A7C15


cdef struct Buffer:
    void *data
    size_t size


cdef struct Scratch:
    Buffer codes
    Buffer tokens
    Buffer units
    Buffer occurrences
    Buffer slots


cdef struct Votes:
    # Sums of weights for each bit; the features of small counts are first added up bytewise.
    int64_t sums[128]
    uint64_t lanes[16]
    int64_t in_lanes
    int64_t total


cdef void *room(Buffer *buffer, size_t size) noexcept nogil:
    """Return a buffer of at least N bytes, with what it held; NULL if there is no memory."""
    cdef void *data
    if buffer.size < size:
        size += size // 2
        data = realloc(buffer.data, size)
        if data == NULL:
            return NULL
        buffer.data, buffer.size = data, size
    return buffer.data


cdef void drop(Scratch *scratch) noexcept nogil:
    free(scratch.codes.data)
    free(scratch.tokens.data)
    free(scratch.units.data)
    free(scratch.occurrences.data)
    free(scratch.slots.data)


cdef inline uint64_t mix(uint64_t value) noexcept nogil:
    """Return what `sketches.mix` does for one number."""
    value = (value ^ (value >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    value = (value ^ (value >> 27)) * <uint64_t>0x94D049BB133111EB
    return value ^ (value >> 31)


cdef class CharacterTable:
    """What cleaning makes of each character, and its kind: tables of 256 characters.

    `source` is called with the number of a table that is needed for the first time. It returns 256
    entries, uint32, and after them what several characters become: how many follow, and these.
    """

    cdef uint32_t *blocks[BLOCKS]
    cdef object source

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
        for place in range(256):
            if entries[place] >= SEVERAL and entries[place] != HARD:
                at = <Py_ssize_t>entries[place] - SEVERAL
                if at < 256 or at >= min(size, CODE) or entries[at] >= size - at:
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
        """Load the tables of all these characters; the first one is there already."""
        cdef Py_ssize_t place, start = 0
        cdef uint32_t number, every
        while start < count:
            every = 0
            for place in range(start, min(start + STRIDE, count)):
                every |= codes[place]
            if every >> 8:
                for place in range(start, min(start + STRIDE, count)):
                    number = codes[place] >> 8
                    if self.blocks[number] == NULL:
                        self.load(number)
            start += STRIDE
        return 0


cdef inline void add_to_lanes(
    Votes *votes, uint64_t digest, uint64_t times, int word
) noexcept nogil:
    cdef int bit
    for bit in range(LANES):
        votes.lanes[word * LANES + bit] += ((digest >> bit) & LOWEST_OF_BYTES) * times


cdef inline void add_weight(Votes *votes, uint64_t digest, int64_t units, int word) noexcept nogil:
    cdef int bit
    for bit in range(64):
        votes.sums[word * 64 + bit] += units & -<int64_t>((digest >> bit) & 1)


cdef void empty_lanes(Votes *votes, int64_t unit, int words) noexcept nogil:
    cdef int lane, byte
    for lane in range(words * LANES):
        for byte in range(8):
            votes.sums[(lane // LANES) * 64 + byte * 8 + lane % LANES] += (
                <int64_t>((votes.lanes[lane] >> (8 * byte)) & 0xFF) * unit
            )
        votes.lanes[lane] = 0
    votes.in_lanes = 0


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

    `damp` returns those of counts beyond the table.
    """

    cdef int64_t table[TABULATED]
    cdef object damp

    def __cinit__(self, const int64_t[::1] table, damp):
        if table.shape[0] != TABULATED:
            raise ValueError("found a table of another size than kernels are made for")
        memcpy(self.table, &table[0], sizeof(self.table))
        self.damp = damp

    cdef inline int64_t of(self, uint32_t count) noexcept nogil:
        """Return a weight, or -1 after an error."""
        return self.table[count] if count < TABULATED else self.many(count)

    cdef int64_t many(self, uint32_t count) noexcept with gil:
        try:
            return self.damp(count)
        except Exception:
            return -1


cdef int64_t distinct(
    Scratch *scratch, uint64_t *hashes, int64_t count
) noexcept nogil:
    """Count hashes: keep the distinct ones in front, and return their number, or -1."""
    cdef uint64_t mask = 15
    cdef uint32_t *slots
    cdef uint32_t *occurrences
    cdef uint32_t found
    cdef uint64_t slot
    cdef int64_t place, kept = 0, probes = MOST_PROBES * (count + 64)
    while mask < <uint64_t>count * 2:
        mask = mask * 2 + 1
    slots = <uint32_t *>room(&scratch.slots, (mask + 1) * sizeof(uint32_t))
    occurrences = <uint32_t *>room(&scratch.occurrences, (count + 1) * sizeof(uint32_t))
    if slots == NULL or occurrences == NULL or count >> 32:
        return -1
    memset(slots, 0, (mask + 1) * sizeof(uint32_t))
    for place in range(count):
        slot = hashes[place] & mask
        while True:
            found = slots[slot]
            if not found:
                hashes[kept] = hashes[place]
                occurrences[kept] = 1
                kept += 1
                slots[slot] = <uint32_t>kept
                break
            if hashes[found - 1] == hashes[place]:
                occurrences[found - 1] += 1
                break
            slot = (slot + 1) & mask
            probes -= 1
            if not probes:
                return -1
    return kept


cdef class ShingleKernel:
    """Fingerprints and sketches of texts by their shingles."""

    cdef CharacterTable characters
    cdef WeightTable weights
    cdef uint64_t letters[LONGEST_WORD]
    # The hashes of letters that are ASCII before and after cleaning; 0 for any other character.
    cdef uint64_t ascii[LONGEST_WORD][ASCII]
    cdef uint64_t places[LONGEST_SHINGLE]
    cdef uint64_t rounds[ROUNDS]
    cdef uint64_t bins[BINS]
    cdef uint64_t votes[2]
    cdef int words
    cdef uint64_t mask
    cdef int tie
    cdef int64_t most

    def __cinit__(
        self, CharacterTable characters, WeightTable weights, *, int bits, int tie, int64_t most,
        const uint64_t[::1] letters, const uint64_t[::1] places, const uint64_t[::1] rounds,
        const uint64_t[::1] bins, const uint64_t[::1] votes,
    ):
        cdef int place, code
        cdef uint32_t entry
        if (
            letters.shape[0] != LONGEST_WORD or places.shape[0] != LONGEST_SHINGLE
            or rounds.shape[0] != ROUNDS or bins.shape[0] != BINS or votes.shape[0] != 2
            or bits not in (32, 64, 128)
        ):
            raise ValueError("found other numbers of salts or bits than kernels are made for")
        self.characters, self.weights = characters, weights
        memcpy(self.letters, &letters[0], sizeof(self.letters))
        for code in range(ASCII):
            entry = characters.blocks[0][code]
            for place in range(LONGEST_WORD):
                self.ascii[place][code] = (
                    mix((entry & CODE) * ODD + letters[place]) if entry >> KIND_SHIFT == LETTER else 0
                )
        memcpy(self.places, &places[0], sizeof(self.places))
        memcpy(self.rounds, &rounds[0], sizeof(self.rounds))
        memcpy(self.bins, &bins[0], sizeof(self.bins))
        memcpy(self.votes, &votes[0], sizeof(self.votes))
        self.words = 2 if bits == 128 else 1
        self.mask = 0xFFFFFFFF if bits == 32 else EMPTY
        self.tie = tie
        self.most = most

    def run(
        self, list texts, uint64_t[:, ::1] fingerprints, int64_t[::1] features,
        uint8_t[:, ::1] sketches,
    ):
        """Fingerprint texts, and sketch them unless `sketches` has no row.

        Without columns in `fingerprints`, sketch only. Return the numbers of texts left out.
        """
        cdef Py_ssize_t count = len(texts), number
        cdef Scratch scratch
        cdef Buffer ends
        cdef bint voted = fingerprints.shape[1] != 0, sketched = sketches.shape[0] != 0
        cdef uint64_t *bins = NULL
        if (
            fingerprints.shape[0] != count or features.shape[0] != count
            or fingerprints.shape[1] not in (0, self.words)
            or sketches.shape[0] not in (0, count) or sketches.shape[1] != SKETCH_BYTES
        ):
            raise ValueError("found arrays of another shape than the texts")
        memset(&scratch, 0, sizeof(scratch))
        memset(&ends, 0, sizeof(ends))
        try:
            self.read(texts, &scratch, &ends)
            with nogil:
                for number in range(count):
                    features[number] = self.one(
                        &scratch,
                        (<Py_ssize_t *>ends.data)[number],
                        (<Py_ssize_t *>ends.data)[number + 1],
                        &fingerprints[number, 0] if voted else NULL,
                        &sketches[number, 0] if sketched else NULL,
                    )
            return [number for number in range(count) if features[number] < 0]
        finally:
            drop(&scratch)
            free(ends.data)

    cdef int read(self, list texts, Scratch *scratch, Buffer *ends) except -1:
        """Copy the characters of all texts into one buffer, and load the tables for them."""
        cdef Py_ssize_t size, start = 0, number = 0
        cdef Py_ssize_t *places = <Py_ssize_t *>room(ends, (len(texts) + 1) * sizeof(Py_ssize_t))
        cdef uint32_t *codes
        if places == NULL:
            raise MemoryError
        places[0] = 0
        for text in texts:
            size = PyUnicode_GetLength(text)
            codes = <uint32_t *>room(&scratch.codes, (start + size + 1) * sizeof(uint32_t))
            if codes == NULL:
                raise MemoryError
            PyUnicode_AsUCS4(text, codes + start, size, 0)
            start += size
            number += 1
            if number > len(texts):
                raise ValueError("found a list that changed")
            places[number] = start
        if start:
            self.characters.prepare(<uint32_t *>scratch.codes.data, start)
        return 0

    cdef int64_t one(
        self, Scratch *scratch, Py_ssize_t start, Py_ssize_t end, uint64_t *fingerprint,
        uint8_t *sketch,
    ) noexcept nogil:
        """Do one text, and return the number of its distinct shingles, or -1 if it can't."""
        cdef int64_t count = self.cut(scratch, start, end)
        if count >= 0:
            count = self.join(scratch, count)
            count = distinct(scratch, <uint64_t *>scratch.tokens.data, count)
        if count < 0:
            return -1
        if fingerprint != NULL and not self.vote(scratch, count, fingerprint):
            return -1
        if sketch != NULL:
            self.sketch(<uint64_t *>scratch.tokens.data, count, sketch)
        return count

    cdef inline int word(
        self, const uint32_t *codes, Py_ssize_t count, uint64_t *result
    ) noexcept nogil:
        """Hash the ASCII letters that a word begins with, and return how many there are."""
        cdef uint64_t value, sum = 0
        cdef int length, most = <int>min(count, LONGEST_WORD)
        for length in range(most):
            value = self.ascii[length][codes[length]] if codes[length] < ASCII else 0
            if not value:
                break
            sum += value
        else:
            length = most
        result[0] = sum
        return length

    cdef int64_t cut(self, Scratch *scratch, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
        """Clean a text and hash its tokens; return how many there are, or -1."""
        cdef const uint32_t *codes = <uint32_t *>scratch.codes.data
        cdef uint32_t *const *blocks = self.characters.blocks
        cdef const uint32_t *several
        cdef uint64_t *tokens = NULL
        cdef uint8_t *units = NULL
        cdef uint64_t sum = 0
        cdef uint32_t entry, code, kind, more
        cdef int64_t count = 0, capacity = 0, cleaned = 0
        cdef int length = 0  # of the word that isn't finished
        cdef Py_ssize_t place = start
        while place < end:
            if not length:
                if count + 2 > capacity:
                    capacity = 2 * count + 256
                    tokens = <uint64_t *>room(&scratch.tokens, capacity * sizeof(uint64_t))
                    units = <uint8_t *>room(&scratch.units, capacity)
                    if tokens == NULL or units == NULL:
                        return -1
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
                if not length and count + 2 > capacity:
                    capacity = 2 * count + 256
                    tokens = <uint64_t *>room(&scratch.tokens, capacity * sizeof(uint64_t))
                    units = <uint8_t *>room(&scratch.units, capacity)
                    if tokens == NULL or units == NULL:
                        return -1
                if kind == LETTER:
                    if not length:
                        sum = 0
                    sum += mix(code * ODD + self.letters[length])
                    length += 1
                else:
                    tokens[count] = mix(mix(code * ODD + self.letters[0]))
                    units[count] = SIGN_UNITS
                    count += 1
        if length:
            tokens[count] = mix(sum)
            units[count] = WORD_UNITS
            count += 1
        return count if cleaned <= end - start or cleaned <= self.most else -1

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
                hash += tokens[place + step] * self.places[step]
                span += units[place + step]
                if span >= SPAN:
                    tokens[place] = mix(hash + step + 1)
                    shingles += 1
                    break
        return shingles

    cdef bint vote(self, Scratch *scratch, int64_t count, uint64_t *fingerprint) noexcept nogil:
        cdef const uint64_t *hashes = <uint64_t *>scratch.tokens.data
        cdef const uint32_t *occurrences = <uint32_t *>scratch.occurrences.data
        cdef Votes votes
        cdef int64_t place, units, unit = self.weights.table[1]
        cdef uint32_t times
        cdef int word
        memset(&votes, 0, sizeof(votes))
        for place in range(count):
            times = occurrences[place]
            units = self.weights.of(times)
            if units < 0:
                return False
            votes.total += units
            if times <= MOST_IN_LANE and units == times * unit:
                if votes.in_lanes + times > 0xFF:
                    empty_lanes(&votes, unit, self.words)
                votes.in_lanes += times
                for word in range(self.words):
                    add_to_lanes(&votes, mix(hashes[place] + self.votes[word]), times, word)
            else:
                for word in range(self.words):
                    add_weight(&votes, mix(hashes[place] + self.votes[word]), units, word)
        empty_lanes(&votes, unit, self.words)
        # The high word comes first.
        for word in range(self.words):
            fingerprint[self.words - 1 - word] = majority(&votes, word, self.tie) & self.mask
        return True

    cdef void sketch(self, const uint64_t *hashes, int64_t count, uint8_t *packed) noexcept nogil:
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
                value = mix(hashes[place] + self.rounds[number])
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
                    value = mix(hashes[place] ^ self.bins[number]) & HASH
                    least = value if value < least else least
                bins[number] = least
            packed[number // 2] |= (bins[number] & 0xF) << (4 * (number % 2))
