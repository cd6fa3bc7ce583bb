"""Hash features into the bits that vote on a fingerprint.

`window_hashes` computes the XXH3 of all windows of a few characters at once, as numpy arithmetic: a
window of four characters has at most 16 bytes of UTF-8, for which XXH3 is a few multiplications.
"""

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xxhash

from fpdb.arrays import Column, Places
from fpdb.errors import InputError, RecipeError
from fpdb.fingerprint.sketches import hash_tokens, vote_hashes

# bytes, little-endian: the lowest bits of the hash come first
FeatureHash = Callable[[str], bytes]
_DIGESTS_CACHED = 1 << 18
_LONGEST_KEY = 64


@dataclass(frozen=True)
class Secret:
    """A secret key; it is never printed, and only its digest is stored."""

    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not 16 <= len(self.key) <= _LONGEST_KEY:
            raise RecipeError(
                f"a secret of {len(self.key)} bytes, expected 16 to 64",
                hint="python -c 'import os, sys; sys.stdout.buffer.write(os.urandom(32))' > my.key",
            )

    @classmethod
    def from_file(cls, path: Path) -> "Secret":
        """Read a secret from a file that only its owner may read."""
        with expecting("the secret can't be read", "name a file that holds 16 to 64 bytes"):
            key, mode = read_bounded(path, _LONGEST_KEY)
        if mode & 0o077:
            raise RecipeError(
                f"others may read the secret {path} (mode {mode & 0o777:o}, expected 600)",
                hint=f"chmod 600 {path}",
            )
        return cls(key)

    @property
    def id(self) -> str:
        """A digest that identifies the secret without revealing it."""
        return hashlib.blake2b(self.key, digest_size=8, person=b"fpdb secret id").hexdigest()

    @property
    def seed(self) -> int:
        """64 bits for hashes that take a number as their key."""
        digest = hashlib.blake2b(self.key, digest_size=8, person=b"fpdb xxh3 seed")
        return int.from_bytes(digest.digest(), "little")


@contextlib.contextmanager
def expecting(what: str, hint: str) -> Iterator[None]:
    """Raise RecipeError for a file that can't be opened, or doesn't hold what it should."""
    try:
        yield
    except (OSError, ValueError, RecursionError) as error:
        raise RecipeError(f"{what}: {error}", hint=hint) from None


def read_bounded(path: Path, largest: int) -> tuple[bytes, int]:
    """Return the content and mode of a regular file; raise ValueError if it is too large."""
    # Opening a pipe must not wait for a writer that never comes.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(number, "rb") as file:
        mode = os.fstat(number).st_mode
        if not stat.S_ISREG(mode):
            raise ValueError(f"{path} isn't a regular file")
        content = file.read(largest + 1)
    if len(content) > largest:
        raise ValueError(f"{path} has more than {largest:,} bytes")
    return content, mode


@dataclass(frozen=True, kw_only=True)
class Hash:
    """How a feature becomes bits.

    `by` is one of xxh3, shingle, md5, blake2b, multiply-xor and mersenne. `secret` belongs to xxh3,
    shingle and blake2b, `offset` (the lowest bit taken) to md5, `pad` (to this length, with the
    first letter) and `utf16` (code units instead of characters) to multiply-xor, `seed` to
    mersenne.
    """

    by: str = "xxh3"
    secret: Secret | None = None
    offset: int = 0
    pad: int = 0
    utf16: bool = False
    seed: int = 5489

    def digest(self, bits: int) -> FeatureHash:
        """Return the function that hashes one feature into `bits` bits."""
        maker, _ = _HASHES[self.by]
        return maker(self, bits)


def utf8(feature: str) -> bytes:
    """Return the UTF-8 of a feature; a lone surrogate has bytes too."""
    return feature.encode("utf-8", "surrogatepass")


def hasher(bits: int) -> Callable[[bytes, int], int]:
    """Return the hash of bytes and a seed, as a number of at least that number of bits."""
    return xxhash.xxh3_128_intdigest if bits > 64 else xxhash.xxh3_64_intdigest


def _xxh3(choice: Hash, bits: int) -> FeatureHash:
    seed = choice.secret.seed if choice.secret else 0
    size = bits // 8
    hasher = xxhash.xxh3_128_digest if bits > 64 else xxhash.xxh3_64_digest
    return lambda feature: hasher(feature.encode("utf-8", "surrogatepass"), seed)[::-1][:size]


def _shingle(choice: Hash, bits: int) -> FeatureHash:
    seed = choice.secret.seed if choice.secret else 0
    return lambda feature: vote_hashes(hash_tokens(feature, seed), bits).tobytes()


def _md5(choice: Hash, bits: int) -> FeatureHash:
    own = slice(choice.offset // 8, (choice.offset + bits) // 8)
    return lambda feature: hashlib.md5(utf8(feature), usedforsecurity=False).digest()[::-1][own]


def _blake2b(choice: Hash, bits: int) -> FeatureHash:
    key = choice.secret.key if choice.secret else b""
    size = bits // 8
    return lambda feature: hashlib.blake2b(utf8(feature), digest_size=size, key=key).digest()


def _multiply_xor(choice: Hash, bits: int) -> FeatureHash:
    mask, size = (1 << bits) - 1, bits // 8

    def digest(feature: str) -> bytes:
        units = list(map(ord, feature))
        if choice.utf16:
            units = memoryview(feature.encode("utf-16-le", "surrogatepass")).cast("H").tolist()
        if not units:
            return bytes(size)
        units += units[:1] * (choice.pad - len(units))
        value = units[0] << 7
        for unit in units:
            value = (value * 1000003 ^ unit) & mask
        return ((value ^ len(units)) & mask).to_bytes(size, "little")

    return digest


def _mersenne(choice: Hash, _bits: int) -> FeatureHash:
    # The legacy generator seeds itself as C++'s mt19937 does, and numpy promises its stream.
    twister = np.random.RandomState(choice.seed)
    numbers = twister.randint(0, 1 << 32, size=128, dtype=np.uint32).astype("<u4").tobytes()

    def digest(feature: str) -> bytes:
        if len(feature) != 1 or not feature.isascii():
            raise InputError(
                f"the feature {feature!r} isn't an ASCII character",
                hint="this recipe hashes ASCII characters only; take another recipe for this text",
            )
        return numbers[4 * ord(feature) :][:4]

    return digest


# The function that makes each hash, and its parameters; any other must keep its default.
_HASHES: dict[str, tuple[Callable[[Hash, int], FeatureHash], set[str]]] = {
    "xxh3": (_xxh3, {"secret"}),
    "shingle": (_shingle, {"secret"}),
    "md5": (_md5, {"offset"}),
    "blake2b": (_blake2b, {"secret"}),
    "multiply-xor": (_multiply_xor, {"pad", "utf16"}),
    "mersenne": (_mersenne, {"seed"}),
}
PARAMETERS = {name: parameters for name, (_, parameters) in _HASHES.items()}


class Digests(dict[str, bytes]):
    """A bounded cache of digests; threads may race for an entry without harm."""

    def __init__(self, digest: FeatureHash) -> None:
        super().__init__()
        self._digest = digest

    def __missing__(self, feature: str) -> bytes:
        if len(self) >= _DIGESTS_CACHED:
            self.clear()
        digest = self[feature] = self._digest(feature)
        return digest


LONGEST_WINDOW = 4
# Windows hashed at once, so that the arrays stay in the processor's cache.
_CHUNK = 1 << 14

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
)
_u = np.uint64
_WORD = (1 << 64) - 1
_LOW_HALF = _u((1 << 32) - 1)


def _secret_pair(offset: int) -> int:
    first, second = (int.from_bytes(_SECRET[at : at + 8], "little") for at in (offset, offset + 8))
    return first ^ second


def window_hashes(text: str, length: int, seed: int = 0) -> Column:
    """Return the hashes of all windows of `length` characters, 1 to 4; equal to those of xxhash."""
    # Eight bytes more, so that a word begins at each byte and at the end.
    data = np.frombuffer(utf8(text) + bytes(8), np.uint8)
    words = np.ndarray(len(data) - 7, "<u8", data, strides=(1,))
    starts = np.append(np.flatnonzero(data[:-8] & 0xC0 != 0x80), len(data) - 8)
    starts, ends = starts[:-length], starts[length:]
    hashes = np.empty(len(starts), np.uint64)
    for at in range(0, len(hashes), _CHUNK):
        chunk = slice(at, at + _CHUNK)
        hashes[chunk] = _hash_windows(words, starts[chunk], ends[chunk], seed)
    return hashes


def _hash_windows(words: Column, starts: Places, ends: Places, seed: int) -> Column:
    """Hash the windows between some positions; `words` has the eight bytes from each position."""
    hashes = np.empty(len(starts), np.uint64)
    sizes = ends - starts
    for chosen, mixer in (
        (sizes <= 3, _hash_1_to_3),
        ((sizes > 3) & (sizes <= 8), _hash_4_to_8),
        (sizes > 8, _hash_9_to_16),
    ):
        at = np.flatnonzero(chosen)
        if len(at):
            last = words[np.maximum(ends[at] - 8, 0)]
            hashes[at] = mixer(words[starts[at]], last, sizes[at].astype(np.uint64), seed)
    return hashes


def _hash_1_to_3(word: Column, _last: Column, size: Column, seed: int) -> Column:
    first = word & _u(0xFF)
    middle = (word >> ((size >> _u(1)) << _u(3))) & _u(0xFF)
    last = (word >> ((size - _u(1)) << _u(3))) & _u(0xFF)
    mixed: Column = (first << _u(16)) | (middle << _u(24)) | last | (size << _u(8))
    words = [int.from_bytes(_SECRET[at : at + 4], "little") for at in (0, 4)]
    mixed ^= _u(((words[0] ^ words[1]) + seed) & _WORD)
    mixed ^= mixed >> _u(33)
    mixed *= 0xC2B2AE3D27D4EB4F
    mixed ^= mixed >> _u(29)
    mixed *= 0x165667B19E3779F9
    return mixed ^ (mixed >> _u(32))


def _hash_4_to_8(word: Column, _last: Column, size: Column, seed: int) -> Column:
    seed ^= int.from_bytes((seed & 0xFFFFFFFF).to_bytes(4, "little"), "big") << 32
    last = (word >> ((size - _u(4)) << _u(3))) & _LOW_HALF
    mixed: Column = (last + (word << _u(32))) ^ _u((_secret_pair(8) - seed) & _WORD)
    mixed ^= _rotate(mixed, 49) ^ _rotate(mixed, 24)
    mixed *= 0x9FB21C651E98DF25
    mixed ^= (mixed >> _u(35)) + size
    mixed *= 0x9FB21C651E98DF25
    return mixed ^ (mixed >> _u(28))


def _hash_9_to_16(word: Column, last: Column, size: Column, seed: int) -> Column:
    first: Column = word ^ _u((_secret_pair(24) + seed) & _WORD)
    last = last ^ _u((_secret_pair(40) - seed) & _WORD)
    mixed: Column = size + first.byteswap() + last + _folded_product(first, last)
    mixed ^= mixed >> _u(37)
    mixed *= 0x165667919E3779F9
    return mixed ^ (mixed >> _u(32))


def _rotate(value: Column, by: int) -> Column:
    return (value << _u(by)) | (value >> _u(64 - by))


def _folded_product(left: Column, right: Column) -> Column:
    """Multiply to 128 bits and exclusive-or the halves."""
    left_low, left_high = left & _LOW_HALF, left >> _u(32)
    right_low, right_high = right & _LOW_HALF, right >> _u(32)
    cross = left_high * right_low
    middle = ((left_low * right_low) >> _u(32)) + (cross & _LOW_HALF) + left_low * right_high
    folded: Column = (left * right) ^ (
        (cross >> _u(32)) + (middle >> _u(32)) + left_high * right_high
    )
    return folded
