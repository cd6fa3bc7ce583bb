"""From near fingerprints to documents: look questions up, sort and cut their matches."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from fpdb.arrays import Column, Marks, Places, portions, unique
from fpdb.documents.catalog import View, digest_of
from fpdb.documents.similarity import (
    Side,
    jaccard,
    known_documents,
    side_of,
    side_of_documents,
)
from fpdb.errors import DamagedError, InputError
from fpdb.fingerprint.sketches import least_estimate, one_jaccard
from fpdb.models import Batch, Document, Key, Match, Matches
from fpdb.storage import unpack
from fpdb.storage.format import Stored
from fpdb.tables import Hits, agreeing, find_together, near_many
from fpdb.tables.bands import BandTable
from fpdb.tables.bits import Fingerprints, distances, to_array

# Of one query: candidates that are read, and documents that are returned, before it is cut.
CANDIDATES = 1_000_000
DOCUMENTS = 10_000
# Candidates whose sketches are compared at once.
_COMPARED = 1 << 16
# Fewer queries than this are faster one by one.
FEW = 128


class Search(NamedTuple):
    """What counts as a match: what has a similarity, or if that is None, what is within k."""

    k: int
    limit: int | None = None
    similarity: float | None = None


@dataclass(frozen=True, eq=False)
class Questions:
    """Fingerprints that are looked up together; in place of a short one, the digest of its text.

    `side` has the sketches of the texts, if matches are found by their similarity.
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
        sketches = batch.sketches
        side = None if sketches is None else side_of(batch.fingerprints, digests, sketches)
        return cls(batch.fingerprints, batch.short, digests, side)

    @classmethod
    def of_documents(cls, documents: Sequence[Stored], bits: int, *, sketched: bool) -> "Questions":
        """Return the questions of documents that are prepared, with sketches or without."""
        numbers = [document.fingerprint for document in documents]
        return cls(
            to_array((number or 0 for number in numbers), bits),
            np.array([number is None for number in numbers], np.bool_),
            [document.digest for document in documents],
            side_of_documents(documents, bits) if sketched else None,
        )

    def __len__(self) -> int:
        return len(self.digests)

    def after(self, start: int) -> "Questions":
        """Drop the first N."""
        some = slice(start, None)
        side = self.side.chosen(some) if self.side else None
        return Questions(self.fingerprints[some], self.short[some], self.digests[some], side)


def answers(view: View, questions: Questions, search: Search) -> Iterator[Matches]:
    """Yield the matches of each question; a short text finds equal texts only."""
    short, side = questions.short, questions.side
    # A ready fingerprint, which has no text, is a question of bits in any database.
    bits = ~short if side is None else ~short & ~side.of_texts
    near_ones = near_each(view, questions.fingerprints[bits], search.k, search.limit)
    similar_ones = similar(view, side.chosen(~short & ~bits), search) if side else iter(())
    for digest, equal, near in zip(questions.digests, short.tolist(), bits.tolist(), strict=True):
        if equal:
            yield same_text(view, digest, search)
        else:
            yield next(near_ones if near else similar_ones)


def near(view: View, fingerprint: int, k: int, limit: int | None = None) -> Matches:
    """Find the documents within k of a fingerprint."""
    txn, index = view.txn, view.index
    nearby = index.near(txn, fingerprint, k, CANDIDATES)
    if not nearby.distances:
        return to_matches((), complete=nearby.complete)
    known = nearby.ids
    found = sorted((apart, number) for number, apart in nearby.distances.items())
    runs = ((apart, known.get(number) or index.ids(txn, number)) for apart, number in found)
    return _matches(view, runs, limit, complete=nearby.complete)


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
    ids = list(islice(view.catalog.short_ids(view.txn, digest), DOCUMENTS + 1))
    matches = (_match(view, number, 0, 1.0, digest) for number in ids[:DOCUMENTS])
    same = sorted(matches, key=_rank)
    return to_matches(same[: search.limit], complete=len(ids) <= DOCUMENTS)


def similar(view: View, side: Side, search: Search) -> Iterator[Matches]:
    """Find the documents that are similar enough to each of some texts, by their sketches.

    Those are compared that agree with a text in a band. An answer isn't complete if a band is that
    of more documents than are compared.
    """
    bands = view.index.bands
    if bands is None or search.similarity is None:
        raise InputError("a database of bits finds no similar texts")
    if len(side) < FEW:
        for place in range(len(side)):
            yield _similar_to(view, bands, side, place, search)
        return
    numbers, marks = bands.shape.columns(side.sketches, side.digests)
    asking = marks.nonzero()[0]
    done = 0
    for queries, ids, complete in agreeing(view.txn, bands, [numbers[marks]], asking, len(side)):
        for some in portions(np.bincount(queries, minlength=len(complete)), _COMPARED):
            rows = slice(*queries.searchsorted([some.start, some.stop]).tolist())
            found = _compare(view, side, queries[rows] + done, ids[rows], search.similarity)
            for query in range(some.start, some.stop):
                matches = sorted(found.get(query + done, ()), key=_rank)
                yield to_matches(matches[: search.limit], complete=bool(complete[query]))
        done += len(complete)


def _similar_to(view: View, bands: BandTable, side: Side, place: int, search: Search) -> Matches:
    """Find the documents that are similar to one text, without the cost of small arrays."""
    sketch, digest = side.sketches[place].tobytes(), side.digests[place].tobytes()
    if not any(sketch):
        sketch = b""
    ids, complete = bands.near(view.txn, bands.numbers(sketch, digest))
    matches: list[Match] = []
    if ids:
        [fingerprint] = view.index.numbers(side.fingerprints[place : place + 1])
        least = least_estimate(search.similarity or 0.0)
        for number in ids:
            stored = view.catalog.named(view.txn, number)
            share = 1.0 if stored.digest == digest else one_jaccard(sketch, stored.sketch or b"")
            if share >= least:
                apart = (fingerprint ^ (stored.fingerprint or 0)).bit_count()
                matches.append(Match(stored.key, number, apart, share, unpack_meta(stored.meta)))
        matches.sort(key=_rank)
    return to_matches(matches[: search.limit], complete=complete)


def _compare(
    view: View, side: Side, queries: Places, candidates: Column, similarity: float
) -> dict[int, list[Match]]:
    """Compare candidates with the texts of their queries; return the matches of each query."""
    found: dict[int, list[Match]] = {}
    if not len(candidates):
        return found
    ids = unique(candidates)
    known = known_documents(view, ids)
    at = ids.searchsorted(candidates)
    shares = jaccard(side, queries, known.side, at)
    [kept] = (shares >= least_estimate(similarity)).nonzero()
    queries, at = queries[kept], at[kept]
    apart = distances(side.fingerprints[queries], known.side.fingerprints[at], view.index.plan.bits)
    columns = (queries.tolist(), at.tolist(), apart.tolist(), shares[kept].tolist())
    for query, place, distance, share in zip(*columns, strict=True):
        meta = unpack_meta(known.metas[place])
        match = Match(known.keys[place], int(ids[place]), distance, share, meta)
        found.setdefault(query, []).append(match)
    return found


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
    view: View, number: int, apart: int, share: float | None = None, digest: bytes = b""
) -> Match:
    stored = view.catalog.named(view.txn, number)
    if digest and stored.digest != digest:
        raise DamagedError(
            f"the document {number} isn't the text that led to it", hint="run `fpdb check`"
        )
    return Match(stored.key, number, apart, share, unpack_meta(stored.meta))


def _rank(match: Match) -> tuple[float, int, Key]:
    return -(match.similarity or 0.0), match.distance, match.key


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
