"""Two texts beside each other, their differences marked, and why they are near or not.

Differences are in words, or in characters of Chinese. Runs of words that both texts have once are
fixed points, as in a patience diff. Between them, the longest common subsequence is found with the
bits of large integers. For two texts of 100 kB that takes a tenth of a second, and no text makes it
slow; difflib takes up to 6 seconds. Passages that were moved, which `fpdb.overlap` finds as well,
are changes here.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np

from fpdb.arrays import Marks, run_starts
from fpdb.fingerprint import Recipe
from fpdb.fingerprint.passages import shared_passages
from fpdb.fingerprint.sketches import exact_shares
from fpdb.look.page import folded, language_of, percent, plural
from fpdb.markup import Markup, element
from fpdb.models import Passage

# The characters of a text that are compared.
_COMPARED = 100_000
# Equal passages that are longer than the first are shown at their ends, as long as the second;
# without spaces between words, half of it.
_LONG, _EDGE = 360, 140
# Passages of two texts that are shown, the least words of one (without spaces, characters), and the
# characters around it; and the characters that no other source has, for one to have a colour.
_SHOWN, _LEAST, _LEAST_DENSE, _AROUND = 20, 6, 8, 70
_FRESH, _FRESH_DENSE = 30, 8
# Sources with a colour of their own; and when no other one is looked for: after some that have
# none, or when so much of the text has a source.
MOST_SOURCES, _MISSED, _WHOLE = 8, 10, 0.98
# Scripts without spaces between words: each of their characters is a word here.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u312f\u31a0-\u9fff\uf900-\ufaff\uff00-\uffef"
    "\U00020000-\U0003ffff"
)
# A line of a million letters is no single word.
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]{{1,40}}|\S")
# Words of one side times words of the other that are compared without fixed points: 8 MiB of bits.
_MOST_COMPARED = 1 << 26
# The most words of a text that are compared, so that three numbers of words fit into 64 bits.
MOST_WORDS = 100_000
_BITS = 21

# The places of a word in both texts.
Place = tuple[int, int]


class ComparedTexts:
    """Two texts, their exact similarity, and the differences of their beginnings."""

    def __init__(self, recipe: Recipe, text: str, other: str, *, most: int = _COMPARED) -> None:
        self.languages = language_of(text), language_of(other)
        self._found = differences(text[:most], other[:most])
        self._rest = max(len(text) - most, 0) + max(len(other) - most, 0)
        self._rest += self._found.rest + self._found.other_rest
        share, contained = exact_shares(*recipe.shingles_many([text, other]))
        self._shingled = share is not None
        self.share, self._contained = share or 0.0, contained or 0.0

    @property
    def sentence(self) -> Sequence[str]:
        """How similar the texts are, and how much only one of them has, in its colour."""
        found = self._found
        said = f"{percent(self.share)} similar. " if self._shingled else ""
        if all(piece.same for piece in found.pieces):
            return [f"{said}The same words in the same order; only white space differs."]
        units = "characters" if _is_unspaced(self.languages[0]) else "words"
        left = element("span", f"Left only {percent(found.only)}", class_="gone")
        right = element("span", f"right only {percent(found.other_only)}", class_="come")
        contained = f" {percent(self._contained)} of the smaller one is in the other."
        more = contained if self._contained else ""
        return said, left, ", ", right, f" of the {units}.{more}"

    def drawn(self, *, whole: bool = True, both: bool = True) -> list[Markup]:
        """Return rows with both texts, which say how many characters aren't there.

        Unless it is `whole`, long equal passages aren't there, and unless `both`, only one cell of
        each row is, of which the program of a page makes the other.
        """
        rows = _PairRows(self.languages if both else self.languages[:1], whole=whole)
        last = len(self._found.pieces) - 1
        for number, piece in enumerate(self._found.pieces):
            if piece.same:
                rows.equal(piece.text, first=number == 0, last=number == last)
            else:
                rows.change(piece.text, piece.other)
        rows.note(self._rest, "character", "at the end weren't compared")
        return rows.finished()


# A text is compared with several ones after each other.
_placed = lru_cache(4)(Recipe.placed_shingles)


class SharedTexts:
    """Two texts, and the passages of their beginnings that are in both, exact, the longest first.

    The `text` and `other` are as they were given, unless the recipe changes their words.
    """

    def __init__(self, recipe: Recipe, text: str, other: str, *, most: int = _COMPARED) -> None:
        found = shared_passages(*(_placed(recipe, each[:most]) for each in (text, other)))
        self.text, self.other = found.text, found.other_text
        self.languages = language_of(text), language_of(other)
        self._unit = "character" if _is_unspaced(self.languages[0]) else "word"
        least = _LEAST_DENSE if self._unit == "character" else _LEAST
        chosen = (passage for passage in found.passages if passage.words >= least)
        self.passages = sorted(chosen, key=lambda each: (-each.words, each.start))
        self.own = _covered(self.text, [(each.start, each.end) for each in self.passages])
        spans = [(each.other_start, each.other_end) for each in self.passages]
        self.share = _share(self.text, self.own)
        self.other_share = _share(self.other, _covered(self.other, spans))

    @property
    def size(self) -> str:
        """The words in these passages, or the characters of a script without spaces."""
        return plural(sum(map(self._size, self.passages)), self._unit)

    def _size(self, passage: Passage) -> int:
        return passage.words if self._unit == "word" else passage.end - passage.start

    @property
    def sentence(self) -> Sequence[str]:
        shares = f"{percent(self.share)} of this text, {percent(self.other_share)} of that one"
        return [f"{self.size} in {plural(len(self.passages), 'passage')} are in both: {shares}."]

    def drawn(self, *, whole: bool = True, both: bool = True) -> list[Markup]:
        """Return rows as those of `ComparedTexts`, with a passage and what is around it."""
        rows = _PairRows(self.languages if both else self.languages[:1], whole=whole)
        for passage in self.passages[:_SHOWN]:
            _, start, end, other_start, other_end = passage
            rows.note(self._size(passage), self._unit, "in both")
            before = self.text[:start], self.other[:other_start]
            rows.change(*(_around(each[-_AROUND:]) for each in before))
            rows.equal(self.text[start:end], first=False, last=False)
            after = self.text[end:], self.other[other_end:]
            rows.change(*(_around(each[:_AROUND]) for each in after))
        rows.note(len(self.passages) - _SHOWN, "passage", "more")
        return rows.finished()


class ColouredText:
    """A text, in which each part has the colour of the first source that has it, too.

    It is `complete` when hardly a further source would have a part of its own.
    """

    def __init__(self) -> None:
        self.sources: list[SharedTexts] = []
        self._missed = 0

    def add(self, source: SharedTexts) -> bool:
        """Take a source, if it has much that no other one has; return whether it was taken."""
        if not self.sources:
            self._owners = np.zeros(len(source.text), np.uint8)
        fresh = source.own & (self._owners == 0)
        least = _FRESH_DENSE if _is_unspaced(source.languages[0]) else _FRESH
        taken = not self.complete and int(np.count_nonzero(fresh)) >= least
        self._missed = 0 if taken else self._missed + 1
        if taken:
            self.sources.append(source)
            self._owners[fresh] = len(self.sources)
        return taken

    @property
    def complete(self) -> bool:
        """Whether all sources have a colour, but for few words."""
        full = len(self.sources) == MOST_SOURCES or self._missed == _MISSED
        return full or self.share > _WHOLE

    @property
    def share(self) -> float:
        return _share(self.sources[0].text, self._owners > 0) if self.sources else 0.0

    def drawn(self, *, whole: bool = True) -> list[Markup]:
        """Return the text with marks; unless it is `whole`, long pieces are cut."""
        if not self.sources:
            return []
        text, pieces = self.sources[0].text, list[str]()
        bounds = [*run_starts(self._owners).tolist(), len(text)]
        for start, end in pairwise(bounds):
            piece, owner = text[start:end], int(self._owners[start])
            if not whole and len(piece) > _LONG:
                piece = f"{piece[:_EDGE]} ⋯ {piece[-_EDGE:]}"
            pieces.append(element("mark", piece, data_source=owner) if owner else piece)
        return [text_cell(self.sources[0].languages[0], *pieces)]


def _covered(text: str, spans: Sequence[tuple[int, int]]) -> Marks:
    marks = np.zeros(len(text), np.bool_)
    for start, end in spans:
        marks[start:end] = True
    return marks


def _share(text: str, marks: Marks) -> float:
    return min(int(np.count_nonzero(marks)) / max(len(text.strip()), 1), 1.0)


def _around(text: str) -> str:
    return re.sub(r"\s+", " ", text)


class _PairRows:
    """The rows of two texts, which end where lines end.

    Both cells of a row have all of it, and the style hides what is only in the other text, or the
    second cell where there is no room.
    """

    def __init__(self, languages: Sequence[str | None], *, whole: bool) -> None:
        self._languages = languages
        self._whole = whole
        self._row: list[str] = []
        self._rows: list[Markup] = []

    def equal(self, text: str, *, first: bool, last: bool) -> None:
        """Add a passage that both have; of a long one, the middle is folded."""
        dense = _is_unspaced(self._languages[0])
        edge, long = (_EDGE // 2, _LONG // 2) if dense else (_EDGE, _LONG)
        start = 0 if first else _cut(text, edge)
        stop = len(text) if last else _cut(text, len(text) - edge)
        if stop - start < long:
            self._add(text)
            return
        self._add(text[:start])
        middle = text[start:stop]
        if self._whole:
            size, unit = (len(middle), "character") if dense else (len(middle.split()), "word")
            inner = _PairRows(self._languages, whole=True)
            inner._add(middle)
            said = f"⋯ {plural(size, f'equal {unit}')} ⋯"
            self.finished().append(folded(said, *inner.finished(), class_="folded"))
        else:
            self.note(len(middle), "equal character", "left out here, to keep this file small")
        self._add(text[stop:])

    def change(self, text: str, other: str) -> None:
        """Add what each of the texts has in place of the other's."""
        self._row += [
            element(name, re.sub(r"\n\s*\n", "\n", own))
            for name, own in (("del", text), ("ins", other))
            if own
        ]
        if any(re.search(r"\n\s*$", own) for own in (text, other)):
            self.finished()

    def note(self, characters: int, noun: str, said: str) -> None:
        """Say how many characters aren't there, if there are any."""
        if characters > 0:
            note = element("p", f"{plural(characters, noun)} {said}", class_="fold")
            self.finished().append(note)

    def finished(self) -> list[Markup]:
        if self._row:
            cells = [text_cell(language, *self._row) for language in self._languages]
            self._rows.append(element("div", *cells, class_="row"))
            self._row = []
        return self._rows

    def _add(self, text: str) -> None:
        for line in text.splitlines(keepends=True):
            if line.strip() or not line.endswith("\n"):
                self._row.append(line)
            if line.endswith("\n"):
                self.finished()


def text_cell(language: str | None, *content: str) -> Markup:
    return element("div", *content, class_="text", dir="auto", lang=language)


def excerpt(text: str | None, most: int) -> list[Markup]:
    """Return the beginning of a text, and how much more there is."""
    if not text:
        return []
    rest = len(text) - most
    more = [element("p", plural(rest, "further character"), class_="fold")] if rest > 0 else []
    return [text_cell(language_of(text), text[:most]), *more]


def _is_unspaced(language: str | None) -> bool:
    return language in ("zh", "ja")


def _cut(text: str, place: int) -> int:
    """Return a place after white space near to a place."""
    space = re.search(r"\s", text[max(place, 0) : place + 30])
    return min(max(place + (space.end() if space else 0), 0), len(text))


class Piece(NamedTuple):
    """A piece of two texts: equal words, or what each has in place of the other's."""

    same: bool
    text: str
    other: str


@dataclass(frozen=True)
class Differences:
    """Two texts, cut into pieces, and the shares of their words that only one of them has.

    `rest` and `other_rest` count the characters at the ends of long texts that weren't compared.
    """

    pieces: tuple[Piece, ...]
    only: float
    other_only: float
    rest: int
    other_rest: int


def differences(text: str, other: str) -> Differences:
    """Compare two texts word by word; white space counts for nothing."""
    (words, ends), (others, other_ends) = _words(text), _words(other)
    cuts = _cuts(words, others)
    pieces = []
    only = other_only = 0
    for number, ((start, other_start), (stop, other_stop)) in enumerate(pairwise(cuts)):
        parts = (
            text[ends[start] : ends[stop]],
            other[other_ends[other_start] : other_ends[other_stop]],
        )
        if any(parts):
            pieces.append(Piece(number % 2 == 0, *parts))
        if number % 2:
            only, other_only = only + stop - start, other_only + other_stop - other_start
    return Differences(
        tuple(pieces),
        only / max(len(words), 1),
        other_only / max(len(others), 1),
        len(text) - ends[-1],
        len(other) - other_ends[-1],
    )


def _words(text: str) -> tuple[list[str], list[int]]:
    """Return the words of a text, and where each ends with the white space after it, from 0 on."""
    found = list(islice(_WORD.finditer(text), MOST_WORDS + 1))
    ends = [0, *(each.start() for each in found[1:]), len(text)]
    return [each[0] for each in found[:MOST_WORDS]], ends[: MOST_WORDS + 1]


def _cuts(first: Sequence[str], second: Sequence[str]) -> list[Place]:
    """Return where equal words begin and end, by turns, as a reader would see it.

    Few equal words between larger changes are taken for a part of these.
    """
    last = len(first), len(second)
    cuts = [(0, 0)]
    end = 0, 0
    for place in (*_equal(first, second), last):
        if place != end:
            cuts += [end, place]
            while len(cuts) > 4 and _is_part(*cuts[-4:]):
                del cuts[-3:-1]
        end = place[0] + 1, place[1] + 1
    return [*cuts, last]


def _is_part(start: Place, stop: Place, other_start: Place, other_stop: Place) -> bool:
    """Return whether the equal words between two changes are few beside the smaller one."""
    before = max(stop[0] - start[0], stop[1] - start[1])
    after = max(other_stop[0] - other_start[0], other_stop[1] - other_start[1])
    return other_start[0] - stop[0] <= min(before, after) // 2


def _equal(first: Sequence[str], second: Sequence[str]) -> Iterator[Place]:
    start, other_start = 0, 0
    for place, other_place in (*_fixed(first, second), (len(first), len(second))):
        found = _between(first[start:place], second[other_start:other_place])
        yield from ((start + own, other_start + its) for own, its in found)
        if place < len(first) and other_place < len(second):
            yield place, other_place
        start, other_start = place + 1, other_place + 1


def _fixed(first: Sequence[str], second: Sequence[str]) -> list[Place]:
    """Return where runs of three words end that both have once, in the same order in both.

    As the end of a sentence is fixed, one that follows in one text alone begins with its own word.
    """
    numbers: dict[str, int] = {}
    once = []
    for words in (first, second):
        column = np.array([numbers.setdefault(word, len(numbers)) for word in words], np.uint64)
        runs = column[:-2] << 2 * _BITS | column[1:-1] << _BITS | column[2:]
        found, places, counts = np.unique(runs, return_index=True, return_counts=True)
        once.append((found[counts == 1], places[counts == 1] + 2))
    (own, own_places), (its, its_places) = once
    _, at, other = np.intersect1d(own, its, assume_unique=True, return_indices=True)
    pairs = sorted(zip(own_places[at].tolist(), its_places[other].tolist(), strict=True))
    # The longest increasing subsequence of the places in the other text.
    ends: list[int] = []
    chains: list[tuple[Any, ...]] = []
    for pair in pairs:
        length = bisect_left(ends, pair[1])
        ends[length : length + 1] = [pair[1]]
        chains[length : length + 1] = [(pair, chains[length - 1] if length else ())]
    longest: list[Place] = []
    chain = chains[-1] if chains else ()
    while chain:
        pair, chain = chain
        longest.append(pair)
    return longest[::-1]


def _between(first: Sequence[str], second: Sequence[str]) -> Iterator[Place]:
    """Yield the places of equal words between fixed points; if it is far, at both ends alone."""
    if len(first) * len(second) <= _MOST_COMPARED:
        yield from _subsequence(first, second)
        return
    most = min(len(first), len(second))
    head = next((n for n in range(most) if first[n] != second[n]), most)
    tail = next((n for n in range(most - head) if first[-1 - n] != second[-1 - n]), most - head)
    yield from ((n, n) for n in range(head))
    yield from ((len(first) - n, len(second) - n) for n in range(tail, 0, -1))


def _subsequence(first: Sequence[str], second: Sequence[str]) -> Iterator[Place]:
    """Return the places of a longest common subsequence (Hyyrö 2004, a bit for each first word)."""
    places: dict[str, int] = {}
    for place, word in enumerate(first):
        places[word] = places.get(word, 0) | 1 << place
    every = (1 << len(first)) - 1
    rows, row = [], every
    for word in second:
        common = row & places.get(word, 0)
        row = (row + common | row - common) & every
        rows.append(row)
    found = []
    place, other = len(first), len(second)
    while place and other:
        if rows[other - 1] >> place - 1 & 1:
            place -= 1
        else:
            other -= 1
            if not other or rows[other - 1] >> place - 1 & 1:
                place -= 1
                found.append((place, other))
    return reversed(found)
