"""Hash all windows of a few characters at once: XXH3 of up to 16 bytes, as numpy arithmetic.

The values are those of the xxhash package for the UTF-8 bytes of each window. A window of four
characters has at most 16 bytes, and for such short inputs XXH3 is a handful of multiplications.
"""

import numpy as np
from numpy.typing import NDArray

LONGEST = 4
# Arrays of this many windows stay in the processor's cache.
_CHUNK = 1 << 14

U64 = NDArray[np.uint64]
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
)
_LOW_HALF = np.uint64(0xFFFFFFFF)


def _secret_pair(offset: int) -> int:
    first, second = (int.from_bytes(_SECRET[at : at + 8], "little") for at in (offset, offset + 8))
    return first ^ second


def _u(value: int) -> np.uint64:
    return np.uint64(value & 0xFFFFFFFFFFFFFFFF)


def window_hashes(text: str, length: int, seed: int = 0) -> U64:
    """Hash every window of `length` characters, 1 to 4; a shorter text has no window."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    count = len(codes) - length + 1
    if count <= 0:
        return np.empty(0, np.uint64)
    return np.concatenate(
        [
            _hash(*_join(codes[start : start + _CHUNK + length - 1], length), seed)
            for start in range(0, count, _CHUNK)
        ]
    )


def _join(codes: NDArray[np.uint32], length: int) -> tuple[U64, U64, U64]:
    """Put the UTF-8 bytes of each window into two words; give these and the number of bytes."""
    characters, sizes = _utf8(codes)
    count = len(codes) - length + 1
    low, total = characters[:count].copy(), sizes[:count].copy()
    high = np.zeros(count, np.uint64)
    for offset in range(1, length):
        following = characters[offset : offset + count]
        shift = total << _u(3)
        # numpy defines a shift by 64 or more, also by what was less than nothing, to give 0.
        low |= following << shift
        high |= (following >> (_u(64) - shift)) | (following << (shift - _u(64)))
        total += sizes[offset : offset + count]
    return low, high, total


def _utf8(codes: NDArray[np.uint32]) -> tuple[U64, U64]:
    """Give each character's UTF-8 bytes as a little-endian number, and how many they are."""
    code = codes.astype(np.uint64)
    size = np.ones(len(code), np.uint64)
    for bound in (0x80, 0x800, 0x10000):
        size += code >= bound
    packed = code.copy()
    for bytes_, first in ((2, 0xC0), (3, 0xE0), (4, 0xF0)):
        at = np.flatnonzero(size == bytes_)
        if len(at):
            rest = code[at]
            value = _u(first) | (rest >> _u(6 * (bytes_ - 1)))
            for place in range(1, bytes_):
                six = (rest >> _u(6 * (bytes_ - 1 - place))) & _u(0x3F)
                value |= (six | _u(0x80)) << _u(8 * place)
            packed[at] = value
    return packed, size


def _hash(low: U64, high: U64, size: U64, seed: int) -> U64:
    hashes = np.empty(len(low), np.uint64)
    for chosen, mixer in (
        (size <= 3, _hash_1_to_3),
        ((size > 3) & (size <= 8), _hash_4_to_8),
        (size > 8, _hash_9_to_16),
    ):
        at = np.flatnonzero(chosen)
        if len(at) == len(low):
            return mixer(low, high, size, seed)
        if len(at):
            hashes[at] = mixer(low[at], high[at], size[at], seed)
    return hashes


def _hash_1_to_3(low: U64, _high: U64, size: U64, seed: int) -> U64:
    first = low & _u(0xFF)
    middle = (low >> ((size >> _u(1)) << _u(3))) & _u(0xFF)
    last = (low >> ((size - _u(1)) << _u(3))) & _u(0xFF)
    mixed = (first << _u(16)) | (middle << _u(24)) | last | (size << _u(8))
    words = [int.from_bytes(_SECRET[at : at + 4], "little") for at in (0, 4)]
    mixed ^= _u((words[0] ^ words[1]) + seed)
    mixed ^= mixed >> _u(33)
    mixed *= _u(0xC2B2AE3D27D4EB4F)
    mixed ^= mixed >> _u(29)
    mixed *= _u(0x165667B19E3779F9)
    return _shifted_in(mixed, 32)


def _hash_4_to_8(low: U64, _high: U64, size: U64, seed: int) -> U64:
    seed ^= int.from_bytes((seed & 0xFFFFFFFF).to_bytes(4, "little"), "big") << 32
    first = low & _LOW_HALF
    last = (low >> ((size - _u(4)) << _u(3))) & _LOW_HALF
    mixed: U64 = (last + (first << _u(32))) ^ _u(_secret_pair(8) - seed)
    mixed ^= _rotate(mixed, 49) ^ _rotate(mixed, 24)
    mixed *= _u(0x9FB21C651E98DF25)
    mixed ^= (mixed >> _u(35)) + size
    mixed *= _u(0x9FB21C651E98DF25)
    return _shifted_in(mixed, 28)


def _hash_9_to_16(low: U64, high: U64, size: U64, seed: int) -> U64:
    shift = (size - _u(8)) << _u(3)  # 8 to 64
    above: U64 = high << (_u(64) - shift)
    last: U64 = (low >> shift) | above
    first: U64 = low ^ _u(_secret_pair(24) + seed)
    last ^= _u(_secret_pair(40) - seed)
    mixed: U64 = size + first.byteswap() + last + _folded_product(first, last)
    mixed ^= mixed >> _u(37)
    mixed *= _u(0x165667919E3779F9)
    return _shifted_in(mixed, 32)


def _shifted_in(value: U64, by: int) -> U64:
    shifted: U64 = value >> _u(by)
    return value ^ shifted


def _rotate(value: U64, by: int) -> U64:
    return (value << _u(by)) | (value >> _u(64 - by))


def _folded_product(left: U64, right: U64) -> U64:
    """Multiply to 128 bits and exclusive-or the halves."""
    half = _u(32)
    left_low, left_high = left & _LOW_HALF, left >> half
    right_low, right_high = right & _LOW_HALF, right >> half
    cross = left_high * right_low
    middle = ((left_low * right_low) >> half) + (cross & _LOW_HALF) + left_low * right_high
    folded: U64 = (left * right) ^ ((cross >> half) + (middle >> half) + left_high * right_high)
    return folded
