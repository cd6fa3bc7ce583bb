"""Two texts beside each other, their differences or common passages marked, and their shares."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from operator import attrgetter

import numpy as np

from fpdb.arrays import Column, Marks, Places, among, run_starts
from fpdb.fingerprint import Recipe
from fpdb.fingerprint.passages import common_tokens, shared_passages
from fpdb.fingerprint.sketches import PlacedShingles, exact_shares
from fpdb.look.differences import differences
from fpdb.look.page import folded, language_of, percent, plural
from fpdb.markup import Markup, element
from fpdb.models import Passage

# The characters of a text that are compared.
_COMPARED = 100_000
# Equal passages that are longer than the first are shown at their ends, as long as the second;
# without spaces between words, half of it.
_LONG, _EDGE = 360, 140
# Passages of two texts that are shown, and the characters around one; and the words of the
# shortest one that counts, or its characters without spaces: stock phrases are shorter.
_SHOWN, _AROUND = 20, 70
SHORTEST, SHORTEST_DENSE = 6, 12
# Where parts of a text begin and end.
_Spans = Iterable[tuple[int, int]]
# Sources with a colour of their own; and when no other one is looked for: after some that have
# none, or when so much of the text has a source.
MOST_SOURCES, _MISSED, _WHOLE = 8, 10, 0.98


class ComparedTexts:
    """Two texts, their exact similarity, and the differences of their beginnings."""

    def __init__(self, recipe: Recipe, text: str, other: str, *, most: int = _COMPARED) -> None:
        self.languages = language_of(text), language_of(other)
        self._differences = differences(text[:most], other[:most])
        self._uncompared = max(len(text) - most, 0) + max(len(other) - most, 0)
        self._uncompared += self._differences.uncompared + self._differences.other_uncompared
        share, contained = exact_shares(*recipe.shingles_many([text, other]))
        self._shingled = share is not None
        self.share, self._contained = share or 0.0, contained or 0.0

    @property
    def sentence(self) -> Sequence[str]:
        """How similar the texts are, and how much only one of them has, in its colour."""
        differences = self._differences
        said = f"{percent(self.share)} similar. " if self._shingled else ""
        if all(piece.same for piece in differences.pieces):
            return [f"{said}The same words in the same order; only white space differs."]
        units = "characters" if _is_unspaced(self.languages[0]) else "words"
        left = element("span", f"Left only {percent(differences.only)}", class_="gone")
        right = element("span", f"right only {percent(differences.other_only)}", class_="come")
        moved = element("span", f"moved {percent(differences.moved)}", class_="moved")
        contained = f" {percent(self._contained)} of the smaller one is in the other."
        more = contained if self._contained else ""
        elsewhere = (", ", moved) if differences.moved else ()
        return said, left, ", ", right, *elsewhere, f" of the {units}.{more}"

    def drawn(self, *, whole: bool = True, both: bool = True) -> list[Markup]:
        """Return rows with both texts, which say how many characters aren't there.

        Unless it is `whole`, long equal passages aren't there, and unless `both`, only one cell of
        each row is, of which the program of a page makes the other.
        """
        rows = _PairRows(self.languages if both else self.languages[:1], whole=whole)
        last = len(self._differences.pieces) - 1
        for number, piece in enumerate(self._differences.pieces):
            if piece.same:
                rows.equal(piece.text, first=number == 0, last=number == last)
            else:
                rows.change(piece.text, piece.other, class_="moved" if piece.moved else None)
        rows.note(self._uncompared, "character", "at the end weren't compared")
        return rows.finished()


class _Side:
    """One of two texts: marks of what all were `given`, and of the passages that are long enough.

    With all passages, of which the shortest have three words or five characters, the `reworded`
    share counts what is left of passages in which words were changed.
    """

    def __init__(self, text: str, common: _Spans, passages: _Spans, all_passages: _Spans) -> None:
        self.common, self.marks = _covered(text, common), _covered(text, passages)
        self.share = _share(text, self.marks, self.common)
        self.reworded = _share(text, _covered(text, all_passages), self.common)


# Each of so many texts may be compared with each other one, which takes it from here.
MOST_TOGETHER = 60
_placed = lru_cache(MOST_TOGETHER)(Recipe.placed_shingles)


class SharedTexts:
    """Two texts, and the passages of their beginnings that are in both, exact, the longest first.

    The `text` and `other` are as they were given, unless the recipe changes their words. Passages
    count that have at least N words, or as many characters of a script without spaces, and are in
    no common text of the recipe.
    """

    def __init__(
        self,
        recipe: Recipe,
        text: str,
        other: str,
        shortest: int | None = None,
        *,
        most: int = _COMPARED,
    ) -> None:
        placed = [_placed(recipe, whole[:most]) for whole in (text, other)]
        overlap = shared_passages(placed[0], placed[1], recipe.common_shingles)
        self.text, self.other = overlap.text, overlap.other_text
        self.languages = language_of(text), language_of(other)
        self._unit = "character" if _is_unspaced(self.languages[0]) else "word"
        usual = SHORTEST_DENSE if self._unit == "character" else SHORTEST
        self.shortest = shortest or usual
        self.starts = placed[0][1].starts
        long_enough = (passage for passage in overlap.passages if passage.words >= self.shortest)
        self.passages = sorted(long_enough, key=lambda passage: (-passage.words, passage.start))
        # The largest share of the shingles of a text that the other one has.
        self.contained = max(overlap.share or 0.0, overlap.other_share or 0.0)
        spans = attrgetter("start", "end"), attrgetter("other_start", "other_end")
        sides = [
            _Side(
                cleaned,
                _common_spans(shingles, recipe.common_shingles),
                map(span, self.passages),
                map(span, overlap.passages),
            )
            for (cleaned, shingles), span in zip(placed, spans, strict=True)
        ]
        self.marks, self.common = sides[0].marks, sides[0].common
        self.share, self.other_share = (side.share for side in sides)
        self.reworded = sides[0].reworded, sides[1].reworded

    @property
    def size(self) -> str:
        """The words in these passages, or the characters of a script without spaces."""
        return plural(sum(map(self._size, self.passages)), self._unit)

    def _size(self, passage: Passage) -> int:
        return passage.words if self._unit == "word" else passage.end - passage.start

    @property
    def sentence(self) -> Sequence[str]:
        verbatim, reworded = (
            f"{percent(share)} of this text, {percent(other_share)} of that one"
            for share, other_share in ((self.share, self.other_share), self.reworded)
        )
        passages = f"{self.size} in {plural(len(self.passages), 'passage')}"
        return [f"{passages} are in both, verbatim: {verbatim}. Reworded as well: {reworded}."]

    def drawn(self, *, whole: bool = True, both: bool = True) -> list[Markup]:
        """Return rows as those of `ComparedTexts`, with a passage and what is around it."""
        languages, drawn = self.languages if both else self.languages[:1], list[Markup]()
        for passage in self.passages[:_SHOWN]:
            size, start, end, other_start, other_end = passage
            rows = _PairRows(languages, whole=whole)
            rows.note(self._size(passage), self._unit, "in both")
            before = self.text[:start], self.other[:other_start]
            rows.change(*(_around(side[-_AROUND:]) for side in before))
            rows.equal(self.text[start:end], first=False, last=False)
            after = self.text[end:], self.other[other_end:]
            rows.change(*(_around(side[:_AROUND]) for side in after))
            drawn.append(element("div", *rows.finished(), data_run=size))
        rows = _PairRows(languages, whole=whole)
        rows.note(len(self.passages) - _SHOWN, "passage", "more")
        return [*drawn, *rows.finished()]


class ColouredText:
    """A text, in which each part has the colour of the first source that has it, too.

    It is `complete` when hardly a further source would have a part of its own.
    """

    def __init__(self) -> None:
        self.sources: list[SharedTexts] = []
        self._missed = 0

    def add(self, source: SharedTexts) -> bool:
        """Take a source, if it has a run of words that no other one has; return whether it has."""
        if not self.sources:
            self._owners = np.zeros(len(source.text), np.uint8)
            self._sizes = np.zeros(len(source.text), np.int64)
        fresh = source.marks & (self._owners == 0)
        _, sizes = _runs(fresh[source.starts])
        taken = not self.complete and int(sizes.max(initial=0)) >= source.shortest
        self._missed = 0 if taken else self._missed + 1
        if taken:
            self.sources.append(source)
            self._owners[fresh] = len(self.sources)
            for passage in reversed(source.passages):
                part = slice(passage.start, passage.end)
                self._sizes[part][fresh[part]] = passage.words
        return taken

    @property
    def complete(self) -> bool:
        """Whether all sources have a colour, but for few words."""
        full = len(self.sources) == MOST_SOURCES or self._missed == _MISSED
        return full or self.share > _WHOLE

    @property
    def common(self) -> bool:
        """Whether the text has parts that all were given."""
        return bool(self.sources and self.sources[0].common.any())

    @property
    def share(self) -> float:
        if not self.sources:
            return 0.0
        return _share(self.sources[0].text, self._owners > 0, self.sources[0].common)

    def drawn(self, *, whole: bool = True) -> list[Markup]:
        """Return the text with marks; unless it is `whole`, long pieces are cut."""
        if not self.sources:
            return []
        text, common, pieces = self.sources[0].text, self.sources[0].common, list[str]()
        bounds = [*run_starts(self._owners, self._sizes, common).tolist(), len(text)]
        for start, end in pairwise(bounds):
            piece, owner = text[start:end], int(self._owners[start])
            if not whole and len(piece) > _LONG:
                piece = f"{piece[:_EDGE]} ⋯ {piece[-_EDGE:]}"
            if owner:
                pieces.append(
                    element("mark", piece, data_source=owner, data_run=self._sizes[start])
                )
            else:
                pieces.append(element("span", piece, class_="given") if common[start] else piece)
        return [text_cell(self.sources[0].languages[0], *pieces)]


def _covered(text: str, spans: _Spans) -> Marks:
    marks = np.zeros(len(text), np.bool_)
    for start, end in spans:
        marks[start:end] = True
    return marks


def _share(text: str, marks: Marks, common: Marks) -> float:
    """Return the share of a text that is marked, of what wasn't given to all."""
    size = len(text.strip()) - int(np.count_nonzero(common))
    return min(int(np.count_nonzero(marks)) / max(size, 1), 1.0)


def _common_spans(placed: PlacedShingles, common: Column) -> Iterator[tuple[int, int]]:
    """Yield where runs of common shingles are in a text, in characters."""
    marks = common_tokens(placed, common)
    bounds = [*run_starts(marks).tolist(), len(marks)]
    for start, stop in pairwise(bounds):
        if marks[start]:
            yield int(placed.starts[start]), int(placed.stops[stop - 1])


def _runs(marks: Marks) -> tuple[Places, Places]:
    """Return where runs of equal marks begin, and their lengths, 0 where nothing is marked."""
    starts = run_starts(marks)
    return starts, np.diff(starts, append=len(marks)) * marks[starts]


def common_passage(recipe: Recipe, text: str, other_texts: Sequence[str]) -> tuple[str, int]:
    """Return the longest passage of a text that most others have, and how many of these.

    It is empty if most have none together.
    """
    text, shingles = _placed(recipe, text[:_COMPARED])
    sets = (np.unique(_placed(recipe, other[:_COMPARED])[1].hashes) for other in other_texts)
    having = [among(shingles.hashes, hashes) for hashes in sets]
    counts = np.sum(having, axis=0) if having else np.zeros(len(shingles.hashes))
    marks = (counts * 2 > len(having)) & ~among(shingles.hashes, recipe.common_shingles)
    starts, sizes = _runs(marks)
    if not sizes.max(initial=0):
        return "", 0
    start = int(starts[sizes.argmax()])
    stop = start + int(sizes.max())
    passage = text[shingles.starts[start] : shingles.stops[shingles.ends[stop - 1] - 1]]
    return passage, int(counts[start:stop].min())


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

    def change(self, text: str, other: str, class_: str | None = None) -> None:
        """Add what each of the texts has in place of the other's."""
        self._row += [
            element(name, re.sub(r"\n\s*\n", "\n", part), class_=class_)
            for name, part in (("del", text), ("ins", other))
            if part
        ]
        if any(re.search(r"\n\s*$", part) for part in (text, other)):
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
    left = len(text) - most
    more = [element("p", plural(left, "further character"), class_="fold")] if left > 0 else []
    return [text_cell(language_of(text), text[:most]), *more]


def _is_unspaced(language: str | None) -> bool:
    return language in ("zh", "ja")


def _cut(text: str, place: int) -> int:
    """Return a place after white space near to a place."""
    space = re.search(r"\s", text[max(place, 0) : place + 30])
    return min(max(place + (space.end() if space else 0), 0), len(text))
