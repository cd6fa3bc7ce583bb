"""Find the documents that share passages with a text, and estimate how much of each."""

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from fpdb.arrays import Places, ranked
from fpdb.documents.catalog import View
from fpdb.fingerprint.winnowing import PlacedPassages, unpack_passages
from fpdb.models import PASSAGE_BYTES, PartMatch, PartMatches
from fpdb.storage.format import Stored
from fpdb.storage.origin import unpack_meta
from fpdb.tables.passages import MOST_OF_A_PASSAGE, row_numbers

# Documents that are compared with a text: if there are more, those with most numbers of it.
MOST_COMPARED = 1000
# Bytes of numbers of documents that are compared together.
_TOGETHER = 1 << 20


def find_parts(
    view: View, text: PlacedPassages, characters: int, least: float, limit: int | None
) -> PartMatches:
    """Find the documents that share numbers of passages with a text of N characters.

    Those with the largest parts come first.

    Numbers that too many documents have lead to none, but count where a document was found.
    """
    [table] = filter(None, [view.index.passages])
    [rows], places = ranked([row_numbers(text.numbers)])
    often = np.zeros(len(rows), np.bool_)
    candidates: Counter[int] = Counter()
    for row, ids in table.pages.runs(view.txn, rows.tolist(), MOST_OF_A_PASSAGE):
        if len(ids) > MOST_OF_A_PASSAGE:
            often[rows.searchsorted(np.uint64(row))] = True
        else:
            candidates.update(ids)
    found = PartMatches()
    [common] = often[places].nonzero()
    found.boilerplate = int(text.words_of(np.zeros_like(common), common, 1)[0])
    found.complete = len(candidates) <= MOST_COMPARED
    chosen = [number for number, _ in candidates.most_common(MOST_COMPARED)]
    for some in _slices(view.catalog.named(view.txn, number) for number in chosen):
        sizes, shared = _shared(text, some)
        words = text.words_of(*shared, len(some))
        numbers = np.bincount(shared[0], minlength=len(some))
        columns = (column.tolist() for column in (words, numbers, sizes))
        for stored, own, many, size in zip(some, *columns, strict=True):
            if not many:
                continue  # only the upper bits of a number were equal
            share, other_share = own / text.tokens, many / size
            if stored.characters:  # which says more of the length than the numbers
                other_share = own * characters / text.tokens / stored.characters
            other_share = min(other_share, 1.0)
            if max(share, other_share) >= least:
                meta = unpack_meta(stored.meta)
                found.append(PartMatch(stored.key, stored.id, own, share, other_share, meta))
    found.sort(key=lambda match: (-match.words, -match.other_share, match.key))
    del found[len(found) if limit is None else limit :]
    return found


def _slices(documents: Iterable[Stored]) -> Iterator[list[Stored]]:
    some: list[Stored] = []
    size = 0
    for each in documents:
        some.append(each)
        size += len(each.passages)
        if size >= _TOGETHER:
            yield some
            some, size = [], 0
    if some:
        yield some


def _shared(text: PlacedPassages, documents: list[Stored]) -> tuple[Places, tuple[Places, Places]]:
    """Return how many numbers each document has, and the places of those of the text.

    These are sorted by the document and the place in the text.
    """
    sizes = np.array([len(each.passages) // PASSAGE_BYTES for each in documents], np.int64)
    own = unpack_passages(b"".join(each.passages for each in documents))
    order = text.numbers.argsort()
    known = text.numbers[order]
    at = known.searchsorted(own)
    at[at == len(known)] = 0
    [equal] = (known[at] == own).nonzero()
    owners = np.repeat(np.arange(len(documents)), sizes)[equal]
    rows = np.sort(owners * len(known) + order[at[equal]])
    return sizes, (rows // len(known), rows % len(known))
