"""Choose documents one after the other: each is kept unless it resembles one that is kept.

Many are decided at once, as a join of columns. Documents that may be alike have a number in common:
a hash of a band of their sketches, of a digest, or of the prefix of a permuted fingerprint. Those
of a block are compared first with the kept ones of the blocks before, and the rest of them with
each other.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fpdb.arrays import Column, Marks, Places, differs, joined, portions, spans, unique
from fpdb.documents.lookup import CANDIDATES, Search
from fpdb.documents.similarity import Shares, jaccard
from fpdb.errors import DamagedError
from fpdb.fingerprint.sketches import least_estimate, mix
from fpdb.joins.columns import GrowingColumn, GrowingTexts, TextColumns
from fpdb.models import Key
from fpdb.scratch import Scratch
from fpdb.tables import Index
from fpdb.tables.bands import MOST_COMPARED, MOST_OF_A_BAND
from fpdb.tables.bits import Distances, as_words, distances

# Pairs that are compared at once: their sketches fit into a cache.
_PAIRS = 1 << 15
# Pairs of a block that are compared with each other; with more it is halved.
_MOST_PAIRS = 1 << 22
# A row is a word: the upper half of a hash, and the place of a document.
_PLACE = np.uint64((1 << 32) - 1)


class Nearest(NamedTuple):
    """Of each of some documents the nearest kept one: its number, and how near it is.

    The number is -1 if there is none, and the share nan if fingerprints were compared.
    """

    kept: Places
    shares: Shares
    distances: Distances


class _Sought(NamedTuple):
    """The rows of some documents in a table: under which they look, under which they are found."""

    table: "_KeptRows"
    asked: Column
    held: Column

    def only(self, asking: Marks, found: Marks) -> "_Sought":
        """Return the rows of the documents that are marked."""
        return _Sought(
            self.table,
            self.asked[asking[_places(self.asked)]],
            self.held[found[_places(self.held)]],
        )


class _KeptRows:
    """The rows of kept documents in sorted parts, each at most half as large as the last."""

    def __init__(self, most: int, most_compared: int | None) -> None:
        self._most, self._most_compared = most, most_compared
        self._parts: list[Column] = []

    def add(self, rows: Column) -> None:
        """Add rows that are sorted."""
        parts = self._parts
        if len(rows):
            parts.append(rows)
        while len(parts) > 1 and len(parts[-2]) < 2 * len(parts[-1]):
            last = parts.pop()
            parts[-1] = np.concatenate([parts[-1], last])
            parts[-1].sort(kind="stable")  # which finds both runs, and merges them

    def near(self, asked: Column, crowded: Marks) -> Iterator[tuple[Places, Places]]:
        """Yield pairs: a document that asks, and a kept one with one of its numbers.

        Marks those that aren't compared with all of them, because they are too many.
        """
        owners = _places(asked)
        found = [meeting(asked, part) for part in self._parts]
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
                places = spans(starts[some], counts[some])
                yield np.repeat(owners[some], counts[some]), _places(part[places])

    def _chosen(
        self, place: int, own: Marks, found: Sequence[tuple[Places, Places]], crowded: Marks
    ) -> tuple[Places, Places]:
        """Return the pairs of a document with many: those that have most numbers in common."""
        every = [
            _places(part[spans(starts[own], counts[own])])
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

    def __init__(self, index: Index, search: Search, texts: GrowingTexts, scratch: Scratch) -> None:
        self._bits = index.plan.bits
        self._k = search.k
        self._corpus = texts
        self._least = None if search.similarity is None else least_estimate(search.similarity)
        if self._least is not None and index.bands is None:
            raise DamagedError("a database without bands was queried for similar texts")
        self._shape = None if self._least is None or index.bands is None else index.bands.shape
        self._texts = _KeptRows(MOST_OF_A_BAND, MOST_COMPARED)
        self._routes = index.routes(search.k)
        # With a similarity, it is needed from the first document on that has no text.
        self._prints = _KeptRows(CANDIDATES, None) if self._least is None else None
        self._kept = GrowingColumn(scratch, "kept", np.int64)

    @property
    def kept(self) -> Places:
        """The numbers of the kept documents, in the order of the choice."""
        return self._kept.values

    def choose(self, numbers: Places, known: Marks) -> tuple[Marks, Marks]:
        """Mark the documents of a block that are kept, and those whose search was cut short.

        Those are left out that are known to resemble something else.
        """
        block = self._block(numbers)
        if self._prints is None and block.ready.any():
            self._prints = _KeptRows(CANDIDATES, None)
            for start in range(0, len(self._kept), _MOST_PAIRS):
                part = self._corpus.all[self.kept[start : start + _MOST_PAIRS]]
                rows = self._prefixes(part, ~part.short, probed=False)
                self._prints.add(rows + np.uint64(start))
        kept, crowded = ~known, np.zeros(len(block), np.bool_)
        tables = [each.only(kept, kept) for each in self._asked(block)]
        self._choose(numbers, block, tables, kept, crowded)
        return kept, crowded

    def nearest(self, numbers: Places, kept: Marks, key_of: Callable[[int], Key]) -> Nearest:
        """Return the nearest kept document of each one of the last block that wasn't kept.

        Of several equally near ones it is that with the first key.
        """
        block, every = self._block(numbers), self._corpus.all
        limits = len(self._kept) - int(np.count_nonzero(kept)) + kept.cumsum()
        found = []
        for table, asked, _ in (each.only(~kept, ~kept) for each in self._asked(block)):
            for asking, met in table.near(asked, np.zeros(len(block), np.bool_)):
                before = met < limits[asking]
                own, other = asking[before], met[before]
                alike, shares, apart = self._compare(block, own, every, self.kept[other])
                found.append([column[alike] for column in (own, other, shares, apart)])
        nearest = Nearest(
            np.full(len(block), -1), np.full(len(block), np.nan), np.zeros(len(block), np.uint8)
        )
        if not found:
            return nearest
        own, other, shares, apart = joined(found)
        ranks = np.nan_to_num(shares)
        order = np.lexsort((other, apart, -ranks, own))
        own, other, shares = own[order], self.kept[other[order]], shares[order]
        apart, ranks = apart[order], ranks[order]
        [starts] = differs(own).nonzero()
        nearest.kept[own[starts]] = other[starts]
        nearest.shares[own[starts]] = shares[starts]
        nearest.distances[own[starts]] = apart[starts]
        [ends] = np.append(differs(own, ranks, apart), True).nonzero()
        ends = ends[ends.searchsorted(starts, "right")]
        for place in (other[ends - 1] != other[starts]).nonzero()[0].tolist():
            equal = dict.fromkeys(other[starts[place] : ends[place]].tolist())
            nearest.kept[own[starts[place]]] = min(equal, key=key_of)
        return nearest

    def _block(self, numbers: Places) -> TextColumns:
        """Return the columns of documents; of those in a row, they aren't copied."""
        if len(numbers) and (np.diff(numbers) == 1).all():
            return self._corpus.all[slice(int(numbers[0]), int(numbers[-1]) + 1)]
        return self._corpus.all[numbers]

    def _asked(self, block: TextColumns) -> list[_Sought]:
        """Return the rows of a block in each table."""
        side = block.side
        if self._shape:
            numbers, marks = self._shape.columns(side.sketches, side.digests)
            rows = _rows(numbers[marks], marks.nonzero()[0])
        else:
            [short] = (block.short & side.digests.any(axis=1)).nonzero()
            rows = _rows(side.digests[short, 0], short)
        tables = [_Sought(self._texts, rows, rows)]
        if self._prints:
            asking = ~block.short if self._least is None else block.ready
            asked = self._prefixes(block, asking, probed=True)
            held = self._prefixes(block, ~block.short, probed=False)
            tables.append(_Sought(self._prints, asked, held))
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
        return _rows(np.concatenate(found), np.tile(places, len(found) - 1))

    def _choose(
        self,
        numbers: Places,
        block: TextColumns,
        tables: Sequence[_Sought],
        kept: Marks,
        crowded: Marks,
    ) -> None:
        """Decide the documents that have rows, or are kept, in their order."""
        every = self._corpus.all
        for table, asked, _ in tables:
            for asking, met in table.near(asked, crowded):
                left = kept[asking]
                own, other = asking[left], self.kept[met[left]]
                kept[own[self._compare(block, own, every, other)[0]]] = False
        tables = [each.only(kept, kept) for each in tables]
        meetings = [meeting(each.asked, each.held) for each in tables]
        places = kept.nonzero()[0]
        if sum(int(counts.sum()) for _, counts in meetings) > _MOST_PAIRS and len(places) > 1:
            first = np.arange(len(block)) <= places[(len(places) - 1) // 2]
            for half in (first & kept, ~first & kept):
                others = kept & ~half
                kept &= half
                some = [each.only(half, half) for each in tables]
                self._choose(numbers, block, some, kept, crowded)
                kept |= others
            return
        pairs = [
            self._among(block, each, *found) for each, found in zip(tables, meetings, strict=True)
        ]
        _choose_in_order(np.concatenate(pairs), len(block), kept)
        ids = (len(self._kept) + kept.cumsum() - 1).astype(np.uint64)
        for table, _, held in tables:
            rows = held[kept[_places(held)]]
            # Ids are in the order of the places, so the rows stay sorted.
            table.add(rows & ~_PLACE | ids[_places(rows)])
        self._kept.add(numbers[kept])

    def _among(self, block: TextColumns, own: _Sought, starts: Places, counts: Places) -> Column:
        """Return the pairs of a block that are alike, each as one number: the later one first."""
        found = [np.empty(0, np.int64)]
        owners, size = _places(own.asked), len(block)
        for some in portions(counts, _MOST_PAIRS):
            later = np.repeat(owners[some], counts[some])
            earlier = _places(own.held[spans(starts[some], counts[some])])
            before = earlier < later
            pairs = unique(later[before] * size + earlier[before])
            for start in range(0, len(pairs), _PAIRS):
                part = pairs[start : start + _PAIRS]
                alike, _, _ = self._compare(block, part // size, block, part % size)
                found.append(part[alike])
        return np.concatenate(found)

    def _compare(
        self, block: TextColumns, own: Places, others: TextColumns, other: Places
    ) -> tuple[Marks, Shares, Distances]:
        """Mark the pairs that are alike; return their similarities and distances."""
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
        return alike, shares, apart


def _rows(numbers: Column, places: Places) -> Column:
    """Return sorted rows: a hash of each number, and the place of its document."""
    rows = mix(numbers) & ~_PLACE | places.astype(np.uint64)
    rows.sort()
    return rows


def _places(rows: Column) -> Places:
    return (rows & _PLACE).astype(np.int64)


def meeting(asked: Column, held: Column) -> tuple[Places, Places]:
    """Return where the rows with each number begin, and how many these are; both are sorted."""
    numbers = asked & ~_PLACE
    [fresh] = differs(numbers).nonzero()
    starts = held.searchsorted(numbers[fresh])
    counts = held.searchsorted(numbers[fresh] | _PLACE, "right") - starts
    repeated = np.diff(fresh, append=len(asked))
    return np.repeat(starts, repeated), np.repeat(counts, repeated)


def _choose_in_order(pairs: Places, size: int, kept: Marks) -> None:
    """Leave out each document that resembles an earlier one that is kept, given such pairs."""
    pairs = unique(pairs)
    later, earlier = np.divmod(pairs, max(size, 1))
    [starts] = differs(later).nonzero()
    others = earlier.tolist()
    bounds = [*starts.tolist(), len(pairs)]
    for place, own in enumerate(later[starts].tolist()):
        if any(kept[each] for each in others[bounds[place] : bounds[place + 1]]):
            kept[own] = False
