"""Two texts beside each other, in rows: the differences marked, long equal passages folded."""

import re
from collections.abc import Sequence

from fpdb.fingerprint import Recipe
from fpdb.fingerprint.sketches import exact_shares
from fpdb.look.differences import differences
from fpdb.look.page import folded, language_of, percent, plural
from fpdb.markup import Markup, element

ALL = 1 << 40
# Equal passages that are longer than the first are shown at their ends, as long as the second;
# without spaces between words, half of it.
_LONG, _EDGE = 360, 140
_SMALL = "left out here, to keep this file small"


class ComparedTexts:
    """Two texts, their exact similarity, and the differences of their beginnings.

    `first` is the word for the first text.
    """

    def __init__(
        self, recipe: Recipe, text: str, other: str, *, first: str = "first", most: int = ALL
    ) -> None:
        self._first = first
        self.languages = language_of(text), language_of(other)
        self._sizes = len(text), len(other)
        self._found = differences(text[:most], other[:most])
        self._rest = sum(max(size - most, 0) for size in self._sizes)
        self._rest += self._found.rest + self._found.other_rest
        share, contained = exact_shares(*recipe.shingles_many([text, other]))
        self._shingled = share is not None
        self.share, self.contained = share or 0.0, contained or 0.0

    @property
    def sentence(self) -> str:
        """How similar the texts are, and how much only one of them has."""
        found = self._found
        said = f"{percent(self.share)} similar. " if self._shingled else ""
        if all(piece.same for piece in found.pieces):
            return f"{said}The same words in the same order; only white space differs."
        units = "characters" if _is_unspaced(self.languages[0]) else "words"
        return (
            f"{said}{percent(found.only)} of the {units} are only in the {self._first} text, "
            f"{percent(found.other_only)} of the other's only in that one."
        )

    @property
    def facts(self) -> dict[str, str]:
        """The exact numbers."""
        return {
            "similarity": f"{self.share:.4f}",
            "containment": f"{self.contained:.4f} of the smaller text",
            "characters": " and ".join(f"{size:,}" for size in self._sizes),
        }

    def drawn(self, *, kept: int = ALL, both: bool = True) -> list[Markup]:
        """Return rows with both texts, which say how many characters aren't there.

        Of folded passages, `kept` characters stay at both ends. Unless `both`, only one cell of
        each row is there, of which the program of a page makes the other.
        """
        rows = _PairRows(self.languages if both else self.languages[:1], kept)
        last = len(self._found.pieces) - 1
        for number, piece in enumerate(self._found.pieces):
            if piece.same:
                rows.equal(piece.text, first=number == 0, last=number == last)
            else:
                rows.change(piece.text, piece.other)
        rows.note(self._rest, "character", "at the end weren't compared")
        return rows.finished()


class _PairRows:
    """The rows of two texts, which end where lines end.

    Both cells of a row have all of it, and the style hides what is only in the other text, or the
    second cell where there is no room.
    """

    def __init__(self, languages: Sequence[str | None], kept: int) -> None:
        self._languages = languages
        self._kept = kept
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
        size, unit = (len(middle), "character") if dense else (len(middle.split()), "word")
        inner = _PairRows(self._languages, self._kept)
        kept = self._kept if len(middle) > 3 * self._kept else len(middle)
        inner._add(middle[:kept])
        inner.note(len(middle) - 2 * kept, "equal character", _SMALL)
        inner._add(middle[max(kept, len(middle) - kept) :])
        fold = folded(f"⋯ {plural(size, f'equal {unit}')} ⋯", *inner.finished(), class_="folded")
        self.finished().append(fold)
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


def _is_unspaced(language: str | None) -> bool:
    """Return whether the words of a language are characters here."""
    return language in ("zh", "ja")


def _cut(text: str, place: int) -> int:
    """Return a place after white space near to a place."""
    space = re.search(r"\s", text[max(place, 0) : place + 30])
    return min(max(place + (space.end() if space else 0), 0), len(text))
