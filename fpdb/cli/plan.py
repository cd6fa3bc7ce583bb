"""The command that plans tables: which there are for a width, a k and a number of documents."""

from typing import Annotated

import typer

from fpdb.cli import fleet, render, units
from fpdb.cli.databases import require
from fpdb.cli.options import JsonOption, Keys, KeysOption
from fpdb.cli.values import parse_count
from fpdb.errors import PlanError
from fpdb.tables import (
    Costs,
    Estimate,
    FleetPlan,
    JoinCosts,
    Plan,
    estimate,
    fleet_plan,
    plans,
)

_HEADER = (
    "",
    "tables",
    "prefix",
    "probes",
    "candidates/probe",
    "candidates",
    "bytes",
    "query",
    "insert",
)


def plan(
    bits: Annotated[
        int, typer.Option("--bits", metavar="32|64|128", help="The width of fingerprints.")
    ] = 64,
    k: Annotated[
        int, typer.Option("--k", "-k", min=0, help="The distance that counts as a match.")
    ] = 3,
    documents: Annotated[
        int,
        typer.Option(
            "--documents", "-n", metavar="N", parser=parse_count, help="How many, as 8e9 or 2**34."
        ),
    ] = 1_000_000,
    query_k: Annotated[
        int | None,
        typer.Option("--query-k", min=0, help="Say what queries with another k would cost."),
    ] = None,
    machines: Annotated[
        int | None,
        typer.Option(
            "--machines",
            metavar="N",
            parser=parse_count,
            help="Plan for so many machines: a database on each, or a join on Spark.",
        ),
    ] = None,
    cores: Annotated[
        int | None,
        typer.Option("--cores", min=1, help="The cores of each machine; default those of this."),
    ] = None,
    keys: KeysOption = None,
    queries: Annotated[
        int | None,
        typer.Option(
            "--queries",
            metavar="N",
            parser=parse_count,
            help="Plan the join of so many other documents with them, in place of all pairs.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the tables that would do, and what each choice costs; an asterisk marks the best.

    The best has the shortest time for one query and one insert; it is what create takes for
    --capacity documents. Times and bytes are estimates.

    With --machines it shows three ways instead: a database on each machine, each with its part of
    the documents; all pairs by one join on Spark; and one database of all. Memory and network of a
    machine are those of the costs: 16 GB, and a gigabit a second.

    \b
    Example:
      fpdb plan --documents 8e9
      fpdb plan --bits 64 -k 3 --documents 2**34 --query-k 5
      fpdb plan --documents 8e9 --machines 200 --cores 8
    """
    alone = {"--cores": cores, "--keys": keys, "--queries": queries}
    for name, value in alone.items():
        require(machines is not None or value is None, f"{name} goes with --machines")
    require(machines is None or query_k is None, "--query-k doesn't go with --machines")
    costs, join_costs = Costs(), JoinCosts()
    found: FleetPlan | None = None
    if machines is not None:
        found = fleet_plan(
            bits,
            k,
            documents,
            machines=machines,
            cores=cores,
            keys=Keys.TEXT.value if keys is None else keys.value,
            queries=queries,
            costs=costs,
            join_costs=join_costs,
        )
    rows = [
        (each, _estimate(each, documents, query_k, costs))
        for each in plans(bits, k, documents, costs=costs)
    ]
    if as_json:
        render.record(
            {
                "bits": bits,
                "k": k,
                "documents": documents,
                "query_k": k if query_k is None else query_k,
                "costs": costs.to_dict(),
                "join_costs": join_costs.to_dict(),
                "plans": [_plain(*row, chosen=row is rows[0]) for row in rows],
            }
            | ({} if found is None else {"fleet": fleet.plain(found)})
        )
        return
    if found is not None:
        fleet.report(found)
        return
    render.table([_HEADER, *(_cells(*row, chosen=row is rows[0]) for row in rows)])


def _estimate(plan: Plan, documents: int, k: int | None, costs: Costs) -> Estimate | None:
    try:
        return estimate(plan, documents, k, costs)
    except PlanError:
        return None


def _plain(plan: Plan, cost: Estimate | None, *, chosen: bool) -> dict[str, object]:
    found: dict[str, object] = {
        "chosen": chosen,
        "name": plan.name,
        "tables": len(plan.tables),
        "prefix": plan.prefix,
    }
    if cost is None:
        return found | {"feasible": False}
    return found | {
        "feasible": True,
        "probes": cost.probes,
        "candidates_per_probe": cost.candidates_per_probe,
        "candidates": cost.candidates,
        "bytes": cost.bytes,
        "query_seconds": cost.seconds,
        "insert_seconds": cost.insert_seconds,
    }


def _cells(plan: Plan, cost: Estimate | None, *, chosen: bool) -> tuple[str, ...]:
    first = ("*" if chosen else "", str(len(plan.tables)), str(plan.prefix))
    if cost is None:
        return (*first, *["-"] * 6)
    return (
        *first,
        f"{cost.probes:,}",
        units.number(cost.candidates_per_probe),
        units.number(cost.candidates),
        units.size(cost.bytes),
        units.time(cost.seconds),
        units.time(cost.insert_seconds),
    )
