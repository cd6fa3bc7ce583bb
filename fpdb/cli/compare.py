"""Compare texts: two, many pairs, or a file of texts with one; or two fingerprints."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import fpdb
from fpdb.cli import options, render
from fpdb.cli.inputs import BadRecords
from fpdb.cli.options import argument, option, require, takes
from fpdb.errors import InputError
from fpdb.fingerprint.digits import Base
from fpdb.io.files import meter_of
from fpdb.io.records import BadRecord
from fpdb.io.streams import read_lines, read_text
from fpdb.models import Comparison

_COLUMNS = ("distance", "equal bits", "cosine", "jaccard", "verdict")
# What a terminal shows of the first text.
_FIRST = 20


@takes(
    files=argument("FILE", "Two files, or one to --rank."),
    pairs=option("--pairs FILE", "Compare the two texts of each line, a tab between."),
    rank=option("--rank FILE", "Rank the lines of a file by similarity."),
    k=option("--k -k K", "Print whether the distance is up to K.", min=0),
    every=option("--all", "Print all measures of the two."),
    show=option("--show", "Print what is in both, and how much of each."),
)
def compare(
    files: list[str] | None = None,
    texts: list[str] | None = None,
    fingerprints: list[str] | None = None,
    base: Base = "hex",
    pairs: str | None = None,
    rank: str | None = None,
    recipe: fpdb.Recipe = options.WEB,
    k: int | None = None,
    every: bool = False,
    show: bool = False,
) -> None:
    """Compare two files, texts or fingerprints.

    Example:
      fpdb compare essay.txt copy.txt --show
    """
    given = [*(files or ()), *(texts or ())]
    require(
        not (pairs and rank)
        and (len(given), len(fingerprints or ()))
        in ({(0, 0)} if pairs else {(1, 0)} if rank else {(2, 0), (0, 2)}),
        "give two files, texts or fingerprints, or --pairs FILE, or one and --rank FILE",
    )
    require(not (show and (pairs or rank or fingerprints)), "--show prints what two texts share")
    if fingerprints:
        numbers = (fpdb.parse_fingerprint(each, recipe.bits, base) for each in fingerprints)
        distance = fpdb.distance(*numbers)
        near = {} if k is None else {"verdict": "duplicate" if distance <= k else "different"}
        entries = {"distance": f"{distance} of {recipe.bits} bits"} | near
        render.report(entries, {"distance": distance, "bits": recipe.bits} | near)
        return
    sides = [read_text(path) for path in files or ()] + (texts or [])
    if pairs or rank:
        _compare_lines(recipe, pairs or rank or "", sides, k)
    else:
        _report(recipe, sides, k, every=every, show=show)


def _compare_lines(recipe: fpdb.Recipe, path: str, sides: Sequence[str], k: int | None) -> None:
    """Print how near the two texts of each line are; or rank the lines by one text, if given."""
    bad = BadRecords()
    compared: Iterable[tuple[int, Comparison, str, str]] = _compared(recipe, path, sides, bad)
    if sides:
        recipe.batch(sides)  # without it, a bad text would make every line a bad one
        compared = sorted(compared, key=lambda entry: (entry[1].distance, -entry[1].jaccard))
    render.columns(*_COLUMNS, title="text")
    for line, found, left, right in compared:
        bad.good += 1
        verdict = _verdict(found, k)
        exact = f"{found.cosine:.4f}", f"{found.jaccard:.4f}"
        cells = (found.distance, f"{found.percent:.2f}", *exact, verdict or "-")
        first = "" if sides else f"{render.shortened(left, _FIRST)} | "
        render.result(
            dataclasses.asdict(found) | {"verdict": verdict, "line": line, "a": left, "b": right},
            *(cells if render.shows_tables() else (*cells, left, right)),
            title=partial(str, first + right),
        )
    render.summarise(None, render.counted("bad pairs", bad.count))
    bad.settle(hint="the reasons are above")


def _compared(
    recipe: fpdb.Recipe, path: str, sides: Sequence[str], bad: BadRecords
) -> Iterator[tuple[int, Comparison, str, str]]:
    """Yield the numbers of lines, since bad ones are left out, and their texts compared."""
    for number, line in enumerate(read_lines(path, progress=meter_of("compare", [path]).add), 1):
        texts = [sides[0], line] if sides else line.split("\t")
        wrong = f"found {len(texts) - 1} tabs, expected one between two texts"
        try:
            if len(texts) == 2:
                yield number, fpdb.compare(recipe, *texts), texts[0], texts[1]
                continue
        except InputError as error:
            wrong = str(error)
        bad(BadRecord(f"{path}:{number}", wrong))


def _verdict(found: Comparison, k: int | None) -> str | None:
    if k is None:
        return None
    if found.short:
        return "duplicate" if found.equal else "short"
    return "duplicate" if found.distance <= k else "different"


def _report(
    recipe: fpdb.Recipe, sides: Sequence[str], k: int | None, *, every: bool, show: bool
) -> None:
    """Print how similar two texts are, and with `show` the parts that they share."""
    found = fpdb.compare(recipe, *sides)
    verdict = _verdict(found, k)
    plain = dataclasses.asdict(found) | {"verdict": verdict}
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
        bits = recipe.similarity is None or k is not None or found.shingle_jaccard is None
        likeness = "distance" if bits else "similarity"
        entries = {likeness: entries[likeness]}
    if verdict:
        entries["verdict"] = verdict
    if show:
        shared = fpdb.overlap(recipe, *sides)
        plain |= {"share": shared.share, "other_share": shared.other_share}
        plain["passages"] = [
            passage._asdict() | {"text": shared.text[passage.start : passage.end]}
            for passage in shared.passages
        ]
        for name, share in (("first", shared.share), ("second", shared.other_share)):
            if share is not None:
                entries[f"{name} text"] = f"{share:.4f} of its shingles are in the other, exact"
    render.report(entries, plain)
    if render.now.json:
        return
    if show and shared.passages:
        render.columns("words", "first", "second", "passage")
        for words, start, end, other_start, other_end in shared.passages:
            passage = " ".join(shared.text[start:end].split())
            render.row(words, f"{start}-{end}", f"{other_start}-{other_end}", passage)
    elif show:
        render.note("the texts share no passage")
    if found.short:
        render.note("short: a text has too few features, so only equal texts count as duplicates")
