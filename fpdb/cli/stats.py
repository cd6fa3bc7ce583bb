"""Print what a database holds."""

import dataclasses
import shlex

import fpdb
from fpdb.cli import render
from fpdb.cli.options import DatabaseArgument, JsonOption, open_readonly
from fpdb.cli.output import format_time


def stats(path: DatabaseArgument, as_json: JsonOption = False) -> None:
    """Show counts, sizes and how it was created.

    Example:
      fpdb stats crawl.fpdb
    """
    with open_readonly(path) as database:
        found = database.stats()
    each = found.bytes_used / found.documents if found.documents else None
    if as_json:
        render.record(
            dataclasses.asdict(found)
            | {"created": format_time(found.created), "bytes_per_document": each and round(each, 2)}
        )
        return
    entries: dict[str, object] = {
        "path": found.path,
        "uuid": found.uuid,
        "created": format_time(found.created),
        "recipe": f"{found.recipe} ({found.recipe_id})",
        "bits": found.bits,
        "k": found.k,
        "keys": found.keys,
        "plan": found.plan,
        "capacity": f"{found.capacity:,}",
        "documents": f"{found.documents:,}",
        "short": f"{found.short:,}",
        **({} if found.sketch is None else {"sketches": f"{found.sketches:,} {found.sketch}"}),
        "bytes": f"{found.bytes:,}",
        "bytes used": f"{found.bytes_used:,}",
        "bytes per document": "-" if each is None else f"{each:,.1f}",
        "open snapshots": _describe(found.snapshots),
    }
    for table in found.tables:
        entries[table.name] = f"prefix {table.prefix}, {table.pages:,} pages"
    if found.outgrown:
        entries |= _advise(found, found.outgrown)
    render.report(entries)


def _describe(snapshots: fpdb.models.Snapshots) -> str:
    """Return how many snapshots are open, and which process has the oldest."""
    if not snapshots.open:
        return "0"
    return (
        f"{snapshots.open:,}, the oldest by process {snapshots.oldest_pid}, "
        f"{snapshots.behind:,} transactions behind"
    )


def _advise(found: fpdb.models.Stats, outgrown: fpdb.models.Outgrown) -> dict[str, object]:
    """Return what another plan would gain, and the command that changes to it."""
    seconds = " instead of ".join(f"{1e6 * each:,.0f}" for each in reversed(outgrown.seconds))
    size = " instead of ".join(f"{each:,}" for each in reversed(outgrown.bytes))
    return {
        "outgrown": f"{found.documents:,} documents; the tables are for {found.capacity:,}",
        "better plan": f"{outgrown.plan}: {seconds} µs for a query and an insert, {size} bytes",
        "rebuild": f"fpdb compact {shlex.quote(found.path)} --output NEW "
        f"--capacity {2 * found.documents}",
    }
