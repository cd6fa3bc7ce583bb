"""Features and their weights: grams of segments, damping, idf, and parts of speech."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from fpdb import kernels
from fpdb.errors import InputError, RecipeError
from fpdb.fingerprint.hashing import expecting, read_bounded, utf8
from fpdb.scratch import draft_file

# The weights of a text add up to less, so that their sums are exact (see stages.UNITS).
LARGEST_TOTAL = 1 << 40
LARGEST_FACTOR = 1 << 19
_LARGEST_FILE = 1 << 24
_MOST_VALUES = 1 << 19

DAMPING: dict[str, Callable[[float], float]] = {
    "count": lambda mass: mass,
    "binary": lambda _mass: 1.0,
    "log": lambda mass: 1 + math.log(mass) if mass > 1 else mass,
    "sqrt": math.sqrt,
}


@dataclass(frozen=True, kw_only=True)
class Grams:
    """Which segments make a feature, and how many features a text needs.

    `n` segments in a row make a feature; a text with fewer is one feature. Segments in
    `stop_words`, or with fewer than `min_length` characters, are dropped first. A text with fewer
    than `minimum` distinct features is short. `keep_empty` gives an empty text one empty feature.
    """

    n: int = 1
    stop_words: tuple[str, ...] = ()
    min_length: int = 1
    minimum: int = 1
    keep_empty: bool = False

    @cached_property
    def keeps_all(self) -> bool:
        """Whether no segment is ever dropped, and an empty text has no feature."""
        return not self.stop_words and self.min_length <= 1 and not self.keep_empty

    @cached_property
    def _stopped(self) -> frozenset[str]:
        return frozenset(self.stop_words)

    def keeps(self, segment: str) -> bool:
        """Return whether a segment may become part of a feature."""
        return len(segment) >= self.min_length and segment not in self._stopped

    def features(self, segments: Sequence[str]) -> Sequence[str]:
        """Return the features in their order; characters in a string join without a space."""
        if self.stop_words or self.min_length > 1:
            chosen = list(filter(self.keeps, segments))
            segments = "".join(chosen) if isinstance(segments, str) else chosen
        if not segments:
            return [""] if self.keep_empty else []
        count = max(len(segments) - self.n + 1, 1)
        if self.n == 1:
            return segments
        if isinstance(segments, str):
            return [segments[start : start + self.n] for start in range(count)]
        return [" ".join(segments[start : start + self.n]) for start in range(count)]


@dataclass(frozen=True)
class IdfTable:
    """Inverse document frequencies of features; `missing` is that of any other feature."""

    values: Mapping[str, float]
    missing: float

    def __post_init__(self) -> None:
        numbers = [*self.values.values(), self.missing]
        if len(numbers) > _MOST_VALUES or not all(0 <= n <= LARGEST_FACTOR for n in numbers):
            raise RecipeError(
                f"an idf table of {len(numbers):,} values, "
                f"expected at most {_MOST_VALUES:,} from 0 to {LARGEST_FACTOR:,}",
                hint="leave rare features out: IdfTable.from_documents(…, at_least=5)",
            )
        values = {feature: float(value) for feature, value in self.values.items()}
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "missing", float(self.missing))

    def __hash__(self) -> int:
        return hash(self.id)

    @classmethod
    def from_documents(cls, documents: Iterable[Iterable[str]], at_least: int = 2) -> "IdfTable":
        """Count in how many documents each feature occurs; drop those in fewer than `at_least`.

        A feature in d of n documents gets ln((n + 1) / (d + 1)), a dropped one the value of a
        feature in one document.
        """
        total = 0
        frequency: Counter[str] = Counter()
        for features in documents:
            total += 1
            frequency.update(set(features))
        if not total:
            raise InputError("no documents, expected at least one to compute an idf table")
        values = {
            feature: round(math.log((total + 1) / (count + 1)), 6)
            for feature, count in frequency.items()
            if count >= at_least
        }
        return cls(values, round(math.log((total + 1) / 2), 6))

    @classmethod
    def from_file(cls, path: Path) -> "IdfTable":
        """Read a table as `to_file` writes it."""
        hint = "IdfTable.from_documents makes such a table, and to_file writes it"
        with expecting(f"the idf table can't be read: {path}", hint):
            text = read_bounded(path, _LARGEST_FILE)[0].decode("utf-8")
            first, *lines = text.removesuffix("\n").split("\n")
            if len(lines) >= _MOST_VALUES:
                raise ValueError(f"has {len(lines):,} values, expected fewer than {_MOST_VALUES:,}")
            values: dict[str, float] = {}
            number = 1
            try:
                missing = float(first)
                for number, line in enumerate(lines, 2):  # noqa: B007 - an error names it
                    feature, _, value = line.rpartition("\t")
                    values[json.loads(f'"{feature}"')] = float(value)
            except ValueError:  # whose message may show the content of another file
                what = f"line {number} isn't a feature in JSON without quotes, a tab and a number"
                raise ValueError(what) from None
        return cls(values, missing)

    def to_file(self, path: Path) -> None:
        """Write a line for missing features, and one for each feature: JSON, a tab, the value."""
        rows = [("", self.missing), *sorted(self.values.items())]
        lines = (f"{json.dumps(feature)[1:-1]}\t{value!r}\n" for feature, value in rows)
        with draft_file(path) as file:
            file.writelines(line.encode() for line in lines)

    @cached_property
    def id(self) -> str:
        """A digest of all values."""
        digest = hashlib.blake2b(repr(self.missing).encode(), digest_size=8)
        for feature, value in sorted(self.values.items()):
            digest.update(f"{feature}\t{value!r}\n".encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class Weights:
    """How much a feature counts.

    `by` damps the number of occurrences: count, binary, log (1 + ln n) or sqrt. At most `cap`
    occurrences count (0: all). `idf` multiplies by a table: an `IdfTable`, or "jieba" for the one
    that comes with jieba. `tags` gives parts of speech a weight other than 1; 0 drops them.
    """

    by: str = "count"
    cap: int = 0
    idf: IdfTable | str | None = None
    tags: tuple[tuple[str, float], ...] = ()

    def idf_table(self) -> IdfTable | None:
        """Return the table, that of jieba if it is named."""
        return _jieba_table() if isinstance(self.idf, str) else self.idf

    def masses(self, tagged: Iterable[tuple[str, str]]) -> dict[str, float]:
        """Add up the tag weights of each word's occurrences, at most `cap` of them."""
        weights = dict(self.tags)
        seen: Counter[str] = Counter()
        masses: dict[str, float] = {}
        for word, tag in tagged:
            seen[word] += 1
            weight = weights.get(tag, 1.0)
            if weight and not (self.cap and seen[word] > self.cap):
                masses[word] = masses.get(word, 0.0) + weight
        return masses


@cache
def _jieba_table() -> IdfTable:
    import importlib.resources  # few recipes need it

    table = importlib.resources.files("jieba").joinpath("analyse/idf.txt").read_text("utf-8")
    rows = (line.split(" ") for line in table.splitlines())
    values = {word: float(value) for word, value in rows}
    return IdfTable(values, sorted(values.values())[len(values) // 2])


def factor_table(table: IdfTable | None) -> "kernels.text.FactorTable | None":
    """Return a table of inverse document frequencies for kernels."""
    if table is None:
        return None
    features = list(map(utf8, table.values))
    ends = np.cumsum(np.fromiter(map(len, features), np.int64, len(features)))
    values = np.fromiter(table.values.values(), np.float64, len(features))
    return kernels.text.FactorTable(b"".join(features), ends, values, table.missing)
