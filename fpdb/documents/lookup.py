"""From near fingerprints to documents: resolve, sort and cut the matches of one query."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fpdb.documents.catalog import Catalog, Stored, digest_of
from fpdb.models import Document, Key, Match, Matches
from fpdb.storage import ReadTransaction, unpack
from fpdb.tables import Hits, Index, find_together, near_many
from fpdb.tables.batch import CrowdedError
from fpdb.tables.bits import Fingerprints

# Of one query: candidates that are read, and documents that are given, before it is cut.
CANDIDATES = 1_000_000
DOCUMENTS = 10_000
# Fewer queries than this are faster one by one.
FEW = 128


class Lookup:
    """Finds documents in a transaction."""

    def __init__(self, index: Index, catalog: Catalog) -> None:
        self._index = index
        self._catalog = catalog
        self._bits = index.plan.bits

    def near(
        self,
        txn: ReadTransaction,
        fingerprint: int,
        k: int,
        limit: int | None = None,
        budget: int = CANDIDATES,
    ) -> Matches:
        """Find the documents within k of a fingerprint."""
        nearby = self._index.near(txn, fingerprint, k, budget)
        if not nearby.distances:
            return Matches(complete=nearby.complete)
        known, index = nearby.ids, self._index
        found = [(apart, number) for number, apart in nearby.distances.items()]
        found.sort()
        runs = ((apart, known.get(number) or index.ids(txn, number)) for apart, number in found)
        return self._matches(txn, runs, limit, complete=nearby.complete)

    def near_each(
        self, txn: ReadTransaction, fingerprints: Fingerprints, k: int, limit: int | None = None
    ) -> Iterator[Matches]:
        """Find the documents within k of each of many fingerprints, as `near` finds them."""
        if len(fingerprints) < FEW:
            for number in self._index.numbers(fingerprints):
                yield self.near(txn, number, k, limit, CANDIDATES)
            return
        try:
            found = find_together(
                txn, self._index, fingerprints, k, budget=CANDIDATES, most=DOCUMENTS
            )
        except CrowdedError:
            half = len(fingerprints) // 2
            yield from self.near_each(txn, fingerprints[:half], k, limit)
            yield from self.near_each(txn, fingerprints[half:], k, limit)
            return
        for place in range(len(fingerprints)):
            runs, complete = found.near_one(place)
            yield self._matches(txn, runs, limit, complete=complete)

    def near_texts(
        self,
        txn: ReadTransaction,
        texts: Sequence[str],
        fingerprints: Fingerprints,
        short: NDArray[np.bool_],
        *,
        k: int,
        limit: int | None,
    ) -> Iterator[Matches]:
        """Find the documents near each of many texts; a short one finds equal texts only."""
        near = self.near_each(txn, fingerprints[~short], k, limit)
        for text, is_short in zip(texts, short.tolist(), strict=True):
            yield self.same_text(txn, digest_of(text), limit) if is_short else next(near)

    def hits(
        self, txn: ReadTransaction, fingerprints: Fingerprints, k: int, limit: int | None = None
    ) -> Hits:
        """Find the documents within k of each of many fingerprints, as columns."""
        return near_many(
            txn, self._index, fingerprints, k, limit=limit, budget=CANDIDATES, most=DOCUMENTS
        )

    def _matches(
        self,
        txn: ReadTransaction,
        runs: Iterable[tuple[int, Iterable[int]]],
        limit: int | None,
        *,
        complete: bool,
    ) -> Matches:
        """Give the documents of runs, which come with their distances, the nearest first."""
        matches: list[Match] = []
        reached = 0
        for apart, ids in runs:
            # Of equal distances all are needed to find the first by their keys.
            if limit is not None and len(matches) >= limit and apart > reached:
                break
            reached = apart
            for number in ids:
                if len(matches) == DOCUMENTS:
                    complete = False
                    break
                matches.append(self._match(txn, number, apart))
        if len(matches) > 1:
            matches.sort(key=_rank)
        return Matches(matches if limit is None else matches[:limit], complete=complete)

    def same_text(self, txn: ReadTransaction, digest: bytes, limit: int | None = None) -> Matches:
        """Find the short documents with the very same text."""
        same: list[Match] = []
        complete = True
        for number in self._catalog.short_ids(txn, digest):
            if len(same) == DOCUMENTS:
                complete = False
                break
            same.append(self._match(txn, number, 0))
        return Matches(sorted(same, key=lambda match: match.key)[:limit], complete=complete)

    def _match(self, txn: ReadTransaction, number: int, apart: int) -> Match:
        key, meta = self._catalog.key_and_meta(txn, number)
        return Match(key, number, apart, 1 - apart / self._bits, unpack_meta(meta))


def _rank(match: Match) -> tuple[int, Key]:
    return match.distance, match.key


def unpack_meta(meta: bytes) -> object:
    """Give metadata as they were added."""
    return unpack(meta, "metadata") if meta else None


def to_document(stored: Stored) -> Document:
    """Give a stored document as its user sees it."""
    return Document(
        key=stored.key,
        meta=unpack_meta(stored.meta),
        fingerprint=stored.fingerprint,
        id=stored.id,
        added=stored.added,
        short=stored.fingerprint is None,
    )
