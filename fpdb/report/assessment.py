"""The page of an evaluation: how well recipes find near-duplicates, and which they get wrong."""

import os
from collections.abc import Iterable, Iterator
from typing import Any

from fpdb.errors import InputError
from fpdb.fingerprint import preset
from fpdb.models import Document, Evaluation, Key, Rating, RecipeQuality
from fpdb.report.gather import Version
from fpdb.report.page import (
    Markup,
    ReportPage,
    cards,
    element,
    language_of,
    percent,
    plural,
    table,
    title_of,
    visible,
)
from fpdb.report.views import MOST_GROUPS, Room, pair_view, version_view
from fpdb.scratch import draft_file


def report_evaluation(
    found: Evaluation, documents: Iterable[Document], output: str | os.PathLike[str]
) -> int:
    """Write a page that shows an evaluation, and the pairs that its `mistakes` name.

    Args:
        found: What `evaluate` returned.
        documents: The documents that were evaluated.
        output: The file to write; one that is there is replaced.

    Returns:
        The number of pairs in the page.
    """
    if not found.documents:
        raise InputError(
            f"found no document for {os.fspath(output)}, expected at least one",
            hint="give the documents that were evaluated",
        )
    wanted = {key for recipe in found.recipes for each in recipe.mistakes for key in each[:2]}
    texts = {each.key: each.text or "" for each in documents if each.key in wanted}
    if lost := wanted - texts.keys():
        raise InputError(
            f"found no document with the key {min(map(str, lost))!r}, which was evaluated",
            hint="give the documents that were evaluated",
        )
    groups = list(_views(found, texts))
    kinds = {"wrong": "wrong", "missed": "missed", "open": "no verdict yet"}
    page = ReportPage(
        title="Near-duplicates found and missed",
        subtitle=f"{plural(found.documents, 'document')}, "
        + plural(found.true, "pair that should be found", "pairs that should be found"),
        top=list(_top(found)),
        similarity=found.similarity or found.thresholds.truth_from,
        kinds=kinds,
        groups=sorted(groups, key=lambda view: float(view["low"])),
        noun="pair",
        notes=list(_notes(found, len(groups))),
        footer="Made by fpdb with "
        + ", ".join(f"{each.recipe} ({each.recipe_id})" for each in found.recipes)
        + ".",
    )
    with draft_file(output) as file:
        file.write(page.render())
    return len(groups)


def _top(found: Evaluation) -> Iterator[Markup]:
    limits = found.thresholds
    for quality in found.recipes:
        rating = _main(quality)
        numbers = [
            (
                _share(rating.recall),
                "found",
                (
                    f"the recall: {rating.found:,} of {found.true:,} pairs, similar from "
                    f"{percent(limits.truth_from)}."
                ),
            ),
            (
                _share(rating.precision),
                "right",
                (
                    f"the precision: of the reported pairs, {rating.right:,} are right, similar "
                    f"from {percent(limits.right_from)}, and {rating.wrong:,} wrong, below "
                    f"{percent(limits.wrong_below)}."
                ),
            ),
            (f"{rating.wrong:,}", "wrong pairs", "were reported, but are hardly similar."),
            (
                f"{found.true - rating.found:,}",
                "missed pairs",
                "are similar, but weren't reported.",
            ),
            (
                f"{rating.reported:,}",
                "reported pairs",
                f"of texts that differ; {rating.equal:,} more of equal texts count for nothing.",
            ),
        ]
        yield element("h2", f"Recipe {quality.recipe}")
        yield cards(numbers)
    rows = [
        (
            quality.recipe,
            f"within {rating.k} bits" if rating.k is not None else f"from {found.similarity:.0%}",
            *(f"{count:,}" for count in rating[1:6]),
            *map(_share, rating[6:]),
        )
        for quality in found.recipes
        for rating in (*filter(None, [quality.similar]), *quality.ratings)
    ]
    head = ("recipe", "near", *Rating._fields[1:])
    truth = "the exact similarity of all texts" if found.exact else "the pairs that were listed"
    yield element(
        "details",
        element("summary", "Details: similarity, and all distances of fingerprints"),
        element(
            "p",
            f"The truth is {truth}. Recall counts the found among the true pairs, "
            "precision the right among the right and wrong ones.",
        ),
        table(head, rows, "Similarity and all distances"),
    )


def _main(quality: RecipeQuality) -> Rating:
    """Return the rating whose mistakes are named."""
    return quality.similar or quality.ratings[-1]


def _share(share: float | None) -> str:
    return "–" if share is None else percent(share)


def _notes(found: Evaluation, shown: int) -> Iterator[str]:
    ratings = [_main(quality) for quality in found.recipes]
    every = sum(rating.wrong + found.true - rating.found for rating in ratings)
    if not every:
        yield "No pair is wrong, and none is missed."
    elif shown < every:
        yield (
            f"Of {every:,} wrong and missed pairs, {shown:,} are here: the least similar wrong "
            "ones and the most similar missed ones."
        )


def _views(found: Evaluation, texts: dict[Key, str]) -> Iterator[dict[str, Any]]:
    some = MOST_GROUPS // max(len(found.recipes), 1)
    named = [
        (quality.recipe, each) for quality in found.recipes for each in quality.mistakes[:some]
    ]
    cleaning = preset("web")
    room = Room(len(named))
    for recipe, mistake in sorted(named, key=lambda each: len(texts[each[1].other])):
        text, other = texts[mistake.key], texts[mistake.other]
        most = room.of_group()
        kind = "wrong" if mistake.wrong else "missed"
        first, second = (version_view(Version(1, [(key, "")])) for key in mistake[:2])
        pair = pair_view(cleaning, text, other, most - 2_500, room, first="first")
        view = {
            "t": visible(title_of(text)),
            "lang": language_of(text),
            "n": 2,
            "kind": kind,
            "label": f"{recipe}: {kind}",
            "more": 0,
            "low": pair["s"],
            "share": pair["share"],
            "left": "First",
            "right": "Second",
            "facts": [["true similarity", f"{mistake.similarity:.4f}"]],
            "v": [first, second | pair],
        }
        room.take(view, most)
        yield view
