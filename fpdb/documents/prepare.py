"""Check what comes in, and make it ready to be stored, before a lock is taken.

That is nearly all of the work of adding, and threads can do it side by side.
"""

import contextlib
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Places, column, each, portions
from fpdb.documents.catalog import Catalog, KeyedRows, Keys
from fpdb.errors import InputError, RecipeError, TagsWarning
from fpdb.fingerprint import Recipe
from fpdb.models import (
    CARRIED,
    DIGEST_BYTES,
    LATEST,
    PASSAGES,
    Document,
    Key,
    has_tags,
    now,
)
from fpdb.storage import pack
from fpdb.storage.block import Block
from fpdb.storage.format import LARGEST_META, Header, Stored
from fpdb.tables import Index
from fpdb.tables.bits import Fingerprints, to_array, to_ints

# Documents of one transaction, while a caller waits for them and in files; ready fingerprints that
# are taken together.
BATCH = 1000
GATHERED = 1 << 15
LOAD = 1 << 20
_BATCH_CHARACTERS = 1 << 23
# Keys, metadata and sketches of one transaction.
TRANSACTION_BYTES = 1 << 23
# What follows from a text that isn't stored with a ready fingerprint.
OF_TEXT = "digest", "characters", "sketch", "passages"
_given = operator.attrgetter("added", *(field.name for field in CARRIED))
_NOTHING = _given(Document(""))


class Question(Stored):
    """A text that is looked up; most have no candidate, and so their digests are never made."""

    make_digest: Callable[[], bytes] = bytes

    @property
    def digest(self) -> bytes:
        return self.make_digest()


@dataclass(frozen=True, eq=False)
class Questions(Block):
    """Texts that are looked up, as columns without digests of texts with a sketch."""

    digest_of: Callable[[str], bytes] | None = None

    def row(self, place: int) -> Stored:
        question = Question(*super().row(place))
        digest = question[Stored._fields.index("digest")]
        if self.digest_of and not digest:
            question.make_digest = partial(self.digest_of, self.texts[place] or "")
        else:
            question.make_digest = partial(bytes, digest)
        return question


class Preparer:
    """Prepares documents for one database, without touching it; threads may share it."""

    def __init__(
        self,
        stored: Header,
        index: Index,
        catalog: Catalog,
        recipe: Recipe | None = None,
        *,
        sketched: bool = True,
    ) -> None:
        self.header = stored
        self._sketched = sketched and catalog.sketched
        self.given = recipe
        self.index = index
        self.catalog = catalog
        self._warned = False

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe of the database; a `RecipeError` if it has a secret that wasn't given."""
        return self.given or Recipe.from_dict(self.header["recipe"])

    def adapted(self, largest: int = 0, *, sketched: bool = True) -> "Preparer":
        """Return a preparer that takes texts of N bytes as well, and makes sketches if wanted."""
        recipe = self.given
        with contextlib.suppress(RecipeError):  # a secret that is missing matters to texts only
            if self.recipe.largest < largest:
                recipe = self.recipe.replace(largest=largest)
        return Preparer(self.header, self.index, self.catalog, recipe, sketched=sketched)

    def watched(self, documents: list[Document]) -> list[Document]:
        """Return documents as they are; warn of the first of all whose text has tags."""
        if not self._warned:
            for document in documents:
                text = document.text if isinstance(document, Document) else None
                if isinstance(text, str) and has_tags(text):
                    self._warned = True
                    warnings.warn(
                        f"the text of {document.key!r:.200} has tags, which count as words; of an "
                        "HTML page, take the text by fpdb.html_text, or send it to a server as "
                        "html",
                        TagsWarning,
                        stacklevel=3,
                    )
                    break
        return documents

    def sift(
        self, documents: Sequence[Document], *, keep_texts: bool = False
    ) -> tuple[Block, list[tuple[int, InputError]]]:
        """Prepare the good documents; return the places of the bad ones and what is wrong there."""
        try:
            return self.prepare(documents, keep_texts=keep_texts), []
        except InputError:
            good = [self.prepare([])]
            bad: list[tuple[int, InputError]] = []
        for place, document in enumerate(documents):
            try:
                good.append(self.prepare([document], keep_texts=keep_texts))
            except InputError as error:
                bad.append((place, error))
        return Block.joined(good), bad

    def prepare(self, documents: Sequence[Document], *, keep_texts: bool = False) -> Block:
        """Check documents and fingerprint their texts; a bad one is an `InputError`.

        With `keep_texts`, each has its text until it is stored, so that it is compared exactly.
        """
        # What is checked quickly comes first: a bad document shouldn't cost its batch twice.
        carrying = list(map(self._check, documents))
        ready = {
            place: document.fingerprint
            for place, document in enumerate(documents)
            if document.fingerprint is not None
        }
        keys = [document.key for document in documents]
        texts = [document.text for document in documents]
        block, _ = self.filled(keys, texts, [document.meta for document in documents], ready)
        if any(carrying):
            time = block.added[0]
            block.added[:] = [time if row.added is None else row.added for row in documents]
        rows = {}
        for place in compress(range(len(documents)), carrying):
            row = block.row(place)
            if documents[place].text is None:  # else a short one seems to have a digest
                row = row._replace(digest=b"")
            rows[place] = self._carried(documents[place], row)
        if keep_texts:
            made = [None if place in ready else text for place, text in enumerate(texts)]
            block = replace(block, texts=made)
        return block.with_rows(rows, self.index.plan.bits) if rows else block

    def packed(self, documents: Sequence[Document], *, keep_texts: bool = False) -> Block:
        """Prepare documents, and pack their records."""
        return self.catalog.packed(self.prepare(documents, keep_texts=keep_texts))

    def question(self, text: str, *, sketched: bool) -> Stored:
        """Return what `questions` does of one text, in half the time."""
        signed = self.recipe.batch([text], sketches=sketched)
        sketch, short = b"", bool(signed.short[0])
        if signed.sketches is not None and signed.sketches.any():
            sketch = signed.sketches.tobytes()
        [number] = to_ints(signed.fingerprints)
        question = Question(0, "", None if short else number, 0, sketch=sketch)
        if short or sketched:
            question.make_digest = partial(self.recipe.digest, text, short=short)
        return question

    def questions(self, texts: Sequence[str], *, sketched: bool) -> Block:
        """Fingerprint texts, and sketch them if asked to, as documents that are looked up."""
        key: Key = 0 if self.catalog.kind == "integer" else ""
        block = Questions.bare([key] * len(texts), self.index.plan.bits)
        self._sign(block, range(len(texts)), texts, sketched=sketched, stored=False)
        return replace(block, texts=texts, digest_of=self.recipe.digest) if sketched else block

    def filled(
        self,
        keys: Sequence[Key],
        texts: Sequence[str | None],
        metas: Sequence[Any],
        ready: Mapping[int, Any],
        hashed: Callable[[bytes], bytes] | None = None,
    ) -> tuple[Block, Places]:
        """Make documents of columns with good keys, and of ready fingerprints by their places.

        One that has neither a text nor a fingerprint is like a short text that equals no other. The
        digests are those of the recipe, unless they are `hashed` in another way. Also return how
        many shingles each text has; 0 where only bits are compared.
        """
        packed = [b"" if meta is None else pack(meta, "metadata", LARGEST_META) for meta in metas]
        bits = self.index.plan.bits
        block = Block.bare(keys, bits, packed)
        if ready:
            numbers = [as_number(number, bits) for number in ready.values()]
            block.fingerprints[list(ready)] = to_array(numbers, bits)
        places = [at for at, text in enumerate(texts) if text is not None and at not in ready]
        block.short[:] = [text is None and at not in ready for at, text in enumerate(texts)]
        counts = self._sign(block, places, [texts[place] for place in places], hashed=hashed)
        block.added[:] = now()
        block.characters[:] = [0 if text is None else len(text) for text in texts]
        return block, counts

    def _sign(
        self,
        block: Block,
        places: Sequence[int],
        texts: Sequence[Any],
        *,
        sketched: bool = True,
        stored: bool = True,
        hashed: Callable[[bytes], bytes] | None = None,
    ) -> Places:
        """Fill in what follows from some texts, at some places of a block; count their shingles.

        Texts that are looked up, and not stored, have a digest only where nothing else finds them:
        the short ones, and those that have no sketch to be compared.
        """
        counts = np.zeros(len(block), np.int64)
        if not texts:
            return counts
        sketched &= self._sketched or not stored
        passaged = stored and self.catalog.passaged
        signed = self.recipe.batch(texts, sketches=sketched, passages=passaged)
        signed.fingerprints[signed.short] = 0
        where = slice(None) if len(places) == len(block) else list(places)
        block.fingerprints[where], block.short[where] = signed.fingerprints, signed.short
        if signed.sketches is not None:
            block.sketches[where] = signed.sketches
        if signed.shingles is not None:
            counts[where] = signed.shingles
        if signed.passages is not None:
            passages = block.further[PASSAGES] = [b""] * len(block)
            for at, place in enumerate(places):
                passages[place] = b"" if signed.short[at] else signed.passages[at]
        short, other = signed.short, [hashed] if hashed else []
        if not stored:
            lost = short | (sketched & ~block.sketches[where].any(axis=1))
            wanted = lost.nonzero()[0].tolist()
            where = [places[at] for at in wanted]
            texts, short = [texts[at] for at in wanted], short[wanted]
        digests = self.recipe.digests(texts, short.tolist(), *other)
        block.digests[where] = np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)
        return counts

    def _carried(self, document: Document, stored: Stored) -> Stored:
        """Give a document that is about to be stored the fields that don't follow from its text."""
        known = OF_TEXT if stored.digest else ()
        names = (name for name in self.catalog.kept if not (name in known or getattr(stored, name)))
        values = ((name, getattr(document, name)) for name in names)
        # A digest of zeros comes back as none, but from a short text that equals no other.
        none = b"" if stored.fingerprint is None else bytes(DIGEST_BYTES)
        return stored._replace(**{name: value for name, value in values if value and value != none})

    def _check(self, document: Document) -> bool:
        """Check a document, and return whether it has fields as a stored one has them."""
        if not isinstance(document, Document):
            raise InputError(
                f"found {document!r:.40}, expected a document",
                hint="fpdb.Document(key, text) makes one",
            )
        self.catalog.check_key(document.key)
        try:
            carries = _given(document) != _NOTHING
        except ValueError:  # an array
            carries = True
        if carries:
            _check_stored(document)
        if document.fingerprint is None and document.text is None and document.digest is None:
            raise InputError(
                f"the document {document.key!r} has neither a text nor a fingerprint",
                hint="give one of them; an empty text is a text",
            )
        if document.fingerprint is not None and not isinstance(document.text, str | None):
            kind = type(document.text).__name__
            raise InputError(
                f"found {kind} for the text of {document.key!r:.60}, expected a text (str)",
                hint="leave the text out, or give the one that the fingerprint is of",
            )
        return carries


def take(documents: Iterator[Document], most: int = BATCH) -> Iterator[list[Document]]:
    """Yield as many documents at a time as are prepared together, at most N."""
    batch: list[Document] = []
    room = _BATCH_CHARACTERS
    for document in documents:
        batch.append(document)
        text = getattr(document, "text", None)  # what is no document is refused when it is prepared
        room -= len(text) if isinstance(text, str) else 0
        if len(batch) >= min(most, BATCH) or room < 0:
            yield batch
            batch, room = [], _BATCH_CHARACTERS
    if batch:
        yield batch


def transactions(blocks: Iterable[Block], most: int) -> Iterator[Block]:
    """Yield prepared documents as transactions: some blocks of a thousand, or fewer by bytes."""
    together: list[Block] = []
    size = count = 0
    for block in blocks:
        sizes = block.sizes
        for part in portions(sizes, TRANSACTION_BYTES):
            more = int(sizes[part].sum())
            if size + more > TRANSACTION_BYTES and together:
                yield Block.joined(together)
                together, size, count = [], 0, 0
            together.append(block[part])
            size, count = size + more, count + len(together[-1])
        if count + BATCH > most and together:
            yield Block.joined(together)
            together, size, count = [], 0, 0
    if together:
        yield Block.joined(together)


def as_number(value: Any, bits: int, name: str = "fingerprint") -> int:
    """Return a fingerprint as a number; raise InputError if it is none of this width."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(
            f"found the {name} {value!r}, expected a whole number",
            hint="a recipe makes one of a text",
        ) from None
    if not 0 <= number < 1 << bits:
        raise InputError(
            f"found the {name} {number:#x}, expected {bits} bits",
            hint="fingerprints of another width need a database of their own, e.g. of the recipe "
            "none-32 or none-128",
        )
    return number


def as_fingerprints(values: Any, bits: int, name: str = "fingerprint") -> Fingerprints:
    """Return fingerprints, or ids of 64 bits, as an array of the database's own shape."""
    values = column(values, f"{name}s")
    if not isinstance(values, np.ndarray):
        return to_array((as_number(value, bits, name) for value in values), bits)
    dimensions, expected = (2, "uint64[n, 2]") if bits == 128 else (1, "uint64[n]")
    if values.ndim != dimensions or values.dtype != np.uint64:
        raise InputError(
            f"found an array {values.dtype}{list(values.shape)}, expected {expected}",
            hint="array.astype(numpy.uint64) makes one of other whole numbers, "
            "and recipe.fingerprint_many gives one",
        )
    if bits == 32 and len(values):
        as_number(int(values.max()), bits)
    return values


def keyed_rows(
    blocks: Iterable[tuple[Iterable[Key] | None, Any]],
    catalog: Catalog,
    bits: int,
    following: int | None,
) -> Iterator[KeyedRows]:
    """Yield keys with their fingerprints as arrays that no other thread can change.

    Without keys, they are the numbers from `following` on, if this isn't None.
    """
    for pair in each(blocks, "pairs of keys and fingerprints"):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InputError(
                f"found {pair!r:.40}, expected a pair of keys and fingerprints",
                hint="give both: add_fingerprints(keys, fingerprints), or an iterator of pairs",
            )
        keys, values = pair
        fingerprints = as_fingerprints(values, bits)
        if keys is None:
            names, following = _counted(len(fingerprints), following)
        else:
            names = _as_keys(keys, catalog)
        if len(names) != len(fingerprints):
            raise InputError(
                f"found {len(names)} keys and {len(fingerprints)} fingerprints, expected as many "
                "of both",
                hint="the first key goes with the first fingerprint, and so on",
            )
        for start in range(0, len(names), LOAD):
            part = slice(start, start + LOAD)
            yield unchanging(names[part]), unchanging(fingerprints[part])


def _counted(count: int, first: int | None) -> tuple[Keys, int]:
    """Return N numbers from one on, and the number after them."""
    if first is None or first + count > 1 << 64:
        raise InputError(
            "found fingerprints without keys, "
            + ("expected texts as keys" if first is None else "and no number left to count them"),
            hint="give each fingerprint a key; with keys='integer' they can be counted",
        )
    numbers = np.arange(count, dtype=np.uint64)
    numbers += np.uint64(first % (1 << 64))  # with none to count, it may be beyond the last
    return numbers, first + count


def _as_keys(keys: Iterable[Key], catalog: Catalog) -> Keys:
    integer = catalog.kind == "integer"
    keys = column(keys, "keys")
    if isinstance(keys, np.ndarray):
        numbers = integer and keys.ndim == 1 and keys.dtype.kind in "iu"
        if numbers and (keys.dtype.kind == "u" or not (keys < 0).any()):
            return keys.astype(np.uint64, copy=False)
        keys = keys.tolist()
    names: list[Any] = list(keys)
    for name in names:
        catalog.check_key(name)
    return np.array(names, np.uint64 if integer else object)


def unchanging(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array that no other thread can change: a copy, unless it is read-only."""
    return array.copy() if array.flags.writeable else array


def _check_stored(document: Document) -> None:
    added = 0 if document.added is None else document.added
    for name, good, expected in (
        *((f.name, f.fits(getattr(document, f.name)), f.expected) for f in CARRIED),
        ("added", type(added) is int and 0 <= added <= LATEST, "seconds since 1970, whole"),
    ):
        if not good:
            raise InputError(
                f"the document {document.key!r:.60} has {name}={getattr(document, name)!r:.40}, "
                f"expected {expected}",
                hint=f"leave {name} out, or give it as a stored document has it",
            )
