"""Verify candidates by the Jaccard similarity of their sketches, or of their texts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Column, Places
from fpdb.documents.catalog import Catalog, digest_of
from fpdb.errors import InputError
from fpdb.fingerprint import Recipe
from fpdb.fingerprint.sketches import SKETCH_BYTES, exact_jaccard, sketch_jaccard
from fpdb.models import Key
from fpdb.storage import ReadTransaction
from fpdb.storage.format import Stored

Shares = NDArray[np.float64]
# The texts of stored documents by their keys.
Texts = Mapping[Key, str] | Callable[[Key], str]

# Shingles that are remembered between blocks of pairs: 128 MiB.
_REMEMBERED = 1 << 24
_DIGEST_BYTES = 16
_NO_SHINGLES = np.empty(0, np.uint64)


@dataclass(frozen=True, eq=False)
class Side:
    """Some texts by their digests, and by their sketches or shingles.

    A missing digest or sketch is all zeros.
    """

    digests: Column
    sketches: NDArray[np.uint8]
    shingles: Sequence[Column] = ()

    def after(self, start: int) -> "Side":
        """Drop the first N."""
        return self.chosen(slice(start, None))

    def chosen(self, which: slice) -> "Side":
        """Return a slice of them."""
        return Side(self.digests[which], self.sketches[which], self.shingles[which])


@dataclass(frozen=True, eq=False)
class Known:
    """Stored documents in the order of their ids."""

    ids: Column
    keys: list[Key]
    metas: list[bytes]
    side: Side


class Verifier:
    """Computes how similar texts are, by sketches, or exactly if the stored texts are given.

    Equal texts are similar in any case; other ones without a shingle never are. Documents count as
    similar from `least` on.
    """

    def __init__(
        self,
        catalog: Catalog,
        least: float,
        texts: Texts | None = None,
        recipe: Recipe | None = None,
    ) -> None:
        self.least = least
        self.exact = texts is not None
        self._catalog = catalog
        self._texts = texts
        self._recipe = recipe
        self._remembered: dict[Key, tuple[bytes, Column]] = {}
        self._size = 0

    def of_texts(self, texts: Sequence[str], sketches: NDArray[np.uint8] | None) -> Side:
        """Describe the texts of questions; without sketches, by their shingles."""
        digests = list(map(digest_of, texts))
        if sketches is not None:
            return side_of(digests, sketches)
        return self._shingled(digests, [self._shingles(text) for text in texts])

    def known(self, txn: ReadTransaction, ids: Column) -> Known:
        """Read documents by their sorted ids."""
        stored = [self._catalog.named(txn, number) for number in ids.tolist()]
        keys = [document.key for document in stored]
        if self._texts is not None:
            found = list(map(self._of_key, keys))
            side = self._shingled([digest for digest, _ in found], [own for _, own in found])
        else:
            side = side_of_documents(stored)
        return Known(ids, keys, [document.meta for document in stored], side)

    def likeness(self, txn: ReadTransaction, ids: Column) -> list[bytes]:
        """Return bytes that are equal for documents with equal similarities; empty if unknown."""
        side = self.known(txn, ids).side
        rows = [row.tobytes() for row in side.digests]
        if not self.exact:
            own = (row.tobytes() for row in side.sketches)
            rows = [sketch if any(sketch) else row for sketch, row in zip(own, rows, strict=True)]
        return [row if any(row) else b"" for row in rows]

    def jaccard(self, first: Side, own: Places, second: Side, other: Places) -> Shares:
        """Return the similarity of each two texts; nan if one of them has no shingle."""
        digests = first.digests[own]
        same = (digests == second.digests[other]).all(axis=1) & digests.any(axis=1)
        if self.exact:
            pairs = zip(own.tolist(), other.tolist(), strict=True)
            sets = ((first.shingles[a], second.shingles[b]) for a, b in pairs)
            found = np.array(list(starmap(exact_jaccard, sets)), np.float64)
        else:
            found = sketch_jaccard(first.sketches[own], second.sketches[other])
        found[same] = 1.0
        return found

    def _of_key(self, key: Key) -> tuple[bytes, Column]:
        known = self._remembered.get(key)
        if known is None:
            text = self._text_of(key)
            known = digest_of(text), self._shingles(text)
            self._size += len(known[1])
            if self._size > _REMEMBERED:
                self._remembered.clear()
                self._size = len(known[1])
            self._remembered[key] = known
        return known

    def _text_of(self, key: Key) -> str:
        texts = self._texts
        try:
            text = texts(key) if callable(texts) else (texts or {})[key]
        except LookupError:
            text = None
        if not isinstance(text, str):
            raise InputError(
                f"found no text for the document {key!r}, expected one to compare it exactly",
                hint="give the texts of all documents; those that are gone can be deleted",
            )
        return text

    def _shingles(self, text: str) -> Column:
        return self._recipe.shingles(text) if self._recipe else _NO_SHINGLES

    @staticmethod
    def _shingled(digests: Sequence[bytes], shingles: Sequence[Column]) -> Side:
        return side_of(digests, np.zeros((len(digests), SKETCH_BYTES), np.uint8), shingles)


def side_of(
    digests: Sequence[bytes],
    sketches: NDArray[np.uint8],
    shingles: Sequence[Column] = (),
) -> Side:
    """Combine digests, of which some may be empty, with sketches."""
    packed = b"".join([digest.ljust(_DIGEST_BYTES, b"\0") for digest in digests])
    return Side(np.frombuffer(packed, np.uint64).reshape(-1, 2), sketches, shingles)


def side_of_documents(documents: Sequence[Stored]) -> Side:
    """Combine the digests and the sketches of documents."""
    packed = b"".join(
        [(document.sketch or b"").ljust(SKETCH_BYTES, b"\0") for document in documents]
    )
    sketches = np.frombuffer(packed, np.uint8).reshape(-1, SKETCH_BYTES)
    return side_of([document.digest for document in documents], sketches)
