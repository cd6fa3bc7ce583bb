"""Hash features into the bits that vote on a fingerprint."""

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import methodcaller
from pathlib import Path

import numpy as np
import xxhash

from fpdb.errors import InputError, RecipeError
from fpdb.fingerprint.sketches import hash_shingle, vote_hashes

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
    """Raise RecipeError for a file that can't be opened, or has another content."""
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


# Returns the UTF-8 of a feature; a lone surrogate has bytes too.
utf8: Callable[[str], bytes] = methodcaller("encode", "utf-8", "surrogatepass")


def _xxh3(choice: Hash, bits: int) -> FeatureHash:
    seed = choice.secret.seed if choice.secret else 0
    size = bits // 8
    hasher = xxhash.xxh3_128_digest if bits > 64 else xxhash.xxh3_64_digest
    return lambda feature: hasher(feature.encode("utf-8", "surrogatepass"), seed)[::-1][:size]


def _shingle(choice: Hash, bits: int) -> FeatureHash:
    seed = choice.secret.seed if choice.secret else 0
    return lambda feature: vote_hashes(hash_shingle(feature, seed), bits).tobytes()


def _md5(choice: Hash, bits: int) -> FeatureHash:
    part = slice(choice.offset // 8, (choice.offset + bits) // 8)
    return lambda feature: hashlib.md5(utf8(feature), usedforsecurity=False).digest()[::-1][part]


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
