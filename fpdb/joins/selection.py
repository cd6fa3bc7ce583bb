"""Choose documents one after the other: each is kept unless it resembles one that is kept.

Many are decided at once, as a join of columns. Documents that may be alike have a number in common:
a hash of a band of their sketches, of a digest, or of the prefix of a permuted fingerprint. Those
of a block are compared first with the kept ones of the blocks before, and the rest of them with
each other.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fpdb import kernels
from fpdb.arrays import Column, Marks, Places, differs, joined, portions, spans, unique
from fpdb.documents.lookup import CANDIDATES, Search
from fpdb.documents.similarity import Shares, jaccard
from fpdb.errors import DamagedError, InputError
from fpdb.fingerprint.sketches import (
    LOW_WORDS,
    least_estimate,
    low_bits,
    low_bits_apart,
    mix,
    most_apart,
)
from fpdb.joins.columns import GrowingColumn, GrowingTexts, Room, TextColumns
from fpdb.models import Key
from fpdb.tables import Index
from fpdb.tables.bands import MOST_COMPARED, MOST_OF_A_BAND
from fpdb.tables.bits import Distances, as_words, distances

# Pairs that are compared at once: their sketches fit into a cache.
_PAIRS = 1 << 15
# Pairs of a block that are compared with each other; with more it is halved.
_MOST_PAIRS = 1 << 22
# Pairs that the kernel has room for, for each row that asks.
_MOST_MET = 2
# Numbers that are mixed at once.
_MIXED = 1 << 15
# Rows that are merged at once.
_MERGED = 1 << 20
# The kernel's.
_HEAD_ROWS = 64
# A row is a word: the upper bits of a hash, and the place of a document. With more bits for places,
# many documents of a large corpus are compared that have only these bits in common.
PLACE = np.uint64((1 << 30) - 1)


class Chosen(NamedTuple):
    """What became of some documents: marks of the kept ones, and of searches that were cut short.

    Of each one that isn't kept, `nearest` has the number of the nearest kept one, if that was
    wanted, or -1 if there is none; and `shares` and `distances` how near it is. A share is nan if
    fingerprints were compared.
    """

    kept: Marks
    crowded: Marks
    nearest: Places
    shares: Shares
    distances: Distances


class _Alike(NamedTuple):
    """Pairs of similar documents: a place in a block, and the place of an earlier document.

    That is one in the block, or one among the kept documents.
    """

    own: Places
    other: Places
    shares: Shares
    distances: Distances

    def only(self, marks: Marks) -> "_Alike":
        own, other, shares, apart = self
        return _Alike(own[marks], other[marks], shares[marks], apart[marks])


class _LowBits(NamedTuple):
    """The lowest bits of the bins of a block, those of kept documents, and how many may differ."""

    own: Column
    other: Column
    apart: int


class _SortedRows(GrowingColumn):
    """Sorted rows, of which there is a copy of some, to be searched first: it stays in a cache."""

    heads: Column

    def merge(self, other: Column) -> None:
        """Add rows that are sorted, from the last ones on: so no other place is needed for them."""
        start, left = len(self), len(other)
        self.add(other)
        rows = self.values
        while left and start:
            stop, end = start, left
            start = max(stop - _MERGED, 0)
            left = int(other.searchsorted(rows[start])) if start else 0
            part = np.concatenate([rows[start:stop], other[left:end]])
            part.sort(kind="stable")  # which finds both runs, and merges them
            rows[start + left : stop + end] = part
        self.heads = rows[::_HEAD_ROWS].copy()


class _KeptRows:
    """The rows of kept documents in sorted parts, each at most a quarter as large as the last."""

    def __init__(
        self, room: Room, most: int, most_compared: int | None = None, rows_each: int = 1
    ) -> None:
        self._room, self._most, self._most_compared = room, most, most_compared
        self._rows_each = rows_each
        self._parts: list[_SortedRows] = []

    def add(self, rows: Column) -> None:
        """Add rows that are sorted."""
        parts = self._parts
        if len(rows):
            parts.append(_SortedRows(self._room, np.uint64, searched=True))
            parts[-1].merge(rows)
        while len(parts) > 1 and len(parts[-2]) < 4 * len(parts[-1]):
            last = parts.pop()
            parts[-1].merge(last.values)
            last.clear()

    def near(
        self, asked: Column, crowded: Marks, low: _LowBits | None
    ) -> Iterator[tuple[Places, Places]]:
        """Yield pairs: a document that asks, and a kept one with one of its numbers.

        With low bits, only some that may be similar. Marks those that aren't compared with all of
        them, because they are too many.
        """
        fast = None if low is None else self._near_by_kernel(asked, low)
        if fast is not None:
            yield from fast
            return
        owners = row_places(asked)
        found = [_meeting(asked, part.values, part.heads) for part in self._parts]
        left = np.full(len(asked), self._most)
        for _, counts in found:
            crowded[owners[counts > left]] = True
            np.minimum(counts, left, out=counts)
            left -= counts
        if self._most_compared is not None and found:
            every = np.bincount(owners, self._most - left, len(crowded))
            for place in (every > self._most_compared).nonzero()[0].tolist():
                yield self._chosen(place, owners == place, found, crowded)
            usual = every[owners] <= self._most_compared
            found = [(starts, counts * usual) for starts, counts in found]
        for part, (starts, counts) in zip(self._parts, found, strict=True):
            for some in portions(counts, _PAIRS):
                yield _pairs(part.values, owners[some], starts[some], counts[some], low)

    def _near_by_kernel(self, asked: Column, low: _LowBits) -> list[tuple[Places, Places]] | None:
        """Return the pairs of each part; None without kernels, or if there may be too many."""
        if not kernels.enabled or not self._parts:
            return None
        most = self._most_compared or self._most
        crowd = min(self._most, most // self._rows_each) // len(self._parts)
        pairs = []
        for part in self._parts:
            own, met = (np.empty(_MOST_MET * len(asked), np.int64) for _ in range(2))
            found = kernels.number_pages.near_rows(
                part.values, part.heads, asked, PLACE, crowd, *low, own, met
            )
            if found is None:
                return None
            pairs.append((own[:found].copy(), met[:found].copy()))
        return pairs

    def _chosen(
        self, place: int, own: Marks, found: Sequence[tuple[Places, Places]], crowded: Marks
    ) -> tuple[Places, Places]:
        """Return the pairs of a document with many: those that have most numbers in common."""
        every = [
            row_places(part.values[spans(starts[own], counts[own])])
            for part, (starts, counts) in zip(self._parts, found, strict=True)
        ]
        ids, often = np.unique_counts(np.concatenate(every))
        if len(ids) > (self._most_compared or 0):
            crowded[place] = True
            ids = ids[np.argsort(-often, kind="stable")[: self._most_compared]]
        return np.full(len(ids), place), ids


class Selection:
    """The choice of documents of a corpus that are kept, in any order.

    They are in columns that may grow meanwhile, and go by their numbers there. `kept` has those of
    the kept ones, in the order of the choice.
    """

    def __init__(self, index: Index, search: Search, texts: GrowingTexts, room: Room) -> None:
        self._room, self._bits = room, index.plan.bits
        self._k = search.k
        self._corpus = texts
        self._least = None if search.similarity is None else least_estimate(search.similarity)
        if self._least is not None and index.bands is None:
            raise DamagedError("a database without bands was queried for similar texts")
        self._shape = None if self._least is None or index.bands is None else index.bands.shape
        each = 1 if self._shape is None else self._shape.count + 1
        self._texts = _KeptRows(room, MOST_OF_A_BAND, MOST_COMPARED, each)
        self._routes = index.routes(search.k)
        # With a similarity, it is needed from the first document on that has no text.
        self._prints = _KeptRows(room, CANDIDATES) if self._least is None else None
        self._kept = GrowingColumn(room, np.int64, searched=True)
        # Most kept documents that have a number in common with another are alike by chance. The
        # lowest bits of their bins show it, a quarter of their sketches, which stays in memory.
        self._apart = None if self._least is None else most_apart(self._least)
        self._low = GrowingColumn(room, np.uint64, LOW_WORDS, searched=True)

    @property
    def kept(self) -> Places:
        """The numbers of the kept documents, in the order of the choice."""
        return self._kept.values

    def choose(
        self, numbers: Places, known: Marks, key_of: Callable[[int], Key] | None = None
    ) -> Chosen:
        """Choose among the documents of a block, in their order.

        Those are left out that are known to resemble something else. With `key_of`, the nearest
        kept one is wanted; of several equally near ones it is that with the first key.
        """
        if len(self._kept) + len(numbers) > PLACE:
            raise InputError(
                f"more than {PLACE:,} records stay, which is the most that are compared at once",
                hint="divide the corpus, and compare each part with a database of the others",
            )
        block, every = self._block(numbers), self._corpus.all
        size, crowded = len(block), np.zeros(len(block), np.bool_)
        tables = self._tables(block)
        kept = ~known
        asking = np.full(size, key_of is not None) | kept
        before: list[_Alike] = []
        bits = None if self._apart is None else low_bits(block.side.sketches)
        for table, asked, _ in tables:
            low = None
            if bits is not None and table is self._texts:
                low = _LowBits(bits, self._low.values, self._apart or 0)
            for found in table.near(_only(asked, asking), crowded, low):
                left = asking[found[0]] if key_of else kept[found[0]]
                own, met = (places[left] for places in found)
                self._corpus.expect(numbers[own], self.kept[met])
                before.append(self._similar(block, own, every, met, self.kept))
                kept[before[-1].own] = False
            low = None  # the column can grow where it is if there is no view of it
        asking = np.full(size, key_of is not None) | kept
        sought = []
        for _, asked, held in tables:
            later = _only(asked, asking)
            if asked is held:  # then a row that is alone finds only itself
                later = later[_repeated(later)]
            sought.append((later, _only(later if asked is held else held, kept)))
        meetings = [_meeting(asked, held, held[::_HEAD_ROWS].copy()) for asked, held in sought]
        if sum(int(counts.sum()) for _, counts in meetings) > _MOST_PAIRS and size > 1:
            parts = [slice(0, size // 2), slice(size // 2, size)]
            halves = [self.choose(numbers[part], known[part], key_of) for part in parts]
            return Chosen(*joined(halves))
        within = [
            pairs
            for rows, found in zip(sought, meetings, strict=True)
            for pairs in self._among(block, *rows, *found)
        ]
        _choose_in_order(within, kept)
        ids = (len(self._kept) + kept.cumsum() - 1).astype(np.uint64)
        for table, _, held in tables:
            rows = _only(held, kept)
            # Ids are in the order of the places, so the rows stay sorted.
            table.add(rows & ~PLACE | ids[row_places(rows)])
        self._kept.add(numbers[kept])
        if bits is not None:
            self._low.add(bits[kept])
        choice = Chosen(
            kept, crowded, np.full(size, -1), np.full(size, np.nan), np.zeros(size, np.uint8)
        )
        if key_of and before + within:
            earlier = [pairs.only(kept[pairs.other]) for pairs in within]
            before += [pairs._replace(other=ids[pairs.other].astype(np.int64)) for pairs in earlier]
            self._find_nearest(choice, [pairs.only(~kept[pairs.own]) for pairs in before], key_of)
        return choice

    def resembling(self, texts: TextColumns) -> Places:
        """Return the numbers of the kept documents that resemble one of other texts, sorted."""
        every, crowded = self._corpus.all, np.zeros(len(texts), np.bool_)
        similar = [
            self.kept[self._similar(texts, own, every, met, self.kept).other]
            for table, asked, _ in self._tables(texts)
            for own, met in table.near(asked, crowded, None)
        ]
        return unique(np.concatenate([np.empty(0, np.int64), *similar]))

    def _find_nearest(
        self, choice: Chosen, pairs: Sequence[_Alike], key_of: Callable[[int], Key]
    ) -> None:
        """Fill in the nearest kept documents, given the similar pairs with all of these."""
        own, other, shares, apart = joined(pairs)
        ranks = np.nan_to_num(shares)
        order = np.lexsort((other, apart, -ranks, own))
        own, other, shares = own[order], self.kept[other[order]], shares[order]
        apart, ranks = apart[order], ranks[order]
        [starts] = differs(own).nonzero()
        choice.nearest[own[starts]] = other[starts]
        choice.shares[own[starts]] = shares[starts]
        choice.distances[own[starts]] = apart[starts]
        [ends] = np.append(differs(own, ranks, apart), True).nonzero()
        ends = ends[ends.searchsorted(starts, "right")]
        for place in (other[ends - 1] != other[starts]).nonzero()[0].tolist():
            equal = dict.fromkeys(other[starts[place] : ends[place]].tolist())
            choice.nearest[own[starts[place]]] = min(equal, key=key_of)

    def _block(self, numbers: Places) -> TextColumns:
        """Return the columns of documents; of those in a row, they aren't copied."""
        if len(numbers) and (np.diff(numbers) == 1).all():
            return self._corpus.all[slice(int(numbers[0]), int(numbers[-1]) + 1)]
        return self._corpus.all[numbers]

    def _tables(self, block: TextColumns) -> list[tuple[_KeptRows, Column, Column]]:
        """Return each table, with the rows under which a block looks there, and is found there."""
        if self._prints is None and block.ready.any():
            self._prints = _KeptRows(self._room, CANDIDATES)
            for start in range(0, len(self._kept), _MOST_PAIRS):
                part = self._corpus.all[self.kept[start : start + _MOST_PAIRS]]
                rows = self._prefixes(part, ~part.short, probed=False)
                self._prints.add(rows + np.uint64(start))
        side = block.side
        if self._shape:
            numbers, marks = self._shape.columns(side.sketches, side.digests)
            rows = number_rows(numbers.T[marks.T], marks.T.nonzero()[1])
        else:
            [short] = (block.short & side.digests.any(axis=1)).nonzero()
            rows = number_rows(side.digests[short, 0], short)
        tables = [(self._texts, rows, rows)]
        if self._prints:
            asking = ~block.short if self._least is None else block.ready
            asked = self._prefixes(block, asking, probed=True)
            held = self._prefixes(block, ~block.short, probed=False)
            tables.append((self._prints, asked, held))
        return tables

    def _prefixes(self, block: TextColumns, marks: Marks, *, probed: bool) -> Column:
        """Return the rows of fingerprints by their prefixes in each table.

        Some tables are probed at several prefixes.
        """
        [places] = marks.nonzero()
        found = [np.empty(0, np.uint64)]
        for salt, route in enumerate(self._routes):
            words = as_words(route.permutation.apply(block.side.fingerprints[places]))
            behind = 64 * (len(words) - 1)
            heads = words[0] & ~np.uint64(route.below >> behind)
            for change in route.masks if probed else (0,):
                changed = heads ^ np.uint64(change >> behind)
                found.append(mix(changed) + np.uint64(salt))
        return number_rows(np.concatenate(found), np.tile(places, len(found) - 1))

    def _among(
        self, block: TextColumns, asked: Column, held: Column, starts: Places, counts: Places
    ) -> Iterator[_Alike]:
        """Yield the similar pairs within a block, given where each row that asks finds others."""
        owners, size = row_places(asked), len(block)
        for some in portions(counts, _MOST_PAIRS):
            later = np.repeat(owners[some], counts[some])
            earlier = row_places(held[spans(starts[some], counts[some])])
            before = earlier < later
            pairs = unique(later[before] * size + earlier[before])
            for start in range(0, len(pairs), _PAIRS):
                own, other = np.divmod(pairs[start : start + _PAIRS], size)
                yield self._similar(block, own, block, other)

    def _similar(
        self,
        block: TextColumns,
        own: Places,
        others: TextColumns,
        met: Places,
        numbers: Places | None = None,
    ) -> _Alike:
        """Return the pairs that are similar; with `numbers`, the others have those."""
        other = met if numbers is None else numbers[met]
        one, two = block.side, others.side
        apart = distances(one.fingerprints[own], two.fingerprints[other], self._bits)
        shares = np.full(len(own), np.nan)
        alike: Marks = apart <= self._k
        if self._least is not None:
            shares = jaccard(one, own, two, other)
            by_bits = block.ready[own]
            shares[by_bits] = np.nan
            alike = np.where(by_bits, alike, shares >= self._least)
        short = block.short[own] | others.short[other]
        if short.any():
            # A short text resembles only those that are equal.
            digests = one.digests[own[short]]
            same = (digests == two.digests[other[short]]).all(axis=1) & digests.any(axis=1)
            alike[short] = same & block.short[own[short]] & others.short[other[short]]
            shares[short], apart[short] = 1.0, 0
        return _Alike(own, met, shares, apart).only(alike)


def _meeting(asked: Column, rows: Column, heads: Column) -> tuple[Places, Places]:
    """Return where the rows with each number begin, and how many these are; all are sorted."""
    if not kernels.enabled:
        numbers = asked & ~PLACE
        starts = rows.searchsorted(numbers)
        return starts, rows.searchsorted(numbers | PLACE, "right") - starts
    starts, counts = (np.empty(len(asked), np.int64) for _ in range(2))
    kernels.number_pages.meeting(rows, heads, asked, PLACE, starts, counts)
    return starts, counts


def _pairs(
    rows: Column, owners: Places, starts: Places, counts: Places, low: _LowBits | None
) -> tuple[Places, Places]:
    """Return each owner with the places of its rows; with low bits, if they may be alike."""
    own, met = np.repeat(owners, counts), row_places(rows[spans(starts, counts)])
    if low:
        near = low_bits_apart(low.own, own, low.other, met) <= low.apart
        own, met = own[near], met[near]
    return own, met


def number_rows(numbers: Column, places: Places) -> Column:
    """Return sorted rows: a hash of each number, and the place of its document."""
    rows = places.astype(np.uint64)
    for start in range(0, len(rows), _MIXED):  # which stay in a cache
        some = slice(start, start + _MIXED)
        rows[some] |= mix(numbers[some]) & ~PLACE
    rows.sort()
    return rows


def row_places(rows: Column) -> Places:
    return (rows & PLACE).view(np.int64)


def _repeated(rows: Column) -> Marks:
    """Mark the sorted rows whose number another one has."""
    first = np.append(differs(rows & ~PLACE), True)
    marks: Marks = ~(first[:-1] & first[1:])
    return marks


def _only(rows: Column, marks: Marks) -> Column:
    return rows[marks[row_places(rows)]]


def _choose_in_order(within: Sequence[_Alike], kept: Marks) -> None:
    """Leave out each document that resembles an earlier one that is kept, given such pairs."""
    if not within:
        return
    own, other, *_ = joined(within)
    later, earlier = np.divmod(unique(own * len(kept) + other), len(kept))
    [starts] = differs(later).nonzero()
    others = earlier.tolist()
    bounds = [*starts.tolist(), len(later)]
    for place, number in enumerate(later[starts].tolist()):
        if any(kept[each] for each in others[bounds[place] : bounds[place + 1]]):
            kept[number] = False
