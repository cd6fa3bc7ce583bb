"""Describe recipes, and fingerprint texts by them."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice

import fpdb
from fpdb.cli import options, render
from fpdb.cli.inputs import BadRecords, not_utf8, records_of_files, typed
from fpdb.cli.options import argument, choose_recipe, option, takes
from fpdb.fingerprint import DESCRIPTIONS, PRESETS, to_int, write_recipe
from fpdb.fingerprint.digits import Base
from fpdb.io.records import Record
from fpdb.io.streams import CURES, SUFFIXES, suffix_of
from fpdb.models import Explanation
from fpdb.threads import mapped

_LABEL = 60
_BATCH = 256
# Of an explanation: the votes in a line, and the weakest bits that are listed.
_A_LINE = 8
_WEAKEST = 8


@takes(name=argument("NAME|FILE.toml", "The recipe to show."))
def recipes(name: str | None = None) -> None:
    """List recipes, or show one as TOML.

    Example:
      fpdb recipes web > my.toml
    """
    if name is None:
        render.columns("name", "bits", "k", "similarity", "id", "description")
        for preset, recipe in PRESETS.items():
            plain = recipe.to_dict() | {"id": recipe.id, "description": DESCRIPTIONS[preset]}
            shown = (preset, recipe.bits, recipe.k, recipe.similarity or "off", recipe.id)
            render.result(plain, *shown, DESCRIPTIONS[preset])
        return
    recipe = choose_recipe(name)
    if render.now.json:
        render.record(recipe.to_dict() | {"id": recipe.id})
    else:
        for line in write_recipe(recipe).splitlines():
            render.row(line)


@takes(
    "base key_field text_field format encoding html",
    reading=fpdb.Reading,
    explain=option("--explain", "Print the features, their hashes and votes."),
)
def fingerprint(
    reading: fpdb.Reading,
    files: list[str] | None = None,
    texts: list[str] | None = None,
    recipe: fpdb.Recipe = options.WEB,
    explain: bool = False,
    jobs: int = 0,
) -> None:
    """Fingerprint files and texts.

    Example:
      fpdb fingerprint titles.txt --format lines --recipe char-4

    Prints a fingerprint, or the word short, and where the text came from.
    """
    bad = BadRecords()
    paths = files or ([] if texts else ["-"])
    reading = typed(paths, reading)
    read = partial(_reading_of, reading=reading)
    # Texts that are given go under their beginnings.
    labels = (text if len(text) <= _LABEL else text[: _LABEL - 1] + "…" for text in texts or ())
    labelled = (Record(label, None, text) for label, text in zip(labels, texts or (), strict=True))
    records = chain(labelled, records_of_files(paths, bad, read)) if paths else labelled
    if explain:
        for place, record in enumerate(records):
            if place and not render.now.json:
                render.row("")
            _explain(recipe, record, reading.base)
    else:
        # A text, or what comes through a pipe, would wait for threads, and for more of it.
        jobs = jobs or int(not paths or "-" in paths)
        _print_fingerprints(recipe, records, reading.base, jobs)
    bad.settle(bad.good + len(texts or ()))


def _print_fingerprints(
    recipe: fpdb.Recipe, records: Iterator[Record], base: Base, jobs: int
) -> None:
    render.columns("fingerprint", "source")
    blocks = iter(lambda: list(islice(records, _BATCH)), [])
    shorts = replaced = read = 0
    work = partial(_fingerprint, recipe)
    for block, batch in mapped(work, blocks, jobs):
        read += len(block)
        rows = zip(block, batch.fingerprints, batch.short, batch.features, strict=True)
        for record, words, short, features in rows:
            shorts += bool(short)
            replaced += record.replaced
            digits = fpdb.format_fingerprint(to_int(words), recipe.bits, base)
            # In JSON, numbers are numbers.
            number = int(digits) if base in ("decimal", "signed") else digits
            source = record.source if record.key is None else record.key
            plain = {"source": source, "fingerprint": None if short else number}
            plain |= {"features": int(features), "short": bool(short)}
            render.result(plain, "short" if short else number, source)
    least = f" (fewer than {recipe.grams.minimum} distinct features)" if shorts else ""
    few = render.counted("short texts", shorts) + least
    render.summarise(None, few, not_utf8(replaced, read))


def _explain(recipe: fpdb.Recipe, record: Record, base: Base) -> None:
    explanation = recipe.explain(record.text or "")
    bits, source = explanation.bits, record.source if record.key is None else record.key
    digits = (
        None if explanation.short else fpdb.format_fingerprint(explanation.fingerprint, bits, base)
    )
    weakest = explanation.weakest[:_WEAKEST]
    if render.now.json:
        features = [
            voter._asdict() | {"hash": fpdb.format_fingerprint(voter.hash, bits, base)}
            for voter in explanation.features
        ]
        shown = {"source": source, "fingerprint": digits, "short": explanation.short}
        render.record(
            shown | {"features": features, "votes": explanation.votes, "weakest": weakest}
        )
        return
    render.report({"text": source, "recipe": f"{recipe.name} ({recipe.id})"})
    render.row("")
    render.row(f"weight  {'hash':{bits}}  feature")
    for feature, weight, number in explanation.features:
        render.row(f"{weight:6.4g}  {number:0{bits}b}  {render.as_json(feature)}")
    sign = f"{explanation.fingerprint:0{bits}b}"
    render.row(f"sign    {sign}")
    render.row("")
    render.row("bits    votes, the highest bit first")
    for top in range(bits - 1, -1, -_A_LINE):
        votes = (f" {_vote(explanation, bit):>7}" for bit in range(top, top - _A_LINE, -1))
        at = bits - 1 - top
        render.row(f"{top:3}..{top - _A_LINE + 1:<3}{''.join(votes)}  {sign[at : at + _A_LINE]}")
    nearest = ", ".join(f"{bit} ({_vote(explanation, bit)})" for bit in weakest)
    render.row("")
    render.report({"fingerprint": digits or "short", "weakest bits": nearest})
    if explanation.short:
        render.note(f"short: fewer than {recipe.grams.minimum} distinct features")


def _vote(explanation: Explanation, bit: int) -> str:
    """Format the votes on a bit with a sign and two decimals, and 0 without a sign."""
    vote = explanation.votes[bit]
    return f"{round(vote, 2):+g}" if abs(vote) >= 0.01 else f"{vote:+.1g}" if vote else "0"


def _fingerprint(recipe: fpdb.Recipe, records: Sequence[Record]) -> fpdb.models.Batch:
    return recipe.batch(record.text or "" for record in records)


def _reading_of(path: str, reading: fpdb.Reading) -> fpdb.Reading:
    """Return how a file is read: standard input, and one without a known suffix, are a text."""
    known = suffix_of(path) in {*SUFFIXES, *CURES} or os.path.isdir(path)
    form = reading.format or (None if known else "text")
    return replace(reading, keyed=False, format=form)
