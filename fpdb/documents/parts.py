"""Find the documents with passages of a text, and estimate how much of each."""

from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from itertools import islice

import numpy as np

from fpdb.arrays import Places, ranked
from fpdb.documents.catalog import View
from fpdb.documents.lookup import Times
from fpdb.fingerprint.sketches import PlacedPassages, unpack_passages
from fpdb.models import PASSAGE_BYTES, PartMatch, PartMatches
from fpdb.storage.format import Stored
from fpdb.storage.origin import unpack_meta
from fpdb.tables.passages import MOST_OF_A_PASSAGE, row_numbers

# Documents that are compared with a text: if there are more, those with most numbers of it.
MOST_COMPARED = 1000
# Bytes of numbers of documents that are compared together.
_TOGETHER = 1 << 20


def find_parts(
    view: View,
    text: PlacedPassages,
    characters: int,
    least: float,
    *,
    limit: int | None,
    times: Times | None = None,
) -> PartMatches:
    """Find the documents that share numbers of passages with a text of N characters.

    The first has most of the text, each further one most of what is left. Numbers that too many
    documents have lead to none, so the answer isn't complete, but count where a document was found.
    Those that are common count nowhere, and their words aren't of the text.
    """
    [table] = filter(None, [view.index.passages])
    [counted] = text.counted.nonzero()
    [rows], places = ranked([row_numbers(text.numbers[counted])])
    often = np.zeros(len(rows), np.bool_)
    candidates: Counter[int] = Counter()
    for row, ids in table.pages.runs(view.txn, rows.tolist(), MOST_OF_A_PASSAGE):
        if len(ids) > MOST_OF_A_PASSAGE:
            often[rows.searchsorted(np.uint64(row))] = True
        else:
            candidates.update(ids)
    parts = PartMatches()
    parts.boilerplate = _words_at(text, counted[often[places]])
    parts.complete = len(candidates) <= MOST_COMPARED and not often.any()
    chosen = [number for number, _ in candidates.most_common(MOST_COMPARED)]
    documents = (view.catalog.named(view.txn, number) for number in chosen)
    if times:
        documents = (document for document in documents if times[0] <= document.added < times[1])
    compared = _compared(text, characters, documents)
    sharing = [
        (match, at) for match, at in compared if max(match.share, match.other_share) >= least
    ]
    parts += islice(_in_order(sharing, len(text.numbers)), limit)
    return parts


def _compared(
    text: PlacedPassages, characters: int, documents: Iterable[Stored]
) -> Iterator[tuple[PartMatch, Places]]:
    """Yield the documents that really share numbers with a text, and the places of these in it."""
    own_words = max(text.tokens - _words_at(text, (~text.counted).nonzero()[0]), 1)
    for block in _slices(documents):
        sizes, (owners, places) = _shared(text, block)
        words = text.words_of(owners, places, len(block)).tolist()
        at = np.split(places, owners.searchsorted(np.arange(1, len(block))))
        for stored, size, common, shared in zip(block, sizes.tolist(), words, at, strict=True):
            if not len(shared):
                continue  # only the upper bits of a number were equal
            share, other_share = min(common / own_words, 1.0), len(shared) / size
            if stored.characters:  # which says more of the length than the numbers
                other_share = common * characters / text.tokens / stored.characters
            other_share, meta = min(other_share, 1.0), unpack_meta(stored.meta)
            yield PartMatch(stored.key, stored.id, common, share, other_share, meta), shared


def _words_at(text: PlacedPassages, places: Places) -> int:
    """Estimate how many words of a text the numbers at some places cover."""
    return int(text.words_of(np.zeros_like(places), places, 1)[0])


def _in_order(sharing: list[tuple[PartMatch, Places]], count: int) -> Iterator[PartMatch]:
    """Yield the document with most of N numbers, then each time the one with most of what is left.

    So the sources of all passages of a text come before further documents with the same one.
    """
    sharing.sort(key=lambda pair: (-pair[0].words, -pair[0].other_share, pair[0].key))
    fresh = np.ones(count, np.bool_)
    # How many numbers each adds at most: fewer, the more others come before it.
    heap = [(-len(places), rank) for rank, (_, places) in enumerate(sharing)]
    heapify(heap)
    while heap:
        most, rank = heap[0]
        match, places = sharing[rank]
        if (adds := -int(np.count_nonzero(fresh[places]))) > most:
            heapreplace(heap, (adds, rank))
            continue
        heappop(heap)
        fresh[places] = False
        yield match


def _slices(documents: Iterable[Stored]) -> Iterator[list[Stored]]:
    block: list[Stored] = []
    size = 0
    for document in documents:
        block.append(document)
        size += len(document.passages)
        if size >= _TOGETHER:
            yield block
            block, size = [], 0
    if block:
        yield block


def _shared(text: PlacedPassages, documents: list[Stored]) -> tuple[Places, tuple[Places, Places]]:
    """Return how many numbers each document has, and the places of those of the text.

    These are sorted by the document and the place in the text.
    """
    sizes = np.array([len(document.passages) // PASSAGE_BYTES for document in documents], np.int64)
    numbers = unpack_passages(b"".join(document.passages for document in documents))
    order = text.numbers.argsort()
    known = text.numbers[order]
    at = known.searchsorted(numbers)
    at[at == len(known)] = 0
    [equal] = ((known[at] == numbers) & text.counted[order[at]]).nonzero()
    owners = np.repeat(np.arange(len(documents)), sizes)[equal]
    rows = np.sort(owners * len(known) + order[at[equal]])
    return sizes, (rows // len(known), rows % len(known))
