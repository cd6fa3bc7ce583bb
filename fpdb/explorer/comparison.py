"""Two documents beside each other: what differs in their texts, and why they are near or not."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fpdb.fingerprint import Recipe, sketch_jaccard
from fpdb.fingerprint.digits import format_fingerprint
from fpdb.fingerprint.sketches import exact_shares
from fpdb.report.differences import differences
from fpdb.report.page import Markup, element, language_of, percent, plural, table

# The characters of a text that are compared, and the most shingles of texts whose features and
# votes are shown: a page takes less than a second.
_COMPARED = 40_000
_MOST_SHINGLES = 1_500
# Features that are named.
_NAMED = 12
# Of equal passages that are longer than the first, the second is shown at both ends.
_LONG, _EDGE = 360, 140
_UNSPACED = ("zh", "ja")


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
    parts = [
        element(
            "div",
            *(element("div", element("b", side.name), _note(side)) for side in (first, second)),
            class_="names",
        )
    ]
    if first.text is not None and second.text is not None:
        parts += _texts(recipe, first.text, second.text)
    else:
        parts += [
            element("div", side.text[:_COMPARED], class_="text", dir="auto", lang=_language(side))
            for side in (first, second)
            if side.text is not None
        ]
    parts += _why(recipe, first, second)
    return element("section", *parts)


def _note(side: ComparedSide) -> str:
    return element("p", side.note, class_="warn") if side.note else ""


def _language(side: ComparedSide) -> str | None:
    return language_of(side.text or "")


def _texts(recipe: Recipe, text: str, other: str) -> Iterator[Markup]:
    one, two = text[:_COMPARED], other[:_COMPARED]
    found = differences(one, two)
    share, contained = exact_shares(*recipe.shingles_many([text, other]))
    what = "characters" if language_of(one) in _UNSPACED else "words"
    sentence = f"{percent(share)} similar. " if share is not None else ""
    if all(piece.same for piece in found.pieces):
        sentence += "The same words in the same order; only white space differs."
    else:
        sentence += (
            f"{percent(found.only)} of the {what} are only in the first text, "
            f"{percent(found.other_only)} of the other's only in the second."
        )
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
    beside, merged = rows.finished()
    yield element("div", *beside, class_="two")
    yield element("div", *merged, class_="one")
    rest = len(text) - len(one) + len(other) - len(two) + found.rest + found.other_rest
    if rest:
        note = f"{plural(rest, 'character')} at the end weren't compared"
        yield element("p", note, class_="fold")


class _DrawnRows:
    """The rows of two texts, which end where lines end: beside each other, and as one text."""

    def __init__(self, language: str | None, other_language: str | None) -> None:
        self._languages = language, other_language
        self._sides: tuple[list[str], list[str]] = [], []
        self._both: list[str] = []
        self._beside: list[Markup] = []
        self._merged: list[Markup] = []

    def equal(self, text: str, *, first: bool, last: bool) -> None:
        """Add a passage that both have; of a long one, the middle is folded."""
        dense = self._languages[0] in _UNSPACED
        edge = _EDGE // 2 if dense else _EDGE
        start = 0 if first else _cut(text, edge)
        stop = len(text) if last else _cut(text, len(text) - edge)
        if stop - start < (_LONG // 2 if dense else _LONG):
            self._add(text)
            return
        self._add(text[:start])
        self._close()
        middle = text[start:stop]
        size = len(middle) if dense else len(middle.split())
        inner = _DrawnRows(*self._languages)
        inner._add(middle)
        unit = "equal character" if dense else "equal word"
        summary = element("summary", f"⋯ {plural(size, unit)} ⋯")
        for rows, own in zip((self._beside, self._merged), inner.finished(), strict=True):
            rows.append(element("details", summary, *own, class_="folded"))
        self._add(text[stop:])

    def change(self, text: str, other: str) -> None:
        """Add what each of the texts has in place of the other's."""
        for side, name, own in zip(self._sides, ("del", "ins"), (text, other), strict=True):
            bare = own.rstrip()
            if own:
                marked = element(name, re.sub(r"\n\s*\n", "\n", bare))
                space = re.sub(r"\n\s*", "\n", own[len(bare) :])
                for each in (side, self._both):
                    each += [marked, space]
        if any(re.search(r"\n\s*$", own) for own in (text, other)):
            self._close()

    def finished(self) -> tuple[list[Markup], list[Markup]]:
        """Return both forms."""
        self._close()
        return self._beside, self._merged

    def _add(self, text: str) -> None:
        for line in text.splitlines(keepends=True):
            if line.strip() or not line.endswith("\n"):
                for side in (*self._sides, self._both):
                    side.append(line)
            if line.endswith("\n"):
                self._close()

    def _close(self) -> None:
        if not self._both:
            return
        cells = [_cell(side, lang) for side, lang in zip(self._sides, self._languages, strict=True)]
        self._beside.append(element("div", *cells, class_="row"))
        self._merged.append(_cell(self._both, self._languages[0]))
        for side in (*self._sides, self._both):
            side.clear()


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
    apart: list[int] = []
    if first.fingerprint is not None and second.fingerprint is not None:
        changed = first.fingerprint ^ second.fingerprint
        apart = [bit for bit in range(recipe.bits) if changed >> bit & 1]
        facts.append(f"Their fingerprints differ in {len(apart)} of {recipe.bits} bits.")
    inner = [element("p", " ".join(facts))] if facts else []
    inner += [
        element("p", element("code", format_fingerprint(side.fingerprint, recipe.bits)))
        for side in (first, second)
        if side.fingerprint is not None
    ]
    texts = [side.text for side in (first, second) if side.text is not None]
    if max(map(len, recipe.shingles_many(texts)), default=0) > _MOST_SHINGLES:
        inner.append(element("p", "The texts are too long to show their features and votes."))
    else:
        tallies = [recipe.features(text) for text in texts]
        if len(tallies) == 2:
            inner.append(_features(*tallies))
        if apart and tallies:
            inner.append(_votes(recipe, texts, apart, named=first.text is not None))
    yield element("details", element("summary", "Why: features, votes and bits"), *inner)


def _features(first: dict[str, float], second: dict[str, float]) -> Markup:
    shared = first.keys() & second.keys()
    columns = {
        f"in both: {len(shared):,}": _heaviest(shared, first),
        f"only in the first: {len(first) - len(shared):,}": _heaviest(first.keys() - shared, first),
        f"only in the second: {len(second) - len(shared):,}": _heaviest(
            second.keys() - shared, second
        ),
    }
    lists = [
        element("div", element("h4", f"Features {head}"), element("ul", *items))
        for head, items in columns.items()
    ]
    return element("div", *lists, class_="figures")


def _heaviest(features: Iterable[str], weights: dict[str, float]) -> Iterator[Markup]:
    """Return items of the features that weigh most, with their weights."""
    ordered = sorted(features, key=lambda feature: (-weights[feature], feature))
    for feature in ordered[:_NAMED]:
        weight = element("span", f" × {weights[feature]:.3g}", class_="soft")
        yield element("li", element("bdi", feature[:80]), weight)


def _votes(recipe: Recipe, texts: Sequence[str], apart: Sequence[int], *, named: bool) -> Markup:
    """Return the votes on the bits that differ; small ones are those that few features turn."""
    found = [recipe.explain(text) for text in texts]
    places = ["first", "second"] if len(found) == 2 else ["first" if named else "second"]
    rows = []
    for bit in sorted(apart, key=lambda bit: abs(found[0].votes[bit])):
        ranks = [each.weakest.index(bit) + 1 for each in found]
        votes = [f"{each.votes[bit]:+.3g}" for each in found]
        rows.append((str(bit), *votes, *(f"{rank} of {recipe.bits}" for rank in ranks)))
    head = ("bit", *(f"{place}: votes" for place in places), *(f"{p}: rank" for p in places))
    return element(
        "div",
        element("h4", "The bits that differ"),
        element(
            "p",
            "Each feature votes for 1 or 0 on each bit, by its weight; the sign of the sum is the "
            "bit. The bit of rank 1 is the one that the fewest votes would turn.",
            class_="soft",
        ),
        element("div", table(head, rows), class_="wide"),
    )
