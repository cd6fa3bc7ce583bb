"""The command that tells what a database holds."""

import dataclasses
import shlex

from fpdb import Outgrown, Snapshots, Stats
from fpdb.cli import databases, render
from fpdb.cli.options import DatabaseArgument, JsonOption
from fpdb.cli.values import iso


def stats(path: DatabaseArgument, as_json: JsonOption = False) -> None:
    """Tell what a database holds, how it was created, and what room it takes.

    bytes is the size of the data file, bytes used what its pages hold, without the free ones. What
    an open snapshot sees keeps its room: if the oldest is ever more transactions behind, the file
    grows because of that process. When the database has outgrown its tables, the last lines say
    what a rebuild would gain, by estimate.

    \b
    Example:
      fpdb stats crawl.fpdb
    """
    with databases.open_readonly(path) as database:
        found = database.stats()
    each = found.bytes_used / found.documents if found.documents else None
    if as_json:
        render.record(
            dataclasses.asdict(found)
            | {"created": iso(found.created), "bytes_per_document": each and round(each, 2)}
        )
        return
    entries: dict[str, object] = {
        "path": found.path,
        "uuid": found.uuid,
        "created": iso(found.created),
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
        "open snapshots": _readers(found.snapshots),
    }
    for table in found.tables:
        entries[table.name] = f"prefix {table.prefix}, {table.pages:,} pages"
    if found.outgrown:
        entries |= _advice(found, found.outgrown)
    render.report(entries)


def _readers(snapshots: Snapshots) -> str:
    """Say how many read now, and who keeps the most from being used again."""
    if not snapshots.open:
        return "0"
    return (
        f"{snapshots.open:,}, the oldest by process {snapshots.oldest_pid}, "
        f"{snapshots.behind:,} transactions behind"
    )


def _advice(found: Stats, outgrown: Outgrown) -> dict[str, object]:
    """Say what another plan would gain, and how to get it."""
    seconds = " instead of ".join(f"{1e6 * each:,.0f}" for each in reversed(outgrown.seconds))
    size = " instead of ".join(f"{each:,}" for each in reversed(outgrown.bytes))
    return {
        "outgrown": f"{found.documents:,} documents, for {found.capacity:,} the tables were chosen",
        "better plan": f"{outgrown.plan}: {seconds} µs for a query and an insert, {size} bytes",
        "rebuild": f"fpdb compact {shlex.quote(found.path)} --output NEW "
        f"--capacity {2 * found.documents}",
    }
