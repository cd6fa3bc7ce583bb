"""The command that builds a sound database of a damaged one."""

from pathlib import Path
from typing import Annotated

import typer

import fpdb
from fpdb.cli import databases, render
from fpdb.cli.options import DatabaseArgument, JsonOption, MemoryOption
from fpdb.tables.bulk_load import MEMORY


def repair(
    path: DatabaseArgument,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="NEW", help="The directory of the new database."),
    ],
    like: Annotated[
        Path | None,
        typer.Option(
            "--like",
            metavar="OTHER",
            help="A database that was created in the same way, for one that has lost its header.",
        ),
    ] = None,
    as_json: JsonOption = False,
    memory: MemoryOption = MEMORY,
) -> None:
    """Write every document of a damaged database whose record is intact into a new one.

    The damaged one is only read, and nobody may write to it meanwhile. What was damaged is printed
    like the problems of `fpdb check`; a line `lost`, a tab and a key stands for each lost document
    whose key is known. The exit code is 1 if there is any such line.

    \b
    Example:
      fpdb repair crawl.fpdb --output sound.fpdb
    """
    databases.require(str(output) != "-", "--output is a directory")
    with databases.explained(path):
        repaired = fpdb.repair(path, output, like=like, memory=memory)
    for where, what in (*repaired.problems, *(("lost", key) for key in repaired.lost)):
        if as_json:
            render.record({"where": where, "what": what})
        else:
            render.row(where, what)
    missing = "an unknown number" if repaired.missing is None else f"{repaired.missing:,}"
    render.note(f"{output}: {repaired.documents:,} documents; {missing} lost")
    if repaired.problems or repaired.lost or repaired.missing:
        raise typer.Exit(1)
