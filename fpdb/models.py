"""The immutable values that fpdb takes and returns."""

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fpdb.errors import InputError
from fpdb.markup import element

Key = str | int
# The texts that documents were fingerprinted from, by their keys; None is one that isn't known.
TextsByKey = Callable[[Any], str | None] | Mapping[Any, str | None]

# The most bytes of UTF-8 of a text, a line or a record, unless the caller allows more: no text of
# this size takes more than two seconds or 256 MiB.
LARGEST_TEXT = 1 << 21
DIGEST_BYTES = 16
SKETCH_BYTES = 128
PASSAGE_BYTES = 5  # of the number of a passage
MOST_BYTES = 1 << 40
_MOST = (1 << 63) - 1
# The features of a database: that it keeps sketches, the numbers of passages, and groups.
MINHASH, PASSAGES, GROUPS = "minhash", "passages", "groups"
# The first field of the first line of the portable form; no other tool's records have it.
PORTABLE = "fpdb_portable"
# The last second of the year 9999, after which a time has no usual written form.
LATEST = 253_402_300_799
_MOST_SHOWN = 20
# Hardly any text but HTML ends as many elements in as many characters.
_ENDS, _BEGINNING = 3, 2000
# The style of cells in notebooks.
_LEFT = "text-align:left"


def now() -> int:
    """Return the time in seconds since 1970; one that a wrong clock shows is clamped."""
    return min(max(int(time.time()), 0), LATEST)


def require_whole(name: str, value: object, least: int | None = None) -> int | None:
    """Return an argument as an int, or None.

    Raise InputError if it is neither None nor a whole number, or if it is too small.
    """
    if value is None:
        return None
    number = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None
    if number is None or (least is not None and number < least):
        raise InputError(
            f"found {name} {value!r}, expected a whole number"
            + ("" if least is None else f", at least {least}"),
            hint=f"leave {name} out for the default",
        )
    return number


def require_share(name: str, value: object) -> None:
    """Raise InputError if an argument is neither None nor a share."""
    if value is not None and not (isinstance(value, int | float) and 0 <= value <= 1):
        raise InputError(
            f"found {name} {value!r}, expected a share from 0 to 1",
            hint=f"leave {name} out for the default",
        )


def require_choice(name: str, value: object, choices: Collection[object]) -> None:
    """Raise InputError unless an argument is one of some values."""
    if value not in list(choices):  # a value may be unhashable
        raise InputError(
            f"found {name} {value!r}, expected one of {', '.join(map(str, choices))}",
            hint=f"leave {name} out for the default",
        )


def is_similarity(value: object) -> bool:
    """Return whether a value is a Jaccard similarity above 0."""
    return isinstance(value, int | float) and 0 < value <= 1


def require_similarity(value: float | None, k: int | None = None) -> float | None:
    """Return an argument as a float, or None: of another precision, the number that it shows.

    Raise InputError if it is neither None nor a Jaccard similarity above 0. If there is a k, it
    must be None.
    """
    if value is not None and k is not None:
        raise InputError(
            f"found k {k} and similarity {value}, expected one of them",
            hint="k compares fingerprints, similarity compares texts",
        )
    if value is None:
        return None
    number = 0.0
    if isinstance(value, Real) and 0 < value <= 1:  # a larger number may be no float
        number = float(str(value)) if isinstance(value, np.floating) else float(value)
    if not is_similarity(number):
        raise InputError(
            f"found similarity {value!r}, expected a number above 0, at most 1",
            hint="0.8 is what near-duplicates usually have",
        )
    return number


def equal_percent(share: float) -> float:
    """Return a share in percent with two decimals; a half is rounded up, as Java does."""
    return math.floor(10_000 * share + 0.5) / 100


class _Shown:
    """Shows the fields of a dataclass in a notebook, each in a row of a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        rows = [
            element("tr", element("th", field.name.replace("_", " "), style=_LEFT), _cell(value))
            for field in fields(cast("Any", self))
            for value in [_readable(getattr(self, field.name))]
        ]
        return element("table", *rows)


def _cell(*content: str, style: str = "") -> str:
    return element("td", element("bdi", *content), style=f"{_LEFT}{style}")


def _readable(value: object) -> str:
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        more = [f"and {len(value) - _MOST_SHOWN:,} more"] if len(value) > _MOST_SHOWN else []
        return ", ".join([*map(_readable, value[:_MOST_SHOWN]), *more]) or "none"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if type(value) is int else str(value)


@dataclass(frozen=True, eq=False)
class Batch:
    """The fingerprints of many texts, and marks of the texts that are too short for one.

    `fingerprints` is uint64[n], or uint64[n, 2] at 128 bits, high word first; `features` counts
    the distinct features of each text; `short` marks the texts with too few of them.
    `sketches` is uint8[n, 128] if they were requested; a text without a shingle has zeros.
    `passages` has the numbers of each text if they were requested, sorted, 5 bytes each, the
    highest byte first. With sketches, `shingles` counts the distinct shingles that each is of, or
    the features, as the recipe says.
    """

    fingerprints: NDArray[np.uint64]
    features: NDArray[np.int64]
    short: NDArray[np.bool_]
    sketches: NDArray[np.uint8] | None = None
    passages: list[bytes] | None = None
    shingles: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.features)


@dataclass(frozen=True)
class Comparison(_Shown):
    """The similarity of two texts under a recipe, estimated and exact.

    `distance` is the Hamming distance, `bits_equal` 1 - distance/bits. `angle` (in degrees) and
    `cosine_estimate` follow from the distance; `cosine` and `jaccard` are exact, from the
    features themselves; `value_ratio` divides the smaller fingerprint by the larger.
    `shingle_jaccard` is the exact Jaccard similarity of the shingles, `containment` the share of
    the smaller set of shingles that is in the other, `sketch_jaccard` the estimate of the
    similarity by the sketches, and `sketch_error` its standard error; all are None if a text has no
    shingle.
    `short` is True if a text has too few features for a reliable fingerprint, `equal` if both have
    the same features.
    """

    distance: int
    bits_equal: float
    angle: float
    cosine_estimate: float
    cosine: float
    jaccard: float
    value_ratio: float
    shingle_jaccard: float | None
    containment: float | None
    sketch_jaccard: float | None
    sketch_error: float | None
    short: bool
    equal: bool

    @property
    def percent(self) -> float:
        """`bits_equal` in percent with two decimals; a half is rounded up, as Java does."""
        return equal_percent(self.bits_equal)


class Passage(NamedTuple):
    """A passage that two texts share: its number of words, and where it is in each of them.

    A character of a script without spaces counts as a word. Places are counted in characters.
    """

    words: int
    start: int
    end: int
    other_start: int
    other_end: int


@dataclass(frozen=True)
class Overlap:
    """What two texts share, and how much of each is in the other.

    `share` is the share of the distinct shingles of the first text that the other one has, or of
    its features if the recipe's similarity is of these, and `other_share` that of the other's; it
    is None for a text without any. `passages` are places in `text` and `other_text`: the texts as
    they were given, or what the recipe's cleaning leaves of them if it drops or changes words.
    """

    text: str
    other_text: str
    share: float | None
    other_share: float | None
    passages: tuple[Passage, ...]

    def _repr_html_(self) -> str:
        """Show the texts side by side in a notebook, with what only one of them has marked."""
        sides = (
            (self.text, [(part.start, part.end) for part in self.passages]),
            (self.other_text, sorted((part.other_start, part.other_end) for part in self.passages)),
        )
        style = ";vertical-align:top;white-space:pre-wrap;width:50%"
        cells = [_cell(*_marked(*side), style=style) for side in sides]
        return element("table", element("tr", *cells))


def _marked(text: str, shared: Iterable[tuple[int, int]]) -> Iterator[str]:
    """Yield the pieces of a text, of which all but the passages in common are marked."""
    done = 0
    for start, end in [*shared, (len(text), len(text))]:
        unshared = text[done:start]
        # Punctuation alone isn't a difference.
        yield element("mark", unshared) if any(map(str.isalnum, unshared)) else unshared
        yield text[max(start, done) : end]
        done = max(done, end)


class Voter(NamedTuple):
    """A feature, its weight in multiples of 1/4096, and the hash with which it votes."""

    feature: str
    weight: float
    hash: int


@dataclass(frozen=True)
class Explanation:
    """How the features of a text vote on each bit of its fingerprint.

    `votes[i]` belongs to bit i, whose value is 2**i: the weight of the features whose hash has it
    set, minus that of the others. Its sign is the bit; at 0 the recipe's `tie` decides.
    """

    fingerprint: int
    bits: int
    features: tuple[Voter, ...]
    votes: tuple[float, ...]
    short: bool

    @property
    def weakest(self) -> tuple[int, ...]:
        """The numbers of the bits, those first that the fewest votes would change."""
        return tuple(sorted(range(self.bits), key=lambda bit: abs(self.votes[bit])))


@dataclass(frozen=True, slots=True)
class HtmlText:
    """The text and the title of an HTML page, as `html_text` returns them.

    `encoding` is the one by which bytes were decoded, None for a string; `replaced` is True if
    bytes that are invalid in it were replaced by U+FFFD.
    """

    text: str
    title: str
    encoding: str | None
    replaced: bool


@dataclass(frozen=True, slots=True)
class Document:
    """A document: to be added, with its text or a ready fingerprint, or as it is stored.

    A stored one has an `id`, the time when it was `added` (in seconds since 1970), and no text. Its
    fingerprint is None if its text was too short, and its `sketch` is None if it has none. Of the
    text, the `digest`, which is equal for equal texts, and the number of `characters` are stored.
    `passages` are the packed numbers of its passages, in a database that keeps them; `group` is the
    key of the keeper of its group, in one that keeps groups. All fields but the id and the group
    are kept when it is added to another database.
    """

    key: Key
    text: str | None = None
    meta: Any = None
    fingerprint: int | None = None
    id: int | None = None
    added: int | None = None
    short: bool = False
    sketch: bytes | None = None
    digest: bytes | None = None
    characters: int = 0
    passages: bytes | None = None
    group: Key | None = None

    @property
    def has_tags(self) -> bool:
        """Whether the text seems to be HTML: begins with a tag, or soon ends several elements."""
        return isinstance(self.text, str) and has_tags(self.text)


def text_of(document: Document) -> str:
    """Return the text of a document; raise InputError if it has none, or isn't a document."""
    if not isinstance(document, Document):
        raise InputError(
            f"found {document!r:.40}, expected a document",
            hint="fpdb.Document(key, text) makes one",
        )
    if document.text is None:
        raise InputError(f"the document {document.key!r} has no text")
    return document.text


class Field(NamedTuple):
    """A field that is stored of a document, besides its key, its fingerprint and its time.

    Its `form` is that in JSON. Bytes have this `size`, or each of `several` in a row has it. A
    database without the `feature` doesn't keep it. It is `shown` unless only programs read it.
    """

    name: str
    form: Literal["number", "value", "hex", "base64"]
    size: int = 0
    several: bool = False
    feature: str = ""
    shown: bool = False

    @property
    def expected(self) -> str:
        """Describe a value."""
        if self.form == "number":
            return "a whole number from 0"
        return f"some {self.size} bytes each" if self.several else f"{self.size} bytes"

    def fits(self, value: object) -> bool:
        """Return whether a document may have a value, or None for none, in this field."""
        if self.form == "number":
            return type(value) is int and 0 <= value <= _MOST
        if type(value) is not bytes:
            return value is None
        return not len(value) % self.size if self.several else len(value) == self.size


# All of them, in the order of the portable form. The records of a database end in the last ones,
# from `passages` on, and in the keeper: a further one comes after that in `Stored`, and at the end
# here and in `Document`.
FIELDS = (
    Field("digest", "hex", DIGEST_BYTES),
    Field("characters", "number", shown=True),
    Field("meta", "value", shown=True),
    Field("sketch", "base64", SKETCH_BYTES, feature=MINHASH),
    Field("passages", "base64", PASSAGE_BYTES, several=True, feature=PASSAGES),
)
# The id of the keeper of a document's group, in a record only: it is another in another database.
KEEPER = Field("keeper", "hex", 8, feature=GROUPS)
# Those that a document is stored with as it has them.
CARRIED = tuple(field for field in FIELDS if field.form != "value")
SHOWN = (
    *("key", "id", "fingerprint", "short", "added"),
    *(field.name for field in FIELDS if field.shown),
)


def has_tags(text: str) -> bool:
    """Return whether a text seems to be HTML: begins with a tag, or soon ends several elements."""
    beginning = text[:_BEGINNING]
    if "<" not in beginning:  # as in most texts
        return False
    if beginning.lstrip("\ufeff \t\r\n").startswith("<"):
        return "</" in text
    # One character is counted much faster than two.
    return beginning.count("<") >= _ENDS and beginning.count("</") >= _ENDS


class Match(NamedTuple):
    """A stored document near a query.

    `distance` is that of the fingerprints, `similarity` the Jaccard similarity of the texts'
    shingles. It is `exact` if both texts were at hand or are equal, and estimated by their sketches
    otherwise; both are None if the question was one of bits. `group` is the key of the keeper of
    its group, in an answer of a database that keeps groups.
    """

    key: Key
    id: int
    distance: int
    similarity: float | None
    meta: Any
    exact: bool | None = None
    group: Key | None = None


class Matches(list[Match]):
    """The matches of one query, sorted by similarity, if they have one, then by distance, then key.

    `complete` is False when a budget ended the search before all candidates were compared.
    """

    complete: bool = True


class PartMatch(NamedTuple):
    """A stored document with passages of a text, as far as their numbers show.

    `words` is about the number of words of the text, or characters of a script without spaces,
    that it has, `share` their share of the text, and `other_share` the share of the document that
    the text has.
    """

    key: Key
    id: int
    words: int
    share: float
    other_share: float
    meta: Any


class PartMatches(list[PartMatch]):
    """The documents with passages of a text: the first with most of it, others with what is left.

    `boilerplate` is the number of words in passages that more than a thousand documents have: no
    document is found by these. `complete` is False if there are such words, or if there were more
    documents than are compared.
    """

    complete: bool = True
    boilerplate: int = 0


class PartPair(NamedTuple):
    """Two stored documents with passages in common, as far as their numbers show.

    `key` is the one with the smaller id, and `share` the share of it that the other one has;
    `words` is about the number of words, or characters of a script without spaces, in both.
    """

    key: Key
    other: Key
    words: int
    share: float
    other_share: float


class Asked(NamedTuple):
    """A record that the database was queried with, and what it matches.

    `name` is the record's key, or where it was read. `short` says that its text has too few
    features for a fingerprint, so that only texts of the same words match.
    """

    name: Key
    matches: Matches
    short: bool = False
    invalid_utf8: bool = False


class Pair(NamedTuple):
    """Two stored documents near each other; `key` is the one with the smaller id.

    `distance`, `similarity` and `exact` are what they are in a `Match`.
    """

    key: Key
    other: Key
    distance: int
    similarity: float | None = None
    exact: bool | None = None


class ExactPair(NamedTuple):
    """Two documents that were compared exactly; `key` is the one that came first.

    Of the `size` and `other_size` elements of their sets, `common` are equal. `similarity` is
    common / (size + other_size - common), or of a containment common / min(size, other_size).
    """

    key: Key
    other: Key
    similarity: float
    common: int
    size: int
    other_size: int


@dataclass(frozen=True, slots=True)
class Cluster(_Shown):
    """Documents that pairs connect: a representative and its duplicates."""

    representative: Key
    duplicates: tuple[Key, ...]

    @property
    def keys(self) -> tuple[Key, ...]:
        """All documents of the cluster, the representative first."""
        return (self.representative, *self.duplicates)


class Added(NamedTuple):
    """The outcome for one document.

    `status` is added, replaced, unchanged, duplicate (not stored) or short (stored, found by
    equal text only); `matches` are the documents that a duplicate resembles. If these aren't
    `complete`, a budget ended the search, and a document that was added may be a duplicate.
    `lost_meta` says that it replaced a document with metadata, and has none. `group` is the key of
    the keeper of its group, or of that of what a duplicate resembles, if the database has groups.
    """

    key: Key
    id: int | None
    status: str
    matches: Matches
    lost_meta: bool = False
    group: Key | None = None


class Group(NamedTuple):
    """A group of documents: its keeper, and the further members, the oldest first.

    Each member resembles the keeper. They are in the order of ids.
    """

    keeper: Key
    members: tuple[Key, ...]


@dataclass(frozen=True)
class TableStats:
    """One table, or all bands: the bits of a prefix or of a band, and the number of its pages."""

    name: str
    prefix: int
    pages: int


@dataclass(frozen=True)
class Snapshots:
    """The snapshots that are open in all processes, without the one that counts them.

    `oldest_pid` is the process that holds the oldest, `behind` the number of transactions that were
    committed since it began: the pages that they replaced can't be reused yet.
    """

    open: int
    oldest_pid: int | None
    behind: int


@dataclass(frozen=True)
class Stats(_Shown):
    """The size and the settings of a database.

    `similarity` is what texts have that are near each other, and `sketches` the number of documents
    with a sketch; both are None in a database of bits. `groups` says whether it keeps groups, and
    `unfinished` has a line for each run of
    `dedupe` that hasn't added what it kept: when it began, and the command that finishes it.
    """

    path: str
    uuid: str
    created: int
    recipe: str
    recipe_id: str
    bits: int
    k: int
    keys: str
    plan: str
    capacity: int
    documents: int
    short: int
    bytes: int
    bytes_used: int
    tables: tuple[TableStats, ...]
    snapshots: Snapshots
    similarity: float | None = None
    sketches: int | None = None
    groups: bool = False
    unfinished: tuple[str, ...] = ()


class Problem(NamedTuple):
    """A fault that `check` found: where it is, and what is wrong."""

    where: str
    what: str


@dataclass(frozen=True)
class Repaired:
    """The result of a repair: the new database at `path`, and the number of its documents.

    `missing` is the number of further documents that the damaged one counted, None if its count is
    lost as well; `lost` has their keys as far as they are known, `problems` all the damage found.
    """

    path: Path
    documents: int
    missing: int | None
    lost: tuple[Key, ...]
    problems: tuple[Problem, ...]
