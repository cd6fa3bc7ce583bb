"""Compare two texts, or two fingerprints."""

import dataclasses
from collections.abc import Sequence
from itertools import chain

import fpdb
from fpdb.cli import options, render
from fpdb.cli.options import argument, option, require, takes
from fpdb.fingerprint.digits import Base


@takes(
    files=argument("FILE", "Two files."),
    every=option("--all", "Print all measures of the two."),
)
def compare(
    files: list[str] | None = None,
    texts: list[str] | None = None,
    fingerprints: list[str] | None = None,
    base: Base = "hex",
    recipe: fpdb.Recipe = options.WEB,
    every: bool = False,
) -> None:
    """Compare two files, texts or fingerprints.

    Example:
      fpdb compare essay.txt copy.txt --all
    """
    sides = len(files or ()) + len(texts or ())
    require(
        (sides, len(fingerprints or ())) in ((2, 0), (0, 2)),
        "give two files, texts or fingerprints",
    )
    if fingerprints:
        numbers = (fpdb.parse_fingerprint(each, recipe.bits, base) for each in fingerprints)
        distance = fpdb.distance(*numbers)
        entries = {"distance": f"{distance} of {recipe.bits} bits"}
        render.report(entries, {"distance": distance, "bits": recipe.bits})
        return
    # What reads files takes long to import.
    from fpdb.io.files import read_texts

    both = [*chain.from_iterable(map(read_texts, files or ())), *(texts or ())]
    _report(recipe, both, every=every)


def _report(recipe: fpdb.Recipe, sides: Sequence[str], *, every: bool) -> None:
    """Print how similar two texts are."""
    found = fpdb.compare(*sides, recipe=recipe)
    plain = dataclasses.asdict(found)
    entries = {
        "distance": f"{found.distance} of {recipe.bits} bits",
        "equal bits": f"{found.percent:.2f}%",
        "angle": f"{found.angle:.2f} degrees, estimated",
        "cosine": f"{found.cosine:.4f} exact, {found.cosine_estimate:.4f} estimated",
        "jaccard": f"{found.jaccard:.4f} of the features, exact",
        "value ratio": repr(found.value_ratio),
        "recipe": f"{recipe.name} ({recipe.id})",
    }
    if found.shingle_jaccard is not None:
        estimate = f"{found.sketch_jaccard:.4f} ± {found.sketch_error:.4f} estimated"
        entries = {
            "similarity": f"{found.shingle_jaccard:.4f} exact, {estimate}",
            "containment": f"{found.containment:.4f} of the smaller text, exact",
        } | entries
    if not every:
        bits = recipe.similarity is None or found.shingle_jaccard is None
        likeness = "distance" if bits else "similarity"
        entries = {likeness: entries[likeness].partition(",")[0]}
    render.report(entries, plain)
    if found.short and not render.now.json:
        render.note("short: a text has too few features, so only equal texts count as duplicates")
