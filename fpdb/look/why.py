"""Why two documents are near or not: their sketches, features, and the votes on their bits."""

from collections.abc import Sequence
from dataclasses import dataclass

from fpdb.fingerprint import Recipe, sketch_jaccard
from fpdb.fingerprint.digits import format_fingerprint
from fpdb.look.page import folded, language_of, percent
from fpdb.look.pair import ComparedTexts, text_cell
from fpdb.markup import Markup, element, table

# The characters of a text that are compared, and the most shingles of texts whose features and
# votes are shown: a page takes less than a second.
_COMPARED = 40_000
_MOST_SHINGLES = 1_500
# Features that are named.
_NAMED = 12


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
        found = ComparedTexts(recipe, first.text, second.text, most=_COMPARED)
        said = f" {percent(found.contained)} of the smaller one is in the other."
        contained = said if found.contained else ""
        parts.append(element("p", found.sentence, contained, class_="facts"))
        parts.append(element("div", *found.drawn()))
    else:
        texts = [side.text for side in (first, second) if side.text is not None]
        parts += [text_cell(language_of(text), text[:_COMPARED]) for text in texts]
    return element("section", *parts, _why(recipe, first, second))


def _why(recipe: Recipe, first: ComparedSide, second: ComparedSide) -> Markup:
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
    inner += [element("p", element("code", format_fingerprint(n, recipe.bits))) for n in numbers]
    sides = {"first": first.text, "second": second.text}
    texts = {name: text for name, text in sides.items() if text is not None}
    if max(map(len, recipe.shingles_many(list(texts.values()))), default=0) > _MOST_SHINGLES:
        inner.append(element("p", "The texts are too long to show their features and votes."))
    else:
        if len(texts) == 2:
            inner.append(_features(*map(recipe.features, texts.values())))
        if apart and texts:
            inner.append(_votes(recipe, texts, apart))
    return folded("Why: features, votes and bits", *inner)


def _features(first: dict[str, float], second: dict[str, float]) -> Markup:
    """Show the features that weigh most, with their weights."""
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


def _votes(recipe: Recipe, texts: dict[str, str], apart: Sequence[int]) -> Markup:
    """Return the votes on the bits that differ; small ones are the ones that few features turn."""
    found = [recipe.explain(text) for text in texts.values()]
    rows = []
    for bit in sorted(apart, key=lambda bit: abs(found[0].votes[bit])):
        votes = [f"{each.votes[bit]:+.3g}" for each in found]
        ranks = [f"{each.weakest.index(bit) + 1} of {recipe.bits}" for each in found]
        rows.append((str(bit), *votes, *ranks))
    head = ("bit", *(f"{name}: votes" for name in texts), *(f"{name}: rank" for name in texts))
    title = "The bits that differ"
    said = (
        "Each feature votes for 1 or 0 on each bit, by its weight; the sign of the sum is the "
        "bit. The bit of rank 1 is the one that the fewest votes would turn."
    )
    parts = [element("h4", title), element("p", said, class_="soft"), table(head, rows, title)]
    return element("div", *parts)
