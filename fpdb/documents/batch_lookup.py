"""Look up each document of a batch, as if the documents before it were stored already.

The tables are read once, before anything of the batch is written, and the batch is compared with
itself at once. Then the documents are decided in order: a document that was saved meanwhile is
found by its labels, which the tables will have as row numbers.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain

import numpy as np

from fpdb.arrays import ranked
from fpdb.documents import lookup
from fpdb.documents.catalog import View
from fpdb.documents.lookup import Candidates, Search, candidates_each, is_of_bits, matched
from fpdb.models import Key, Matches
from fpdb.storage.format import Stored
from fpdb.tables import bands, near_among
from fpdb.tables.bits import as_words, of_words, to_array, to_ints

# Candidates that are held for a batch, and stored documents that are kept in memory, since several
# documents of the batch may be compared with each.
_HELD = 1 << 20
_KEPT = 10_000

# A label of a document: the number of a row of its bands, the digest of a short text, or the
# complement of a fingerprint, which is negative and so no number of a row.
_Label = int | bytes
# The labels of a document, and the labels of its candidates with their distances.
_Links = tuple[Sequence[_Label], Sequence[tuple[int, _Label]]]
_NONE: Mapping[int, Stored] = {}


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
        self._saved: dict[_Label, dict[int, Stored]] = {}  # by their ids
        self._labels: dict[Key, Sequence[_Label]] = {}  # of those that are saved
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
        while (links := _linked(view, questions, search)) is None:
            questions = questions[: len(questions) // 2]
        self._links = dict(zip(places, links, strict=False))
        self._found: dict[int, Candidates] = {}
        held = 0
        # With a budget for the rows of the batch too, saving its documents changes no answer.
        others = len(view.index.routes(search.k)) * (len(questions) - 1)
        reached = candidates_each(view, questions, search, max(lookup.CANDIDATES - others, 1))
        for place, found in zip(places, reached, strict=False):
            if not found.runs:
                self._found[place] = found
                continue
            runs = [(apart, list(ids)) for apart, ids in found.runs]
            held += sum(len(ids) for _, ids in runs)
            if held > _HELD and self._found:
                break
            self._found[place] = Candidates(runs, found.complete)
        self._length = len(documents)
        if len(self._found) < len(places):
            self._length = places[len(self._found)]

    def __len__(self) -> int:
        return self._length

    def matches(self, place: int, document: Stored) -> Matches | None:
        """Return the matches of a document, or None if it must be looked up in the tables again.

        That is so if it has more candidates than are compared or returned.
        """
        found, saved = self._found[place], self._saved
        fresh: dict[int, tuple[int, Stored]] = {}
        for apart, label in self._links[place][1]:
            for number, stored in saved.get(label, _NONE).items():
                fresh[number] = apart, stored
        if not fresh and not found.runs:
            return Matches() if found.complete else None
        gone = self._gone
        runs = [
            (apart, [number for number in ids if number not in gone]) for apart, ids in found.runs
        ]
        runs += [(apart, [number]) for number, (apart, _) in fresh.items()]
        if not found.complete or sum(len(ids) for _, ids in runs) > self._most:
            return None

        def read(number: int) -> Stored:
            return fresh[number][1] if number in fresh else self._stored(number)

        return matched(document, Candidates(sorted(runs), complete=True), self._search, read)

    def save(self, place: int, stored: Stored, old: Stored | None) -> None:
        """Note that a document was saved, in the place of an old one."""
        if old:
            self._gone.add(old.id)
            for label in self._labels.pop(old.key, ()):
                del self._saved[label][old.id]
        labels = self._links[place][0]
        for label in labels:
            self._saved.setdefault(label, {})[stored.id] = stored
        if labels:
            self._labels[stored.key] = labels


def _linked(view: View, questions: Sequence[Stored], search: Search) -> list[_Links] | None:
    """Return the labels of each document of a batch, and those of its candidates in the batch.

    A label of a single document is left out. Nothing is returned if the links are too many.
    """
    near: dict[int, list[tuple[int, _Label]]] = {}
    own = [each.fingerprint for each in questions if each.fingerprint is not None]
    if own and any(is_of_bits(document, search) for document in questions):
        pairs = _near(view, own, search.k)
        if pairs is None:
            return None
        near = pairs
    links: list[_Links] = []
    bands = view.index.bands
    numbers = [view.index.band_numbers(each) if bands else [] for each in questions]
    often = Counter(chain.from_iterable(numbers))
    for document, every in zip(questions, numbers, strict=True):
        shared = [each for each in every if often[each] > 1] if every else every
        number = document.fingerprint
        if number is None:
            digests = [document.digest] if any(document.digest) else []
            links.append((digests, [(0, digest) for digest in digests]))
            continue
        beside = near.get(number, ())
        asked = beside if is_of_bits(document, search) else [(0, label) for label in shared]
        links.append(([*shared, ~number] if beside else shared, asked))
    return links


def _near(view: View, numbers: Sequence[int], k: int) -> dict[int, list[tuple[int, _Label]]] | None:
    """Return for each fingerprint the labels of those within k, with their distances.

    A fingerprint that comes twice is near itself.
    """
    index = view.index
    words, places = ranked(as_words(to_array(numbers, index.plan.bits)))
    fingerprints = of_words(words)
    pairs = near_among(index, fingerprints, k)
    if pairs is None:
        return None
    queries, others, _ = pairs
    kept = (queries != others) | (np.bincount(places)[queries] > 1)
    names = to_ints(fingerprints)
    near: dict[int, list[tuple[int, _Label]]] = {}
    for query, other, apart in zip(*[each[kept].tolist() for each in pairs], strict=True):
        near.setdefault(names[query], []).append((apart, ~names[other]))
    return near
