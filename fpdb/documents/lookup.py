"""From near fingerprints to documents: resolve, sort and cut the matches of one query."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import unique
from fpdb.documents.catalog import Catalog, Stored, digest_of
from fpdb.documents.verify import Side, Verifier, side_of
from fpdb.models import Batch, Document, Key, Match, Matches
from fpdb.storage import ReadTransaction, unpack
from fpdb.tables import Hits, Index, find_together, near_many
from fpdb.tables.batch import CrowdedError
from fpdb.tables.bits import Fingerprints

# Of one query: candidates that are read, and documents that are given, before it is cut.
CANDIDATES = 1_000_000
DOCUMENTS = 10_000
# Candidates that are verified at once.
_VERIFIED = 1 << 16
# Fewer queries than this are faster one by one.
FEW = 128


# Looks up questions from one on, in a transaction.
Ask = Callable[[ReadTransaction, int], Iterator[Matches]]


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

    def of_texts(
        self,
        texts: Sequence[str],
        batch: Batch,
        k: int,
        limit: int | None,
        verifier: Verifier | None,
    ) -> Ask:
        """Give what looks up the texts of a batch, from one on."""
        fingerprints, short = batch.fingerprints, batch.short
        if verifier is None:
            return lambda txn, start: self.near_texts(
                txn, texts[start:], fingerprints[start:], short[start:], k=k, limit=limit
            )
        side, chosen = verifier.of_texts(texts, batch.sketches), verifier
        return lambda txn, start: self.verified_texts(
            txn, fingerprints[start:], short[start:], side.after(start), chosen, k=k, limit=limit
        )

    def of_fingerprints(
        self,
        fingerprints: Fingerprints,
        sketches: NDArray[np.uint8] | None,
        k: int,
        limit: int | None,
        verifier: Verifier | None,
    ) -> Ask:
        """Give what looks up fingerprints, from one on; with sketches, verified."""
        if verifier is None or sketches is None:
            return lambda txn, start: self.near_each(txn, fingerprints[start:], k, limit)
        side, chosen = side_of([b""] * len(sketches), sketches), verifier
        return lambda txn, start: self.verified(
            txn,
            fingerprints[start:],
            side.after(start),
            np.arange(len(fingerprints) - start),
            chosen,
            k=k,
            limit=limit,
        )

    def verified_texts(
        self,
        txn: ReadTransaction,
        fingerprints: Fingerprints,
        short: NDArray[np.bool_],
        side: Side,
        verifier: Verifier,
        *,
        k: int,
        limit: int | None,
    ) -> Iterator[Matches]:
        """Find the documents similar to each of many texts; a short one finds equal texts only."""
        placed = (~short).nonzero()[0]
        found = self.verified(txn, fingerprints[placed], side, placed, verifier, k=k, limit=limit)
        for place, is_short in enumerate(short.tolist()):
            if not is_short:
                yield next(found)
                continue
            same = self.same_text(txn, side.digests[place].tobytes(), limit)
            equal = (match._replace(jaccard=1.0) for match in same)
            yield Matches(equal, complete=same.complete)

    def verified(
        self,
        txn: ReadTransaction,
        fingerprints: Fingerprints,
        side: Side,
        places: NDArray[np.int64],
        verifier: Verifier,
        *,
        k: int,
        limit: int | None = None,
    ) -> Iterator[Matches]:
        """Find the documents within k of each fingerprint that are similar enough.

        `places` tells where in `side` each question stands. An answer isn't complete if its first
        look isn't.
        """
        hits = self._first_look(txn, fingerprints, k)
        bounds = hits.queries.searchsorted(np.arange(len(fingerprints) + 1))
        start = 0
        while start < len(fingerprints):
            stop = int(bounds.searchsorted(bounds[start] + _VERIFIED, "right")) - 1
            stop = max(start + 1, stop)
            rows = slice(int(bounds[start]), int(bounds[stop]))
            some = Hits(hits.queries[rows], hits.ids[rows], hits.distances[rows], hits.complete)
            answers = self._verify(txn, some, side, places, verifier)
            for query in range(start, stop):
                matches = sorted(answers.get(query, ()), key=_verified_rank)
                yield Matches(matches[:limit], complete=bool(hits.complete[query]))
            start = stop

    def _first_look(self, txn: ReadTransaction, fingerprints: Fingerprints, k: int) -> Hits:
        if len(fingerprints) >= FEW:
            return self.hits(txn, fingerprints, k)
        queries: list[int] = []
        ids: list[int] = []
        distances: list[int] = []
        complete: list[bool] = []
        for query, number in enumerate(self._index.numbers(fingerprints)):
            nearby = self._index.near(txn, number, k, CANDIDATES)
            whole, room = nearby.complete, DOCUMENTS
            for near, apart in sorted(nearby.distances.items(), key=itemgetter(1)):
                own = nearby.ids.get(near) or self._index.ids(txn, near)
                found = list(islice(own, room + 1))
                whole = whole and len(found) <= room
                del found[room:]
                room -= len(found)
                ids += found
                queries += [query] * len(found)
                distances += [apart] * len(found)
            complete.append(whole)
        return Hits(
            np.array(queries, np.int64),
            np.array(ids, np.uint64),
            np.array(distances, np.uint8),
            np.array(complete, np.bool_),
        )

    def _verify(
        self,
        txn: ReadTransaction,
        hits: Hits,
        side: Side,
        places: NDArray[np.int64],
        verifier: Verifier,
    ) -> dict[int, list[Match]]:
        """Compare all candidates with their questions; give the matches of each question."""
        found: dict[int, list[Match]] = {}
        if not len(hits.ids):
            return found
        ids = unique(hits.ids)
        known = verifier.known(txn, ids)
        at = ids.searchsorted(hits.ids)
        jaccard = verifier.jaccard(side, places[hits.queries], known.side, at)
        for row in (jaccard >= verifier.least).nonzero()[0].tolist():
            place, apart = int(at[row]), int(hits.distances[row])
            match = Match(
                known.keys[place],
                int(hits.ids[row]),
                apart,
                1 - apart / self._bits,
                unpack_meta(known.metas[place]),
                float(jaccard[row]),
            )
            found.setdefault(int(hits.queries[row]), []).append(match)
        return found

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


def _verified_rank(match: Match) -> tuple[float, int, Key]:
    return -(match.jaccard or 0.0), match.distance, match.key


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
        sketch=stored.sketch or None,
        digest=stored.digest or None,
        characters=stored.characters,
    )
