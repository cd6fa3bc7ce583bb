"""Look up each document of a batch, as if the documents before it were stored already.

The tables are read once, before anything of the batch is written, and the batch is compared with
itself at once. Then the documents are decided in order.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache, partial

import numpy as np

from fpdb.arrays import (
    Column,
    Marks,
    Places,
    following,
    in_runs,
    joined,
    ranked,
    spans,
    unique,
)
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
from fpdb.documents.similarity import Alike, alike
from fpdb.models import Matches
from fpdb.storage.block import Block
from fpdb.storage.format import Stored
from fpdb.tables import near_among
from fpdb.tables.bits import as_words, of_words

# Candidates that are held for a batch, and stored documents that are kept in memory, since several
# documents of the batch may be compared with each.
_HELD = 1 << 20
_KEPT = 10_000
# Documents that are looked up together where many of a batch have too many pairs.
_FEW = 1 << 12


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
        # The ids of saved documents by their places, and the places by the ids.
        self._saved: dict[int, int] = {}
        self._places: dict[int, int] = {}
        self._candidates: dict[int, Candidates] = {}
        # By a place, the places of similar earlier documents, their similarities and distances.
        self._earlier: dict[int, list[tuple[int, float, int]]] = {}
        self._crowded: set[int] = set()
        asked, compared = documents[asking], list[int]()
        saved = np.ones(len(asked), np.bool_)  # unless it is certain that a document isn't
        held = 0
        # With a budget for the rows of the batch too, saving its documents changes no answer.
        reserved = len(view.index.routes(search.k)) * (len(asked) - 1)
        reached = candidates_each(view, asked, search, max(lookup.CANDIDATES - reserved, 1))
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
        for later, earlier, share, apart, _ in zip(*columns, strict=True):
            self._earlier.setdefault(asking[later], []).append((asking[earlier], share, apart))
        # The place of the first document that isn't looked up.
        self.end = asking[done] if done < len(asking) else len(documents)

    def matches(self, place: int) -> Matches | None:
        """Return the matches of a document, or None if it must be looked up in the tables again.

        That is so if it has more candidates than are compared or returned.
        """
        if place in self._crowded:
            return None
        stored, links = self._candidates.get(place), self._earlier.get(place, ())
        if not stored and not links:
            return Matches()
        runs, shares = list[tuple[int, Iterable[int]]](), dict[int, float]()
        only = self._search.only
        if stored:
            shares.update(stored.shares)
            for apart, ids in stored.runs:  # without the replaced candidates
                runs.append((apart, [number for number in ids if number not in self._places]))
        for earlier, share, apart in links:
            number = self._saved.get(earlier)
            if number is not None and (only is None or only(number)):
                shares[number] = share
                runs.append((apart, [number]))
        if sum(1 for _, ids in runs for _ in ids) > self._most:
            return None

        def read(number: int) -> Stored:
            saved = self._places.get(number)
            return self._stored(number) if saved is None else self._row(saved)

        candidates = Candidates(sorted(runs), complete=True, shares=shares)
        return matched(self._row(place), candidates, self._search, read)

    def save(self, place: int, number: int, old: Stored | None) -> None:
        """Note that a document was saved under an id, in the place of an old one."""
        if old and number in self._places:
            del self._saved[self._places[number]]
        self._saved[place], self._places[number] = number, place


def _pairs(
    view: View, documents: Block, search: Search, saved: Marks
) -> tuple[Places, Alike] | None:
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
    compared, parts = np.zeros(count, np.int64), list[Alike]()
    least = search.least if search.similarity else 1.0  # short ones are equal
    for pairs in met:
        if pairs is None:
            return None
        later, earlier = pairs
        compared += np.bincount(later, minlength=count)
        later, earlier = np.divmod(unique(later * count + earlier), count)
        parts.append(alike(documents, later, documents, earlier, least=least, bits=index.plan.bits))
    if of_bits.any():
        near = _near(view, documents, ~short, search.k)
        if near is None:
            return None
        parts.append(near.only(of_bits[near.first] & saved[near.second]))
    return compared, Alike(*joined(parts))


def _meeting(numbers: Column, places: Places, saved: Marks) -> tuple[Places, Places] | None:
    """Return pairs of places that have a number in common, the later one first, with repetitions.

    The earlier one is marked. Nothing is returned if they are too many to be held.
    """
    sequence = np.lexsort((places, numbers))
    places = places[sequence]
    counts = in_runs(numbers[sequence])[0] * saved[places]
    if counts.sum() > _HELD:
        return None
    earlier, later = following(counts)
    return places[later], places[earlier]


def _near(view: View, documents: Block, printed: Marks, k: int) -> Alike | None:
    """Return the pairs of fingerprints within k; nothing if they are too many to be held."""
    [places] = printed.nonzero()
    words, ranks = ranked(as_words(documents.fingerprints[places]))
    fingerprints = of_words(words)
    near_prints = near_among(view.index, fingerprints, k)
    if near_prints is None:
        return None
    queries, neighbours, apart = near_prints
    # A document leads to the fingerprints near its own, and each of these to its documents.
    bounds = queries.searchsorted(np.arange(len(fingerprints) + 1))
    sizes = np.diff(bounds)[ranks]
    later, near = np.repeat(places, sizes), spans(bounds[ranks], sizes)
    owners = np.argsort(ranks, kind="stable")
    bounds = ranks[owners].searchsorted(np.arange(len(fingerprints) + 1))
    sizes = np.diff(bounds)[neighbours[near]]
    if sizes.sum() > _HELD:
        return None
    earlier = places[owners[spans(bounds[neighbours[near]], sizes)]]
    later, apart = np.repeat(later, sizes), np.repeat(apart[near], sizes)
    before = earlier < later
    pairs = Alike(later, earlier, np.full(len(later), np.nan), apart, np.ones_like(before))
    return pairs.only(before)
