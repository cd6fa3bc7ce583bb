"""The command `plan`: the tables and bands for a width, a k, a similarity and N documents."""

from dataclasses import asdict
from math import log2
from typing import Any

from fpdb.cli import render
from fpdb.cli.options import option, parse_count, parse_similarity, takes
from fpdb.dedupe.run import SIZE, estimate_work
from fpdb.fingerprint import WIDTHS
from fpdb.tables import Estimate, Plan, chance_matches, estimate_cost, plans

# With this number of false matches a query or more, another width is better.
MANY = 0.1
# The recall of bands is shown at similarities that differ by these from the given one.
_AROUND = (-0.05, 0, 0.05, 0.1, 0.15)
_COSTS = ("bytes", "query", "insert")


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
        chance = chance_matches(plan.bits, k, documents)
        false = f"{render.number(chance)} a query by chance, if fingerprints were random"
        if chance >= MANY and plan.bits < max(WIDTHS):
            fewer = render.number(chance_matches(2 * plan.bits, k, documents))
            false += f"; with {2 * plan.bits} bits {fewer}"
        return {"false matches": false}, {"chance_matches": chance}
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
