"""The command that plans tables: which there are for a width, a k and a number of documents."""

from typing import Annotated

import typer

from fpdb.cli import render
from fpdb.cli.options import JsonOption
from fpdb.cli.values import duration, parse_count, size
from fpdb.errors import PlanError
from fpdb.tables import Costs, Estimate, Plan, estimate, plans

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
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate", help="Measure what work costs on this machine first."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the tables that would do, and what each choice costs; an asterisk marks the best.

    The best has the shortest time for one query and one insert; it is what create takes for
    --capacity documents. Times and bytes are estimates. --calibrate takes some seconds and uses
    the directory for temporary files.

    \b
    Example:
      fpdb plan --documents 8e9
      fpdb plan --bits 64 -k 3 --documents 2**34 --query-k 5
    """
    costs = _measured() if calibrate else Costs()
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
                "plans": [_plain(*row, chosen=row is rows[0]) for row in rows],
            }
        )
        return
    if calibrate:
        render.report({name: f"{cost:.3g}" for name, cost in costs.to_dict().items()})
        render.block("\n")
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
        _number(cost.candidates_per_probe),
        _number(cost.candidates),
        size(cost.bytes),
        duration(cost.seconds),
        duration(cost.insert_seconds),
    )


def _number(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.2g}"


def _measured() -> Costs:
    from fpdb.corpus.calibrate import calibrate

    return calibrate()
