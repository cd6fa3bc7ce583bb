"""A recipe: how a text becomes a fingerprint, and how two texts are compared."""

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fpdb.errors import InputError, RecipeError, ShortTextError
from fpdb.fingerprint import hashing, segmentation
from fpdb.fingerprint.features import (
    DAMPING,
    LARGEST_FACTOR,
    LARGEST_TOTAL,
    Grams,
    IdfTable,
    Weights,
)
from fpdb.fingerprint.hashing import Hash, Secret, utf8
from fpdb.fingerprint.segmentation import Segments
from fpdb.fingerprint.sketches import exact_shares, plain_text, sketch_jaccard, standard_error
from fpdb.fingerprint.stages import Stages, to_int
from fpdb.models import DIGEST_BYTES, MOST_BYTES, Batch, Comparison, Explanation, is_similarity

WIDTHS = (32, 64, 128)
_NO_PART_OF_ID = frozenset({"name", "largest", "k", "similarity"})
_LARGEST_N = 100  # all windows of a text together grow with their length
_LARGEST_PAD = 32
_LARGEST_NUMBER = 1 << 31
_EXAMPLE = "fpdb recipes web prints a recipe with all its parts"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def _hash(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


@dataclass(frozen=True)
class Recipe(Stages):
    """Text to fingerprint, in six stages.

    `clean` is a sequence of steps, `segment` the name of a cut, `tie` the value of a bit with equal
    votes. Two recipes with the same `id` give the same fingerprints. The name is only a label, and
    `largest` only limits the bytes of UTF-8 that a text may have. A new database has the recipe's
    `k`, the distance that counts as a match, and its `similarity`; without one it is of bits.
    `sketch` names the sets that are similar: "shingles", or the recipe's own "features". The words
    of `common` texts, such as an assignment that all were given, are in no sketch and no passage.
    """

    def __post_init__(self) -> None:
        for name in ("clean", "common"):
            if isinstance(value := getattr(self, name), list):  # which has no hash
                object.__setattr__(self, name, tuple(value))
        for fault, expected in _faults(self):
            listed = ", ".join(map(str, expected))
            raise RecipeError(
                f"the recipe {self.name!r}: {fault}, expected {listed}", hint=_EXAMPLE
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return Recipe, tuple(getattr(self, field.name) for field in dataclasses.fields(self))

    def fingerprint(self, text: str) -> int:
        """Return the fingerprint of a text, a number of `bits` bits.

        Raises:
            ShortTextError: It has fewer distinct features than the recipe's minimum.
            InputError: It is too large, or has a character that the recipe's hash doesn't take.
        """
        self._check(text)
        return to_int(self._long_enough(self._block([text], sketched=False))[0])

    def fingerprint_many(self, texts: Iterable[str]) -> NDArray[np.uint64]:
        """Return the fingerprints of texts, an array of uint64; at 128 bits two words for each.

        Raises:
            ShortTextError: A text has too few features; `batch` marks such texts instead.
            InputError: As in `fingerprint`; the message names the text by its place.
        """
        return self._long_enough(self.batch(texts), "text {} of the batch")

    def fingerprint_segments(self, segments: Segments) -> int:
        """Return the fingerprint of a text that is already cut and cleaned.

        Args:
            segments: Words, or (word, tag) pairs if the recipe weighs tags.

        Raises:
            ShortTextError: There are too few features.
            InputError: There are tags and the recipe takes none, or the other way round.
        """
        segments = self._checked(segments)
        return to_int(self._long_enough(self._batch_of(self._tally_segments(segments)))[0])

    def fingerprint_features(self, features: Mapping[str, float]) -> int:
        """Return the fingerprint of features with weights of your own, from 0.

        Raises:
            InputError: A weight is negative, or not a finite number.
        """
        _check_weights(features)
        return to_int(self._long_enough(self._batch_of(features, weighed=True))[0])

    def explain(self, source: str | Segments | Mapping[str, float]) -> Explanation:
        """Return how a text, its segments, or features with weights vote on each bit."""
        if isinstance(source, str):
            return self._explained(self._tally(source))
        if isinstance(source, Mapping):
            _check_weights(source)
            return self._explained(source, weighed=True)
        return self._explained(self._tally_segments(self._checked(source)))

    def digest(self, text: str, *, short: bool = False) -> bytes:
        """Return the digest by which a database recognizes equal texts, 16 bytes.

        Of a short text the words and signs count, in the recipe's cleaning. If they don't even make
        one shingle, such as "C" and "C++", the text counts as it is, without white space around it.
        Of an empty text the digest is zeros, which equal nothing.
        """
        counted = self._plain(text) if short else text
        if short and not counted:
            return bytes(DIGEST_BYTES)
        return _hash(counted.encode("utf-8", "surrogatepass"))

    def digests(
        self, texts: Sequence[str], short: Iterable[bool], hashed: Callable[[bytes], bytes] = _hash
    ) -> list[bytes]:
        """Return the digest of each text, or another hash, given which ones are short."""
        digests = list(map(hashed, map(utf8, texts)))
        for place in compress(range(len(digests)), short):
            plain = self._plain(texts[place])
            digests[place] = hashed(utf8(plain)) if plain else bytes(DIGEST_BYTES)
        return digests

    def _plain(self, text: str) -> str:
        """Return the words and signs of a short text, or the text if they don't make a shingle."""
        if self.sketch == "features":
            plain = " ".join(self._tally(text))
        else:
            plain = plain_text(self._cleaned(text, self._sketch_cleaning.steps))
        return plain or text.strip()

    def replace(self, **changes: Any) -> "Recipe":
        """Return a recipe with other parts; give it a new name, because it is another recipe.

        Raises:
            RecipeError: The parts don't fit together.
        """
        return dataclasses.replace(self, **changes)

    def with_bits(self, bits: int) -> "Recipe":
        """Return the same recipe with another width, and with a k in proportion."""
        if bits == self.bits:
            return self
        k = self.k * bits // self.bits
        return self.replace(name=f"{self.name}-{bits}", bits=bits, k=k)

    @cached_property
    def id(self) -> str:
        """A digest of everything that determines the fingerprint."""
        return _id_of(self.to_dict(), self.idf_id)

    @property
    def idf_id(self) -> str | None:
        """The id of the idf table, or the name of one that has no id of its own."""
        idf = self.weights.idf
        return idf.id if isinstance(idf, IdfTable) else idf

    def to_dict(self) -> dict[str, Any]:
        """Return the recipe as plain data; of a secret only its id."""
        plain = dataclasses.asdict(dataclasses.replace(self, weights=Weights(by=self.weights.by)))
        plain["clean"], plain["common"] = list(self.clean), list(self.common)
        for name in ("largest", "sketch", "common"):
            if getattr(self, name) == getattr(Recipe, name):
                del plain[name]
        plain["grams"]["stop_words"] = sorted(set(self.grams.stop_words))
        idf = self.weights.idf
        plain["weights"] = {
            "by": self.weights.by,
            "cap": self.weights.cap,
            "tags": {tag: float(weight) for tag, weight in sorted(self.weights.tags)},
            "idf": {"values": dict(idf.values), "missing": idf.missing}
            if isinstance(idf, IdfTable)
            else idf,
        }
        used = {"by", *hashing.PARAMETERS[self.hash.by]}
        plain["hash"] = {name: value for name, value in plain["hash"].items() if name in used}
        if "secret" in used:
            plain["hash"]["secret"] = self.hash.secret.id if self.hash.secret else None
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], *, secret: Secret | None = None) -> "Recipe":
        """Build a recipe from plain data; a keyed recipe needs its secret."""
        parts: dict[str, Any] = {}
        try:
            parts |= plain
            grams, weights, choice = (table_of(parts, x) for x in ("grams", "weights", "hash"))
            wanted = choice.pop("secret", None)
            if wanted is not None and (secret is None or secret.id != wanted):
                raise RecipeError(
                    f"the recipe {parts.get('name')} is keyed; "
                    f"{'another' if secret else 'no'} secret was given",
                    hint=f"give the secret whose id is {wanted}",
                )
            stop_words = _listed("stop_words", grams.get("stop_words", ()))
            grams["stop_words"] = tuple(sorted(set(stop_words)))
            weights["tags"] = tuple(sorted(dict(weights.get("tags", {})).items()))
            if isinstance(weights.get("idf"), Mapping):
                weights["idf"] = IdfTable(**weights["idf"])
            parts |= {
                "clean": _listed("clean", parts.get("clean", cls.clean)),
                "common": _listed("common", parts.get("common", cls.common)),
                "grams": Grams(**grams),
                "weights": Weights(**weights),
                "hash": Hash(**choice, secret=secret if wanted is not None else None),
            }
            return cls(**parts)
        except (TypeError, ValueError, OverflowError) as error:
            if isinstance(error, RecipeError):
                raise
            raise RecipeError(
                f"the recipe {parts.get('name', 'without a name')} can't be built: {error}",
                hint=_EXAMPLE,
            ) from None

    def _checked(self, segments: Segments) -> Segments:
        """Check segments; return those that are characters as the text that they make."""
        hint = "recipes with jieba-tags take (word, tag) pairs, all others words alone"
        if isinstance(segments, str):
            raise InputError("found a string, expected a sequence of segments", hint=hint)
        expected = "a pair of a word and a tag" if self._tagged else "a text (str)"
        for index, segment in enumerate(segments):
            parts = segment if self._tagged and isinstance(segment, tuple) else (segment,)
            if len(parts) != 1 + self._tagged or not all(isinstance(part, str) for part in parts):
                raise InputError(f"segment {index} is {segment!r}, expected {expected}", hint=hint)
        if self.segment == "characters":
            return "".join(cast("Sequence[str]", segments))
        return segments

    def _long_enough(self, batch: Batch, what: str = "the text") -> NDArray[np.uint64]:
        """Return the fingerprints of texts; raise `ShortTextError` if any is too short."""
        for index in np.flatnonzero(batch.short).tolist():
            raise ShortTextError(
                f"{what.format(index)} has {batch.features[index]} distinct features, the recipe "
                f"{self.name} expects at least {self.grams.minimum}",
                hint="recipe.batch(texts) returns fingerprints and marks those of short texts",
            )
        return batch.fingerprints


def table_of(plain: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a copy of a part of a recipe's plain form that has parameters of its own."""
    table = plain.get(name, {})
    if not isinstance(table, Mapping):
        raise RecipeError(f"{name} is {table!r}, expected a table", hint=_EXAMPLE)
    return dict(table)


def canonical(plain: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return a recipe in the plain form of `to_dict`, and its id; its secret isn't needed."""
    secret = None
    if isinstance(plain, Mapping) and isinstance(plain.get("hash"), Mapping):
        secret = plain["hash"].get("secret")
        plain = {**plain, "hash": {**plain["hash"], "secret": None}}
    recipe = Recipe.from_dict(plain)
    form = recipe.to_dict()
    if secret is not None:
        form["hash"]["secret"] = str(secret)
    return form, _id_of(form, recipe.idf_id)


def _id_of(plain: Mapping[str, Any], idf_id: str | None) -> str:
    parts = {name: part for name, part in plain.items() if name not in _NO_PART_OF_ID}
    parts["weights"] = {**parts["weights"], "idf": idf_id}
    canonical = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(canonical.encode(), digest_size=8).hexdigest()


def distance(first: int, second: int) -> int:
    """Count the bits in which two fingerprints differ."""
    if first < 0 or second < 0:
        raise InputError("found a negative number, expected two fingerprints")
    return (first ^ second).bit_count()


def compare(first: str, second: str, *, recipe: str | Recipe = "web") -> Comparison:
    """Compare two texts: what their fingerprints and sketches estimate, and the exact values.

    Args:
        first: A text; one that is too short is compared by its features.
        second: Another one.
        recipe: How the texts are fingerprinted.

    Returns:
        Among others the `distance`, the exact `shingle_jaccard`, and `sketch_jaccard`, its
        estimate.

    Raises:
        InputError: A text is too large, or has a character that the recipe doesn't take.
    """
    if isinstance(recipe, str):
        from fpdb.fingerprint.presets import preset  # it is made of this module

        recipe = preset(recipe)
    batch = recipe.batch([first, second], sketches=True)
    left, right = map(to_int, batch.fingerprints)
    features, other_features = recipe.features(first), recipe.features(second)
    union = features.keys() | other_features
    equal = features == other_features
    if equal and not features:  # texts without features may still differ
        equal = first.split() == second.split()
    apart = distance(left, right)
    exact, containment = exact_shares(recipe.shingles(first), recipe.shingles(second))
    sketches = cast("NDArray[np.uint8]", batch.sketches)
    estimated = None if exact is None else float(sketch_jaccard(sketches[0], sketches[1]))
    turn = math.pi * apart / recipe.bits
    return Comparison(
        distance=apart,
        bits_equal=1 - apart / recipe.bits,
        angle=math.degrees(turn),
        cosine_estimate=math.cos(turn),
        cosine=_cosine(features, other_features) if union else float(equal),
        jaccard=len(features.keys() & other_features) / len(union) if union else float(equal),
        value_ratio=min(left, right) / max(left, right) if left != right else 1.0,
        shingle_jaccard=exact,
        containment=containment,
        sketch_jaccard=estimated,
        sketch_error=None if estimated is None else standard_error(estimated),
        short=bool(batch.short.any()),
        equal=equal,
    )


def _check_weights(features: Mapping[str, float]) -> None:
    if not all(0 <= weight < LARGEST_TOTAL for weight in features.values()):
        raise InputError("a feature has a weight that is negative, too large or no number")
    if sum(features.values()) >= LARGEST_TOTAL:
        raise InputError(f"the weights add up to more than {LARGEST_TOTAL}")


def _listed(name: str, value: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(value, str):
        raise TypeError(f"{name} is {value!r}, expected a list of texts")
    return tuple(value)


def _faults(recipe: Recipe) -> Iterator[tuple[str, Iterable[Any]]]:
    """Yield the faults of a recipe, each with the expected values.

    Only the first fault counts, because later checks rely on earlier ones.
    """
    grams, weights = recipe.grams, recipe.weights
    if not isinstance(recipe.name, str) or not _NAME.fullmatch(recipe.name):
        expected = "up to 64 lower-case letters, digits, dots, dashes, underscores"
        yield "its name is unusable", [expected]
    yield from _unless_among("bits", recipe.bits, WIDTHS)
    yield from _unless_among("tie", recipe.tie, (0, 1))
    for step in recipe.clean:
        yield from _unless_among("a step of clean", step, segmentation.STEPS)
    yield from _unless_among("segment", recipe.segment, segmentation.CUTS)
    sketched = ("shingles",) if recipe.segment == "shingles" else ("shingles", "features")
    yield from _unless_among("sketch", recipe.sketch, sketched)
    yield from _unless_among("k", recipe.k, range(recipe.bits + 1))
    if recipe.similarity is not None and not is_similarity(recipe.similarity):
        yield f"similarity is {_shown(recipe.similarity)}", ["a number above 0, at most 1"]
    yield from _unless_among("largest", recipe.largest, range(1, MOST_BYTES + 1))
    if isinstance(recipe.common, str) or not all(isinstance(t, str) for t in recipe.common):
        yield "common is no sequence of texts", ["texts"]
    yield from _unless_among("n", grams.n, range(1, _LARGEST_N + 1))
    yield from _unless_among("min_length", grams.min_length, range(1, _LARGEST_NUMBER))
    yield from _unless_among("minimum", grams.minimum, range(_LARGEST_NUMBER))
    if isinstance(grams.stop_words, str) or not all(isinstance(w, str) for w in grams.stop_words):
        yield "stop_words is no sequence of texts", ["texts"]
    yield from _unless_among("keep_empty", grams.keep_empty, (False, True))
    yield from _unless_among("weights.by", weights.by, DAMPING)
    yield from _unless_among("cap", weights.cap, range(_LARGEST_NUMBER))
    if not isinstance(weights.idf, IdfTable) and weights.idf not in (None, "jieba"):
        yield f"idf is {_shown(weights.idf)}", ["jieba", "an idf table"]
    tagged = recipe.segment == "jieba-tags"
    if tagged and grams.n > 1:
        yield "grams of tagged segments", ["n = 1"]
    if recipe.segment == "shingles" and (grams.n > 1 or grams.stop_words or grams.min_length > 1):
        yield "grams of shingles", ["n = 1, min_length = 1 and no stop words"]
    if weights.tags and not tagged:
        yield "tags with segments that have none", ["jieba-tags"]
    if not all(isinstance(tag, str) and 0 <= w <= LARGEST_FACTOR for tag, w in weights.tags):
        expected = f"a number from 0 to {LARGEST_FACTOR} for each tag"
        yield f"tags is {_shown(dict(weights.tags))}", [expected]
    yield from _faults_of_hash(recipe, recipe.hash)


def _faults_of_hash(recipe: Recipe, choice: Hash) -> Iterator[tuple[str, Iterable[Any]]]:
    yield from _unless_among("hash.by", choice.by, hashing.PARAMETERS)
    if choice.by == "shingle" and recipe.segment != "shingles":
        # It hashes tokens, so features without any would all be alike.
        yield f"the hash shingle of {recipe.segment}", ["the segment shingles, or another hash"]
    names = hashing.PARAMETERS[choice.by]
    for parameter in dataclasses.fields(Hash)[1:]:
        name = parameter.name
        if getattr(choice, name) != parameter.default and name not in names:
            yield f"the hash {choice.by} has no parameter {name}", names or ["none"]
    yield from _unless_among("pad", choice.pad, range(_LARGEST_PAD + 1))
    yield from _unless_among("seed", choice.seed, range(1 << 32))
    yield from _unless_among("offset", choice.offset, [*range(0, 129 - recipe.bits, 8)])
    if choice.by == "mersenne" and recipe.bits != 32:
        yield f"mersenne with {recipe.bits} bits", ["32"]


def _unless_among(
    name: str, value: object, values: Collection[Any]
) -> Iterator[tuple[str, Iterable[Any]]]:
    """Yield a fault unless a value is one of some values, and of their type: True is no 1."""
    if type(value) is type(next(iter(values))) and value in values:
        return
    if isinstance(values, range):
        values = [f"a whole number from {values[0]} to {values[-1]}"]
    yield f"{name} is {_shown(value)}", values


def _shown(value: object) -> str:
    """Show the beginning of a value; Python refuses to print numbers of many digits."""
    try:
        shown = repr(value)
    except ValueError:
        return "a number of too many digits"
    return shown if len(shown) <= 100 else f"{shown[:99]}…"


def _cosine(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    product = math.fsum(first[shared] * second[shared] for shared in first.keys() & second.keys())
    scale = math.hypot(*first.values()) * math.hypot(*second.values())
    return min(product / scale, 1.0) if scale else 0.0
