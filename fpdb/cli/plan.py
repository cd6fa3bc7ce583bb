"""The command `plan`: the tables and bands for a width, a k, a similarity and N documents."""

from dataclasses import asdict
from math import log2
from typing import Annotated

from fpdb.cli import options, render
from fpdb.cli.options import option, parse_count, require
from fpdb.errors import PlanError
from fpdb.fingerprint import WIDTHS
from fpdb.storage.open_checks import LARGEST_MAP
from fpdb.tables import Estimate, Plan, chance_matches, estimate_cost, join_plans, plans

_CORES = 8
# With this number of false matches a query or more, another width is better.
MANY = 0.1
# The recall of bands is shown at similarities that differ by these from the given one.
_AROUND = (-0.05, 0, 0.05, 0.1, 0.15)
_TIMES = ("query", "insert")
_JOIN_FIELDS = ("name", "prefix", "rows", "shuffle_bytes", "candidates", "tasks", "seconds")


def plan(
    bits: options.BitsOption = 64,
    k: Annotated[int, option("--k -k K", "The largest distance.", min=0)] = 3,
    documents: Annotated[
        int,
        option("--documents -n N", "How many documents, e.g. 8e9 or 2**34.", parser=parse_count),
    ] = 1_000_000,
    machines: Annotated[
        int | None,
        option(
            "--machines N", "Compare ways for N machines of 8 cores, 16 GB.", parser=parse_count
        ),
    ] = None,
    similarity: Annotated[
        float | None,
        option("--similarity J", "Plan for texts; shows the recall.", min=0.0, max=1.0),
    ] = None,
) -> None:
    """Show table plans and what they cost.

    Example:
      fpdb plan --bits 64 -k 3 --documents 8e9

    An asterisk marks the plan that fpdb create takes. Times and bytes are
    estimates.
    """
    require(similarity is None or machines is None, "--similarity goes without --machines")
    asked = {"bits": bits, "k": k, "documents": documents}
    if similarity is not None:
        _show_bands(asked, similarity)
    elif machines is not None:
        _compare_ways(asked, machines)
    else:
        _list_plans(asked)


def _list_plans(asked: dict[str, int]) -> None:
    bits, k, documents = asked.values()
    found = [(each, estimate_cost(each, documents)) for each in plans(bits, k, documents)]
    chance = chance_matches(bits, k, documents)
    if render.now.json:
        listed = [{"chosen": not place} | _plain(*each) for place, each in enumerate(found)]
        render.record(asked | {"chance_matches": chance, "plans": listed})
        return
    names = ("", "tables", "prefix", "probes", "candidates/probe", "candidates", "bytes")
    rows: list[tuple[str, ...]] = [(*names, *_TIMES)]
    for place, (each, cost) in enumerate(found):
        counts = (f"{len(each.tables):,}", f"{each.prefix}", f"{cost.probes:,}")
        candidates = (_number(cost.candidates_per_probe), _number(cost.candidates))
        rows.append(("" if place else "*", *counts, *candidates, *_bytes_and_times(cost)))
    render.table(rows)
    false = f"{_number(chance)} a query by chance, if fingerprints were random"
    if chance >= MANY and bits < max(WIDTHS):
        false += f"; with {2 * bits} bits {_number(chance_matches(2 * bits, k, documents))}"
    render.row("")
    render.report({"documents": f"{documents:,}, 2**{log2(documents):.3g}", "false matches": false})


def _show_bands(asked: dict[str, int], similarity: float) -> None:
    """Print the plan for texts of a similarity, its cost, and the shares that its bands find."""
    bits, k, documents = asked.values()
    chosen = plans(bits, k, documents, similarity=similarity)[0]
    cost, bands = estimate_cost(chosen, documents), chosen.bands
    if bands is None:
        raise PlanError("the plan has no bands", hint="give a similarity above 0")
    shown = (round(max(0, min(similarity + apart, 1)), 2) for apart in _AROUND)
    recall = {f"{each:.2f}": round(bands.recall(each), 4) for each in shown}
    chance = bands.chance(documents)
    plain = {"bands": asdict(bands), "recall": recall, "chance_candidates": chance}
    total = cost.bytes + cost.key_bytes
    entries = {
        "plan": chosen.name,
        "recall": ", ".join(f"{share:.1%} at {each}" for each, share in recall.items()),
        "candidates": f"{_number(chance)} unrelated documents a query",
        "bytes": f"{total / documents:.0f} a document with a text key, {render.size(total)} in all",
        "query": _time(cost.similar_seconds or 0.0),
        "insert": _time(cost.insert_seconds),
    }
    render.report(entries, asked | {"similarity": similarity} | plain | _plain(chosen, cost))


def _compare_ways(asked: dict[str, int], machines: int) -> None:
    """Print the cost of a database on each machine, of a join, and of one database of all."""
    bits, k, documents = asked.values()
    part = -(-documents // machines)
    each, whole = (plans(bits, k, count)[0] for count in (part, documents))
    costs = estimate_cost(each, part), estimate_cost(whole, documents)
    join = join_plans(bits, k, documents, machines=machines, cores=_CORES)[0]
    if render.now.json:
        ways = {
            "each": {"documents": part} | _plain(each, costs[0]),
            "join": {name: getattr(join, name) for name in _JOIN_FIELDS},
            "whole": _plain(whole, costs[1]),
        }
        render.record(asked | {"machines": machines, "cores": _CORES} | ways)
        return
    rows: list[tuple[str, ...]] = [("way", "plan", "documents", "bytes", *_TIMES, "all")]
    for way, chosen, count, cost in (
        ("each machine", each, part, costs[0]),
        ("one machine", whole, documents, costs[1]),
    ):
        work = (*_bytes_and_times(cost), _time(cost.load_seconds))
        rows.append((way, chosen.name, f"{count:,}", *work))
    shuffle = render.size(join.shuffle_bytes)
    work = ("a join", join.name, f"{documents:,}", shuffle, "-", "-")
    render.table([*rows, (*work, _time(join.seconds))])
    if costs[1].bytes + costs[1].key_bytes > LARGEST_MAP:
        render.note(f"a database has at most {render.size(LARGEST_MAP)}")


def _plain(plan: Plan, cost: Estimate) -> dict[str, object]:
    return {"name": plan.name, "tables": len(plan.tables), "prefix": plan.prefix} | asdict(cost)


def _bytes_and_times(cost: Estimate) -> tuple[str, ...]:
    return render.size(cost.bytes), _time(cost.seconds), _time(cost.insert_seconds)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _time(seconds: float) -> str:
    """Write a time; from two minutes on, in the largest unit of which it has two."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{_number(seconds / length)} {unit}"
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e6:.3g} µs" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms"
