"""The page of an evaluation: how well recipes find near-duplicates, and which they get wrong."""

import os
from collections.abc import Iterable, Iterator
from functools import partial

from fpdb.errors import InputError
from fpdb.fingerprint import preset
from fpdb.look.listing import LEAST_BYTES, MOST_GROUPS, ListedGroup, ListedText, rendered
from fpdb.look.page import ReportPage, cards, first_line, folded, percent, plural
from fpdb.look.pair import ComparedTexts
from fpdb.markup import Markup, element, table
from fpdb.models import Document, Evaluation, Key, Mistake, Rating, RecipeQuality
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
    most = MOST_GROUPS // max(len(found.recipes), 1)
    named = [
        (quality.recipe, each) for quality in found.recipes for each in quality.mistakes[:most]
    ]
    groups, _ = rendered(
        [
            (
                LEAST_BYTES + len(texts[mistake.other].encode("utf-8", "replace")),
                partial(_listed, recipe, mistake, texts),
            )
            for recipe, mistake in named
        ]
    )
    page = ReportPage(
        title="Near-duplicates found and missed",
        subtitle=f"{plural(found.documents, 'document')}, "
        + plural(found.true, "pair that should be found", "pairs that should be found"),
        top=list(_top(found)),
        least=0.0,
        kinds={"wrong": "wrong", "missed": "missed", "open": "no verdict yet"},
        groups=groups,
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
        missed = found.true - rating.found
        recall = f"{rating.found:,} of {found.true:,} pairs, similar from"
        right = f"{rating.right:,} are right, similar from {percent(limits.right_from)}"
        wrong = f"{rating.wrong:,} wrong, below {percent(limits.wrong_below)}"
        equal = f"{rating.equal:,} more of equal texts count for nothing"
        yield element("h2", f"Recipe {quality.recipe}")
        yield cards(
            [
                (
                    _share(rating.recall),
                    "found",
                    f"the recall: {recall} {percent(limits.truth_from)}.",
                ),
                (
                    _share(rating.precision),
                    "right",
                    f"the precision: of the reported pairs, {right}, and {wrong}.",
                ),
                (f"{rating.wrong:,}", "wrong pairs", "were reported, but are hardly similar."),
                (f"{missed:,}", "missed pairs", "are similar, but weren't reported."),
                (f"{rating.reported:,}", "reported pairs", f"of texts that differ; {equal}."),
            ]
        )
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
    said = (
        f"The truth is {truth}. Recall counts the found among the true pairs, precision the right "
        "among the right and wrong ones."
    )
    yield folded(
        "Details: similarity, and all distances of fingerprints",
        element("p", said),
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


def _listed(recipe: str, mistake: Mistake, texts: dict[Key, str]) -> ListedGroup:
    """Return a pair that was found wrongly or missed."""
    first, second = (ListedText([str(key)]) for key in (mistake.key, mistake.other))
    text, other = texts[mistake.key], texts[mistake.other]
    second.pair = ComparedTexts(preset("web"), text, other)
    kind = "wrong" if mistake.wrong else "missed"
    return ListedGroup(
        title=first_line(text),
        kind=kind,
        label=f"{recipe}: {kind}",
        documents=2,
        least=second.pair.share,
        texts=[first, second],
        names=("First", "Second"),
        facts={"true similarity": f"{mistake.similarity:.4f}"},
    )
