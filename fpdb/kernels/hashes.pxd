# cython: language_level=3
"""XXH3 of at most 240 bytes, seeded, as the specification defines it."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    static const unsigned char SECRET[193] =
        "\\xb8\\xfe\\x6c\\x39\\x23\\xa4\\x4b\\xbe\\x7c\\x01\\x81\\x2c\\xf7\\x21\\xad\\x1c\\xde\\xd4\\x6d\\xe9\\x83\\x90"
        "\\x97\\xdb\\x72\\x40\\xa4\\xa4\\xb7\\xb3\\x67\\x1f\\xcb\\x79\\xe6\\x4e\\xcc\\xc0\\xe5\\x78\\x82\\x5a\\xd0\\x7d"
        "\\xcc\\xff\\x72\\x21\\xb8\\x08\\x46\\x74\\xf7\\x43\\x24\\x8e\\xe0\\x35\\x90\\xe6\\x81\\x3a\\x26\\x4c\\x3c\\x28"
        "\\x52\\xbb\\x91\\xc3\\x00\\xcb\\x88\\xd0\\x65\\x8b\\x1b\\x53\\x2e\\xa3\\x71\\x64\\x48\\x97\\xa2\\x0d\\xf9\\x4e"
        "\\x38\\x19\\xef\\x46\\xa9\\xde\\xac\\xd8\\xa8\\xfa\\x76\\x3f\\xe3\\x9c\\x34\\x3f\\xf9\\xdc\\xbb\\xc7\\xc7\\x0b"
        "\\x4f\\x1d\\x8a\\x51\\xe0\\x4b\\xcd\\xb4\\x59\\x31\\xc8\\x9f\\x7e\\xc9\\xd9\\x78\\x73\\x64\\xea\\xc5\\xac\\x83"
        "\\x34\\xd3\\xeb\\xc3\\xc5\\x81\\xa0\\xff\\xfa\\x13\\x63\\xeb\\x17\\x0d\\xdd\\x51\\xb7\\xf0\\xda\\x49\\xd3\\x16"
        "\\x55\\x26\\x29\\xd4\\x68\\x9e\\x2b\\x16\\xbe\\x58\\x7d\\x47\\xa1\\xfc\\x8f\\xf8\\xb8\\xd1\\x7a\\xd0\\x31\\xce"
        "\\x45\\xcb\\x3a\\x8f\\x95\\x16\\x04\\x28\\xaf\\xd7\\xfb\\xca\\xbb\\x4b\\x40\\x7e";
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
