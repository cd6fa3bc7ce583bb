"""Load a new database from a directory of sorted columns."""

import time
from pathlib import Path

import typer

import fpdb
from fpdb.cli import databases, render
from fpdb.cli.databases import require
from fpdb.cli.options import choose_recipe

_WITH = {"path", "files", "sorted_columns", "recipe", "quiet"}


def load(
    context: typer.Context, path: Path, files: list[str] | None, recipe: str | None, *, quiet: bool
) -> None:
    """Make the database, and say what it is."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        given = source is not None and source.name == "COMMANDLINE"
        known = not given or parameter.name in _WITH
        require(known, f"{parameter.opts[0]} doesn't go with --sorted: the manifest says it all")
    paths = files or []
    require(len(paths) == 1 and paths != ["-"], "--sorted takes one directory")
    started = time.monotonic()
    chosen = choose_recipe(recipe) if recipe else None
    try:
        count = fpdb.load_sorted(paths[0], path, recipe=chosen)
    except KeyboardInterrupt:
        render.note("interrupted: no database was made")
        raise typer.Exit(130) from None
    seconds = time.monotonic() - started
    if not quiet:
        with databases.open_readonly(path) as database:
            databases.note_created(database)
        rate = count / seconds if seconds else 0
        render.note(f"loaded {count:,} documents; {seconds:.2f} s, {rate:,.0f} documents/s")
