"""Hash a feature into the bits that vote on a fingerprint: each choice is a name and a function."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xxhash

from fpdb.errors import InputError, RecipeError
from fpdb.fingerprint.files import read_with_mode

# bytes, little-endian: the lowest bits of the hash come first
Digest = Callable[[str], bytes]
_DIGESTS_REMEMBERED = 1 << 18
_FORBIDDEN_MODE = 0o077
_SHORTEST_KEY, _LONGEST_KEY = 16, 64


@dataclass(frozen=True)
class Secret:
    """A key that only its owner knows; it is never printed, and stored only by its digest."""

    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not _SHORTEST_KEY <= len(self.key) <= _LONGEST_KEY:
            raise RecipeError(
                f"a secret of {len(self.key)} bytes, expected 16 to 64",
                hint="python -c 'import os, sys; sys.stdout.buffer.write(os.urandom(32))' > my.key",
            )

    @classmethod
    def from_file(cls, path: Path) -> "Secret":
        """Read a secret from a file that only its owner may read."""
        try:
            key, mode = read_with_mode(path, _LONGEST_KEY)
        except (OSError, ValueError) as error:  # a path with a NUL is a ValueError
            raise RecipeError(
                f"the secret can't be read: {error}", hint="name a file that holds 16 to 64 bytes"
            ) from None
        if mode & _FORBIDDEN_MODE:
            raise RecipeError(
                f"others may read the secret {path} (mode {mode & 0o777:o}, expected 600)",
                hint=f"chmod 600 {path}",
            )
        return cls(key)

    @property
    def id(self) -> str:
        """A digest that tells two secrets apart and gives neither away."""
        return hashlib.blake2b(self.key, digest_size=8, person=b"fpdb secret id").hexdigest()

    @property
    def seed(self) -> int:
        """64 bits for hashes that take a number as their key."""
        digest = hashlib.blake2b(self.key, digest_size=8, person=b"fpdb xxh3 seed")
        return int.from_bytes(digest.digest(), "little")


@dataclass(frozen=True, kw_only=True)
class Hash:
    """How a feature becomes bits.

    `by` is one of xxh3, md5, blake2b, multiply-xor and mersenne. The rest belongs to one of
    them: `secret` to xxh3 and blake2b, `offset` (the lowest bit taken) to md5, `pad` (words are
    filled up to this length with their first letter) and `utf16` (code units instead of
    characters) to multiply-xor, `seed` to mersenne.
    """

    by: str = "xxh3"
    secret: Secret | None = None
    offset: int = 0
    pad: int = 0
    utf16: bool = False
    seed: int = 5489

    def digest(self, bits: int) -> Digest:
        """Give the function that hashes one feature into so many bits."""
        return _MAKERS[self.by](self, bits)


def encode(feature: str) -> bytes:
    """Give the bytes of a feature; half a surrogate pair has bytes of its own."""
    return feature.encode("utf-8", "surrogatepass")


def _xxh3(choice: Hash, bits: int) -> Digest:
    seed = choice.secret.seed if choice.secret else 0
    size = bits // 8
    hasher = xxhash.xxh3_128_digest if bits > 64 else xxhash.xxh3_64_digest
    return lambda feature: hasher(encode(feature), seed)[::-1][:size]


def _md5(choice: Hash, bits: int) -> Digest:
    first, last = choice.offset // 8, (choice.offset + bits) // 8

    def digest(feature: str) -> bytes:
        return hashlib.md5(encode(feature), usedforsecurity=False).digest()[::-1][first:last]

    return digest


def _blake2b(choice: Hash, bits: int) -> Digest:
    key = choice.secret.key if choice.secret else b""
    size = bits // 8
    return lambda feature: hashlib.blake2b(encode(feature), digest_size=size, key=key).digest()


def _multiply_xor(choice: Hash, bits: int) -> Digest:
    mask, size = (1 << bits) - 1, bits // 8

    def digest(feature: str) -> bytes:
        units = _code_units(feature) if choice.utf16 else list(map(ord, feature))
        if not units:
            return bytes(size)
        units += units[:1] * (choice.pad - len(units))
        value = units[0] << 7
        for unit in units:
            value = (value * 1000003 ^ unit) & mask
        return ((value ^ len(units)) & mask).to_bytes(size, "little")

    return digest


def _code_units(feature: str) -> list[int]:
    return list(memoryview(feature.encode("utf-16-le", "surrogatepass")).cast("H"))


def _mersenne(choice: Hash, _bits: int) -> Digest:
    # The legacy generator seeds itself as C++'s mt19937 does, and numpy promises its stream.
    twister = np.random.RandomState(choice.seed)
    numbers = twister.randint(0, 1 << 32, size=128, dtype=np.uint32)
    outputs: list[bytes] = [number.to_bytes(4, "little") for number in numbers.tolist()]

    def digest(feature: str) -> bytes:
        if len(feature) != 1 or not feature.isascii():
            raise InputError(
                f"the feature {feature!r} is no ASCII character",
                hint="this recipe hashes ASCII characters only; take another recipe for other text",
            )
        return outputs[ord(feature)]

    return digest


_MAKERS: dict[str, Callable[[Hash, int], Digest]] = {
    "xxh3": _xxh3,
    "md5": _md5,
    "blake2b": _blake2b,
    "multiply-xor": _multiply_xor,
    "mersenne": _mersenne,
}
# Which parameters belong to which choice; any other must keep its default.
PARAMETERS: dict[str, frozenset[str]] = {
    "xxh3": frozenset({"secret"}),
    "md5": frozenset({"offset"}),
    "blake2b": frozenset({"secret"}),
    "multiply-xor": frozenset({"pad", "utf16"}),
    "mersenne": frozenset({"seed"}),
}


class Digests(dict[str, bytes]):
    """Remembers the digests of a bounded number of features.

    A digest depends on its feature alone, so threads may race for an entry without harm.
    """

    def __init__(self, digest: Digest) -> None:
        super().__init__()
        self._digest = digest

    def __missing__(self, feature: str) -> bytes:
        if len(self) >= _DIGESTS_REMEMBERED:
            self.clear()
        digest = self[feature] = self._digest(feature)
        return digest
