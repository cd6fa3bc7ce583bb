"""The page of an evaluation: how well recipes find near-duplicates, and which they get wrong."""

import os
from collections.abc import Iterable, Iterator
from functools import partial

from fpdb.errors import InputError
from fpdb.fingerprint import preset
from fpdb.io.records import Reading
from fpdb.look.fields import ShownFields
from fpdb.look.listing import ListedDocument, ListedGroup, ListedText, rendered, write_report
from fpdb.look.page import first_line, percent, plural
from fpdb.look.pair import ComparedTexts
from fpdb.markup import Markup, element, table
from fpdb.models import Document, Evaluation, Key, Mistake, Rating


def report_evaluation(
    found: Evaluation,
    documents: Iterable[Document],
    output: str | os.PathLike[str],
    reading: Reading | None = None,
) -> int:
    """Write a page that shows an evaluation, and the pairs that its `mistakes` name.

    Args:
        found: What `evaluate` returned.
        documents: The documents that were evaluated.
        output: The file to write; one that is there is replaced.
        reading: Which fields of the metadata have the titles, dates, hosts and links to show; by
            default, their usual names say it.

    Returns:
        The number of pairs in the page.
    """
    if not found.documents:
        raise InputError(
            f"found no document for {os.fspath(output)}, expected at least one",
            hint="give the documents that were evaluated",
        )
    wanted = {key for recipe in found.recipes for each in recipe.mistakes for key in each[:2]}
    given = {each.key: each for each in documents if each.key in wanted}
    if lost := wanted - given.keys():
        raise InputError(
            f"found no document with the key {min(map(str, lost))!r}, which was evaluated",
            hint="give the documents that were evaluated",
        )
    groups = rendered(
        [
            partial(_listed, quality.recipe, mistake, given, reading or Reading())
            for quality in found.recipes
            for mistake in quality.mistakes
        ]
    )
    ratings = [quality.similar or quality.ratings[-1] for quality in found.recipes]
    write_report(
        output,
        "Near-duplicates found and missed",
        f"{plural(found.documents, 'document')}, "
        + plural(found.true, "pair that should be found", "pairs that should be found"),
        _ratings(found),
        groups,
        kinds={"wrong": "wrong", "missed": "missed", "open": "no verdict yet"},
        every=sum(rating.wrong + found.true - rating.found for rating in ratings),
        none="No pair is wrong, and none is missed.",
        noun="pair",
        footer="Made by fpdb with "
        + ", ".join(f"{each.recipe} ({each.recipe_id})" for each in found.recipes)
        + ".",
    )
    return len(groups)


def _ratings(found: Evaluation) -> Iterator[Markup]:
    limits = found.thresholds
    truth = "by the exact similarity of all texts" if found.exact else "as they were listed"
    said = (
        f"Pairs should be found that are similar from {percent(limits.truth_from)} on, {truth}. "
        "Recall is the share of these that a recipe finds. Precision counts the reported pairs: "
        f"they are right from {percent(limits.right_from)} on, wrong below "
        f"{percent(limits.wrong_below)}, and pairs of equal texts count for nothing."
    )
    rows = [
        (
            quality.recipe,
            f"within {rating.k} bits" if rating.k is not None else f"from {quality.similarity:.0%}",
            *(f"{count:,}" for count in rating[1:6]),
            f"{found.true - rating.found:,}",
            *("–" if share is None else percent(share) for share in rating[6:]),
        )
        for quality in found.recipes
        for rating in (*filter(None, [quality.similar]), *quality.ratings)
    ]
    head = "recipe", "near", *Rating._fields[1:6], "missed", *Rating._fields[6:]
    yield table(head, rows, "Ratings")
    yield element("p", said, class_="soft")


def _listed(
    recipe: str, mistake: Mistake, given: dict[Key, Document], reading: Reading
) -> ListedGroup:
    fields, listed = ShownFields.of(reading), []
    documents = given[mistake.key], given[mistake.other]
    for each in documents:
        key, meta = str(each.key), each.meta if isinstance(each.meta, dict) else {}
        meta = dict.fromkeys(reading.keys, key) | meta  # the key isn't among the metadata
        listed.append(ListedText([ListedDocument(key, fields.note(meta), fields.link(meta))]))
    text, other = (each.text or "" for each in documents)
    pair = listed[1].pair = ComparedTexts(preset("web"), text, other)
    kind = "wrong" if mistake.wrong else "missed"
    return ListedGroup(
        title=first_line(fields.title_of(documents[0].meta) or text),
        kind=kind,
        label=f"{recipe}: {kind}",
        documents=2,
        least=pair.share,
        texts=listed,
        names=("First", "Second"),
    )
