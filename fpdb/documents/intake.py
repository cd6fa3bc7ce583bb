"""Check what comes in, and make it ready to be stored, before a lock is taken."""

import hashlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fpdb.documents.catalog import Catalog
from fpdb.documents.writing import Candidate
from fpdb.errors import InputError
from fpdb.fingerprint import Recipe
from fpdb.models import Document
from fpdb.storage import pack
from fpdb.storage.records import LARGEST_META
from fpdb.tables import Index
from fpdb.tables.bits import Fingerprints, to_array

BATCH = 1000
_BATCH_CHARACTERS = 1 << 23
_DIGEST_BYTES = 16


def digest_of(text: str) -> bytes:
    """Give the digest by which equal texts are known."""
    data = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def take(documents: Iterator[Document]) -> list[Document]:
    """Take as many documents as one transaction adds."""
    batch: list[Document] = []
    room = _BATCH_CHARACTERS
    for document in documents:
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

    def candidates(
        self, documents: Sequence[Document], recipe: Callable[[], Recipe]
    ) -> list[Candidate]:
        """Check documents and fingerprint their texts; the recipe is asked for if there are any."""
        texts = [d.text for d in documents if d.fingerprint is None and d.text is not None]
        batch = recipe().batch(texts) if texts else None
        numbers = iter(self._index.numbers(batch.fingerprints) if batch else [])
        shorts = iter(batch.short.tolist() if batch else [])
        found: list[Candidate] = []
        for document in documents:
            self._catalog.check_key(document.key)
            number: int | None
            if document.fingerprint is not None:
                number = self.number(document.fingerprint)
            elif document.text is not None:
                number, short = next(numbers), next(shorts)
                number = None if short else number
            else:
                raise InputError(
                    f"the document {document.key!r} has neither a text nor a fingerprint",
                    hint="give one of them; an empty text is a text",
                )
            digest = b"" if document.text is None else digest_of(document.text)
            meta = b"" if document.meta is None else pack(document.meta, "metadata", LARGEST_META)
            characters = len(document.text or "")
            found.append(Candidate(document.key, number, digest, meta, characters))
        return found

    def check_query(self, k: int | None, limit: int | None) -> None:
        """Refuse a k that the plan can't serve, and a limit that leaves nothing."""
        for name, value in (("k", k), ("limit", limit)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise InputError(
                    f"found {name}={value!r}, expected a whole number",
                    hint=f"leave {name} out for the usual one",
                )
        if k is not None:
            self._index.routes(k)
        if limit is not None and limit < 1:
            raise InputError(
                f"found limit={limit}, expected at least 1", hint="leave limit out for all matches"
            )

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

    def array(self, fingerprints: Any) -> Fingerprints:
        """Take fingerprints as an array of the database's own shape."""
        if not isinstance(fingerprints, np.ndarray):
            return to_array(map(self.number, fingerprints), self._bits)
        dimensions, expected = (2, "uint64[n, 2]") if self._bits == 128 else (1, "uint64[n]")
        if fingerprints.ndim != dimensions or fingerprints.dtype != np.uint64:
            raise InputError(
                f"found an array {fingerprints.dtype}{list(fingerprints.shape)}, "
                f"expected {expected}",
                hint="recipe.fingerprint_many gives such an array",
            )
        if self._bits == 32 and len(fingerprints):
            self.number(int(fingerprints.max()))
        return fingerprints
