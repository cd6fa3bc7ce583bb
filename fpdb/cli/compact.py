"""The command that rebuilds a database."""

from pathlib import Path
from typing import Annotated

import typer

import fpdb
from fpdb.cli import databases, render
from fpdb.cli.options import DatabaseArgument, MemoryOption, TablesOption
from fpdb.cli.values import parse_count
from fpdb.tables.bulk_load import MEMORY


def compact(
    path: DatabaseArgument,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="NEW", help="The directory of the new database."),
    ],
    capacity: Annotated[
        int | None,
        typer.Option(
            "--capacity",
            metavar="N",
            parser=parse_count,
            help="For how many documents to choose the tables, as 5e7; default as it is.",
        ),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option("--k", "-k", min=0, help="The distance that counts as a match from now on."),
    ] = None,
    tables: TablesOption = None,
    memory: MemoryOption = MEMORY,
) -> None:
    """Write a new database with the same documents and ids, without free pages.

    With --capacity, -k or --tables it gets other tables, as `fpdb plan` lists them; otherwise it
    keeps those it has. It appears when it is whole, and the old one stays as it is: what is added
    to that meanwhile isn't in the new one.

    \b
    Example:
      fpdb compact crawl.fpdb --output roomy.fpdb --capacity 5e7
    """
    databases.require(str(output) != "-", "--output is a directory")
    with databases.open_readonly(path) as database:
        old = database.stats()
        plan = None
        if tables is not None:
            wanted = capacity or old.capacity
            plan = databases.choose_plan(old.bits, old.k if k is None else k, wanted, tables)
        database.compact(output, capacity=capacity, k=k, plan=plan, memory=memory)
    with fpdb.open(output, readonly=True) as built:
        new = built.stats()
    render.note(
        f"{output}: {new.documents:,} documents, {new.plan}, {new.bytes:,} bytes "
        f"instead of {old.bytes:,}"
    )
