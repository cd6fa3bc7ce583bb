"""The command that checks a database."""

import typer

from fpdb.cli import databases, render
from fpdb.cli.options import DatabaseArgument, JsonOption


def check(path: DatabaseArgument, as_json: JsonOption = False) -> None:
    """Compare the header, tables, documents and counters, and print what doesn't agree.

    Each line holds where the problem is, a tab, and what it is. The exit code is 1 if there is
    any.

    \b
    Example:
      fpdb check crawl.fpdb
    """
    found = False
    with databases.open_readonly(path) as database:
        for problem in database.check():
            found = True
            if as_json:
                render.record(problem._asdict())
            else:
                render.row(*problem)
    if found:
        raise typer.Exit(1)
    render.note("no problems")
