"""Check what comes in, and make it ready to be stored, before a lock is taken.

That is nearly all of the work, and it needs no database: it may be done in another process.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import column
from fpdb.documents.catalog import TEXT_DIGEST_BYTES, Catalog, Keys, digest_of
from fpdb.documents.layout import CATALOGS
from fpdb.documents.verify import Texts, Verifier
from fpdb.documents.writing import Candidate
from fpdb.errors import InputError, NoSketchError, PlanError, RecipeError
from fpdb.fingerprint import Recipe
from fpdb.fingerprint.sketches import SKETCH_BYTES, has_sketch
from fpdb.models import Document, Key, require_whole
from fpdb.storage import pack
from fpdb.storage.columns import Column
from fpdb.storage.records import LARGEST_META
from fpdb.tables import Index, Plan
from fpdb.tables.bits import Fingerprints, to_array
from fpdb.tables.planner import first_look

# Documents of one transaction: with texts, and as ready fingerprints.
BATCH = 1000
LOAD = 1_000_000
_BATCH_CHARACTERS = 1 << 23
_MOST = (1 << 63) - 1
_LATEST = 253_402_300_799  # the last second of the year 9999


def _require_several(name: str, values: object) -> None:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InputError(
            f"found {values!r:.40}, expected several {name}", hint="give a list or an array"
        )


def _require_document(document: object) -> None:
    if not isinstance(document, Document):
        raise InputError(
            f"found {document!r:.40}, expected a document",
            hint="fpdb.Document(key, text) makes one",
        )


def take(documents: Iterator[Document]) -> list[Document]:
    """Take as many documents as one transaction adds."""
    batch: list[Document] = []
    room = _BATCH_CHARACTERS
    for document in documents:
        _require_document(document)
        batch.append(document)
        room -= len(document.text) if isinstance(document.text, str) else 0
        if len(batch) == BATCH or room < 0:
            break
    return batch


class Intake:
    """Knows what a database takes: keys of its kind, fingerprints of its width."""

    def __init__(self, index: Index, catalog: Catalog) -> None:
        self._index = index
        self._catalog = catalog
        self._bits = index.plan.bits

    def __reduce__(self) -> tuple[Any, ...]:
        return _intake, (self._index.plan, self._catalog.kind, self._catalog.sketched)

    def candidates(
        self, documents: Sequence[Document], recipe: Callable[[], Recipe]
    ) -> list[Candidate]:
        """Check documents and fingerprint their texts; the recipe is asked for if there are any."""
        # What is checked quickly comes first: a bad document shouldn't cost its batch twice.
        metas = list(map(self._checked_meta, documents))
        texts = [d.text for d in documents if d.fingerprint is None and d.text is not None]
        batch = recipe().batch(texts, sketches=self._catalog.sketched) if texts else None
        sketches = sketch_bytes(batch.sketches) if batch else iter(())
        numbers = iter(self._index.numbers(batch.fingerprints) if batch else [])
        shorts = iter(batch.short.tolist() if batch else [])
        found: list[Candidate] = []
        for document, meta in zip(documents, metas, strict=True):
            number: int | None = None
            sketch = self._catalog.no_sketch
            if document.fingerprint is None and document.text is not None:
                number, short = next(numbers), next(shorts)
                number = None if short else number
                sketch = next(sketches, None)
            else:
                if document.fingerprint is not None:
                    number = self.number(document.fingerprint)
                if document.sketch is not None and self._catalog.sketched:
                    sketch = _checked_sketch(document)
            if document.text is None:
                digest, characters = document.digest or b"", document.characters
            else:
                digest, characters = digest_of(document.text), len(document.text)
            rest = (digest, meta, characters, sketch, document.added)
            found.append(Candidate(document.key, number, *rest))
        return found

    def _checked_meta(self, document: Document) -> bytes:
        _require_document(document)
        self._catalog.check_key(document.key)
        _check_stored(document)
        if document.fingerprint is None and document.text is None and document.digest is None:
            raise InputError(
                f"the document {document.key!r} has neither a text nor a fingerprint",
                hint="give one of them; an empty text is a text",
            )
        return b"" if document.meta is None else pack(document.meta, "metadata", LARGEST_META)

    def check_query(self, k: int | None, limit: int | None) -> None:
        """Refuse a k that the plan can't serve, and a limit that leaves nothing."""
        require_whole("k", k)
        require_whole("limit", limit, 1)
        if k is not None:
            self._index.routes(k)

    def look(
        self,
        k: int | None,
        limit: int | None,
        usual: int,
        min_jaccard: float | None,
        *,
        texts: Texts | None = None,
        recipe: Callable[[], Recipe] | None = None,
    ) -> tuple[int, Verifier | None]:
        """Check a question; give the k of its first look, and how its matches are verified."""
        if min_jaccard is None:
            if texts is not None:
                raise InputError(
                    "found texts without min_jaccard", hint="min_jaccard=0.8 says how similar"
                )
            self.check_query(k, limit)
            return usual if k is None else k, None
        number = isinstance(min_jaccard, int | float) and not isinstance(min_jaccard, bool)
        if not number or not 0 < min_jaccard <= 1:
            raise InputError(
                f"found min_jaccard={min_jaccard!r}, expected a number over 0, at most 1",
                hint="0.8 is what near-duplicates usually have",
            )
        if texts is None and not self._catalog.sketched:
            raise NoSketchError(
                "the database keeps no sketches, by which matches are verified",
                hint="ingest into one that is created with sketch minhash, "
                "or give the texts, to compare them exactly",
            )
        wanted = first_look(self._bits, usual, min_jaccard) if k is None else k
        try:
            self.check_query(wanted, limit)
        except PlanError as error:
            if k is not None:
                raise
            raise PlanError(
                f"to find what has a Jaccard similarity of {min_jaccard}, "
                f"the first look is at k={wanted}: {error}",
                hint="give a smaller k, or compact into tables that are chosen for sketches",
            ) from None
        return wanted, Verifier(self._catalog, min_jaccard, texts, recipe)

    def sketches(self, sketches: Any, count: int) -> NDArray[np.uint8]:
        """Take the sketches of so many questions."""
        if (
            not isinstance(sketches, np.ndarray)
            or sketches.dtype != np.uint8
            or sketches.shape != (count, SKETCH_BYTES)
        ):
            shape = getattr(sketches, "shape", type(sketches).__name__)
            raise InputError(
                f"found sketches {shape}, expected an array uint8[{count}, {SKETCH_BYTES}]",
                hint="recipe.batch(texts, sketches=True) gives fingerprints and sketches",
            )
        return sketches

    def number(self, fingerprint: Any) -> int:
        """Take a fingerprint as a number."""
        try:
            number = operator.index(fingerprint)
        except TypeError:
            raise InputError(
                f"found the fingerprint {fingerprint!r}, expected a whole number",
                hint="fpdb.recipe(name).fingerprint(text) gives one",
            ) from None
        if not 0 <= number < 1 << self._bits:
            raise InputError(
                f"found the fingerprint {number:#x}, expected {self._bits} bits",
                hint="fingerprints of another width need a database of their own",
            )
        return number

    def keys(self, keys: Iterable[Key]) -> Keys:
        """Take keys as a column of numbers, or as a list of texts."""
        integer = self._catalog.kind == "integer"
        _require_several("keys", keys)
        keys = column(keys, "keys")
        if isinstance(keys, np.ndarray):
            numbers = integer and keys.ndim == 1 and keys.dtype.kind in "iu"
            if numbers and (keys.dtype.kind == "u" or not (keys < 0).any()):
                return keys.astype(np.uint64, copy=False)
            keys = keys.tolist()
        names: list[Any] = list(keys)
        for name in names:
            self._catalog.check_key(name)
        return np.array(names, np.uint64) if integer else names

    def ids(self, ids: Iterable[int]) -> Column:
        """Take the ids of documents."""
        ids = column(ids, "ids")
        if isinstance(ids, np.ndarray) and ids.dtype == np.uint64 and ids.ndim == 1:
            return ids
        numbers = list(ids)
        if not all(isinstance(n, int | np.integer) and 0 <= n < 1 << 64 for n in numbers):
            raise InputError(
                "found something that is no id, expected whole numbers from 0 to 2**64 - 1",
                hint="query_fingerprints gives ids, and so does every match",
            )
        return np.array(numbers, np.uint64)

    def array(self, fingerprints: Any) -> Fingerprints:
        """Take fingerprints as an array of the database's own shape."""
        fingerprints = column(fingerprints, "fingerprints")
        if not isinstance(fingerprints, np.ndarray):
            _require_several("fingerprints", fingerprints)
            return to_array(map(self.number, fingerprints), self._bits)
        dimensions, expected = (2, "uint64[n, 2]") if self._bits == 128 else (1, "uint64[n]")
        if fingerprints.ndim != dimensions or fingerprints.dtype != np.uint64:
            raise InputError(
                f"found an array {fingerprints.dtype}{list(fingerprints.shape)}, "
                f"expected {expected}",
                hint="array.astype(numpy.uint64) makes one of other whole numbers, "
                "and recipe.fingerprint_many gives one",
            )
        if self._bits == 32 and len(fingerprints):
            self.number(int(fingerprints.max()))
        return fingerprints


def _intake(plan: Plan, kind: str, sketched: bool) -> Intake:  # noqa: FBT001 - by pickle
    index = Index(plan)
    return Intake(index, CATALOGS[kind](index, sketched=sketched))


def _check_stored(document: Document) -> None:
    """Check what only a document has that was stored before."""
    digest, characters, added = document.digest, document.characters, document.added
    if digest is None and added is None and type(characters) is int and characters == 0:
        return
    sound = digest is None or (isinstance(digest, bytes) and len(digest) == TEXT_DIGEST_BYTES)
    for name, good, expected in (
        ("digest", sound, f"{TEXT_DIGEST_BYTES} bytes"),
        ("characters", _is_whole(characters, _MOST), "a whole number from 0"),
        ("characters", not characters or digest or document.text is not None, "a digest as well"),
        ("added", added is None or _is_whole(added, _LATEST), "seconds since 1970, whole"),
    ):
        if not good:
            raise InputError(
                f"the document {document.key!r:.60} has {name}={getattr(document, name)!r:.40}, "
                f"expected {expected}",
                hint=f"leave {name} out, or give it as a stored document has it",
            )


def _is_whole(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _checked_sketch(document: Document) -> bytes:
    if not isinstance(document.sketch, bytes) or len(document.sketch) != SKETCH_BYTES:
        raise InputError(
            f"the document {document.key!r} has a sketch that isn't of {SKETCH_BYTES} bytes",
            hint="recipe.sketch(text) makes one",
        )
    return document.sketch


def sketch_bytes(sketches: NDArray[np.uint8] | None) -> Iterator[bytes]:
    """Give sketches as they are stored: no bytes where there is none."""
    if sketches is not None:
        for row, there in zip(sketches, has_sketch(sketches).tolist(), strict=True):
            yield row.tobytes() if there else b""


@dataclass(frozen=True)
class Prepared:
    """Documents that are ready to be stored: checked, and with fingerprints instead of texts.

    `fits` says to which databases they fit: the recipe's id, the kind of keys, and the kind of
    sketches if there are any.
    """

    fits: tuple[str, ...]
    _candidates: tuple[Any, ...] = field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self._candidates)

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self._candidates)


class Preparer:
    """Prepares documents for one database, without touching it.

    It can be pickled, to prepare documents in other processes. If the recipe has a secret, so has
    the pickle.
    """

    def __init__(
        self,
        prepare: Callable[[Sequence[Document], Callable[[], Recipe]], list[Any]],
        recipe: Recipe | RecipeError,
        fits: tuple[str, ...],
    ) -> None:
        self._prepare = prepare
        self._fits = fits
        self._recipe = recipe

    def __call__(self, documents: Sequence[Document]) -> Prepared:
        """Check documents and fingerprint their texts; a bad one is an `InputError`."""
        return Prepared(self._fits, tuple(self._prepare(documents, lambda: self.recipe)))

    def sift(self, documents: Sequence[Document]) -> tuple[Prepared, list[tuple[int, InputError]]]:
        """Prepare what can be stored; of the rest, give the places and what is wrong there."""
        candidates, bad = self._sift(documents, 0)
        return Prepared(self._fits, tuple(candidates)), bad

    def _sift(
        self, documents: Sequence[Document], first: int
    ) -> tuple[list[Candidate], list[tuple[int, InputError]]]:
        try:
            return self._prepare(documents, lambda: self.recipe), []
        except InputError as error:
            if len(documents) == 1:
                return [], [(first, error)]
        half = len(documents) // 2
        good, bad = self._sift(documents[:half], first)
        more, worse = self._sift(documents[half:], first + half)
        return good + more, bad + worse

    def with_largest(self, largest: int) -> "Preparer":
        """Return a preparer that also takes texts of up to `largest` bytes."""
        recipe = self._recipe
        if isinstance(recipe, Recipe) and recipe.largest < largest:
            recipe = recipe.replace(largest=largest)
        return Preparer(self._prepare, recipe, self._fits)

    @property
    def recipe(self) -> Recipe:
        """The recipe of the database; a `RecipeError` if its secret wasn't given."""
        if isinstance(self._recipe, RecipeError):
            raise self._recipe
        return self._recipe
