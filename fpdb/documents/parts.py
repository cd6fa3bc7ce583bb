"""Find the documents that share passages with a text, and estimate how much of each."""

from collections import Counter

import numpy as np

from fpdb.arrays import Marks, among, ranked
from fpdb.documents.catalog import View
from fpdb.fingerprint.winnowing import PlacedPassages, unpack_passages
from fpdb.models import PartMatch, PartMatches
from fpdb.storage.origin import unpack_meta
from fpdb.tables.passages import MOST_OF_A_PASSAGE, row_numbers

# Documents that are compared with a text: if there are more, those with most numbers of it.
MOST_COMPARED = 1000


def find_parts(
    view: View, text: PlacedPassages, characters: int, least: float, limit: int | None
) -> PartMatches:
    """Find the documents that share numbers of passages with a text of N characters.

    Those with the largest parts come first.

    Numbers that too many documents have lead to none, but count where a document was found.
    """
    [table] = filter(None, [view.index.passages])
    numbers = text.numbers
    [rows], places = ranked([row_numbers(numbers)])
    often = np.zeros(len(rows), np.bool_)
    candidates: Counter[int] = Counter()
    for row, ids in table.pages.runs(view.txn, rows.tolist(), MOST_OF_A_PASSAGE):
        if len(ids) > MOST_OF_A_PASSAGE:
            often[rows.searchsorted(np.uint64(row))] = True
        else:
            candidates.update(ids)
    found = PartMatches()
    found.boilerplate = text.words_of(often[places])
    found.complete = len(candidates) <= MOST_COMPARED
    for number, _ in candidates.most_common(MOST_COMPARED):
        stored = view.catalog.named(view.txn, number)
        own = unpack_passages(stored.passages)
        shared: Marks = among(numbers, own)
        if not shared.any():
            continue  # only the upper bits of a number were equal
        words = text.words_of(shared)
        share = words / text.tokens
        other_share = int(np.count_nonzero(shared)) / len(own)
        if stored.characters:  # which says more of the length than the numbers
            other_share = words * characters / text.tokens / stored.characters
        other_share = min(other_share, 1.0)
        if max(share, other_share) >= least:
            meta = unpack_meta(stored.meta)
            found.append(PartMatch(stored.key, number, words, share, other_share, meta))
    found.sort(key=lambda match: (-match.words, -match.other_share, match.key))
    del found[len(found) if limit is None else limit :]
    return found
