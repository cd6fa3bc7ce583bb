"""Choose documents one after the other: each is kept unless it resembles one that is kept.

Sketches show whether two documents are alike, but for those whose estimate is too near the limit.
These are compared by their shingles; where these aren't at hand yet, both documents are noted, and
all that depend on them are decided again once they are.

Many are decided at once, as a join of columns. Documents that may be alike have a number in common:
a hash of a band of their sketches, of a digest, or of the prefix of a permuted fingerprint. Those
of a block are compared first with the kept ones of the blocks before, and the rest of them with
each other.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fpdb.arrays import Column, Marks, Places, among, differs, joined, portions, spans, unique
from fpdb.documents.lookup import CANDIDATES, Search
from fpdb.documents.similarity import Alike, Shares, alike
from fpdb.errors import DamagedError, InputError
from fpdb.fingerprint.sketches import (
    LOW_WORDS,
    low_bits,
    mix,
    most_apart,
)
from fpdb.joins.columns import GrowingColumn, GrowingTexts, Room
from fpdb.joins.kept_rows import (
    HEAD_ROWS,
    PAIRS,
    PLACE,
    KeptRows,
    LowBits,
    meeting,
    number_rows,
    only,
    repeated,
    row_places,
)
from fpdb.joins.rules import ANY, Rule
from fpdb.joins.shingle_sets import ShingleSets
from fpdb.models import Key
from fpdb.storage.block import TextColumns
from fpdb.tables import Index
from fpdb.tables.bands import MOST_COMPARED, MOST_OF_A_BAND
from fpdb.tables.bits import Distances, as_words, distances

# Of the pairs that are compared at once, the first are fewer, since a document isn't compared with
# all others once it is decided.
_FIRST_PAIRS = 1 << 9
# Pairs of documents that are decided together and compared with each other. With more, half as many
# documents are decided together; with few, later on twice as many.
_MOST_PAIRS, _FEW_PAIRS = 1 << 22, 1 << 19
# Documents that are decided again together.
_TOGETHER = 1 << 18


class Chosen(NamedTuple):
    """The choice among documents: marks of the kept ones, and of searches that were cut short.

    Open ones have to be decided again, by their shingles. Of each one that isn't kept, `nearest`
    has the number of the nearest kept one that it was compared with, or -1 if there is none; and
    `shares` and `distances` how near it is. A share is nan if fingerprints were compared.
    """

    keepers: Marks
    crowded: Marks
    is_open: Marks
    nearest: Places
    shares: Shares
    distances: Distances


@dataclass
class _Choice:
    """The choice among the documents of a block so far.

    Those that are `wanted` are compared: such as may stay, or all if the nearest one is `told`.
    """

    texts: TextColumns
    numbers: Places
    wanted: Marks
    told: bool
    keepers: Marks

    def __post_init__(self) -> None:
        self.is_open, self.crowded = (np.zeros(len(self.keepers), np.bool_) for _ in range(2))

    @property
    def asking(self) -> Marks:
        return self.wanted & (self.keepers | self.told)


class Selection:
    """The choice of documents of a corpus that are kept, in any order.

    They are in columns that may grow meanwhile, and go by their numbers there. `kept` has those of
    the kept ones, in the order of the choice.

    Without the shingles of the documents, one stays if only these can show whether it resembles a
    kept one, and so does one that only resembles such a document; `doubtful` marks these, with the
    kept ones that they may resemble.
    """

    def __init__(
        self,
        index: Index,
        search: Search,
        texts: GrowingTexts,
        room: Room,
        sets: ShingleSets | None = None,
        *,
        rule: Rule = ANY,
    ) -> None:
        self._room, self._bits = room, index.plan.bits
        self._index, self._search = index, search
        self._k, self._similarity = search.k, search.similarity or 0.0
        self._corpus, self._sets, self._rule = texts, sets, rule
        self._least: float | None = None
        self._sure = 0.0
        if search.similarity is not None:
            self._least, self._sure = rule.doubtful_estimates(search.similarity)
            if index.bands is None:
                raise DamagedError("a database without bands was queried for similar texts")
        self._shape = None if self._least is None or index.bands is None else index.bands.shape
        rows_each = 1 if self._shape is None else self._shape.count + 1
        self._texts = KeptRows(room, MOST_OF_A_BAND, MOST_COMPARED, rows_each)
        self._routes = index.routes(search.k)
        # With a similarity, it is needed from the first document on that has no text.
        self._prints = KeptRows(room, CANDIDATES) if self._least is None else None
        self._keepers = GrowingColumn(room, np.int64, searched=True)
        self._gone: Marks | None = None
        self._together = int(PLACE)
        # Of each kept document, whether its shingles may remove it.
        self._open = GrowingColumn(room, np.bool_, searched=True)
        self._doubtful = GrowingColumn(room, np.bool_, searched=True)
        # Most kept documents that have a number in common with another are alike by chance. The
        # lowest bits of their bins show it, a quarter of their sketches, which stays in memory.
        self._apart = None if self._least is None else most_apart(self._least)
        self._low = GrowingColumn(room, np.uint64, LOW_WORDS, searched=True)

    @property
    def keepers(self) -> Places:
        """The numbers of the kept documents, in the order of the choice."""
        keepers = self._keepers.values
        return keepers if self._gone is None else keepers[~self._gone]

    @property
    def doubtful(self) -> Marks:
        """Marks of the documents whose shingles have to be compared."""
        self._doubtful.add(np.zeros(len(self._corpus) - len(self._doubtful), np.bool_))
        return self._doubtful.values

    def choose(
        self,
        numbers: Places,
        known: Marks,
        key_of: Callable[[int], Key] | None = None,
        certain: Marks | None = None,
    ) -> Chosen:
        """Choose among the documents of a block, in their order.

        Those are left out that are known to resemble something else, and those stay that certainly
        do. With `key_of`, each is compared with all kept ones, to tell the nearest one; of several
        equally near ones it is that with the first key.
        """
        if certain is None:
            certain = np.zeros(len(numbers), np.bool_)
        decided: list[Chosen] = []
        start = 0
        while start < len(numbers) or not decided:
            part = slice(start, start + self._together)
            chosen = self._choose_together(numbers[part], known[part], certain[part], key_of)
            if chosen is not None:
                decided.append(chosen)
                start += len(chosen.keepers)
        return Chosen(*joined(decided))

    def _choose_together(
        self, numbers: Places, known: Marks, certain: Marks, key_of: Callable[[int], Key] | None
    ) -> Chosen | None:
        """Choose among documents; return None if too many pairs of them would be compared."""
        if len(self._keepers) + len(numbers) > PLACE:
            raise InputError(
                f"more than {PLACE:,} records stay, which is the most that are compared at once",
                hint="divide the corpus, and compare each part with a database of the others",
            )
        block = self._block(numbers)
        size, tables = len(block), self._tables(block, numbers)
        choice = _Choice(block, numbers, ~certain, key_of is not None, ~known)
        before = list(self._compare_with_keepers(choice, tables))
        sought = []
        for _, asked, held in tables:
            if asked is held:  # then a row that is alone finds only itself
                rows = only(held, choice.asking | choice.keepers)
                asked = held = rows[repeated(rows)]  # noqa: PLW2901
            sought.append((only(asked, choice.asking), only(held, choice.keepers)))
        meetings = [meeting(asked, held, held[::HEAD_ROWS].copy()) for asked, held in sought]
        met = sum(int(counts.sum()) for _, counts in meetings)
        if met > _MOST_PAIRS and size > 1:
            self._together = size // 2
            return None
        if met < _FEW_PAIRS:
            self._together = max(self._together, 2 * size)
        within = [
            self._compared(pairs, numbers, numbers)
            for (table, *_), rows, runs in zip(tables, sought, meetings, strict=True)
            for pairs in self._among(table, block, rows, runs)
        ]
        _choose_in_order(within, choice)
        # A document that is decided again is compared with all that it may resemble.
        doubtful, keepers, is_open = self.doubtful, choice.keepers, choice.is_open
        doubtful[numbers[is_open]] = True
        for pairs in within:
            doubtful[numbers[pairs.second[is_open[pairs.first] & keepers[pairs.second]]]] = True
        for pairs in before:
            doubtful[self._keepers.values[pairs.second[is_open[pairs.first]]]] = True
        ids = self._keep(choice, tables)
        chosen = Chosen(
            *(keepers, choice.crowded, is_open),
            *(np.full(size, -1), np.full(size, np.nan), np.zeros(size, np.uint8)),
        )
        for pairs in within:
            nearer = pairs.only(keepers[pairs.second] & pairs.sure & ~keepers[pairs.first])
            before.append(nearer._replace(second=ids[nearer.second].astype(np.int64)))
        if before:
            self._find_nearest(chosen, before, key_of)
        return chosen

    def _compare_with_keepers(
        self, choice: _Choice, tables: Sequence[tuple[KeptRows, Column, Column]]
    ) -> Iterator[Alike]:
        """Leave out documents that resemble kept ones; yield these pairs."""
        doubtful, earlier = self.doubtful, self._keepers.values
        for table, asked, _ in tables:
            low = None
            if self._apart is not None and table is self._texts:
                low = LowBits(low_bits(choice.texts.sketches), self._low.values, self._apart)
            for askers, candidates in _cut(
                table.near(only(asked, choice.asking), choice.crowded, low)
            ):
                compared = choice.asking[askers]
                if self._sets is None:  # an open document is compared when it is decided again
                    compared &= ~choice.is_open[askers]
                    doubtful[earlier[candidates[choice.is_open[askers]]]] = True
                if not compared.any():
                    continue
                askers, candidates = askers[compared], candidates[compared]  # noqa: PLW2901
                self._corpus.expect(choice.numbers[askers], earlier[candidates])
                pairs = self._similar(table, choice.texts, askers, candidates, within=False)
                pairs = self._compared(pairs, choice.numbers, earlier)
                settled = pairs.sure & ~self._open.values[pairs.second]
                choice.keepers[pairs.first[settled]] = False
                choice.is_open[pairs.first[~settled]] = True
                doubtful[earlier[pairs.second[~settled]]] = True
                yield pairs.only(settled)
        choice.is_open &= choice.asking

    def _keep(self, choice: _Choice, tables: Sequence[tuple[KeptRows, Column, Column]]) -> Column:
        """Let later documents be compared with those that are kept; return the ids of these."""
        keepers = choice.keepers
        ids = (len(self._keepers) + keepers.cumsum() - 1).astype(np.uint64)
        for table, _, held in tables:
            rows = only(held, keepers)
            # Ids are in the order of the places, so the rows stay sorted.
            table.add(rows & ~PLACE | ids[row_places(rows)])
        self._keepers.add(choice.numbers[keepers])
        self._open.add(choice.is_open[keepers])
        if self._apart is not None:
            self._low.add(low_bits(choice.texts.sketches[keepers]))
        return ids

    def decide_again(
        self,
        numbers: Places,
        known: Marks,
        sets: ShingleSets,
        key_of: Callable[[int], Key] | None = None,
    ) -> Iterator[tuple[Places, Chosen]]:
        """Choose among the doubtful documents, in the order of the choice, by their shingles.

        Yield some of their numbers at a time with the choice among them.
        """
        certain = among(numbers, unique(self._keepers.values[~self._open.values]))
        columns = self._corpus, self._room, sets
        again = Selection(self._index, self._search, *columns, rule=self._rule)
        for start in range(0, len(numbers), _TOGETHER):
            part = slice(start, start + _TOGETHER)
            yield numbers[part], again.choose(numbers[part], known[part], key_of, certain[part])
        keepers = self._keepers.values
        self._gone = among(keepers, unique(numbers)) & ~among(keepers, unique(again.keepers))

    def resembling(self, texts: TextColumns) -> Places:
        """Return the numbers of the kept documents that resemble one of other texts, sorted.

        The sketches decide, since the other texts aren't at hand; or digests, by the rule.
        """
        crowded = np.zeros(len(texts), np.bool_)
        least = self._rule.least_estimate(self._similarity)
        similar = [np.empty(0, np.int64)]
        for table, asked, _ in self._tables(texts, np.arange(len(texts))):
            for askers, met in table.near(asked, crowded, None):
                pairs = self._similar(table, texts, askers, met, within=False)
                pairs = pairs.only(pairs.sure | (pairs.shares >= least))
                similar.append(self._keepers.values[pairs.second])
        return np.intersect1d(np.concatenate(similar), self.keepers)

    def _find_nearest(
        self, choice: Chosen, pairs: Sequence[Alike], key_of: Callable[[int], Key] | None
    ) -> None:
        """Fill in the nearest kept documents, given the similar pairs with these."""
        askers, numbers, shares, apart, _ = Alike(*joined(pairs)).nearest_first()
        numbers, ranks = self._keepers.values[numbers], np.nan_to_num(shares)
        [starts] = differs(askers).nonzero()
        choice.nearest[askers[starts]] = numbers[starts]
        choice.shares[askers[starts]] = shares[starts]
        choice.distances[askers[starts]] = apart[starts]
        if key_of is None:
            return
        [ends] = np.append(differs(askers, ranks, apart), True).nonzero()
        ends = ends[ends.searchsorted(starts, "right")]
        for place in (numbers[ends - 1] != numbers[starts]).nonzero()[0].tolist():
            equal = dict.fromkeys(numbers[starts[place] : ends[place]].tolist())
            choice.nearest[askers[starts[place]]] = min(equal, key=key_of)

    def _block(self, numbers: Places) -> TextColumns:
        """Return the columns of documents; of those in a row, they aren't copied."""
        if len(numbers) and (np.diff(numbers) == 1).all():
            return self._corpus.all[slice(int(numbers[0]), int(numbers[-1]) + 1)]
        return self._corpus.all[numbers]

    def _tables(self, block: TextColumns, numbers: Places) -> list[tuple[KeptRows, Column, Column]]:
        """Return each table, with the rows under which a block looks there, and is found there."""
        if self._prints is None and block.ready.any():
            self._prints = KeptRows(self._room, CANDIDATES)
            for start in range(0, len(self._keepers), _MOST_PAIRS):
                keepers = self._keepers.values[start : start + _MOST_PAIRS]
                part = self._corpus.all[keepers]
                rows = self._prefixes(part, keepers, ~part.short, probed=False)
                self._prints.add(rows + np.uint64(start))
        if self._shape:
            bands, marks = self._shape.columns(block.sketches, block.digests)
            keys, places = bands.T[marks.T], marks.T.nonzero()[1]
        else:
            [places] = (block.short & block.digests.any(axis=1)).nonzero()
            keys = block.digests[places, 0]
        rows = number_rows(self._rule.apart(keys, numbers[places]), places)
        tables = [(self._texts, rows, rows)]
        if self._prints:
            asking = ~block.short if self._least is None else block.ready
            asked = self._prefixes(block, numbers, asking, probed=True)
            held = self._prefixes(block, numbers, ~block.short, probed=False)
            tables.append((self._prints, asked, held))
        return tables

    def _prefixes(
        self, block: TextColumns, numbers: Places, marks: Marks, *, probed: bool
    ) -> Column:
        """Return the rows of fingerprints by their prefixes in each table.

        Some tables are probed at several prefixes.
        """
        [places] = marks.nonzero()
        rows = [np.empty(0, np.uint64)]
        for salt, route in enumerate(self._routes):
            words = as_words(route.permutation.apply(block.fingerprints[places]))
            behind = 64 * (len(words) - 1)
            heads = words[0] & ~np.uint64(route.below >> behind)
            for change in route.masks if probed else (0,):
                changed = heads ^ np.uint64(change >> behind)
                rows.append(mix(changed) + np.uint64(salt))
        places = np.tile(places, len(rows) - 1)
        return number_rows(self._rule.apart(np.concatenate(rows), numbers[places]), places)

    def _among(
        self,
        table: KeptRows,
        block: TextColumns,
        rows: tuple[Column, Column],
        runs: tuple[Places, Places],
    ) -> Iterator[Alike]:
        """Yield the similar pairs within a block: the rows that ask, others, and what each meets.

        That is where runs of these begin, and how long they are.
        """
        (asked, held), (starts, counts) = rows, runs
        owners, size = row_places(asked), len(block)
        for part in portions(counts, _MOST_PAIRS):
            later = np.repeat(owners[part], counts[part])
            earlier = row_places(held[spans(starts[part], counts[part])])
            before = earlier < later
            pairs = unique(later[before] * size + earlier[before])
            for start in range(0, len(pairs), PAIRS):
                sides = np.divmod(pairs[start : start + PAIRS], size)
                yield self._similar(table, block, *sides, within=True)

    def _similar(
        self, table: KeptRows, block: TextColumns, askers: Places, met: Places, *, within: bool
    ) -> Alike:
        """Return the pairs of a table that are or may be similar: within a block, or kept ones."""
        partners, at = (block, None) if within else (self._corpus.all, self._keepers.values)
        if table is self._prints:
            there = met if at is None else at[met]
            apart = distances(block.fingerprints[askers], partners.fingerprints[there], self._bits)
            pairs = Alike(
                askers, met, np.full(len(askers), np.nan), apart, np.ones(len(askers), np.bool_)
            )
            return pairs.only((apart <= self._k) & self._rule.by_estimate)
        least = 1.0 if self._least is None else self._least
        pairs = alike(block, askers, partners, met, least=least, bits=self._bits, at=at)
        there = pairs.second if at is None else at[pairs.second]
        # A short text resembles only those that are equal.
        short = block.short[pairs.first]
        fits = (short == partners.short[there]) & (pairs.sure | ~short)
        pairs.distances[short] = 0
        if (
            self._sure < 1
        ):  # equal sketches show that texts are similar, but not that they are equal
            pairs = pairs._replace(sure=pairs.shares >= self._sure)
        return pairs.only(fits)

    def _compared(self, pairs: Alike, asking: Places, held: Places) -> Alike:
        """Return the pairs without those whose shingles, if they are at hand, show no similarity.

        The documents in their places have these numbers, and the rule holds for each pair.
        """
        pairs = pairs.only(self._rule.compares(asking[pairs.first], held[pairs.second]))
        [places] = (~pairs.sure).nonzero()
        if self._sets is None or not len(places):
            return pairs
        numbers = asking[pairs.first[places]], held[pairs.second[places]]
        shares = self._sets.shares(*numbers, self._similarity)
        pairs.shares[places], alike = shares, pairs.sure.copy()
        alike[places] = (shares >= self._similarity) & self._rule.lets_go(*numbers, shares)
        return pairs._replace(sure=np.ones_like(alike)).only(alike)


def _cut(pairs: Iterable[tuple[Places, Places]]) -> Iterator[tuple[Places, Places]]:
    """Yield as many pairs at a time as fit into a cache; first few, which may decide already."""
    for askers, candidates in pairs:
        start, size = 0, min(_FIRST_PAIRS, PAIRS)
        while start < len(askers):
            yield askers[start : start + size], candidates[start : start + size]
            start, size = start + size, min(4 * size, PAIRS)


def _choose_in_order(within: Sequence[Alike], choice: _Choice) -> None:
    """Leave out each document that resembles an earlier one that is kept, given such pairs.

    It stays, but is open, if a pair isn't sure or the earlier one is open. If the nearest one is
    wanted, a document that is left out is open too, since an open one may be nearer.
    """
    if not within:
        return
    stays, is_open, count = choice.keepers, choice.is_open, len(choice.keepers)
    askers, candidates, _, _, sure = joined(within)
    later, pairs = np.divmod(unique((askers * count + candidates) * 2 + sure), 2 * count)
    [starts] = differs(later).nonzero()
    listed = pairs.tolist()
    bounds = [*starts.tolist(), len(later)]
    for place, number in enumerate(later[starts].tolist()):
        for pair in listed[bounds[place] : bounds[place + 1]]:
            earlier = pair >> 1
            if not stays[earlier]:
                continue
            if not pair & 1 or is_open[earlier]:
                is_open[number] = True
            else:
                stays[number] = False
                if not choice.told:
                    break
        is_open[number] &= bool(stays[number]) or choice.told
