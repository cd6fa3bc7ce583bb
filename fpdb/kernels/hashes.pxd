# cython: language_level=3
"""XXH3 of at most 240 bytes, with 64 and 128 bits, seeded, as the specification defines it."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    static const unsigned char SECRET[192] = {
        0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c,
        0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb,
        0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e,
        0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
        0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6,
        0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb,
        0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97,
        0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
        0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7,
        0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31,
        0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83,
        0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
        0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26,
        0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc,
        0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f,
        0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
    };
    static inline uint64_t product(uint64_t first, uint64_t second, uint64_t *high) {
        unsigned __int128 whole = (unsigned __int128)first * second;
        *high = (uint64_t)(whole >> 64);
        return (uint64_t)whole;
    }
    """
    const uint8_t *SECRET
    uint64_t product(uint64_t first, uint64_t second, uint64_t *high) noexcept nogil
    uint32_t swap32 "__builtin_bswap32"(uint32_t value) noexcept nogil
    uint64_t swap64 "__builtin_bswap64"(uint64_t value) noexcept nogil

cdef enum:
    LONGEST_HASHED = 240

cdef inline uint64_t read64(const uint8_t *data) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, data, 8)
    return value


cdef inline uint32_t read32(const uint8_t *data) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, data, 4)
    return value


cdef inline uint64_t rotated(uint64_t value, int by) noexcept nogil:
    return (value << by) | (value >> (64 - by))


cdef inline uint64_t folded(uint64_t first, uint64_t second) noexcept nogil:
    cdef uint64_t high
    cdef uint64_t low = product(first, second, &high)
    return low ^ high


cdef inline uint64_t avalanche(uint64_t value) noexcept nogil:
    value = (value ^ (value >> 37)) * <uint64_t>0x165667919E3779F9
    return value ^ (value >> 32)


cdef inline uint64_t avalanche_of_few(uint64_t value) noexcept nogil:
    value = (value ^ (value >> 33)) * <uint64_t>0xC2B2AE3D27D4EB4F
    value = (value ^ (value >> 29)) * <uint64_t>0x165667B19E3779F9
    return value ^ (value >> 32)


cdef inline uint64_t pair(int place) noexcept nogil:
    return read64(SECRET + place) ^ read64(SECRET + place + 8)


cdef inline uint64_t swapped_seed(uint64_t seed) noexcept nogil:
    return seed ^ (<uint64_t>swap32(<uint32_t>seed) << 32)


cdef inline uint64_t first_to_third(const uint8_t *data, size_t size) noexcept nogil:
    return (
        <uint64_t>data[0] << 16 | <uint64_t>data[size >> 1] << 24 | data[size - 1] | size << 8
    )


cdef inline uint64_t mix16(const uint8_t *data, int place, uint64_t seed) noexcept nogil:
    return folded(
        read64(data) ^ (read64(SECRET + place) + seed),
        read64(data + 8) ^ (read64(SECRET + place + 8) - seed),
    )


cdef inline uint64_t hash64_of_few(const uint8_t *data, size_t size, uint64_t seed) noexcept nogil:
    """Return the XXH3 of 1 to 16 bytes."""
    cdef uint64_t value, first, last
    if size > 8:
        first = read64(data) ^ (pair(24) + seed)
        last = read64(data + size - 8) ^ (pair(40) - seed)
        return avalanche(size + swap64(first) + last + folded(first, last))
    if size > 3:
        value = read32(data + size - 4) + (<uint64_t>read32(data) << 32)
        value ^= pair(8) - swapped_seed(seed)
        value ^= rotated(value, 49) ^ rotated(value, 24)
        value *= <uint64_t>0x9FB21C651E98DF25
        value = (value ^ ((value >> 35) + size)) * <uint64_t>0x9FB21C651E98DF25
        return value ^ (value >> 28)
    value = (<uint64_t>read32(SECRET) ^ read32(SECRET + 4)) + seed
    return avalanche_of_few(value ^ first_to_third(data, size))


cdef inline uint64_t hash64(const uint8_t *data, size_t size, uint64_t seed) noexcept nogil:
    """Return the XXH3 of 1 to 240 bytes."""
    cdef uint64_t sum, rest
    cdef size_t place
    if size <= 16:
        return hash64_of_few(data, size, seed)
    sum = size * <uint64_t>0x9E3779B185EBCA87
    if size <= 128:
        for place in range((size - 1) // 32 + 1):
            sum += mix16(data + 16 * place, 32 * place, seed)
            sum += mix16(data + size - 16 * (place + 1), 32 * place + 16, seed)
        return avalanche(sum)
    for place in range(8):
        sum += mix16(data + 16 * place, 16 * place, seed)
    rest = mix16(data + size - 16, 136 - 17, seed)
    sum = avalanche(sum)
    for place in range(8, size // 16):
        rest += mix16(data + 16 * place, 16 * (place - 8) + 3, seed)
    return avalanche(sum + rest)


cdef inline void mix32(
    uint64_t *sums, const uint8_t *first, const uint8_t *last, int place, uint64_t seed
) noexcept nogil:
    sums[0] = (sums[0] + mix16(first, place, seed)) ^ (read64(last) + read64(last + 8))
    sums[1] = (sums[1] + mix16(last, place + 16, seed)) ^ (read64(first) + read64(first + 8))


cdef inline void hash128_of_few(
    const uint8_t *data, size_t size, uint64_t seed, uint64_t *low, uint64_t *high
) noexcept nogil:
    """Write the XXH3 of 1 to 16 bytes."""
    cdef uint64_t first, last, sum, upper
    cdef uint32_t turned
    if size > 8:
        first, last = read64(data), read64(data + size - 8)
        sum = product(
            first ^ last ^ (pair(32) - seed), <uint64_t>0x9E3779B185EBCA87, &upper
        )
        sum += <uint64_t>(size - 1) << 54
        last ^= pair(48) + seed
        upper += last + <uint64_t><uint32_t>last * <uint64_t>0x85EBCA76  # the prime 2 of 32 bits, less 1
        sum ^= swap64(upper)
        sum = product(sum, <uint64_t>0xC2B2AE3D27D4EB4F, &first)
        low[0] = avalanche(sum)
        high[0] = avalanche(first + upper * <uint64_t>0xC2B2AE3D27D4EB4F)
    elif size > 3:
        sum = read32(data) + (<uint64_t>read32(data + size - 4) << 32)
        sum ^= pair(16) + swapped_seed(seed)
        sum = product(sum, <uint64_t>0x9E3779B185EBCA87 + (size << 2), &upper)
        upper += sum << 1
        sum ^= upper >> 3
        sum = (sum ^ (sum >> 35)) * <uint64_t>0x9FB21C651E98DF25
        low[0] = sum ^ (sum >> 28)
        high[0] = avalanche(upper)
    else:
        first = first_to_third(data, size)
        turned = swap32(<uint32_t>first)
        turned = (turned << 13) | (turned >> 19)
        sum = (<uint64_t>read32(SECRET) ^ read32(SECRET + 4)) + seed
        upper = (<uint64_t>read32(SECRET + 8) ^ read32(SECRET + 12)) - seed
        low[0] = avalanche_of_few(first ^ sum)
        high[0] = avalanche_of_few(turned ^ upper)


cdef inline void hash128(
    const uint8_t *data, size_t size, uint64_t seed, uint64_t *low, uint64_t *high
) noexcept nogil:
    """Write the XXH3 of 1 to 240 bytes."""
    cdef uint64_t sums[2]
    cdef Py_ssize_t place
    if size <= 16:
        hash128_of_few(data, size, seed, low, high)
        return
    sums[0] = size * <uint64_t>0x9E3779B185EBCA87
    sums[1] = 0
    if size <= 128:
        for place in range(<Py_ssize_t>(size - 1) // 32, -1, -1):
            mix32(sums, data + 16 * place, data + size - 16 * (place + 1), 32 * place, seed)
    else:
        for place in range(4):
            mix32(sums, data + 32 * place, data + 32 * place + 16, 32 * place, seed)
        sums[0], sums[1] = avalanche(sums[0]), avalanche(sums[1])
        for place in range(4, <Py_ssize_t>size // 32):
            mix32(sums, data + 32 * place, data + 32 * place + 16, 32 * (place - 4) + 3, seed)
        mix32(sums, data + size - 16, data + size - 32, 136 - 17 - 16, 0 - seed)
    low[0] = avalanche(sums[0] + sums[1])
    high[0] = 0 - avalanche(
        sums[0] * <uint64_t>0x9E3779B185EBCA87
        + sums[1] * <uint64_t>0x85EBCA77C2B2AE63
        + (size - seed) * <uint64_t>0xC2B2AE3D27D4EB4F
    )
