"""From near fingerprints to documents: look questions up, sort and cut their matches."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from fpdb.arrays import Marks, Places, unique
from fpdb.documents.catalog import View, digest_of
from fpdb.documents.similarity import Side, jaccard, known_documents, side_of, side_of_documents
from fpdb.errors import DamagedError
from fpdb.models import Batch, Document, Key, Match, Matches
from fpdb.storage import unpack
from fpdb.storage.format import Stored
from fpdb.tables import Hits, find_together, near_many
from fpdb.tables.bits import Fingerprints, to_array

# Of one query: candidates that are read, and documents that are returned, before it is cut.
CANDIDATES = 1_000_000
DOCUMENTS = 10_000
# Candidates that are verified at once.
_VERIFIED = 1 << 16
# Fewer queries than this are faster one by one.
FEW = 128


class Search(NamedTuple):
    """What counts as a match: all within k; with a `least` similarity, what has that as well."""

    k: int
    limit: int | None = None
    least: float = 0.0


@dataclass(frozen=True, eq=False)
class Questions:
    """Fingerprints that are looked up together; in place of a short one, the digest of its text.

    `side` has the sketches of the texts, by which matches are verified.
    """

    fingerprints: Fingerprints
    short: Marks
    digests: Sequence[bytes]
    side: Side | None

    @classmethod
    def of_texts(cls, texts: Sequence[str], batch: Batch) -> "Questions":
        """Return the questions of texts that are fingerprinted, with sketches or without."""
        wanted = batch.short.tolist() if batch.sketches is None else [True] * len(texts)
        digests = [
            digest_of(text) if want else b"" for text, want in zip(texts, wanted, strict=True)
        ]
        side = None if batch.sketches is None else side_of(digests, batch.sketches)
        return cls(batch.fingerprints, batch.short, digests, side)

    @classmethod
    def of_documents(cls, documents: Sequence[Stored], bits: int, *, sketched: bool) -> "Questions":
        """Return the questions of documents that are prepared, with sketches or without."""
        numbers = [document.fingerprint for document in documents]
        return cls(
            to_array((number or 0 for number in numbers), bits),
            np.array([number is None for number in numbers], np.bool_),
            [document.digest for document in documents],
            side_of_documents(documents) if sketched else None,
        )

    def __len__(self) -> int:
        return len(self.digests)

    def after(self, start: int) -> "Questions":
        """Drop the first N."""
        side = self.side.after(start) if self.side else None
        return Questions(self.fingerprints[start:], self.short[start:], self.digests[start:], side)


def answers(view: View, questions: Questions, search: Search) -> Iterator[Matches]:
    """Yield the matches of each question; a short text finds equal texts only."""
    placed = (~questions.short).nonzero()[0]
    fingerprints = questions.fingerprints[placed]
    if questions.side is None:
        near_ones = near_each(view, fingerprints, search.k, search.limit)
    else:
        near_ones = verified(view, fingerprints, questions.side, placed, search)
    for digest, short in zip(questions.digests, questions.short.tolist(), strict=True):
        yield same_text(view, digest, search) if short else next(near_ones)


def near(view: View, fingerprint: int, k: int, limit: int | None = None) -> Matches:
    """Find the documents within k of a fingerprint."""
    runs, complete = _runs(view, fingerprint, k)
    return _matches(view, runs, limit, complete=complete)


def _runs(view: View, fingerprint: int, k: int) -> tuple[Iterable[tuple[int, Iterable[int]]], bool]:
    """Return distances and the ids of documents, the nearest first; and whether these are all."""
    txn, index = view.txn, view.index
    nearby = index.near(txn, fingerprint, k, CANDIDATES)
    if not nearby.distances:
        return (), nearby.complete
    known = nearby.ids
    found = sorted((apart, number) for number, apart in nearby.distances.items())
    runs = ((apart, known.get(number) or index.ids(txn, number)) for apart, number in found)
    return runs, nearby.complete


def near_each(
    view: View, fingerprints: Fingerprints, k: int, limit: int | None = None
) -> Iterator[Matches]:
    """Find the documents within k of each of many fingerprints, as `near` finds them."""
    if len(fingerprints) < FEW:
        for number in view.index.numbers(fingerprints):
            yield near(view, number, k, limit)
        return
    for found in find_together(
        view.txn, view.index, fingerprints, k, budget=CANDIDATES, most=DOCUMENTS
    ):
        for runs, complete in found:
            yield _matches(view, runs, limit, complete=complete)


def hits(view: View, fingerprints: Fingerprints, k: int, limit: int | None = None) -> Hits:
    """Find the documents within k of each of many fingerprints, as columns."""
    return near_many(
        view.txn, view.index, fingerprints, k, limit=limit, budget=CANDIDATES, most=DOCUMENTS
    )


def same_text(view: View, digest: bytes, search: Search) -> Matches:
    """Find the short documents with the very same text."""
    similar = 1.0 if search.least else None
    ids = list(islice(view.catalog.short_ids(view.txn, digest), DOCUMENTS + 1))
    matches = (_match(view, number, 0, similar, digest) for number in ids[:DOCUMENTS])
    same = sorted(matches, key=_rank)
    return to_matches(same[: search.limit], complete=len(ids) <= DOCUMENTS)


def verified(
    view: View, fingerprints: Fingerprints, side: Side, places: Places, search: Search
) -> Iterator[Matches]:
    """Find the documents near each fingerprint that are similar enough.

    `places` are those of the questions in `side`. An answer isn't complete if its first look isn't.
    """
    found = _first_look(view, fingerprints, search.k)
    bounds = found.queries.searchsorted(np.arange(len(fingerprints) + 1))
    start = 0
    while start < len(fingerprints):
        stop = int(bounds.searchsorted(bounds[start] + _VERIFIED, "right")) - 1
        stop = max(start + 1, stop)
        rows = slice(int(bounds[start]), int(bounds[stop]))
        some = Hits(found.queries[rows], found.ids[rows], found.distances[rows], found.complete)
        similar = _verify(view, some, side, places, search)
        for query in range(start, stop):
            matches = sorted(similar.get(query, ()), key=_rank)
            yield to_matches(matches[: search.limit], complete=bool(found.complete[query]))
        start = stop


def _first_look(view: View, fingerprints: Fingerprints, k: int) -> Hits:
    if len(fingerprints) >= FEW:
        return hits(view, fingerprints, k)
    queries: list[int] = []
    ids: list[int] = []
    distances: list[int] = []
    complete: list[bool] = []
    for query, number in enumerate(view.index.numbers(fingerprints)):
        runs, whole = _runs(view, number, k)
        near_ones = ((own, apart) for apart, run in runs for own in run)
        found = list(islice(near_ones, DOCUMENTS + 1))
        complete.append(whole and len(found) <= DOCUMENTS)
        del found[DOCUMENTS:]
        ids += [own for own, _ in found]
        distances += [apart for _, apart in found]
        queries += [query] * len(found)
    return Hits(
        np.array(queries, np.int64),
        np.array(ids, np.uint64),
        np.array(distances, np.uint8),
        np.array(complete, np.bool_),
    )


def _verify(
    view: View, found: Hits, side: Side, places: Places, search: Search
) -> dict[int, list[Match]]:
    """Compare all candidates with their questions; return the matches of each question."""
    similar: dict[int, list[Match]] = {}
    if not len(found.ids):
        return similar
    bits = view.index.plan.bits
    ids = unique(found.ids)
    known = known_documents(view, ids)
    at = ids.searchsorted(found.ids)
    shares = jaccard(side, places[found.queries], known.side, at)
    for row in (shares >= search.least).nonzero()[0].tolist():
        place, apart = int(at[row]), int(found.distances[row])
        match = Match(
            known.keys[place],
            int(found.ids[row]),
            apart,
            1 - apart / bits,
            unpack_meta(known.metas[place]),
            float(shares[row]),
        )
        similar.setdefault(int(found.queries[row]), []).append(match)
    return similar


def _matches(
    view: View, runs: Iterable[tuple[int, Iterable[int]]], limit: int | None, *, complete: bool
) -> Matches:
    """Return the documents of runs, which come with their distances, the nearest first."""
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
            matches.append(_match(view, number, apart))
    if len(matches) > 1:
        matches.sort(key=_rank)
    return to_matches(matches if limit is None else matches[:limit], complete=complete)


def _match(
    view: View, number: int, apart: int, similar: float | None = None, digest: bytes = b""
) -> Match:
    stored = view.catalog.named(view.txn, number)
    if digest and stored.digest != digest:
        raise DamagedError(
            f"the document {number} isn't the text that led to it", hint="run `fpdb check`"
        )
    similarity = 1 - apart / view.index.plan.bits
    return Match(stored.key, number, apart, similarity, unpack_meta(stored.meta), similar)


def _rank(match: Match) -> tuple[float, int, Key]:
    return -(match.jaccard or 0.0), match.distance, match.key


def to_matches(matches: Iterable[Match], *, complete: bool) -> Matches:
    """Return the matches of one query."""
    found = Matches(matches)
    found.complete = complete
    return found


def unpack_meta(meta: bytes) -> object:
    """Return metadata as they were added."""
    return unpack(meta, "metadata") if meta else None


def to_document(stored: Stored) -> Document:
    """Return a stored document as the caller gets it."""
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
