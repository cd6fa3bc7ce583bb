"""Look up each document of a batch, as if the documents before it were stored already.

The tables are read once, before anything of the batch is written, and the batch is compared with
itself at once. Then the documents are decided in order.
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Column, Marks, Places, differs, joined, ranked, spans, unique
from fpdb.documents import lookup
from fpdb.documents.catalog import View
from fpdb.documents.lookup import (
    Candidates,
    Search,
    are_of_bits,
    candidates_each,
    matched,
    most_compared,
)
from fpdb.documents.similarity import Shares, jaccard
from fpdb.models import Key, Matches
from fpdb.storage.block import Block
from fpdb.storage.format import Stored
from fpdb.tables import near_among
from fpdb.tables.bits import as_words, distances, of_words

# Candidates that are held for a batch, and stored documents that are kept in memory, since several
# documents of the batch may be compared with each.
_HELD = 1 << 20
_KEPT = 10_000
# Documents that are looked up together where many of a batch have too many pairs.
_FEW = 1 << 12


class _Earlier(NamedTuple):
    """A document that comes before a similar one: its place, the distance, how similar they are.

    The share is nan if fingerprints were compared.
    """

    place: int
    distance: int
    share: float


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
        documents: Block,
        search: Search,
        asking: Sequence[int],
        *,
        replacing: bool,
    ) -> None:
        """Look documents up by their places, before any is written.

        Unless some are `replacing` stored ones, those that resemble a stored one aren't saved.
        """
        self._search, self._documents = search, documents
        self._most = min(lookup.DOCUMENTS, most_compared())
        self._stored = lru_cache(_KEPT)(partial(view.catalog.named, view.txn))
        self._row = lru_cache(_KEPT)(documents.row)
        self._saved: dict[int, int] = {}  # the ids of documents by their places,
        self._places: dict[Key, int] = {}  # which the keys lead to
        self._gone: set[int] = set()  # ids of stored documents that were replaced since
        self._candidates: dict[int, Candidates] = {}
        self._earlier: dict[int, list[_Earlier]] = {}
        self._crowded: set[int] = set()
        asked, compared = documents[asking], list[int]()
        saved = np.ones(len(asked), np.bool_)  # unless it is certain that a document isn't
        held = 0
        # With a budget for the rows of the batch too, saving its documents changes no answer.
        others = len(view.index.routes(search.k)) * (len(asked) - 1)
        reached = candidates_each(view, asked, search, max(lookup.CANDIDATES - others, 1))
        for place, candidates in zip(asking, reached, strict=True):
            if not candidates.complete:
                self._crowded.add(place)
            elif candidates.runs:
                runs = [(apart, list(ids)) for apart, ids in candidates.runs]
                held += sum(len(ids) for _, ids in runs)
                if held > _HELD and compared:
                    break
                self._candidates[place] = candidates._replace(runs=runs)
                # By their texts, they may be less similar than they seem.
                saved[len(compared)] = replacing or search.known is not None
            compared.append(candidates.compared)
        done = len(compared)
        while True:
            pairs = _pairs(view, asked[:done], search, saved[:done])
            if pairs is None:
                done = min(done // 2, _FEW)
                continue
            beside, similar = pairs
            crowded = np.array(compared[:done], np.int64) + beside > self._most
            uncertain = crowded & ~saved[:done]
            if not uncertain.any():
                break
            saved[:done] |= uncertain
        self._crowded.update(asking[at] for at in crowded.nonzero()[0].tolist())
        columns = (column.tolist() for column in similar)
        for later, earlier, apart, share in zip(*columns, strict=True):
            link = _Earlier(asking[earlier], apart, share)
            self._earlier.setdefault(asking[later], []).append(link)
        # The place of the first document that isn't looked up.
        self.end = asking[done] if done < len(asking) else len(documents)

    def matches(self, place: int) -> Matches | None:
        """Return the matches of a document, or None if it must be looked up in the tables again.

        That is so if it has more candidates than are compared or returned.
        """
        if place in self._crowded:
            return None
        stored, links = self._candidates.get(place), self._earlier.get(place)
        if not stored and not links:
            return Matches()
        runs = [] if stored is None else list(stored.runs)
        shares = {} if stored is None else dict(stored.shares)
        if gone := self._gone:
            runs = [
                (apart, [number for number in ids if number not in gone]) for apart, ids in runs
            ]
        places: dict[int, int] = {}  # of saved documents, by their ids
        for link in links or ():
            number = self._saved.get(link.place)
            if number is not None:
                places[number] = link.place
                runs.append((link.distance, [number]))
                shares[number] = link.share
        if sum(1 for _, ids in runs for _ in ids) > self._most:
            return None

        def read(number: int) -> Stored:
            place = places.get(number)
            return self._stored(number) if place is None else self._row(place)

        candidates = Candidates(sorted(runs), complete=True, shares=shares)
        return matched(self._row(place), candidates, self._search, read)

    def save(self, place: int, number: int, old: Stored | None) -> None:
        """Note that a document was saved under an id, in the place of an old one."""
        key = self._documents.keys[place]
        if old:
            self._gone.add(old.id)
            if (before := self._places.pop(key, None)) is not None:
                del self._saved[before]
        self._saved[place] = number
        self._places[key] = place


def _pairs(
    view: View, documents: Block, search: Search, saved: Marks
) -> tuple[Places, _Pairs] | None:
    """Return the documents that resemble earlier ones, and with how many each is compared.

    Only such earlier ones count as may be saved. Nothing is returned if the pairs are too many to
    be held.
    """
    index, count = view.index, len(documents)
    short, of_bits = documents.short, are_of_bits(documents, search)
    # Equal short texts meet by their digests.
    [places] = (short & documents.digested).nonzero()
    met = [_meeting(documents.digests[places, 0], places, saved)]
    if index.bands:
        numbers, marks = index.bands.shape.columns(documents.sketches, documents.digests)
        marks[short | of_bits] = False
        met.append(_meeting(numbers[marks], marks.nonzero()[0], saved))
    compared, parts = np.zeros(count, np.int64), list[_Pairs]()
    for pairs in met:
        if pairs is None:
            return None
        later, earlier = pairs
        compared += np.bincount(later, minlength=count)
        parts.append(_similar(documents, later, earlier, search, index.plan.bits))
    if of_bits.any():
        near = _near(view, documents, ~short, search.k)
        if near is None:
            return None
        parts.append(near.only(of_bits[near.later] & saved[near.earlier]))
    return compared, _Pairs(*joined(parts))


def _meeting(numbers: Column, places: Places, saved: Marks) -> tuple[Places, Places] | None:
    """Return pairs of places that have a number in common, the later one first, with repetitions.

    The earlier one is marked. Nothing is returned if they are too many to be held.
    """
    sequence = np.lexsort((places, numbers))
    places = places[sequence]
    marked = saved[places]
    before = marked.cumsum() - marked  # how many marked ones come before, in all
    heads = np.where(differs(numbers[sequence]), np.arange(len(places)), 0)
    starts = before[np.maximum.accumulate(heads)]
    counts = before - starts
    if counts.sum() > _HELD:
        return None
    return np.repeat(places, counts), places[marked][spans(starts, counts)]


def _similar(documents: Block, later: Places, earlier: Places, search: Search, bits: int) -> _Pairs:
    """Return the pairs of texts that are similar; short ones only if they are equal."""
    count = len(documents)
    later, earlier = np.divmod(unique(later * count + earlier), count)
    shares = jaccard(documents, later, documents, earlier)
    [near] = (shares >= (search.least if search.similarity else 1.0)).nonzero()
    later, earlier = later[near], earlier[near]
    apart = distances(documents.fingerprints[later], documents.fingerprints[earlier], bits)
    return _Pairs(later, earlier, apart, shares[near])


def _near(view: View, documents: Block, printed: Marks, k: int) -> _Pairs | None:
    """Return the pairs of fingerprints within k; nothing if they are too many to be held."""
    [places] = printed.nonzero()
    words, ranks = ranked(as_words(documents.fingerprints[places]))
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
