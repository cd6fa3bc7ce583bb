"""Two documents beside each other: what differs in their texts, and why they are near or not."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fpdb.fingerprint import Recipe, sketch_jaccard
from fpdb.fingerprint.digits import format_fingerprint
from fpdb.fingerprint.sketches import exact_shares
from fpdb.report.differences import differences
from fpdb.report.page import Markup, element, language_of, percent, plural, table
from fpdb.report.views import UNSPACED, likeness

# The characters of a text that are compared, and the most shingles of texts whose features and
# votes are shown: a page takes less than a second.
_COMPARED = 40_000
_MOST_SHINGLES = 1_500
# Features that are named.
_NAMED = 12
# Equal passages that are longer than the first are shown at their ends, as long as the second;
# without spaces between words, half of it.
_LONG, _EDGE = 360, 140


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
    names = (
        element(
            "div",
            element("b", side.name),
            element("p", side.note, class_="warn") if side.note else "",
        )
        for side in (first, second)
    )
    parts = [element("div", *names, class_="names")]
    if first.text is not None and second.text is not None:
        parts += _texts(recipe, first.text, second.text)
    else:
        parts += [
            _cell([side.text[:_COMPARED]], language_of(side.text))
            for side in (first, second)
            if side.text is not None
        ]
    return element("section", *parts, *_why(recipe, first, second))


def _texts(recipe: Recipe, text: str, other: str) -> Iterator[Markup]:
    one, two = text[:_COMPARED], other[:_COMPARED]
    found = differences(one, two)
    share, contained = exact_shares(*recipe.shingles_many([text, other]))
    sentence = likeness(found, share, "first", one)
    if contained is not None:
        sentence += f" {percent(contained)} of the smaller one is in the other."
    yield element("p", sentence, class_="facts")
    rows = _DrawnRows(language_of(one), language_of(two))
    last = len(found.pieces) - 1
    for number, piece in enumerate(found.pieces):
        if piece.same:
            rows.equal(piece.text, first=number == 0, last=number == last)
        else:
            rows.change(piece.text, piece.other)
    yield element("div", *rows.finished())
    rest = len(text) - len(one) + len(other) - len(two) + found.rest + found.other_rest
    if rest:
        note = f"{plural(rest, 'character')} at the end weren't compared"
        yield element("p", note, class_="fold")


class _DrawnRows:
    """The rows of two texts, which end where lines end.

    Both cells of a row have all of it, and the style hides what is only in the other text, or the
    second cell where there is no room.
    """

    def __init__(self, *languages: str | None) -> None:
        self._languages = languages
        self._row: list[str] = []
        self._rows: list[Markup] = []

    def equal(self, text: str, *, first: bool, last: bool) -> None:
        """Add a passage that both have; of a long one, the middle is folded."""
        dense = self._languages[0] in UNSPACED
        edge = _EDGE // 2 if dense else _EDGE
        start = 0 if first else _cut(text, edge)
        stop = len(text) if last else _cut(text, len(text) - edge)
        if stop - start < (_LONG // 2 if dense else _LONG):
            self._add(text)
            return
        self._add(text[:start])
        middle = text[start:stop]
        size, unit = (len(middle), "character") if dense else (len(middle.split()), "word")
        inner = _DrawnRows(*self._languages)
        inner._add(middle)
        summary = element("summary", f"⋯ {plural(size, f'equal {unit}')} ⋯")
        folded = element("details", summary, *inner.finished(), class_="folded")
        self.finished().append(folded)
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

    def finished(self) -> list[Markup]:
        """End the row, and return all of them."""
        if self._row:
            cells = [_cell(self._row, language) for language in self._languages]
            self._rows.append(element("div", *cells, class_="row"))
            self._row = []
        return self._rows

    def _add(self, text: str) -> None:
        for line in text.splitlines(keepends=True):
            if line.strip() or not line.endswith("\n"):
                self._row.append(line)
            if line.endswith("\n"):
                self.finished()


def _cell(content: Sequence[str], language: str | None) -> Markup:
    return element("div", *content, class_="text", dir="auto", lang=language)


def _cut(text: str, place: int) -> int:
    """Return a place after white space near to a place."""
    space = re.search(r"\s", text[max(place, 0) : place + 30])
    return min(max(place + (space.end() if space else 0), 0), len(text))


def _why(recipe: Recipe, first: ComparedSide, second: ComparedSide) -> Iterator[Markup]:
    """Explain how near two documents are: by sketches, by features, and by votes on bits."""
    facts = []
    if first.sketch and second.sketch:
        share = sketch_jaccard(first.sketch, second.sketch)
        facts.append(f"By their sketches, they are {percent(max(share, 0.0))} similar.")
    numbers = [side.fingerprint for side in (first, second) if side.fingerprint is not None]
    apart: list[int] = []
    if len(numbers) == 2:
        changed = numbers[0] ^ numbers[1]
        apart = [bit for bit in range(recipe.bits) if changed >> bit & 1]
        facts.append(f"Their fingerprints differ in {len(apart)} of {recipe.bits} bits.")
    inner = [element("p", " ".join(facts))] if facts else []
    inner += [
        element("p", element("code", format_fingerprint(number, recipe.bits))) for number in numbers
    ]
    texts = {
        name: side.text
        for name, side in (("first", first), ("second", second))
        if side.text is not None
    }
    if max(map(len, recipe.shingles_many(list(texts.values()))), default=0) > _MOST_SHINGLES:
        inner.append(element("p", "The texts are too long to show their features and votes."))
    else:
        if len(texts) == 2:
            inner.append(_features(*map(recipe.features, texts.values())))
        if apart and texts:
            inner.append(_votes(recipe, texts, apart))
    yield element("details", element("summary", "Why: features, votes and bits"), *inner)


def _features(first: dict[str, float], second: dict[str, float]) -> Markup:
    shared = first.keys() & second.keys()
    lists = [
        element(
            "div",
            element("h4", f"Features {where}: {len(names):,}"),
            element("ul", *_heaviest(names, weights)),
        )
        for where, names, weights in (
            ("in both", shared, first),
            ("only in the first", first.keys() - shared, first),
            ("only in the second", second.keys() - shared, second),
        )
    ]
    return element("div", *lists, class_="figures")


def _heaviest(features: Iterable[str], weights: dict[str, float]) -> Iterator[Markup]:
    """Return items of the features that weigh most, with their weights."""
    ordered = sorted(features, key=lambda feature: (-weights[feature], feature))
    for feature in ordered[:_NAMED]:
        weight = element("span", f" × {weights[feature]:.3g}", class_="soft")
        yield element("li", element("bdi", feature[:80]), weight)


def _votes(recipe: Recipe, texts: dict[str, str], apart: Sequence[int]) -> Markup:
    """Return the votes on the bits that differ; small ones are those that few features turn."""
    found = [recipe.explain(text) for text in texts.values()]
    rows = []
    for bit in sorted(apart, key=lambda bit: abs(found[0].votes[bit])):
        votes = [f"{each.votes[bit]:+.3g}" for each in found]
        ranks = [f"{each.weakest.index(bit) + 1} of {recipe.bits}" for each in found]
        rows.append((str(bit), *votes, *ranks))
    head = ("bit", *(f"{name}: votes" for name in texts), *(f"{name}: rank" for name in texts))
    return element(
        "div",
        element("h4", "The bits that differ"),
        element(
            "p",
            "Each feature votes for 1 or 0 on each bit, by its weight; the sign of the sum is the "
            "bit. The bit of rank 1 is the one that the fewest votes would turn.",
            class_="soft",
        ),
        table(head, rows, "The bits that differ"),
    )
