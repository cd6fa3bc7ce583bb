"""From near fingerprints to documents: resolve, sort and cut the matches of one query."""

from fpdb.documents.catalog import Catalog, Stored
from fpdb.models import Document, Match, Matches
from fpdb.storage import ReadTransaction, unpack
from fpdb.tables import Index

# Of one query: candidates that are read, and documents that are given, before it is cut.
CANDIDATES = 1_000_000
DOCUMENTS = 10_000


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
        matches: list[Match] = []
        complete = nearby.complete
        reached = 0
        for apart, number in sorted([(apart, n) for n, apart in nearby.distances.items()]):
            # Of equal distances all are needed to find the first by their keys.
            if limit is not None and len(matches) >= limit and apart > reached:
                break
            reached = apart
            for own in nearby.ids.get(number) or self._index.ids(txn, number):
                if len(matches) == DOCUMENTS:
                    complete = False
                    break
                matches.append(self._match(txn, own, apart))
        if len(matches) > 1:
            matches.sort(key=lambda match: (match.distance, match.key))
        return Matches(matches[:limit], complete=complete)

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
