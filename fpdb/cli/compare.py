"""Compare two texts, two fingerprints, or each pair of a file."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import fpdb
from fpdb.cli import options, render
from fpdb.cli.inputs import BadRecords
from fpdb.cli.options import argument, option, require, takes
from fpdb.fingerprint import to_int
from fpdb.fingerprint.digits import Base
from fpdb.fingerprint.sketches import exact_shares
from fpdb.io.records import BadRecord
from fpdb.models import equal_percent
from fpdb.tables import require_k

# Returns the distance of the pair in a row, and its similarity if the recipe has one.
_Measure = Callable[[Mapping[str, Any]], tuple[int, float | None]]


@takes(
    files=argument("FILE|-", "Two files; or one, or -, with a pair on each line, as TSV."),
    pair_fields=option(
        "--fingerprint-field F", "For pairs: fields of fingerprints; give it twice."
    ),
    k=option("--k -k K", "For pairs: also print 1 up to this distance, 0 beyond it.", min=0),
    every=option("--all", "Print all measures of the two."),
)
def compare(
    files: list[str] | None = None,
    texts: list[str] | None = None,
    fingerprints: list[str] | None = None,
    base: Base = "hex",
    recipe: fpdb.Recipe = options.WEB,
    pair_fields: list[str] | None = None,
    k: int | None = None,
    every: bool = False,
) -> None:
    """Compare two texts or fingerprints, or pairs.

    Example:
      fpdb compare essay.txt copy.txt --all

    For each pair of a file, prints its line, the distance, the similarity,
    if the recipe has one, and the percentage of equal bits.
    """
    if files and len(files) == 1 and not (texts or fingerprints):
        require(not every, "--all is of two texts")
        require(len(pair_fields or ()) in (0, 2), "give --fingerprint-field twice")
        _compare_pairs(files[0], recipe, pair_fields or (), base, k)
        return
    require(not pair_fields and k is None, "-k and --fingerprint-field are of a file of pairs")
    sides = len(files or ()) + len(texts or ())
    require(
        (sides, len(fingerprints or ())) in ((2, 0), (0, 2)),
        "give two files, texts or fingerprints",
    )
    if fingerprints:
        numbers = (fpdb.parse_fingerprint(digits, recipe.bits, base) for digits in fingerprints)
        distance = fpdb.distance(*numbers)
        entries = {"distance": f"{distance} of {recipe.bits} bits"}
        render.report(entries, {"distance": distance, "bits": recipe.bits})
        return
    # The reader of files takes long to import.
    from fpdb.io.files import read_texts

    both = [*chain.from_iterable(map(read_texts, files or ())), *(texts or ())]
    _report(recipe, both, every=every)


def _report(recipe: fpdb.Recipe, sides: Sequence[str], *, every: bool) -> None:
    comparison = fpdb.compare(*sides, recipe=recipe)
    plain = dataclasses.asdict(comparison)
    entries = {
        "distance": f"{comparison.distance} of {recipe.bits} bits",
        "equal bits": f"{comparison.percent:.2f}%",
        "angle": f"{comparison.angle:.2f} degrees, estimated",
        "cosine": f"{comparison.cosine:.4f} exact, {comparison.cosine_estimate:.4f} estimated",
        "jaccard": f"{comparison.jaccard:.4f} of the features, exact",
        "value ratio": repr(comparison.value_ratio),
        "recipe": f"{recipe.name} ({recipe.id})",
    }
    if comparison.shingle_jaccard is not None:
        estimate = f"{comparison.sketch_jaccard:.4f} ± {comparison.sketch_error:.4f} estimated"
        entries = {
            "similarity": f"{comparison.shingle_jaccard:.4f} exact, {estimate}",
            "containment": f"{comparison.containment:.4f} of the smaller text, exact",
        } | entries
    if not every:
        bits = recipe.similarity is None or comparison.shingle_jaccard is None
        likeness = "distance" if bits else "similarity"
        entries = {likeness: entries[likeness].partition(",")[0]}
    render.report(entries, plain)
    if comparison.short and not render.now.json:
        render.note("short: with so few features, only texts of the same words count as duplicates")


def _compare_pairs(
    path: str, recipe: fpdb.Recipe, fields: Sequence[str], base: Base, k: int | None
) -> None:
    """Print the measures of each pair of a file as it comes, and with a k the verdict."""
    from fpdb.io.files import read_rows

    require_k(k or 0, recipe.bits)
    reading = fpdb.Reading(text_field=("1", "2"), keyed=False)
    measure: _Measure = partial(_measure_texts, recipe)
    if fields:
        reading = fpdb.Reading(fingerprint_field=fields[0], meta_field=fields[1], keyed=False)
        measure = partial(_measure_fingerprints, recipe.bits, base, fields)
    similar, judged = not fields and recipe.similarity is not None, k is not None
    shown = {"similarity": similar, "percent": True, "duplicate": judged}
    render.columns("line", "distance", *(name for name, wanted in shown.items() if wanted))
    bad, counts = BadRecords(), Counter[str]()
    for number, row in bad.among(read_rows(path, reading)):
        try:
            distance, similarity = measure(row)
        except fpdb.InputError as error:
            bad(BadRecord(f"{path}:{number}", str(error), error.hint))
            continue
        duplicate = k is not None and distance <= k
        percent = equal_percent(1 - distance / recipe.bits)
        plain = {"line": number, "distance": distance, "similarity": similarity}
        plain |= {"percent": percent, "duplicate": duplicate}
        cells = {
            "similarity": "-" if similarity is None else f"{similarity:.4f}",
            "percent": f"{percent:.2f}",
            "duplicate": int(duplicate),
        }
        render.result(
            {name: value for name, value in plain.items() if shown.get(name, True)},
            *(number, distance),
            *(cell for name, cell in cells.items() if shown[name]),
        )
        if not render.shows_tables():
            render.deliver()
        counts.update(pairs=1, duplicates=duplicate)
    pace = render.pace(counts["pairs"], "pair")
    names = {name: counts[name] for name in ("pairs", *(["duplicates"] if judged else []))}
    render.summarise(
        None,
        f"{render.listed(names, 'duplicates')}; {pace}",
        render.counted("bad records", bad.count),
    )
    bad.settle(counts["pairs"], hint="the reasons are above; a pair is two texts or fingerprints")


def _measure_texts(recipe: fpdb.Recipe, row: Mapping[str, Any]) -> tuple[int, float | None]:
    """Return the distance of the two texts of a row, and their exact similarity."""
    texts = list(row.values())
    if len(texts) != 2 or not all(isinstance(text, str) for text in texts):
        raise fpdb.InputError(f"found {render.plural(len(texts), 'field')}, expected two texts")
    batch = recipe.batch(texts)
    if not batch.features.all():
        if len(set(recipe.digests(texts, batch.short))) > 1:
            raise fpdb.InputError("a text without features can't be compared with another one")
        return 0, None
    first, second = map(to_int, batch.fingerprints)
    if recipe.similarity is None:
        return fpdb.distance(first, second), None
    similarity, _ = exact_shares(*recipe.shingles_many(texts))
    return fpdb.distance(first, second), similarity


def _measure_fingerprints(
    bits: int, base: Base, fields: Sequence[str], row: Mapping[str, Any]
) -> tuple[int, None]:
    numbers = []
    for name in fields:
        value = row.get(name)
        if type(value) is not int and not isinstance(value, str):
            raise fpdb.InputError(f"found no fingerprint in the field {name!r}")
        notation = "signed" if isinstance(value, int) else base
        numbers.append(fpdb.parse_fingerprint(str(value), bits, notation))
    return fpdb.distance(*numbers), None
