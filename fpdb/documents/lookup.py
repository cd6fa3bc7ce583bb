"""Look questions up: find candidates in the tables, compare them, sort and cut the matches."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import islice, pairwise, starmap
from math import isinf
from typing import NamedTuple

import numpy as np

from fpdb.arrays import Column, Marks, Places, differs, portions, ranked, run_starts, spans
from fpdb.documents.catalog import View
from fpdb.documents.similarity import KnownTexts, Shares, Side, decided, equal_texts, jaccard
from fpdb.errors import DamagedError
from fpdb.fingerprint.sketches import doubtful_estimates, least_estimate, one_jaccard
from fpdb.models import Document, Match, Matches
from fpdb.progress import log
from fpdb.storage.format import Stored
from fpdb.storage.origin import unpack_meta
from fpdb.tables import Hits, find_together, near_many, scan, scan_is_better, scan_many
from fpdb.tables.bands import MOST_COMPARED, MOST_OF_A_BAND
from fpdb.tables.bits import Distances, Fingerprints, distances, to_array

# Of one query: rows that are read, and documents that are returned, before it is cut.
CANDIDATES = 1_000_000
DOCUMENTS = 10_000
# Documents that many questions keep, to compare more than one of them with each.
_KEPT = 10_000
# Fewer queries than this are faster one by one.
FEW = 128
# Numbers of bands that are looked up together; pairs of a text and a document that are sorted
# together, so that records are read in their order; and pairs that are compared together.
_NUMBERS = 1 << 22
_SORTED = 1 << 21
_PAIRS = 1 << 18


class Search(NamedTuple):
    """The rule of a match: a least similarity, or without one a largest distance k.

    Texts that are known are compared exactly.
    """

    k: int
    limit: int | None = None
    similarity: float | None = None
    known: KnownTexts | None = None

    @property
    def most(self) -> int:
        """The number of documents that are read: to the limit, and more that are as near."""
        return DOCUMENTS + (self.limit or 0)

    @property
    def least(self) -> float:
        """The least estimate of a match, or of one that may be a match by its text."""
        similarity = self.similarity or 0.0
        return doubtful_estimates(similarity)[0] if self.known else least_estimate(similarity)


def answer(view: View, question: Stored, search: Search) -> Matches:
    """Find the matches of a prepared document; a short text finds equal texts only.

    With a similarity, the candidates are the documents that agree with it in a band. The answer
    isn't complete if a band has more documents than are compared. A ready fingerprint, which has no
    text, is looked up by its bits in any database.
    """
    number, bands = question.fingerprint, view.index.bands
    if number is None:
        found = _same(view, question.digest)
    elif bands is None or is_of_bits(question, search):
        found = _near(view, number, search, CANDIDATES)
    else:
        ids, complete = bands.near(view.txn, bands.of(question))
        found = Candidates([(0, ids)] if ids else [], complete)
    return matched(question, found, search, partial(view.catalog.named, view.txn))


class Nearest(NamedTuple):
    """The most similar document of each of many texts: its id, how similar it is, the distance.

    The share of a text that is like none is -1. A `crowded` one has too many candidates to be
    compared here. A document has the very text of one of the `copies`, be it the nearest or not.
    """

    ids: Column
    shares: Shares
    distances: Distances
    crowded: Marks
    copies: Marks

    @classmethod
    def none(cls, count: int) -> "Nearest":
        """Return that of some texts before any document is compared."""
        shares, apart = np.full(count, -1.0), np.zeros(count, np.uint8)
        crowded, copies = np.zeros((2, count), np.bool_)
        return cls(np.zeros(count, np.uint64), shares, apart, crowded, copies)

    def update(self, texts: Places, ids: Column, shares: Shares, apart: Distances) -> None:
        """Take the better of what is known and of other documents.

        Of two that are as near, it is the one that was added first.
        """
        sequence = np.lexsort((ids, apart, -shares, texts))
        sequence = sequence[differs(texts[sequence])]
        own, ids, shares, apart = texts[sequence], ids[sequence], shares[sequence], apart[sequence]
        old, near = self.shares[own], self.distances[own]
        nearer = (apart < near) | ((apart == near) & (ids < self.ids[own]))
        better = (shares > old) | ((shares == old) & nearer)
        own = own[better]
        self.ids[own], self.shares[own], self.distances[own] = (
            ids[better],
            shares[better],
            apart[better],
        )


def nearest_each(view: View, texts: Side, similarity: float) -> Nearest:
    """Find the most similar document of each of many texts, as columns.

    Documents that agree in a band are compared. A text without a sketch is found by its digest.
    """
    [bands] = filter(None, [view.index.bands])
    least, nearest = least_estimate(similarity), Nearest.none(len(texts.digests))
    numbers, marks = bands.shape.columns(texts.sketches, texts.digests)
    numbers, owners = numbers[marks], marks.nonzero()[0]
    sequence = np.argsort(numbers)
    numbers, owners = numbers[sequence], owners[sequence]
    del sequence, marks
    heads = np.append(differs(numbers).nonzero()[0], len(numbers))
    candidates = np.zeros(len(nearest.crowded), np.int64)
    for start in range(0, len(heads) - 1, _NUMBERS):
        some = heads[start : start + _NUMBERS + 1]
        wanted, repeats = numbers[some[:-1]], np.diff(some)
        bounds, ids = bands.pages.last_numbers(view.txn, [wanted], MOST_OF_A_BAND)
        own = owners[some[0] : some[-1]]
        starts, counts = np.repeat(bounds[:-1], repeats), np.repeat(np.diff(bounds), repeats)
        candidates += np.bincount(own, counts, len(candidates)).astype(np.int64)
        nearest.crowded[own[counts > MOST_OF_A_BAND]] = True
        nearest.crowded[candidates > MOST_COMPARED] = True
        counts[nearest.crowded[own]] = 0
        for few in portions(counts, _SORTED):
            every, reached = np.repeat(own[few], counts[few]), ids[spans(starts[few], counts[few])]
            sequence = np.argsort(reached)
            for first in range(0, len(sequence), _PAIRS):
                part = sequence[first : first + _PAIRS]
                asking, ([found], at) = every[part], ranked([reached[part]])
                stored = view.catalog.sides(view.txn, found)
                shares = jaccard(texts, asking, stored, at)
                [near] = (shares >= least).nonzero()
                asking, at = asking[near], at[near]
                nearest.copies[asking[equal_texts(texts, asking, stored, at)]] = True
                prints = texts.fingerprints[asking], stored.fingerprints[at]
                apart = distances(*prints, view.index.plan.bits)
                nearest.update(asking, found[at], shares[near], apart)
    return nearest


class Candidates(NamedTuple):
    """The candidates of a question, in runs of ids, and whether these are all.

    A run has the distance of its fingerprint. Candidates whose sketches are still to be compared
    are one run at distance 0.
    """

    runs: Sequence[tuple[int, Iterable[int]]]
    complete: bool


def answers(view: View, questions: Sequence[Stored], search: Search) -> Iterator[Matches]:
    """Yield the matches of each question, as `answer` finds them."""
    # In a crowd, questions share most of their candidates.
    read = lru_cache(_KEPT)(partial(view.catalog.named, view.txn))
    found = candidates_each(view, questions, search, CANDIDATES)
    for question, own in zip(questions, found, strict=True):
        yield matched(question, own, search, read)


def candidates_each(
    view: View, questions: Sequence[Stored], search: Search, budget: int
) -> Iterator[Candidates]:
    """Yield the candidates of each question; a lookup of bits reads at most `budget` rows."""
    of_bits: list[int] = []
    of_texts: list[list[int]] = []
    for question in questions:
        if question.fingerprint is not None:
            if is_of_bits(question, search):
                of_bits.append(question.fingerprint)
            else:
                of_texts.append(view.index.band_numbers(question))
    near_ones = _near_each(view, of_bits, search, budget)
    bands = view.index.bands
    alike = bands.near_each(view.txn, of_texts) if bands else ()
    similar_ones = (Candidates([(0, ids)] if ids else [], complete) for ids, complete in alike)
    for question in questions:
        if question.fingerprint is None:
            yield _same(view, question.digest)
        else:
            yield next(near_ones if is_of_bits(question, search) else similar_ones)


def matched(
    question: Stored, found: Candidates, search: Search, read: Callable[[int], Stored]
) -> Matches:
    if not found.runs:
        return to_matches((), complete=found.complete)
    if question.fingerprint is not None and is_of_bits(question, search):
        return _nearest(found, search, read)
    return _compared(question, found, search, read)


def is_of_bits(question: Stored, search: Search) -> bool:
    """Return whether a question is looked up by the bits of its fingerprint."""
    return search.similarity is None or not (question.sketch or question.digest)


def near(view: View, fingerprint: int, search: Search) -> Matches:
    """Find the documents within k of a fingerprint."""
    found = _near(view, fingerprint, search, CANDIDATES)
    return _nearest(found, search, partial(view.catalog.named, view.txn))


def _near(view: View, fingerprint: int, search: Search, budget: int) -> Candidates:
    """Find a run for each fingerprint within k; the ids may be read only when they are needed."""
    txn, index = view.txn, view.index
    if _is_scanned(view, search.k, budget):
        [scanned] = _scanned(view, [fingerprint], search)
        return scanned
    distances, complete, known = index.near(txn, fingerprint, search.k, budget)
    if not distances:
        return Candidates((), complete)
    found = sorted((apart, number) for number, apart in distances.items())
    runs = [(apart, known.get(own) or index.ids(txn, own, search.most)) for apart, own in found]
    return Candidates(runs, complete)


def _near_each(
    view: View, numbers: Sequence[int], search: Search, budget: int
) -> Iterator[Candidates]:
    if numbers and _is_scanned(view, search.k, budget):
        yield from _scanned(view, numbers, search)
        return
    if len(numbers) < FEW:
        for number in numbers:
            yield _near(view, number, search, budget)
        return
    fingerprints = to_array(numbers, view.index.plan.bits)
    limits = {"budget": budget, "most": search.most}
    for together in find_together(view.txn, view.index, fingerprints, search.k, **limits):
        yield from starmap(Candidates, together)


def _is_scanned(view: View, k: int, budget: int) -> bool:
    index = view.index
    if k <= index.plan.k:  # for which the tables are made
        return isinf(index.reads(k)[0])
    return scan_is_better(view.txn, index, k, view.counters.documents, budget)


def _scanned(view: View, numbers: Sequence[int], search: Search) -> Iterator[Candidates]:
    """Find the documents nearest to each fingerprint, by reading all of them."""
    fingerprints = to_array(numbers, view.index.plan.bits)
    limits = {"limit": search.limit or search.most, "most": search.most}
    for apart, ids in scan(view.txn, view.index, fingerprints, search.k, **limits):
        starts = [*run_starts(apart).tolist(), len(apart)]
        runs = [(int(apart[start]), ids[start:end].tolist()) for start, end in pairwise(starts)]
        yield Candidates(runs, complete=True)


def hits(view: View, fingerprints: Fingerprints, search: Search) -> Hits:
    """Find the documents within k of each of many fingerprints, as columns."""
    asked = (view.txn, view.index, fingerprints, search.k)
    if _is_scanned(view, search.k, CANDIDATES):
        return scan_many(*asked, limit=search.limit, most=search.most)
    return near_many(*asked, limit=search.limit, budget=CANDIDATES, most=search.most)


def _same(view: View, digest: bytes) -> Candidates:
    ids = list(islice(view.catalog.short_ids(view.txn, digest), DOCUMENTS + 1))
    return Candidates([(0, ids[:DOCUMENTS])] if ids else [], len(ids) <= DOCUMENTS)


def _compared(
    question: Stored, found: Candidates, search: Search, read: Callable[[int], Stored]
) -> Matches:
    """Compare the sketches of candidates with that of a question; return the similar ones.

    Those of a short text, which are found by its digest, are equal to it.
    """
    matches: list[Match] = []
    compared: list[Stored] = []
    least = search.least
    sketch, digest, fingerprint = question.sketch, question.digest, question.fingerprint or 0
    for _, ids in found.runs:
        for number in ids:
            stored = read(number)
            same = stored.digest == digest and any(digest)
            if not same and question.fingerprint is None:
                raise DamagedError(f"the document {number} isn't the text that led to it")
            share = 1.0 if same else one_jaccard(sketch, stored.sketch)
            if share >= least:
                apart = (fingerprint ^ (stored.fingerprint or 0)).bit_count()
                matches.append(to_match(stored, number, apart, share, exact=same))
                compared.append(stored)
    if search.known and matches:
        matches = _decided(question, compared, matches, search.similarity or 0.0, search.known)
    return _ranked(matches, search.limit, complete=found.complete)


def _decided(
    question: Stored,
    compared: Sequence[Stored],
    estimated: Sequence[Match],
    similarity: float,
    known: KnownTexts,
) -> list[Match]:
    """Return the matches among those that are estimated, with the similarity of their texts."""
    own, *others = known.places([question, *compared]).tolist()
    exact = known.shares(np.full(len(others), own), np.array(others))
    estimates = np.array([match.similarity for match in estimated])
    equal = np.array([match.exact for match in estimated])
    columns = (column.tolist() for column in decided(estimates, equal, exact, similarity))
    return [
        match._replace(similarity=share, exact=is_exact)
        for match, alike, share, is_exact in zip(estimated, *columns, strict=True)
        if alike
    ]


def _nearest(found: Candidates, search: Search, read: Callable[[int], Stored]) -> Matches:
    """Return the documents of runs, which are sorted by distance."""
    matches: list[Match] = []
    complete, reached, limit = found.complete, 0, search.limit
    for apart, ids in found.runs:
        # All documents at one distance are read, since they are sorted by key.
        if limit is not None and len(matches) >= limit and apart > reached:
            break
        reached = apart
        for number in ids:
            if len(matches) == search.most:
                complete = False
                break
            matches.append(to_match(read(number), number, apart))
    return _ranked(matches, limit, complete=complete)


def to_match(
    stored: Stored,
    number: int,
    apart: int,
    share: float | None = None,
    *,
    exact: bool | None = None,
) -> Match:
    """Return a document with an id as a match."""
    return Match(stored.key, number, apart, share, unpack_meta(stored.meta), exact)


def _ranked(matches: list[Match], limit: int | None, *, complete: bool) -> Matches:
    """Return the first matches, the most similar or nearest ones first."""
    if len(matches) > 1:
        matches.sort(key=lambda match: (-(match.similarity or 0.0), match.distance, match.key))
    return to_matches(matches[:limit], complete=complete)


def to_matches(matches: Iterable[Match], *, complete: bool) -> Matches:
    found = Matches(matches)
    found.complete = complete
    if not complete:
        log("WARNING", "an answer is incomplete: too many documents are that near")
    return found


def to_document(stored: Stored) -> Document:
    number, key, fingerprint, added, digest, meta, characters, sketch, *further = stored
    return Document(
        *(key, None, unpack_meta(meta), fingerprint, number, added, fingerprint is None),
        *(sketch or None, digest or None, characters),
        *[value or None for value in further],
    )
