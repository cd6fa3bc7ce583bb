"""Choose documents one after the other: each is kept unless it resembles one that is kept.

Many are decided at once, as a join of columns. Documents that may be alike have a number in common:
a band of their sketches, a digest, or the prefix of a permuted fingerprint. Those of a block are
compared first with what was kept of the blocks before, and what is left of them with each other.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Column, Marks, Places, Rows, differs, joined, portions, spans, unique
from fpdb.documents.lookup import CANDIDATES, Search
from fpdb.documents.similarity import Known, Shares, Side, jaccard
from fpdb.errors import DamagedError
from fpdb.fingerprint.sketches import has_sketch, least_estimate, mix
from fpdb.models import Key
from fpdb.storage.format import Stored
from fpdb.tables import Index
from fpdb.tables.bands import MOST_COMPARED, MOST_OF_A_BAND, RowOrder
from fpdb.tables.bits import Distances, as_words, distances

# Pairs that are compared at once: their sketches fit into a cache.
_PAIRS = 1 << 15
# Pairs of a block that are compared with each other; with more it is halved.
_MOST_PAIRS = 1 << 22
# Bits of a number made of a fingerprint, which sorts together with an id in one word.
_PREFIX_BITS = 36


@dataclass(frozen=True, eq=False)
class TextColumns:
    """Some documents as columns: what they are compared by, and marks of the short ones."""

    side: Side
    short: Marks

    @classmethod
    def of(cls, documents: Sequence[Stored], bits: int) -> "TextColumns":
        """Return the columns of documents that are ready to be stored."""
        short = np.array([each.fingerprint is None for each in documents], np.bool_)
        return cls(Known.of(documents, bits).side, short)

    @classmethod
    def joined(cls, parts: Sequence["TextColumns"]) -> "TextColumns":
        """Concatenate columns, of which there is at least one."""
        columns = zip(*(each.columns for each in parts), strict=True)
        return cls.of_columns([np.concatenate(each) for each in columns])

    @classmethod
    def of_columns(cls, columns: Sequence[NDArray[Any]]) -> "TextColumns":
        """Return texts with these columns."""
        *side, short = columns
        return cls(Side(*side), short)

    @property
    def columns(self) -> list[NDArray[Any]]:
        """All columns."""
        side = self.side
        return [side.fingerprints, side.digests, side.sketches, self.short]

    def __len__(self) -> int:
        return len(self.short)

    def __getitem__(self, places: Places | slice) -> "TextColumns":
        return self.of_columns([column[places] for column in self.columns])

    @cached_property
    def ready(self) -> Marks:
        """Marks of the documents that are nothing but a fingerprint, and are compared by that."""
        return ~(self.short | self.side.digests.any(axis=1) | has_sketch(self.side.sketches))


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
    asked: Rows
    held: Rows

    def only(self, asking: Marks, found: Marks) -> "_Sought":
        """Return the rows of the documents that are marked."""
        chosen = (
            [column[marks[rows[1]]] for column in rows]
            for rows, marks in ((self.asked, asking), (self.held, found))
        )
        return _Sought(self.table, *chosen)


class _KeptRows:
    """The numbers of kept documents in sorted parts, each at most half as large as the last."""

    def __init__(self, bits: int, most: int, most_compared: int | None) -> None:
        self._bits = bits
        self._most, self._most_compared = most, most_compared
        self._parts: list[Rows] = []

    def sorted(self, numbers: Column, places: Places, largest: int) -> Rows:
        """Return rows in their order."""
        order = RowOrder(self._bits, largest)
        return order.sorted([order.combined(numbers, places.astype(np.uint64))])

    def add(self, rows: Rows) -> None:
        """Add rows that are sorted, of documents after all that are there."""
        parts = self._parts
        if len(rows[0]):
            parts.append(rows)
        while len(parts) > 1 and len(parts[-2][0]) < 2 * len(parts[-1][0]):
            order = RowOrder(self._bits, int(parts[-1][1].max()))
            last = [order.combined(*part) for part in parts[-2:]]
            parts[-2:] = [order.sorted(last)]

    def near(self, asked: Rows, crowded: Marks) -> Iterator[tuple[Places, Places]]:
        """Yield pairs: a document that asks, and a kept one with one of its numbers.

        Marks those that aren't compared with all of them, because they are too many.
        """
        numbers, owners = asked[0], asked[1].astype(np.int64)
        found = [meeting(numbers, part[0]) for part in self._parts]
        left = np.full(len(numbers), self._most)
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
                yield np.repeat(owners[some], counts[some]), part[1][places].astype(np.int64)

    def _chosen(
        self, place: int, own: Marks, found: Sequence[tuple[Places, Places]], crowded: Marks
    ) -> tuple[Places, Places]:
        """Return the pairs of a document with many: those that have most numbers in common."""
        every = [
            part[1][spans(starts[own], counts[own])]
            for part, (starts, counts) in zip(self._parts, found, strict=True)
        ]
        ids, often = np.unique_counts(np.concatenate(every))
        if len(ids) > (self._most_compared or 0):
            crowded[place] = True
            ids = ids[np.argsort(-often, kind="stable")[: self._most_compared]]
        return np.full(len(ids), place), ids.astype(np.int64)


class Selection:
    """What was kept so far, and the choice of what else is."""

    def __init__(self, index: Index, search: Search) -> None:
        self._bits = index.plan.bits
        self._k = search.k
        self._least = None if search.similarity is None else least_estimate(search.similarity)
        if self._least is not None and index.bands is None:
            raise DamagedError("a database without bands was queried for similar texts")
        self._shape = None if self._least is None or index.bands is None else index.bands.shape
        bits = 64 if self._shape is None else (self._shape.count << self._shape.bits).bit_length()
        self._texts = _KeptRows(bits, MOST_OF_A_BAND, MOST_COMPARED)
        self._routes = index.routes(search.k)
        # With a similarity, it is needed from the first document on that has no text.
        self._prints: _KeptRows | None = None
        if self._least is None:
            self._prints = _KeptRows(_PREFIX_BITS, CANDIDATES, None)
        self._columns: list[NDArray[Any]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def choose(self, block: TextColumns, known: Marks) -> tuple[Marks, Marks]:
        """Mark the documents of a block that are kept, and those whose search was cut short.

        Those are left out that are known to resemble something else.
        """
        if self._prints is None and block.ready.any():
            self._prints = _KeptRows(_PREFIX_BITS, CANDIDATES, None)
            for start in range(0, self._count, _MOST_PAIRS):
                part = self._kept[start : start + _MOST_PAIRS]
                numbers, places = self._prefixes(part, ~part.short, probed=False)
                self._prints.add(self._prints.sorted(numbers, places + start, self._count))
        kept, crowded = ~known, np.zeros(len(block), np.bool_)
        self._choose(block, [each.only(kept, kept) for each in self._asked(block)], kept, crowded)
        return kept, crowded

    def nearest(self, block: TextColumns, kept: Marks, key_of: Callable[[int], Key]) -> Nearest:
        """Return the nearest kept document of each one of the last block that wasn't kept.

        Of several equally near ones it is that with the first key.
        """
        limits = self._count - int(np.count_nonzero(kept)) + kept.cumsum()
        found = []
        for table, asked, _ in (each.only(~kept, ~kept) for each in self._asked(block)):
            for asking, met in table.near(asked, np.zeros(len(block), np.bool_)):
                before = met < limits[asking]
                own, other = asking[before], met[before]
                alike, shares, apart = self._compare(block, own, self._kept, other)
                found.append([column[alike] for column in (own, other, shares, apart)])
        nearest = Nearest(
            np.full(len(block), -1), np.full(len(block), np.nan), np.zeros(len(block), np.uint8)
        )
        if not found:
            return nearest
        own, other, shares, apart = joined(found)
        ranks = np.nan_to_num(shares)
        order = np.lexsort((other, apart, -ranks, own))
        own, other, shares = own[order], other[order], shares[order]
        apart, ranks = apart[order], ranks[order]
        [starts] = differs(own).nonzero()
        nearest.kept[own[starts]] = other[starts]
        nearest.shares[own[starts]] = shares[starts]
        nearest.distances[own[starts]] = apart[starts]
        [ends] = np.append(differs(own, ranks, apart), True).nonzero()
        ends = ends[ends.searchsorted(starts, "right")]
        for place in (other[ends - 1] != other[starts]).nonzero()[0].tolist():
            equal = unique(other[starts[place] : ends[place]]).tolist()
            nearest.kept[own[starts[place]]] = min(equal, key=key_of)
        return nearest

    def _asked(self, block: TextColumns) -> list[_Sought]:
        """Return the rows of a block in each table."""
        side, most = block.side, max(len(block) - 1, 0)
        if self._shape:
            numbers, marks = self._shape.columns(side.sketches, side.digests)
            rows = self._texts.sorted(numbers[marks], marks.nonzero()[0], most)
        else:
            short = block.short & side.digests.any(axis=1)
            rows = self._texts.sorted(side.digests[short, 0], short.nonzero()[0], most)
        tables = [_Sought(self._texts, rows, rows)]
        if self._prints:
            asking = ~block.short if self._least is None else block.ready
            asked = self._prints.sorted(*self._prefixes(block, asking, probed=True), most)
            held = self._prints.sorted(*self._prefixes(block, ~block.short, probed=False), most)
            tables.append(_Sought(self._prints, asked, held))
        return tables

    def _prefixes(self, block: TextColumns, marks: Marks, *, probed: bool) -> tuple[Column, Places]:
        """Return numbers for the prefixes of fingerprints in each table, and their places.

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
                found.append(mix(mix(changed) + np.uint64(salt)) >> np.uint64(64 - _PREFIX_BITS))
        return np.concatenate(found), np.tile(places, len(found) - 1)

    def _choose(
        self, block: TextColumns, tables: Sequence[_Sought], kept: Marks, crowded: Marks
    ) -> None:
        """Decide the documents that have rows, or are kept, in their order."""
        for table, asked, _ in tables:
            for asking, met in table.near(asked, crowded):
                left = kept[asking]
                own, other = asking[left], met[left]
                kept[own[self._compare(block, own, self._kept, other)[0]]] = False
        tables = [each.only(kept, kept) for each in tables]
        meetings = [meeting(each.asked[0], each.held[0]) for each in tables]
        places = kept.nonzero()[0]
        if sum(int(counts.sum()) for _, counts in meetings) > _MOST_PAIRS and len(places) > 1:
            first = np.arange(len(block)) <= places[(len(places) - 1) // 2]
            for half in (first & kept, ~first & kept):
                others = kept & ~half
                kept &= half
                self._choose(block, [each.only(half, half) for each in tables], kept, crowded)
                kept |= others
            return
        pairs = [
            self._among(block, each, *found) for each, found in zip(tables, meetings, strict=True)
        ]
        _choose_in_order(np.concatenate(pairs), len(block), kept)
        self._keep(block, tables, kept)

    def _among(self, block: TextColumns, own: _Sought, starts: Places, counts: Places) -> Column:
        """Return the pairs of a block that are alike, each as one number: the later one first."""
        found = [np.empty(0, np.int64)]
        owners, size = own.asked[1].astype(np.int64), len(block)
        for some in portions(counts, _MOST_PAIRS):
            later = np.repeat(owners[some], counts[some])
            earlier = own.held[1][spans(starts[some], counts[some])].astype(np.int64)
            before = earlier < later
            pairs = unique(later[before] * size + earlier[before])
            for start in range(0, len(pairs), _PAIRS):
                part = pairs[start : start + _PAIRS]
                alike, _, _ = self._compare(block, part // size, block, part % size)
                found.append(part[alike])
        return np.concatenate(found)

    def _keep(self, block: TextColumns, tables: Sequence[_Sought], kept: Marks) -> None:
        ids = self._count + kept.cumsum() - 1
        for table, _, held in tables:
            numbers, places = (column[kept[held[1]]] for column in held)
            table.add([numbers, ids[places].astype(np.uint64)])
        self._grow(block[kept.nonzero()[0]])

    def _grow(self, new: TextColumns) -> None:
        count = self._count + len(new)
        if not self._columns or count > len(self._columns[0]):
            wide = [np.empty((2 * count, *own.shape[1:]), own.dtype) for own in new.columns]
            for column, old in zip(wide, self._columns, strict=False):
                column[: self._count] = old[: self._count]
            self._columns = wide
        for column, own in zip(self._columns, new.columns, strict=True):
            column[self._count : count] = own
        self._count = count

    @property
    def _kept(self) -> TextColumns:
        return TextColumns.of_columns([column[: self._count] for column in self._columns])

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


def meeting(asked: Column, held: Column) -> tuple[Places, Places]:
    """Return where the rows with each number begin, and how many these are; both are sorted."""
    [fresh] = differs(asked).nonzero()
    numbers = asked[fresh]
    starts = held.searchsorted(numbers)
    counts = held.searchsorted(numbers, "right") - starts
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
