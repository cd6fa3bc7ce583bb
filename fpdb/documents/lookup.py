"""Look questions up: find candidates in the tables, compare them, sort and cut the matches."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import islice, pairwise, starmap
from math import inf, isinf
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from fpdb.arrays import Column, Marks, Places, differs, portions, ranked, run_starts, spans
from fpdb.documents.catalog import View
from fpdb.documents.similarity import Alike, KnownTexts, alike, decided
from fpdb.errors import DamagedError, DocumentNotFoundError
from fpdb.fingerprint.sketches import doubtful_estimates, least_estimate, one_jaccard
from fpdb.models import Document, Key, Match, Matches
from fpdb.progress import log
from fpdb.storage.block import Block, TextColumns
from fpdb.storage.format import Stored
from fpdb.storage.origin import unpack_meta
from fpdb.tables import Hits, bands, find_together, near_many, scan, scan_is_better, scan_many
from fpdb.tables.bits import Fingerprints, to_array, to_ints

# Of one query: rows that are read, and documents that are returned, before it is cut.
CANDIDATES = 1_000_000
DOCUMENTS = 10_000
# Documents that many questions keep, to compare more than one of them with each.
_KEPT = 10_000
# Short texts whose equal documents are kept for further questions.
_SAME = 16
# Fewer queries than this are faster one by one.
FEW = 128
# Numbers of bands that are looked up together; pairs of a text and a document that are sorted
# together, so that records are read in their order; and pairs that are compared together.
_NUMBERS = 1 << 22
_SORTED = 1 << 21
_PAIRS = 1 << 18
# Pairs of many questions and similar documents that are held at once.
_HELD = 1 << 20

# From when and before when documents were added, in seconds since 1970.
Times = tuple[float, float]
ALWAYS: Times = -inf, inf


def times_of(since: float | None, before: float | None) -> Times | None:
    """Return the times from one on and before another, if there is any."""
    start, end = ALWAYS
    if since is None and before is None:
        return None
    return start if since is None else since, end if before is None else before


class Search(NamedTuple):
    """The rule of a match: a least similarity, or without one a largest distance k.

    Texts that are known are compared exactly. `only` says whether a document, by its id, may match;
    so do `times`, from when and before when it was added.
    """

    k: int
    limit: int | None = None
    similarity: float | None = None
    known: KnownTexts | None = None
    only: Callable[[int], bool] | None = None
    times: Times | None = None

    @property
    def most(self) -> int:
        """The number of documents that are read: to the limit, and more that are as near."""
        return DOCUMENTS + (self.limit or 0)

    @property
    def most_looked_at(self) -> int:
        """The number of documents that are looked at: more if most may be of other times."""
        return CANDIDATES if self.times else self.most

    @property
    def least(self) -> float:
        """The least estimate of a match, or of one that may be a match by its text."""
        similarity = self.similarity or 0.0
        return doubtful_estimates(similarity)[0] if self.known else least_estimate(similarity)


def timed(view: View, search: Search) -> Search:
    """Return a search whose matches were added at its times, if it has any."""
    if search.times is None:
        return search
    since, before = search.times

    def is_within(number: int) -> bool:
        stored = view.catalog.record(view.txn, number) or view.catalog.find(view.txn, number)
        return stored is not None and since <= stored.added < before

    return search._replace(only=is_within)


def answer(view: View, question: Stored, search: Search) -> Matches:
    """Find the matches of a prepared document; a short text finds equal texts only.

    With a similarity, the candidates are the documents that agree with it in a band. The answer
    isn't complete if a band has more documents than are compared. A ready fingerprint, which has no
    text, is looked up by its bits in any database.
    """
    number = question.fingerprint
    if search.times:
        search = timed(view, search)
    if number is None:
        candidates = _same(view, question.digest, search)
    elif view.index.bands is None or is_of_bits(question, search):
        candidates = _near(view, number, search, CANDIDATES)
    else:
        candidates = _alike_alone(view, question, search)
    return matched(question, candidates, search, partial(view.catalog.named, view.txn))


def nearest_each(view: View, texts: TextColumns, least: float) -> tuple[Alike, Marks, Marks]:
    """Find the most similar document of each of many texts; of equally near ones the first added.

    Also mark the texts that have too many candidates to be compared here, and those that a document
    has, be it the nearest or not.
    """
    nearest, copies = Alike.none(), np.zeros(len(texts), np.bool_)
    candidates = np.zeros(len(texts), np.int64)
    for pairs in alike_each(view, texts, least, candidates):
        copies[pairs.first[pairs.sure]] = True
        nearest = nearest.nearer(pairs)
    return nearest, candidates > most_compared(), copies


def most_compared() -> int:
    """Return the number of candidates with which a text of many is compared at most."""
    return min(bands.MOST_OF_A_BAND, bands.MOST_COMPARED)


def alike_each(
    view: View,
    texts: TextColumns,
    least: float,
    candidates: Places,
    only: Callable[[int], bool] | None = None,
) -> Iterator[Alike]:
    """Yield the documents whose estimate is at least so, of those that agree with a text in a band.

    A text without a sketch is found by its digest. The candidates of each text are counted; one
    with too many has to be looked up alone. If it is said which ids count, only these do, of the
    first in each band.
    """
    [table] = filter(None, [view.index.bands])
    most = most_compared()
    numbers, marks = table.shape.columns(texts.sketches, texts.digests)
    numbers, owners = numbers[marks], marks.nonzero()[0]
    sequence = np.argsort(numbers)
    numbers, owners = numbers[sequence], owners[sequence]
    del sequence, marks
    heads = np.append(differs(numbers).nonzero()[0], len(numbers))
    for start in range(0, len(heads) - 1, _NUMBERS):
        part = heads[start : start + _NUMBERS + 1]
        wanted, repeats = numbers[part[:-1]], np.diff(part)
        bounds, ids = table.pages.last_numbers(view.txn, [wanted], most)
        asking = owners[part[0] : part[-1]]
        if only:
            allowed = _allowed(ids, only)
            ids, bounds = ids[allowed], np.append(0, allowed.cumsum())[bounds]
        starts, counts = np.repeat(bounds[:-1], repeats), np.repeat(np.diff(bounds), repeats)
        candidates += np.bincount(asking, counts, len(candidates)).astype(np.int64)
        counts[candidates[asking] > most] = 0
        for rows in portions(counts, _SORTED):
            askers = np.repeat(asking[rows], counts[rows])
            reached = ids[spans(starts[rows], counts[rows])]
            sequence = np.argsort(reached)
            for first in range(0, len(sequence), _PAIRS):
                pairs = sequence[first : first + _PAIRS]
                yield _compared_with_stored(view, texts, askers[pairs], reached[pairs], least)


def _compared_with_stored(
    view: View, texts: TextColumns, askers: Places, reached: Column, least: float
) -> Alike:
    """Compare texts with the documents that they have reached; these are best sorted."""
    [ids], places = ranked([reached])
    stored = view.catalog.texts(view.txn, ids)
    pairs = alike(texts, askers, stored, places, least=least, bits=view.index.plan.bits)
    return pairs._replace(second=ids[pairs.second])


class Candidates(NamedTuple):
    """The candidates of a question, in runs of ids, and whether these are all.

    A run has the distance of its fingerprint. Candidates whose sketches are still to be compared
    are one run at distance 0. Documents that were compared already have `shares`, by their ids, and
    `compared` counts the rows that led to candidates.
    """

    runs: Sequence[tuple[int, Iterable[int]]]
    complete: bool
    shares: Mapping[int, float] = MappingProxyType({})
    compared: int = 0


def answers(view: View, questions: Block, search: Search) -> Iterator[Matches]:
    """Yield the matches of each question, as `answer` finds them."""
    if len(questions) == 1:  # for which columns take several times as long
        yield answer(view, questions.row(0), search)
        return
    search = timed(view, search)
    # In a crowd, questions share most of their candidates.
    read = lru_cache(_KEPT)(partial(view.catalog.named, view.txn))
    reached = candidates_each(view, questions, search, CANDIDATES)
    for place, candidates in enumerate(reached):
        if candidates.runs:
            yield matched(questions.row(place), candidates, search, read)
        else:
            yield to_matches((), complete=candidates.complete)


def candidates_each(
    view: View, questions: Block, search: Search, budget: int
) -> Iterator[Candidates]:
    """Yield the candidates of each question; a lookup of bits reads at most `budget` rows."""
    of_bits = are_of_bits(questions, search)
    near_ones = _near_each(view, questions[of_bits.nonzero()[0]].fingerprints, search, budget)
    texts = ~(of_bits | questions.short)
    similar_ones = _similar_each(view, questions[texts.nonzero()[0]], search)
    # Of short texts, such as error pages, many are equal.
    same = lru_cache(_SAME)(partial(_same, view, search=search))
    kinds = zip(questions.short.tolist(), of_bits.tolist(), strict=True)
    for place, (short, by_bits) in enumerate(kinds):
        if short:
            yield same(questions.digests[place].tobytes())
        else:
            yield next(near_ones if by_bits else similar_ones)


def are_of_bits(questions: Block, search: Search) -> Marks:
    """Mark the questions that are looked up by the bits of their fingerprints."""
    return ~questions.short if search.similarity is None else questions.ready


def _similar_each(view: View, texts: Block, search: Search) -> Iterator[Candidates]:
    """Yield the documents that resemble each text, or the candidates of one that has too many."""
    if not len(texts) or search.similarity is None:
        return
    candidates = np.zeros(len(texts), np.int64)
    similar: dict[int, dict[int, tuple[int, float]]] = {}
    held = 0
    # In a crowd, those of some times may come last; they are chosen when all are compared.
    only = None if search.times else search.only
    for pairs in alike_each(view, texts, search.least, candidates, only):
        held += len(pairs.first)
        if held > _HELD and len(texts) > 1:
            half = len(texts) // 2
            for part in (texts[:half], texts[half:]):
                yield from _similar_each(view, part, search)
            return
        columns = (column.tolist() for column in pairs[:4])
        for place, number, share, apart in zip(*columns, strict=True):
            similar.setdefault(place, {})[number] = apart, share
    most = most_compared()
    for place, reached in enumerate(candidates.tolist()):
        if reached > most:
            yield _alike_alone(view, texts.row(place), search)._replace(compared=reached)
        elif documents := similar.get(place):
            runs = [(apart, [number]) for number, (apart, _) in documents.items()]
            shares = {number: share for number, (_, share) in documents.items()}
            yield Candidates(runs, complete=True, shares=shares, compared=reached)
        else:
            yield Candidates((), complete=True, compared=reached)


def _allowed(ids: Column, only: Callable[[int], bool]) -> Marks:
    """Mark the ids of documents that may match; each is looked at once."""
    [distinct], places = ranked([ids])
    marks = np.fromiter(map(only, distinct.tolist()), np.bool_, len(distinct))
    return marks[places]


def _alike_alone(view: View, text: Stored, search: Search) -> Candidates:
    [table] = filter(None, [view.index.bands])
    numbers = table.of(text)
    most = CANDIDATES // (len(numbers) or 1) if search.times else None
    ids, complete = table.near(view.txn, numbers, search.only, most)
    return Candidates([(0, ids)] if ids else [], complete)


def matched(
    question: Stored, candidates: Candidates, search: Search, read: Callable[[int], Stored]
) -> Matches:
    """Return the matches of a question among its candidates; without any, no digest is made."""
    if not candidates.runs:
        return to_matches((), complete=candidates.complete)
    if question.fingerprint is not None and is_of_bits(question, search):
        return _nearest(candidates, search, read)
    return _compared(question, candidates, search, read)


def is_of_bits(question: Stored, search: Search) -> bool:
    """Return whether a question is looked up by the bits of its fingerprint."""
    return search.similarity is None or not (question.sketch or question.digest)


def near(view: View, fingerprint: int, search: Search) -> Matches:
    """Find the documents within k of a fingerprint."""
    search = timed(view, search)
    candidates = _near(view, fingerprint, search, CANDIDATES)
    return _nearest(candidates, search, partial(view.catalog.named, view.txn))


def _near(view: View, fingerprint: int, search: Search, budget: int) -> Candidates:
    """Find a run for each fingerprint within k; the ids may be read only when they are needed."""
    txn, index = view.txn, view.index
    if _is_scanned(view, search.k, budget):
        [scanned] = _scanned(view, to_array([fingerprint], view.index.plan.bits), search)
        return scanned
    distances, complete, known = index.near(txn, fingerprint, search.k, budget)
    if not distances:
        return Candidates((), complete)
    nearest = sorted((apart, number) for number, apart in distances.items())
    runs = [
        (apart, known.get(number) or index.ids(txn, number, search.most_looked_at))
        for apart, number in nearest
    ]
    return Candidates(runs, complete)


def _near_each(
    view: View, fingerprints: Fingerprints, search: Search, budget: int
) -> Iterator[Candidates]:
    if len(fingerprints) and _is_scanned(view, search.k, budget):
        yield from _scanned(view, fingerprints, search)
        return
    if len(fingerprints) < FEW:
        for number in to_ints(fingerprints):
            yield _near(view, number, search, budget)
        return
    limits = {"budget": budget, "most": search.most_looked_at}
    for together in find_together(view.txn, view.index, fingerprints, search.k, **limits):
        yield from starmap(Candidates, together)


def _is_scanned(view: View, k: int, budget: int) -> bool:
    index = view.index
    if k <= index.plan.k:  # for which the tables are made
        return isinf(index.reads(k)[0])
    return scan_is_better(view.txn, index, k, view.counters.documents, budget)


def _scanned(view: View, fingerprints: Fingerprints, search: Search) -> Iterator[Candidates]:
    """Find the documents nearest to each fingerprint, by reading all of them."""
    asked = (view.txn, view.index, fingerprints, search.k)
    limit, most = search.limit or search.most, search.most
    for apart, ids in scan(*asked, limit=limit, most=most, only=search.only):
        starts = [*run_starts(apart).tolist(), len(apart)]
        runs = [(int(apart[start]), ids[start:end].tolist()) for start, end in pairwise(starts)]
        yield Candidates(runs, complete=True)


def hits(view: View, fingerprints: Fingerprints, search: Search) -> Hits:
    """Find the documents within k of each of many fingerprints, as columns."""
    asked = (view.txn, view.index, fingerprints, search.k)
    if _is_scanned(view, search.k, CANDIDATES):
        return scan_many(*asked, limit=search.limit, most=search.most)
    return near_many(*asked, limit=search.limit, budget=CANDIDATES, most=search.most)


def _same(view: View, digest: bytes, search: Search) -> Candidates:
    most = CANDIDATES if search.times else DOCUMENTS
    ids = list(islice(view.catalog.short_ids(view.txn, digest), most + 1))
    same = [*filter(search.only, ids[:most])] if search.only else ids[:most]
    # For a group, the first keeper of an equal text is all that counts.
    complete = len(ids) <= most or bool(same and search.only and not search.times)
    return Candidates([(0, same)] if same else [], complete)


def _compared(
    question: Stored, candidates: Candidates, search: Search, read: Callable[[int], Stored]
) -> Matches:
    """Compare the sketches of candidates with that of a question; return the similar ones.

    Those of a short text, which are found by its digest, are equal to it.
    """
    matches: list[Match] = []
    compared: list[Stored] = []
    least, complete = search.least, candidates.complete
    sketch, digest, fingerprint = question.sketch, question.digest, question.fingerprint or 0
    for _, ids in candidates.runs:
        for number in ids:
            if search.only and not search.only(number):
                continue
            if len(matches) == search.most:
                complete = False
                break
            stored = read(number)
            same = stored.digest == digest and any(digest)
            if question.fingerprint is None and not same:
                raise DamagedError(f"the document {number} isn't the text that led to it")
            share = 1.0 if same else candidates.shares.get(number, -1.0)
            if share < 0:
                share = one_jaccard(sketch, stored.sketch)
            if share >= least:
                apart = (fingerprint ^ (stored.fingerprint or 0)).bit_count()
                matches.append(to_match(stored, number, apart, share, exact=same))
                compared.append(stored)
    matches = _decided(question, compared, matches, search)
    return _ranked(matches, search.limit, complete=complete)


def _decided(
    question: Stored, compared: Sequence[Stored], estimated: Sequence[Match], search: Search
) -> list[Match]:
    """Return the matches among those that are estimated, with the similarity of their texts."""
    if search.known is None or not estimated:
        return list(estimated)
    places = search.known.places([question, *compared])
    exact = search.known.shares(np.full(len(compared), places[0]), places[1:])
    estimates = np.array([match.similarity for match in estimated])
    equal = np.array([match.exact for match in estimated])
    decision = decided(estimates, equal, exact, search.similarity or 0.0)
    columns = (column.tolist() for column in decision)
    return [
        match._replace(similarity=share, exact=is_exact)
        for match, alike, share, is_exact in zip(estimated, *columns, strict=True)
        if alike
    ]


def _nearest(candidates: Candidates, search: Search, read: Callable[[int], Stored]) -> Matches:
    """Return the documents of runs, which are sorted by distance."""
    matches: list[Match] = []
    complete, reached, limit = candidates.complete, 0, search.limit
    remaining = search.most_looked_at
    for apart, ids in candidates.runs:
        # All documents at one distance are read, since they are sorted by key.
        if limit is not None and len(matches) >= limit and apart > reached:
            break
        reached = apart
        for number in ids:
            if len(matches) == search.most or not remaining:
                complete = False
                break
            remaining -= 1
            if not search.only or search.only(number):
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
    answered = Matches(matches)
    answered.complete = complete
    if not complete:
        log("WARNING", "an answer is incomplete: too many documents are that near")
    return answered


def to_document(stored: Stored, group: Key | None) -> Document:
    """Return a stored document, whose group only other documents tell."""
    number, key, fingerprint, added, digest, meta, characters, sketch, *further, _keeper = stored
    return Document(
        *(key, None, unpack_meta(meta), fingerprint, number, added, fingerprint is None),
        *(sketch or None, digest or None, characters),
        *[*(value or None for value in further), group],  # type: ignore[arg-type]
    )


def not_found(key: Key) -> DocumentNotFoundError:
    return DocumentNotFoundError(
        f"found no document with the key {key!r}",
        hint="db.get(key) gives None for a key that isn't there",
    )
