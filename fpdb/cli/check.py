"""The command that checks a database."""

from typing import Annotated

import typer

import fpdb
from fpdb.cli import databases, render
from fpdb.cli.options import DatabaseArgument, JsonOption


def check(
    path: DatabaseArgument,
    deep: Annotated[
        bool, typer.Option("--deep", help="Follow LMDB's own structure too, page by page.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare the header, tables, documents and counters, and print what doesn't agree.

    Each line holds where the problem is, a tab, and what it is. The exit code is 1 if there is
    any. A further process reads the database, so damage of any kind is reported. With --deep, every
    page of the file must also be in use once, or free; that is looked at before LMDB maps the file.

    \b
    Example:
      fpdb check crawl.fpdb
      fpdb check copy-of-unknown-origin.fpdb --deep
    """
    found = False
    with databases.explained(path):
        for problem in fpdb.check(path, deep=deep):
            found = True
            if as_json:
                render.record(problem._asdict())
            else:
                render.row(*problem)
            render.flush()
    if found:
        raise typer.Exit(1)
    render.note("no problems")
