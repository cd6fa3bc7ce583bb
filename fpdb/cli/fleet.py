"""How a plan for several machines is shown: as lines for people, and as plain data."""

from typing import Any

import fpdb
from fpdb.cli import render, units
from fpdb.storage.opening import LARGEST_MAP


def report(plan: fpdb.FleetPlan) -> None:
    """Print the three ways, one below the other."""
    each, join, whole = plan.each, plan.join, plan.whole
    cost = each.estimate
    queries = join.queries or 1_000_000
    cores = "1 core" if plan.cores == 1 else f"{plan.cores} cores each"
    machines = "1 machine" if plan.machines == 1 else f"{plan.machines:,} machines"
    sections = {
        f"A database on each of {machines}, {cores}; a query asks them all": {
            "documents": f"{each.documents:,} on each",
            "plan": each.plan.name,
            "bytes": _room(each) + f" on each, {units.size(plan.file_bytes)} in all",
            "query": f"{units.time(cost.seconds)}; {queries:,} take "
            f"{units.time(queries * plan.seconds_per_query)} on all cores",
            "insert": units.time(cost.insert_seconds),
        },
        _joined(join): {
            "plan": join.name,
            "rows": f"{join.rows:,} in {join.tasks:,} tasks",
            "candidates": f"{join.candidates:,}",
            "shuffle": f"{units.size(join.shuffle_bytes)}, "
            f"{units.size(join.shuffle_bytes / plan.machines)} a machine",
            "work": f"{units.number(join.core_seconds / 3600)} core-hours",
            "time": _spent(join),
        },
        "One database of all, on one machine": {
            "plan": whole.plan.name,
            "bytes": _room(whole),
            "in memory": f"{whole.memory_share:.0%} of its tables, "
            f"with {units.size(whole.costs.bytes_of_memory)}",
            "query": units.time(whole.estimate.seconds),
        }
        | _made(whole),
    }
    for number, (title, entries) in enumerate(sections.items()):
        if number:
            render.block("\n")
        render.block(title)
        render.report({f"  {name}": value for name, value in entries.items()})


def _room(plan: fpdb.DatabasePlan) -> str:
    tables = units.size(plan.estimate.bytes)
    return (
        tables if plan.keys == "integer" else f"{tables}, with keys {units.size(plan.file_bytes)}"
    )


def _joined(join: fpdb.JoinPlan) -> str:
    if join.queries is None:
        return "All pairs, by a join on Spark"
    return f"The matches of {join.queries:,} queries, by a join on Spark"


def _spent(join: fpdb.JoinPlan) -> str:
    parts = [
        f"{units.time(join.costs.start_seconds)} start",
        f"{units.time(join.work_seconds)} work",
    ]
    if join.machines > 1:
        rate = units.size(join.costs.bytes_per_second_per_machine)
        parts.append(f"{units.time(join.network_seconds)} network at {rate}/s")
    return f"{units.time(join.seconds)}: {', '.join(parts)}"


def _made(plan: fpdb.DatabasePlan) -> dict[str, str]:
    if not plan.fits:
        return {"too large": f"a database has at most {units.size(LARGEST_MAP)}"}
    return {
        "load": f"{units.time(plan.load_seconds)}, from sorted columns",
        "merge": f"{units.time(plan.merge_seconds)}, with the check",
    }


def plain(plan: fpdb.FleetPlan) -> dict[str, Any]:
    """Give all numbers of a plan."""
    join = plan.join
    return {
        "machines": plan.machines,
        "cores": plan.cores,
        "keys": plan.each.keys,
        "each": _database(plan.each),
        "bytes": plan.file_bytes,
        "seconds_per_query": plan.seconds_per_query,
        "join": {
            "name": join.name,
            "tables": len(join.masks),
            "prefix": join.prefix,
            "queries": join.queries,
            "rows": join.rows,
            "candidates": join.candidates,
            "tasks": join.tasks,
            "shuffle_bytes": join.shuffle_bytes,
            "shuffle_bytes_per_machine": join.shuffle_bytes / plan.machines,
            "core_seconds": join.core_seconds,
            "work_seconds": join.work_seconds,
            "network_seconds": join.network_seconds,
            "seconds": join.seconds,
        },
        "whole": _database(plan.whole),
    }


def _database(plan: fpdb.DatabasePlan) -> dict[str, Any]:
    cost = plan.estimate
    return {
        "name": plan.plan.name,
        "documents": plan.documents,
        "tables": cost.tables,
        "prefix": cost.prefix,
        "table_bytes": cost.bytes,
        "bytes": plan.file_bytes,
        "fits": plan.fits,
        "memory_share": plan.memory_share,
        "query_seconds": cost.seconds,
        "insert_seconds": cost.insert_seconds,
        "load_seconds": plan.load_seconds,
        "merge_seconds": plan.merge_seconds,
    }
