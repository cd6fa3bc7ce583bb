"""The report of copied parts: which documents have parts of earlier ones, and whose these are."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

import numpy as np

from fpdb.arrays import Places, run_starts
from fpdb.database import Database
from fpdb.flow import Flow, Ingested
from fpdb.joins.columns import GrowingColumn, Room
from fpdb.look.compared import numbered_texts
from fpdb.look.figures import bars, by_day, by_host
from fpdb.look.groups import Origins
from fpdb.look.listing import ListedGroup, rendered
from fpdb.look.page import cards, percent, plural
from fpdb.look.pair import ColouredText, SharedTexts
from fpdb.look.sources import Sources
from fpdb.markup import Markup, element
from fpdb.models import Key, PartPair

KINDS = {"part": "a part is elsewhere", "whole": "nearly all is elsewhere"}
ORDERS = {
    "given": "longest copies first",
    "similar": "largest share first",
    "large": "most sources first",
    "title": "by title",
}
_WHOLE = 0.8
# Pairs that are read at once.
_READ = 1 << 12


def fill(flow: Flow[Ingested], paths: Sequence[str], database: Database) -> None:
    """Store the documents of files in an empty database, under the numbers of their records."""
    for numbers, found in numbered_texts(flow, paths, database.preparer):
        named = zip(numbers.tolist(), found, strict=True)
        database.add_prepared([each._replace(id=number, key=number) for number, each in named])


class Parts(Origins):
    """Pairs of documents of which a copy has a part of a source, in columns that may be in files.

    Documents have rows, by their `keys`. The source is the earlier one by its day, or else the one
    that was stored first. Pairs are in the order of the copies and of the words that both have.
    """

    def __init__(self, found: Iterable[PartPair], room: Room) -> None:
        rows: dict[Key, int] = {}
        self._rows = GrowingColumn(room, np.int64, 2)
        self._words = GrowingColumn(room, np.int64)
        self._shares = GrowingColumn(room, np.float64, 2)
        pairs = iter(found)
        while some := list(islice(pairs, _READ)):
            keys = ((each.key, each.other) for each in some)
            ends = [[rows.setdefault(key, len(rows)) for key in both] for both in keys]
            self._rows.add(np.array(ends))
            self._words.add(np.array([each.words for each in some]))
            self._shares.add(np.array([[each.share, each.other_share] for each in some]))
        self.keys = list(rows)
        super().__init__(len(rows))

    def settle(self) -> None:
        """Find the source and the copy of each pair, once days are known."""
        first, second = self._rows.values.T
        # A day that isn't known is after all others, and says nothing.
        later = (self.days[first] > self.days[second]) & self.dated[first]
        sources, copies = np.where(later, second, first), np.where(later, first, second)
        order = np.lexsort((sources, self.days[sources], -self._words.values, copies))
        # Their rows, where the pairs of each copy begin, and the words that both have, about.
        self.sources: Places = sources[order]
        self.copies: Places = copies[order]
        self.starts = run_starts(self.copies)
        self.words: Places = self._words.values[order]
        # The largest share of each copy that one source has, about.
        own = self._rows.values[order, 1] == self.copies
        shares = np.where(own, *self._shares.values[order].T[::-1])
        self.shares = np.maximum.reduceat(shares, self.starts) if len(shares) else shares


def listed_copies(parts: Parts, sources: Sources, top: int) -> list[Markup]:
    """Return the copies to show, those with the longest parts first."""
    order = np.argsort(-parts.words[parts.starts], kind="stable")[:top]
    return rendered([partial(_listed, parts, sources, place) for place in order.tolist()])


def _listed(parts: Parts, sources: Sources, place: int) -> ListedGroup:
    """Return a copy with its sources, of which each has something that those before haven't."""
    start, end = np.append(parts.starts, len(parts.copies))[place : place + 2].tolist()
    row, recipe = int(parts.copies[start]), sources.texts.database.recipe
    text, texts, coloured = sources.text(row), [sources.listed([row])], ColouredText()
    for source in parts.sources[start:end].tolist():
        if coloured.complete:
            break
        other = sources.text(source)
        shared = None if text is None or other is None else SharedTexts(recipe, text, other)
        if shared is not None and coloured.add(shared):
            texts.append(sources.listed([source]))
            texts[-1].pair = shared
    if not coloured.sources:  # as the texts aren't there
        texts.append(sources.listed([int(parts.sources[start])]))
    share = coloured.share or float(parts.shares[place])
    count = end - start
    said = [plural(count, "source"), *(each.size for each in coloured.sources[:1])]
    return ListedGroup(
        title=sources.title(row),
        kind="whole" if share >= _WHOLE else "part",
        label=", ".join(said),
        documents=count,
        least=share,
        texts=texts,
        exact=bool(coloured.sources),
        more=count - len(texts) + 1,
        coloured=coloured,
        names=("Has parts of others", "Source"),
    )


def parts_overview(parts: Parts, numbers: Sequence[tuple[str, str, str]]) -> Iterator[Markup]:
    """Yield numbers and pictures of copied parts, and whose parts hosts have."""
    whole = int(np.count_nonzero(parts.shares >= _WHOLE))
    first = "by the date, or else as it was read" if parts.dated.any() else "as it was read"
    yield cards(
        [
            *numbers,
            (f"{len(parts.starts):,}", "copies", "have a part of an earlier document."),
            (f"{whole:,}", "whole copies", f"have at least {percent(_WHOLE)} of one source."),
            (f"{len(np.unique(parts.sources)):,}", "sources", "have a part that is in a copy."),
            (f"{len(parts.copies):,}", "pairs", "of a copy and a source."),
        ]
    )
    said = (
        f"The earlier document of a pair, {first}, is taken for the source. Passages of 28 words "
        "or 30 Chinese characters are always found, and shorter ones often; equal words count, "
        "and no paraphrase."
    )
    yield element("p", said, class_="soft")
    shares = np.bincount((parts.shares * 10).astype(int), minlength=11)
    shares[9] += shares[10]
    rows = [(f"{10 * n}–{10 * n + 10}", int(count)) for n, count in enumerate(shares[:10])]
    said = "How much of each copy is in its largest source, estimated."
    found = [bars("Copies by share, in percent", said, rows, "copies")]
    copies = parts.copies[parts.starts]
    if dated := parts.by_day(copies):
        found.append(by_day("When copies appeared", "Copies with a date.", dated, "copies"))
    yield element("section", *found, class_="figures")
    hosts = parts.by_host(parts.sources, parts.copies, parts.words)
    yield from by_host(hosts, "A copy with several sources counts for each of these.", words=True)
