"""Verify candidates: the Jaccard similarity of many pairs, by their sketches or by their texts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap

import numpy as np
from numpy.typing import NDArray

from fpdb.documents.catalog import Catalog, digest_of
from fpdb.errors import DamagedError, InputError
from fpdb.fingerprint import Recipe
from fpdb.fingerprint.sketches import SKETCH_BYTES, estimate, exact_jaccard
from fpdb.models import Key
from fpdb.storage import ReadTransaction
from fpdb.storage.columns import Column

Places = NDArray[np.int64]
Shares = NDArray[np.float64]
# Where the texts of stored documents come from: by their keys.
Texts = Mapping[Key, str] | Callable[[Key], str]

# Shingles that are remembered between blocks of pairs: 128 MiB.
_REMEMBERED = 1 << 24
_DIGEST_BYTES = 16
_NO_SHINGLES = np.empty(0, np.uint64)


@dataclass(frozen=True, eq=False)
class Side:
    """What is known of some texts: the digest of each, and its sketch or its shingles.

    A digest or a sketch of zeros is none.
    """

    digests: NDArray[np.uint64]
    sketches: NDArray[np.uint8]
    shingles: Sequence[NDArray[np.uint64]] = ()

    def after(self, start: int) -> "Side":
        """Leave out the first ones."""
        return self.chosen(slice(start, None))

    def chosen(self, which: slice) -> "Side":
        """Take some of them."""
        return Side(self.digests[which], self.sketches[which], self.shingles[which])


@dataclass(frozen=True, eq=False)
class Known:
    """What is stored of some documents, in the order of their ids."""

    ids: Column
    keys: list[Key]
    metas: list[bytes]
    side: Side


class Verifier:
    """Tells how similar texts are, and which of them are similar enough.

    Without `texts` by the sketches of the database. Equal texts are similar in any case; other
    ones without a shingle never are.
    """

    def __init__(
        self,
        catalog: Catalog,
        least: float,
        texts: Texts | None = None,
        recipe: Callable[[], Recipe] | None = None,
    ) -> None:
        self.least = least
        self.exact = texts is not None
        self._catalog = catalog
        self._texts = texts
        self._recipe = recipe
        self._remembered: dict[Key, tuple[bytes, NDArray[np.uint64]]] = {}
        self._size = 0

    def of_texts(self, texts: Sequence[str], sketches: NDArray[np.uint8] | None) -> Side:
        """Describe texts that are asked for; without sketches by their shingles."""
        digests = list(map(digest_of, texts))
        if sketches is not None:
            return side_of(digests, sketches)
        return self._shingled(digests, [self._shingles(text) for text in texts])

    def known(self, txn: ReadTransaction, ids: Column) -> Known:
        """Read what is stored of documents, whose ids come in order."""
        keys: list[Key] = []
        metas: list[bytes] = []
        digests: list[bytes] = []
        sketches: list[bytes] = []
        numbered = self._catalog.kind == "integer"
        for number in ids.tolist():
            stored = self._catalog.record(txn, number)
            if stored is None:
                if not numbered:
                    raise DamagedError(
                        f"the document {number} isn't there", hint="run `fpdb check`"
                    )
                keys.append(number)
                metas.append(b"")
                digests.append(b"")
                sketches.append(b"")
                continue
            keys.append(stored.key)
            metas.append(stored.meta)
            digests.append(stored.digest)
            sketches.append(stored.sketch or b"")
        if self._texts is not None:
            found = list(map(self._of_key, keys))
            side = self._shingled([digest for digest, _ in found], [own for _, own in found])
        else:
            packed = b"".join([sketch.ljust(SKETCH_BYTES, b"\0") for sketch in sketches])
            side = side_of(digests, np.frombuffer(packed, np.uint8).reshape(-1, SKETCH_BYTES))
        return Known(ids, keys, metas, side)

    def likeness(self, txn: ReadTransaction, ids: Column) -> list[bytes]:
        """Give what is equal for documents that are similar in the same way; none if unknown."""
        side = self.known(txn, ids).side
        rows = [row.tobytes() for row in side.digests]
        if not self.exact:
            own = (row.tobytes() for row in side.sketches)
            rows = [sketch if any(sketch) else row for sketch, row in zip(own, rows, strict=True)]
        return [row if any(row) else b"" for row in rows]

    def jaccard(self, first: Side, own: Places, second: Side, other: Places) -> Shares:
        """Give the similarity of each two texts; nan if one of them has no shingle."""
        digests = first.digests[own]
        same = (digests == second.digests[other]).all(axis=1) & digests.any(axis=1)
        if self.exact:
            pairs = zip(own.tolist(), other.tolist(), strict=True)
            sets = ((first.shingles[a], second.shingles[b]) for a, b in pairs)
            found = np.array(list(starmap(exact_jaccard, sets)), np.float64)
        else:
            found = estimate(first.sketches[own], second.sketches[other])
        found[same] = 1.0
        return found

    def _of_key(self, key: Key) -> tuple[bytes, NDArray[np.uint64]]:
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
                f"found no text for the document {key!r}, which is to be compared exactly",
                hint="give the texts of all documents; those that are gone can be deleted",
            )
        return text

    def _shingles(self, text: str) -> NDArray[np.uint64]:
        return self._recipe().shingles(text) if self._recipe else _NO_SHINGLES

    @staticmethod
    def _shingled(digests: Sequence[bytes], shingles: Sequence[NDArray[np.uint64]]) -> Side:
        return side_of(digests, np.zeros((len(digests), SKETCH_BYTES), np.uint8), shingles)


def side_of(
    digests: Sequence[bytes],
    sketches: NDArray[np.uint8],
    shingles: Sequence[NDArray[np.uint64]] = (),
) -> Side:
    """Put digests, which may be missing, beside sketches."""
    packed = b"".join([digest.ljust(_DIGEST_BYTES, b"\0") for digest in digests])
    return Side(np.frombuffer(packed, np.uint64).reshape(-1, 2), sketches, shingles)
