"""The permutation tables of a database: find fingerprints near another, insert and remove them."""

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np

from fpdb import kernels
from fpdb.arrays import Column, Marks, Rows, differs
from fpdb.storage import ReadTransaction, WriteTransaction
from fpdb.storage.columns import number_at, raw_column, rows_of, unpack_rows
from fpdb.storage.format import Stored
from fpdb.tables.bands import BandTable
from fpdb.tables.bits import (
    Distances,
    Fingerprints,
    Permutation,
    Steps,
    as_words,
    distinct,
    order,
    to_ints,
)
from fpdb.tables.pages import Pages, read_words, seek
from fpdb.tables.plan import Plan

# Of a fingerprint, by which the home table has few pages for that of an id.
HIGH_BITS = 24
_WORD_BITS = 64
_WORD = (1 << _WORD_BITS) - 1
# Sorts after every key that begins with the bytes before it.
_AFTER = b"\xff" * 9
# Up to this many hits are taken one by one, with the ids that are stored beside them.
_FEW = 64
_UINT64 = np.dtype(np.uint64)
# A local name: looking up the attribute takes a third of the time of a call.
_number = int.from_bytes


class Nearby(NamedTuple):
    """Distinct fingerprints with their distances; not complete if the budget ended the search.

    `ids` has the documents of those whose pages in the home table were read anyway.
    """

    distances: dict[int, int]
    complete: bool
    ids: dict[int, list[int]]


class Route(NamedTuple):
    """What a query needs of one table, with nothing left to compute."""

    table: Pages
    name: str
    columns: int
    seed: int
    tail: int  # the bits of a page's key after the fingerprint
    permutation: Permutation
    steps: Steps
    below: int  # a mask of the bits after the prefix
    masks: tuple[int, ...]  # as changes of the permuted fingerprint


class Index:
    """The tables of a plan. Home table and bands have ids, further tables distinct fingerprints."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._words = words = 2 if plan.bits == 128 else 1
        self.home = Pages("table-00", words + 1, words + 1)
        self.further = [
            Pages(f"table-{number:02d}", words, words) for number in range(1, len(plan.tables))
        ]
        self.tables = [self.home, *self.further]
        self.bands = BandTable(plan.bands) if plan.bands else None
        self._routes: dict[int, list[Route]] = {}
        self._searches: dict[int, kernels.pages.NearSearch] = {}

    @property
    def names(self) -> list[str]:
        """The names of all tables, and of the bands."""
        bands = [self.bands.pages.name] if self.bands else []
        return [table.name for table in self.tables] + bands

    def band_numbers(self, document: Stored) -> list[int]:
        """Return the numbers under which the bands have a document; a short text has none."""
        if self.bands is None or document.fingerprint is None:
            return []
        return self.bands.numbers(document.sketch, document.digest)

    def routes(self, k: int) -> list[Route]:
        """Return what a query within k needs of each table that it reads."""
        if k not in self._routes:
            found = []
            for number, masks in self.plan.probes(k):
                table, pages = self.plan.tables[number], self.tables[number]
                shift = self.plan.bits - table.prefix
                route = Route(
                    pages,
                    pages.name,
                    pages.columns,
                    pages.seed,
                    8 * pages.key_width - 64 * self._words,
                    table.permutation,
                    table.permutation.steps,
                    (1 << shift) - 1,
                    tuple(mask << shift for mask in masks),
                )
                found.append(route)
            self._routes[k] = found
        return self._routes[k]

    def _search(self, k: int) -> "kernels.pages.NearSearch":
        """Return the kernel that does what `near` does, for one k."""
        routes = self.routes(k)
        probes = [
            kernels.pages.Probes(
                route.permutation.moves,
                route.permutation.inverse.moves,
                np.array(route.masks, np.uint64),
                route.below,
            )
            for route in routes
        ]
        home = routes[0].table is self.home
        self._searches[k] = search = kernels.pages.NearSearch(probes, k, _FEW, home)
        return search

    def update(
        self,
        txn: WriteTransaction,
        insert: tuple[Fingerprints, Column],
        remove: tuple[Fingerprints, Column],
    ) -> None:
        """Remove and insert fingerprints with the ids of their documents, in all tables."""
        self.home.splice(txn, _home_rows(*insert), _home_rows(*remove))
        come, gone = distinct(insert[0]), distinct(remove[0])
        if len(gone):  # a fingerprint stays while any document has it
            left = [not self._is_home(txn, number) for number in self.numbers(gone)]
            gone = gone[np.array(left, np.bool_)]
        for table, pages in zip(self.plan.tables[1:], self.further, strict=True):
            pages.splice(txn, _sorted(table.permutation, come), _sorted(table.permutation, gone))

    def holds(self, txn: ReadTransaction, fingerprints: Fingerprints, ids: Column) -> Marks:
        """Mark the documents that are stored with this fingerprint."""
        found = np.empty(len(ids), np.bool_)
        found[order(fingerprints, ids)] = self.home.holds(txn, _home_rows(fingerprints, ids))
        return found

    def numbers(self, fingerprints: Fingerprints) -> list[int]:
        """Return an array of fingerprints as Python ints."""
        return to_ints(fingerprints, self.plan.bits)

    def _home_key(self, fingerprint: int, number: int = 0) -> bytes:
        return fingerprint.to_bytes(8 * self._words, "big") + number.to_bytes(8, "big")

    def _is_home(self, txn: ReadTransaction, fingerprint: int) -> bool:
        return next(iter(self.ids(txn, fingerprint)), None) is not None

    def ids(self, txn: ReadTransaction, fingerprint: int) -> Iterable[int]:
        """Return the ids of the documents with a fingerprint, sorted."""
        if self._words == 1:
            # Most fingerprints have one document, for which this is far faster.
            cursor = txn.kept_cursor(self.home.name)
            end = fingerprint.to_bytes(8, "big") + _AFTER
            if not (cursor.prev() if cursor.set_range(end) else cursor.last()):
                return ()
            key, page = cursor.item()
            column, _ = raw_column(page, self.home.columns, self.home.seed_at(key))
            numbers = column.cast("Q")
            row = bisect_right(numbers, fingerprint) - 1
            if row < 0 or numbers[row] != fingerprint:
                return ()
            if row > 0 and numbers[row - 1] != fingerprint:
                return (number_at(page, self.home.columns, row),)
        return self._all_ids(txn, fingerprint)

    def _all_ids(self, txn: ReadTransaction, fingerprint: int) -> Iterator[int]:
        words = [np.uint64(word) for word in divmod(fingerprint, 1 << 64)[-self._words :]]
        cursor = txn.raw.cursor(txn.databases[self.home.name])
        found = seek(cursor, self._home_key(fingerprint))
        while found:
            rows = self.home.rows_at(cursor)
            start, stop = 0, len(rows[0])
            for column, word in zip(rows, words, strict=False):
                within = column[start:stop]
                stop = start + int(within.searchsorted(word, "right"))
                start += int(within.searchsorted(word))
            yield from rows[-1][start:stop].tolist()
            found = stop == len(rows[0]) and cursor.next()

    def locate(self, txn: ReadTransaction, high: int, number: int) -> int | None:
        """Find the fingerprint of a document, given its highest bits and the id.

        A page is one step, and so is a run of equal fingerprints, however long.
        """
        below = self.plan.bits - HIGH_BITS
        candidate, end = high << below, (high + 1) << below
        with txn.cursor(self.home.name) as cursor:
            while candidate < end and seek(cursor, self._home_key(candidate, number)):
                rows = self.home.rows_at(cursor)
                for at in (rows[-1] == number).nonzero()[0].tolist():
                    fingerprint = _fingerprint_at(rows, at)
                    if fingerprint >> below == high:
                        return fingerprint
                last = _fingerprint_at(rows, -1)
                if last > candidate:
                    candidate = last
                elif cursor.next():
                    rows = self.home.rows_at(cursor)
                    candidate = max(candidate + 1, _fingerprint_at(rows, 0))
                else:
                    return None
        return None

    def near(  # noqa: PLR0912, PLR0915 - calls in the loop would take a quarter of the time
        self, txn: ReadTransaction, fingerprint: int, k: int, budget: int
    ) -> Nearby:
        """Find all distinct fingerprints within k, reading at most about `budget` candidates.

        If they are more, no table reads more than its share until the others have theirs.
        """
        routes = self._routes.get(k) or self.routes(k)
        narrow, width = self._words == 1, 8 * self._words
        if narrow and kernels.enabled:
            search = self._searches.get(k) or self._search(k)
            if (readers := txn.kept.get(search)) is None:
                readers = [route.table.reader(txn.kept_cursor(route.name)) for route in routes]
                txn.kept[search] = readers
            found = search.near(readers, fingerprint, budget)
            if found is not None:
                return Nearby(found[0], complete=True, ids=found[1])
        parts: list[memoryview] = []  # the first words of each page
        rests: list[memoryview] = []  # the second words, of 128 bits
        pages: list[memoryview] = []
        own: list[tuple[int, int]] = []  # of each table, the permuted query and its candidates
        kept = txn.cursors
        room = budget
        for _, name, columns, seed, tail, _, (still, left, right), below, masks in routes:
            permuted = fingerprint & still
            for mask, by in left:
                permuted |= (fingerprint & mask) << by
            for mask, by in right:
                permuted |= (fingerprint & mask) >> by
            if len(masks) == 1:
                highs = [permuted | below]
            else:
                highs = sorted([(permuted ^ mask) | below for mask in masks])
            cursor = kept.get(name) or txn.kept_cursor(name)
            before = room
            newest = last = -1  # the last page that an earlier prefix read, and that any did
            for high in highs:
                # From the last page whose key isn't after the prefix back to the first with it.
                end = high.to_bytes(width, "big") + _AFTER
                there = cursor.prev() if cursor.set_range(end) else cursor.last()
                low = high - below << tail
                while there:
                    key, page = cursor.item()
                    first = _number(key)
                    if first <= newest:
                        break
                    if first > last:  # noqa: PLR1730 - max() takes as long as a probe's seek
                        last = first
                    if narrow:
                        part, count = raw_column(page, columns, seed ^ first)
                    else:
                        high_words, low_words = unpack_rows(page, columns, seed ^ first, 2)
                        part, count = high_words.data, len(low_words)
                        rests.append(low_words.data)
                    parts.append(part)
                    pages.append(page)
                    room -= count
                    if first <= low or room < 0:
                        break
                    there = cursor.prev()
                newest = last
                if room < 0:
                    break
            own.append((permuted, before - room))
            if room < 0:
                parts, rests, own = self._shared(txn, fingerprint, routes, budget)
                break
        nearby = Nearby({}, room >= 0, {})
        if parts:
            changes, distances = _compare(parts, rests, own)
            if distances.item(distances.argmin()) <= k:
                hits = (distances <= k).nonzero()[0]
                ends = list(accumulate(count for _, count in own))
                # All rows with a probed prefix were read, in the home table with their ids.
                home = ends[0] if room >= 0 and routes[0].table is self.home else 0
                if len(hits) > _FEW:
                    # Of a run of equal fingerprints one is enough, and its ids are read later.
                    fresh = np.diff(hits, prepend=-2) > 1
                    hits = hits[fresh | differs(*[column[hits] for column in changes])]
                    home = 0
                for hit in hits.tolist():
                    route = routes[bisect_right(ends, hit)]
                    change = changes[0].item(hit)
                    if len(changes) == 2:
                        change = change << _WORD_BITS | changes[1].item(hit)
                    near = fingerprint ^ route.permutation.inverse.apply_one(change)
                    nearby.distances[near] = distances.item(hit)
                    if hit < home and change & ~route.below in route.masks:
                        insort(nearby.ids.setdefault(near, []), self._id_at(pages, hit))
        if room < 0 and self._is_home(txn, fingerprint):
            nearby.distances[fingerprint] = 0
        return nearby

    def _shared(
        self, txn: ReadTransaction, fingerprint: int, routes: list[Route], budget: int
    ) -> tuple[list[memoryview], list[memoryview], list[tuple[int, int]]]:
        """Read as much of a crowd as the budget allows, as `near` collects it.

        Each table has an equal share, and what it doesn't need is shared by those that need more.
        """
        queries = [route.permutation.apply_one(fingerprint) for route in routes]
        counts = [0] * len(routes)
        read: list[list[list[memoryview]]] = [[] for _ in routes]  # the words of each page
        unread = {
            number: _candidates(txn, route, queries[number], self._words)
            for number, route in enumerate(routes)
        }
        while unread and budget > 0:
            share = budget // len(unread)
            for number, pages in list(unread.items()):
                room = share
                while room >= 0 and (page := next(pages, None)):
                    words, count = page
                    read[number].append(words)
                    room -= count
                if room >= 0:
                    del unread[number]
                counts[number] += share - room
                budget -= share - room
        found = list(chain.from_iterable(read))
        parts = [words[0] for words in found]
        rests = [word for words in found for word in words[1:]]
        return parts, rests, list(zip(queries, counts, strict=True))

    def _id_at(self, pages: list[memoryview], row: int) -> int:
        """Return the id in a row of some pages of the home table."""
        for page in pages:
            count = rows_of(page)
            if row < count:
                break
            row -= count
        return number_at(page, self.home.columns, row)


def _candidates(
    txn: ReadTransaction, route: Route, permuted: int, words: int
) -> Iterator[tuple[list[memoryview], int]]:
    """Yield the words of the pages of all prefixes of a table, each once, and how many rows it has.

    `near` has the same loop inline.
    """
    newest = last = -1
    with txn.cursor(route.name) as cursor:
        for high in sorted([(permuted ^ mask) | route.below for mask in route.masks]):
            end = high.to_bytes(8 * words, "big") + _AFTER
            there = cursor.prev() if cursor.set_range(end) else cursor.last()
            while there:
                key, page = cursor.item()
                first = _number(key)
                if first <= newest:
                    break
                last = max(last, first)
                yield read_words(page, route.columns, route.seed ^ first, words)
                if first <= high - route.below << route.tail:
                    break
                there = cursor.prev()
            newest = last


def _compare(
    parts: list[memoryview], rests: list[memoryview], own: list[tuple[int, int]]
) -> tuple[Rows, Distances]:
    """Return the bits in which candidates differ from the query of their table, and distances."""
    if not rests:
        column = np.frombuffer(b"".join(parts), _UINT64)
        # Bytes are repeated faster than numbers in an array.
        queries = b"".join([query.to_bytes(8, "little") * count for query, count in own])
        change = column ^ np.frombuffer(queries, _UINT64)
        return [change], np.bitwise_count(change)
    counts = [count for _, count in own]
    high = np.array([query >> _WORD_BITS for query, _ in own], np.uint64).repeat(counts)
    low = np.array([query & _WORD for query, _ in own], np.uint64).repeat(counts)
    high ^= np.frombuffer(b"".join(parts), np.uint64)
    low ^= np.frombuffer(b"".join(rests), np.uint64)
    return [high, low], np.bitwise_count(high) + np.bitwise_count(low)


def _home_rows(fingerprints: Fingerprints, ids: Column) -> Rows:
    sequence = order(fingerprints, ids)
    return [*as_words(fingerprints[sequence]), ids[sequence]]


def _sorted(permutation: Permutation, fingerprints: Fingerprints) -> Rows:
    permuted = permutation.apply(fingerprints)
    return as_words(permuted[order(permuted)])


def _fingerprint_at(rows: Rows, at: int) -> int:
    number = int(rows[0][at])
    return number if len(rows) == 2 else number << _WORD_BITS | int(rows[1][at])
