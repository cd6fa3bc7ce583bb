"""The command that finds all near-duplicate pairs of a database."""

import time
from typing import Annotated

import typer

import fpdb
from fpdb.cli import databases, render
from fpdb.cli.options import DatabaseArgument, JoinOption, JsonOption


def pairs(
    path: DatabaseArgument,
    k: JoinOption = None,
    groups: Annotated[
        bool,
        typer.Option("--groups", help="Print documents with the very same fingerprint as one."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Find all pairs of stored documents within k of each other, each pair once.

    Each line holds two keys and their distance; the first key is that of the older document, or
    the smaller number. Lines come as they are found.

    A million copies of one page are half a million million pairs. With --groups they are one line:
    the word group, the key of the first, and how many there are. All other lines then begin with
    the word pair, and name the first documents of two such groups, or documents that are in none.

    Short texts have no pairs. What is added meanwhile isn't looked at.

    \b
    Example:
      fpdb pairs crawl.fpdb
      fpdb pairs crawl.fpdb -k 5 --groups
    """
    started = time.monotonic()
    found = grouped = copies = 0
    with databases.open_readonly(path) as database:
        width = database.plan.bits // 4
        for item in database.pairs(k, groups=groups):
            if isinstance(item, fpdb.Group):
                grouped += 1
                copies += item.size
                if as_json:
                    plain = item._asdict()
                    render.record(plain | {"fingerprint": f"{item.fingerprint:0{width}x}"})
                else:
                    render.row("group", item.key, item.size)
                continue
            found += 1
            if as_json:
                render.record(item._asdict())
            else:
                render.row(*(("pair",) if groups else ()), item.key, item.other, item.distance)
    seconds = time.monotonic() - started
    also = f"groups {grouped:,} of {copies:,} documents, " if groups else ""
    render.note(f"{also}pairs {found:,}; {seconds:.2f} s")
