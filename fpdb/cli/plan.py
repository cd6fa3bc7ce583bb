"""The command `plan`: the tables and bands for a width, a k, a similarity and N documents."""

from dataclasses import asdict
from math import log2
from typing import Annotated

from fpdb.cli import options, render
from fpdb.cli.options import option, parse_count, require
from fpdb.errors import PlanError
from fpdb.fingerprint import WIDTHS
from fpdb.storage.open_checks import LARGEST_MAP
from fpdb.tables import Estimate, JoinPlan, Plan, chance_matches, estimate_cost, join_plans, plans

_CORES = 8
# With this number of false matches a query or more, another width is better.
MANY = 0.1
# The recall of bands is shown at similarities that differ by these from the given one.
_AROUND = (-0.05, 0, 0.05, 0.1, 0.15)
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
    asked = {"bits": bits, "k": k, "documents": documents}
    if similarity is not None:
        require(machines is None, "--similarity goes with -k, --bits and -n only")
        _show_bands(asked, similarity)
        return
    if machines is not None:
        _compare_ways(asked, machines)
        return
    found = plans(bits, k, documents)
    costs = {each: estimate_cost(each, documents) for each in found}
    chance = chance_matches(bits, k, documents)
    if render.wants_json():
        listed = [{"chosen": each is found[0]} | _plain(each, costs[each]) for each in costs]
        render.record(asked | {"chance_matches": chance, "plans": listed})
        return
    header = ("", "tables", "prefix", "probes", "candidates/probe", "candidates")
    rows = [
        ("*" if each is found[0] else "", *_cells(len(each.tables), each.prefix, costs[each]))
        for each in costs
    ]
    render.table([(*header, "bytes", "query", "insert"), *rows])
    false = f"{_number(chance)} a query by chance, if fingerprints were random"
    if chance >= MANY and bits < max(WIDTHS):
        false += f"; with {2 * bits} bits {_number(chance_matches(2 * bits, k, documents))}"
    render.row("")
    render.report({"documents": f"{documents:,}, 2**{log2(documents):.3g}", "false matches": false})


def _show_bands(asked: dict[str, int], similarity: float) -> None:
    """Print the plan for texts with a similarity, which shares its bands find, and its cost."""
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
    render.report(
        {
            "plan": chosen.name,
            "recall": ", ".join(f"{share:.1%} at {each}" for each, share in recall.items()),
            "candidates": f"{_number(chance)} unrelated documents a query",
            "bytes": f"{total / documents:.0f} a document with a text key, "
            f"{render.size(total)} in all",
            "query": _time(cost.similar_seconds or 0.0),
            "insert": _time(cost.insert_seconds),
        },
        asked | {"similarity": similarity} | plain | _plain(chosen, cost),
    )


def _compare_ways(asked: dict[str, int], machines: int) -> None:
    """Print what a database on each machine, a join and one database of all would take."""
    bits, k, documents = asked.values()
    part = -(-documents // machines)
    each, whole = (plans(bits, k, count)[0] for count in (part, documents))
    each_cost, whole_cost = estimate_cost(each, part), estimate_cost(whole, documents)
    join = join_plans(bits, k, documents, machines=machines, cores=_CORES)[0]
    if render.wants_json():
        ways = {
            "each": {"documents": part} | _plain(each, each_cost),
            "join": {name: getattr(join, name) for name in _JOIN_FIELDS},
            "whole": _plain(whole, whole_cost),
        }
        render.record(asked | {"machines": machines, "cores": _CORES} | ways)
        return
    render.block("A database on each machine; a query goes to all of them")
    render.report({"  documents": f"{part:,} on each"} | _lines(each, each_cost))
    render.block("\nAll pairs, by a join on Spark")
    render.report(_join_lines(join))
    render.block("\nOne database of all, on one machine")
    render.report(_lines(whole, whole_cost))


def _plain(plan: Plan, cost: Estimate) -> dict[str, object]:
    return {"name": plan.name, "tables": len(plan.tables), "prefix": plan.prefix} | asdict(cost)


def _cells(tables: int, prefix: int, cost: Estimate) -> tuple[str, ...]:
    return (
        f"{tables:,}",
        str(prefix),
        f"{cost.probes:,}",
        _number(cost.candidates_per_probe),
        _number(cost.candidates),
        render.size(cost.bytes),
        _time(cost.seconds),
        _time(cost.insert_seconds),
    )


def _lines(plan: Plan, cost: Estimate) -> dict[str, str]:
    total = cost.bytes + cost.key_bytes
    too_large = (
        f"; a database has at most {render.size(LARGEST_MAP)}" if total > LARGEST_MAP else ""
    )
    return {
        "  plan": plan.name,
        "  bytes": f"{render.size(cost.bytes)}, with text keys {render.size(total)}{too_large}",
        "  in memory": f"{cost.memory_share:.0%} of the tables",
        "  query": _time(cost.seconds),
        "  insert": _time(cost.insert_seconds),
        "  bulk load": _time(cost.load_seconds),
    }


def _join_lines(join: JoinPlan) -> dict[str, str]:
    share = render.size(join.shuffle_bytes / join.machines)
    parts = f"{_time(join.work_seconds)} work, {_time(join.network_seconds)} network"
    return {
        "  plan": join.name,
        "  rows": f"{join.rows:,} in {join.tasks:,} tasks",
        "  candidates": f"{join.candidates:,}",
        "  shuffle": f"{render.size(join.shuffle_bytes)}, {share} a machine",
        "  time": f"{_time(join.seconds)}: {parts}",
    }


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
