"""Describe recipes, fingerprint texts by them, and plan databases."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import chain, islice
from math import log2
from typing import Any

import fpdb
from fpdb.cli import options, render
from fpdb.cli.inputs import BadRecords, not_utf8, records_of_files, typed
from fpdb.cli.options import argument, choose_recipe, option, parse_count, parse_similarity, takes
from fpdb.fingerprint import DESCRIPTIONS, PRESETS, WIDTHS, to_int, write_recipe
from fpdb.fingerprint.digits import Base
from fpdb.io.records import Record
from fpdb.io.streams import SUFFIXES, suffix_of
from fpdb.models import Explanation
from fpdb.tables import Estimate, Plan, estimate_cost, plans
from fpdb.threads import mapped

_LABEL = 60
_BATCH = 256
# Of an explanation: the votes in a line, and the weakest bits that are listed.
_A_LINE = 8
_WEAKEST = 8
# The recall of bands is shown at similarities that differ by these from the given one.
_AROUND = (-0.05, 0, 0.05, 0.1, 0.15)
_COSTS = ("bytes", "query", "insert")


@takes(name=argument("NAME|FILE.toml", "The recipe to show."))
def recipes(name: str | None = None) -> None:
    """List recipes, or show one as TOML.

    Example:
      fpdb recipes web > my.toml
    """
    if name is None:
        render.columns("name", "bits", "k", "similarity", "id", "description")
        for preset, each in PRESETS.items():
            plain = each.to_dict() | {"id": each.id, "description": DESCRIPTIONS[preset]}
            shown = (preset, each.bits, each.k, each.similarity or "off", each.id)
            render.result(plain, *shown, DESCRIPTIONS[preset])
        return
    recipe = choose_recipe(name)
    if render.now.json:
        render.record(recipe.to_dict() | {"id": recipe.id})
    else:
        for line in write_recipe(recipe).splitlines():
            render.row(line)


@takes(
    "base key_field text_field format encoding delimiter html",
    reading=fpdb.Reading,
    explain=option("--explain", "Print the features, their hashes and votes."),
)
def fingerprint(
    reading: fpdb.Reading,
    files: list[str] | None = None,
    texts: list[str] | None = None,
    recipe: fpdb.Recipe = options.WEB,
    explain: bool = False,
    jobs: int = 1,
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
    own: Iterator[Record] = map(_labelled, texts or ())
    records = chain(own, records_of_files(paths, bad, read)) if paths else own
    if explain:
        for place, record in enumerate(records):
            if place and not render.now.json:
                render.row("")
            _explain(recipe, record, reading.base)
    else:
        _print_fingerprints(recipe, records, reading.base, jobs)
    bad.settle(bad.good + len(texts or ()))


def _print_fingerprints(
    recipe: fpdb.Recipe, records: Iterator[Record], base: Base, jobs: int
) -> None:
    """Print the fingerprint of each text, and how many texts have none."""
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
    """Print how the features of a text vote on its fingerprint."""
    found = recipe.explain(record.text or "")
    bits, source = found.bits, record.source if record.key is None else record.key
    digits = None if found.short else fpdb.format_fingerprint(found.fingerprint, bits, base)
    weakest = found.weakest[:_WEAKEST]
    if render.now.json:
        features = [
            voter._asdict() | {"hash": fpdb.format_fingerprint(voter.hash, bits, base)}
            for voter in found.features
        ]
        shown = {"source": source, "fingerprint": digits, "short": found.short}
        render.record(shown | {"features": features, "votes": found.votes, "weakest": weakest})
        return
    render.report({"text": source, "recipe": f"{recipe.name} ({recipe.id})"})
    render.row("")
    render.row(f"weight  {'hash':{bits}}  feature")
    for feature, weight, number in found.features:
        render.row(f"{weight:6.4g}  {number:0{bits}b}  {render.as_json(feature)}")
    sign = f"{found.fingerprint:0{bits}b}"
    render.row(f"sign    {sign}")
    render.row("")
    render.row("bits    votes, the highest bit first")
    for top in range(bits - 1, -1, -_A_LINE):
        votes = (f" {_vote(found, bit):>7}" for bit in range(top, top - _A_LINE, -1))
        at = bits - 1 - top
        render.row(f"{top:3}..{top - _A_LINE + 1:<3}{''.join(votes)}  {sign[at : at + _A_LINE]}")
    nearest = ", ".join(f"{bit} ({_vote(found, bit)})" for bit in weakest)
    render.row("")
    render.report({"fingerprint": digits or "short", "weakest bits": nearest})
    if found.short:
        render.note(f"short: fewer than {recipe.grams.minimum} distinct features")


def _vote(found: Explanation, bit: int) -> str:
    """Format the votes on a bit with a sign and two decimals, and 0 without a sign."""
    vote = found.votes[bit]
    return f"{round(vote, 2):+g}" if abs(vote) >= 0.01 else f"{vote:+.1g}" if vote else "0"


def _fingerprint(recipe: fpdb.Recipe, records: Sequence[Record]) -> fpdb.models.Batch:
    return recipe.batch(record.text or "" for record in records)


def _labelled(text: str) -> Record:
    """Return a text that is given, under its beginning."""
    return Record(text if len(text) <= _LABEL else text[: _LABEL - 1] + "…", None, text)


def _reading_of(path: str, reading: fpdb.Reading) -> fpdb.Reading:
    """Return how a file is read: standard input, and one without a known suffix, are a text."""
    known = suffix_of(path) in SUFFIXES or os.path.isdir(path)
    form = reading.format or (None if known else "text")
    return replace(reading, keyed=False, format=form)


@takes(
    bits=option("--bits 32|64|128", "The width of fingerprints.", rare=True),
    k=option("--k -k K", "The largest distance.", min=0),
    documents=option(
        "--documents -n N", "How many documents, e.g. 8e9 or 2**34.", parser=parse_count
    ),
    similarity=option(
        "--similarity J", "Plan for texts; shows the recall.", parser=parse_similarity
    ),
)
def plan(
    bits: int = 64,
    k: int = 3,
    documents: int = 1_000_000,
    similarity: float | None = None,
) -> None:
    """Show table plans and what they cost.

    Example:
      fpdb plan --bits 64 -k 3 --documents 8e9

    An asterisk marks the plan that fpdb create takes. Times and bytes are
    estimates.
    """
    asked = {"bits": bits, "k": k, "documents": documents}
    listed = plans(bits, k, documents, similarity=similarity)
    if similarity is not None:
        del listed[1:]  # the bands are the same with other tables
    found = [(each, estimate_cost(each, documents)) for each in listed]
    facts, plain = _facts(*found[0], documents, k, similarity)
    if render.now.json:
        rows = [{"chosen": not place} | _plain(*each) for place, each in enumerate(found)]
        render.record(asked | plain | {"plans": rows})
        return
    lines = []
    for place, (each, cost) in enumerate(found):
        counts = ("" if place else "*", f"{len(each.tables)}", f"{each.prefix}", f"{cost.probes:,}")
        candidates = render.number(cost.candidates_per_probe), render.number(cost.candidates)
        lines.append((*counts, *candidates, *_costs(cost)))
    names = ("", "tables", "prefix", "probes", "candidates/probe", "candidates")
    render.table((*names, *_COSTS), lines)
    render.row("")
    render.report({"documents": f"{documents:,}, 2**{log2(documents):.3g}"} | facts)


def _facts(
    plan: Plan, cost: Estimate, documents: int, k: int, similarity: float | None
) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the matches by chance, and the recall of bands, in words and as plain data."""
    if plan.bands is None or similarity is None:
        chance = fpdb.chance_matches(plan.bits, k, documents)
        false = f"{render.number(chance)} a query by chance, if fingerprints were random"
        if chance >= options.MANY_BY_CHANCE and plan.bits < max(WIDTHS):
            fewer = render.number(fpdb.chance_matches(2 * plan.bits, k, documents))
            false += f"; with {2 * plan.bits} bits {fewer}"
        return {"false matches": false}, {"chance_matches": chance}
    from fpdb.dedupe.run import SIZE, estimate_work  # it takes long to import

    shown = (round(max(0, min(similarity + apart, 1)), 2) for apart in _AROUND)
    recall = {f"{each:.2f}": round(plan.bands.recall(each), 4) for each in shown}
    chance, work = plan.bands.chance(documents), estimate_work(documents)
    total = cost.bytes + cost.key_bytes
    facts = {
        "bands": plan.bands.name,
        "recall": ", ".join(f"{share:.1%} at {each}" for each, share in recall.items()),
        "false matches": f"{render.number(chance)} a query by chance, compared by sketches",
        "size": f"{total / documents:.0f} B a document with a text key, {render.size(total)}",
        "dedupe": f"{render.duration(round(work.seconds))} on {work.jobs} processors for texts of "
        f"{SIZE} B, {render.size(work.bytes)} of memory, or of the disk",
    }
    plain = {"bands": asdict(plan.bands), "recall": recall, "chance_candidates": chance}
    plain["dedupe"] = work._asdict()
    return facts, plain | {"similarity": similarity}


def _plain(plan: Plan, cost: Estimate) -> dict[str, object]:
    return {"name": plan.name, "tables": len(plan.tables), "prefix": plan.prefix} | asdict(cost)


def _costs(cost: Estimate) -> tuple[str, ...]:
    seconds = cost.similar_seconds or cost.seconds
    return render.size(cost.bytes), render.duration(seconds), render.duration(cost.insert_seconds)
