"""Find the documents nearest to fingerprints in all of the home table, whatever their distance.

The tables answer a query within their own k by a few probes. Those of a larger k may be more than
pages of the table, and the nearest documents may have any distance.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from fpdb.arrays import Column, Rows, gathered, joined
from fpdb.storage import ReadTransaction
from fpdb.tables.batch import Hits, check_size
from fpdb.tables.bits import Distances, Fingerprints, as_words
from fpdb.tables.index import Index

# Rows that are compared at once, and the queries that are answered while the table is read once.
_ROWS = 1 << 15
_QUERIES = 64
# Probes that take as long as a page that is read as a whole.
_PROBES_OF_A_PAGE = 3


class _Closest:
    """The nearest documents of one query, among those that were read."""

    def __init__(
        self,
        query: Sequence[np.uint64],
        k: int,
        limit: int,
        most: int,
        only: Callable[[int], bool] | None,
    ) -> None:
        self._query, self._within, self._only = query, k, only
        self._limit, self._most = limit, most
        self._counts = np.zeros(64 * len(query) + 1, np.int64)  # by distance
        self._parts: list[tuple[Distances, Column]] = []
        self._size = 0

    def take(self, words: Rows, ids: Column) -> None:
        """Take the nearest of some documents, up to the distance of the last within the limit."""
        # Words in columns are counted several times as fast as fingerprints of two words in rows.
        apart = np.zeros(len(ids), np.uint8)
        for word, asked in zip(words, self._query, strict=True):
            apart += np.bitwise_count(word ^ asked)
        [places] = (apart <= self._within).nonzero()
        if self._only:
            places = places[np.array([*map(self._only, ids[places].tolist())], np.bool_)]
        if not len(places):
            return
        apart = apart[places]
        self._counts += np.bincount(apart, minlength=len(self._counts))
        reached = int(self._counts.cumsum().searchsorted(self._limit))
        self._within = min(self._within, reached)
        self._parts.append((apart, ids[places]))
        self._size += len(places)
        if self._size > 2 * (self._most + _ROWS):
            self._parts = [self.nearest()]
            self._size = len(self._parts[0][0])

    def nearest(self) -> tuple[Distances, Column]:
        """Return distances and ids, sorted: to the limit, and all as near as the last one."""
        none: tuple[Distances, Column] = (np.empty(0, np.uint8), np.empty(0, np.uint64))
        apart, ids = joined(self._parts or [none])
        [places] = (apart <= self._within).nonzero()
        places = places[np.lexsort((ids[places], apart[places]))][: self._most + 1]
        return apart[places], ids[places]


def scan_is_better(txn: ReadTransaction, index: Index, k: int, documents: int, budget: int) -> bool:
    """Return whether a query within k reads all of the home table.

    It does where probes would take longer than that, or read more rows than their budget.
    """
    probes, share = index.reads(k)
    pages = txn.entries(index.home.name)
    return probes / _PROBES_OF_A_PAGE + share * pages > pages or share * documents > budget


def scan(
    txn: ReadTransaction,
    index: Index,
    fingerprints: Fingerprints,
    k: int,
    *,
    limit: int,
    most: int,
    only: Callable[[int], bool] | None = None,
) -> Iterator[tuple[Distances, Column]]:
    """Yield the distances and ids of the nearest documents within k of each fingerprint, sorted.

    They are those to the limit, and all that are as near as the last of these; of more than N
    altogether the first N + 1. If it is said which ids count, only these do.
    """
    queries = list(zip(*as_words(fingerprints), strict=True))
    for start in range(0, len(queries), _QUERIES):
        portion = queries[start : start + _QUERIES]
        answers = [_Closest(query, k, limit, most, only) for query in portion]
        for *words, ids in gathered(index.home.scan(txn), _ROWS):
            for answer in answers:
                answer.take(words, ids)
        yield from (answer.nearest() for answer in answers)


def scan_many(
    txn: ReadTransaction,
    index: Index,
    fingerprints: Fingerprints,
    k: int,
    *,
    limit: int | None,
    most: int,
) -> Hits:
    """Find the documents within k of each fingerprint, in the order of query, distance and id.

    Without a limit, a query with more than `most` isn't complete.
    """
    size = most if limit is None else limit
    parts = [(np.empty(0, np.int64), np.empty(0, np.uint64), np.empty(0, np.uint8))]
    complete: list[bool] = []
    count = 0
    for apart, ids in scan(txn, index, fingerprints, k, limit=size, most=size):
        parts.append((np.full(len(ids[:size]), len(complete)), ids[:size], apart[:size]))
        complete.append(limit is not None or len(ids) <= most)
        count += len(ids)
        check_size(count)
    queries, every_id, every_distance = joined(parts)
    return Hits(queries, every_id, every_distance, np.array(complete, np.bool_))
