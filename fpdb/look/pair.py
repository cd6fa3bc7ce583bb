"""Two texts beside each other, their differences marked, and why they are near or not."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from fpdb.arrays import Marks, run_starts
from fpdb.fingerprint import Recipe, distance, sketch_jaccard
from fpdb.fingerprint.digits import format_fingerprint
from fpdb.fingerprint.passages import shared_passages
from fpdb.fingerprint.sketches import exact_shares
from fpdb.look.differences import differences
from fpdb.look.page import folded, language_of, percent, plural
from fpdb.markup import Markup, element
from fpdb.models import Passage

# The characters of a text that are compared; in the explorer fewer, so that a page takes less than
# a second, and features only of texts with few shingles.
_COMPARED, COMPARED_AT_ONCE = 100_000, 40_000
_MOST_SHINGLES = 1_500
# Equal passages that are longer than the first are shown at their ends, as long as the second;
# without spaces between words, half of it.
_LONG, _EDGE = 360, 140
# Features that are named.
_NAMED = 12
# Passages of two texts that are shown, the least words of one (without spaces, characters), and the
# characters around it; and the characters that no other source has, for one to have a colour.
_SHOWN, _LEAST, _LEAST_DENSE, _AROUND = 20, 6, 8, 70
_FRESH, _FRESH_DENSE = 30, 8
# Sources with a colour of their own; and when no other one is looked for: after some that have
# none, or when so much of the text has a source.
MOST_SOURCES, _MISSED, _WHOLE = 8, 5, 0.98


class ComparedTexts:
    """Two texts, their exact similarity, and the differences of their beginnings."""

    def __init__(self, recipe: Recipe, text: str, other: str, *, most: int = _COMPARED) -> None:
        self.languages = language_of(text), language_of(other)
        self._sizes = len(text), len(other)
        self._found = differences(text[:most], other[:most])
        self._rest = sum(max(size - most, 0) for size in self._sizes)
        self._rest += self._found.rest + self._found.other_rest
        share, contained = exact_shares(*recipe.shingles_many([text, other]))
        self._shingled = share is not None
        self.share, self.contained = share or 0.0, contained or 0.0

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
        return said, left, ", ", right, f" of the {units}."

    @property
    def facts(self) -> dict[str, str]:
        """The exact numbers."""
        return {
            "similarity": f"{self.share:.4f}",
            "containment of the smaller text": f"{self.contained:.4f}",
            "characters": ", ".join(f"{size:,}" for size in self._sizes),
        }

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
        """How much is in both."""
        shares = f"{percent(self.share)} of the document, {percent(self.other_share)} of the source"
        return [f"{self.size} in {plural(len(self.passages), 'passage')} are in both: {shares}."]

    @property
    def facts(self) -> dict[str, str]:
        """The exact numbers."""
        return {"characters": f"{len(self.text):,}, {len(self.other):,}"}

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
        """The share of the text that is in its sources."""
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
        """End the row, and return all of them."""
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
    """Return a text as it is set in its language."""
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


@dataclass(frozen=True)
class ComparedSide:
    """A document of a comparison; its text may be missing."""

    name: Markup
    text: str | None
    fingerprint: int | None
    sketch: bytes | None
    note: str = ""


def comparison(recipe: Recipe, first: ComparedSide, second: ComparedSide) -> Markup:
    """Return the texts of two documents beside each other, and why they are near."""
    names = []
    for side in (first, second):
        note = element("p", side.note, class_="warn") if side.note else ""
        names.append(element("div", element("b", side.name), note))
    parts = [element("div", *names, class_="names")]
    if first.text is not None and second.text is not None:
        found = ComparedTexts(recipe, first.text, second.text, most=COMPARED_AT_ONCE)
        said = f" {percent(found.contained)} of the smaller one is in the other."
        contained = said if found.contained else ""
        parts.append(element("p", *found.sentence, contained, class_="facts"))
        parts.append(element("div", *found.drawn()))
    else:
        parts += excerpt(first.text or second.text, COMPARED_AT_ONCE)
    return element("section", *parts, _why(recipe, first, second))


def _why(recipe: Recipe, first: ComparedSide, second: ComparedSide) -> Markup:
    """Explain how near two documents are: by sketches, bits and features."""
    facts = []
    if first.sketch and second.sketch:
        share = sketch_jaccard(first.sketch, second.sketch)
        said = percent(max(share, 0.0), exact=False)
        facts.append(f"By their sketches, with which fpdb searches, they are {said} similar.")
    numbers = [side.fingerprint for side in (first, second) if side.fingerprint is not None]
    if len(numbers) == 2:
        apart = distance(*numbers)
        facts.append(f"Their fingerprints differ in {apart} of {recipe.bits} bits.")
    inner = [element("p", " ".join(facts))] if facts else []
    inner += [element("p", element("code", format_fingerprint(n, recipe.bits))) for n in numbers]
    texts = [side.text for side in (first, second) if side.text is not None]
    if max(map(len, recipe.shingles_many(texts)), default=0) > _MOST_SHINGLES:
        inner.append(element("p", "The texts are too long to show their features."))
    elif len(texts) == 2:
        inner.append(_features(*map(recipe.features, texts)))
    return folded("Why: features and bits", *inner)


def _features(first: dict[str, float], second: dict[str, float]) -> Markup:
    lists, weights = [], second | first
    for where, names in (
        ("in both", first.keys() & second.keys()),
        ("only in the first", first.keys() - second.keys()),
        ("only in the second", second.keys() - first.keys()),
    ):
        items = []
        for name in sorted(names, key=lambda name: (-weights[name], name))[:_NAMED]:
            weight = element("span", f" × {weights[name]:.3g}", class_="soft")
            items.append(element("li", element("bdi", name[:80]), weight))
        title = element("h4", f"Features {where}: {len(names):,}")
        lists.append(element("div", title, element("ul", *items)))
    return element("div", *lists, class_="figures")
