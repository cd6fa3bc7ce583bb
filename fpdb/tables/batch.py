"""Find what is near many fingerprints at once: sorted per table, compared as arrays.

The queries are sorted by their permuted bits, so that the pages of a table are read in order and
each at most once a pass. Ranges of candidates are found with searchsorted and compared in chunks of
bounded memory; there is no loop over queries or candidates.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.storage import ReadTransaction
from fpdb.storage.columns import Column, Rows, unpack_rows
from fpdb.tables.bits import Fingerprints
from fpdb.tables.index import Index
from fpdb.tables.pages import Pages, seek

Places = NDArray[np.int64]

# Rows of a table held at once, and candidates compared at once.
_ROWS = 1 << 19
_CANDIDATES = 1 << 21


class Hits(NamedTuple):
    """Matches as columns: the place of the query, the id of the document, the distance."""

    queries: Places
    ids: Column
    distances: NDArray[np.uint8]


def near_many(txn: ReadTransaction, index: Index, fingerprints: Fingerprints, k: int) -> Hits:
    """Find all documents within k of each fingerprint, in the order of query, distance and id."""
    found: list[tuple[Places, Rows, NDArray[np.uint8]]] = []
    for table, permutation, below, masks in index.routes(k):
        permuted = index.words(permutation.apply(fingerprints))
        behind = 64 * (len(permuted) - 1)  # a prefix never reaches into a second word
        free = np.uint64(below >> behind)
        for mask in masks:
            highs = permuted[0] ^ np.uint64(mask >> behind) | free
            for queries, rows, places in _ranges(txn, table, highs & ~free, highs):
                queries, changes, distances = _within(k, permuted, queries, rows, places)  # noqa: PLW2901
                array = changes[0] if len(changes) == 1 else np.stack(changes, axis=-1)
                found.append((queries, index.words(permutation.invert(array)), distances))
    if not found:
        return Hits(np.empty(0, np.int64), np.empty(0, np.uint64), np.empty(0, np.uint8))
    queries = np.concatenate([part[0] for part in found])
    changes = [np.concatenate(words) for words in zip(*(part[1] for part in found), strict=True)]
    distances = np.concatenate([part[2] for part in found])
    own = index.words(fingerprints)
    words = [column[queries] ^ change for column, change in zip(own, changes, strict=True)]
    return _resolve(txn, index, queries, words, distances)


def _within(
    k: int, permuted: Rows, queries: Places, rows: Rows, places: Places
) -> tuple[Places, Rows, NDArray[np.uint8]]:
    """Keep the candidates within k: their queries, and in which bits they differ from them."""
    changes = [own[queries] ^ column[places] for own, column in zip(permuted, rows, strict=False)]
    distances = np.bitwise_count(changes[0])
    for change in changes[1:]:
        distances = distances + np.bitwise_count(change)
    near = distances <= k
    return queries[near], [change[near] for change in changes], distances[near]


def _ranges(
    txn: ReadTransaction, table: Pages, lows: Column, highs: Column
) -> Iterator[tuple[Places, Rows, Places]]:
    """Give pairs of a query and a row in its range of first words, in chunks.

    All ranges are equally wide or of one number, so that both ends have the same order.
    """
    order = np.argsort(lows, kind="stable")
    lows, highs = lows[order], highs[order]
    for first, last, rows in _blocks(txn, table, lows, highs):
        starts = rows[0].searchsorted(lows[first:last])
        counts = rows[0].searchsorted(highs[first:last], "right") - starts
        ends = np.cumsum(counts)
        cuts = np.arange(0, int(ends[-1]) + _CANDIDATES, _CANDIDATES)
        bounds = np.unique(np.append(ends.searchsorted(cuts), len(counts)))
        for top, bottom in pairwise(bounds.tolist()):
            some = counts[top:bottom]
            total = int(some.sum())
            if total:
                before = np.cumsum(some) - some
                places = np.arange(total) + np.repeat(starts[top:bottom] - before, some)
                yield np.repeat(order[first + top : first + bottom], some), rows, places


def _blocks(
    txn: ReadTransaction, table: Pages, lows: Column, highs: Column
) -> Iterator[tuple[int, int, Rows]]:
    """Read the pages that sorted ranges lie on; give runs of ranges with all rows of theirs."""
    first = done = 0
    pages: list[Rows] = []
    size = 0
    newest = b""  # the key of the page that was read last
    with txn.cursor(table.name) as cursor:
        while done < len(lows):
            key = int(lows[done]).to_bytes(8, "big").ljust(table.key_width, b"\0")
            there = seek(cursor, key)
            if there and cursor.key() == newest:
                there = cursor.next()
            while there:
                newest = bytes(cursor.key())
                rows = [np.array(column) for column in unpack_rows(cursor.value(), table.columns)]
                pages.append(rows)
                size += len(rows[0])
                # What ends before the last row has been read whole.
                done = int(highs.searchsorted(rows[0][-1]))
                if size >= _ROWS and done > first:
                    yield first, done, _joined(pages)
                    # The next range may begin on the page that was read last.
                    first, pages, size = done, [rows], len(rows[0])
                if done == len(lows) or lows[done] > rows[0][-1]:
                    break
                there = cursor.next()
            if not there:
                break
    if pages and first < len(lows):
        yield first, len(lows), _joined(pages)


def _joined(pages: list[Rows]) -> Rows:
    return [np.concatenate(columns) for columns in zip(*pages, strict=True)]


def _resolve(
    txn: ReadTransaction, index: Index, queries: Places, words: Rows, distances: NDArray[np.uint8]
) -> Hits:
    """Turn fingerprints, which several tables may have found, into the documents that have them."""
    order = np.lexsort((*words[::-1], queries))
    queries, distances = queries[order], distances[order]
    words = [word[order] for word in words]
    fresh = np.ones(len(queries), np.bool_)
    fresh[1:] = queries[1:] != queries[:-1]
    for word in words:
        fresh[1:] |= word[1:] != word[:-1]
    queries, distances, words = queries[fresh], distances[fresh], [word[fresh] for word in words]
    asked, ids = [], []
    for hits, rows, places in _ranges(txn, index.home, words[0], words[0]):
        same = np.ones(len(hits), np.bool_)
        for word, column in zip(words, rows, strict=False):
            same &= word[hits] == column[places]
        asked.append(hits[same])
        ids.append(rows[-1][places[same]])
    if not asked:
        return Hits(queries[:0], np.empty(0, np.uint64), distances[:0])
    hits, numbers = np.concatenate(asked), np.concatenate(ids)
    order = np.lexsort((numbers, distances[hits], queries[hits]))
    return Hits(queries[hits][order], numbers[order], distances[hits][order])
