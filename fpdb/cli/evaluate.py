"""Measure how well recipes find near-duplicates."""

import dataclasses
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

import fpdb
from fpdb.cli import options, render
from fpdb.cli.inputs import BadRecords, documents_of_files
from fpdb.cli.options import argument, choose_recipe, option, takes
from fpdb.io.files import read_pairs

if TYPE_CHECKING:
    from fpdb.joins.evaluation import Evaluation

# Wrong pairs and missed pairs that JSON names, of each recipe.
_MISTAKES = 250
_RANGE = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?")


@takes(
    options.READ,
    reading=fpdb.Reading,
    documents=argument("FILE|DIR|-", "The documents; - is standard input."),
    pairs=argument("PAIRS", "A TSV or CSV file of known pairs: key, key, similarity or 1 or 0."),
    recipes=option(
        "--recipe -r NAME|FILE.toml", "A recipe to evaluate, default web; several are compared."
    ),
    k=option("--k -k K", "The distances, e.g. 3, 0-12 or 0,3,7."),
    similarity=options.NEW_SIMILARITY,
)
def evaluate(
    documents: str,
    reading: fpdb.Reading,
    pairs: str | None = None,
    recipes: list[str] | None = None,
    k: str = "0-12",
    similarity: float | None = None,
) -> None:
    """Measure quality on your own documents.

    Example:
      fpdb eval pages.jsonl pairs.tsv --recipe web --recipe my.toml -k 3,6

    Rates the pairs that a database finds by their similarity, and those within
    each k. Without PAIRS, the truth is the exact similarity of all documents.
    --json also names wrong and missed pairs.
    """
    bad = BadRecords()
    evaluation = fpdb.evaluate(
        documents_of_files([documents], reading, bad),
        None if pairs is None else read_pairs(pairs),
        recipes=[choose_recipe(name) for name in recipes or ["web"]],
        k=_parse_distances(k),
        similarity="recipe" if similarity is None else similarity or None,
        mistakes=_MISTAKES if render.now.json else 0,
    )
    if not evaluation.documents:
        bad.settle()
    if render.now.json:
        render.record(_plain(evaluation))
    else:
        _print_ratings(evaluation)
    render.summarise(None, *_measured(evaluation), render.counted("bad records", bad.count))
    bad.settle()


def _plain(evaluation: "Evaluation") -> dict[str, Any]:
    plain = dataclasses.asdict(evaluation)
    for quality in plain["recipes"]:
        quality["ratings"] = [rating._asdict() for rating in quality["ratings"]]
        quality["similar"] = quality["similar"] and quality["similar"]._asdict()
        quality["mistakes"] = [mistake._asdict() for mistake in quality["mistakes"]]
    return plain


def _print_ratings(evaluation: "Evaluation") -> None:
    """Print the ratings of all recipes, under their names in a pipe too."""
    from fpdb.joins.evaluation import Rating  # most commands do without

    if render.shows_tables():
        render.columns("recipe", "J", *Rating._fields)  # the table fits on 80 columns
    else:
        render.row("recipe", "similarity", *Rating._fields)
    for quality in evaluation.recipes:
        for rating in filter(None, (quality.similar, *quality.ratings)):
            near = (quality.similarity, "-") if rating.k is None else ("-", rating.k)
            shares = ("-" if share is None else f"{share:.4f}" for share in rating[-3:])
            render.row(quality.recipe, *near, *rating[1:-3], *shares)


def _parse_distances(text: str) -> list[int]:
    """Parse distances such as 3, 0-12 or 0,3,6-8."""
    distances: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise typer.BadParameter(f"found {text!r}, expected distances, e.g. 3, 0-12 or 0,3,7")
        distances.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return sorted(distances)


def _measured(evaluation: "Evaluation") -> Iterator[str]:
    limits = evaluation.thresholds
    truth = "exact similarity of the texts" if evaluation.exact else "the listed pairs"
    equal = f", left out: pairs of equal texts {evaluation.equal:,}" if evaluation.equal else ""
    documents = render.plural(evaluation.documents, "document")
    since = f"similarity from {limits.truth_from:g}; truth: {truth}"
    yield f"{documents}, true pairs {evaluation.true:,} ({since}){equal}"
    bounds = f"similarity from {limits.right_from:g}; wrong: below {limits.wrong_below:g}"
    yield f"right: {bounds}; others aren't counted"
    for quality in evaluation.recipes:
        yield render.counted(f"{quality.recipe}: texts too short", quality.short)
        if quality.similarity:
            yield render.counted(f"{quality.recipe}: texts without a sketch", quality.unsketched)
