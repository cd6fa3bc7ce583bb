"""Look up each document of a batch, as if the documents before it were stored already.

The tables are read once, before anything of the batch is written, and the batch is compared with
itself at once. Then the documents are decided in order.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from math import isnan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Column, Marks, Places, differs, joined, ranked, spans, unique
from fpdb.documents import lookup
from fpdb.documents.catalog import View
from fpdb.documents.lookup import Candidates, Search, candidates_each, is_of_bits, matched
from fpdb.documents.similarity import Known, Shares, Side, jaccard
from fpdb.fingerprint.sketches import least_estimate
from fpdb.models import Key, Matches
from fpdb.storage.format import Stored
from fpdb.tables import bands, near_among
from fpdb.tables.bits import as_words, distances, of_words

# Candidates that are held for a batch, and stored documents that are kept in memory, since several
# documents of the batch may be compared with each.
_HELD = 1 << 20
_KEPT = 10_000
# Documents that are looked up together where many of a batch have too many pairs.
_FEW = 1 << 12


class _Earlier(NamedTuple):
    """A document that comes before a similar one: its place, the distance, how similar they are.

    Without a similarity, their fingerprints were compared.
    """

    place: int
    distance: int
    share: float | None


class _Pairs(NamedTuple):
    """Documents of a batch that resemble earlier ones, as columns.

    A share is nan if fingerprints were compared.
    """

    later: Places
    earlier: Places
    distances: NDArray[np.uint8]
    shares: Shares

    def only(self, marks: Marks) -> "_Pairs":
        later, earlier, apart, shares = self
        return _Pairs(later[marks], earlier[marks], apart[marks], shares[marks])


class BatchLookup:
    """The lookup of the first documents of a batch, among stored documents and saved ones.

    It covers the whole batch, unless the candidates are too many to be held; at least one document.
    """

    def __init__(
        self,
        view: View,
        documents: Sequence[Stored],
        known: Mapping[Key, Stored | None],
        search: Search,
    ) -> None:
        """Look documents up before any is written; `known` has the stored ones by their keys."""
        self._search = search
        self._most = min(lookup.DOCUMENTS, bands.MOST_OF_A_BAND, bands.MOST_COMPARED)
        self._stored = lru_cache(_KEPT)(partial(view.catalog.named, view.txn))
        self._gone: set[int] = set()  # ids of candidates that were replaced since
        self._saved: dict[int, Stored] = {}  # by their places,
        self._places: dict[Key, int] = {}  # which their keys lead to
        keys = Counter([document.key for document in documents])
        # An unchanged document is not looked up, unless its key comes twice.
        places = [
            place
            for place, document in enumerate(documents)
            if keys[document.key] > 1
            or (old := known[document.key]) is None
            or not old.holds_what(document)
        ]
        questions = [documents[place] for place in places]
        compared = np.zeros(len(questions), np.int64)
        while (pairs := _pairs(view, questions, search, compared)) is None:
            questions = questions[: min(len(questions) // 2, _FEW)]
            compared = np.zeros(len(questions), np.int64)
        self._compared = dict(zip(places, compared.tolist(), strict=False))
        self._earlier: dict[int, list[_Earlier]] = {}
        for later, earlier, apart, share in zip(*(each.tolist() for each in pairs), strict=True):
            found = _Earlier(places[earlier], apart, None if isnan(share) else share)
            self._earlier.setdefault(places[later], []).append(found)
        self._found: dict[int, Candidates] = {}
        held = 0
        # With a budget for the rows of the batch too, saving its documents changes no answer.
        others = len(view.index.routes(search.k)) * (len(questions) - 1)
        reached = candidates_each(view, questions, search, max(lookup.CANDIDATES - others, 1))
        for place, candidates in zip(places, reached, strict=False):
            if not candidates.runs:
                self._found[place] = candidates
                continue
            runs = [(apart, list(ids)) for apart, ids in candidates.runs]
            held += sum(len(ids) for _, ids in runs)
            if held > _HELD and self._found:
                break
            self._found[place] = candidates._replace(runs=runs)
        self._length = len(documents)
        if len(self._found) < len(places):
            self._length = places[len(self._found)]

    def __len__(self) -> int:
        return self._length

    def matches(self, place: int, document: Stored) -> Matches | None:
        """Return the matches of a document, or None if it must be looked up in the tables again.

        That is so if it has more candidates than are compared or returned.
        """
        found, most = self._found[place], self._most
        if not found.complete or found.compared + self._compared[place] > most:
            return None
        saved = [
            (self._saved[each.place], each)
            for each in self._earlier.get(place, ())
            if each.place in self._saved
        ]
        if not saved and not found.runs:
            return Matches()
        fresh = {stored.id: stored for stored, _ in saved}
        shares = {stored.id: each.share for stored, each in saved if each.share is not None}
        gone = self._gone
        runs = [
            (apart, [number for number in ids if number not in gone]) for apart, ids in found.runs
        ]
        runs += [(each.distance, [stored.id]) for stored, each in saved]
        if sum(len(ids) for _, ids in runs) > most:
            return None

        def read(number: int) -> Stored:
            return fresh[number] if number in fresh else self._stored(number)

        candidates = Candidates(sorted(runs), complete=True, shares={**found.shares, **shares})
        return matched(document, candidates, self._search, read)

    def save(self, place: int, stored: Stored, old: Stored | None) -> None:
        """Note that a document was saved, in the place of an old one."""
        if old:
            self._gone.add(old.id)
            if (before := self._places.pop(old.key, None)) is not None:
                del self._saved[before]
        self._saved[place] = stored
        self._places[stored.key] = place


def _pairs(
    view: View, documents: Sequence[Stored], search: Search, compared: Places
) -> _Pairs | None:
    """Return the documents of a batch that resemble earlier ones; count those that are compared.

    Nothing is returned if they are too many to be held.
    """
    index, count = view.index, len(documents)
    side = Known.of(documents, index.plan.bits).side
    short = np.array([each.fingerprint is None for each in documents], np.bool_)
    of_bits = np.array([is_of_bits(each, search) for each in documents], np.bool_) & ~short
    # Equal short texts meet by their digests.
    [places] = (short & side.digests.any(axis=1)).nonzero()
    met = [_meeting(side.digests[places, 0], places)]
    if index.bands:
        numbers, marks = index.bands.shape.columns(side.sketches, side.digests)
        marks[short | of_bits] = False
        met.append(_meeting(numbers[marks], marks.nonzero()[0]))
    parts: list[_Pairs] = []
    for pairs in met:
        if pairs is None:
            return None
        later, earlier = pairs
        compared += np.bincount(later, minlength=count)
        parts.append(_similar(side, later, earlier, search, index.plan.bits))
    if of_bits.any():
        near = _near(view, side, ~short, search.k)
        if near is None:
            return None
        parts.append(near.only(of_bits[near.later]))
    return _Pairs(*joined(parts))


def _meeting(numbers: Column, places: Places) -> tuple[Places, Places] | None:
    """Return pairs of places that have a number in common, the later one first, with repetitions.

    Nothing is returned if they are too many to be held.
    """
    sequence = np.lexsort((places, numbers))
    places = places[sequence]
    starts = np.maximum.accumulate(differs(numbers[sequence]) * np.arange(len(places)))
    counts = np.arange(len(places)) - starts  # of the places that come before, in the run
    if counts.sum() > _HELD:
        return None
    return np.repeat(places, counts), places[spans(starts, counts)]


def _similar(side: Side, later: Places, earlier: Places, search: Search, bits: int) -> _Pairs:
    """Return the pairs of texts that are similar; short ones only if they are equal."""
    count = len(side.digests)
    later, earlier = np.divmod(unique(later * count + earlier), count)
    shares = jaccard(side, later, side, earlier)
    [near] = (shares >= least_estimate(search.similarity or 1.0)).nonzero()
    later, earlier = later[near], earlier[near]
    apart = distances(side.fingerprints[later], side.fingerprints[earlier], bits)
    return _Pairs(later, earlier, apart, shares[near])


def _near(view: View, side: Side, printed: Marks, k: int) -> _Pairs | None:
    """Return the pairs of fingerprints within k; nothing if they are too many to be held."""
    [places] = printed.nonzero()
    words, ranks = ranked(as_words(side.fingerprints[places]))
    fingerprints = of_words(words)
    pairs = near_among(view.index, fingerprints, k)
    if pairs is None:
        return None
    queries, others, apart = pairs
    # A document leads to the fingerprints near its own, and each of these to its documents.
    bounds = queries.searchsorted(np.arange(len(fingerprints) + 1))
    sizes = np.diff(bounds)[ranks]
    later, near = np.repeat(places, sizes), spans(bounds[ranks], sizes)
    owners = np.argsort(ranks, kind="stable")
    bounds = ranks[owners].searchsorted(np.arange(len(fingerprints) + 1))
    sizes = np.diff(bounds)[others[near]]
    if sizes.sum() > _HELD:
        return None
    earlier = places[owners[spans(bounds[others[near]], sizes)]]
    later, apart = np.repeat(later, sizes), np.repeat(apart[near], sizes)
    return _Pairs(later, earlier, apart, np.full(len(later), np.nan)).only(earlier < later)
