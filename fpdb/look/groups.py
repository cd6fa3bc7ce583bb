"""Groups of documents, and pairs with copied parts, in columns: texts, similarity, days, hosts."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Marks, Places, run_starts
from fpdb.documents.similarity import Shares
from fpdb.joins.clusters import Clustering
from fpdb.joins.columns import GrowingColumn, Room
from fpdb.look.fields import host_of, parse_day
from fpdb.models import Key, PartPair

NO_DAY = np.iinfo(np.int32).max
_SHOWN = 60
# Pairs with copied parts that are read at once, and those that texts decide; the words that these
# texts may have together, and those of one that are compared, which is a beginning.
_READ, _MOST_DECIDED = 1 << 12, 1 << 12
_MOST_WORDS, _COMPARED = 1 << 24, 1 << 14

# Two hosts, the number of documents or pairs, and of their words; once with the earlier host first.
HostPairs = tuple[Sequence[tuple[str, str, int, int]], Sequence[tuple[str, str, int, int]]]


class Origins:
    """The days and the hosts of documents, by their rows.

    `days` are ordinals, or NO_DAY, and `hosts` places among the `names`, or -1. `day_fields` counts
    the fields that days are from. `unread` counts the dates that can't be read; `unread_date` is
    the last one.
    """

    unread = 0
    unread_date = ""

    def __init__(self, count: int) -> None:
        self.days = np.full(count, NO_DAY, np.int32)
        self.hosts = np.full(count, -1, np.int32)
        self.names: dict[str, int] = {}
        self.day_fields: Counter[str] = Counter()

    def note(self, row: int, day: object, host: object, day_field: str = "") -> None:
        """Keep the day and the host of a document, if they are there."""
        if parsed := parse_day(day):
            self.days[row] = parsed.toordinal()
            self.day_fields[day_field] += 1
        elif day is not None:
            self.unread, self.unread_date = self.unread + 1, str(day)[:_SHOWN]
        if name := host_of(host):
            self.hosts[row] = self.names.setdefault(name, len(self.names))

    @property
    def unread_note(self) -> str:
        dates = "date" if self.unread == 1 else "dates"
        such = f"of these documents can't be read, such as “{self.unread_date}”."
        return f"{self.unread:,} {dates} {such}" if self.unread else ""

    @property
    def dated(self) -> Marks:
        return self.days < NO_DAY

    def by_day(self, rows: Places) -> Counter[date]:
        days = self.days[rows]
        return Counter(map(date.fromordinal, days[days < NO_DAY].tolist()))

    def by_host(self, sources: Places, copies: Places, words: Places | None = None) -> HostPairs:
        """Count pairs of a source and a copy, and their words, by their hosts.

        There are those whose source has an earlier day, and then the others, in no order.
        """
        one, other = self.hosts[sources].astype(np.int64), self.hosts[copies].astype(np.int64)
        known, names = (one >= 0) & (other >= 0), list(self.names)
        dated = (self.days[sources] < self.days[copies]) & self.dated[copies]
        size = np.zeros(len(one), np.int64) if words is None else words
        tables = []
        for chosen, ends in ((dated, (one, other)), (~dated, np.sort((one, other), axis=0))):
            pairs = (ends[0] * len(names) + ends[1])[known & chosen]
            codes, places, counts = np.unique(pairs, return_inverse=True, return_counts=True)
            sizes = np.bincount(places, size[known & chosen], len(codes)).astype(int)
            hosts = ((names[a], names[b]) for a, b in zip(*divmod(codes, len(names)), strict=True))
            rows = zip(hosts, counts.tolist(), sizes.tolist(), strict=True)
            tables.append([(*pair, count, size) for pair, count, size in rows])
        return tables[0], tables[1]


class Groups(Origins):
    """Groups of documents, with a row for each document, in the order of the `ids`.

    `firsts` has the row of the document that all of the group resemble: the first one, or the one
    that is kept. `originals` has that of the first one with the same text. `least` is how similar a
    document is to that of `firsts`, and `shares` counts pairs by their similarity in percent, of
    which some are `estimated`; if that is None, all are. Where
    bits are compared, `similarity` is None, `least` the share of bits that are the same, and
    `shares` counts documents by their distance from that of `firsts`.
    """

    def __init__(self, columns: Clustering, similarity: float | None) -> None:
        super().__init__(len(columns.ids))
        self.similarity = similarity
        self.ids, self.firsts, self.originals = columns.ids, columns.firsts, columns.originals
        self.least, self.shares, self.estimated = columns.least, columns.shares, columns.estimated
        # The rows of a group are together in the order, from one of the starts on.
        self.order: Places = np.argsort(self.firsts, kind="stable")
        self.starts: Places = run_starts(self.firsts[self.order])
        self.sizes: Places = np.diff(self.starts, append=len(self.order))

    def compare_bits(self, fingerprints: Sequence[int], bits: int) -> None:
        """Compare fingerprints with the first of their group, and take equal ones for one text."""
        known: dict[int, int] = {}
        for row, number in enumerate(fingerprints):
            known.setdefault(number, row)
        pairs = zip(fingerprints, self.firsts.tolist(), strict=True)
        distances = [(number ^ fingerprints[first]).bit_count() for number, first in pairs]
        self.originals = np.array([known[number] for number in fingerprints], np.int64)
        self.shares = np.bincount(np.array(distances, np.int64), minlength=1)
        self.least = 1 - np.array(distances) / bits

    def _reduced(self, by: np.ufunc, column: NDArray[Any]) -> NDArray[Any]:
        ordered = column[self.order]
        return by.reduceat(ordered, self.starts) if len(ordered) else ordered

    @cached_property
    def texts(self) -> Places:
        originals = self.originals == np.arange(len(self.ids))
        return self._reduced(np.add, originals.astype(np.int64))

    @cached_property
    def weakest(self) -> Shares:
        return self._reduced(np.minimum, self.least)

    @property
    def identical(self) -> int:
        """The documents that have the text of an earlier one of their group."""
        return len(self.ids) - int(self.texts.sum())

    @property
    def edited(self) -> int:
        """The documents with a text of their own, besides the first of each group."""
        return int(self.texts.sum()) - len(self.starts)

    @cached_property
    def first_days(self) -> NDArray[np.int32]:
        return self._reduced(np.minimum, self.days)

    @cached_property
    def last_days(self) -> NDArray[np.int32]:
        """The last day of each group, 0 if there is none."""
        return self._reduced(np.maximum, self.days % NO_DAY)

    def rows(self, group: int) -> Places:
        """Return the rows of a group's documents, the first one first."""
        return self.order[self.starts[group] :][: self.sizes[group]]

    def group_of(self, number: int) -> int | None:
        """Return the group of a document by its id, if it is in one."""
        [row] = (self.ids == number).nonzero()
        firsts = self.firsts[self.order[self.starts]]
        return int(firsts.searchsorted(self.firsts[row[0]])) if len(row) else None

    def ordered(self, order: str = "least", marks: Marks | None = None) -> Places:
        """Return groups in an order; by default, those of equal texts are the last."""
        [groups] = (self.sizes > 0 if marks is None else marks).nonzero()
        by = {
            "least": (-self.sizes, self.weakest, self.texts == 1),
            "similar": (-self.sizes, -self.weakest),
            "large": (self.weakest, -self.sizes),
            "new": (-self.sizes, -self.last_days),
        }[order]
        chosen: Places = groups[np.lexsort([column[groups] for column in by])]
        return chosen

    def within(self, limits: Mapping[str, str]) -> Marks:
        """Mark the groups within limits as they are written, each of which may be missing.

        They are `least_size`, `most_size`, and so on of `share`, in percent, and of `day`; and a
        part of a `host`.
        """
        marks = np.ones(len(self.starts), np.bool_)
        shares = np.floor(self.weakest * 100 + 1e-7)
        for name, highs, lows in (
            ("size", self.sizes, self.sizes),
            ("share", shares, shares),
            ("day", self.last_days, self.first_days),
        ):
            least, most = (_limit(limits.get(f"{end}_{name}", "")) for end in ("least", "most"))
            marks &= True if least is None else highs >= least
            marks &= True if most is None else lows <= most
        if host := limits.get("host", "").lower():
            wanted = [place for name, place in self.names.items() if host in name]
            marks &= self._reduced(np.logical_or, np.isin(self.hosts, wanted))
        return marks

    def versions(self, group: int, most: int) -> list[Places]:
        """Return the rows of documents by their text: of the kept one, then the least similar ones.

        The other texts are in the order of the group.
        """
        rows = self.rows(group)
        stays = self.firsts[rows[:1]]
        originals = np.unique(self.originals[rows])
        first = self.originals[stays[0]]
        variants = originals[originals != first]
        variants = np.sort(variants[np.argsort(self.least[variants], kind="stable")][: most - 1])
        same = [rows[self.originals[rows] == original] for original in (first, *variants)]
        # Its name is the first, if it is the kept one.
        same[0] = np.append(stays, same[0][~np.isin(same[0], stays)])
        return same

    def copies(self) -> tuple[Places, Places]:
        """Return the first document of a group for each copy of it, by date, and the copies."""
        order = np.lexsort((self.days, self.firsts))
        sources = np.repeat(order[self.starts], self.sizes)
        later = sources != order
        return sources[later], order[later]


class Parts(Origins):
    """Pairs of documents with passages in common, in columns that may be in files.

    Documents have rows, by their `keys`. If both days of a pair are known and differ, its earlier
    document is the source of the other one; if not, nobody knows which was first.
    """

    def __init__(self, part_pairs: Iterable[PartPair], room: Room) -> None:
        rows: dict[Key, int] = {}
        self._rows = GrowingColumn(room, np.int64, 2)
        self._words = GrowingColumn(room, np.int64)
        self._shares = GrowingColumn(room, np.float64, 2)
        remaining = iter(part_pairs)
        while block := list(islice(remaining, _READ)):
            keys = ((pair.key, pair.other) for pair in block)
            ends = [[rows.setdefault(key, len(rows)) for key in both] for both in keys]
            self._rows.add(np.array(ends))
            self._words.add(np.array([pair.words for pair in block]))
            self._shares.add(np.array([[pair.share, pair.other_share] for pair in block]))
        self.keys = list(rows)
        self._counted: Marks | slice = slice(None)
        super().__init__(len(rows))

    def settle(self) -> None:
        """List the others of each document, once days are known: all but those that are later."""
        pairs, shares = self.both_ways()
        self.pairs = len(pairs) // 2
        documents, partners = pairs.T
        words = np.tile(self._words.values[self._counted], 2)
        # A day that isn't known is after all others, and says nothing.
        is_source = (self.days[partners] < self.days[documents]) & self.dated[documents]
        is_copy = (self.days[partners] > self.days[documents]) & self.dated[partners]
        order = np.lexsort((partners, self.days[partners], -words, documents))
        order = order[~is_copy[order]]
        # The documents and others, where each document begins, the words that both have, about, and
        # the marks of others that are sources.
        self.documents: Places = documents[order]
        self.partners: Places = partners[order]
        self.starts = run_starts(self.documents)
        self.words: Places = words[order]
        self.is_source: Marks = is_source[order]
        # The largest share of each document that one other has, about.
        share = shares[order]
        self.shares = np.maximum.reduceat(share, self.starts) if len(share) else share

    def most_met(self, least: int, most: int) -> tuple[int, list[int]] | None:
        """Return the document of most pairs, and others of these, up to N; None if they are few."""
        pairs = self._rows.values[self._counted]
        counts = np.bincount(pairs.ravel(), minlength=1)
        row = int(counts.argmax())
        if counts[row] < least:
            return None
        met = pairs[(pairs == row).any(axis=1)]
        return row, met[met != row][:most].tolist()

    def decide(self, least: float, contained: Callable[[int, int], float]) -> None:
        """Keep the pairs of which one document has such a share, or else by a function of rows.

        It takes milliseconds for a pair, and more for long texts, so estimates decide where many
        are in doubt.
        """
        pairs, shares = self._rows.values, self._shares.values
        large = np.asarray(shares.max(axis=1, initial=0) >= least)
        [doubtful] = (~large).nonzero()
        # The words in both, and their share of a text, tell how many words it has.
        least_shares = np.maximum(shares[doubtful], 1 / _COMPARED)
        sizes = np.minimum(self._words.values[doubtful, None] / least_shares, _COMPARED)
        if len(doubtful) <= _MOST_DECIDED and sizes.sum() <= _MOST_WORDS:
            for place in doubtful.tolist():
                large[place] = contained(*pairs[place].tolist()) >= least
        self._counted = large

    def both_ways(self) -> tuple[Places, Shares]:
        """Return each pair from both sides, and which share of its first document the other has."""
        pairs, shares = self._rows.values[self._counted], self._shares.values[self._counted]
        return np.concatenate([pairs, pairs[:, ::-1]]), shares.T.ravel()

    def host_pairs(self) -> HostPairs:
        """Count pairs and their words by their hosts, each pair once."""
        once = self.is_source | (self.partners < self.documents)
        return self.by_host(self.partners[once], self.documents[once], self.words[once])


def _limit(text: str) -> int | None:
    if text.isdecimal() and len(text) < 9:
        return int(text)
    day = parse_day(text)
    return day.toordinal() if day else None
